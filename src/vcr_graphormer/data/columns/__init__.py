"""Columns of tables as features: types and names, matching by name, preparation learned from training nodes."""
