"""Bars are shown on a terminal and in a notebook, once, and nowhere else."""

import io
import sys
from types import ModuleType
from typing import Any

import pytest

from vcr_graphormer.base.progress import Bars, bars, silent

ROW = {"epoch": 2, "loss": 0.5, "val": 0.75, "best_epoch": 1}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_nothing_is_printed_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (None, True, False):
        with bars(given) as show:
            assert show is silent
            show("ranking", 1, 1)
    assert capsys.readouterr() == ("", "")


def test_a_function_is_called_as_before() -> None:
    calls: list[Any] = []
    with bars(lambda *call: calls.append(call)) as show:
        show("ranking", 1, 2)
    assert calls == [("ranking", 1, 2)]


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with bars(False) as show:
        assert show is silent
    with bars(None) as show:
        assert isinstance(show, Bars)
        show("ran\x07king [red]", 1, 2)
        show.show_epoch(ROW, 4)
        show.bars.refresh()
        with bars(None) as inner:  # one display is enough, and a terminal cannot have two
            assert inner is silent
    text = terminal.getvalue()
    assert r"ran\x07king [red]" in text
    assert "loss 0.5000  val 0.7500 (best at 1)" in text
    with bars(None) as again:
        assert isinstance(again, Bars)


def test_bars_in_a_notebook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    drawn: list[Any] = []

    class Page:
        def update(self, content: Any) -> None:
            drawn.append(content)

    def display(content: Any, display_id: bool) -> Page:
        drawn.append(content)
        return Page()

    module = ModuleType("IPython.display")
    monkeypatch.setattr(module, "display", display, raising=False)
    monkeypatch.setattr(module, "HTML", lambda text: f"HTML{text!r}", raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with bars(None) as show:
        assert isinstance(show, Bars)
        show("ranking", 1, 2)
        show("ranking", 2, 2)
        bundle = drawn[-1]._repr_mimebundle_(include=[], exclude=[])
    assert drawn == [show.bars, show.bars, "HTML''"]  # the bars vanish
    assert "ranking" in bundle["text/html"]
    assert "2/2" in bundle["text/plain"]
    assert capsys.readouterr() == ("", "")
