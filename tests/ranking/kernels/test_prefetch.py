"""Fetching ahead changes nothing, and the processor is asked for it."""

import numba as nb
import numpy as np
import pytest

from vcr_graphormer.ranking.kernels.prefetch import prefetch


@pytest.mark.parametrize("index", [0, 3, np.uint64(3), 10**6])
def test_fetching_reads_nothing(index: int) -> None:
    @nb.njit
    def fetch_and_add(array, index):  # type: ignore[no-untyped-def]
        prefetch(array, index)
        return array.sum()

    assert fetch_and_add(np.arange(5), index) == 10
    assert "llvm.prefetch" in next(iter(fetch_and_add.inspect_llvm().values()))
