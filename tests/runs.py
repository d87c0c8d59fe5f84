"""A small run that many tests train: seconds at most."""

import vcr_graphormer as vcr

CONFIG = vcr.Config(
    tokens=vcr.TokenConfig(hops=2, clusters=4, structure_tokens=3, content_tokens=3),
    model=vcr.ModelConfig(hidden_channels=16, heads=2),
    training=vcr.TrainConfig(epochs=3, batch_size=64, warmup_steps=5, learning_rate=0.01),
)
