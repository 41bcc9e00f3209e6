"""The log probe: an untimed run of the library's own collectives in which the library logs what it does.

Logging slows down rank 0. In a sweep the probe is therefore a launch of its own, in the same
environment except for the variables that enable logging, and the timed launch that follows reads
its result. A single launch over NCCL probes before it measures, if NCCL can be silenced afterwards.
Its communicators end with the probe, so that every timed case begins as without one.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.probe_cases import probe_cases
from hpccoll.evidence.log_settings import PROBE_REMEDY, copy_nccl_settings, nccl_logging
from hpccoll.evidence.own_nccl_log import OWN_LOG
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.measure.gpu_assignment import RankGpus, transports_of_gpus
from hpccoll.measure.provenance import gather_attempt
from hpccoll.measure.ranks import Ranks, first_reason, print_of_rank
from hpccoll.measure.run.case_factory import CaseFactory, SkippedCase
from hpccoll.measure.run.connecting import NcclConnecting
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.transports.gpu import loaded_nccl_version
from hpccoll.transports.gpu_errors import gpu_errors
from hpccoll.transports.nccl.loaded_library import debug_reset
from hpccoll.transports.stream_wait import poll_until

REPETITIONS = 2
"""The number of runs of each operation: libraries connect in the first one, and log the algorithm in each."""


LOG_BYTES_OF_RANKS = 64 << 20
"""The bytes of the logs of all ranks but rank 0 that a single launch reads, in equal shares."""


def probe(ranks: Ranks, job: Job, pending_signal: Callable[[], int], gpus: RankGpus) -> None:
    """Run the cases of ``job`` that the library logs a few times, untimed, out of place; all ranks call this together.

    Cases that cannot run are left out: the timed launch records the reason. ``pending_signal``
    returns the number of the signal on which this rank is to stop; 0 if none has come.
    """
    progress = RankProgress()
    with watchdog(progress, job.effort.timeout, partial(print_of_rank, ranks.comm.rank)):
        record = gpus.provenance(transports_of_gpus(job.cases))
        connecting = NcclConnecting(ranks, progress, job.effort.timeout)
        attempt = gather_attempt(ranks, 0, record, job.aggregators)
        cases = probe_cases(
            job, Shape(attempt.nodes, attempt.ranks - job.aggregators, job.aggregators)
        )
        factory = CaseFactory(ranks, job, attempt, lambda: gpus, connecting, cases=cases)
        for case in cases:
            if ranks.max_over_ranks(pending_signal()):
                break
            progress.begin(f"case {case.id}", case.id)
            progress.enter("lowering")
            prepared = factory.make(case)
            if isinstance(prepared, SkippedCase):
                continue
            prepared.set_wait(partial(poll_until, timeout_s=job.effort.timeout))
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


def probe_in_launch(
    ranks: Ranks, job: Job, pending_signal: Callable[[], int], gpus: RankGpus
) -> ProbeResult | None:
    """Run ``probe`` in this launch, NCCL's log on for it alone, and return what the logs of all ranks say.

    The arguments are those of ``probe``.

    Returns:
        the result at all ranks; its ``failure`` says why there was no probe. None if NCCL cannot be
        used at all.
    """
    if gpus.missing_for("nccl"):
        return None
    reset = debug_reset()
    version = ".".join(map(str, loaded_nccl_version() or ("of an unknown version",)))
    with _log_directory() as (directory, without_place):
        if reset:
            own_reason = without_place
        else:
            own_reason = f"NCCL {version} cannot be silenced after it"
        reason = first_reason(ranks.comm, own_reason)
        if reason or reset is None:
            return ProbeResult(failure=f"was left out: {reason}; do: {PROBE_REMEDY}")
        with nccl_logging(directory, reset):
            probe(ranks, job, pending_signal, gpus)
        if ranks.comm.rank == 0:
            most = -1
        else:
            most = LOG_BYTES_OF_RANKS // ranks.comm.size
        texts = ranks.comm.gather(_own_logs(directory, most))
        return ranks.run_at_root(lambda: _result(directory, texts or ()))


@contextmanager
def _log_directory() -> Iterator[tuple[Path, str | None]]:
    """Yield a directory of this rank, and why there is none, else None.

    It is removed afterwards, unless a message has named the log in it.
    """
    try:
        directory = Path(mkdtemp(prefix="hpccoll-nccl-"))
    except OSError as error:
        yield Path(), f"its logs have no place: {error.strerror} (TMPDIR)"
        return
    try:
        yield directory, None
    finally:
        if not OWN_LOG.is_named:
            shutil.rmtree(directory, ignore_errors=True)  # NCCL keeps its log open


def _own_logs(directory: Path, most: int) -> Mapping[str, bytes] | str:
    logs = {}
    try:
        copy_nccl_settings(directory)
        for path in directory.iterdir():
            with path.open("rb") as file:
                logs[path.name] = file.read(most)
    except OSError as error:
        return f"left no readable log: {error}"
    return logs


def _result(directory: Path, texts: Sequence[Mapping[str, bytes] | str]) -> ProbeResult:
    """Return the result of the logs of all ranks, which rank 0 writes next to its own.

    Whatever fails here costs the evidence, and not the measurement.
    """
    try:
        for texts_of_rank in texts:
            if isinstance(texts_of_rank, str):
                return ProbeResult(failure=texts_of_rank)
            for name, text in texts_of_rank.items():
                (directory / name).write_bytes(text)
        result = ProbeResult.from_logs(directory)
    except (OSError, ValueError) as error:
        return ProbeResult(failure=f"left no readable log: {error}")
    return replace(result, logs="", failure=result.failure and "left no line that is known")
