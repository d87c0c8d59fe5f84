"""Damaged files that `python -m benchmarks robustness` found to crash or to end in a traceback: all are refused now."""

import json
import pickle
import shlex
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from benchmarks.attacks.raw import RAW

import vcr_graphormer as vcr
from tests.support.damage import edited_manifest, put_array
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import Graph, GraphError, StoreError, VCRError, load_dataset
from vcr_graphormer.cli.console import print_leaderboard
from vcr_graphormer.cli.output import quoted
from vcr_graphormer.data.catalogue import DATASETS
from vcr_graphormer.data.columns.preparation import PREPARATION_FILE, Preparation
from vcr_graphormer.data.columns.schema import Column, Schema
from vcr_graphormer.data.contract import to_csr
from vcr_graphormer.data.readers.arrow import open_source
from vcr_graphormer.report.page import _command, render
from vcr_graphormer.runs.config import load_config
from vcr_graphormer.runs.serving.journal import Journal
from vcr_graphormer.runs.serving.requests import read_node
from vcr_graphormer.runs.serving.server import _problem
from vcr_graphormer.runs.tuning import Tuning


def test_pointers_that_wrap_around() -> None:
    """In eight bits 127 is followed by -128, a rise of 1; scipy believed that, and wrote where it must not."""
    matrix = sp.csr_matrix((np.ones(300), np.arange(300) % 5, np.arange(0, 301, 100)), shape=(3, 5))
    matrix.indptr = matrix.indptr.astype(np.int8)  # 0, 100, -56, 44
    with pytest.raises(GraphError, match="indptr must begin with 0 and never fall"):
        to_csr(matrix, "features")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("indptr", [1, 1, 2], "begin with 0"),
        ("indptr", [0, 1, 9], "number of entries"),
        ("indptr", [0.0, 1.0, 2.0], "whole numbers"),
        ("indices", [0, 7], "between 0 and 2"),
        ("indices", [-1, 0], "between 0 and 2"),
        ("indices", [[0, 1]], "whole numbers"),
    ],
)
def test_matrices_that_point_anywhere(name: str, value: Any, message: str) -> None:
    matrix = sp.csr_matrix(np.eye(2, 3))
    setattr(matrix, name, np.array(value))
    with pytest.raises(GraphError, match=message):
        to_csr(matrix, "features")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ind.cora.ally", np.ones(3)),
        ("ind.cora.ty", None),
        ("ind.cora.tx", {}),
        ("ind.cora.tx", sp.csr_matrix(np.ones((50, 2)))),
        ("ind.cora.y", 1.5),
        ("ind.cora.test.index", b""),
    ],
)
def test_raw_files_of_another_form(name: str, content: Any, tmp_path: Path) -> None:
    RAW["Cora"](tmp_path)
    file = tmp_path / "Planetoid" / "Cora" / "raw" / name
    file.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, 2))
    with pytest.raises(VCRError):
        DATASETS["Cora"].splits(tmp_path)
        DATASETS["Cora"].read(tmp_path, directed=False)


def test_arrays_of_another_form(tmp_path: Path) -> None:
    RAW["Reddit"](tmp_path)
    file = tmp_path / "Reddit" / "raw" / "reddit_data.npz"
    with np.load(file) as archive:
        arrays = dict(archive)
    np.savez(file, **{**arrays, "feature": arrays["feature"][None]})
    with pytest.raises(VCRError, match="features has shape|do not fit|nodes"):
        load_dataset("Reddit", tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("out1_node_feature_label.txt", "", "has no node"),
        ("out1_node_feature_label.txt", "a\tb\tc\n0\t1\t99999999999999999999\n", "labels must be whole numbers"),
        ("out1_node_feature_label.txt", "a\tb\tc\n0\t99999999999999999999\t0\n", "features must be whole numbers"),
        ("out1_graph_edges.txt", "a\tb\n0\t99999999999999999999\n", "every line must hold two nodes"),
    ],
)
def test_own_files_of_geom_gcn(file: str, text: str, message: str, tmp_path: Path) -> None:
    RAW["own geom-gcn"](tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(GraphError, match=message):
        load_dataset(tmp_path)


@pytest.mark.parametrize("text", ["a,b\n" + "x" * 140_000 + ",1\n", "1 2\n3 4\n5 " + "y" * 140_000 + " 7\n"])
def test_cells_of_any_length(text: str, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    (tmp_path / "features.csv").write_text(text)
    with pytest.raises(GraphError, match=r"features\.csv"):
        load_dataset(tmp_path)


def test_texts_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "edges.jsonl").write_bytes(b'{"source": "a\xff", "target": "b"}\n')
    with pytest.raises(StoreError, match="is not a readable jsonl file"):
        load_dataset(tmp_path)
    (tmp_path / "edges.jsonl").write_bytes(b'{"so\xffrce": "a", "target": "b"}\n')
    with pytest.raises(StoreError, match="is not a readable jsonl file"):
        load_dataset(tmp_path)


def test_offsets_that_lead_outside_of_a_feather_file(tmp_path: Path) -> None:
    offsets = np.array([0, 1, 2], dtype=np.int32)
    texts = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"ab")])
    pa.feather.write_feather(pa.table({"source": texts, "target": texts}), tmp_path / "edges.feather", "uncompressed")
    content = (tmp_path / "edges.feather").read_bytes()
    assert load_dataset(tmp_path).num_nodes == 2
    (tmp_path / "edges.feather").write_bytes(content.replace(offsets.tobytes(), b"\0\0\0\0\xff\xff\xff\x7f\2\0\0\0"))
    with pytest.raises(StoreError, match="is not a readable feather file"):
        load_dataset(tmp_path)


def test_an_archive_of_a_later_version(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "matrix.npz", sp.csr_matrix(np.eye(3)))
    content = bytearray((tmp_path / "matrix.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 109  # the version that is needed to unpack it
    (tmp_path / "matrix.npz").write_bytes(content)
    with pytest.raises(StoreError, match="is not a readable"):
        load_dataset(tmp_path / "matrix.npz")


def test_a_saved_graph_of_another_task(tmp_path: Path) -> None:
    saved = vcr.generate(20, 40, classes=2, features=2, seed=0).save(tmp_path / "graph")
    put_array(saved, "labels", np.load(saved / "labels.npy")[:, None])
    with pytest.raises(StoreError, match=r"labels is int64\[20, 1\]|labels"):
        Graph.open(saved)
    with edited_manifest(saved) as manifest:
        manifest["meta"]["task"] = []
    with pytest.raises(StoreError, match="its task is"):
        Graph.open(saved)


def test_a_split_beyond_the_graph(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "samples" / "1-first", tmp_path, dirs_exist_ok=True)
    run = vcr.Run.open(tmp_path / "run", "cpu")
    split, count = run.split, run.about["num_nodes"]
    np.savez(run.path / "split.npz", train=split.train, val=split.val, test=[*split.test[:-1], count])
    with pytest.raises(GraphError, match=f"test contains node {count} but the graph has {count} nodes"):
        _ = vcr.Run.open(run.path, "cpu").split


@pytest.mark.parametrize(
    "change",
    [
        {"scale": "x"},
        {"scale": {"mean": [0.0, 1.0], "deviation": [1.0]}},
        {"scale": {"mean": 1.0, "deviation": 1.0}},
        {"scale": {"mean": ["x"], "deviation": [1.0]}},
        {"missing": {"median": [0.0, 1.0], "indicators": [2**31]}},
        {"missing": {"indicators": [10**30]}},
        {"made": 7},
    ],
)
def test_damaged_preparations(change: dict[str, Any], tmp_path: Path) -> None:
    sound = {"version": 2, "made": None, "scale": {"mean": [0.0, 1.0], "deviation": [1.0, 1.0]}}
    (tmp_path / PREPARATION_FILE).write_text(json.dumps(sound))
    assert not Preparation.open(tmp_path).empty
    (tmp_path / PREPARATION_FILE).write_text(json.dumps({**sound, **change}))
    with pytest.raises(StoreError, match="is damaged"):
        Preparation.open(tmp_path)


def test_damaged_schemas() -> None:
    sound = Schema((Column("age"), Column("plan", "category", ("a", "b"))), id="node", label="y", classes=("n", "y"))
    assert Schema.from_dict(json.loads(json.dumps(sound.to_dict()))) == sound
    for name, value in (("id", 3), ("classes", [1, "y"]), ("classes", [None, "y"]), ("ignored", [None, 2.5])):
        with pytest.raises(StoreError, match="stands where a name must be"):
            Schema.from_dict({**sound.to_dict(), name: value})


def test_lengths_that_would_be_divided_by(tmp_path: Path) -> None:
    graph = vcr.generate(40, 60, seed=0)
    saved = vcr.LinkRanker.prepare(graph).save(tmp_path / "ranker", graph)
    put_array(saved, "lengths", np.zeros(40))
    with pytest.raises(StoreError, match="lengths are not those of the rows"):
        vcr.LinkRanker.open(saved, graph)


def test_names_of_files_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data.nodes]\nfile = "a\\u0000b"\n')
    with pytest.raises(vcr.ConfigError, match="cannot be the name of a file"):
        load_config(tmp_path / "run.toml")


TRIAL = {"number": 1, "recipe": "hops", "rung": 3, "settings": {"tokens": {"hops": 2}}, "score": 0.5, "scores": [0.5]}
ABOUT = {"version": 2, "metric": "accuracy", "skipped": {}, "identity": {}, "group": 1}


def search(folder: Path, about: dict[str, Any], trial: dict[str, Any]) -> Tuning:
    (folder / "tuning.json").write_text(json.dumps({**ABOUT, **about}))
    (folder / "tuning.jsonl").write_text(json.dumps({**TRIAL, **trial}) + "\n")
    return Tuning.open(folder)


@pytest.mark.parametrize(
    ("about", "trial"),
    [
        ({"skipped": 1.5}, {}),
        ({"skipped": {"hops": 3}}, {}),
        ({"metric": None}, {}),
        ({}, {"rung": "x"}),
        ({}, {"score": {}}),
        ({}, {"scores": ["x"]}),
        ({}, {"seconds": None}),
        ({}, {"recipe": 1.5}),
        ({}, {"error": 3}),
        ({}, {"settings": {"tokens": "x"}}),
    ],
)
def test_damaged_searches(about: dict[str, Any], trial: dict[str, Any], tmp_path: Path) -> None:
    from vcr_graphormer.runs import tuning

    version = {"version": tuning._VERSION}
    assert len(search(tmp_path, version, {}).entries) == 1
    with pytest.raises(StoreError, match="is damaged"):
        search(tmp_path, {**version, **about}, trial)


def test_a_search_without_the_recipe_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vcr_graphormer.runs import tuning

    found = search(tmp_path, {"version": tuning._VERSION, "metric": "a\ud800[red]"}, {"rung": 4})
    with pytest.raises(StoreError, match="trial 1 is a step from 'hops', which was not tried"):
        found.changes(found.entries[0])
    print_leaderboard(Tuning(found.metric, (), {}))
    assert "a\\ud800[red]" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ["5", "[]", "{}", '{"nodes": 1, "edges": []}', '{"nodes": [{}], "edges": []}', "[" * 100_000]
)
def test_damaged_journals(line: str, tmp_path: Path) -> None:
    (tmp_path / "kept.jsonl").write_text(f'{{"format": 1, "graph": "x"}}\n{line}\n')
    with pytest.raises(StoreError, match="is damaged in line 2: restore it, or move it away"):
        Journal(tmp_path / "kept.jsonl", "x")


@pytest.mark.parametrize(
    "content",
    [
        "todo: call Ada",
        "todo: call Ada\nand Grace",
        '{"todo": "call Ada"}\nand Grace',
        '{"format": 1}\nand Grace',
        '{"format": 2, "graph": "x"}\n{"nodes"',
        '{"format": 1, "graph": "x"}\nand Grace\nand Emmy',
        "5\n",
        "\n",
    ],
)
def test_a_file_that_is_no_journal_stays_as_it_is(content: str, tmp_path: Path) -> None:
    file = tmp_path / "todo.txt"
    file.write_text(content)
    with pytest.raises(StoreError, match=r"is no journal of kept nodes|is damaged in line 2"):
        Journal(file, "x")
    assert file.read_text() == content


@pytest.mark.parametrize("size", [0, 1, 20, 27, 28])
def test_a_header_that_was_half_written_is_written_again(size: int, tmp_path: Path) -> None:
    file, header = tmp_path / "kept.jsonl", '{"format": 1, "graph": "x"}\n'
    file.write_text(header[:size])
    journal = Journal(file, "x")
    journal.append({"nodes": [{"id": "a"}], "edges": []})
    journal.close()
    assert file.read_text() == header + '{"nodes": [{"id": "a"}], "edges": []}\n'
    again = Journal(file, "y")
    assert (again.fingerprint, len(again.records)) == ("x", 1)
    again.close()


def test_half_characters_in_requests() -> None:
    with pytest.raises(GraphError, match="half a character"):
        read_node("x\ud800", "node")
    assert json.loads(bytes(_problem(400, "unknown class '\ud800'").body)) == {"error": "unknown class '\\ud800'"}


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent / "samples" / "2-checksums", tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epochs", None, "metrics.json.epochs is missing"),
        ("val", "x", "metrics.json.val is 'x'"),
        ("scores", {"train": {}, "val": {}, "test": {"accuracy": []}}, r"scores.test.accuracy is \[\]"),
        ("timings", [], r"timings is \[\]"),
        ("parameters", 1.5, "parameters is 1.5"),
        ("classes", {"test": [{"nodes": 3}]}, r"classes.test\[0\].name is missing"),
    ],
)
def test_metrics_of_another_form(name: str, value: Any, message: str, run_folder: Path) -> None:
    metrics = json.loads((run_folder / "metrics.json").read_text())
    changed = {**metrics, name: value} if value is not None else {key: metrics[key] for key in metrics if key != name}
    (run_folder / "metrics.json").write_text(json.dumps(changed))
    with pytest.raises(StoreError, match=message):
        _ = vcr.Run.open(run_folder, "cpu").metrics


def test_thresholds_baselines_and_histories_of_another_form(run_folder: Path) -> None:
    metrics = json.loads((run_folder / "metrics.json").read_text())
    thresholds: list[Any] = [[], {"column": 5, "value": 0.5}, {"column": 0, "value": "x"}]
    for threshold in thresholds:
        (run_folder / "metrics.json").write_text(json.dumps({**metrics, "threshold": threshold}))
        with pytest.raises(StoreError, match="its threshold is"):
            _ = vcr.Run.open(run_folder, "cpu").threshold
    (run_folder / "metrics.json").write_text(json.dumps(metrics))
    for baselines in (5, ["x"], [{"val": 0.5}], [{"name": "GCN", "val": "x"}]):
        (run_folder / "baselines.json").write_text(json.dumps({"baselines": baselines}))
        assert vcr.Run.open(run_folder, "cpu").baselines == []
    row = {"epoch": 1, "loss": 0.5, "val_loss": 0.5, "val": None}
    rows = [row, {**row, "epoch": "x"}, {"epoch": 2}, []]
    (run_folder / "history.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    assert vcr.Run.open(run_folder, "cpu").history == [row]


def test_notes_of_another_form(run_folder: Path) -> None:
    about = json.loads((run_folder / "run.json").read_text())
    for notes, expected in ((["a"], ["a"]), (5, []), ([1], []), (None, [])):
        (run_folder / "run.json").write_text(json.dumps({**about, "notes": notes}))
        assert vcr.Run.open(run_folder, "cpu").notes == expected


def test_sizes_that_are_not_those_of_the_graph(run_folder: Path) -> None:
    about = json.loads((run_folder / "run.json").read_text())
    (run_folder / "run.json").write_text(json.dumps({**about, "num_features": 10**30}))
    with pytest.raises(StoreError, match="num_features is 1000000000000000000000000000000, of its graph"):
        vcr.Run.open(run_folder, "cpu").predict([0])


def test_checkpoints_that_lack_a_part(tmp_path: Path) -> None:
    import torch

    from vcr_graphormer.training.checkpoint import restore_training, save_tensors

    names = ("epoch", "step", "best_epoch", "improved", "seconds", "best_value", "best_loss")
    sound = dict.fromkeys(names, 1)
    trainer: Any = type("Trainer", (), {"inputs": type("Inputs", (), {"device": torch.device("cpu")})})
    for about, message in (
        ({**sound, "epoch": []}, r"what it says.epoch is \[\]"),
        ({"epoch": 1}, "what it says.step is missing"),
        ({**sound, "tensors": ["a", "optimizer/a/exp_avg"]}, "it lacks parts of the training"),
    ):
        save_tensors(tmp_path / "last.safetensors", {"a": torch.zeros(1)}, about)
        with pytest.raises(StoreError, match=f"is damaged: {message}; delete it to train from the start"):
            restore_training(trainer, tmp_path / "last.safetensors")


def test_an_unfinished_run_whose_files_were_damaged(tmp_path: Path) -> None:
    """A path with a zero byte, and labels that validation nodes lost."""

    def stop(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    graph = named_graph()
    with pytest.raises(KeyboardInterrupt):
        vcr.train(graph, vcr.Split.random(graph.labels), CONFIG, tmp_path / "run", on_epoch=stop, progress=False)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "tokens": "a\0b"}))
    with pytest.raises(StoreError, match=r"run.json is damaged: its tokens is 'a\\x00b'"):
        vcr.resume(tmp_path / "run", "cpu", progress=False)
    labels = np.load(tmp_path / "other" / "graph" / "labels.npy")
    put_array(tmp_path / "other" / "graph", "labels", np.full_like(labels, -1))
    with pytest.raises(VCRError):
        vcr.resume(tmp_path / "other", "cpu", progress=False)


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="too long"):
        open_source(tmp_path / ("x" * 5000 + ".csv"))


def test_commands_that_are_printed_can_be_copied(run_folder: Path) -> None:
    """A path with `$(…)` must not run when a user pastes the line into a shell."""
    folder = run_folder.parent / "a$(touch ran)'b"
    run_folder.rename(folder)
    command = _command(vcr.Run.open(folder, "cpu"))
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True, cwd=folder.parent
    )
    assert words.stdout.splitlines()[:2] == ["python", "-c"]
    assert "$(touch ran)" in words.stdout
    assert not (folder.parent / "ran").exists()
    assert quoted(folder) == shlex.quote(str(folder))


def test_columns_of_parquet_whose_names_are_no_utf8(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"name_of_it": ["a"]}), tmp_path / "nodes.parquet", store_schema=False)
    content = (tmp_path / "nodes.parquet").read_bytes()
    (tmp_path / "nodes.parquet").write_bytes(content.replace(b"name_of_it", b"name\xffof_it"))
    with pytest.raises(StoreError, match="is not a readable parquet file"):
        _ = open_source(tmp_path / "nodes.parquet").names


def test_a_report_shows_dates_of_the_settings() -> None:
    page = render({"title": "a run", "settings": {"train_until": date(2024, 1, 31)}})
    assert '"train_until":"2024-01-31"' in page
