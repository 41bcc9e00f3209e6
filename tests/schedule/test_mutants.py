"""Every correct schedule, broken mechanically in every place, is no longer accepted.

A mutant that ``prove`` still accepts must come to the right result, and is listed with the reason why it may.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from schedules import EXAMPLES, Example, contributions, recursive_doubling_of, result, ring_of

from hpccoll.schedule import (
    NONE,
    REDUCTIONS,
    Copy,
    Part,
    Receive,
    Reduce,
    Schedule,
    ScheduleError,
    Step,
    all_reduce,
    prove,
)
from hpccoll.schedule.words import Range
from hpccoll.transports.lockstep import lockstep
from hpccoll.transports.operation import Operation

SUBJECTS = {
    "ring": Example("ring", all_reduce, ring_of),
    "recursive_doubling": Example("recursive_doubling", all_reduce, recursive_doubling_of),
    **EXAMPLES,
}

COMES_AGAIN = "what comes again is there already"
ANY_ORDER = "these distances add up to the same ranks in either order"
WHOLE_VECTOR = "the whole vector is shifted onto itself"
EQUIVALENT = {
    "repeat a step of all": {
        **dict.fromkeys(("ring", "two_slices", "two_way_ring", "rings_of_nodes"), COMES_AGAIN + ", in the second half"),
        **dict.fromkeys(("bruck", "bruck_without_rotation", "direct", "halves_then_whole"), COMES_AGAIN),
        **dict.fromkeys(("binomial_broadcast", "broadcast_from_the_last"), COMES_AGAIN),
        "recursive_doubling": COMES_AGAIN + ", when the ranks beyond the power of two are given the sum",
        "reduce_then_broadcast": COMES_AGAIN + ", in the broadcast",
        "dissemination": "to have heard twice is to have heard",
        "one_switch": "its first arrival replaces, so the switch begins afresh; or " + COMES_AGAIN,
    },
    "repeat a step of a rank": {"bruck": COMES_AGAIN + ", where the step is a copy"},
    "swap two steps of all": {
        **dict.fromkeys(("recursive_doubling", "dissemination"), ANY_ORDER),
        **dict.fromkeys(
            ("bruck", "bruck_without_rotation"), "at p = 3 and 5 the last round only sends a rank's own block"
        ),
        **dict.fromkeys(
            ("binomial_broadcast", "broadcast_from_the_last", "binomial_reduce", "reduce_then_broadcast"),
            "at p = 3 and 5 the longest distance has one pair, and no rank of it but the root is in the next round",
        ),
    },
    "shift the units of all": {"recursive_doubling": WHOLE_VECTOR, "shift_by_one": WHOLE_VECTOR},
}
"""What may be done to which schedules, and why they come to the same."""

Programs = list[list[Step]]


def programs_of(schedule: Schedule) -> Programs:
    return [list(schedule.steps(me)) for me in range(schedule.layout.ranks)]


def mutants(programs: Programs, units: int) -> Iterator[tuple[str, Programs]]:
    """Yield what is broken, in words, and the broken programs."""
    for me, program in enumerate(programs):
        for at, step in enumerate(program):
            if not live(step):
                continue
            yield "drop a step of a rank", replaced(programs, me, at)
            yield "repeat a step of a rank", replaced(programs, me, at, step, step)
            for place, action in enumerate(step.actions):
                if not live(Step(action)):
                    continue
                before, after = step.actions[:place], step.actions[place + 1 :]
                yield "drop an action", replaced(programs, me, at, Step(*before, *after))
                for words, other in broken(action, len(programs), units):
                    yield words, replaced(programs, me, at, Step(*before, other, *after))
    yield from mutants_of_all(programs, units)


def mutants_of_all(programs: Programs, units: int) -> Iterator[tuple[str, Programs]]:
    """Yield what is broken at all ranks alike, so that messages still have their partners."""
    for at in range(max(map(len, programs))):
        yield "drop a step of all", [program[:at] + program[at + 1 :] for program in programs]
        yield "repeat a step of all", [program[: at + 1] + program[at:] for program in programs]
        yield (
            "swap two steps of all",
            [[*program[:at], *program[at : at + 2][::-1], *program[at + 2 :]] for program in programs],
        )
        for words, change in AT_BOTH_ENDS.items():
            changed = [
                [Step(*(change(action, units) for action in step.actions)) for step in program[at : at + 1]]
                for program in programs
            ]
            yield (
                words,
                [[*program[:at], *steps, *program[at + 1 :]] for program, steps in zip(programs, changed, strict=True)],
            )


def live(step: Step) -> bool:
    return any(isinstance(action, Copy) or action.peer != NONE for action in step.actions)


def meaning(programs: Programs) -> Programs:
    """Return the programs without what does nothing."""
    return [
        [Step(*(action for action in step.actions if live(Step(action)))) for step in program if live(step)]
        for program in programs
    ]


def replaced(programs: Programs, me: int, at: int, *steps: Step) -> Programs:
    mutant = list(programs)
    mutant[me] = [*programs[me][:at], *steps, *programs[me][at + 1 :]]
    return mutant


def broken(action, ranks: int, units: int):
    if isinstance(action, Copy):
        yield "shift a copy", Copy(shifted(action.source, units), action.target)
        yield "shift a copy", Copy(action.source, shifted(action.target, units))
        return
    yield "change a peer", with_peer(action, (int(action.peer) + 1) % ranks)
    yield "drop a peer", with_peer(action, NONE)
    yield "shift a unit", with_part(action, shifted(action.part, units))
    yield from ((words, change(action, units)) for words, change in KINDS.items() if change(action, units) != action)


def shifted(part: Part, units: int) -> Part:
    """Return ``part`` one unit further on, what comes out at the end coming in at the start."""
    named = [(unit + 1) % units for r in part.ranges for unit in range(int(r.first), int(r.last))]
    return Part(part.buffer, tuple(Range(unit, unit + 1) for unit in named))


def with_peer(action, peer: int):
    return type(action)(peer, action.part)


def with_part(action, part: Part):
    return type(action)(action.peer, part)


def replaces(action, _units: int):
    return Receive(action.peer, action.part) if isinstance(action, Reduce) and live(Step(action)) else action


def folds(action, _units: int):
    return Reduce(action.peer, action.part) if isinstance(action, Receive) and live(Step(action)) else action


def shifts(action, units: int):
    return (
        action if isinstance(action, Copy) or not live(Step(action)) else with_part(action, shifted(action.part, units))
    )


KINDS = {"replace instead of fold": replaces, "fold instead of replace": folds}
AT_BOTH_ENDS = {
    "all replace instead of fold": replaces,
    "all fold instead of replace": folds,
    "shift the units of all": shifts,
}


def accepted(example: Example, schedule: Schedule, programs: Programs) -> Schedule | None:
    """Return the mutant as a schedule where it is accepted."""

    def steps(me):
        if isinstance(me, np.ndarray):
            raise TypeError("a mutant differs from rank to rank")
        yield from programs[me]

    mutant = Schedule(schedule.layout, schedule.units, steps)
    try:
        prove(example.collective, [mutant])
    except ScheduleError:
        return None
    return mutant


@pytest.mark.parametrize("ranks", [3, 4, 5])
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_broken_schedule_is_refused(name, ranks):
    example = SUBJECTS[name]
    for schedule in example.slices(ranks):
        programs = programs_of(schedule)
        assert accepted(example, schedule, programs), "what is not broken is accepted"
        broken_ones = 0
        for words, mutant in mutants(programs, schedule.units):
            if meaning(mutant) == meaning(programs):
                continue
            broken_ones += 1
            if survivor := accepted(example, schedule, mutant):
                assert name in EQUIVALENT.get(words, ()), f"accepted: {words}"
                comes_to_the_right_result(example, survivor)
        assert broken_ones > 20


def comes_to_the_right_result(example: Example, schedule: Schedule) -> None:
    op = "max" if example.collective.idempotent else "sum"
    p, count, dtype = schedule.layout.workers, 2 * schedule.units + 1, np.dtype("int64")
    operation = Operation(
        example.collective, schedule.layout, (schedule,), count, dtype, REDUCTIONS[op], in_place=False
    )
    inputs = contributions(p, operation.elements("src"), dtype, op)
    outputs = [np.full(operation.elements("dst"), -1, dtype) for _ in range(schedule.layout.ranks)]
    lockstep(operation, inputs, outputs)
    for me in range(p):
        assert (outputs[me] == result(example.collective, inputs, me, op)).all()


def test_every_reason_is_still_needed():
    found = {
        (words, name)
        for name, example in SUBJECTS.items()
        for ranks in (3, 4, 5)
        for schedule in example.slices(ranks)
        for words, mutant in mutants(programs_of(schedule), schedule.units)
        if name in EQUIVALENT.get(words, ()) and accepted(example, schedule, mutant)
    }
    assert found == {(words, name) for words, names in EQUIVALENT.items() for name in names}
