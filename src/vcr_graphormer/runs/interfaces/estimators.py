"""`VCRClassifier` and `VCRRegressor`: the model as estimators of scikit-learn, whose rows are nodes of one graph."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ...base.checks import Array, check_seed, is_number, is_whole, to_numpy
from ...data.graph import Graph
from ...data.split import Known, Split
from ...data.tasks import TASKS, Target
from ...errors import ConfigError, GraphError, unknown_name
from ...model.batches import Inputs
from ...model.inputs import make_inputs
from ...model.members import Model
from ...tokens.lists import make_lists
from ...training.devices import choose_precision, find_device
from ...training.inference import compute
from ...training.trainer import Trainer
from ..adapt import adapt
from ..config import Config
from ..predictions import find_nodes

_LEAST_NODES = 2  # one to learn from, one to choose the best epoch by


@dataclass(frozen=True, eq=False)
class _Learned:
    """What predicting needs after `fit`."""

    graph: Graph
    model: Model
    inputs: Inputs
    target: Target
    batch_size: int

    def outputs(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return probabilities or values of some nodes, [m, c]."""
        return self.target.outputs(compute(self.model, self.inputs, nodes, self.batch_size))


class _NodeEstimator(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """The part that classifier and regressor have in common."""

    def __init__(
        self,
        graph: Graph | None = None,
        config: Config | None = None,
        *,
        validation_fraction: float = 0.2,
        device: str = "auto",
        random_state: int | None = None,
    ) -> None:
        self.graph = graph
        self.config = config
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep` every setting too, such as `tokens__hops`."""
        own: dict[str, Any] = super().get_params(deep=False)
        config = Config() if self.config is None else self.config
        if deep and isinstance(config, Config):  # anything else is refused by `fit`
            for section in fields(config):
                values = getattr(config, section.name)
                own |= {f"{section.name}__{item.name}": getattr(values, item.name) for item in fields(values)}
        return own

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings such as `tokens__hops=2`; return the estimator."""
        known = self.get_params()
        unknown = next((name for name in params if name not in known), None)
        if unknown is not None:
            # scikit-learn asks for a ValueError
            raise ValueError(f"{type(self).__name__}: {unknown_name('parameter', unknown, known)}")
        for name in [name for name in params if "__" not in name]:
            setattr(self, name, params[name])
        sections: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            section, separator, setting = name.partition("__")
            if separator:
                sections.setdefault(section, {})[setting] = value
        if sections:
            config = self.config or Config()
            changed = {name: replace(getattr(config, name), **values) for name, values in sections.items()}
            self.config = replace(config, **changed)
        return self

    def __sklearn_clone__(self) -> Self:
        # The graph and the settings do not change: copies share them, and a search does not copy the graph.
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def _check_parameters(self) -> None:
        """Refuse what is no graph and what are no settings; scikit-learn wants this in `fit`, not when it is made."""
        if not isinstance(self.graph, Graph):
            what, name = type(self.graph).__name__, type(self).__name__
            raise ConfigError(f"graph is a {what}; it must be a Graph: make the estimator with {name}(graph)")
        if not isinstance(self.config, Config | None):
            raise ConfigError(f"config is a {type(self.config).__name__}; it must be a Config or None")

    def _nodes(self, X: Any) -> NDArray[np.int64]:  # noqa: N803 the name in scikit-learn
        """Return the node ids of rows: ids or names, [m] or [m, 1]."""
        self._check_parameters()
        assert self.graph is not None
        array = np.asarray(X)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise GraphError(
                f"X has shape {list(array.shape)}; its rows are nodes of the graph, one id or name each, and the "
                f"features are those of the graph"
            )
        if array.dtype == object and all(isinstance(entry, str) for entry in array):
            array = array.astype(np.str_)
        return find_nodes(self.graph, array)

    def _learn(self, nodes: NDArray[np.int64], labels: Array, *, task: str, outputs: int) -> None:
        """Train on labels of some nodes; labels that the graph has are not read."""
        assert self.graph is not None
        config = self.config or Config()
        if config.data.inductive:
            raise ConfigError(
                "data.inductive is true, but estimators train on the whole graph: set it to false, or use vcr.train"
            )
        if self.random_state is not None:
            config = replace(config, training=replace(config.training, seed=check_seed(self.random_state)))
        everyone = np.full((self.graph.num_nodes, *labels.shape[1:]), TASKS[task].unknown, dtype=labels.dtype)
        everyone[nodes] = labels
        names = tuple(map(str, range(outputs)))
        graph = replace(self.graph, labels=everyone, task=task, class_names=names)
        split = hold_out(nodes, labels, self.validation_fraction, seed=config.training.seed)
        adapted = adapt(config, graph, split)
        graph, config, device = adapted.graph, adapted.config, find_device(self.device)
        lists = make_lists(graph, split.train, config.tokens)
        precision = choose_precision(config.training.precision, device)
        inputs = make_inputs(graph, lists, config.model, split.train, device, dtype=precision)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            trainer = Trainer.of(graph, split, inputs=inputs, model=config.model, training=config.training)
            best = trainer.fit()
        model, size = trainer.best_model().eval(), trainer.micro_batch
        val = trainer.target.outputs(compute(model, inputs, split.val, size))
        seen, kept = everyone[split.train], everyone[split.val]
        target = trainer.target.with_threshold(config.training.threshold, seen, outputs=val, labels=kept)
        self._learned = _Learned(graph, model, inputs, target, size)
        self.config_, self.notes_, self.n_iter_, self.n_features_in_ = config, adapted.notes, trainer.epoch, 1
        self.best_epoch_, self.validation_score_ = best.epoch, best.value

    def _outputs(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        check_is_fitted(self)
        return self._learned.outputs(self._nodes(X))

    def embed(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Return the model's vectors of nodes, [m, h], for example as features of another estimator."""
        check_is_fitted(self)
        learned = self._learned
        return compute(learned.model, learned.inputs, self._nodes(X), learned.batch_size, vectors=True)


class VCRClassifier(ClassifierMixin, _NodeEstimator):  # type: ignore[misc]
    """Classify nodes of one graph in scikit-learn's manner: the rows of X are nodes, given by id or name.

    Features and edges come from the graph; labels come from `fit` alone. A part of the nodes is held out inside to
    choose the best epoch. Settings are parameters too, such as `tokens__hops`, for `GridSearchCV` and `set_params`.

    Parameters
    ----------
    graph
        The graph that all nodes belong to. Its labels are not read.
    config
        All settings; default: `Config()`, adapted to the graph.
    validation_fraction
        Fraction of the nodes given to `fit` that chooses the best epoch, of each class alike.
    device
        auto, cpu, cuda or cuda:N.
    random_state
        Seed of training and of the nodes that are held out; default: `config.training.seed`.

    Attributes
    ----------
    classes_ : array [c]
        The classes, in the order of `predict_proba`; for several labels per node the numbers of the columns.
    config_, notes_
        The settings with all numbers, and why they were chosen.
    validation_score_, best_epoch_, n_iter_
        The metric on the nodes held out, the epoch it was best at, and the number of epochs.

    >>> import vcr_graphormer as vcr
    >>> graph = vcr.generate(60, 200, classes=2, features=4, homophily=0.9, seed=0)
    >>> model = vcr.VCRClassifier(graph, random_state=0).set_params(training__epochs=2, tokens__hops=1)
    >>> model.fit(range(40), graph.labels[:40]).predict_proba([50, 51]).shape
    (2, 2)
    """

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Learn the classes y of the nodes X: [m], or [m, c] of 0 and 1 for several labels per node."""
        nodes, values = check_rows(self._nodes(X), y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        check_classification_targets(values)
        if values.ndim == 2:
            self.classes_: Array = np.arange(values.shape[1])
            self._learn(nodes, values.astype(np.int8), task="multilabel", outputs=len(self.classes_))
            return self
        self.classes_, ids = np.unique(values, return_inverse=True)
        if len(self.classes_) < 2:
            raise GraphError(f"y has one class only, {self.classes_[0]!r}: a classifier needs at least two")
        self._learn(nodes, ids.astype(np.int64), task="classification", outputs=len(self.classes_))
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the class of each node, or rows of 0 and 1 for several labels per node."""
        outputs = self._outputs(X)
        decided = self._learned.target.decide(outputs)
        return decided if decided.ndim == 2 else np.asarray(self.classes_[decided])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class of each node, [m, c], in the order of `classes_`."""
        outputs = self._outputs(X).astype(np.float64)
        return outputs / outputs.sum(1, keepdims=True) if self._learned.target.task.has_classes else outputs


class VCRRegressor(RegressorMixin, _NodeEstimator):  # type: ignore[misc]
    """Predict values of nodes of one graph in scikit-learn's manner: the rows of X are nodes, given by id or name.

    Parameters and attributes are those of `VCRClassifier`, without classes.
    """

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Learn the values y of the nodes X, [m] or [m, t]."""
        nodes, values = check_rows(self._nodes(X), y)
        values = to_numpy(values, "y").astype(np.float32)
        if values.ndim not in (1, 2) or not np.isfinite(values).all():
            raise GraphError(f"y has shape {list(values.shape)}; it must be finite numbers, [m] or [m, t]")
        self._learn(nodes, values, task="regression", outputs=1 if values.ndim == 1 else values.shape[1])
        self._one_target = values.ndim == 1
        return self

    def predict(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Return the value of each node, [m] or [m, t] as in `fit`."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._one_target else outputs


def check_rows(nodes: NDArray[np.int64], y: Any) -> tuple[NDArray[np.int64], Array]:
    """Return nodes and labels; refuse nodes that are given twice, too few nodes, and labels of other nodes."""
    if y is None:
        raise GraphError("fit requires y to be passed, but the target y is None: give one label per node")
    values = to_numpy(y, "y") if hasattr(y, "detach") else np.asarray(y)
    if not values.ndim or len(values) != len(nodes):
        raise GraphError(f"y has shape {list(values.shape)} but X has {len(nodes)} nodes: give one label per node")
    if len(nodes) < _LEAST_NODES:
        raise GraphError(f"X has {len(nodes)} nodes; it must have at least {_LEAST_NODES}, one of them to validate")
    ids, counts = np.unique(nodes, return_counts=True)
    if (counts > 1).any():
        raise GraphError(f"X contains node {ids[counts > 1][0]} more than once: a node has one label")
    return nodes, values


def hold_out(nodes: NDArray[np.int64], labels: Array, fraction: float, *, seed: int) -> Split:
    """Draw validation nodes, of each class alike; a class with a single node keeps it for training.

    >>> split = hold_out(np.arange(10), np.array([0] * 5 + [1] * 5), 0.2, seed=0)
    >>> len(split.train), len(split.val)
    (8, 2)
    """
    if not is_number(fraction) or is_whole(fraction) or not 0 < fraction < 1:
        raise ConfigError(f"validation_fraction is {fraction!r}; it must be a number between 0 and 1")
    generator = np.random.default_rng(check_seed(seed))
    has_classes = labels.ndim == 1 and labels.dtype.kind in "iu"
    groups = [nodes[labels == label] for label in np.unique(labels)] if has_classes else [nodes]
    drawn = [generator.permutation(group)[: min(round(fraction * len(group)), len(group) - 1)] for group in groups]
    val = np.sort(np.concatenate(drawn))
    if not val.size:  # a few nodes of many classes
        val = generator.permutation(nodes)[:1]
    return Known(np.setdiff1d(nodes, val), val, nodes[:0])
