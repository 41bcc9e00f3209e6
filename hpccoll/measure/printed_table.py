"""The table that rank 0 prints: a row a case, with the columns of nccl-tests, algorithm by algorithm, sizes ascending.

Calls are measured in random order. Each row is a comment as soon as its last round is in, so that nothing is lost where
a job is killed; the table comes at the end: who reads the lines that do not begin with # has every case once, in order.
Neighbours there that have no numbers, for the same reason, share a line.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, cast

from hpccoll.schedule import collective, itemsize
from hpccoll.schedule.collective import AUTO
from hpccoll.spec.case import Case, Job, Shape
from hpccoll.spec.transport_table import NATIVE_TRANSPORT
from hpccoll.store.raw import Attempt, CaseHistory
from hpccoll.store.rows import Row
from hpccoll.store.statistics import make_row
from hpccoll.units import format_number, format_size

_HEADER = (
    f"{'size':>10} {'count':>11} {'type':>8} {'redop':>5} {'place':>5} "
    f"{'time(us)':>10} {'+-(%)':>6} {'p99(us)':>10} {'algbw(GB/s)':>11} {'busbw(GB/s)':>11} {'#wrong':>6} {'iters':>5}"
)
_APART = f" {'rounds(%)':>9}"


def _apart(r: Row) -> str:
    """Return how far the medians of the rounds are apart, in per cent of the median."""
    medians = [median for median in r.round_medians_s if median is not None]
    return f"{(max(medians) - min(medians)) / r.median_s * 100:.1f}" if r.median_s and len(medians) > 1 else "-"


class _Told(NamedTuple):
    """One case in the table.

    Args:
        attempt: its number.
        ranks: how many there were, and where.
        place: of the case in the table.
        name: what it is called, without its size.
        bytes: its size.
        without: its status and why, where it has no numbers, else empty.
        lines: of the table.
    """

    attempt: int
    ranks: str
    place: tuple[int, ...]
    name: str
    bytes: int
    without: str
    lines: str


def _lines(what: str, r: Row, *, several_rounds: bool) -> str:
    """Return the row of a case, and below it what is to be said of it beside its numbers.

    Args:
        what: it is, in words.
        r: what became of it.
        several_rounds: whether there is a column of how far they are apart.
    """
    reason = f"{what} {_place(r)} {r.status}: {r.reason}"
    if r.median_s is None or r.p99_s is None:
        return reason
    sure = "-"
    if r.median_s and r.ci_high_s is not None and r.ci_low_s is not None:
        sure = f"{(r.ci_high_s - r.ci_low_s) / 2 / r.median_s * 100:.1f}"
    wrong = "-" if r.wrong is None else r.wrong
    bandwidths = [f"{'-' if rate is None else format_number(rate / 1e9, 3):>11}" for rate in (r.algbw_Bps, r.busbw_Bps)]
    elements = collective(r.collective).elements(r.requested_bytes, itemsize(r.dtype), r.ranks)
    numbers = (
        f"{what} {elements:>11} {r.dtype:>8} {r.op or '-':>5} {_place(r):>5} "
        f"{r.median_s * 1e6:>10.2f} {sure:>6} {r.p99_s * 1e6:>10.2f} {' '.join(bandwidths)} {wrong:>6} "
        f"{r.iterations:>5}"
        + (f" {_apart(r):>9}" if several_rounds else "")
        + (f"  {r.executed}" if r.algorithm == AUTO or r.requested not in (None, r.executed) else "")
    )
    return numbers if r.status == "ok" else f"{numbers}\n{reason}"


def _place(r: Row) -> str:
    return "in" if r.in_place else "out"


def _words(attempt: Attempt) -> str:
    """Return how many ranks an attempt has, and where."""
    apart = len({place.node for place in attempt.places}) > attempt.nodes
    return Shape(attempt.nodes, attempt.ranks - attempt.aggregators, attempt.aggregators, apart).words


class PrintedTable:
    """Prints what comes below a head that says what it is measured on, and the rows in order at the end."""

    def __init__(self) -> None:
        self.empty = True
        self._told: tuple[str, ...] = ()  # of what cases differ in, beside the columns: collective, root, arguments
        self._width = 0
        self._round = 0  # the one that was begun last
        self._columns = ""
        self._order: dict[tuple[str, ...], int] = {}  # of the kinds of cases
        self._rows: dict[tuple[int, str], _Told] = {}  # by attempt and case, of which the last word counts

    def show(self, job: Job, whole: CaseHistory, place: int, count: int) -> None:
        """Say what became of one case if it has no more rounds; ``place`` of ``count`` tells how far the job is."""
        attempt, outcome, runs = whole
        if self.empty:
            self._begin(job, attempt, count)
        r = make_row(job, attempt, outcome, runs=runs)
        if job.effort.rounds > 1 and outcome.rounds:
            self._tell_round(max(outcome.rounds), job.effort.rounds)
        if r.status == "partial" and not outcome.reason:
            if sys.stdout.isatty():
                print(f"# [{place}/{count}]", end="\r", flush=True)  # the next line goes over it
            return
        name, size = self._name(outcome.case), format_size(r.bytes)
        lines = _lines(f"{name:>{self._width}} {size:>10}", r, several_rounds=job.effort.rounds > 1)
        order = self._order[self._kind(outcome.case)], outcome.case.bytes, outcome.case.in_place
        without = f"{r.status}: {r.reason}" if r.median_s is None else ""
        told = _Told(attempt.number, _words(attempt), order, name, r.bytes, without, lines)
        self._rows[attempt.number, outcome.case.id] = told
        first, *more = lines.splitlines()
        print("\n".join([f"# {first}  [{place}/{count}]", *(f"# {line}" for line in more)]), flush=True)

    def end(self) -> None:
        """Print the rows, attempt by attempt, in the order in which the job names what is measured, sizes ascending."""
        if not self._rows:
            return
        print(f"#{self._columns[1:]}")
        every = sorted(self._rows.values())
        for (number, words), rows in groupby(every, key=lambda make_row: (make_row.attempt, make_row.ranks)):
            if number != every[0].attempt:
                print(f"# attempt {number}, {words}")
            for lines in self._joined(rows):
                print(lines)
        self._rows.clear()
        sys.stdout.flush()

    def _joined(self, rows: Iterable[_Told]) -> Iterator[str]:
        """Yield the lines of ``rows``, one for neighbours that have no numbers for the same reason."""
        for _, alike in groupby(rows, key=lambda row: (row.name, row.without) if row.without else row.place):
            found = list(alike)
            sizes = [row.bytes for row in found]
            ends = " to ".join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))
            same = f"{found[0].name:>{self._width}} {ends:>10} {len(found)} cases {found[0].without}"
            yield same if len(found) > 1 else found[0].lines

    def _tell_round(self, number: int, rounds: int) -> None:
        if number != self._round:
            self._round = number
            print(f"# round {number} of {rounds}", flush=True)

    def _name(self, case: Case) -> str:
        """Return the algorithm, and what else the case has to be told by."""
        root = "" if case.root is None else f"root {case.root}"
        params = (f"{name}={value}" for name, value in case.params.items())
        told = {
            "collective": case.collective, "transport": f"over {case.transport}", "root": root,
            "params": " ".join(params), "mapping": case.mapping or "",
        }  # fmt: skip
        return " ".join(filter(None, (case.algorithm, *(told[what] for what in self._told))))

    def _kind(self, case: Case) -> tuple[str, ...]:
        """Return what cases have in common that differ in size and placement alone."""
        return self._name(case), case.dtype, case.op or ""

    def _common(self, job: Job) -> str:
        """Return what all cases share of what else they are told by, and is not said in each row."""
        case = job.cases[0]
        root = "" if case.root is None or "root" in self._told else f"root {case.root}"
        params = () if "params" in self._told else (f"{name}={value}" for name, value in case.params.items())
        mapping = "" if case.mapping is None or "mapping" in self._told else f"mapping {case.mapping}"
        over = "" if case.transport == NATIVE_TRANSPORT or "transport" in self._told else f"over {case.transport}"
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
        self._told = tuple(name for name, differs in several.items() if differs)
        self._width = max(len(name) for name in ("algorithm ", *map(self._name, job.cases)))
        crowd = ", OVERSUBSCRIBED" if attempt.oversubscribed else ""
        what = "cases" if job.effort.rounds == 1 else f"measurements ({job.effort.rounds} rounds of each case)"
        print(f"# job {job.name}, attempt {attempt.number}: {count} {what} in shuffled order (seed {job.seed})")
        if attempt.ranks == 1:
            print("# 1 rank exchanges nothing: start more with mpiexec -n 2 hpccoll run ...")
        print(f"# {_words(attempt)}{crowd}: {attempt.machine}")
        mpi = cast("dict[str, str]", attempt.provenance["mpi"])
        print(f"# {mpi['version']} ({mpi['path']}), thread level {mpi['threads']}")
        print("# time: the median over iterations of the longest duration over ranks, +- half its 95 % interval")
        if job.effort.rounds > 1:
            print("# of several rounds: the median of their medians; rounds(%): from the lowest to the highest of them")
        if common := self._common(job):
            print(f"# all: {common}")
        self._columns = f"{'algorithm':>{self._width}} {_HEADER}{_APART if job.effort.rounds > 1 else ''}"
        kinds = dict.fromkeys(map(self._kind, job.cases))
        self._order = {kind: place for place, kind in enumerate(kinds)}
        print(f"# {self._columns}", flush=True)
