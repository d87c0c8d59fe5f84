"""Arrays come out of pickles; programs do not."""

import contextlib
import copyreg
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from vcr_graphormer import StoreError
from vcr_graphormer.data.readers.pickles import read_object_array, read_pickle


class Hostile:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.victim}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_arrays_and_sparse_matrices(tmp_path: Path, protocol: int) -> None:
    dense = np.arange(6, dtype=np.float64).reshape(2, 3)
    value = {"a": dense, "b": [sp.csr_matrix(dense), sp.coo_matrix(dense)], "c": np.float32(2.5), "d": "text"}
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    read = read_pickle(tmp_path / "a.pkl")
    np.testing.assert_array_equal(read["a"], dense)
    for matrix in read["b"]:
        np.testing.assert_array_equal(matrix.toarray(), dense)
    assert (read["c"], read["d"]) == (2.5, "text")


def test_old_scipy_module_names(tmp_path: Path) -> None:
    content = pickle.dumps(sp.csr_matrix(np.eye(2)), 2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    (tmp_path / "old.pkl").write_bytes(content)
    np.testing.assert_array_equal(read_pickle(tmp_path / "old.pkl").toarray(), np.eye(2))


def test_programs_are_refused_unexecuted(tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps({"labels": Hostile(victim)}))
    with pytest.raises(StoreError, match=r"it calls posix\.system, which could run code"):
        read_pickle(tmp_path / "bad.pkl")
    np.save(tmp_path / "bad.npy", np.array([Hostile(victim)], dtype=object), allow_pickle=True)
    with pytest.raises(StoreError, match=r"posix\.system"):
        read_object_array(tmp_path / "bad.npy")
    assert not victim.exists()


@pytest.mark.parametrize("name", ["builtins.eval", "builtins.getattr", "numpy.load", "subprocess.Popen", "os.system"])
def test_forbidden_names(tmp_path: Path, name: str) -> None:
    module, function = name.rsplit(".", 1)
    (tmp_path / "bad.pkl").write_bytes(f"c{module}\n{function}\n(S'1'\ntR.".encode())
    with pytest.raises(StoreError, match="which could run code"):
        read_pickle(tmp_path / "bad.pkl")


def test_split_files_with_arrays_or_tensors(tmp_path: Path) -> None:
    for make in (np.array, torch.tensor):
        splits = np.empty(2, dtype=object)
        splits[:] = [{"train": make([0, 1]), "valid": make([2]), "test": make([3])} for _ in range(2)]
        np.save(tmp_path / "splits.npy", splits, allow_pickle=True)
        read = read_object_array(tmp_path / "splits.npy")
        assert read.shape == (2,)
        assert np.asarray(read[1]["train"]).tolist() == [0, 1]
    np.save(tmp_path / "plain.npy", [1, 2])
    assert read_object_array(tmp_path / "plain.npy").tolist() == [1, 2]


def test_missing_and_damaged(tmp_path: Path) -> None:
    for read in (read_pickle, read_object_array):
        with pytest.raises(StoreError, match="does not exist"):
            read(tmp_path / "nowhere")
        (tmp_path / "bad").write_bytes(b"\x80\x04no")
        with pytest.raises(StoreError, match="bad"):
            read(tmp_path / "bad")


def test_nothing_else_unpickles() -> None:
    package = Path(__file__).parent.parent.parent.parent / "src" / "vcr_graphormer"
    files = list(package.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        text = file.read_text()
        if file.name not in ("pickles.py", "workers.py"):  # the latter: a pipe between our own processes
            for word in ("import pickle", "allow_pickle=True", "torch.load", "joblib", "weights_only=False"):
                assert word not in text, (file.name, word)


def test_a_pickle_cannot_change_classes_or_functions(tmp_path: Path) -> None:
    before = sp.csr_matrix.toarray
    for name in (b"scipy.sparse._csr\ncsr_matrix", b"numpy._core.numeric\n_frombuffer", b"copyreg\n_reconstructor"):
        # GLOBAL name, then BUILD with a slot state: sets the attribute 'toarray' of what it was handed.
        program = b"c" + name + b"\n(N}S'toarray'\nI1\nstb."
        (tmp_path / "bad.pkl").write_bytes(program)
        with contextlib.suppress(StoreError):
            read_pickle(tmp_path / "bad.pkl")
    assert sp.csr_matrix.toarray is before
    assert not hasattr(copyreg._reconstructor, "toarray")  # type: ignore[attr-defined]


def test_unsound_matrices_are_refused(tmp_path: Path) -> None:
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices[0] = 10**8
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps(matrix))
    with pytest.raises(StoreError, match="is not a sound sparse matrix"):
        read_pickle(tmp_path / "bad.pkl")
