"""Train, evaluate, predict, embed, export, as a stranger meets them."""

from pathlib import Path

import numpy as np

from tests.support.command import run
from vcr_graphormer import Run

SHORT = ("--set", "training.epochs=2", "--set", "model.hidden_channels=16", "--device", "cpu", "--baselines", "none")


def test_train_evaluate_predict_embed(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    text = run("train", "--out", out, *SHORT)
    for part in (
        "epoch 1: loss",
        "digits: accuracy, best epoch",
        "macro_f1",
        "parameters on cpu",
        f"the run lies in {out}",
        "batch of 43 nodes: 1,078 training nodes, 26 steps an epoch\n",
        "warm-up of 3 steps: 5% of all\n",
    ):
        assert part in text
    assert "beside plain baselines" not in text
    gate = Run.open(out, "cpu").gate
    assert gate is not None
    assert f"the gate for the whole list is open by {abs(gate):.2f} of 1 (0.50 at the start)\n" in text
    paper = run("train", "--out", str(tmp_path / "paper"), *SHORT, "--variant", "paper")
    assert "gate" not in paper
    assert "batch of" not in paper
    assert Run.open(tmp_path / "paper", "cpu").config.training.batch_size == 500
    assert "holds a run already" in run("train", "--out", out, *SHORT, code=2)
    assert "digits: accuracy" in run("train", "--resume", out)  # finished: shown as it is
    assert "leave out the other options" in run("train", "--resume", out, "--out", out, code=2)
    assert "digits: accuracy" in run("train", "--out", out, *SHORT, "--force")
    test = f"{Run.open(out, 'cpu').metrics['test']:.4f}"
    assert test in run("evaluate", out)
    assert test in run("evaluate", out, "--part", "test")
    assert "--part is 'tset'; it must be train, val, test or all" in run("evaluate", out, "--part", "tset", code=2)
    text = run("predict", out, "--nodes", "0, 5")
    assert "prediction" in text
    csv = tmp_path / "all.csv"
    assert "1,797 predictions written" in run("predict", out, "--out", str(csv))
    lines = csv.read_text().splitlines()
    assert lines[0].startswith("node,part,label,prediction,probability_0")
    assert len(lines) == 1798
    assert "exists" in run("predict", out, "--out", str(csv), code=2)
    assert "there is no node 1797" in run("predict", out, "--nodes", "1797", code=2)
    assert "there is no node named 'x'" in run("predict", out, "--nodes", "x", code=2)
    (tmp_path / "nodes.txt").write_text("3\n\n4\n")
    assert "2 vectors of 96 numbers" in run(
        "embed", out, "--out", str(tmp_path / "vectors.npy"), "--nodes", f"@{tmp_path / 'nodes.txt'}"
    )
    assert np.load(tmp_path / "vectors.npy").shape == (2, 96)
    assert "must end in .csv, .parquet, .npz or .npy" in run(
        "embed", out, "--out", str(tmp_path / "vectors.txt"), code=2
    )
    model = tmp_path / "model.pt2"
    assert run("export", out, "--format", "torch", "--out", str(model)) == (
        f"model written to {model}; its inputs and outputs are described in {model}.json\n"
    )
    assert model.stat().st_size > 0
    assert '"probabilities"' in Path(f"{model}.json").read_text()
    assert "format is 'tf'; it must be onnx or torch" in run("export", out, "--format", "tf", code=2)


def test_baselines_beside_our_result(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("train", "--out", str(out), *SHORT)
    assert "baselines is 'some'; it must be none, quick or all" in run(
        "train", "--resume", str(out), "--baselines", "some", code=2
    )
    text = run("train", "--resume", str(out), "--baselines", "quick")
    opened = Run.open(out, "cpu")
    lines = [line.strip("│ ").split("│") for line in text.splitlines() if line.startswith("│")]
    table = [line for line in lines if "on hops" in line[0] or "ours" in line[0]]
    rows = [{"name": "ours", **opened.metrics}, *opened.baselines]
    assert [[cell.strip() for cell in row[:3]] for row in table] == [
        [row["name"], f"{row['val']:.4f}", f"{row['test']:.4f}"] for row in rows
    ]
    assert "points on the validation nodes: the graph may need other settings" in text  # two epochs are too few
    out.joinpath("baselines.json").write_text('{"baselines": [{"name": "GCN", "note": "left out: it needs PyG"}]}')
    assert "GCN: left out: it needs PyG\n" in run("train", "--resume", str(out))


def test_runs_that_are_none(tmp_path: Path) -> None:
    assert "is not a run folder" in run("evaluate", str(tmp_path), code=2)
    assert "is not a run folder" in run("train", "--resume", str(tmp_path), code=2)
    assert "this machine has no GPU" in run("train", "--device", "cuda", "--out", str(tmp_path / "run"), code=2)
    assert "it must be auto, cpu, cuda" in run("train", "--device", "abacus", "--out", str(tmp_path / "run"), code=2)
    assert not (tmp_path / "run").exists()


def test_train_over_seeds(tmp_path: Path) -> None:
    text = run("train", "--seeds", "2", "--out", str(tmp_path / "runs"), *SHORT)
    assert "seed 1: accuracy val" in text
    assert "summary.json" in text
    assert (tmp_path / "runs" / "seed-1" / "metrics.json").is_file()
    assert "give the same train command again" in run("train", "--resume", str(tmp_path / "runs"), code=2)


def test_tensorboard(tmp_path: Path) -> None:
    run("train", "--out", str(tmp_path / "run"), *SHORT, "--tensorboard")
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
