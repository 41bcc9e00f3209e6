"""A tune table, as JSON and as ranks look things up in it.

``hpccoll tune`` makes it (room ``tune``), and results/README.md describes it. It goes into the job, so that ranks need
no other file; looking something up needs neither raw files nor a fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.files import read_json
from hpccoll.limits import (
    AGGREGATORS,
    MAX_BYTES,
    MAX_NAMES,
    NAME,
    RANKS,
    TABLE_BYTES,
    VALUE,
    AnyOf,
    Boolean,
    IntegerRange,
    PositiveNumber,
    PrintableText,
    ValueKind,
    check_fields,
    check_mapping,
)
from hpccoll.schedule.collective import AUTO
from hpccoll.spec.case import Parameter
from hpccoll.tuning.setting import Setting
from hpccoll.units import format_size

SCHEMA, VERSION = "hpccoll-tune", "1.1"
"""A minor version only adds."""

MAJOR = VERSION.partition(".")[0]
"""A reader refuses another one."""

REMEDY = "a table that 'hpccoll tune PATHS --out TABLE.json' makes of raw files"


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """What can be taken: an algorithm, how its bytes move, and those of its parameters that were asked for."""

    algorithm: str
    transport: str
    params: tuple[tuple[str, Parameter], ...] = ()

    @property
    def words(self) -> str:
        """The choice in words: ``ring channels=4``, and how bytes move where that is not ``mpi``."""
        over = f" over {self.transport}" if self.transport != "mpi" else ""
        return " ".join((self.algorithm, *(f"{name}={value}" for name, value in self.params))) + over


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Sizes with one choice.

    Args:
        first: the smallest size S in bytes.
        below: the first size of the next range, None where there is none.
        choice: what is taken.
        sizes: those that were measured.
        over_best: its time over that of the best at each of these sizes, the geometric mean: what few ranges cost.
        over_native: its time over that of the library's own, likewise; None where that was not measured.
        apart: other choices, in words, that were not measured in one launch with it at one of these sizes or more: what
            launches are apart is between them.
    """

    first: int
    below: int | None
    choice: Choice
    sizes: tuple[int, ...]
    over_best: float
    over_native: float | None = None
    apart: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "Range":
        choice = Choice(read["algorithm"], read["transport"], tuple(sorted(read["params"].items())))
        below = read["below"] if read["below"] is None else int(read["below"])
        return cls(
            first=int(read["from"]), below=below, choice=choice, sizes=tuple(map(int, read["sizes"])),
            over_best=float(read["over_best"]), over_native=read["over_native"], apart=tuple(read.get("apart", ())),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {
            "from": self.first, "below": self.below, "algorithm": self.choice.algorithm,
            "transport": self.choice.transport, "params": dict(self.choice.params), "sizes": list(self.sizes),
            "over_best": self.over_best, "over_native": self.over_native, "apart": list(self.apart),
        }  # fmt: skip

    @property
    def words(self) -> str:
        """The sizes in words: ``from 64 KiB, below 1 MiB``."""
        ends = [f"from {format_size(self.first)}"] if self.first else []
        ends += [] if self.below is None else [f"below {format_size(self.below)}"]
        return ", ".join(ends) or "all sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The choices of one setting, and the ids of the runs that they were measured in."""

    setting: Setting
    runs: tuple[str, ...]
    ranges: tuple[Range, ...]

    def at(self, nbytes: int) -> Range:
        """Return the range of a size; the ends of a table go on beyond what was measured."""
        return next((r for r in self.ranges if r.below is None or nbytes < r.below), self.ranges[-1])

    @property
    def measured(self) -> tuple[int, int]:
        """The smallest and the largest size that were measured."""
        sizes = [size for r in self.ranges for size in r.sizes]
        return min(sizes), max(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneTable:
    """A tune table.

    Args:
        created: ISO 8601, UTC.
        hpccoll_version: that made it.
        rule: in words, by which ranges were cut.
        runs: run_id, job, created, kind, machine, hosts, mpi and path of what it was made of.
        entries: one for each setting.
    """

    created: str
    hpccoll_version: str
    rule: str
    runs: Sequence[Mapping[str, Any]]
    entries: tuple[Entry, ...]

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "TuneTable":
        """Take what a table's JSON holds.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: where it is none, or one of another major version.
        """
        if read["schema"] != SCHEMA or str(read["schema_version"]).partition(".")[0] != MAJOR:
            raise ValueError(f"it is {read['schema']} {read['schema_version']}, not {SCHEMA} {VERSION}")
        entries = tuple(
            Entry(
                setting=Setting.from_json(entry["setting"]),
                runs=tuple(entry["runs"]),
                ranges=tuple(map(Range.from_json, entry["ranges"])),
            )
            for entry in read["entries"]
        )
        for entry in entries:
            ends = [0, *(r.below for r in entry.ranges)]
            if not entry.ranges or ends[:-1] != [r.first for r in entry.ranges] or ends[-1] is not None:
                raise ValueError(f"{entry.setting.words}: its ranges do not cover all sizes, each up to the next")
            if not any(r.sizes for r in entry.ranges):
                raise ValueError(f"{entry.setting.words}: none of its ranges has sizes")
        about = {name: read[name] for name in ("created", "hpccoll_version", "rule", "runs")}
        return cls(**about, entries=entries)

    def check(self) -> None:
        """See that every value is of its kind and within bounds.

        Raises:
            BadInputError: names the first that is not.
        """
        check_fields("", self, dict.fromkeys(("created", "hpccoll_version", "rule"), PrintableText()))
        for number, entry in enumerate(self.entries):
            where = f"entries.{number}."
            check_fields(f"{where}setting.", entry.setting, _OF_A_SETTING)
            check_mapping(f"{where}setting.arguments", dict(entry.setting.arguments), MAX_NAMES, NAME, VALUE)
            for each in entry.ranges:
                check_fields(f"{where}ranges.", each, _OF_A_RANGE)
                check_fields(f"{where}ranges.", each.choice, dict.fromkeys(("algorithm", "transport"), NAME))
                check_mapping(f"{where}ranges.params", dict(each.choice.params), MAX_NAMES, NAME, VALUE)
                for size in each.sizes:
                    _SIZE.check(f"{where}ranges.sizes", size)
            for run_id in entry.runs:
                NAME.check(f"{where}runs", run_id)
        for run in self.runs:
            for name in ("run_id", "machine", "mpi"):
                said = run.get(name)  # that of an MPI library may go over several lines
                AnyOf((PrintableText(), None)).check(
                    f"runs.{name}", " ".join(said.split()) if isinstance(said, str) else said
                )

    def to_json(self) -> dict[str, Any]:
        entries = [
            {"setting": e.setting.to_json(), "runs": list(e.runs), "ranges": [r.to_json() for r in e.ranges]}
            for e in self.entries
        ]
        about = {"created": self.created, "hpccoll_version": self.hpccoll_version, "rule": self.rule}
        return {"schema": SCHEMA, "schema_version": VERSION, **about, "runs": list(self.runs), "entries": entries}

    def conditions(self, entry: Entry) -> list[str]:
        """Return on what machines, with what MPI libraries, the choices of ``entry`` were measured."""
        runs = (run for run in self.runs if run.get("run_id") in entry.runs)
        return sorted({conditions(run.get("machine"), run.get("mpi")) for run in runs})

    def entry(self, setting: Setting) -> Entry:
        """Return the choices of ``setting``; that of another layout is no substitute.

        Raises:
            BadInputError: where the table has none, with what it has for the same call, or else at all.
        """
        for entry in self.entries:
            if entry.setting == setting:
                return entry
        every = [entry.setting for entry in self.entries]
        same_collective = [s for s in every if s.collective == setting.collective]
        alike = [s for s in every if s.call == setting.call] or same_collective or every
        there = "; ".join(s.words for s in alike) or "nothing"
        raise UnusableError(AUTO, f"no choice for {setting.words}: the table has {there}")


_SIZE = IntegerRange(0, MAX_BYTES)
_OVER = PositiveNumber(1e9)
_OF_A_RANGE: Mapping[str, ValueKind] = {
    "first": _SIZE,
    "below": AnyOf((_SIZE, None)),
    "over_best": _OVER,
    "over_native": AnyOf((_OVER, None)),
}
_OF_A_SETTING: Mapping[str, ValueKind] = {
    **dict.fromkeys(("collective", "device", "mapping"), NAME),
    **dict.fromkeys(("arithmetic", "variant"), AnyOf((NAME, None))),
    "in_place": Boolean(),
    **dict.fromkeys(("ranks", "nodes", "racks"), RANKS),
    "ranks_per_node": AnyOf((RANKS, None)),
    "aggregators": AGGREGATORS,
}
"""The kinds of the values of a range and of a setting; of what is no single value, ``TuneTable.check`` says more."""


def conditions(machine: object, mpi: object) -> str:
    """Return in words what choices hold on: a machine, and an MPI library in its own words."""
    return f"{machine or 'an unknown machine'} with {mpi or 'an unknown MPI'}"


def library(provenance: Mapping[str, object]) -> str:
    """Return the MPI library of a run in its own words; empty where that is not known."""
    mpi = provenance.get("mpi")
    return str(mpi.get("version", "")) if isinstance(mpi, Mapping) else ""


def check_table_of_job(table: Mapping[str, Any] | None) -> None:
    """See that what a job has as its table is one.

    Raises:
        BadInputError: if it is not.
    """
    try:
        if table is not None:
            TuneTable.from_json(table).check()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInputError("table of the job", type(table).__name__, f"{REMEDY} ({error})") from None


def load_table(path: Path, key: str) -> dict[str, Any]:
    """Return the JSON of a table, looked through.

    Raises:
        BadInputError: where there is no such file, or it is no table.
    """
    try:
        read: dict[str, Any] = read_json(path, key, TABLE_BYTES)
        TuneTable.from_json(read).check()
    except UnusableError as error:
        raise UnusableError(key, f"{error.expected}; valid: {REMEDY}") from None
    except KeyError as error:
        raise BadInputError(key, str(path), f"{REMEDY} (it lacks {error})") from None
    except (TypeError, AttributeError, OverflowError):
        raise BadInputError(key, str(path), f"{REMEDY} (it is made in another way)") from None
    except ValueError as error:
        raise BadInputError(key, str(path), f"{REMEDY} ({error})") from None
    return read
