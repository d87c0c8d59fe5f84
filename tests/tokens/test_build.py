"""tokenize: the same bytes whatever happens on the way, nothing of other nodes' labels, clear refusals."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import graphs
from tests.support.plain import token_config
from tests.support.runs import all_bytes
from vcr_graphormer import (
    ConfigError,
    Graph,
    GraphError,
    Kind,
    StoreError,
    TokenConfig,
    TokenStore,
    content_connections,
    generate,
    hop_features,
    rank,
    structure_connections,
    tokenize,
)
from vcr_graphormer.base.folders import digest
from vcr_graphormer.base.jobs import JobFolder
from vcr_graphormer.ranking.connections import Connections
from vcr_graphormer.tokens import build as tokens
from vcr_graphormer.tokens.hops import Step
from vcr_graphormer.tokens.lists import make_lists
from vcr_graphormer.tokens.resources import needed_disk

CONFIG = token_config(hops=2, clusters=4, structure_tokens=5, content_tokens=6)


def test_store_equals_its_parts(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    store = tokenize(graph, train, replace(CONFIG, distinct=False), tmp_path / "t")
    structure, content = structure_connections(graph, 4), content_connections(graph.labels, train)
    for kind, ranking in (
        ("structure", rank(graph, structure, k=5)),
        ("content", rank(graph, content, k=6, leave_out=True)),
    ):
        np.testing.assert_array_equal(store.ids(kind), ranking.ids)
        np.testing.assert_array_equal(store.scores(kind), ranking.scores)
    np.testing.assert_array_equal(store.assignment("content"), content.assignment)
    for number, hop in enumerate(hop_features(graph, 2), 1):
        np.testing.assert_array_equal(store.hop(number), hop)
    store.verify()


def test_threads_and_shards_do_not_matter(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tokenize(graph, train, CONFIG, tmp_path / "one", threads=1)
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)
    second = tokenize(graph, train, CONFIG, tmp_path / "two", threads=3)
    assert all_bytes(first) == all_bytes(second)


def test_other_labels_change_no_bit(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    assert graph.labels is not None
    others = np.setdiff1d(np.arange(graph.num_nodes), train)
    changed = graph.labels.copy()
    changed[others] = (changed[others] + 1) % 3
    changed[others[0]] = 7
    first = tokenize(graph, train, CONFIG, tmp_path / "one")
    second = tokenize(replace(graph, labels=changed), train, CONFIG, tmp_path / "two")
    assert all_bytes(first) == all_bytes(second)
    changed[train[0]] = (changed[train[0]] + 1) % 3
    third = tokenize(replace(graph, labels=changed), train, CONFIG, tmp_path / "three")
    assert (third.ids("content") != first.ids("content")).any()


def by_training_label(graph: Graph, train: Any, config: TokenConfig) -> Connections:
    return content_connections(graph.labels, train)


def test_own_label_stays_out_of_the_own_list(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    """Flip the label of one training node: with leave-out its own list hardly moves, without it does."""
    assert graph.labels is not None
    node = int(train[10])
    flipped = graph.labels.copy()
    flipped[node] = (flipped[node] + 1) % 3
    moved = {}
    for leave_out in (True, False):
        config = token_config(hops=0, structure_tokens=0, content_tokens=0)
        kind = Kind("mine", lambda config: 6, connect=by_training_label, own_label_left_out=leave_out)
        stores = [
            tokenize(replace(graph, labels=labels), train, config, tmp_path / f"{leave_out}{number}", kinds=[kind])
            for number, labels in enumerate((graph.labels, flipped))
        ]
        lists = [dict(zip(s.ids("mine")[node], s.scores("mine")[node], strict=True)) for s in stores]
        shared = set(lists[0]) & set(lists[1])
        moved[leave_out] = max(abs(lists[0][i] / lists[1][i] - 1) for i in shared) if shared else 1.0
        moved[leave_out] = max(moved[leave_out], 1 - len(shared) / 6)
    assert moved[True] < 0.02 < moved[False]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    "stop", ["structure-130-260-", "content-260-390-", "hop_2.npy", "content_scores.npy", "content_shared.npy"]
)
def test_killed_in_the_middle_resumes_with_the_same_bytes(
    stop: str, before: bool, graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)
    whole = tokenize(graph, train, CONFIG, tmp_path / "whole", threads=1)
    graph.save(tmp_path / "graph")
    np.save(tmp_path / "train.npy", train)
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from vcr_graphormer import Graph, TokenConfig, tokenize\nfrom vcr_graphormer.tokens import build as tokens\n"
        "tokens.SOURCES_AT_ONCE = 130\n"
        "rename = Path.replace\n"
        "def die(self, target):\n"
        "    last = Path(target).name.startswith(sys.argv[2])\n"
        "    if last and sys.argv[3] == 'True': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    rename(self, target)\n"
        "    if last: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.replace = die\n"
        "root = Path(sys.argv[1])\n"
        "counts = {'structure_tokens': 5, 'content_tokens': 6, 'link_tokens': 0, 'nearest_tokens': 0}\n"
        "config = TokenConfig(hops=2, clusters=4, self_loops=False, **counts)\n"
        "tokenize(Graph.open(root / 'graph'), np.load(root / 'train.npy'), config, root / 'tokens', threads=1)\n"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path), stop, str(before)], check=False)
    assert result.returncode == -signal.SIGKILL
    with pytest.raises(StoreError, match="unfinished"):
        TokenStore.open(tmp_path / "tokens")
    shards = len(list((tmp_path / "tokens" / "parts").glob("*.npz")))
    stages: list[tuple[str, int, int]] = []
    resumed = tokenize(graph, train, CONFIG, tmp_path / "tokens", progress=lambda *row: stages.append(row))
    assert all_bytes(resumed) == all_bytes(whole)
    # What was finished was not computed again.
    first = {stage: done for stage, done, _ in reversed(stages)}
    if stop == "structure-130-260-":
        assert first["structure ranking"] == shards == 2 - before
    if stop == "hop_2.npy":
        assert "structure ranking" not in first


def test_a_finished_store_is_reused_and_guarded(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    store = tokenize(graph, train, CONFIG, tmp_path / "t")
    stamp = (store.path / "manifest.json").stat().st_mtime_ns
    assert (tokenize(graph, train, CONFIG, tmp_path / "t").path / "manifest.json").stat().st_mtime_ns == stamp
    (store.path / "parts").mkdir()  # left by a process that was killed after its last array
    (store.path / "job.json").write_text("{}")
    tokenize(graph, train, CONFIG, tmp_path / "t")
    assert not (store.path / "parts").exists() and not (store.path / "job.json").exists()
    for other, message in (
        ((graph, train, replace(CONFIG, hops=1)), "belongs to another setting hops"),
        ((graph, train[1:], CONFIG), "belongs to another training labels, training nodes"),
        ((graph.with_features("degree"), train, CONFIG), "belongs to another graph features"),
        ((generate(1500, 6000, classes=3, seed=1, features=6), train, CONFIG), "belongs to another graph adjacency"),
    ):
        with pytest.raises(StoreError, match=message):
            tokenize(*other, tmp_path / "t")


def test_unfinished_work_of_another_job_is_not_mixed(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "job.json").write_text(json.dumps({"setting hops": "9"}))
    with pytest.raises(StoreError, match="holds unfinished work of another"):
        tokenize(graph, train, CONFIG, tmp_path / "t")
    for damage in ("{", "[]"):
        (tmp_path / "t" / "job.json").write_text(damage)
        with pytest.raises(StoreError, match=r"job\.json is damaged"):
            tokenize(graph, train, CONFIG, tmp_path / "t")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("work")
    with pytest.raises(StoreError, match="exists and is not a token store"):
        tokenize(graph, train, CONFIG, tmp_path / "mine")


def test_unwritable_folder_and_full_disk(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        tokenize(graph, train, CONFIG, tmp_path / "file" / "t")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(StoreError, match="No space left on device"):
        tokenize(graph, train, CONFIG, tmp_path / "t")
    monkeypatch.undo()
    with pytest.raises(StoreError, match="unfinished"):
        TokenStore.open(tmp_path / "t")
    assert tokenize(graph, train, CONFIG, tmp_path / "t").num_nodes == 1500


def test_kinds_of_content_and_scores(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    by_features = tokenize(graph, None, replace(CONFIG, content_clusters=7), tmp_path / "features")
    assert by_features.config["content"] == "features"
    assert by_features.assignment("content").max() == 6
    half = tokenize(graph, train, replace(CONFIG, score_type="float16"), tmp_path / "half")
    assert half.scores("content").dtype == np.float16
    none = tokenize(graph, train, token_config(hops=0, structure_tokens=0, content_tokens=0), tmp_path / "none")
    assert (none.num_tokens, none.ids("structure").shape) == (1, (1500, 0))


def test_hops_of_half_the_bytes(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    config = replace(CONFIG, hop_type="float16")
    half, whole = (tokenize(graph, train, one, tmp_path / one.hop_type) for one in (config, CONFIG))
    current: Any = graph.features
    step = Step.of(graph, CONFIG.self_loops)
    for number in range(1, CONFIG.hops + 1):  # each hop is computed from the stored one before
        current = (step.matrix @ np.asarray(current, np.float32)).astype(np.float16)
        np.testing.assert_array_equal(half.hop(number), current)
        np.testing.assert_allclose(half.hop(number), whole.hop(number), rtol=2e-3, atol=1e-3)
    in_memory = make_lists(graph, train, config)
    assert {name: digest(array) for name, array in in_memory.arrays.items()} == {
        name: digest(array) for name, array in half.arrays.items()
    }
    with pytest.raises(StoreError, match="setting hop_type"):
        tokenize(graph, train, CONFIG, tmp_path / "float16")
    assert "hop_type" not in whole.config
    sizes = [needed_disk(graph, replace(one, content="labels")) for one in (config, CONFIG)]
    assert sizes[0] < sizes[1]


def test_hops_too_large_for_float16(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    large = replace(graph, features=np.asarray(graph.features) * np.float32(1e6))
    with pytest.raises(GraphError, match="but float16 ends at 65,504: use tokens.hop_type=float32"):
        tokenize(large, train, replace(CONFIG, hop_type="float16"), tmp_path / "t")
    names = [file.name for file in (tmp_path / "t").rglob("*")]
    assert not [name for name in names if "rank" in name or "ids" in name], "the rankings come later"


def test_sparse_hops_are_stored_sparse(tmp_path: Path) -> None:
    path = graphs.path(60).with_features("identity")
    store = tokenize(path, None, token_config(hops=2, clusters=3, content_clusters=3), tmp_path / "t")
    for number, hop in enumerate(hop_features(path, 2), 1):
        stored = store.hop(number)
        assert isinstance(stored, sp.csr_matrix)
        np.testing.assert_array_equal(stored.toarray(), hop.toarray())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"structure_tokens": -1}, ConfigError, "tokens.structure_tokens is -1"),
        ({"content_tokens": 1.5}, ConfigError, "tokens.content_tokens is 1.5"),
        ({"hops": -2}, ConfigError, "hops is -2"),
        ({"restart": 0.0}, ConfigError, "restart is 0.0"),
        ({"tolerance": 2.0}, ConfigError, "tolerance is 2.0"),
        ({"clusters": -2}, ConfigError, "clusters is -2"),
        ({"content": "features", "content_clusters": 9999}, ConfigError, "tokens.content_clusters is 9999"),
        ({"clusters": 9999}, ConfigError, "tokens.clusters is 9999; it must lie between 0 and the number of nodes"),
        ({"content": "colour"}, ConfigError, "tokens.content is 'colour'; it must be auto or labels or features"),
        ({"score_type": "int8"}, ConfigError, "tokens.score_type is 'int8'"),
        ({"hop_type": "float64"}, ConfigError, "tokens.hop_type is 'float64'"),
        ({"seed": -1}, ConfigError, "seed is -1"),
    ],
)
def test_bad_settings(
    change: dict[str, Any], error: type[Exception], message: str, graph: Graph, train: np.ndarray, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        tokenize(graph, train, replace(CONFIG, **change), tmp_path / "t")
    assert not (tmp_path / "t").exists()  # a wrong setting does not claim the folder


def test_graphs_that_lack_something(graph: Graph, tmp_path: Path) -> None:
    bare = replace(graph, features=None, labels=None)
    with pytest.raises(GraphError, match="the graph has no features"):
        tokenize(bare, None, CONFIG, tmp_path / "t")
    with pytest.raises(GraphError, match="content tokens need class labels and training nodes, or features"):
        tokenize(bare, None, replace(CONFIG, hops=0), tmp_path / "t")
    with pytest.raises(GraphError, match="the graph has no class labels: use 'features'"):
        tokenize(replace(graph, labels=None), None, replace(CONFIG, content="labels"), tmp_path / "t")
    with pytest.raises(GraphError, match="pass the training nodes"):
        tokenize(graph, None, replace(CONFIG, content="labels"), tmp_path / "t")
    with pytest.raises(GraphError, match="train contains node 9999"):
        tokenize(graph, [9999], CONFIG, tmp_path / "t")
    assert not (tmp_path / "t").exists()
    assert tokenize(bare, None, replace(CONFIG, hops=0, content_tokens=0), tmp_path / "t").num_tokens == 6


def interrupt(graph: Graph, train: np.ndarray, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a job at its first hop, as if the disk were full there."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tokens, "propagate", full)
        with pytest.raises(OSError, match="No space left"):
            tokenize(graph, train, CONFIG, folder)


def test_clusters_are_not_made_twice(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On large graphs they take minutes: a job that is stopped while it ranks has kept them."""
    whole = tokenize(graph, train, CONFIG, tmp_path / "whole")

    def stop(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    for damaged in (False, True):
        folder = tmp_path / str(damaged)
        with monkeypatch.context() as patch:
            patch.setattr(tokens, "rank_shards", stop)
            with pytest.raises(OSError, match="No space left"):
                tokenize(graph, train, CONFIG, folder)
        made = sorted((folder / "parts" / "made").iterdir())
        assert [file.name for file in made] == ["coarse-clusters.npz", "structure-connections.npz"]
        if damaged:
            for file in made:
                file.write_bytes(file.read_bytes()[:-50])
        stages: set[str] = set()
        resumed = tokenize(graph, train, CONFIG, folder, progress=lambda stage, *_, seen=stages: seen.add(stage))
        assert all_bytes(resumed) == all_bytes(whole)
        assert ("structure connections" in stages, "coarse clusters" in stages) == (damaged, damaged)
        assert "content connections" in stages


def test_damaged_parts_are_made_again(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenize(graph, train, CONFIG, tmp_path / "whole")
    for number, damage in enumerate(("flip", "shape", "cut")):
        folder = tmp_path / str(number)
        interrupt(graph, train, folder, monkeypatch)
        file = folder / "structure_ids.npy"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        if damage == "shape":
            np.save(file, np.zeros((3, 3), dtype=np.int32))
        else:
            file.write_bytes(content if damage == "flip" else content[:50])
        assert all_bytes(tokenize(graph, train, CONFIG, folder)) == all_bytes(whole)


def test_shards_of_another_size_are_not_mixed(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenize(graph, train, CONFIG, tmp_path / "whole")
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)
    interrupt(graph, train, tmp_path / "t", monkeypatch)
    for file in (tmp_path / "t").glob("*.npy"):
        file.unlink()
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 260)
    assert all_bytes(tokenize(graph, train, CONFIG, tmp_path / "t")) == all_bytes(whole)


def test_one_process_at_a_time(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(graph, train, tmp_path / "t", monkeypatch)
    identity = json.loads((tmp_path / "t" / "job.json").read_text())
    identity.pop("package version")
    with JobFolder(tmp_path / "t", identity), pytest.raises(StoreError, match="another process is working in"):
        tokenize(graph, train, CONFIG, tmp_path / "t")
    tokenize(graph, train, CONFIG, tmp_path / "t").verify()


def test_the_kind_of_content_belongs_to_the_identity(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    tokenize(graph, train, CONFIG, tmp_path / "t")
    with pytest.raises(StoreError, match="belongs to another kind of content, training labels, training nodes"):
        tokenize(graph, None, CONFIG, tmp_path / "t")
    # The same nodes in other forms are the same: a mask, with repetitions, NumPy numbers in the settings.
    mask = np.zeros(graph.num_nodes, dtype=bool)
    mask[train] = True
    tokenize(graph, mask, CONFIG, tmp_path / "t")
    tokenize(graph, np.concatenate([train, train[:3]]), replace(CONFIG, restart=np.float64(0.15)), tmp_path / "t")


def test_moved_stores_open(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    store = tokenize(graph, train, CONFIG, tmp_path / "t")
    store.path.rename(tmp_path / "moved")
    TokenStore.open(tmp_path / "moved").verify()


def test_no_clusters_rank_on_the_graph_as_it_is(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    config = token_config(hops=0, clusters=0, structure_tokens=5, content_tokens=0)
    store = tokenize(graph, train, config, tmp_path / "tokens")
    plain = rank(graph, None, k=5)
    np.testing.assert_array_equal(store.ids("structure"), plain.ids)
