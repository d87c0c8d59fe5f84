"""A store opens at once, knows what it belongs to, and notices every changed byte."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import graphs
from tests.support.damage import edited_manifest, put_array
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
    with edited_manifest(store.path) as manifest:
        del manifest["arrays"]["links_ids"]
    with pytest.raises(StoreError, match="is damaged: its manifest lacks links_ids"):
        TokenStore.open(store.path)


def rewrite(store: TokenStore, **removed: Any) -> TokenStore:
    """Let a store say what older versions wrote into its settings and its identity."""
    with edited_manifest(store.path) as manifest:
        manifest["meta"]["config"] |= removed
        manifest["meta"]["identity"] |= {f"setting {name}": str(value) for name, value in removed.items()}
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


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("structure_ids", lambda ids: np.where(ids == ids[0, 0], 34, ids).astype(np.int32), "structure_ids holds 34"),
        ("content_ids", lambda ids: np.where(ids == ids[0, 0], -2, ids).astype(np.int32), "content_ids holds -2"),
        ("content_ids", lambda ids: ids.astype(np.int64), "content_ids is <i8"),
        ("content_ids", lambda ids: ids.astype(">i4"), "content_ids is >i4"),
        ("content_ids", lambda ids: ids[:, :1], r"content_ids is <i4\[34, 1\]; it must be int32\[34, 2\]"),
        (
            "content_scores",
            lambda scores: scores[:, :1],
            r"content_scores is <f4\[34, 1\]; it must be float32\[34, 2\]",
        ),
        ("structure_ids", lambda ids: ids[0, 0], "structure_ids has 0 dimensions; it must have 2"),
        ("structure_scores", lambda scores: scores * np.float32("nan"), "structure_scores must be finite"),
        ("structure_assignment", lambda ids: ids + 2_000_000, "structure_assignment holds 200000"),
        ("structure_assignment", lambda ids: ids[:5], r"structure_assignment is <i4\[5\]"),
        ("hop_1", lambda hop: hop[:3], r"hop_1 is <f4\[3, \d+\]"),
        ("hop_2", lambda hop: hop / 0, "hop_2 must be finite"),
        ("content_shared", lambda shared: shared[:, :1], "content_shared is not as it must be"),
        ("content_shared", lambda shared: shared.astype(">f4"), "content_shared is not as it must be"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arrays_that_would_crash_a_loop_are_refused(store: TokenStore, name: str, change: Any, message: str) -> None:
    TokenStore.open(store.path)
    put_array(store.path, name, change(np.array(store.arrays[name])))
    with pytest.raises(StoreError, match=f"tokens is damaged: .*{message}"):
        TokenStore.open(store.path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hops", "two", "its hops is 'two'"),
        ("hops", 10**9, "its manifest lacks hop_3"),
        ("num_features", -1, "its num_features is -1"),
        ("distinct", 1, "its distinct is 1"),
        ("score_type", ["float32"], "score_type"),
        ("restart", 7, "restart"),
    ],
)
def test_settings_that_no_version_wrote_are_refused(store: TokenStore, name: str, value: Any, message: str) -> None:
    with edited_manifest(store.path) as manifest:
        manifest["meta"]["config"][name] = value
    with pytest.raises(StoreError, match=message):
        TokenStore.open(store.path)


@pytest.mark.parametrize(("name", "value"), [("structure_tokens", 10**8), ("content_tokens", 0), ("content_tokens", 3)])
def test_settings_of_lists_of_another_width_are_refused(store: TokenStore, name: str, value: int) -> None:
    """Memory and models are measured by the settings, loops run over the arrays."""
    with edited_manifest(store.path) as manifest:
        manifest["meta"]["config"][name] = value
    with pytest.raises(
        StoreError, match=rf"tokens is damaged: .*_ids is <i4\[34, \d\]; it must be int32\[34, {value}\]"
    ):
        TokenStore.open(store.path)


@pytest.mark.parametrize("change", [-1, 1])
def test_lists_that_all_have_another_width_are_refused(store: TokenStore, change: int) -> None:
    for part in ("ids", "scores", "shared"):
        array = np.array(store.arrays[f"content_{part}"])
        put_array(store.path, f"content_{part}", array[:, :1] if change < 0 else np.concatenate([array, array], 1))
    with pytest.raises(StoreError, match=r"content_ids is <i4\[34, [14]\]; it must be int32\[34, 2\]"):
        TokenStore.open(store.path)


@pytest.mark.parametrize("name", ["links_reserve", "nearest_reserve"])
@pytest.mark.parametrize("width", [0, 2, 30])
def test_a_reserve_of_another_width_is_refused(name: str, width: int, tmp_path: Path) -> None:
    config = token_config(hops=1, content_tokens=0, link_tokens=2, nearest_tokens=2, structure_tokens=3, distinct=True)
    made = tokenize(graphs.karate_club().with_features("degree"), None, config, tmp_path / "tokens")
    assert made.arrays[name].shape == (34, 5 if name == "links_reserve" else 7)
    put_array(made.path, name, np.zeros((34, width), np.int32))
    with pytest.raises(StoreError, match=rf"{name} is <i4\[34, {width}\]; it must be int32\[34, [57]\]"):
        TokenStore.open(made.path)


COUNTS = {"nodes": 30, "new": 4, "changed": 0, "updates": 1, "refresh": "new"}


@pytest.mark.parametrize(
    "growth",
    [
        *(5, None, [1], {"nodes": "x", "new": "y"}, {"nodes": 3}),
        *({**COUNTS, name: value} for name in ("nodes", "new") for value in (float("inf"), 10**400, -1, True)),
        {**COUNTS, "refresh": 3},
    ],
)
def test_growth_that_no_version_wrote_is_refused(store: TokenStore, growth: Any) -> None:
    with edited_manifest(store.path) as manifest:
        manifest["meta"]["growth"] = COUNTS
    assert TokenStore.open(store.path).growth == COUNTS
    with edited_manifest(store.path) as manifest:
        manifest["meta"]["growth"] = growth
    with pytest.raises(StoreError, match=r"tokens is damaged: its growth.*Tokenize again"):
        TokenStore.open(store.path)


@pytest.mark.parametrize(
    ("name", "value"), [("kinds", [["a"]]), ("kinds", 3), ("identity", [1]), ("identity", {"setting content": 3})]
)
def test_damaged_meta(store: TokenStore, name: str, value: Any) -> None:
    with edited_manifest(store.path) as manifest:
        manifest["meta"][name] = value
    with pytest.raises(StoreError, match="is damaged: its (kinds|identity)"):
        TokenStore.open(store.path)


def test_a_closed_store_says_so(store: TokenStore) -> None:
    with TokenStore.open(store.path) as opened:
        assert opened.num_nodes == 34
    with pytest.raises(StoreError, match="tokens is closed: open it again"):
        opened.neighbours(np.array([0]))
    assert TokenStore.open(store.path).num_nodes == 34
