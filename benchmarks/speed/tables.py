"""Time and memory of reading a user's tables with text ids, beside what pyarrow takes to parse the same files.

    python -m benchmarks tables     about three minutes on two cores

Writes a table of nodes and one of edges as .csv to a temporary folder: 10^6 nodes, 10^7 edges with weights. Each is
parsed by pyarrow alone, then read as a graph, in turns, each in a process of its own. Seconds are medians; processor
seconds depend less on other programs. Memory is the peak of the process above that after its imports, and is compared
with the arrays of the graph. Writes results/tables.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vcr_graphormer.base.machine import peak_memory, reset_peak_memory
from vcr_graphormer.base.problems import Problems
from vcr_graphormer.data.readers.assembly import Wanted
from vcr_graphormer.data.readers.mapping import EdgeTable, NodeTable
from vcr_graphormer.data.readers.own import read_mapped
from vcr_graphormer.data.summary import memory_bytes

from ..common import in_a_process, new_parser, print_table, write_result


def write_tables(folder: Path, nodes: int, edges: int) -> tuple[Path, Path]:
    """Write accounts with a number, a date, a category and a label, and transactions between them."""
    import pyarrow as pa
    from pyarrow import compute, csv

    random = np.random.default_rng(0)
    numbers = pa.array(random.permutation(nodes)).cast(pa.string())
    ids = compute.binary_join_element_wise("account", compute.utf8_lpad(numbers, 8, "0"), "-")
    accounts = {
        "account_id": ids,
        "status": pa.array(np.array(["ok", "fraud"]).tolist()).take(
            pa.array((random.random(nodes) < 0.05).astype(int))
        ),
        "balance": random.normal(size=nodes).round(3),
        "created": np.datetime64("2020-01-01") + random.integers(0, 1500, nodes),
        "country": pa.array(["DE", "FR", "US"]).take(pa.array(random.integers(0, 3, nodes))),
    }
    transactions = {
        "from_account": ids.take(pa.array(random.integers(0, nodes, edges))),
        "to_account": ids.take(pa.array(random.integers(0, nodes, edges))),
        "amount": (random.gamma(2, 50, edges) + 0.01).round(2),
    }
    files = folder / "accounts.csv", folder / "transactions.csv"
    for file, columns in zip(files, (accounts, transactions), strict=True):
        csv.write_csv(pa.table(columns), file)
    return files


def measure(files: tuple[Path, Path], way: str) -> dict[str, Any]:
    """Read both files in one of two ways; return seconds, processor seconds and bytes."""
    from pyarrow import csv

    if way == "graph":
        # Imported before the clock starts.
        import vcr_graphormer.data.readers.hashing
        import vcr_graphormer.data.sorting  # noqa: F401
    reset_peak_memory()
    before = peak_memory()
    start, processor = time.perf_counter(), time.process_time()
    if way == "pyarrow":
        tables = [csv.read_csv(file) for file in files]
        arrays = sum(table.nbytes for table in tables)
    else:
        nodes = NodeTable(str(files[0]), "account_id", "status", ("country",))
        edges = EdgeTable(str(files[1]), "from_account", "to_account", "amount")
        graph, _ = read_mapped([nodes], [edges], Wanted(), problems=Problems(), progress=lambda *_: None)
        arrays = memory_bytes(graph)
    seconds = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - processor}
    return {**seconds, "peak_bytes": peak_memory() - before, "array_bytes": arrays}


def compare(nodes: int, edges: int, repeats: int) -> list[dict[str, Any]]:
    """Return one row per way: medians of seconds, the largest peak, and how many times as much a graph takes."""
    rows: dict[str, list[dict[str, Any]]] = {"pyarrow": [], "graph": []}
    with tempfile.TemporaryDirectory() as folder:
        files = write_tables(Path(folder), nodes, edges)
        for _ in range(repeats):
            for way, found in rows.items():
                found.append(in_a_process(measure, files, way))
    result = []
    for way, found in rows.items():
        seconds = {key: float(np.median([row[key] for row in found])) for key in ("seconds", "processor_seconds")}
        peak = max(row["peak_bytes"] for row in found)
        row = {"way": way, "nodes": nodes, "edges": edges, **seconds, "peak_bytes": peak}
        result.append({**row, "array_bytes": found[0]["array_bytes"], "peak_per_array": peak / found[0]["array_bytes"]})
    for key in ("seconds", "processor_seconds"):
        result[1][f"{key}_ratio"] = result[1][key] / result[0][key]
    return result


def sentence(rows: list[dict[str, Any]]) -> str:
    """Return what docs/speed.md says about the measured rows."""
    graph, wall = rows[1], f"{rows[1]['seconds']:.1f} against {rows[0]['seconds']:.1f} on two cores"
    return (
        f"With {graph['nodes']:,} nodes and {graph['edges']:,} weighted edges a graph took "
        f"{graph['seconds_ratio']:.1f} times the seconds of pyarrow alone ({wall}), "
        f"{graph['processor_seconds_ratio']:.1f} times its processor time, and "
        f"{graph['peak_per_array']:.1f} times the memory of its arrays."
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/tables.json")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    return parser


def main() -> None:
    """Measure both ways in turns."""
    arguments = make_parser().parse_args()
    compare(200_000, 200_000, 1)  # compile
    rows = compare(arguments.nodes, arguments.edges, arguments.repeats)
    print_table(rows)
    write_result(arguments.out, {"rows": rows})
