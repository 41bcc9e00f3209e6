"""Whether Slurm's controller answers: cheap pings, and a record of outages."""

import re
import sys
import time
from contextlib import suppress

from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_wait
from hpccoll.sweep.slurm.query import run_slurm

PING_TIMEOUT_S = 5.0
"""Timeout of a ping in seconds; commands that load jobs have 30 s."""
PING_INTERVAL_S = 10.0
"""Seconds between two pings while the controller answers; otherwise PING_TIMEOUT_S."""
OUTAGE_AFTER_S = 12.0
"""Seconds after the last answer when an outage begins: a busy controller may miss one ping."""
SETTLE_S = 300.0
"""Seconds after an outage in which nodes may count as down: each must register again."""
UP = re.compile(r"\b(is|are)\b.*\bUP\b")
"""The line of ``scontrol ping`` for a controller that answers; the primary or the backup is enough."""


def ping() -> bool:
    """Return whether a controller answers now."""
    with suppress(UnusableError):
        return UP.search(run_slurm("scontrol", "ping", timeout_s=PING_TIMEOUT_S).stdout) is not None
    return False


def wait_for_controller(seconds: float) -> bool:
    """Wait at most ``seconds`` until a controller answers; return whether one does."""
    until = time.monotonic() + seconds
    while not (up := ping()) and time.monotonic() < until:
        time.sleep(PING_TIMEOUT_S)
    return up


class ControllerWatch:
    """Pings the controller, and prints a line when an outage begins and when it ends."""

    def __init__(self) -> None:
        # times of the last answer and the last ping
        self._answered = self._asked = time.monotonic()
        self._in_outage = False
        self.outages = 0
        """Number of outages of at least OUTAGE_AFTER_S."""
        self.back = float("-inf")
        """Time of the first answer after the last outage."""

    @property
    def unreachable(self) -> bool:
        """Whether the last ping was not answered."""
        return self._answered < self._asked

    @property
    def settling(self) -> bool:
        """Whether it is unreachable, or so recently back that nodes may not have registered yet."""
        return self.unreachable or self._answered - self.back < SETTLE_S

    def poll(self) -> None:
        """Ping it if the interval has passed."""
        if time.monotonic() - self._asked >= (
            PING_TIMEOUT_S if self.unreachable else PING_INTERVAL_S
        ):
            self.ask()

    def ask(self) -> None:
        """Ping it now."""
        up = ping()
        self._asked = time.monotonic()
        wait = format_wait(self._asked - self._answered)
        if up:
            self._answered = self._asked
            if self._in_outage:
                self.back = self._asked
                print(
                    f"hpccoll: Slurm's controller answers again, after {wait}: the sweep goes on",
                    file=sys.stderr,
                )
            self._in_outage = False
            return
        if not self._in_outage and self._asked - self._answered >= OUTAGE_AFTER_S:
            self._in_outage = True
            self.outages += 1
            waits = "the sweep waits for it, and jobs that run go on"
            print(
                f"hpccoll: Slurm's controller does not answer, for {wait} now: {waits}",
                file=sys.stderr,
            )
