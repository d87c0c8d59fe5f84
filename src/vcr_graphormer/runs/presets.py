"""Read presets, the settings of known datasets: `presets/NAME.toml`, `NAME.reduced.toml` and `NAME.paper.toml`.

`paper.toml` has the paper's model for every other graph.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from ..data.catalogue import find_dataset
from ..errors import ConfigError, unknown_name

PAPER = "paper.toml"
VARIANTS = ("default", "adaptive", "reduced", "no-neighbours", "paper", "hops", "pagerank")
# The settings that the other variants start from.
_FILES = {"default": "", "no-neighbours": "", "reduced": ".reduced"}
# What variants change in the settings of their file.
_CHANGES: dict[str, dict[str, int]] = {
    "no-neighbours": {"structure_tokens": 0, "content_tokens": 0, "link_tokens": 0, "nearest_tokens": 0},
    "hops": {"structure_tokens": 0, "content_tokens": 0},
    "pagerank": {"clusters": 0, "content_tokens": 0},
}


def load_preset(dataset: str, variant: str = "default") -> dict[str, dict[str, Any]]:
    """Return the TOML tables of a dataset's preset; empty where there is none, as for the default of your own data.

    `default` is the full method with our best settings; `no-neighbours` is the same without neighbours. `adaptive` are
    the settings of a graph without a preset. `reduced` are the best settings that leave parts of the method out; the
    first line of each file names them. `paper` is the paper's method with the authors' settings, or with moderate sizes
    where they give none, as for your own data. Two variants of it leave something out: `hops` all neighbours (as
    NAGphormer does), `pagerank` all super nodes.

    >>> load_preset("Photo", "paper")["tokens"]["hops"], load_preset("my/own/data")
    (3, {})
    >>> load_preset("Squirrel", "adaptive")
    {}
    """
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS)
    if variant == "adaptive":
        return {}
    published, folder = find_dataset(dataset), resources.files(__package__) / "presets"
    file = folder / f"{dataset if published is None else published.name}{_FILES.get(variant, '.paper')}.toml"
    tables: dict[str, dict[str, Any]] = {}
    if published is not None and file.is_file():
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    elif variant not in _FILES:
        tables = tomllib.loads((folder / PAPER).read_text(encoding="utf-8"))
    elif variant == "reduced":
        raise ConfigError(f"there are no settings of variant {variant} for {dataset}: leave out the variant")
    if tables:  # the graph of the paper has no directions; presets that keep them say so
        tables["data"] = {"directed": False, **tables.get("data", {})}
    if variant in _CHANGES:
        tokens = tables.get("tokens", {})
        tables["tokens"] = {**tokens, **_CHANGES[variant]}
        if variant == "pagerank":  # keeps the length of the list: as many neighbours as both kinds have together
            tables["tokens"]["structure_tokens"] = tokens["structure_tokens"] + tokens["content_tokens"]
        elif variant == "no-neighbours":
            model = {**tables.get("model", {}), "rank_embedding": False}  # there is nothing to rank, and nobody to vote
            tables["model"] = {**model, "readout": "attention"} if model.get("readout") == "votes" else model
    return tables
