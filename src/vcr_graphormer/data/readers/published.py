"""Where published datasets come from: files of PyG's collections, GRAND+'s archives, OGB's arXiv with years."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...base.files import read_npy
from ...errors import GraphError, StoreError
from ..graph import Graph
from ..split import Split
from .downloads import download
from .formats import read_scipy
from .pickles import read_object_array, read_pickle
from .raw import Raw

# LINKX cuts the publication years of ogbn-arxiv into five classes.
_YEAR_CLASSES = 5


class Source(Protocol):
    """Raw files of one publisher that a dataset can be read from."""

    @property
    def raw(self) -> str:
        """Return one file under the data root that shows that the others are there too."""
        ...

    @property
    def downloads(self) -> bool:
        """Return whether missing files are downloaded."""
        ...

    @property
    def exact(self) -> bool:
        """Return whether the number of stored edges is known exactly."""
        ...

    def find(self, root: Path) -> Path | None:
        """Return the file that shows that the dataset is there, or None."""
        ...

    def read(self, root: Path, directed: bool, name: str) -> tuple[Graph, int]:
        """Return the graph, and the number of edges as its source stores them."""
        ...

    def splits(self, root: Path) -> list[Split]:
        """Return the published splits; empty where there are none."""
        ...


@dataclass(frozen=True)
class Files:
    """Raw files of a collection that PyG offers too, where PyG would put them. PyG's own files are never read.

    Attributes
    ----------
    raw : str
        The file, or one of the files, under the data root.
    reader : callable
        A function of `raw` that reads the file, or the folder if there are several.
    masks : callable or None
        The same for the published splits.
    urls : tuple of (str, str)
        Name and address of each file.
    whole_folder : bool
        Whether the functions take the folder.
    """

    raw: str
    reader: Callable[[Path], Raw]
    masks: Callable[[Path], list[Split]] | None = None
    urls: tuple[tuple[str, str], ...] = ()
    whole_folder: bool = False
    exact: bool = True

    @property
    def downloads(self) -> bool:
        """Return whether missing files are downloaded."""
        return bool(self.urls)

    def find(self, root: Path) -> Path | None:
        """Return the file that shows that the dataset is there, or None."""
        return root / self.raw if (root / self.raw).is_file() else None

    def read(self, root: Path, directed: bool, name: str) -> tuple[Graph, int]:
        """Return the graph and the number of distinct edges; missing files are downloaded."""
        raw = self.reader(self._fetched(root))
        features, labels = raw.features, raw.labels
        graph = Graph.from_edges(raw.edges, features=features, labels=labels, directed=directed, name=name)
        return graph, int(raw.edges.shape[1])

    def splits(self, root: Path) -> list[Split]:
        """Return the published splits; empty where there are none."""
        return [] if self.masks is None else self.masks(self._fetched(root))

    def _fetched(self, root: Path) -> Path:
        file = root / self.raw
        download(dict(self.urls), file.parent)
        return file.parent if self.whole_folder else file


@dataclass(frozen=True)
class Grand:
    """The files of GRAND+, by the path of the adjacency matrix."""

    raw: str
    downloads: bool = False
    exact: bool = False

    def find(self, root: Path) -> Path | None:
        """Return the file that shows that the dataset is there, or None."""
        return root / self.raw if (root / self.raw).is_file() else None

    def read(self, root: Path, directed: bool, name: str) -> tuple[Graph, int]:
        """Return the graph and its stored edges."""
        return read_grand((root / self.raw).parent, directed, name)

    def splits(self, root: Path) -> list[Split]:
        """Return nothing: GRAND+ draws splits anew."""
        return []


@dataclass(frozen=True)
class ArxivYear:
    """OGB's raw files of ogbn-arxiv, packed or not, and LINKX's splits."""

    raw: str
    downloads: bool = False
    exact: bool = True

    def find(self, root: Path) -> Path | None:
        """Return the file that shows that the dataset is there, or None."""
        files = (root / self.raw, root / self.raw.removesuffix(".gz"))
        return next((file for file in files if file.is_file()), None)

    def read(self, root: Path, directed: bool, name: str) -> tuple[Graph, int]:
        """Return the graph and its stored edges."""
        return read_arxiv_year((root / self.raw).parent.parent, directed, name)

    def splits(self, root: Path) -> list[Split]:
        """Return LINKX's five splits."""
        return read_arxiv_splits(root)


def read_grand(folder: Path, directed: bool, name: str) -> tuple[Graph, int]:
    """Read GRAND+'s files and return the graph and the number of stored edges.

    The files are NAME_adj.npz, NAME_feat.npy and NAME_labels.npy, or pickles for AMiner, where NAME is the folder's.
    Labels are one-hot rows. AMiner's features are standardized per column, as in GRAND+.
    """
    prefix = folder.name
    if (folder / f"{prefix}.adj.sp.pkl").is_file():
        adjacency = read_pickle(folder / f"{prefix}.adj.sp.pkl")
        raw = read_pickle(folder / f"{prefix}.features.pkl")
        features = _standardize(np.asarray(raw.toarray() if sp.issparse(raw) else raw, dtype=np.float32))
        one_hot = np.asarray(read_pickle(folder / f"{prefix}.labels.pkl"))
    else:
        adjacency = read_scipy(folder / f"{prefix}_adj.npz")
        features = read_npy(folder / f"{prefix}_feat.npy")
        one_hot = read_npy(folder / f"{prefix}_labels.npy")
    labels = one_hot if one_hot.ndim == 1 else np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    pattern = sp.csr_matrix(adjacency, copy=True)
    pattern.data[:] = 1  # the published entries are counts or ones; the paper's graph is unweighted
    graph = Graph.from_scipy(pattern, features=features, labels=labels, directed=directed, name=name)
    return graph, int(pattern.nnz)


def _standardize(features: NDArray[np.float32]) -> NDArray[np.float32]:
    spread = features.std(axis=0)
    standardized: NDArray[np.float32] = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return standardized


def read_arxiv_year(folder: Path, directed: bool, name: str) -> tuple[Graph, int]:
    """Read OGB's raw ogbn-arxiv files, labelled by publication year as in LINKX; also return the stored edges."""
    raw = folder / "raw"
    edges = _read_gzipped(raw / "edge.csv.gz").astype(np.int64).T
    features = _read_gzipped(raw / "node-feat.csv.gz").astype(np.float32)
    years = _read_gzipped(raw / "node_year.csv.gz")[:, 0]
    if len(years) != len(features):
        raise GraphError(f"{raw}: node_year has {len(years)} rows but node-feat has {len(features)}")
    labels = year_classes(years, _YEAR_CLASSES)
    graph = Graph.from_edges(edges, len(features), features=features, labels=labels, directed=directed, name=name)
    return graph, int(edges.shape[1])


def year_classes(years: Any, count: int) -> NDArray[np.int64]:
    """Cut years into `count` classes at their quantiles; a year equal to a cut belongs to the later class.

    >>> year_classes([2001, 2002, 2003, 2003, 2004], 2).tolist()
    [0, 0, 1, 1, 1]
    """
    cuts = np.quantile(years, np.arange(1, count) / count)
    return np.asarray(np.searchsorted(cuts, years, side="right"), dtype=np.int64)


def _read_gzipped(file: Path) -> NDArray[Any]:
    """Read a table of numbers without a header, `.csv.gz` or unpacked `.csv`."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    if not file.is_file() and file.with_suffix("").is_file():
        file = file.with_suffix("")
    if not file.is_file():
        raise StoreError(f"{file} does not exist: put OGB's raw ogbn-arxiv files there")
    try:
        table = arrow_csv.read_csv(file, read_options=arrow_csv.ReadOptions(autogenerate_column_names=True))
        return np.column_stack([column.cast(pa.float64()).to_numpy() for column in table.columns])
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{file} is not a readable table of numbers: {error}") from error


def read_arxiv_splits(root: Path) -> list[Split]:
    """Read LINKX's published splits: an array of dictionaries with train, valid and test."""
    candidates = [root / "splits" / "arxiv-year-splits.npy", root / "ogbn_arxiv" / "arxiv-year-splits.npy"]
    file = next((candidate for candidate in candidates if candidate.is_file()), candidates[0])
    splits = []
    for number, parts in enumerate(np.atleast_1d(read_object_array(file))):
        if not isinstance(parts, dict) or not {"train", "valid", "test"} <= parts.keys():
            raise StoreError(f"{file}: split {number} is not a dictionary with train, valid and test")
        splits.append(Split(parts["train"], parts["valid"], parts["test"]))
    return splits
