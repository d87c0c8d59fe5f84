"""The products of the second level equal plain ones."""

import numpy as np

from vcr_graphormer.ranking.kernels.topk import mix


def test_mix() -> None:
    random = np.random.default_rng(1)
    coefficient, matrix = random.random(20), random.random((20, 20)).astype(np.float32)
    out, mean = np.empty(20, dtype=np.float32), matrix.mean(axis=0)
    mix(coefficient, 0.0, matrix, mean, out)
    np.testing.assert_allclose(out, coefficient @ matrix, rtol=1e-5)
    mix(coefficient, 2.0, matrix, mean, out)  # all are small: the mean row stands for them
    np.testing.assert_allclose(out, coefficient.sum() * mean, rtol=1e-5)
