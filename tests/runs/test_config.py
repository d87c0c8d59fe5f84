"""Settings come from TOML and --set; what is unknown or of a wrong type is named."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from vcr_graphormer import (
    AUTO,
    ConfigError,
    DataConfig,
    ModelConfig,
    StoreError,
    TokenConfig,
    TrainConfig,
    VCRGraphormer,
    generate,
    make_lists,
)
from vcr_graphormer.base.checks import REMOVED, unresolved
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
        ("training.epochs=-1", 'training.epochs is -1; write "auto" where the graph is to decide'),
        ("training.epochs=all", "training.epochs is 'all'; it must be a whole number or auto"),
        ("training.learning_rate=auto", "training.learning_rate is 'auto'; it must be a number"),
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
    assert load_run_config(file).tokens == TokenConfig(hops=2, link_tokens=0, nearest_tokens=0, distinct=False)
    file.write_text("[data]\nseed = 3\n")
    assert not load_run_config(file).tokens.distinct
    file.write_text(to_toml(Config()))
    assert load_run_config(file) == Config()
    file.write_text("tokens = 3\n")
    with pytest.raises(ConfigError, match="tokens is 3; it must be a section"):
        load_run_config(file)


def test_removed_settings_at_the_value_that_is_left_change_nothing(tmp_path: Path) -> None:
    text = to_toml(Config())
    for section, given in REMOVED.items():
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in given.items()]
        text = text.replace(f"[{section}]\n", f"[{section}]\n{''.join(lines)}")
    assert 'super_tokens = "drop"\nleave_own_label_out = true\n' in text and "feedforward = 2\n" in text
    (tmp_path / "config.toml").write_text(text)
    assert load_config(tmp_path / "config.toml") == Config() == load_run_config(tmp_path / "config.toml")
    assert load_config(overrides=["tokens.super_tokens=drop", "model.feedforward=2"]) == Config()


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("tokens", "super_tokens", "mean"),
        ("tokens", "leave_own_label_out", False),
        ("model", "feedforward", 4),
        ("model", "readout", "sum"),
        ("training", "schedule", "constant"),
    ],
)
def test_removed_settings_at_other_values_are_refused(section: str, name: str, value: Any, tmp_path: Path) -> None:
    file, sentence = tmp_path / "config.toml", f"{section}.{name} = {value!r}, which was removed"
    file.write_text(f"[{section}]\n{name} = {json.dumps(value)}\n")
    with pytest.raises(ConfigError, match=f"the settings have {sentence}: leave it out"):
        load_config(file)
    with pytest.raises(ConfigError, match=f"the settings have {sentence}: leave it out"):
        load_config(overrides=[f"{section}.{name}={json.dumps(value)}"])
    with pytest.raises(StoreError, match=f"config.toml has {sentence}: train again"):
        load_run_config(file)


def test_runs_from_before_the_gate_are_the_papers_model(tmp_path: Path) -> None:
    old = Config(DataConfig(scale="none"), TokenConfig(hops=1, distinct=False), ModelConfig(combine="joint"))
    lines = to_toml(old).splitlines()
    younger = (
        *("scale", "distinct", "link_tokens", "nearest_tokens", "combine", "members", "own_hops"),
        *("neighbour_dropout", "own_dropout"),
    )
    (tmp_path / "config.toml").write_text("\n".join(line for line in lines if line.split(" =")[0] not in younger))
    found = load_run_config(tmp_path / "config.toml")
    assert (found.data.scale, found.tokens.distinct, found.model.combine) == ("none", False, "joint")
    assert (found.model.neighbour_dropout, found.model.own_dropout) == (0.0, 0.0)
    assert (found.model.members, found.model.own_hops) == (1, False)


def test_auto_is_a_number_in_python_and_a_text_in_files(tmp_path: Path) -> None:
    config = load_config(overrides=["training.epochs=auto", "model.dropout='auto'", "training.batch_size=7"])
    assert (config.training.epochs, config.model.dropout, config.training.batch_size) == (AUTO, AUTO, 7)
    text = to_toml(config)
    assert 'epochs = "auto"\nbatch_size = 7\n' in text
    (tmp_path / "config.toml").write_text(text)
    assert load_config(tmp_path / "config.toml") == config
    names = ("tokens", "model", "training")
    assert {name: unresolved(getattr(config, name)) for name in names} == {
        "tokens": ["hops", "clusters", "link_tokens", "nearest_tokens", "content_clusters"],
        "model": [
            *("hidden_channels", "members", "dropout", "own_hops", "rich_tokens", "label_hops", "rich_labels"),
            *("feature_dropout", "embedding_dropout", "neighbour_dropout", "own_dropout"),
        ],
        "training": ["epochs", "warmup_steps", "label_smoothing", "patience"],
    }


def test_auto_passes_checks_but_makes_no_model() -> None:
    TokenConfig().check()
    TrainConfig().check()
    TrainConfig().check("regression")
    model = ModelConfig(layers=2).check(AUTO)
    layout = make_lists(generate(50, 100), config=TokenConfig(content_tokens=0)).layout
    with pytest.raises(ConfigError, match="model.hidden_channels is auto, which depends on the graph: give a number"):
        VCRGraphormer(model, layout, num_features=3, num_outputs=2)
    with pytest.raises(ConfigError, match="training.epochs is auto"):
        TrainConfig().check_resolved()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist: give a TOML file"):
        load_config(tmp_path / "nowhere.toml")
