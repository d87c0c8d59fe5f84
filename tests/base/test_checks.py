"""Forms of JSON values."""

import pytest

from vcr_graphormer.base.checks import misfit


@pytest.mark.parametrize(
    ("form", "value"), [(float, 10**400), (int, 2**63), (int, -(2**63) - 1), ((float, None), 2**64)]
)
def test_numbers_beyond_64_bits_fit_nothing(form: object, value: int) -> None:
    """NumPy cannot ask whether they are NaN, and a float cannot hold them."""
    assert (misfit(value, form, "metrics.val") or "").startswith("metrics.val is ")


@pytest.mark.parametrize(
    ("form", "value"), [(float, 2**63 - 1), (int, -(2**63)), (float, 1e308), (float, float("nan"))]
)
def test_numbers_that_fit(form: object, value: float) -> None:
    assert misfit(value, form) is None
