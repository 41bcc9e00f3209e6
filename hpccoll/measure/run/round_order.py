"""The order of measurements: the rounds that a launch still has to measure of each case, in randomised blocks."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hpccoll.cases.case import Case, Job, Shape
from hpccoll.store.call_key import CallKey
from hpccoll.store.raw_results import RawResults


@dataclass(frozen=True, slots=True)
class Completed:
    """The state of a job after earlier attempts; ``last_attempt`` is the number of the last one, 0 if there was none.

    Rounds and unfinished cases go by the ids of cases; a case is unfinished if it was started, and
    its attempt ended or a rank stalled.
    """

    measured_rounds: Mapping[str, frozenset[int]] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    last_attempt: int = 0
    all_right: bool = True
    has_results: bool = False

    @classmethod
    def of(cls, raw: RawResults) -> "Completed":
        return cls(
            measured_rounds=raw.measured,
            unfinished=frozenset(raw.started) | raw.failed_cases,
            last_attempt=max((attempt.number for attempt, _ in raw.attempts), default=0),
            all_right=all(
                outcome.status != "wrong" for _, outcomes in raw.attempts for outcome in outcomes
            ),
            has_results=any(outcome.timed for _, outcomes in raw.attempts for outcome in outcomes),
        )


def rounds_left(job: Job, shape: Shape, earlier: Completed) -> list[tuple[int, Case]]:
    """Return the rounds that are left of the cases of ``shape``, in the order in which they are to be measured.

    The first round of all cases precedes the second. Each round visits the calls in a new random
    order, and the variants of a call (algorithms, transports, placements) in a new random order
    before the next call: variants that are compared are measured close in time. If the machine
    changes during a round, as virtual machines do when their CPUs are moved, it slows all variants
    of a call alike (randomised blocks: R. A. Fisher, The Design of Experiments, 1935). Cases that
    ended an earlier attempt come last.
    """
    left = (
        (number, case)
        for number, case in _rounds(job, shape)
        if number not in earlier.measured_rounds.get(case.id, ())
    )
    return sorted(left, key=lambda entry: entry[1].id in earlier.unfinished)


def job_for_remaining_ranks(job: Job, shape: Shape, rest: Shape | None, earlier: Completed) -> Job:
    """Return ``job`` with the cases that the remaining ranks can measure.

    The cases of ``shape`` that are left become cases of the smaller shape ``rest``, so that no
    result claims more ranks than took part; the original cases stay to be measured. A case in which
    a rank stalled is not repeated, because it may be the cause. ``rest`` is None if the remaining
    ranks cannot measure anything.
    """
    if rest is None:
        return replace(job, cases=())
    left = [
        case for _, case in rounds_left(job, shape, earlier) if case.id not in earlier.unfinished
    ]
    fewer = [replace(case, ranks=rest.ranks, nodes=rest.nodes) for case in left]
    # cases that have a launch of their own, on their own hosts
    planned = {case.id for case in job.cases}
    return replace(
        job, cases=tuple({case.id: case for case in fewer if case.id not in planned}.values())
    )


def _rounds(job: Job, shape: Shape) -> Iterator[tuple[int, Case]]:
    calls: dict[CallKey, list[Case]] = defaultdict(list)
    for case in job.cases:
        if job.shape(case) == shape:
            calls[round_key(case)].append(case)
    order = list(calls.values())
    rng = random.Random(job.seed)  # noqa: S311  not used for cryptography
    for number in range(1, job.effort.rounds + 1):
        rng.shuffle(order)
        for variants in order:
            rng.shuffle(variants)
            yield from ((number, case) for case in variants)


def round_key(case: Case) -> CallKey:
    """Return the call of a case; its algorithm, transport and placement are variants of it."""
    return CallKey.of_case(case).without(
        "in_place", "ranks", "nodes", "mapping", "device", "timing"
    )
