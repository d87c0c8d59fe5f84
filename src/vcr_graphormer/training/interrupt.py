"""Turn Ctrl-C into a request to stop after the current epoch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, for the caller to stop when it can; a second Ctrl-C stops at once.

    Under torchrun SIGTERM sets the event too, and further signals change nothing: after a Ctrl-C in the terminal,
    torchrun sends a signal of its own to the same processes. It kills those that still run half a minute later.
    Outside of the main thread Python allows no signal handlers, and the event is never set.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    signals = (signal.SIGINT, signal.SIGTERM) if torchrun else (signal.SIGINT,)
    handlers = {number: signal.getsignal(number) for number in signals}

    def request_stop(number: int, frame: Any) -> None:
        stop.set()
        if not torchrun:
            signal.signal(number, handlers[signal.Signals(number)])

    for number in handlers:
        signal.signal(number, request_stop)
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
