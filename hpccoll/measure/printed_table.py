"""The table that rank 0 prints: one row per case with the columns of nccl-tests, by algorithm, sizes ascending.

Cases are measured in random order. Each row is printed as a comment as soon as its last round is complete, so that
nothing is lost if the job is killed. The sorted table follows at the end: lines that do not begin with # have each case
once. Adjacent cases without numbers that have the same reason share a line.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, cast

from hpccoll.schedule import collective, itemsize
from hpccoll.schedule.collective import AUTO
from hpccoll.spec.case import Case, Job, Shape
from hpccoll.spec.transport_table import NATIVE_TRANSPORT
from hpccoll.store.raw_results import Attempt, CaseHistory
from hpccoll.store.rows import Row
from hpccoll.store.statistics import make_row
from hpccoll.units import format_number, format_size

_HEADER = (
    f"{'size':>10} {'count':>11} {'type':>8} {'redop':>5} {'place':>5} "
    f"{'time(us)':>10} {'+-(%)':>6} {'p99(us)':>10} {'algbw(GB/s)':>11} {'busbw(GB/s)':>11} {'#wrong':>6} {'iters':>5}"
)
_ROUND_SPREAD_HEADER = f" {'rounds(%)':>9}"


def _round_spread(r: Row) -> str:
    """Return the range of the medians of the rounds, in per cent of the median."""
    medians = [median for median in r.round_medians_s if median is not None]
    return f"{(max(medians) - min(medians)) / r.median_s * 100:.1f}" if r.median_s and len(medians) > 1 else "-"


class _TableRow(NamedTuple):
    """One case in the table; rows sort by their fields.

    Args:
        attempt: the number of the attempt.
        ranks: the number of ranks and nodes, in words.
        position: the position of the case in the table.
        name: the name of the case without its size.
        bytes: the size.
        failure: the status and reason of a case without numbers, else empty.
        lines: the printed lines.
    """

    attempt: int
    ranks: str
    position: tuple[int, ...]
    name: str
    bytes: int
    failure: str
    lines: str


def _format_row(name: str, r: Row, *, several_rounds: bool) -> str:
    """Return the line of a case, followed by a line with its reason if its status is not ok.

    Args:
        name: the name and the size of the case.
        r: the result.
        several_rounds: whether the table has a column for the spread of the rounds.
    """
    reason = f"{name} {_placement(r)} {r.status}: {r.reason}"
    if r.median_s is None or r.p99_s is None:
        return reason
    interval = "-"
    if r.median_s and r.ci_high_s is not None and r.ci_low_s is not None:
        interval = f"{(r.ci_high_s - r.ci_low_s) / 2 / r.median_s * 100:.1f}"
    wrong = "-" if r.wrong is None else r.wrong
    bandwidths = [f"{'-' if rate is None else format_number(rate / 1e9, 3):>11}" for rate in (r.algbw_Bps, r.busbw_Bps)]
    elements = collective(r.collective).elements(r.requested_bytes, itemsize(r.dtype), r.ranks)
    numbers = (
        f"{name} {elements:>11} {r.dtype:>8} {r.op or '-':>5} {_placement(r):>5} "
        f"{r.median_s * 1e6:>10.2f} {interval:>6} {r.p99_s * 1e6:>10.2f} {' '.join(bandwidths)} {wrong:>6} "
        f"{r.iterations:>5}"
        + (f" {_round_spread(r):>9}" if several_rounds else "")
        + (f"  {r.executed}" if r.algorithm == AUTO or r.requested not in (None, r.executed) else "")
    )
    return numbers if r.status == "ok" else f"{numbers}\n{reason}"


def _placement(r: Row) -> str:
    return "in" if r.in_place else "out"


def _describe_ranks(attempt: Attempt) -> str:
    """Return the number of ranks and nodes of an attempt, in words."""
    dedicated_aggregators = len({place.node for place in attempt.places}) > attempt.nodes
    return Shape(attempt.nodes, attempt.ranks - attempt.aggregators, attempt.aggregators, dedicated_aggregators).text


class PrintedTable:
    """Prints a header with the machine, each case as it is measured, and the sorted rows at the end."""

    def __init__(self) -> None:
        self.empty = True
        self._varying: tuple[str, ...] = ()  # the coordinates that differ between cases and are part of their names
        self._width = 0
        self._round = 0  # the last round that was announced
        self._columns = ""
        self._order: dict[tuple[str, ...], int] = {}  # the position of each series in the table
        self._rows: dict[tuple[int, str], _TableRow] = {}  # by attempt and case

    def show(self, job: Job, history: CaseHistory, position: int, count: int) -> None:
        """Print the result of a case if it has no more rounds; ``position`` of ``count`` rounds have been measured."""
        attempt, outcome, runs = history
        if self.empty:
            self._begin(job, attempt, count)
        r = make_row(job, attempt, outcome, runs=runs)
        if job.effort.rounds > 1 and outcome.rounds:
            self._announce_round(max(outcome.rounds), job.effort.rounds)
        if r.status == "partial" and not outcome.reason:
            if sys.stdout.isatty():
                print(f"# [{position}/{count}]", end="\r", flush=True)  # the next line overwrites it
            return
        name, size = self._name(outcome.case), format_size(r.bytes)
        lines = _format_row(f"{name:>{self._width}} {size:>10}", r, several_rounds=job.effort.rounds > 1)
        order = self._order[self._series(outcome.case)], outcome.case.bytes, outcome.case.in_place
        failure = f"{r.status}: {r.reason}" if r.median_s is None else ""
        row = _TableRow(attempt.number, _describe_ranks(attempt), order, name, r.bytes, failure, lines)
        self._rows[attempt.number, outcome.case.id] = row
        first, *more = lines.splitlines()
        print("\n".join([f"# {first}  [{position}/{count}]", *(f"# {line}" for line in more)]), flush=True)

    def end(self) -> None:
        """Print the rows by attempt, in the order of the job's cases, sizes ascending."""
        if not self._rows:
            return
        print(f"#{self._columns[1:]}")
        ordered = sorted(self._rows.values())
        for (number, words), rows in groupby(ordered, key=lambda row: (row.attempt, row.ranks)):
            if number != ordered[0].attempt:
                print(f"# attempt {number}, {words}")
            for lines in self._joined(rows):
                print(lines)
        self._rows.clear()
        sys.stdout.flush()

    def _joined(self, rows: Iterable[_TableRow]) -> Iterator[str]:
        """Yield the lines of ``rows``, a single one for adjacent rows that have no numbers for the same reason."""
        for _, group in groupby(rows, key=lambda row: (row.name, row.failure) if row.failure else row.position):
            joined = list(group)
            sizes = [row.bytes for row in joined]
            ends = " to ".join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))
            line = f"{joined[0].name:>{self._width}} {ends:>10} {len(joined)} cases {joined[0].failure}"
            yield line if len(joined) > 1 else joined[0].lines

    def _announce_round(self, number: int, rounds: int) -> None:
        if number != self._round:
            self._round = number
            print(f"# round {number} of {rounds}", flush=True)

    def _name(self, case: Case) -> str:
        """Return the algorithm, followed by the other coordinates that distinguish the case."""
        root = "" if case.root is None else f"root {case.root}"
        params = (f"{name}={value}" for name, value in case.params.items())
        coordinates = {
            "collective": case.collective, "transport": f"over {case.transport}", "root": root,
            "params": " ".join(params), "mapping": case.mapping or "",
        }  # fmt: skip
        return " ".join(filter(None, (case.algorithm, *(coordinates[name] for name in self._varying))))

    def _series(self, case: Case) -> tuple[str, ...]:
        """Return the key of the series of a case, which differ in size and placement only."""
        return self._name(case), case.dtype, case.op or ""

    def _common(self, job: Job) -> str:
        """Return the coordinates that all cases share and that are not part of their names."""
        case = job.cases[0]
        root = "" if case.root is None or "root" in self._varying else f"root {case.root}"
        params = () if "params" in self._varying else (f"{name}={value}" for name, value in case.params.items())
        mapping = "" if case.mapping is None or "mapping" in self._varying else f"mapping {case.mapping}"
        over = "" if case.transport == NATIVE_TRANSPORT or "transport" in self._varying else f"over {case.transport}"
        return " ".join(filter(None, (over, root, *params, mapping)))

    def _begin(self, job: Job, attempt: Attempt, count: int) -> None:
        self.empty = False
        several = {
            "collective": len({case.collective for case in job.cases}) > 1,
            "transport": len({case.transport for case in job.cases}) > 1,
            "root": any(case.root for case in job.cases),
            "params": len({tuple(case.params.items()) for case in job.cases}) > 1,
            "mapping": len({case.mapping for case in job.cases}) > 1,
        }
        self._varying = tuple(name for name, differs in several.items() if differs)
        self._width = max(len(name) for name in ("algorithm ", *map(self._name, job.cases)))
        oversubscribed = ", OVERSUBSCRIBED" if attempt.oversubscribed else ""
        what = "cases" if job.effort.rounds == 1 else f"measurements ({job.effort.rounds} rounds of each case)"
        print(f"# job {job.name}, attempt {attempt.number}: {count} {what} in shuffled order (seed {job.seed})")
        if attempt.ranks == 1:
            print("# a single rank sends no messages: start several, as in mpiexec -n 2 hpccoll run ...")
        print(f"# {_describe_ranks(attempt)}{oversubscribed}: {attempt.machine}")
        mpi = cast("dict[str, str]", attempt.provenance["mpi"])
        print(f"# {mpi['version']} ({mpi['path']}), thread level {mpi['threads']}")
        if any(case.device == "cpu" for case in job.cases):
            print("# {executor} executor; a waiting rank {waiting}".format(**attempt.provenance))
        print("# time: the median over iterations of the longest duration over ranks; +-: half its 95 % interval")
        if job.effort.rounds > 1:
            print("# several rounds: the median of their medians; rounds(%): the range of these medians")
        if common := self._common(job):
            print(f"# all: {common}")
        self._columns = f"{'algorithm':>{self._width}} {_HEADER}{_ROUND_SPREAD_HEADER if job.effort.rounds > 1 else ''}"
        series = dict.fromkeys(map(self._series, job.cases))
        self._order = {key: position for position, key in enumerate(series)}
        print(f"# {self._columns}", flush=True)
