"""A reference: the times of several runs of one sweep, and the bounds within which one more run is expected.

Runs on one machine differ by more than the rounds of a run. The unit is therefore the run: a case has a time of each
run, the median of its rounds, which one disturbed round does not move. Bounds are the 95 % prediction interval of one
more run (``run_spread``).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpccoll.analysis.compared_case import COORDINATES, ComparedCase, cases_of_rows
from hpccoll.analysis.provenance_changes import Facts, facts_of_runs
from hpccoll.analysis.run_comparison import Comparison, Side, compare_sides
from hpccoll.analysis.run_spread import RunSpread
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_json
from hpccoll.common.limits import check_keys
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results

SCHEMA = "hpccoll-reference 2"
MAX_BYTES = 64 << 20
MIN_RUNS = 3
"""Two runs have one degree of freedom: their prediction interval is 16 standard deviations wide to each side."""


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    """A case of a reference.

    Args:
        case: the case; its samples are the times of the runs in seconds.
        low_s: the lower bound in seconds.
        high_s: the upper bound.
    """

    case: ComparedCase
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class Reference:
    """What is expected of one more run.

    Args:
        runs: where and when each of the runs was measured, in words.
        cases: the cases.
        facts: what the runs were measured with.
    """

    runs: Sequence[str]
    cases: Sequence[ReferenceCase]
    facts: Facts

    @property
    def side(self) -> Side:
        """The reference as the old side of a comparison."""
        return Side({each.case.identity: each.case for each in self.cases}, self.facts, of_runs=True)


def make_reference(runs: Sequence[Results]) -> Reference:
    """Make a reference of several runs: of the cases that all of them have, with correct results.

    Args:
        runs: the results of each run.

    Raises:
        UnusableError: if there are fewer than three runs, or they have no case in common.
    """
    if len(runs) < MIN_RUNS:
        raise UnusableError("--make-reference", f"at least {MIN_RUNS} runs are needed: their spread makes the bounds")
    every = [cases_of_rows(results.rows, results.runs) for results in runs]
    timed = [{key for key, case in of_run.items() if case.timed and case.seconds} for of_run in every]
    common = [key for key in every[0] if all(key in keys for keys in timed)]
    if not common:
        raise UnusableError("--make-reference", "the runs have no case in common")
    cases = [
        replace(every[-1][key], samples=[of_run[key].seconds or 0.0 for of_run in every], status="ok", reason=None)
        for key in common
    ]
    words = [f"{run.created} on {run.machine}" for results in runs for run in results.runs[:1]]
    facts = facts_of_runs(run for results in runs for run in results.runs)
    return Reference(words, [*_with_bounds(cases)], facts)


def _with_bounds(cases: Sequence[ComparedCase]) -> Sequence[ReferenceCase]:
    """Return cases with their bounds."""
    lows, highs = (ends.tolist() for ends in RunSpread.of([case.samples for case in cases]).bounds)
    return [
        ReferenceCase(replace(case, seconds=case.middle), low, high)
        for case, low, high in zip(cases, lows, highs, strict=True)
    ]


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
    with replacing_file(path) as unfinished:
        unfinished.write_text(json.dumps(_content(reference), indent=1), encoding="utf-8")


def _content(reference: Reference) -> dict[str, Any]:
    cases = [
        {
            "identity": each.case.identity, "case_id": each.case.case_id, "case": each.case.label,
            **each.case.coordinates, "seconds": each.case.seconds, "low_s": each.low_s, "high_s": each.high_s,
            "times_s": list(each.case.samples),
        }
        for each in reference.cases
    ]  # fmt: skip
    return {"schema": SCHEMA, "runs": list(reference.runs), "cases": cases, "facts": dict(reference.facts)}


def read_reference(path: Path) -> Reference:
    """Read a reference.

    Raises:
        BadInputError: if the file cannot be read, or is no reference.
    """
    content = read_json(path, "--reference", MAX_BYTES)
    expected = f"a file of 'hpccoll compare --make-reference', {SCHEMA}"
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        raise BadInputError("--reference", str(path), expected)
    try:
        check_keys("", content, ("schema", "runs", "cases", "facts"))
        runs = len(content["cases"][0]["times_s"]) if content["cases"] else 0
        cases = [_case(each, runs) for each in content["cases"]]
        facts = {str(name): [str(value) for value in values] for name, values in content["facts"].items()}
        return Reference([str(each) for each in content["runs"]], cases, facts)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise BadInputError("--reference", str(path), f"{expected} ({type(error).__name__}: {error})") from None


def _case(values: Mapping[str, Any], runs: int) -> ReferenceCase:
    """Return a case of a file of so many runs.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: if a value is missing, of another type or out of range, or the
            case is not the one of its identity.
    """
    check_keys("cases.", values, ("identity", "case_id", "case", *COORDINATES, "seconds", "low_s", "high_s", "times_s"))
    identity = json.loads(values["identity"])
    for name in COORDINATES:
        if identity[name] != values[name]:
            raise BadInputError(f"cases.{name}", values[name], f"{identity[name]}, as its identity says")
    times = [float(time) for time in values["times_s"]]
    seconds, low, high = (float(values[name]) for name in ("seconds", "low_s", "high_s"))
    if not MIN_RUNS <= len(times) == runs:
        raise ValueError(f"{len(times)} times of {runs} runs, and at least {MIN_RUNS} are needed")
    if not all(0 < time < math.inf for time in (*times, seconds, low, high)):
        raise ValueError("a time is not above 0")
    if not low <= seconds <= high:
        raise ValueError("a time is not within its bounds")
    if not all(isinstance(values[name], int) for name in ("requested_bytes", "ranks", "nodes")):
        raise ValueError("a size, or a number of ranks or nodes, is no integer")
    case = ComparedCase(
        identity=str(values["identity"]), case_id=str(values["case_id"]), label=str(values["case"]),
        coordinates={name: values[name] for name in COORDINATES}, status="ok", reason=None, seconds=seconds,
        samples=times,
    )  # fmt: skip
    return ReferenceCase(case, low, high)
