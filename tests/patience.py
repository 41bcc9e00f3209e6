"""Waiting in tests for what takes a moment."""

import time

LONG_S = 120
"""What takes a moment has this long: processors may be busy."""


def wait(condition, what):
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)
