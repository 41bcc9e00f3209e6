"""The probe: an untimed pass over the library's own collectives, in which its logs say what it does.

Logging costs time at rank 0, and NCCL reads its variables once in a process: so it is a launch of its own, in the same
environment but for those that make libraries log. The timed launch after it reads what was found.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from hpccoll.measure.case_factory import CaseFactory, SkippedCase
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.provenance import gather_attempt
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.spec.case import Job, Shape
from hpccoll.spec.probe_cases import probe_cases

TIMES = 2
"""How often an operation runs: libraries connect at the first one, and log the choice at each."""


def probe(ranks: Ranks, job: Job, pending_signal: Callable[[], int]) -> None:
    """Run every case of ``job`` that is logged a few times on all ranks together, in one placement, untimed.

    What cannot run is left out: the timed launch says why.

    Args:
        ranks: the ranks.
        job: whose cases are meant; those of the shape of these ranks.
        pending_signal: returns the signal that tells this rank to end, 0 while there is none.
    """
    progress = RankProgress()
    with watchdog(progress, lambda: "", job.effort.timeout, partial(_last_words, ranks.comm.rank)):
        gpus = RankGpus(ranks)
        factory = CaseFactory(ranks, job, gather_attempt(ranks.comm, job, 0, gpus.provenance(job.cases)), gpus)
        shape = Shape(factory.attempt.nodes, factory.attempt.ranks - job.aggregators, job.aggregators)
        for case in probe_cases(job, shape):
            if ranks.max_over_ranks(pending_signal()):
                break
            progress.case = case.id
            progress.enter("compiling")
            prepared = factory.make(case)
            if isinstance(prepared, SkippedCase):
                continue
            for _ in range(TIMES):
                progress.iteration += 1
                progress.enter("preparing")
                prepared.reset()
                progress.phase = "in an operation that is logged"
                prepared.run()
            progress.enter("waiting for the other ranks")
            ranks.barrier()
            prepared.close()
            del prepared  # and what it has of a GPU's memory, before the next one is made
        factory.close()


def _last_words(rank: int, message: str) -> None:
    with suppress(OSError):
        print(f"r{rank} | {message}", file=sys.stderr, flush=True)
