"""Every algorithm and every small schedule, broken mechanically in every place, is no longer accepted.

Broken at one rank it is refused, always: a message without its partner, or a rank without its
result. The one exception is a copy that is made once more: it copies what is there already.

Broken at all ranks alike, where messages keep their partners, it may still come to the same: a step
that is repeated brings what is there already; two steps may stand in either order where neither
reads what the other brings, or where both fold the same ranks in the end; a shift of units may map
the whole vector onto itself. Nothing of the kind holds where a fold becomes a replacement, or a
replacement a fold, or a step is left out. What is accepted then has to be right on real data.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plain_proof import prove_plainly
from schedule_examples import (
    ALGORITHMS,
    EXAMPLES,
    Case,
    buffers,
    case_of,
    defined_part,
    every_case,
    result,
)

from hpccoll.schedule import Schedule, ScheduleError, out_of_place, place_walk
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.prove import UnmetPostconditionError, prove
from hpccoll.schedule.step import (
    Buffer,
    Copy,
    Part,
    Range,
    Recv,
    RecvReduce,
    Send,
    Step,
    drop_null_peers,
    rewrite,
)

Programs = list[list[Step]]

MAY_BE_HARMLESS = {
    "repeat copies of a rank",
    "repeat a step of all",
    "swap two steps of all",
    "shift the units of all",
}


def clean(programs: Programs) -> Programs:
    """Return what every rank does, with a range for each unit, and without what does nothing."""
    found = [
        [
            rewrite(drop_null_peers(step), int, lambda part: Buffer(part.buffer).units(part.units))
            for step in program
        ]
        for program in programs
    ]
    return [
        [effective for step in program if (effective := without_empty_copies(step)).actions]
        for program in found
    ]


def without_empty_copies(step: Step) -> Step:
    """Return a step without copies of no units."""
    return Step(
        *(action for action in step.actions if not isinstance(action, Copy) or action.source.units)
    )


def mutants(programs: Programs, units: int) -> Iterator[tuple[str, Programs]]:
    """Yield what is broken, in words, and the broken programs."""
    for me, program in enumerate(programs):
        for at, step in enumerate(program):
            copies = all(isinstance(action, Copy) for action in step.actions)
            yield "drop a step of a rank", replaced(programs, me, at)
            yield (
                f"repeat {'copies' if copies else 'a step'} of a rank",
                replaced(programs, me, at, step, step),
            )
            for place, action in enumerate(step.actions):
                for words, others in broken(action, len(programs), units):
                    mutant = Step(*step.actions[:place], *others, *step.actions[place + 1 :])
                    yield words, replaced(programs, me, at, mutant)
    # of all ranks alike, so that messages still have their partners
    for at in range(max(map(len, programs))):
        yield "drop a step of all", [program[:at] + program[at + 1 :] for program in programs]
        yield "repeat a step of all", [program[: at + 1] + program[at:] for program in programs]
        yield (
            "swap two steps of all",
            [p[:at] + p[at : at + 2][::-1] + p[at + 2 :] for p in programs],
        )
        for words, change in AT_BOTH_ENDS.items():
            changed = [
                [Step(*(change(action, units) for action in s.actions)) for s in p[at : at + 1]]
                for p in programs
            ]
            yield (
                words,
                [p[:at] + steps + p[at + 1 :] for p, steps in zip(programs, changed, strict=True)],
            )


def replaced(programs: Programs, me: int, at: int, *steps: Step) -> Programs:
    return [
        *programs[:me],
        [*programs[me][:at], *steps, *programs[me][at + 1 :]],
        *programs[me + 1 :],
    ]


def broken(action, ranks: int, units: int):
    """Yield words, and the actions in place of ``action``."""
    if isinstance(action, Copy):
        yield "drop a copy", ()
        yield "shift a copy", (Copy(shifted(action.source, units), action.target),)
        yield "shift a copy", (Copy(action.source, shifted(action.target, units)),)
        return
    yield "drop a message", ()
    yield (
        "change a peer",
        rewrite(Step(action), lambda peer: (peer + 1) % ranks, lambda part: part).actions,
    )
    for words, change in AT_BOTH_ENDS.items():
        yield f"{words} at one end", (change(action, units),)


def shifted(part: Part, units: int) -> Part:
    """Return ``part`` one unit further on, what comes out at the end coming in at the start."""
    return Buffer(part.buffer).units((unit + 1) % units for unit in part.units)


def replaces(action, _units: int):
    return Recv(action.peer, action.part) if isinstance(action, RecvReduce) else action


def folds(action, _units: int):
    return RecvReduce(action.peer, action.part) if isinstance(action, Recv) else action


def shifts(action, units: int):
    return (
        action
        if isinstance(action, Copy)
        else type(action)(action.peer, shifted(action.part, units))
    )


AT_BOTH_ENDS = {
    "replace instead of fold": replaces,
    "fold instead of replace": folds,
    "shift the units of all": shifts,
}


def accepted(case: Case, schedule: Schedule, programs: Programs) -> Case | None:
    """Return the mutant as a case where it is accepted."""
    mutant = Schedule(schedule.layout, schedule.units, lambda me: iter(programs[me]))
    in_place = case.placements[0]
    try:
        prove(
            case.call, [mutant if in_place else out_of_place(case.call, mutant)], in_place=in_place
        )
    except ScheduleError:
        return None
    return Case(case.call, (mutant,))


def is_right(case: Case) -> None:
    requested = case.operation(2 * case.slices[0].units + 1)
    inputs, outputs = buffers(requested)
    run_lockstep(requested, inputs, outputs)
    for me in range(requested.call.p):
        assert np.array_equal(
            defined_part(requested, outputs[me], me), result(requested, inputs, me)
        )


FOUR_OR_FIVE = [(name, 5 if every_case(name, 5) else 4) for name in ALGORITHMS]
"""Every algorithm where it has the most to do: on a number of ranks that is no power of two, unless it needs one."""


@pytest.mark.parametrize(("name", "ranks"), [*FOUR_OR_FIVE, *product(EXAMPLES, (3, 4))])
def test_a_broken_schedule_is_refused_or_comes_to_the_same(name, ranks):
    case = every_case(name, ranks)[0]
    for schedule in case.slices:
        programs = clean([[*schedule.steps(me)] for me in range(schedule.layout.ranks)])
        assert accepted(case, schedule, programs), "what is not broken is accepted"
        every = [
            (words, mutant)
            for words, mutant in mutants(programs, schedule.units)
            if clean(mutant) != programs
        ]
        for words, mutant in every:
            if survivor := accepted(case, schedule, mutant):
                assert words in MAY_BE_HARMLESS, f"accepted: {words}"
                is_right(survivor)
        assert len(every) > 10 or not any(programs)


# ---- the same verdicts as a plain prover
# -----------------------------------------------------------------------------


def verdict(
    prover, case: Case, mutant: Schedule, in_place: bool | None = None
) -> tuple[type, str | None]:
    """Return what a prover raises, and the step that it names; nothing if it accepts the mutant."""
    in_place = case.placements[0] if in_place is None else in_place
    try:
        prover(
            case.call, [mutant if in_place else out_of_place(case.call, mutant)], in_place=in_place
        )
    except ScheduleError as error:
        named = re.match(r"step \d+|deadlock", str(error))
        return type(error), named and named[0]
    return type(None), None


@given(st.data())
@settings(max_examples=150)
def test_the_verdict_is_that_of_a_plain_prover(data):
    name = data.draw(st.sampled_from([*ALGORITHMS, *EXAMPLES]))
    case = case_of(name, data.draw(st.integers(2, 6)))
    assume(case)
    schedule = data.draw(st.sampled_from(case.slices))
    programs = clean([[*schedule.steps(me)] for me in range(schedule.layout.ranks)])
    for _ in range(data.draw(st.integers(0, 3))):
        choices = (
            [mutant for _, mutant in mutants(programs, schedule.units)]
            if any(programs)
            else [programs]
        )
        programs = clean(data.draw(st.sampled_from(choices)))
    mutant = Schedule(schedule.layout, schedule.units, lambda me: iter(programs[me]))
    in_place = data.draw(st.sampled_from(case.placements))
    assert verdict(prove, case, mutant, in_place) == verdict(prove_plainly, case, mutant, in_place)


def test_units_that_are_proven_in_groups_have_the_same_verdict(monkeypatch):
    case = every_case("all_reduce-rabenseifner", 8)[0]
    schedule = case.slices[0]
    programs = clean([[*schedule.steps(me)] for me in range(8)])
    every = [programs, *(mutant for _, mutant in mutants(programs, schedule.units))][::7]
    made = [
        Schedule(schedule.layout, schedule.units, lambda me, mutant=mutant: iter(mutant[me]))
        for mutant in every
    ]
    at_once = [verdict(prove, case, mutant)[0] for mutant in made]
    module = sys.modules[UnmetPostconditionError.__module__]  # of which the function has the name
    monkeypatch.setattr(module, "MOST_ROW_BYTES", 100)
    monkeypatch.setattr(place_walk, "KEPT_RANGES", 0)
    assert [verdict(prove, case, mutant)[0] for mutant in made] == at_once
    assert type(None) in at_once
    assert ScheduleError in at_once


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("all_reduce-ring", 6),
        ("reduce_scatter-ring", 6),
        ("all_gather-ring", 6),
        ("all_reduce-direct", 6),
        ("all_reduce-reduce_scatter_all_gather", 6),
        ("all_reduce-swing", 8),
        ("reduce_scatter-bine", 8),
    ],
)
@pytest.mark.parametrize("change", ["none", "drop", "repeat", "swap", "one message"])
def test_a_vectorised_schedule_that_is_broken_has_the_same_verdict(name, workers, change):
    """One unit stands for all of a ring, and two for those of Swing, but only if all ranks do alike."""
    case = every_case(name, workers)[0]
    whole = case.slices[0]

    def steps_at(me, at):
        steps = [*whole.steps(me)]
        if change == "none":
            return iter(steps)
        if change == "one message":  # from rank 2 to rank 3: another unit, at both ends
            send, *others, arrival = steps[at].actions
            sent, landed = (
                next_unit(send.part, me, 2, workers),
                next_unit(arrival.part, me, 3, workers),
            )
            steps[at] = Step(Send(send.peer, sent), *others, type(arrival)(arrival.peer, landed))
            return iter(steps)
        changes = {
            "drop": steps[at + 1 :],
            "repeat": steps[at:],
            "swap": steps[at : at + 2][::-1] + steps[at + 2 :],
        }
        return iter([*steps[: at + (change == "repeat")], *changes[change]])

    for at in range(len([*whole.steps(0)])):
        mutant = replace(whole, steps=lambda me, at=at: steps_at(me, at))
        assert verdict(prove, case, mutant) == verdict(prove_plainly, case, mutant)


def next_unit(part: Part, me, rank: int, workers: int) -> Part:
    """Return a part; at one of the ranks its first range begins at the next unit."""
    first, length = part.ranges[0].first, part.ranges[0].last - part.ranges[0].first
    first = np.where(np.asarray(me) == rank, (first + 1) % workers, first)
    return Part(part.buffer, (Range(first, first + length), *part.ranges[1:]))
