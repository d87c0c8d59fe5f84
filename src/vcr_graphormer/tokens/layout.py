"""`Layout`: which token stands where in a list. The node itself comes first, then its hops, then its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SELF, HOP, NEIGHBOURS = "self", "hop", "neighbours"  # the last: neighbours of all kinds together


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of a token list: 1 node, L hops, then the neighbours kind by kind.

    Attributes
    ----------
    hops : int
        Number of hop tokens; the paper's L.
    counts : mapping of str to int
        Neighbours of each kind, in the order of the list; 0 is allowed. The paper's k̄ and k̂.

    >>> layout = Layout(hops=2, counts={"structure": 3, "content": 1})
    >>> layout.num_tokens, layout.places("content"), layout.kinds.tolist()
    (7, slice(6, 7, None), [0, 1, 1, 2, 2, 2, 3])
    """

    hops: int
    counts: Mapping[str, int]

    def _places(self) -> tuple[Any, ...]:
        """Return all that two equal layouts share: the order of kinds counts, which mappings ignore."""
        return self.hops, tuple(self.counts.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._places() == other._places()

    def __hash__(self) -> int:
        return hash(self._places())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the kinds of tokens: the node itself, hops, and every kind of neighbour."""
        return (SELF, HOP, *self.counts)

    @property
    def num_neighbours(self) -> int:
        """Return the number of neighbours of all kinds together."""
        return sum(self.counts.values())

    @property
    def first_neighbour(self) -> int:
        """Return the place of the first neighbour: after the node itself and its hops."""
        return 1 + self.hops

    @property
    def num_tokens(self) -> int:
        """Return the length of a list: 1 + L + k̄ + k̂, and more with more kinds."""
        return self.first_neighbour + self.num_neighbours

    def places(self, kind: str) -> slice:
        """Return the places of one kind of neighbour in the list."""
        before = list(self.counts)[: list(self.counts).index(kind)]
        start = self.first_neighbour + sum(self.counts[name] for name in before)
        return slice(start, start + self.counts[kind])

    @property
    def kinds(self) -> NDArray[np.int64]:
        """Return the kind of each place, as an index into `names` [S]."""
        return np.repeat(np.arange(len(self.names)), [1, self.hops, *self.counts.values()])

    @property
    def groups(self) -> dict[str, NDArray[np.bool_]]:
        """Return the places [S] of all hops, of each kind of neighbour, and of all neighbours; no empty groups.

        >>> groups = Layout(hops=2, counts={"structure": 3, "content": 0}).groups
        >>> {name: int(places.sum()) for name, places in groups.items()}
        {'hop': 2, 'structure': 3, 'neighbours': 3}
        """
        kinds = self.kinds
        groups = {name: kinds == number for number, name in enumerate(self.names) if name != SELF}
        groups[NEIGHBOURS] = np.arange(len(kinds)) >= self.first_neighbour
        return {name: places for name, places in groups.items() if places.any()}

    @property
    def embeddings(self) -> NDArray[np.int64]:
        """Return the embedding of each place [S]: 0 for the node, 1 … L for hops, then one per kind of neighbour.

        >>> Layout(hops=2, counts={"structure": 2, "content": 1}).embeddings.tolist()
        [0, 1, 2, 3, 3, 4]
        """
        kinds = self.kinds
        return np.where(kinds > 1, kinds + self.hops - 1, np.arange(len(kinds)))

    @property
    def num_embeddings(self) -> int:
        """Return how many different values `embeddings` can have."""
        return 1 + self.hops + len(self.counts)
