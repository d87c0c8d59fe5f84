"""The compiled index of texts finds what Arrow finds."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute

from vcr_graphormer.data.readers.hashing import TextIndex

texts = st.text(st.sampled_from("ab\x00ü0"), max_size=20)


@settings(deadline=None)
@given(
    known=st.lists(texts, unique=True, max_size=60),
    asked=st.lists(st.lists(texts, max_size=8), max_size=4),
    skip=st.integers(0, 3),
)
def test_places_are_those_of_arrow(known: list[str], asked: list[list[str]], skip: int) -> None:
    values = pa.array(["", *known], pa.string())[1:]  # an array that does not begin at its buffer's start
    chunks = [pa.array([*part, *known[::2]], pa.string())[skip:] for part in asked]
    queries = pa.chunked_array(chunks, pa.string())
    expected = compute.fill_null(compute.index_in(queries, value_set=values), -7).to_numpy()
    np.testing.assert_array_equal(TextIndex(values).rows(queries, -7), expected)


def test_many_texts() -> None:
    numbers = np.random.default_rng(0).permutation(50_000)
    names = pa.array(numbers).cast(pa.string())
    asked = pa.chunked_array([pa.array(np.arange(60_000)).cast(pa.string())])
    expected = np.full(60_000, -1)
    expected[numbers] = np.arange(50_000)
    np.testing.assert_array_equal(TextIndex(names).rows(asked, -1), expected)
