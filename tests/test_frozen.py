"""Ids, rounded scores and rounded predictions of many small cases are what they were before the code was regrouped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.support import frozen

KNOWN: dict[str, Any] = json.loads((Path(__file__).parent / "support" / "frozen.json").read_text())


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, vcr.Graph]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield frozen.graphs()
    torch.set_num_threads(threads)


def test_every_case_is_kept() -> None:
    assert KNOWN["stores"].keys() == frozen.TOKENS.keys()
    assert KNOWN["runs"].keys() == frozen.RUNS.keys()


@pytest.mark.parametrize("name", frozen.TOKENS)
def test_token_lists(name: str, made: dict[str, vcr.Graph], tmp_path: Path) -> None:
    found, known = frozen.sample_store(frozen.make_store(name, made, tmp_path)), KNOWN["stores"][name]
    assert found.keys() == known.keys()
    for kind, lists in known.items():
        assert found[kind]["ids"] == lists["ids"]
        np.testing.assert_allclose(found[kind]["scores"], lists["scores"], atol=2e-4)


@pytest.mark.parametrize("name", frozen.RUNS)
def test_predictions(name: str, made: dict[str, vcr.Graph], tmp_path: Path) -> None:
    found = frozen.sample_run(frozen.make_run(name, made, tmp_path))
    np.testing.assert_allclose(found, KNOWN["runs"][name], atol=2e-4)
