"""How long a saved graph takes to open: the first time, when all arrays are checked, and when that is remembered.

    python -m benchmarks opening --folder FOLDER     about three minutes and 12 GB of memory

A generated graph of Amazon2M's size, 2.4 million nodes and 62 million edges; `--scale 0.1` is a tenth of it. Each
opening is that of a new process, without its imports. Files are in the system's cache. Writes results/opening.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import in_a_process, new_parser, print_table, write_result
from benchmarks.speed.scale import make_graph
from vcr_graphormer.base.folders import CHECKED


def open_graph(folder: Path) -> tuple[float, float, int]:
    """Return the seconds that one opening took, those of the processor, and how many descriptors the graph holds."""
    before, start, busy = _descriptors(), time.perf_counter(), time.process_time()
    graph = vcr.Graph.open(folder)
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    with graph:
        return seconds, processor, _descriptors() - before


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    """Return the median seconds of a first and of a remembered opening."""
    in_a_process(open_graph, folder)  # the files come into the cache
    first, again = [], []
    for _ in range(repeats):
        (folder / CHECKED).unlink(missing_ok=True)
        first.append(in_a_process(open_graph, folder))
        again.append(in_a_process(open_graph, folder))
    graph = vcr.Graph.open(folder)
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "gigabytes": sum(file.stat().st_size for file in folder.iterdir()) / 1e9,
        "seconds_first": float(np.median([row[0] for row in first])),
        "processor_seconds_first": float(np.median([row[1] for row in first])),
        "seconds_remembered": float(np.median([row[0] for row in again])),
        "descriptors": max(row[2] for row in first + again),
    }


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/opening.json")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graph as a fraction of Amazon2M")
    parser.add_argument("--folder", type=Path, help="folder for the graph (default: a temporary one)")
    parser.add_argument("--repeats", type=int, default=5)
    return parser


def main() -> None:
    """Make the graph unless it is there, and open it again and again."""
    arguments = make_parser().parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)) / f"graph-{arguments.scale:g}"
        if not folder.exists():
            in_a_process(make_graph, arguments.scale, folder)
        row = measure(folder, arguments.repeats)
    print_table([row])
    write_result(arguments.out, row)
