"""A folder exists whole or not at all, and says what does not match."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import vcr_graphormer as vcr
from tests.support import graphs
from tests.support.damage import edited_manifest, flip_bit, put_array
from vcr_graphormer import Graph, StoreError
from vcr_graphormer.base import folders
from vcr_graphormer.base.files import claim, replace_file
from vcr_graphormer.base.folders import digest, is_intact


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return graphs.karate_club().save(tmp_path / "graph")


def test_existing_folders_are_safe(saved: Path) -> None:
    with pytest.raises(StoreError, match="exists: choose another name"):
        graphs.path().save(saved)
    graphs.path().save(saved, overwrite=True)
    assert Graph.open(saved).num_nodes == 5
    assert [file.name for file in saved.parent.iterdir()] == ["graph"]
    other = saved.parent / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="is not a saved graph: refusing to replace it"):
        graphs.path().save(other, overwrite=True)
    assert (other / "thesis.txt").exists()


def test_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write .*file/graph"):
        graphs.path().save(tmp_path / "file" / "graph")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]


def test_damage_is_named(saved: Path, tmp_path: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())

    def refuse(message: str, **changes: object) -> None:
        with edited_manifest(saved) as edited:
            edited.update(changes)
        with pytest.raises(StoreError, match=message):
            Graph.open(saved)
        (saved / "manifest.json").write_text(json.dumps(manifest))

    refuse("holds a token store, not a graph", kind="token store")
    refuse("has format version 99; this package reads version 1", version=99)
    arrays = manifest["arrays"]
    refuse(r"indices\.npy holds <i4\[156\] but the manifest says <i4\[155\]",
           arrays={**arrays, "indices": {**arrays["indices"], "shape": [155]}})  # fmt: skip
    refuse(r"weights\.npy is missing", arrays={**arrays, "weights": arrays["indices"]})
    (saved / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        Graph.open(saved)
    (saved / "manifest.json").write_text("[]")
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        Graph.open(saved)
    (saved / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match="is not a manifest of ours"):
        Graph.open(saved)
    with pytest.raises(StoreError, match=r"is not a saved folder: manifest\.json is missing"):
        Graph.open(tmp_path)


def test_truncated_and_foreign_arrays(saved: Path) -> None:
    file = saved / "indices.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-4])
    with pytest.raises(StoreError, match=r"indices\.npy has 748 bytes but the manifest says 752: it was cut short"):
        Graph.open(saved)
    file.write_bytes(b"x" * len(content))
    with pytest.raises(StoreError, match=r"indices\.npy is not a readable \.npy file"):
        Graph.open(saved)


def test_killed_while_saving_leaves_nothing_that_opens(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "import numpy as np\nfrom vcr_graphormer import generate\n"
        "graph = generate(500, 2000)\n"
        "write = np.lib.format.write_array\n"
        "def die(file, array, **keywords):\n"
        "    write(file, array, **keywords)\n"
        "    if array.ndim == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "np.lib.format.write_array = die\n"
        "graph.save(sys.argv[1])\n"
    )
    target = tmp_path / "graph"
    result = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert not target.exists()
    assert Graph.open(graphs.path().save(target)).num_nodes == 5


def test_digest_depends_on_values_type_and_shape() -> None:
    base = np.arange(6, dtype=np.int32)
    others: list[Any] = [base + 1, base.astype(np.int64), base.reshape(2, 3), base[:5], None]
    assert len({digest(base), *(digest(other) for other in others)}) == 6
    assert digest(base) == digest(base.astype(">i4"))
    assert digest(base, None) != digest(base)
    assert digest(np.arange(0, 12, 2)[::2]) == digest(np.array([0, 4, 8]))
    with pytest.raises(StoreError, match="cannot be hashed"):
        digest(np.array([object()]))


def test_opening_computes_no_checksum(tmp_path: Path) -> None:
    # Content that is wrong but sound: opening does not notice, verifying does.
    saved = graphs.karate_club().with_features("degree").save(tmp_path / "graph")
    flip_bit(saved / "features.npy", 8 * ((saved / "features.npy").stat().st_size - 4))
    Graph.open(saved)
    with pytest.raises(StoreError, match=r"features\.npy does not match its checksum"):
        Graph.verify(saved)


def test_verify_accepts_what_was_written(saved: Path) -> None:
    Graph.verify(saved)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["meta"], None, "meta and arrays must be tables"),
        (["arrays"], [], "meta and arrays must be tables"),
        (["arrays", "indices"], None, "the entry of 'indices' needs dtype, shape, bytes and checksum"),
        (["arrays", "indices"], {"dtype": "<i4"}, "the entry of 'indices' needs"),
        (["meta", "task"], "zzz", "its task is 'zzz'"),
        (["meta"], {}, "its manifest lacks class_names, directed"),
        (["meta", "name"], 7, "its name is 7"),
        (["meta", "directed"], "no", "its directed is 'no'"),
        (["meta", "class_names"], [1], r"its class_names is \[1\]"),
        (["meta", "fingerprints"], {}, "its fingerprints lack adjacency"),
        (["meta", "features_shape"], [1.5, "x"], "its features_shape is"),
        (["arrays", "indices", "shape"], [-1], "has a size that is not 0, 1, 2"),
        (["arrays", "indices", "shape"], [True], "has a size that is not 0, 1, 2"),
        (["arrays", "../x"], {"dtype": "<i4", "shape": [1], "bytes": 1, "checksum": ""}, "outside of the folder"),
        (["arrays", ".x"], {"dtype": "<i4", "shape": [1], "bytes": 1, "checksum": ""}, "outside of the folder"),
    ],
)
def test_damaged_manifests(saved: Path, path: list[str], value: Any, message: str) -> None:
    with edited_manifest(saved) as manifest:
        place = manifest
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    with pytest.raises(StoreError, match=message):
        Graph.open(saved)


def test_arrays_that_do_not_belong_together(tmp_path: Path) -> None:
    labelled = Graph.from_edges([[0], [1]], labels=[0, 1, 1], features=sp.identity(3)).save(tmp_path / "labelled")
    put_array(labelled, "labels", np.zeros(35, np.int64))
    with pytest.raises(StoreError, match="the length of labels is 35, not 3"):
        Graph.open(labelled)
    put_array(labelled, "labels", np.zeros(3, np.int64))
    Graph.open(labelled)
    with edited_manifest(labelled) as manifest:
        manifest["meta"]["features_shape"] = None
    with pytest.raises(StoreError, match="its sparse features do not fit together"):
        Graph.open(labelled)


@pytest.mark.parametrize("order", ["<", ">"])
def test_names_of_letters_that_do_not_exist(order: str, tmp_path: Path) -> None:
    """NumPy maps any numbers as letters; Python's interpreter fails when it makes a text of them."""
    names = ["a", "", "\U0010ffff"]
    folder = Graph.from_edges([[0], [1]], num_nodes=3, names=names).save(tmp_path / "graph")
    letters = np.array(names, dtype=f"{order}U3")
    put_array(folder, "names", letters)
    assert np.asarray(Graph.open(folder).names).tolist() == names
    letters.view(f"{order}u4")[4] = 0x110000
    put_array(folder, "names", letters)
    with pytest.raises(StoreError, match=r"names holds the letter number 0x110000; the largest of Unicode is 0x10ffff"):
        Graph.open(folder)


def test_a_failed_overwrite_keeps_the_old_folder(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        graphs.path().save(saved, overwrite=True)
    assert Graph.open(saved).num_nodes == 34
    assert [file.name for file in saved.parent.iterdir()] == ["graph"]


def test_full_disk(tmp_path: Path) -> None:
    # /dev/full answers every write as a full disk does.
    with pytest.raises(StoreError, match="No space left on device"), replace_file(tmp_path / "x") as temporary:
        temporary.symlink_to("/dev/full")
        with temporary.open("wb", buffering=0) as file:
            file.write(b"content")
    assert list(tmp_path.iterdir()) == []


def test_writers_of_the_same_file_do_not_meet(tmp_path: Path) -> None:
    """Two machines may have processes of one number: the temporary names differ all the same."""
    with replace_file(tmp_path / "x") as first, replace_file(tmp_path / "x") as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "x").read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_claim_is_one_that_nfs_grants(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with claim(tmp_path / "job.json") as handle:
        assert handle.writable()
        with pytest.raises(StoreError, match="another process is working in"):
            claim(tmp_path / "job.json")


def test_is_intact(saved: Path) -> None:
    assert is_intact(saved)
    file = saved / "indices.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert not is_intact(saved)
    assert not is_intact(saved / "nothing")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"kind": ' + "9" * 5000 + "}",
        "\x00",
        '{"kind": "graph", "version": 1, "meta": {}, "arrays": {}, "checksum": "x"}',
    ],
    ids=["deep lists", "deep tables", "5000 digits", "zero byte", "another checksum"],
)
def test_hostile_manifests(saved: Path, text: str) -> None:
    (saved / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"manifest\.json (is damaged|does not match its own checksum)"):
        Graph.open(saved)


def test_every_flipped_bit_of_a_manifest_is_noticed(saved: Path) -> None:
    size = (saved / "manifest.json").stat().st_size
    for bit in range(0, 8 * size, 13):
        flip_bit(saved / "manifest.json", bit)
        with pytest.raises(StoreError):
            Graph.verify(saved)
        flip_bit(saved / "manifest.json", bit)
    Graph.verify(saved)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"'<f4'", b"'=f4'"), (b"'<f4'", b"'|f4'"), (b", }", b",\f}"), (b"'descr': ", b"'descr':\t"), (b"}  ", b"} \f")],
)
def test_every_change_in_the_header_of_an_array_is_noticed(before: bytes, after: bytes, tmp_path: Path) -> None:
    """NumPy reads the same array from each of these, and the header is in no checksum."""
    saved = graphs.karate_club().with_features("degree").save(tmp_path / "graph")
    content = (saved / "features.npy").read_bytes()
    (saved / "features.npy").write_bytes(content.replace(before, after, 1))
    with pytest.raises(StoreError, match=r"features\.npy (does not match its checksum|holds)"):
        Graph.verify(saved)


def test_headers_of_every_order_and_width_are_as_they_were_written(tmp_path: Path) -> None:
    square = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {"c": square, "f": np.asfortranarray(square), "none": square[:0], "texts": np.array(["é", "ab"])}
    folder = folders.write_folder(tmp_path / "folder", "test", 1, arrays, {}, False)
    folders.verify_folder(folder)
    content = (folder / "c.npy").read_bytes()
    start = content.index(b"}") + 1  # other versions of NumPy put fewer or more spaces there
    (folder / "c.npy").write_bytes(
        content[:8] + (start + 54).to_bytes(2, "little") + content[10:start] + b" " * 63 + b"\n" + square.tobytes()
    )
    with edited_manifest(folder) as manifest:
        manifest["arrays"]["c"]["bytes"] = start + 64 + square.nbytes
    folders.verify_folder(folder)


def test_a_manifest_with_another_text_of_the_same_meaning_is_noticed(saved: Path) -> None:
    with edited_manifest(saved) as manifest:
        manifest["meta"]["name"] = "café"
    Graph.verify(saved)
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(text.replace("\\u00e9", "\\u00E9"))
    assert Graph.open(saved).name == "café"
    with pytest.raises(StoreError, match=r"manifest\.json is not as it was written"):
        Graph.verify(saved)


def test_checks_are_remembered_until_a_file_changes(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(folders, "_WORTH_A_NOTE", 0)
    monkeypatch.setattr(Graph, "_check_arrays", lambda *_: calls.append(1))
    Graph.open(saved)
    Graph.open(saved)
    assert len(calls) == 1
    monkeypatch.setattr(folders, "_checked", {})  # another process: it has the note
    Graph.open(saved)
    assert len(calls) == 1
    (saved / "indices.npy").write_bytes((saved / "indices.npy").read_bytes())  # other times
    Graph.open(saved)
    assert len(calls) == 2
    copy = saved.parent / "copy"
    shutil.copytree(saved, copy)  # with the note and the times, but other files
    Graph.open(copy)
    assert len(calls) == 3
    monkeypatch.setattr(folders, "_checked", {})
    (saved / ".checked.json").write_text("[" * 100_000)
    Graph.open(saved)
    assert len(calls) == 4


def test_no_note_can_be_written(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreError("read-only")

    monkeypatch.setattr(folders, "_WORTH_A_NOTE", 0)
    monkeypatch.setattr(folders, "write_json", fail)
    assert Graph.open(saved).num_nodes == 34
    assert not (saved / ".checked.json").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "the path is None; it must be a text or a Path"),
        (5, "the path is 5; it must be a text or a Path"),
        ("a\0b", r"the path 'a\\x00b' holds a null character: take another name"),
        ("a" * 260, "cannot use aaa.*: File name too long"),
    ],
)
def test_paths_that_are_none(path: Any, message: str) -> None:
    graph = vcr.generate(10, 20, classes=2, seed=0)
    for use in (graph.save, Graph.open, vcr.TokenStore.open, vcr.Run.open, lambda out: vcr.tokenize(graph, out=out)):
        with pytest.raises(StoreError, match=message):
            use(path)
