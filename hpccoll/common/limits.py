"""Bounds of the values in sweep files, site files, jobs, tables and command lines; they exceed what any machine needs.

Without bounds, a typing error or a hostile file could take all time and memory of its reader.
"""

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hpccoll.common.errors import BadInputError


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The whole numbers from ``minimum`` to ``maximum``, both included."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is in the range; True is not the number 1.

        Raises:
            BadInputError: if it is not; the message names the bounds.
        """
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            raise BadInputError(key, value, str(self))

    def read(self, key: str, text: str) -> int:
        """Parse a number of the range.

        Raises:
            BadInputError: if ``text`` is none; the message names the bounds.
        """
        if not (re.fullmatch(r"-?[0-9]{1,19}", text) and self.minimum <= int(text) <= self.maximum):
            raise BadInputError(key, text, str(self))
        return int(text)


@dataclass(frozen=True, slots=True)
class PositiveNumber:
    """The numbers above 0 up to ``maximum``, in a unit."""

    maximum: float
    unit: str = ""

    def __str__(self) -> str:
        return f"a number {f'of {self.unit} ' * bool(self.unit)}above 0, at most {self.maximum:g}"

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is in the range.

        Raises:
            BadInputError: if it is not; the message names the bound.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= self.maximum:
            raise BadInputError(key, value, str(self))

    def read(self, key: str, text: str) -> float:
        """Parse a number of the range.

        Raises:
            BadInputError: if ``text`` is none; the message names the bound.
        """
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number <= self.maximum:
            raise BadInputError(key, text, str(self))
        return number


@dataclass(frozen=True, slots=True)
class OneOfWords:
    """One of several words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.words)

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is one of the words.

        Raises:
            BadInputError: if it is not; the message names them.
        """
        if value not in self.words:
            raise BadInputError(key, value, self.words)

    def read(self, key: str, text: str) -> str:
        """Return the word.

        Raises:
            BadInputError: if it is none; the message names them.
        """
        self.check(key, text)
        return text


@dataclass(frozen=True, slots=True)
class PrintableText:
    """Printable texts of bounded length; they reach command lines, file names and terminals."""

    maximum: int = 4096
    minimum: int = 0

    def __str__(self) -> str:
        return f"a text of {self.minimum} to {self.maximum} printable characters, in one line"

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is such a text.

        Raises:
            BadInputError: if it is not; the message names the bounds.
        """
        if not (isinstance(value, str) and self.minimum <= len(value) <= self.maximum and value.isprintable()):
            raise BadInputError(key, value, str(self))


@dataclass(frozen=True, slots=True)
class Boolean:
    """True and False."""

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is a Boolean.

        Raises:
            BadInputError: if it is not.
        """
        if not isinstance(value, bool):
            raise BadInputError(key, value, "true or false")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The values that at least one of several kinds accepts."""

    kinds: tuple["IntegerRange | PositiveNumber | PrintableText | OneOfWords | Boolean | None", ...]

    def check(self, key: str, value: object) -> None:
        """Check that one of the kinds accepts ``value``; the kind None accepts only None.

        Raises:
            BadInputError: if none does; the message names all kinds.
        """
        for kind in self.kinds:
            if kind is None and value is None:
                return
            if kind is not None:
                with suppress(BadInputError):
                    kind.check(key, value)
                    return
        raise BadInputError(key, value, " or ".join("nothing" if kind is None else str(kind) for kind in self.kinds))


ValueKind = IntegerRange | PositiveNumber | PrintableText | OneOfWords | Boolean | AnyOf


def check_mapping(key: str, values: object, max_names: int, name: PrintableText, kind: ValueKind) -> None:
    """Check that ``values`` is a mapping of at most ``max_names`` names to values of one kind.

    Raises:
        BadInputError: if it is not; the message names the key and the valid values.
    """
    if not isinstance(values, Mapping) or len(values) > max_names:
        raise BadInputError(key, values, f"at most {max_names} names, each with a value")
    for each, value in values.items():
        name.check(key, each)
        kind.check(f"{key}.{each}", value)


def check_fields(key: str, owner: object, kinds: Mapping[str, ValueKind]) -> None:
    """Check that the attributes of ``owner`` have values of their kinds.

    Args:
        key: the prefix of attribute names in messages.
        owner: the object with the attributes.
        kinds: the kind of each attribute, by its name.

    Raises:
        BadInputError: for the first attribute with another value.
    """
    for name, kind in kinds.items():
        kind.check(f"{key}{name}", getattr(owner, name))


def check_keys(key: str, values: Mapping[str, Any], known: Iterable[str]) -> None:
    """Check that a mapping has no other keys than the ``known`` ones: a misspelt key would count as missing.

    Raises:
        BadInputError: if it has; the message names the nearest known key.
    """
    known = (*known,)
    for name in values:
        if name not in known:
            raise BadInputError(f"{key}key", name, known)


Bound = IntegerRange | PositiveNumber


@dataclass(frozen=True, slots=True)
class Key:
    """What can be set.

    Args:
        help: a noun phrase.
        default: the default in a sweep file; a tuple for a list.
        bound: the bounds of a number, or of each number of a list; None for other values.
        required: whether a sweep file must set it.
    """

    help: str
    default: object = None
    bound: Bound | None = None
    required: bool = False


RANKS = IntegerRange(1, 1 << 18)
"""The number of ranks of a launch, or of nodes: the largest machines have 160,000 nodes."""
RANK = IntegerRange(0, RANKS.maximum - 1)
RANKS_PER_NODE = IntegerRange(1, 4096)
"""The number of ranks on one node."""
AGGREGATORS = IntegerRange(0, 4096)
MAX_BYTES = 1 << 44
"""The maximum message size S: times the maximum number of ranks, a number of bytes still fits in 64 bits."""
FACTOR = IntegerRange(2, MAX_BYTES)
ROUNDS = IntegerRange(1, 255)
"""Rounds count from 1 and are stored in one byte of the raw file."""
WARMUP = IntegerRange(0, 1_000_000)
ITERATIONS = IntegerRange(1, 1_000_000)
"""Timed iterations of a case: each rank allocates memory for all their times."""
OPERATIONS = IntegerRange(1, 10_000)
"""Operations that are queued back to back; as a graph, each has its own kernels in it."""
SECONDS = PositiveNumber(7 * 86400.0, "seconds")
"""A time limit of a case, or without progress: a week at most."""
PRECISION = PositiveNumber(1.0)
FLAG = IntegerRange(0, 1)
"""A property that is off or on."""
SEED = IntegerRange(0, (1 << 63) - 1)
CHANNELS = IntegerRange(1, 4096)
"""The number of channels, or of channels in flight: each has its own requests in every step."""
NUMBER = IntegerRange(-(1 << 63), (1 << 63) - 1)
"""Any number of 64 bits."""
NAME = PrintableText(255, minimum=1)
FILE_NAME = PrintableText(200, minimum=1)
"""A name that becomes part of file names, which add suffixes."""
VARIABLE_VALUE = PrintableText(1 << 16)
"""The value of an environment variable: lists of directories are long; Linux allows twice as much."""
VALUE = AnyOf((NUMBER, PrintableText()))
"""The value of a parameter, or of a setting of communicators."""
MAX_NAMES = 1000
"""The maximum number of variables, or of parameters."""

MINUTES = IntegerRange(1, 366 * 24 * 60)
MEMORY_MB = IntegerRange(1, 1 << 30)
CPUS = IntegerRange(1, 1 << 16)
GPUS = IntegerRange(1, 1024)
NVLINK_NODES = IntegerRange(1, 1024)
SIGNAL_S = IntegerRange(1, 65535)
"""The seconds that sbatch --signal accepts."""
START_S = IntegerRange(1, 86400)

MAX_CASES = 100_000
MAX_JOBS = 1000
MAX_LIST_ENTRIES = 1000
"""The maximum number of entries of a list in a sweep or site file."""
MAX_RANK_CASES = 1 << 27
"""The maximum number of cases of a sweep times their ranks: planning visits every rank of some cases."""
MAX_NAME_LETTERS = 80
"""The maximum length of a sweep's name: file names add transports, shapes and suffixes, up to 255 characters."""

SWEEP_BYTES = 1 << 17
"""The maximum size of a sweep or site file: the YAML parser takes 1 s for it."""
TABLE_BYTES = 1 << 24
JOB_BYTES = 1 << 26
"""The maximum size of a job file or a plan: a case takes 350 bytes, more with long parameters."""
MAX_TRAFFIC_RANKS = 4096
"""The maximum number of ranks with unequal blocks: every rank holds a number for every pair."""
TRAFFIC_BYTES = 1 << 27
"""The maximum size of a file of weights: 7 digits for every pair of ranks."""
LOG_BYTES = 1 << 28
"""The maximum size of a library's log: a thousand ranks write 100 KB each."""
LOG_HEAD_BYTES = 1 << 24
"""A log has a line of its library within this many bytes; of other files no more is read."""
XML_BYTES = 1 << 24
"""The maximum size of a dump of NCCL's topology, or of a file of its settings."""
