"""The report page in a real browser: from disk, without a network, by mouse and by keyboard, wide and narrow."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

import vcr_graphormer as vcr
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer.report.numbers import describe_rewiring
from vcr_graphormer.report.page import collect, render, write_explanation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

    Visit = Callable[..., Page]

EVIL = "<script>alert(1)</script>"


def packed(values: ArrayLike, kind: str) -> str:
    """Little-endian bytes in base64, as the page reads them."""
    return base64.b64encode(np.asarray(values).astype(f"<{kind}").tobytes()).decode()


def make_explorer(count: int, classes: int, layout: dict[str, int], total: int) -> dict[str, Any]:
    """Every second node is in the page. The tokens of a list are the nodes after it, so that most can be walked to."""
    random = np.random.default_rng(3)
    size = 1 + sum(layout.values())
    nodes = 2 * np.arange(count)
    predicted = np.arange(count) % classes
    label = np.where(np.arange(count) % 5 == 3, (predicted + 1) % classes, predicted)
    ids = np.full((count, size), -1)
    ids[:, 0] = nodes
    shown = np.ones((count, size), dtype=bool)
    first = 1 + layout["hop"]
    for place in range(first, size):
        ids[:, place] = 2 * ((np.arange(count) + place - first + 1) % count)
    ids[:, first + layout["structure"] - 1] += 1  # an odd node, not in the page
    shown[:, -1] = False  # padding
    ids[:, -1] = -1
    attention = random.dirichlet(np.ones(size), count)
    effect = random.normal(0, 0.02, (count, size))
    effect[:, 0] = 0.6
    distance = random.integers(1, 4, (count, size))
    distance[:, 1:first] = distance[:, -2:] = -1
    names = {str(node): f"name {node}" for node in range(min(total, 2 * count))}
    names |= {"4": EVIL, "6": "Ada Lovelace"}
    return {
        "total": total,
        "sampled": True,
        "hint": "vcr-graphormer explain runs/photo --node id:N --html node.html",
        "nodes": packed(nodes, "i4"),
        "predicted": packed(predicted, "i2"),
        "label": packed(label, "i2"),
        "part": packed(np.full(count, 3), "u1"),
        "confidence": packed(np.linspace(0.4, 0.99, count), "f4"),
        "layout": layout,
        "ids": packed(ids, "i4"),
        "shown": packed(shown, "u1"),
        "score": packed(np.sort(random.random((count, size)), axis=1)[:, ::-1], "f4"),
        "attention": packed(attention, "f4"),
        "readout": packed(attention, "f4"),
        "effect": packed(effect, "f4"),
        "distance": packed(distance, "i1"),
        "groups": ["hop", "structure", "content", "neighbours"],
        "group_effect": packed(np.tile([0.2, -0.01, 0.05, 0.25], (count, 1)), "f4"),
        "explained": packed(np.linspace(0.4, 0.99, count), "f4"),
        "alone": packed(np.where(np.arange(count) % 2, predicted, (predicted + 1) % classes), "i2"),
        "alone_confidence": packed(np.full(count, 0.61), "f4"),
        "token_label": packed(
            np.where(random.random((count, size)) < 0.5, random.integers(0, classes, size), -1), "i2"
        ),
        "names": names,
    }


def tuned(trial: int, recipe: str, score: float | None, changes: str = "") -> dict[str, Any]:
    return {"trial": trial, "recipe": recipe, "score": score, "epochs": 60, "seconds": 2.5, "changes": changes}


def make_data(
    count: int = 12, classes: int = 3, layout: dict[str, int] | None = None, total: int = 40, epochs: int = 8
) -> dict[str, Any]:
    """Every section, small."""
    layout = layout or {"hop": 2, "structure": 4, "content": 4}
    names = [f"class {number}" for number in range(classes)]
    confusion = np.add(np.eye(classes, dtype=int) * 70, np.arange(classes * classes).reshape(classes, classes) % 4)
    kinds = {"self": 0.7, "hop": 0.01, "structure": 0.001, "content": 0.0}
    slices = [{"name": name, "count": 70 + place, "accuracy": 0.9 - 0.02 * place} for place, name in enumerate(names)]
    histogram = {"edges": [0, 0.25, 0.5, 0.75, 1], "counts": [400, 250, 1, 0]}
    return {
        "title": "Photo",
        "created": "2026-11-15",
        "headline": {
            "metric": "accuracy",
            "train": 0.9912,
            "val": 0.9534,
            "test": 0.9487,
            "seed": 0,
            "epochs": epochs,
            "best_epoch": epochs - 2,
            "scores": {"accuracy": 0.9487, "macro_f1": 0.9321},
        },
        "baselines": {
            "metric": "accuracy",
            "rows": [
                {"name": "ours", "val": 0.9534, "test": 0.9487, "seconds": 75.0},
                {"name": "GCN", "settings": {"hidden": 64}, "val": 0.9545, "test": None, "seconds": 2.5},
                {"name": "MLP", "note": f"failed: {EVIL}"},
            ],
            "sentence": "GCN is better by 0.11 points; try `vcr-graphormer tune`.",
        },
        "reproduce": ["vcr-graphormer train --config runs/photo/config.toml --out again"],
        "versions": {"torch": "2.13.0", "numpy": "2.4"},
        "graph": {
            "nodes": 7650,
            "edges": 119081,
            "features": 745,
            "classes": classes,
            "homophily": 0.83,
            "directed": False,
        },
        "config": {
            "tokens": {"layers": 3, "structure": 16},
            "model": {"hidden_channels": 128, "readout": "attention"},
            "training": {"epochs": epochs, "betas": [0.9, 0.999]},
        },
        "history": {
            "epoch": list(range(1, epochs + 1)),
            "loss": [2.125 / epoch for epoch in range(1, epochs + 1)],
            "val_loss": [2.25 / epoch**0.7 for epoch in range(1, epochs + 1)],
            "val": [0.9534 - 0.5 / epoch**1.5 for epoch in range(1, epochs + 1)],
        },
        "tuning": {
            "metric": "accuracy",
            "scores": [0.75, None, 0.8125, 0.78],
            "best": [0.75, 0.75, 0.8125, 0.8125],
            "rows": [
                tuned(3, "hops", 0.8125, "model.layers = 2"),
                tuned(4, "hops", 0.78),
                tuned(1, "full", 0.75),
                tuned(2, EVIL, None, "the loss became inf"),
            ],
            "skipped": {"adjacency": "adjacency rows are for at most 50,000 nodes"},
        },
        "class_scores": [
            {"name": "class 0", "nodes": 70, "precision": 0.9, "recall": 0.8, "f1": 0.847},
            {"name": EVIL, "nodes": 3, "precision": None, "recall": 0.0, "f1": 0.0},
        ],
        "precision_recall": {
            "class": EVIL,
            "base": 0.03,
            "thresholds": [0.9, 0.4, 0.1],
            "precision": [1.0, 0.75, 0.03],
            "recall": [0.25, 0.75, 1.0],
        },
        "threshold": {"value": 0.3, "chosen": True, "precision": 0.75, "recall": 0.75, "f1": 0.75},
        "classes": names,
        "confusion": confusion.tolist(),
        "slices": {
            "class": slices,
            "degree": [
                {"name": "1 to 2", "count": 210, "accuracy": 0.81},
                {"name": "3 to 9", "count": 0, "accuracy": None},
            ],
            "homophily": [{"name": "0.0 to 0.2", "count": 33, "accuracy": 0.41}],
        },
        "calibration": {
            "error": 0.0213,
            "bins": [
                {"low": 0.0, "high": 0.5, "count": 0, "confidence": None, "accuracy": None},
                {"low": 0.5, "high": 0.9, "count": 77, "confidence": 0.7, "accuracy": 0.66},
                {"low": 0.9, "high": 1.0, "count": 900, "confidence": 0.97, "accuracy": 0.98},
            ],
        },
        "kinds": [{"kind": kind, "tokens": 1.5, "attention": 0.25, "effect": effect} for kind, effect in kinds.items()],
        "effects": {
            "class": [{"name": name, **kinds} for name in names],
            "degree": [{"name": "1 to 2", **kinds}],
        },
        "neighbours": {
            "gate": 0.474,
            "median_effect": 0.00123,
            "metric": "accuracy",
            "nodes": 3944,
            "test_nodes": 3944,
            "whole": 0.903,
            "without": {"hop": 0.853, "structure": 0.9034, "content": 0.907, "neighbours": 0.889},
            "changed": 212,
            "fraction_changed": 0.0538,
            "became_right": 78,
            "became_wrong": 133,
            "stayed_wrong": 1,
        },
        "faithfulness": {
            "effect": [0.84, 0.5, 0.31, 0.2],
            "attention": [0.84, 0.71, 0.6, 0.52],
            "random": [0.84, 0.83, 0.81, 0.8],
        },
        "rewiring": {
            "structure": {"histogram": histogram, "mean": 0.31, "elsewhere": 0.3, "estimate_elsewhere": 0.28},
            "content": {"histogram": histogram, "mean": 0.12},
        },
        "criteria": {
            "columns": [
                "neighbourhood",
                "clusters",
                "beyond two hops",
                "same label",
                "edge visits",
                "seconds",
                "bytes",
            ],
            "rows": [
                {"name": "hops only", "values": [1.0, 0.125, 0.0, None, 357243, 0.41, 91238400]},
                {"name": "all tokens", "values": [0.52, 0.25, 0.375, 0.88, 9118204, 3.5, 12091200]},
            ],
            "same_label_neighbours": 0.83,
        },
        "stages": [
            {"name": "hop features", "seconds": 0.4, "peak_bytes": 123456789},
            {"name": "training", "seconds": 312.5, "peak_bytes": 2123456789},
        ],
        "explorer": make_explorer(count, classes, layout, total),
    }


@pytest.fixture
def visit(browser: "Browser", tmp_path: Path) -> "Iterator[Visit]":
    """Open a page made from data. Whatever the browser complains about or asks for beside the file fails the test."""
    problems: list[str] = []
    contexts: list[BrowserContext] = []

    def note(message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"}:
            problems.append(f"console: {message.text}")

    def refuse(dialog: "Dialog") -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def visit(data: dict[str, Any], width: int = 1280, fragment: str = "", dark: bool = False) -> "Page":
        file = tmp_path / f"report{len(contexts)}.html"
        file.write_text(render(data), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        context.set_offline(True)
        context.set_default_timeout(60_000)
        page = context.new_page()

        def asked(request: "Request") -> None:
            if request.url.split("#")[0] not in {file.as_uri(), "data:,"}:
                problems.append(f"request: {request.url}")

        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", refuse)
        page.on("request", asked)
        page.goto(file.as_uri() + fragment)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def texts(page: "Page", selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_text_contents()]


def table_below(page: "Page", title: str) -> list[list[str]]:
    """Open the numbers below a chart and read them."""
    figure = page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))
    figure.locator("summary").click()
    rows = figure.locator("tbody tr")
    rows.first.wait_for()
    return [[cell.strip() for cell in row.locator("th, td").all_text_contents()] for row in rows.all()]


def shown_node(page: "Page", number: int) -> None:
    """Wait until the explorer shows a node, and the address says so."""
    page.locator("#node").filter(has_text=re.compile(rf"^Node {number}\b")).wait_for()
    assert page.evaluate("location.hash") == f"#node={number}"


def test_numbers_of_the_run_are_in_the_page(visit: "Visit") -> None:
    data = make_data()
    page = visit(data)
    assert page.title() == "Photo"
    assert texts(page, "[data-score]") == ["94.87%", "95.34%", "99.12%"]
    summary = page.locator("#summary").inner_text()
    for words in ("macro f1 93.21%", "Best epoch 6 of 8", "7,650 nodes, 119,081 edges", data["reproduce"][0]):
        assert words in summary
    losses = table_below(page, "Loss")
    assert [row[0] for row in losses] == [str(epoch) for epoch in data["history"]["epoch"]]
    assert losses[0] == ["1", "2.13", "2.25"]
    assert table_below(page, "Validation accuracy")[0] == ["1", "45.34%"]
    drawn = page.locator("#confusion svg[role=img] g > text").all_text_contents()
    assert drawn == [str(count) for row in data["confusion"] for count in row]
    assert table_below(page, "By class")[1] == ["class 1", "71", "88.00%"]
    assert table_below(page, "By degree") == [["1 to 2", "210", "81.00%"], ["3 to 9", "0", "–"]]
    assert table_below(page, "Reliability on the test part")[2] == ["0.900 to 1.00", "900", "97.00%", "98.00%"]
    assert table_below(page, "Effect by degree") == [["1 to 2", "0.700", "0.0100", "0.00100", "0"]]
    assert table_below(page, "What is left of the predicted probability")[3] == ["3", "0.200", "0.520", "0.800"]
    assert table_below(page, "Structure-aware connections")[0] == ["0 to 0.250", "400"]
    assert texts(page, "#criteria tbody tr:nth-child(2) td")[0] == "52.0%"
    assert texts(page, "#criteria tbody tr:first-child td")[3:] == ["–", "357,243", "0.41 s", "87.0 MiB"]
    assert table_below(page, "Time")[1] == ["training", "313", "2.0 GiB", "2,123,456,789"]
    assert "12 of 40 nodes are in this page" in page.locator("#explorer").inner_text()


def test_each_class_and_the_threshold(visit: "Visit") -> None:
    data = make_data()
    page = visit(data)
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#classes tbody tr").all()]
    assert rows == [["class 0", "70", "90.0%", "80.0%", "84.7%"], [EVIL, "3", "–", "0.0%", "0.0%"]]
    note = page.locator("#classes figcaption").inner_text()
    assert "is predicted where its probability is at least 0.300: precision 75.0%, recall 75.0%, F1 75.0%" in note
    title = f"Precision and recall of {EVIL}, validation part"
    assert table_below(page, title)[1] == ["0.400", "75.0%", "75.0%"]
    mark = page.locator("#classes .mark.vermillion")
    assert mark.count() == 1
    chart, diamond = page.locator("#classes svg[role=img]").bounding_box(), mark.bounding_box()
    assert chart is not None
    assert diamond is not None
    page.mouse.move(chart["x"] + 52, chart["y"] + 100)
    assert page.locator("#classes .pointed").inner_text() == "threshold 0.900: recall 25.0%, precision 100.0%"
    middle = diamond["x"] + diamond["width"] / 2 - chart["x"]
    assert middle == pytest.approx(50 + 0.75 * (chart["width"] - 62), abs=1.5)
    unreached = {"value": 0.5, "chosen": False, "precision": None, "recall": None, "f1": None}
    page = visit({**data, "threshold": unreached})
    assert "the more probable class: no node reaches it" in page.locator("#classes").inner_text()
    assert page.locator("#classes .mark.vermillion").count() == 0
    many = [{"name": f"c{i}", "nodes": i, "precision": i / 30, "recall": i / 30, "f1": i / 30} for i in range(30)]
    page = visit({**data, "class_scores": many[::-1], "precision_recall": None})
    assert texts(page, "#classes tbody th")[:2] == ["c0", "c1"]
    assert len(texts(page, "#classes tbody th")) == 20
    assert page.locator("#classes svg[role=img]").count() == 0


def test_the_leaderboard_of_a_search(visit: "Visit") -> None:
    page = visit(make_data())
    section = page.locator("#tuning")
    rows = [[cell.strip() for cell in row.locator("th, td").all_text_contents()] for row in section.locator("tr").all()]
    assert rows[1] == ["1", "hops", "model.layers = 2", "81.25%", "60", "2.50 s"]
    assert rows[4] == ["4", EVIL, "the loss became inf", "–", "60", "2.50 s"]
    text = section.inner_text()
    assert "4 trials, judged by validation nodes only. The best is hops with 81.25%." in text
    assert "Not tried: adjacency (adjacency rows are for at most 50,000 nodes)." in text
    marks, line = (section.locator(f"[data-series='{name}']") for name in ("score of the trial", "the winner so far"))
    assert (marks.locator(".mark").count(), marks.locator(".line").count()) == (3, 0)  # the failed trial has none
    assert line.locator(".line").count() == 1


def test_what_the_neighbours_add_is_said_in_words(visit: "Visit") -> None:
    data = make_data()

    def text(**changes: Any) -> str:
        return visit({**data, "neighbours": data["neighbours"] | changes}).locator("#neighbours").inner_text()

    page = visit(data)
    words = page.locator("#neighbours").inner_text()
    assert "The gate is open by 0.47 of 1" in words
    assert (
        "With all neighbours hidden, accuracy falls from 90.3% to 88.9%; 212 of 3,944 predictions change: "
        "133 become wrong, 78 become right, 1 stays wrong." in words
    )
    assert "Half of all single neighbours change the predicted probability by less than 0.00123." in words
    assert "Measured on all 3,944 test nodes" in words
    rows = [
        [cell.strip() for cell in row.locator("th, td").all_text_contents()]
        for row in page.locator("#neighbours tbody tr").all()
    ]
    assert rows == [
        ["nothing", "90.3%", ""],
        ["all hops", "85.3%", "−5.0"],
        ["all structure", "90.3%", "0.0"],
        ["all content", "90.7%", "+0.4"],
        ["all neighbours", "88.9%", "−1.4"],
    ]
    bars = page.locator("#neighbours .effect span").evaluate_all("all => all.map((bar) => bar.style.width)")
    assert bars == ["50%", "0.4%", "4%", "14%"]
    joint = text(gate=None, changed=0, test_nodes=20000, without={"hop": 0.9, "structure": 0.91, "neighbours": 0.91})
    assert "gate" not in joint
    assert "accuracy rises from 90.3% to 91.0%; no prediction changes." in joint
    assert "a sample of 3,944 of 20,000 test nodes" in joint
    assert "all structure" in joint
    assert "all neighbours\t" not in joint  # the same as all of the only kind
    assert "1 of 3,944 predictions changes: 1 becomes wrong, 0 become right." in text(
        changed=1, became_wrong=1, became_right=0, stayed_wrong=0
    )
    values = text(metric="rmse", whole=2.0, without={"hop": 3.0, "neighbours": 2.5}, changed=None, mean_change=0.3)
    assert "rmse rises from 2.00 to 2.50; predictions change by 0.300 on average." in values
    page = visit({**data, "neighbours": {"gate": 0.5, "median_effect": None}})
    assert "The token lists of this run have no neighbours" in page.locator("#neighbours").inner_text()


def test_the_explorer_says_what_a_node_is_without_its_neighbours(visit: "Visit") -> None:
    data = make_data()
    page = visit(data, fragment="#node=0")
    shown_node(page, 0)
    said = page.locator(".alone")
    assert said.inner_text() == (
        "Without its neighbours the model would say class 1 (61.0%) instead of class 0 (40.0%)."
    )
    assert texts(page, ".groups tbody tr") == [
        "all hops+0.2000",
        "all structure−0.0100",
        "all content+0.0500",
        "all neighbours+0.2500",
    ]
    page.get_by_label("Node id or name").fill("22")
    page.get_by_label("Node id or name").press("Enter")
    shown_node(page, 22)
    assert said.inner_text() == "Without its neighbours the model would still say class 2, with 74.0% instead of 99.0%."
    page = visit({**data, "task": "multilabel"}, fragment="#node=0")
    expected = "Without its neighbours the probability of class 0 would be 15.0% instead of 40.0%."
    assert page.locator(".alone").inner_text() == expected
    data["explorer"]["shown"] = packed(np.tile([1, 1, 1, *[0] * 8], (12, 1)), "u1")
    page = visit(data, fragment="#node=0")
    assert page.locator(".alone").inner_text() == "Its list has no neighbours."


def test_every_chart_says_what_it_shows_and_headings_are_in_order(visit: "Visit") -> None:
    page = visit(make_data())
    labels = page.locator("svg[role=img]").evaluate_all("all => all.map((chart) => chart.getAttribute('aria-label'))")
    assert len(labels) == 19
    assert all(label and label.endswith(".") and "undefined" not in label and "NaN" not in label for label in labels)
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map((heading) => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert "NaN" not in page.content().split("<script>")[0]


def test_search_finds_nodes_by_id_and_by_name(visit: "Visit") -> None:
    page = visit(make_data())
    search = page.get_by_label("Node id or name")
    search.fill("10")
    assert texts(page, "[role=option]")[0].startswith("10")
    search.press("Enter")
    shown_node(page, 10)
    search.fill("lovelace")
    assert texts(page, "[role=option]") == ["6 Ada Lovelace"]
    page.locator("[role=option]").click()
    shown_node(page, 6)
    search.fill("name")
    assert page.locator("[role=option]").count() == 20
    search.fill("nobody at all")
    search.press("Enter")
    assert "No node is called “nobody at all”" in page.get_by_role("status").inner_text()
    search.fill("7")
    search.press("Enter")  # an odd node: not in the page
    command = page.get_by_role("status").locator("code")
    assert command.inner_text() == "vcr-graphormer explain runs/photo --node id:7 --html node.html"
    shown_node(page, 6)


def test_clicking_a_token_walks_to_it_and_back(visit: "Visit") -> None:
    page = visit(make_data(), fragment="#node=0")
    shown_node(page, 0)
    back = page.get_by_role("button", name="Back")
    assert back.is_disabled()
    page.locator(".graph .token[data-node='4'].structure").click()
    shown_node(page, 4)
    page.locator(".tokens tr", has=page.get_by_role("button", name="Go to node 8")).first.locator("td").last.click()
    shown_node(page, 8)
    page.go_back()
    shown_node(page, 4)
    back.click()
    shown_node(page, 0)
    assert back.is_disabled()
    page.go_forward()
    shown_node(page, 4)
    page.locator(".graph .token[data-node='13']").click()
    assert "--node id:13 --html" in page.get_by_role("status").inner_text()
    shown_node(page, 4)


def test_tokens_are_drawn_and_tabled_with_all_values(visit: "Visit") -> None:
    page = visit(make_data(), fragment="#node=0")
    shown_node(page, 0)
    assert page.locator(".graph .token").count() == 10  # one of eleven is padding
    assert page.locator(".tokens tbody tr").count() == 10
    assert page.locator(".graph .hop").count() == 2
    tip = page.get_by_role("tooltip")
    token = page.locator(".graph .token[data-node='2']").first
    token.hover()
    for words in ("node 2", "score", "distance", "training label", "attention", "readout", "effect"):
        assert words in tip.inner_text()
    page.get_by_role("heading", level=1).hover()
    tip.wait_for(state="hidden")
    token.focus()
    assert "node 2" in tip.inner_text()
    assert "effect" in (token.get_attribute("aria-label") or "")
    page.locator(".tokens th").get_by_role("button", name="effect").click()
    effects = [float(text.replace("\u2212", "-")) for text in texts(page, ".tokens .number")]
    assert effects == sorted(effects, reverse=True)
    assert page.locator(".tokens th[aria-sort=descending]").inner_text().startswith("effect")
    page.locator(".tokens th").get_by_role("button", name="effect").click()
    assert texts(page, ".tokens .number")[-1].startswith("+0.600")


def test_wrong_nodes_are_one_click_away(visit: "Visit") -> None:
    page = visit(make_data())
    shown_node(page, 16)  # the most confident mistake is where the page begins
    assert texts(page, ".wrong button") == ["16: class 0 → class 2, 83%", "6: class 1 → class 0, 56%"]
    page.get_by_role("button", name="Next wrong").click()
    shown_node(page, 6)
    assert "✗ wrong" in page.locator(".verdict").inner_text()
    page.locator(".wrong button").first.click()
    shown_node(page, 16)


def test_the_keyboard_is_enough(visit: "Visit") -> None:
    page = visit(make_data())

    def tab_to(selector: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        pytest.fail(f"Tab never reached {selector}")

    tab_to("nav a")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "explorer-title"
    tab_to("#search")
    page.keyboard.type("ada")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    shown_node(page, 6)
    tab_to(".graph .token.structure")
    assert page.get_by_role("tooltip").is_visible()
    outline = page.locator(".token:focus-visible .halo").evaluate("halo => getComputedStyle(halo).strokeWidth")
    assert outline == "3px"
    page.keyboard.press("Enter")
    shown_node(page, 8)
    assert page.evaluate("document.activeElement.matches('.token.self')")
    page.keyboard.press("ArrowRight")
    tab_to(".graph .token.structure")
    page.keyboard.press("Space")
    shown_node(page, 10)
    page.keyboard.press("Escape")
    shown_node(page, 8)
    page.keyboard.press("Backspace")
    shown_node(page, 6)
    tab_to(".tokens tbody button")
    page.keyboard.press("Enter")
    shown_node(page, 8)
    tab_to(".wrong button")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    shown_node(page, 16)


def test_names_are_text_whatever_they_hold(visit: "Visit") -> None:
    data = make_data()
    data["title"] = data["stages"][0]["name"] = data["classes"][0] = data["slices"]["class"][0]["name"] = EVIL
    page = visit(data, fragment="#node=4")
    shown_node(page, 4)
    assert page.locator("#node").inner_text() == f"Node 4 · {EVIL}"
    assert page.get_by_role("heading", level=1).inner_text() == EVIL
    page.get_by_label("Node id or name").fill("<script>")
    assert texts(page, "[role=option]") == [f"4 {EVIL}"]
    page.get_by_label("Node id or name").press("Enter")
    page.get_by_label("Node id or name").fill("0")
    page.get_by_label("Node id or name").press("Enter")
    shown_node(page, 0)
    page.locator(".graph .token[data-node='4']").first.hover()
    assert EVIL in page.get_by_role("tooltip").inner_text()
    assert EVIL in page.locator(".tokens").inner_text()
    assert table_below(page, "By class")[0][0] == EVIL
    assert page.locator("main script, header script").count() == 0


def test_our_result_stands_beside_the_baselines(visit: "Visit") -> None:
    page = visit(make_data())
    section = page.locator("#baselines")
    cells = [row.inner_text().split("\t") for row in section.locator("tbody tr").all()]
    assert [cell[:4] for cell in cells] == [["ours", "95.34%", "94.87%", "75.0 s"], ["GCN", "95.45%", "–", "2.50 s"]]
    assert cells[1][4] == "hidden 64"
    text = section.inner_text()
    assert "GCN is better by 0.11 points; try vcr-graphormer tune." in text
    assert f"MLP: failed: {EVIL}" in text


def test_missing_sections_are_left_out(visit: "Visit") -> None:
    page = visit({"title": "Nothing"})
    assert page.locator("section").count() == 0
    whole = make_data()
    keys = [key for key in whole if key not in {"title", "created"}]
    for absent in (["headline"], ["classes"], ["explorer"], keys[::2], keys[1::2]):
        page = visit({**whole, **dict.fromkeys(absent)})
        assert page.locator("section").count() > 0
        assert "cannot be drawn" not in page.locator("main").inner_text()
    page = visit({"title": "One node", "explorer": whole["explorer"] | {"names": None}})
    assert texts(page, "h2") == ["Token explorer"]
    assert "name" not in texts(page, ".tokens th")


def test_holes_in_the_numbers_do_not_break_the_page(visit: "Visit") -> None:
    data = make_data()
    data["history"] |= {"val_loss": None, "val": [None, 0.5, *[None] * 6]}
    data["rewiring"] = {"structure": None, "content": data["rewiring"]["content"]}
    data["headline"] = {"metric": "rmse", "test": 12.345}
    data["kinds"][3] |= {"tokens": 0.0, "attention": None, "effect": None}
    data["effects"]["class"][1] = {"name": "class 1", "self": 0.5}
    explorer = data["explorer"]
    data["explorer"] = {
        key: value for key, value in explorer.items() if key not in {"predicted", "label", "confidence"}
    }
    data["explorer"] |= {"value": packed(np.full(12, 2.5), "f4"), "target": packed(np.full(12, 2.25), "f4")}
    page = visit(data)
    assert texts(page, "[data-score]") == ["12.3"]
    assert "cannot be drawn" not in page.locator("main").inner_text()
    assert page.locator(".verdict").inner_text().split("\n")[:4] == ["predicted", "2.50", "true", "2.25"]
    assert page.get_by_role("button", name="Next wrong").is_disabled()


def test_many_classes_become_a_list_of_confusions(visit: "Visit") -> None:
    page = visit(make_data(classes=21))
    assert page.locator("#confusion svg").count() == 0
    assert page.locator("#confusion tbody tr").count() == 40


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_never_scrolls_sideways(visit: "Visit", width: int) -> None:
    data = make_data(classes=15, layout={"hop": 3, "structure": 16, "content": 16}, count=40, total=80)
    data["classes"] = [f"{name} with a long name" for name in data["classes"]]
    data["explorer"]["names"]["6"] = "averylongname" * 20
    page = visit(data, width=width, fragment="#node=6")
    shown_node(page, 6)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_colours_by_system_and_by_button(visit: "Visit") -> None:
    page = visit(make_data())
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    assert light == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert dark == "rgb(20, 23, 26)"
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(background) == light
    page.get_by_role("button", name="Dark colours").click()
    page.emulate_media(color_scheme="light")
    assert page.evaluate(background) == dark


def test_two_thousand_nodes_of_twenty_classes(visit: "Visit") -> None:
    data = make_data(count=2000, classes=20, layout={"hop": 4, "structure": 16, "content": 16}, total=7650, epochs=300)
    page = visit(data)
    page.wait_for_selector(".graph .token")
    assert page.locator(".graph .token").count() >= 30


def test_a_real_run(visit: "Visit", tmp_path: Path) -> None:
    graph = replace(named_graph(EVIL), class_names=("a", "b", EVIL.upper()))
    split = vcr.Split.random(graph.labels, seed=0)
    run = vcr.train(graph, split, CONFIG, tmp_path / "run", device="cpu")
    page = visit(collect(run), fragment="#node=7")
    assert f"{100 * run.metrics['test']:.2f}%" in page.inner_text("body")
    assert EVIL in page.inner_text("body")
    assert f"{run.predict(7).probabilities.max():.1%}" in page.inner_text("body")
    shared = np.asarray(run.store.shared("content"))[7]  # tokens that both kinds propose
    assert page.locator(".tokens").inner_text().count("structure + content") == (shared > 0).sum() > 0


def test_the_page_of_one_node(visit: "Visit", tmp_path: Path) -> None:
    graph = named_graph(EVIL)
    run = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), CONFIG, tmp_path / "run", device="cpu")
    text = write_explanation(run, 7, describe_rewiring(run, 7), tmp_path / "node.html").read_text()
    start = text.index(">", text.index('id="data"')) + 1
    page = visit(json.loads(text[start : text.index("</script>", start)]))
    body = page.inner_text("body")
    assert EVIL in body
    shown_node(page, 7)  # the node that was asked for, not a wrong one among its tokens
    moved = run.rewiring(7)["structure"][0]
    assert f"{moved.brightened[0]} n{moved.brightened[0]}" in body
    page.locator(".graph .token").first.wait_for()


def test_the_page_of_another_class_than_the_predicted(visit: "Visit", tmp_path: Path) -> None:
    graph = named_graph()
    run = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), CONFIG, tmp_path / "run", device="cpu")
    other = run.predict(7).probabilities[0].argmin()
    found = run.explain(7, other)
    text = write_explanation(run, 7, {}, tmp_path / "node.html", int(other)).read_text()
    start = text.index(">", text.index('id="data"')) + 1
    page = visit(json.loads(text[start : text.index("</script>", start)]))
    name = "abc"[other]
    words = page.locator("main").inner_text()
    assert f"What speaks for {name}" in words
    assert f"Effect: how much the probability of {name} falls" in words
    assert f"bold if it is {name}." in words
    assert "predicted probability" not in words
    assert "predicted class" not in words
    assert f"{name} ({found.outputs[name]:.2%})" in page.locator(".verdict").inner_text()
    assert page.locator(".alone").inner_text().startswith(f"Without its neighbours the probability of {name} would be ")
    effects = [float(text.replace("\u2212", "-")) for text in texts(page, ".groups .number")]
    assert effects == [round(effect, 4) for effect in found.kind_effects.values()]


def test_a_run_with_values_instead_of_classes(visit: "Visit", tmp_path: Path) -> None:
    plain = vcr.generate(nodes=80, edges=300, classes=3, features=8, seed=0)
    wanted = np.arange(80, dtype=np.float32)[:, None]
    graph = vcr.Graph.from_scipy(plain.to_scipy(), features=plain.features, labels=wanted, task="regression")
    split = vcr.Split(np.arange(40), np.arange(40, 60), np.arange(60, 80))
    run = vcr.train(graph, split, CONFIG, tmp_path / "run", device="cpu")
    page = visit(collect(run), fragment="#node=61")
    text = page.inner_text("body")
    assert "Node 61" in text
    assert "61.0" in text  # what it should be
    assert "wrong" not in text.lower().replace("next wrong", "")


def test_kinds_are_those_of_the_data(visit: "Visit") -> None:
    """Three kinds of neighbours, one unknown to the page: each has a look and a part of the circle of its own."""
    data = make_data(layout={"hop": 2, "structure": 4, "circle": 5, "content": 6})
    data["kinds"].append({"kind": "circle", "tokens": 5.0, "attention": 0.25, "effect": 0.004})
    page = visit(data, fragment="#node=2")
    shown_node(page, 2)
    looks = {}
    for kind, count in (("structure", 4), ("circle", 5), ("content", 5)):  # one content token is padding
        tokens = page.locator(f"#explorer .token.{kind}")
        assert tokens.count() == count
        classes = {token.get_attribute("class") or "" for token in tokens.all()}
        looks[kind] = {word for text in classes for word in text.split()} & {"blue", "vermillion", "yellow"}
    assert looks == {"structure": {"blue"}, "circle": {"vermillion"}, "content": {"yellow"}}
    assert {"structure", "circle", "content"} <= set(texts(page, "#explorer .legend li"))
    boxes = [token.bounding_box() for token in page.locator("#explorer .token .shape").all()]
    middles = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes if box]
    assert len({(round(x), round(y)) for x, y in middles}) == len(middles)  # none hides another


def test_words_are_explained_and_linked(visit: "Visit") -> None:
    page = visit(make_data())
    explained = texts(page, ".words dt")
    assert {"Effect", "Gate", "Baseline", "Super node", "Threshold"} & set(explained)
    assert explained == sorted(explained, key=str.casefold)
    section = page.locator("#baselines")
    link = section.locator("a.word").first
    assert link.inner_text().casefold() == "baselines"
    link.click()
    assert page.evaluate("document.activeElement.innerText") == "Baseline"
    for name in page.locator("section").evaluate_all("parts => parts.map(part => part.id)"):
        found = [text.casefold() for text in texts(page, f"#{name} a.word")]
        assert len(found) == len(set(found))  # once in a section
    assert page.locator("#explorer a.word").count() == 0  # its text changes


def test_the_words_of_the_page_are_in_the_glossary() -> None:
    root = Path(__file__).parents[2]
    script = (root / "src/vcr_graphormer/report/templates/words.js").read_text(encoding="utf-8")
    names = re.findall(r'^  \["([^"]+)", /', script, re.MULTILINE)
    titles = re.findall(r"^### (.+)$", (root / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) == 20
    assert sorted(set(names) - set(titles)) == []
