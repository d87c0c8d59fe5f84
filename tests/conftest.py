"""Where the real datasets are: `VCR_DATA`, set by `.ci/run`. Without it their tests skip, and one line says so."""

import os
from pathlib import Path

import pytest

REASON = "real datasets: set VCR_DATA to the folder of their raw files"


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = os.environ.get("VCR_DATA")
    if not root:
        pytest.skip(REASON)
    return Path(root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if REASON in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped: {REASON}")
