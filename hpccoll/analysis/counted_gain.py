"""What a counted program would gain at most by other algorithms of its MPI library, from measurements of its calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpccoll.analysis.counted_shares import CountedShares, KindShare, call_text
from hpccoll.common.text import Finding, info, warning
from hpccoll.common.units import format_per_cent, format_seconds
from hpccoll.evidence.verdict import UNKNOWN
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

WORTH = 0.01
"""The share of a run below which another algorithm is not worth a table."""

DEFAULT = "default"
"""The variant with the library's own choices."""


@dataclass(frozen=True, slots=True)
class CallGain:
    """What another algorithm would save in the calls of one kind."""

    share: KindShare
    default_s: float  # the library's own choice, as it was measured
    best_s: float
    best: str  # the algorithm, by the library's name; "default"
    gain_s: float  # of the run, the mean over ranks
    interval_s: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ProgramGain:
    """What other algorithms would save in a program."""

    shares: CountedShares
    gains: Sequence[CallGain]  # the largest first
    measurable: float  # share of the run: of calls that could be measured

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
        return self.interval_s[1] / max(self.shares.run_s, 1e-9)

    @property
    def is_worth_it(self) -> bool:
        """Whether a table may be worth its while."""
        return self.at_most >= WORTH

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
    """Return the bound that holds whatever another algorithm does: all time in the calls."""
    share = sum(kind.share for kind in measurable_kinds(shares))
    return ProgramGain(shares, (), share)


def program_gain(shares: CountedShares, results: Results) -> ProgramGain:
    """Return what the fastest algorithms in results would save in a counted program.

    A kind of call gains the ratio of the best to the default time, of the time that it takes in the
    program: of what its calls would take as they were measured, if that is less, because the rest
    is waiting for late ranks.
    """
    gains = []
    for share in measurable_kinds(shares):
        rows = [row for row in results.rows if _is_of(row, share)]
        gain = _call_gain(share, rows, len(shares.job.ranks))
        if gain:
            gains.append(gain)
    gains.sort(key=lambda gain: -gain.gain_s)
    bound = gain_without_measuring(shares)
    return ProgramGain(shares, gains, bound.measurable)


def measured_bytes(share: KindShare) -> int:
    """Return the size with which calls of a kind are measured: their mean."""
    return round(share.mean_bytes)


def _is_of(row: Row, share: KindShare) -> bool:
    """Return whether a row measured calls of a kind: the default of the library, or an algorithm that ran as forced."""
    same_call = (
        row.collective == COLLECTIVES[share.kind.collective] and row.ranks == share.group.size
    )
    same_nodes = not share.group.nodes or row.nodes == share.group.nodes
    same_size = row.collective == "barrier" or row.requested_bytes == measured_bytes(share)
    ran = row.executed.partition(" (")[0]
    is_true = not row.requested or ran in (UNKNOWN, row.requested)
    return same_call and same_nodes and same_size and row.status == "ok" and is_true


def _call_gain(share: KindShare, rows: Sequence[Row], ranks: int) -> CallGain | None:
    """Return what the best of rows saves in the calls of a kind; None without the default, or intervals."""
    timed = [row for row in rows if row.median_s and row.interval]
    placed = [row for row in timed if row.in_place == share.kind.in_place]
    timed = placed or timed  # calls with one buffer, which are measured in one placement
    defaults = [row for row in timed if row.variant in (None, DEFAULT)]
    if not defaults:
        return None
    default = min(defaults, key=_median_s)
    best = min(timed, key=_median_s)
    best_low, best_high = best.interval or (0.0, 0.0)
    default_low, default_high = default.interval or (0.0, 0.0)
    calls = share.all_calls / ranks  # a rank's, also of communicators with some of the ranks
    spent_s = min(calls * _median_s(default), share.seconds)
    gain, low, high = 0.0, 0.0, 0.0
    if best is not default:
        gain = 1 - _median_s(best) / _median_s(default)
        low = max(0.0, 1 - best_high / default_low)
        high = max(0.0, 1 - best_low / default_high)
    name = (best.requested or best.variant or DEFAULT) if best is not default else DEFAULT
    return CallGain(
        share=share,
        default_s=_median_s(default),
        best_s=_median_s(best),
        best=name,
        gain_s=gain * spent_s,
        interval_s=(low * spent_s, high * spent_s),
    )


def _median_s(row: Row) -> float:
    return row.median_s or 0.0


def _findings(gain: ProgramGain) -> Iterator[Finding]:
    run_s = gain.shares.run_s
    at_most = format_per_cent(gain.at_most)
    if not gain.is_worth_it:
        yield info("leave it", f"at most {at_most} of your run: leave it", at_most=gain.at_most)
    elif gain.gains:
        low, high = (format_per_cent(end / run_s) for end in gain.interval_s)
        yield info(
            "gain",
            f"other algorithms would save at most {format_seconds(gain.gain_s)} of {format_seconds(run_s)}: "
            f"{format_per_cent(gain.gain_s / run_s)} ({low} to {high})",
            gain_s=gain.gain_s,
            interval_s=list(gain.interval_s),
            share=gain.gain_s / run_s,
        )
    if gain.gains:
        yield from _coverage_findings(gain)


def _coverage_findings(gain: ProgramGain) -> Iterator[Finding]:
    """Yield which calls the bound leaves out."""
    measured = sum(call.share.share for call in gain.gains)
    left_out = gain.shares.share - measured
    if left_out >= WORTH:
        yield warning(
            "not measured",
            f"calls that take {format_per_cent(left_out)} of the run were not measured, and count as no gain",
            share=left_out,
        )
    largest = gain.gains[0]
    if largest.best != DEFAULT and gain.is_worth_it:
        yield info(
            "best",
            f"{call_text(largest.share)}: {largest.best} takes {format_seconds(largest.best_s)} instead of "
            f"{format_seconds(largest.default_s)}",
            algorithm=largest.best,
        )
