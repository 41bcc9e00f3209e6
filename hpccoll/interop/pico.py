"""Results of PICO (github.com/HLC-Lab/pico) as they lie: archives or directories of runs, and the tables of metadata.

A run is ``<machine>/<timestamp>.tar.gz`` or the directory in it: ``<timestamp>/<test>/<file>.csv``,
a file for each algorithm and number of elements, and ``<timestamp>/alloc*.csv`` with the host of
each rank. ``<machine>_metadata.csv``, next to the machine's directory, has a row for each test.
"""

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import Case, Parameter
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_bytes, read_text
from hpccoll.common.version import __version__
from hpccoll.interop.packed_files import is_archive, packed_files
from hpccoll.interop.pico_algorithms import (
    COLLECTIVES,
    UNUSED,
    UTOFU,
    PicoName,
    pico_algorithms,
)
from hpccoll.schedule import Layout, itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import Attempt, Outcome
from hpccoll.store.rows import PICO
from hpccoll.store.schema import ADDRESSES, IMPORTED

IMPLEMENTATION = "implementation"
"""The parameter with PICO's name of what ran, where an algorithm of ours takes the same steps."""

TIMESTAMP = re.compile(r"\d{4}_\d\d_\d\d___\d\d_\d\d_\d\d")
METADATA_SUFFIX = "_metadata.csv"
SUMMARY = "aggregated_results_summary.csv"
MAX_FILE_BYTES = 256 << 20
"""The maximum size of a file of a run: 10 million times of a rank."""

_RESULT = re.compile(r"(?P<elements>\d{1,15})_(?P<algorithm>.+)_(?P<dtype>[a-z]+\d*)\.csv")
_AVERAGE = re.compile(rb"Average runtime: [0-9.]+\s*\Z")
"""What the programs over uTofu print below the times, in seconds."""
_ALLOCATION = re.compile(r"alloc(?:_(?P<ranks>\d{1,9}))?(?:_GPU)?\.csv")
_DTYPES = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "int": "int32",
    "float": "float32",
    "double": "float64",
    "char": "int8",
    "unsigned_char": "uint8",
}
"""Our name of each of PICO's types."""
_OPS = {"MPI_SUM": "sum", "MPI_MAX": "max", "MPI_MIN": "min", "MPI_PROD": "prod"}
_LIBRARIES = {
    "OMPI": "Open MPI",
    "customOMPI": "custom Open MPI",
    "CRAY_MPICH": "Cray MPICH",
    "FJMPI": "Fujitsu MPI",
}
"""The libraries in words, by PICO's names; others keep their name."""
_NOTHING = ("", "null", "None")
"""What stands for an absent value in a table of metadata."""


@dataclass(frozen=True, slots=True)
class PicoRun:
    """One run of PICO: tests on one allocation."""

    path: Path  # its archive, or its directory
    timestamp: str
    files: Mapping[str, bytes]  # the contents by path below the directory of the run


@dataclass(slots=True)
class PicoResults:
    """What was imported from runs of PICO, and what was not."""

    launches: list[tuple[Attempt, list[Outcome]]] = field(default_factory=list)
    # the files that are not imported, by the reason
    left_out: Counter[str] = field(default_factory=Counter)


def is_pico_run(path: Path) -> bool:
    """Return whether a path is the archive of a run, or a directory that is named after the time of one."""
    return is_archive(path) or (path.is_dir() and bool(TIMESTAMP.fullmatch(path.name)))


def read_runs(path: Path) -> Iterator[PicoRun]:
    """Yield the runs of an archive or of a directory.

    Raises:
        UnusableError: if it cannot be read, or has no run.
    """
    if path.is_dir():
        files = {}
        for file in sorted(path.rglob("*")):
            if file.is_file():
                files[file.relative_to(path).as_posix()] = read_bytes(file, "FILE", MAX_FILE_BYTES)
        yield PicoRun(path, path.name, files)
        return
    by_timestamp: dict[str, dict[str, bytes]] = defaultdict(dict)
    for name, content in packed_files(path, MAX_FILE_BYTES):
        parts = PurePosixPath(name).parts
        places = [place for place, part in enumerate(parts) if TIMESTAMP.fullmatch(part)]
        if places:
            begin = places[0]
            by_timestamp[parts[begin]]["/".join(parts[begin + 1 :])] = content
    if not by_timestamp:
        raise UnusableError(
            "FILE", f"{path} has no run of PICO, a directory such as 2025_03_13___15_38_05"
        )
    for timestamp, files_of_run in by_timestamp.items():
        yield PicoRun(path, timestamp, files_of_run)


@dataclass(frozen=True, slots=True)
class TestMetadata:
    """The row of a test in a table of metadata."""

    machine: str
    row: Mapping[str, str]

    def value(self, name: str) -> str | None:
        """Return a value; None if it is absent."""
        text = (self.row.get(name) or "").strip()
        return None if text in _NOTHING else text

    @property
    def nodes(self) -> int:
        """The number of nodes; of a torus such as 2x2x2 the product."""
        return prod(map(int, self._shape))

    @property
    def torus(self) -> str | None:
        """The shape of the torus of nodes; None if the table has a number of nodes."""
        return "x".join(map(str, self.lengths)) or None

    @property
    def lengths(self) -> Sequence[int]:
        """The nodes along each dimension of the torus; none if the table has a number of nodes."""
        lengths = list(map(int, self._shape))
        return lengths if len(lengths) > 1 else ()

    def _key(self, name: str) -> str:
        """Return where a value stands, for messages."""
        table = f"{self.machine}{METADATA_SUFFIX}"
        return f"{table}: {name} of {self.row['timestamp']}, test {self.row['test_id']}"

    @property
    def _shape(self) -> list[str]:
        shape = self.value("nnodes") or ""
        if not re.fullmatch(r"[1-9]\d{0,6}(x[1-9]\d{0,6})*", shape):
            raise BadInputError(
                self._key("nnodes"), shape, "a number of nodes, or a shape such as 2x2x2"
            )
        return shape.split("x")

    @property
    def ranks(self) -> int:
        per_node = self.value("tasks_per_node") or ""
        if not re.fullmatch(r"[1-9]\d{0,6}", per_node):
            raise BadInputError(self._key("tasks_per_node"), per_node, "a number of ranks")
        return self.nodes * int(per_node)

    @property
    def library(self) -> str:
        """The MPI library and its version."""
        name = self.value("mpi_lib") or "unknown"
        words = [_LIBRARIES.get(name, name), self.value("mpi_lib_version")]
        return " ".join(filter(None, words))

    @property
    def on_gpus(self) -> bool:
        return self.value("gpu_awareness") == "yes"

    @property
    def gpu_library(self) -> str | None:
        words = [self.value("gpu_lib"), self.value("gpu_lib_version")]
        return " ".join(filter(None, words)) or None


def metadata_of(run: PicoRun) -> Mapping[str, TestMetadata]:
    """Return the metadata of the tests of a run, by test, from tables next to the run or to its directory.

    A table that is named after the directory of the run takes precedence.

    Raises:
        BadInputError: if a table cannot be read.
    """
    directory = run.path.resolve().parent
    tables = [*_tables(directory), *_tables(directory.parent)]
    tables.sort(key=lambda table: table.name != f"{directory.name}{METADATA_SUFFIX}")
    for table in tables:
        rows = _rows_of_table(table).get(run.timestamp)
        if rows:
            machine = table.name.removesuffix(METADATA_SUFFIX)
            return {test: TestMetadata(machine, row) for test, row in rows.items()}
    return {}


@cache
def _tables(directory: Path) -> Sequence[Path]:
    return sorted(directory.glob(f"*{METADATA_SUFFIX}"))


@cache
def _rows_of_table(table: Path) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the rows of a table of metadata by timestamp and test."""
    reader = csv.DictReader(io.StringIO(read_text(table, "FILE", MAX_FILE_BYTES)))
    missing = {"timestamp", "test_id", "collective_type"} - set(reader.fieldnames or ())
    if missing:
        raise UnusableError("FILE", f"{table} has no column {', '.join(sorted(missing))}")
    rows: dict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)
    for row in reader:
        rows[row["timestamp"] or ""][row["test_id"] or ""] = row
    return rows


@dataclass(frozen=True, slots=True)
class Allocation:
    """The host of each rank, as a file of the run has it."""

    hosts: Sequence[str]  # by rank
    cabinets: Sequence[str]  # of each rank; empty words if the file names no cabinets

    @classmethod
    def parse(cls, path: str, content: bytes) -> "Allocation":
        """Return the allocation in a file with the columns rank, host and on some machines the place of the host.

        Raises:
            BadInputError: if a line is something else, or a rank is missing.
        """
        places: dict[int, tuple[str, str]] = {}
        # earlier versions of PICO fill lines with NUL
        lines = content.decode(errors="replace").replace("\0", "").split()
        for line in lines[1:]:
            rank, _, rest = line.partition(",")
            host, _, place = rest.partition(",")
            if not rank.isdecimal() or not host:
                raise BadInputError(path, line[:80], "a rank and its host, such as 0,nid005421")
            # x1305c6s0b0n0: cabinet, chassis, slot, board, node
            places[int(rank)] = host, place.partition("c")[0]
        if sorted(places) != list(range(len(places))) or not places:
            raise UnusableError("FILE", f"{path} does not have the host of each rank")
        by_rank = [places[rank] for rank in range(len(places))]
        return cls([host for host, _ in by_rank], [cabinet for _, cabinet in by_rank])

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    @property
    def node_hosts(self) -> Sequence[str]:
        """The host of each node."""
        return list(dict.fromkeys(self.hosts))

    @property
    def layout(self) -> Layout:
        """The layout of the ranks; a cabinet is a rack."""
        node_numbers = {host: number for number, host in enumerate(self.node_hosts)}
        rack_numbers = {name: number for number, name in enumerate(dict.fromkeys(self.cabinets))}
        return Layout(
            tuple(node_numbers[host] for host in self.hosts),
            tuple(rack_numbers[cabinet] for cabinet in self.cabinets),
        )

    def with_ranks_per_node(self, ranks: int) -> tuple[Layout, Sequence[str]]:
        """Return the layout and the hosts of the same nodes with another number of ranks on each, in blocks."""
        cabinet_of_host = dict(zip(self.hosts, self.cabinets, strict=True))
        hosts: list[str] = []
        for host in self.node_hosts:
            hosts += [host] * ranks
        cabinets = [cabinet_of_host[host] for host in hosts]
        return Allocation(hosts, cabinets).layout, self.node_hosts


def read_pico(paths: Sequence[Path]) -> PicoResults:
    """Return the results of the runs in archives and directories.

    Raises:
        BadInputError: if one of them cannot be read, or no test of it has metadata.
    """
    results = PicoResults()
    for path in paths:
        for run in read_runs(path):
            _RunReader(run, results).read()
    return results


class _RunReader:
    """Reads the tests of one run."""

    def __init__(self, run: PicoRun, results: PicoResults) -> None:
        self._run = run
        self._results = results
        self._metadata = metadata_of(run)
        self._allocations: list[Allocation] = []
        self._files_of_test: dict[str, list[str]] = defaultdict(list)
        if not self._metadata:
            raise UnusableError(
                "FILE",
                f"{run.path}: no table *{METADATA_SUFFIX} next to it or to its directory has a row of {run.timestamp}",
            )

    def read(self) -> None:
        """Add the results of all tests."""
        self._sort_files()
        for test, names in self._files_of_test.items():
            metadata = self._metadata.get(test)
            if metadata is None:
                self._leave_out(f"{self._run.timestamp}/{test} has no row of metadata", len(names))
            else:
                self._add_launch(test, metadata, names)

    def _leave_out(self, reason: str, count: int = 1) -> None:
        self._results.left_out[reason] += count

    def _sort_files(self) -> None:
        """Take the allocations, and sort the other files by test."""
        for name, content in sorted(self._run.files.items()):
            test, _, file = name.rpartition("/")
            if not test and _ALLOCATION.fullmatch(file):
                self._allocations.append(Allocation.parse(f"{self._run.path}: {name}", content))
            elif test.isdecimal() and _RESULT.fullmatch(file):
                self._files_of_test[test].append(name)
            elif file == SUMMARY:
                self._leave_out("a table of summaries, not results")
            elif name:
                self._leave_out("a file that is neither a result nor an allocation")

    def _place(self, metadata: TestMetadata) -> tuple[Layout, Sequence[str]]:
        """Return where the ranks of a test ran, and the hosts; none if no file has them.

        PICO writes the allocation of its first test, later versions one for each number of ranks. A
        test with as many nodes ran on the same ones. If no test has as many ranks as a file, the
        metadata is wrong.
        """
        by_ranks = {allocation.ranks: allocation for allocation in self._allocations}
        ranks_of_tests = {test.ranks for test in self._metadata.values()}
        if metadata.ranks in by_ranks:
            allocation = by_ranks[metadata.ranks]
            return allocation.layout, allocation.node_hosts
        for ranks, allocation in by_ranks.items():
            if ranks not in ranks_of_tests and len(ranks_of_tests) == 1:
                return allocation.layout, allocation.node_hosts
            if len(allocation.node_hosts) == metadata.nodes:
                return allocation.with_ranks_per_node(metadata.ranks // metadata.nodes)
        return Layout.of(metadata.ranks, metadata.ranks // metadata.nodes), ()

    def _add_launch(self, test: str, metadata: TestMetadata, names: Sequence[str]) -> None:
        """Add the results of one test, as a launch of its own."""
        layout, hosts = self._place(metadata)
        outcomes: dict[str, Outcome] = {}
        for name in names:
            outcome = self._outcome(name, metadata, layout)
            if outcome is None:
                continue
            if outcome.case.id in outcomes:
                self._leave_out("another file has the same case")
            else:
                outcomes[outcome.case.id] = outcome
        if not outcomes:
            return
        provenance = self._provenance(test, metadata, hosts)
        attempt = Attempt.not_launched(
            1, IMPORTED, f"{metadata.machine}, {metadata.library}", layout, provenance, hosts
        )
        self._results.launches.append((attempt, list(outcomes.values())))

    def _provenance(
        self, test: str, metadata: TestMetadata, hosts: Sequence[str]
    ) -> Mapping[str, object]:
        provenance: dict[str, object] = {
            "hpccoll": __version__,
            "program": f"PICO, libbine {metadata.value('libbine_version') or 'unknown'}",
            "machine": metadata.machine,
            "library": metadata.library,
            "imported_from": [f"{self._run.path.name}: {self._run.timestamp}/{test}"],
            "hosts": list(hosts),
            "measured_at": self._run.timestamp,
        }
        optional = {
            "torus": metadata.torus,
            "notes": metadata.value("notes"),
            "gpu_library": metadata.gpu_library,
        }
        provenance |= {name: value for name, value in optional.items() if value}
        return provenance

    def _outcome(self, name: str, metadata: TestMetadata, layout: Layout) -> Outcome | None:
        """Return the result in a file; None if it is left out."""
        case = self._case(name, metadata, layout)
        if case is None:
            return None
        times = self._times(name, layout.ranks)
        if times is None:
            return None
        family = collective(case.collective)
        size = itemsize(case.dtype)
        elements = family.elements(case.bytes, size, layout.ranks)
        if not elements:
            self._leave_out("less than an element for each rank")
            return None
        return Outcome(
            case=case,
            status="ok",
            bytes=elements * family.blocks(layout.ranks) * size,
            params=_used_params(case, metadata),
            times=times,
            source=PICO,
            reported=_reported(name, self._run.timestamp),
        )

    def _case(self, name: str, metadata: TestMetadata, layout: Layout) -> Case | None:
        match = _RESULT.fullmatch(name.rpartition("/")[2])
        called = COLLECTIVES.get(metadata.value("collective_type") or "")
        if match is None or called is None:
            self._leave_out(f"a collective {metadata.value('collective_type')}, which ours lacks")
            return None
        if match["dtype"] not in _DTYPES:
            self._leave_out(f"a type {match['dtype']}, which ours lacks")
            return None
        family = collective(called)
        dtype = _DTYPES[match["dtype"]]
        elements = int(match["elements"])
        parts = PicoName.parse(match["algorithm"])
        algorithm, params = _algorithm(called, parts, layout.ranks, elements, metadata.lengths)
        op = None
        if family.has_op:
            op = _OPS.get(metadata.value("MPI_Op") or "MPI_SUM", "sum")
        return Case(
            collective=called,
            algorithm=algorithm,
            transport=parts.transport,
            device="cuda" if metadata.on_gpus else "cpu",
            dtype=dtype,
            op=op,
            bytes=elements * itemsize(dtype),
            in_place=family.one_buffer,
            root=0 if family.rooted else None,
            params=params,
            ranks=layout.ranks,
            nodes=layout.nodes,
        )

    def _times(self, name: str, ranks: int) -> CaseTimes | None:
        """Return the time of each iteration in a file; None if it has none."""
        heading, _, rows = self._run.files[name].partition(b"\n")
        columns = heading.decode(errors="replace").strip().split(",")
        if columns[0] != "highest":
            self._leave_out("a file without the column highest")
            return None
        times, _, last_line = _AVERAGE.sub(b"", rows).rpartition(b"\n")
        if last_line:
            self._leave_out(
                "a last line without an end, which may be cut (the lines before it are imported)"
            )
        values = _numbers(f"{self._run.path}: {name}", times, len(columns))
        if not len(values):
            self._leave_out("a file without iterations")
            return None
        if (values <= 0).any():
            self._leave_out("a time below the resolution of the clock")
            return None
        if columns[1:] == [f"rank{rank}" for rank in range(ranks)]:
            ends = values[:, 1:]
            return CaseTimes.from_samples(np.zeros_like(ends), ends, one_clock=False)
        return CaseTimes.of_slowest(values[:, 0])


def _numbers(
    where: str, rows: bytes, columns: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the whole numbers of a table, [row, column].

    Raises:
        BadInputError: if something else is in it.
    """
    cells = rows.replace(b",", b" ").split()
    try:
        numbers = np.array(cells, dtype="S20").astype(np.int64)
        return numbers.reshape(-1, columns)
    except ValueError:
        expected = f"whole numbers of nanoseconds, {columns} in each line; is it cut?"
        last = cells[-1].decode(errors="replace")
        raise BadInputError(where, last[:40], expected) from None


def _algorithm(
    called: str, parts: PicoName, ranks: int, elements: int, torus: Sequence[int]
) -> tuple[str, Mapping[str, Parameter]]:
    """Return the algorithm of a case and its parameters: those of ours, or what PICO names."""
    named = parts.name, dict(parts.params)
    entry = pico_algorithms(called).get(parts.name)
    if entry is None or not entry.takes_our_steps(ranks, elements, torus):
        return named
    segment = parts.params.get("segment")
    if segment and not entry.segments:
        return named
    params = {**entry.our_params(torus), **parts.params, **entry.differences}
    if parts.transport != UTOFU:
        params.pop(ADDRESSES, None)  # MPI finds buffers itself
    if entry.ours == NATIVE:
        return entry.ours, params
    params[IMPLEMENTATION] = parts.name
    if segment and entry.segments == UNUSED:
        del params["segment"]
        params[IMPLEMENTATION] = f"{parts.name}-{segment}"
    return entry.ours, params


def _used_params(case: Case, metadata: TestMetadata) -> Mapping[str, Parameter]:
    """Return the parameters of a case with what its test says besides."""
    optional = {"notes": metadata.value("notes"), "torus": metadata.torus}
    described = {name: value for name, value in optional.items() if value}
    return {**case.params, **described}


def _reported(name: str, timestamp: str) -> str:
    """Return what the name of a file says, as JSON."""
    match = _RESULT.fullmatch(name.rpartition("/")[2])
    columns = match.groupdict() if match else {}
    return json.dumps([{"file": f"{timestamp}/{name}", **columns}])
