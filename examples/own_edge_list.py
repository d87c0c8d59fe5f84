"""Your own files, nodes with names: edges.csv, features.csv and labels.csv → predictions.csv.

python examples/own_edge_list.py                    # writes a small example folder first
python examples/own_edge_list.py --data FOLDER      # the same with your folder
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr

GENRES = ("crime", "poetry", "travel")


def write_table(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """One comma-separated table."""
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(header)
        writer.writerows(rows)


def write_example(folder: Path, count: int = 300) -> None:
    """Books bought together: most pairs share a genre; the genre of every tenth book is unknown."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    names = [f"book-{number:03d}" for number in range(count)]
    genre = generator.integers(len(GENRES), size=count)
    first, second = generator.integers(count, size=(2, 20 * count))
    bought = (genre[first] == genre[second]) | (generator.random(len(first)) < 0.05)
    pairs = list(zip(first[bought], second[bought], strict=True))[: 4 * count]
    write_table(folder / "edges.csv", ("source", "target"), [(names[a], names[b]) for a, b in pairs])

    numbers = np.round(np.eye(len(GENRES))[genre] + generator.normal(size=(count, len(GENRES))), 3)
    columns = [f"words_{name}" for name in GENRES]
    rows = [(name, *values) for name, values in zip(names, numbers, strict=True)]
    write_table(folder / "features.csv", ("node", *columns), rows)

    known = [number for number in range(count) if number % 10]
    write_table(folder / "labels.csv", ("node", "label"), [(names[n], GENRES[genre[n]]) for n in known])


def main() -> None:
    """Read the folder, train, and write what the model says of every node."""
    parser = argparse.ArgumentParser(description="VCR-Graphormer on one's own edge list")
    parser.add_argument("--data", type=Path, help="folder with edges, features and labels (default: an example)")
    parser.add_argument("--out", type=Path, help="folder for everything written (default: a temporary one)")
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary)
        folder = arguments.data or out / "books"
        if arguments.data is None:
            write_example(folder)
        graph = vcr.load_dataset(folder)
        print(graph.summary())

        # Nodes without a label belong to no part of the split; they are predicted all the same.
        split = vcr.Split.random(graph.labels, train=0.6, val=0.2, seed=0)
        # Batch size, warm-up and other numbers that are not given are chosen for the graph.
        run = vcr.train(graph, split, vcr.Config(training=vcr.TrainConfig(epochs=arguments.epochs)), out=out / "run")
        print("\n".join(run.notes))
        print(f"test accuracy: {run.metrics['test']:.4f}")

        file = run.predict().save(out / "predictions.csv")
        print(f"{file}:")
        print("\n".join(file.read_text(encoding="utf-8").splitlines()[:4]))
        print(f"nodes without a label that have a prediction now: {np.sum(np.asarray(graph.labels) < 0)}")


if __name__ == "__main__":
    main()
