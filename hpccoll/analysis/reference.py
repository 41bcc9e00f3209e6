"""A reference: the times of several runs of one sweep, and the bounds within which one more run is expected.

Runs on one machine differ by more than the rounds of a run. The unit is therefore the run: a case has a time of each
run, the median of its rounds, which one disturbed round does not move. Bounds are the 95 % prediction interval of one
more run (``run_spread``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Any, Literal

from msgspec import Meta

from hpccoll.analysis.compared_case import COORDINATES, ComparedCase, cases_of_rows
from hpccoll.analysis.provenance_changes import Facts, facts_of_runs
from hpccoll.analysis.run_comparison import Comparison, Side, compare_sides
from hpccoll.analysis.run_spread import RunSpread
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import Name, PositiveNumber, Ranks, Size
from hpccoll.common.records import from_builtins, json_text, load_record
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results

MAX_FILE_BYTES = 64 << 20
MIN_RUNS = 3
"""Two runs have one degree of freedom: their prediction interval is 16 standard deviations wide to each side."""


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    """A case of a reference."""

    case: ComparedCase  # the case; its samples are the times of the runs in seconds
    low_s: float  # the lower bound in seconds
    high_s: float  # the upper bound


@dataclass(frozen=True, slots=True)
class Reference:
    """What is expected of one more run."""

    runs: Sequence[str]  # where and when each of the runs was measured, in words
    cases: Sequence[ReferenceCase]
    facts: Facts  # what the runs were measured with

    @property
    def side(self) -> Side:
        """The reference as the old side of a comparison."""
        return Side({each.case.identity: each.case for each in self.cases}, self.facts, of_runs=True)


_Seconds = Annotated[float, PositiveNumber(1e9).meta]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CaseRecord:
    """A case in a file: its identity, label, coordinates, time, bounds and the time of each run."""

    identity: str
    case_id: str
    case: str
    collective: Name
    algorithm: Name
    requested_bytes: Size
    in_place: bool
    ranks: Ranks
    nodes: Ranks
    seconds: _Seconds
    low_s: _Seconds
    high_s: _Seconds
    times_s: Annotated[tuple[_Seconds, ...], Meta(min_length=MIN_RUNS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReferenceFile:
    schema: Literal["hpccoll-reference 2.0"] = "hpccoll-reference 2.0"
    runs: Sequence[str]
    cases: Sequence[_CaseRecord]
    facts: Facts


def make_reference(runs: Sequence[Results]) -> Reference:
    """Make a reference of several runs: of the cases that all of them have, with correct results.

    Raises:
        UnusableError: if there are fewer than three runs, or they have no case in common.
    """
    if len(runs) < MIN_RUNS:
        raise UnusableError("--make-reference", f"at least {MIN_RUNS} runs are needed: their spread makes the bounds")
    every = [cases_of_rows(results.rows, results.runs) for results in runs]
    timed = [{key for key, case in of_run.items() if case.timed} for of_run in every]
    common = [key for key in every[0] if all(key in keys for keys in timed)]
    if not common:
        raise UnusableError("--make-reference", "the runs have no case in common")
    times = [[of_run[key].seconds or 0.0 for of_run in every] for key in common]
    lows, highs = (ends.tolist() for ends in RunSpread.of(times).bounds)
    cases = [
        ReferenceCase(
            replace(every[-1][key], seconds=geometric_mean(each), samples=each, status="ok", reason=None), low, high
        )
        for key, each, low, high in zip(common, times, lows, highs, strict=True)
    ]
    words = [f"{run.created} on {run.machine}" for results in runs for run in results.runs[:1]]
    facts = facts_of_runs(run for results in runs for run in results.runs)
    return Reference(words, cases, facts)


def compare_with_reference(reference: Reference, new: Results, tolerance: float) -> Comparison:
    """Compare a run with a reference.

    Raises:
        UnusableError: if they have no case in common.
    """
    side = Side.of(new)
    if not reference.side.cases.keys() & side.cases.keys():
        raise UnusableError("--reference", "it has no case in common with the run")
    return compare_sides(reference.side, side, tolerance)


def write_reference(reference: Reference, path: Path) -> None:
    """Write a reference as JSON.

    Raises:
        OSError: if the file cannot be written.
    """
    cases = [
        _CaseRecord(
            identity=each.case.identity, case_id=each.case.case_id, case=each.case.label, **each.case.coordinates,
            seconds=each.case.seconds or 0.0, low_s=each.low_s, high_s=each.high_s, times_s=tuple(each.case.samples),
        )
        for each in reference.cases
    ]  # fmt: skip
    content = _ReferenceFile(runs=reference.runs, cases=cases, facts=reference.facts)
    with replacing_file(path) as unfinished:
        unfinished.write_text(json_text(content), encoding="utf-8")


def read_reference(path: Path) -> Reference:
    """Read a reference.

    Raises:
        BadInputError: if the file cannot be read, or is no reference.
    """
    what = "a file of 'hpccoll compare --make-reference'"
    read = load_record(path, "--reference", MAX_FILE_BYTES, _ReferenceFile, what)
    try:
        runs = len(read.cases[0].times_s) if read.cases else 0
        return Reference(read.runs, [_case(number, each, runs) for number, each in enumerate(read.cases)], read.facts)
    except BadInputError as error:
        raise BadInputError("--reference", str(path), f"{what} ({error})") from None


def _case(number: int, record: _CaseRecord, runs: int) -> ReferenceCase:
    """Return a case of a file of so many runs.

    Raises:
        BadInputError: if its values do not fit each other, or its identity.
    """
    place = f"cases.{number}"
    try:
        identity: dict[str, Any] = from_builtins(parse_json(record.identity), dict[str, Any])
    except ValueError:
        raise BadInputError(f"{place}.identity", record.identity, "what identifies a case, as JSON") from None
    coordinates = {name: getattr(record, name) for name in COORDINATES}
    for name, value in coordinates.items():
        if name not in identity or identity[name] != value:
            raise BadInputError(f"{place}.{name}", value, f"{identity.get(name)}, as its identity says")
    if len(record.times_s) != runs:
        raise BadInputError(f"{place}.times_s", len(record.times_s), f"times of {runs} runs")
    if not record.low_s <= record.seconds <= record.high_s:
        raise BadInputError(f"{place}.seconds", record.seconds, f"from {record.low_s} to {record.high_s}, its bounds")
    case = ComparedCase(
        identity=record.identity, case_id=record.case_id, label=record.case, coordinates=coordinates, status="ok",
        reason=None, seconds=record.seconds, samples=list(record.times_s),
    )  # fmt: skip
    return ReferenceCase(case, record.low_s, record.high_s)
