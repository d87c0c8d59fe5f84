"""Tables of a company, written in every form, and the slow and obvious way to make a graph of them."""

import csv
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".feather", ".jsonl")
DELIMITERS = {".csv": (",", ";", "\t"), ".tsv": ("\t",), ".txt": (",", ";", "\t")}
Rows = list[dict[str, Any]]


def write(file: Path, rows: Rows, *, columns: list[str], delimiter: str = ",") -> Path:
    """Write rows as the table that the ending of the file says."""
    if file.suffix in DELIMITERS:
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, delimiter=delimiter, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows({name: "" if row[name] is None else row[name] for name in columns} for row in rows)
        file.write_text(text.getvalue())
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps({name: row[name] for name in columns}) + "\n" for row in rows))
    else:
        table = pa.table({name: [row[name] for row in rows] for name in columns})
        parquet.write_table(table, file) if file.suffix == ".parquet" else feather.write_feather(table, str(file))
    return file


def naive_graph(nodes: Rows, edges: Rows, *, category: str, number: str, label: str) -> dict[str, Any]:
    """Make the arrays of an undirected graph, one row after another. Columns: id, source, target, weight."""
    names = [row["id"] for row in nodes]
    place = {name: row for row, name in enumerate(names)}
    arcs: dict[tuple[int, int], float] = defaultdict(float)
    for row in edges:
        if row["source"] in place and row["target"] in place and row["source"] != row["target"]:
            arcs[place[row["source"]], place[row["target"]]] += row["weight"]
    both = {pair: weight + arcs.get(pair[::-1], 0.0) for pair, weight in arcs.items()}
    both |= {pair[::-1]: weight for pair, weight in both.items()}
    adjacency = np.zeros((len(names), len(names)))
    for pair, weight in both.items():
        adjacency[pair] = weight
    values = sorted({row[category] for row in nodes if row[category] is not None})
    classes = sorted({row[label] for row in nodes if row[label] is not None})
    return {
        "names": names,
        "adjacency": adjacency,
        number: [np.nan if row[number] is None else row[number] for row in nodes],
        **{f"{category}={value}": [float(row[category] == value) for row in nodes] for value in values},
        "classes": tuple(classes),
        "labels": [-1 if row[label] is None else classes.index(row[label]) for row in nodes],
    }
