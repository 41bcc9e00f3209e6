"""A tune table: the choice of algorithm by setting and size, its JSON format, and ``auto``, which looks it up.

``hpccoll tune`` makes it, and results/CHOOSE.md describes its format. A job contains its table, so
that ranks need no other file; a look-up needs neither raw files nor a fit.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from hpccoll.analysis.setting import ARITHMETIC, Choice, Conditions, Setting
from hpccoll.analysis.strength import Strength
from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS, is_workload
from hpccoll.cases.case import EXECUTORS, TIMINGS, Case
from hpccoll.cases.catalogue import check_algorithm
from hpccoll.cases.transport_table import DEVICES, TRANSPORTS
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import TABLE_BYTES, Line, Name, PositiveNumber, Size
from hpccoll.common.records import from_builtins, load_record, to_builtins
from hpccoll.common.units import format_size
from hpccoll.schedule import MAPPINGS, Layout
from hpccoll.schedule.collective import AUTO
from hpccoll.store.schema import IMPORTED

VALID_TABLE = "a table that 'hpccoll tune PATHS --out TABLE.json' makes of raw files"

_SETTING_NAMES: Mapping[str, Collection[object]] = {
    "device": DEVICES,
    "arithmetic": (*ARITHMETIC, None),
    "mapping": (*MAPPINGS, "mixed"),
    "timing": TIMINGS,
}
"""The valid names in a setting."""

Ratio = Annotated[float, PositiveNumber(1e9).meta]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRange:
    """A range of sizes with one choice."""

    first: Size  # the smallest size S, in bytes
    below: Size | None  # the first size of the next range; None for the last range
    choice: Choice
    # the measured sizes in the range, in bytes; none of native's below all measured sizes
    sizes: tuple[Size, ...]
    # its time over that of the best choice of each size: geometric mean over these sizes
    over_best: Ratio
    # its time over that of the library's own algorithm, likewise; None if that was not measured
    over_native: Ratio | None = None
    # the labels of choices that no launch measured together with this one, at one of the sizes or
    # more: comparisons with them include differences between launches
    unpaired: tuple[Line, ...] = ()
    # how strong the evidence for the choice is; None if that is unknown
    strength: Strength | None = None

    @property
    def label(self) -> str:
        """The range for people, within the measured sizes: ``from 64 KiB to 1 MiB``."""
        first = self.first or min(self.sizes, default=0)
        last = self.below or max(self.sizes, default=first)
        return f"from {format_size(first)} to {format_size(last)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """The choices of one setting."""

    setting: Setting
    runs: tuple[Name, ...]  # the ids of the runs in which they were measured
    ranges: tuple[ChoiceRange, ...]  # the ranges of sizes, ascending; together they cover all sizes
    executor: Name  # the executor that measured them

    def __post_init__(self) -> None:
        """Check that the ranges cover all sizes.

        Raises:
            BadInputError: if they do not.
        """
        begins = [sizes.first for sizes in self.ranges]
        ends = [0, *(sizes.below for sizes in self.ranges)]
        covers_all = ends[:-1] == begins and ends[-1] is None
        if not self.ranges or not covers_all:
            raise BadInputError("ranges", ends, "ranges of all sizes, each up to the next")
        if not any(sizes.sizes for sizes in self.ranges):
            raise BadInputError("ranges", [], "ranges with sizes")

    def range_of(self, nbytes: int) -> ChoiceRange:
        """Return the range of a size; the outer ranges extend beyond the measured sizes."""
        for sizes in self.ranges:
            if sizes.below is None or nbytes < sizes.below:
                return sizes
        return self.ranges[-1]

    @property
    def measured_limits(self) -> tuple[int, int]:
        """The smallest and the largest measured size, in bytes."""
        sizes = list(chain.from_iterable(part.sizes for part in self.ranges))
        return min(sizes), max(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """A run from which a table was made."""

    run_id: Name
    job: Name
    created: Line
    kind: Line
    machine: str = ""
    hosts: Sequence[str] | None = None
    mpi: str = ""  # the version text of the MPI library
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneTable:
    """A tune table."""

    schema: Literal["hpccoll-tune 2.0"] = "hpccoll-tune 2.0"
    created: Line  # the time of its creation, ISO 8601, UTC
    hpccoll_version: Line  # the version that made it
    rule: Line  # the rule by which ranges were cut, for people
    runs: tuple[TableRun, ...]  # the runs from which it was made
    entries: tuple[TableEntry, ...]  # the choices of each setting

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "TuneTable":
        """Return the table that a JSON document holds.

        Raises:
            BadInputError: names the first wrong value.
        """
        table = from_builtins(read, cls, "table")
        table.check_names()
        return table

    def check_names(self) -> None:
        """Check that everything named can run here, which a table of results measured elsewhere need not.

        Raises:
            BadInputError: names the first unknown value.
        """
        imported_runs = {run.run_id for run in self.runs if run.kind == IMPORTED}
        for number, entry in enumerate(self.entries):
            if imported_runs.issuperset(entry.runs):
                continue  # of another program, with algorithms and transports of its own
            key = f"entries.{number}"
            _check_collective(f"{key}.setting.collective", entry.setting.collective)
            _check_value(f"{key}.executor", entry.executor, EXECUTORS)
            for name, valid in _SETTING_NAMES.items():
                _check_value(f"{key}.setting.{name}", getattr(entry.setting, name), valid)
            choices = [sizes.choice for sizes in entry.ranges]
            for choice in choices:
                _check_value(f"{key}.ranges.choice.transport", choice.transport, (*TRANSPORTS,))
            for choice in choices:
                check_algorithm(choice.algorithm, [entry.setting.collective])

    def to_json(self) -> dict[str, Any]:
        # lists, as a reader has them
        document: dict[str, Any] = json.loads(json.dumps(to_builtins(self)))
        return document

    def conditions(self, entry: TableEntry) -> list[str]:
        """Return the machines, MPI libraries and executor with which the choices of ``entry`` were measured."""
        labels: set[str] = set()
        for run in self.runs:
            if run.run_id in entry.runs:
                labels.add(Conditions(run.machine, run.mpi, entry.executor).label)
        return sorted(labels)

    def find(self, setting: Setting) -> TableEntry | None:
        """Return the choices of ``setting``, or those of both placements; None without them."""
        both = replace(setting, in_place=None)
        for entry in self.entries:
            if entry.setting in (setting, both):
                return entry
        return None

    def of_fewer_nodes(self, setting: Setting) -> TableEntry | None:
        """Return the choices for the most nodes below those of ``setting``, with as many ranks on each.

        They may be those of both placements; racks may be others.
        """
        nearest: TableEntry | None = None
        for entry in self.entries:
            smaller = entry.setting
            alike = replace(setting, ranks=smaller.ranks, nodes=smaller.nodes, racks=smaller.racks)
            both = replace(alike, in_place=None)
            if smaller not in (alike, both) or smaller.nodes >= setting.nodes:
                continue
            if nearest is None or smaller.nodes > nearest.setting.nodes:
                nearest = entry
        return nearest

    def entry(self, setting: Setting) -> TableEntry:
        """Return the choices of ``setting``, or those of both placements; those of another layout do not apply.

        Raises:
            BadInputError: if the table has none; names its settings of the same call, of the same
                collective, or all.
        """
        entry = self.find(setting)
        if entry is not None:
            return entry
        settings = [entry.setting for entry in self.entries]
        same_call = [listed for listed in settings if listed.call == setting.call]
        same_collective = [listed for listed in settings if listed.collective == setting.collective]
        similar = same_call or same_collective or settings
        labels = "; ".join(listed.label for listed in similar) or "nothing"
        raise UnusableError(AUTO, f"no choice for {setting.label}: the table has {labels}")


def _check_collective(key: str, name: str) -> None:
    if name not in COLLECTIVES and not is_workload(name):
        raise BadInputError(key, name, (*COLLECTIVES, *WORKLOADS))


def _check_value(key: str, value: object, valid: Collection[object]) -> None:
    if value not in valid:
        raise BadInputError(key, value, valid)


def load_table(path: Path, key: str) -> dict[str, Any]:
    """Return the JSON document of a table after checking it; ``key`` is the option or key that gave the path.

    Raises:
        BadInputError: if the file cannot be read, or is not a table.
    """
    table = load_record(path, key, TABLE_BYTES, TuneTable, VALID_TABLE)
    try:
        table.check_names()
    except BadInputError as error:
        raise BadInputError(key, str(path), f"{VALID_TABLE} ({error})") from None
    return table.to_json()


def check_table_given(key: str, table: str | None, algorithms: Sequence[str]) -> None:
    """Check that a table is given if, and only if, ``auto`` is requested; ``key`` is the option that takes it.

    Raises:
        BadInputError: if the table is missing, or not needed.
    """
    if AUTO in algorithms and table is None:
        raise BadInputError(key, None, f"{VALID_TABLE}, for the algorithm {AUTO} to choose by")
    if AUTO not in algorithms and table is not None:
        raise BadInputError(
            key, table, f"left out: it is for the algorithm {AUTO}, which is not requested"
        )


def resolve_auto(
    case: Case,
    layout: Layout,
    table: TuneTable | None,
    variant: str | None = None,
    conditions: str | None = None,
) -> tuple[Case, str | None]:
    """Return the concrete case for ``case`` on ``layout``, and for ``auto`` the reason of the choice.

    A training step remains as it is: the choice is made for each of its collectives. If the
    ``conditions`` of this run (machine, MPI library and executor) differ from those of the table,
    the reason names both.

    Raises:
        BadInputError: if the case is ``auto`` and there is no table, or the table has no entry for
            this setting.
    """
    if case.algorithm != AUTO or is_workload(case.collective):
        return case, None
    if table is None:
        raise BadInputError("table", None, VALID_TABLE)
    entry = table.entry(Setting.of_case(case, layout, variant))
    chosen = entry.range_of(case.bytes)
    choice = chosen.choice
    reason = f"{choice.label} by the table of {table.created}, {chosen.label}"
    least, most = entry.measured_limits
    if not least <= case.bytes <= most:
        reason += f", extrapolated: measured from {format_size(least)} to {format_size(most)}"
    made_on = table.conditions(entry)
    if conditions is not None and made_on and conditions not in made_on:
        reason += f", made on {' and '.join(made_on)}, not on {conditions}"
    params = {**case.params, **dict(choice.params)}
    return replace(
        case, algorithm=choice.algorithm, transport=choice.transport, params=params
    ), reason
