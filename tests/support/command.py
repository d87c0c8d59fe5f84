"""The command as tests call it: in a process of its own, or in this one."""

import io
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from benchmarks.__main__ import main as benchmarks_main

from vcr_graphormer.cli.main import main


def run_apart(*arguments: str, code: int = 0, cwd: Path | None = None) -> str:
    """In a process of its own."""
    command = [sys.executable, "-m", "vcr_graphormer", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


def run_benchmark(*arguments: str, code: int = 0) -> str:
    """`python -m benchmarks` in this process."""
    return run(*arguments, code=code, command=benchmarks_main)


def run(*arguments: str, code: int = 0, cwd: Path | None = None, command: Callable[[], None] = main) -> str:
    """In this process, which saves seconds of imports: the same function, its output and its exit status."""
    text = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(text),
        redirect_stderr(text),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        patch.setattr(sys, "argv", ["vcr-graphormer", *arguments])
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as stopped:
            command()
    assert stopped.value.code in ((0, None) if code == 0 else (code,)), text.getvalue()
    return text.getvalue()
