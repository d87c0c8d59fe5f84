"""Settings come from TOML and --set; what is unknown or of a wrong type is named."""

import tomllib
from pathlib import Path

import pytest

from vcr_graphormer import ConfigError, StoreError, TokenConfig
from vcr_graphormer.runs.config import Config, load_config, load_run_config, to_toml


def test_file_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[data]\ndataset = "PubMed"\nseed = 4\ntrain = 1\n')
    config = load_config(file, ["data.seed=5", "data.root=a b", "data.directed=true", "data.dataset='Photo'"])
    assert (config.data.dataset, config.data.seed, config.data.root, config.data.directed) == ("Photo", 5, "a b", True)
    assert isinstance(config.data.train, float)
    assert load_config() == Config()


def test_written_config_reads_back(tmp_path: Path) -> None:
    config = load_config(
        overrides=['data.root="😀 \\u007f quote \\" and ünïcode"', "data.val=1e-3", "data.stratified=true"]
    )
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert load_config(tmp_path / "config.toml") == config
    assert set(tomllib.loads(to_toml(config))["data"]) == set(config.data.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data.seeed=1", r"unknown key in \[data\] 'seeed'; did you mean 'seed'\?"),
        ("dat.seed=1", r"unknown section 'dat'; did you mean 'data'\?"),
        ("seed=1", "write section.key=value"),
        ("data.seed", "write section.key=value"),
        ("data.seed=one", "data.seed is 'one'; it must be a whole number"),
        ("data.seed=true", "data.seed is True; it must be a whole number"),
        ("data.seed=1.5", "data.seed is 1.5; it must be a whole number"),
        ("data.directed=1", "data.directed is 1; it must be true or false"),
        ("data.train='a'", "data.train is 'a'; it must be a number"),
        ("data.dataset=3", "data.dataset is 3; it must be a text"),
    ],
)
def test_bad_overrides(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=[text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nseed = \n", "is not valid TOML: Invalid value .at line 2"),
        ("[modle]\n", "unknown section 'modle'"),
        ("data = 3\n", r"data is 3; it must be a section: \[data\]"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "run.toml")


def test_a_run_is_read_as_what_it_did_before_a_setting_was_there(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[tokens]\nhops = 2\n")
    assert load_config(file).tokens.distinct  # a user's file gets the default
    assert load_run_config(file).tokens == TokenConfig(hops=2, distinct=False)
    file.write_text("[data]\nseed = 3\n")
    assert not load_run_config(file).tokens.distinct
    file.write_text(to_toml(Config()))
    assert load_run_config(file) == Config()
    file.write_text("tokens = 3\n")
    with pytest.raises(ConfigError, match="tokens is 3; it must be a section"):
        load_run_config(file)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist: give a TOML file"):
        load_config(tmp_path / "nowhere.toml")
