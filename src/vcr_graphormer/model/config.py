"""`ModelConfig`: the settings of the transformer, section `[model]`. It does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.checks import AUTO, check_choice, check_fraction, check_resolved, check_whole, setting
from ..base.machine import available_memory, format_bytes
from ..errors import ConfigError

COMBINATIONS = ("joint", "gated")
VOTES = "votes"  # the readout that predicts by each neighbour; only where paths are gated
READOUTS = ("attention", "mean", "target", VOTES)
MOST_LABEL_HOPS = 4  # for more, taking a node's own label out needs the third power of P


@dataclass(frozen=True)
class ModelConfig:
    """The settings of the transformer that reads a token list: section `[model]`.

    The default is the full method: hops and four kinds of neighbours, joined by a gate, with labels as inputs. Numbers
    that are AUTO are chosen for the graph by `adapt`. The paper's model is `--variant paper`.

    Attributes
    ----------
    hidden_channels : int
        Width of the model.
    heads : int
        Attention heads; their number divides `hidden_channels`.
    layers : int
        Encoder layers. 0 reads the tokens out as they are.
    members : int
        Models of this form that are trained at once, each with its own weights, and predict together.
    combine : str
        `joint`: one path reads the whole list, as in the paper. `gated`: a first path without encoder layers reads the
        node and its hops, or with the readout `target` the node alone, unless `own_hops`. A second path reads the whole
        list. A learned gate says how much of the second is added.
    dropout : float
        Fraction of the outputs of attention and feed-forward parts that are hidden while training.
    attention_dropout : float
        Fraction of attention weights that are hidden while training.
    readout : str
        How tokens become one vector: `attention` (the target plus weighted others), `mean` or `target`. With `votes`,
        where paths are `gated`, each neighbour votes: the second path adds up their logits, divided by their number.
    own_hops : bool
        Where paths are `gated`: whether the first path reads the hops, too, by attention, even if the second has the
        readout `target`.
    kind_embedding : bool
        Whether to learn a vector per kind of token: the node, each hop, each kind of neighbour.
    rank_embedding : bool
        Whether to learn a vector per rank in each list of neighbours.
    rich_tokens : int
        Hops that every node token carries in addition to its features: (PX)(i) … (P^r X)(i).
    label_hops : int
        Hop tokens that carry the training labels around the node, its own left out.
    label_embedding : bool
        Whether neighbours that are training nodes carry their label; the target never does.
    rich_labels : bool
        Whether neighbours carry the training labels around them, (P Y)(i), without the target's part.
    adjacency_rows : bool
        Whether each node token carries which nodes it is linked to: A(i, :).
    normalize_rows : bool
        Whether the features of each node, and of each of its hops, are divided by the sum of their absolute values.
    feature_dropout : float
        Fraction of the entries of input features that are hidden while training.
    embedding_dropout : float
        Fraction of the entries of projected tokens that are hidden while training.
    token_dropout : float
        Fraction of whole tokens that are hidden while training; the target never is.
    neighbour_dropout, own_dropout : float
        Where paths are `gated`: fractions of the nodes of a step that are predicted without the second path, and
        without the first. A path that is often alone learns to predict alone.
    """

    hidden_channels: int = setting(AUTO, "width of the model; auto: by training nodes")
    heads: int = setting(8, "attention heads; they divide hidden_channels")
    layers: int = setting(1, "encoder layers")
    members: int = setting(AUTO, "models that are trained at once and predict together; auto: by training nodes")
    combine: str = setting(
        "gated", "joint: one path reads all tokens; gated: neighbours come in through a learned gate"
    )
    dropout: float = setting(AUTO, "fraction of the outputs of attention and feed-forward parts hidden in training")
    attention_dropout: float = setting(0.1, "fraction of attention weights hidden in training")
    readout: str = setting(
        "target", "attention (target token plus weighted others), mean or target; gated: votes (of each neighbour)"
    )
    own_hops: bool = setting(
        AUTO, "gated: the first path reads hops by attention; auto: if linked nodes mostly share a class"
    )
    kind_embedding: bool = setting(True, "learn a vector per kind of token: self, each hop, each kind of neighbour")
    rank_embedding: bool = setting(True, "learn a vector per rank in each list of neighbours")
    rich_tokens: int = setting(AUTO, "hops that each node token carries besides its features: (PX)(i) … (P^r X)(i)")
    label_hops: int = setting(AUTO, "hop tokens that carry the training labels around, the target's own left out")
    label_embedding: bool = setting(True, "tokens that are training nodes carry their label, never the target")
    rich_labels: bool = setting(
        AUTO, "neighbours carry the training labels around them, never the target's own; auto: by training nodes"
    )
    adjacency_rows: bool = setting(False, "each node token carries which nodes it is linked to, A(i, :)")
    normalize_rows: bool = setting(False, "divide each row of features, and of each hop, by its absolute sum")
    feature_dropout: float = setting(AUTO, "fraction of input features hidden in training; auto: by their number")
    embedding_dropout: float = setting(
        AUTO, "fraction of the entries of projected tokens hidden in training; auto: by number of features"
    )
    token_dropout: float = setting(0.2, "fraction of whole tokens hidden in training, never the target")
    neighbour_dropout: float = setting(AUTO, "gated: fraction of nodes trained without the path of the whole list")
    own_dropout: float = setting(AUTO, "gated: fraction of nodes trained without the first path; auto: a third")

    def check(self, num_hops: int) -> ModelConfig:
        """Refuse values out of range, or more hops than the token lists have."""
        for name in ("hidden_channels", "heads", "members"):
            check_whole(self, "model", name, 1)
        for name in ("layers", "rich_tokens", "label_hops"):
            check_whole(self, "model", name, 0)
        for name in (
            "dropout",
            "attention_dropout",
            "feature_dropout",
            "embedding_dropout",
            "token_dropout",
            "neighbour_dropout",
            "own_dropout",
        ):
            check_fraction(self, "model", name)
        _check_size(self)
        check_choice(self, "model", "readout", READOUTS)
        check_choice(self, "model", "combine", COMBINATIONS)
        for name in ("neighbour_dropout", "own_dropout"):
            if getattr(self, name) not in (0, AUTO) and self.combine != "gated":
                raise ConfigError(f"model.{name} is {getattr(self, name)}; it needs model.combine = 'gated'")
        if self.own_hops not in (False, AUTO) and self.combine != "gated":
            raise ConfigError("model.own_hops is true; it needs model.combine = 'gated'")
        if self.readout == VOTES and self.combine != "gated":
            raise ConfigError(f"model.readout is {VOTES}; it needs model.combine = 'gated'")
        if self.neighbour_dropout + self.own_dropout > 1:
            raise ConfigError(
                "model.neighbour_dropout and model.own_dropout are together more than 1: lower one of them"
            )
        if self.hidden_channels != AUTO and self.hidden_channels % self.heads:
            raise ConfigError(
                f"model.hidden_channels is {self.hidden_channels}; it must be a multiple of model.heads ({self.heads})"
            )
        for name in ("rich_tokens", "label_hops"):
            if getattr(self, name) > num_hops != AUTO:
                raise ConfigError(
                    f"model.{name} is {getattr(self, name)} but the token lists have {num_hops} hops: raise tokens.hops"
                )
        if self.label_hops > MOST_LABEL_HOPS:
            raise ConfigError(f"model.label_hops is {self.label_hops}; it must be at most {MOST_LABEL_HOPS}")
        return self

    def check_resolved(self) -> ModelConfig:
        """Refuse numbers that are still AUTO."""
        check_resolved(self, "model")
        return self


def _check_size(config: ModelConfig) -> None:
    """Refuse widths and layers whose weights alone do not fit into memory, before any of them is made."""
    width, layers, members = max(config.hidden_channels, 1), max(config.layers, 1), max(config.members, 1)
    # Float32 weights, gradients and two moments of four square matrices a layer: less than any model has.
    needed, free = 4 * 4 * 4 * width**2 * layers * members, available_memory()
    if needed > free:
        several = f", model.members is {members}" if members > 1 else ""
        raise ConfigError(
            f"model.hidden_channels is {width} and model.layers is {config.layers}{several}: the weights need more "
            f"than {format_bytes(needed)} of memory, {format_bytes(free)} are free"
        )
