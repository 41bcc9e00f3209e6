"""Output of the OSU Micro-Benchmarks: collectives (blocking, non-blocking, persistent) and point to point.

Formats as in version 7.4 (c/util/osu_util_mpi.c and the programs); those of 5.x to 7.x differ in columns only, and
columns are found by name. OSU counts the bytes of a rank's block where collectives have blocks, except of
reduce-scatter; S of ours is that of all blocks. A latency is half a round trip. A bandwidth, of a window of messages,
becomes the time in which messages of S go and come at that rate, so that ``busbw_Bps`` is the printed bandwidth (of
several pairs: that of a pair; of both directions: that of one).
"""

import re
from collections.abc import Iterable
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

SOURCE = "osu"

DTYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float32"}
DEVICES = {
    "MPI": {None: "cpu", "CUDA": "cuda", "MANAGED": "cuda"},
    "NCCL": {None: "cuda", "CUDA": "cuda", "MANAGED": "cuda"},
    "RCCL": {None: "rocm", "ROCM": "rocm"},
}
"""For the programs of each library, where buffers lie by the word in the title."""

QUANTITIES = {"Avg Latency": "us", "Latency": "us", "Pure Comm.": "us", "Bandwidth": "MB/s", "": "MB/s"}
"""The columns that hold the result, with their units; the first one that a table has is taken."""
COLUMN = re.compile(r"(?P<stem>[^()]*?) ?\((?P<unit>[^()]+)\)|(?P<rate>\w+/\w+)")


TESTS = {
    "Allreduce Latency": MpiBenchmark("all_reduce", "Allreduce"),
    "Reduce_scatter Latency": MpiBenchmark("reduce_scatter", "Reduce_scatter"),
    "Reduce_scatter_block Latency": MpiBenchmark("reduce_scatter", "Reduce_scatter_block"),
    "Allgather Latency": MpiBenchmark("all_gather", "Allgather", of_block=True),
    "Allgatherv Latency": MpiBenchmark("all_gather", "Allgatherv", of_block=True),
    "Broadcast Latency": MpiBenchmark("broadcast", "Bcast"),
    "Reduce Latency": MpiBenchmark("reduce", "Reduce"),
    "Gather Latency": MpiBenchmark("gather", "Gather", of_block=True),
    "Gatherv Latency": MpiBenchmark("gather", "Gatherv", of_block=True),
    "Scatter Latency": MpiBenchmark("scatter", "Scatter", of_block=True),
    "Scatterv Latency": MpiBenchmark("scatter", "Scatterv", of_block=True),
    "All-to-All Latency": MpiBenchmark("all_to_all", "Alltoall", of_block=True),
    "All-to-Allv Latency": MpiBenchmark("all_to_all", "Alltoallv", of_block=True),
    "All-to-Allw Latency": MpiBenchmark("all_to_all", "Alltoallw", of_block=True),
    "Barrier Latency": MpiBenchmark("barrier", "Barrier"),
    "Latency": MpiBenchmark("send_recv", algorithm="ping_pong", factor=2),
    "Bandwidth": MpiBenchmark("send_recv", factor=2),
    "Bi-Directional Bandwidth": MpiBenchmark("bidirectional", factor=2),
    "Multi Latency": MpiBenchmark("multi_pair", algorithm="ping_pong", factor=2),
    "Multiple Bandwidth / Message Rate": MpiBenchmark("multi_pair"),
}
"""The programs by their titles, without what says the form of the call."""


def recognises_osu(text: str) -> bool:
    """Return whether a text is output of OSU."""
    return "# OSU " in text


def read_osu(path: Path, lines: Iterable[str], given: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of OSU; it may hold those of several programs.

    Args:
        path: the path of the output, for messages.
        lines: its lines.
        given: the ranks and nodes; of two ranks, a test of point to point says so itself.

    Raises:
        BadInputError: for an unknown program, a result in another unit, or a line that is cut.
    """
    output = BenchmarkOutput(
        source=SOURCE, program="OSU Micro-Benchmarks", ranks=0, nodes=given.need("nodes", "OSU"), library=given.library
    )
    _OsuParser(path, output, given).parse(lines)
    if given.ranks and output.ranks > given.ranks:
        raise BadInputError("--ranks", given.ranks, f"at least {output.ranks}, which {path} says")
    return output


class _OsuParser(LineParser):
    """The parser of one output; its state is what is known of the table that is being read."""

    def __init__(self, path: Path, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
        super().__init__(path, output)
        self.given = given
        self.test: MpiBenchmark | None = None
        self.form, self.transport, self.device, self.dtype = "", "mpi", "cpu", "int8"
        self.pairs = 0
        self.columns: tuple[str, ...] = ()
        self.quantity = ""

    handlers = LineHandlers()

    @handlers.line(r"# OSU (?P<library>MPI|NCCL|RCCL)(?:-(?P<device>[A-Z]+))? (?P<test>.+?) Test v(?P<version>\S+)")
    def begin(self, title: re.Match[str]) -> None:
        name = title["test"].replace(" Personalized Exchange", "")
        self.form = ""
        for word, form in (("Non-blocking ", "nonblocking"), (" Persistent", "persistent")):
            name, found = re.subn(word, "", name, flags=re.IGNORECASE)
            self.form = form if found else self.form
        if name not in TESTS:
            raise self.error(title["test"], f"one of {', '.join(TESTS)}")
        library = title["library"]
        if title["device"] not in DEVICES[library]:
            raise self.error(title[0], "buffers on the host or in CUDA memory; of RCCL's programs in ROCm memory")
        self.test, self.columns, self.pairs = TESTS[name], (), 0
        self.transport, self.device = library.lower(), DEVICES[library][title["device"]]
        # Before 7.0 no line named the type: reductions had MPI_FLOAT; the programs for NCCL and RCCL still have it.
        self.dtype = "float32" if library != "MPI" or collective(self.test.collective).reduces else "int8"
        self.output.program = f"OSU Micro-Benchmarks {title['version']}"

    @handlers.line(r"# OSU (.* Test.*)")
    def refuse(self, title: re.Match[str]) -> None:
        raise self.error(title[1], f"a program for MPI, NCCL or RCCL: one of {', '.join(TESTS)}")

    @handlers.line(r"# Datatype: (\w+)\.")
    def set_dtype(self, found: re.Match[str]) -> None:
        if found[1] not in DTYPES:
            raise self.error(found[1], f"one of {', '.join(DTYPES)}")
        self.dtype = DTYPES[found[1]]

    @handlers.line(r"# \[ pairs: ([0-9]{1,9}) \].*")
    def set_pairs(self, found: re.Match[str]) -> None:
        self.pairs = int(found[1])

    @handlers.line(r"# Send Buffer on (\w+) \(\w+\) and Receive Buffer on (\w+) \(\w+\)")
    def set_device(self, found: re.Match[str]) -> None:
        if found[1] != found[2]:
            raise self.error(found[0], "both buffers on the host, or both on GPUs")
        self.device = "cpu" if found[1] == "HOST" else "rocm" if self.transport == "rccl" else "cuda"

    @handlers.line(r"#.*(Size|\(us\)|MB/s).*")
    def set_columns(self, found: re.Match[str]) -> None:
        self.columns = tuple(re.split(r"\s{2,}", found[0].lstrip("# ")))
        units: dict[str, str] = {}
        for column in filter(None, map(COLUMN.fullmatch, self.columns)):
            units.setdefault((column["stem"] or "").strip(), column["unit"] or column["rate"])
        stem = next((stem for stem in QUANTITIES if stem in units), None)
        if stem is None or units[stem] != QUANTITIES[stem]:
            expected = ", ".join(f"{stem} ({unit})".lstrip() for stem, unit in QUANTITIES.items())
            raise self.error(found[0], f"a column with a result: {expected}")
        if self.test and self.test.function != "Barrier" and "Size" not in self.columns:
            raise self.error(found[0], "a column Size, in bytes")
        self.quantity = next(each for each in self.columns if each.startswith(stem) and units[stem] in each)

    @handlers.line(r"#.*")
    def skip(self, _comment: re.Match[str]) -> None:
        """Skip what OSU says besides."""

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if not self.test or not self.columns:
            self.remark(line)
            return
        reported = self.row(line[0], self.columns)
        value = self.number_in(self.quantity, reported[self.quantity])
        size = 1 if self.test.function == "Barrier" else self.count_in("Size", reported["Size"])
        if "MB/s" in self.quantity:
            seconds = (self.pairs or self.test.factor) * size / (value * 1e6) if value else 0.0
        else:
            seconds = self.test.factor * value * 1e-6
        ranks = self.ranks_of(self.test)
        self.output.ranks = max(self.output.ranks, ranks)
        case = self.test.case(
            size, ranks, min(self.output.nodes, ranks), self.dtype, self.test.call(self.form),
            transport=self.transport, device=self.device,
        )  # fmt: skip
        failed = reported.get("Validation") == "Fail"
        failure = "OSU's validation of the data failed" if failed else None
        self.add_result(ForeignResult(case=case, seconds=seconds, reported=reported, failure=failure))

    def ranks_of(self, test: MpiBenchmark) -> int:
        """Return the ranks of a test: point to point has two of them, or two of each pair."""
        if test.collective in ("send_recv", "bidirectional"):
            return 2
        return 2 * self.pairs or self.given.need("ranks", "OSU")
