"""A company's tables, as they are: other names, an index of pandas, text, a missing value, a wrong weight."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.command import run
from vcr_graphormer import ConfigError, GraphError, Split, VCRError, load_config
from vcr_graphormer.data.datasets import load_data
from vcr_graphormer.runs.config import to_toml

COUNT = 120


def write_company(folder: Path, wrong_weight: str = "-12.5") -> None:
    """Write accounts, transactions and labels; the weight in line 17 is wrong."""
    generator = np.random.default_rng(0)
    accounts = [",account_id,country,plan,age,balance,email,created"]
    for i in range(COUNT):
        age = "" if i == 5 else 20 + i % 50
        day = f"2024-{1 + i // 10:02d}-{1 + i % 10:02d}"
        balance = f"{1000 * generator.normal():.2f}"
        accounts.append(
            f"{i},A-{i:03d},{('DE', 'FR', 'US')[i % 3]},{'gold' if i % 4 else 'basic'},{age},{balance},{i}@a.org,{day}"
        )
    transactions = ["tx_id,from_account,to_account,amount,currency"]
    for number in range(400):
        payer, payee = generator.integers(0, COUNT, 2)
        amount = wrong_weight if number == 15 else f"{1 + generator.gamma(2, 50):.2f}"
        transactions.append(f"T{number},A-{payer:03d},A-{payee:03d},{amount},EUR")
    transactions.append("T400,A-001,X-999,5.0,EUR")
    labels = ["account,status", *(f"A-{i:03d},{'fraud' if i % 7 == 0 else 'ok'}" for i in range(COUNT - 20))]
    for name, lines in (("accounts", accounts), ("transactions", transactions), ("labels", labels)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


MAPPING = """\
[[data.nodes]]
file = "accounts.csv"
id = "account_id"
categories = ["country", "plan"]
drop = ["email"]

[[data.nodes]]
file = "labels.csv"
id = "account"
label = "status"

[data.edges]
file = "transactions.csv"
source = "from_account"
target = "to_account"
weight = "amount"
"""


def test_one_command_tells_everything_and_one_fix_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "company"
    folder.mkdir()
    write_company(folder)
    text = run("datasets", str(folder), code=2)
    assert "did you mean source = from_account and target = to_account in transactions.csv?" in text
    assert MAPPING in text
    assert "transactions.csv line 17, column 'amount': the weight is -12.5; it must be finite and above 0" in text
    assert "accounts.csv, column '': is the index of a pandas table and is ignored" in text
    assert sorted(file.name for file in folder.iterdir()) == ["accounts.csv", "labels.csv", "transactions.csv"]

    (folder / "data.toml").write_text(text[text.index("[[data.nodes]]") : text.index("With this mapping")])
    write_company(folder, wrong_weight="12.5")
    text = run("datasets", "--config", str(folder / "data.toml"))
    assert "note: " in text
    assert "the columns 'tx_id', 'currency' are not used" in text
    assert "1 of 401 edges are left out: an id of theirs is in no table of nodes" in text
    assert "nodes of each class    ok 85, fraud 15" in text
    assert "standardized; missing: median and indicator" in text
    assert "constant: becomes 0" in text
    assert "columns not used       '', 'email'" in text

    quick = (
        "--set",
        "training.epochs=2",
        "--set",
        "model.hidden_channels=16",
        "--baselines",
        "none",
        "--device",
        "cpu",
    )
    text = run("train", "--config", str(folder / "data.toml"), "--out", str(tmp_path / "run"), *quick)
    assert "the run lies in" in text
    # The settings of the run name whole paths: it can be repeated from any folder.
    again = load_config(tmp_path / "run" / "config.toml")
    files = [table.file for table in again.data.nodes] + [table.file for table in again.data.edges]
    assert [Path(file) for file in files] == [folder / f"{name}.csv" for name in ("accounts", "labels", "transactions")]


def test_the_mapping_is_a_part_of_the_settings(tmp_path: Path) -> None:
    write_company(tmp_path, wrong_weight="1")
    (tmp_path / "data.toml").write_text(MAPPING)
    config = load_config(tmp_path / "data.toml")
    assert config.data.nodes[0].categories == ("country", "plan")
    assert config.data.edges[0].weight == "amount"
    assert config.data.dataset == str(tmp_path)
    (tmp_path / "written.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "written.toml") == config
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.toml").write_text(f"[data]\ndataset = '{tmp_path}'\n{MAPPING}")
    assert load_config(tmp_path / "other" / "data.toml") == config
    for text, message in (
        ('[data.edges]\nsorce = "a"', r"unknown key in \[data.edges\] 'sorce'; did you mean 'source'\?"),
        ('[data]\nedges = "a.csv"', r"data.edges is 'a.csv'; it must be a section: \[data.edges\], or several"),
        ('[data.nodes]\ndrop = "a"', "data.nodes.drop is 'a'; it must be a list of texts"),
        ("[data.nodes]\nid = 3", "data.nodes.id is 3; it must be a text"),
    ):
        (tmp_path / "wrong.toml").write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_config(tmp_path / "wrong.toml")
    (tmp_path / "wrong.toml").write_text('[data.edges]\nsource = "a"\n')
    with pytest.raises(GraphError, match=r'\[data.edges\] names no file: write file = "…"'):
        load_data(load_config(tmp_path / "wrong.toml").data)


def test_a_split_by_time(tmp_path: Path) -> None:
    write_company(tmp_path, wrong_weight="1")
    (tmp_path / "data.toml").write_text(MAPPING.replace('drop = ["email"]', 'drop = ["email"]\ntime = "created"'))
    dates = ["data.train_until=2024-05-31", 'data.val_until="2024-07-15"']
    notes: list[str] = []
    graph, split = load_data(load_config(tmp_path / "data.toml", dates).data, tell=notes.append)
    assert split is not None
    assert graph.feature_names is not None
    # Ten accounts a month; the last twenty have no label.
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [
        list(range(50)),
        list(range(50, 70)),
        list(range(70, 100)),
    ]
    assert "created" not in graph.feature_names
    for overrides, message in (
        (dates[:1], "needs both data.train_until and data.val_until"),
        ([*dates, "data.split=random"], "asks for a split by time: leave out one"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_data(load_config(tmp_path / "data.toml", overrides).data)
    (tmp_path / "data.toml").write_text(MAPPING)
    with pytest.raises(ConfigError, match="data.train_until needs a column of times"):
        load_data(load_config(tmp_path / "data.toml", dates).data)


def test_times_of_every_kind() -> None:
    labels = [0, 1, 0, 1, -1]
    days = np.array(["2024-01-01", "2024-01-02", "2024-01-03", "NaT", "2024-01-04"], dtype="datetime64[D]")
    split = Split.by_time(labels, days, train_until="2024-01-01", val_until="2024-01-02 08:00")
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0], [1], [2]]
    numbers = Split.by_time(labels, [1.0, 2.0, 3.0, 4.0, 5.0], train_until="1", val_until="2.5")
    assert numbers.test.tolist() == [2, 3]
    for times, until, message in (
        (days, ("2024-01-02", "2024-01-01"), "it must be later"),
        (days, ("2024-01-05", "2024-01-06"), "val is empty: no labelled node has a time up to val_until"),
        (days, ("soon", "2024-01-01"), "train_until is 'soon'; write a date as 2024-01-31"),
        (days, ("", "2024-01-01"), "train_until is ''; write a date"),
        ([1, 2, 3, 4, 5], ("soon", "2"), "the times are numbers, so it must be one"),
        (["31.01.2024"] * 5, ("1", "2"), "holds '31.01.2024'; it must hold numbers, or dates as 2024-01-31"),
        ([None] * 5, ("1", "2"), "no node has a time: the column of times is empty"),
        ([1, 2], ("1", "2"), "times has 2 rows but labels has 5"),
    ):
        with pytest.raises(VCRError, match=message):
            Split.by_time(labels, times, train_until=until[0], val_until=until[1])
