"""Graph and token lists → `Inputs`: the one place where NumPy arrays become tensors."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from ..base.machine import available_memory
from ..data.graph import Graph
from ..errors import GraphError, StoreError
from ..tokens.lists import Kept, TokenLists
from .batches import Inputs
from .config import ModelConfig
from .labels import label_hops, label_matrix, label_width, labels_around
from .matrices import Matrix, SparseRows, aligned

_FRACTION = 0.5  # of the free memory that inputs may take; the rest is for activations
# Fraction of entries that are not zero: below it sparse rows are as fast as dense ones, and with dropout of half of the
# features more than twice as fast (docs/log.md).
_MOST_ENTRIES = 0.4
_MOST_BYTES = 1 << 28  # of features that are copied for this; larger ones may be a memory map
_SHORTEST = 1e-12  # a length to divide by where a node has no links, whose row stays zero


def make_inputs(
    graph: Graph,
    lists: TokenLists,
    model: ModelConfig,
    train: NDArray[np.int64],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    streamed: bool | None = None,
    kept: Kept | None = None,
) -> Inputs:
    """Turn features, hops and token lists into tensors, and training labels if the model asks for them.

    On a GPU everything lies on the device, dense if that fits, else sparse. If neither fits, batches are streamed from
    the memory-mapped files. On a CPU the files are mapped, not copied, and read ahead if they are larger than the free
    memory.

    Parameters
    ----------
    lists
        Token lists in memory, or a `TokenStore`.
    train
        Training nodes: only their labels are ever used.
    dtype
        Type of the features on a GPU.
    streamed
        Whether to stream batches; default: only if the inputs do not fit.
    kept
        Tensors of earlier calls with the same graph and device. This call adds its own.
    """
    if graph.features is None:
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity'")
    if lists.num_nodes != graph.num_nodes or lists.num_features != graph.num_features:
        raise StoreError(
            f"{lists.where} has {lists.num_nodes} nodes with {lists.num_features} features, the graph "
            f"{graph.num_nodes} with {graph.num_features}: these are tokens of another graph"
        )
    model.check(lists.num_hops).check_resolved()
    kept = kept or Kept()
    features = graph.features
    if device.type == "cpu":
        features = kept.once(("features for a CPU",), partial(sparse_if_faster, features))
    matrices: dict[str, Any] = {"features": features}
    self_loops = lists.settings.self_loops
    made_by = f"{self_loops} {lists.settings.hop_type}"
    matrices |= {f"hop {number} {made_by}": lists.hop(number) for number in range(1, lists.num_hops + 1)}
    if model.adjacency_rows:
        matrices["adjacency"] = kept.once(("adjacency rows",), partial(adjacency_rows, graph))
    there = {key[0] for key in kept.results if key[1:3] == (device, dtype)}
    dense, fits = residence([matrix for name, matrix in matrices.items() if name not in there], device, dtype)
    streamed = not fits if streamed is None else streamed
    on_device = device.type != "cpu" and not streamed
    home = device if on_device else torch.device("cpu")

    def convert(name: str) -> Matrix:
        how = partial(to_matrix, dtype=dtype if on_device else None, dense=dense and on_device)
        return kept.once((name, home, dtype), partial(how, matrices[name], home))

    uses_labels = model.label_embedding or model.label_hops or model.rich_labels
    labels = label_matrix(graph, train) if uses_labels else None
    around = None
    if labels is not None and model.label_hops:
        hops = label_hops(graph, labels, model.label_hops, self_loops=self_loops)
        around = torch.from_numpy(np.stack(hops, axis=1)).to(home)
    rich = None
    if labels is not None and model.rich_labels:
        listed = np.concatenate([lists.ids(kind) for kind in lists.layout.counts], 1)
        around_nodes, from_targets = labels_around(graph, labels, listed, self_loops=self_loops)
        rich = _tensor(around_nodes, home), _tensor(from_targets, home), _tensor(labels, home)
    return Inputs(
        features=convert("features"),
        hops=tuple(convert(name) for name in matrices if name.startswith("hop ")),
        ids=_joined([_tensor(lists.ids(kind), home) for kind in lists.layout.counts], streamed),
        scores=_joined([_tensor(lists.scores(kind), home) for kind in lists.layout.counts], streamed),
        shared=shared_scores(lists, home),
        layout=lists.layout,
        device=device,
        streamed=streamed,
        dtype=dtype,
        rich_tokens=model.rich_tokens,
        label_hops=around,
        labels=torch.from_numpy(labels).to(home) if labels is not None and model.label_embedding else None,
        rich_labels=rich,
        adjacency=convert("adjacency") if model.adjacency_rows else None,
    )


def model_sizes(graph: Graph) -> dict[str, int]:
    """Return the sizes of a model for a graph, by the names of `VCRGraphormer`'s arguments."""
    return {
        "num_features": graph.num_features,
        "num_outputs": graph.num_classes,
        "num_labels": label_width(graph),
        "num_nodes": graph.num_nodes,
    }


def _joined(tensors: list[Tensor], streamed: bool) -> tuple[Tensor, ...]:
    """Return one tensor, which is quicker to read; if joining would copy a memory map, return them as they are."""
    return tuple(tensors) if streamed else (torch.cat(tensors, 1),)


def residence(matrices: list[Any], device: torch.device, dtype: torch.dtype) -> tuple[bool, bool]:
    """Return whether the matrices fit on the device as dense ones, and whether they fit at all."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # torchrun's processes on this machine share its memory
    main = available_memory() // processes
    free = _FRACTION * (torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else main)
    dense = sum(matrix.shape[0] * matrix.shape[1] * dtype.itemsize for matrix in matrices)
    stored = sum(m.data.nbytes + m.indices.nbytes if sp.issparse(m) else m.nbytes for m in matrices)
    return dense <= free, min(dense, stored) <= free


def to_matrix(matrix: Any, home: torch.device, *, dtype: torch.dtype | None, dense: bool) -> Matrix:
    """Return a tensor or sparse rows; `dense` ones, for a GPU, with zero columns up to an aligned width."""
    width = matrix.shape[1]
    extra = aligned(width) - width if dense else 0
    if not sp.issparse(matrix):
        # In main memory float16 may be a memory map: it stays, and `select` converts the rows of a batch.
        tensor = _tensor(matrix, home, dtype=dtype or (None if matrix.dtype == np.float16 else torch.float32))
        return F.pad(tensor, (0, extra)) if extra else tensor
    is_small = max(matrix.nnz, width) <= torch.iinfo(torch.int32).max
    index_type = torch.int32 if is_small else torch.int64
    indptr, indices = (_tensor(array, home, dtype=index_type) for array in (matrix.indptr, matrix.indices))
    values = _tensor(matrix.data, home, dtype=dtype or torch.float32)
    rows = SparseRows(indptr, indices, values, width + extra)
    return rows.to_dense() if dense else rows


def sparse_if_faster(features: Any) -> Any:
    """Return dense features as sparse rows if most of their entries are zero, else as they are.

    >>> sparse_if_faster(np.eye(8)).nnz
    8
    """
    if sp.issparse(features) or features.nbytes > _MOST_BYTES:
        return features
    many = np.count_nonzero(features) >= _MOST_ENTRIES * features.size
    return features if many else sp.csr_matrix(np.asarray(features, np.float32))


def adjacency_rows(graph: Graph) -> sp.csr_matrix:
    """Return each node's links as features of unit length [n, n]; without weights A(u, :) / √(degree of u)."""
    adjacency = graph.to_scipy()
    lengths = np.sqrt(np.asarray(adjacency.multiply(adjacency).sum(axis=1)).ravel())
    return sp.diags(1 / np.maximum(lengths, _SHORTEST)).astype(np.float32).dot(adjacency).tocsr()


def _tensor(array: Any, home: torch.device, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor that shares the array's memory if it can."""
    with warnings.catch_warnings():  # nothing writes to a memory map
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array)).to(home, dtype)


def shared_scores(lists: TokenLists, home: torch.device) -> tuple[Tensor, ...]:
    """Return the scores that each kind after the first gives to neighbours of earlier kinds; none if none is stored."""
    arrays = [lists.shared(kind) for kind in list(lists.layout.counts)[1:]]
    if all(array is None for array in arrays):
        return ()
    nothing = np.empty((lists.num_nodes, 0), np.float32)
    return tuple(_tensor(nothing if array is None else array, home) for array in arrays)
