"""Small cases of everything whose numbers must survive a rearrangement of the code.

    OMP_NUM_THREADS=1 python -m tests.support.frozen write FILE      digests of all bits, on this machine
    OMP_NUM_THREADS=1 python -m tests.support.frozen compare FILE    the same again; names what differs

The last bits of scores and weights depend on the processor, so digests are compared on one machine only. What must hold
on every machine, ids and rounded scores, lies in `frozen.json` and is compared by `tests/test_frozen.py`:

    python -m tests.support.frozen sample tests/support/frozen.json
"""

import hashlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import vcr_graphormer as vcr
from tests.support.plain import model_config, plain_config, token_config, train_config

SAMPLE = (0, 7, 77, 400, 777, 1111, 1499)  # nodes whose lists are kept as numbers
NODES = 1500  # with 12,000 arcs: large enough for the approximate ranking


def graphs() -> dict[str, vcr.Graph]:
    """Generated graphs of every form the package knows: plain, weighted, directed, sparse, other tasks."""
    plain = vcr.generate(NODES, 6000, classes=4, features=12, homophily=0.7, seed=3)
    random = np.random.default_rng(5)
    edges = np.stack([np.repeat(np.arange(NODES), plain.degrees), plain.indices])
    some = random.random(edges.shape[1]) < 0.7
    weights = np.asarray(random.random(edges.shape[1]), dtype=np.float32) + np.float32(0.1)
    about: dict[str, Any] = {"num_nodes": NODES, "features": plain.features, "labels": plain.labels}
    marks = (random.random((NODES, 3)) < 0.4).astype(np.int8)
    features = np.asarray(plain.features)
    return {
        "plain": plain,
        "weighted": vcr.Graph.from_edges(edges, edge_weight=weights, **about),
        "directed": vcr.Graph.from_edges(edges[:, some], directed=True, **about),
        "both": vcr.Graph.from_edges(edges[:, some], edge_weight=weights[some], directed=True, **about),
        "sparse": replace(plain, features=sp.csr_matrix(np.where(features > 2, features, 0))),
        "multilabel": vcr.Graph.from_edges(edges, NODES, features=features, labels=marks),
        "regression": vcr.Graph.from_edges(
            edges, NODES, features=features, labels=features[:, :2] @ [[1.0], [-2.0]], task="regression"
        ),
    }


_LISTS: dict[str, Any] = {"hops": 2, "clusters": 6, "structure_tokens": 4, "content_tokens": 4, "distinct": False}
# Name of the case → graph and token settings.
TOKENS: dict[str, tuple[str, dict[str, Any]]] = {
    "labels": ("plain", {}),
    "features": ("plain", {"content": "features", "content_clusters": 5}),
    "links": ("plain", {"content": "links"}),
    "propagation": ("plain", {"partitioner": "propagation"}),
    "longer lists": ("plain", {"structure_tokens": 12, "content_tokens": 12}),
    "longer lists by features": ("plain", {"content": "features", "content_tokens": 12}),
    "float16": ("plain", {"score_type": "float16"}),
    "structure only": ("plain", {"content_tokens": 0, "hops": 0}),
    "no super nodes": ("plain", {"clusters": 0, "content_tokens": 0}),
    "self-loops and seed": ("sparse", {"self_loops": True, "seed": 4, "restart": 0.3, "tolerance": 0.5}),
    "directed": ("directed", {}),
    "weighted": ("weighted", {}),
    "directed, weighted, links": ("both", {"content": "links"}),
    "links beside the others": ("directed", {"link_tokens": 3}),
    "multilabel": ("multilabel", {}),
    "distinct": ("directed", {"link_tokens": 3, "distinct": True}),
}
_EVERYTHING = {
    "kind_embedding": True,
    "rank_embedding": True,
    "rich_tokens": 1,
    "label_hops": 2,
    "label_embedding": True,
    "adjacency_rows": True,
    "feature_dropout": 0.2,
    "embedding_dropout": 0.1,
    "token_dropout": 0.1,
}
# Name of the case → graph, token settings, model settings, training settings.
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "paper": ("plain", {}, {}, {}),
    "everything": ("plain", {}, _EVERYTHING, {"average": 0.9, "label_smoothing": 0.1, "schedule": "cosine"}),
    "longer lists": ("plain", TOKENS["longer lists"][1], {"rich_tokens": 1, "kind_embedding": True}, {}),
    "links": ("directed", {"content": "links"}, {"rank_embedding": True, "readout": "mean"}, {}),
    "sparse": ("sparse", {"content": "features"}, {"readout": "target", "feature_dropout": 0.2}, {}),
    "no layers": ("weighted", {"content_tokens": 0}, {"layers": 0, "readout": "mean", "label_hops": 1}, {}),
    "multilabel": ("multilabel", {}, {"label_hops": 1, "label_embedding": True}, {"label_smoothing": 0.1}),
    "regression": ("regression", {}, {"label_hops": 1, "label_embedding": True}, {}),
    "distinct": (
        "directed",
        {"link_tokens": 3, "distinct": True},
        {"kind_embedding": True, "rank_embedding": True},
        {},
    ),
}


def make_store(name: str, made: dict[str, vcr.Graph], folder: Path) -> vcr.TokenStore:
    """The token lists of one case."""
    graph, settings = made[TOKENS[name][0]], TOKENS[name][1]
    config = token_config(**{**_LISTS, **settings})
    return vcr.tokenize(graph, _split(graph).train, config, out=folder / f"tokens-{name}", threads=1)


def make_run(name: str, made: dict[str, vcr.Graph], folder: Path) -> vcr.Run:
    """A short training of one case."""
    graph, tokens, model, training = made[RUNS[name][0]], *RUNS[name][1:]
    config = plain_config(
        tokens=token_config(**{**_LISTS, **tokens}),
        model=model_config(**{"hidden_channels": 16, "heads": 2, **model}),
        training=train_config(**{"epochs": 3, "batch_size": 200, "warmup_steps": 4, "learning_rate": 5e-3, **training}),
    )
    return vcr.train(graph, _split(graph), config, out=folder / f"run-{name}", device="cpu", threads=1)


def _split(graph: vcr.Graph) -> vcr.Split:
    return vcr.Split.random(graph.labels, 0.5, 0.2, seed=1)


def report_data(run: vcr.Run) -> Any:
    """What the page of a run reads, without times, paths, versions and the date."""
    page = run.path / "frozen.html"
    _command("report", str(run.path), "--out", str(page), "--device", "cpu")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    for name in ("created", "reproduce", "versions", "stages"):
        del data[name]
    del data["explorer"]["hint"]
    for name in ("neighbours", "baselines", "notes"):  # younger than the digests, as are these:
        del data[name]
    for name in ("groups", "group_effect", "explained", "alone", "alone_confidence"):
        data["explorer"].pop(name, None)
    for name in ("combine", "neighbour_dropout", "own_dropout", "rich_labels"):
        del data["config"]["model"][name]
    data["config"]["training"]["metric"] = "auto"  # not resolved then
    seconds = data["criteria"]["columns"].index("seconds")
    for row in data["criteria"]["rows"]:
        row["values"][seconds] = None
    return data


def explain_data(run: vcr.Run) -> Any:
    """What `explain --json` says of one node."""
    data = json.loads(_command("explain", str(run.path), "--node", "id:7", "--json", "--device", "cpu"))
    for name in ("kind_effects", "without_neighbours"):  # younger than the digests
        del data[name]
    if not run.config.tokens.distinct:  # younger than the digests: here they only repeat kind and score
        for token in data["tokens"]:
            del token["kinds"]
    return data


def _command(*words: str) -> str:
    from vcr_graphormer.cli.main import main

    text, before = io.StringIO(), sys.argv
    sys.argv = ["vcr-graphormer", *words]
    try:
        with redirect_stdout(text), redirect_stderr(io.StringIO()):
            main()
    except SystemExit as stopped:
        assert not stopped.code, text.getvalue()
    finally:
        sys.argv = before
    return text.getvalue()


def digests() -> Iterator[tuple[str, str]]:
    """Name and digest of everything that is frozen, in a fixed order."""
    made = graphs()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, graph in made.items():
            yield f"graph {name}", graph.fingerprint
        for name in TOKENS:
            store = make_store(name, made, folder)
            for array in sorted(store.arrays):
                yield f"tokens {name}: {array}", _digest(store.arrays[array].tobytes())
            manifest = json.loads((store.path / "manifest.json").read_text())
            yield f"tokens {name}: identity", _digest(json.dumps(manifest["meta"], sort_keys=True).encode())
        for name in RUNS:
            run = make_run(name, made, folder)
            yield f"run {name}: weights", _digest((run.path / "model.safetensors").read_bytes())
            yield f"run {name}: predictions", _digest(run.predict().probabilities.tobytes())
            yield f"run {name}: vectors", _digest(run.embed([0, 5, 9]).tobytes())
            yield f"run {name}: explanation", _digest(json.dumps(explain_data(run)).encode())
            yield f"run {name}: report", _digest(json.dumps(report_data(run), sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def sample_store(store: vcr.TokenStore) -> dict[str, Any]:
    """Ids and rounded scores of a few nodes."""
    nodes = list(SAMPLE)
    return {
        kind: {
            "ids": np.asarray(store.ids(kind))[nodes].tolist(),
            "scores": np.asarray(store.scores(kind))[nodes].astype(np.float64).round(4).tolist(),
        }
        for kind in store.layout.counts
        if store.ids(kind).shape[1]
    }


def sample_run(run: vcr.Run) -> list[list[float]]:
    """Rounded predictions of a few nodes."""
    found: list[list[float]] = run.predict(list(SAMPLE)).probabilities.astype(np.float64).round(5).tolist()
    return found


def main() -> None:
    """Write or compare digests, or write the sample that every machine agrees on."""
    what, file = sys.argv[1], Path(sys.argv[2])
    if what == "sample":
        made = graphs()
        with tempfile.TemporaryDirectory() as place:
            stores = {name: sample_store(make_store(name, made, Path(place))) for name in TOKENS}
            runs = {name: sample_run(make_run(name, made, Path(place))) for name in RUNS}
        file.write_text(json.dumps({"stores": stores, "runs": runs}) + "\n")
        return
    found = dict(digests())
    if what == "write":
        file.write_text(json.dumps(found, indent=1) + "\n")
        return
    known = json.loads(file.read_text())
    different = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    for name in different:
        print(f"DIFFERS: {name}")
    print(f"{len(found) - len(different)} of {len(known)} digests are as they were")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
