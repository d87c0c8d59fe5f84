"""Ctrl-C as a wish that long work grants at a good moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a wish, to be granted at the end of the epoch; a second one stops at once.

    Under torchrun SIGTERM is a wish too, and a second signal changes nothing: the agent sends one of its own to the
    processes that the terminal has told already, and kills those that have not ended half a minute later.
    """
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    agent = "TORCHELASTIC_RUN_ID" in os.environ
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)[: 1 + agent]}

    def note(number: int, frame: Any) -> None:
        wish.set()
        if not agent:
            signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
