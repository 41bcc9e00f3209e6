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
    of_a_call_s: float  # the mean time, without what is known as waiting


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
    ran_s = np.array([rank.ran_s for rank in job.ranks])
    total_s = max(float(ran_s.sum()), 1e-9)
    spent_s = job.calls["seconds"] + job.calls["waiting_s"]
    of_rank_s = np.bincount(job.calls["rank"], spent_s, len(job.ranks))
    calls_of_rank = np.bincount(job.calls["rank"], job.calls["calls"], len(job.ranks))
    cost_s = np.array([rank.cost_s for rank in job.ranks])
    writing_s = np.array([rank.writing_s for rank in job.ranks])
    counting_s = float((calls_of_rank * cost_s + writing_s).sum())
    return CountedShares(
        job=job,
        kinds=_kind_shares(job, total_s),
        run_s=_run_s(job, ran_s),
        share=float(spent_s.sum()) / total_s,
        waiting_share=float(job.calls["waiting_s"].sum()) / total_s,
        rank_shares=of_rank_s / np.maximum(ran_s, 1e-9),
        overhead=counting_s / total_s,
        cost_s=float(cost_s.mean()),
    )


def _run_s(job: CountedJob, ran_s: NDArray[np.float64]) -> float:
    launch_of = np.array([rank.launch for rank in job.ranks])
    means = [ran_s[launch_of == launch].mean() for launch in np.unique(launch_of)]
    return float(sum(means))


def _kind_shares(job: CountedJob, total_s: float) -> list[KindShare]:
    numbers_of_kind: dict[tuple[object, ...], list[int]] = {}
    for number, kind in enumerate(job.kinds):
        shape = replace(job.groups[kind.group], members="", communicators=0)
        numbers_of_kind.setdefault((replace(kind, group=0), shape), []).append(number)
    shares = [_kind_share(job, numbers, total_s) for numbers in numbers_of_kind.values()]
    return sorted(shares, key=lambda share: -share.share)


def _kind_share(job: CountedJob, numbers: Sequence[int], total_s: float) -> KindShare:
    """Return what the calls of kinds take that differ in the ranks of their communicators only."""
    rows = job.calls[np.isin(job.calls["kind"], numbers)]
    group = job.groups[job.kinds[numbers[0]].group]
    ranks = sum(rank.launch == group.launch for rank in job.ranks)
    seconds, waiting_s = float(rows["seconds"].sum()), float(rows["waiting_s"].sum())
    all_calls = int(rows["calls"].sum())
    return KindShare(
        kind=job.kinds[numbers[0]],
        group=group,
        calls=int(np.bincount(rows["rank"], rows["calls"]).max()),
        all_calls=all_calls,
        mean_bytes=float(rows["bytes"].sum()) / all_calls,
        least_bytes=int(rows["least_bytes"].min()),
        most_bytes=int(rows["most_bytes"].max()),
        seconds=seconds / ranks,
        waiting_s=waiting_s / ranks,
        share=(seconds + waiting_s) / total_s,
        of_a_call_s=seconds / all_calls,
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
    spread = ""
    if len(per_rank) > 1:
        spread = f"; by rank {format_per_cent(per_rank.min())} to {format_per_cent(per_rank.max())}"
    waiting = ""
    if shares.job.barrier:
        transfer = format_per_cent(shares.share - shares.waiting_share)
        waiting = f": {format_per_cent(shares.waiting_share)} waiting, {transfer} transfer"
    return info(
        "share",
        f"collectives take {format_per_cent(shares.share)} of {format_seconds(shares.run_s)} on "
        f"{format_count(len(per_rank), 'rank')}{waiting}{spread}",
        share=shares.share,
        waiting_share=shares.waiting_share,
        run_s=shares.run_s,
        least_of_ranks=float(per_rank.min()),
        most_of_ranks=float(per_rank.max()),
    )


def _largest_finding(share: KindShare) -> Finding:
    return info(
        "largest",
        f"most of it is {call_text(share)}: {format_count(f'{share.calls:,}', 'call')} of "
        f"{format_seconds(share.of_a_call_s)}, {format_per_cent(share.share)} of the run",
        share=share.share,
        calls=share.calls,
    )


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


def communicator_text(group: CountedGroup) -> str:
    """Return where a communicator is: ``4 ranks of 2 nodes``."""
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
            f"nothing is counted of rank {format_cpu_list(ranks)}",
            remedy="its process was ended, or its node cannot write to the directory",
            ranks=ranks,
        )
    by_end: dict[str, list[int]] = {}
    for rank in job.unfinished:
        by_end.setdefault(rank.end, []).append(rank.rank)
    meanings = {
        "running": "was ended from outside: counted until it last wrote",
        "aborted": "called MPI_Abort: counted until then",
        "exited": "ended without MPI_Finalize: counted until then",
    }
    for end, ranks in by_end.items():
        meaning = meanings.get(end, "ended in an unknown way")
        yield warning(
            "unfinished", f"rank {format_cpu_list(ranks)} {meaning}", ranks=ranks, end=end
        )
    if job.damaged:
        yield warning(
            "damaged",
            f"cannot be read: {join_words(first_few(job.damaged, MOST_NAMED, 'file'))}",
            files=list(job.damaged),
        )


def _overhead_finding(shares: CountedShares) -> Finding:
    text = (
        f"counting took about {format_per_cent(shares.overhead)} of the run: "
        f"{format_seconds(shares.cost_s)} a call, measured when each rank began, and writing"
    )
    kind = info
    if shares.overhead > NOTABLE_OVERHEAD:
        kind = warning
    return kind("overhead", text, share=shares.overhead, cost_s=shares.cost_s)
