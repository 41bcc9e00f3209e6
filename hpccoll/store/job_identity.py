"""Job identity: checks that an existing raw file or journal holds the same job, and names the differences."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from msgspec import UNSET

from hpccoll.cases.case import Case, Job
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_size
from hpccoll.store.raw_results import RawResults

MAX_LISTED_VALUES = 4
"""The maximum number of values named of each job; of more values only the first and the last are named."""

CASE_FIELDS = {
    "collectives": "collective",
    "algorithms": "algorithm",
    "transports": "transport",
    "devices": "device",
    "dtypes": "dtype",
    "ops": "op",
    "sizes": "bytes",
    "in place": "in_place",
    "roots": "root",
    "parameters": "params",
    "mappings": "mapping",
    "timing": "timing",
}
"""The fields in which cases differ, by their names in messages."""


UNNAMED_FIELDS = "effort", "cases", "table", "plans", "extensions", "named"
"""The fields of a job whose differences messages do not name, or name in words of their own."""


def check_same_job(raw: RawResults, job: Job, raw_file: Path) -> None:
    """Check that the existing results ``raw`` belong to ``job``.

    Raises:
        BadInputError: if they belong to another job; the message names the differences. Nothing is
            overwritten.
    """
    if raw.job.sha256 != job.sha256:
        differences = "; ".join(job_differences(raw.job, job))
        raise BadInputError(
            "--out", str(raw_file), f"a new file: this one holds another job ({differences})"
        )


def job_differences(
    stored: Job, requested: Job, text: str = "{name} {old} there, {new} here"
) -> Iterator[str]:
    """Yield the differences between two jobs, written as ``text``; the numbers of cases if no named field differs."""
    sides = [{**asdict(job), **asdict(job.effort)} for job in (stored, requested)]
    names = [name for name in sides[0] if name not in UNNAMED_FIELDS]
    pairs = {name: tuple(_format_field(side[name]) for side in sides) for name in names}
    pairs["algorithms named beside all"] = _named_beside_all(stored), _named_beside_all(requested)
    for name, field in CASE_FIELDS.items():
        pairs[name] = _format_values(stored.cases, field), _format_values(requested.cases, field)
    differences = [
        text.format(name=name, old=old, new=new) for name, (old, new) in pairs.items() if old != new
    ]
    if stored.table != requested.table:
        differences.append("what auto chooses")
    yield from differences or [
        f"{len(stored.cases)} cases there, {len(requested.cases)} others here"
    ]


def _named_beside_all(job: Job) -> str:
    if job.named is UNSET:
        return "(without all)"
    return ",".join(job.named) or "none"


def _format_field(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={entry}" for name, entry in value.items()) or "none"
    return "none" if value is None else str(value)


def _format_values(cases: Iterable[Case], field: str) -> str:
    values = (getattr(case, field) for case in cases)
    texts = list(
        dict.fromkeys(
            format_size(value) if field == "bytes" else _format_field(value) for value in values
        )
    )
    return (
        ",".join(texts)
        if len(texts) <= MAX_LISTED_VALUES
        else f"{texts[0]} to {texts[-1]} ({len(texts)})"
    )
