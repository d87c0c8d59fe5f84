"""The paper's research questions, and ours, answered one setting at a time.

    python benchmarks/questions.py --data ROOT [--device cuda] [--studies tokens hops] [--graphs Squirrel Actor]
    python benchmarks/questions.py --draw        only figures and tables, from the files that are there

Every row is a preset with something changed, trained on random 60/20/20 splits of seeds 300 to 304 (heterophilous
graphs, which vary more) or 300 to 302: neither of the search nor reported. The paper's presets have a shorter
schedule here (`SHORT`), the same for all rows: hundreds of trainings are compared. One file per study and graph,
results/ablation/STUDY-GRAPH.json, written row by row: interrupted, the same command goes on. Figures and
results/ablation/README.md are made from these files.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor

import vcr_graphormer as vcr
from benchmarks.common import percent
from benchmarks.records import this_command, variant_config, with_defaults
from benchmarks.training import load
from benchmarks.workbench import Workbench
from vcr_graphormer.base.files import read_json, write_json
from vcr_graphormer.data.split import Split
from vcr_graphormer.model.config import ModelConfig
from vcr_graphormer.runs.run import versions
from vcr_graphormer.tokens.config import TokenConfig
from vcr_graphormer.training.config import TrainConfig
from vcr_graphormer.training.devices import find_device

mpl.use("Agg")
import matplotlib.pyplot as plt

HETEROPHILOUS = ("Squirrel", "Actor", "Texas")
HOMOPHILOUS = ("PubMed", "Computer", "Photo", "CS", "Physics")
SEEDS = dict.fromkeys(HETEROPHILOUS, 5) | dict.fromkeys(HOMOPHILOUS, 3)
FIRST_SEED = 300
SHORT = {"epochs": 150, "patience": 30, "warmup_steps": 100, "decay_steps": 500}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


@dataclass(frozen=True)
class Row:
    """One point of a study: where it is drawn, and what it changes of its preset."""

    series: str
    at: float | str
    changes: dict[str, Any]
    random_content: bool = False


@dataclass(frozen=True)
class Study:
    """A question: rows that differ in one thing, from one variant of the presets."""

    question: str
    axis: str
    variant: str
    graphs: tuple[str, ...]
    rows: tuple[Row, ...]


def without(extension: str) -> dict[str, Any]:
    """An extension as the paper's model has it."""
    for kind in (ModelConfig, TrainConfig, TokenConfig):
        if hasattr(kind, extension):
            return {extension: getattr(kind, extension)}
    raise ValueError(extension)


def neighbours(structure: int, content: int) -> dict[str, int]:
    """Numbers of neighbours of both kinds."""
    return {"structure_tokens": structure, "content_tokens": content}


EXTENSIONS: tuple[str, ...] = (
    "kind_embedding",
    "rank_embedding",
    "rich_tokens",
    "label_hops",
    "label_embedding",
    "adjacency_rows",
    "feature_dropout",
)
EXTENSIONS += ("embedding_dropout", "token_dropout", "average", "self_loops", "label_smoothing", "content")
STUDIES = {
    "tokens": Study(
        "RQ1, RQ2: what are structure-aware and content-aware neighbours worth?",
        "(structure, content)",
        "paper",
        (*HETEROPHILOUS, *HOMOPHILOUS),
        tuple(Row("", f"({s}, {c})", neighbours(s, c)) for s in (0, 10) for c in (0, 10)),
    ),
    "hops": Study(
        "The paper's figure: hops on heterophilous graphs",
        "hops L",
        "paper",
        HETEROPHILOUS,
        tuple(
            Row(name, hops, {"hops": hops, **numbers})
            for name, numbers in (("hops only", neighbours(0, 0)), ("hops and neighbours (10, 10)", neighbours(10, 10)))
            for hops in range(1, 11)
        ),
    ),
    "clusters": Study(
        "RQ3: number of clusters",
        "clusters",
        "paper",
        ("PubMed", "Photo", "Squirrel"),
        tuple(Row("", clusters, {"clusters": clusters}) for clusters in (10, 20, 50, 100)),
    ),
    "neighbours": Study(
        "RQ3: number of neighbours",
        "neighbours of one kind, the other kind as in the paper",
        "paper",
        ("PubMed", "Photo", "Squirrel"),
        tuple(
            Row(kind, count, {f"{kind}_tokens": count})
            for kind in ("structure", "content")
            for count in (0, 2, 5, 10, 20)
        ),
    ),
    "restart": Study(
        "Restart probability of both PageRanks",
        "restart",
        "paper",
        ("PubMed", "Photo", "Squirrel", "Actor"),
        tuple(Row("", restart, {"restart": restart}) for restart in (0.05, 0.15, 0.3, 0.5, 0.8)),
    ),
    "content": Study(
        "Are content neighbours more than noise, and does leaving the own label out matter?",
        "content neighbours",
        "paper",
        ("PubMed", "Computer", "Photo", "Squirrel", "Actor"),
        (
            Row("", "none", {"content_tokens": 0}),
            Row("", "as in the paper", {}),
            Row("", "own label not left out", {"leave_own_label_out": False}),
            Row("", "random nodes", {}, random_content=True),
            Row("", "super nodes may be tokens", {"super_tokens": "mean"}),
        ),
    ),
    "extensions": Study(
        "Our preset without one of its extensions",
        "taken out",
        "default",
        (*HETEROPHILOUS, *HOMOPHILOUS),
        (Row("", "nothing", {}), *(Row("", name, without(name)) for name in EXTENSIONS)),
    ),
}


class RandomContent(Workbench):
    """Content neighbours drawn at random, with the scores of the real ones."""

    def _ranking(self, kind: str, split: Split, tokens: TokenConfig, content: str) -> tuple[Tensor, Tensor]:
        ids, scores = super()._ranking(kind, split, tokens, content)
        if kind == "structure":
            return ids, scores
        generator = torch.Generator().manual_seed(tokens.seed)
        random = torch.randint(self.graph.num_nodes, ids.shape, generator=generator, dtype=ids.dtype).to(ids.device)
        return torch.where(ids < 0, ids, random), scores


def changed(config: vcr.Config, changes: dict[str, Any]) -> vcr.Config:
    """A configuration with some settings of any section replaced."""
    sections: dict[str, Any] = {}
    for name in ("tokens", "model", "training"):
        section = getattr(config, name)
        sections[name] = replace(section, **{key: value for key, value in changes.items() if hasattr(section, key)})
    hops = sections["tokens"].hops
    model = sections["model"]
    sections["model"] = replace(model, rich_tokens=min(model.rich_tokens, hops), label_hops=min(model.label_hops, hops))
    return replace(config, **sections)


def answer(name: str, graph_name: str, root: str, device: str, seeds: int, folder: Path) -> None:
    """Train the rows of one study on one graph that are not in its file yet."""
    study = STUDIES[name]
    base = variant_config(graph_name, study.variant)
    base = changed(base, SHORT) if study.variant == "paper" else base
    graph = load(graph_name, root, base.data.directed)
    benches: dict[bool, Workbench] = {}  # each holds the features: made when a row asks for it
    file = folder / f"{name}-{graph_name}.json"
    found = read_json(file)["rows"] if file.is_file() else []
    about = {"study": name, "graph": graph_name, "variant": study.variant}
    configs = [changed(base, row.changes) for row in study.rows]
    wanted: list[dict[str, Any]] = [
        {key: asdict(getattr(config, key)) for key in ("tokens", "model", "training")}
        | {"directed": base.data.directed, "first seed": FIRST_SEED, "seeds": seeds}
        for config in configs
    ]
    # Rows of other settings, from before a preset was changed, are measured again.
    expected = {(row.series, row.at): settings for row, settings in zip(study.rows, wanted, strict=True)}
    found = [{**old, "settings": with_defaults(old["settings"])} for old in found]
    found = [old for old in found if expected.get((old["series"], old["at"])) == old["settings"]]
    for row, config, settings in zip(study.rows, configs, wanted, strict=True):
        # Taking out what a preset does not have changes nothing: it is not measured twice.
        same = [old for old in found if old["settings"] == settings and old["random_content"] == row.random_content]
        if any(old["series"] == row.series and old["at"] == row.at for old in same):
            continue
        if same and name == "extensions":
            continue
        if row.random_content not in benches:
            benches[row.random_content] = (RandomContent if row.random_content else Workbench)(
                graph, find_device(device)
            )
        val, test = [], []
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            split = vcr.Split.random(graph.labels, 0.6, 0.2, seed)
            seeded = replace(config, training=replace(config.training, seed=seed))
            trial = benches[row.random_content].train(split, seeded)
            val.append(trial.val)
            test.append(trial.test)
        place = {"series": row.series, "at": row.at, "random_content": row.random_content}
        made = {"command": this_command(), "device": device, "versions": versions()}
        found.append({**place, "val": val, "test": test, "settings": settings, **made})
        write_json(file, {**about, "rows": found})
        print(
            f"{name} {graph_name} {row.series} {row.at}: {percent(test)}",
            flush=True,
        )


def read(folder: Path, study: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of every graph of a study that was measured, in the study's order of graphs."""
    files = {graph: folder / f"{study}-{graph}.json" for graph in STUDIES[study].graphs}
    return {graph: read_json(file)["rows"] for graph, file in files.items() if file.is_file()}


def draw(folder: Path, name: str) -> None:
    """One panel per graph: lines over numbers, bars over words."""
    study, graphs = STUDIES[name], read(folder, name)
    columns = min(4, len(graphs))
    lines = -(-len(graphs) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(3.6 * columns, 3.1 * lines), dpi=110, squeeze=False)
    for panel in panels.flat[len(graphs) :]:
        panel.set_visible(False)
    for panel, (graph, rows) in zip(panels.flat, graphs.items(), strict=False):
        series = list(dict.fromkeys(row["series"] for row in rows))
        for colour, label in zip(COLOURS, series, strict=False):
            mine = [row for row in rows if row["series"] == label]
            means = [100 * np.mean(row["test"]) for row in mine]
            spreads = [100 * np.std(row["test"], ddof=1) for row in mine]
            places = [row["at"] for row in mine]
            if isinstance(places[0], str):
                panel.errorbar(means, places, xerr=spreads, fmt="o", color=colour, capsize=3)
                panel.invert_yaxis()
                panel.set_xlabel("test accuracy, %")
            else:
                panel.errorbar(places, means, yerr=spreads, marker="o", color=colour, capsize=3, label=label)
                panel.set(xlabel=study.axis, ylabel="test accuracy, %")
        panel.set_title(graph)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(study.question)
    figure.tight_layout()
    handles, labels = panels.flat[0].get_legend_handles_labels()
    if len(labels) > 1:  # below the panels, where it hides nothing
        figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(labels), frameon=False)
    figure.savefig(folder / f"{name}.png", bbox_inches="tight")
    plt.close(figure)


def table(folder: Path, name: str) -> str:
    """The same as Markdown: a row per setting, a column per graph; mean ± deviation of the test accuracy."""
    study, graphs = STUDIES[name], read(folder, name)
    cells = {(graph, row["series"], row["at"]): percent(row["test"]) for graph, rows in graphs.items() for row in rows}
    lines = [f"| {study.axis} | " + " | ".join(graphs) + " |", "| --- |" + " --- |" * len(graphs)]
    for row in study.rows:
        missing = {graph: "not measured" if alters(study, graph, row) else "-" for graph in graphs}
        found = [cells.get((graph, row.series, row.at), missing[graph]) for graph in graphs]
        if set(found) != {"-"}:
            label = f"{row.series}, {row.at}" if row.series else str(row.at)
            lines.append(f"| {label} | " + " | ".join(found) + " |")
    return "\n".join(lines)


def alters(study: Study, graph: str, row: Row) -> bool:
    """Whether a row is another setting than the graph's preset: what it does not have cannot be taken out."""
    base = variant_config(graph, study.variant)
    return study.variant == "paper" or not row.changes or changed(base, row.changes) != base


def page(folder: Path) -> str:
    """All tables with their figures."""
    parts = [
        "# The paper's questions, one setting at a time",
        "Test accuracy in percent, mean ± deviation over split seeds 300 to 304 (Squirrel, Actor, Texas) or to 302, "
        "from `benchmarks/questions.py`. The paper's presets have a shorter schedule here than in the tables of "
        "[docs/accuracy.md](../../docs/accuracy.md). A dash: the preset does not have it.",
    ]
    for name, study in STUDIES.items():
        if read(folder, name):
            based = f"Based on the `{study.variant}` presets."
            parts += [f"## {study.question}", based, table(folder, name), f"![{study.question}]({name}.png)"]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Answer, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--graphs", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, help="fewer or more of them")
    parser.add_argument("--out", type=Path, default=Path("results/ablation"))
    parser.add_argument("--draw", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.studies:
        for graph in STUDIES[name].graphs:
            if not arguments.draw and graph in (arguments.graphs or STUDIES[name].graphs):
                seeds = arguments.seeds or SEEDS[graph]
                answer(name, graph, arguments.data, arguments.device, seeds, arguments.out)
        if read(arguments.out, name):
            draw(arguments.out, name)
    (arguments.out / "README.md").write_text(page(arguments.out))


if __name__ == "__main__":
    main()
