"""Same: whether what is there was measured for the same job, and what differs where it was not."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.spec.case import Case, Job
from hpccoll.store.raw import RawResults
from hpccoll.units import format_size

MAX_LISTED_VALUES = 4
"""Values that are told of each side; of more of them the first and the last."""

CASE_FIELDS = {
    "collectives": "collective", "algorithms": "algorithm", "transports": "transport", "devices": "device",
    "dtypes": "dtype", "ops": "op", "sizes": "bytes", "in place": "in_place", "roots": "root", "parameters": "params",
    "mappings": "mapping",
}  # fmt: skip
"""What cases differ in, and the field that has it."""


def check_same_job(raw: RawResults, job: Job, raw_file: Path) -> None:
    """See that what is there was measured for the same job.

    Raises:
        BadInputError: where it was not, with what differs; nothing is overwritten.
    """
    if raw.job.sha256 != job.sha256:
        what = "; ".join(_differences(raw.job, job))
        raise BadInputError("--out", str(raw_file), f"a new file: this one holds another job ({what})")


def _differences(there: Job, here: Job) -> Iterator[str]:
    """Yield what two jobs that are not the same differ in; the cases alone where it is nothing else."""
    sides = [{**asdict(job), **asdict(job.effort)} for job in (there, here)]
    named = [name for name in sides[0] if name not in ("effort", "cases", "table")]
    pairs = {name: tuple(_format_field(side[name]) for side in sides) for name in named}
    for name, field in CASE_FIELDS.items():
        pairs[name] = _format_values(there.cases, field), _format_values(here.cases, field)
    told = [f"{name} {theirs} there, {ours} here" for name, (theirs, ours) in pairs.items() if theirs != ours]
    if there.table != here.table:
        told.append("what auto chooses")
    yield from told or [f"{len(there.cases)} cases there, {len(here.cases)} others here"]


def _format_field(value: object) -> str:
    """Return a value, or the names and values of a mapping."""
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return "none" if value is None else str(value)


def _format_values(cases: Iterable[Case], field: str) -> str:
    """Return the values that cases have of a field, each once."""
    values = (getattr(case, field) for case in cases)
    words = list(dict.fromkeys(format_size(value) if field == "bytes" else _format_field(value) for value in values))
    return ",".join(words) if len(words) <= MAX_LISTED_VALUES else f"{words[0]} to {words[-1]} ({len(words)})"
