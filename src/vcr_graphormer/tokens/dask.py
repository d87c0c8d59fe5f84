"""Connect to a dask scheduler and check that its workers are ready."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from .. import __version__
from ..errors import ConfigError, DaskError

SECONDS_TO_ANSWER = 10  # until a scheduler counts as absent; chosen by hand
_LOUD = ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado.application")


@contextmanager
def connect(address: str) -> Iterator[Executor]:
    """Connect to the scheduler at `address` (tcp://host:port) for the length of the block.

    Refuse a scheduler that does not answer or has no workers, and workers with another version of this package.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError("--scheduler needs dask.distributed: pip install 'vcr-graphormer[dask]'") from error
    if re.fullmatch(r"[a-z]+://.+:\d+", address) is None:
        raise ConfigError(f"--scheduler is {address!r}; it must be an address such as tcp://host:8786")
    # Dask logs lost connections with tracebacks. Our errors say it in one line.
    loggers = {logging.getLogger(name): logging.getLogger(name).level for name in _LOUD}
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=SECONDS_TO_ANSWER, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise DaskError(
            f"no scheduler answers at {address!r} within {SECONDS_TO_ANSWER} s: start one with 'dask scheduler' and "
            f"give its address, such as tcp://host:8786"
        ) from error
    try:
        try:
            _check_workers(client, address)
        except OSError as error:
            raise DaskError(f"{type(error).__name__}: {error}") from error
        yield client.get_executor()
    except DaskError as error:
        if client.status == "running":
            raise
        raise DaskError(f"the scheduler at {address} was lost: {error}") from error
    finally:
        client.close(timeout=SECONDS_TO_ANSWER)
        for logger, level in loggers.items():
            logger.setLevel(level)


def _check_workers(client: Any, address: str) -> None:
    """Refuse a scheduler or workers without this package, or of another version.

    Dask's workers die, one by one, of a task that they cannot unpickle. Workers that come later are checked by
    `SavedRanker.open`.
    """
    try:
        client.run_on_scheduler(package_version)
    except ImportError as error:
        raise DaskError(f"the scheduler at {address} cannot load vcr-graphormer: {error}") from error
    try:
        client.wait_for_workers(1, timeout=SECONDS_TO_ANSWER)
    except TimeoutError as error:
        raise DaskError(
            f"the scheduler at {address} has no workers: start some on each machine with 'dask worker {address}'"
        ) from error
    for worker, version in client.run(package_version, on_error="return").items():
        if isinstance(version, Exception):
            raise DaskError(f"the worker {worker} cannot load vcr-graphormer: {version}")
        if version != __version__:
            raise DaskError(
                f"the worker {worker} has vcr-graphormer {version}, this is {__version__}: install the same version "
                f"everywhere"
            )


def package_version() -> str:
    """Return the version of this package in the process that runs the function.

    >>> package_version() == __version__
    True
    """
    from .. import __version__

    return __version__
