"""The names that other programs import."""

import ast
import importlib
from pathlib import Path

import pytest

import vcr_graphormer
from vcr_graphormer import errors

PACKAGE = Path(__file__).parent.parent / "src" / "vcr_graphormer"
NAMES = """
    Batch ClusterError Config ConfigError Connections Graph GraphError Inputs ModelConfig Predictions Ranker Ranking
    RanksError Run Split StoreError TokenConfig TokenStore TrainConfig TrainingError VCRError VCRGraphormer __version__
    content_connections digits exact_pagerank feature_connections generate hop_features load_config load_dataset
    load_splits make_inputs paper_split rank resume structure_connections tokenize train
"""
FIRST_RELEASE = NAMES.split()


def test_the_first_release_had_39_names() -> None:
    assert len(set(FIRST_RELEASE)) == 39
    assert set(FIRST_RELEASE) <= set(vcr_graphormer.__all__)


@pytest.mark.parametrize("name", sorted({*FIRST_RELEASE, *vcr_graphormer.__all__}))
def test_names_are_imported(name: str) -> None:
    assert getattr(vcr_graphormer, name) is not None


def test_the_lists_of_names_agree() -> None:
    error_names = {name for name in vars(errors) if name.endswith("Error")}
    assert {"__version__", *error_names, *vcr_graphormer._HOMES} == set(vcr_graphormer.__all__)
    for name, module in vcr_graphormer._HOMES.items():
        assert hasattr(importlib.import_module(f"vcr_graphormer.{module}"), name)


def returned_names(tree: ast.Module) -> set[str]:
    """Names in the return types of public functions, and of public methods of public classes."""
    found: set[str] = set()
    for node in ast.walk(tree):
        body = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
        if isinstance(node, ast.ClassDef) and node.name not in vcr_graphormer.__all__:
            continue
        for function in body:
            if not isinstance(function, ast.FunctionDef) or function.name.startswith("_") or function.returns is None:
                continue
            if isinstance(node, ast.ClassDef) or function.name in vcr_graphormer.__all__:
                found |= {part.id for part in ast.walk(function.returns) if isinstance(part, ast.Name)}
    return found


def test_classes_that_public_functions_return_are_public() -> None:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py")]
    classes = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    returned = set.union(*map(returned_names, trees)) & classes
    assert returned >= {"Explanation", "GraphSummary", "Run", "Split"}
    assert sorted(returned - set(vcr_graphormer.__all__)) == []
