"""Output of nccl-tests and of rccl-tests, its version for AMD's GPUs: the table on stdout, and the JSON of option -J.

Formats as in versions 2.0 to 2.19 of nccl-tests (src/common.cu, src/util.cu) and 2.17.9 of
rccl-tests (src/common.cu): columns are found by the headings, since earlier versions have fewer;
rccl-tests may leave out a placement, and its ``-M`` adds columns. Sizes are S as ours counts it.

Each run of a file has its own header and devices.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from pathlib import Path
from typing import Any

from hpccoll.cases.case import SINGLE
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import RANKS
from hpccoll.host.env_allowlist import is_allowed
from hpccoll.interop.benchmark_output import (
    NUMBER,
    BenchmarkOutput,
    LineHandlers,
    LineParser,
    SuppliedMetadata,
    read_cell,
    read_count,
)
from hpccoll.interop.nccl_tests_consistency import (
    AMD_GPU,
    NCCL_TESTS,
    OUT_OF_PLACE,
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
    nccl_version_text,
    program_name,
    reliability,
    several_processes,
)
from hpccoll.interop.printed_bandwidth import MEASURED, SINGLETONS

BLOCKING = {"no barrier": 2, "outer iteration": 3}
"""The values of option -z, besides 1, by words of the line that says them."""
VERSION, STARTING, SETTINGS, DEVICES, TABLE = range(1, 6)
"""The parts of a run, in their order: a part that comes again, or after a later one, begins the next run."""
OPTIONS = {
    "R": ("local_register", "0"), "D": ("device_implementation", "0"), "x": ("cta_policy", ""), "u": ("unalign", "0"),
    "y": ("stream_null", "0"), "a": ("average", "1"), "z": ("blocking", "01"),
}  # fmt: skip
"""Options that change what is measured, with the values that do not; only the command line in the JSON names them."""
JSON_HEADER = {
    "graph": "graph",
    "agg iters": "aggregated_iterations",
    "warmup iters": "warmup_iters",
    "iters": "iterations",
    "validation": "validation",
}
"""The keys of the JSON, by the fields of the header line that they are."""
JSON_MEASURED = "time", "alg_bw", "bus_bw"
"""The keys of ``MEASURED`` in the JSON."""

NCCL_TESTS_SIGN = re.compile(
    r'\A\s*\{(?s:.*)"nccl_version"|'
    r"\A(?!\s*\{)(?s:.*?)^\s*# *(?:[nr]ccl-tests version|nThread \d|size +count +type)",
    re.MULTILINE,
)
"""What every output of nccl-tests has, the JSON and the table."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """What a program measured between two nodes."""

    bytes: int
    seconds: float
    wrong: int  # elements of all results
    library: str  # with its version where the output says it


def read_nccl_tests(
    path: Path, lines: Sequence[str], supplied: SuppliedMetadata
) -> BenchmarkOutput:
    """Return the results of an output of nccl-tests; BadInputError for what could be misread or contradicts itself."""
    output = BenchmarkOutput(
        source=NCCL_TESTS.source,
        program=NCCL_TESTS.source,
        ranks=0,
        nodes=0,
        library=supplied.library,
    )
    for run in _read_runs(path, lines, output, supplied, only_ours=True):
        add_run(path, run, output, supplied)
    return output


def read_pair(path: Path, text: str) -> PairResult:
    """Return what a program measured between one GPU on each of two hosts: its largest size, preferably out of place.

    Args:
        path: names the output in messages.
        text: the output of a program, also of one that measures what no collective of ours does,
            such as sendrecv_perf.

    Raises:
        BadInputError: if there is no result, or the output is not of two hosts, or cannot be read.
    """
    output = BenchmarkOutput(source=NCCL_TESTS.source, program="", ranks=0, nodes=0)
    runs = _read_runs(
        path, text.splitlines(keepends=True), output, SuppliedMetadata(), only_ours=False
    )
    if not runs or not runs[-1].results:
        raise UnusableError(str(path), "the output has no result of nccl-tests")
    run = runs[-1]
    hosts = {device.process[0] for device in run.devices}
    if len(run.devices) != 2 or len(hosts) != 2:
        places = (
            ", ".join(f"rank {device.rank} on {device.process[0]}" for device in run.devices)
            or "none"
        )
        raise UnusableError(
            str(path), f"the ranks are {places}; needed: one rank with one GPU on each of two hosts"
        )
    wrong = 0
    for result in run.results:
        count = result.values["#wrong"]
        if count != "N/A":
            wrong += int(read_cell(run.where, "#wrong", count))

    def precedence(result: PrintedResult) -> tuple[int, bool]:
        return _size_of(result), result.placement == OUT_OF_PLACE

    largest = max(run.results, key=precedence)
    size = _size_of(largest)
    seconds = read_cell(largest.where, "time", largest.values["time"]) * 1e-6
    if not seconds:
        raise UnusableError(str(path), f"the time of {size} bytes is 0: give larger ones (-b, -e)")
    return PairResult(size, seconds, max(wrong, run.failed), run.library or run.suite.library)


def _size_of(result: PrintedResult) -> int:
    return read_count(result.where, "size", result.row["size"])


def _read_runs(
    path: Path,
    lines: Sequence[str],
    output: BenchmarkOutput,
    supplied: SuppliedMetadata,
    *,
    only_ours: bool,
) -> Sequence[PrintedRun]:
    """Return the runs, and add to ``output`` what it says of all of them.

    With ``only_ours``, runs are left out that no collective of ours corresponds to.
    """
    text = "".join(lines)
    if not text.lstrip().startswith("{"):
        parser_class = _NcclTestsParser if only_ours else _AnyProgramParser
        parser = parser_class(path, output, supplied)
        parser.parse(lines)
        return parser.runs
    try:
        return [_json_run(path, _parse_results(text), output, supplied, only_ours=only_ours)]
    except BadInputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadInputError(
            "FILE", str(path), f"whole JSON as nccl-tests writes it ({reason})"
        ) from None


_RESULTS = re.compile(r'"results"\s*:\s*\[')


def _parse_results(text: str) -> Any:
    """Return the JSON of an output; of one that a time limit cut, which is written row by row, the whole results.

    Raises:
        ValueError: if the text is not JSON, and is not cut behind the beginning of its results.
    """
    try:
        return parse_json(text)
    except ValueError:
        begin = _RESULTS.search(text)
        if begin is None:
            raise
    content = parse_json(f"{text[: begin.end()]}]}}")
    rest = text[begin.end() :].lstrip()
    decoder = JSONDecoder()
    while rest.startswith("{"):
        try:
            result, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            break
        content["results"].append(result)
        rest = rest[end:].lstrip().removeprefix(",").lstrip()
    return content


class _NcclTestsParser(LineParser):
    """The parser of the tables on stdout."""

    def __init__(self, path: Path, output: BenchmarkOutput, supplied: SuppliedMetadata) -> None:
        super().__init__(path, output, supplied)
        self.run = PrintedRun(str(path), supplied.library)
        # the programs that lines since the last run name, such as its command
        self.named: set[str] = set()
        self.runs: list[PrintedRun] = []  # those before, with results

    handlers = LineHandlers()

    def parse(self, lines: Iterable[str]) -> None:
        super().parse(lines)
        self._end_run()
        singles = sum(len(run.devices) == 1 for run in self.runs)
        if singles > 1:
            raise BadInputError("FILE", str(self.path), several_processes(singles, 1))
        identities = dict.fromkeys((run.suite, run.version, run.library) for run in self.runs)
        if len(identities) > 1:
            versions = ", ".join(
                f"{suite.source} {version} ({library})" for suite, version, library in identities
            )
            raise UnusableError(
                "FILE", f"{self.path} has runs of {versions}; import them separately"
            )
        for suite, version, library in identities:
            self.output.source = suite.source
            self.output.library = library
            self.output.program = f"{suite.source} {version}".rstrip()
        self.output.truncated |= not all(run.ended for run in self.runs)

    def prepare(self, line: str) -> str:
        return line.expandtabs()

    def _enter(self, part: int) -> None:
        if part < self.run.stage or part == self.run.stage != DEVICES:
            self._end_run()
        if not self.run.stage:
            self.run.where = self.where
            self.run.named = ""
            if len(self.named) == 1:
                self.run.named = self.named.pop()
            self.named.clear()
            if self.run.named in WITHOUT_COLLECTIVE:
                self.leave_out(self.run.named)
        self.run.stage = part

    def leave_out(self, program: str) -> None:
        self.run.left_out = True
        self.output.remarks.append(f"{self.where}: {program} is left out: ours has nothing like it")

    def _end_run(self) -> None:
        run = self.run
        self.run = PrintedRun(self.where, self.supplied.library)
        if run.left_out:
            return
        if run.results:
            self.runs.append(run)
        elif run.devices:
            self.output.remarks.append(f"{run.where}: the run that begins here has no result")

    @handlers.line(r"# ?([nr])ccl-tests version +(\S+)(.*)")
    def set_version(self, line: re.Match[str]) -> None:
        self._enter(VERSION)
        self.run.suite = SUITES[line[1]]
        self.run.version = line[2]
        library = re.search(r"ccl-library=([0-9]+(?:\.[0-9]+)+|[0-9]{1,9})\b", line[3])
        if library is None:
            self.output.remarks.append(
                f"{self.where} does not say the version of the library: {line[0]}"
            )
            return
        version = library[1]
        if "." not in version:
            version = nccl_version_text(int(version))
        self.run.library = f"{self.run.suite.library} {version}"

    @handlers.line(r"rccl-tests: Version (\S+)")
    def set_rccl_version(self, line: re.Match[str]) -> None:
        self.run.suite = RCCL_TESTS
        self.run.version = line[1]

    @handlers.line(r"(?:\S+ \[\d+\] NCCL INFO )?([NR])CCL version *:? +([0-9]+(?:\.[0-9]+)+).*")
    def set_library(self, line: re.Match[str]) -> None:
        if line[1] == "R":
            self.run.suite = RCCL_TESTS
        self.run.library = f"{self.run.suite.library} {line[2]}"

    # a host may begin with a digit
    handlers.remark(r"(?:\[[^]]*\] ?)?[\w.-]+:\d+:\d+ \[-?\d+\].* NCCL [A-Z]+ .*")

    handlers.skip(r"(?:HIP version|ROCm version|Hostname|Librccl path) *: .*")

    @handlers.line(r"# *Collective test starting: *(\S+)")
    def set_program(self, line: re.Match[str]) -> None:
        self._enter(STARTING)
        program = line[1]
        if program_name(program) in WITHOUT_COLLECTIVE:
            self.leave_out(program)
        else:
            self.run.collective = collective_of(self.where, program)

    @handlers.line(r"# *nThread +\d+ +nGpus +\d+ .*")
    def set_settings(self, line: re.Match[str]) -> None:
        self._enter(SETTINGS)
        settings = re.findall(r"([A-Za-z_]+(?: [A-Za-z_]+)*):? +(-?[0-9]{1,18})\b", line[0])
        fields = {name.lower(): int(value) for name, value in settings}
        self.run.per_process = fields["nthread"] * fields["ngpus"]
        self.run.params |= header_params(fields)
        self.run.header = reliability(fields)

    @handlers.line(r"# *Blocking Enabled: (.*)")
    def set_blocking(self, line: re.Match[str]) -> None:
        self.run.timing = SINGLE
        for words, mode in BLOCKING.items():
            if words in line[1]:
                self.run.params["blocking"] = mode
                return

    @handlers.line(
        r"# *Rank +(\d{1,9}) +(?:Group +(\d+) +)?Pid +(\d+) +on +(\S+) +device +(\d+) *(?:\[([^]]*)\])?(.*)"
    )
    def add_device(self, line: re.Match[str]) -> None:
        self._enter(DEVICES)
        rank, group, process_id, host, device, bus_address, name = line.groups()
        place = ""
        if ":" in (bus_address or ""):
            place = f"{device} {bus_address}"
        self.run.devices.append(ListedDevice(int(rank), group or "0", (host, process_id), place))
        self.output.device_names.add(name.strip())
        if AMD_GPU.search(name):
            self.run.suite = RCCL_TESTS

    @handlers.line(r"# *Rank\b.*")
    def refuse_device(self, line: re.Match[str]) -> None:
        if not self.supplied.whole_place:
            raise self.error(
                line[0],
                "a whole line of the list of devices (rank, process id, host, device), or --ranks and --nodes",
            )
        self.remark(line[0])

    @handlers.line(r"# *(?:out-of|in)-place.*")
    def set_placements(self, line: re.Match[str]) -> None:
        words = re.findall(r"(?:out-of|in)-place", line[0])
        self.run.placements = tuple(word.replace("-", "_") for word in words)

    @handlers.line(r"# *size +count +type .*")
    def set_columns(self, line: re.Match[str]) -> None:
        check_devices(self.run, self.supplied)
        if self.run.stage == TABLE:
            raise self.error(
                line[0], f"one table in a run: these are several processes, each {SINGLETONS}"
            )
        self.run.stage = TABLE
        names = line[0].lstrip("# ").split()
        if "cputime" in names:
            raise self.error("cputime", "time: the option -C measures the CPU, not the operation")
        placements = self.run.placements
        if not placements and names.count("time") > 1:
            # without the line above, both have the order that all versions print
            placements = tuple(SUFFIXES)
        if not placements:
            raise self.error(
                line[0],
                "the line above the headings that says the placement: out-of-place, in-place",
            )
        if any(names.count(column) != len(placements) for column in MEASURED):
            raise self.error(line[0], f"columns {', '.join(MEASURED)} for each placement")
        suffixes = iter([SUFFIXES[placement] for placement in placements])
        suffix = ""
        columns = []
        for name in names:
            if name == "time":  # the first column of each placement
                suffix = next(suffixes)
            columns.append(f"{name}{suffix}")
        if names[-1] == "timestamp":  # one heading, of a date and a time of day
            columns[-1:] = "date", "time of day"
        self.run.columns = tuple(columns)

    @handlers.line(r"# *\((?!elements).*")
    def check_units(self, line: re.Match[str]) -> None:
        units = line[0].lstrip("# ").split()
        if units[:1] != ["(B)"] or units[2:3] != ["(us)"]:
            raise self.error(line[0], "units (B), (elements), (us)")

    # without # in the first versions
    @handlers.line(r"#? *Out of bounds values *: *([0-9]{1,18}) FAILED")
    def set_failed(self, line: re.Match[str]) -> None:
        self.run.failed = int(line[1])

    @handlers.line(r"# *Errors with asterisks .*")  # of rccl-tests only
    def set_rccl(self, _line: re.Match[str]) -> None:
        self.run.suite = RCCL_TESTS

    @handlers.line(r"# *Avg bus bandwidth\b.*")
    def end(self, _line: re.Match[str]) -> None:
        self.run.ended = True
        self.run.columns = ()

    handlers.skip(r"#.*")

    @handlers.line(r"\D.*_perf\b.*|\D.*_perf_.*")
    def set_name(self, line: re.Match[str]) -> None:
        programs = {*PROGRAMS, *WITHOUT_COLLECTIVE}
        names = re.findall(r"(?<![a-z_])([a-z_]+?)_perf", line[0])
        self.named |= programs.intersection(names)
        self.remark(line[0])

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if self.run.left_out:
            return
        if not self.run.columns:
            self.remark(line[0])
            return
        row = self.row(_with_reduction(line[0], self.run.columns), self.run.columns)
        for placement, suffix in SUFFIXES.items():
            values = {name: row.get(f"{name}{suffix}", "N/A") for name in (*MEASURED, "#wrong")}
            if values["time"] != "N/A":
                self.run.results.append(PrintedResult(self.where, placement, row, values, row))


def _with_reduction(line: str, columns: Sequence[str]) -> str:
    """Return a row with a cell of its reduction, which versions before 2.13.4 leave blank if there is none."""
    cells = line.split()
    is_one_short = len(cells) == len(columns) - 1
    if is_one_short and "redop" in columns[1:] and "none" not in cells:
        position = columns.index("redop")
        if NUMBER.fullmatch(cells[position].lstrip("-")):
            cells.insert(position, "none")
    return " ".join(cells)


class _AnyProgramParser(_NcclTestsParser):
    """The parser for which the program does not matter."""

    def leave_out(self, program: str) -> None:
        """Leave out no program."""

    def leave_out_cut_line(self, line: str) -> None:
        """Leave out no line: the last one is the largest size, which is the result between two nodes."""
        raise self.error(line, "a whole line; the output ends within it")


def _json_run(
    path: Path,
    content: Any,
    output: BenchmarkOutput,
    supplied: SuppliedMetadata,
    *,
    only_ours: bool,
) -> PrintedRun:
    """Return the run of the JSON; of its environment, which may hold secrets, only what the allow-list has."""
    config = content["config"]
    arguments = list(map(str, content["args"]))
    suite = NCCL_TESTS
    if any(AMD_GPU.search(str(device.get("device_info"))) for device in config["devices"]):
        suite = RCCL_TESTS
    output.source = output.program = suite.source
    output.library = f"{suite.library} {nccl_version_text(int(content['nccl_version']))}"
    output.truncated = "average_bus_bandwidth" not in content
    run = PrintedRun(str(path), output.library, suite)
    if only_ours:
        run.collective = collective_of(str(path), arguments[0])
    per_process = int(config["nthreads"]) * int(config["ngpus"])
    run.per_process = per_process
    fields = {words: int(config[key]) for words, key in JSON_HEADER.items() if key in config}
    run.header = reliability(fields)
    output.variables = _allowed_variables(map(str, content.get("env", ())))
    run.params = header_params(fields) | _options(" ".join(arguments[1:]))
    if str(config.get("blocking_collectives")).lower() == "true":
        run.timing = SINGLE
    # A process lists its first device only, whichever number of threads and devices it has.
    RANKS.check(f"{path}: devices", per_process * len(config["devices"]))
    output.device_names = {str(device.get("device_info", "")) for device in config["devices"]}
    for device in config["devices"]:
        run.devices += _devices_of_process(device, per_process)
    for position, row in enumerate(content["results"], 1):
        run.results += _json_results(f"{path}: result {position}", row)
    check_devices(run, supplied)
    return run


def _allowed_variables(environment: Iterable[str]) -> dict[str, str]:
    variables = {}
    for assignment in environment:
        name, _, value = assignment.partition("=")
        if is_allowed(name):
            variables[name] = value
    return variables


def _devices_of_process(first: Mapping[str, Any], count: int) -> Iterator[ListedDevice]:
    """Yield the devices of a process, which lists the first one of them."""
    process = str(first["hostname"]), str(first["pid"])
    place = f"{first['device']} {first['device_hex']}"
    for index in range(count):
        yield ListedDevice(
            int(first["rank"]) + index, str(first["group"]), process, "" if index else place
        )


def _json_results(where: str, row: Mapping[str, Any]) -> Iterator[PrintedResult]:
    """Yield the results of a size, one for each placement; BadInputError if they are times of the CPU."""
    cells = {key: str(row[key]).strip() for key in ("size", "count", "type", "redop", "root")}
    for placement in SUFFIXES:
        values = row.get(placement)
        if values is None:
            continue
        if "time" not in values:
            raise BadInputError(
                where, "cpu_time", "time: the option -C measures the CPU, not the operation"
            )
        reported = dict(cells)
        statistics = row.get(f"{placement}_per_iter") or {}
        for key, value in (*values.items(), *statistics.items()):
            if not isinstance(value, list):
                reported[key] = str(value)
        measured = {
            name: str(values[key]) for name, key in zip(MEASURED, JSON_MEASURED, strict=True)
        }
        wrong = values.get("nwrong")
        measured["#wrong"] = "N/A" if wrong is None else str(wrong)
        yield PrintedResult(where, placement, cells, measured, reported)


def _options(arguments: str) -> dict[str, int]:
    """Return the parameters of the options that only the command line names, unless at the default."""
    params = {}
    for letter, (name, defaults) in OPTIONS.items():
        values = re.findall(rf"(?:^| )(?:-{letter} ?|--{name}[= ])([0-9]{{1,9}})\b", arguments)
        if values and values[-1] not in defaults:
            params[name] = int(values[-1])
    return params
