"""How large the numbers of sweeps, sites, jobs, tables and command lines can be: more than any machine has use for.

A number without a bound lets a slip of the finger, or a hostile file, take all time and memory of who reads it.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from hpccoll.errors import BadInputError


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """Whole numbers, bounds included."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def check(self, key: str, value: object) -> None:
        """See that ``value`` is one of them; True is not the number 1.

        Raises:
            BadInputError: names the bounds.
        """
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            raise BadInputError(key, value, str(self))

    def read(self, key: str, text: str) -> int:
        """Return the number that a text says.

        Raises:
            BadInputError: likewise.
        """
        if not (re.fullmatch(r"-?[0-9]{1,19}", text) and self.minimum <= int(text) <= self.maximum):
            raise BadInputError(key, text, str(self))
        return int(text)


@dataclass(frozen=True, slots=True)
class PositiveNumber:
    """Numbers above zero, up to ``maximum``, of a unit."""

    maximum: float
    unit: str = ""

    def __str__(self) -> str:
        return f"a number {f'of {self.unit} ' * bool(self.unit)}above 0, at most {self.maximum:g}"

    def check(self, key: str, value: object) -> None:
        """See that ``value`` is one of them.

        Raises:
            BadInputError: names the bound.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= self.maximum:
            raise BadInputError(key, value, str(self))

    def read(self, key: str, text: str) -> float:
        """Return the number that a text says.

        Raises:
            BadInputError: likewise.
        """
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number <= self.maximum:
            raise BadInputError(key, text, str(self))
        return number


@dataclass(frozen=True, slots=True)
class PrintableText:
    """Texts of at most so many characters, all of which print: they reach command lines, file names and terminals."""

    maximum: int = 4096
    minimum: int = 0

    def __str__(self) -> str:
        return f"a text of {self.minimum} to {self.maximum} printable characters, in one line"

    def check(self, key: str, value: object) -> None:
        """See that ``value`` is one of them.

        Raises:
            BadInputError: names the bounds.
        """
        if not (isinstance(value, str) and self.minimum <= len(value) <= self.maximum and value.isprintable()):
            raise BadInputError(key, value, str(self))


@dataclass(frozen=True, slots=True)
class Boolean:
    """True and False."""

    def check(self, key: str, value: object) -> None:
        """See that ``value`` is one of them.

        Raises:
            BadInputError: if it is not.
        """
        if not isinstance(value, bool):
            raise BadInputError(key, value, "true or false")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """What one of several kinds takes."""

    kinds: tuple["IntegerRange | PositiveNumber | PrintableText | Boolean | None", ...]

    def check(self, key: str, value: object) -> None:
        """See that one of the kinds takes ``value``; None takes nothing but None.

        Raises:
            BadInputError: with what would be valid, if none does.
        """
        for kind in self.kinds:
            if kind is None and value is None:
                return
            if kind is not None:
                with suppress(BadInputError):
                    kind.check(key, value)
                    return
        raise BadInputError(key, value, " or ".join("nothing" if kind is None else str(kind) for kind in self.kinds))


ValueKind = IntegerRange | PositiveNumber | PrintableText | Boolean | AnyOf


def check_mapping(key: str, values: object, most: int, name: PrintableText, kind: ValueKind) -> None:
    """See that ``values`` is a mapping of names to values of one kind.

    Raises:
        BadInputError: names the key, and what is valid there.
    """
    if not isinstance(values, Mapping) or len(values) > most:
        raise BadInputError(key, values, f"at most {most} names, each with a value")
    for each, value in values.items():
        name.check(key, each)
        kind.check(f"{key}.{each}", value)


def check_fields(key: str, owner: object, kinds: Mapping[str, ValueKind]) -> None:
    """See that attributes of ``owner`` have values of their kinds; ``key`` begins the names in messages.

    Raises:
        BadInputError: names the first that has not.
    """
    for name, kind in kinds.items():
        kind.check(f"{key}{name}", getattr(owner, name))


RANKS = IntegerRange(1, 1 << 18)
"""Ranks of a launch, and nodes: the largest machines have 160,000 nodes."""
RANK = IntegerRange(0, RANKS.maximum - 1)
RANKS_PER_NODE = IntegerRange(1, 4096)
"""Ranks on one node."""
AGGREGATORS = IntegerRange(0, 4096)
MAX_BYTES = 1 << 44
"""Of a message size S; for as many ranks, numbers of bytes fit in 64 bits."""
FACTOR = IntegerRange(2, MAX_BYTES)
ROUNDS = IntegerRange(1, 255)
"""Rounds are numbered from 1, in a byte of the raw file."""
WARMUP = IntegerRange(0, 1_000_000)
ITERATIONS = IntegerRange(1, 1_000_000)
"""Timed ones of a case: each rank has room for the times of all of them."""
SECONDS = PositiveNumber(7 * 86400.0, "seconds")
"""A week: of a case, or without progress."""
PRECISION = PositiveNumber(1.0)
SEED = IntegerRange(0, (1 << 63) - 1)
CHANNELS = IntegerRange(1, 4096)
"""Channels, and how many of them at once: each has requests of its own in every step."""
NUMBER = IntegerRange(-(1 << 63), (1 << 63) - 1)
"""Whatever has no closer bounds: a number of 64 bits."""
NAME = PrintableText(255, minimum=1)
FILE_NAME = PrintableText(200, minimum=1)
"""A name that becomes part of file names, with endings."""
VARIABLE_VALUE = PrintableText(1 << 16)
"""The value of a variable of the environment: lists of directories are long; Linux takes twice as much."""
VALUE = AnyOf((NUMBER, PrintableText()))
"""Of a parameter, or of what communicators are made with."""
MAX_NAMES = 1000
"""Variables, or parameters."""

MINUTES = IntegerRange(1, 366 * 24 * 60)
MEMORY_MB = IntegerRange(1, 1 << 30)
CPUS = IntegerRange(1, 1 << 16)
GPUS = IntegerRange(1, 1024)
SIGNAL_S = IntegerRange(1, 65535)
"""What sbatch --signal takes."""
START_S = IntegerRange(1, 86400)

MAX_CASES = 100_000
MAX_JOBS = 1000
MAX_LIST_ENTRIES = 1000
"""Entries of a list in a sweep or site file."""
MAX_RANK_CASES = 1 << 27
"""Cases of a sweep times the ranks of each: planning looks at every rank of some cases."""
MAX_NAME_LETTERS = 80
"""Letters of a name that becomes part of file names, with those of transports, shapes and endings: 255 in all."""

SWEEP_BYTES = 1 << 17
"""A sweep or site file: the YAML parser takes a second for so much."""
TABLE_BYTES = 1 << 24
JOB_BYTES = 1 << 26
"""A job file, or a plan: a case takes 350 bytes, more with long parameters."""
MAX_TRAFFIC_RANKS = 4096
"""Ranks of unequal blocks: there is a number for every pair, at every rank."""
TRAFFIC_BYTES = 1 << 27
"""A file of weights: 7 digits for every pair."""
LOG_BYTES = 1 << 28
"""A log of a library: a thousand ranks write 100 KB each."""
LOG_HEAD_BYTES = 1 << 24
"""Bytes within which a log has a line of its library: no more is read of a file of something else."""
XML_BYTES = 1 << 24
"""A dump of NCCL's topology, or a file of its settings."""
