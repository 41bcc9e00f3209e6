"""A reference: the times of repeated runs of one sweep, and the bounds that one more run is expected to keep.

Runs on one machine differ by more than the rounds of a run. The unit is therefore the run: a case
has a time of each run, the median of its rounds, which one disturbed round does not move. Bounds
are the 95 % prediction interval of one more run (``shift``).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Annotated, Any, Literal

from msgspec import Meta

from hpccoll.analysis.shift import RunSpread
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import Name, PositiveNumber, Ranks, Size
from hpccoll.common.records import from_builtins, json_text, load_record
from hpccoll.judge.provenance_changes import Facts, facts_of_runs
from hpccoll.judge.run_comparison import (
    COORDINATES,
    ComparedCase,
    Comparison,
    Side,
    cases_of_rows,
    compare_sides,
)
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results, Run

MAX_FILE_BYTES = 64 << 20
MIN_RUNS = 3
"""Two runs have one degree of freedom: their prediction interval is 16 standard deviations wide to each side."""


FAILS_ALONE = 3
"""The time over the upper bound of a reference from which on a row fails whatever its neighbours
do: of two healthy sweeps of the testbed, a burst of noise made a single row take 2.1 times as long.
A bound that is as many times the time of its case would allow such a row."""


_Seconds = Annotated[float, PositiveNumber(1e9).meta]
# None of other cases, and in files of before
_PartOfStep = Annotated[float, Meta(ge=0, le=1e9)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCase:
    """A case of a reference, as its file has it."""

    identity: str  # as that of a ``ComparedCase``
    case_id: str
    case: str  # the case in words
    collective: Name
    algorithm: Name
    requested_bytes: Size
    in_place: bool
    ranks: Ranks
    nodes: Ranks
    seconds: _Seconds  # its time
    low_s: _Seconds  # the lower bound
    high_s: _Seconds  # the upper bound
    times_s: Annotated[tuple[_Seconds, ...], Meta(min_length=MIN_RUNS)]  # the time of each run
    transfer_s: _PartOfStep = None  # of a training step, the medians over the runs
    waiting_s: _PartOfStep = None

    @classmethod
    def of(
        cls, case_of_runs: Sequence[ComparedCase], times: Sequence[float], low: float, high: float
    ) -> "ReferenceCase":
        """Return a case with its time in each run, and its bounds."""
        case = case_of_runs[-1]
        waitings = [run.waiting for run in case_of_runs if run.waiting]
        transfer_s = waiting_s = None
        if len(waitings) == len(case_of_runs):
            transfer_s = median(transfer for transfer, *_ in waitings)
            waiting_s = median(waiting for _, waiting, _ in waitings)
        return cls(
            identity=case.identity,
            case_id=case.case_id,
            case=case.label,
            **case.coordinates,
            seconds=geometric_mean(times),
            low_s=low,
            high_s=high,
            times_s=tuple(times),
            transfer_s=transfer_s,
            waiting_s=waiting_s,
        )

    @property
    def compared(self) -> ComparedCase:
        waiting = None
        if self.transfer_s is not None and self.waiting_s is not None:
            waiting = self.transfer_s, self.waiting_s, ""
        return ComparedCase(
            identity=self.identity,
            case_id=self.case_id,
            label=self.case,
            coordinates={name: getattr(self, name) for name in COORDINATES},
            status="ok",
            reason=None,
            seconds=self.seconds,
            samples=self.times_s,
            bounds=(self.low_s, self.high_s),
            waiting=waiting,
        )

    def __post_init__(self) -> None:
        """Check that its values fit each other, and its identity.

        Raises:
            BadInputError: if they do not.
        """
        try:
            identity: dict[str, Any] = from_builtins(parse_json(self.identity), dict[str, Any])
        except ValueError:
            raise BadInputError(
                "identity", self.identity, "what identifies a case, as JSON"
            ) from None
        for name in COORDINATES:
            if name not in identity or identity[name] != getattr(self, name):
                raise BadInputError(
                    name, getattr(self, name), f"{identity.get(name)}, as its identity says"
                )
        if not self.low_s <= self.seconds <= self.high_s:
            raise BadInputError(
                "seconds", self.seconds, f"from {self.low_s} to {self.high_s}, its bounds"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What is expected of one more run, as a file has it."""

    schema: Literal["hpccoll-reference 2.0"] = "hpccoll-reference 2.0"
    runs: Sequence[str]  # where and when each of the runs was measured, in words
    cases: Sequence[ReferenceCase]
    facts: Facts  # what the runs were measured with

    def __post_init__(self) -> None:
        for number, case in enumerate(self.cases):
            runs = len(self.cases[0].times_s)
            if len(case.times_s) != runs:
                raise BadInputError(
                    f"cases.{number}.times_s", len(case.times_s), f"times of {runs} runs"
                )

    @property
    def loose_cases(self) -> list[ReferenceCase]:
        """The cases whose upper bound allows too much to call a run healthy."""
        return [case for case in self.cases if case.high_s > FAILS_ALONE * case.seconds]

    @property
    def side(self) -> Side:
        cases = {case.identity: case.compared for case in self.cases}
        return Side(cases, self.facts, is_reference=True, runs=self.runs)


def make_reference(runs: Sequence[Results]) -> Reference:
    """Make a reference from runs of one sweep: from the cases that all of them have, with correct results.

    Raises:
        UnusableError: if there are fewer than three runs, or they have no case in common.
    """
    if len(runs) < MIN_RUNS:
        raise UnusableError(
            "--make-reference",
            f"at least {MIN_RUNS} runs are needed: their spread makes the bounds",
        )
    common = _common_cases(runs)
    if not common:
        raise UnusableError("--make-reference", "the runs have no case in common")
    times = [[case.seconds or 0.0 for case in cases] for cases in common]
    sizes = [cases[0].coordinates["requested_bytes"] for cases in common]
    lows, highs = RunSpread.of(times, sizes).bounds
    reference_cases = []
    for cases, times_of_case, low, high in zip(
        common, times, lows.tolist(), highs.tolist(), strict=True
    ):
        reference_cases.append(ReferenceCase.of(cases, times_of_case, low, high))
    words = []
    launches: list[Run] = []
    for results in runs:
        launches += results.runs
        if results.runs:
            first = results.runs[0]
            words.append(f"{first.created} on {first.machine}")
    return Reference(runs=words, cases=reference_cases, facts=facts_of_runs(launches))


def _common_cases(runs: Sequence[Results]) -> list[list[ComparedCase]]:
    """Return the cases that all runs have with a time, each as it is in every run."""
    cases_by_run = [cases_of_rows(results.rows, results.runs) for results in runs]
    common = []
    for key in cases_by_run[0]:
        case_of_runs = []
        for cases in cases_by_run:
            if key in cases and cases[key].timed:
                case_of_runs.append(cases[key])
        if len(case_of_runs) == len(runs):
            common.append(case_of_runs)
    return common


def compare_with_reference(reference: Reference, new: Results, tolerance: float) -> Comparison:
    """Compare a run with a reference.

    Raises:
        UnusableError: if they have no case in common.
    """
    side = Side.of(new)
    check_common_case(reference, side.cases)
    return compare_sides(reference.side, side, tolerance)


def check_common_case(reference: Reference, identities: Collection[str]) -> None:
    """Check that a reference has one of the cases of a run.

    Raises:
        UnusableError: if it has none of them.
    """
    if all(case.identity not in identities for case in reference.cases):
        raise UnusableError("--reference", "it has no case in common with the run")


def missing_cases(reference: Reference, new: Results) -> list[str]:
    """Return the cases of a reference that a run has no result of, in words."""
    cases = cases_of_rows(new.rows, new.runs)
    missing = []
    for expected in reference.cases:
        measured = cases.get(expected.identity)
        if measured is None:
            missing.append(expected.case)
        elif not measured.has_result:
            missing.append(measured.label)
    return sorted(missing)


def write_reference(reference: Reference, path: Path) -> None:
    """Write a reference as JSON.

    Raises:
        OSError: if the file cannot be written.
    """
    with replacing_file(path) as unfinished:
        unfinished.write_text(json_text(reference), encoding="utf-8")


def read_reference(path: Path) -> Reference:
    """Read a reference.

    Raises:
        BadInputError: if the file cannot be read, or is not a reference.
    """
    expected = "a file of 'hpccoll compare --make-reference'"
    return load_record(path, "--reference", MAX_FILE_BYTES, Reference, expected)
