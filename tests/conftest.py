"""Where the real datasets are: `VCR_DATA`, set by `.ci/run`. Without it their tests skip, and one line says so."""

import os

# One thread each: the suite runs as two processes on two cores, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import hypothesis
import pytest

from tests.support.browser import browser  # noqa: F401 a fixture, for pages of every room

# No wall-clock time is asserted: these machines are noisy, and the first example may compile a loop.
# Half of the usual 100 examples: the whole suite must stay below 15 minutes on two cores.
hypothesis.settings.register_profile("patient", deadline=None, max_examples=50)
hypothesis.settings.load_profile("patient")

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
