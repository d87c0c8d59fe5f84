"""A small part of the attack runs here; and what it looks for, it finds."""

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.attacks import fuzzing
from benchmarks.attacks.commands import COMMANDS, judge
from benchmarks.attacks.damage import Copy, damage, fit_checksums, payloads
from benchmarks.attacks.fuzzing import OUTCOMES, Findings
from benchmarks.attacks.jobs import kill, lost_bytes, snapshot
from benchmarks.attacks.kills import Losses
from benchmarks.attacks.samples import Sample
from benchmarks.robustness import add_up, merge

import vcr_graphormer as vcr
from vcr_graphormer.base.folders import verify_folder

ROOT = Path(__file__).parent.parent.parent


FORMATS = ("csv", "npz", "settings", "Photo")
CASES, DAMAGED_COMMANDS = 150, 10
# Fewer cases than a campaign has, but as many of them under whole commands as 2,000 would give.
SCRIPT = f"from benchmarks import robustness; robustness.COMMANDS = {DAMAGED_COMMANDS} / {CASES}; robustness.main()"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one small attack with several parts: importing and preparing take longer than the cases."""
    folder = tmp_path_factory.mktemp("attack")
    command = [sys.executable, "-c", SCRIPT, "--cases", str(CASES), "--kills", "2", "--seed", "7", "--minutes", "8"]
    command += ["--parts", "programs", "kills", "commands", "fuzz", "--formats", *FORMATS]
    command += ["--jobs", "predict", "datasets", "--out", str(folder / "result.json"), "--folder", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    assert [path.name for path in folder.iterdir()] == ["result.json"]
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def test_a_small_attack_is_survived(attacked: dict[str, Any]) -> None:
    parts, total = attacked["parts"], attacked["total"]
    assert parts["programs"]["not survived"] == parts["fuzz"]["not survived"] == parts["kills"]["not survived"] == []
    counts = parts["fuzz"]["counts"]
    assert set(counts) == set(FORMATS)
    assert sum(sum(row.values()) for row in counts.values()) == CASES
    assert sum(row["refused"] for row in counts.values()) > 50
    bad = {name: value for name, value in total.items() if name not in ("cases", "kills that hit")}
    assert set(bad.values()) == {0}
    assert total["kills that hit"] == 2


def test_commands_on_damaged_files_are_survived(attacked: dict[str, Any]) -> None:
    part = attacked["parts"]["commands"]
    assert part["not survived"] == []
    assert sum(sum(row.values()) for row in part["counts"].values()) == len(COMMANDS) + DAMAGED_COMMANDS
    assert all(row["fine"] >= 1 for row in part["counts"].values())  # every command works on sound files


def test_how_a_command_ended() -> None:
    assert [judge(0, "done"), judge(2, "error: no"), judge(None, ""), judge(-11, "")] == [
        "fine",
        "refused",
        "hang",
        "crash",
    ]
    for status, text in ((70, "error: this is a bug"), (1, "Traceback"), (2, ""), (0, "this is a bug")):
        assert judge(status, text) == "traceback"
    assert judge(2, "error: no", allowed=(0,)) == "traceback"


def load_pickle(folder: Path) -> None:
    """A reader as it must not be."""
    content = (folder / "file").read_bytes()
    if content == b"crash":
        os.abort()
    if content == b"hang":
        time.sleep(60)
    pickle.loads(content)


def test_what_it_looks_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "file").write_bytes(pickle.dumps(1))
    monkeypatch.setattr(fuzzing, "ALL", {"bad": Sample(lambda folder: None, load_pickle)})
    monkeypatch.setattr(fuzzing, "SECONDS_TO_HANG", 1)
    contents = iter((b"no pickle", payloads(str(tmp_path / "ran"))["pickle"], b"crash", b"hang", pickle.dumps(2)))
    by_case = dict(enumerate(contents))
    monkeypatch.setattr(fuzzing, "damage", lambda file, dice, victim: file.write_bytes(by_case[case_now()]))
    fuzzing.remember(tmp_path, ["bad"])
    findings = Findings(("bad",))

    def case_now() -> int:
        return int(findings.now[0])

    fuzzing.fuzz(tmp_path, findings, range(5), end=time.monotonic() + 60)
    assert findings.result()["counts"] == {
        "bad": {"fine": 1, "refused": 0, "traceback": 1, "payload ran": 1, "crash": 1, "hang": 1}
    }
    assert [next(name for name in OUTCOMES if name in bad) for bad in findings.bad] == [
        "traceback",
        "payload ran",
        "crash",
        "hang",
    ]
    assert [bad["case"] for bad in findings.bad] == [0, 1, 2, 3]
    assert "UnpicklingError" in findings.bad[0]["traceback"]
    assert (tmp_path / "bad" / "file").read_bytes() == pickle.dumps(1)


def test_losses_are_found(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"12345")
    before = snapshot(tmp_path)
    assert lost_bytes(before, before) == 0
    assert lost_bytes(before, {"kept": b"12344"}) == lost_bytes(before, {}) == 5
    losses = Losses()
    losses.judge("train", 0, "done")
    losses.judge("train", 2, "error: no", allowed=(0, 2))
    for status, text in ((None, ""), (1, "Traceback"), (70, "this is a bug"), (-11, ""), (2, "error: no")):
        losses.judge("train", status, text)
    counts = losses.result()["counts"]["train"]
    assert (counts["hangs"], counts["tracebacks"], counts["crashes"], counts["not continued"]) == (1, 2, 1, 1)
    assert add_up({"kills": losses.result()})["segmentation faults"] == 1


def test_damage_is_undone_and_checksums_can_fit(tmp_path: Path) -> None:
    import random

    saved = vcr.generate(40, 80, classes=2, features=2, seed=0).save(tmp_path / "graph")
    copy = Copy(saved)
    before = snapshot(saved)
    for seed in range(20):
        damage(saved / "labels.npy", random.Random(seed), tmp_path / "ran")
    assert snapshot(saved) != before
    copy.restore()
    assert snapshot(saved) == before
    content = bytearray((saved / "labels.npy").read_bytes())
    content[-8] ^= 1
    (saved / "labels.npy").write_bytes(content)
    with pytest.raises(vcr.StoreError):
        verify_folder(saved)
    fit_checksums(saved / "labels.npy")
    verify_folder(saved)


def test_parts_of_one_state_add_up() -> None:
    def part(state: str, command: str, fine: int) -> dict[str, Any]:
        counts = {"csv": {"fine": fine, "crash": 0}}
        return {"state": state, "commands": [command], "seconds": 2, "counts": counts, "not survived": []}

    first = merge({}, {"fuzz": part("a", "--seed 0", 3)})
    again = merge(first, {"fuzz": part("a", "--seed 9", 4), "kills": part("a", "", 1)})
    assert (again["fuzz"]["seconds"], again["fuzz"]["counts"]) == (4, {"csv": {"fine": 7, "crash": 0}})
    assert (again["fuzz"]["commands"], list(again)) == (["--seed 0", "--seed 9"], ["kills", "fuzz"])
    assert merge(again, {"fuzz": part("b", "--seed 9", 5)})["fuzz"]["counts"]["csv"]["fine"] == 5
    assert merge(first, {"fuzz": part("a", "--seed 0", 3)})["fuzz"]["counts"]["csv"]["fine"] == 3


def test_a_kill_reaches_processes_in_sessions_of_their_own(tmp_path: Path) -> None:
    sleep = "import time; time.sleep(60)"
    start = f"subprocess.Popen([sys.executable, '-c', '{sleep}'], start_new_session=True)"
    inner = f"import subprocess, sys, time; print({start}.pid, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", inner], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    with process.stdout:
        child = int(process.stdout.readline())
    kill(process.pid)
    process.returncode = 0  # `kill` has waited for it
    state = Path(f"/proc/{child}/stat")
    deadline = time.monotonic() + 20
    while state.exists() and ") Z" not in state.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists() or ") Z" in state.read_text()  # gone, or waiting for the parent that is gone
