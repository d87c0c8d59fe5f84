"""Divide the nodes into training, validation and test parts, disjoint and reproducible by seed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_seed, is_number, is_whole, to_numpy, to_whole_numbers
from ..base.files import read_lines, read_npz, replace_file
from ..errors import ConfigError, GraphError, StoreError
from .tasks import known_labels

PARTS = ("train", "val", "test")
NODE_TITLES = ("node", "id", "node_id", "name")  # what the column of nodes may be called
_MOST_NAMED = 10  # classes that a warning lists


@dataclass(frozen=True, eq=False)
class Split:
    """The node ids of the three parts: disjoint, non-empty, ascending int64 arrays."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]

    def __post_init__(self) -> None:
        for part in PARTS:
            object.__setattr__(self, part, _check_part(getattr(self, part), part))
        for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
            shared = np.intersect1d(getattr(self, first), getattr(self, second))
            if shared.size:
                raise GraphError(
                    f"{first} and {second} overlap in {shared.size} nodes, the first is {shared[0]}: "
                    f"a node belongs to one part only"
                )

    @classmethod
    def random(
        cls, labels: Any, train: float | int = 0.6, val: float | int = 0.2, seed: int = 0, stratified: bool = False
    ) -> Split:
        """Draw training and validation nodes at random from the labelled nodes; the others are the test part.

        Parameters
        ----------
        labels : [n] or [n, c]
            Nodes labelled -1 (or NaN) belong to no part.
        train, val
            A fraction (float) or a number of nodes (int), as in scikit-learn. The paper's small datasets take 0.6 and
            0.2; Amazon2M takes 940 and 1,410 nodes.
        stratified
            Give each class the same fraction in every part; only for class ids.

        >>> split = Split.random([0, 1] * 5, seed=0)
        >>> len(split.train), len(split.val), len(split.test)
        (6, 2, 2)
        """
        values = _check_labels(labels)
        labelled = np.flatnonzero(known_labels(values))
        generator = np.random.default_rng(check_seed(seed))
        if not stratified:
            return cls._draw([labelled], train, val=val, generator=generator)
        return cls._draw(_nodes_by_class(values, "a stratified split"), train, val=val, generator=generator)

    @classmethod
    def per_class(cls, labels: Any, train: int = 20, val: int = 30, seed: int = 0) -> Split:
        """Draw the same number of nodes from each class, as GRAND+ does; the others are the test part."""
        for part, count in (("train", train), ("val", val)):
            if not is_whole(count):
                raise GraphError(f"{part} is {count!r}; a per-class split takes whole numbers of nodes")
        groups = _nodes_by_class(_check_labels(labels), "a per-class split")
        return cls._draw(groups, train, val=val, generator=np.random.default_rng(check_seed(seed)))

    @classmethod
    def by_time(cls, labels: Any, times: Any, *, train_until: str, val_until: str) -> Split:
        """Train on the oldest labelled nodes, validate on newer ones, test on the newest.

        Nodes without a label or a time belong to no part.

        Parameters
        ----------
        times : [n]
            Dates, or numbers; a column of Arrow, NumPy's datetime64, or numbers.
        train_until, val_until
            The last time of the training and of the validation part, as text: `2024-06-30` (to the end of that day),
            `2024-06-30 12:00`, or a number.

        >>> days = np.array(["2024-01-01", "2024-02-01", "2024-03-01"], dtype="datetime64[D]")
        >>> Split.by_time([0, 1, 0], days, train_until="2024-01-31", val_until="2024-02-29")
        Split(train=1, val=1, test=1)
        """
        values = _check_labels(labels)
        moments, has_time = _times(times)
        if len(moments) != len(values):
            raise GraphError(f"times has {len(moments)} rows but labels has {len(values)}")
        first, last = (
            _moment(until, moments.dtype, what=what)
            for what, until in (("train_until", train_until), ("val_until", val_until))
        )
        if not first < last:
            raise ConfigError(f"train_until is {train_until} and val_until is {val_until}; it must be later")
        known = known_labels(values) & has_time
        parts = (known & (moments <= first), known & (moments > first) & (moments <= last), known & (moments > last))
        for part, mask, rule in zip(PARTS, parts, ("up to train_until", "up to val_until", "after it"), strict=True):
            if not mask.any():
                seen = moments[known]
                span = f"; labelled nodes have times {seen.min()} to {seen.max()}" if seen.size else ""
                raise GraphError(f"{part} is empty: no labelled node has a time {rule}{span}")
        return cls(*(np.flatnonzero(mask) for mask in parts))

    @classmethod
    def _draw(
        cls, groups: list[NDArray[np.int64]], train: float | int, *, val: float | int, generator: np.random.Generator
    ) -> Split:
        """Draw training and validation nodes from each group; the others are the test part."""
        parts: list[list[NDArray[np.int64]]] = [[], [], []]
        for number, group in enumerate(groups):
            num_train = _part_size(train, "train", available=len(group))
            num_val = _part_size(val, "val", available=len(group))
            if num_train + num_val > len(group):
                where = f" of class number {number}" if len(groups) > 1 else ""
                raise GraphError(
                    f"train ({num_train}) and val ({num_val}) together ask for more than the {len(group)} nodes{where}"
                )
            shuffled = generator.permutation(group)
            for part, nodes in zip(parts, np.split(shuffled, [num_train, num_train + num_val]), strict=True):
                part.append(nodes)
        return cls(*(np.concatenate(part) for part in parts))

    def part_of(self, num_nodes: int) -> NDArray[np.str_]:
        """Return `train`, `val` or `test` for each node; an empty text for those in no part.

        >>> Split([0], [1], [3]).part_of(4).tolist()
        ['train', 'val', '', 'test']
        """
        names = np.full(num_nodes, "", dtype="<U5")
        for part in PARTS:
            nodes = getattr(self, part)
            names[nodes[nodes < num_nodes]] = part
        return names

    @classmethod
    def from_masks(cls, train: Any, val: Any, test: Any, column: int = 0) -> Split:
        """Make a split from boolean masks [n], or from one column of masks [n, splits], as PyG has them."""
        masks = []
        for name, mask in zip(PARTS, (train, val, test), strict=True):
            array = to_numpy(mask, f"{name} mask")
            if array.ndim == 2:
                if not 0 <= column < array.shape[1]:
                    raise GraphError(f"column is {column} but the {name} mask has {array.shape[1]} columns")
                array = array[:, column]
            if array.ndim != 1:
                raise GraphError(f"the {name} mask has shape {list(array.shape)}; it must be [n] or [n, splits]")
            masks.append(_to_mask(array, name))
        if len({len(mask) for mask in masks}) > 1:
            raise GraphError(f"the masks have lengths {', '.join(str(len(mask)) for mask in masks)}; they must agree")
        return cls(*(np.flatnonzero(mask) for mask in masks))

    @classmethod
    def from_pyg(cls, data: Any, column: int = 0) -> Split:
        """Make a split from the train_mask, val_mask and test_mask of a `torch_geometric.data.Data`."""
        masks = [getattr(data, f"{part}_mask", None) for part in PARTS]
        missing = [f"{part}_mask" for part, mask in zip(PARTS, masks, strict=True) if mask is None]
        if missing:
            raise GraphError(f"data has no {', '.join(missing)}: use Split.random")
        return cls.from_masks(masks[0], masks[1], masks[2], column)

    @classmethod
    def from_files(cls, train: str | Path, val: str | Path | None = None, test: str | Path | None = None) -> Split:
        """Read a split from one `.npz` with train, val (or valid) and test, or from three files of node ids.

        The three files are .npy or text, one id per line. Arrays of an `.npz` are masks if they hold booleans or are
        named `train_mask` and so on.
        """
        if val is None and test is None:
            return cls._from_npz(Path(train))
        if val is None or test is None:
            raise GraphError("from_files takes one .npz file, or three files: train, val and test")
        return cls(*(_read_ids(Path(file)) for file in (train, val, test)))

    @classmethod
    def _from_npz(cls, file: Path) -> Split:
        parts = read_parts(file)
        train, val, test = (parts[part] for part in PARTS)
        return cls.from_masks(train, val, test) if train.dtype.kind == "b" else cls(train, val, test)

    def redraw(self, labels: Any, seed: int | Sequence[int]) -> Split:
        """Draw training and validation nodes anew from the nodes of both parts; the test part stays.

        Both parts keep their sizes. Of class ids, each part also keeps its number of nodes of each class, so that a
        class with training nodes still has them. Labels of test nodes are not read.

        >>> split = Split([0, 1, 2], [3, 4], [5])
        >>> again = split.redraw([0, 1, 1, 0, 1, 1], seed=0)
        >>> again.train.tolist(), again.val.tolist(), again.test.tolist()
        ([0, 1, 4], [2, 3], [5])
        """
        nodes = np.sort(np.concatenate([self.train, self.val]))
        values = _check_labels(labels)[nodes]
        has_classes = values.ndim == 1 and values.dtype.kind in "iu"
        groups = [nodes[values == label] for label in np.unique(values)] if has_classes else [nodes]
        generator = np.random.default_rng(seed)
        train = [generator.permutation(group)[: np.isin(group, self.train).sum()] for group in groups]
        drawn = np.concatenate(train)
        return Split(drawn, np.setdiff1d(nodes, drawn), self.test)

    def save(self, path: str | Path, num_nodes: int | None = None) -> Path:
        """Write the split as one `.npz` file that `from_files` reads; with `num_nodes` as masks of that length.

        Masks are rows of the graph, whatever its nodes are called.
        """
        parts = {part: getattr(self, part) for part in PARTS}
        if num_nodes is not None:
            parts = {f"{part}_mask": np.isin(np.arange(num_nodes), nodes) for part, nodes in parts.items()}
        with replace_file(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **parts)
        return Path(path)

    def check(self, num_nodes: int, labels: Any = None, class_names: Sequence[str] | None = None) -> Split:
        """Check that all nodes exist and are labelled; warn of classes without a training node. Return the split."""
        for part in PARTS:
            nodes = getattr(self, part)
            if nodes[-1] >= num_nodes:
                raise GraphError(f"{part} contains node {nodes[-1]} but the graph has {num_nodes} nodes")
        if labels is not None:
            values = _check_labels(labels)
            if len(values) != num_nodes:
                raise GraphError(f"labels has {len(values)} rows but the graph has {num_nodes} nodes")
            for part in PARTS:
                nodes = getattr(self, part)
                unlabelled = nodes[~known_labels(values[nodes])]
                if unlabelled.size:
                    raise GraphError(
                        f"{part} contains node {unlabelled[0]}, which has no label ({unlabelled.size} do not)"
                    )
            unseen = _unseen_classes(values, self.train)
            if unseen.size:
                names = [f"{c} ({class_names[c]})" if class_names else str(c) for c in unseen[:_MOST_NAMED]]
                more = f" and {unseen.size - _MOST_NAMED} more" if unseen.size > _MOST_NAMED else ""
                text = f"no training node has class {', '.join(names)}{more}: it cannot be learned"
                warnings.warn(text, UserWarning, stacklevel=2)
        return self

    def __repr__(self) -> str:
        return f"Split(train={len(self.train):,}, val={len(self.val):,}, test={len(self.test):,})"


class Known(Split):
    """A split of which only the training part must have nodes: there is nothing to be compared."""

    def __post_init__(self) -> None:
        """Check nothing: the parts come from distinct nodes of a graph."""


def _times(times: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return times as datetime64 or float64, and where there is one."""
    if hasattr(times, "to_numpy") and not isinstance(times, np.ndarray):
        times = times.to_numpy()
    array = np.asarray(times)
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]"), ~np.isnat(array)
    if array.dtype.kind not in "iuf":
        example = next((entry for entry in array.tolist() if entry), None)
        if example is None:
            raise GraphError("no node has a time: the column of times is empty")
        raise GraphError(f"the column of times holds '{example}'; it must hold numbers, or dates as 2024-01-31")
    return array.astype(np.float64), np.isfinite(array.astype(np.float64))


def _moment(text: str, dtype: np.dtype[Any], *, what: str) -> Any:
    """Return the last moment of a time that is given as text; a day counts to its end."""
    if dtype.kind == "f":
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{what} is {text!r}; the times are numbers, so it must be one") from None
    try:
        moment = np.datetime64(str(text).strip().replace(" ", "T"))
    except ValueError:
        raise ConfigError(f"{what} is {text!r}; write a date as 2024-01-31 or 2024-01-31 12:00") from None
    if np.isnat(moment):
        raise ConfigError(f"{what} is {text!r}; write a date as 2024-01-31 or 2024-01-31 12:00")
    # The next day, month or year begins one microsecond after the last moment.
    return (moment + 1).astype("datetime64[us]") - np.timedelta64(1, "us")


def read_parts(file: Path) -> dict[str, NDArray[Any]]:
    """Read train, val (or valid) and test of an `.npz` file: three boolean masks or three arrays of ids."""
    arrays = read_npz(file)
    parts, masks = {}, []
    for part in PARTS:
        keys = [part, f"{part}_mask", *(["valid", "valid_mask"] if part == "val" else [])]
        key = next((key for key in keys if key in arrays), None)
        if key is None:
            raise StoreError(f"{file} has no array '{part}' (it has: {', '.join(sorted(arrays)) or 'nothing'})")
        masks.append(key.endswith("_mask") or arrays[key].dtype.kind == "b")
        parts[part] = _to_mask(arrays[key], part) if masks[-1] else arrays[key]
    if any(masks) != all(masks):
        raise StoreError(f"{file} mixes masks and node ids: use one of them")
    return parts


def _read_ids(file: Path) -> NDArray[Any]:
    if file.suffix.lower() != ".npy":
        lines = [(number, line) for number, line in enumerate(read_lines(file), 1) if line.strip()]
        if lines and lines[0][1].strip().lower() in NODE_TITLES:
            del lines[0]
        return np.asarray([_parse_id(line, file, number=number) for number, line in lines])
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        array: NDArray[Any] = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise StoreError(f"{file} is not a readable list of node ids: {error}") from error
    return array


def _parse_id(line: str, file: Path, *, number: int) -> int:
    try:
        return int(line)
    except ValueError:
        raise GraphError(
            f"{file} line {number}: {line.strip()!r} is not a node id (one whole number per line)"
        ) from None


def _check_part(value: Any, part: str) -> NDArray[np.int64]:
    """Check that a part is a non-empty list of distinct node ids; return them in ascending order."""
    array = to_numpy(value, part)
    if array.dtype.kind == "b":
        raise GraphError(f"{part} holds booleans; Split takes node ids: use Split.from_masks")
    if array.ndim != 1:
        raise GraphError(f"{part} has shape {list(array.shape)}; it must be a list of node ids")
    if array.size == 0:
        raise GraphError(f"{part} is empty: every part of a split needs at least one node")
    nodes = np.sort(to_whole_numbers(array, part).astype(np.int64))
    if nodes[0] < 0:
        raise GraphError(f"{part} contains node {nodes[0]}; node ids start at 0")
    repeated = nodes[1:][nodes[1:] == nodes[:-1]]
    if repeated.size:
        raise GraphError(f"{part} contains node {repeated[0]} more than once")
    return nodes


def _to_mask(array: NDArray[Any], part: str) -> NDArray[np.bool_]:
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise GraphError(f"the {part} mask must be booleans of shape [n] or [n, splits]")
    return array.astype(np.bool_)


def _part_size(size: float | int, part: str, *, available: int) -> int:
    """Return the number of nodes of a part that is given as a number or as a fraction of those available."""
    if not is_number(size):
        raise GraphError(f"{part} is {size!r}; give a fraction (0.6) or a number of nodes (940)")
    if isinstance(size, int | np.integer):
        if size < 1:
            raise GraphError(f"{part} is {size}; a number of nodes must be at least 1")
        return int(size)
    if not 0 < size < 1:
        raise GraphError(f"{part} is {size}; a fraction must lie between 0 and 1")
    return round(float(size) * available)


def _check_labels(labels: Any) -> NDArray[Any]:
    values = to_numpy(labels, "labels")
    if values.dtype.kind not in "iufb" or values.ndim not in (1, 2):
        raise GraphError(f"labels is {values.dtype} of shape {list(values.shape)}; it must hold numbers, [n] or [n, c]")
    return values


def _unseen_classes(labels: NDArray[Any], train: NDArray[np.int64]) -> NDArray[Any]:
    """Return the classes (or label columns) that occur, but in no training node."""
    if labels.dtype.kind == "f":
        return np.empty(0, dtype=np.int64)
    if labels.ndim == 1:
        return np.setdiff1d(labels[labels >= 0], labels[train])
    return np.flatnonzero((labels == 1).any(axis=0) & ~(labels[train] == 1).any(axis=0))


def _nodes_by_class(labels: NDArray[Any], what: str) -> list[NDArray[np.int64]]:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise GraphError(f"{what} needs class ids of shape [n], not {labels.dtype} of shape {list(labels.shape)}")
    return [np.flatnonzero(labels == label) for label in np.unique(labels[labels >= 0])]
