"""Signals that interrupt a command raise KeyboardInterrupt for a while, or are noted."""

import signal
from threading import Thread

import pytest

from hpccoll.common.interruption import interruptible, stop_requests


@pytest.fixture
def ignored():
    """SIGINT as in a process that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_also_in_the_background_and_has_its_handler_again_afterwards(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("ignored")
def test_requests_to_stop_interrupt_nothing_however_many_come():
    with stop_requests(signal.SIGINT, signal.SIGTERM) as stop:
        assert not stop()
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert stop()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_another_thread_changes_no_signal():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def ask():
        with interruptible(signal.SIGTERM):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [before]
