"""Known defects that fit a recorded job: why it hangs, and which collectives are slower than the machine has shown."""

from collections.abc import Iterator, Sequence

from hpccoll.evidence.defects import FittingDefect, RunFacts, Trouble, fitting_defects
from hpccoll.judge.against_curve import AgainstCurve
from hpccoll.judge.held import HeldVerdict
from hpccoll.traces.hangs import Hang
from hpccoll.traces.recorded_job import MESSAGES, RecordedJob

STUCK = "not created", "behind", "launched"
"""The reasons of a hang that a defect may cause; in the others ranks call different things, or are gone."""


def defects_of_job(
    job: RecordedJob, hangs: Sequence[Hang], against: Sequence[AgainstCurve]
) -> list[FittingDefect]:
    """Return the known defects that fit what is wrong with a recorded job, the surest first."""
    troubles = [*_hung(hangs), *_slow(against)]
    if not troubles:
        return []
    hosts = {rank.host for rank in job.ranks}
    nodes = None
    if None not in hosts:
        nodes = len(hosts)
    versions = {}
    if job.nccl:
        versions["NCCL"] = job.nccl
    sizes = [len(group.ranks) or group.size for group in job.groups]
    ranks = max((len(job.ranks), *sizes))
    return fitting_defects(RunFacts(versions=versions, nodes=nodes, ranks=ranks), troubles)


def _hung(hangs: Sequence[Hang]) -> Iterator[Trouble]:
    for hang in hangs:
        if hang.reason not in STUCK:
            continue
        collective = ""
        if hang.reason == "not created":
            collective = "init"
        elif hang.operation:
            collective = hang.operation.collective
        if collective in MESSAGES:
            collective = "send_recv"
        yield Trouble(kind="hang", transport="nccl", collective=collective)


def _slow(against: Sequence[AgainstCurve]) -> Iterator[Trouble]:
    for curve in against:
        if curve.verdict is HeldVerdict.SLOWER and curve.ratio:
            yield Trouble(
                kind="slow",
                transport="nccl",
                collective=curve.collective,
                nbytes=curve.bytes,
                share=1 / curve.ratio,
                ranks=len(curve.group.ranks) or None,
                device="cuda",
            )
