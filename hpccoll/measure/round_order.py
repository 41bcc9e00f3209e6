"""The order: which rounds of which cases a launch has yet to measure, and one after the other."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hpccoll.errors import BadInputError
from hpccoll.schedule import collective
from hpccoll.spec.case import Case, Job, Shape
from hpccoll.spec.catalogue import check_case
from hpccoll.store.raw import RawResults


def check_cases(job: Job) -> None:
    """See that every case can be named, and that each is asked for once.

    Raises:
        BadInputError: names the case or the word.
    """
    for case in job.cases:
        check_case(case)
    for name, times in Counter(case.id for case in job.cases).items():
        if times > 1:
            raise BadInputError("case", name, f"each case once; it is asked for {times} times")


@dataclass(frozen=True, slots=True)
class Completed:
    """What earlier attempts have left: the ids of cases."""

    measured: Mapping[str, frozenset[int]] = field(default_factory=dict)  # the rounds of each
    started: frozenset[str] = frozenset()  # and not ended: they ended their attempt, or somebody stalled in them
    attempts: int = 0  # the number of the last one
    fine: bool = True  # whether no result is wrong
    timed: bool = False  # whether there is a result at all

    @classmethod
    def of(cls, raw: RawResults) -> "Completed":
        return cls(
            measured=raw.measured,
            started=frozenset(raw.started) | raw.failed_cases,
            attempts=max((attempt.number for attempt, _ in raw.attempts), default=0),
            fine=all(outcome.status != "wrong" for _, outcomes in raw.attempts for outcome in outcomes),
            timed=any(outcome.timed for _, outcomes in raw.attempts for outcome in outcomes),
        )


def rounds_left(job: Job, shape: Shape, earlier: Completed) -> list[tuple[int, Case]]:
    """Return what is left of the cases of ``shape``: all of the first round, then all of the next, each with its case.

    Every round goes through the calls in an order of its own, and through the ways to do one in another, all of them
    before the next call: what is compared is measured side by side. A machine that changes within a round, as a virtual
    one does whose CPUs move, then slows all ways of a call or none (randomised blocks: R. A. Fisher, The Design of
    Experiments, 1935). Cases that ended an earlier attempt come last.
    """
    left = ((number, case) for number, case in _rounds(job, shape) if number not in earlier.measured.get(case.id, ()))
    return sorted(left, key=lambda one: one[1].id in earlier.started)


def job_for_remaining_ranks(job: Job, shape: Shape, rest: Shape | None, earlier: Completed) -> Job:
    """Return ``job`` with what ranks can measure that others of theirs were left behind by.

    What is left of the cases of ``shape`` becomes cases of the ranks that there are, which say so: no number stands for
    more ranks than have taken part, and those that were asked for stay to be measured. A case in which somebody stalled
    is not tried again: it may be what makes ranks stall.

    Args:
        job: as it was planned.
        shape: of the ranks that were launched.
        rest: of those that are left, None where they can measure nothing.
        earlier: what is there.
    """
    if rest is None:
        return replace(job, cases=())
    left = [case for _, case in rounds_left(job, shape, earlier) if case.id not in earlier.started]
    fewer = [replace(case, ranks=rest.ranks, nodes=rest.nodes) for case in left]
    planned = {case.id for case in job.cases}  # which have a launch of their own, on the hosts that are meant
    return replace(job, cases=tuple({case.id: case for case in fewer if case.id not in planned}.values()))


def _rounds(job: Job, shape: Shape) -> Iterator[tuple[int, Case]]:
    calls: dict[tuple[object, ...], list[Case]] = defaultdict(list)
    for case in job.cases:
        if job.shape(case) == shape:
            calls[_call(case)].append(case)
    order = list(calls.values())
    shuffled = random.Random(job.seed)  # noqa: S311  an order, not a secret
    for number in range(1, job.effort.rounds + 1):
        shuffled.shuffle(order)
        for ways in order:
            shuffled.shuffle(ways)
            yield from ((number, case) for case in ways)


def _call(case: Case) -> tuple[object, ...]:
    """Return what is done, whichever way: in place is one of two ways, of which the better counts."""
    arguments = tuple((name, case.params.get(name)) for name in collective(case.collective).arguments)
    return case.collective, case.dtype, case.op, case.bytes, case.root, arguments
