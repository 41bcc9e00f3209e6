"""The cases of one side of a comparison: what was asked, on how many ranks and nodes, and its samples.

Of a run a sample is the median of a round; of a reference, which several runs made, it is the time of a run.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpccoll.analysis.setting import Choice
from hpccoll.common.units import format_count, format_size
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row, Run

MAY_CHANGE = "racks", "machine", "executor", "kind"
"""What may differ between the results of one case in two runs; in one run, results that differ in it are two cases."""

COORDINATES = "collective", "algorithm", "requested_bytes", "in_place", "ranks", "nodes"
"""What charts group cases by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """A case of a run, or of a reference."""

    identity: str  # what was asked, as JSON; equal for equal cases of both sides
    case_id: str  # the id of the case
    label: str  # the case in words
    coordinates: Mapping[str, Any]  # its COORDINATES
    status: str  # the status of its row; ``ok`` in a reference
    reason: str | None  # why the status is not ok
    seconds: float | None  # the time; None without one
    samples: Sequence[float]  # the times that its spread is known from, in seconds

    @property
    def timed(self) -> bool:
        """Whether it has a time, above 0."""
        return self.status in ("ok", "partial") and bool(self.seconds)

    def differences(self, other: "ComparedCase") -> list[tuple[str, Any, Any]]:
        """Return the names and both values of what makes the cases different ones."""
        mine, others = json.loads(self.identity), json.loads(other.identity)
        names = dict.fromkeys((*mine, *others))
        return [(name, mine.get(name), others.get(name)) for name in names if mine.get(name) != others.get(name)]


def cases_of_rows(rows: Iterable[Row], runs: Iterable[Run] = ()) -> dict[str, ComparedCase]:
    """Return the measured cases by what was asked; of several rows of one case the last one.

    Floors are left out: what the harness takes is no operation, and a few clock ticks of it are no regression.
    """
    machines = {run.run_id: run.machine for run in runs}
    measured = [
        (row, Choice.of(row), CallKey.of(row, machines.get(row.run_id, "")))
        for row in rows
        if not (row.predicted or row.floor)
    ]
    alike = defaultdict[tuple[Choice, CallKey], set[CallKey]](set)
    for _, choice, key in measured:
        alike[choice, key.without(*MAY_CHANGE)].add(key)
    cases = (_case_of_row(*each, alike[each[1], each[2].without(*MAY_CHANGE)]) for each in measured)
    return {case.identity: case for case in cases}


def _case_of_row(row: Row, choice: Choice, key: CallKey, alike: Collection[CallKey]) -> ComparedCase:
    """Return the case of a row; ``alike`` are the calls of its run that differ in what may change."""
    values = asdict(key if len(alike) > 1 else key.without(*MAY_CHANGE))
    known = {name: value for name, value in values.items() if value is not None}
    identity = {**known, "algorithm": choice.algorithm, "transport": choice.transport, "params": dict(choice.params)}
    return ComparedCase(
        identity=json.dumps(identity, sort_keys=True), case_id=row.case_id,
        label=", ".join(filter(None, (_label(row), key.label(alike)))),
        coordinates={name: getattr(row, name) for name in COORDINATES}, status=row.status, reason=row.reason,
        seconds=row.median_s, samples=[median for median in row.round_medians_s if median],
    )  # fmt: skip


def _label(row: Row) -> str:
    """Return the case in words: what it does, how, and where."""
    params = " ".join(f"{name}={value}" for name, value in sorted(row.params.items()))
    how = " ".join(filter(None, (row.algorithm, params, "" if row.transport == "mpi" else f"over {row.transport}")))
    op = f" {row.op}" if row.op else ""
    where = f"{format_count(row.ranks, 'rank')} on {format_count(row.nodes, 'node')}"
    place = "in place" if row.in_place else "out of place"
    variant = f", {row.variant}" if row.variant else ""
    source = f", by {row.source}" if row.imported else ""
    return (
        f"{row.collective} {format_size(row.requested_bytes)} {how}, {row.dtype}{op} {place}, {where}{variant}{source}"
    )
