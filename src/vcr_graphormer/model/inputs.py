"""Graph and token store → `Inputs`: the border from NumPy to torch, and where the tensors live."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
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
from ..tokens.config import KINDS
from ..tokens.store import TokenStore
from .batches import Inputs
from .config import ModelConfig
from .labels import label_hops, label_matrix
from .matrices import Matrix, SparseRows

# A GPU's fast matrix products want rows of a multiple of 16 bytes: with 6,805 columns they are four times slower than
# with 6,808.
_ALIGNED = 8


_SHARE = 0.5  # of the free memory that inputs may take; the rest is for activations


def make_inputs(
    graph: Graph,
    store: TokenStore,
    model: ModelConfig,
    train: NDArray[np.int64],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    streamed: bool | None = None,
) -> Inputs:
    """Turn features, hops, token lists and, where the model asks for them, training labels into tensors.

    On a GPU everything lies on the device, dense, where that fits; sparse where only that fits; otherwise batches are
    streamed from the memory-mapped files. On a CPU the files are mapped, not copied, and read ahead where they are
    larger than the free memory.

    Parameters
    ----------
    train
        Training nodes: only their labels are ever used.
    dtype
        Of features on a GPU.
    streamed
        Decide instead of measuring.
    """
    if graph.features is None:
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity'")
    if store.num_nodes != graph.num_nodes or store.config["num_features"] != graph.num_features:
        raise StoreError(
            f"{store.path} has {store.num_nodes} nodes with {store.config['num_features']} features, the graph "
            f"{graph.num_nodes} with {graph.num_features}: these are tokens of another graph"
        )
    model.check(store.num_hops)
    matrices = [graph.features, *(store.hop(number) for number in range(1, store.num_hops + 1))]
    links = [adjacency_rows(graph)] if model.adjacency_rows else []
    dense, fits = residence([*matrices, *links], device, dtype)
    streamed = not fits if streamed is None else streamed
    on_device = device.type != "cpu" and not streamed
    home = device if on_device else torch.device("cpu")

    def place(matrix: Any) -> Matrix:
        return to_matrix(matrix, home, dtype if on_device else None, dense and on_device)

    features, *hops = (place(matrix) for matrix in matrices)
    known = label_matrix(graph, train) if model.label_embedding or model.label_hops else None
    around = None
    if known is not None and model.label_hops:
        parts = label_hops(graph, known, model.label_hops, bool(store.config["self_loops"]))
        around = torch.from_numpy(np.stack(parts, axis=1)).to(home)
    super_rows, own = None, None
    ids = [_tensor(store.ids(kind), home) for kind in KINDS]
    means = [store.super_features(kind) for kind in KINDS]
    if means[0] is not None and means[1] is not None:
        leave_out = store.config["content"] == "labels" and bool(store.config["leave_own_label_out"])
        super_rows, own = super_nodes(means, store.assignment("content"), leave_out, home)
        ids[1] = torch.where(ids[1] >= graph.num_nodes, ids[1] + len(means[0]), ids[1])
    return Inputs(
        features,
        tuple(hops),
        _joined(ids, streamed),
        _joined([_tensor(store.scores(kind), home) for kind in KINDS], streamed),
        int(store.ids("structure").shape[1]),
        device,
        streamed,
        model.rich_tokens,
        super_rows,
        own,
        around,
        torch.from_numpy(known).to(home) if known is not None and model.label_embedding else None,
        place(links[0]) if links else None,
    )


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


def super_nodes(
    means: Sequence[Any], assignment: Any, leave_out: bool, home: torch.device
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Mean features of super nodes, structure before content, and each training node's own class among them.

    Parameters
    ----------
    means
        Of structure and of content super nodes.
    assignment
        The content super node of each node, -1 for none.
    leave_out
        Whether a node's own part is to be taken out of the mean of its class.
    """
    rows = torch.cat([_tensor(part, home, torch.float32) for part in means])
    if not leave_out or not len(means[1]):
        return rows, None
    members = np.asarray(assignment)
    sizes = np.bincount(members[members >= 0], minlength=len(means[1]))
    own = np.where(members >= 0, members + len(means[0]), -1)
    counts = np.where(members >= 0, sizes[members], 0)
    return rows, (_tensor(own, home, torch.int64), _tensor(counts, home, torch.float32))
