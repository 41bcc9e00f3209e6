"""A tune table: the choice of algorithm by setting and size, its JSON format and look-ups in it.

``hpccoll tune`` makes it, and results/README.md describes its format. A job contains its table, so that ranks need no
other file; a look-up needs neither raw files nor a fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hpccoll.analysis.conditions import Conditions
from hpccoll.analysis.setting import ARITHMETIC, Choice, Setting
from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.cases.case import EXECUTORS, PYTHON, TIMINGS
from hpccoll.cases.catalogue import check_algorithm
from hpccoll.cases.transport_table import DEVICES, TRANSPORTS
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_json
from hpccoll.common.limits import (
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
    OneOfWords,
    PositiveNumber,
    PrintableText,
    ValueKind,
    check_fields,
    check_keys,
    check_mapping,
)
from hpccoll.common.units import format_size
from hpccoll.schedule import MAPPINGS
from hpccoll.schedule.collective import AUTO

SCHEMA, VERSION = "hpccoll-tune", "1.5"
"""The name and version of the format. A minor version only adds keys, and 1.3 adds settings of both placements, 1.4
those of other timings than ``single``, 1.5 ``advice``."""

MAJOR, _, _MINOR = VERSION.partition(".")
"""The major version: a reader refuses any other."""

VERSIONS = tuple(f"{MAJOR}.{minor}" for minor in range(int(_MINOR) + 1))
"""The versions whose keys are known."""

VALID_TABLE = "a table that 'hpccoll tune PATHS --out TABLE.json' makes of raw files"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRange:
    """A range of sizes with one choice.

    Args:
        first: the smallest size S, in bytes.
        below: the first size of the next range; None for the last range.
        choice: the choice.
        sizes: the measured sizes in the range, in bytes.
        over_best: its time over that of the best choice of each size: geometric mean over these sizes.
        over_native: its time over that of the library's own algorithm, likewise; None if that was not measured.
        unpaired: the labels of choices that no launch measured together with this one, at one or more of these sizes:
            comparisons with them include differences between launches. Its JSON key is ``apart``.
        advice: whether the measurements show that people should use the choice; None if that is unknown.
    """

    first: int
    below: int | None
    choice: Choice
    sizes: tuple[int, ...]
    over_best: float
    over_native: float | None = None
    unpaired: tuple[str, ...] = ()
    advice: bool | None = None

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "ChoiceRange":
        choice = Choice(read["algorithm"], read["transport"], tuple(sorted(read["params"].items())))
        below = read["below"] if read["below"] is None else int(read["below"])
        return cls(
            first=int(read["from"]), below=below, choice=choice, sizes=tuple(map(int, read["sizes"])),
            over_best=float(read["over_best"]), over_native=read["over_native"], unpaired=tuple(read.get("apart", ())),
            advice=read.get("advice"),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {
            "from": self.first, "below": self.below, "algorithm": self.choice.algorithm,
            "transport": self.choice.transport, "params": dict(self.choice.params), "sizes": list(self.sizes),
            "over_best": self.over_best, "over_native": self.over_native, "apart": list(self.unpaired),
            "advice": self.advice,
        }  # fmt: skip

    @property
    def label(self) -> str:
        """The range for people, within the measured sizes: ``from 64 KiB to 1 MiB``."""
        first = self.first or min(self.sizes, default=0)
        return f"from {format_size(first)} to {format_size(self.below or max(self.sizes, default=first))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """The choices of one setting.

    Args:
        setting: the setting.
        runs: the ids of the runs in which they were measured.
        ranges: the ranges of sizes, ascending; together they cover all sizes.
        executor: the executor that measured them.
    """

    setting: Setting
    runs: tuple[str, ...]
    ranges: tuple[ChoiceRange, ...]
    executor: str

    def range_of(self, nbytes: int) -> ChoiceRange:
        """Return the range of a size; the outer ranges extend beyond the measured sizes."""
        return next((r for r in self.ranges if r.below is None or nbytes < r.below), self.ranges[-1])

    @property
    def measured_limits(self) -> tuple[int, int]:
        """The smallest and the largest measured size, in bytes."""
        sizes = [size for r in self.ranges for size in r.sizes]
        return min(sizes), max(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneTable:
    """A tune table.

    Args:
        created: the time of its creation, ISO 8601, UTC.
        hpccoll_version: the version that made it.
        rule: the rule by which ranges were cut, for people.
        runs: run_id, job, created, kind, machine, hosts, mpi and path of each run from which it was made.
        entries: the choices of each setting.
    """

    created: str
    hpccoll_version: str
    rule: str
    runs: Sequence[Mapping[str, Any]]
    entries: tuple[TableEntry, ...]

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "TuneTable":
        """Return the table that a JSON document holds.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: if it is no table, or one of another major version.
        """
        version = str(read["schema_version"])
        if read["schema"] != SCHEMA or version.partition(".")[0] != MAJOR:
            raise ValueError(f"it is {read['schema']} {version}, not {SCHEMA} {VERSION}")
        if version in VERSIONS:  # a later minor version adds keys
            _check_keys(read)
        entries = tuple(
            TableEntry(
                setting=Setting.from_json(entry["setting"]),
                runs=tuple(entry["runs"]),
                ranges=tuple(map(ChoiceRange.from_json, entry["ranges"])),
                executor=entry.get("executor", PYTHON),  # before version 1.2 there was no other
            )
            for entry in read["entries"]
        )
        for entry in entries:
            ends = [0, *(r.below for r in entry.ranges)]
            if not entry.ranges or ends[:-1] != [r.first for r in entry.ranges] or ends[-1] is not None:
                raise ValueError(f"{entry.setting.label}: its ranges do not cover all sizes, each up to the next")
            if not any(r.sizes for r in entry.ranges):
                raise ValueError(f"{entry.setting.label}: none of its ranges has sizes")
        about = {name: read[name] for name in ("created", "hpccoll_version", "rule", "runs")}
        return cls(**about, entries=entries)

    def check(self) -> None:
        """Check that every value is of its kind and within bounds.

        Raises:
            BadInputError: names the first value that is not.
        """
        check_fields("", self, dict.fromkeys(("created", "hpccoll_version", "rule"), PrintableText()))
        for number, entry in enumerate(self.entries):
            where = f"entries.{number}."
            check_fields(f"{where}setting.", entry.setting, _SETTING_KINDS)
            OneOfWords(EXECUTORS).check(f"{where}executor", entry.executor)
            check_mapping(f"{where}setting.arguments", dict(entry.setting.arguments), MAX_NAMES, NAME, VALUE)
            for each in entry.ranges:
                check_fields(f"{where}ranges.", each, _RANGE_KINDS)
                check_algorithm(each.choice.algorithm, [entry.setting.collective])
                OneOfWords((*TRANSPORTS,)).check(f"{where}ranges.transport", each.choice.transport)
                check_mapping(f"{where}ranges.params", dict(each.choice.params), MAX_NAMES, NAME, VALUE)
                for size in each.sizes:
                    _SIZE_KIND.check(f"{where}ranges.sizes", size)
            for run_id in entry.runs:
                NAME.check(f"{where}runs", run_id)
        for run in self.runs:
            for name in ("run_id", "machine", "mpi"):
                text = run.get(name)  # an MPI library may describe itself in several lines
                AnyOf((PrintableText(), None)).check(
                    f"runs.{name}", " ".join(text.split()) if isinstance(text, str) else text
                )

    def to_json(self) -> dict[str, Any]:
        entries = [
            {
                "setting": e.setting.to_json(),
                "runs": list(e.runs),
                "executor": e.executor,
                "ranges": [r.to_json() for r in e.ranges],
            }
            for e in self.entries
        ]
        about = {"created": self.created, "hpccoll_version": self.hpccoll_version, "rule": self.rule}
        return {"schema": SCHEMA, "schema_version": VERSION, **about, "runs": list(self.runs), "entries": entries}

    def conditions(self, entry: TableEntry) -> list[str]:
        """Return the machines, MPI libraries and executor with which the choices of ``entry`` were measured."""
        runs = (run for run in self.runs if run.get("run_id") in entry.runs)
        return sorted(
            {Conditions(run.get("machine") or "", run.get("mpi") or "", entry.executor).label for run in runs}
        )

    def find(self, setting: Setting) -> TableEntry | None:
        """Return the choices of ``setting``, or those of both placements; None without them."""
        both = replace(setting, in_place=None)
        return next((entry for entry in self.entries if entry.setting in (setting, both)), None)

    def entry(self, setting: Setting) -> TableEntry:
        """Return the choices of ``setting``, or those of both placements; those of another layout do not apply.

        Raises:
            BadInputError: if the table has none; names its settings of the same call, of the same collective, or all.
        """
        if (entry := self.find(setting)) is not None:
            return entry
        settings = [entry.setting for entry in self.entries]
        same_collective = [s for s in settings if s.collective == setting.collective]
        similar = [s for s in settings if s.call == setting.call] or same_collective or settings
        labels = "; ".join(s.label for s in similar) or "nothing"
        raise UnusableError(AUTO, f"no choice for {setting.label}: the table has {labels}")


def _check_keys(read: Mapping[str, Any]) -> None:
    """Check the keys of a table of this version or an earlier one.

    Raises:
        BadInputError: for a key that no table has.
    """
    check_keys("", read, ("schema", "schema_version", *(field.name for field in fields(TuneTable))))
    for run in read["runs"]:
        check_keys("runs.", run, ("run_id", "job", "created", "kind", "machine", "hosts", "mpi", "path"))
    for entry in read["entries"]:
        check_keys("entries.", entry, (field.name for field in fields(TableEntry)))
        check_keys("entries.setting.", entry["setting"], (field.name for field in fields(Setting)))
        for each in entry["ranges"]:
            check_keys("entries.ranges.", each, _RANGE_KEYS)


_RANGE_KEYS = (
    "from", "below", "algorithm", "transport", "params", "sizes", "over_best", "over_native", "apart", "advice",
)  # fmt: skip
_SIZE_KIND = IntegerRange(0, MAX_BYTES)
_RATIO_KIND = PositiveNumber(1e9)
_RANGE_KINDS: Mapping[str, ValueKind] = {
    "first": _SIZE_KIND,
    "below": AnyOf((_SIZE_KIND, None)),
    "over_best": _RATIO_KIND,
    "over_native": AnyOf((_RATIO_KIND, None)),
    "advice": AnyOf((Boolean(), None)),
}
_SETTING_KINDS: Mapping[str, ValueKind] = {
    "collective": OneOfWords((*COLLECTIVES, *WORKLOADS)),
    "device": OneOfWords(DEVICES),
    "arithmetic": AnyOf((OneOfWords(ARITHMETIC), None)),
    "mapping": OneOfWords((*MAPPINGS, "mixed")),
    "timing": OneOfWords(TIMINGS),
    "variant": AnyOf((NAME, None)),
    "in_place": AnyOf((Boolean(), None)),
    **dict.fromkeys(("ranks", "nodes", "racks"), RANKS),
    "ranks_per_node": AnyOf((RANKS, None)),
    "aggregators": AGGREGATORS,
}
"""The kinds of the single values of a range and of a setting; ``TuneTable.check`` checks the others."""


def check_job_table(table: Mapping[str, Any] | None) -> None:
    """Check the table in a job; None is no table.

    Raises:
        BadInputError: if it is no table.
    """
    try:
        if table is not None:
            TuneTable.from_json(table).check()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInputError("table of the job", type(table).__name__, f"{VALID_TABLE} ({error})") from None


def load_table(path: Path, key: str) -> dict[str, Any]:
    """Return the JSON document of a table after checking it.

    Args:
        path: the path of the file.
        key: the name of the option or key that gave the path, for messages.

    Raises:
        BadInputError: if the file cannot be read, or is no table.
    """
    try:
        read: dict[str, Any] = read_json(path, key, TABLE_BYTES)
        TuneTable.from_json(read).check()
    except UnusableError as error:
        raise UnusableError(key, f"{error.expected}; valid: {VALID_TABLE}") from None
    except KeyError as error:
        raise BadInputError(key, str(path), f"{VALID_TABLE} (missing: {error})") from None
    except (TypeError, AttributeError, OverflowError):
        raise BadInputError(key, str(path), f"{VALID_TABLE} (its structure is not that of a table)") from None
    except ValueError as error:
        raise BadInputError(key, str(path), f"{VALID_TABLE} ({error})") from None
    return read
