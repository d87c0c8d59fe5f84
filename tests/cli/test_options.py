"""What the commands' shared options become."""

import os
from pathlib import Path

import pytest

from vcr_graphormer import ConfigError, StoreError
from vcr_graphormer.cli.options import read_config, read_nodes
from vcr_graphormer.cli.output import say_error


def test_nodes(tmp_path: Path) -> None:
    assert read_nodes(None) is None
    assert read_nodes("1, 2,,x y") == ["1", "2", "x y"]
    (tmp_path / "list").write_text(" a\n\nb \n")
    assert read_nodes(f"@{tmp_path / 'list'}") == ["a", "b"]
    with pytest.raises(ConfigError, match="--nodes is empty"):
        read_nodes(" , ")
    with pytest.raises(StoreError, match=r"cannot read the nodes from a file: .*nothing does not exist"):
        read_nodes(f"@{tmp_path / 'nothing'}")


def test_files_of_nodes_that_never_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in ("/dev/zero", tmp_path / "pipe", tmp_path):
        with pytest.raises(StoreError, match=f"cannot read the nodes from a file: {file} is not a file"):
            read_nodes(f"@{file}")
    with (tmp_path / "long").open("wb") as handle:
        handle.truncate(1 << 29)
    with pytest.raises(StoreError, match=r"long has 512\.0 MiB, more than the 256\.0 MiB that are read"):
        read_nodes(f"@{tmp_path / 'long'}")


def test_options_win_over_the_file_and_settings_over_options(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[data]\ndataset = "Cora"\nroot = "here"\nseed = 3\n')
    config = read_config(file, ["data.root=there"], dataset="Photo", root=None)
    assert (config.data.dataset, config.data.root, config.data.seed) == ("Photo", "there", 3)


def test_errors_go_to_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("no")
    assert capsys.readouterr() == ("", "error: no\n")
