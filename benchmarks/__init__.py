"""Benchmarks, studies and baselines: everything that measures the package, and is not shipped with it."""
