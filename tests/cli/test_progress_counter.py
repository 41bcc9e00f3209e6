"""The progress of a command: one changing line on a terminal, lines in a log, and nothing of a short command."""

import io
import sys
import time
from threading import Thread

import pytest

from hpccoll.cli import progress_counter as progress
from hpccoll.common.terminal import ERASE_LINE, PrintableStream

LONG_S = 60.0


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Show progress on a stream of this kind until its text holds a word, and return all of it."""

    def show(stream, word, *state):
        monkeypatch.setattr(sys, "stderr", PrintableStream(stream))
        with progress.progress_counter("predictions") as display:
            display(*state)
            until = time.monotonic() + LONG_S
            while word not in stream.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
        return stream.getvalue()

    return show


def test_a_terminal_has_one_line_that_is_erased_at_the_end(shown):
    text = shown(Terminal(), "ring", 3, 9, "ring: 37%", 720.0)
    assert text.startswith(f"{ERASE_LINE}3 of 9 predictions in 0 s, about 12 min left; ring: 37%")
    assert text.endswith(ERASE_LINE)
    assert "\n" not in text


def test_a_log_has_lines_although_the_computation_reports_nothing_more(shown, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.0)
    text = shown(io.StringIO(), "\n", 3)
    assert text.startswith("3 predictions in 0 s\n")
    assert "\x1b" not in text


def test_a_log_of_a_short_command_is_empty(shown):
    assert shown(io.StringIO(), "", 1, 2) == ""


def test_the_pauses_between_lines_of_a_log_grow_up_to_a_minute(monkeypatch):
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", stream)
    display, at = progress.ProgressDisplay("ranks"), []
    display(1)
    for now[0] in range(400):
        before = stream.getvalue()
        display.draw()
        at += [now[0]] * (stream.getvalue() != before)
    assert at == [2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364]


def test_what_is_to_stay_is_printed_at_once(capsys):
    with progress.progress_counter("predictions") as display:
        display.say("about 12 min")
        assert capsys.readouterr().err == "about 12 min\n"


def test_without_a_thread_a_command_runs_without_progress(monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    with progress.progress_counter("predictions") as display:
        display(1, 2)
