"""`Run`: predict, embed, evaluate and explain with the model in a run folder."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__
from ..base.checks import Array, is_whole, misfit
from ..base.checksums import CHECKSUMS_FILE, check_sizes, is_as_recorded
from ..base.files import checksum, read_json, to_path
from ..base.folders import MANIFEST, differences
from ..base.jobs import Progress
from ..base.problems import Problems
from ..base.progress import bars
from ..base.text import html_table
from ..data.columns.matching import match, schema_of
from ..data.columns.preparation import Preparation
from ..data.columns.schema import SCHEMA_FILE, Schema
from ..data.graph import Graph
from ..data.growth import align
from ..data.metrics import PrecisionRecall, Threshold, precision_recall, rarer
from ..data.split import PARTS, Split
from ..data.tasks import TASKS, Target, name_classes, unknown_label
from ..errors import ConfigError, GraphError, StoreError
from ..model.batches import Inputs
from ..model.inputs import make_inputs, model_sizes
from ..model.members import Model, make_model
from ..tokens.config import TokenConfig
from ..tokens.lists import TokenLists
from ..tokens.store import TokenStore
from ..training.checkpoint import HISTORY, load_tensors, read_history
from ..training.devices import choose_micro_batch, choose_precision, find_device
from ..training.inference import compute
from .config import Config, load_run_config
from .predictions import Embeddings, Predictions, check_finite, find_node, find_nodes

if TYPE_CHECKING:  # imported where needed: predicting must not load the code that explains
    from ..explain.attributions import Attributions
    from ..explain.explanation import Explanation
    from ..explain.rewiring import Transfer

RUN_FILE = "run.json"
METRICS_FILE = "metrics.json"  # written last: a run that has it is finished
WEIGHTS_FILE = "model.safetensors"
BASELINES_FILE = "baselines.json"
RUN_VERSION = 1
SIZES = ("num_features", "num_outputs", "num_labels", "num_nodes")
# Token lists computed at a time while explaining, at least: small enough for the memory of a laptop and of a GPU.
_LISTS_AT_ONCE_CPU, _LISTS_AT_ONCE_GPU = 64, 4096
# The form of what every release has written; other entries may be there.
_SCORE = (float, None)
_CLASS = {"name": str, "nodes": int, **dict.fromkeys(("precision", "recall", "f1"), _SCORE)}
_METRICS = {
    **dict.fromkeys(("dataset", "metric", "device"), str),
    **dict.fromkeys(("epochs", "best_epoch", "parameters"), int),
    **dict.fromkeys(PARTS, _SCORE),
    "scores": {part: {"*": _SCORE} for part in PARTS},
    "timings": {"*": float},
    "classes?": {"*": [_CLASS]},
}
_BASELINES = [{"name": str, "val?": _SCORE, "test?": _SCORE, "seconds?": float, "note?": str}]
# Settings that must be equal in the run and in the token lists that its model reads.
_LIST_SETTINGS = (
    *("hops", "structure_tokens", "content_tokens", "link_tokens", "nearest_tokens"),
    *("distinct", "self_loops"),
)


def versions() -> dict[str, str]:
    """Return the versions of this package and of those its results depend on."""
    installed = {"vcr-graphormer": __version__}
    for name in ("torch", "numpy", "scipy", "numba", "pymetis"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "unknown"
    return installed


_TEXTS = ("graph", "tokens", "fingerprint")  # in RUN_FILE; two of them are paths


def _check_about(about: dict[str, Any], folder: Path) -> None:
    """Refuse a `run.json` whose values are not of the types that `train` writes."""
    right = {
        **{name: isinstance(about[name], str) and "\0" not in about[name] for name in _TEXTS},
        **{name: is_whole(about[name]) and about[name] >= 0 for name in SIZES},
        "task": isinstance(about["task"], str) and about["task"] in TASKS,
        "scale": about["scale"] is None or (isinstance(about["scale"], list) and len(about["scale"]) == 2),
    }
    for name in (name for name, is_right in right.items() if not is_right):
        raise StoreError(f"{folder / RUN_FILE} is damaged: its {name} is {about[name]!r}")


def _check_weights(folder: Path) -> None:
    """Refuse weights that are not those of the results; runs of earlier versions do not say which these are."""
    expected, file = read_json(folder / METRICS_FILE).get("weights"), folder / WEIGHTS_FILE
    if expected is not None and file.is_file() and checksum(file) != expected:
        raise StoreError(
            f"{file} is damaged: it does not hold the weights that {METRICS_FILE} belongs to. Bring it back, or train "
            f"again"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run folder: settings, graph, token lists, model and results.

    Attributes
    ----------
    path : Path
        The folder.
    config : Config
        All settings.
    about : dict
        The content of `run.json`: where graph and tokens lie, sizes of the model.
    device : torch.device
        Device that computes.
    other_graph, other_tokens, other_split
        A graph other than the one it was trained on, its token lists, and its nodes with known labels; see `on`.
    """

    path: Path
    config: Config
    about: dict[str, Any]
    device: torch.device
    other_graph: Graph | None = None
    other_tokens: TokenStore | None = None
    other_split: Split | None = None

    @classmethod
    def open(cls, path: str | Path, device: str = "auto") -> Run:
        """Open a run folder, finished or not."""
        folder = to_path(path)
        if not (folder / RUN_FILE).is_file():
            inside = next((f": give one of its runs, such as {run.parent}" for run in folder.glob(f"*/{RUN_FILE}")), "")
            raise StoreError(f"{folder} is not a run folder: {RUN_FILE} is missing{inside}")
        about = read_json(folder / RUN_FILE)
        if about.get("kind") != "run" or about.get("version") != RUN_VERSION:
            raise StoreError(
                f"{folder} has run format {about.get('version')!r}; this package reads {RUN_VERSION}: open it with "
                f"vcr-graphormer {about.get('package', 'of another version')}, or train again"
            )
        missing = {"graph", "tokens", "fingerprint", "task", "scale", *SIZES} - about.keys()
        if missing:
            raise StoreError(f"{folder / RUN_FILE} is damaged: it lacks {', '.join(sorted(missing))}")
        _check_about(about, folder)
        if (folder / METRICS_FILE).is_file():
            check_sizes(folder)
            _check_weights(folder)
        return cls(folder, load_run_config(folder / "config.toml"), about, find_device(device))

    @classmethod
    def from_pretrained(cls, path: str | Path, device: str = "auto") -> Run:
        """Open a folder that `save_pretrained` wrote; every file is compared with its checksum.

        Such a folder usually holds no graph: `Run.from_pretrained(folder).on(graph).predict()`.
        """
        from .interfaces.pretrained import open_pretrained

        return open_pretrained(path, device)

    def save_pretrained(self, folder: str | Path, *, with_graph: bool = False, intended_use: str = "") -> Path:
        """Write weights, schema, settings and a model card to a new folder, for other graphs and other people.

        Nothing in it says which nodes or edges the training graph had. It does name columns, categories and classes.

        Parameters
        ----------
        with_graph
            Also write the graph with its labels, the split and the token lists.
        intended_use
            What the model is for, and what not: a text for the model card.
        """
        from .interfaces.pretrained import save_pretrained

        return save_pretrained(self, folder, with_graph=with_graph, intended_use=intended_use)

    @property
    def has_graph(self) -> bool:
        """Whether the graph it was trained on is there; folders of `save_pretrained` may have none."""
        return "pretrained" not in self.about or (self.path / self.about["graph"]).is_dir()

    def close(self) -> None:
        """Let go of graph, token lists, model and the files behind them; the next use opens them again."""
        for name in ("graph", "original", "store", "inputs", "model", "_exact"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def finished(self) -> bool:
        """Whether training ended and wrote its results."""
        return (self.path / METRICS_FILE).is_file()

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Return the results: `train`, `val` and `test` of the metric, all `scores`, timings, versions."""
        if self.other_graph is not None:
            return {}  # the results are those of the graph it was trained on
        self.check_finished()
        metrics = read_json(self.path / METRICS_FILE)
        if problem := misfit(metrics, _METRICS, METRICS_FILE):
            raise StoreError(f"{self.path} is damaged: {problem}. Bring the file back, or train again")
        return metrics

    @property
    def baselines(self) -> list[dict[str, Any]]:
        """Return what `train` measured beside the model: name, settings, `val`, `test` and seconds of each baseline.

        Baselines that were not computed have a `note` and no `val`. The list is empty if the run has none.
        """
        if self.other_graph is not None or not (self.path / BASELINES_FILE).is_file():
            return []
        try:
            rows: list[dict[str, Any]] = read_json(self.path / BASELINES_FILE)["baselines"]
        except (StoreError, KeyError):  # a damaged file costs the baselines, not the run
            return []
        return rows if misfit(rows, _BASELINES) is None else []

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """Return one row per epoch: loss, validation loss and metric, learning rate, seconds."""
        return read_history(self.path / HISTORY)

    @property
    def notes(self) -> list[str]:
        """Return what was chosen for the graph and why, one sentence each; none in runs of the first release."""
        notes = self.about.get("notes", [])
        return notes if misfit(notes, [str]) is None else []

    @cached_property
    def preparation(self) -> Preparation:
        """Return what is done to the features of a graph before the model reads them."""
        return Preparation.open(self.path)

    @cached_property
    def schema(self) -> Schema:
        """Return names and types of features, and names of classes, by which other data is matched."""
        file = self.path / SCHEMA_FILE
        if file.is_file():
            return Schema.from_dict(read_json(file), file)
        # Runs of earlier versions have no such file; their graphs know the names of classes.
        return schema_of(self.original) if (self.path / self.about["graph"]).is_dir() else Schema()

    def prepare(self, graph: Graph) -> Graph:
        """Return another graph with features as the model reads them; make its token lists from that one.

        Features and classes are matched by name and put in the order of the run, where both have names. Missing
        columns, columns of another type and unknown classes are refused; other columns are ignored with a warning.
        """
        problems = Problems()
        matched = match(graph, self.schema, problems)
        problems.raise_any()
        for note in problems.notes:
            warnings.warn(note, stacklevel=2)
        return self.preparation.apply(matched)

    @cached_property
    def graph(self) -> Graph:
        """Return the graph with prepared features: the one it was trained on, unless this is a run `on` another."""
        return self.preparation.apply(self.original) if self.other_graph is None else self.other_graph

    @cached_property
    def original(self) -> Graph:
        """Return the graph it was trained on as it was given, before its features were prepared."""
        if not self.has_graph:
            raise StoreError(f"{self.path} holds a model without its graph: give it one by run.on(graph)")
        if not (self.path / self.about["graph"]).is_dir():
            raise StoreError(
                f"the graph of {self.path} is missing: {self.path / self.about['graph']} was moved or deleted"
            )
        graph = Graph.open(self.path / self.about["graph"])
        if graph.fingerprint != self.about["fingerprint"]:
            raise StoreError(f"{graph.folder} is another graph than the one {self.path} was trained on")
        sizes = {"num_nodes": graph.num_nodes, "num_outputs": graph.num_classes}  # fingerprints are those it claims
        for name, size in sizes.items():
            if size != self.about[name]:
                raise StoreError(f"{graph.folder} is damaged: its {name} is {size}, the model has {self.about[name]}")
        return graph

    @cached_property
    def split(self) -> Split:
        """Return training, validation and test nodes."""
        if self.other_split is not None:
            return self.other_split
        return Split.from_files(self.path / "split.npz").check(self.about["num_nodes"])

    @property
    def tokens_folder(self) -> Path:
        """Return the folder of the token store."""
        return self.path / str(self.about["tokens"])

    @cached_property
    def store(self) -> TokenStore:
        """Return the token lists of the graph."""
        if self.other_tokens is not None:
            return self.other_tokens
        if not self.tokens_folder.is_dir():
            raise StoreError(
                f"{self.path} has no token store: {self.tokens_folder} is missing. Bring it back, or train again"
            )
        store = TokenStore.open(self.tokens_folder)
        # An unfinished run has no lists to be wrong about: `tokenize` makes them, or refuses those of others.
        if self.finished and (self.path / self.about["graph"]).is_dir():
            self._check_own(store)
        return store

    def _check_own(self, store: TokenStore) -> None:
        """Refuse token lists of another graph, split or configuration; stores that do not say what they are pass."""
        if not store.identity or is_as_recorded(self.path, f"{self.about['tokens']}/{MANIFEST}"):
            return  # the very lists of the training; this spares the hash of prepared features
        from ..tokens.adapt import adapt_tokens
        from ..tokens.build import make_identity

        train = np.unique(self.split.train)
        config = adapt_tokens(self.config.tokens, self.graph, train)
        own = make_identity(self.graph, train, config=config, settings=store.settings)
        # Neither what belongs to the user's own kinds, nor what is younger than the store.
        known = own.keys() & store.identity.keys()
        if not (self.preparation.empty or (self.path / CHECKSUMS_FILE).is_file()):
            known.discard("graph features")  # earlier versions may have rounded otherwise when they prepared them
        different = differences(own, store.identity)
        if different := [name for name in different if name in known or name.startswith("setting ")]:
            raise StoreError(
                f"{store.path} is not what {self.path} was trained with: its {', '.join(different)} differ. Bring its "
                f"own token lists back, or delete these and make its own again by tokenize(run.graph, run.split.train, "
                f"run.config.tokens, run.tokens_folder)"
            )

    @property
    def precision(self) -> torch.dtype:
        """Return the type of matrix products on this device."""
        return choose_precision(self.config.training.precision, self.device)

    @property
    def task(self) -> str:
        """Return the name of the task the model was trained for."""
        return str(self.about["task"])

    @property
    def scale(self) -> tuple[Array, Array] | None:
        """Return mean and standard deviation of regression targets over the training nodes."""
        scale = self.about["scale"]
        return None if scale is None else (np.asarray(scale[0]), np.asarray(scale[1]))

    @property
    def target(self) -> Target:
        """Return what the model was trained for: its task, the scale of its targets, and what decides."""
        return Target(TASKS[self.task], self.scale, threshold=self.threshold)

    @property
    def threshold(self) -> Threshold | None:
        """Return what decides between two classes; None, as in earlier versions: the most probable class."""
        if not self.finished:
            return None
        row = read_json(self.path / METRICS_FILE).get("threshold")
        if row is None:
            return None
        if misfit(row, {"column": int, "value": float}) is not None or row["column"] not in (0, 1):
            raise StoreError(f"{self.path / METRICS_FILE} is damaged: its threshold is {row!r:.80}")
        return Threshold(row["column"], float(row["value"]))

    @property
    def class_names(self) -> list[str]:
        """Return the names of the model's outputs; numbers where they have none."""
        return name_classes(self.graph.class_names, self.about["num_outputs"])

    @property
    def batch_size(self) -> int:
        """Return the number of nodes computed at a time."""
        wanted, size = self.config.training.micro_batch, self.config.training.batch_size
        return choose_micro_batch(
            wanted, size, num_tokens=self.store.num_tokens, model=self.config.model, device=self.device
        )

    @cached_property
    def inputs(self) -> Inputs:
        """Return the tensors that batches are made from."""
        model, train = self.config.model, self.split.train
        return make_inputs(self.graph, self.store, model=model, train=train, device=self.device, dtype=self.precision)

    def new_model(self) -> Model:
        """Return an untrained model of this run's sizes."""
        sizes = model_sizes(self.graph)
        for name in SIZES[:-1] if self.other_graph is None else ():
            if sizes[name] != self.about[name]:
                raise StoreError(f"{self.path} is damaged: {name} is {self.about[name]}, of its graph {sizes[name]}")
        return make_model(self.config.model, self.store.layout, **{name: self.about[name] for name in SIZES})

    @cached_property
    def model(self) -> Model:
        """Return the trained model, in evaluation mode."""
        self.check_finished()
        file = self.path / WEIGHTS_FILE
        tensors, _ = load_tensors(file)
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise StoreError(f"{file} is damaged: it holds weights that are infinite or not a number; train again")
        with torch.random.fork_rng(devices=[]):
            model = self.new_model()
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            problem = " ".join(str(error).split())  # torch writes a line for each tensor
            raise StoreError(f"{file} does not fit the settings of {self.path}: {problem}") from error
        return model.to(self.device, self.precision).eval()

    @property
    def gate(self) -> float | None:
        """Return how far the gate of a gated model is open, -1 to 1, for the path of the whole list; else None.

        It starts at 0.5. The size counts; the sign says nothing, for the second path may learn either. Of several
        members, the mean of the sizes.
        """
        if self.config.model.combine != "gated":
            return None
        gates = [gate.tanh().item() for gate in self._exact.model.gates]
        if len(gates) > 1:
            return float(np.mean(np.abs(gates)))
        return gates[0]

    def check_finished(self) -> None:
        """Refuse a run that has no results yet."""
        if not self.finished:
            raise StoreError(f"{self.path} is not finished: continue it with train --resume or vcr.resume")

    def predict(self, nodes: Any = None, progress: Progress | bool | None = None) -> Predictions:
        """Return probabilities and predicted labels of node ids or names; default: all nodes.

        Bars show the progress on a terminal and in a notebook. `progress=False` turns them off; a function is called
        with (stage, done, total) instead.
        """
        ids = find_nodes(self.graph, nodes)
        return self.wrap(ids, self.target.outputs(self._compute(ids, False, progress=progress)))

    def embed(self, nodes: Any = None, progress: Progress | bool | None = None) -> NDArray[np.float32]:
        """Return the vectors before the head of node ids or names; default: all nodes.

        They are as wide as the model, [m, h]. Those of a gated model have both paths side by side, [m, 2h].
        """
        return self._compute(find_nodes(self.graph, nodes), True, progress=progress)

    def embeddings(self, nodes: Any = None, progress: Progress | bool | None = None) -> Embeddings:
        """Return the vectors of `embed` with names, parts and labels of the nodes; `save` writes them to a file."""
        ids = find_nodes(self.graph, nodes)
        names = self.graph.names
        return Embeddings(
            nodes=ids,
            vectors=self._compute(ids, True, progress=progress),
            task=self.task,
            names=None if names is None else np.asarray(names)[ids],
            class_names=self.graph.class_names,
            parts=self.split.part_of(self.graph.num_nodes)[ids],
            true_labels=self._true_labels(ids),
        )

    def _compute(
        self, nodes: NDArray[np.int64], vectors: bool, *, progress: Progress | bool | None
    ) -> NDArray[np.float32]:
        with bars(progress) as show:
            outputs = compute(self.model, self.inputs, nodes, self.batch_size, vectors=vectors, progress=show)
        check_finite(outputs, nodes, graph=self.graph, tokens=self.store)
        return outputs

    def wrap(
        self, nodes: NDArray[np.int64], predicted: NDArray[np.float32], target: Target | None = None
    ) -> Predictions:
        """Return predictions with the names of nodes and classes; another `target` may decide."""
        names, target = self.graph.names, target or self.target
        return Predictions(
            nodes=nodes,
            probabilities=predicted,
            labels=target.decide(predicted),
            task=self.task,
            names=None if names is None else np.asarray(names)[nodes],
            class_names=self.graph.class_names,
            threshold=target.threshold,
            parts=self.split.part_of(self.graph.num_nodes)[nodes],
            true_labels=self._true_labels(nodes),
        )

    def _true_labels(self, nodes: NDArray[np.int64]) -> Array | None:
        labels = self.graph.labels if self.graph.task == self.task else None
        return None if labels is None else np.asarray(labels)[nodes]

    def evaluate(self, part: str = "test", progress: Progress | bool | None = None) -> dict[str, float]:
        """Return every metric of the task on `train`, `val` or `test`."""
        if part not in PARTS:
            raise ConfigError(f"part is {part!r}; it must be {' or '.join(PARTS)}")
        nodes = getattr(self.split, part)
        return self.score(self.predict(nodes, progress).probabilities, nodes)

    def score(
        self, predicted: NDArray[np.float32], nodes: NDArray[np.int64], target: Target | None = None
    ) -> dict[str, float]:
        """Return every metric of the task for predictions of these nodes; another `target` may decide."""
        labels, target = self._labels(nodes), target or self.target
        return {metric: target.measure(metric, predicted, labels) for metric in target.task.metrics}

    def score_classes(
        self, predicted: NDArray[np.float32], nodes: NDArray[np.int64], target: Target | None = None
    ) -> list[dict[str, Any]]:
        """Return name, nodes, precision, recall and F1 of each class or label; none for values."""
        names, target = self.class_names, target or self.target
        scores = target.task.class_scores(target.decide(predicted), self._labels(nodes), len(names))
        return [{"name": name, **asdict(score)} for name, score in zip(names, scores, strict=False)]

    def precision_recall(self, predicted: NDArray[np.float32]) -> tuple[int, PrecisionRecall] | None:
        """Return the rarer of two classes and its precision-recall curve on the validation nodes.

        `predicted` has the outputs of all nodes. None if there are not two classes, or no validation node of the class.
        """
        if not self.target.task.has_classes or self.about["num_outputs"] != 2 or self.graph.labels is None:
            return None
        train, labels = (self._labels(part) for part in (self.split.train, self.split.val))
        column, known = rarer(np.bincount(train[train >= 0], minlength=2)), labels >= 0
        truth = labels[known] == column
        return (column, precision_recall(truth, predicted[self.split.val][known, column])) if truth.any() else None

    def with_threshold(self, predicted: NDArray[np.float32]) -> Target:
        """Return the target with the threshold that the settings ask for; `predicted` has the outputs of all nodes."""
        val = self.split.val
        target = Target(TASKS[self.task], self.scale)
        train, labels = (np.asarray(self.graph.labels)[nodes] for nodes in (self.split.train, val))
        return target.with_threshold(self.config.training.threshold, train, outputs=predicted[val], labels=labels)

    def _labels(self, nodes: NDArray[np.int64]) -> Array:
        if self.graph.labels is None or self.graph.task != self.task:
            raise GraphError(f"the graph has no labels to compare the predictions of this {self.task} with")
        return np.asarray(self.graph.labels)[nodes]

    def explain(self, node: Any, output: Any = None) -> Explanation:
        """Explain the prediction of one node, given by id or name: attention and effect of every token.

        `output` is the class to explain, by name or number; default: the predicted one.
        """
        from ..explain.explanation import describe

        attributions = self.attributions(find_node(self.graph, node), output)
        return describe(self.graph, attributions, row=0, train=self.split.train, task=self.task)

    def attributions(
        self, nodes: Any = None, output: Any = None, progress: Progress | bool | None = None
    ) -> Attributions:
        """Return attention, readout weight and effect of every token of some nodes, as arrays; default: all nodes."""
        from ..explain.attributions import attribute
        from ..explain.explanation import find_output

        ids, exact, lists = find_nodes(self.graph, nodes), self._exact, self.lists_at_once
        column = None if output is None else find_output(self.graph, self.about["num_outputs"], output)
        with bars(progress) as show:
            attributions = attribute(
                exact.model, exact.inputs, ids, target=self.target, lists_at_once=lists, column=column, progress=show
            )
        for outputs in (attributions.outputs, attributions.effect, *attributions.without.values()):
            check_finite(outputs, ids, graph=self.graph, tokens=self.store)
        return attributions

    look = attributions  # the name in the first release

    def outputs_without(
        self, nodes: Any = None, progress: Progress | bool | None = None
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Return the outputs [m, c] of some nodes, and those with all tokens of a group hidden.

        The groups are all hops (`hop`), each kind of neighbour, and all `neighbours`.
        """
        from ..explain.attributions import outputs_without

        ids, exact, lists = find_nodes(self.graph, nodes), self._exact, self.lists_at_once
        with bars(progress) as show:
            whole, without = outputs_without(
                exact.model, exact.inputs, ids, target=self.target, lists_at_once=lists, progress=show
            )
        for outputs in (whole, *without.values()):
            check_finite(outputs, ids, graph=self.graph, tokens=self.store)
        return whole, without

    def faithfulness(self, attributions: Attributions, most: int = 8, seed: int = 0) -> dict[str, list[float]]:
        """Return how the explained output falls as tokens are hidden: by effect, by attention, at random."""
        from ..explain.attributions import faithfulness

        model, inputs, lists = self._exact.model, self._exact.inputs, self.lists_at_once
        return faithfulness(model, inputs, attributions, target=self.target, lists_at_once=lists, most=most, seed=seed)

    @cached_property
    def _exact(self) -> Run:
        """Return the same run in float32, for effects may be 1e-4, below the precision of bfloat16."""
        if self.precision == torch.float32:
            return self
        return replace(self, config=replace(self.config, training=replace(self.config.training, precision="float32")))

    def export(self, file: str | Path | None = None, format: str | None = None, *, overwrite: bool = False) -> Path:
        """Write the model as one file that runs without this package, and a JSON file that describes it.

        Parameters
        ----------
        file
            Default: model.onnx or model.pt2 in the run folder. The JSON file is called the same, with .json behind.
        format
            `onnx`, or `torch` (torch.export); default: by the ending of the file, else `onnx`.
        """
        from ..model.export import choose_file, write_export

        self.check_finished()
        path, kind = choose_file(file, format, folder=self.path, overwrite=overwrite)
        run = self._portable
        about = {
            "task": self.task,
            "class_names": None if self.graph.class_names is None else list(self.graph.class_names),
            "target_scale": self.about["scale"],
            "threshold": None if self.threshold is None else asdict(self.threshold),
            "schema": self.schema.to_dict(),
            "preparation": self.preparation.to_dict(),
            "tokens": self.store.settings.to_dict(),
            "package": f"vcr-graphormer {__version__}",
        }
        write_export(path, kind, model=run.model, inputs=run.inputs, target=self.target, about=about)
        return path

    def export_inputs(self, nodes: Any) -> dict[str, NDArray[Any]]:
        """Return the inputs of the exported model for some nodes, given by id or name, as arrays [m, …]."""
        from ..model.export import gather

        return gather(self._portable.model, self._portable.inputs, find_nodes(self.graph, nodes))

    @cached_property
    def _portable(self) -> Run:
        """Return the same run in float32 on the CPU."""
        return self._exact if self.device.type == "cpu" else replace(self, device=torch.device("cpu"))._exact

    def report(
        self, file: str | Path | None = None, nodes: int = 2000, progress: Progress | bool | None = None
    ) -> Path:
        """Write the run as one HTML page and return its path; default: report.html in the run folder.

        Parameters
        ----------
        nodes
            Largest number of nodes in the token explorer.
        """
        from .. import write_report  # by its public name, for a room must not import the rooms below it

        return write_report(self, None if file is None else Path(file), nodes, progress)

    def rewiring(self, nodes: Any, k: int = 10) -> dict[str, list[Transfer]]:
        """Return how the super nodes of each kind change the PageRank of some nodes, computed exactly (Theorem 2).

        The token lists may leave out a training node's own edge to the super node of its label; then so does this.
        """
        from ..explain.rewiring import mass_transfer

        ids = find_nodes(self.graph, nodes)
        return {
            kind: mass_transfer(
                self.graph,
                connections,
                nodes=ids,
                restart=self.config.tokens.restart,
                k=k,
                leave_out=self.store.leaves_out(kind),
                tokens=self.store.ids(kind)[ids],
            )
            for kind, connections in self.store.connections().items()
        }

    @property
    def lists_at_once(self) -> int:
        """Return the number of token lists computed at a time while explaining."""
        most = _LISTS_AT_ONCE_CPU if self.device.type == "cpu" else _LISTS_AT_ONCE_GPU
        return max(1, max(self.batch_size, most) // self.config.model.members)

    def on(self, graph: Graph, tokens: TokenStore | None = None, refresh: str = "affected") -> Run:
        """Return a run with the same model on another graph, for example a later state of its own.

        The graph must have the same features and classes, which are matched by name (see `prepare`).

        Parameters
        ----------
        graph
            As it is, before its features are prepared.
        tokens
            Token lists of `run.prepare(graph)`, with the same layout. Without them, the graph must be a later state of
            the run's own: nodes are matched by name, and lists are brought up to date. For a model without its graph
            (`from_pretrained`) they are made anew, and labels that the graph has are known to the model.
        refresh : "new", "affected" or "all"
            Which of these lists are made anew: of new nodes, also of old nodes that a change can reach, or all.
        """
        if self.config.model.adjacency_rows and graph.num_nodes != self.about["num_nodes"]:
            raise GraphError("the model knows nodes by their links (adjacency_rows): it cannot read another graph")
        if not self.has_graph:
            from .interfaces.pretrained import on_another

            return on_another(self, graph, tokens)
        if tokens is None:
            return self._on_later(graph, refresh)
        graph = self.prepared_for(graph, tokens)
        if graph.num_features != self.about["num_features"]:
            raise GraphError(
                f"the graph has {graph.num_features} features but the model was trained on {self.about['num_features']}"
            )
        check_lists(tokens, self.config.tokens)
        counts, expected = list(tokens.layout.counts.items()), list(self.store.layout.counts.items())
        if counts != expected:
            raise StoreError(f"{tokens.path} has the neighbours {counts}, the model was trained with {expected}")
        if tokens.settings.content != self.store.settings.content and tokens.settings.content_tokens:
            raise StoreError(
                f"{tokens.path} has content neighbours by {tokens.settings.content}, the model was trained with those "
                f"by {self.store.settings.content}"
            )
        if self.split.train.max() >= graph.num_nodes:
            raise GraphError(f"training node {self.split.train.max()} is not in the graph of {graph.num_nodes} nodes")
        return replace(self, other_graph=graph, other_tokens=tokens)

    def _on_later(self, graph: Graph, refresh: str) -> Run:
        """Return the run on a later state of its graph, with lists in memory."""
        from ..tokens.growth import later_lists

        later, train = align(self.graph, self.prepare(graph)), self.split.train
        if self.graph.labels is not None:
            own = np.asarray(self.graph.labels)
            if later.labels is None:
                labels = np.full((later.num_nodes, *own.shape[1:]), unknown_label(self.task), dtype=own.dtype)
            else:
                labels = np.array(later.labels)
            labels[train] = own[train]  # the model knows training nodes by the labels that it was trained with
            later = replace(later, labels=labels, task=self.task if later.labels is None else later.task)
        lists = later_lists(self.store, self.graph, later, refresh=refresh, train=train)
        return replace(self, other_graph=later, other_tokens=lists)

    def prepared_for(self, graph: Graph, tokens: TokenStore) -> Graph:
        """Return the graph with prepared features; refuse token lists of others."""
        prepared = self.prepare(graph)
        made = tokens.identity.get("graph features")
        if prepared.features is not graph.features and made != prepared.fingerprints["features"]:
            raise StoreError(
                f"{tokens.path} was not made from features as the model reads them: give this graph as it is, and make "
                f"its tokens by tokenize(run.prepare(graph), …)"
            )
        return prepared

    def _repr_html_(self) -> str:
        """Return the results as notebooks show them."""
        if not self.finished or self.other_graph is not None:
            return html_table(repr(self), [])
        metrics, scores = self.metrics, self.metrics["scores"]
        rows = [(name, *(_score(scores[part].get(name)) for part in PARTS)) for name in scores["test"]]
        seconds = sum(metrics["timings"].values())
        note = f"best epoch {metrics['best_epoch']} of {metrics['epochs']}, {seconds:.1f} s on {metrics['device']}"
        title = f"{metrics['dataset']}: {metrics['metric']} {_score(metrics['test'])} on test nodes"
        return html_table(title, rows, header=("metric", *PARTS), notes=[note, str(self.path)])

    def __repr__(self) -> str:
        if self.other_graph is not None:
            return f"Run({self.path} on {self.other_graph})"
        if not self.finished:
            return f"Run({self.path}: not finished, {len(self.history)} epochs)"
        values = ", ".join(f"{part} {self.metrics[part]:.4f}" for part in PARTS)
        return f"Run({self.path}: {self.metrics['dataset']}, {self.metrics['metric']} {values})"


def check_lists(tokens: TokenLists, trained: TokenConfig) -> None:
    """Refuse token lists of another layout than those that a model was trained with."""
    for name in _LIST_SETTINGS:
        made, expected = getattr(tokens.settings, name), getattr(trained, name)
        if made != expected:
            raise StoreError(
                f"{tokens.where} was made with tokens.{name} = {made}, the model was trained with {expected}"
            )


def _score(value: float | None) -> str:
    return "none" if value is None or np.isnan(value) else f"{value:.4f}"
