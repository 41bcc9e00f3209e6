"""Output of nccl-tests and of rccl-tests, its version for AMD's GPUs: the table on stdout, and the JSON of option -J.

Formats as in version 2.19 of nccl-tests (src/util.cu) and 2.17.9 of rccl-tests (src/common.cu): columns are found by
the headings, so that tables of earlier versions, which have fewer, are read as well; rccl-tests may leave out a
placement, and its ``-M`` adds columns. Sizes are S as ours counts it. The environment in the JSON is not kept: it may
hold secrets.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpccoll.errors import BadInputError
from hpccoll.files import parse_json
from hpccoll.interop.benchmark_output import (
    COUNT,
    BenchmarkOutput,
    ForeignResult,
    LineHandlers,
    LineParser,
    SuppliedMetadata,
)
from hpccoll.limits import RANKS, IntegerRange
from hpccoll.schedule import DTYPES
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.reduction import BFLOAT16, REDUCTIONS
from hpccoll.spec.algorithm_registry import collective
from hpccoll.spec.case import Case
from hpccoll.store.sources import BLOCKING_MEAN, QUEUE_MEAN


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

PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "alltoall": "all_to_all",
}  # fmt: skip
"""The collective of each program; sendrecv, hypercube and alltoallv have none that is like them."""

TYPES = {"half": "float16", "float": "float32", "double": "float64", "bfloat16": BFLOAT16} | {
    name: name for name in (*DTYPES, "int8", "uint8", "uint32", "uint64")
}
"""The types of elements, by nccl-tests' names; those with 8 bits of floating point have no name in ours."""

OUT_OF_PLACE, IN_PLACE = "out_of_place", "in_place"


def recognises_nccl_tests(text: str) -> bool:
    """Return whether a text is output of nccl-tests."""
    return (text.lstrip()[:1] == "{" and '"nccl_version"' in text) or ("in-place" in text and "#wrong" in text)


def nccl_version(code: int) -> str:
    """Return the version of a code of NCCL or RCCL: 22707 is 2.27.7, 2804 is 2.8.4."""
    hundreds = code // 100
    major, minor = divmod(hundreds, 100) if code >= 10_000 else divmod(hundreds, 10)
    return f"{major}.{minor}.{code % 100}"


def read_nccl_tests(path: Path, lines: Sequence[str], given: SuppliedMetadata) -> BenchmarkOutput:
    """Return the results of an output of nccl-tests.

    Args:
        path: the path of the output, for messages.
        lines: its lines.
        given: the ranks and nodes, where the output does not list its devices; the library likewise.

    Raises:
        BadInputError: for a program without a collective of ours, a result in another unit, or a line that is cut.
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
    """The parser of the table on stdout."""

    def __init__(self, path: Path, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
        super().__init__(path, output)
        self.given = given
        self.suite = NCCL_TESTS
        self.collective = ""
        self.timing = QUEUE_MEAN
        self.devices: list[tuple[str, str]] = []
        self.placements: tuple[str, ...] = ()
        self.columns: tuple[str, ...] = ()

    handlers = LineHandlers()

    @handlers.line(r"# ([nr])ccl-tests version (\S+) [nr]ccl-headers=[0-9]+ [nr]ccl-library=([0-9]{1,9})")
    def set_version(self, found: re.Match[str]) -> None:
        self._set_suite(SUITES[found[1]], found[2])
        self.output.library = f"{self.suite.library} {nccl_version(int(found[3]))}"

    @handlers.line(r"rccl-tests: Version (\S+)")
    def set_rccl_version(self, found: re.Match[str]) -> None:
        self._set_suite(RCCL_TESTS, found[1])

    @handlers.line(r"RCCL version *:? +([0-9]+(?:\.[0-9]+)+).*")
    def set_rccl(self, found: re.Match[str]) -> None:
        if self.suite is not RCCL_TESTS:
            self._set_suite(RCCL_TESTS, "")
        self.output.library = f"{RCCL_TESTS.library} {found[1]}"

    def _set_suite(self, suite: Suite, version: str) -> None:
        self.suite, self.output.source = suite, suite.source
        self.output.program = f"{suite.source} {version}".rstrip()

    @handlers.line(r"(?:HIP version|ROCm version|Hostname|Librccl path) *: .*")
    def skip_rocm(self, _line: re.Match[str]) -> None:
        """Skip what RCCL says of its installation."""

    @handlers.line(r"# Collective test starting: (\S+)")
    def set_program(self, found: re.Match[str]) -> None:
        self.collective = _collective(self.where, found[1])

    @handlers.line(r"# Blocking Enabled: .*")
    def set_blocking(self, _line: re.Match[str]) -> None:
        self.timing = BLOCKING_MEAN

    @handlers.line(r"#\s+Rank +\d+ (?:Group +(\d+) )?Pid +\d+ on +(\S+) device +\d+ (.*)")
    def add_device(self, found: re.Match[str]) -> None:
        self.devices.append((found[1] or "0", found[2]))
        if "AMD" in found[3] and self.suite is not RCCL_TESTS:
            self._set_suite(RCCL_TESTS, "")

    @handlers.line(r"# +(?:out-of|in)-place.*")
    def set_placements(self, found: re.Match[str]) -> None:
        self.placements = tuple(word.replace("-", "_") for word in re.findall(r"(?:out-of|in)-place", found[0]))

    @handlers.line(r"# +size +count +type .*")
    def set_columns(self, found: re.Match[str]) -> None:
        _set_place(self.output, self.path, self.devices, self.given)
        if not self.collective:
            raise BadInputError(
                "FILE", str(self.path), "output that names its program, which nccl-tests does from 2.17 on"
            )
        names = found[0].lstrip("# ").split()
        if "cputime" in names:
            raise self.error("cputime", "time: the option -C measures the CPU, not the operation")
        if not self.placements or names.count("time") != len(self.placements):
            raise self.error(found[0], "a column time for each placement")
        placed = ["" if placement == OUT_OF_PLACE else f" {IN_PLACE}" for placement in self.placements]
        before = [names[: position + 1].count("time") for position in range(len(names))]
        self.columns = tuple(
            f"{name}{placed[times - 1] if times else ''}" for name, times in zip(names, before, strict=True)
        )
        if names[-1] == "timestamp":  # one heading, of a date and a time of day
            self.columns = (*self.columns[:-1], "date", "time of day")

    @handlers.line(r"# +\((?!elements).*")
    def check_units(self, found: re.Match[str]) -> None:
        sizes, _, times, *_ = *found[0].lstrip("# ").split(), "", "", ""
        if sizes != "(B)" or times != "(us)":
            raise self.error(found[0], "units (B), (elements), (us)")

    @handlers.line(r"# Avg bus bandwidth .*")
    def end(self, _line: re.Match[str]) -> None:
        self.output.truncated = False

    @handlers.line(r"#.*")
    def skip(self, _comment: re.Match[str]) -> None:
        """Skip what nccl-tests says besides."""

    @handlers.line(r"\d.*")
    def add(self, line: re.Match[str]) -> None:
        if not self.columns:
            self.remark(line)
            return
        row = self.row(line[0], self.columns)
        for placement, suffix in ((OUT_OF_PLACE, ""), (IN_PLACE, f" {IN_PLACE}")):
            if row.get(f"time{suffix}", "N/A") != "N/A":
                seconds = self.number_in("time", row[f"time{suffix}"]) * 1e-6
                wrong = row.get(f"#wrong{suffix}", "N/A")  # in early versions an error instead
                counted = None if wrong == "N/A" else int(self.number_in("#wrong", wrong))
                if case := nccl_tests_case(
                    self.output, self.where, self.collective, row, placement, self.timing, self.suite
                ):
                    self.add_result(ForeignResult(case=case, seconds=seconds, reported=row, wrong=counted))


def nccl_tests_case(
    output: BenchmarkOutput, where: str, name: str, row: Mapping[str, str], placement: str, timing: str, suite: Suite
) -> Case | None:
    """Return the case of a result; None, and a remark, for a type or a reduction that ours has not.

    Args:
        output: the output that has the result, which gets the remark.
        where: the place of the result, for messages.
        name: the collective.
        row: the cells of the result: ``size``, ``type``, ``redop``, and ``root`` where there is one.
        placement: ``OUT_OF_PLACE`` or ``IN_PLACE``.
        timing: what its time means.
        suite: the suite.

    Raises:
        BadInputError: if the size or the root is none.
    """
    family = collective(name)
    if not COUNT.fullmatch(row["size"]):
        raise BadInputError(where, row["size"], "a whole number as size")
    for word, known in ((row["type"], TYPES), (row["redop"], REDUCTIONS if family.has_op else {row["redop"]})):
        if word not in known:
            output.remarks.append(f"{where}, {placement}: {word} is left out: ours has nothing like it")
            return None
    root = row.get("root", "").strip()
    if not COUNT.fullmatch(root):
        root = "0"
    if family.rooted:
        IntegerRange(0, output.ranks - 1).check(f"{where}: root", int(root))
    return Case(
        collective=name, algorithm=NATIVE, transport=suite.transport, device=suite.device, dtype=TYPES[row["type"]],
        op=row["redop"] if family.has_op else None, bytes=int(row["size"]), in_place=placement == IN_PLACE,
        root=int(root) if family.rooted else None, ranks=output.ranks, nodes=output.nodes, timing=timing,
    )  # fmt: skip


def _collective(where: str, program: str) -> str:
    """Return the collective of a program.

    Raises:
        BadInputError: if it has none.
    """
    name = program.rpartition("/")[2].removesuffix("_perf")
    if name not in PROGRAMS:
        raise BadInputError(where, program, f"one of {', '.join(f'{each}_perf' for each in PROGRAMS)}")
    return PROGRAMS[name]


def _set_place(
    output: BenchmarkOutput, path: Path, devices: Sequence[tuple[str, str]], given: SuppliedMetadata
) -> None:
    """Set the ranks and nodes of an output.

    Args:
        output: the output.
        path: its path.
        devices: the group and the host of each rank; groups run the collective at the same time.
        given: what the user says.

    Raises:
        BadInputError: if neither the output nor the user says them, or the two contradict each other.
    """
    if not devices:
        output.ranks, output.nodes = given.need("ranks", output.source), given.need("nodes", output.source)
        return
    groups = [group for group, _ in devices]
    output.hosts = tuple(dict.fromkeys(host for group, host in devices if group == groups[0]))
    output.ranks, output.nodes = groups.count(groups[0]), len(output.hosts)
    for name, count in (("ranks", output.ranks), ("nodes", output.nodes)):
        if getattr(given, name) not in (None, count):
            raise BadInputError(f"--{name}", getattr(given, name), f"{count}, which {path} lists")
    if (count := len(set(groups))) > 1:
        output.remarks.append(f"{path}: {count} groups of ranks ran at once; the results are of the first one")


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
    """Add the results of the JSON."""
    config = content["config"]
    suite = RCCL_TESTS if any("AMD" in str(each.get("device_info")) for each in config["devices"]) else NCCL_TESTS
    output.source = output.program = suite.source
    output.library = f"{suite.library} {nccl_version(int(content['nccl_version']))}"
    output.truncated = "average_bus_bandwidth" not in content
    # A process lists its first device only, whichever number of threads and devices it has.
    processes = dict.fromkeys((str(each["group"]), str(each["hostname"]), each["pid"]) for each in config["devices"])
    per_process = int(config["nthreads"]) * int(config["ngpus"])
    RANKS.check(f"{path}: devices", per_process * len(processes))
    _set_place(output, path, [each[:2] for each in processes for _ in range(per_process)], given)
    name = _collective(str(path), str(content["args"][0]))
    timing = BLOCKING_MEAN if config.get("blocking_collectives") == "true" else QUEUE_MEAN
    for position, row in enumerate(content["results"], 1):
        where = f"{path}: result {position}"
        cells = {key: str(row[key]).strip() for key in ("size", "count", "type", "redop", "root")}
        for placement in (OUT_OF_PLACE, IN_PLACE):
            if (values := row.get(placement)) is None:
                continue
            if "time" not in values:
                raise BadInputError(where, "cpu_time", "time: the option -C measures the CPU, not the operation")
            wrong = values.get("nwrong")
            statistics = (row.get(f"{placement}_per_iter") or {}).items()
            reported = {**cells, **{key: str(value) for key, value in (*values.items(), *statistics)
                                    if not isinstance(value, list)}}  # fmt: skip
            seconds = float(values["time"]) * 1e-6
            counted = None if wrong is None else int(wrong)
            if case := nccl_tests_case(output, where, name, cells, placement, timing, suite):
                output.add(where, ForeignResult(case=case, seconds=seconds, reported=reported, wrong=counted))
