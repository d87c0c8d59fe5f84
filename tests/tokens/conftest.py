"""The graph and the training nodes that most tests of this room make lists of."""

import numpy as np
import pytest

from tests.support.runs import list_graph
from vcr_graphormer import Graph, Split


@pytest.fixture(scope="module")
def graph() -> Graph:
    return list_graph()


@pytest.fixture(scope="module")
def train(graph: Graph) -> np.ndarray:
    return Split.random(graph.labels, seed=0).train
