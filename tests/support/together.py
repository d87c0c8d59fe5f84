"""Processes that train together, for tests: `torchrun` starts them, and what they do there stands in `main`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.plain import model_config, token_config, train_config
from vcr_graphormer import (
    Graph,
    ModelConfig,
    ProcessError,
    Split,
    generate,
    make_inputs,
    tokenize,
)
from vcr_graphormer.data.tasks import TASKS, Target
from vcr_graphormer.errors import ConfigError
from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.members import make_model
from vcr_graphormer.training.processes import Processes
from vcr_graphormer.training.trainer import Examples, Trainer

ROOT = Path(__file__).parent.parent.parent
TWO = ("--standalone", "--nproc-per-node", "2")
TOKENS = token_config(hops=2, clusters=4, structure_tokens=3, content_tokens=3)
MODEL = model_config(hidden_channels=16, heads=2, dropout=0.0, attention_dropout=0.0, kind_embedding=True)
TRAINING = train_config(epochs=4, batch_size=30, warmup_steps=3, patience=9, learning_rate=0.01, checkpoint_every=3)
# Case → nodes of its step. The micro-batches of "parts" cut every share; of the one node of "few", most get nothing.
# In "weighted" and "weighted labels" the classes have weights.
CASES = {
    **{"classification": 20, "multilabel": 20, "regression": 20, "parts": 20, "few": 1, "bfloat16": 20},
    **{"weighted": 20, "weighted labels": 20, "members": 20},
}


def begin(*command: str, options: Sequence[str] = TWO) -> "subprocess.Popen[str]":
    """Start torchrun with a module of ours."""
    whole = [sys.executable, "-m", "torch.distributed.run", *options, "-m", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        whole, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=environment
    )


def torchrun(*command: str, options: Sequence[str] = TWO, succeeds: bool = True) -> str:
    """Run it to its end; returns what all processes and the agent wrote."""
    [(code, text)] = finish([begin(*command, options=options)])
    assert (code == 0) == succeeds, text
    return text


def finish(agents: "list[subprocess.Popen[str]]") -> list[tuple[int, str]]:
    """Wait for them; returns their exit statuses and what they wrote. None outlives a test, even one that hangs."""
    try:
        texts = [agent.communicate(timeout=400)[0] for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                agent.terminate()  # it ends its workers
                agent.communicate()
    return [(agent.returncode, text) for agent, text in zip(agents, texts, strict=True)]


def small_graph() -> Graph:
    """91 training nodes: in batches of 30 the last has one."""
    return generate(nodes=152, edges=600, classes=3, features=8, homophily=0.8, seed=0)


def with_task(graph: Graph, task: str) -> Graph:
    """The graph with labels of another kind, some of them unknown."""
    labels = np.asarray(graph.labels)
    unknown = np.random.default_rng(0).random((len(labels), 3)) < 0.4
    if task == "multilabel":
        several = np.where(unknown, -1, np.eye(3, dtype=np.int8)[labels]).astype(np.int8)
        return replace(graph, labels=several, task="multilabel", class_names=None)
    targets = np.where(unknown[:, :1], np.nan, labels[:, None] + 0.5).astype(np.float32)
    return replace(graph, labels=targets, task="regression", class_names=None)


def make_trainer(
    folder: Path,
    case: str,
    processes: Processes,
    run: Path | None = None,
    streamed: bool = False,
    model: ModelConfig = MODEL,
) -> Trainer:
    """A trainer of one of the cases."""
    graph = small_graph()
    split = Split.random(graph.labels, seed=0)
    store = tokenize(graph, split.train, TOKENS, folder / "tokens")
    inputs = make_inputs(graph, store, model, split.train, torch.device("cpu"), streamed=streamed)
    if case in ("multilabel", "regression", "weighted labels"):
        graph = with_task(graph, "regression" if case == "regression" else "multilabel")
    training = replace(TRAINING, micro_batch=3 if case in ("parts", "weighted", "members") else 0)
    if case == "unlabelled":
        training = replace(training, consistency=1.0)
    if case == "bfloat16":
        training = replace(training, precision="bfloat16")
    torch.manual_seed(100 + processes.rank)  # other weights everywhere: those of the first process must win
    outputs = 1 if case == "regression" else 3
    model = replace(model, members=2 if case == "members" else 1)
    made = make_model(model, inputs.layout, num_features=graph.num_features, num_outputs=outputs)
    labels = np.asarray(graph.labels)
    seen, judged = (Examples(part, labels[part]) for part in (split.train, split.val))
    target = Target(TASKS[graph.task])
    if case.startswith("weighted"):
        target = target.weighted(seen.labels, [1.0, 5.0, 0.2], ["0", "1", "2"])
    return Trainer(made, inputs, seen, judged, target, training, folder=run, processes=processes)


def gradients(folder: Path, case: str, processes: Processes) -> dict[str, Any]:
    """The gradient of one step and its loss; alone it is the reference."""
    trainer = make_trainer(folder, case, processes)
    trainer.config = replace(trainer.config, gradient_clip=0.0)
    whole = trainer.labels[: CASES[case]]
    share = processes.share(len(whole))
    trainer.worker.train()
    batch = trainer.inputs.batch(trainer.nodes[: CASES[case]][share])
    loss = trainer.take_step(batch, whole[share], trainer.task.count_known(whole))
    found = {name: value.grad for name, value in trainer.model.named_parameters()}
    assert all(value is not None for value in found.values())
    return {f"{case}/{name}": value.numpy() for name, value in found.items() if value is not None} | {
        f"{case}/loss": float(processes.sum(loss[None])[0])
    }


class Record:
    """The nodes whose tokens a trainer asks for: (epoch, whether in training, node)."""

    def __init__(self, trainer: Trainer) -> None:
        self.rows: list[tuple[int, bool, int]] = []
        original, inputs = Inputs.batch, trainer.inputs

        def batch(asked: Inputs, nodes: torch.Tensor, with_rows: bool = True) -> Any:
            if asked is inputs:
                training = trainer.worker.training
                self.rows += [(trainer.epoch - (not training), training, int(node)) for node in nodes]
            return original(asked, nodes, with_rows)

        Inputs.batch = batch  # type: ignore[method-assign, assignment]


def try_tools(processes: Processes) -> dict[str, Any]:
    """What each function of `Processes` gives in this process."""
    found: dict[str, Any] = {"rank": processes.rank, "size": processes.size}
    found["agree"] = processes.agree(lambda: f"of {processes.rank}")
    found["first"] = processes.first(lambda: f"of {processes.rank}")
    found["gather"] = processes.gather(processes.rank * 2)
    found["any"] = [processes.any(False), processes.any(processes.rank == 1), processes.any(True)]
    found["sum"] = processes.sum(torch.tensor([1.0, float(processes.rank)])).tolist()
    for count in (1, 7):
        rows = np.arange(count * 2, dtype=np.float32).reshape(count, 2)
        found[f"collect {count}"] = processes.collect(rows[processes.share(count)], count).tolist()
    processes.seed(0, 3)
    drawn = torch.rand(3).tolist()
    processes.seed(0, 3)
    found["drawn"], found["again"] = drawn, torch.rand(3).tolist()

    def fail() -> None:
        raise ConfigError("no such thing")

    try:
        processes.first(fail)
    except ConfigError as error:
        found["failure"] = f"own: {error}"
    except ProcessError as error:
        found["failure"] = f"told: {error}"
    found["device"] = processes.device("cpu")
    return found


def try_all(folder: Path) -> None:
    """Everything that one start of the processes can show; a file per process."""
    processes = Processes.join()
    assert Processes.join().group is processes.group
    found: dict[str, Any] = {"tools": try_tools(processes)}
    arrays: dict[str, Any] = {}
    for case in CASES:
        arrays |= gradients(folder, case, processes)
    trainer = make_trainer(folder, "classification", processes)
    record = Record(trainer)
    trainer.fit()
    found["rows"] = record.rows
    found["history"] = trainer.history
    streamed = make_trainer(folder, "classification", processes, streamed=True)
    streamed.fit()
    found["streamed"] = streamed.history
    unlabelled = make_trainer(folder, "unlabelled", processes)
    unlabelled.fit()
    found["unlabelled"] = unlabelled.history
    # The checkpoint is of epoch 3: resumed from it, epoch 4 is run again.
    processes.first((folder / "run").mkdir)
    for name in ("whole", "resumed"):
        again = make_trainer(
            folder,
            "classification",
            processes,
            folder / "run",
            model=replace(MODEL, dropout=0.3, attention_dropout=0.3),
        )
        if name == "resumed":
            again.restore()
            assert again.epoch == 3
        again.fit()
        found[name] = again.history
    np.savez(folder / f"rank-{processes.rank}.npz", **arrays)
    (folder / f"rank-{processes.rank}.json").write_text(json.dumps(found))


def command(victims: str, what: str, epochs: str, arguments: list[str]) -> None:
    """The command, in which one process of an attempt gets a signal after an epoch, or sends it to the agent.

    Victims and epochs are lists: the first entries are those of the first attempt.
    """
    from vcr_graphormer.cli.main import main

    original = Trainer._run_epoch
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    ends = list(zip(victims.split(","), epochs.split(","), strict=True))[attempt : attempt + 1]

    def run_epoch(trainer: Trainer) -> dict[str, float]:
        row = original(trainer)
        print(f"rank {trainer.processes.rank}: {torch.get_num_threads()} threads", flush=True)
        if (str(trainer.processes.rank), str(trainer.epoch)) in ends:
            os.kill(os.getppid() if what == "SIGINT" else os.getpid(), getattr(signal, what))
        return row

    Trainer._run_epoch = run_epoch  # type: ignore[method-assign, assignment]
    sys.argv = ["vcr-graphormer", *arguments]
    main()


if __name__ == "__main__":
    if sys.argv[1] == "all":
        try_all(Path(sys.argv[2]))
    else:
        command(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
