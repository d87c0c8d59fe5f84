"""A bit that changes anywhere in a run is found by `verify`, one in the weights when the run is opened."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcr_graphormer as vcr
from tests.support.command import run as command
from tests.support.damage import flip_bit
from tests.support.runs import CONFIG
from vcr_graphormer import Run, Split, StoreError
from vcr_graphormer.base.checksums import problems, record


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything that a run can have: prepared features, baselines, a report."""
    graph = vcr.generate(150, 600, classes=3, features=8, homophily=0.8, seed=0)
    graph = vcr.Graph.from_edges(
        np.stack([np.repeat(np.arange(150), graph.degrees), graph.indices]),
        features=np.asarray(graph.features) * [1, 1, 1, 1, 1, 1, 1, 1e6],
        labels=graph.labels,
    )
    folder = tmp_path_factory.mktemp("made") / "run"
    run = vcr.train(graph, Split.random(graph.labels, seed=0), CONFIG, folder, device="cpu")
    run.report()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def saved(folder: Path) -> list[Path]:
    return [folder / "graph", folder / "tokens"]


def test_a_run_is_as_it_was_written(folder: Path) -> None:
    assert problems(folder, saved(folder)) == []
    assert f"{folder}: every file is as it was written" in command("verify", str(folder))
    for name in ("graph", "tokens"):
        assert "every file is as it was written" in command("verify", str(folder / name))
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    entries = json.loads((folder / "checksums.json").read_text())["files"].keys()
    assert {name for name in files - entries if not name.endswith(".npy")} == {"checksums.json"}
    assert {"model.safetensors", "metrics.json", "baselines.json", "report.html", "graph/manifest.json"} <= entries


def test_a_flipped_bit_in_every_file_is_found(folder: Path) -> None:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    assert len(files) > 20
    random = np.random.default_rng(0)
    for file in files:
        for bit in random.integers(0, 8 * file.stat().st_size, 3):
            flip_bit(file, int(bit))
            assert problems(folder, saved(folder)), (file, bit)
            flip_bit(file, int(bit))
    assert problems(folder, saved(folder)) == []


@given(st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_found_by_the_command(made: Path, data: st.DataObject) -> None:
    files = sorted(file for file in made.rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files))
    bit = data.draw(st.integers(0, 8 * file.stat().st_size - 1))
    flip_bit(file, bit)
    try:
        text = command("verify", str(made), code=2)
        assert "error: " in text
        assert "Traceback" not in text
    finally:
        flip_bit(file, bit)


def test_weights_are_compared_at_opening(folder: Path) -> None:
    Run.open(folder, "cpu")
    flip_bit(folder / "model.safetensors", 8 * (folder / "model.safetensors").stat().st_size - 5)
    with pytest.raises(StoreError, match="does not hold the weights that metrics.json belongs to"):
        Run.open(folder, "cpu")
    for words in (("evaluate", str(folder)), ("predict", str(folder)), ("verify", str(folder))):
        assert "model.safetensors is damaged" in command(*words, code=2)


def test_weights_of_another_run(folder: Path, tmp_path: Path) -> None:
    """Sound weights of the right sizes, but others: `evaluate` would print other numbers than `metrics.json` has."""
    run = Run.open(folder, "cpu")
    other = vcr.train(run.original, run.split, CONFIG, tmp_path / "other", device="cpu", baselines="none")
    tensors = (other.path / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(tensors[:-4] + b"\x00\x00\x00\x3f")
    with pytest.raises(StoreError, match="does not hold the weights"):
        Run.open(folder, "cpu").evaluate("test")


def test_sizes_are_compared_at_opening(folder: Path) -> None:
    with (folder / "split.npz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match=r"split\.npz is damaged: it has \d+ bytes, but \d+ were written"):
        Run.open(folder, "cpu")


def test_changed_texts_open_but_are_named(folder: Path) -> None:
    with (folder / "config.toml").open("a") as file:
        file.write("# my note\n")
    (folder / "thoughts.txt").write_text("mine")
    Run.open(folder, "cpu").predict([0])
    assert "config.toml does not match its checksum" in command("verify", str(folder), code=2)
    record(folder, ["config.toml"])
    text = command("verify", str(folder))
    assert "thoughts.txt has no checksum: not compared" in text
    assert "every file is as it was written, apart from 1 file that has no checksum" in text
    (folder / "history.jsonl").unlink()
    assert "history.jsonl is missing" in command("verify", str(folder), code=2)


def test_runs_of_earlier_versions(folder: Path) -> None:
    (folder / "checksums.json").unlink()
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["weights"]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    assert len(Run.open(folder, "cpu").predict([0])) == 1
    assert "has no checksums.json" in command("verify", str(folder), code=2)


@pytest.mark.parametrize("text", ["{}", "[]", "[" * 100_000, '{"version": 2}', '{"version": 1, "files": {}}'])
def test_damaged_checksums(folder: Path, text: str) -> None:
    (folder / "checksums.json").write_text(text)
    assert problems(folder, [])
    assert "checksums.json" in command("verify", str(folder), code=2)


def test_checksums_with_another_text_of_the_same_meaning(folder: Path) -> None:
    (folder / "café.txt").write_text("mine")
    record(folder, ["café.txt"])
    assert problems(folder, saved(folder)) == []
    file = folder / "checksums.json"
    file.write_text(file.read_text().replace("\\u00e9", "\\u00E9"))
    assert problems(folder, saved(folder)) == [
        f"{file} is not as it was written: its text was changed, but not what it says"
    ]


def test_a_graph_and_tokens_outside_of_the_run(made: Path, tmp_path: Path) -> None:
    run = Run.open(made, "cpu")
    graph = vcr.Graph.open(run.original.save(tmp_path / "graph"))
    again = vcr.train(
        graph, run.split, CONFIG, tmp_path / "run", tokens=tmp_path / "tokens", device="cpu", baselines="none"
    )
    assert "every file" in command("verify", str(again.path))
    flip_bit(tmp_path / "tokens" / "structure_scores.npy", 8 * 200)
    assert "structure_scores.npy does not match its checksum" in command("verify", str(again.path), code=2)


def test_nothing_to_verify(tmp_path: Path) -> None:
    assert "nothing in it has a checksum" in command("verify", str(tmp_path), code=2)
    assert "nothing in it has a checksum" in command("verify", str(tmp_path / "nowhere"), code=2)


def files_below(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def check_every_file(folder: Path) -> None:
    """A flipped bit in any file is found, so the command may say that every file is as it was written."""
    assert command("verify", str(folder)).endswith(f"{folder}: every file is as it was written\n")
    for file in files_below(folder):
        bit = 8 * (file.stat().st_size - 2)
        flip_bit(file, bit)
        assert file.name in command("verify", str(folder), code=2)
        flip_bit(file, bit)


def test_files_beside_the_arrays_of_token_lists(made: Path, tmp_path: Path) -> None:
    graph, store = Run.open(made, "cpu").original, tmp_path / "store"
    graph.save(tmp_path / "graph")
    options = ["--out", str(store), "--set", "data.scale=standard", "--set", "tokens.hops=1"]
    command("tokenize", "--dataset", str(tmp_path / "graph"), *options)
    graph.extend(features=np.asarray(graph.features)[:1], edges=([150], [0])).save(tmp_path / "later")
    command("update", str(store), "--dataset", str(tmp_path / "later"), "--out", str(tmp_path / "new"))
    names = {file.relative_to(store).as_posix() for file in files_below(store)}
    assert names > {"config.toml", "schema.json", "preparation.json", "stages.json"}
    assert "rankers/structure/manifest.json" in names
    check_every_file(store)


def test_the_split_beside_a_saved_graph(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "split.npz", train=[0, 3], val=[1], test=[2])
    (tmp_path / "mine" / "edges.csv").write_text("0,1\n1,2\n2,3\n")
    (tmp_path / "mine" / "labels.csv").write_text("0\n1\n0\n1\n")
    command("datasets", str(tmp_path / "mine"), "--save", str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "split.npz").is_file()
    check_every_file(tmp_path / "saved")


def test_files_without_a_checksum_are_named(made: Path, tmp_path: Path) -> None:
    """Lists that were made in Python, or by an earlier version."""
    store = Path(shutil.copytree(made / "tokens", tmp_path / "tokens"))
    np.save(store / "mine.npy", [1])
    text = command("verify", str(store))
    assert f"{store / 'stages.json'} has no checksum: not compared" in text
    assert f"{store / 'mine.npy'} has no checksum: not compared" in text
    assert text.endswith("every file is as it was written, apart from 2 files that have no checksum\n")
