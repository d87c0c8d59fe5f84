"""`TokenStore`: the token lists of all nodes, memory-mapped from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..base.checks import REMOVED, is_whole, misfit, without_removed
from ..base.files import to_path
from ..base.folders import MANIFEST, check_once, differences, open_folder, verify_folder
from ..base.machine import default_threads, format_bytes
from ..base.mapping import Closed, map_array
from ..data.contract import all_finite, check_form, check_range, check_sparse
from ..data.tasks import MOST_GAPPY_ID
from ..errors import ConfigError, GraphError, StoreError
from .config import TokenConfig
from .distinct import places_before
from .kinds import CONTENT, OPTIONAL, kinds_of
from .lists import COARSE, SPARSE_PARTS, TokenLists

FORMAT_VERSION = 1
KIND = "token store"
_HOPS_AT_ONCE = 4  # hops, most of the bytes of a store, that are checked together; chosen by hand
_COUNTS = ("nodes", "new", "changed", "updates")
_GROWTH = {**dict.fromkeys(_COUNTS, int), "refresh": str}  # what `update` writes
_MOST_COUNTED = 1 << 62  # no graph has more nodes; Python cannot multiply numbers of hundreds of digits by a float
ALWAYS = ("structure", "content")  # kinds whose arrays every store has, even without tokens


@dataclass(frozen=True, eq=False, repr=False)
class TokenStore(TokenLists):
    """The token lists of all nodes in a folder, with all that `TokenLists` offers. `tokenize` makes it.

    Attributes
    ----------
    path : Path
        The folder.
    identity : dict
        Hashes of what it was made from: adjacency, features, training nodes and their labels, settings.
    growth : dict
        For lists that `update` brought up to date: nodes at the last fresh start, and what was added since.
    """

    path: Path = Path()
    identity: dict[str, str] = field(default_factory=dict)
    growth: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path) -> TokenStore:
        """Open a finished store; refuse one that is unfinished, lacks arrays or rows, or has another format."""
        folder = to_path(path)
        if folder.is_dir() and not (folder / MANIFEST).exists() and (folder / "parts").is_dir():
            raise StoreError(
                f"{folder} is an unfinished token store: run tokenize again with the same settings to resume"
            )
        meta, arrays = open_folder(folder, KIND, FORMAT_VERSION)
        more_kinds = _stored_kinds(meta.get("kinds", []), folder)
        config, settings = _stored_settings(meta.get("config"), folder)
        kinds = [*ALWAYS, *(kind.name for kind in OPTIONAL if kind.count(settings)), *(name for name, _ in more_kinds)]
        missing = {"config", "identity"} - meta.keys()
        missing |= {f"{kind}_{part}" for kind in kinds for part in ("ids", "scores", "assignment")} - arrays.keys()
        if missing:
            raise StoreError(f"{folder} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        if problem := misfit(meta["identity"], {"*": str}, "its identity"):
            raise StoreError(f"{folder} is damaged: {problem}")
        gone = {f"setting {name}" for name in REMOVED["tokens"]}
        identity = {name: value for name, value in meta["identity"].items() if name not in gone}
        store = cls(config=config, arrays=arrays, more_kinds=more_kinds, path=folder, identity=identity)
        store = replace(store, growth=_stored_growth(meta.get("growth", {}), folder))
        check_once(folder, lambda: store._check_arrays(kinds))
        return store

    def _check_arrays(self, kinds: list[str]) -> None:
        """Refuse arrays that do not fit together, before a model or a compiled loop reads them."""
        arrays, widths = self.arrays, {kind.name: kind.count(self.settings) for kind in kinds_of(self.settings)}
        for name in (f"{kind}_ids" for kind in kinds):
            if arrays[name].ndim != 2:
                raise GraphError(f"{name} has {arrays[name].ndim} dimensions; it must have 2")
        num_nodes = len(arrays["structure_ids"])
        for kind in kinds:
            ids, scores, assignment = (arrays[f"{kind}_{part}"] for part in ("ids", "scores", "assignment"))
            # No setting tells the width of the user's own kinds.
            check_form(ids, "int32", (num_nodes, widths.get(kind, int(ids.shape[1]))), name=f"{kind}_ids")
            check_form(scores, self.settings.score_type, ids.shape, name=f"{kind}_scores")
            check_form(assignment, "int32", (num_nodes,), name=f"{kind}_assignment")
            check_range(ids, -1, num_nodes - 1, name=f"{kind}_ids")
            check_range(assignment, -1, max(num_nodes, MOST_GAPPY_ID), name=f"{kind}_assignment")
            if not all_finite(scores):
                raise GraphError(f"{kind}_scores must be finite")
        before = places_before(self.layout.counts, self.settings)
        for kind, width in before.items():
            shared = self.shared(kind)
            if shared is None or shared.dtype != self.scores(kind).dtype or shared.shape != (num_nodes, width):
                raise GraphError(f"its lists are distinct, but {kind}_shared is not as it must be")
            if not all_finite(shared):
                raise GraphError(f"{kind}_shared must be finite")
        if COARSE in arrays:
            check_form(arrays[COARSE], "int32", (num_nodes,), name=COARSE)
            check_range(arrays[COARSE], 0, num_nodes - 1, name=COARSE)
        for kind, name in [(kind, f"{kind}_reserve") for kind in kinds if f"{kind}_reserve" in arrays]:
            width = self.layout.counts[kind] + before.get(kind, 0)
            check_form(arrays[name], "int32", (num_nodes, width), name=name)
            check_range(arrays[name], -1, num_nodes - 1, name=name)
        hops = []
        for number in range(1, self.num_hops + 1):  # stops at the first one that is missing: a file may name any number
            hops.append(f"hop_{number}")
            if hops[-1] not in arrays and any(f"{hops[-1]}_{part}" not in arrays for part in SPARSE_PARTS):
                raise GraphError(f"its manifest lacks {hops[-1]}")
        with ThreadPoolExecutor(min(default_threads(None), _HOPS_AT_ONCE)) as pool:
            for _ in pool.map(partial(self._check_hop, shape=(num_nodes, self.num_features)), hops):
                pass  # an error is raised here

    def _check_hop(self, name: str, shape: tuple[int, int]) -> None:
        if name in self.arrays:
            hop = map_array(self.path / f"{name}.npy")  # so that the pages of few hops at a time are in memory
            check_form(hop, self.settings.hop_type, shape, name=name)
            if not all_finite(hop):
                raise GraphError(f"{name} must be finite")
            return
        data, indices, indptr = (self.arrays[f"{name}_{part}"] for part in SPARSE_PARTS)
        check_sparse(data, indices, indptr, shape=shape, name=name)

    def close(self) -> None:
        """Let go of the mapped files; the lists cannot be used afterwards. No file descriptor is held until then."""
        for name in self.arrays:
            self.arrays[name] = Closed(str(self.path))  # type: ignore[assignment]

    def __enter__(self) -> TokenStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def verify(self) -> None:
        """Compare every array with its checksum."""
        verify_folder(self.path)

    def check(self, identity: Mapping[str, str]) -> TokenStore:
        """Refuse another graph, split or configuration, and name what differs; otherwise return this store."""
        different = differences(identity, self.identity)
        if different:
            way = "tokenize into another folder"
            if different == ["setting distinct"]:
                way += f", or set tokens.distinct={str(self.settings.distinct).lower()}, as it was made"
            raise StoreError(f"{self.path} belongs to another {', '.join(different)}: {way}")
        return self

    @property
    def where(self) -> str:
        """Return the folder, as error messages name it."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"TokenStore({self.path}: {super().__repr__()}, {format_bytes(self.num_bytes)})"


def _stored_kinds(kinds: Any, folder: Path) -> tuple[tuple[str, bool], ...]:
    """Return kinds that no setting names, as `TokenLists` has them; refuse other values."""
    pairs: list[Any] = kinds if isinstance(kinds, list) else [None]
    if not all(isinstance(pair, list) and [type(value) for value in pair] == [str, bool] for pair in pairs):
        raise StoreError(f"{folder} is damaged: its kinds are {kinds!r}")
    return tuple((name, left_out) for name, left_out in pairs)


def _stored_growth(growth: Any, folder: Path) -> dict[str, Any]:
    """Return what `update` says about lists that it brought up to date, empty for others; refuse other values."""
    if growth == {}:
        return {}
    problem = misfit(growth, _GROWTH, "its growth")
    wrong = [] if problem else [name for name in _COUNTS if not 0 <= growth[name] <= _MOST_COUNTED]
    if problem or wrong:
        problem = problem or f"its growth.{wrong[0]} is {growth[wrong[0]]!r:.50}; it must be 0 to 2**62"
        raise StoreError(f"{folder} is damaged: {problem}. Tokenize again")
    return dict(growth)


def _stored_settings(config: Any, folder: Path) -> tuple[dict[str, Any], TokenConfig]:
    """Return the settings in a manifest; refuse those that are damaged or that this version does not have."""
    names = {item.name for item in fields(TokenConfig)}
    if not isinstance(config, dict) or not {"hops", "num_features"} <= config.keys():
        raise StoreError(f"{folder} is damaged: its manifest has no settings")
    how: dict[str, Any] = {"subject": f"{folder} was made with", "way": "tokenize again", "error": StoreError}
    config = without_removed("tokens", config, **how)
    if unknown := sorted(config.keys() - names - {"num_features"}):
        raise StoreError(f"{folder} was made with settings that this version does not know: {', '.join(unknown)}")
    settings = TokenLists(config, {}).settings
    counts = {"num_features": config["num_features"], "hops": settings.hops}
    flags = {"distinct": settings.distinct, "self_loops": settings.self_loops}
    wrong = [name for name, value in counts.items() if not is_whole(value, plain=True) or value < 0]
    wrong += [name for name, value in flags.items() if not isinstance(value, bool)]
    if wrong:
        raise StoreError(f"{folder} is damaged: its {wrong[0]} is {(counts | flags)[wrong[0]]!r}")
    try:
        settings.check()
    except ConfigError as error:
        raise StoreError(f"{folder} is damaged: {error}") from error
    if settings.content not in CONTENT:
        raise StoreError(f"{folder} is damaged: its content is {settings.content!r}")
    return config, settings
