"""A run folder reopened: predictions, embeddings, metrics, and folders that cannot be opened."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.damage import edited_manifest, put_array
from tests.support.plain import alone
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import ConfigError, Graph, GraphError, Run, Split, StoreError
from vcr_graphormer.training.checkpoint import load_tensors, save_tensors


@pytest.fixture(scope="module")
def graph() -> Graph:
    return named_graph()


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    split = Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_predictions(run: Run) -> None:
    found = run.predict([5, 2])
    assert found.nodes.tolist() == [5, 2]
    assert found.probabilities.sum(axis=1) == pytest.approx([1, 1])
    assert (found.labels == found.probabilities.argmax(axis=1)).all()
    assert (run.predict(["n5", "n2"]).probabilities == found.probabilities).all()
    stored = np.load(run.path / "predictions.npz")
    np.testing.assert_allclose(stored["probabilities"][[5, 2]], found.probabilities, atol=1e-6)
    assert stored["names"][5] == "n5"
    assert stored["class_names"].tolist() == ["a", "b", "c"]
    assert len(run.predict()) == 150
    assert len(run.predict([])) == 0
    assert run.predict(7).nodes.tolist() == [7]
    with pytest.raises(GraphError, match="there is no node 150"):
        run.predict([150])


def test_embeddings_lead_to_the_predictions(run: Run) -> None:
    import torch

    vectors = run.embed([3, 4])
    assert vectors.shape == (2, 16)
    logits = alone(run.model).head(torch.from_numpy(vectors)).detach().numpy()
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, run.predict([3, 4]).probabilities, atol=1e-5)


def test_evaluate(run: Run) -> None:
    for part in ("train", "val", "test"):
        assert run.evaluate(part) == pytest.approx(run.metrics["scores"][part])
    with pytest.raises(ConfigError, match="part is 'tests'; it must be train or val or test"):
        run.evaluate("tests")
    assert "accuracy train" in repr(run)


def test_on_a_later_version_of_the_graph(run: Run, graph: Graph, tmp_path: Path) -> None:
    # Two nodes more, each tied to three others: predictions for nodes the model has never seen.
    rows = np.repeat(np.arange(150), graph.degrees)
    edges = np.concatenate([np.stack([rows, graph.indices]), [[150] * 3 + [151] * 3, [0, 1, 2, 3, 4, 5]]], axis=1)
    features = np.concatenate([np.asarray(graph.features), np.asarray(graph.features)[:2]])
    labels = np.append(np.asarray(graph.labels), [-1, -1])
    later = Graph.from_edges(edges, num_nodes=152, features=features, labels=labels)
    store = vcr.tokenize(later, run.split.train, CONFIG.tokens, tmp_path / "tokens")
    assert run.on(later, store).predict([150, 151]).probabilities.shape == (2, 3)
    unseen = replace(later, labels=np.where(np.arange(152) == run.split.test[0], 3, labels))
    with pytest.raises(GraphError, match="class 3 is in the data but the model knows only 3 classes"):
        run.on(unseen, store).evaluate("test")
    with pytest.raises(StoreError, match="tokens of another graph"):
        run.on(graph, store).predict([0])
    shorter = vcr.tokenize(later, run.split.train, replace(CONFIG.tokens, hops=1), tmp_path / "shorter")
    with pytest.raises(StoreError, match="was made with tokens.hops = 1, the model was trained with 2"):
        run.on(later, shorter)
    unknown = replace(later, labels=None)
    assert (run.on(unknown, store).predict([0]).labels == run.on(later, store).predict([0]).labels).all()
    with pytest.raises(GraphError, match="no labels to compare"):
        run.on(unknown, store).evaluate("test")
    narrow = replace(later, features=features[:, :4])
    with pytest.raises(GraphError, match="has 4 features but the model was trained on 8"):
        run.on(narrow, store)


def test_a_regression_keeps_its_scale_on_another_graph(graph: Graph, tmp_path: Path) -> None:
    target = (np.asarray(graph.features)[:, 0] * 50 + 1000).astype(np.float32)
    continuous = replace(graph, labels=target, task="regression", class_names=None)
    split = Split.random(target, seed=0)
    run = vcr.train(continuous, split, CONFIG, tmp_path / "run", device="cpu")
    other = replace(continuous, labels=np.zeros(150, dtype=np.float32))
    assert (run.on(other, run.store).predict([0, 1]).labels == run.predict([0, 1]).labels).all()


def copied(run: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run.path, tmp_path / "copy"))


def test_a_run_without_the_setting_had_repeats(graph: Graph, tmp_path: Path) -> None:
    """Run folders of before: `distinct` is neither in config.toml nor in the store. They open, predict and resume."""
    config = replace(CONFIG, tokens=replace(CONFIG.tokens, distinct=False))
    split = Split.random(graph.labels, seed=0)
    run = vcr.train(graph, split, config, tmp_path / "run", device="cpu")

    def stop(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vcr.train(graph, split, config, tmp_path / "stopped", device="cpu", on_epoch=stop)
    for name in ("run", "stopped"):
        file = tmp_path / name / "config.toml"
        assert "distinct = false\n" in file.read_text()
        file.write_text(file.read_text().replace("distinct = false\n", ""))
    old = Run.open(tmp_path / "run", "cpu")
    resolved = replace(config, data=replace(config.data, directed=False))
    assert old.config == replace(resolved, training=replace(config.training, metric="accuracy", threshold=0.5))
    np.testing.assert_array_equal(old.predict().probabilities, run.predict().probabilities)
    resumed = vcr.resume(tmp_path / "stopped", "cpu")
    np.testing.assert_array_equal(resumed.predict().probabilities, run.predict().probabilities)
    distinct = vcr.tokenize(graph, split.train, CONFIG.tokens, tmp_path / "distinct")
    with pytest.raises(StoreError, match="was made with tokens.distinct = True, the model was trained with False"):
        old.on(graph, distinct)


def test_a_run_of_another_version(run: Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"version": 99, "package": "9.9"}))
    with pytest.raises(StoreError, match="has run format 99; this package reads 1: open it with vcr-graphormer 9.9"):
        Run.open(folder)
    del about["fingerprint"]
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(StoreError, match="lacks fingerprint"):
        Run.open(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run.json", "is not a run folder"),
        ("config.toml", "config.toml does not exist"),
        ("model.safetensors", "model.safetensors is missing"),
        ("split.npz", "split.npz"),
        ("graph/manifest.json", "manifest.json is missing"),
        ("tokens/manifest.json", "manifest.json is missing"),
        ("metrics.json", "is not finished"),
    ],
)
def test_a_missing_file_is_named(run: Run, tmp_path: Path, name: str, message: str) -> None:
    folder = copied(run, tmp_path)
    (folder / name).unlink()
    with pytest.raises(StoreError, match=message):
        Run.open(folder, "cpu").evaluate("test")


def test_damaged_files(run: Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    (folder / "model.safetensors").write_bytes(b"\x00" * 50)
    with pytest.raises(StoreError, match="model.safetensors is damaged: it has 50 bytes"):
        Run.open(folder, "cpu")
    forget_checksums(folder)
    with pytest.raises(StoreError, match="model.safetensors is damaged: "):
        Run.open(folder, "cpu").predict([0])
    text = (folder / "config.toml").read_text().replace("hidden_channels = 16", "hidden_channels = 32")
    (folder / "config.toml").write_text(text)
    shutil.copy(run.path / "model.safetensors", folder)
    with pytest.raises(StoreError, match="does not fit the settings"):
        Run.open(folder, "cpu").predict([0])


def forget_checksums(folder: Path) -> None:
    """Make a run one of an earlier version, or of someone who removed them on purpose."""
    (folder / "checksums.json").unlink()
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({k: v for k, v in metrics.items() if k != "weights"}))


def test_weights_that_are_not_numbers(run: Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    forget_checksums(folder)
    tensors, about = load_tensors(folder / "model.safetensors")
    name = sorted(tensors)[0]
    save_tensors(folder / "model.safetensors", {**tensors, name: tensors[name] * float("nan")}, about)
    with pytest.raises(StoreError, match="holds weights that are infinite or not a number"):
        Run.open(folder, "cpu").predict([0])


@pytest.mark.parametrize(
    ("name", "value"),
    [("graph", 3), ("tokens", None), ("fingerprint", []), ("num_features", -1), ("num_nodes", "x"), ("task", "x")],
)
def test_a_damaged_run_file(run: Run, tmp_path: Path, name: str, value: object) -> None:
    folder = copied(run, tmp_path)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {name: value}))
    with pytest.raises(StoreError, match=f"run.json is damaged: its {name} is "):
        Run.open(folder)


def test_a_closed_run_opens_its_files_again(run: Run, tmp_path: Path) -> None:
    with Run.open(copied(run, tmp_path), "cpu") as opened:
        before = opened.predict([3]).probabilities
    assert not {"graph", "store", "model", "inputs"} & vars(opened).keys()
    np.testing.assert_array_equal(opened.predict([3]).probabilities, before)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_500_open_runs_hold_no_descriptors(run: Run) -> None:
    """With 1,024 descriptors allowed, 500 runs lie open with graph, token lists and model."""
    before, limits = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, limits[1]), limits[1]))
    try:
        runs = [Run.open(run.path, "cpu") for _ in range(500)]
        assert {len(one.graph.indices) + one.store.num_nodes for one in runs} == {run.graph.num_arcs + 150}
        assert len(runs[499].predict([0])) == 1
        assert len(os.listdir("/proc/self/fd")) - before < 10  # noqa: PTH208
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_another_graph_in_its_place(run: Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    shutil.rmtree(folder / "graph")
    vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.8, seed=9).save(folder / "graph")
    with pytest.raises(StoreError, match="is another graph than the one"):
        _ = Run.open(folder, "cpu").graph


def test_labels_of_other_classes_in_its_graph(run: Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    labels = np.load(folder / "graph" / "labels.npy")
    with edited_manifest(folder / "graph") as manifest:
        manifest["meta"]["class_names"] = [f"c{number}" for number in range(151)]
    put_array(folder / "graph", "labels", np.where(labels == labels[0], 150, labels))
    with pytest.raises(StoreError, match="is damaged: its num_outputs is 151, the model has"):
        Run.open(folder, "cpu").predict([0])


def test_predicting_loads_neither_compiled_loops_nor_explanations(tmp_path: Path) -> None:
    """A server that only predicts starts fast: label hops and all, without numba, METIS, scikit-learn or the page."""
    graph = named_graph()
    model = replace(CONFIG.model, label_hops=2, label_embedding=True, adjacency_rows=True)
    split = Split.random(graph.labels, seed=0)
    made = vcr.train(graph, split, replace(CONFIG, model=model), tmp_path / "run", device="cpu")
    script = (
        "import sys, vcr_graphormer as vcr\n"
        "print(vcr.Run.open(sys.argv[1], 'cpu').predict(['n7']).probabilities.tolist())\n"
        "heavy = {'numba', 'pymetis', 'sklearn', 'vcr_graphormer.explain', 'vcr_graphormer.report'}\n"
        "loaded = heavy & set(sys.modules) | {name for name in sys.modules if '.kernels' in name}\n"
        "sys.exit(', '.join(sorted(loaded)) or 0)\n"
    )
    command = [sys.executable, "-c", script, str(made.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    np.testing.assert_allclose(json.loads(result.stdout), made.predict(["n7"]).probabilities, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("graph", "its graph adjacency, graph features differ. Bring its own token lists back, or delete these"),
        ("features", "its graph features differ"),
        ("type", "its setting score_type differ"),
        ("split", "its training labels, training nodes differ"),
    ],
)
def test_token_lists_of_others_are_refused(run: Run, graph: Graph, change: str, message: str, tmp_path: Path) -> None:
    """They have the same form, so the model would read them and predict other numbers."""
    other, train, config = graph, run.split.train, CONFIG.tokens
    if change == "graph":
        other = vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.8, seed=1)
        other = replace(other, labels=graph.labels, class_names=graph.class_names)
    elif change == "features":
        other = replace(graph, features=np.asarray(graph.features)[:, ::-1].copy())
    elif change == "type":
        config = replace(config, score_type="float16")
    else:
        train = train[1:]
    folder = copied(run, tmp_path)
    shutil.rmtree(folder / "tokens")
    vcr.tokenize(other, train, config, folder / "tokens")
    with pytest.raises(StoreError, match=message):
        Run.open(folder, "cpu").predict([0])


def test_token_lists_that_were_made_again_or_do_not_say_of_what(run: Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    expected = run.predict().probabilities
    shutil.rmtree(folder / "tokens")
    opened = Run.open(folder, "cpu")
    vcr.tokenize(opened.graph, opened.split.train, opened.config.tokens, opened.tokens_folder)
    np.testing.assert_allclose(opened.predict().probabilities, expected, atol=1e-6)
    (folder / "checksums.json").unlink()  # as in the first release: only the identity can be compared
    np.testing.assert_allclose(Run.open(folder, "cpu").predict().probabilities, expected, atol=1e-6)
    with edited_manifest(folder / "tokens") as manifest:
        manifest["meta"]["identity"] = {}
    np.testing.assert_allclose(Run.open(folder, "cpu").predict().probabilities, expected, atol=1e-6)


def test_prepared_features_are_compared_as_the_model_reads_them(graph: Graph, tmp_path: Path) -> None:
    split, folder = Split.random(graph.labels, seed=0), tmp_path / "run"
    config = replace(CONFIG, data=replace(CONFIG.data, scale="standard"))
    run = vcr.train(graph, split, config, folder, device="cpu", baselines="none")
    assert not run.preparation.empty
    shutil.rmtree(folder / "tokens")
    vcr.tokenize(run.graph, split.train, run.config.tokens, folder / "tokens")
    assert len(Run.open(folder, "cpu").predict([0])) == 1
    shutil.rmtree(folder / "tokens")
    vcr.tokenize(graph, split.train, run.config.tokens, folder / "tokens")  # of the features as they were given
    with pytest.raises(StoreError, match="its graph features differ"):
        Run.open(folder, "cpu").predict([0])
