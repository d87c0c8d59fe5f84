"""Read presets, the settings of known datasets: `presets/NAME.toml`, `NAME.reduced.toml` and `NAME.paper.toml`."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from ..data.catalogue import find_dataset
from ..errors import ConfigError, unknown_name

VARIANTS = ("default", "reduced", "no-neighbours", "paper", "hops", "pagerank")
# The settings that the other variants start from.
_FILES = {"default": "", "no-neighbours": "", "reduced": ".reduced"}
# What variants change in the settings of their file.
_CHANGES: dict[str, dict[str, int]] = {
    "no-neighbours": {"structure_tokens": 0, "content_tokens": 0, "link_tokens": 0, "nearest_tokens": 0},
    "hops": {"structure_tokens": 0, "content_tokens": 0},
    "pagerank": {"clusters": 0, "content_tokens": 0},
}


def load_preset(dataset: str, variant: str = "default") -> dict[str, dict[str, Any]]:
    """Return the TOML tables of a dataset's preset; empty where there is none, as for your own data.

    `default` is the full method with our best settings; `no-neighbours` is the same without neighbours. `reduced` are
    the best settings that leave parts of the method out; the first line of each file names them. `paper` is the paper's
    method with the authors' settings. Two variants of it leave something out: `hops` all neighbours (as NAGphormer
    does), `pagerank` all super nodes.

    >>> load_preset("Photo", "paper")["tokens"]["hops"], load_preset("my/own/data")
    (3, {})
    """
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS)
    published = find_dataset(dataset)
    no_presets = published is None or (variant not in _FILES and published.paper is None)
    if variant != "default" and no_presets:
        raise ConfigError(f"variant {variant} is for the paper's datasets: {dataset} is not among them")
    if published is None:
        return {}
    name = f"{published.name}{_FILES.get(variant, '.paper')}.toml"
    file = resources.files(__package__) / "presets" / name
    if not file.is_file():
        if variant == "default":
            return {}
        raise ConfigError(f"there are no settings of variant {variant} for {dataset}: leave out the variant")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    if variant in _CHANGES:
        tokens = tables["tokens"]
        tables["tokens"] = {**tokens, **_CHANGES[variant]}
        if variant == "pagerank":  # keeps the length of the list: as many neighbours as both kinds have together
            tables["tokens"]["structure_tokens"] = tokens["structure_tokens"] + tokens["content_tokens"]
        elif variant == "no-neighbours":
            tables["model"] = {**tables["model"], "rank_embedding": False}  # there is nothing to rank
    return tables
