"""Output of the OSU Micro-Benchmarks: collectives (blocking, non-blocking, persistent) and point to point.

Formats as in versions 5.3.2, 7.0 and 7.4 (osu_coll.c, c/util/osu_util_mpi.c and the programs): they
differ in columns only, and columns are found by name. Some programs of 7.x print more columns than
headings. OSU counts the bytes of a rank's block where collectives have blocks, except of
reduce-scatter; S of ours is that of all blocks. A latency is half a round trip. A bandwidth, of a
window of messages, becomes the time in which messages of S go and come at that rate, so that
``busbw_Bps`` is the printed bandwidth: that of one pair if several pairs ran, and that of one
direction if both were measured.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import (
    PROGRAM_ENDED,
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
from hpccoll.schedule.collective import NATIVE

SOURCE = "osu"

DTYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float32"}
DEVICES = {
    "MPI": {None: "cpu", "CUDA": "cuda", "MANAGED": "cuda"},
    "NCCL": {None: "cuda", "CUDA": "cuda", "MANAGED": "cuda"},
    "RCCL": {None: "rocm", "ROCM": "rocm"},
}
"""For the programs of each library, where buffers lie by the word in the title."""

QUANTITIES = {
    "Avg Latency": "us",
    "Latency": "us",
    "Pure Comm.": "us",
    "Bandwidth": "MB/s",
    "": "MB/s",
}
"""The columns that hold the result, with their units; the first one that a table has is taken."""
COLUMN = re.compile(r"(?P<stem>[^()]*?) ?\((?P<unit>[^()]+)\)|(?P<rate>\w+/\w+)")
RANGES = {
    "Avg Latency(us)": ("Min Latency(us)", "Max Latency(us)"),
    "Pure Comm.(us)": ("Min Comm.(us)", "Max Comm.(us)"),
}
"""The columns of the smallest and the largest mean of a rank, around that of all ranks."""

FULL = {
    "Avg Latency(us)": (*RANGES["Avg Latency(us)"], "Iterations"),
    "Pure Comm.(us)": ("Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)", *RANGES["Pure Comm.(us)"]),
}
"""The columns of the option -f, by the column that holds the result."""

VALIDATION = ("Validation",)
TAILS = "1st tail", "2nd tail", "3rd tail"
"""The columns of the options -c and -z; the percentiles of the latter have no names without headings."""

ORDER = (
    "Size",
    "Overall(us)",
    "Avg Latency(us)",
    *FULL["Avg Latency(us)"],
    "Compute(us)",
    *FULL["Pure Comm.(us)"][:3],
    "Pure Comm.(us)",
    *RANGES["Pure Comm.(us)"],
    "Overlap(%)",
    *VALIDATION,
    *TAILS,
)
"""The order in which columns are printed."""

FORMS = {"Size": r"\d+", "Iterations": r"\d+", "Validation": "Pass|Fail"}
"""The forms of the cells that are not decimal numbers."""

MISSING_TITLE = "the title of its program above it, # OSU ..."

WINDOW = 64
"""The messages of a window, unless -W says another number."""

TITLES = {
    "Bcast": "Broadcast",
    "Alltoall": "All-to-All",
    "Alltoallv": "All-to-Allv",
    "Alltoallw": "All-to-Allw",
}
"""The titles that are not the names of functions."""

TESTS = {
    **{f"{TITLES.get(name, name)} Latency": benchmark for name, benchmark in MPI_FUNCTIONS.items()},
    **{
        f"{name} Latency": replace(MPI_FUNCTIONS[name], block_sized=False)
        for name in ("Reduce_scatter", "Reduce_scatter_block")
    },
    "Latency": MpiBenchmark("send_recv", algorithm="ping_pong", factor=2),
    "Bandwidth": MpiBenchmark("send_recv", factor=2),
    "Bi-Directional Bandwidth": MpiBenchmark("bidirectional", factor=2),
    "Multi Latency": MpiBenchmark("multi_pair", algorithm="ping_pong", factor=2),
    "Multiple Bandwidth / Message Rate": MpiBenchmark("multi_pair"),
}
"""The programs by their titles, without what says the form of the call."""

OSU_SIGN = re.compile(
    r"# OSU |^This test requires (?:exactly|at least) two processes", re.MULTILINE
)
"""What every output of OSU has; the sentence is all that a program prints that was started with too few ranks."""


def read_osu(path: Path, lines: Iterable[str], supplied: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of OSU, of one program or several; BadInputError for what could be misread."""
    output = BenchmarkOutput(
        source=SOURCE,
        program="OSU Micro-Benchmarks",
        ranks=0,
        nodes=supplied.nodes or 0,
        library=supplied.library,
    )
    _OsuParser(path, output, supplied).parse(lines)
    if supplied.ranks and output.ranks > supplied.ranks:
        raise BadInputError(
            "--ranks", supplied.ranks, f"at least {output.ranks}, which {path} says"
        )
    return output


class _OsuParser(PrintedTableParser):
    """The parser of one output; its state is what is known of the table that is being read."""

    has_last_line = False

    def __init__(self, path: Path, output: BenchmarkOutput, supplied: SuppliedMetadata) -> None:
        super().__init__(path, output, supplied)
        self.title = ""
        self.test: MpiBenchmark | None = None
        self.form = ""
        self.transport = "mpi"
        self.device = "cpu"
        self.dtype = "int8"
        self.pairs = 0
        self.window = WINDOW
        self.columns: tuple[str, ...] = ()
        self.quantity = ""
        self.left_out = False
        self.types: set[str] = set()  # the types of elements that the program has had tables of

    handlers = LineHandlers()

    @handlers.line(
        r"# OSU (?P<library>MPI|NCCL|RCCL)(?:-(?P<device>[A-Z]+))? (?P<test>.+?) Test"
        r"(?: v| \(Version )?(?P<version>[^\s()]*)\)?"
    )
    def begin(self, title: re.Match[str]) -> None:
        if self.test and not self.types and not self.after_empty:
            raise self.error(title[0], f"the table of the title above it, {self.title}")
        self.title = title[0]
        self.after_empty = False
        self.left_out = False
        name = title["test"].replace(" Personalized Exchange", "")
        self.form = ""
        for word, form in (("Non-blocking ", "nonblocking"), (" Persistent", "persistent")):
            name, count = re.subn(word, "", name, flags=re.IGNORECASE)
            if count:
                self.form = form
        if name not in TESTS:
            self.leave_out(title)
            return
        library = title["library"]
        if title["device"] not in DEVICES[library]:
            raise self.error(
                title[0], "buffers on the host or in CUDA memory; of RCCL's programs in ROCm memory"
            )
        self.end_table()
        self.test = TESTS[name]
        self.columns = ()
        self.pairs = 0
        self.window = WINDOW
        self.types.clear()
        self.transport = library.lower()
        self.device = DEVICES[library][title["device"]]
        # Before 7.0 no line named the type: reductions had MPI_FLOAT; the programs for NCCL and
        # RCCL still have it.
        self.dtype = (
            "float32" if library != "MPI" or collective(self.test.collective).reduces else "int8"
        )
        self.output.program = f"OSU Micro-Benchmarks {title['version']}".rstrip()

    @handlers.line(r"# OSU (.* Test.*)")
    def leave_out(self, title: re.Match[str]) -> None:
        self.end_table()
        self.test = None
        self.columns = ()
        self.left_out = True
        self.output.remarks.append(
            f"{self.where}: {title[0].removeprefix('# ')} is left out: ours has nothing like it"
        )

    def prepare(self, line: str) -> str:
        """Return a line, but an empty one in place of one of a program that is left out."""
        super().prepare(line)
        is_of_other = self.left_out and "# OSU " not in line
        return "" if is_of_other and not PROGRAM_ENDED.search(line) else line

    def check_title(self, match: re.Match[str]) -> None:
        """Check that no title is missing: an empty line is above a title, not between the tables of a program."""
        if self.types and self.after_empty:
            raise self.error(match[0], MISSING_TITLE)

    @handlers.line(r"# Datatype: (\w+)\.")
    def set_dtype(self, match: re.Match[str]) -> None:
        if match[1] not in DTYPES:
            raise self.error(match[1], f"one of {', '.join(DTYPES)}")
        self.check_title(match)
        self.dtype, self.after_empty = DTYPES[match[1]], False

    @handlers.line(r"Time took to create topology graph:.*")
    def refuse_neighbors(self, match: re.Match[str]) -> None:
        raise self.error(
            match[0], "a collective of all ranks: this one is of neighbors, whatever its title says"
        )

    @handlers.line(r"# \[ pairs: ([0-9]{1,9}) \] \[ window size: (\w+) \]")
    def set_pairs(self, match: re.Match[str]) -> None:
        if not match[2].isdigit():
            raise self.error(match[0], "one window size, as without the option -V")
        if self.test and self.test_quantities(self.test) != ("",):
            raise self.error(match[0], MISSING_TITLE)
        self.check_title(match)
        self.pairs, self.window = int(match[1]), int(match[2])

    @handlers.line(r"# Send Buffer on (\w+) \(\w+\) and Receive Buffer on (\w+) \(\w+\)")
    def set_device(self, match: re.Match[str]) -> None:
        if match[1] != match[2]:
            raise self.error(match[0], "both buffers on the host, or both on GPUs")
        gpu = "rocm" if self.transport == "rccl" else "cuda"
        self.device = "cpu" if match[1] == "HOST" else gpu

    # without # in osu_ibarrier before 7.2
    @handlers.line(r"#.*(?:Size|\(us\)|MB/s).*|Overall\(us\).*")
    def set_columns(self, match: re.Match[str]) -> None:
        if self.dtype in self.types:
            raise self.error(match[0], MISSING_TITLE)
        self.check_title(match)
        self.end_table()
        self.columns = tuple(re.split(r"\s{2,}", match[0].lstrip("# ")))
        units: dict[str, str] = {}
        for column in filter(None, map(COLUMN.fullmatch, self.columns)):
            units.setdefault((column["stem"] or "").strip(), column["unit"] or column["rate"])
        stem = next((stem for stem in QUANTITIES if stem in units), None)
        if stem is None or units[stem] != QUANTITIES[stem]:
            expected = ", ".join(f"{stem} ({unit})".lstrip() for stem, unit in QUANTITIES.items())
            raise self.error(match[0], f"a column with a result: {expected}")
        if self.test and stem not in self.test_quantities(self.test):
            raise self.error(match[0], MISSING_TITLE)
        if self.test and self.test.function != "Barrier" and "Size" not in self.columns:
            raise self.error(match[0], "a column Size, in bytes")
        self.quantity = next(
            column for column in self.columns if column.startswith(stem) and units[stem] in column
        )

    handlers.skip(r"#.*")

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if not self.test or not self.columns:
            self.remark(line[0])
            return
        self.add_to_table()
        reported = self.row(line[0], self.columns_of(line[0].split()))
        value = read_cell(self.where, self.quantity, reported[self.quantity])
        size = (
            1
            if self.test.function == "Barrier"
            else read_count(self.where, "Size", reported["Size"])
        )
        self.check_rising(size)
        self.types.add(self.dtype)
        if "Transmit Size" in reported:
            self.output.remarks.append(
                f"{self.where}: a derived type is left out: ours has nothing like it"
            )
            return
        self.check(reported, size, value)
        call = self.test.call(self.form)
        if self.quantity == "MB/s":
            if not self.pairs:
                raise self.error(line[0], "the line of the pairs above the table")
            if self.window != WINDOW:
                call = f"{call} of {self.window}"
        if "MB/s" in self.quantity:
            seconds = (self.pairs or self.test.factor) * size / (value * 1e6) if value else 0.0
        else:
            seconds = self.test.factor * value * 1e-6
        ranks = self.ranks_of(self.test)
        nodes = min(self.supplied.need("nodes", "OSU"), ranks)
        self.output.ranks = max(self.output.ranks, ranks)
        failure = (
            "OSU's validation of the data failed" if reported.get("Validation") == "Fail" else None
        )
        self.add_measured(
            self.test,
            size,
            seconds,
            reported,
            failure,
            ranks=ranks,
            nodes=nodes,
            dtype=self.dtype,
            call=call,
            transport=self.transport,
            device=self.device,
        )

    def columns_of(self, cells: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of a line: the headings, and those that OSU left out of them."""
        if len(cells) == len(self.columns):
            return self.columns
        for added in product(
            *(((), names) for names in (FULL.get(self.quantity, ()), VALIDATION, TAILS))
        ):
            names = dict.fromkeys((*self.columns, *chain(*added)))
            columns = tuple(
                sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
            )
            if len(columns) == len(cells) and all(
                re.fullmatch(FORMS.get(name, r"\d+\.\d+"), cell)
                for name, cell in zip(columns, cells, strict=True)
            ):
                return columns
        return self.columns

    def check(self, reported: Mapping[str, str], size: int, value: float) -> None:
        names = RANGES.get(self.quantity, ())
        if names and {*names} <= {*reported}:
            low, high = (read_cell(self.where, name, reported[name]) for name in names)
            self.check_between(self.quantity, value, low, high)
        rate = reported.get("Messages/s")
        if rate is not None:
            low, high = (
                max(0, value + error) * 1e6 / max(size, 1) for error in (-ROUNDING, ROUNDING)
            )
            self.check_between(
                "Messages/s", read_cell(self.where, "Messages/s", rate), low, high, slack=SLACK
            )

    def test_quantities(self, test: MpiBenchmark) -> tuple[str, ...]:
        if self.form == "nonblocking":
            return ("Pure Comm.",)
        if test.function or test.algorithm != NATIVE:
            return "Avg Latency", "Latency"
        return ("",) if test.collective == "multi_pair" else ("Bandwidth",)

    def ranks_of(self, test: MpiBenchmark) -> int:
        """Return the ranks of a test: point to point has two of them, or two of each pair."""
        if test.collective in ("send_recv", "bidirectional"):
            return 2
        if self.pairs:
            return 2 * self.pairs
        ranks, _ = self.supplied.need_place("OSU")
        return ranks
