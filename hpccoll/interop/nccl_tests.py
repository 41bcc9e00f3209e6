"""Output of nccl-tests and of rccl-tests, its version for AMD's GPUs: the table on stdout, and the JSON of option -J.

Formats as in versions 2.0 to 2.19 of nccl-tests (src/common.cu, src/util.cu) and 2.17.9 of rccl-tests (src/common.cu):
columns are found by the headings, since earlier versions have fewer; rccl-tests may leave out a placement, and its
``-M`` adds columns. Sizes are S as ours counts it. The environment in the JSON is not kept: it may hold secrets.

Each run of a file has its own header and devices. What an output says twice must agree: the bandwidths follow from
size, time, collective and ranks, and each process has as many ranks as the header says.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import AGGREGATED, SINGLE, Case
from hpccoll.cases.catalogue import GRAPH
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import RANKS, IntegerRange
from hpccoll.common.units import format_count
from hpccoll.interop.benchmark_output import (
    COUNT,
    NUMBER,
    BenchmarkOutput,
    ForeignResult,
    LineHandlers,
    LineParser,
    SuppliedMetadata,
)
from hpccoll.interop.printed_bandwidth import MEASURED, SINGLETONS, PrintedBandwidth, possible_ranks, read_number
from hpccoll.schedule import DTYPES
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.reduction import BFLOAT16, REDUCTIONS


@dataclass(frozen=True, slots=True)
class Suite:
    """One of the two suites.

    Args:
        source: its name, a key of ``SOURCES``.
        library: the library that it measures.
        transport: the transport of its cases.
        device: the device that holds their buffers.
    """

    source: str
    library: str
    transport: str
    device: str


NCCL_TESTS = Suite("nccl-tests", "NCCL", "nccl", "cuda")
RCCL_TESTS = Suite("rccl-tests", "RCCL", "rccl", "rocm")
SUITES = {"n": NCCL_TESTS, "r": RCCL_TESTS}
"""The suites by the first letter of their names."""

AMD_GPU = re.compile("AMD|Radeon|Instinct|Vega|gfx[0-9]")

PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "alltoall": "all_to_all",
}  # fmt: skip
"""The collective of each program."""
WITHOUT_COLLECTIVE = "sendrecv", "hypercube", "alltoallv"
"""The programs that measure what no collective of ours does."""

TYPES = {"half": "float16", "float": "float32", "double": "float64", "bfloat16": BFLOAT16} | {
    name: name for name in (*DTYPES, "int8", "uint8", "uint32", "uint64")
}
"""The types of elements, by nccl-tests' names; those with 8 bits of floating point have no name in ours."""

OUT_OF_PLACE, IN_PLACE = "out_of_place", "in_place"
SUFFIXES = {OUT_OF_PLACE: "", IN_PLACE: f" {IN_PLACE}"}
"""What follows the names of the columns of each placement."""


HEADER_DEFAULTS = {"agg iters": 1, "graph": 0, "unalign": 0}
"""Fields of the header line that say how operations run, by their values if no option was given."""
WITHOUT_EFFECT = {"nthread", "ngpus", "minbytes", "maxbytes", "step", "warmup iters", "iters", "validation"}
"""Fields of the header line that do not change what an operation is. Any other field becomes a parameter."""
OPTIONS = {
    "R": ("local_register", "0"), "D": ("device_implementation", "0"), "x": ("cta_policy", ""), "u": ("unalign", "0"),
    "y": ("stream_null", "0"), "a": ("average", "1"), "z": ("blocking", "01"),
}  # fmt: skip
"""Options that change what is measured, with the values that do not; only the command line in the JSON names them."""
BLOCKING = {"no barrier": 2, "outer iteration": 3}
"""The values of option -z, besides 1, by words of the line that says them."""
JSON_MEASURED = "time", "alg_bw", "bus_bw"
"""The keys of ``MEASURED`` in the JSON."""


def recognises_nccl_tests(text: str) -> bool:
    """Return whether a text is output of nccl-tests."""
    if text.lstrip()[:1] == "{":
        return '"nccl_version"' in text
    return re.search(r"^\s*# *(?:[nr]ccl-tests version|nThread \d|size +count +type)", text, re.MULTILINE) is not None


def nccl_version(code: int) -> str:
    """Return the version of a code of NCCL or RCCL: 22707 is 2.27.7, 2804 is 2.8.4."""
    hundreds = code // 100
    major, minor = divmod(hundreds, 100) if code >= 10_000 else divmod(hundreds, 10)
    return f"{major}.{minor}.{code % 100}"


@dataclass(frozen=True, slots=True)
class _Device:
    """A line of the list of devices."""

    rank: int
    group: str
    process: tuple[str, str]  # host and process id
    place: str  # its number, and its place on the bus with the domain; empty if the line does not say it


@dataclass(frozen=True, slots=True)
class _Result:
    """A result of a run.

    Args:
        where: its place.
        placement: ``OUT_OF_PLACE`` or ``IN_PLACE``.
        row: the cells that both placements share: size, type, redop and root.
        values: the cells ``MEASURED`` of its placement, and ``#wrong``.
        reported: all cells, as printed.
    """

    where: str
    placement: str
    row: Mapping[str, str]
    values: Mapping[str, str]
    reported: Mapping[str, str]


@dataclass(slots=True)
class _Run:
    """What an output says of one run, which has one header, one list of devices and one table."""

    where: str
    library: str | None
    suite: Suite = NCCL_TESTS
    version: str = ""
    collective: str = ""
    timing: str = AGGREGATED
    params: dict[str, int] = field(default_factory=dict)
    per_process: int | None = None
    devices: list[_Device] = field(default_factory=list)
    placements: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    results: list[_Result] = field(default_factory=list)
    failed: int = 0  # wrong elements of all results
    stage: int = 0
    named: str = ""  # the program that lines above the run name
    left_out: bool = False
    ended: bool = False


VERSION, STARTING, SETTINGS, DEVICES, TABLE = range(1, 6)
"""The parts of a run, in their order: a part that comes again, or after a later one, begins the next run."""


def read_nccl_tests(path: Path, lines: Sequence[str], given: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of nccl-tests.

    Args:
        path: the path of the output, for messages.
        lines: its lines.
        given: the ranks and nodes, if the output does not list its devices; the library and the program likewise.

    Raises:
        BadInputError: for a program without a collective of ours, a result in another unit, a line that is cut, or
            ranks, devices and bandwidths that contradict each other.
    """
    output = BenchmarkOutput(
        source=NCCL_TESTS.source, program=NCCL_TESTS.source, ranks=0, nodes=0, library=given.library, truncated=True
    )  # fmt: skip
    if "".join(lines[:1]).lstrip()[:1] == "{":
        _read_json(path, "".join(lines), output, given)
    else:
        _NcclTestsParser(path, output, given).parse(lines)
    return output


class _NcclTestsParser(LineParser):
    """The parser of the tables on stdout."""

    def __init__(self, path: Path, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
        super().__init__(path, output)
        self.given = given
        self.run = _Run(str(path), given.library)
        self.named: set[str] = set()  # the programs that lines since the last run name, such as its command
        self.runs: list[_Run] = []  # those before, with results

    handlers = LineHandlers()

    def parse(self, lines: Iterable[str]) -> None:
        super().parse(line.expandtabs() for line in lines)
        self._end_run()
        if (singles := sum(len(run.devices) == 1 for run in self.runs)) > 1:
            raise BadInputError("FILE", str(self.path), _processes(singles, 1))
        identities = dict.fromkeys((run.suite, run.version, run.library) for run in self.runs)
        if len(identities) > 1:
            versions = ", ".join(f"{suite.source} {version} ({library})" for suite, version, library in identities)
            raise UnusableError("FILE", f"{self.path} has runs of {versions}; import each by itself")
        for suite, version, library in identities:
            self.output.source, self.output.library = suite.source, library
            self.output.program = f"{suite.source} {version}".rstrip()
        self.output.truncated = not all(run.ended for run in self.runs)
        for run in self.runs:
            _add_run(self.path, run, self.output, self.given)

    def _enter(self, part: int) -> None:
        """Enter a part of a run, which may be the next run."""
        if part < self.run.stage or part == self.run.stage != DEVICES:
            self._end_run()
        if not self.run.stage:
            self.run.where = self.where
            self.run.named = self.named.pop() if len(self.named) == 1 else ""
            self.named.clear()
            if self.run.named in WITHOUT_COLLECTIVE:
                self.leave_out(self.run.named)
        self.run.stage = part

    def leave_out(self, program: str) -> None:
        """Leave the run out, with a remark."""
        self.run.left_out = True
        self.output.remarks.append(f"{self.where}: {program} is left out: ours has nothing like it")

    def _end_run(self) -> None:
        run, self.run = self.run, _Run(self.where, self.given.library)
        if run.left_out:
            return
        if run.results:
            self.runs.append(run)
        elif run.devices:
            self.output.remarks.append(f"{run.where}: the run that begins here has no result")

    @handlers.line(r"# ?([nr])ccl-tests version +(\S+)(.*)")
    def set_version(self, found: re.Match[str]) -> None:
        self._enter(VERSION)
        self.run.suite, self.run.version = SUITES[found[1]], found[2]
        if library := re.search(r"ccl-library=([0-9]+(?:\.[0-9]+)+|[0-9]{1,9})\b", found[3]):
            version = library[1] if "." in library[1] else nccl_version(int(library[1]))
            self.run.library = f"{self.run.suite.library} {version}"
        else:
            self.output.remarks.append(f"{self.where} does not say the version of the library: {found[0]}")

    @handlers.line(r"rccl-tests: Version (\S+)")
    def set_rccl_version(self, found: re.Match[str]) -> None:
        self.run.suite, self.run.version = RCCL_TESTS, found[1]

    @handlers.line(r"(?:\S+ \[\d+\] NCCL INFO )?([NR])CCL version *:? +([0-9]+(?:\.[0-9]+)+).*")
    def set_library(self, found: re.Match[str]) -> None:
        if found[1] == "R":
            self.run.suite = RCCL_TESTS
        self.run.library = f"{self.run.suite.library} {found[2]}"

    @handlers.line(r"(?:\[[^]]*\] ?)?[\w.-]+:\d+:\d+ \[-?\d+\].* NCCL [A-Z]+ .*")
    def skip_log(self, line: re.Match[str]) -> None:
        self.remark(line)  # the name of a host may begin with a digit

    @handlers.line(r"(?:HIP version|ROCm version|Hostname|Librccl path) *: .*")
    def skip_rocm(self, _line: re.Match[str]) -> None:
        """Skip what RCCL says of its installation."""

    @handlers.line(r"# *Collective test starting: *(\S+)")
    def set_program(self, found: re.Match[str]) -> None:
        self._enter(STARTING)
        if _program(found[1]) in WITHOUT_COLLECTIVE:
            self.leave_out(found[1])
        else:
            self.run.collective = collective_of(self.where, found[1])

    @handlers.line(r"# *nThread +\d+ +nGpus +\d+ .*")
    def set_settings(self, found: re.Match[str]) -> None:
        self._enter(SETTINGS)
        fields = {
            name.lower(): int(value)
            for name, value in re.findall(r"([A-Za-z_]+(?: [A-Za-z_]+)*):? +(-?[0-9]{1,18})\b", found[0])
        }
        self.run.per_process = fields["nthread"] * fields["ngpus"]
        self.run.params |= _header_params(fields)

    @handlers.line(r"# *Blocking Enabled: (.*)")
    def set_blocking(self, found: re.Match[str]) -> None:
        self.run.timing = SINGLE
        if mode := next((mode for words, mode in BLOCKING.items() if words in found[1]), 0):
            self.run.params["blocking"] = mode

    @handlers.line(r"# *Rank +(\d{1,9}) +(?:Group +(\d+) +)?Pid +(\d+) +on +(\S+) +device +(\d+) *(?:\[([^]]*)\])?(.*)")
    def add_device(self, found: re.Match[str]) -> None:
        self._enter(DEVICES)
        place = f"{found[5]} {found[6]}" if ":" in (found[6] or "") else ""
        self.run.devices.append(_Device(int(found[1]), found[2] or "0", (found[4], found[3]), place))
        if AMD_GPU.search(found[7]):
            self.run.suite = RCCL_TESTS

    @handlers.line(r"# *Rank\b.*")
    def refuse_device(self, found: re.Match[str]) -> None:
        if not self.given.whole_place:
            raise self.error(
                found[0], "a whole line of the list of devices (rank, process id, host, device), or --ranks and --nodes"
            )
        self.remark(found)

    @handlers.line(r"# *(?:out-of|in)-place.*")
    def set_placements(self, found: re.Match[str]) -> None:
        self.run.placements = tuple(word.replace("-", "_") for word in re.findall(r"(?:out-of|in)-place", found[0]))

    @handlers.line(r"# *size +count +type .*")
    def set_columns(self, found: re.Match[str]) -> None:
        _check_devices(self.run, self.given)
        if self.run.stage == TABLE:
            raise self.error(found[0], f"one table in a run: these are several processes, each {SINGLETONS}")
        self.run.stage = TABLE
        names = found[0].lstrip("# ").split()
        if "cputime" in names:
            raise self.error("cputime", "time: the option -C measures the CPU, not the operation")
        # Without the line above, both have the order that all versions print.
        placements = self.run.placements or (tuple(SUFFIXES) if names.count("time") > 1 else ())
        if not placements:
            raise self.error(found[0], "the line above the headings that says the placement: out-of-place, in-place")
        if any(names.count(one) != len(placements) for one in MEASURED):
            raise self.error(found[0], f"columns {', '.join(MEASURED)} for each placement")
        placed = [SUFFIXES[placement] for placement in placements]
        before = [names[: position + 1].count("time") for position in range(len(names))]
        columns = [f"{name}{placed[times - 1] if times else ''}" for name, times in zip(names, before, strict=True)]
        if names[-1] == "timestamp":  # one heading, of a date and a time of day
            columns[-1:] = "date", "time of day"
        self.run.columns = tuple(columns)

    @handlers.line(r"# *\((?!elements).*")
    def check_units(self, found: re.Match[str]) -> None:
        sizes, _, times, *_ = *found[0].lstrip("# ").split(), "", "", ""
        if sizes != "(B)" or times != "(us)":
            raise self.error(found[0], "units (B), (elements), (us)")

    @handlers.line(r"#? *Out of bounds values *: *([0-9]{1,18}) FAILED")  # without # in the first versions
    def set_failed(self, found: re.Match[str]) -> None:
        self.run.failed = int(found[1])

    @handlers.line(r"# *Errors with asterisks .*")  # of rccl-tests only
    def set_rccl(self, _line: re.Match[str]) -> None:
        self.run.suite = RCCL_TESTS

    @handlers.line(r"# *Avg bus bandwidth\b.*")
    def end(self, _line: re.Match[str]) -> None:
        self.run.ended, self.run.columns = True, ()

    @handlers.line(r"#.*")
    def skip(self, _comment: re.Match[str]) -> None:
        """Skip what nccl-tests says besides."""

    @handlers.line(r"\D.*_perf\b.*|\D.*_perf_.*")
    def set_name(self, line: re.Match[str]) -> None:
        self.named |= {*re.findall(r"(?<![a-z_])([a-z_]+?)_perf", line[0])} & {*PROGRAMS, *WITHOUT_COLLECTIVE}
        self.remark(line)

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if self.run.left_out:
            return
        if self.run.columns:
            row = self.row(_with_reduction(line[0], self.run.columns), self.run.columns)
            for placement, suffix in SUFFIXES.items():
                values = {name: row.get(f"{name}{suffix}", "N/A") for name in (*MEASURED, "#wrong")}
                if values["time"] != "N/A":
                    self.run.results.append(_Result(self.where, placement, row, values, row))
        else:
            self.remark(line)


def _with_reduction(line: str, columns: Sequence[str]) -> str:
    """Return a row with a cell of its reduction, which versions before 2.13.4 leave blank if there is none."""
    cells, at = line.split(), columns.index("redop") if "redop" in columns else 0
    if at and len(cells) == len(columns) - 1 and "none" not in cells and NUMBER.fullmatch(cells[at].lstrip("-")):
        cells.insert(at, "none")
    return " ".join(cells)


def _header_params(fields: Mapping[str, int]) -> dict[str, int]:
    """Return the parameters of the fields of a header: those that change what is measured, unless at the default."""
    params = {
        name.replace(" ", "_"): value
        for name, value in fields.items()
        if name not in WITHOUT_EFFECT and value != HEADER_DEFAULTS.get(name, 0)
    }
    return params | {GRAPH: 1} if params.get(GRAPH) else params  # the graph is the same however often it is launched


def _add_run(path: Path, run: _Run, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
    """Add the results of a run.

    Raises:
        BadInputError: if what the run says twice does not agree, or neither it nor the user names its program.
    """
    ranks, nodes, hosts = _place(path, run, output, given)
    output.add_launch(ranks, nodes, hosts)
    bandwidths = [PrintedBandwidth.read(one.where, one.row["size"], one.values) for one in run.results]
    said = collective_of("--program", given.program) if given.program else ""
    if run.collective and said not in ("", run.collective):
        raise BadInputError("--program", given.program, f"{run.collective}, which {path} says")
    name = run.collective or said
    named = PROGRAMS.get(run.named)
    if not name and named and not _contradiction(named, run, bandwidths, ranks):
        name = named
        output.remarks.append(f"{run.where}: its program is taken to be {run.named}_perf, which a line above it names")
    if not name:
        fitting = [one for one in PROGRAMS.values() if not _contradiction(one, run, bandwidths, ranks)]
        raise BadInputError(
            "--program", None, f"{path} does not name its program, which nccl-tests does from 2.17 on; its columns and "
            f"bandwidths are those of {' or '.join(fitting) or 'no collective of ours'}"
        )  # fmt: skip
    _check_ranks(path, run, name, bandwidths, ranks, given)
    if problem := _contradiction(name, run, bandwidths, ranks):
        where, found, expected = problem
        raise BadInputError(where if run.collective else f"--program {given.program}: {where}", found, expected)
    counts = [one.values["#wrong"] for one in run.results]
    # Versions before 2.13 print the largest error of each result, and only below the table whether it is too large.
    failure = None
    if run.failed and all(count in ("N/A", "0") for count in counts):
        failure = f"{run.failed} wrong elements in the results of the run, which does not say in which"
    for one, counted in zip(run.results, counts, strict=True):
        case = nccl_tests_case(
            output, one.where, name, one.row, one.placement, run.timing, run.suite, ranks, nodes, run.params
        )
        if case:
            seconds = read_number(one.where, "time", one.values["time"]) * 1e-6
            wrong = None if counted == "N/A" else int(read_number(one.where, "#wrong", counted))
            output.add(
                one.where,
                ForeignResult(case=case, seconds=seconds, reported=one.reported, wrong=wrong, failure=failure),
            )


def _contradiction(
    name: str, run: _Run, bandwidths: Sequence[PrintedBandwidth], ranks: int
) -> tuple[str, str, str] | None:
    """Return the place and value of what does not come from a collective, and what would; None if all does."""
    family = collective(name)
    for one in run.results:
        reduction, root = one.row.get("redop", "none"), one.row.get("root", "")
        if (reduction != "none") != family.has_op:
            return f"{one.where}: redop", reduction, f"{'a' if family.has_op else 'no'} reduction, as of {name}"
        if COUNT.fullmatch(root.lstrip("-")) and (int(root) >= 0) != family.rooted:
            return f"{one.where}: root", root, f"{'a' if family.rooted else 'no'} root, as of {name}"
    return next(filter(None, (one.problem(name, ranks) for one in bandwidths)), None)


def _check_ranks(
    path: Path, run: _Run, name: str, bandwidths: Sequence[PrintedBandwidth], ranks: int, given: SuppliedMetadata
) -> None:
    """Check the number of ranks against the bandwidths of the whole run.

    Raises:
        BadInputError: if the bandwidths are those of another number; or if they do not show the number, which is odd,
            or nodes have unequal numbers of ranks: a line of the list may be lost.
    """
    listed = len(run.devices)
    without_gaps = {device.rank for device in run.devices} == {*range(listed)}
    if _lines_are_lost(run, given) and without_gaps and listed in possible_ranks(name, listed, bandwidths):
        raise BadInputError("--ranks", given.ranks, f"{listed}, which {path} lists")
    possible = possible_ranks(name, ranks, bandwidths)
    if possible and ranks not in possible:
        raise BadInputError(
            run.where, format_count(ranks, "rank"), f"{possible[0]}, which follow from the bandwidths of this run (if "
            "lines of the list of devices are lost, say --ranks and --nodes)"
        )  # fmt: skip
    per_node = Counter(device.process[0] for device in run.devices)
    doubtful = len(set(per_node.values())) > 1 or ranks % 2 == 1
    if doubtful and len(possible) > 1 and given.ranks is None:
        raise BadInputError(
            "--ranks", None, f"{path} lists {format_count(ranks, 'rank')}, and its bandwidths do not show whether a "
            f"line of the list is lost: say --ranks {ranks} if none is"
        )  # fmt: skip


def nccl_tests_case(
    output: BenchmarkOutput,
    where: str,
    name: str,
    row: Mapping[str, str],
    placement: str,
    timing: str,
    suite: Suite,
    ranks: int,
    nodes: int,
    params: Mapping[str, int],
) -> Case | None:
    """Return the case of a result; None, and a remark, for a type or a reduction that ours has not.

    Args:
        output: the output that has the result, which gets the remark.
        where: the place of the result, for messages.
        name: the collective.
        row: the cells of the result: ``size``, ``type``, and ``redop`` and ``root`` where there is one.
        placement: ``OUT_OF_PLACE`` or ``IN_PLACE``.
        timing: what its time means.
        suite: the suite.
        ranks: the ranks of the run.
        nodes: the nodes of the run.
        params: the parameters of the run.

    Raises:
        BadInputError: if the size or the root is none.
    """
    family = collective(name)
    if not COUNT.fullmatch(row["size"]):
        raise BadInputError(where, row["size"], "a whole number as size")
    reduction = row["redop"] if family.has_op else None
    for word, known in ((row["type"], TYPES), (reduction, {*REDUCTIONS, None})):
        if word not in known:
            output.remarks.append(f"{where}, {placement}: {word} is left out: ours has nothing like it")
            return None
    root = row.get("root", "").strip()
    if not COUNT.fullmatch(root):
        root = "0"
    if family.rooted:
        IntegerRange(0, ranks - 1).check(f"{where}: root", int(root))
    return Case(
        collective=name, algorithm=NATIVE, transport=suite.transport, device=suite.device, dtype=TYPES[row["type"]],
        op=reduction, bytes=int(row["size"]), in_place=placement == IN_PLACE,
        root=int(root) if family.rooted else None, params=params, ranks=ranks, nodes=nodes, timing=timing,
    )  # fmt: skip


def collective_of(key: str, program: str) -> str:
    """Return the collective of a program, such as ``all_reduce_perf``.

    Args:
        key: the place of the name, or the option, for the message.
        program: its name, with or without a directory and ``_perf``.

    Raises:
        BadInputError: if it has none.
    """
    name = _program(program)
    if name not in PROGRAMS:
        raise BadInputError(key, program, f"one of {', '.join(f'{each}_perf' for each in PROGRAMS)}")
    return PROGRAMS[name]


def _program(word: str) -> str:
    """Return the name of a program without its directory, ``_perf`` and a suffix of the build, such as ``_mpi``."""
    return word.rpartition("/")[2].partition("_perf")[0]


def _check_devices(run: _Run, given: SuppliedMetadata) -> None:
    """Check that the list of devices has each rank once, and as many ranks of each process as the header says.

    Raises:
        BadInputError: if it does not.
    """
    numbers = sorted(device.rank for device in run.devices)
    if (processes := numbers.count(0)) > 1:
        raise BadInputError(run.where, "Rank 0", _processes(processes, len(numbers) // processes))
    if _lines_are_lost(run, given):
        return
    if numbers != [*range(len(numbers))]:
        listed = ", ".join(map(str, numbers[:8])) + ", ..." * (len(numbers) > 8)
        expected = "ranks 0 to n-1 in the list of devices, each once; or, if lines are lost, --ranks and --nodes"
        raise BadInputError(run.where, listed, expected)
    counts = Counter(device.process for device in run.devices)
    for (host, process), count in counts.items():
        if run.per_process not in (None, count):
            raise BadInputError(
                run.where, f"{format_count(count, 'device')} of process {process} on {host}",
                f"{run.per_process}, which are nThread times nGpus of the header",
            )  # fmt: skip


def _lines_are_lost(run: _Run, given: SuppliedMetadata) -> bool:
    """Return whether the list of devices lacks some that the user says."""
    ranks = {device.rank for device in run.devices}
    return given.whole_place and 0 < len(ranks) == len(run.devices) < (given.ranks or 0)


def _processes(count: int, ranks: int) -> str:
    return f"output of one run; these are {count} processes of {format_count(ranks, 'rank')} each, {SINGLETONS}"


def _place(path: Path, run: _Run, output: BenchmarkOutput, given: SuppliedMetadata) -> tuple[int, int, tuple[str, ...]]:
    """Return the ranks, nodes and hosts of a run; of its first group, since groups run the collective at one time.

    Raises:
        BadInputError: if neither the run nor the user says them, the two contradict each other, or ranks of the list
            of devices are lost or come twice.
    """
    if not run.devices or _lines_are_lost(run, given):
        return given.need("ranks", output.source), given.need("nodes", output.source), ()
    first = [device for device in run.devices if device.group == run.devices[0].group]
    hosts = tuple(dict.fromkeys(device.process[0] for device in first))
    ranks, nodes = len(first), len(hosts)
    places = Counter((device.process[0], device.place) for device in first if device.place)
    if places and max(places.values()) > 1:  # hosts of one name, or ranks that share a GPU
        nodes, hosts = given.nodes or 0, ()
        if not nodes:
            host = places.most_common(1)[0][0][0]
            raise BadInputError(
                "--nodes", None, f"several ranks have the same GPU of {host}, or several hosts this name: say it"
            )
    for name, count in (("ranks", ranks), ("nodes", nodes)):
        if getattr(given, name) not in (None, count):
            raise BadInputError(f"--{name}", getattr(given, name), f"{count}, which {path} lists")
    if (groups := len({device.group for device in run.devices})) > 1:
        output.remarks.append(f"{run.where}: {groups} groups of ranks ran at once; the results are of the first one")
    return ranks, nodes, hosts


def _read_json(path: Path, text: str, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
    try:
        content = parse_json(text)
    except ValueError as error:
        raise BadInputError("FILE", str(path), f"whole JSON of nccl-tests ({error})") from None
    try:
        _add_json(path, content, output, given)
    except BadInputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadInputError("FILE", str(path), f"JSON as nccl-tests writes it ({reason})") from None


def _add_json(path: Path, content: Any, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
    """Add the results of the JSON, as those of a table."""
    config, arguments = content["config"], [str(each) for each in content["args"]]
    suite = (
        RCCL_TESTS if any(AMD_GPU.search(str(each.get("device_info"))) for each in config["devices"]) else NCCL_TESTS
    )
    output.source = output.program = suite.source
    output.library = f"{suite.library} {nccl_version(int(content['nccl_version']))}"
    output.truncated = "average_bus_bandwidth" not in content
    run = _Run(str(path), output.library, suite, collective=collective_of(str(path), arguments[0]))
    run.per_process = per_process = int(config["nthreads"]) * int(config["ngpus"])
    fields = {"graph": int(config.get("graph", 0)), "agg iters": int(config.get("aggregated_iterations", 1))}
    run.params = _header_params(fields) | _options(" ".join(arguments[1:]))
    if str(config.get("blocking_collectives")).lower() == "true":
        run.timing = SINGLE
    # A process lists its first device only, whichever number of threads and devices it has.
    RANKS.check(f"{path}: devices", per_process * len(config["devices"]))
    for each in config["devices"]:
        process, place = (str(each["hostname"]), str(each["pid"])), f"{each['device']} {each['device_hex']}"
        run.devices += [
            _Device(int(each["rank"]) + index, str(each["group"]), process, "" if index else place)
            for index in range(per_process)
        ]
    for position, row in enumerate(content["results"], 1):
        where = f"{path}: result {position}"
        cells = {key: str(row[key]).strip() for key in ("size", "count", "type", "redop", "root")}
        for placement in SUFFIXES:
            if (values := row.get(placement)) is None:
                continue
            if "time" not in values:
                raise BadInputError(where, "cpu_time", "time: the option -C measures the CPU, not the operation")
            statistics = (row.get(f"{placement}_per_iter") or {}).items()
            reported = {**cells, **{key: str(value) for key, value in (*values.items(), *statistics)
                                    if not isinstance(value, list)}}  # fmt: skip
            wrong = values.get("nwrong")
            measured = {name: str(values[key]) for name, key in zip(MEASURED, JSON_MEASURED, strict=True)}
            measured["#wrong"] = "N/A" if wrong is None else str(wrong)
            run.results.append(_Result(where, placement, cells, measured, reported))
    _check_devices(run, given)
    _add_run(path, run, output, given)


def _options(arguments: str) -> dict[str, int]:
    """Return the parameters of the options that only the command line names, unless at the default."""
    params = {}
    for letter, (name, defaults) in OPTIONS.items():
        values = re.findall(rf"(?:^| )(?:-{letter} ?|--{name}[= ])([0-9]{{1,9}})\b", arguments)
        if values and values[-1] not in defaults:
            params[name] = int(values[-1])
    return params
