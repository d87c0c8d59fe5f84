"""Describe the prediction of one node: its tokens with names, distances and labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.text import html_table
from ..data.graph import Graph
from ..data.tasks import TASKS, find_class, name_classes
from ..tokens.layout import HOP, NEIGHBOURS
from .attributions import Attributions
from .distances import hop_distances

COLUMNS = ("token", "node", "score", "hops away", "training label", "attention", "readout", "effect")
CAPTION = (
    "attention, readout: weight of the token in the encoder and in the final vector. "
    "effect: by how much hiding the token lowers the number above. score: by the first of the kinds named."
)


@dataclass(frozen=True)
class Token:
    """One token of an explained node; a field is None where it does not apply.

    `kind` is the kind of its place in the list, and `score` the score by that kind. `kinds` has the scores by all kinds
    that propose it; the model reads their sum.
    """

    kind: str
    hop: int | None
    node: int | None
    name: str | None
    score: float
    distance: int | None
    label: str | None
    attention: float | None
    readout: float
    effect: float
    kinds: dict[str, float]


@dataclass(frozen=True)
class Explanation:
    """The prediction of one node and its tokens: the node itself, its hops, its neighbours kind by kind.

    `kind_effects` has the effect of hiding all tokens of a group: all hops (`hop`), each kind of neighbour, and all
    `neighbours`. `without_neighbours` has the outputs without any neighbour; it is empty where a list has none.
    `predicted` and `predicted_without` are the classes that both predict. `threshold` has the class that a threshold
    decides, and its value.
    """

    node: int
    name: str | None
    task: str
    outputs: dict[str, float]
    explained: str
    label: str | None
    tokens: tuple[Token, ...]
    kind_effects: dict[str, float] = field(default_factory=dict)
    without_neighbours: dict[str, float] = field(default_factory=dict)
    predicted: str | None = None
    predicted_without: str | None = None
    threshold: tuple[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    def title(self) -> str:
        """Return node, prediction and label in one line."""
        name = f" ({self.name})" if self.name is not None else ""
        value = self.outputs[self.explained]
        gives_values = TASKS[self.task].gives_values
        prediction = f"value {value:.5g}" if gives_values else f"{self.explained} with probability {value:.4f}"
        if self.threshold is not None:
            prediction += f" ({self.threshold[0]} is said from {self.threshold[1]:.4f} on)"
        return f"node {self.node}{name}: {prediction}; its label: {'unknown' if self.label is None else self.label}"

    def without_neighbours_in_words(self) -> str:
        """Say what the prediction would be without the neighbours."""
        outputs, without, explained = self.outputs, self.without_neighbours, self.explained
        if not without:
            return "Its list has no neighbours."
        before, after = outputs[explained], without[explained]
        if TASKS[self.task].gives_values:
            return f"Without its neighbours the model would say {after:.5g} instead of {before:.5g}."
        predicted = self.predicted or max(outputs, key=outputs.__getitem__)
        instead = self.predicted_without or max(without, key=without.__getitem__)
        change = f"{after:.3f} instead of {before:.3f}"
        if explained != predicted or not TASKS[self.task].has_classes:
            return f"Without its neighbours the probability of {explained} would be {change}."
        if self.threshold is not None:  # the more probable class may not be the one that is said
            name, least = self.threshold
            said = f"still say {predicted}" if instead == predicted else f"say {instead} instead of {predicted}"
            change = f"{without[name]:.3f} instead of {outputs[name]:.3f}"
            return (
                f"Without its neighbours the model would {said}: {name} has {change} and is said from {least:.3f} on."
            )
        if instead == predicted:
            return f"Without its neighbours the model would still say {predicted}, with {change}."
        return (
            f"Without its neighbours the model would say {instead} ({without[instead]:.3f}) "
            f"instead of {predicted} ({before:.3f})."
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the tokens as texts, one row per token and one text per entry of `COLUMNS`."""
        return [
            (
                f"hop {token.hop}" if token.hop is not None else " + ".join(token.kinds),
                "" if token.node is None else f"{token.node} {token.name or ''}".rstrip(),
                f"{token.score:.4f}",
                "" if token.distance is None else str(token.distance),
                token.label or "",
                "none" if token.attention is None else f"{token.attention:.4f}",
                f"{token.readout:.4f}",
                f"{token.effect:+.4f}",
            )
            for token in self.tokens
        ]

    def _repr_html_(self) -> str:
        """Return the explanation as notebooks show it."""
        return html_table(
            self.title(), self.rows(), header=COLUMNS, notes=[self.without_neighbours_in_words(), CAPTION]
        )


def describe(graph: Graph, attributions: Attributions, row: int, train: NDArray[np.int64], task: str) -> Explanation:
    """Return one row of the attributions with names, distances and training labels."""
    node = int(attributions.nodes[row])
    distances = hop_distances(graph, attributions.nodes[row : row + 1], attributions.ids[row : row + 1])[0]
    is_train = np.isin(attributions.ids[row], train)
    attends, layout, kinds = attributions.attends, attributions.layout, attributions.kinds
    tokens = []
    for place in np.flatnonzero(attributions.shown[row]):
        kind, token = layout.names[kinds[place]], int(attributions.ids[row, place])
        is_node = token >= 0
        tokens.append(
            Token(
                kind=kind,
                hop=int(place) if kind == HOP else None,
                node=token if is_node else None,
                name=_name(graph, token) if is_node else None,
                score=float(attributions.scores[row, place]),
                distance=int(place) if kind == HOP else int(distances[place]) if distances[place] >= 0 else None,
                # The node's own label is not an input of its prediction, so it is not shown.
                label=label_text(graph, token) if is_node and is_train[place] and place > 0 else None,
                attention=float(attributions.attention[row, place]) if attends else None,
                readout=float(attributions.readout[row, place]),
                effect=float(attributions.effect[row, place]),
                kinds=attributions.proposed_by(row, int(place)),
            )
        )
    names = output_names(graph, attributions.outputs.shape[1])
    has_neighbours = attributions.shown[row, layout.first_neighbour :].any()
    explained = names[int(attributions.column[row])]
    return Explanation(
        node=node,
        name=_name(graph, node),
        task=task,
        outputs=_named(names, attributions.outputs[row]),
        explained=explained,
        label=label_text(graph, node),
        tokens=tuple(tokens),
        kind_effects={name: float(effects[row]) for name, effects in attributions.kind_effects.items()},
        without_neighbours=_named(names, attributions.without[NEIGHBOURS][row]) if has_neighbours else {},
        predicted=names[int(attributions.predicted[row])],
        predicted_without=names[int(attributions.decide(attributions.without[NEIGHBOURS])[row])]
        if has_neighbours
        else None,
        threshold=None if (least := attributions.threshold) is None else (names[least.column], least.value),
    )


def _named(names: list[str], values: NDArray[np.float32]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def output_names(graph: Graph, count: int) -> list[str]:
    """Return the names of classes, labels or targets; numbers where they have none."""
    return name_classes(graph.class_names, count)


def find_output(graph: Graph, count: int, output: Any) -> int:
    """Return the column of a class, label or target, given its name or number."""
    return find_class(output, output_names(graph, count))


def label_text(graph: Graph, node: int) -> str | None:
    """Return the label of a node as text; None if it has none."""
    if graph.labels is None:
        return None
    names = output_names(graph, graph.num_classes)
    return TASKS[graph.task].label_text(np.asarray(graph.labels)[node], names)


def _name(graph: Graph, node: int) -> str | None:
    return None if graph.names is None else str(graph.names[node])
