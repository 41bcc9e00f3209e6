"""What OSU and IMB have in common: benchmarks of MPI functions, in tables that a C program prints.

Fields have a fixed width, and numbers follow from each other: a lost digit makes a line shorter
than the others of its table, or its rate contradict its time. Nothing says which number is right,
so that such a line is an error.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import SINGLE, Case
from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import LineParser
from hpccoll.schedule.collective import NATIVE

DEFAULT_FUNCTIONS = (
    "Allreduce",
    "Reduce_scatter_block",
    "Allgather",
    "Bcast",
    "Reduce",
    "Gather",
    "Scatter",
    "Alltoall",
    "Barrier",
)
"""The functions that our ``native`` calls, without ``MPI_``."""


@dataclass(frozen=True, slots=True)
class MpiBenchmark:
    """A benchmark of an MPI library."""

    collective: str  # the collective of ours
    # the MPI function that it measures, without ``MPI_``; empty for point to point
    function: str = ""
    block_sized: bool = False  # whether its size is that of a rank's block
    algorithm: str = NATIVE  # the algorithm of ours
    factor: int = 1  # the time of ours over the printed one: 2 for both ways

    def call(self, form: str) -> str | None:
        """Return the parameter ``call``: the MPI function, or a window of messages; None if ours makes the same call.

        ``form`` is ``nonblocking``, ``persistent``, or empty for the blocking form.
        """
        name = self.function
        if not name:
            if form == "persistent":
                return "MPI_Send_init"
            return "window" if self.algorithm == NATIVE else None
        names = {"nonblocking": f"MPI_I{name.lower()}", "persistent": f"MPI_{name}_init"}
        return names.get(form, None if name in DEFAULT_FUNCTIONS else f"MPI_{name}")


MPI_FUNCTIONS = {
    benchmark.function: benchmark
    for benchmark in (
        MpiBenchmark("all_reduce", "Allreduce"),
        MpiBenchmark("reduce", "Reduce"),
        MpiBenchmark("reduce_scatter", "Reduce_scatter", block_sized=True),
        MpiBenchmark("reduce_scatter", "Reduce_scatter_block", block_sized=True),
        MpiBenchmark("broadcast", "Bcast"),
        MpiBenchmark("barrier", "Barrier"),
        *(
            MpiBenchmark(name, f"{function}{suffix}", block_sized=True)
            for name, function, suffixes in (
                ("all_gather", "Allgather", "v"), ("gather", "Gather", "v"), ("scatter", "Scatter", "v"),
                ("all_to_all", "Alltoall", "vw"),
            )
            for suffix in ("", *suffixes)
        ),
    )
}  # fmt: skip
"""The benchmarks of collectives by the function that they measure."""

SLACK, ROUNDING = 0.02, 0.01
"""The relative difference that a rate may have to its time, and the absolute one of any two numbers of a line."""


class PrintedTableParser(LineParser):
    """A parser that checks the lines of a table, and the numbers of a line, against each other."""

    first_to_the_right: ClassVar[bool] = False
    """Whether the first column is aligned to the right, as the others are."""

    line = ""
    # the place, the text and the width of each line of the table
    printed: tuple[tuple[str, str, int], ...] = ()
    largest = -1  # the last size of the table
    after_empty = False  # whether an empty line came after the last line of a table

    def parse(self, lines: Iterable[str]) -> None:
        """Read the lines; BadInputError for a line that cannot be read, or contradicts itself or its table."""
        super().parse(lines)
        self.end_table()

    def prepare(self, line: str) -> str:
        self.line = line
        self.after_empty |= not line.strip()
        return line

    def add_to_table(self) -> None:
        """Add the line that is being read to the lines of its table; what begins a line may have been removed."""
        self.after_empty = False
        text = self.line.strip()
        first = text.split()[0]
        width = len(text)
        if self.first_to_the_right:
            width = len(self.line.rstrip())
            if not self.line[:1].isspace():
                width -= len(first)
        if "  " in text and len(first) < 10:
            self.printed = (*self.printed, (self.where, text, width))

    def end_table(self) -> None:
        """Compare the lines of the table, and begin another one; BadInputError if all but one are equally wide.

        Lines without padding are not compared, nor those that begin with a number that leaves no
        blank in its field.
        """
        printed = self.printed
        self.printed = ()
        self.largest = -1
        if not printed:
            return
        ((usual_width, count),) = Counter(width for *_, width in printed).most_common(1)
        odd = [(where, text) for where, text, width in printed if width != usual_width]
        if len(odd) == 1 and count > 1:
            where, text = odd[0]
            raise BadInputError(
                where,
                text,
                "a line as wide as the others of its table: it lacks digits, or has more",
            )

    def check_rising(self, size: int) -> None:
        """Check that a size is above that of the line before; BadInputError if the line is of another table."""
        if size <= self.largest:
            raise self.error(
                self.line.strip(), f"a size above {self.largest}, that of the line before"
            )
        self.largest = size

    def check_between(
        self, column: str, value: float, low: float, high: float, slack: float = 0
    ) -> None:
        """Check a number of a line against its others: BadInputError beyond ``low`` to ``high``, rounding and slack."""
        least = low * (1 - slack) - ROUNDING
        most = high * (1 + slack) + ROUNDING
        if not least <= value <= most:
            expected = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
            raise self.error(
                self.line.strip(), f"{expected} as {column}, which its other columns say"
            )

    def add_measured(
        self,
        benchmark: MpiBenchmark,
        size: int,
        seconds: float,
        reported: Mapping[str, str],
        failure: str | None,
        *,
        ranks: int,
        nodes: int,
        dtype: str,
        call: str | None,
        **where: str,
    ) -> None:
        """Add the result of the line that is being read: a printed size, on the device ``where``, and its seconds."""
        family = collective(benchmark.collective)
        nbytes = size
        if benchmark.block_sized:
            nbytes *= family.blocks(ranks)
        params = {"call": call} if call else {}
        case = Case(
            collective=family.name,
            algorithm=benchmark.algorithm,
            dtype=dtype,
            op="sum" if family.has_op else None,
            bytes=nbytes,
            in_place=family.one_buffer,
            root=0 if family.rooted else None,
            params=params,
            ranks=ranks,
            nodes=nodes,
            timing=SINGLE,
            **where,
        )
        self.output.add(self.where, case, seconds, reported, failure)
