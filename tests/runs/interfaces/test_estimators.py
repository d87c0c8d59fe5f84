"""`VCRClassifier` and `VCRRegressor` as users of scikit-learn meet them."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import vcr_graphormer as vcr
from tests.support.runs import named_graph
from vcr_graphormer.runs.interfaces.estimators import hold_out

QUICK = vcr.Config(
    tokens=vcr.TokenConfig(hops=1, clusters=2, structure_tokens=2, content_tokens=2, link_tokens=0, nearest_tokens=0),
    model=vcr.ModelConfig(hidden_channels=16, heads=2),
    training=vcr.TrainConfig(epochs=4, learning_rate=0.02, average=0.0),
)
GRAPH = vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.9, seed=0)
LABELS = np.asarray(GRAPH.labels)


def classifier(graph: vcr.Graph = GRAPH) -> vcr.VCRClassifier:
    return vcr.VCRClassifier(graph, QUICK, device="cpu", random_state=0)


@pytest.fixture(scope="module")
def fitted() -> vcr.VCRClassifier:
    return classifier().fit(np.arange(100), LABELS[:100])


def test_it_learns(fitted: vcr.VCRClassifier) -> None:
    nodes = np.arange(100, 150)
    assert fitted.score(nodes, LABELS[100:]) > 0.7  # a third by guessing
    probabilities = fitted.predict_proba(nodes)
    assert probabilities.shape == (50, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-12)
    np.testing.assert_array_equal(fitted.classes_[probabilities.argmax(1)], fitted.predict(nodes))
    assert fitted.n_iter_ == 4 and 1 <= fitted.best_epoch_ <= 4 and fitted.notes_
    assert fitted.embed([3, 4]).shape[0] == 2


def test_labels_of_the_graph_are_not_read(fitted: vcr.VCRClassifier) -> None:
    blind = classifier(replace(GRAPH, labels=None, class_names=None)).fit(np.arange(100), LABELS[:100])
    np.testing.assert_array_equal(blind.predict_proba(np.arange(150)), fitted.predict_proba(np.arange(150)))


def test_names_and_classes_may_be_texts() -> None:
    graph = named_graph()
    names = np.asarray(graph.names)
    texts = np.array(["red", "green", "blue"])[np.asarray(graph.labels)]
    model = classifier(graph).fit(names[:90], texts[:90])
    assert model.classes_.tolist() == ["blue", "green", "red"]
    assert set(model.predict(list(names[90:]))) <= {"blue", "green", "red"}
    column = model.predict_proba(names[90:, None].astype(object))
    np.testing.assert_array_equal(column, model.predict_proba(np.arange(90, 150)))


def test_search_over_settings() -> None:
    search = GridSearchCV(classifier(), {"tokens__hops": [0, 1]}, cv=2, scoring="neg_log_loss")
    search.fit(np.arange(80), LABELS[:80])
    assert search.best_params_["tokens__hops"] in {0, 1}
    assert search.best_estimator_.config_.tokens.hops == search.best_params_["tokens__hops"]
    assert search.best_estimator_.graph is GRAPH  # copies share the graph


def test_cross_validation_of_a_pipeline_over_names() -> None:
    to_ids = FunctionTransformer(lambda names: np.array([int(name.removeprefix("n")) for name in names]))
    names = np.array([f"n{node}" for node in range(80)])
    scores = cross_val_score(make_pipeline(to_ids, classifier()), names, LABELS[:80], cv=2)
    assert scores.shape == (2,) and scores.min() >= 0.4


def test_parameters() -> None:
    model = classifier()
    assert model.get_params()["tokens__hops"] == 1
    changed = clone(model).set_params(training__seed=5, device="auto", tokens__hops=3)
    assert changed.get_params()["training__seed"] == 5 and changed.device == "auto"
    assert model.get_params()["tokens__hops"] == 1  # the original stays
    assert clone(vcr.VCRRegressor(GRAPH)).graph is GRAPH
    with pytest.raises(ValueError, match="tokens__hop"):
        model.set_params(tokens__hop=3)


def test_several_labels_per_node() -> None:
    rows = np.stack([LABELS == 0, LABELS != 1], axis=1).astype(int)
    model = classifier().fit(np.arange(100), rows[:100])
    assert model.predict([100, 101]).shape == (2, 2)
    assert set(np.unique(model.predict(np.arange(150)))) <= {0, 1}
    assert model.predict_proba([100]).shape == (1, 2)


def test_rare_class_is_decided_by_a_threshold() -> None:
    labels = (np.arange(150) % 10 == 0).astype(int)
    model = classifier().fit(np.arange(150), labels)
    assert model.config_.training.threshold == "f1"
    threshold = model._learned.target.threshold
    assert threshold is not None and threshold.column == 1
    sure = model.predict_proba(np.arange(150))[:, 1]
    np.testing.assert_array_equal(model.predict(np.arange(150)), sure >= threshold.value)


def test_regressor() -> None:
    values = np.asarray(GRAPH.features)[:, 0] * 10 + 100
    model = vcr.VCRRegressor(GRAPH, QUICK, device="cpu").set_params(training__epochs=30)
    model.fit(np.arange(100), values[:100])
    assert model.predict([1, 2, 3]).shape == (3,)
    assert model.score(np.arange(100, 150), values[100:]) > 0.3  # R²; 0 is the mean
    two = clone(model).set_params(training__epochs=1).fit(np.arange(100), np.stack([values, -values], 1)[:100])
    assert two.predict([1, 2, 3]).shape == (3, 2)


def test_pickle(fitted: vcr.VCRClassifier) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba([1, 140]), fitted.predict_proba([1, 140]))


@pytest.mark.parametrize(
    ("nodes", "labels", "message"),
    [
        ([1, 1, 2], [0, 1, 0], "X contains node 1 more than once"),
        ([1, 2], [0, 1, 0], r"y has shape \[3\] but X has 2 nodes"),
        ([1], [0], "X has 1 nodes; it must have at least 2"),
        ([1, 999], [0, 1], "there is no node 999"),
        ([1, 2], [0, 0], "y has one class only"),
        ([[1, 2], [3, 4]], [0, 1], r"X has shape \[2, 2\]; its rows are nodes"),
        ([1, 2], None, "requires y to be passed"),
    ],
)
def test_wrong_rows(nodes: Any, labels: Any, message: str) -> None:
    with pytest.raises(vcr.GraphError, match=message):
        classifier().fit(nodes, labels)


def test_wrong_parameters() -> None:
    with pytest.raises(vcr.ConfigError, match=r"graph is a NoneType; .* VCRClassifier\(graph\)"):
        vcr.VCRClassifier().fit([1, 2], [0, 1])
    with pytest.raises(vcr.ConfigError, match="config is a dict"):
        vcr.VCRClassifier(GRAPH, {}).fit([1, 2], [0, 1])  # type: ignore[arg-type]
    with pytest.raises(vcr.ConfigError, match="validation_fraction is 1.5"):
        classifier().set_params(validation_fraction=1.5).fit([1, 2, 3], [0, 1, 0])
    with pytest.raises(vcr.GraphError, match="it must be finite numbers"):
        vcr.VCRRegressor(GRAPH).fit([1, 2], [0.5, np.nan])
    with pytest.raises(NotFittedError):
        classifier().predict([1])


def test_a_single_node_of_a_class_is_learned_from() -> None:
    split = hold_out(np.arange(5), np.array([0, 1, 2, 3, 4]), 0.5, seed=0)
    assert (len(split.train), len(split.val)) == (4, 1)  # one is needed to choose the best epoch
    split = hold_out(np.arange(11), np.array([0] * 10 + [1]), 0.3, seed=0)
    assert 10 in split.train and len(split.val) == 3


class ByRow(vcr.VCRClassifier):
    """Row i of any matrix is node i: the checks of scikit-learn draw matrices, not nodes."""

    def _nodes(self, X: Any) -> Any:  # noqa: N803
        return np.arange(len(np.asarray(X)))


# docs/scikit-learn.md names the others: they give matrices of features, for which a graph stands here.
_NAMES = """
    check_estimator_cloneable check_estimator_tags_renamed check_valid_tag_types check_estimator_repr
    check_no_attributes_set_in_init check_parameters_default_constructible check_get_params_invariance check_set_params
    check_do_not_raise_errors_in_init_or_set_params check_mixin_order check_estimators_unfitted check_requires_y_none
    check_classifiers_one_label check_classifiers_regression_target check_supervised_y_no_nan
    check_estimators_overwrite_params check_estimators_fit_returns_self check_fit_check_is_fitted check_fit_idempotent
    check_estimators_pickle
"""
CHECKS = _NAMES.split()


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn(name: str) -> None:
    plain = vcr.generate(nodes=120, edges=300, classes=2, features=2, seed=0)
    config = replace(QUICK, training=replace(QUICK.training, epochs=1))
    getattr(estimator_checks, name)("ByRow", ByRow(plain, config, device="cpu"))


def test_inductive_training_is_refused() -> None:
    model = classifier().set_params(data__inductive=True)
    with pytest.raises(vcr.ConfigError, match="estimators train on the whole graph"):
        model.fit(np.arange(100), np.asarray(GRAPH.labels)[:100])
