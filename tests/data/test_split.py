"""Splits are disjoint, complete, reproducible, and say what is wrong with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from vcr_graphormer import ConfigError, GraphError, Split, StoreError

LABELS = np.array([0] * 50 + [1] * 30 + [2] * 20)


def parts(split: Split) -> list[list[int]]:
    return [split.train.tolist(), split.val.tolist(), split.test.tolist()]


def everyone(split: Split) -> list[int]:
    return sorted(node for part in parts(split) for node in part)


@given(st.integers(10, 200), st.integers(0, 5), st.booleans())
def test_random_covers_the_labelled_nodes_once(n: int, seed: int, unlabelled: bool) -> None:
    labels = np.zeros(n, dtype=np.int64)
    if unlabelled:
        labels[::5] = -1
    split = Split.random(labels, seed=seed)
    together = np.concatenate([split.train, split.val, split.test])
    assert sorted(together) == np.flatnonzero(labels >= 0).tolist()
    count = len(together)
    assert (len(split.train), len(split.val)) == (round(0.6 * count), round(0.2 * count))
    assert parts(split) == parts(Split.random(labels, seed=seed))


def test_random_literal() -> None:
    # Fixed for ever: published numbers depend on which nodes a seed draws.
    assert parts(Split.random(np.zeros(10, dtype=int), seed=0)) == [[2, 3, 4, 5, 6, 7], [0, 9], [1, 8]]


def test_seeds_differ() -> None:
    assert parts(Split.random(LABELS, seed=0)) != parts(Split.random(LABELS, seed=1))


def test_stratified_keeps_class_shares() -> None:
    split = Split.random(LABELS, stratified=True, seed=3)
    assert np.bincount(LABELS[split.train]).tolist() == [30, 18, 12]
    assert np.bincount(LABELS[split.val]).tolist() == [10, 6, 4]
    assert np.bincount(LABELS[split.test]).tolist() == [10, 6, 4]


def test_counts_instead_of_fractions() -> None:
    split = Split.random(LABELS, train=40, val=35, seed=1)
    assert (len(split.train), len(split.val), len(split.test)) == (40, 35, 25)


def test_per_class() -> None:
    split = Split.per_class(LABELS, train=5, val=7, seed=2)
    assert np.bincount(LABELS[split.train]).tolist() == [5, 5, 5]
    assert np.bincount(LABELS[split.val]).tolist() == [7, 7, 7]
    assert len(split.test) == 100 - 36


def test_multilabel_and_targets() -> None:
    labels = np.array([[0, 1], [-1, -1], [1, 1], [0, 0], [1, 0]])
    assert everyone(Split.random(labels, 0.5, 0.25)) == [0, 2, 3, 4]
    assert everyone(Split.random([0.5, np.nan, 1.5, 2.5, 3.5], 0.5, 0.25)) == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"train": 0.9, "val": 0.2}, r"train \(90\) and val \(20\) together ask for more than the 100 nodes"),
        ({"train": 1.5}, "train is 1.5; a fraction must lie between 0 and 1"),
        ({"train": 0}, "train is 0; a number of nodes must be at least 1"),
        ({"val": "half"}, "val is 'half'; give a fraction"),
        ({"train": 0.9, "val": 0.1}, "test is empty"),
        ({"train": 0.001}, "train is empty"),
    ],
)
def test_bad_sizes(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Split.random(LABELS, **keywords)


def test_stratified_needs_class_ids() -> None:
    with pytest.raises(GraphError, match="a stratified split needs class ids"):
        Split.random([0.5, 1.5], stratified=True)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 1], [1, 2], [3]), "train and val overlap in 1 nodes, the first is 1"),
        (([0, 1], [2], [3, 0]), "train and test overlap"),
        (([0], [2], [2]), "val and test overlap"),
        (([], [1], [2]), "train is empty"),
        (([0], [1], []), "test is empty"),
        (([0, 0], [1], [2]), "train contains node 0 more than once"),
        (([-1], [1], [2]), "train contains node -1; node ids start at 0"),
        (([0.5], [1], [2]), r"train\[0\] is 0.5; it must be a whole number"),
        (([True, False], [1], [2]), "use Split.from_masks"),
        (([[0]], [1], [2]), r"train has shape \[1, 1\]"),
    ],
)
def test_bad_parts(arrays: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Split(*arrays)


def test_from_masks() -> None:
    train, val, test = np.eye(3, dtype=bool)
    assert parts(Split.from_masks(train, val, test)) == [[0], [1], [2]]
    ten = [torch.stack([torch.tensor(mask).roll(i) for i in range(10)], dim=1) for mask in (train, val, test)]
    assert parts(Split.from_masks(ten[0], ten[1], ten[2], column=1)) == [[1], [2], [0]]
    with pytest.raises(GraphError, match="column is 10 but the train mask has 10 columns"):
        Split.from_masks(ten[0], ten[1], ten[2], column=10)
    with pytest.raises(GraphError, match="the masks have lengths 3, 5, 3; they must agree"):
        Split.from_masks([1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1])
    with pytest.raises(GraphError, match="the train mask must be booleans"):
        Split.from_masks([0, 2], [1, 0], [0, 1])


def test_from_pyg() -> None:
    data = Data(train_mask=torch.tensor([True, False, False]), val_mask=torch.tensor([False, True, False]), num_nodes=3)
    with pytest.raises(GraphError, match="data has no test_mask"):
        Split.from_pyg(data)
    data.test_mask = torch.tensor([False, False, True])
    assert parts(Split.from_pyg(data)) == [[0], [1], [2]]


def test_save_and_read(tmp_path: Path) -> None:
    split = Split.random(LABELS, seed=4)
    assert parts(Split.from_files(split.save(tmp_path / "split.npz"))) == parts(split)
    (tmp_path / "train.txt").write_text("3\n1\n\n")
    (tmp_path / "val.txt").write_text("0\n")
    np.save(tmp_path / "test.npy", [2, 4])
    files = [tmp_path / name for name in ("train.txt", "val.txt", "test.npy")]
    assert parts(Split.from_files(*files)) == [[1, 3], [0], [2, 4]]
    np.savez(tmp_path / "geom.npz", train_mask=[1, 0, 0], val_mask=[0, 1, 0], test_mask=[0, 0, 1])
    assert parts(Split.from_files(tmp_path / "geom.npz")) == [[0], [1], [2]]


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"split\.npz does not exist"):
        Split.from_files(tmp_path / "split.npz")
    np.savez(tmp_path / "other.npz", a=[1])
    with pytest.raises(StoreError, match=r"has no array 'train' \(it has: a\)"):
        Split.from_files(tmp_path / "other.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(StoreError, match=r"broken\.npz is not a readable \.npz"):
        Split.from_files(tmp_path / "broken.npz")
    (tmp_path / "ids.txt").write_text("1\nnode seven\n")
    with pytest.raises(GraphError, match="ids.txt line 2: 'node seven' is not a node id"):
        Split.from_files(*[tmp_path / "ids.txt"] * 3)
    with pytest.raises(GraphError, match="takes one .npz file, or three files"):
        Split.from_files(tmp_path / "ids.txt", tmp_path / "ids.txt")
    with pytest.raises(StoreError, match="nowhere.txt does not exist"):
        Split.from_files(*[tmp_path / "nowhere.txt"] * 3)
    np.savez(tmp_path / "ten.npz", train_mask=np.eye(3, 10), val_mask=np.eye(3, 10), test_mask=np.eye(3, 10))
    with pytest.raises(GraphError, match="overlap"):  # the first of ten columns, not all of them flattened
        Split.from_files(tmp_path / "ten.npz")
    np.savez(tmp_path / "mixed.npz", train_mask=[1, 0], val=[1], test=[2])
    with pytest.raises(StoreError, match="mixes masks and node ids"):
        Split.from_files(tmp_path / "mixed.npz")
    (tmp_path / "empty.npy").write_bytes(b"")
    with pytest.raises(StoreError, match="is not a readable list of node ids"):
        Split.from_files(*[tmp_path / "empty.npy"] * 3)
    with pytest.raises(StoreError, match="cannot write"):
        Split.random(LABELS).save(tmp_path / "ids.txt" / "split.npz")


def test_check() -> None:
    split = Split(np.array([0]), np.array([1]), np.array([2]))
    assert split.check(3, [0, 0, 0]) is split
    with pytest.raises(GraphError, match="test contains node 2 but the graph has 2 nodes"):
        split.check(2)
    with pytest.raises(GraphError, match="val contains node 1, which has no label"):
        split.check(3, [0, -1, 0])
    with pytest.warns(UserWarning, match="no training node has class 1, 2"):
        split.check(3, [0, 1, 2])
    with pytest.warns(UserWarning, match=r"no training node has class 1 \(b\): it cannot"):
        split.check(3, [0, 1, 0], ["a", "b"])
    with pytest.warns(UserWarning, match="no training node has class 1:"):
        split.check(3, [[1, 0], [1, 1], [0, 0]])
    with pytest.raises(GraphError, match="labels has 2 rows but the graph has 3 nodes"):
        split.check(3, [0, 0])
    assert repr(split) == "Split(train=1, val=1, test=1)"


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
def test_bad_seeds(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed is .*; it must be a whole number of 0 or more"):
        Split.random(LABELS, seed=seed)


def test_bad_labels_and_counts() -> None:
    with pytest.raises(GraphError, match="labels is None"):
        Split.random(None)
    with pytest.raises(GraphError, match="it must hold numbers"):
        Split.random(["a", "b"])
    with pytest.raises(GraphError, match="val is 2.5; a per-class split takes whole numbers"):
        Split.per_class(LABELS, 1, 2.5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="than the 20 nodes of class number 2"):
        Split.per_class(LABELS, 15, 10)


@given(st.integers(10, 60), st.integers(0, 5), st.sampled_from(["classes", "values", "columns"]))
def test_a_redraw_keeps_sizes_and_the_test_part(n: int, seed: int, form: str) -> None:
    random = np.random.default_rng(seed)
    labels: Any = random.integers(-1, 3, n)
    labels[:5] = 0
    split = Split.random(labels, seed=seed)
    if form != "classes":
        labels = random.random(n) if form == "values" else random.integers(0, 2, (n, 3))
    again = split.redraw(labels, (seed, 1))
    assert again.test.tolist() == split.test.tolist()
    assert (len(again.train), len(again.val)) == (len(split.train), len(split.val))
    assert everyone(again) == everyone(split)
    assert parts(again) == parts(split.redraw(labels, (seed, 1)))
    if form == "classes":
        for ours, theirs in ((again.train, split.train), (again.val, split.val)):
            assert sorted(labels[ours]) == sorted(labels[theirs])


def test_redraws_differ_and_do_not_read_test_labels() -> None:
    split = Split.random(LABELS, seed=0)
    labels = LABELS.copy()
    labels[split.test] = 9
    first, second = (split.redraw(LABELS, (0, number)) for number in (1, 2))
    assert parts(first) == parts(split.redraw(labels, (0, 1)))
    assert len({tuple(one.val) for one in (split, first, second)}) == 3
