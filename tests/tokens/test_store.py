"""A store opens at once, knows what it belongs to, and notices every changed byte."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import graphs
from tests.support.plain import token_config
from vcr_graphormer import StoreError, TokenStore, tokenize

CONFIG = token_config(hops=2, clusters=2, structure_tokens=3, content_tokens=2, content="features", content_clusters=2)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return tokenize(graphs.karate_club().with_features("degree"), None, CONFIG, tmp_path / "tokens")


def test_what_it_holds(store: TokenStore) -> None:
    again = TokenStore.open(store.path)
    assert (again.num_nodes, again.num_hops, again.num_tokens) == (34, 2, 1 + 2 + 3 + 2)
    assert again.ids("structure").dtype == np.int32
    assert again.scores("content").dtype == np.float32
    assert again.assignment("structure").shape == (34,)
    assert isinstance(again.ids("structure"), np.memmap)
    assert "34 nodes, 8 tokens each (1 self, 2 hops, 3 structure, 2 content)" in repr(again)
    with pytest.raises(StoreError, match="has hops 1 to 2, not 3"):
        again.hop(3)
    assert sorted(file.name for file in store.path.iterdir() if not file.name.endswith(".npy")) == [
        "manifest.json",
        "stages.json",
    ]


def test_one_changed_byte_is_noticed(store: TokenStore) -> None:
    store.verify()
    for file in sorted(store.path.glob("*.npy")):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        with pytest.raises(StoreError, match=f"{file.name} does not match its checksum"):
            store.verify()
        content[-1] ^= 1
        file.write_bytes(content)
    store.verify()


def test_cut_short(store: TokenStore) -> None:
    file = store.path / "content_ids.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(StoreError, match="content_ids.npy has .* bytes but the manifest says .*: it was cut short"):
        TokenStore.open(store.path)


def test_unfinished_and_foreign_folders(tmp_path: Path) -> None:
    (tmp_path / "half" / "parts").mkdir(parents=True)
    with pytest.raises(StoreError, match="is an unfinished token store: run tokenize again"):
        TokenStore.open(tmp_path / "half")
    with pytest.raises(StoreError, match=r"manifest\.json is missing"):
        TokenStore.open(tmp_path / "nowhere")
    saved = graphs.path().save(tmp_path / "graph")
    with pytest.raises(StoreError, match="holds a graph, not a token store"):
        TokenStore.open(saved)


def test_identity(store: TokenStore) -> None:
    store.check(store.identity)
    with pytest.raises(
        StoreError, match="belongs to another graph features, setting hops: tokenize into another folder"
    ):
        store.check({**store.identity, "graph features": "x", "setting hops": "9"})


def test_a_store_that_lacks_an_optional_kind_is_damaged(tmp_path: Path) -> None:
    config = token_config(hops=0, content_tokens=0, link_tokens=2)
    store = tokenize(graphs.karate_club().with_features("degree"), config=config, out=tmp_path / "tokens")
    manifest = json.loads((store.path / "manifest.json").read_text())
    del manifest["arrays"]["links_ids"]
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match="is damaged: its manifest lacks links_ids"):
        TokenStore.open(store.path)


def rewrite(store: TokenStore, **removed: Any) -> TokenStore:
    """Let a store say what older versions wrote into its settings and its identity."""
    manifest = json.loads((store.path / "manifest.json").read_text())
    manifest["meta"]["config"] |= removed
    manifest["meta"]["identity"] |= {f"setting {name}": str(value) for name, value in removed.items()}
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    return TokenStore.open(store.path)


def test_stores_of_older_versions_open_if_they_did_what_is_left(store: TokenStore) -> None:
    old = rewrite(store, super_tokens="drop", leave_own_label_out=True)
    assert (old.config, old.identity, old.settings) == (store.config, store.identity, store.settings)
    again = tokenize(graphs.karate_club().with_features("degree"), None, CONFIG, store.path)  # not of another setting
    assert (again.ids("content") == store.ids("content")).all()


@pytest.mark.parametrize(("name", "value"), [("super_tokens", "mean"), ("leave_own_label_out", False)])
def test_stores_of_older_versions_are_refused_otherwise(name: str, value: Any, store: TokenStore) -> None:
    sentence = f"tokens was made with tokens.{name} = {value!r}, which was removed: tokenize again"
    with pytest.raises(StoreError, match=sentence):
        rewrite(store, **{name: value})
