"""The examples as a reader runs them, by what they print and leave behind.

One runs in a process of its own. The others are run as scripts in this one, which saves ten seconds of imports each.
"""

import csv
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

from pyarrow import parquet

from tests.support.command import run as command
from vcr_graphormer import Run

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    """As `python examples/NAME.py`, with fresh globals and its own arguments, in this process."""

    def script() -> None:
        sys.argv[0] = str(EXAMPLES / f"{name}.py")
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()

    return command(*arguments, command=script)


def run_apart(name: str, *arguments: str) -> str:
    """In a process of its own."""
    script = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def test_quickstart_pyg(tmp_path: Path) -> None:
    text = run("quickstart_pyg", "--out", str(tmp_path), "--epochs", "5")
    # Guessing is right for one digit in ten, the pixels alone (k nearest neighbours) for nearly all.
    printed = number(r"test accuracy: (\S+)", text)
    assert printed > 0.9
    assert len(re.findall(r"node \d+: class \d with probability [01]\.\d{3}, in truth \d", text)) == 3
    assert "embeddings: (1797, 384)" in text
    assert "opened again: the same predictions" in text
    kept = Run.open(tmp_path / "run", device="cpu")
    assert kept.finished
    assert round(kept.metrics["test"], 4) == printed


def test_own_edge_list(tmp_path: Path) -> None:
    text = run_apart("own_edge_list", "--out", str(tmp_path), "--epochs", "15")
    assert number(r"test accuracy: (\S+)", text) > 0.7  # a third by guessing
    assert "3 classes, 270 nodes labelled" in text
    assert "nodes without a label that have a prediction now: 30" in text
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["name"] for row in rows] == [f"book-{book:03d}" for book in range(300)]
    assert {row["prediction"] for row in rows} == {"crime", "poetry", "travel"}
    assert rows[0]["prediction"] in text  # its first lines are shown


def test_heterophilous(tmp_path: Path) -> None:
    text = run("heterophilous", "--out", str(tmp_path), "--epochs", "6")
    assert "0.100 of edges" in text  # the graph is what the example says
    for name, folder in (("hops only", "hops-only"), ("full list", "full-list")):
        kept = Run.open(tmp_path / folder, device="cpu")
        assert round(kept.metrics["val"], 4) == number(rf"{name}: validation (\S+),", text)
        assert round(kept.metrics["test"], 4) == number(rf"{name}: .* test (\S+)", text)
        assert kept.metrics["test"] > 0.4  # a fifth by guessing; which list wins is no promise
    assert Run.open(tmp_path / "hops-only", device="cpu").store.num_tokens == 4  # itself and three hops
    assert re.search(r"gain of the full list on the test nodes: [+-]\d+\.\d points", text)


def test_company_accounts(tmp_path: Path) -> None:
    """The commands of docs/company.md on a small company: from tables to a parquet of predictions."""
    folder = tmp_path / "company"
    text = run("company_accounts", "--out", str(folder), "--accounts", "600")
    assert "600 accounts, 15 of them fraud" in text
    config = ("--config", str(folder / "fraud.toml"))
    # The proposal for the folder is what fraud.toml says of the tables.
    proposal = command("datasets", str(folder), code=2)
    for line in ('id = "account_id"', 'label = "status"', 'categories = ["country", "plan"]', 'weight = "amount"'):
        assert line in proposal
        assert line in (folder / "fraud.toml").read_text(encoding="utf-8")
    text = command("datasets", *config)
    assert "edges are left out: an id of theirs is in no table of nodes" in text
    assert "the columns 'transaction', 'booked_at' are not used" in text
    assert "columns not used       'email'" in text
    quick = ("--set", "training.epochs=2", "--set", "model.hidden_channels=16", "--baselines", "none")
    out = str(tmp_path / "runs" / "fraud")
    text = command("train", *config, *quick, "--out", out, "--device", "cpu")
    assert "fraud is predicted from a probability of" in text
    text = command("evaluate", out, "--device", "cpu", "--json")
    scores = json.loads(text[text.index("{") :])
    assert scores["test"]["average_precision"] == Run.open(out, device="cpu").metrics["test"]  # as it was trained
    file = tmp_path / "predictions.parquet"
    command("predict", out, "--out", str(file), "--device", "cpu")
    rows = parquet.read_table(file).to_pylist()
    assert [row["name"] for row in rows] == [f"AC-{number:06d}" for number in range(600)]
    assert {row["prediction"] for row in rows} <= {"ok", "fraud"}
    assert {row["part"] for row in rows if row["label"] is None} == {None}  # not reviewed, but predicted
    assert all(0 <= row["probability_fraud"] <= 1 for row in rows)
    assert "AC-000042" in command("explain", out, "--node", "AC-000042", "--device", "cpu")
    assert "fraud" in command("runs", str(tmp_path / "runs"))


def test_the_page_about_a_company_shows_the_mapping_of_the_example() -> None:
    script = (EXAMPLES / "company_accounts.py").read_text(encoding="utf-8")
    mapping = script.split('MAPPING = """\\\n')[1].split('"""')[0].split("\n", 1)[1]
    assert mapping in (EXAMPLES.parent / "docs" / "company.md").read_text(encoding="utf-8")


def test_pyg_transforms() -> None:
    text = run("pyg_transforms", "--k", "8", "--steps", "30")
    assert "token_ids=[1797, 8]" in text and "ppr_edge_index=[2, " in text
    for name in ("GCN, given edges", "GCN, best by PageRank", "GATv2, token lists"):
        assert number(rf"{name}:\s+(\S+)", text) > 0.8  # a tenth by guessing
