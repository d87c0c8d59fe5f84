"""Draw docs/method.svg: graph → super nodes → token list → transformer. The token list is computed, not made up.

python docs/method_figure.py
"""

from pathlib import Path

import numpy as np

import vcr_graphormer as vcr

WIDTH, HEIGHT = 800, 786
INK, SOFT, LINE, PANEL, PAGE = "#1b2733", "#4b5866", "#9aa5b1", "#f4f6f8", "#ffffff"
# Okabe and Ito's colours, told apart by colour-blind readers.
STRUCTURE, CONTENT, HOP, TARGET = "#CC79A7", "#009E73", "#56B4E9", "#F0E442"
CLASS = {0: "#0072B2", 1: "#D55E00", -1: "#ffffff"}

# A graph of twelve nodes in two groups, as drawn. Node 0 is the target u; classes are known for five nodes.
NAMES = "uabcdefghijk"
PLACES = [
    (92, 128), (40, 72), (124, 58), (38, 184), (104, 212), (168, 138),
    (232, 118), (276, 60), (326, 104), (276, 178), (338, 196), (214, 206),
]  # fmt: skip
EDGES = [
    (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (2, 5), (5, 6), (6, 7), (7, 8), (6, 9), (8, 9), (8, 10), (9, 10), (9, 11),
    (6, 11),
]  # fmt: skip
LABELS = {2: 0, 3: 0, 8: 0, 10: 1, 11: 1}
CLUSTERS = dict.fromkeys(range(6), 0) | dict.fromkeys(range(6, 12), 1)
HOPS, NEIGHBOURS = 2, 4


def text(x: float, y: float, words: str, size: int = 24, colour: str = INK, style: str = "") -> str:
    """Return a line of text, centred unless `style` says otherwise."""
    anchor = "" if "text-anchor" in style else ' text-anchor="middle"'
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{anchor} {style}>{words}</text>'


def line(start: tuple[float, float], end: tuple[float, float], colour: str, more: str = "") -> str:
    """Return a straight line."""
    return f'<path d="M{start[0]:g} {start[1]:g}L{end[0]:g} {end[1]:g}" stroke="{colour}" fill="none" {more}/>'


def panel(x: float, y: float, width: float, height: float, title: str) -> str:
    """Return a box with its title."""
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="14" fill="{PANEL}"/>'
    return box + text(x + 18, y + 36, title, 25, INK, 'text-anchor="start" font-weight="600"')


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return an arrow from one panel to the next."""
    return line(start, end, INK, 'stroke-width="4" marker-end="url(#head)"')


def draw_graph(x: float, y: float, faint: bool = False) -> list[str]:
    """Return edges and nodes, the target with a thick ring, known classes in colour."""
    places = [(x + left, y + top) for left, top in PLACES]
    colour = "#d3d9df" if faint else LINE
    parts = [line(places[i], places[j], colour, 'stroke-width="3"') for i, j in EDGES]
    for node, (left, top) in enumerate(places):
        fill = TARGET if node == 0 else CLASS[LABELS.get(node, -1)]
        ink = PAGE if node in LABELS else INK
        ring = f'stroke="{INK}" stroke-width="{5 if node == 0 else 2}"'
        parts.append(f'<circle cx="{left:g}" cy="{top:g}" r="17" fill="{fill}" {ring}/>')
        parts.append(text(left, top + 7, NAMES[node], 22, ink))
    return parts


def draw_super_nodes(x: float, y: float) -> list[str]:
    """Return the super nodes, one per cluster above and one per known label below, with their dashed edges."""
    squares = {("cluster", 0): (96, 4), ("cluster", 1): (284, 4), ("label", 0): (96, 268), ("label", 1): (284, 268)}
    groups = {"cluster": CLUSTERS, "label": LABELS}
    dashes, boxes = [], []
    for (group, number), (left, top) in squares.items():
        colour = STRUCTURE if group == "cluster" else CONTENT
        for node in (node for node, own in groups[group].items() if own == number):
            end = (x + PLACES[node][0], y + PLACES[node][1])
            dashes.append(line((x + left, y + top), end, colour, 'stroke-width="2.5" stroke-dasharray="7 5"'))
        box = f'<rect x="{x + left - 19:g}" y="{y + top - 19:g}" width="38" height="38" rx="5" fill="{colour}"/>'
        boxes.append(box)
        if group == "label":
            boxes.append(f'<circle cx="{x + left:g}" cy="{y + top:g}" r="9" fill="{CLASS[number]}"/>')
    return [*dashes, *draw_graph(x, y, faint=True), *boxes]


def rank() -> dict[str, list[str]]:
    """Return the names of the best nodes of the target by exact PageRank, with either kind of super nodes."""
    graph = vcr.Graph.from_edges(np.array(EDGES).T, num_nodes=len(NAMES))
    labels = np.array([LABELS.get(node, -1) for node in range(len(NAMES))])
    kinds = {
        "structure": vcr.Connections(np.array(list(CLUSTERS.values()), dtype=np.int32), 2),
        "content": vcr.content_connections(labels, np.array(sorted(LABELS))),
    }
    best = {}
    for kind, connections in kinds.items():
        scores = vcr.exact_pagerank(graph, connections, source=0)[1 : len(NAMES)]
        best[kind] = [NAMES[1 + place] for place in np.argsort(-scores, kind="stable")[:NEIGHBOURS]]
    return best


def draw_tokens(x: float, y: float, size: float) -> tuple[list[str], float]:
    """Return the token list of the target as a row of boxes with a caption per group, and its width."""
    best = rank()
    groups = [
        ("itself", TARGET, ["u"]),
        ("hops", HOP, [f"{number}" for number in range(1, HOPS + 1)]),
        ("structure", STRUCTURE, best["structure"]),
        ("content", CONTENT, best["content"]),
    ]
    parts, left = [], x
    for caption, colour, names in groups:
        start = left
        for name in names:
            parts.append(
                f'<rect x="{left:g}" y="{y:g}" width="{size:g}" height="{size:g}" rx="8" fill="{colour}" '
                f'stroke="{INK}" stroke-width="2"/>'
            )
            parts.append(text(left + size / 2, y + size / 2 + 9, name, 27))
            left += size + 7
        parts.append(text((start + left - 7) / 2, y + size + 30, caption, 23, SOFT))
        left += 24
    return parts, left - 31 - x


def draw() -> str:
    """Return the whole figure as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="title" font-family="system-ui, Helvetica, Arial, sans-serif">',
        '<title id="title">The method: a graph gets super nodes, each node gets a token list, a transformer reads it'
        "</title>",
        f'<defs><marker id="head" viewBox="0 0 10 10" refX="7" refY="5" markerWidth="5" markerHeight="5" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{INK}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="16" fill="{PAGE}"/>',
        panel(14, 14, 370, 392, "1  Graph, some labels"),
        *draw_graph(22, 80),
        text(199, 356, "colour: a known class", 22, SOFT),
        text(199, 385, "u: the node to predict", 22, SOFT),
        arrow((386, 205), (412, 205)),
        panel(416, 14, 370, 392, "2  Add super nodes"),
        *draw_super_nodes(412, 80),
        text(601, 396, "one per cluster, one per label", 22, SOFT),
        arrow((601, 408), (601, 434)),
        panel(14, 438, 772, 172, "3  Token list of u, computed once"),
    ]
    tokens, width = draw_tokens(0, 0, 53)
    parts.append(f'<g transform="translate({(WIDTH - width) / 2:g} 496)">{"".join(tokens)}</g>')
    parts += [
        arrow((400, 612), (400, 638)),
        panel(14, 642, 772, 130, "4  Transformer, trained in plain mini-batches of lists"),
    ]
    boxes = [("project", 190), ("attend", 190), ("read out", 190)]
    left = 42.0
    for place, (words, size) in enumerate(boxes):
        parts.append(
            f'<rect x="{left:g}" y="696" width="{size}" height="56" rx="10" fill="{PAGE}" stroke="{INK}" '
            f'stroke-width="2"/>' + text(left + size / 2, 732, words)
        )
        if place < len(boxes):
            parts.append(arrow((left + size + 2, 724), (left + size + 20, 724)))
        left += size + 24
    parts.append(f'<circle cx="{left + 22:g}" cy="724" r="20" fill="{CLASS[0]}" stroke="{INK}" stroke-width="2"/>')
    parts.append(text(left + 22, 732, "u", 24, PAGE))
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    Path(__file__).with_name("method.svg").write_text(draw(), encoding="utf-8")
