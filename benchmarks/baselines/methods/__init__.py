"""The baselines, one file each, written from their papers."""
