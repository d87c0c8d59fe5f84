"""Draw the pictures of docs/inside.md as SVG: the rooms, and one picture per seam. `python docs/diagrams.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

INK, SOFT, GROUND, ACCENT, WARM = "#1b2733", "#5a6b7b", "#f4f6f8", "#2a6fb0", "#b4541a"
WIDTH, PAD, LINE = 176, 12, 17  # of a box: width, margin inside, height of a line
GAP_X, GAP_Y, MARGIN = 54, 18, 22
LETTERS = 26  # in a line of a box


@dataclass(frozen=True)
class Box:
    """A title and some words below it; `own` marks what a newcomer writes."""

    title: str
    words: str = ""
    own: bool = False

    @property
    def lines(self) -> list[str]:
        """Return the words in lines that fit."""
        lines, line = [], ""
        for word in self.words.split():
            if line and len(line) + 1 + len(word) > LETTERS:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        return [*lines, line] if line else lines

    @property
    def height(self) -> int:
        """Return the height in pixels."""
        return 2 * PAD + LINE * (1 + len(self.lines)) + (2 if self.lines else -4)


def _box(box: Box, x: float, y: float) -> list[str]:
    border, ground = (WARM, "#fdf3ec") if box.own else (ACCENT, GROUND)
    dash = ' stroke-dasharray="5 4"' if box.own else ""
    parts = [
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{box.height}" rx="8" fill="{ground}" stroke="{border}"{dash}/>',
        f'<text x="{x + PAD}" y="{y + PAD + 12}" font-size="14" font-weight="600" fill="{INK}">'
        f"{escape(box.title)}</text>",
    ]
    for number, line in enumerate(box.lines, 1):
        top = y + PAD + 13 + LINE * number
        parts.append(f'<text x="{x + PAD}" y="{top}" font-size="12" fill="{SOFT}">{escape(line)}</text>')
    return parts


def draw(title: str, columns: Sequence[Sequence[Box]], arrows: Sequence[tuple[str, str]]) -> str:
    """Return an SVG with columns of boxes; arrows go from title to title."""
    heights = [sum(box.height for box in column) + GAP_Y * (len(column) - 1) for column in columns]
    tall = max(heights)
    width = 2 * MARGIN + len(columns) * WIDTH + (len(columns) - 1) * GAP_X
    places: dict[str, tuple[float, float, int]] = {}
    parts: list[str] = []
    for number, column in enumerate(columns):
        x, y = MARGIN + number * (WIDTH + GAP_X), MARGIN + (tall - heights[number]) / 2
        for box in column:
            places[box.title] = (x, y, box.height)
            parts += _box(box, x, y)
            y += box.height + GAP_Y
    for first, second in arrows:
        (x1, y1, h1), (x2, y2, h2) = places[first], places[second]
        if x1 == x2:  # one below the other
            start, end = (x1 + WIDTH / 2, y1 + h1), (x2 + WIDTH / 2, y2 - 2)
            path = f"M{start[0]} {start[1]}L{end[0]} {end[1]}"
        else:
            start, end = (x1 + WIDTH, y1 + h1 / 2), (x2 - 2, y2 + h2 / 2)
            middle = (start[0] + end[0]) / 2
            path = f"M{start[0]} {start[1]}C{middle} {start[1]} {middle} {end[1]} {end[0]} {end[1]}"
        parts.append(f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.3" marker-end="url(#head)"/>')
    height = tall + 2 * MARGIN
    head = '<path d="M0 0L10 5L0 10z" fill="#1b2733"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" role="img" '
            f'aria-labelledby="title" font-family="system-ui, Helvetica, Arial, sans-serif">',
            f'<title id="title">{escape(title)}</title>',
            f'<defs><marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto">{head}</marker></defs>',
            f'<rect width="{width}" height="{height:g}" rx="12" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


ROOMS = draw(
    "The ten rooms in the order in which data flows",
    [
        [
            Box("base", "checks, files, jobs, memory of the machine"),
            Box("data", "Graph, Split, tasks, metrics, readers of files"),
            Box("ranking", "super nodes, PageRank, similarity"),
            Box("tokens", "token lists, in memory or in a store"),
        ],
        [
            Box("model", "inputs, transformer, export"),
            Box("training", "loop, checkpoints, devices"),
            Box("explain", "effects of tokens, criteria"),
        ],
        [
            Box("runs", "settings, train, tune, Run, serve"),
            Box("report", "a run as a page"),
            Box("cli", "the command"),
        ],
    ],
    [
        *(("base", "data"), ("data", "ranking"), ("ranking", "tokens"), ("tokens", "model"), ("model", "training")),
        *(("training", "explain"), ("explain", "runs"), ("training", "runs"), ("runs", "report"), ("report", "cli")),
    ],
)
KINDS = draw(
    "A kind of neighbours is one description that all rooms loop over",
    [
        [
            Box("structure", "super nodes of clusters"),
            Box("content", "of labels"),
            Box("links, nearest", "by links, by features"),
            Box("yours", "Kind(name, count, ranker)", own=True),
        ],
        [Box("Kind", "name, how many, super nodes, ranker, own label left out")],
        [
            Box("build", "ranks and stores"),
            Box("inputs, model", "a place, an embedding, scores"),
            Box("explain, report", "rows and colours by kind"),
        ],
    ],
    [
        *(("structure", "Kind"), ("content", "Kind"), ("links, nearest", "Kind"), ("yours", "Kind")),
        *(("Kind", "build"), ("Kind", "inputs, model"), ("Kind", "explain, report")),
    ],
)
LAYOUT = draw(
    "One object knows which token stands where",
    [
        [
            Box("the node", "place 0"),
            Box("hops", "places 1 … L"),
            Box("structure tokens", "the next k places"),
            Box("content tokens", "the next, then other kinds"),
        ],
        [Box("Layout", "places, kinds, groups, embeddings")],
        [Box("model", "embedding of each place"), Box("explain", "effect by kind"), Box("report", "colours and rows")],
    ],
    [
        *((name, "Layout") for name in ("the node", "hops", "structure tokens", "content tokens")),
        *(("Layout", name) for name in ("model", "explain", "report")),
    ],
)
RANKERS = draw(
    "Rankers share one protocol",
    [
        [Box("Graph", "edges, weights"), Box("Connections", "the super node of each node")],
        [Box("prepare", "what does not depend on sources, once")],
        [
            Box("Ranker", "PageRank in two levels"),
            Box("LinkRanker", "same links"),
            Box("FeatureRanker", "similar features"),
            Box("your class", "prepare, rank, save, open, memory", own=True),
        ],
        [Box("Ranking", "ids and scores [m, k], best first, the source left out")],
    ],
    [
        *(("Graph", "prepare"), ("Connections", "prepare"), ("prepare", "Ranker"), ("prepare", "LinkRanker")),
        *(("prepare", "FeatureRanker"), ("prepare", "your class"), ("Ranker", "Ranking"), ("LinkRanker", "Ranking")),
        *(("FeatureRanker", "Ranking"), ("your class", "Ranking")),
    ],
)
TASKS = draw(
    "A task is one object; no other module asks for its name",
    [
        [
            Box("classification", "one class per node"),
            Box("multilabel", "several labels"),
            Box("regression", "values"),
            Box("your task", "one class in tasks.py", own=True),
        ],
        [Box("Task", "form of labels, loss, outputs, decision, metrics, label rows")],
        [
            Box("readers, Graph", "check labels"),
            Box("trainer", "loss, best epoch"),
            Box("Run, server, report", "decide, measure, name"),
        ],
    ],
    [
        *(("classification", "Task"), ("multilabel", "Task"), ("regression", "Task"), ("your task", "Task")),
        *(("Task", "readers, Graph"), ("Task", "trainer"), ("Task", "Run, server, report")),
    ],
)
LISTS = draw(
    "Token lists are a function of graph, training nodes and settings",
    [
        [Box("Graph"), Box("training nodes", "labels of no others"), Box("TokenConfig")],
        [
            Box("make_lists", "in memory: tune, estimators"),
            Box("tokenize", "into a folder: resumable, on many machines"),
            Box("update", "the graph has grown"),
        ],
        [Box("TokenLists", "the same arrays, mapped from a folder as TokenStore")],
        [Box("make_inputs", "the one border between NumPy and torch"), Box("VCRGraphormer", "batches of rows")],
    ],
    [
        *((name, "make_lists") for name in ("Graph", "training nodes", "TokenConfig")),
        *((name, "TokenLists") for name in ("make_lists", "tokenize", "update")),
        *(("TokenLists", "make_inputs"), ("make_inputs", "VCRGraphormer")),
    ],
)
PICTURES = {"rooms": ROOMS, "kinds": KINDS, "layout": LAYOUT, "rankers": RANKERS, "tasks": TASKS, "lists": LISTS}


def main() -> None:
    """Write every picture beside this file."""
    folder = Path(__file__).parent / "diagrams"
    folder.mkdir(exist_ok=True)
    for name, text in PICTURES.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
