"""The log probe: an untimed run of the library's own collectives in which the library logs what it does.

Logging slows down rank 0, and NCCL reads its variables once per process. The probe is therefore a launch of its own, in
the same environment except for the variables that enable logging. The timed launch that follows reads its result.
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
from hpccoll.transports.gpu import gpu_errors

REPETITIONS = 2
"""The number of runs of each operation: libraries connect in the first one, and log the algorithm in each."""


def probe(ranks: Ranks, job: Job, pending_signal: Callable[[], int]) -> None:
    """Run the cases of ``job`` that the library logs a few times, untimed, out of place; all ranks call this together.

    Cases that cannot run are left out: the timed launch records the reason.

    Args:
        ranks: the ranks.
        job: the job, of which the cases that have the shape of ``ranks`` are run.
        pending_signal: returns the number of the signal on which this rank is to stop; 0 if none has come.
    """
    progress = RankProgress()
    with watchdog(progress, lambda: "", job.effort.timeout, partial(_print_message, ranks.comm.rank)):
        gpus = RankGpus(ranks)
        factory = CaseFactory(ranks, job, gather_attempt(ranks, job, 0, gpus.provenance(job.cases)), gpus)
        shape = Shape(factory.attempt.nodes, factory.attempt.ranks - job.aggregators, job.aggregators)
        for case in probe_cases(job, shape):
            if ranks.max_over_ranks(pending_signal()):
                break
            progress.case = case.id
            progress.enter("compiling")
            prepared = factory.make(case)
            if isinstance(prepared, SkippedCase):
                continue
            with gpu_errors(prepared.gpu):
                for _ in range(REPETITIONS):
                    progress.iteration += 1
                    progress.enter("preparing")
                    prepared.reset()
                    progress.phase = "in a logged operation"
                    prepared.run()
            progress.enter("waiting for the other ranks")
            ranks.barrier()
            prepared.close()
            del prepared  # frees its GPU memory before the next case is prepared
        factory.close()


def _print_message(rank: int, message: str) -> None:
    with suppress(OSError):
        print(f"r{rank} | {message}", file=sys.stderr, flush=True)
