"""What the output of another benchmark holds: its results as cases of ours, and what it says of the run.

Parsers of outputs are strict where a number could be misread, and lenient where launchers write: a
line of a table that begins with a digit is a result or an error; any other line that does not
belong to the output becomes a remark.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import Case
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import MAX_BYTES, RANKS, SECONDS, IntegerRange
from hpccoll.schedule import itemsize

NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
COUNT = re.compile(r"[0-9]{1,19}")


def read_cell(where: str, name: str, cell: str) -> float:
    """Return the number in a cell; BadInputError if it is not a finite number of at least 0."""
    value = float(cell) if NUMBER.fullmatch(cell) else math.inf
    if value == math.inf:
        raise BadInputError(f"{where}: {name}", cell[:80], "a finite number of at least 0")
    return value


def read_count(where: str, name: str, cell: str) -> int:
    """Return the whole number in a cell; BadInputError if it is not one."""
    if not COUNT.fullmatch(cell):
        raise BadInputError(f"{where}: {name}", cell[:80], "a whole number")
    return int(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppliedMetadata:
    """What the user says about outputs that do not say it; None: the output says it."""

    ranks: int | None = None  # the number of ranks of the run
    nodes: int | None = None
    library: str | None = None  # the communication library, in words
    program: str | None = None  # the program of a suite, such as ``all_reduce``

    def __post_init__(self) -> None:
        if self.ranks and self.nodes and self.nodes > self.ranks:
            raise BadInputError(
                "--nodes", self.nodes, f"at most --ranks, {self.ranks}: each node has a rank"
            )

    @property
    def whole_place(self) -> bool:
        """Whether the user says both ranks and nodes."""
        return None not in (self.ranks, self.nodes)

    def need(self, name: str, program: str) -> int:
        """Return ``ranks`` or ``nodes``; BadInputError if the user does not say it either."""
        value: int | None = getattr(self, name)
        if value is None:
            raise BadInputError(
                f"--{name}", None, f"the output of {program} does not say on how many {name} it ran"
            )
        return value

    def need_place(self, program: str) -> tuple[int, int]:
        """Return ranks and nodes; BadInputError names whatever the user does not say either."""
        if self.ranks is None and self.nodes is None:
            reason = f"the output of {program} does not say on how many ranks and nodes it ran"
            raise UnusableError("--ranks, --nodes", f"both are missing: {reason}")
        return self.need("ranks", program), self.need("nodes", program)


@dataclass(frozen=True, slots=True)
class ForeignResult:
    """One result of another benchmark."""

    # the case of ours that it is a result of; ``ranks`` and ``nodes`` are those that ran it
    case: Case
    seconds: float  # its time as ours counts it: that of a ping-pong is the round trip
    reported: Mapping[str, str]  # its line by column, as printed
    wrong: int | None = None  # the number of wrong elements; None if they were not counted
    failure: str | None = None  # why the result is wrong; None if it is right, or was not checked
    # the algorithm that the library ran, by the project's name, where the line says it
    algorithm: str | None = None


@dataclass(slots=True, kw_only=True)
class BenchmarkOutput:
    """The content of one output."""

    source: str  # the program that wrote it, a key of ``SOURCES`` or the name of an ``Importer``
    program: str  # its name and version
    ranks: int  # the ranks of the run, or of the largest of its runs
    nodes: int
    # the communication library, in words; None if the output does not say it
    library: str | None = None
    # the names of the nodes by the ranks and nodes of a run; none if the output does not say them
    hosts: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    # of its environment, those on the allow-list
    variables: Mapping[str, str] = field(default_factory=dict)
    device_names: set[str] = field(default_factory=set)  # of the GPUs that it lists
    results: list[ForeignResult] = field(default_factory=list)
    # what was not imported, and why; one sentence each
    remarks: list[str] = field(default_factory=list)
    # collectives and sizes that were not imported: less than an element each
    too_small: dict[tuple[str, int], None] = field(default_factory=dict)
    truncated: bool = False  # whether the end that the program always writes is missing

    def nodes_of(self, processes: int) -> int:
        """Return the nodes of the first processes; with ranks in block order, the first nodes have one more each.

        BadInputError if there are more nodes than ranks.
        """
        if self.nodes > self.ranks:
            raise BadInputError(
                "--nodes", self.nodes, f"at most {self.ranks}, the ranks of the output"
            )
        per_node, rest = divmod(self.ranks, self.nodes)
        larger = min(rest, -(-processes // (per_node + 1)))
        return larger + -(-max(0, processes - rest * (per_node + 1)) // per_node)

    def add_launch(self, ranks: int, nodes: int, hosts: tuple[str, ...]) -> None:
        """Add the place of a run; BadInputError if a run on as many ranks and nodes had other hosts."""
        if {*hosts} != {*self.hosts.setdefault((ranks, nodes), hosts)}:
            names = f"{', '.join(self.hosts[ranks, nodes])}; {', '.join(hosts)}"
            raise UnusableError(
                "FILE", f"runs of {ranks} ranks on several hosts: {names}; import them separately"
            )
        self.ranks, self.nodes = max((self.ranks, self.nodes), (ranks, nodes))

    def add(
        self,
        where: str,
        case: Case,
        seconds: float,
        reported: Mapping[str, str],
        failure: str | None,
        wrong: int | None = None,
        algorithm: str | None = None,
    ) -> None:
        """Add a result, or a remark if ours has no such case or time; BadInputError if no machine has its numbers."""
        IntegerRange(0, MAX_BYTES).check(f"{where}: bytes", case.bytes)
        RANKS.check(f"{where}: ranks", case.ranks)
        if seconds:
            SECONDS.check(f"{where}: time", seconds)
        elements = collective(case.collective).elements(
            case.bytes, itemsize(case.dtype), case.ranks or self.ranks
        )
        if not elements:
            self.too_small[case.collective, case.bytes] = None
        elif not seconds:
            self.remarks.append(
                f"{where}: a time of 0 is below the resolution of the output: left out"
            )
        else:
            self.results.append(ForeignResult(case, seconds, reported, wrong, failure, algorithm))


Reader = Callable[[Path, Sequence[str], SuppliedMetadata], BenchmarkOutput]
"""Returns the content of an output, from its path for messages, its lines, and what the user says about it."""


class Importer(NamedTuple):
    """Reads outputs of a program. Extensions bring those of programs that hpccoll does not know."""

    # of the program, for people; of one that hpccoll does not know, the source of its outputs
    name: str
    sign: re.Pattern[str]  # what each of its outputs has, and no other
    read: Reader
    # what its numbers are, and how they differ from ours; of hpccoll's own, ``SOURCES`` says it
    meaning: str = ""


PROGRAM_ENDED = re.compile(
    r"slurmstepd\S*: error: .*?(?:CANCELLED|(?i:oom[-_ ]kill)).*"
    r"|srun: (?:Job step aborted|forcing job termination|error: .*(?:Killed|Terminated|Aborted|fault|Memory)).*"
    r"|(?:mpirun|mpiexec|prterun) noticed that process rank .*"
    r"|BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES.*"
)
"""What Slurm, Open MPI and Hydra write into an output when they end its program, anywhere in a line."""

_BEGIN_OF_ROW = re.compile(r"\d+(?:\s|$)")
_RULE = re.compile(r"[-= ]*")


def _rows_before_an_end(lines: Sequence[str]) -> set[int]:
    """Return the numbers of the rows after which a program was ended, counted from 1."""
    numbers = set[int]()
    is_before_end = False
    for number in range(len(lines), 0, -1):
        text = lines[number - 1].strip()
        if PROGRAM_ENDED.search(text):
            is_before_end = True
        elif not _RULE.fullmatch(text):
            if is_before_end and text[0].isdigit():
                numbers.add(number)
            is_before_end = False
    return numbers


Handler = Callable[[Any, re.Match[str]], None]


class LineHandlers:
    """The kinds of lines of an output, in the order in which they are tried."""

    def __init__(self) -> None:
        self._handlers: list[tuple[re.Pattern[str], Handler]] = []

    def line(self, pattern: str) -> Callable[[Handler], Handler]:
        """Return the decorator of the method that handles the lines that match ``pattern`` as a whole."""

        def register(handler: Handler) -> Handler:
            self._handlers.append((re.compile(pattern), handler))
            return handler

        return register

    def skip(self, pattern: str) -> None:
        """Skip the lines that match ``pattern`` as a whole: they say nothing of a result."""
        self.line(pattern)(lambda _parser, _line: None)

    def remark(self, pattern: str) -> None:
        """Add a remark on the lines that match ``pattern``, which do not belong to a table."""
        self.line(pattern)(lambda parser, line: parser.remark(line[0]))

    def handle(self, parser: "LineParser", text: str) -> None:
        """Handle a line by the first pattern that matches it; a line of no known kind becomes a remark."""
        for pattern, handler in self._handlers:
            if match := pattern.fullmatch(text):
                return handler(parser, match)
        return parser.remark(text)


class LineParser:
    """A parser that reads an output line by line."""

    handlers: ClassVar[LineHandlers]
    has_last_line: ClassVar[bool] = True
    """Whether the program always prints a line at its end."""

    def __init__(self, path: Path, output: BenchmarkOutput, supplied: SuppliedMetadata) -> None:
        self.path = path
        self.output = output
        self.supplied = supplied
        self.number = 0
        self.row_width = 0  # of the line before, up to its last character; 0 if it is not a row

    def parse(self, lines: Iterable[str]) -> None:
        """Read the lines; a line of no known kind becomes a remark; BadInputError for a line that cannot be read."""
        every = list(lines)
        last_rows = _rows_before_an_end(every)
        for self.number, raw_line in enumerate(every, 1):
            line = self.prepare(raw_line)
            text = line.strip()
            if not text:
                continue
            is_row = text[0].isdigit()
            ended = PROGRAM_ENDED.search(text)
            if ended:
                self._end_program(text[: ended.start()].strip(), ended[0])
            elif is_row and not line.endswith(("\n", "\r")):
                self.leave_out_cut_line(text)
            elif self.number in last_rows:
                self._handle_last_row(line)
            else:
                self.handlers.handle(self, text)
            self.row_width = len(line.rstrip()) if is_row else 0

    def prepare(self, line: str) -> str:
        """Return a line as it is to be read."""
        return line

    def _end_program(self, before: str, words: str) -> None:
        """Note that a launcher ended the program, maybe within a row."""
        if _BEGIN_OF_ROW.match(before):
            self.leave_out_cut_line(before)
        if not self.has_last_line:
            self.output.truncated = True
        self.output.remarks.append(f"{self.where} says that the program was ended: {words}")

    def _handle_last_row(self, line: str) -> None:
        """Handle a row after which the program was ended: if it was cut, it is narrower than the one before."""
        text = line.strip()
        if len(line.rstrip()) < self.row_width:
            self.leave_out_cut_line(text)
            return
        try:
            self.handlers.handle(self, text)
        except BadInputError:
            if self.row_width:
                raise
            self.leave_out_cut_line(text)

    def leave_out_cut_line(self, line: str) -> None:
        """Leave out a result within which the output ends, because its last digits may be missing."""
        self.output.truncated = True
        self.output.remarks.append(f"{self.where} is left out: the output ends within it: {line}")

    @property
    def where(self) -> str:
        """The place of the line that is being read."""
        return f"{self.path}: line {self.number}"

    def remark(self, line: str) -> None:
        """Add a remark that a line belongs to no table."""
        self.output.remarks.append(f"{self.where} is not part of a table: {line}")

    def error(self, value: str, expected: str) -> BadInputError:
        """Return the error of the line that is being read."""
        return BadInputError(self.where, value, expected)

    def row(self, line: str, columns: Sequence[str]) -> dict[str, str]:
        """Return the cells of a line of a table by column; BadInputError if there are more or fewer than columns."""
        cells = line.split()
        if len(cells) != len(columns):
            raise self.error(line, f"{len(columns)} values, one for each of {', '.join(columns)}")
        return dict(zip(columns, cells, strict=True))
