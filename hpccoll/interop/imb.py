"""Output of the Intel MPI Benchmarks: IMB-MPI1 and IMB-NBC.

Formats as in the versions 2018 to 2021.11 of intel/mpi-benchmarks (IMB_output.c, IMB_g_info.c),
and, of the line of the version, of published outputs from 2.3 on. The result of a collective is
``t_avg``, the mean over ranks; that of a non-blocking one ``t_pure``, without computation; that of
point to point ``t``. Sizes are those of a rank's block; of reduce-scatter they were those of the
vector up to IMB 2019. One output has sections of 2, 4, 8, ... processes, which are the first ranks:
with ranks in block order they use as many nodes as they need.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import (
    BenchmarkOutput,
    LineHandlers,
    SuppliedMetadata,
    read_cell,
    read_count,
)
from hpccoll.interop.mpi_tables import (
    MPI_FUNCTIONS,
    ROUNDING,
    SLACK,
    MpiBenchmark,
    PrintedTableParser,
)
from hpccoll.schedule.reduction import BFLOAT16

SOURCE = "imb"
FAILURES = "out-of-mem", "int-overflow", "time-out"
"""What stands in place of the times of a size that was not measured."""

TIMES = "t_avg", "t_pure", "t"
"""The columns that hold the result; the first one that a table has is taken."""


BENCHMARKS = {
    "PingPong": MpiBenchmark("send_recv", algorithm="ping_pong", factor=2),
    "PingPing": MpiBenchmark("bidirectional", algorithm="exchange"),
    **{name: benchmark for name, benchmark in MPI_FUNCTIONS.items() if name != "Alltoallw"},
}
"""The benchmarks that ours has a collective for; Sendrecv, Exchange, Uniband and Biband have none."""

PARTS = "MPI-1", "MPI-NBC"
"""The parts that have benchmarks of ours; others, such as IMB-P2P, have other benchmarks of the same names."""

DTYPES = {
    "MPI_BYTE": "int8",
    "MPI_CHAR": "int8",
    "MPI_INT": "int32",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
    "MPIX_C_FLOAT16": "float16",
    "MPIX_C_BF16": BFLOAT16,
}

LAST_OF_VECTOR = 2019, 0
"""The last version, and its update, whose Reduce_scatter counts the bytes of the vector."""

OLD_MEGABYTE = 1048576 / 1e6
"""The megabyte of IMB before 2018 over the later one."""

IMB_SIGN = re.compile(r"Intel ?\(R\) MPI Benchmark|\A(?=(?s:.*)#repetitions)(?s:.*)# Benchmarking ")
"""What every output of IMB has."""


def read_imb(path: Path, lines: Iterable[str], supplied: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of IMB; BadInputError for a result in another unit, or a line that is cut."""
    output = BenchmarkOutput(
        source=SOURCE,
        program="Intel MPI Benchmarks",
        ranks=0,
        nodes=supplied.need("nodes", "IMB"),
        library=supplied.library,
        truncated=True,
    )
    parser = _ImbParser(path, output, supplied)
    parser.parse(lines)
    parser.set_nodes()
    if output.results and supplied.ranks not in (None, output.ranks):
        raise BadInputError("--ranks", supplied.ranks, f"{output.ranks}, which {path} says")
    return output


class _ImbParser(PrintedTableParser):
    """The parser of one output; its state is what is known of the section that is being read."""

    first_to_the_right = True

    def __init__(self, path: Path, output: BenchmarkOutput, supplied: SuppliedMetadata) -> None:
        super().__init__(path, output, supplied)
        self.part = PARTS[0]
        self.version: tuple[int, int] | None = None
        self.rebuilt = False  # of a later version, to count as 2018 did
        self.runs = 0
        self.any_sizes = False  # whether the user chose sizes, in any order
        # of collectives that reduce, and of the others
        self.types = {False: "int8", True: "float32"}
        self.benchmark: MpiBenchmark | None = None  # None if ours has no such collective
        self.name = ""
        self.call: str | None = None
        self.processes = self.waiting = 0
        self.columns: tuple[str, ...] = ()
        self.time = ""
        self.sections: dict[tuple[int, int, bool], str] = {}
        """The places of sections by their processes, those that wait meanwhile, and whether all could take part."""

    handlers = LineHandlers()

    @handlers.line(r"#\s+Intel ?\(R\) MPI Benchmarks .*\(GPU\).*")
    def refuse_gpu(self, match: re.Match[str]) -> None:
        raise self.error(
            match[0], "a part without (GPU): the output does not say where buffers are"
        )

    @handlers.line(
        r"#\s+Intel( ?)\(R\) MPI Benchmark(?:s| Suite) V?((\d+)[^ ,]*(?: (?i:update) (\d+))?)[^,]*, (\S+) part.*"
    )
    def set_version(self, match: re.Match[str]) -> None:
        self.end_section()
        blank, version, major, update, self.part = match.groups()
        self.version, self.rebuilt = (int(major), int(update or 0)), major == "2018" and not blank
        self.output.program = f"Intel MPI Benchmarks {version}"
        self.runs += 1

    @handlers.line(r"# Message lengths were user defined")
    def set_any_sizes(self, _line: re.Match[str]) -> None:
        self.any_sizes = True

    @handlers.line(r"# MPI_Datatype +(for reductions)? *: +(\w+)")
    def set_type(self, match: re.Match[str]) -> None:
        if match[2] not in DTYPES:
            raise self.error(match[2], f"one of {', '.join(DTYPES)}")
        self.types[bool(match[1])] = DTYPES[match[2]]

    @handlers.line(r"# !! Benchmark (\S+) (?:is )?invalid for ([0-9]+) process.*")
    def skip_invalid(self, match: re.Match[str]) -> None:
        processes = "1 process" if match[2] == "1" else f"{match[2]} processes"
        self.output.remarks.append(
            f"{self.where}: IMB says that {match[1]} is invalid for {processes}"
        )

    @handlers.line(r"# Benchmarking (\S+).*")
    def begin(self, match: re.Match[str]) -> None:
        if self.benchmark and not self.columns and match[1] != self.name:
            raise self.error(match[0], f"the table of {self.name} above it")
        self.end_section()
        self.name = match[1]
        name = match[1].removesuffix("_pure")
        form = "" if name in BENCHMARKS or name[:1] != "I" else "nonblocking"
        if form:
            name = name[1:].capitalize()
        self.benchmark = BENCHMARKS.get(name) if self.part in PARTS else None
        if self.benchmark is None:
            part = "" if self.part in PARTS else f" of the part {self.part}"
            self.output.remarks.append(
                f"{self.where}: {match[1]}{part} is left out: ours has nothing like it"
            )
            return
        self.call = self.benchmark.call(form)
        # the mean over ranks; t_pure of the other form is that of one rank
        if match[1].endswith("_pure"):
            self.call = f"{self.call}_pure"
        if self.benchmark.function != "Reduce_scatter":
            return
        if self.version is None:
            self.output.remarks.append(
                f"{self.where}: {match[1]} is left out: no line says the version of IMB, and so whether its sizes are "
                "those of the vector (to 2019) or of a block (from 2019 Update 1)"
            )
            self.benchmark = None
        elif self.version <= LAST_OF_VECTOR and not (self.rebuilt and form):
            self.benchmark = replace(self.benchmark, block_sized=False)

    def end_section(self) -> None:
        self.end_table()
        self.benchmark = None
        self.columns = ()
        self.processes = 0
        self.waiting = 0

    @handlers.line(r"# #processes = ([0-9]{1,9})\b.*")
    def set_processes(self, match: re.Match[str]) -> None:
        if self.columns:
            raise self.error(match[0], "the line # Benchmarking above it")
        self.processes = int(match[1])

    @handlers.line(r"# \( ?([0-9]{1,9}) additional process(?:es)? waiting in MPI_Barrier\)")
    def set_waiting(self, match: re.Match[str]) -> None:
        self.waiting = int(match[1])

    @handlers.line(r".*#repetitions.*")
    def set_columns(self, match: re.Match[str]) -> None:
        if self.columns and match[0].split() != [*self.columns]:
            raise self.error(match[0], "the line # Benchmarking above another table")
        self.columns = tuple(match[0].split())
        units = {stem: unit for stem, _, unit in (column.partition("[") for column in self.columns)}
        self.time = next((stem for stem in TIMES if stem in units), "")
        if self.benchmark is None:
            return
        if units.get(self.time) != "usec]":
            expected = ", ".join(f"{stem}[usec]" for stem in TIMES)
            raise self.error(match[0], f"a column with a result: {expected}")
        if self.benchmark.function != "Barrier" and "#bytes" not in self.columns:
            raise self.error(match[0], "a column #bytes")

    @handlers.line(r"# All processes entering MPI_Finalize")
    def end(self, _line: re.Match[str]) -> None:
        self.output.truncated = False

    handlers.skip(r"#.*")

    @handlers.line(rf"[0-9 ]+ ({'|'.join(FAILURES)}).*")
    def skip_failure(self, line: re.Match[str]) -> None:
        self.output.remarks.append(f"{self.where} has no result: {line[0]}")

    handlers.remark(r"\d+: Error .*")

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if not self.columns:
            self.remark(line[0])
            return
        if self.benchmark is None:
            return
        self.add_to_table()
        row = self.row(line[0], self.columns)
        numbers = {name: read_cell(self.where, name, cell) for name, cell in row.items()}
        size = (
            1
            if self.benchmark.function == "Barrier"
            else read_count(self.where, "#bytes", row["#bytes"])
        )
        if not self.processes:
            raise self.error(line[0], "the line of its #processes above the table")
        self.sections.setdefault(
            (self.processes, self.waiting, bool(self.benchmark.function)), self.where
        )
        if not self.any_sizes:
            self.check_rising(size)
        column = f"{self.time}[usec]"
        self.check(numbers, size, column)
        if not size:
            return  # hpccoll does not measure operations without data
        dtype = self.types[collective(self.benchmark.collective).reduces]
        seconds = self.benchmark.factor * numbers[column] * 1e-6
        failure = (
            f"IMB's check of the data found defects: {row['defects']}"
            if numbers.get("defects")
            else None
        )
        self.add_measured(
            self.benchmark,
            size,
            seconds,
            row,
            failure,
            ranks=self.processes,
            nodes=1,
            dtype=dtype,
            call=self.call,
        )

    def check(self, numbers: Mapping[str, float], size: int, column: str) -> None:
        if "t_avg[usec]" in numbers:
            low, high = numbers.get("t_min[usec]", 0), numbers.get("t_max[usec]", math.inf)
            self.check_between("t_avg[usec]", numbers["t_avg[usec]"], low, high)
        if "Mbytes/sec" in numbers:
            time = numbers.get("t_max[usec]", numbers[column])
            low = size / (time + ROUNDING) / OLD_MEGABYTE
            high = size / max(time - ROUNDING, ROUNDING / 2)
            self.check_between("Mbytes/sec", numbers["Mbytes/sec"], low, high, slack=SLACK)

    def set_nodes(self) -> None:
        ranks = self.output.ranks = max(
            (running + waiting for running, waiting, _ in self.sections), default=0
        )
        if self.runs > 1 and ranks == 1:
            raise BadInputError(
                "FILE",
                str(self.path),
                f"one run: it has {self.runs}, of 1 process each, as if "
                "IMB was started without the launcher of its MPI library",
            )
        for (running, waiting, collective_call), where in self.sections.items():
            if running + waiting != ranks and (waiting or collective_call):
                expected = f"{ranks} processes, as in other sections; import runs of other numbers separately"
                raise BadInputError(where, f"{running} processes and {waiting} waiting", expected)
        results = self.output.results
        for number, result in enumerate(results):
            nodes = self.output.nodes_of(result.case.ranks or 1)
            results[number] = replace(result, case=replace(result.case, nodes=nodes))
