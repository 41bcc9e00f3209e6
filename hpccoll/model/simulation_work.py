"""The work of simulations, before anything is simulated: their time and memory, from the steps of a few ranks.

The seconds are those of one core of a server of 2024, and right to a factor of about three;
``RemainingTime`` corrects them by how long the simulations take that have run.
"""

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from hpccoll.schedule import Schedule
from hpccoll.schedule.step import Copy, Send, drop_null_peers, parts_of

SAMPLED_RANKS = 16
"""The ranks whose steps stand for those of all ranks, if ranks have different steps."""

SAMPLED_STEPS = 4096
"""The steps that stand for more of them, if it is known how many there are."""

EVENT_S, WAVE_S = 5e-5, 1e-4
"""The seconds of a message as an event, and of a wave of messages."""

RANK_S = 8e-8
"""The seconds of each rank of a wave."""

RANGE_S = 3e-8
"""The seconds of each range of units."""

SORTED_S = 2e-6
"""The seconds to sort a message, if a step has several."""

READ_S = 5e-6
"""The seconds to read a step that is left out, because it equals those before it."""

PATH_RANK_S = 1e-7
"""The seconds of each rank of a wave whose critical path is followed."""

CYCLES_BEFORE_LEAP, ROUNDS_BEFORE_LEAP = 24, 6
"""How many cycles pass, and how often messages go round the simulated ranks, before equal steps are left out."""

PAIRING_S = 1e-4
"""The seconds to pair a message of ranks that are followed one by one."""

ACTION_NUMBERS, RANGE_NUMBERS = 24, 6
"""The numbers in memory, for each rank, of an action of a step and of a range of units, while messages are paired."""


class ShowProgress(Protocol):
    """Shows the progress of predictions."""

    def __call__(self, done: int, total: int, doing: str = "", left_s: float | None = None) -> None:
        """Show how many are done, what is being done, and the time left in seconds."""


class ScheduleWork(NamedTuple):
    """What the ranks of a schedule do, estimated; how many of them are simulated depends on the size."""

    messages: float  # the messages of all ranks
    waves: float  # the waves in which they pass
    rank_s: float  # the expected seconds of each rank in all waves
    pairing_s: float  # the expected seconds to pair messages, once for all simulations
    # the memory of each rank while the largest step is paired; 0 if ranks are paired singly
    rank_bytes: int

    def simulated_waves(self, block: int, cycle: int) -> float:
        """Return how many waves of a block of ranks are simulated if they may repeat after a cycle [0: they do not]."""
        before_leap = CYCLES_BEFORE_LEAP * cycle + ROUNDS_BEFORE_LEAP * block
        return min(self.waves, before_leap) if cycle else self.waves

    def seconds(self, block: int, cycle: int) -> float:
        """Return the expected seconds of a simulation in waves: see ``simulated_waves``."""
        simulated = self.simulated_waves(block, cycle)
        rank_seconds = block * self.rank_s * simulated / max(self.waves, 1)
        return simulated * WAVE_S + rank_seconds + (self.waves - simulated) * READ_S

    def seconds_along_path(self, block: int) -> float:
        """Return the expected seconds to follow the critical path of a block of ranks through all waves."""
        return self.waves * (WAVE_S + block * PATH_RANK_S)

    @classmethod
    def of(cls, schedule: Schedule, declared_steps: int = 0) -> "ScheduleWork":
        """Return the work of a schedule. It takes as long as a few ranks generate their steps.

        Args:
            schedule: the schedule.
            declared_steps: the declared number of steps, for which the first of many stand [unknown].
        """
        if not schedule.vectorised:
            return cls._of_sampled_ranks(schedule)
        ranks = schedule.layout.ranks
        messages = 0
        steps = 0
        seconds = 0.0
        largest = 0
        # all ranks have the same actions, some of them without a peer
        program = schedule.steps(min(1, ranks - 1))
        for number, step in enumerate(program):
            if declared_steps and number == SAMPLED_STEPS:
                messages = messages * declared_steps // number
                seconds = seconds * declared_steps / number
                steps = declared_steps
                break
            moving = [action for action in step.actions if not isinstance(action, Copy)]
            sends = sum(isinstance(action, Send) for action in moving)
            ranges = sum(len(part.ranges) for action in step.actions for part in parts_of(action))
            to_sort = sends if sends > 1 else 0
            messages += sends
            steps += 1
            seconds += RANK_S + RANGE_S * ranges + SORTED_S * to_sort
            largest = max(largest, ACTION_NUMBERS * len(moving) + RANGE_NUMBERS * ranges)
        return cls(messages * ranks, steps, seconds, 0.0, 8 * largest)

    @classmethod
    def _of_sampled_ranks(cls, schedule: Schedule) -> "ScheduleWork":
        """Return the work of a schedule whose ranks are followed one by one, from that of a few ranks."""
        ranks = schedule.layout.ranks
        # odd: the ranks of one parity are often the leaves of a tree
        stride = ranks // SAMPLED_RANKS | 1
        sampled = [_length_and_sent(schedule, me) for me in range(0, ranks, stride)]
        messages = sum(sent for _, sent in sampled) * ranks / len(sampled)
        waves = max(length for length, _ in sampled)
        return cls(
            messages,
            waves,
            rank_s=messages * RANK_S / ranks,
            pairing_s=messages * PAIRING_S,
            rank_bytes=0,
        )


def _length_and_sent(schedule: Schedule, me: int) -> tuple[int, int]:
    """Return the steps of a rank, and the messages that it sends."""
    sent = [
        sum(isinstance(action, Send) for action in drop_null_peers(step).actions)
        for step in schedule.steps(me)
    ]
    return len(sent), sum(sent)


class RemainingTime:
    """Estimates the time left of simulations that run one after another.

    Args:
        expected_s: the expected seconds of each, in the order in which they run.
    """

    TRUSTED_S = 10.0
    """The seconds after which what has run counts more than what was expected."""

    def __init__(self, expected_s: Sequence[float]) -> None:
        self.waiting = list(reversed(expected_s))
        # the expected seconds of the running one, and of those that have ended
        self.current, self.ended = 0.0, 0.0
        self.begun = self.current_begun = monotonic()

    def begin(self) -> None:
        """Take note that the next one begins."""
        self.ended += self.current
        self.current = self.waiting.pop()
        self.current_begun = monotonic()

    def seconds(self, share: float = 0.0) -> float:
        """Return the time left in seconds if a share of the running one is done."""
        now = monotonic()
        done = share * self.current
        pace_of_all = _pace(now - self.begun, self.ended + done)
        pace_of_current = _pace(now - self.current_begun, done)
        return (self.current - done) * pace_of_current + sum(self.waiting) * pace_of_all


def _pace(seconds: float, expected_s: float) -> float:
    """Return the seconds for an expected second, 1 as long as nothing has run."""
    return (seconds + RemainingTime.TRUSTED_S) / (expected_s + RemainingTime.TRUSTED_S)
