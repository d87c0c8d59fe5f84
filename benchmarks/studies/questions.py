"""Test accuracy of the paper's research questions and of ours, one setting changed at a time.

    python -m benchmarks questions --data ROOT --device cuda --studies tokens hops --graphs Squirrel Actor
    python -m benchmarks questions --draw        only figures and tables, from the files that are there

Every row is a preset with something changed. It is trained on random 60/20/20 splits: seeds 300 to 304 on the
heterophilous graphs, which vary more, and 300 to 302 on the others. The search and the reported results have other
seeds. The paper's presets have a shorter schedule here (`SHORT`), since hundreds of trainings are compared. Each study
and graph has a file results/ablation/STUDY-GRAPH.json, written after each row. After an interruption the same command
continues. Figures and results/ablation/README.md are made from these files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import (
    load_graph,
    markdown_table,
    new_parser,
    percent,
    random_splits,
    read_rows,
    this_command,
    variant_config,
)
from benchmarks.records import with_defaults
from vcr_graphormer.base.files import write_json
from vcr_graphormer.data.split import Split
from vcr_graphormer.runs.run import versions
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.tokens.config import TokenConfig
from vcr_graphormer.tokens.kinds import Kind
from vcr_graphormer.tokens.lists import TokenLists
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
    """One point of a study: the line and the position where it is drawn, and the settings it changes.

    `removed`: measured before its setting was removed from the code. It is shown as it is and not measured again.
    """

    series: str
    at: float | str
    changes: dict[str, Any]
    random_content: bool = False
    removed: bool = False


@dataclass(frozen=True)
class Study:
    """A question: rows that change one thing of a variant of the presets."""

    question: str
    axis: str
    variant: str
    graphs: tuple[str, ...]
    rows: tuple[Row, ...]


def without(extension: str) -> dict[str, Any]:
    """Return the setting that switches an extension off, as in the paper's model."""
    paper = vcr.load_config(variant="paper")
    for section in (paper.model, paper.training, paper.tokens):
        if hasattr(section, extension):
            return {extension: getattr(section, extension)}
    raise ValueError(extension)


def neighbours(structure: int, content: int) -> dict[str, int]:
    """Return the settings for so many neighbours of both kinds."""
    return {"structure_tokens": structure, "content_tokens": content}


EXTENSIONS: tuple[str, ...] = (
    "kind_embedding",
    "rank_embedding",
    "rich_tokens",
    "label_hops",
    "label_embedding",
    "adjacency_rows",
    "feature_dropout",
    "embedding_dropout",
    "token_dropout",
    "average",
    "self_loops",
    "label_smoothing",
    "content",
)
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
            Row("", "own label not left out", {}, removed=True),
            Row("", "random nodes", {}, random_content=True),
            Row("", "super nodes may be tokens", {}, removed=True),
        ),
    ),
    "extensions": Study(
        "Our reduced settings without one of their extensions",
        "taken out",
        "reduced",
        (*HETEROPHILOUS, *HOMOPHILOUS),
        (Row("", "nothing", {}), *(Row("", name, without(name)) for name in EXTENSIONS)),
    ),
}


class RandomContent(Workbench):
    """A workbench whose content neighbours are random nodes with the scores of the real ones."""

    def lists(self, split: Split, tokens: TokenConfig, kinds: Sequence[Kind] = ()) -> TokenLists:
        """Return the lists of the workbench with other content neighbours; padding stays."""
        lists = super().lists(split, tokens, kinds)
        ids = torch.from_numpy(lists.ids("content"))
        generator = torch.Generator().manual_seed(tokens.seed)
        random = torch.randint(self.graph.num_nodes, ids.shape, generator=generator, dtype=ids.dtype)
        return replace(lists, arrays={**lists.arrays, "content_ids": torch.where(ids < 0, ids, random).numpy()})


def changed(config: vcr.Config, changes: dict[str, Any]) -> vcr.Config:
    """Return a configuration with some settings of any section replaced."""
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
    graph = load_graph(graph_name, root, base.data.directed)
    benches: dict[bool, Workbench] = {}  # each holds the features, so it is made when a row needs it
    file = folder / f"{name}-{graph_name}.json"
    about = {"study": name, "graph": graph_name, "variant": study.variant}
    rows = [row for row in study.rows if not row.removed]
    configs = [changed(base, row.changes) for row in rows]
    settings_of_rows: list[dict[str, Any]] = [
        {key: asdict(getattr(config, key)) for key in ("tokens", "model", "training")}
        | {"directed": base.data.directed, "first seed": FIRST_SEED, "seeds": seeds}
        for config in configs
    ]
    # Rows with other settings, from before a preset was changed, are measured again.
    expected = {(row.series, row.at): settings for row, settings in zip(rows, settings_of_rows, strict=True)}
    done = [{**old, "settings": with_defaults(old["settings"])} for old in read_rows(file)]
    removed = {(row.series, row.at) for row in study.rows if row.removed}
    done = [
        old
        for old in done
        for place in [(old["series"], old["at"])]
        if place in removed or expected.get(place) == old["settings"]
    ]
    for row, config, settings in zip(rows, configs, settings_of_rows, strict=True):
        # Taking out what a preset does not have changes nothing, and is not measured twice.
        same = [old for old in done if old["settings"] == settings and old["random_content"] == row.random_content]
        if any(old["series"] == row.series and old["at"] == row.at for old in same):
            continue
        if same and name == "extensions":
            continue
        if row.random_content not in benches:
            make_bench = RandomContent if row.random_content else Workbench
            benches[row.random_content] = make_bench(graph, find_device(device))
        val, test = [], []
        split_seeds = range(FIRST_SEED, FIRST_SEED + seeds)
        for seed, split in zip(split_seeds, random_splits(graph, split_seeds), strict=True):
            seeded = replace(config, training=replace(config.training, seed=seed))
            trial = benches[row.random_content].train(split, seeded)
            val.append(trial.val)
            test.append(trial.test)
        key = {"series": row.series, "at": row.at, "random_content": row.random_content}
        made_by = {"command": this_command(), "device": device, "versions": versions()}
        done.append({**key, "val": val, "test": test, "settings": settings, **made_by})
        write_json(file, {**about, "rows": done})
        print(f"{name} {graph_name} {row.series} {row.at}: {percent(test)}", flush=True)


def read(folder: Path, study: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every graph of a study that was measured, in the order of the study."""
    files = {graph: folder / f"{study}-{graph}.json" for graph in STUDIES[study].graphs}
    return {graph: read_rows(file) for graph, file in files.items() if file.is_file()}


def draw(folder: Path, name: str) -> None:
    """Draw one panel per graph: lines over numbers, points beside words."""
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
            positions = [row["at"] for row in mine]
            if isinstance(positions[0], str):
                panel.errorbar(means, positions, xerr=spreads, fmt="o", color=colour, capsize=3)
                panel.invert_yaxis()
                panel.set_xlabel("test accuracy, %")
            else:
                panel.errorbar(positions, means, yerr=spreads, marker="o", color=colour, capsize=3, label=label)
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
    """Return a study as Markdown: a row per setting, a column per graph; mean ± deviation of test accuracy."""
    study, graphs = STUDIES[name], read(folder, name)
    cells = {(graph, row["series"], row["at"]): percent(row["test"]) for graph, rows in graphs.items() for row in rows}
    lines = []
    for row in study.rows:
        missing = {graph: "not measured" if alters(study, graph, row) else "-" for graph in graphs}
        line = [cells.get((graph, row.series, row.at), missing[graph]) for graph in graphs]
        if set(line) != {"-"}:
            lines.append([f"{row.series}, {row.at}" if row.series else str(row.at), *line])
    return markdown_table([study.axis, *graphs], lines)


def alters(study: Study, graph: str, row: Row) -> bool:
    """Return whether a row differs from the graph's preset: what a preset does not have cannot be taken out."""
    base = variant_config(graph, study.variant)
    return study.variant == "paper" or not row.changes or changed(base, row.changes) != base


def page(folder: Path) -> str:
    """Return the page of all tables with their figures."""
    parts = [
        "# The paper's questions, one setting at a time",
        "Test accuracy in percent, mean ± deviation over split seeds 300 to 304 (Squirrel, Actor, Texas) or to 302, "
        "from `python -m benchmarks questions`. The paper's presets have a shorter schedule here than in the tables of "
        "[docs/accuracy.md](../../docs/accuracy.md). A dash: the preset does not have it.",
    ]
    for name, study in STUDIES.items():
        if read(folder, name):
            based = f"Based on the `{study.variant}` presets."
            parts += [f"## {study.question}", based, table(folder, name), f"![{study.question}]({name}.png)"]
    return "\n\n".join(parts) + "\n"


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, out="results/ablation")
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--graphs", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, help="fewer or more of them")
    parser.add_argument("--draw", action="store_true", help="train nothing")
    return parser


def main() -> None:
    """Train what is missing, draw the figures and write the page."""
    arguments = make_parser().parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.studies:
        for graph in STUDIES[name].graphs:
            if not arguments.draw and graph in (arguments.graphs or STUDIES[name].graphs):
                seeds = arguments.seeds or SEEDS[graph]
                answer(name, graph, arguments.data, arguments.device, seeds, arguments.out)
        if read(arguments.out, name):
            draw(arguments.out, name)
    (arguments.out / "README.md").write_text(page(arguments.out))
