"""Test accuracy of datasets, variants and seeds, one result file per dataset, protocol and variant.

    python -m benchmarks accuracy PubMed Photo --data ROOT --variant default --protocol A --seeds 10

Only seeds without a result are trained. After an interruption the same command continues.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import new_parser
from benchmarks.records import Plan, measure_accuracy


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, out="results/accuracy")
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="known datasets, for example PubMed Photo")
    parser.add_argument("--variant", action="append", help="default, adaptive, reduced, paper, …; repeatable")
    parser.add_argument("--protocol", default="A", help="A: random 60/20/20 by seed; B: the published fixed split")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="seeds 0 to N-1")
    parser.add_argument("--force", action="store_true", help="run all seeds again, whatever there is")
    return parser


def main() -> None:
    """Train every dataset, variant and seed that has no result yet."""
    arguments = make_parser().parse_args()
    seeds = list(range(arguments.seeds))
    for dataset in arguments.datasets:
        plan = Plan(dataset, arguments.variant or ["default"], seeds, arguments.protocol)
        files = measure_accuracy(
            plan, arguments.out, root=arguments.data, device=arguments.device, force=arguments.force, on_run=_print_run
        )
        for file in files:
            print(f"written: {file}")


def _print_run(content: dict[str, Any], run: dict[str, Any]) -> None:
    name = f"{content['dataset']} {content['protocol']} {content['variant']} seed {run['seed']}"
    print(f"{name}: val {100 * run['val']:.2f} test {100 * run['test']:.2f} ({run['seconds']:.1f} s)", flush=True)
