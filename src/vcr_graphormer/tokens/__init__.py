"""Token lists: what is in one, how they are made, where they are stored."""
