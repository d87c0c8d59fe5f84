"""From token lists to logits: inputs, batches, the transformer."""
