"""Plain baselines on the run's own split: linear models and gradient boosting on [X, PX, P²X], by scikit-learn.

They take seconds. A small fixed grid of settings is judged on the validation nodes. Test labels are read once, at the
end.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..data.graph import Graph
from ..data.inductive import Seen
from ..data.metrics import LOWER_IS_BETTER, is_better
from ..data.split import Split
from ..data.tasks import TASKS, Target, Task, known_labels, measure, name_classes
from ..errors import ConfigError
from ..tokens.hops import hop_features
from ..training.config import TrainConfig

NONE, QUICK, ALL = CHOICES = ("none", "quick", "all")
NETWORKS = ("MLP", "GCN", "GraphSAGE", "APPNP")
HOPS = 3  # X, PX and P²X
MOST_ROWS = 50_000  # training nodes at most
# Entries of [X, PX, P²X] at most, 1 GiB of float32. Wider features are reduced by a truncated SVD of the training rows.
MOST_ENTRIES = 1 << 28
# Columns of X after that reduction. Twice as many give +0.0 points on CS and +0.4 on Physics, in twice the time or more
# (docs/log.md, "plain baselines"). Trees pay for each column, so boosting always gets at most 64.
LINEAR_COLUMNS, BOOSTING_COLUMNS = 256, 64
# Training rows × columns × outputs at most. CS, with 130 and 32 million, takes about 10 seconds each on one core.
LINEAR_WORK, BOOSTING_WORK = 1 << 29, 1 << 25
STRENGTHS = (0.001, 0.01, 0.1, 1.0)  # inverse strength of regularization (scikit-learn's C, 1 / alpha of ridge)
LINEAR_STEPS = 50  # of L-BFGS at most
# Small trees are fast. With a larger rate and no penalty, many classes make boosting diverge (CS, docs/log.md).
BOOSTING = {"learning_rate": 0.1, "max_leaf_nodes": 8, "max_bins": 63, "l2_regularization": 10.0, "max_features": 0.3}
FEWEST_TREES, MOST_TREES, JUDGED_EVERY = 100, 300, 5
# Training rows × columns × outputs × trees at most, unless there are the fewest trees already. The splits of a tree
# cost as much as about 2,000 more rows.
TREE_WORK, ROWS_PER_TREE = 1 << 29, 2000
ROWS_AT_ONCE = 1 << 14  # nodes predicted at a time
_CONSTANT = 1e-6  # a column is constant if it deviates from its mean by a smaller fraction than this: float32 rounding

Predict = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def baseline_names(task: Task, choice: str) -> list[str]:
    """Return the names of the baselines of a task: two by scikit-learn for `quick`, with PyG's models for `all`.

    >>> baseline_names(TASKS["classification"], "quick")
    ['logistic regression on hops', 'gradient boosting on hops']
    """
    check_choice(choice)
    linear = "ridge regression on hops" if task.gives_values else "logistic regression on hops"
    names = [] if choice == NONE else [linear, "gradient boosting on hops"]
    return names + (list(NETWORKS) if choice == ALL else [])


def check_choice(choice: str) -> None:
    """Refuse a choice of baselines that is none."""
    if choice not in CHOICES:
        raise ConfigError(f"baselines is {choice!r}; it must be {', '.join(CHOICES[:-1])} or {CHOICES[-1]}")


def run_baseline(
    name: str,
    graph: Graph,
    split: Split,
    *,
    metric: str,
    training: TrainConfig | None = None,
    device: str = "cpu",
    inductive: bool = False,
) -> dict[str, Any]:
    """Train and measure one baseline.

    The result depends on the seed, not on the number of threads.

    Parameters
    ----------
    training
        The settings of the run, of which seed, class weights and threshold count: a baseline that had neither of the
        last two would lose to them, and not to the model.
    inductive
        Whether validation and test nodes are hidden from the training.

    Returns
    -------
    dict
        `name`, chosen `settings`, the metric on `val` and `test`, and `seconds`. A `note` says what was left out; a
        baseline that cannot be computed has nothing but its name and the note.
    """
    if graph.features is None:
        return {"name": name, "note": "left out: the graph has no features"}
    start = time.perf_counter()
    labels, names = np.asarray(graph.labels), name_classes(graph.class_names, graph.num_classes)
    training = training or TrainConfig()
    target = Target.of(graph.task, labels, split.train).weighted(labels[split.train], training.class_weights, names)
    how: dict[str, Any] = {"metric": metric, "target": target, "training": training}
    how["seen"] = Seen.of(graph, split) if inductive else None
    if name in NETWORKS:
        from .networks import run_network

        row = run_network(name, graph, split, device=device, **how)
    else:
        row = _run_quick(name, graph, split, **how)
    seconds = round(time.perf_counter() - start, 3)
    return {"name": name, **row} if "val" not in row else {"name": name, **row, "seconds": seconds}


def comparison(metric: str, ours: float, rows: Sequence[dict[str, Any]], test: float | None = None) -> str | None:
    """Return what to say if a baseline is at least as good as ours on validation nodes, or better on test nodes.

    Parameters
    ----------
    ours, test
        Our metric on validation nodes, and on test nodes where it is known.

    >>> comparison("accuracy", 0.9, [{"name": "GCN", "val": 0.908}])
    'GCN is better by 0.8 points on the validation nodes: the graph may need other settings; try `vcr-graphormer tune`.'
    """
    sentences = []
    if (name := _ahead(metric, ours, rows, part="val")) is not None:
        sentences.append(
            f"{name} on the validation nodes: the graph may need other settings; try `vcr-graphormer tune`."
        )
    if test is not None and (name := _ahead(metric, test, rows, part="test")) is not None and " as good" not in name:
        sentences.append(f"{name} on the test nodes.")
    return " ".join(sentences) or None


def _ahead(metric: str, ours: float, rows: Sequence[dict[str, Any]], *, part: str) -> str | None:
    """Return which baseline is at least as good as ours on a part of the nodes, and by how much; None if none is."""
    measured = [row for row in rows if row.get(part) is not None and not np.isnan(row[part])]
    best = max(measured, key=lambda row: -row[part] if metric in LOWER_IS_BETTER else row[part], default=None)
    if best is None or np.isnan(ours) or is_better(metric, ours, best[part]):
        return None
    name = best["name"][0].upper() + best["name"][1:]
    if best[part] == ours:
        return f"{name} is as good"
    if metric in LOWER_IS_BETTER:
        return f"{name} is better, {metric} {best[part]:.4g} against {ours:.4g},"
    return f"{name} is better by {100 * (best[part] - ours):.2g} points"


def measure_parts(
    graph: Graph, split: Split, *, metric: str, target: Target, threshold: str | float, outputs: Sequence[Array]
) -> dict[str, Any]:
    """Return the metric on `val` and `test` from the outputs of both, with a threshold chosen as for a run."""
    train, *labels = (np.asarray(graph.labels)[nodes] for nodes in (split.train, split.val, split.test))
    target = target.with_threshold(threshold, train, outputs=outputs[0], labels=labels[0])
    val, test = (target.measure(metric, *pair) for pair in zip(outputs, labels, strict=True))
    return {"val": val, "test": None if np.isnan(test) else test}


def _run_quick(
    name: str,
    graph: Graph,
    split: Split,
    *,
    metric: str,
    target: Target,
    training: TrainConfig,
    seen: Seen | None,
) -> dict[str, Any]:
    """Fit the grid of a baseline by scikit-learn, choose on validation nodes, and measure the choice."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    boosting, task, labels = name.startswith("gradient"), TASKS[graph.task], np.asarray(graph.labels)
    outputs, seed = task.count_outputs(labels), training.seed
    # More threads would add numbers in another order, and so change their last bits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        known = split.train[known_labels(labels[split.train])]
        train = _sample(known, MOST_ROWS, seed)
        hops = _Hops.of(graph, train, boosting=boosting)
        most = (BOOSTING_WORK if boosting else LINEAR_WORK) // (hops.columns * outputs)
        train = _sample(train, max(1, most), seed)
        rows = hops.rows(train) if seen is None else hops.on(seen).rows(seen.places(train))
        fit = partial(_Estimators.fit, labels=labels[train], task=task, outputs=outputs, weights=target.weights)
        best = _Best(metric, task, labels[split.val])
        if boosting:
            trees = TREE_WORK // ((len(train) + ROWS_PER_TREE) * hops.columns * outputs)
            trees = JUDGED_EVERY * (min(MOST_TREES, max(FEWEST_TREES, trees)) // JUDGED_EVERY)
            _try_boosting(fit, rows, best, val=hops.rows(split.val), trees=trees, seed=seed)
        else:
            _try_linear(fit, rows, best, outputs_of=partial(hops.predict, nodes=split.val))
        both = [best.outputs, hops.predict(best.predict, split.test)]
        parts = measure_parts(graph, split, metric=metric, target=target, threshold=training.threshold, outputs=both)
    row: dict[str, Any] = {"settings": {**best.settings, "columns": hops.columns}, **parts}
    if len(train) < len(known):
        row["note"] = f"trained on {len(train):,} of {len(known):,} training nodes"
    return row


def _sample(nodes: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Return `count` random nodes in ascending order, or all if there are fewer."""
    return nodes if len(nodes) <= count else np.sort(np.random.default_rng(seed).choice(nodes, count, replace=False))


@dataclass(frozen=True, eq=False)
class _Hops:
    """X, PX and P²X of all nodes, dense. Wide X is reduced first; that is the same as reducing every hop."""

    matrices: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, graph: Graph, train: NDArray[np.int64], *, boosting: bool) -> _Hops:
        """Compute the hops of a graph; a reduction learns from the rows of the nodes in `train` only."""
        features: Any = graph.features
        width = features.shape[1]
        if boosting or HOPS * graph.num_nodes * width > MOST_ENTRIES:
            wanted = BOOSTING_COLUMNS if boosting else LINEAR_COLUMNS
            width = min(width, max(1, min(wanted, MOST_ENTRIES // (HOPS * graph.num_nodes))))
        if width < features.shape[1]:
            dense = _reduce(features, train, width)
        else:
            dense = np.asarray(features.toarray() if sp.issparse(features) else features, dtype=np.float32)
        return cls._of_reduced(graph, dense)

    @classmethod
    def _of_reduced(cls, graph: Graph, dense: NDArray[np.float32]) -> _Hops:
        return cls((dense, *(np.asarray(hop) for hop in hop_features(replace(graph, features=dense), HOPS - 1))))

    def on(self, seen: Seen) -> _Hops:
        """Return the hops of the part of the graph that is seen, from the same columns."""
        return self._of_reduced(seen.graph, self.matrices[0][seen.nodes])

    @property
    def columns(self) -> int:
        """Return the number of columns of all hops together."""
        return sum(matrix.shape[1] for matrix in self.matrices)

    def rows(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return [X, PX, P²X] of some nodes."""
        return np.concatenate([matrix[nodes] for matrix in self.matrices], axis=1)

    def predict(self, predict: Predict, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the outputs for some nodes, computed in blocks of rows."""
        starts = range(0, max(1, len(nodes)), ROWS_AT_ONCE)
        return np.concatenate([predict(self.rows(nodes[start : start + ROWS_AT_ONCE])) for start in starts])


def _reduce(features: Any, train: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """Return the features projected on the first right singular vectors of the rows of the nodes in `train`."""
    from sklearn.decomposition import TruncatedSVD

    rows = sp.csr_matrix(features[train], dtype=np.float32)  # sparse, so that the storage of features changes no bit
    components = TruncatedSVD(min(width, *rows.shape), random_state=0).fit(rows).components_.T.astype(np.float32)
    starts = range(0, features.shape[0], ROWS_AT_ONCE)
    blocks = (sp.csr_matrix(features[start : start + ROWS_AT_ONCE], dtype=np.float32) for start in starts)
    return np.concatenate([block @ components for block in blocks])


class _Best:
    """The best settings so far, by the metric on the validation nodes. The first of equal ones stays."""

    def __init__(self, metric: str, task: Task, labels: Array) -> None:
        self.metric, self.task, self.labels = metric, task, labels
        self.settings: dict[str, Any] = {}
        self.value = float("nan")
        self.predict: Predict
        self.outputs: NDArray[np.float32]

    def offer(self, settings: dict[str, Any], outputs: NDArray[np.float32], predict: Predict) -> float:
        """Return the metric of these outputs, and remember what made them if it is the best."""
        value = measure(self.metric, outputs, self.labels, self.task)
        if not self.settings or is_better(self.metric, value, self.value):
            self.settings, self.value, self.predict, self.outputs = settings, value, predict, outputs
        return value


@dataclass(frozen=True, eq=False)
class _Estimators:
    """Fitted estimators of scikit-learn: one for the class of a node, or one per label or target of a node."""

    models: Sequence[Any]
    task: Task
    outputs: int

    @classmethod
    def fit(
        cls,
        make: Callable[[], Any],
        rows: NDArray[np.float32],
        *,
        labels: Array,
        task: Task,
        outputs: int,
        weights: NDArray[np.float32] | None = None,
    ) -> _Estimators:
        """Fit the estimators that `make` returns on the rows whose labels are known, with the weights of `Target`."""
        models = []
        for number, column in enumerate(labels.reshape(len(labels), -1).T):
            known = known_labels(column)
            values = np.unique(column[known])
            if len(values) > 1:
                by_value = None if weights is None else weights if task.has_classes else weights[:, number]
                of_rows = None if by_value is None else by_value[column[known]]
                models.append(make().fit(rows[known], column[known], sample_weight=of_rows))
            else:
                models.append(_Constant(values[0] if len(values) else 0))
        return cls(models, task, outputs)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return outputs [m, c]."""
        method = "predict" if self.task.gives_values else "predict_proba"
        return self._assemble([getattr(model, method)(rows) for model in self.models])

    def staged(self, rows: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Yield the outputs [m, c] with 1, 2, … trees."""
        method = "staged_predict" if self.task.gives_values else "staged_predict_proba"
        for values in zip(*(getattr(model, method)(rows) for model in self.models), strict=False):
            yield self._assemble(values)

    def _assemble(self, predicted: Sequence[Array]) -> NDArray[np.float32]:
        """Return outputs [m, c] from what the estimators predict; a class that training lacks gets probability 0."""
        outputs = np.zeros((len(predicted[0]), self.outputs), dtype=np.float32)
        for column, (model, values) in enumerate(zip(self.models, predicted, strict=True)):
            if self.task.gives_values:
                outputs[:, column] = values
            elif self.task.has_classes:
                outputs[:, model.classes_] = values
            else:
                outputs[:, column] = values[:, model.classes_ == 1].sum(1)
        return outputs


class _Constant:
    """An estimator of a single value, which scikit-learn's classifiers refuse."""

    def __init__(self, value: Any) -> None:
        self.classes_ = np.array([value])

    def predict(self, rows: Array) -> Array:
        """Return the value for every row."""
        return np.repeat(self.classes_, len(rows))

    def predict_proba(self, rows: Array) -> Array:
        """Return probability 1."""
        return np.ones((len(rows), 1))

    def staged_predict(self, rows: Array) -> Iterator[Array]:
        """Yield the same after every tree."""
        return repeat(self.predict(rows), MOST_TREES)

    def staged_predict_proba(self, rows: Array) -> Iterator[Array]:
        """Yield the same after every tree."""
        return repeat(self.predict_proba(rows), MOST_TREES)


Fit = Callable[[Callable[[], Any], NDArray[np.float32]], _Estimators]


def _try_linear(
    fit: Fit, rows: NDArray[np.float32], best: _Best, *, outputs_of: Callable[[Predict], NDArray[np.float32]]
) -> None:
    """Offer linear models of both scalings, from strong to weak regularization as long as that is no worse."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def make(strength: float) -> Any:
        if best.task.gives_values:
            return Ridge(alpha=1 / strength)
        return LogisticRegression(C=strength, max_iter=LINEAR_STEPS)

    for name, scaling in _scalings(rows).items():
        scaled, before = scaling(rows), float("nan")
        for strength in STRENGTHS:
            estimators = fit(partial(make, strength), scaled)
            predict = partial(_predict_scaled, estimators, scaling)
            value = best.offer({"scaling": name, "C": strength}, outputs_of(predict), predict)
            if is_better(best.metric, before, value):
                break
            before = value


def _scalings(rows: NDArray[np.float32]) -> dict[str, Predict]:
    """Return two ways to scale rows, learned from these: one factor for each of X, PX and P²X, or one per column.

    One factor keeps rare words small. One per column suits columns of different units.
    """
    mean: NDArray[np.float64] = rows.mean(axis=0, dtype=np.float64)
    deviation: NDArray[np.float64] = rows.std(axis=0, dtype=np.float64)
    deviation[deviation <= _CONSTANT * np.abs(mean)] = 0
    blocks = [np.full(len(block), np.sqrt((block**2).mean())) for block in np.split(deviation, HOPS)]
    scalings: dict[str, Predict] = {}
    for name, scale in (("block", np.concatenate(blocks)), ("column", deviation)):
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        scalings[name] = partial(_scale, mean=mean.astype(np.float32), factor=factor.astype(np.float32))
    return scalings


def _scale(rows: NDArray[np.float32], mean: NDArray[np.float32], factor: NDArray[np.float32]) -> NDArray[np.float32]:
    return (rows - mean) * factor


def _predict_scaled(estimators: _Estimators, scaling: Predict, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return estimators.predict(scaling(rows))


def _try_boosting(
    fit: Fit, rows: NDArray[np.float32], best: _Best, *, val: NDArray[np.float32], trees: int, seed: int
) -> None:
    """Offer gradient boosting with 5, 10, … trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if best.task.gives_values else HistGradientBoostingClassifier
    make = partial(kind, max_iter=trees, early_stopping=False, random_state=seed, **BOOSTING)
    estimators = fit(make, rows)
    for number, outputs in enumerate(estimators.staged(val), start=1):
        if number % JUDGED_EVERY == 0:
            best.offer({**BOOSTING, "trees": number}, outputs, partial(_predict_after, estimators, number))


def _predict_after(estimators: _Estimators, trees: int, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return next(islice(estimators.staged(rows), trees - 1, None))
