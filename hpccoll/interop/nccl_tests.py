"""Output of nccl-tests and of rccl-tests, its version for AMD's GPUs: the table on stdout, and the JSON of option -J.

Formats as in versions 2.0 to 2.19 of nccl-tests (src/common.cu, src/util.cu) and 2.17.9 of rccl-tests (src/common.cu):
columns are found by the headings, since earlier versions have fewer; rccl-tests may leave out a placement, and its
``-M`` adds columns. Sizes are S as ours counts it.

Each run of a file has its own header and devices.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpccoll.cases.case import SINGLE
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.interop.benchmark_output import NUMBER, BenchmarkOutput, LineHandlers, LineParser, SuppliedMetadata
from hpccoll.interop.nccl_tests_json import read_nccl_tests_json
from hpccoll.interop.nccl_tests_run import (
    AMD_GPU,
    NCCL_TESTS,
    PROGRAMS,
    RCCL_TESTS,
    SUFFIXES,
    SUITES,
    WITHOUT_COLLECTIVE,
    ListedDevice,
    PrintedResult,
    PrintedRun,
    add_run,
    check_devices,
    collective_of,
    header_params,
    nccl_version,
    program_name,
    several_processes,
)
from hpccoll.interop.printed_bandwidth import MEASURED, SINGLETONS

BLOCKING = {"no barrier": 2, "outer iteration": 3}
"""The values of option -z, besides 1, by words of the line that says them."""
VERSION, STARTING, SETTINGS, DEVICES, TABLE = range(1, 6)
"""The parts of a run, in their order: a part that comes again, or after a later one, begins the next run."""


def recognises_nccl_tests(text: str) -> bool:
    """Return whether a text is output of nccl-tests."""
    if text.lstrip()[:1] == "{":
        return '"nccl_version"' in text
    return re.search(r"^\s*# *(?:[nr]ccl-tests version|nThread \d|size +count +type)", text, re.MULTILINE) is not None


def read_nccl_tests(path: Path, lines: Sequence[str], given: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of nccl-tests.

    Raises:
        BadInputError: for a program without a collective of ours, a result in another unit, a line that is cut, or
            ranks, devices and bandwidths that contradict each other.
    """
    output = BenchmarkOutput(
        source=NCCL_TESTS.source, program=NCCL_TESTS.source, ranks=0, nodes=0, library=given.library, truncated=True
    )  # fmt: skip
    if "".join(lines[:1]).lstrip()[:1] == "{":
        read_nccl_tests_json(path, "".join(lines), output, given)
    else:
        _NcclTestsParser(path, output, given).parse(lines)
    return output


class _NcclTestsParser(LineParser):
    """The parser of the tables on stdout."""

    def __init__(self, path: Path, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
        super().__init__(path, output)
        self.given = given
        self.run = PrintedRun(str(path), given.library)
        self.named: set[str] = set()  # the programs that lines since the last run name, such as its command
        self.runs: list[PrintedRun] = []  # those before, with results

    handlers = LineHandlers()

    def parse(self, lines: Iterable[str]) -> None:
        super().parse(line.expandtabs() for line in lines)
        self._end_run()
        if (singles := sum(len(run.devices) == 1 for run in self.runs)) > 1:
            raise BadInputError("FILE", str(self.path), several_processes(singles, 1))
        identities = dict.fromkeys((run.suite, run.version, run.library) for run in self.runs)
        if len(identities) > 1:
            versions = ", ".join(f"{suite.source} {version} ({library})" for suite, version, library in identities)
            raise UnusableError("FILE", f"{self.path} has runs of {versions}; import each by itself")
        for suite, version, library in identities:
            self.output.source, self.output.library = suite.source, library
            self.output.program = f"{suite.source} {version}".rstrip()
        self.output.truncated = not all(run.ended for run in self.runs)
        for run in self.runs:
            add_run(self.path, run, self.output, self.given)

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
        run, self.run = self.run, PrintedRun(self.where, self.given.library)
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
        if program_name(found[1]) in WITHOUT_COLLECTIVE:
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
        self.run.params |= header_params(fields)

    @handlers.line(r"# *Blocking Enabled: (.*)")
    def set_blocking(self, found: re.Match[str]) -> None:
        self.run.timing = SINGLE
        if mode := next((mode for words, mode in BLOCKING.items() if words in found[1]), 0):
            self.run.params["blocking"] = mode

    @handlers.line(r"# *Rank +(\d{1,9}) +(?:Group +(\d+) +)?Pid +(\d+) +on +(\S+) +device +(\d+) *(?:\[([^]]*)\])?(.*)")
    def add_device(self, found: re.Match[str]) -> None:
        self._enter(DEVICES)
        place = f"{found[5]} {found[6]}" if ":" in (found[6] or "") else ""
        self.run.devices.append(ListedDevice(int(found[1]), found[2] or "0", (found[4], found[3]), place))
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
        check_devices(self.run, self.given)
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
                    self.run.results.append(PrintedResult(self.where, placement, row, values, row))
        else:
            self.remark(line)


def _with_reduction(line: str, columns: Sequence[str]) -> str:
    """Return a row with a cell of its reduction, which versions before 2.13.4 leave blank if there is none."""
    cells, at = line.split(), columns.index("redop") if "redop" in columns else 0
    if at and len(cells) == len(columns) - 1 and "none" not in cells and NUMBER.fullmatch(cells[at].lstrip("-")):
        cells.insert(at, "none")
    return " ".join(cells)
