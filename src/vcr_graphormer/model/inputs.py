"""Graph and token store → `Inputs`: the border from NumPy to torch, and where the tensors live."""

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
from .labels import label_hops, label_matrix, label_width
from .matrices import Matrix, SparseRows

# A GPU's fast matrix products want rows of a multiple of 16 bytes: with 6,805 columns they are four times slower than
# with 6,808.
_ALIGNED = 8
_SHARE = 0.5  # of the free memory that inputs may take; the rest is for activations


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
    """Turn features, hops, token lists and, where the model asks for them, training labels into tensors.

    On a GPU everything lies on the device, dense, where that fits; sparse where only that fits; otherwise batches are
    streamed from the memory-mapped files. On a CPU the files are mapped, not copied, and read ahead where they are
    larger than the free memory.

    Parameters
    ----------
    lists
        Token lists in memory, or a `TokenStore`.
    train
        Training nodes: only their labels are ever used.
    dtype
        Of features on a GPU.
    streamed
        Decide instead of measuring.
    kept
        Tensors of earlier calls with the same graph and device, to which this call adds its own.
    """
    if graph.features is None:
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity'")
    if lists.num_nodes != graph.num_nodes or lists.num_features != graph.num_features:
        raise StoreError(
            f"{lists.where} has {lists.num_nodes} nodes with {lists.num_features} features, the graph "
            f"{graph.num_nodes} with {graph.num_features}: these are tokens of another graph"
        )
    model.check(lists.num_hops)
    kept = kept or Kept()
    matrices: dict[str, Any] = {"features": graph.features}
    self_loops = lists.settings.self_loops
    matrices |= {f"hop {number} {self_loops}": lists.hop(number) for number in range(1, lists.num_hops + 1)}
    if model.adjacency_rows:
        matrices["adjacency"] = kept.once("adjacency rows", partial(adjacency_rows, graph))
    dense, fits = residence([matrix for name, matrix in matrices.items() if name not in kept.results], device, dtype)
    streamed = not fits if streamed is None else streamed
    on_device = device.type != "cpu" and not streamed
    home = device if on_device else torch.device("cpu")

    def place(name: str) -> Matrix:
        how = dtype if on_device else None
        return kept.once(name, lambda: to_matrix(matrices[name], home, how, dense and on_device))

    known = label_matrix(graph, train) if model.label_embedding or model.label_hops else None
    around = None
    if known is not None and model.label_hops:
        around = torch.from_numpy(np.stack(label_hops(graph, known, model.label_hops, self_loops), axis=1)).to(home)
    ids = {kind: _tensor(lists.ids(kind), home) for kind in lists.layout.counts}
    for kind in lists.layout.supers:
        offset = lists.layout.super_offset(kind)
        ids[kind] = torch.where(ids[kind] >= graph.num_nodes, ids[kind] + offset, ids[kind]) if offset else ids[kind]
    return Inputs(
        features=place("features"),
        hops=tuple(place(name) for name in matrices if name.startswith("hop ")),
        ids=_joined(list(ids.values()), streamed),
        scores=_joined([_tensor(lists.scores(kind), home) for kind in lists.layout.counts], streamed),
        layout=lists.layout,
        device=device,
        streamed=streamed,
        rich_tokens=model.rich_tokens,
        super_rows=super_rows(lists, home),
        own=own_super_nodes(lists, home),
        label_hops=around,
        labels=torch.from_numpy(known).to(home) if known is not None and model.label_embedding else None,
        adjacency=place("adjacency") if model.adjacency_rows else None,
    )


def model_sizes(graph: Graph) -> dict[str, int]:
    """Return the sizes of a model for a graph, by the names of `VCRGraphormer`'s arguments."""
    return {
        "num_features": graph.num_features,
        "num_outputs": graph.num_classes,
        "num_labels": label_width(graph),
        "num_nodes": graph.num_nodes,
    }


def _joined(parts: list[Tensor], streamed: bool) -> tuple[Tensor, ...]:
    """One tensor, which is quicker to read from; as they are where joining would copy a memory map."""
    return tuple(parts) if streamed else (torch.cat(parts, 1),)


def residence(matrices: list[Any], device: torch.device, dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether the matrices fit on the device as dense ones, and whether they fit at all."""
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # those whom torchrun started here share main memory
    main = available_memory() // sharing
    free = _SHARE * (torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else main)
    dense = sum(matrix.shape[0] * matrix.shape[1] * dtype.itemsize for matrix in matrices)
    stored = sum(m.data.nbytes + m.indices.nbytes if sp.issparse(m) else m.nbytes for m in matrices)
    return dense <= free, min(dense, stored) <= free


def to_matrix(matrix: Any, home: torch.device, dtype: torch.dtype | None, dense: bool) -> Matrix:
    """A tensor or sparse rows; `dense` ones for a GPU are padded with zero columns to an aligned width."""
    width = matrix.shape[1]
    extra = -width % _ALIGNED if dense else 0
    if not sp.issparse(matrix):
        whole = _tensor(matrix, home, dtype or torch.float32)
        return F.pad(whole, (0, extra)) if extra else whole
    small = max(matrix.nnz, width) < 2**31
    kind = torch.int32 if small else torch.int64
    indptr, indices = (_tensor(part, home, kind) for part in (matrix.indptr, matrix.indices))
    values = _tensor(matrix.data, home, dtype or torch.float32)
    if not dense:
        return SparseRows(indptr, indices, values, width)
    full = torch.zeros(matrix.shape[0], width + extra, dtype=values.dtype, device=home)
    owners = torch.repeat_interleave(torch.arange(matrix.shape[0], device=home), indptr.diff().long())
    full[owners, indices.long()] = values
    return full


def adjacency_rows(graph: Graph) -> sp.csr_matrix:
    """A(u, :) / √(degree of u): which nodes a node is linked to, as features of unit length [n, n]."""
    adjacency = graph.to_scipy()
    lengths = np.sqrt(np.asarray(adjacency.multiply(adjacency).sum(axis=1)).ravel())
    return sp.diags(1 / np.maximum(lengths, 1e-12)).astype(np.float32).dot(adjacency).tocsr()


def _tensor(array: Any, home: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor that shares the array's memory where it can; memory maps are never written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array)).to(home, dtype)


def super_rows(lists: TokenLists, home: torch.device) -> Tensor | None:
    """Return the mean features of all super nodes, kind by kind; None where super nodes are no tokens."""
    if not lists.layout.supers:
        return None
    means = [lists.super_features(kind) for kind in lists.layout.supers]
    return torch.cat([_tensor(part, home, torch.float32) for part in means])


def own_super_nodes(lists: TokenLists, home: torch.device) -> tuple[Tensor, Tensor] | None:
    """Return each training node's own class among the super nodes, and the members of that class.

    None where no node's own part has to be taken out of the mean of its class.
    """
    for kind, count in lists.layout.supers.items():
        if count and lists.leaves_out(kind):
            members = np.asarray(lists.assignment(kind))
            sizes = np.bincount(members[members >= 0], minlength=count)
            own = np.where(members >= 0, members + lists.layout.super_offset(kind), -1)
            counts = np.where(members >= 0, sizes[members], 0)
            return _tensor(own, home, torch.int64), _tensor(counts, home, torch.float32)
    return None
