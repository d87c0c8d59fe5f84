"""Attack the package: damaged and hostile files of every format, kills, full disks; count what it does not survive.

    python -m benchmarks robustness --kills 330 --cases 200000 --minutes 60     about forty minutes on one core

A case damages one file of a small sound sample and uses it as a caller would. Much of the damage keeps the format, and
checksums are made to fit, as an attacker would. A kill is SIGKILL at a random time; the command is then run again and
must end with the bytes of one that was never killed. Cases and times of kills follow from the seed. The parts are:

    programs    a pickle that makes a file, in seven wrappings, in place of every file of every sample
    kills       every command that reads or writes; most run in forked children, which start at once
    serve       a server that is killed while it keeps nodes
    disk        commands on a small tmpfs that gets full, or below a limit on file sizes where mounting is not allowed
    dask        a tokenization by two workers; now and then a worker dies
    torchrun    two processes that train together
    commands    one case in 200: a damaged file under a whole command; single readers do not show what comes later
    fuzz        the cases, by batches in forked children

Run it in a file system in memory (`--folder /dev/shm`) to spare the disk. Writes results/robustness.json; parts that
are not asked for stay there, with their commands and the state of the code. Cases of the same state by another `--seed`
add up. A single case is run again, with its traceback, by `--case NUMBER`; one of whole commands by that and
`--parts commands`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.common import new_parser, print_table, this_command, write_result
from vcr_graphormer.base.files import read_json

PARTS = ("programs", "kills", "serve", "disk", "dask", "torchrun", "commands", "fuzz")
# Of all kills asked for, so many are of these; the others are of single commands.
SHARES = {"serve": 0.1, "dask": 0.03, "torchrun": 0.02}
DISKS = 0.3  # runs on a full disk, per kill
COMMANDS = 1 / 200  # cases under whole commands, per case: each takes a second, not a millisecond
FUZZING = 0.5  # part of the time that is kept for the cases, if there are any
# Imported before the first fork, so that commands start at once.
EARLY = ("cli.main", "report.page", "runs.serving.server", "runs.tuning", "explain.criteria", "model.export")
# What the totals count, by the names in the tables of the parts.
TOTALS = {
    "cases": ("fine", "refused", "traceback", "payload ran", "crash", "hang"),
    "kills that hit": ("kills that hit",),
    "lost bytes": ("lost bytes",),
    "segmentation faults": ("crash", "crashes"),
    "hangs": ("hang", "hangs"),
    "tracebacks": ("traceback", "tracebacks"),
    "executed payloads": ("payload ran",),
    "not continued": ("not continued",),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/robustness.json")
    parser.add_argument("--cases", type=int, default=2000, help="damaged files (default: 2000)")
    parser.add_argument("--kills", type=int, default=20, help="kills that hit (default: 20)")
    parser.add_argument("--minutes", type=float, default=10, help="stop after this time (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case; other numbers, other cases")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--formats", nargs="+", help="samples to damage (default: all)")
    parser.add_argument("--jobs", nargs="+", help="commands to kill (default: all)")
    parser.add_argument("--case", type=int, help="run this one case, with its traceback, and stop")
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    return parser


def _import_early() -> None:
    """Import what commands need, and let no library start threads: these would not survive a fork."""
    import torch

    torch.set_num_threads(1)
    for name in EARLY:
        importlib.import_module(f"vcr_graphormer.{name}")
    for name in ("uvicorn", "onnx", "onnxscript", "pyarrow.parquet", "sklearn.linear_model", "sklearn.ensemble"):
        with suppress(ImportError):
            importlib.import_module(name)


def attack(arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """Run the parts; return, for each, its counts by kind, what was not survived, and its seconds."""
    from benchmarks.attacks import commands, disks, fuzzing, jobs, kills

    start = time.monotonic()
    end = start + 60 * arguments.minutes
    soon = start + 60 * arguments.minutes * (1 - FUZZING if "fuzz" in arguments.parts else 1)
    names = tuple(arguments.formats or fuzzing.ALL)
    samples, made = folder / "samples", folder / "made"
    if {"programs", "fuzz"} & set(arguments.parts):
        fuzzing.write_samples(samples, names)
        fuzzing.remember(samples, names)
    if set(arguments.parts) - {"programs", "fuzz"}:
        jobs.make_workspace(made)
    wanted = {part: max(1, round(arguments.kills * share)) for part, share in SHARES.items()}
    single = arguments.kills - sum(wanted[part] for part in SHARES if part in arguments.parts)
    numbers = range(arguments.seed, arguments.seed + arguments.cases)
    few = range(arguments.seed, arguments.seed + round(COMMANDS * arguments.cases))
    how: dict[str, Any] = {"end": soon, "seed": arguments.seed}
    chosen = tuple(arguments.jobs or jobs.JOBS)
    # Each part counts into a table of its own.
    works: dict[str, Callable[[Any], Any]] = {
        "programs": lambda table: fuzzing.attack_by_programs(samples, table),
        "kills": lambda table: kills.kill_jobs(made, table, single, names=chosen, **how),
        "serve": lambda table: kills.kill_servers(made, table, wanted["serve"], end=soon),
        "disk": lambda table: disks.fill_disks(made, table, round(DISKS * arguments.kills), **how),
        "dask": lambda table: kills.kill_dask(made, table, wanted["dask"], end=soon),
        "torchrun": lambda table: kills.kill_torchrun(made, table, wanted["torchrun"], end=soon),
        "commands": lambda table: commands.attack_commands(made, table, few, end=soon),
        "fuzz": lambda table: fuzzing.fuzz(samples, table, numbers, end=end),
    }
    tables = {"commands": fuzzing.Findings(tuple(commands.COMMANDS))}
    found: dict[str, dict[str, Any]] = {}
    for part in (part for part in PARTS if part in arguments.parts):
        table = fuzzing.Findings(names) if part in ("programs", "fuzz") else tables.get(part, kills.Losses())
        begin = time.monotonic()
        note = works[part](table)
        seconds = round(time.monotonic() - begin)
        print(f"{part}: {seconds} s", flush=True)
        found[part] = {"seconds": seconds, **table.result(), **({"by": note} if isinstance(note, str) else {})}
    return found


def add_up(parts: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Return the totals of all parts."""
    rows = [row for part in parts.values() for row in part["counts"].values()]
    return {name: sum(row.get(key, 0) for row in rows for key in keys) for name, keys in TOTALS.items()}


def merge(before: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the parts of a result file and new ones; those of the same state by other commands are added up."""
    merged = dict(before)
    for name, part in found.items():
        old = before.get(name, {"state": "", "commands": []})
        if old["state"] != part["state"] or part["commands"][0] in old["commands"]:
            merged[name] = part
            continue
        kinds = [*old["counts"], *(kind for kind in part["counts"] if kind not in old["counts"])]
        counts = {kind: Counter(old["counts"].get(kind, {})) for kind in kinds}
        for kind, row in part["counts"].items():
            counts[kind].update(row)
        merged[name] = {
            **part,
            "commands": [*old["commands"], *part["commands"]],
            "seconds": old["seconds"] + part["seconds"],
            "counts": {kind: dict(row) for kind, row in counts.items()},
            "not survived": [*old["not survived"], *part["not survived"]],
        }
    return {name: merged[name] for name in PARTS if name in merged}


def replay(case: int, folder: Path) -> None:
    """Run one case in this process and raise what it raises."""
    from benchmarks.attacks import damage, fuzzing

    dice = random.Random(case)
    [name] = dice.choices(list(fuzzing.ALL), [sample.share for sample in fuzzing.ALL.values()])
    fuzzing.write_samples(folder, [name])
    fuzzing.remember(folder, [name])
    file = dice.choice(fuzzing.files(folder, name))
    print(f"{name}: {file.name}, {damage.damage(file, dice, folder / 'ran')}")
    fuzzing.ALL[name].use(folder / name)


def replay_command(case: int, folder: Path) -> None:
    """Run one case of a whole command and print what it printed."""
    from benchmarks.attacks import commands, damage, fuzzing, jobs

    jobs.make_workspace(folder / "made")
    commands.make_more(folder / "made", folder / "commands")
    findings = fuzzing.Findings(tuple(commands.COMMANDS))
    commands.attack_once(folder / "commands", damage.Copy(folder / "commands"), findings, case)
    print(findings.bad or "survived", jobs.log_of(folder / "commands").read_text(errors="replace"), sep="\n")


def _state() -> str:
    """Return the commit that was attacked, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return answer.stdout.strip() or "unknown"


def main() -> None:
    """Run the parts within the time, print and write."""
    arguments = make_parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    state = _state()
    folder = Path(tempfile.mkdtemp(prefix="robustness-", dir=arguments.folder))
    try:
        _import_early()
        if arguments.case is not None:
            (replay_command if tuple(arguments.parts) == ("commands",) else replay)(arguments.case, folder)
            return
        found = attack(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    before = read_json(arguments.out).get("parts", {}) if arguments.out.is_file() else {}
    about = {"state": state, "commands": [this_command()]}
    parts = merge(before, {name: {**about, **part} for name, part in found.items()})
    for name, part in found.items():
        print_table([{name: kind, **row} for kind, row in part["counts"].items()])
    print_table([add_up(parts)])
    write_result(arguments.out, {"total": add_up(parts), "parts": parts})


if __name__ == "__main__":
    main()
