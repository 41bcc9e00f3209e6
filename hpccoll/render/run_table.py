"""The table that rank 0 prints: one row per case, the cases of one size next to each other, sizes ascending.

Cases are measured in random order. A row is printed as a comment when its case has been measured
for the first time and when its last round is complete, so that nothing is lost if the job is
killed. In between, a log has a line with the time left every half a minute, and a terminal always.
The table follows at the end: lines that do not begin with # have each case once. In each size the
cases out of place come first, because they are compared with one another, as those in place are;
the last column marks the case to use. Cases without numbers come last; those of one name that have
the same reason share a line.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias, cast

from hpccoll.analysis.recommendations import RecommendedRange
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.analysis.stall_recovery import level_without_recovery
from hpccoll.analysis.strength import Strength
from hpccoll.cases.case import (
    AGGREGATED,
    LOOPS_OF_PROGRAMS,
    NCCL_TESTS,
    OSU,
    RUN_JOB,
    SINGLE,
    Case,
    Job,
    Shape,
)
from hpccoll.common.terminal import show_status
from hpccoll.common.text import join_ends
from hpccoll.common.units import format_count, format_number, format_size, format_wait
from hpccoll.host.cpu_and_memory import CPU_QUOTA_REMEDY
from hpccoll.measure.run.round_order import round_key
from hpccoll.render.printed_evidence import found_lines
from hpccoll.schedule.collective import AUTO
from hpccoll.store.call_key import CallKey
from hpccoll.store.case_row import make_row
from hpccoll.store.raw_results import Attempt, CaseHistory
from hpccoll.store.rows import Row

MARKS: Mapping[Strength, str] = {"strong": "*", "fair": "*", "weak": "~", "none": ""}
"""The mark of the choice for a size, by the strength of the evidence in its range of sizes."""

MAX_SILENCE_S = 30.0
"""Seconds without a line after which a log has a line about the progress."""


Ranges: TypeAlias = Mapping[tuple[Setting, int], RecommendedRange]
"""What to use, by setting and size in bytes."""


@dataclass(frozen=True, slots=True)
class _TableRow:
    """One case in the table."""

    ranks: str  # the number of ranks and nodes, in words
    # the position of the case's call, and its size: only cases of one call are compared
    call: tuple[int, int]
    series: int  # the position of the case's series, whose cases differ in size and placement only
    name: str  # of the series
    result: Row
    incomplete: bool  # rounds are missing, and that is all

    @property
    def failure(self) -> str:
        """The status and the reason of a case without numbers, else empty."""
        if self.result.median_s is not None:
            return ""
        return f"{self.result.status}: {self.result.reason}"

    @property
    def remark(self) -> str | None:
        """The status and the reason of a case that is not ok, unless only rounds are missing."""
        if self.result.status == "ok" or self.incomplete:
            return None
        return f"{self.result.status}: {self.result.reason}"


def _us(seconds: float) -> str:
    return format_number(seconds * 1e6, 2 if seconds < 0.1 else 0)


def _gigabytes(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate / 1e9:.3f}" if rate >= 1e8 else f"{rate / 1e9:.3g}"


MAX_PER_CENT = 999
"""The largest per cent that is printed: what is more says nothing but that the time is unknown."""


def _per_cent(part: float) -> str:
    percent = part * 100
    if round(percent) > MAX_PER_CENT:
        return f">{MAX_PER_CENT}"
    if part < 1:
        return f"{percent:.1f}"
    return f"{percent:.0f}"


def _half_interval(r: Row) -> str:
    if not r.median_s or r.ci_high_s is None or r.ci_low_s is None:
        return "-"
    return _per_cent((r.ci_high_s - r.ci_low_s) / 2 / r.median_s)


def _round_spread(r: Row) -> str:
    medians = [median for median in r.round_medians_s if median is not None]
    if not r.median_s or len(medians) < 2:
        return "-"
    return _per_cent((max(medians) - min(medians)) / r.median_s)


def _executed(r: Row) -> str:
    """Return what ran instead of what the name of the row says; empty if that is the same."""
    is_as_requested = r.requested in (None, r.executed)
    if is_as_requested and r.algorithm != AUTO:
        return ""
    return r.executed or ""


def _placement(r: Row) -> str:
    return "in" if r.in_place else "out"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column after the name: rows are printed as they are measured, so that its width is known before its cells."""

    heading: str
    unit: str
    width: int
    cell: Callable[[Row], str]


_COLUMNS = (
    _Column("size", "", 8, lambda r: format_size(r.bytes)),
    _Column("place", "", 5, _placement),
    _Column("time", "(us)", 8, lambda r: _us(r.median_s or 0.0)),
    _Column("+-", "(%)", 5, _half_interval),
    _Column("p99", "(us)", 8, lambda r: "-" if r.p99_s is None else _us(r.p99_s)),
    _Column("algbw", "(GB/s)", 8, lambda r: _gigabytes(r.algbw_Bps)),
    _Column("busbw", "(GB/s)", 8, lambda r: _gigabytes(r.busbw_Bps)),
    _Column("#wrong", "", 6, lambda r: "-" if r.wrong is None else str(r.wrong)),
)
"""The columns of all rows with a time. With names of 18 characters a line has 100."""


def _coordinates(case: Case) -> dict[str, str]:
    """Return the coordinates of a case besides its algorithm, size and placement, as words of its name."""
    params = [f"{name}={value}" for name, value in case.params.items()]
    return {
        "collective": case.collective,
        "dtype": case.dtype,
        "op": case.op or "",
        "transport": f"over {case.transport}",
        "root": "" if case.root is None else f"root {case.root}",
        "params": " ".join(params),
        "mapping": f"{case.mapping} mapping" if case.mapping else "",
        "timing": "" if case.timing == SINGLE else case.timing,
    }


_MAY_BE_EMPTY = "params", "timing"
"""Coordinates whose absence distinguishes a case: algorithms with and without parameters differ."""


def _describe_ranks(attempt: Attempt) -> str:
    nodes_of_places = {place.node for place in attempt.places}
    dedicated_aggregators = len(nodes_of_places) > attempt.nodes
    workers = attempt.ranks - attempt.aggregators
    return Shape(attempt.nodes, workers, attempt.aggregators, dedicated_aggregators).text


def _mark(r: Row, ranges: Ranges) -> str:
    chosen = ranges.get((Setting.of(r), r.requested_bytes))
    if chosen is None or chosen.choice != Choice.of(r):
        return ""
    return MARKS[chosen.strength]


class PrintedTable:
    """Prints a header with the machine, each case as it is measured, and the sorted rows at the end."""

    def __init__(self) -> None:
        self.empty = True
        # the coordinates that differ between cases and are part of their names
        self._varying: tuple[str, ...] = ()
        self._width = 0
        self._calls = dict[CallKey, int]()  # the position of each call in the table, by its key
        self._series: dict[str, int] = {}  # the position of each series, by its name
        self._round = 0  # the last round that was announced
        self._shapes: dict[str, None] = {}  # the ranks and nodes of each attempt, in words
        self._seen: set[tuple[int, str]] = set()  # attempt and case of the rows that were printed
        self._begun = self._printed = time.monotonic()  # the launch of the ranks, and the last line
        self._attempt, self._first = 1, 0  # the attempt, and its measurements before self._begun

    def show(self, job: Job, history: CaseHistory, position: int, count: int) -> None:
        """Print the first and the last result of a case; ``position`` of ``count`` rounds have been measured."""
        attempt, outcome = history.attempt, history.outcome
        if self.empty:
            self._begin(job, attempt, count)
        if attempt.number != self._attempt:  # ranks were lost, and the others go on
            self._attempt = attempt.number
            self._first = position
            self._begun = time.monotonic()
        row = self._row(job, history)
        self._shapes[row.ranks] = None
        if job.effort.rounds > 1 and outcome.rounds:
            self._announce_round(max(outcome.rounds), job.effort.rounds)
        key = attempt.number, outcome.case.id
        is_known = row.incomplete and key in self._seen
        is_skipped = (
            outcome.status == "skipped"
        )  # the last table has its reason once, for all sizes
        if is_known or is_skipped:
            self._show_progress(position, count)
            return
        self._seen.add(key)
        self._printed = time.monotonic()
        first, *further = self._lines(row)
        print(
            "\n".join([f"# {first}  [{position}/{count}]", *(f"# {line}" for line in further)]),
            flush=True,
        )

    def _announce_round(self, number: int, rounds: int) -> None:
        """Print which round begins, unless that is known."""
        if number == self._round:
            return
        self._round = number
        line = f"# round {number} of {rounds}"
        if number == rounds:
            line += ": the results of all rounds"
        elif number > 1:
            line += ": results are printed with the last round"
        print(line, flush=True)

    def _show_progress(self, position: int, count: int) -> None:
        now = time.monotonic()
        text = f"# [{position}/{count}]"
        done = position - self._first
        if done:
            left_s = (now - self._begun) / done * (count - position)
            text += f", about {format_wait(left_s)} left"
        if sys.stdout.isatty():
            show_status(sys.stdout, text)
        elif now - self._printed >= MAX_SILENCE_S:
            self._printed = now
            print(text, flush=True)

    def end(self, job: Job, histories: Iterable[CaseHistory], ranges: Ranges) -> None:
        """Print the table of the cases that ran on as many ranks as those shown; nothing if no case was shown.

        The ``histories`` are those of the job so far, also of earlier launches; ``ranges`` say what
        to use.
        """
        rows = []
        for history in histories:
            row = self._row(job, history)
            if row.ranks in self._shapes:
                rows.append(row)
        if not rows:
            return
        is_marked = any(_mark(row.result, ranges) for row in rows)
        columns = self._more_columns(job, rows)
        if is_marked:
            columns.append(_Column("best", "", 4, lambda r: _mark(r, ranges)))
        print("#")
        if is_marked:
            print(
                "# best: * the choice for the size, by strong or fair evidence; ~ by weak evidence"
            )
        print("\n".join(self._headings((*_COLUMNS, *columns))))
        for number, shape in enumerate(self._shapes):
            if number:
                print(f"# {shape}")
            shape_rows = [row for row in rows if row.ranks == shape]
            print("\n".join([*self._compared(shape_rows, columns), *self._failures(shape_rows)]))
        partial = sum(row.incomplete for row in rows)
        if partial:
            print(
                f"# {format_count(partial, 'case')} with fewer than {job.effort.rounds} rounds: the run ended before"
            )
        sys.stdout.flush()

    def _more_columns(self, job: Job, rows: Iterable[_TableRow]) -> list[_Column]:
        """Return the columns at the end of the run that depend on its rounds and on what ran."""
        columns = [_Column("iters", "", 5, lambda r: str(r.iterations))]
        if job.effort.rounds > 1:
            columns.append(_Column("rounds", "(%)", 6, _round_spread))
        longest = max(len(_executed(row.result)) for row in rows)
        if longest:
            columns.append(_Column("executed", "", max(longest, len("executed")), _executed))
        return columns

    def _compared(self, rows: Iterable[_TableRow], columns: Sequence[_Column]) -> Iterator[str]:
        """Yield the lines of the rows with numbers, call by call, with lines between calls if some have more rows."""
        calls: dict[tuple[int, int], list[_TableRow]] = defaultdict(list)
        for row in rows:
            if not row.failure:
                calls[row.call].append(row)
        several = any(len(members) > 1 for members in calls.values())
        for number, call in enumerate(sorted(calls)):
            if several and number:
                yield "#"
            for row in sorted(calls[call], key=lambda row: (row.result.in_place, row.series)):
                yield from self._lines(row, columns)

    def _failures(self, rows: Iterable[_TableRow]) -> Iterator[str]:
        """Yield the lines of the rows without numbers, one for those of a series that have the same reason."""
        failed = [row for row in rows if row.failure]
        failed.sort(key=lambda row: (row.series, row.result.requested_bytes))
        by_reason: Mapping[tuple[str, str], list[_TableRow]] = defaultdict(list)
        for row in failed:
            by_reason[row.name, row.failure].append(row)
        for (name, failure), group in by_reason.items():
            sizes = sorted(row.result.bytes for row in group)
            ends = join_ends(map(format_size, sizes))
            which = f"{len(group)} cases"
            if len(group) == 1:
                which = _placement(group[0].result)
            yield f"{name:>{self._width}} {ends:>8} {which} {failure}"

    def _lines(self, row: _TableRow, columns: Sequence[_Column] = ()) -> list[str]:
        """Return the line of a case, with more columns, and a line with its reason if its status is not ok."""
        r = row.result
        name = f"{row.name:>{self._width}}"
        place = f"{name} {format_size(r.bytes):>8} {_placement(r)}"
        if row.failure:
            return [f"{place} {row.failure}"]
        cells = [f"{column.cell(r):>{column.width}}" for column in (*_COLUMNS, *columns)]
        line = " ".join([name, *cells]).rstrip()
        if not columns and _executed(r):
            line += f"  {_executed(r)}"
        lines = [line]
        if row.remark:
            lines.append(f"{place} {row.remark}")
        return lines

    def _headings(self, columns: Sequence[_Column]) -> list[str]:
        headings = [f"{'algorithm':>{self._width}}"]
        units = [" " * self._width]
        for column in columns:
            headings.append(f"{column.heading:>{column.width}}")
            units.append(f"{column.unit:>{column.width}}")
        return [f"#{' '.join(words)[1:]}".rstrip() for words in (headings, units)]

    def _row(self, job: Job, history: CaseHistory) -> _TableRow:
        outcome = history.outcome
        case = outcome.case
        name = self._name(case)
        call_of_any_size = round_key(case).without("requested_bytes")
        position_of_call = self._calls[call_of_any_size]
        result = make_row(job, history)
        misses_only_rounds = result.status == "partial" and not outcome.reason
        return _TableRow(
            ranks=_describe_ranks(history.attempt),
            call=(position_of_call, case.bytes),
            series=self._series[name],
            name=name,
            result=result,
            incomplete=misses_only_rounds,
        )

    def _name(self, case: Case) -> str:
        coordinates = _coordinates(case)
        varying = [coordinates[name] for name in self._varying]
        return " ".join(filter(None, (case.algorithm, *varying)))

    def _begin(self, job: Job, attempt: Attempt, count: int) -> None:
        self._attempt = attempt.number
        # in order of the cases
        values: dict[str, dict[str, None]] = {name: {} for name in _coordinates(job.cases[0])}
        for case in job.cases:
            for name, text in _coordinates(case).items():
                if text or name in _MAY_BE_EMPTY:
                    values[name][text] = None
        self._varying = tuple(name for name, texts in values.items() if len(texts) > 1)
        names = dict.fromkeys(map(self._name, job.cases))
        self._width = max(map(len, ("algorithm ", *names)))
        self._series = {name: position for position, name in enumerate(names)}
        calls = dict.fromkeys(round_key(case).without("requested_bytes") for case in job.cases)
        self._calls = {call: position for position, call in enumerate(calls)}
        shared: list[str] = []
        for texts in values.values():
            if len(texts) == 1:
                shared += filter(None, texts)
        comments = [*_header_lines(job, attempt, count), f"all: {' '.join(shared)}"]
        lines = [f"# {comment}" for comment in comments]
        lines += self._headings(_COLUMNS)
        print("\n".join(lines), flush=True)
        self.empty = False


_TIMING_TEXTS = {
    AGGREGATED: f"{AGGREGATED}: {{}} operations queued back to back, over their number",
    NCCL_TESTS: f"{NCCL_TESTS}: all calls of a round at once, in turn over the largest buffer; the mean over ranks",
    OSU: f"{OSU}: each call alone, then MPI_Barrier, on buffers as they are; the mean over iterations and ranks",
}
"""What the timings other than single measure; the operations of an iteration are filled in."""


def _gpu_lines(job: Job, attempt: Attempt) -> Iterator[str]:
    """Yield what is said once of NCCL and of MPI on GPU memory."""
    transports = map(attrgetter("transport"), job.cases)
    level = level_without_recovery(attempt.provenance, attempt.ranks, transports)
    if level:
        yield f"with thread level {level} a rank that stalls ends the run; multiple goes on without it"
    groups_of_hosts = cast(
        "Sequence[dict[str, Any]]", attempt.provenance.get("cuda_aware_mpi") or ()
    )
    between_nodes = {hosts["verdict"].get("between_nodes") for hosts in groups_of_hosts}
    yield from sorted(filter(None, between_nodes))


def _measurements_line(job: Job, attempt: Attempt, count: int) -> str:
    """Return how much is measured, and about how long that takes: ``48 measurements (16 cases in 3 rounds), ...``."""
    launch = []
    if job.name != RUN_JOB:
        launch.append(f"job {job.name}")
    if attempt.number > 1:
        launch.append(f"attempt {attempt.number}")
    where = f"{', '.join(launch)}: " if launch else ""
    cases = format_count(len(job.cases), "case")
    rounds = format_count(job.effort.rounds, "round")
    likely = format_wait(count / job.effort.rounds * job.effort.seconds)
    measurements = f"{format_count(count, 'measurement')} ({cases} in {rounds})"
    return f"{where}{measurements}, random order (seed {job.seed}), up to about {likely}"


def _timing_lines(timings: Sequence[str], operations: int) -> Iterator[str]:
    """Yield what timings other than single measure, with the given number of operations in an iteration."""
    for timing in timings:
        if timing in _TIMING_TEXTS:
            yield _TIMING_TEXTS[timing].format(operations)
    if timings == [AGGREGATED]:
        yield f"--timing {SINGLE} adds what the host takes to queue one operation and to see its end"


def _header_lines(job: Job, attempt: Attempt, count: int) -> Iterator[str]:
    yield _measurements_line(job, attempt, count)
    if attempt.ranks == 1:
        yield "a single rank sends no messages: start several, as in mpiexec -n 2 hpccoll run ..."
    oversubscribed = ", OVERSUBSCRIBED" if attempt.oversubscribed else ""
    yield f"{_describe_ranks(attempt)}{oversubscribed}: {attempt.machine}"
    provenance = cast("dict[str, Any]", attempt.provenance)
    quota = provenance.get("cpu_quota")
    if quota is not None and quota < (attempt.ranks_per_node or attempt.ranks):
        yield f"ranks that wait use up the quota of {quota:g} CPUs, and Linux then stops all ranks until its period"
        yield f"ends; do: {CPU_QUOTA_REMEDY}"
    alone = provenance.get("ranks_seeing_one_gpu")
    if alone:
        yield f"{format_count(len(alone), 'rank')} see one GPU only, and their node uses more GPUs: if Slurm"
        yield "hides the other GPUs (cgroup), messages go through host memory; do: srun --gpu-bind=none"
    mpi = provenance["mpi"]
    yield f"{mpi['version']} ({mpi['path']}), thread level {mpi['threads']}"
    yield from _gpu_lines(job, attempt)
    yield from found_lines(attempt)
    if any(case.device == "cpu" for case in job.cases):
        yield f"{provenance['executor']} executor; a waiting rank {provenance['waiting']}"
    timings = dict.fromkeys(case.timing for case in job.cases)
    if any(timing not in LOOPS_OF_PROGRAMS for timing in timings):
        yield "time: the median over iterations of the longest duration over ranks; +-: half its 95 % interval"
    if any(case.load for case in job.cases):
        yield "load gemm: a thread of each rank multiplies matrices while its cases are measured"
    yield from _timing_lines(list(timings), job.effort.operations)
    if job.effort.rounds > 1:
        yield "several rounds: the median of their medians; rounds: how far their medians are apart, in %"
