"""Settings by dataset: `presets/NAME.toml` is our best, `presets/NAME.paper.toml` the authors' settings."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from ..data.catalogue import find_dataset
from ..errors import ConfigError, unknown_name

VARIANTS = ("default", "paper", "hops", "pagerank")
# Variants of the paper's settings that leave something out.
_CHANGES: dict[str, dict[str, int]] = {
    "hops": {"structure_tokens": 0, "content_tokens": 0},
    "pagerank": {"clusters": 0, "content_tokens": 0},
}


def load_preset(dataset: str, variant: str = "default") -> dict[str, dict[str, Any]]:
    """The TOML tables of a dataset's preset; empty for data of one's own.

    `default`: our best. `paper`: components 1 to 4 with the authors' settings. `hops`: of these, only the node and its
    hops (NAGphormer's form). `pagerank`: hops and neighbours of the plain graph, without super nodes.

    >>> load_preset("Photo", "paper")["tokens"]["hops"], load_preset("my/own/data")
    (3, {})
    """
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS)
    known = find_dataset(dataset)
    if variant != "default" and (known is None or known.paper is None):
        raise ConfigError(f"variant {variant} is for the paper's datasets: {dataset} is not among them")
    if known is None:
        return {}
    name = f"{known.name}.toml" if variant == "default" else f"{known.name}.paper.toml"
    tables = tomllib.loads((resources.files(__package__) / "presets" / name).read_text(encoding="utf-8"))
    if variant in _CHANGES:
        tokens = tables["tokens"]
        more = tokens["content_tokens"] if variant == "pagerank" else 0
        tables["tokens"] = {**tokens, **_CHANGES[variant]}
        if variant == "pagerank":  # as many neighbours as both kinds have together
            tables["tokens"]["structure_tokens"] = tokens["structure_tokens"] + more
    return tables
