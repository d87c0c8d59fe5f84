"""A nightly job: the graph grows three nights in a row, and new nodes are predicted from the command line."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.command import run
from vcr_graphormer import Run, TokenStore, generate

TOML = """
[data.nodes]
file = "accounts.csv"
id = "account"
label = "status"
categories = ["plan"]
[data.edges]
file = "payments.csv"
source = "payer"
target = "payee"
[tokens]
hops = 2
structure_tokens = 3
content_tokens = 3
[model]
hidden_channels = 16
heads = 2
[training]
epochs = 3
"""


def write_tables(folder: Path, count: int) -> None:
    """Write the first nodes of a generated graph as a company's tables, newest accounts first."""
    graph = generate(nodes=150, edges=500, classes=2, features=3, seed=0)
    features, labels = np.asarray(graph.features), np.asarray(graph.labels)
    folder.mkdir(parents=True)
    rows = ["account,age,plan,status"] + [
        f"acc-{node},{features[node, 0]:.3f},{'pro' if node % 3 else 'free'},{'good' if labels[node] else 'bad'}"
        for node in reversed(range(count))
    ]
    (folder / "accounts.csv").write_text("\n".join(rows) + "\n")
    arcs = graph.to_scipy().tocoo()
    pairs = [f"acc-{u},acc-{v}" for u, v in zip(arcs.row, arcs.col, strict=True) if u < v < count]
    (folder / "payments.csv").write_text("\n".join(["payer,payee", *pairs]) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nightly")
    write_tables(folder / "day0", 120)
    (folder / "day0" / "run.toml").write_text(TOML)
    run("train", "--config", str(folder / "day0" / "run.toml"), "--out", str(folder / "run"), "--baselines", "none")
    return folder


def test_three_nights(trained: Path) -> None:
    for night, count in enumerate((130, 140, 150), start=1):
        write_tables(trained / f"day{night}", count)
        out = trained / f"night{night}.parquet"
        text = run("predict", str(trained / "run"), "--dataset", str(trained / f"day{night}"), "--out", str(out))
        assert f"{count - 120:,} of {count:,} nodes are new" in text
        table = pq.read_table(out).to_pydict()
        assert sorted(table["name"]) == sorted(f"acc-{node}" for node in range(120, count))
        total = np.add(table["probability_bad"], table["probability_good"])
        np.testing.assert_allclose(total, 1, atol=1e-5)
    first, last = (pq.read_table(trained / f"night{night}.parquet").to_pydict() for night in (1, 3))
    assert set(first["name"]) < set(last["name"])


def test_all_nodes_and_depths(trained: Path) -> None:
    write_tables(trained / "now", 125)
    folder = str(trained / "now")
    out = trained / "all.csv"
    run("predict", str(trained / "run"), "--dataset", folder, "--all", "--refresh", "new", "--out", str(out))
    assert len(out.read_text().splitlines()) == 126
    quiet = trained / "quiet.csv"
    text = run("predict", str(trained / "run"), "--dataset", str(trained / "day0"), "--out", str(quiet))
    assert "0 of 120 nodes are new" in text and "0 predictions written" in text
    assert quiet.read_text().splitlines() == out.read_text().splitlines()[:1]  # the header alone
    assert "give --dataset too" in run("predict", str(trained / "run"), "--all", code=2)
    assert "refresh is 'some'" in run("predict", str(trained / "run"), "--dataset", folder, "--refresh", "some", code=2)
    assert "does not exist" in run("predict", str(trained / "run"), "--dataset", "nowhere", code=2)


def test_update(trained: Path) -> None:
    write_tables(trained / "grown", 125)
    out = trained / "tokens-2"
    text = run("update", str(trained / "run"), "--dataset", str(trained / "grown"), "--out", str(out))
    assert "5 new nodes" in text and "since 120 nodes were tokenized, in 1 updates" in text
    store = TokenStore.open(out)
    assert store.num_nodes == 125 and store.growth["new"] == 5
    np.testing.assert_array_equal(
        store.assignment("content")[:120], Run.open(trained / "run").store.assignment("content")
    )


def test_update_of_bare_token_lists(trained: Path) -> None:
    toml, store = str(trained / "day0" / "run.toml"), trained / "bare"
    run("tokenize", "--config", toml, "--out", str(store))
    write_tables(trained / "more", 125)
    command = ("update", str(store), "--dataset", str(trained / "more"), "--out", str(trained / "bare-2"))
    # Newest accounts come first in these files, so old ones have other rows than before.
    assert "Give the graph of then too (before)" in run(*command, code=2)
    assert "5 new nodes" in run(*command, "--before", str(trained / "day0"))
    ours, of_run = TokenStore.open(trained / "bare-2"), trained / "of-run"
    text = run("update", str(trained / "run"), "--dataset", str(trained / "more"), "--out", str(of_run))
    assert "5 new nodes" in text
    for name, array in TokenStore.open(of_run).arrays.items():
        np.testing.assert_array_equal(ours.arrays[name], array)
    text = run("update", str(trained / "run"), *command[2:], "--before", str(trained / "day0"), code=2)
    assert "leave out --before" in text
    many = run("update", str(trained / "run"), "--dataset", str(trained / "day1"), "--out", str(trained / "many"))
    assert "more than one node in twenty is new or has other edges: everything was made anew" in many


def test_a_missing_column_is_named(trained: Path) -> None:
    write_tables(trained / "lacking", 125)
    file = trained / "lacking" / "accounts.csv"
    lines = [
        ",".join(cell for place, cell in enumerate(line.split(",")) if place != 1) for line in file.read_text().split()
    ]
    file.write_text("\n".join(lines) + "\n")
    text = run("predict", str(trained / "run"), "--dataset", str(trained / "lacking"), code=2)
    assert "age" in text
