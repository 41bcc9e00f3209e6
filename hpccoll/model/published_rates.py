"""What was published of NCCL and RCCL on healthy machines, by class of machines: the table ``published.csv``.

A row of the table is a figure of nccl-tests, rccl-tests or a program that counts as they do. Its
bus bandwidth follows from the printed time, where one was printed. Tables of one's own count as
well, within ``with_tables``; a machine file may add figures in its section ``published``.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path

from hpccoll.cases.library_request import NCCL_ALGORITHMS
from hpccoll.cases.requested_schedule import DEFAULT_DTYPE
from hpccoll.common.errors import BadInputError
from hpccoll.common.text import join_words
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import ClassSection, PublishedSection

TABLE = Path(__file__).parent / "published.csv"

DEFAULT = "default"
"""What an algorithm is called that nobody named, and what the words of one begin with that nobody forced."""

FEW_NODES = 2
"""Up to this number of nodes, each number has NCCL algorithms of its own."""

NEAR = 2
"""The ratio of two sizes, and of two larger numbers of nodes, up to which a figure of one says
something of the other: bus bandwidth grows by up to a half from a size to its double, and falls by
a few per cent on twice as many nodes."""

SMALLEST = 1 << 20
"""The smallest size for which bandwidth says more than latency."""

SCALES = (8, 4, 2, 1)
"""The numbers of fabrics that are classes of their own; of larger ones, and the first, figures count up to NEAR."""

OLD = (2, 19)
"""The version of NCCL below which pairs of nodes are slower: with 2.18.5 AWS p5 has 313 of 437 GB/s
at 1 GiB, with 2.9.9 p4d 57 of 77. One node of H100 has the same figures with 2.18.5 as with 2.27.7.
"""

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(?:#\d+)?")
"""The repository that a source names first, or a thread of it."""
_VERSION = re.compile(r"(?:[NR]CCL )?(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure, with its source."""

    network: str | None  # the network, a word of ``class``; None if the ranks share one fabric
    gpus_per_node: int
    nodes: int
    collective: str
    nbytes: int  # the size S
    dtype: str  # the type of the elements
    in_place: bool | None  # None if the source does not say
    algorithm: str  # the algorithm as NCCL names it; empty if the source does not say
    forced: bool  # whether a setting chose it
    rate: float  # the bus bandwidth, in bytes a second
    run: str  # what tells the runs of one source apart: the machine
    source: str  # where it was published
    gpu: str = ""  # the GPU, such as H100; empty if unknown
    operator: str = ""  # whose machine it was, such as a cloud; empty if unknown
    library: str = ""  # the library with its version; empty if unknown
    owner: str = ""  # the machine or the table whose own file has it; empty in the package's table
    healthy: bool = True  # whether somebody judged the machine healthy; nobody judged it if not

    @property
    def origin(self) -> str:
        """What makes it independent of others: its repository or thread, or else the whole source."""
        repository = _REPOSITORY.match(self.source)
        return repository[0] if repository else self.source.partition(";")[0]

    @property
    def cited(self) -> str:
        """The source without the place in a repository."""
        return (
            self.source.split()[0]
            if _REPOSITORY.match(self.source)
            else self.source.partition(";")[0]
        )

    def ran(self, algorithm: str | None, usual: str | None) -> bool:
        """Return whether it is one of an algorithm.

        Args:
            algorithm: the algorithm, by the project's name; None for what the library chooses
                without a setting.
            usual: what the library chooses there, by NCCL's name; None if that is unknown.
        """
        if algorithm is None:
            return not self.forced
        if self.algorithm:
            return word_of(self.algorithm) == algorithm
        return not self.forced and word_of(usual or "") == algorithm


def word_of(algorithm: str) -> str:
    """Return the project's name of an algorithm of NCCL; any other name in lower case."""
    return NCCL_ALGORITHMS.get(algorithm.lower(), algorithm.lower())


Figures = Mapping[str, Sequence[PublishedFigure]]
"""Figures by fabric."""

_with_own_figures: ContextVar[Figures | None] = ContextVar("_with_own_figures", default=None)


@contextmanager
def with_tables(*paths: Path) -> Iterator[None]:
    """Let tables of one's own count as the package's does, until the context ends.

    Raises:
        BadInputError: if a file cannot be read, or has a row that is not a figure.
    """
    by_fabric: dict[str, list[PublishedFigure]] = defaultdict(list)
    for fabric, figures in figures_by_fabric().items():
        by_fabric[fabric] += figures
    for path in paths:
        for fabric, figure in _figures_of_table(path):
            by_fabric[fabric].append(figure)
    token = _with_own_figures.set(by_fabric)
    try:
        yield
    finally:
        _with_own_figures.reset(token)


def figures_by_fabric() -> Figures:
    """Return the figures by fabric: those of the package, and within ``with_tables`` one's own."""
    return _with_own_figures.get() or _figures_of_package()


@lru_cache
def _figures_of_package() -> Figures:
    by_fabric: dict[str, list[PublishedFigure]] = defaultdict(list)
    for fabric, figure in _figures_of_table(TABLE):
        by_fabric[fabric].append(figure)
    return by_fabric


def _figures_of_table(table: Path) -> Iterator[tuple[str, PublishedFigure]]:
    """Yield the figures of a table, each after its fabric."""
    owner = "" if table == TABLE else table.name
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError("table", str(table), f"a readable file: {error}") from None
    for line, row in enumerate(rows, 2):
        try:
            figure = _figure(row, owner)
        except (KeyError, TypeError, ValueError) as error:
            expected = f"a row as published.csv has it: {error}"
            raise BadInputError(f"{table}: line {line}", None, expected) from None
        yield row["fabric"], figure


def _figure(row: Mapping[str, str], owner: str) -> PublishedFigure:
    """Return a row of a table; KeyError, TypeError or ValueError if it is not a figure."""
    return PublishedFigure(
        network=row["network"] or None,
        gpus_per_node=int(row["gpus_per_node"]),
        nodes=int(row["nodes"]),
        collective=row["collective"],
        nbytes=int(row["bytes"]),
        dtype=row["dtype"],
        in_place={"yes": True, "no": False}.get(row["in_place"]),
        algorithm=row["algorithm"],
        forced=row["forced"] == "yes",
        rate=1e9 * float(row["busbw_GBps"]),
        run=row["machine"],
        source=row["source"],
        gpu=row["gpu"],
        operator=row["operator"],
        library=row["library"],
        owner=owner,
        healthy=row.get("healthy") != "",
    )


def figures_of(machine: MachineFile) -> Iterator[PublishedFigure]:
    """Yield what was published of machines like this one: the table's figures of its class, and those of its file."""
    like = machine.machine_class
    if like:
        for figure in figures_by_fabric().get(like.fabric, ()):
            if figure.network in (None, like.network) and (
                figure.gpu in like.gpus or not like.gpus
            ):
                yield figure
    for section in machine.published:
        yield from figures_of_section(machine, section)


def figures_of_network(
    like: ClassSection, *, crosses: bool, fabric: str
) -> Iterator[PublishedFigure]:
    """Yield the table's figures of a network and of the library, of whatever GPU.

    Args:
        like: the class of the machine.
        crosses: whether they cross the network of the class, or stay in one fabric.
        fabric: the fabric; empty for any.
    """
    network = like.network if crosses else None
    for fabric_of_figures, figures in figures_by_fabric().items():
        if fabric not in ("", fabric_of_figures):
            continue
        for figure in figures:
            library = "rccl" if figure.library.startswith("RCCL") else "nccl"
            if figure.network == network and library == like.library:
                yield figure


def figures_of_section(
    machine: MachineFile, section: PublishedSection
) -> Iterator[PublishedFigure]:
    """Yield the low and the high rate of each source of a section of a machine file."""
    like = machine.machine_class
    crosses, _ = node_class(like, section.nodes)
    network: str | None = ""
    usual = None
    if like:
        network = like.network
        usual = usual_algorithm(like, section.nodes)
    algorithm = "" if section.algorithm.startswith(DEFAULT) else section.algorithm
    is_other = bool(algorithm and usual) and word_of(algorithm) != word_of(usual or "")
    for source in section.source:
        for rate in (section.low_bytes_per_s, section.high_bytes_per_s):
            yield PublishedFigure(
                network=network if crosses else None,
                gpus_per_node=machine.geometry.ranks_per_node if machine.geometry else 0,
                nodes=section.nodes,
                collective=section.collective,
                nbytes=section.nbytes,
                dtype=DEFAULT_DTYPE,
                in_place=None,
                algorithm=algorithm,
                forced=is_other,
                rate=rate,
                run=machine.name,
                source=source,
                owner=machine.name,
            )


def node_class(like: ClassSection | None, nodes: int) -> tuple[bool, int | None]:
    """Return whether ranks on a number of nodes use the network, and the class of that number; None if it has none.

    Inside a fabric each number of nodes is a class; beyond, 1, 2, 4, and 8 and more fabrics are.
    """
    fabric_nodes = like.fabric_nodes if like else 1
    if nodes <= fabric_nodes:
        return False, nodes
    fabrics = -(-nodes // fabric_nodes)
    scale = min(fabrics, SCALES[0])
    return True, scale if scale in SCALES else None


def larger_classes(like: ClassSection | None, nodes: int) -> list[int]:
    """Return the numbers of nodes of the classes above a number of nodes that is of no class, the nearest first."""
    if node_class(like, nodes)[1] is not None:
        return []
    fabric_nodes = like.fabric_nodes if like else 1
    larger = [fabric_nodes * scale for scale in SCALES if fabric_nodes * scale > nodes]
    larger.sort()
    return larger


def usual_algorithm(like: ClassSection, nodes: int) -> str | None:
    """Return what NCCL takes on a number of nodes without a setting, for large all-reduces; None if unknown."""
    _, scale = node_class(like, nodes)
    return like.default_algorithms.get(scale or 0)


def published_near(
    machine: MachineFile, collective: str, nodes: int, ranks_per_node: int, nbytes: int
) -> list[PublishedSection]:
    """Return what was published near a case: by algorithm that of the nearest nodes, and then of the nearest size.

    Near are the same nodes, or beyond FEW_NODES those that differ by a factor of NEAR at most;
    sizes that differ by a factor of NEAR at most; and only all ranks of each node, with elements of
    the default type, from SMALLEST on.
    """
    if machine.geometry is None or ranks_per_node != machine.geometry.ranks_per_node:
        return []
    near: dict[tuple[str, int, int], list[PublishedFigure]] = defaultdict(list)
    case = collective, ranks_per_node, DEFAULT_DTYPE
    for figure in figures_of(machine):
        is_alike = (figure.collective, figure.gpus_per_node, figure.dtype) == case
        if is_alike and figure.healthy and _is_near(figure, nodes, nbytes):
            algorithm = DEFAULT
            if figure.forced or machine.machine_class is None:
                algorithm = figure.algorithm or DEFAULT
            near[algorithm, figure.nodes, figure.nbytes].append(figure)

    def distance(key: tuple[str, int, int]) -> tuple[float, float]:
        _, nodes_of_figure, size = key
        return abs(log(nodes_of_figure / nodes)), abs(log(size / nbytes))

    nearest: dict[str, tuple[str, int, int]] = {}
    for key in sorted(near, key=lambda key: (distance(key), key)):
        nearest.setdefault(key[0], key)
    return [_section(machine, near[nearest[algorithm]]) for algorithm in sorted(nearest)]


def _is_near(figure: PublishedFigure, nodes: int, nbytes: int) -> bool:
    """Return whether a figure is near a case in nodes and size, as ``published_near`` says."""
    are_many_nodes = min(figure.nodes, nodes) > FEW_NODES
    has_near_nodes = are_many_nodes and ratio(figure.nodes, nodes) <= NEAR
    if figure.nodes != nodes and not has_near_nodes:
        return False
    return figure.nbytes >= SMALLEST and ratio(figure.nbytes, nbytes) <= NEAR


@dataclass(frozen=True, slots=True)
class SourceRates:
    """What one independent source has of a call: bus bandwidths in bytes a second, and a figure of each run."""

    rates: Sequence[float]
    figures: Sequence[PublishedFigure]

    @property
    def name(self) -> str:
        """The operator with its repositories, or the repository; and whose file has it, if that is not the table."""
        name = join_words(dict.fromkeys(figure.origin for figure in self.figures))
        operators = {figure.operator for figure in self.figures}
        operator = operators.pop() if len(operators) == 1 else ""
        if operator:
            name = f"{operator}: {name}"
        owner = next((figure.owner for figure in self.figures if figure.owner), "")
        if owner:
            name += f" (in the file of {owner})"
        return name


_RunRates = tuple[list[float], PublishedFigure]


@dataclass(frozen=True, slots=True)
class PublishedCall:
    """A call of a library that figures may have been published for."""

    collective: str
    nodes: int
    ranks_per_node: int
    nbytes: int  # the size S
    dtype: str  # the type of the elements
    in_place: bool  # whether contribution and result share a buffer
    algorithm: str | None = None  # by the project's name; None for what the library chooses itself
    library: str = ""  # with its version; empty for a recent one


def rates_by_source(machine: MachineFile, call: PublishedCall) -> dict[str, SourceRates]:
    """Return the bus bandwidths of a call on healthy machines of a class, by independent source.

    A size between two sizes of one run has a rate between theirs, in proportion to the logarithm of
    the size, if the larger is at most NEAR times the smaller. If a source has both placements, that
    of the call counts. Sources are independent if their repositories differ, and the operators of
    their machines, unless the class is of one operator.
    """
    like = machine.machine_class
    usual = usual_for(like, call)
    shape = call.collective, call.ranks_per_node, call.dtype
    figures = []
    for figure in figures_of(machine):
        is_alike = (figure.collective, figure.gpus_per_node, figure.dtype) == shape
        is_there = is_alike and _same_place(like, figure, call.nodes, call.library)
        if is_there and figure.healthy and figure.ran(call.algorithm, usual):
            figures.append(figure)
    return sources_of(figures, call, like, NEAR)


def usual_for(like: ClassSection | None, call: PublishedCall) -> str | None:
    """Return what NCCL takes for a call without a setting, by NCCL's name; None if unknown."""
    if like is None or call.collective != "all_reduce":
        return None
    return usual_algorithm(like, call.nodes)


def sources_of(
    figures: Iterable[PublishedFigure],
    call: PublishedCall,
    like: ClassSection | None,
    farthest: float,
) -> dict[str, SourceRates]:
    """Return the rates at the size of a call, by independent source.

    Args:
        figures: those that count, of any size and placement.
        call: the call.
        like: the class of the machine.
        farthest: the largest ratio of two sizes between which a rate is interpolated.
    """
    runs: dict[tuple[str, str, str, int, bool | None], list[PublishedFigure]] = defaultdict(list)
    for figure in figures:
        run = figure.origin, figure.operator, figure.run, figure.nodes, figure.in_place
        runs[run].append(figure)
    by_source: dict[tuple[str, str], dict[bool | None, list[_RunRates]]] = {}
    for (origin, operator, _, _, placement), figures_of_run in runs.items():
        rates = _rates_at(call.nbytes, figures_of_run, farthest)
        if rates:
            by_placement = by_source.setdefault((origin, operator), defaultdict(list))
            by_placement[placement].append((rates, figures_of_run[0]))
    measured = {}
    for repository, by_placement in by_source.items():
        preferred = by_placement.get(call.in_place) or by_placement.get(None)
        measured[repository] = preferred or by_placement[not call.in_place]
    operator_of_class = like.operator if like else None
    sources = {}
    for runs_of_source in _independent(measured, operator_of_class):
        source = _source_rates(runs_of_source)
        sources[source.name] = source
    return sources


def _independent(
    measured: Mapping[tuple[str, str], list[_RunRates]], operator_of_class: str | None
) -> Iterable[list[_RunRates]]:
    """Return the runs of each independent source, from those of each repository and operator.

    Sources are independent by their repositories or by their operators, whichever leaves fewer of
    them.
    """
    by_repository: dict[str, list[_RunRates]] = defaultdict(list)
    by_operator: dict[str, list[_RunRates]] = defaultdict(list)
    for (origin, operator), runs in measured.items():
        by_repository[origin] += runs
        owner = origin if operator in ("", operator_of_class) else operator
        by_operator[owner] += runs
    return min(by_repository, by_operator, key=len).values()


def _source_rates(runs: Sequence[_RunRates]) -> SourceRates:
    """Return the rates of the runs of one source together."""
    rates: list[float] = []
    for rates_of_run, _ in runs:
        rates += rates_of_run
    return SourceRates(rates, [figure for _, figure in runs])


def _same_place(
    like: ClassSection | None, figure: PublishedFigure, nodes: int, library: str
) -> bool:
    """Return whether a figure is of the class of a number of nodes, and across nodes of a library as old."""
    crosses, scale = node_class(like, nodes)
    _, scale_of_figure = node_class(like, figure.nodes)
    figure_crosses = figure.network is not None
    if scale is None or (figure_crosses, scale_of_figure) != (crosses, scale):
        return False
    return not crosses or (
        ratio(figure.nodes, nodes) <= NEAR and is_old(figure.library) == is_old(library)
    )


def is_old(library: str) -> bool:
    """Return whether a library is an NCCL before OLD; one without a version counts as recent."""
    return () < version_of(library) < OLD and not library.startswith("RCCL")


def version_of(library: str) -> tuple[int, ...]:
    """Return the version of NCCL or RCCL in the name of a library: ``2.27.7``, ``NCCL 2.27.7``; empty without one."""
    version = _VERSION.match(library)
    return tuple(map(int, version[1].split("."))) if version else ()


def _rates_at(nbytes: int, figures: list[PublishedFigure], farthest: float) -> list[float]:
    """Return the rates of one run at a size, or between its nearest sizes, if these are near enough.

    Between sizes that are not NEAR, a rate in proportion to the size, as latency has it, counts too.
    """
    rates: dict[int, list[float]] = defaultdict(list)
    for figure in figures:
        rates[figure.nbytes].append(figure.rate)
    if nbytes in rates:
        return rates[nbytes]
    smaller = max((size for size in rates if size < nbytes), default=0)
    larger = min((size for size in rates if size > nbytes), default=0)
    if not smaller or not larger or larger > farthest * smaller:
        return []
    part = log(nbytes / smaller) / log(larger / smaller)
    between = []
    for end in (min, max):
        before, after = end(rates[smaller]), end(rates[larger])
        between.append((1 - part) * before + part * after)
        if larger > NEAR * smaller:
            between.append(before ** (1 - part) * after**part)
    return between


def _section(machine: MachineFile, figures: list[PublishedFigure]) -> PublishedSection:
    """Return the range of figures of one algorithm, number of nodes and size."""
    first = figures[0]
    rates = [figure.rate for figure in figures]
    sources = list(dict.fromkeys(figure.cited for figure in figures))
    return PublishedSection(
        collective=first.collective,
        nodes=first.nodes,
        bytes=first.nbytes,
        algorithm=_label(machine, figures),
        low_bytes_per_s=min(rates),
        high_bytes_per_s=max(rates),
        source=sources,
    )


def _label(machine: MachineFile, figures: list[PublishedFigure]) -> str:
    """Return the algorithm of figures: ``ring``, ``default (NVLS)``, or ``default`` if it is unknown."""
    first = figures[0]
    like = machine.machine_class
    algorithm: str | None = next((figure.algorithm for figure in figures if figure.algorithm), None)
    if first.forced or like is None:
        return algorithm or DEFAULT
    if algorithm is None and first.collective == "all_reduce":
        algorithm = usual_algorithm(like, first.nodes)
    return f"{DEFAULT} ({algorithm})" if algorithm else DEFAULT


def ratio(first: float, second: float) -> float:
    """Return the larger of two numbers over the smaller one."""
    return max(first, second) / min(first, second)
