"""`ModelConfig`: the section `[model]`, readable without importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.checks import check_choice, check_fraction, check_whole, setting
from ..errors import ConfigError

READOUTS = ("attention", "mean", "sum", "target")
MOST_LABEL_HOPS = 4  # beyond, the own part of a label hop needs the third power of P


@dataclass(frozen=True)
class ModelConfig:
    """The transformer that reads a token list. The defaults of the switches are the paper's model."""

    hidden_channels: int = setting(128, "width of the model")
    heads: int = setting(8, "attention heads; they divide hidden_channels")
    layers: int = setting(1, "encoder layers")
    feedforward: int = setting(2, "width of the feed-forward part, in multiples of hidden_channels")
    dropout: float = setting(0.1, "dropout on the outputs of attention and feed-forward parts")
    attention_dropout: float = setting(0.1, "dropout on attention weights")
    readout: str = setting("attention", "attention (target token plus weighted others), mean, sum or target")
    kind_embedding: bool = setting(False, "learn a vector per kind of token: self, hop l, structure, content")
    rank_embedding: bool = setting(False, "learn a vector per rank in either list of neighbours")
    rich_tokens: int = setting(0, "hops of its own each node token carries: X(i), (PX)(i) … (P^r X)(i)")
    label_hops: int = setting(0, "hop tokens 1 … l carry the training labels around, the target's own left out")
    label_embedding: bool = setting(False, "tokens that are training nodes carry their label, never the target")
    adjacency_rows: bool = setting(False, "each node token carries A(i, :), which nodes it is linked to")
    feature_dropout: float = setting(0.0, "dropout on input features")
    embedding_dropout: float = setting(0.0, "dropout on tokens after their projection")
    token_dropout: float = setting(0.0, "share of tokens hidden at random while training, never the target")

    def check(self, num_hops: int) -> ModelConfig:
        """Refuse what cannot be built for token lists with that many hops."""
        for name in ("hidden_channels", "heads", "feedforward"):
            check_whole(self, "model", name, 1)
        for name in ("layers", "rich_tokens", "label_hops"):
            check_whole(self, "model", name, 0)
        for name in ("dropout", "attention_dropout", "feature_dropout", "embedding_dropout", "token_dropout"):
            check_fraction(self, "model", name)
        check_choice(self, "model", "readout", READOUTS)
        if self.hidden_channels % self.heads:
            raise ConfigError(
                f"model.hidden_channels is {self.hidden_channels}; it must be a multiple of model.heads ({self.heads})"
            )
        for name in ("rich_tokens", "label_hops"):
            if getattr(self, name) > num_hops:
                raise ConfigError(
                    f"model.{name} is {getattr(self, name)} but the token lists have {num_hops} hops: raise tokens.hops"
                )
        if self.label_hops > MOST_LABEL_HOPS:
            raise ConfigError(f"model.label_hops is {self.label_hops}; it must be at most {MOST_LABEL_HOPS}")
        return self
