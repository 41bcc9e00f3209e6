"""Output of the Intel MPI Benchmarks: IMB-MPI1 and IMB-NBC.

Formats as in version 2021.7 (src_c/IMB_output.c). The result of a collective is ``t_avg``, the mean over ranks; that of
a non-blocking one ``t_pure``, without computation; that of point to point ``t``. Sizes are those of a rank's block; of
reduce-scatter they were those of the vector in IMB 2018. One output has sections of 2, 4, 8, ... processes, which are
the first ranks: with ranks in block order they use as many nodes as they need.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.interop.benchmark_output import (
    BenchmarkOutput,
    ForeignResult,
    LineHandlers,
    LineParser,
    MpiBenchmark,
    SuppliedMetadata,
)
from hpccoll.spec.algorithm_registry import collective

SOURCE = "imb"
FAILURES = "out-of-mem.", "int-overflow.", "time-out."
"""What stands in place of the times of a size that was not measured."""

TIMES = "t_avg", "t_pure", "t"
"""The columns that hold the result; the first one that a table has is taken."""


BENCHMARKS = {
    "PingPong": MpiBenchmark("send_recv", algorithm="ping_pong", factor=2),
    "PingPing": MpiBenchmark("bidirectional", algorithm="exchange"),
    "Allreduce": MpiBenchmark("all_reduce", "Allreduce"),
    "Reduce": MpiBenchmark("reduce", "Reduce"),
    "Reduce_scatter": MpiBenchmark("reduce_scatter", "Reduce_scatter", of_block=True),
    "Reduce_scatter_block": MpiBenchmark("reduce_scatter", "Reduce_scatter_block", of_block=True),
    "Allgather": MpiBenchmark("all_gather", "Allgather", of_block=True),
    "Allgatherv": MpiBenchmark("all_gather", "Allgatherv", of_block=True),
    "Gather": MpiBenchmark("gather", "Gather", of_block=True),
    "Gatherv": MpiBenchmark("gather", "Gatherv", of_block=True),
    "Scatter": MpiBenchmark("scatter", "Scatter", of_block=True),
    "Scatterv": MpiBenchmark("scatter", "Scatterv", of_block=True),
    "Alltoall": MpiBenchmark("all_to_all", "Alltoall", of_block=True),
    "Alltoallv": MpiBenchmark("all_to_all", "Alltoallv", of_block=True),
    "Bcast": MpiBenchmark("broadcast", "Bcast"),
    "Barrier": MpiBenchmark("barrier", "Barrier"),
}
"""The benchmarks that ours has a collective for; Sendrecv, Exchange, Uniband and Biband have none."""

VECTOR_VERSION = "2018"
"""The version whose Reduce_scatter counts the bytes of the vector."""


def recognises_imb(text: str) -> bool:
    """Return whether a text is output of IMB."""
    return "# Benchmarking " in text and "#repetitions" in text


def read_imb(path: Path, lines: Iterable[str], given: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of IMB.

    Args:
        path: the path of the output, for messages.
        lines: its lines.
        given: the nodes; the sections show the ranks.

    Raises:
        BadInputError: for a result in another unit, or a line that is cut.
    """
    output = BenchmarkOutput(
        source=SOURCE, program="Intel MPI Benchmarks", ranks=0, nodes=given.need("nodes", "IMB"), library=given.library,
        truncated=True,
    )  # fmt: skip
    _ImbParser(path, output).parse(lines)
    if output.results and given.ranks not in (None, output.ranks):
        raise BadInputError("--ranks", given.ranks, f"{output.ranks}, which {path} says")
    return output


class _ImbParser(LineParser):
    """The parser of one output; its state is what is known of the section that is being read."""

    def __init__(self, path: Path, output: BenchmarkOutput) -> None:
        super().__init__(path, output)
        self.version = ""
        self.benchmark: MpiBenchmark | None = None  # None if ours has no such collective
        self.call: str | None = None
        self.processes = 0
        self.columns: tuple[str, ...] = ()
        self.time = ""

    handlers = LineHandlers()

    @handlers.line(r"#\s+Intel\(R\) MPI Benchmarks .*\(GPU\)")
    def refuse_gpu(self, found: re.Match[str]) -> None:
        raise self.error(found[0], "a part without (GPU): the output does not say where buffers are")

    @handlers.line(r"#\s+Intel\(R\) MPI Benchmarks (\S+), .*")
    def set_version(self, found: re.Match[str]) -> None:
        self.version = found[1]
        self.output.program = f"Intel MPI Benchmarks {found[1]}"

    @handlers.line(r"# Benchmarking (\S+).*")
    def begin(self, found: re.Match[str]) -> None:
        name = found[1].removesuffix("_pure")
        form = "" if name in BENCHMARKS or name[:1] != "I" else "nonblocking"
        self.benchmark = BENCHMARKS.get(name[1:].capitalize() if form else name)
        self.columns, self.processes = (), 0
        if self.benchmark is None:
            self.output.remarks.append(f"{self.where}: {found[1]} is left out: ours has nothing like it")
            return
        self.call = self.benchmark.call(form)
        if found[1].endswith("_pure"):  # the mean over ranks; t_pure of the other form is that of one rank
            self.call = f"{self.call}_pure"
        if self.benchmark.function == "Reduce_scatter" and self.version == VECTOR_VERSION:
            self.benchmark = replace(self.benchmark, of_block=False)

    @handlers.line(r"# #processes = ([0-9]{1,9})\b.*")
    def set_processes(self, found: re.Match[str]) -> None:
        self.processes = int(found[1])
        self.output.ranks = max(self.output.ranks, self.processes)

    @handlers.line(r"# \( ?([0-9]{1,9}) additional process(?:es)? waiting in MPI_Barrier\)")
    def add_waiting(self, found: re.Match[str]) -> None:
        self.output.ranks = max(self.output.ranks, self.processes + int(found[1]))

    @handlers.line(r".*#repetitions.*")
    def set_columns(self, found: re.Match[str]) -> None:
        self.columns = tuple(found[0].split())
        units = {stem: unit for stem, _, unit in (column.partition("[") for column in self.columns)}
        self.time = next((stem for stem in TIMES if stem in units), "")
        if self.benchmark is None:
            return
        if units.get(self.time) != "usec]":
            expected = ", ".join(f"{each}[usec]" for each in TIMES)
            raise self.error(found[0], f"a column with a result: {expected}")
        if self.benchmark.function != "Barrier" and "#bytes" not in self.columns:
            raise self.error(found[0], "a column #bytes")

    @handlers.line(r"# All processes entering MPI_Finalize")
    def end(self, _line: re.Match[str]) -> None:
        self.output.truncated = False

    @handlers.line(r"#.*")
    def skip(self, _comment: re.Match[str]) -> None:
        """Skip what IMB says besides."""

    @handlers.line(rf"[0-9 ]+ ({'|'.join(map(re.escape, FAILURES))}).*")
    def skip_failure(self, line: re.Match[str]) -> None:
        self.output.remarks.append(f"{self.where} has no result: {line[0]}")

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if not self.columns:
            self.remark(line)
            return
        row = self.row(line[0], self.columns)
        if self.benchmark is None:
            return
        size = 1 if self.benchmark.function == "Barrier" else self.count_in("#bytes", row["#bytes"])
        if not self.processes:
            raise self.error(line[0], "the line of its #processes above the table")
        if not size:
            return  # an operation without data is none of ours
        column = f"{self.time}[usec]"
        dtype = "float32" if collective(self.benchmark.collective).reduces else "int8"
        case = self.benchmark.case(size, self.processes, self.output.nodes_of(self.processes), dtype, self.call)
        seconds = self.benchmark.factor * self.number_in(column, row[column]) * 1e-6
        self.add_result(ForeignResult(case=case, seconds=seconds, reported=row))
