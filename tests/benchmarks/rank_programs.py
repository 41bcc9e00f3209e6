"""The programs of tests/gpu on 2, 3 and 4 ranks: cases and their faults, training steps, and a rank that stalls.

Rank k has GPU k modulo their number. Ranks that share a GPU use little of it each, and take turns
unless MPS serves them: nothing here is a speed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from here import Here, last_words, launched
from verdicts import MISSED, REACHED, WRONG, Verdict, not_run

STALLED = 3
"""The ranks of the drill, of which the last stalls."""
MOST_S = 100
"""Seconds that a program may take."""


class Program(NamedTuple):
    """A program on so many ranks."""

    ranks: int  # how many
    path: str  # its path in tests/
    words: Sequence[str]  # its arguments
    what: str  # what it shows
    # returns what its output shows to be wrong, None for nothing
    defect: Callable[[str], str | None]


def cases_defect(output: str) -> str | None:
    """Return what is wrong with the output of case_ranks.py: it ends with the number of right cases."""
    number, *_ = [*output.split(), "0"]
    return None if number.isdecimal() and int(number) else "it names no cases"


def steps_defect(output: str) -> str | None:
    """Return what is wrong with the output of step_ranks.py."""
    steps = json.loads(output.splitlines()[-1])
    if not steps.pop("faults", {"left out": 1})["left out"]:
        return "a bucket that is left out is not found wrong"
    if any(each != "refused" for each in steps.pop("refusals", [])):
        return "a refusal of NCCL does not reach all ranks"
    wrong = {name: step["wrong"] for name, step in steps.items() if step.get("wrong")}
    return f"wrong elements: {wrong}" if wrong else None


def drill_defect(output: str) -> str | None:
    missing = [
        rank
        for rank in range(STALLED - 1)
        if f"rank {rank} went on without rank {STALLED - 1}" not in output
    ]
    return f"ranks {missing} did not go on" if missing else None


CASES = ("gpu/case_ranks.py", ("few",), "a case of each algorithm, bits flipped", cases_defect)
STEPS = (
    "extensions/steps/measure/step_ranks.py",
    ("gpu",),
    "training steps, one without a bucket",
    steps_defect,
)
DRILL = ("gpu/nccl_ranks.py", ("drill",), "the last one stalls, the others go on", drill_defect)
PROGRAMS = [
    Program(2, *CASES), Program(2, *STEPS), Program(STALLED, *DRILL), Program(4, *CASES), Program(4, *STEPS),
    Program(3, *CASES),
]  # fmt: skip
"""The most important first."""


def ranks(here: Here) -> Iterator[Verdict]:
    """Each program, one after the other."""
    for program in PROGRAMS:
        what = f"{program.ranks} ranks on {min(program.ranks, here.gpus)} GPU: {program.what}"
        if here.seconds_left < 0:
            yield not_run(what, "no time was left")
            continue
        most = here.limit_left if here.on_host else min(MOST_S, here.limit_left)
        code, output = launched(
            here.rank_program(program.ranks, program.path, *program.words), most
        )
        if code is None:
            yield Verdict(what, MISSED, "it does not come to its end", "all right")
        elif code:
            status = WRONG if "AssertionError" in output else MISSED
            yield Verdict(what, status, last_words(output), "all right")
        else:
            defect = program.defect(output)
            yield Verdict(what, WRONG if defect else REACHED, defect or "all right", "all right")
