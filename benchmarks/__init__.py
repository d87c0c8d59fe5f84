"""Everything that measures the package and is not shipped with it: benchmarks, studies and baselines."""
