"""The first Ctrl-C is a wish, the second stops at once; afterwards everything is as it was."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from vcr_graphormer.training.interrupt import interruptible


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    """Started in the background of a shell, a process ignores Ctrl-C from birth."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_first_and_second() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as wish:
        assert not wish.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert wish.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_a_thread_of_its_own_nothing_is_caught() -> None:
    handlers = []

    def work() -> None:
        with interruptible():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


def test_under_torchrun_any_number_of_signals_is_one_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for sent in (signal.SIGINT, signal.SIGTERM):
        with interruptible() as wish:
            os.kill(os.getpid(), sent)
            assert wish.is_set()
            os.kill(os.getpid(), sent)  # the agent repeats what the terminal has told already
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
