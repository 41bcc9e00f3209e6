"""Which share of a counted job its collectives take, by kind of call, and what counting itself takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.text import Finding, first_few, info, join_words, warning
from hpccoll.common.units import (
    format_count,
    format_cpu_list,
    format_per_cent,
    format_rounded_size,
    format_seconds,
)
from hpccoll.store.counted_job import CallKind, CountedGroup, CountedJob

MOST_NAMED = 5
"""The most processes that a sentence names."""

OTHERS = "others"
"""What the counting library writes for the communicators beyond its table, whose sizes are unknown."""

SHORTEST_S = 1e-9
"""The shortest time that a run takes, so that shares are finite."""

NOTABLE_OVERHEAD = 0.01
"""The share of the run above which counting itself is a warning."""


@dataclass(frozen=True, slots=True)
class KindShare:
    """What the calls of one kind take, on all communicators of the same shape."""

    kind: CallKind
    group: CountedGroup  # one of them
    calls: int  # of the rank that calls most often
    all_calls: int  # of all ranks
    mean_bytes: float
    least_bytes: int
    most_bytes: int
    seconds: float  # transfer, or all of the call without --barrier; the mean over the ranks of the launch
    waiting_s: float  # the mean over the ranks of the launch
    share: float  # of the time of all ranks, with waiting
    call_s: float  # the mean time, without what is known as waiting


@dataclass(frozen=True, slots=True)
class CountedShares:
    """What follows from a counted job."""

    job: CountedJob
    kinds: Sequence[KindShare]  # the longest first
    run_s: float  # the mean over ranks, summed over launches
    share: float  # of collectives, of the time of all ranks
    waiting_share: float
    rank_shares: NDArray[np.float64]  # [ranks]
    overhead: float  # share of the run that counting takes
    cost_s: float  # of counting one call, the mean over ranks

    @property
    def findings(self) -> list[Finding]:
        """What to say of the job, the most important first."""
        return list(_findings(self))


def counted_shares(job: CountedJob) -> CountedShares:
    """Return what the collectives of a counted job take.

    A share is seconds summed over ranks, of the seconds that all ranks ran: between MPI_Init and
    MPI_Finalize.
    """
    ran_s = _of_ranks(job, "ran_s")
    total_s = max(float(ran_s.sum()), SHORTEST_S)
    waiting_s = job.calls["waiting_s"]
    spent_s = job.calls["seconds"] + waiting_s
    rank_shares = _by_rank(job, spent_s) / np.maximum(ran_s, SHORTEST_S)
    cost_s = _of_ranks(job, "cost_s")
    counting_s = _by_rank(job, job.calls["calls"]) * cost_s
    counting_s += _of_ranks(job, "writing_s")
    share = spent_s.sum() / total_s
    waiting_share = waiting_s.sum() / total_s
    overhead = counting_s.sum() / total_s
    kinds = _kind_shares(job, total_s)
    run_s = _run_s(job, ran_s)
    mean_cost_s = cost_s.mean()
    shares = float(share), float(waiting_share)
    costs = float(overhead), float(mean_cost_s)
    return CountedShares(job, kinds, run_s, *shares, rank_shares, *costs)


def _of_ranks(job: CountedJob, fact: str) -> NDArray[np.float64]:
    """Return a fact of all ranks, in their order."""
    return np.array([getattr(rank, fact) for rank in job.ranks], float)


def _by_rank(job: CountedJob, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over the calls of each rank."""
    sums = np.bincount(job.calls["rank"], amounts, len(job.ranks))
    return sums.astype(np.float64)


def _run_s(job: CountedJob, ran_s: NDArray[np.float64]) -> float:
    """Return the mean time of the ranks of each launch, summed over launches."""
    launches = _of_ranks(job, "launch")
    run_s = 0.0
    for launch in np.unique(launches):
        run_s += float(ran_s[launches == launch].mean())
    return max(run_s, SHORTEST_S)


def _kind_shares(job: CountedJob, total_s: float) -> list[KindShare]:
    numbers_of_kind: dict[tuple[object, ...], list[int]] = {}
    for number, kind in enumerate(job.kinds):
        shape = replace(job.groups[kind.group], members="", communicators=0)
        key = replace(kind, group=0), shape
        numbers_of_kind.setdefault(key, []).append(number)
    shares = []
    for numbers in numbers_of_kind.values():
        rows = job.calls[np.isin(job.calls["kind"], numbers)]
        shares.append(_kind_share(job, job.kinds[numbers[0]], rows, total_s))
    shares.sort(key=lambda share: -share.share)
    return shares


def _kind_share(
    job: CountedJob, kind: CallKind, rows: NDArray[np.void], total_s: float
) -> KindShare:
    """Return what calls take that differ in the ranks of their communicators only."""
    group = job.groups[kind.group]
    ranks = sum(rank.launch == group.launch for rank in job.ranks)
    calls_of_ranks = np.bincount(rows["rank"], rows["calls"])
    all_calls = int(rows["calls"].sum())
    mean_bytes = float(rows["bytes"].sum()) / all_calls
    least_bytes = int(rows["least_bytes"].min())
    most_bytes = int(rows["most_bytes"].max())
    seconds = float(rows["seconds"].sum())
    waiting_s = float(rows["waiting_s"].sum())
    return KindShare(
        kind=kind,
        group=group,
        calls=int(calls_of_ranks.max()),
        all_calls=all_calls,
        mean_bytes=mean_bytes,
        least_bytes=least_bytes,
        most_bytes=most_bytes,
        seconds=seconds / ranks,
        waiting_s=waiting_s / ranks,
        share=(seconds + waiting_s) / total_s,
        call_s=seconds / all_calls,
    )


def _findings(shares: CountedShares) -> Iterator[Finding]:
    job = shares.job
    yield _share_finding(shares)
    if shares.kinds:
        yield _largest_finding(shares.kinds[0])
    yield from _absence_findings(job)
    yield _overhead_finding(shares)
    left_out = sum(rank.left_out for rank in job.ranks)
    if left_out:
        yield warning(
            "left out",
            f"{format_count(f'{left_out:,}', 'call')} had no place in the table of kinds and are missing here",
            calls=left_out,
        )
    if any(share.group.created_by == OTHERS for share in shares.kinds):
        yield warning(
            "others",
            "the program has more kinds of communicators than the table of a rank: calls on the others are together",
        )
    if not job.barrier:
        yield info(
            "waiting",
            "the times contain waiting for late ranks",
            remedy="--barrier tells it apart, and slows the program",
        )
    if any(share.kind.variant != "blocking" for share in shares.kinds):
        yield info(
            "started",
            "nonblocking and persistent calls are counted when they start, with the time of the start alone",
        )


def _share_finding(shares: CountedShares) -> Finding:
    per_rank = shares.rank_shares
    least = float(per_rank.min())
    most = float(per_rank.max())
    time = format_seconds(shares.run_s)
    ranks = format_count(len(per_rank), "rank")
    text = f"collectives take {format_per_cent(shares.share)} of {time} on {ranks}"
    if shares.job.barrier:
        waiting = format_per_cent(shares.waiting_share)
        transfer = format_per_cent(shares.share - shares.waiting_share)
        text += f": {waiting} waiting, {transfer} transfer"
    if len(per_rank) > 1:
        text += f"; by rank {format_per_cent(least)} to {format_per_cent(most)}"
    values = {"share": shares.share, "waiting_share": shares.waiting_share}
    return Finding(
        "share",
        "info",
        text,
        values={**values, "run_s": shares.run_s, "least_of_ranks": least, "most_of_ranks": most},
    )


def _largest_finding(share: KindShare) -> Finding:
    calls = format_count(f"{share.calls:,}", "call")
    time = format_seconds(share.call_s)
    part = format_per_cent(share.share)
    text = f"most of it is {call_text(share)}: {calls} of {time}, {part} of the run"
    return info("largest", text, share=share.share, calls=share.calls)


def call_text(share: KindShare) -> str:
    """Return the kind of a call in words: ``Allreduce of 8 B on 4 ranks of 2 nodes``."""
    size = ""
    if share.most_bytes:
        size = f" of {size_text(share)}"
    variant = ""
    if share.kind.variant != "blocking":
        variant = f"{share.kind.variant} "
    return f"{variant}{share.kind.collective}{size} on {communicator_text(share.group)}"


def size_text(share: KindShare) -> str:
    """Return the size of the calls of a kind; of different sizes the mean."""
    if share.least_bytes == share.most_bytes:
        return format_rounded_size(share.mean_bytes)
    return f"about {format_rounded_size(share.mean_bytes)}"


def element_text(share: KindShare) -> str:
    """Return the element type without MPI's prefix, empty without one: ``DOUBLE``, ``derived``."""
    return _without_prefix(share.kind.dtype)


def reduction_text(share: KindShare) -> str:
    """Return the operation without MPI's prefix, empty without one: ``SUM``, ``user``."""
    return _without_prefix(share.kind.operation)


def _without_prefix(name: str) -> str:
    return name.removeprefix("MPI_").replace("none", "")


def communicator_text(group: CountedGroup) -> str:
    """Return where a communicator is: ``4 ranks of 2 nodes``."""
    if group.created_by == OTHERS:
        return "other communicators"
    ranks = format_count(group.size, "rank")
    if group.is_inter:
        ranks = f"{group.size} and {format_count(group.blocks, 'rank')}"
    if not group.nodes:
        return ranks
    return f"{ranks} of {format_count(group.nodes, 'node')}"


def _absence_findings(job: CountedJob) -> Iterator[Finding]:
    """Yield which processes wrote nothing, or not all."""
    if job.missing:
        ranks = [rank for _, rank in job.missing]
        yield warning(
            "missing",
            f"nothing is counted of {_ranks_text(ranks)}",
            remedy="the process was ended, or the node cannot write to the directory",
            ranks=ranks,
        )
    by_end: dict[str, list[int]] = {}
    for rank in job.unfinished:
        by_end.setdefault(rank.end, []).append(rank.rank)
    meanings = {
        "running": "had not ended at the last write: killed, or still running; later calls are missing",
        "aborted": "called MPI_Abort: counted until then",
        "exited": "ended without MPI_Finalize: counted until then",
    }
    for end, ranks in by_end.items():
        meaning = meanings.get(end, "ended in an unknown way")
        yield warning("unfinished", f"{_ranks_text(ranks)} {meaning}", ranks=ranks, end=end)
    if job.damaged:
        yield warning(
            "damaged",
            f"cannot be read: {join_words(first_few(job.damaged, MOST_NAMED, 'file'))}",
            files=list(job.damaged),
        )


def _ranks_text(ranks: Sequence[int]) -> str:
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {format_cpu_list(ranks)}"


def _overhead_finding(shares: CountedShares) -> Finding:
    text = (
        f"counting took about {format_per_cent(shares.overhead)} of the run: "
        f"{format_seconds(shares.cost_s)} a call, measured when each rank began, and writing"
    )
    kind = info
    if shares.overhead > NOTABLE_OVERHEAD:
        kind = warning
    return kind("overhead", text, share=shares.overhead, cost_s=shares.cost_s)
