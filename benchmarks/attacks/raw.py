"""Raw files of published datasets in miniature: forty nodes (Planetoid: 600), under the names of the originals."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vcr_graphormer.data.catalogue import DATASETS

PARTS = ("train", "val", "test")
NODES = 40


def _parts(nodes: int = NODES) -> tuple[Any, Any, Any]:
    """Return random arcs with loops and repeats, features of 0 and 1, and labels of three classes."""
    dice = np.random.default_rng(3)
    edges = dice.integers(0, nodes, (2, 150))
    return edges, (dice.random((nodes, 9)) < 0.1).astype(np.float32), np.arange(nodes) % 3


def _file(root: Path, name: str) -> Path:
    file = root / DATASETS[name].raw
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _write_planetoid(root: Path) -> None:
    edges, features, labels = _parts(600)
    folder, one_hot, test = _file(root, "Cora").parent, np.eye(3)[labels], np.arange(599, 549, -1)
    neighbours: dict[int, list[int]] = {node: [] for node in range(600)}
    for source, target in edges.T.tolist():
        neighbours[source].append(target)
        neighbours[target].append(source)
    rows = {"x": slice(0, 30), "allx": slice(0, 550), "tx": test}
    parts: dict[str, Any] = {"graph": neighbours}
    for name, chosen in rows.items():
        parts[name] = sp.csr_matrix(features[chosen])
        parts[name.replace("x", "y")] = one_hot[chosen]
    for name, content in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(content, 2))
    (folder / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in test))


def _write_archive(root: Path) -> None:
    edges, features, labels = _parts()
    adjacency = sp.csr_matrix((np.ones(150, np.float32), tuple(edges)), shape=(NODES, NODES))
    matrices = {"adj": adjacency, "attr": sp.csr_matrix(3 * features)}
    arrays = {f"{k}_{p}": getattr(m, p) for k, m in matrices.items() for p in ("data", "indices", "indptr", "shape")}
    np.savez(_file(root, "Photo"), labels=labels, **arrays)
    (root / "splits").mkdir()
    masks = {f"{part}_mask": np.arange(NODES) % 3 == place for place, part in enumerate(PARTS)}
    np.savez(root / DATASETS["Photo"].split_file, **masks)


def _write_geom(root: Path, name: str) -> None:
    edges, features, labels = _parts()
    folder, listed = _file(root, name).parent, name == "Actor"
    lines = [f"node_id\tfeature{'(feature_amount:9)' if listed else ''}\tlabel"]
    for node in range(NODES):
        ones = np.flatnonzero(features[node]) if features[node].any() else [0]
        row = ones if listed else features[node]
        lines.append(f"{node}\t{','.join(str(int(value)) for value in row)}\t{labels[node]}")
    (folder / "out1_node_feature_label.txt").write_text("\n".join(lines) + "\n")
    table = ["node_id\tnode_id", *(f"{source}\t{target}" for source, target in edges.T)]
    (folder / "out1_graph_edges.txt").write_text("\n".join(table) + "\n")
    original = "film" if listed else name.lower()
    for number in range(10):
        part = (np.arange(NODES) + number) % 3
        masks = {f"{one}_mask": (part == place).astype(np.uint8) for place, one in enumerate(PARTS)}
        np.savez(folder / f"{original}_split_0.6_0.2_{number}.npz", **masks)


def _write_own_geom(folder: Path) -> None:
    _write_geom(folder, "Texas")
    for file in list((folder / "WebKB" / "texas" / "raw").iterdir()):
        if file.suffix == ".txt" or file.stem.endswith(("_0", "_1")):
            file.rename(folder / file.name)
        else:
            file.unlink()


def _write_heterophilous(root: Path) -> None:
    edges, features, labels = _parts()
    part = np.random.default_rng(0).integers(0, 3, (10, NODES))
    masks = {f"{name}_masks": part == place for place, name in enumerate(PARTS)}
    np.savez(_file(root, "Minesweeper"), node_features=features, node_labels=labels, edges=edges.T, **masks)


def _write_reddit(root: Path) -> None:
    edges, features, labels = _parts()
    folder = _file(root, "Reddit").parent
    np.savez(folder / "reddit_data.npz", feature=features, label=labels, node_types=np.arange(NODES) % 3 + 1)
    sp.save_npz(folder / "reddit_graph.npz", sp.coo_matrix((np.ones(150), tuple(edges)), shape=(NODES, NODES)))


def _write_grand(root: Path) -> None:
    edges, features, labels = _parts()
    file = _file(root, "Amazon2M")
    sp.save_npz(file, sp.csr_matrix((np.ones(150), tuple(edges)), shape=(NODES, NODES)))
    np.save(file.parent / "Amazon2M_feat.npy", features)
    np.save(file.parent / "Amazon2M_labels.npy", np.eye(3)[labels])


def _write_aminer(root: Path) -> None:
    edges, features, labels = _parts()
    file = _file(root, "AMiner")
    contents = {
        "adj.sp": sp.csr_matrix((np.ones(150), tuple(edges)), shape=(NODES, NODES)),
        "features": features,
        "labels": np.eye(3)[labels],
    }
    for name, content in contents.items():
        (file.parent / f"aminer.{name}.pkl").write_bytes(pickle.dumps(content))


def _write_arxiv(root: Path) -> None:
    edges, features, _ = _parts()
    folder = _file(root, "arXiv-year").parent
    tables = {"edge": edges.T, "node-feat": features, "node_year": 2000 + np.arange(NODES)[:, None]}
    for name, rows in tables.items():
        text = "".join(f"{','.join(str(value) for value in row)}\n" for row in rows.tolist())
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    part = np.arange(NODES) % 3
    names = ("train", "valid", "test")
    splits = [{name: np.flatnonzero(part == place) for place, name in enumerate(names)} for _ in range(2)]
    (root / "splits").mkdir()
    np.save(root / "splits" / "arxiv-year-splits.npy", np.array(splits, dtype=object), allow_pickle=True)


RAW: dict[str, Callable[[Path], None]] = {
    "Cora": _write_planetoid,
    "Photo": _write_archive,
    "Squirrel": partial(_write_geom, name="Squirrel"),
    "Actor": partial(_write_geom, name="Actor"),
    "Minesweeper": _write_heterophilous,
    "Reddit": _write_reddit,
    "Amazon2M": _write_grand,
    "AMiner": _write_aminer,
    "arXiv-year": _write_arxiv,
    "own geom-gcn": _write_own_geom,
}
