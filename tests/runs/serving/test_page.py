"""The page of the server in a real browser: it looks nodes up, shows names as text, and asks nobody else."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report.test_in_browser import EVIL
from tests.runs.serving.test_scoring import train
from tests.support.runs import CONFIG, named_graph
from tests.support.server import serving
from vcr_graphormer.runs.serving.server import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Request


@pytest.mark.parametrize("token", [None, "s3cret"])
def test_a_node_is_looked_up(browser: "Browser", token: str | None, tmp_path: Path) -> None:
    run = train(named_graph(EVIL), CONFIG, tmp_path / "run")
    expected = run.explain(7)
    service = Service.open(run.path, token=token)
    with serving(service) as client:
        address = str(client.base_url)
        context = browser.new_context()
        context.set_default_timeout(60_000)
        page, problems = context.new_page(), list[str]()

        def refuse(dialog: "Dialog") -> None:
            problems.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        def asked(request: "Request") -> None:
            if not request.url.startswith(address):
                problems.append(request.url)

        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", refuse)
        page.on("request", asked)
        page.goto(address)
        page.get_by_text("run: 150 nodes").wait_for()
        assert page.locator("#token").is_visible() == (token is not None)
        if token is not None:
            page.fill("#node", "n3")
            page.get_by_role("button", name="Predict and explain").click()
            page.get_by_text("this server needs a token").wait_for()
            page.fill("#token", token)
        page.fill("#node", "id:7")
        page.keyboard.press("Enter")
        page.locator("#prediction").filter(has_text=EVIL).wait_for()
        probability = expected.outputs[expected.explained]
        assert page.locator("#prediction").inner_text() == (
            f"{EVIL}: {expected.explained} with probability {probability:.3f}"
        )
        assert page.locator("#label").inner_text() == f"Its label: {expected.label}"
        assert page.locator("#tokens tr").count() == len(expected.tokens)
        largest = max(expected.tokens, key=lambda part: abs(part.effect))
        assert page.locator("#tokens tr").first.inner_text().split("\t")[-1] in (
            f"+{largest.effect:.4f}",
            f"−{-largest.effect:.4f}",
        )
        other = next(part for part in expected.tokens if part.node is not None and part.node != 7)
        page.locator("#tokens").get_by_role("button", name=str(other.name), exact=True).click()
        page.locator("#prediction").filter(has_text=f"{other.name}: ").wait_for()
        page.fill("#node", "nobody")
        page.keyboard.press("Enter")
        page.get_by_role("alert").filter(has_text="there is no node named 'nobody'").wait_for()
        assert not page.locator("#answer").is_visible()
        context.close()
        assert problems == []
