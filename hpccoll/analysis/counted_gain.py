"""What a counted program would gain at most by other algorithms of its MPI library, from measurements of its calls."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hpccoll.analysis.counted_shares import CountedShares, KindShare, call_text
from hpccoll.analysis.setting import recorded_mpi_version
from hpccoll.common.text import Finding, info, warning
from hpccoll.common.units import format_factor, format_per_cent, format_seconds
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.schedule import collective
from hpccoll.store.counted_job import mpi_library_name
from hpccoll.store.host_load import describe_disturbance
from hpccoll.store.rows import Results, Row

COLLECTIVES = {
    "Allreduce": "all_reduce",
    "Reduce": "reduce",
    "Bcast": "broadcast",
    "Barrier": "barrier",
    "Allgather": "all_gather",
    "Gather": "gather",
    "Scatter": "scatter",
    "Alltoall": "all_to_all",
    "Reduce_scatter": "reduce_scatter",
    "Reduce_scatter_block": "reduce_scatter",
}
"""The collectives that can be measured, by MPI's names."""

DTYPES = {
    "MPI_FLOAT": "float32",
    "MPI_REAL": "float32",
    "MPI_DOUBLE": "float64",
    "MPI_DOUBLE_PRECISION": "float64",
    "MPI_INT": "int32",
    "MPI_INTEGER": "int32",
    "MPI_LONG": "int64",
    "MPI_LONG_LONG_INT": "int64",
}
"""Our names of element types; others are measured as OTHER_DTYPE."""

OTHER_DTYPE = "float32"

ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}

WORTH = 0.01
"""The share of a run below which another algorithm is not worth a table."""

NOTHING = 0.0005
"""The share of a run below which a gain is none: in per cent with a decimal it is 0.0."""

DEFAULT = "default"
"""The variant with the library's own choices."""

PROMISING = 3
"""The most algorithms of a kind of call that are launched again."""

DIFFERING_LAUNCHES = 1.5
"""If the slowest launch of an algorithm takes this many times as long as its fastest, a finding says so."""


@dataclass(frozen=True, slots=True)
class LaunchedTime:
    """The time of an algorithm in the calls of one kind, over one launch or several."""

    algorithm: str  # by the library's name; "default"
    variant: str  # of the sweep that measured it
    medians_s: tuple[float, ...]  # of each launch
    ends_s: tuple[float, float]  # around the 95 % intervals of all launches

    @classmethod
    def of(cls, algorithm: str, rows: Sequence[Row]) -> "LaunchedTime":
        """Return the time of an algorithm whose rows have medians and intervals."""
        intervals = [row.interval for row in rows if row.interval]
        ends = min(low for low, _ in intervals), max(high for _, high in intervals)
        medians = tuple(row.median_s for row in rows if row.median_s)
        return cls(algorithm, rows[0].variant or DEFAULT, medians, ends)

    @property
    def seconds(self) -> float:
        """The median over launches."""
        return median(self.medians_s)

    @property
    def spread(self) -> float:
        """The slowest launch over the fastest."""
        return max(self.medians_s) / min(self.medians_s)

    def ratio(self, default: "LaunchedTime") -> float:
        """Return the time over that of the default: the median over launches, which were in turn.

        What slows the machine for a while slows neighbouring launches, and not their ratio.
        """
        pairs = zip(self.medians_s, default.medians_s, strict=False)
        return median(mine / theirs for mine, theirs in pairs)


@dataclass(frozen=True, slots=True)
class CallGain:
    """What another algorithm would save in the calls of one kind."""

    share: KindShare
    default_s: float  # the library's own choice, as it was measured
    best_s: float  # the time of the default, multiplied by the ratio of the algorithm to it
    best: str  # the algorithm, by the library's name; "default"
    gain_s: float  # of the run, the mean over ranks
    interval_s: tuple[float, float]
    launches: int = 1  # in which both were measured
    spread: float = 1.0  # the slowest launch of either over its fastest

    @property
    def is_clear(self) -> bool:
        """Whether all launches of the best algorithm were faster than all of the default."""
        return self.interval_s[0] > 0


@dataclass(frozen=True, slots=True)
class ProgramGain:
    """What other algorithms would save in a program."""

    shares: CountedShares
    gains: Sequence[CallGain]  # the largest first
    measurable: float  # share of the run: of calls that could be measured
    measured_with: Sequence[str] = ()  # versions of MPI libraries, as runs record them
    disturbed: str = ""  # what else used the machine while it was measured, in words
    oversubscribed: bool = False  # whether ranks shared cores while it was measured

    @property
    def gain_s(self) -> float:
        """Seconds of the run."""
        return sum(gain.gain_s for gain in self.gains)

    @property
    def interval_s(self) -> tuple[float, float]:
        """The ends, if all intervals are off to the same side."""
        low = sum(gain.interval_s[0] for gain in self.gains)
        high = sum(gain.interval_s[1] for gain in self.gains)
        return low, high

    @property
    def at_most(self) -> float:
        """The largest share of the run that can be gained."""
        if not self.gains:
            return self.measurable
        return self.interval_s[1] / self.shares.run_s

    @property
    def waiting_s(self) -> float:
        """The seconds of the run that the measured calls take beyond what they took as they were measured."""
        waiting_s = 0.0
        for gain in self.gains:
            transfer_s = _transfer_s(self.shares, gain.share, gain.default_s)
            waiting_s += gain.share.seconds - transfer_s
        return waiting_s

    @property
    def unmeasured(self) -> float:
        """The share of the run in calls of collectives that were not measured, and count as no gain."""
        measured = sum(gain.share.share for gain in self.gains)
        return self.shares.share - measured

    @property
    def is_worth_it(self) -> bool:
        """Whether a table may be worth its while."""
        return self.at_most >= WORTH

    @property
    def is_clear(self) -> bool:
        """Whether an algorithm is clearly faster than the default in some call."""
        return any(gain.is_clear for gain in self.gains)

    @property
    def findings(self) -> list[Finding]:
        """What to say of it, the most important first."""
        return list(_findings(self))


def measurable_kinds(shares: CountedShares) -> list[KindShare]:
    """Return the kinds of calls that a sweep can measure, the longest first.

    They are blocking calls of COLLECTIVES on communicators of two ranks or more.
    """
    kinds = []
    for share in shares.kinds:
        is_plain = share.kind.variant == "blocking" and not share.group.is_inter
        if is_plain and share.kind.collective in COLLECTIVES and share.group.size > 1:
            kinds.append(share)
    return kinds


def gain_without_measuring(shares: CountedShares) -> ProgramGain:
    """Return the bound that holds whatever another algorithm does: all time in the calls, without known waiting."""
    share = 0.0
    for kind in measurable_kinds(shares):
        spent_s = kind.seconds + kind.waiting_s
        if spent_s > 0:
            share += kind.share * kind.seconds / spent_s
    return ProgramGain(shares, (), share)


def program_gain(shares: CountedShares, results: Results) -> ProgramGain:
    """Return what the fastest algorithms in results would save in a counted program.

    A kind of call gains the ratio of the best to the default time, of the time that it takes in the
    program: of what its calls would take as they were measured, if that is less, because the rest
    is waiting for late ranks.
    """
    gains = []
    oversubscribed = False
    for share in measurable_kinds(shares):
        rows = [row for row in results.rows if _is_of(row, share)]
        oversubscribed = oversubscribed or any(row.oversubscribed for row in rows)
        gain = _call_gain(shares, share, rows)
        if gain:
            gains.append(gain)
    gains.sort(key=lambda gain: -gain.gain_s)
    bound = gain_without_measuring(shares)
    versions = dict.fromkeys(recorded_mpi_version(run.provenance) for run in results.runs)
    disturbed = describe_disturbance(run.provenance for run in results.runs)
    return ProgramGain(shares, gains, bound.measurable, tuple(versions), disturbed, oversubscribed)


def measured_dtype(share: KindShare) -> str:
    """Return the element type with which calls of a kind are measured; what moves data has no type of its own."""
    if not collective(COLLECTIVES[share.kind.collective]).reduces:
        return OTHER_DTYPE
    return DTYPES.get(share.kind.dtype, OTHER_DTYPE)


def measured_bytes(share: KindShare) -> int:
    """Return the size with which calls of a kind are measured: their mean, but an element at least, or one a block."""
    least = ITEM_BYTES[measured_dtype(share)]
    if collective(COLLECTIVES[share.kind.collective]).units == "per_rank":
        least *= share.group.size
    return max(round(share.mean_bytes), least)


def _is_of(row: Row, share: KindShare) -> bool:
    """Return whether a row measured calls of a kind: the default of the library, or an algorithm that ran as forced."""
    if row.collective != COLLECTIVES[share.kind.collective] or row.status != "ok":
        return False
    if row.ranks != share.group.size or row.dtype != measured_dtype(share):
        return False
    if share.group.nodes and row.nodes != share.group.nodes:
        return False
    if row.collective != "barrier" and row.requested_bytes != measured_bytes(share):
        return False
    if not row.requested:
        return True
    ran = row.executed.partition(" (")[0]
    return ran in (UNKNOWN, row.requested)


def _call_gain(shares: CountedShares, share: KindShare, rows: Sequence[Row]) -> CallGain | None:
    """Return what the best of rows saves in the calls of a kind; None without the default and another algorithm."""
    times = _launched_times(rows, share)
    default = times.get(DEFAULT)
    if default is None or len(times) == 1:
        return None
    best = min(_compared(times, default), key=lambda time: time.ratio(default))
    ratio = best.ratio(default)
    spread = max(default.spread, best.spread)
    spent_s = _transfer_s(shares, share, default.seconds)
    gain_s = 0.0
    interval_s = 0.0, 0.0
    if best is not default:
        gain_s = spent_s * (1 - ratio)
        low = spent_s * max(0.0, 1 - best.ends_s[1] / default.ends_s[0])
        high = spent_s * max(0.0, 1 - best.ends_s[0] / default.ends_s[1])
        interval_s = low, high
    return CallGain(
        share,
        default.seconds,
        default.seconds * ratio,
        best.algorithm,
        gain_s,
        interval_s,
        len(default.medians_s),
        spread,
    )


def promising_variants(
    shares: CountedShares, results: Results, collective_name: str
) -> tuple[str, ...]:
    """Return the variants of a collective that were faster than the default, for launches that confirm it.

    Of each kind of call, they are the fastest ones.
    """
    variants: dict[str, None] = {}
    for share in measurable_kinds(shares):
        if COLLECTIVES[share.kind.collective] != collective_name:
            continue
        rows = [row for row in results.rows if _is_of(row, share)]
        times = _launched_times(rows, share)
        default = times.get(DEFAULT)
        if default is None:
            continue
        faster = [time for time in _compared(times, default) if time.ratio(default) < 1]
        faster.sort(key=lambda time: time.ratio(default))
        for time in faster[:PROMISING]:
            variants[time.variant] = None
    return tuple(variants)


def _launched_times(rows: Sequence[Row], share: KindShare) -> dict[str, LaunchedTime]:
    """Return the time of each algorithm in the calls of a kind, by its name."""
    by_algorithm: dict[str, list[Row]] = {}
    for row in _timed_alike(rows, share):
        algorithm = DEFAULT
        if row.variant not in (None, DEFAULT):
            algorithm = row.requested or row.variant or DEFAULT
        by_algorithm.setdefault(algorithm, []).append(row)
    return {
        algorithm: LaunchedTime.of(algorithm, alike) for algorithm, alike in by_algorithm.items()
    }


def _compared(times: Mapping[str, LaunchedTime], default: LaunchedTime) -> list[LaunchedTime]:
    """Return the times that may be compared with that of the default, and this itself.

    A choice that was launched less often had no chance to show how launches differ.
    """
    launches = len(default.medians_s)
    return [time for time in times.values() if len(time.medians_s) >= launches]


def _transfer_s(shares: CountedShares, share: KindShare, default_s: float) -> float:
    """Return what the calls of a kind would take by the default as it was measured, at most what they took.

    It is a mean over the ranks of the launch, as the seconds of a kind.
    """
    launch = share.group.launch
    ranks = sum(rank.launch == launch for rank in shares.job.ranks)
    calls = share.all_calls / ranks  # a rank's, also of communicators with some of the ranks
    return min(calls * default_s, share.seconds)


def _timed_alike(rows: Sequence[Row], share: KindShare) -> list[Row]:
    """Return the rows with intervals; of two placements those of the calls."""
    timed = []
    placed = []
    for row in rows:
        if not row.median_s or not row.interval:
            continue
        timed.append(row)
        if row.in_place == share.kind.in_place:
            placed.append(row)
    return placed or timed  # calls with one buffer are measured in one placement


def _findings(gain: ProgramGain) -> Iterator[Finding]:
    run_s = gain.shares.run_s
    if not gain.is_worth_it:
        yield info("leave it", _little_text(gain), at_most=gain.at_most)
    elif gain.gains:
        low, high = gain.interval_s
        share = gain.gain_s / run_s
        ends = f"{format_per_cent(low / run_s)} to {format_per_cent(high / run_s)}"
        saved = f"{format_seconds(gain.gain_s)} of {format_seconds(run_s)}"
        text = f"other algorithms would save at most {saved}: {format_per_cent(share)} ({ends})"
        remedy = ""
        if not gain.is_clear:
            text = (
                f"no algorithm is clearly faster: {ends} of your run would be saved, which is noise"
            )
            remedy = "leave it, or measure again on an idle machine"
        interval_s = [low, high]
        yield info(
            "gain", text, remedy=remedy, gain_s=gain.gain_s, interval_s=interval_s, share=share
        )
    else:
        library = mpi_library_name(gain.shares.job.launches[0].library)
        yield warning(
            "nothing measured",
            "no algorithm was measured beside the default",
            remedy=f"do: measure where mpi4py finds the program's library, {library}",
        )
    if gain.gains:
        yield from _coverage_findings(gain)


def _little_text(gain: ProgramGain) -> str:
    """Return that a program gains little or nothing, and whether that holds of all its calls."""
    at_most = f"at most {format_per_cent(gain.at_most)}"
    if gain.gains and gain.at_most < NOTHING:
        at_most = f"less than {format_per_cent(2 * NOTHING)}"
    if gain.gains and gain.unmeasured >= WORTH:
        return f"{at_most} of your run, in the calls that were measured"
    if gain.gains and all(call.best == DEFAULT for call in gain.gains):
        return "nothing to gain: no algorithm is faster than what your library chooses; leave it"
    return f"{at_most} of your run: leave it"


def _differing_launches(gain: ProgramGain) -> Iterator[Finding]:
    """Yield the call whose launches of one algorithm differ most, if that may explain differences of algorithms."""
    call = max(gain.gains, key=lambda call: call.spread)
    if call.spread < DIFFERING_LAUNCHES:
        return
    factor = format_factor(call.spread)
    name = call_text(call.share)
    text = f"{name}: {call.launches} launches of the same algorithm differ by up to {factor}"
    yield warning("launches differ", text, spread=call.spread, launches=call.launches)


def _coverage_findings(gain: ProgramGain) -> Iterator[Finding]:
    """Yield what the bound rests on and leaves out, and what is best in the call that gains most."""
    library = gain.shares.job.launches[0].library
    number = re.search(r"\d+(\.\d+)+", library)
    for version in gain.measured_with:
        if version and number and number[0] not in version:
            names = mpi_library_name(version), mpi_library_name(library)
            text = f"measured with {names[0]}, while the program ran on {names[1]}"
            yield warning("other library", text, measured_with=version, library=library)
    yield from _differing_launches(gain)
    if gain.oversubscribed:
        text = "there were more ranks than cores: their waiting for cores hides how fast algorithms are"
        yield warning("oversubscribed", text, remedy="do: measure with a core for each rank")
    if gain.disturbed:
        text = f"while it was measured, {gain.disturbed}"
        yield warning("disturbed", text, remedy="do: measure again on an idle machine")
    waiting = gain.waiting_s / gain.shares.run_s
    if waiting >= WORTH:
        part = format_per_cent(waiting)
        why = "waiting for late ranks, which no algorithm saves"
        text = f"these calls took {part} of the run beyond the measured times: {why}"
        yield info("waiting", text, share=waiting)
    if gain.unmeasured >= WORTH:
        part = format_per_cent(gain.unmeasured)
        text = f"calls that take {part} of the run were not measured, and count as no gain"
        yield warning("not measured", text, share=gain.unmeasured)
    largest = gain.gains[0]
    if not largest.is_clear or not gain.is_worth_it:
        return
    times = f"{format_seconds(largest.best_s)} instead of {format_seconds(largest.default_s)}"
    text = f"{call_text(largest.share)}: {largest.best} takes {times}"
    yield info("best", text, algorithm=largest.best)
