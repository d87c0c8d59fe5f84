"""The exported model against our own predictions, by onnxruntime and by torch.export.load, for every kind of model."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

import vcr_graphormer as vcr
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import ConfigError, Graph, Run, Split, StoreError
from vcr_graphormer.model import export
from vcr_graphormer.model.export import Exportable

Arrays = dict[str, NDArray[Any]]


def as_given(graph: Graph) -> Graph:
    return graph


def with_lonely_nodes(graph: Graph) -> Graph:
    """The last ten nodes lose their edges: without super nodes their lists are empty."""
    rows = np.repeat(np.arange(150), graph.degrees)
    kept = (rows < 140) & (np.asarray(graph.indices) < 140)
    edges = np.stack([rows[kept], np.asarray(graph.indices)[kept]])
    return Graph.from_edges(edges, num_nodes=150, features=graph.features, labels=graph.labels)


def with_several_labels(graph: Graph) -> Graph:
    labels = np.stack([np.asarray(graph.labels) == 0, np.asarray(graph.features)[:, 0] > 0], 1).astype(np.int8)
    features = sp.csr_matrix(np.maximum(np.asarray(graph.features), 0))
    return replace(graph, features=features, labels=labels, task="multilabel", class_names=("first", "second"))


def with_targets(graph: Graph) -> Graph:
    features = np.asarray(graph.features) * np.array([1, 1, 1, 1, 1, 1, 1, 1e4], np.float32)
    targets = (np.asarray(graph.features)[:, :2] * 50 + [1000, 0]).astype(np.float32)
    return replace(graph, features=features, labels=targets, task="regression", class_names=None)


@dataclass(frozen=True)
class Case:
    """A kind of model; settings are changes of the paper's model."""

    inputs: str
    graph: Callable[[Graph], Graph] = as_given
    data: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)


LABELS = {"label_hops": 2, "label_embedding": True, "rich_labels": True}
CASES = {
    "paper": Case("features hop_features scores mask", tokens={"distinct": False}),
    "padding": Case(
        "features hop_features scores mask labels",
        with_lonely_nodes,
        tokens={"clusters": 0, "content_tokens": 0},
        model={"label_embedding": True},
    ),
    "everything": Case(
        "features hop_features rich_features scores mask shared_scores label_hops labels labels_around",
        model={**LABELS, "combine": "gated", "kind_embedding": True, "rank_embedding": True, "rich_tokens": 2},
    ),
    "three members": Case(
        "features hop_features scores mask shared_scores",
        model={"combine": "gated", "readout": "target", "kind_embedding": True, "members": 3},
    ),
    "four kinds": Case(
        "features hop_features scores mask shared_scores",
        tokens={"link_tokens": 2, "nearest_tokens": 2},
        model={"kind_embedding": True, "readout": "mean", "layers": 2},
    ),
    "several labels, sparse features": Case(
        "features hop_features rich_features scores mask label_hops labels labels_around",
        with_several_labels,
        tokens={"content": "features", "content_clusters": 3},
        model={**LABELS, "readout": "mean", "normalize_rows": True, "rich_tokens": 1},
    ),
    "targets, standardized features": Case(
        "features hop_features scores mask label_hops labels labels_around",
        with_targets,
        data={"scale": "standard"},
        tokens={"content": "features", "content_clusters": 3},
        model={**LABELS, "readout": "target"},
    ),
    "no neighbours": Case(
        "features hop_features label_hops",
        tokens={"structure_tokens": 0, "content_tokens": 0},
        model={**LABELS, "combine": "gated", "rank_embedding": True},
    ),
    "adjacency rows, no hops": Case(
        "features links scores mask", tokens={"hops": 0}, model={"adjacency_rows": True, "normalize_rows": True}
    ),
    "inputs that change nothing": Case("features hop_features scores mask", model={"layers": 0, "readout": "target"}),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A run of each kind, trained when it is first asked for."""
    runs: dict[str, Run] = {}

    def train(name: str) -> Run:
        if name not in runs:
            case = CASES[name]
            graph = case.graph(named_graph())
            config = replace(
                CONFIG,
                data=replace(CONFIG.data, **case.data),
                tokens=replace(CONFIG.tokens, **{"distinct": True, **case.tokens}),
                model=replace(CONFIG.model, **case.model),
                training=replace(CONFIG.training, epochs=1),
            )
            split, out = Split.random(graph.labels, seed=0), tmp_path_factory.mktemp("runs") / "run"
            runs[name] = vcr.train(graph, split, config, out, device="cpu", baselines="none")
        return runs[name]

    return train


@pytest.fixture(scope="module")
def exported(trained: Callable[[str], Run], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The file of each kind and format, written when it is first asked for: writing one takes seconds."""
    folder = tmp_path_factory.mktemp("exported")

    def write(name: str, ending: str) -> Path:
        file = folder / f"{name}{ending}"
        if not file.exists():
            assert trained(name).export(file) == file
        return file

    return write


def run_torch(file: Path, arrays: Arrays) -> NDArray[np.float32]:
    module = torch.export.load(file).module()
    with torch.no_grad():
        outputs: NDArray[np.float32] = module(
            **{name: torch.from_numpy(array) for name, array in arrays.items()}
        ).numpy()
    return outputs


def run_onnx(file: Path, arrays: Arrays) -> NDArray[np.float32]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    outputs: NDArray[np.float32] = onnxruntime.InferenceSession(file, options).run(None, arrays)[0]
    return outputs


RUNNERS = {".pt2": run_torch, ".onnx": run_onnx}


@pytest.mark.parametrize("ending", RUNNERS)
@pytest.mark.parametrize("name", CASES)
def test_the_exported_model_predicts_the_same(
    trained: Callable[[str], Run], exported: Callable[[str, str], Path], name: str, ending: str
) -> None:
    run, file = trained(name), exported(name, ending)
    expected = run.predict().probabilities
    arrays = run.export_inputs(np.arange(150))
    assert list(arrays) == CASES[name].inputs.split()
    assert len(np.unique(expected.round(4), axis=0)) > 100  # nodes are told apart
    deviation = 1 if run.scale is None else run.scale[1]  # values are as exact as float32 makes those around 1
    for count in (150, 2, 1):
        outputs = RUNNERS[ending](file, {key: array[:count] for key, array in arrays.items()})
        assert (str(outputs.dtype), outputs.shape) == ("float32", expected[:count].shape)
        np.testing.assert_array_less(np.abs(outputs - expected[:count]) / deviation, 1e-5)


def outputs_of(run: Run, arrays: Arrays) -> NDArray[np.float32]:
    """The module that is exported, without exporting it."""
    module = Exportable(run.model, run.inputs.own_scores, run.target)
    with torch.no_grad():
        outputs: NDArray[np.float32] = module(
            **{name: torch.from_numpy(array) for name, array in arrays.items()}
        ).numpy()
    return outputs


@pytest.mark.parametrize("name", [name for name in CASES if name != "inputs that change nothing"])
def test_every_input_counts(trained: Callable[[str], Run], name: str) -> None:
    run = trained(name)
    arrays = run.export_inputs(np.arange(150))
    expected = outputs_of(run, arrays)
    for key, array in arrays.items():
        hidden = array & (np.arange(array.shape[1]) > 0) if key == "mask" else None
        changed = (array == 0).astype(np.float32) if hidden is None else hidden
        assert np.abs(outputs_of(run, arrays | {key: changed}) - expected).max() > 1e-6, key


def test_padding_does_not_count(trained: Callable[[str], Run]) -> None:
    run = trained("padding")
    arrays = run.export_inputs(np.arange(150))
    expected, random = outputs_of(run, arrays), np.random.default_rng(0)
    missing = ~arrays["mask"]
    assert missing[140:].all()
    for key in ("features", "scores", "labels"):
        places = np.pad(missing, ((0, 0), (1, 0))) if key == "features" else missing
        noisy = arrays[key].copy()
        assert (noisy[places] == 0).all()
        noisy[places] = random.normal(size=noisy[places].shape)
        np.testing.assert_array_equal(outputs_of(run, arrays | {key: noisy}), expected)


def test_inputs_are_rows_of_the_graph_and_of_its_token_lists(trained: Callable[[str], Run]) -> None:
    run = trained("everything")
    arrays, nodes = run.export_inputs(["n5", "n2", "n140"]), [5, 2, 140]
    ids = np.concatenate([run.store.ids("structure"), run.store.ids("content")], 1)
    features = np.asarray(run.graph.features)
    hops = np.stack([np.asarray(run.store.hop(1)), np.asarray(run.store.hop(2))], 1)
    for row, node in enumerate(nodes):
        listed = [node, *ids[node]]
        np.testing.assert_array_equal(arrays["features"][row], features[listed])
        np.testing.assert_array_equal(arrays["rich_features"][row], hops[listed])
        np.testing.assert_array_equal(arrays["hop_features"][row], hops[node])
        np.testing.assert_array_equal(
            arrays["scores"][row], [*run.store.scores("structure")[node], *run.store.scores("content")[node]]
        )
        shared = run.store.shared("content")
        assert shared is not None
        np.testing.assert_array_equal(arrays["shared_scores"][row, :, 0], [*shared[node], 0, 0, 0])
        known = np.isin(ids[node], run.split.train)
        labels = np.eye(3)[np.asarray(run.graph.labels)[ids[node]]] * known[:, None]
        np.testing.assert_array_equal(arrays["labels"][row], labels)
    assert {key: (array.shape[1:], str(array.dtype)) for key, array in arrays.items()} == {
        "features": ((7, 8), "float32"),
        "hop_features": ((2, 8), "float32"),
        "rich_features": ((7, 2, 8), "float32"),
        "scores": ((6,), "float32"),
        "mask": ((6,), "bool"),
        "shared_scores": ((6, 1), "float32"),
        "label_hops": ((2, 3), "float32"),
        "labels": ((6, 3), "float32"),
        "labels_around": ((6, 3), "float32"),
    }
    assert {key: array.shape[0] for key, array in run.export_inputs([]).items()} == dict.fromkeys(arrays, 0)
    links = trained("adjacency rows, no hops").export_inputs([3])["links"][0, 0]
    assert np.flatnonzero(links).tolist() == run.graph.to_scipy()[3].indices.tolist()
    assert np.linalg.norm(links) == pytest.approx(1)


def test_a_run_of_a_gpu_is_exported_in_float32(trained: Callable[[str], Run], tmp_path: Path) -> None:
    run = trained("padding")
    config = replace(run.config, training=replace(run.config.training, precision="bfloat16"))
    other = replace(run, config=config, device=torch.device("cuda"))  # never touched: there may be no GPU here
    arrays = run.export_inputs([0, 149])
    for name, array in other.export_inputs([0, 149]).items():
        np.testing.assert_array_equal(array, arrays[name])
    file = other.export(tmp_path / "model.pt2")
    np.testing.assert_allclose(run_torch(file, arrays), run.predict([0, 149]).probabilities, atol=1e-5)


def test_a_json_file_describes_the_tensors(trained: Callable[[str], Run], exported: Callable[[str, str], Path]) -> None:
    run, file = trained("everything"), exported("everything", ".onnx")
    about = json.loads(Path(f"{file}.json").read_text())
    arrays = run.export_inputs([0])
    session = onnxruntime.InferenceSession(file)
    for kind, described, actual in (
        ("inputs", about["inputs"], session.get_inputs()),
        ("outputs", about["outputs"], session.get_outputs()),
    ):
        names_and_shapes = [(one["name"], one["shape"]) for one in described]
        assert names_and_shapes == [(one.name, one.shape) for one in actual], kind
        assert all(one["meaning"] for one in described)
    assert [one["dtype"] for one in about["inputs"]] == [str(array.dtype) for array in arrays.values()]
    assert about["outputs"][0]["name"] == "probabilities"
    assert about["outputs"][0]["shape"] == ["batch", 3]
    assert about["neighbours"] == {"structure": [0, 3], "content": [3, 6]}
    assert (about["format"], about["task"], about["class_names"]) == ("onnx", "classification", ["a", "b", "c"])
    assert (about["target_scale"], about["preparation"]["made"]) == (None, None)
    assert (about["threshold"], about["schema"]["classes"]) == (None, ["a", "b", "c"])
    assert about["tokens"]["restart"] == 0.15
    targets = trained("targets, standardized features")
    about = json.loads(Path(f"{exported('targets, standardized features', '.pt2')}.json").read_text())
    assert about["outputs"][0]["name"] == "values"
    assert targets.scale is not None
    np.testing.assert_array_equal(about["target_scale"], targets.scale)
    np.testing.assert_array_equal(about["preparation"]["scale"]["mean"], targets.preparation.mean)
    assert about["class_names"] is None


def test_the_example_on_the_page_needs_no_package_of_ours(
    trained: Callable[[str], Run], exported: Callable[[str, str], Path], tmp_path: Path
) -> None:
    run = trained("everything")
    for ending in ("", ".json"):
        shutil.copy(f"{exported('everything', '.onnx')}{ending}", tmp_path / f"model.onnx{ending}")
    nodes = ["n0", "n1", "n2"]
    np.savez(tmp_path / "inputs.npz", **run.export_inputs(nodes))  # type: ignore[arg-type]
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    examples = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "onnxruntime" in code]
    assert len(examples) == 1
    assert "vcr" not in examples[0]
    example = subprocess.run(
        [sys.executable, "-c", examples[0]], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    names = run.graph.class_names
    assert names is not None
    assert example.stdout.split() == [names[label] for label in run.predict(nodes).labels]


def test_file_and_format(trained: Callable[[str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("no neighbours")
    with pytest.raises(ConfigError, match=r"model.bin must end in .onnx or .pt2"):
        run.export(tmp_path / "model.bin")
    with pytest.raises(ConfigError, match="format is 'tf'; it must be onnx or torch"):
        run.export(tmp_path / "model.onnx", "tf")
    with pytest.raises(ConfigError, match=r"model.onnx must end in .pt2 for the format torch"):
        run.export(tmp_path / "model.onnx", "torch")
    assert run.export(format="torch") == run.path / "model.pt2"
    with pytest.raises(StoreError, match=r"model.pt2 exists: choose another name or delete it"):
        run.export(format="torch")
    run.export(format="torch", overwrite=True)
    (run.path / "model.pt2").unlink()
    (run.path / "model.pt2.json").write_text('{"format": "mine"}')
    with pytest.raises(StoreError, match=r"model.pt2.json exists"):
        run.export(format="torch")
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr(export, "_MOST_BYTES", 1000)
        with pytest.raises(ConfigError, match="bytes, more than an ONNX file can hold: use the format torch"):
            run.export(tmp_path / "model.onnx")
        patch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(ConfigError, match=r"pip install 'vcr-graphormer\[export\]'"):
            run.export()


def test_a_killed_export_runs_again(
    trained: Callable[[str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        """What ends the process between two files."""

    def replace_or_die(self: Path, target: Path) -> Path:
        renamed.append(target.name)
        if len(renamed) == dies_at:
            raise KilledError
        return rename(self, target)

    run, rename = trained("no neighbours"), Path.replace
    for dies_at in (1, 2):
        renamed: list[str] = []
        file = tmp_path / f"{dies_at}.pt2"
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(Path, "replace", replace_or_die)
            run.export(file)
        assert not file.exists()  # the model comes last, so one that is there is whole
        assert file.with_name(f"{file.name}.json").exists() == (dies_at == 2)
        run.export(file)
        assert json.loads(file.with_name(f"{file.name}.json").read_text())["format"] == "torch"
        with pytest.raises(StoreError, match="exists: choose another name or delete it"):
            run.export(file)
