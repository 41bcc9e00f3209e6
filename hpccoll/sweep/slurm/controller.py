"""Slurm's controller: whether it answers, which is asked often, in a way that costs it nothing."""

import re
import subprocess
import sys
import time
from contextlib import suppress

from hpccoll.units import format_wait

PING_TIMEOUT_S = 5.0
"""How long the controller has for the answer to a ping; the commands that load jobs wait for up to 30 s."""
PING_INTERVAL_S = 10.0
"""Time between two pings while the controller answers; while it does not, PING_S."""
OUTAGE_AFTER_S = 12.0
"""How long after its last answer the controller counts as silent: a busy one may miss a ping."""
SETTLE_S = 300.0
"""How long nodes may count as down after an outage: each has to register again."""
UP = re.compile(r"\b(is|are)\b.*\bUP\b")
"""A line of ``scontrol ping`` for a controller that answers; one of several, primary and backup, is enough."""


def ping() -> bool:
    """Return whether a controller answers now."""
    with suppress(OSError, subprocess.TimeoutExpired):
        ended = subprocess.run(
            ("scontrol", "ping"),
            capture_output=True,
            text=True,
            check=False,
            timeout=PING_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        return UP.search(ended.stdout) is not None
    return False


def wait_for_controller(seconds: float) -> bool:
    """Return, as soon as a controller answers or after ``seconds``, whether one does."""
    until = time.monotonic() + seconds
    while not (up := ping()) and time.monotonic() < until:
        time.sleep(PING_TIMEOUT_S)
    return up


class ControllerWatch:
    """Watches whether the controller answers, and prints a line when it falls silent and when it answers again."""

    def __init__(self) -> None:
        self._answered = self._asked = time.monotonic()  # when it answered last, and when it was asked last
        self._told = False  # whether it was said to be silent
        self.outages = 0
        """How often it was silent for SILENT_S and more; a busy one may miss a ping."""
        self.back = float("-inf")
        """When it answered first after the last outage."""

    @property
    def unreachable(self) -> bool:
        """Whether it did not answer when it was asked last."""
        return self._answered < self._asked

    @property
    def settling(self) -> bool:
        """Whether it is gone, or has been back for so short a time that it may not know of its nodes yet."""
        return self.unreachable or self._answered - self.back < SETTLE_S

    def poll(self) -> None:
        """Ask it where that is due."""
        if time.monotonic() - self._asked >= (PING_TIMEOUT_S if self.unreachable else PING_INTERVAL_S):
            self.ask()

    def ask(self) -> None:
        """Ask it now."""
        up = ping()
        self._asked = time.monotonic()
        wait = format_wait(self._asked - self._answered)
        if up:
            self._answered = self._asked
            if self._told:
                self.back = self._asked
                print(f"hpccoll: Slurm's controller answers again, after {wait}: the sweep goes on", file=sys.stderr)
            self._told = False
            return
        if not self._told and self._asked - self._answered >= OUTAGE_AFTER_S:
            self._told = True
            self.outages += 1
            waits = "the sweep waits for it, and jobs that run go on"
            print(f"hpccoll: Slurm's controller does not answer, for {wait} now: {waits}", file=sys.stderr)
