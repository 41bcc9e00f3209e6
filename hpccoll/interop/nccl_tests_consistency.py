"""A run of nccl-tests or rccl-tests, whatever its output is: settings, devices and results, and how they must agree.

What an output says twice must agree: the bandwidths follow from size, time, collective and ranks,
and each process has as many ranks as the header says.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpccoll.analysis.printed_caveats import AGGREGATED_OPERATIONS, CHECKED, ITERATIONS, WARMUP
from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import AGGREGATED, Case
from hpccoll.cases.catalogue import GRAPH
from hpccoll.cases.library_request import NCCL_ALGORITHMS
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import IntegerRange
from hpccoll.common.units import format_count
from hpccoll.interop.benchmark_output import (
    COUNT,
    BenchmarkOutput,
    SuppliedMetadata,
    read_cell,
    read_count,
)
from hpccoll.interop.printed_bandwidth import SINGLETONS, PrintedBandwidth, possible_ranks
from hpccoll.schedule import DTYPE, NCCL_TESTS_NAMES
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.reduction import REDUCTIONS


@dataclass(frozen=True, slots=True)
class Suite:
    """One of the two suites."""

    source: str  # its name, a key of ``SOURCES``
    library: str  # the library that it measures
    transport: str  # the transport of its cases
    device: str  # the device that holds their buffers


NCCL_TESTS = Suite("nccl-tests", "NCCL", "nccl", "cuda")
RCCL_TESTS = Suite("rccl-tests", "RCCL", "rccl", "rocm")
SUITES = {"n": NCCL_TESTS, "r": RCCL_TESTS}
"""The suites by the first letter of their names."""

AMD_GPU = re.compile("AMD|Radeon|Instinct|Vega|gfx[0-9]")

PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all_to_all",
}
"""The collective of each program."""
WITHOUT_COLLECTIVE = "sendrecv", "hypercube", "alltoallv"
"""The programs that measure what no collective of ours does."""

TYPES = {
    name: name for name in (*DTYPE.words, "int8", "uint8", "uint32", "uint64")
} | NCCL_TESTS_NAMES
"""The types of elements, by nccl-tests' names; those with 8 bits of floating point have no name in ours."""

OUT_OF_PLACE, IN_PLACE = "out_of_place", "in_place"
SUFFIXES = {OUT_OF_PLACE: "", IN_PLACE: f" {IN_PLACE}"}
"""What follows the names of the columns of each placement: out of place, then in place."""


HEADER_DEFAULTS = {"agg iters": 1, "graph": 0, "unalign": 0}
"""Fields of the header line that say how operations run, by their values if no option was given."""
WITHOUT_EFFECT = {
    "nthread",
    "ngpus",
    "minbytes",
    "maxbytes",
    "step",
    "warmup iters",
    "iters",
    "validation",
}
"""Fields of the header line that do not change what an operation is. Any other field becomes a parameter."""


def nccl_version_text(code: int) -> str:
    """Return the version of a code of NCCL or RCCL: 22707 is 2.27.7, 2804 is 2.8.4."""
    hundreds = code // 100
    major, minor = divmod(hundreds, 100) if code >= 10_000 else divmod(hundreds, 10)
    return f"{major}.{minor}.{code % 100}"


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A line of the list of devices."""

    rank: int
    group: str
    process: tuple[str, str]  # host and process id
    # its number, and its place on the bus with the domain; empty if the line does not say it
    place: str


@dataclass(frozen=True, slots=True)
class PrintedResult:
    """A result of a run."""

    where: str  # its place
    placement: str  # ``OUT_OF_PLACE`` or ``IN_PLACE``
    row: Mapping[str, str]  # the cells that both placements share: size, type, redop and root
    values: Mapping[str, str]  # the cells ``MEASURED`` of its placement, and ``#wrong``
    reported: Mapping[str, str]  # all cells, as printed


@dataclass(slots=True)
class PrintedRun:
    """What an output says of one run, which has one header, one list of devices and one table."""

    where: str
    library: str | None
    suite: Suite = NCCL_TESTS
    version: str = ""
    collective: str = ""
    timing: str = AGGREGATED
    params: dict[str, int] = field(default_factory=dict)
    # what of the header says how reliable the results are
    header: dict[str, str] = field(default_factory=dict)
    per_process: int | None = None
    devices: list[ListedDevice] = field(default_factory=list)
    placements: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    results: list[PrintedResult] = field(default_factory=list)
    failed: int = 0  # wrong elements of all results
    stage: int = 0
    named: str = ""  # the program that lines above the run name
    left_out: bool = False
    ended: bool = False


def header_params(fields: Mapping[str, int]) -> dict[str, int]:
    """Return the parameters of the fields of a header: those that change what is measured, unless at the default."""
    params = {}
    for name, value in fields.items():
        if name not in WITHOUT_EFFECT and value != HEADER_DEFAULTS.get(name, 0):
            params[name.replace(" ", "_")] = value
    if params.get(GRAPH):
        params[GRAPH] = 1  # the graph is the same however often it is launched
    return params


def reliability(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a header that say how reliable all results are, as columns of each."""
    return {
        name: str(fields[name])
        for name in (WARMUP, ITERATIONS, AGGREGATED_OPERATIONS, CHECKED)
        if name in fields
    }


def add_run(
    path: Path, run: PrintedRun, output: BenchmarkOutput, supplied: SuppliedMetadata
) -> None:
    """Add the results of a run; BadInputError if it contradicts itself, or nothing names its program."""
    ranks, nodes, hosts = _place(path, run, output, supplied)
    output.add_launch(ranks, nodes, hosts)
    bandwidths = [
        PrintedBandwidth.read(result.where, result.row["size"], result.values)
        for result in run.results
    ]
    said = ""
    if supplied.program:
        said = collective_of("--program", supplied.program)
    if run.collective and said not in ("", run.collective):
        raise BadInputError("--program", supplied.program, f"{run.collective}, which {path} says")
    name = run.collective or said
    named = PROGRAMS.get(run.named)
    if not name and named and not _contradiction(named, run, bandwidths, ranks):
        name = named
        output.remarks.append(
            f"{run.where}: its program is taken to be {run.named}_perf, which a line above it names"
        )
    if not name:
        fitting = [
            program
            for program in PROGRAMS.values()
            if not _contradiction(program, run, bandwidths, ranks)
        ]
        raise _unnamed_program(path, fitting)
    _check_ranks(path, run, name, bandwidths, ranks, supplied)
    problem = _contradiction(name, run, bandwidths, ranks)
    if problem is not None:
        where, printed, expected = problem
        if not run.collective:
            where = f"--program {supplied.program}: {where}"
        raise BadInputError(where, printed, expected)
    counts = [result.values["#wrong"] for result in run.results]
    # Versions before 2.13 print the largest error of each result, and only below the table whether
    # it is too large.
    failure = None
    if run.failed and all(count in ("N/A", "0") for count in counts):
        failure = (
            f"{run.failed} wrong elements in the results of the run, which does not say in which"
        )
    for result in run.results:
        add_result(output, name, run, result, ranks, nodes, failure)


def _unnamed_program(path: Path, fitting: Sequence[str]) -> BadInputError:
    """Return the error of an output that does not name its program, with the collectives that it may be of."""
    collectives = " or ".join(fitting) or "no collective of ours"
    remedy = f"; do: --program {fitting[0]}" if len(fitting) == 1 else ""
    expected = (
        f"{path} does not name its program, which nccl-tests does from 2.17 on; its columns and bandwidths are those "
        f"of {collectives}{remedy}"
    )
    return BadInputError("--program", None, expected)


def _contradiction(
    name: str, run: PrintedRun, bandwidths: Sequence[PrintedBandwidth], ranks: int
) -> tuple[str, str, str] | None:
    """Return the place and value of what does not come from a collective, and what would; None if all does."""
    family = collective(name)
    reduction_of_name = (
        f"a reduction, as of {name}" if family.has_op else f"no reduction, as of {name}"
    )
    root_of_name = f"a root, as of {name}" if family.rooted else f"no root, as of {name}"
    for result in run.results:
        reduction = result.row.get("redop", "none")
        if (reduction != "none") != family.has_op:
            return f"{result.where}: redop", reduction, reduction_of_name
        root = result.row.get("root", "")
        is_number = COUNT.fullmatch(root.lstrip("-")) is not None
        if is_number and (int(root) >= 0) != family.rooted:
            return f"{result.where}: root", root, root_of_name
    problems = (bandwidth.problem(name, ranks) for bandwidth in bandwidths)
    return next(filter(None, problems), None)


def _check_ranks(
    path: Path,
    run: PrintedRun,
    name: str,
    bandwidths: Sequence[PrintedBandwidth],
    ranks: int,
    supplied: SuppliedMetadata,
) -> None:
    """Check the number of ranks against the bandwidths of the whole run.

    If they do not show it, and it is odd or nodes have unequal numbers of ranks, a line of the list
    may be lost.
    """
    listed = len(run.devices)
    without_gaps = {device.rank for device in run.devices} == set(range(listed))
    if (
        _lines_are_lost(run, supplied)
        and without_gaps
        and listed in possible_ranks(name, listed, bandwidths)
    ):
        raise BadInputError("--ranks", supplied.ranks, f"{listed}, which {path} lists")
    possible = possible_ranks(name, ranks, bandwidths)
    if possible and ranks not in possible:
        raise BadInputError(
            run.where,
            format_count(ranks, "rank"),
            f"{possible[0]}, which follow from the bandwidths of this run (if "
            "lines of the list of devices are lost, say --ranks and --nodes)",
        )
    per_node = Counter(device.process[0] for device in run.devices)
    doubtful = len(set(per_node.values())) > 1 or ranks % 2 == 1
    if doubtful and len(possible) > 1 and supplied.ranks is None:
        raise BadInputError(
            "--ranks",
            None,
            f"{path} lists {format_count(ranks, 'rank')}, and its bandwidths do not show whether a "
            f"line of the list is lost: say --ranks {ranks} if none is",
        )


def add_result(
    output: BenchmarkOutput,
    name: str,
    run: PrintedRun,
    result: PrintedResult,
    ranks: int,
    nodes: int,
    failure: str | None = None,
) -> None:
    """Add a result of a run; a type or a reduction that ours has not becomes a remark; BadInputError for no number."""
    family = collective(name)
    row = result.row
    reduction = row["redop"] if family.has_op else None
    unsupported = None
    if row["type"] not in TYPES:
        unsupported = row["type"]
    elif reduction is not None and reduction not in REDUCTIONS:
        unsupported = reduction
    if unsupported is not None:
        remark = f"{result.where}, {result.placement}: {unsupported} is left out: ours has nothing like it"
        output.remarks.append(remark)
        return
    root = None
    if family.rooted:
        root_cell = row.get("root", "").strip()
        root = int(root_cell) if COUNT.fullmatch(root_cell) else 0
        IntegerRange(0, ranks - 1).check(f"{result.where}: root", root)
    case = Case(
        collective=name,
        algorithm=NATIVE,
        transport=run.suite.transport,
        device=run.suite.device,
        dtype=TYPES[row["type"]],
        op=reduction,
        bytes=read_count(result.where, "size", row["size"]),
        in_place=result.placement == IN_PLACE,
        root=root,
        params=run.params,
        ranks=ranks,
        nodes=nodes,
        timing=run.timing,
    )
    seconds = read_cell(result.where, "time", result.values["time"]) * 1e-6
    wrong = result.values["#wrong"]
    count = None if wrong == "N/A" else int(read_cell(result.where, "#wrong", wrong))
    ran = result.reported.get(f"algo{SUFFIXES[result.placement]}", "").lower()  # of rccl-tests -M
    reported = {**run.header, **result.reported}
    output.add(result.where, case, seconds, reported, failure, count, NCCL_ALGORITHMS.get(ran))


def collective_of(key: str, program: str) -> str:
    """Return the collective of a program, as ``./all_reduce_perf`` or ``all_reduce``; BadInputError without one."""
    name = program_name(program)
    if name not in PROGRAMS:
        choices = ", ".join(f"{choice}_perf" for choice in PROGRAMS)
        raise BadInputError(key, program, f"one of {choices}")
    return PROGRAMS[name]


def program_name(word: str) -> str:
    """Return the name of a program without its directory, ``_perf`` and a suffix of the build, such as ``_mpi``."""
    return word.rpartition("/")[2].partition("_perf")[0]


def check_devices(run: PrintedRun, supplied: SuppliedMetadata) -> None:
    """Check that the list of devices has each rank once, and as many of each process as the header says."""
    numbers = sorted(device.rank for device in run.devices)
    processes = numbers.count(0)
    if processes > 1:
        raise BadInputError(
            run.where, "Rank 0", several_processes(processes, len(numbers) // processes)
        )
    if _lines_are_lost(run, supplied):
        return
    if numbers != list(range(len(numbers))):
        listed = ", ".join(map(str, numbers[:8]))
        if len(numbers) > 8:
            listed += ", ..."
        expected = "ranks 0 to n-1 in the list of devices, each once; or, if lines are lost, --ranks and --nodes"
        raise BadInputError(run.where, listed, expected)
    counts = Counter(device.process for device in run.devices)
    for (host, process), count in counts.items():
        if run.per_process not in (None, count):
            raise BadInputError(
                run.where,
                f"{format_count(count, 'device')} of process {process} on {host}",
                f"{run.per_process}, which are nThread times nGpus of the header",
            )


def _lines_are_lost(run: PrintedRun, supplied: SuppliedMetadata) -> bool:
    """Return whether the list of devices lacks some that the user says."""
    ranks = {device.rank for device in run.devices}
    return supplied.whole_place and 0 < len(ranks) == len(run.devices) < (supplied.ranks or 0)


def several_processes(count: int, ranks: int) -> str:
    return f"output of one run; these are {count} processes of {format_count(ranks, 'rank')} each, {SINGLETONS}"


def _place(
    path: Path, run: PrintedRun, output: BenchmarkOutput, supplied: SuppliedMetadata
) -> tuple[int, int, tuple[str, ...]]:
    """Return the ranks, nodes and hosts of a run; of its first group, since groups run the collective at one time."""
    if not run.devices or _lines_are_lost(run, supplied):
        return *supplied.need_place(output.source), ()
    first = [device for device in run.devices if device.group == run.devices[0].group]
    hosts = tuple(dict.fromkeys(device.process[0] for device in first))
    ranks = len(first)
    nodes = len(hosts)
    places = Counter((device.process[0], device.place) for device in first if device.place)
    if places and max(places.values()) > 1:  # hosts of one name, or ranks that share a GPU
        nodes = supplied.nodes or 0
        hosts = ()
        if not nodes:
            (host, _), _ = places.most_common(1)[0]
            raise BadInputError(
                "--nodes",
                None,
                f"several ranks have the same GPU of {host}, or several hosts this name: say it",
            )
    for name, count in (("ranks", ranks), ("nodes", nodes)):
        if getattr(supplied, name) not in (None, count):
            raise BadInputError(
                f"--{name}", getattr(supplied, name), f"{count}, which {path} lists"
            )
    groups = len({device.group for device in run.devices})
    if groups > 1:
        output.remarks.append(
            f"{run.where}: {groups} groups of ranks ran at once; the results are of the first one"
        )
    return ranks, nodes, hosts
