"""Many runs in one folder: they are listed, share their graph, and go only when asked for. Names stay harmless."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import vcr_graphormer as vcr
from tests.support.command import run
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer.base.files import claim
from vcr_graphormer.errors import StoreError
from vcr_graphormer.report.leaderboard import Leaderboard, delete
from vcr_graphormer.runs.launch import _neighbouring_graphs
from vcr_graphormer.runs.serving.journal import JOURNAL, Journal

NAMES = ("=1+1", "\x1b[2Jgone", "a\u202eb", "[red]x", "-5")


def hostile_graph() -> vcr.Graph:
    graph = named_graph()
    names = np.array([*NAMES, *np.asarray(graph.names)[len(NAMES) :]])
    return replace(graph, names=names, class_names=("@a", "\x1b[31mb", "c"), name="evil\x1b[2J")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs on one graph: b/two differs in its seed, and c was stopped before training."""
    folder = tmp_path_factory.mktemp("runs")
    graph = hostile_graph()
    split = vcr.Split.random(graph.labels, seed=0)
    vcr.train(graph, split, CONFIG, folder / "one", device="cpu", baselines="none")
    seeded = replace(CONFIG, training=replace(CONFIG.training, seed=1))
    vcr.train(graph, split, seeded, folder / "two", device="cpu", baselines="none")

    def stop(started: vcr.Run) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vcr.train(graph, split, CONFIG, folder / "three", device="cpu", baselines="none", on_start=stop)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy whose runs still share their graph."""
    subprocess.run(["cp", "-a", str(trained), str(tmp_path / "runs")], check=True)
    return tmp_path / "runs"


def test_runs_share_one_copy_of_their_graph(trained: Path) -> None:
    for name in ("indptr", "indices", "features", "labels", "names"):
        files = [trained / one / "graph" / f"{name}.npy" for one in ("one", "two", "three")]
        assert len({file.stat().st_ino for file in files}) == 1
        assert files[0].stat().st_nlink == 3


def test_members_of_a_run_share_its_graph(folder: Path) -> None:
    graph = hostile_graph()
    assert _neighbouring_graphs(folder / "one" / "members" / "2") == [folder / "one" / "graph"]
    assert _neighbouring_graphs(folder / "one")[:3] == [folder / name / "graph" for name in ("one", "three", "two")]
    graph.save(folder / "one" / "members" / "2" / "graph", like=[folder / "nowhere", folder / "one" / "graph"])
    assert (folder / "one" / "members" / "2" / "graph" / "names.npy").stat().st_nlink == 4
    assert [row.path.name for row in Leaderboard.of(folder).runs if row.path.name == "2"] == []


def test_a_run_outlives_those_it_shared_with(folder: Path) -> None:
    expected = vcr.Run.open(folder / "one", "cpu").predict([0, 1]).probabilities
    shutil.rmtree(folder / "two")
    shutil.rmtree(folder / "three")
    (folder / "one").rename(folder.parent / "moved")
    moved = vcr.Run.open(folder.parent / "moved", "cpu")
    vcr.Graph.verify(moved.path / "graph")
    np.testing.assert_array_equal(moved.predict([0, 1]).probabilities, expected)


def test_a_damaged_graph_is_not_shared(folder: Path) -> None:
    graph = hostile_graph()
    for one in ("one", "two", "three"):
        file = folder / one / "graph" / "labels.npy"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.unlink()
        file.write_bytes(content)
    graph.save(folder / "four", like=sorted(folder.glob("*/graph")))
    vcr.Graph.verify(folder / "four")
    assert (folder / "four" / "names.npy").samefile(folder / "one" / "graph" / "names.npy")


def test_without_links_the_graph_is_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError("another disk")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    hostile_graph().save(folder / "four", like=[folder / "one" / "graph"])
    vcr.Graph.verify(folder / "four")
    assert (folder / "four" / "names.npy").stat().st_nlink == 1


def test_the_list(folder: Path) -> None:
    (folder / "odd").mkdir()
    (folder / "odd" / "run.json").write_text("{")
    (folder / "alien").mkdir()
    (folder / "alien" / "run.json").write_text('{"kind": "jog"}')
    (folder / "link").symlink_to(folder / "one")
    found = json.loads(run("runs", str(folder), "--json"))
    rows = {row["run"]: row for row in found["runs"]}
    assert sorted(rows) == ["alien", "odd", "one", "three", "two"]
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {"one": "finished", "two": "finished", "three": "unfinished", "odd": "damaged", "alien": "damaged"}
    assert [rows[name]["settings"] for name in ("one", "two")] == [{"training.seed": 0}, {"training.seed": 1}]
    metrics = vcr.Run.open(folder / "one", "cpu").metrics
    assert (rows["one"]["val"], rows["one"]["test"]) == (metrics["val"], metrics["test"])
    assert rows["one"]["seconds"] == pytest.approx(sum(metrics["timings"].values()))
    assert rows["one"]["size"] == sum(file.stat().st_size for file in (folder / "one").rglob("*") if file.is_file())
    graph = sum(file.stat().st_size for file in (folder / "one" / "graph").glob("*.npy"))
    sizes = sum(row["size"] for row in rows.values())
    assert found["disk_bytes"] <= sizes - 2 * graph  # what the three runs share counts once
    text = run("runs", str(folder))
    for part in ("training.seed=1", "unfinished", r"evil\x1b[2J", "damaged", "on disk"):
        assert part in text
    assert "\x1b" not in text
    assert "training.epochs" not in text


@pytest.mark.parametrize("change", [{"val": 10**400}, {"timings": {"train": 10**400}}])
def test_numbers_that_no_float_can_hold(change: dict[str, object], folder: Path) -> None:
    metrics = json.loads((folder / "one" / "metrics.json").read_text())
    (folder / "one" / "metrics.json").write_text(json.dumps({**metrics, **change}))
    rows = {row["run"]: row for row in json.loads(run("runs", str(folder), "--json"))["runs"]}
    assert (rows["one"]["state"], rows["two"]["state"]) == ("damaged", "finished")
    assert "too large" in rows["one"]["problem"]
    assert "damaged" in run("runs", str(folder))


@pytest.mark.parametrize("sort", ["val", "test", "seconds", "size", "run"])
def test_orders(folder: Path, sort: str) -> None:
    rows = [row for row in json.loads(run("runs", str(folder), "--sort", sort, "--json"))["runs"] if row["val"]]
    values = [row[sort] for row in rows]
    assert values == sorted(values, reverse=sort in ("val", "test"))


def test_a_lower_error_is_better(folder: Path) -> None:
    for name, value in (("one", 2.0), ("two", 1.0)):
        file = folder / name / "metrics.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "metric": "rmse", "val": value}))
    assert [row.path.name for row in Leaderboard.of(folder).runs] == ["two", "one", "three"]
    assert [row.path.name for row in Leaderboard.of(folder).to_prune(1)] == ["one", "three"]


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(text))


def test_nothing_is_deleted_without_a_yes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, code in (("n\n", 0), ("\n", 0), ("", 1)):
        answer(monkeypatch, text)
        found = run("runs", str(folder), "--prune", code=code)
        assert "  three: unfinished, " in found
        assert "1 of 3 runs; this frees" in found
        assert (folder / "three").is_dir()
    answer(monkeypatch, "y\n")
    assert "1 runs deleted" in run("runs", str(folder), "--prune")
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    assert "nothing to delete" in run("runs", str(folder), "--prune", "--yes")


def test_the_best_stay(folder: Path) -> None:
    best = max(("one", "two"), key=lambda name: vcr.Run.open(folder / name, "cpu").metrics["val"])
    text = run("runs", str(folder), "--prune", "--keep", "1", "--yes")
    assert [path.name for path in folder.iterdir()] == [best]
    assert "2 runs deleted" in text
    assert "on validation nodes" in text
    assert vcr.Run.open(folder / best, "cpu").evaluate("test")


def test_the_space_that_is_freed_is_without_shared_files(folder: Path) -> None:
    before = Leaderboard.of(folder).disk_bytes
    text = run("runs", str(folder), "--prune", "--yes")
    found = re.search(r"this frees ([\d.]+) KiB", text)
    assert found is not None
    freed = before - Leaderboard.of(folder).disk_bytes
    assert freed > 0
    assert float(found[1]) == pytest.approx(freed / 1024, abs=0.06)


def test_what_is_not_ours_or_in_use_stays(folder: Path) -> None:
    (folder / "odd").mkdir()
    (folder / "odd" / "run.json").write_text("{")
    (folder / "notes").mkdir()
    outside = folder.parent / "outside"
    shutil.copytree(folder / "three", outside)
    (folder / "link").symlink_to(outside)
    (folder / "three" / "link").symlink_to(outside)
    about = json.loads((folder / "one" / "run.json").read_text())
    (folder / "one" / "run.json").write_text(json.dumps({**about, "tokens": "../two/tokens"}))
    with claim(folder / "three" / "run.json"):
        text = run("runs", str(folder), "--prune", "--yes")
    assert "another process is working in" in text
    assert (folder / "three").is_dir()
    board = Leaderboard.of(folder)
    one, two = (next(row for row in board.runs if row.path.name == name) for name in ("one", "two"))
    better = replace(board, runs=tuple(replace(row, val=1.0 if row is one else 0.0) for row in board.runs))
    assert "two" not in [row.path.name for row in better.to_prune(1)]  # one, which stays, reads its token lists
    (folder / "two" / "run.json").write_text('{"kind": "other"}')
    with pytest.raises(StoreError, match="is not a run folder any more"):
        delete(two)
    run("runs", str(folder), "--prune", "--yes")
    assert sorted(path.name for path in folder.iterdir()) == ["link", "notes", "odd", "one", "two"]
    assert (outside / "graph" / "labels.npy").is_file()


def test_kept_nodes_are_not_pruned(folder: Path) -> None:
    journal = Journal(folder / "three" / JOURNAL, "x")
    text = run("runs", str(folder), "--prune", "--yes")
    assert "another process is working in" in text
    assert "0 runs deleted" in text
    journal.append({"nodes": [{"id": "a"}], "edges": []})
    journal.close()
    assert "holds nodes that a server kept" in run("runs", str(folder), "--prune", "--yes")
    (folder / "three" / JOURNAL).rename(folder / "kept elsewhere.jsonl")
    assert "1 runs deleted" in run("runs", str(folder), "--prune", "--yes")


def test_a_search_is_not_pruned(folder: Path) -> None:
    (folder / "three" / "tuning.json").write_text("{}")
    assert "nothing to delete" in run("runs", str(folder), "--prune", "--yes")
    row = json.loads(run("runs", str(folder), "--json"))["runs"][-1]
    assert (row["run"], row["problem"]) == ("three", "the search is done: the same tune command trains the winner")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sort", "vall"], "unknown order 'vall'; did you mean 'val'?"),
        (["--yes"], "give --prune too"),
        (["--keep", "1"], "give --prune too"),
        (["--prune", "--json"], "--json only lists"),
        (["--prune", "--keep", "0"], "keep is 0; it must be 1 or more"),
    ],
)
def test_wrong_options(folder: Path, arguments: list[str], message: str) -> None:
    assert message in run("runs", str(folder), *arguments, code=2)
    assert len(list(folder.iterdir())) == 3


def test_folders_without_runs(tmp_path: Path) -> None:
    assert "there are no runs in" in run("runs", str(tmp_path))
    assert "is not a folder" in run("runs", str(tmp_path / "nowhere"), code=2)


def test_hostile_names_on_screen_and_in_files(trained: Path, tmp_path: Path) -> None:
    one = str(trained / "one")
    for arguments in (["predict", one], ["explain", one, "--node", "id:1"], ["explain", one], ["evaluate", one]):
        text = run(*arguments)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert r"\x1b[2Jgone" in run("predict", one, "--nodes", "id:1")
    assert not re.search("[\x1b\u202e]", run("predict", one, "--nodes", "\x1b[2J", code=2))
    run("predict", one, "--out", str(tmp_path / "all.csv"))
    lines = (tmp_path / "all.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == r"node,name,part,label,prediction,probability_@a,probability_\x1b[31mb,probability_c"
    assert [line.split(",")[1] for line in lines[1:6]] == ["'=1+1", r"\x1b[2Jgone", r"a\u202eb", "[red]x", "-5"]
    run("predict", one, "--out", str(tmp_path / "all.parquet"))
    assert pq.read_table(tmp_path / "all.parquet")["name"].to_pylist()[:5] == list(NAMES)
    run("embed", one, "--out", str(tmp_path / "vectors.parquet"), "--nodes", "id:0")
    row = pq.read_table(tmp_path / "vectors.parquet").to_pylist()[0]
    assert row["vector"] == vcr.Run.open(one, "cpu").embed([0])[0].tolist()


def test_evaluate_as_json(trained: Path) -> None:
    text = run("evaluate", str(trained / "one"), "--part", "test", "--json")
    scores = json.loads(text[text.index("{") :])
    metrics = vcr.Run.open(trained / "one", "cpu").metrics
    assert scores["test"].pop("classes") == metrics["classes"]["test"]
    assert scores == {"test": pytest.approx(metrics["scores"]["test"])}


def test_quiet_and_log_file(trained: Path, tmp_path: Path) -> None:
    one, log = str(trained / "one"), tmp_path / "logs" / "log.txt"
    out = tmp_path / "all.csv"
    assert run("predict", one, "--out", str(out), "--quiet", "--log-file", str(log)) == ""
    assert out.is_file()
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    assert [line[20:] for line in lines] == ["inference: done", f"150 predictions written to {out}"]
    text = run("predict", one, "--out", str(out), "-q", "--log-file", str(log), code=2)
    assert re.fullmatch(r"error: \S+all.csv exists: choose another name or delete it\n", text)
    assert log.read_text().splitlines()[2][20:] == text.strip()
    assert "--quiet prints no predictions" in run("predict", one, "--quiet", code=2)
    assert "prediction" in run("predict", one, "--log-file", str(log))
    assert "prediction" in log.read_text().splitlines()[-1] or "│" in log.read_text()
    assert "cannot write the log file" in run("predict", one, "--log-file", "/dev/null/x", code=2)
    assert "inference: done" in run("evaluate", one)  # a later command is not quiet


def test_everything_is_printed_in_one_place() -> None:
    folder = Path(vcr.__file__).parent / "cli"
    printing = re.compile(r"typer\.s?echo|Console\(|\bprint\(|sys\.std(out|err)\.write")
    found = {file.name for file in folder.glob("*.py") if printing.search(file.read_text(encoding="utf-8"))}
    assert found == {"console.py", "output.py"}  # they make names harmless, and obey --quiet and --log-file


def test_config_of_a_run_works_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    edges = "".join(f"n{node},n{(node + step) % 30}\n" for node in range(30) for step in (1, 2, 15))
    (tmp_path / "own" / "edges.csv").write_text(f"source,target\n{edges}")
    labels = "".join(f"n{node},{'ab'[node // 15]}\n" for node in range(30))
    (tmp_path / "own" / "labels.csv").write_text(f"node,label\n{labels}")
    small = (
        "--set",
        "training.epochs=1",
        "--set",
        "model.hidden_channels=16",
        "--device",
        "cpu",
        "--baselines",
        "none",
    )
    run("train", "--dataset", "own", "--out", "run", *small, cwd=tmp_path)
    (tmp_path / "elsewhere").mkdir()
    config = str(tmp_path / "run" / "config.toml")
    run(
        "train",
        "--config",
        config,
        "--out",
        "again",
        "--baselines",
        "none",
        "--device",
        "cpu",
        cwd=tmp_path / "elsewhere",
    )
    runs = [vcr.Run.open(folder, "cpu") for folder in (tmp_path / "run", tmp_path / "elsewhere" / "again")]
    assert runs[0].config == runs[1].config
    assert runs[0].config.data.dataset == str(tmp_path / "own")
    np.testing.assert_array_equal(runs[0].predict().probabilities, runs[1].predict().probabilities)


def test_what_a_notebook_shows(trained: Path) -> None:
    opened = vcr.Run.open(trained / "one", "cpu")
    for shown in (opened, opened.explain("id:1"), opened.graph.summary()):
        page = shown._repr_html_()
        assert page.startswith("<div")
        assert "\x1b" not in page
    assert f"{opened.metrics['test']:.4f}" in opened._repr_html_()
    assert r"\x1b[2Jgone" in opened.explain("id:1")._repr_html_()
    assert "150" in opened.graph.summary()._repr_html_()
    unfinished = vcr.Run.open(trained / "three", "cpu")
    assert "not finished" in unfinished._repr_html_()
    assert "evil" in repr(opened.on(opened.original, opened.store))
