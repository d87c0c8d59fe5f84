"""The command as a stranger meets it: in its own process, by what it prints and leaves behind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import run, run_apart
from vcr_graphormer import Graph, Run, TokenStore, __version__, load_config


def test_version_and_help() -> None:
    assert run_apart("--version") == f"vcr-graphormer {__version__}\n"
    text = run_apart("--help")
    assert "demo" in text
    assert "datasets" in text


def test_help_imports_nothing_heavy() -> None:
    # Import time is what --help costs; these are the packages that would cost it.
    script = (
        "import sys; from vcr_graphormer import cli\n"
        "heavy = {'torch', 'scipy', 'numpy', 'sklearn', 'numba', 'pyarrow', 'torch_geometric', 'distributed'}\n"
        "heavy |= {'pandas', 'optuna', 'starlette'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_public_names_exist() -> None:
    import vcr_graphormer

    for name in vcr_graphormer.__all__:
        assert getattr(vcr_graphormer, name) is not None
    assert set(dir(vcr_graphormer)) == set(vcr_graphormer.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = vcr_graphormer.nothing


SHORT = ("--set", "training.epochs=2", "--set", "model.hidden_channels=16", "--device", "cpu")


def test_demo_replaces_its_own_run_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half the width and a fifth of the epochs: enough for the accuracy below, and for every step.
    config = load_config(None, ["training.epochs=12", "model.hidden_channels=64"])
    monkeypatch.setattr("vcr_graphormer.cli.demo.read_config", lambda *_: config)
    out = tmp_path / "demo"
    run("train", "--out", str(out), "--baselines", "none", *SHORT)
    assert "holds a run already" in run("demo", "--out", str(out), code=2)
    (out / "demo").touch()  # the mark of a demo's run
    text = run("demo", "--out", str(out))
    for part in ("1,078 train, 359 val, 360 test", "image 0 (a 0), content tokens:", "epoch 12: loss", "peak memory"):
        assert part in text
    found = re.search(r"test accuracy (0\.\d+); the run lies in (.*), its report in (.*)", text)
    assert found is not None
    assert float(found[1]) >= 0.96
    assert (found[2], found[3]) == (str(out), str(out / "report.html"))
    assert Path(found[3]).read_text().startswith("<!doctype html>")
    assert Run.open(out, "cpu").metrics["test"] == pytest.approx(float(found[1]), abs=1e-4)
    assert f"next: vcr-graphormer evaluate {out}" in text


def test_tokenize(tmp_path: Path) -> None:
    store = str(tmp_path / "tokens")
    arguments = ("tokenize", "--out", store, "--set", "tokens.hops=2", "--set", "tokens.clusters=5", "--threads", "2")
    text = run(*arguments)
    for part in (
        "structure ranking: done",
        "edges touched",
        "peak memory",
        "1,797 nodes, 35 tokens each (1 self, 2 hops",
    ):
        assert part in text
    assert TokenStore.open(store).num_hops == 2
    assert "35 tokens each" in run(*arguments)  # finished: opened as it is
    assert "belongs to another setting clusters, setting hops" in run("tokenize", "--out", store, code=2)
    assert "unknown key in [tokens] 'hopps'; did you mean 'hops'?" in run("tokenize", "--set", "tokens.hopps=3", code=2)


def test_settings_are_listed() -> None:
    text = run("settings")
    for part in (
        "data.dataset",
        "tokens.distinct",
        "0.15",
        "METIS clusters, one super node each",
        "needs time in [data.nodes]",
    ):
        assert part in text


def test_list_of_datasets(tmp_path: Path) -> None:
    text = run("datasets", "--data", str(tmp_path))
    assert "digits" in text
    assert "embedded" in text
    assert "AMiner: put aminer/aminer.adj.sp.pkl" in text
    assert "present" not in text
    (tmp_path / "Amazon2M").mkdir()
    (tmp_path / "Amazon2M" / "Amazon2M_adj.npz").write_bytes(b"x" * 2048)
    assert "present, 2.0 KiB" in run("datasets", "--data", str(tmp_path))


def test_list_of_real_datasets(data_root: Path) -> None:
    lines = run("datasets", "--data", str(data_root)).splitlines()
    for name in ("PubMed", "Computer", "Photo", "CS", "Physics", "Squirrel", "Actor", "Texas", "Cora", "CiteSeer"):
        assert any(f" {name} " in line and "present" in line for line in lines)


def test_own_data(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\nann,bob\nbob,eve\neve,dan\ndan,zoe\n")
    (tmp_path / "labels.csv").write_text("node,label\nann,v\nbob,w\neve,x\ndan,y\nzoe,z\n")
    text = run("datasets", str(tmp_path), "--set", "data.directed=true", "--save", str(tmp_path / "saved"))
    assert "arcs" in text
    assert "saved to" in text
    assert "warning: no training node has class" in text
    assert Graph.open(tmp_path / "saved").directed
    (tmp_path / "run.toml").write_text(f'[data]\ndataset = "{tmp_path / "saved"}"\n')
    assert "exists: choose another folder" in run("datasets", "digits", "--save", str(tmp_path / "saved"), code=2)
    assert "3 train, 1 val, 1 test" in run("datasets", "--config", str(tmp_path / "run.toml"))
    (tmp_path / "labels.csv").unlink()
    assert "none: there are no labels" in run("datasets", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["datasets", "PubMedd"], "error: unknown dataset 'PubMedd'; did you mean 'PubMed'?"),
        (["datasets", "digits", "--set", "data.seeed=1"], "did you mean 'seed'?"),
        (["datasets", "digits", "--config", "nowhere.toml"], "error: nowhere.toml does not exist"),
        (["datasets", "nowhere/edges.csv"], "error: nowhere/edges.csv does not exist"),
        (["datasets", "digits", "--set", "data.seed=-1"], "error: seed is -1"),
        (["datasets", "📊/edges.csv"], "error: 📊/edges.csv does not exist"),
        (["demo", "--out", "/dev/null/x"], "error: cannot write /dev/null/x"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    text = run(*arguments, code=2)
    assert message in text
    assert text.splitlines()[-1].startswith("error: ")
    assert len(text.splitlines()) == 1 or arguments[0] == "demo"


def test_wrong_command() -> None:
    assert "No such command 'trian'" in run("trian", code=2)
