"""`TokenStore`: the token lists of all nodes, memory-mapped from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..base.checks import REMOVED, without_removed
from ..base.folders import MANIFEST, differences, open_folder, verify_folder
from ..base.machine import format_bytes
from ..errors import StoreError
from .config import TokenConfig
from .distinct import places_before
from .kinds import CONTENT, OPTIONAL
from .lists import TokenLists

FORMAT_VERSION = 1
KIND = "token store"
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
        folder = Path(path)
        if folder.is_dir() and not (folder / MANIFEST).exists() and (folder / "parts").is_dir():
            raise StoreError(
                f"{folder} is an unfinished token store: run tokenize again with the same settings to resume"
            )
        meta, arrays = open_folder(folder, KIND, FORMAT_VERSION)
        more_kinds = tuple((str(name), bool(left_out)) for name, left_out in meta.get("kinds", ()))
        config, settings = _stored_settings(meta.get("config"), folder)
        kinds = [*ALWAYS, *(kind.name for kind in OPTIONAL if kind.count(settings)), *(name for name, _ in more_kinds)]
        missing = {"config", "identity"} - meta.keys()
        missing |= {f"{kind}_{part}" for kind in kinds for part in ("ids", "scores", "assignment")} - arrays.keys()
        if missing:
            raise StoreError(f"{folder} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        num_nodes = len(arrays["structure_ids"])
        for name, array in arrays.items():
            per_node = name.endswith(("_ids", "_scores", "_assignment")) or (name.startswith("hop") and array.ndim == 2)
            if per_node and len(array) != num_nodes:
                raise StoreError(f"{folder} is damaged: {name} has {len(array)} rows, structure_ids has {num_nodes}")
        gone = {f"setting {name}" for name in REMOVED["tokens"]}
        identity = {name: value for name, value in meta["identity"].items() if name not in gone}
        store = cls(config=config, arrays=arrays, more_kinds=more_kinds, path=folder, identity=identity)
        store = replace(store, growth=dict(meta.get("growth", {})))
        for kind, width in places_before(store.layout.counts, settings).items():
            shared = store.shared(kind)
            if shared is None or shared.shape != (num_nodes, width):
                raise StoreError(f"{folder} is damaged: its lists are distinct, but {kind}_shared is not as it must be")
        return store

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
    if settings.content not in CONTENT:
        raise StoreError(f"{folder} is damaged: its content is {settings.content!r}")
    return config, settings
