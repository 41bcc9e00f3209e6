"""Bounds of the values in sweep files, site files, jobs, tables and command lines; they exceed what any machine needs.

Without bounds, a typing error or a hostile file could take all time and memory of its reader.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar, cast

from msgspec import Meta

from hpccoll.common.errors import BadInputError

Parsed = TypeVar("Parsed")


class Kind(Generic[Parsed]):
    """A kind of values; its text says which values are valid."""

    __slots__ = ()

    def accepts(self, value: object) -> bool:
        """Return whether ``value`` is valid."""
        raise NotImplementedError

    def parse(self, text: str) -> Parsed | None:
        """Return the value that ``text`` stands for, which need not be valid; None for none. By default the text."""
        return cast("Parsed", text)

    def refusal(self, key: str, value: object) -> BadInputError:
        """Return the error of a value, or a text, that is not valid; the message says what is."""
        return BadInputError(key, value, str(self))

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is valid.

        Raises:
            BadInputError: if it is not; the message says what is.
        """
        if not self.accepts(value):
            raise self.refusal(key, value)

    def read(self, key: str, text: str) -> Parsed:
        """Return the value that ``text`` stands for.

        Raises:
            BadInputError: if it stands for no valid one; the message says what is.
        """
        value = self.parse(text)
        if value is None or not self.accepts(value):
            raise self.refusal(key, text)
        return value


@dataclass(frozen=True, slots=True)
class IntegerRange(Kind[int]):
    """The whole numbers from ``minimum`` to ``maximum``, both included; True is not the number 1."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    @property
    def meta(self) -> Meta:
        """The annotation of a field of a record."""
        return Meta(ge=self.minimum, le=self.maximum)

    def accepts(self, value: object) -> bool:
        return type(value) is int and self.minimum <= value <= self.maximum

    def parse(self, text: str) -> int | None:
        if re.fullmatch(r"-?[0-9]{1,19}", text):
            return int(text)
        return None


@dataclass(frozen=True, slots=True)
class PositiveNumber(Kind[float]):
    """The numbers above 0 up to ``maximum``, in a unit."""

    maximum: float
    unit: str = ""

    def __str__(self) -> str:
        unit = f"of {self.unit} " if self.unit else ""
        return f"a number {unit}above 0, at most {self.maximum:g}"

    @property
    def meta(self) -> Meta:
        """The annotation of a field of a record."""
        return Meta(gt=0, le=self.maximum)

    def accepts(self, value: object) -> bool:
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 < value <= self.maximum
        )

    def parse(self, text: str) -> float | None:
        with suppress(ValueError):
            return float(text)
        return None


@dataclass(frozen=True, slots=True)
class OneOfWords(Kind[str]):
    """A word of a fixed list; a word may have aliases."""

    words: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()  # another name, and the word that it stands for

    def __str__(self) -> str:
        return ", ".join(self.words)

    def accepts(self, value: object) -> bool:
        return value in self.words

    def parse(self, text: str) -> str:
        return dict(self.aliases).get(text, text)

    def refusal(self, key: str, value: object) -> BadInputError:
        return BadInputError(key, value, self.words)  # the nearest first


_PRINTABLE = "^[^\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\ud800-\\udfff]*\\Z"
"""What a text without control characters, line breaks and halves of characters matches."""


@dataclass(frozen=True, slots=True)
class PrintableText(Kind[str]):
    """Printable texts of bounded length; they reach command lines, file names and terminals."""

    maximum: int = 4096
    minimum: int = 0

    def __str__(self) -> str:
        return f"a text of {self.minimum} to {self.maximum} printable characters, in one line"

    @property
    def meta(self) -> Meta:
        """The annotation of a field of a record."""
        return Meta(min_length=self.minimum, max_length=self.maximum, pattern=_PRINTABLE)

    def accepts(self, value: object) -> bool:
        return (
            isinstance(value, str)
            and self.minimum <= len(value) <= self.maximum
            and value.isprintable()
        )


Bound = IntegerRange | PositiveNumber


@dataclass(frozen=True, slots=True)
class Key:
    """What can be set."""

    help: str  # a noun phrase
    default: object = None  # in a sweep file; a tuple for a list
    bound: Bound | None = None  # of a number, or of each number of a list; None for other values
    required: bool = False  # a sweep file must set it


COUNT = Key("a number of things", bound=IntegerRange(0, 1 << 31))
"""How many, at least."""

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
MAX_NAMES = 1000
"""The maximum number of variables, or of parameters."""

Ranks = Annotated[int, RANKS.meta]
Aggregators = Annotated[int, AGGREGATORS.meta]
Size = Annotated[int, IntegerRange(0, MAX_BYTES).meta]
Name = Annotated[str, NAME.meta]
Line = Annotated[str, PrintableText().meta]
LongLine = Annotated[str, VARIABLE_VALUE.meta]
Value = Annotated[int, NUMBER.meta] | Line
"""The value of a parameter, or of a setting of communicators."""
Values = Annotated[Mapping[Name, Value], Meta(max_length=MAX_NAMES)]
"""Parameters or settings by their names."""

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
MAX_MPI_LANES = 512
"""The maximum number of lanes of a plan over MPI, which guarantees tags up to 32767: a lane has 64 of them."""

MAX_TRAFFIC_RANKS = 4096
"""The maximum number of ranks with unequal blocks: every rank holds a number for every pair."""
TRAFFIC_BYTES = 1 << 27
"""The maximum size of a file of weights: 7 digits for every pair of ranks."""
LOG_BYTES = 1 << 28
"""The maximum size of a library's log that memory holds: a thousand ranks write 100 KB each."""
LONG_LOG_BYTES = 1 << 33
"""The maximum size of a library's log that is read line by line, which takes some minutes."""
LOG_HEAD_BYTES = 1 << 24
"""A log has a line of its library within this many bytes; of other files no more is read."""
XML_BYTES = 1 << 24
"""The maximum size of a dump of NCCL's topology, or of a file of its settings."""
