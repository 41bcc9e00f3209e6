"""Every algorithm and every small schedule, broken mechanically in every place, is no longer accepted.

Broken at one rank it is refused, always: a message without its partner, or a rank without its result. The one
exception is a copy that is made once more: it copies what is there already.

Broken at all ranks alike, where messages keep their partners, it may still come to the same: a step that is repeated
brings what is there already; two steps may stand in either order where neither reads what the other brings, or where
both fold the same ranks in the end; a shift of units may map the whole vector onto itself. Nothing of the kind holds
where a fold becomes a replacement, or a replacement a fold, or a step is left out. What is accepted then has to be
right on real data.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from schedule_examples import ALGORITHMS, EXAMPLES, Case, buffers, cases, defined_part, places, result

from hpccoll.schedule import NONE, Copy, Part, Recv, RecvReduce, Schedule, ScheduleError, Step, out_of_place, prove
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.step import Range, drop_null_peers

Programs = list[list[Step]]

MAY_BE_HARMLESS = {"repeat copies of a rank", "repeat a step of all", "swap two steps of all", "shift the units of all"}


def programs_of(schedule: Schedule) -> Programs:
    """Return what every rank does, without what does nothing."""
    programs = [[drop_null_peers(step) for step in schedule.steps(me)] for me in range(schedule.layout.ranks)]
    return [[step for step in program if step.actions] for program in programs]


def mutants(programs: Programs, units: int) -> Iterator[tuple[str, Programs]]:
    """Yield what is broken, in words, and the broken programs."""
    for me, program in enumerate(programs):
        for at, step in enumerate(program):
            copies = all(isinstance(action, Copy) for action in step.actions)
            yield "drop a step of a rank", replaced(programs, me, at)
            yield f"repeat {'copies' if copies else 'a step'} of a rank", replaced(programs, me, at, step, step)
            for place, action in enumerate(step.actions):
                before, after = step.actions[:place], step.actions[place + 1 :]
                if isinstance(action, Copy):  # a message is dropped with its peer
                    yield "drop a copy", replaced(programs, me, at, Step(*before, *after))
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
    yield from ((words, change(action, units)) for words, change in KINDS.items())


def shifted(part: Part, units: int) -> Part:
    """Return ``part`` one unit further on, what comes out at the end coming in at the start."""
    named = [(unit + 1) % units for r in part.ranges for unit in range(int(r.first), int(r.last))]
    return Part(part.buffer, tuple(Range(unit, unit + 1) for unit in named))


def with_peer(action, peer: int):
    return (
        RecvReduce(peer, action.part, action.operand)
        if isinstance(action, RecvReduce)
        else type(action)(peer, action.part)
    )


def with_part(action, part: Part):
    return type(action)(action.peer, part)


def replaces(action, _units: int):
    return Recv(action.peer, action.part) if isinstance(action, RecvReduce) else action


def folds(action, _units: int):
    return RecvReduce(action.peer, action.part) if isinstance(action, Recv) else action


def shifts(action, units: int):
    return action if isinstance(action, Copy) else with_part(action, shifted(action.part, units))


KINDS = {"replace instead of fold": replaces, "fold instead of replace": folds}
AT_BOTH_ENDS = {
    "all replace instead of fold": replaces,
    "all fold instead of replace": folds,
    "shift the units of all": shifts,
}


def meaning(programs: Programs) -> Programs:
    """Return the programs with every unit named by itself, and without what does nothing."""

    def units(part: Part) -> tuple:
        return part.buffer, *(unit for r in part.ranges for unit in range(int(r.first), int(r.last)))

    def words(action) -> tuple:
        if isinstance(action, Copy):
            return Copy, units(action.source), units(action.target)
        operand = units(action.operand) if isinstance(action, RecvReduce) else ()
        return type(action), int(action.peer), units(action.part), operand

    return [
        [list(map(words, drop_null_peers(step).actions)) for step in program if drop_null_peers(step).actions]
        for program in programs
    ]


def accepted(case: Case, schedule: Schedule, programs: Programs) -> Case | None:
    """Return the mutant as a case where it is accepted."""

    def steps(me):
        yield from programs[me]

    mutant = Schedule(schedule.layout, schedule.units, steps)
    in_place = case.placements[0]
    try:
        prove(case.call, [mutant if in_place else out_of_place(case.call, mutant)], in_place=in_place)
    except ScheduleError:
        return None
    return Case(case.call, (mutant,))


def is_right(case: Case) -> None:
    requested = case.operation(2 * case.slices[0].units + 1)
    inputs, outputs = buffers(requested)
    run_lockstep(requested, inputs, outputs)
    for me in range(requested.call.p):
        assert np.array_equal(defined_part(requested, outputs[me], me), result(requested, inputs, me))


def case_of(name: str, ranks: int) -> Case | None:
    if name in EXAMPLES:
        return EXAMPLES[name].case(ranks)
    collective, algorithm = ALGORITHMS[name]
    return next(cases(collective, algorithm, places(algorithm, ranks)), None)


FOUR_OR_FIVE = [(name, 5 if case_of(name, 5) else 4) for name in ALGORITHMS]
"""Every algorithm where it has the most to do: on a number of ranks that is no power of two, unless it needs one."""


@pytest.mark.parametrize(("name", "ranks"), [*FOUR_OR_FIVE, *product(EXAMPLES, (3, 4))])
def test_a_broken_schedule_is_refused_or_comes_to_the_same(name, ranks):
    case = case_of(name, ranks)
    for schedule in case.slices if case else ():
        programs = programs_of(schedule)
        assert accepted(case, schedule, programs), "what is not broken is accepted"
        if not any(programs):
            continue
        whole, broken_ones = meaning(programs), 0
        for words, mutant in mutants(programs, schedule.units):
            if meaning(mutant) == whole:
                continue
            broken_ones += 1
            if survivor := accepted(case, schedule, mutant):
                assert words in MAY_BE_HARMLESS, f"accepted: {words}"
                is_right(survivor)
        assert broken_ones > 10
