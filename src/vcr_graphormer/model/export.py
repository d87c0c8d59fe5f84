"""The model as one file for other programs: an ONNX model or a torch.export program over named tensors.

The tensors hold what the model reads of each node: the rows of its tokens, not ids of nodes. So whoever runs the file
needs neither this package nor the graph.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..base.files import json_text, read_json, replace_file
from ..data.tasks import Target
from ..errors import ConfigError, StoreError
from .batches import Batch, Inputs
from .matrices import SparseRows, select
from .members import Model

ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}
OPSET = 18  # the lowest that torch writes without converting operators afterwards
_MOST_BYTES = 2**31 - 2**20  # an ONNX file is one protobuf message, which ends at 2 GiB; some room for the graph
_MEANINGS = {
    "features": "features X of the node itself, then of its neighbours; zeros for missing neighbours",
    "hop_features": "features averaged over 1, 2, … steps from the node: (P^l X)(u)",
    "rich_features": "the same averages around the node itself and each neighbour: (P^l X)(i); zeros for missing ones",
    "links": "row of the adjacency matrix divided by its length, of the node itself, then of its neighbours: A(i, :)",
    "scores": "score of each neighbour by the kind of its place; 0 for missing ones",
    "mask": "true for a neighbour, false for a missing one",
    "shared_scores": "scores of each neighbour by the kinds after the first, 0 if that kind does not propose it",
    "label_hops": "training labels averaged over 1, 2, … steps from the node, without the node's own",
    "labels": "label row of each neighbour that is a training node; zeros for the others",
    "labels_around": "training labels averaged over one step from each neighbour, without the node's own",
}


class Exportable(nn.Module):
    """A model whose inputs are the named tensors of `gather`, and whose outputs are probabilities or values."""

    def __init__(self, model: Model, own_scores: Tensor, target: Target) -> None:
        super().__init__()
        self.model, self.target = model, target
        self.own_scores: Tensor
        self.register_buffer("own_scores", own_scores, persistent=False)

    # The names of the arguments are those of the exported inputs.
    def forward(  # noqa: PLR0913
        self,
        features: Tensor,
        hop_features: Tensor | None = None,
        rich_features: Tensor | None = None,
        links: Tensor | None = None,
        scores: Tensor | None = None,
        mask: Tensor | None = None,
        shared_scores: Tensor | None = None,
        label_hops: Tensor | None = None,
        labels: Tensor | None = None,
        labels_around: Tensor | None = None,
    ) -> Tensor:
        """Return probabilities, or values in the units of the targets [B, c]."""
        size, nodes = features.shape[:2]
        own = self.own_scores.expand(size, -1)
        rich = () if rich_features is None else rich_features.unbind(2)
        rows = (features, *rich, *(() if links is None else (links,)))
        batch = Batch(
            nodes=features[:, 0, 0],  # only their number counts
            place=torch.arange(size * nodes, device=features.device).view(size, nodes),
            scores=own if scores is None else torch.cat([own, scores], 1),
            mask=None if mask is None else torch.cat([torch.ones_like(own, dtype=torch.bool), mask], 1),
            hops=() if hop_features is None else hop_features.unbind(1),
            rows=tuple(row.flatten(0, 1) for row in rows),
            label_hops=label_hops,
            labels=labels,
            labels_around=labels_around,
            shared=shared_scores,
        )
        return self.target.output_tensor(self.model(batch))


def gather(model: Model, inputs: Inputs, nodes: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return what the model reads of some nodes, by the names of the exported inputs. Sparse rows become dense.

    Inputs that the model does not have, such as labels if it reads none, are left out.
    """
    batch = inputs.batch(torch.from_numpy(nodes))
    size, width = batch.place.shape
    mask = batch.mask
    if mask is None:
        mask = torch.ones(size, inputs.num_tokens, dtype=torch.bool)
    shown = torch.cat([mask[:, :1], mask[:, inputs.layout.first_neighbour :]], 1)[..., None]  # (batch, 1 + k, 1)

    def rows(matrix: Any) -> Tensor:
        chosen = select(matrix, batch.place.flatten())
        dense = chosen.to_dense() if isinstance(chosen, SparseRows) else chosen
        return dense.view(size, width, dense.shape[1]) * shown

    hops = [hop.to_dense() if isinstance(hop, SparseRows) else hop for hop in batch.hops]
    features, *others = (rows(matrix) for matrix in batch.rows)
    rich = others[: inputs.rich_tokens]
    neighbours = inputs.layout.num_neighbours > 0
    tensors = {
        "features": features,
        "hop_features": torch.stack(hops, 1) if hops else None,
        "rich_features": torch.stack(rich, 2) if rich else None,
        "links": None if inputs.adjacency is None else others[-1],
        "scores": batch.scores[:, inputs.layout.first_neighbour :] if neighbours else None,
        "mask": shown[:, 1:, 0] if neighbours else None,
        "shared_scores": batch.shared if model.kinds is not None else None,
        "label_hops": batch.label_hops,
        "labels": batch.labels if neighbours else None,
        "labels_around": batch.labels_around if neighbours else None,
    }
    return {name: tensor.contiguous().numpy() for name, tensor in tensors.items() if tensor is not None}


def choose_file(file: str | Path | None, kind: str | None, *, folder: Path, overwrite: bool) -> tuple[Path, str]:
    """Return the file and format from what was given of them; refuse a file that exists, or of another format.

    A description without its model is what an export leaves that was killed: it is replaced.

    Parameters
    ----------
    kind
        `onnx` or `torch`; default: by the ending of the file, else `onnx`.
    folder
        Where a file without a name goes: as `model.onnx` or `model.pt2`.
    """
    if kind is None:
        endings = {ending: name for name, ending in ENDINGS.items()}
        kind = "onnx" if file is None else endings.get(Path(file).suffix, "")
        if not kind:
            raise ConfigError(f"{file} must end in {' or '.join(endings)}")
    if kind not in ENDINGS:
        raise ConfigError(f"format is {kind!r}; it must be {' or '.join(ENDINGS)}")
    path = folder / f"model{ENDINGS[kind]}" if file is None else Path(file)
    if path.suffix != ENDINGS[kind]:
        raise ConfigError(f"{path} must end in {ENDINGS[kind]} for the format {kind}")
    about = describing_file(path)
    exists = path if path.exists() else about if about.exists() and not _is_description(about) else None
    if exists is not None and not overwrite:
        raise StoreError(f"{exists} exists: choose another name or delete it")
    return path, kind


def describing_file(file: Path) -> Path:
    """Return the JSON file beside an exported one, which says what its inputs and outputs are."""
    return file.with_name(f"{file.name}.json")


def _is_description(file: Path) -> bool:
    """Return whether a file is one that `write_export` wrote beside a model."""
    try:
        return {"format", "inputs", "outputs"} <= read_json(file).keys()
    except StoreError:
        return False


def write_export(
    file: Path, kind: str, *, model: Model, inputs: Inputs, target: Target, about: Mapping[str, Any]
) -> None:
    """Write the model to a file, and a JSON file beside it that describes inputs and outputs.

    Parameters
    ----------
    kind
        `onnx` or `torch`.
    inputs
        Inputs in main memory: the first node shows the shapes.
    about
        Further entries of the JSON file.
    """
    if kind == "onnx":
        _check_onnx(model)
    # Torch takes a dimension of 1 for a constant, so two rows stand for any number.
    tensors = gather(model, inputs, np.zeros(2, dtype=np.int64))
    content = _program_bytes(Exportable(model, inputs.own_scores, target).eval(), tensors, kind)
    description = {"format": kind, **_describe(model, inputs, tensors, target=target), **about}
    # Both are written, then renamed, the model last: an export that has its model is whole.
    with replace_file(file) as model_file, replace_file(describing_file(file)) as description_file:
        model_file.write_bytes(content)
        description_file.write_text(json_text(description), encoding="utf-8")


def _check_onnx(model: Model) -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "the format onnx needs the packages onnx and onnxscript: pip install 'vcr-graphormer[export]'"
        ) from error
    size = sum(parameter.nbytes for parameter in model.parameters())
    if size > _MOST_BYTES:
        raise ConfigError(f"the model has {size:,} bytes, more than an ONNX file can hold: use the format torch")


def _output_name(target: Target) -> str:
    return "values" if target.task.gives_values else "probabilities"


def _program_bytes(module: Exportable, tensors: Mapping[str, NDArray[Any]], kind: str) -> bytes:
    """Return the content of the exported file; the number of nodes in a batch is free."""
    batch = torch.export.Dim("batch", min=1)
    example = {name: torch.from_numpy(array) for name, array in tensors.items()}
    shapes = {name: {0: batch} for name in example}
    buffer = io.BytesIO()
    with torch.no_grad():
        program = torch.export.export(module, (), example, dynamic_shapes=shapes, strict=False)
    if kind == "torch":
        torch.export.save(program, buffer)
        return buffer.getvalue()
    with _quiet():
        exported = torch.onnx.export(
            program,
            kwargs=example,
            dynamic_shapes=shapes,  # for the name of the dimension
            dynamo=True,
            opset_version=OPSET,
            input_names=list(example),
            output_names=[_output_name(module.target)],
            verbose=False,
        )
    assert exported is not None  # it is None for a file only
    content: bytes = exported.model_proto.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch says to its own developers while it writes ONNX."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it logs that torchvision, which nothing here needs, is not installed
    try:
        with warnings.catch_warnings():
            # Torch copies its own tree specifications, a class that it has deprecated.
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            # All inputs share one size, so it is named once.
            warnings.filterwarnings("ignore", r"# The axis name: batch will not be used", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def _describe(model: Model, inputs: Inputs, tensors: Mapping[str, NDArray[Any]], *, target: Target) -> dict[str, Any]:
    """Return names, shapes, types and meanings of inputs and outputs, and the places of each kind of neighbour."""
    first = inputs.layout.first_neighbour
    places = {kind: inputs.layout.places(kind) for kind in inputs.layout.counts}
    values = target.task.gives_values
    return {
        "inputs": [
            {
                "name": name,
                "shape": ["batch", *array.shape[1:]],
                "dtype": str(array.dtype),
                "meaning": _MEANINGS[name],
            }
            for name, array in tensors.items()
        ],
        "outputs": [
            {
                "name": _output_name(target),
                "shape": ["batch", model.num_outputs],
                "dtype": "float32",
                "meaning": "the predicted targets" if values else f"probability of each of the {target.task.words}",
            }
        ],
        "neighbours": {kind: [place.start - first, place.stop - first] for kind, place in places.items()},
    }
