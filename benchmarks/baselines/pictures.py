"""Pictures of the comparison as SVG: average ranks with the critical difference; accuracy against its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

INK, GREY, BLUE, ORANGE = "#222222", "#999999", "#0072B2", "#D55E00"  # colours that colour-blind readers tell apart
LINE = 18  # height of a line of text
PANEL = 300  # height of a panel with its title
STYLE = "font-family:Helvetica,Arial,sans-serif;font-size:12px"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    white = f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>'
    return "\n".join([f'{start} height="{height:.0f}" style="{STYLE}">', white, *parts, "</svg>"]) + "\n"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = INK, width: float = 1) -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def groups(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the largest runs of methods, first and last place, whose ranks differ by no more than the difference.

    >>> groups([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other <= rank + difference)
        if last > first and not any(start <= first and last <= end for start, end in found):
            found.append((first, last))
    return found


def draw_ranks(file: Path, ranks: Mapping[str, float], difference: float, ours: str = "VCR-Graphormer") -> None:
    """Draw average ranks on a line, the best at the left; a bar joins methods that the test cannot tell apart."""
    names, values = list(ranks), list(ranks.values())
    left, right, top = 190.0, 710.0, 62.0
    low, high = 1.0, float(math.ceil(max(values)))
    bars = groups(values, difference)

    def at(rank: float) -> float:
        return left + (right - left) * (rank - low) / max(high - low, 1)

    step = max(1, round((high - low) / 12))
    parts = [_line(left, top, right, top)]
    for tick in range(int(low), int(high) + 1, step):
        parts += [_line(at(tick), top - 5, at(tick), top), _text(at(tick), top - 9, f"{tick}", "middle")]
    parts += [_line(left, 22, left + at(1 + difference) - at(1), 22, INK, 2)]
    parts += [_text(left, 15, f"critical difference {difference:.2f}")]
    for number, (first, last) in enumerate(bars):
        height = top + 8 + 6 * number
        parts.append(_line(at(values[first]) - 3, height, at(values[last]) + 3, height, GREY, 4))
    half = (len(names) + 1) // 2
    base = top + 24 + 6 * len(bars)
    for place, (name, rank) in enumerate(zip(names, values, strict=True)):
        on_left = place < half
        height = base + LINE * (place if on_left else len(names) - 1 - place)
        end = left - 10 if on_left else right + 10
        colour = ORANGE if name == ours else INK
        parts += [_line(at(rank), top, at(rank), height, colour), _line(at(rank), height, end, height, colour)]
        label = f"{name} {rank:.2f}" if on_left else f"{rank:.2f} {name}"
        parts.append(_text(end + (-4 if on_left else 4), height + 4, label, "end" if on_left else "start", colour))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_svg(900, base + LINE * half + 8, parts))


def draw_costs(
    file: Path,
    means: Mapping[tuple[str, str], float],
    costs: Mapping[tuple[str, str], tuple[float, float, float | None]],
    ours: str,
) -> None:
    """Draw a row per graph: the test metric against the seconds of one training, and against peak memory.

    Methods have a name where no other is both better and no more expensive; ours always has one.
    """
    graphs = list(dict.fromkeys(graph for graph, _ in means))
    parts = [_text(60, 20, "Named: no other method is both better and no more expensive; and ours.", colour=GREY)]
    for row, graph in enumerate(graphs):
        points = {method: (costs[graph, method], mean) for (name, method), mean in means.items() if name == graph}
        seconds = {method: (cost[0], mean) for method, (cost, mean) in points.items()}
        memory = {method: (cost[2], mean) for method, (cost, mean) in points.items() if cost[2] is not None}
        parts += _panel(60, 50 + PANEL * row, f"{graph}: test metric, % by seconds of one training", seconds, ours)
        parts += _panel(560, 50 + PANEL * row, f"{graph}: test metric, % by peak gigabytes", memory, ours)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_svg(1040, 50 + PANEL * len(graphs), parts))


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of points that no other beats: none is both higher and no further right.

    >>> frontier({"a": (1.0, 80.0), "b": (2.0, 79.0), "c": (3.0, 90.0)})
    ['a', 'c']
    """
    names, best = [], -math.inf
    for name, (_, value) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if value > best:
            names.append(name)
            best = value
    return names


def _panel(x: float, y: float, title: str, points: Mapping[str, tuple[float, float]], ours: str) -> list[str]:
    """Return one panel: a point per method, cost by logarithm to the right, the metric upwards."""
    parts, width, height = [_text(x, y, title)], 330.0, 220.0
    if not points:
        return [*parts, _text(x + width / 2, y + height / 2, "not measured", "middle", GREY)]
    logs = {name: math.log10(max(cost, 1e-3)) for name, (cost, _) in points.items()}
    start, stop = math.floor(min(logs.values())), math.ceil(max(logs.values()) + 1e-9)
    values = [value for _, value in points.values()]
    margin = 0.05 * (max(values) - min(values)) + 0.1
    low, high = min(values) - margin, max(values) + margin

    def right(power: float) -> float:
        return x + width * (power - start) / max(stop - start, 1)

    def up(value: float) -> float:
        return y + 10 + height * (high - value) / (high - low)

    parts += [_line(x, y + 10 + height, x + width, y + 10 + height), _line(x, y + 10, x, y + 10 + height)]
    for power in range(start, stop + 1):
        parts += [_line(right(power), y + 10 + height, right(power), y + 14 + height)]
        parts += [_text(right(power), y + 28 + height, f"{10.0**power:g}", "middle")]
    for value in (low + margin, high - margin):
        parts += [_text(x - 4, up(value) + 4, f"{value:.1f}", "end")]
    named, labels = {*frontier(points), ours}, list[tuple[float, float]]()
    for name, (_, value) in sorted(points.items(), key=lambda item: -item[1][1]):
        colour = ORANGE if name == ours else BLUE if name in named else "#bbccdd"
        parts.append(f'<circle cx="{right(logs[name]):.1f}" cy="{up(value):.1f}" r="3.5" fill="{colour}"/>')
        if name in named:
            across, down = right(logs[name]) + 6, up(value) + 4
            while any(abs(across - other) < 100 and abs(down - height) < 12 for other, height in labels):
                down += 2  # names do not cover one another
            labels.append((across, down))
            parts.append(_text(across, down, name, colour=colour))
    return parts
