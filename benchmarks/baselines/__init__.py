"""Other methods on the same splits as ours, with a search of their own."""
