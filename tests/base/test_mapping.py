"""A `.npy` file is mapped without a descriptor, and only if its header fits it."""

import gc
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcr_graphormer import StoreError
from vcr_graphormer.base.mapping import map_array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        np.array(["a", "long text"]),
        np.empty((0, 7)),
        np.float64(3),
        np.array([True, False]),
        np.arange(3, dtype=">i4"),
    ],
    ids=str,
)
def test_what_was_saved_comes_back(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    mapped = map_array(tmp_path / "x.npy")
    np.testing.assert_array_equal(mapped, array)
    assert mapped.dtype == array.dtype
    assert mapped.shape == array.shape
    assert not mapped.size or not mapped.flags.writeable


def test_copy_on_write(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    mapped = map_array(tmp_path / "x.npy", "c")
    mapped[0] = 1
    assert np.load(tmp_path / "x.npy").tolist() == [0, 0, 0]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_maps_hold_no_descriptor_and_end_with_the_last_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5000))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    arrays = [map_array(tmp_path / "x.npy") for _ in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    part = arrays[7][10:12]
    del arrays
    gc.collect()
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == 1
    assert part.tolist() == [10, 11]
    del part
    gc.collect()
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == 0


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode("latin1")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1.5,), }"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + b"x" * 8,
        header("{'descr': ['x'], 'fortran_order': False, 'shape': (), }"),
        header("{'descr': 'zzz', 'fortran_order': 7, 'shape': (1,), }"),
        header("(" * 5000),
        header("{" * 60000),
        header("9" * 6000),
        header("\xff\xfe"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", b"\x09\x00") + b"x" * 8,
    ],
)
def test_damaged_headers(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(StoreError, match=r"x\.npy is not a readable \.npy file of plain numbers"):
        map_array(tmp_path / "x.npy")


@given(bit=st.integers(0, 8 * 128 - 1), cut=st.integers(0, 200))
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_in_the_header_is_refused_or_harmless(bit: int, cut: int) -> None:
    file = Path(tempfile.gettempdir()) / f"flip-{os.getpid()}.npy"
    np.save(file, np.arange(9, dtype=np.int32))
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content[: len(content) - cut] if cut < 100 else content)
    try:
        assert map_array(file).nbytes == 36
    except StoreError as error:
        assert "is not a readable .npy file" in str(error)
    finally:
        file.unlink()


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"x\.npy does not exist"):
        map_array(tmp_path / "x.npy")
    with pytest.raises(StoreError, match="cannot read .*: Is a directory"):
        map_array(tmp_path)
