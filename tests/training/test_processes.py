"""Several processes against one: the same gradient, the same curve, each node read once; and their ends."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

from tests.support.command import run as run_command
from tests.support.plain import plain_config
from tests.support.together import CASES, begin, finish, gradients, make_trainer, small_graph, torchrun
from vcr_graphormer import ConfigError, ProcessError, Run, Split
from vcr_graphormer.training.processes import Processes, agent_name, meet

THREE = 3
# Gradients of shares are summed in another order than in one process. Over a few epochs that leaves 1e-6 of a loss.
SAME = 1e-5


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each of three processes saw."""
    folder = tmp_path_factory.mktemp("shown")
    make_trainer(folder, "classification", Processes())  # token lists, once
    torchrun("tests.support.together", "all", str(folder), options=("--standalone", "--nproc-per-node", str(THREE)))
    return folder


@pytest.fixture(scope="module")
def seen(shown: Path) -> list[dict[str, Any]]:
    return [json.loads((shown / f"rank-{rank}.json").read_text()) for rank in range(THREE)]


def test_alone_everything_is_the_identity() -> None:
    alone = Processes.join()
    assert (alone.rank, alone.size, alone.is_first, alone.group) == (0, 1, True, None)
    assert alone.share(7) == slice(0, 7)
    assert alone.any(True)
    assert not alone.any(False)
    values = torch.ones(3)
    assert alone.sum(values) is values
    rows = np.ones((3, 2), np.float32)
    assert alone.collect(rows, 3) is rows
    assert alone.first(lambda: 5) == 5
    assert alone.device("cuda:7") == "cuda:7"
    assert alone.joint(torch.nn.Linear(2, 2), torch.device("cpu"))(values) is values
    state = torch.get_rng_state()
    alone.seed(0, 1)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(RuntimeError, match="gloo is not to blame"), alone.guarded():
        raise RuntimeError("gloo is not to blame")


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
def test_shares_are_consecutive_and_complete(size: int, count: int) -> None:
    shares = [list(range(count))[Processes(rank, size).share(count)] for rank in range(size)]
    assert [item for share in shares for item in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_variable_of_another_program_is_no_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert Processes.join().size == 1
    monkeypatch.setenv("WORLD_SIZE", "1")  # torchrun --nproc-per-node 1
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert Processes.join().size == 1


def test_an_agent_has_one_name_in_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert agent_name() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's default, the same for all jobs
    name = agent_name()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert name is not None
    assert agent_name() == name
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert agent_name() != name


def test_a_meeting_in_a_store_where_others_met_before() -> None:
    store = HashStore()
    names = []
    for _ in range(2):  # attempts; the second finds what the first left, and one that asked and died
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda rank: meet(store, rank, 3), range(3)))
        assert len(set(found)) == 1
        names += found[:1]
        store.set("vcr/ask/1", "of one that died")
    assert names[0] != names[1]


def test_a_lost_process_is_one_readable_error() -> None:
    message = "another process of this training ended.*--max-restarts.*--resume"
    with pytest.raises(ProcessError, match=message), Processes(0, 2).guarded():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer")
    with pytest.raises(RuntimeError, match="shape"), Processes(0, 2).guarded():
        raise RuntimeError("shape mismatch")
    with pytest.raises(ConfigError), Processes(0, 2).guarded():
        raise ConfigError("ours")


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    taken: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(Processes, "first", lambda processes, work: work())
    assert [Processes(5, 8, 1).device(name) for name in ("auto", "cuda", "cuda:0", "cpu")] == [
        "cuda:1",
        "cuda:1",
        "cuda:0",
        "cpu",
    ]
    assert [str(device) for device in taken] == ["cuda:1", "cuda:1", "cuda:0"]
    with pytest.raises(ConfigError, match="no GPU of its own, there are 2: .* --nproc-per-node 2, or use --device cpu"):
        Processes(6, 8, 2).device("auto")


def test_what_processes_tell_each_other(seen: list[dict[str, Any]]) -> None:
    tools = [row["tools"] for row in seen]
    assert [row["rank"] for row in tools] == [0, 1, 2]
    assert [row["agree"] for row in tools] == ["of 0"] * 3
    assert [row["first"] for row in tools] == ["of 0", None, None]
    assert [row["any"] for row in tools] == [[False, True, True]] * 3
    assert [row["gather"] for row in tools] == [[0, 2, 4]] * 3
    assert [row["sum"] for row in tools] == [[3.0, 3.0]] * 3
    assert tools[0]["collect 7"] == np.arange(14).reshape(7, 2).tolist()
    assert tools[0]["collect 1"] == [[0, 1]]  # of two processes that had nothing, nothing is awaited
    assert len({tuple(row["drawn"]) for row in tools}) == 3
    assert all(row["drawn"] == row["again"] for row in tools)
    assert tools[0]["failure"] == "own: no such thing"
    assert all("the first process" in row["failure"] and "no such thing" in row["failure"] for row in tools[1:])
    assert [row["device"] for row in tools] == ["cpu"] * 3


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_one_process(shown: Path, case: str) -> None:
    alone = gradients(shown, case, Processes())
    rtol, atol = (0.05, 2e-3) if case == "bfloat16" else (1e-4, 1e-6)
    for rank in range(THREE):
        found = np.load(shown / f"rank-{rank}.npz")
        assert {name for name in found.files if name.startswith(f"{case}/")} == set(alone)
        for name, expected in alone.items():
            np.testing.assert_allclose(found[name], expected, rtol, atol, err_msg=name)
            assert np.abs(expected).max() > 0, name  # a gradient of nothing would agree with anything


def test_each_nodes_tokens_are_read_by_one_process(seen: list[dict[str, Any]]) -> None:
    split = Split.random(small_graph().labels, seed=0)
    for training, nodes in ((True, split.train), (False, split.val)):
        for epoch in range(4):
            asked = [[node for when, kind, node in row["rows"] if kind == training and when == epoch] for row in seen]
            assert all(asked)  # by every process
            assert sorted(chain(*asked)) == sorted(nodes.tolist())


@pytest.mark.parametrize("name", ["history", "streamed", "unlabelled"])
def test_the_curve_is_that_of_one_process(shown: Path, seen: list[dict[str, Any]], name: str) -> None:
    case = "unlabelled" if name == "unlabelled" else "classification"
    alone = make_trainer(shown, case, Processes(), streamed=name == "streamed")
    alone.fit()
    for row in seen:
        for key in ("loss", "val_loss", "val"):
            assert [one[key] for one in row[name]] == pytest.approx([one[key] for one in alone.history], rel=SAME)


def test_resumed_with_dropout_it_draws_the_same_masks(seen: list[dict[str, Any]]) -> None:
    for row in seen:
        whole, resumed = ([{**one, "seconds": 0} for one in row[name]] for name in ("whole", "resumed"))
        assert [one["epoch"] for one in resumed] == [1, 2, 3, 4]
        assert resumed == whole
        assert [one["loss"] for one in whole] != [one["loss"] for one in row["history"]]


SETTINGS = (
    "--device=cpu",
    "--variant=paper",  # without dropout that each process draws by itself
    "--set=tokens.hops=2",
    "--set=tokens.clusters=4",
    "--set=tokens.structure_tokens=3",
    "--set=tokens.content_tokens=3",
    "--set=model.hidden_channels=16",
    "--set=model.heads=2",
    "--set=model.dropout=0",
    "--set=model.attention_dropout=0",
    "--set=training.epochs=6",
    "--set=training.batch_size=30",
    "--set=training.warmup_steps=3",
    "--set=training.learning_rate=0.01",
    "--set=training.checkpoint_every=2",
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_graph().save(tmp_path_factory.mktemp("data") / "graph"))


@pytest.fixture(scope="module")
def alone(saved: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("alone") / "run"
    run_command("train", "--dataset", saved, "--out", str(out), *SETTINGS)
    return Run.open(out, "cpu")


@pytest.fixture(scope="module")
def two(saved: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    out = tmp_path_factory.mktemp("two") / "run"
    text = torchrun("vcr_graphormer", "train", "--dataset", saved, "--out", str(out), *SETTINGS)
    return Run.open(out, "cpu"), text


def assert_same_run(found: Run, expected: Run) -> None:
    assert len(expected.split.train) % 30 == 1  # so that one process has nothing in the last batch
    for key in ("epoch", "loss", "val_loss", "val", "best_epoch", "learning_rate"):
        assert [row[key] for row in found.history] == pytest.approx([row[key] for row in expected.history], rel=SAME)
    assert found.metrics["scores"] == expected.metrics["scores"]
    files = [np.load(run.path / "predictions.npz") for run in (found, expected)]
    np.testing.assert_allclose(files[0]["probabilities"], files[1]["probabilities"], rtol=1e-4, atol=1e-5)
    names = [{path.name for path in run.path.iterdir()} for run in (found, expected)]
    assert names[0] == names[1]  # nothing left behind


def test_two_processes(two: tuple[Run, str], alone: Run) -> None:
    run, text = two
    assert_same_run(run, alone)
    assert run.metrics["device"].endswith("2 processes")
    for line in ("epoch 1: loss", "hop features: done", "the run lies in"):
        assert text.count(line) == 1, text  # the first process alone speaks


def test_two_agents(saved: str, alone: Run, tmp_path: Path) -> None:
    # The store they meet at is ours: in the first agent it would end with it, under the other's feet.
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    out = tmp_path / "run"
    command = ("vcr_graphormer", "train", "--dataset", saved, "--out", str(out), *SETTINGS)
    options = (
        *("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "test"),
        *("--rdzv-endpoint", f"127.0.0.1:{meeting.port}", "--rdzv-conf", "is_host=false"),
    )
    agents = [begin(*command, options=options) for _ in range(2)]
    ends = finish(agents)
    assert [code for code, _ in ends] == [0, 0], ends
    assert_same_run(Run.open(out, "cpu"), alone)
    assert sum(text.count("the run lies in") for _, text in ends) == 1


def test_killed_processes_are_restarted_and_the_run_ends_as_if_none_had_died(
    saved: str, two: tuple[Run, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = ("train", "--dataset", saved, "--out", str(out), *SETTINGS)
    options = ("--max-restarts", "2", "--standalone", "--nproc-per-node", "2")
    # Of the first attempt the first process dies, of the second the other.
    text = torchrun("tests.support.together", "0,1", "SIGKILL", "3,5", *arguments, options=options)
    assert text.count("exitcode: -9") == 2
    run = Run.open(out, "cpu")
    # Epochs 3 and 5 were finished but lay after the last checkpoint: they were run again, to the same bits.
    assert [{**row, "seconds": 0} for row in run.history] == [{**row, "seconds": 0} for row in two[0].history]
    for name, tensor in two[0].model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name])
    assert text.count("epoch 1: loss") == 1  # it went on, from epoch 2


def test_stopped_by_a_signal_all_end_after_the_epoch(saved: str, two: tuple[Run, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    long = ("--set=training.epochs=600", "--set=training.patience=600", "--set=training.checkpoint_every=0")
    arguments = ("train", "--dataset", saved, "--out", str(out), *SETTINGS, *long, "--threads", "2")
    text = torchrun("tests.support.together", "1", "SIGINT", "2", *arguments, succeeds=False)
    assert text.count("stopped; continue with: vcr-graphormer train --resume") == 1, text
    assert "[rank" not in text  # no traceback of a process
    run = Run.open(out, "cpu")
    assert not run.finished
    assert (out / "checkpoint" / "last.safetensors").is_file()
    assert 2 <= len(run.history) < 600
    for rank in (0, 1):  # each process follows --threads
        assert f"rank {rank}: 2 threads" in text and f"rank {rank}: 1 threads" not in text


def test_what_the_first_process_refuses_is_said_once_and_ends_all(two: tuple[Run, str], tmp_path: Path) -> None:
    out = shutil.copytree(two[0].path, tmp_path / "run")
    kept = (out / "metrics.json").read_bytes()
    text = torchrun(
        *("vcr_graphormer", "train", "--out", str(out), *SETTINGS),
        options=("--max-restarts", "1", "--standalone", "--nproc-per-node", "2"),
        succeeds=False,
    )
    # Once in each attempt: a restart continues a run of its own job only, not whatever lies in the folder.
    assert text.count("error: ") == text.count("holds a run already") == 2, text
    assert "[rank" not in text
    assert (out / "metrics.json").read_bytes() == kept


def test_several_seeds_are_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vcr_graphormer.runs.seeds import train_seeds

    monkeypatch.setattr(Processes, "join", classmethod(lambda cls: cls(0, 2)))
    with pytest.raises(ConfigError, match="one after another in one process, not under torchrun"):
        train_seeds(plain_config(), 3, tmp_path / "runs", "cpu")
    monkeypatch.setattr(Processes, "agree", lambda processes, work: work())
    text = run_command("train", "--seeds", "3", "--out", str(tmp_path / "runs"), code=2)
    assert "under torchrun leave it out and give each seed a command of its own" in text
    assert not (tmp_path / "runs").exists()
