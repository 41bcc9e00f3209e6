"""The maker: a case made ready to run on the ranks of an attempt, or the reason why it cannot."""

from dataclasses import dataclass
from functools import partial

from hpccoll.errors import BadInputError
from hpccoll.evidence.communicator_settings import min_nccl_version
from hpccoll.host.machine import available_memory
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.nccl_warmup import make_unless_refused
from hpccoll.measure.prepared_case import PreparedCase
from hpccoll.measure.ranks import MappedRanks, Ranks
from hpccoll.spec.case import Case, Job
from hpccoll.spec.catalogue import check_case, redundant_mapping, unmet_needs
from hpccoll.spec.memory import check_memory
from hpccoll.spec.variant_skips import variant_skip_reason
from hpccoll.store.raw import Attempt
from hpccoll.transports.nccl import communicator_config
from hpccoll.transports.nccl.communicators import NcclFailedError, close_all_worlds
from hpccoll.tuning.auto import resolve_auto
from hpccoll.tuning.table import TuneTable, describe_conditions, mpi_version


@dataclass(frozen=True, slots=True)
class SkippedCase:
    """Why there is nothing to measure: the reason, and the status of the case, skipped or failed."""

    reason: str
    status: str = "skipped"


class CaseFactory:
    """Makes the subjects of the cases of a job; made, used and closed on all ranks together.

    Args:
        ranks: the ranks.
        job: whose cases they are.
        attempt: where they run.
        gpus: of the ranks.
    """

    def __init__(self, ranks: Ranks, job: Job, attempt: Attempt, gpus: RankGpus) -> None:
        self.comm, self.job, self.attempt, self.gpus = ranks.comm, job, attempt, gpus
        self._mapped = MappedRanks(ranks.comm, ranks.layout(job.aggregators))
        self._table = None if job.table is None else TuneTable.from_json(job.table)

    def make(self, case: Case) -> PreparedCase | SkippedCase:
        """Return ``case`` with its plan and buffers, or why there is none; the same on all ranks.

        What cannot be is skipped. Where NCCL fails the case has failed: another launch may have it.
        """
        comm, layout = self._mapped.for_mapping(case.mapping)
        try:
            here = describe_conditions(self.attempt.machine, mpi_version(self.attempt.provenance))
            made, chosen = resolve_auto(case, self.attempt.layout, self._table, self.job.variant, here)
            check_case(made)
            on_gpu = made.device == "cuda"
            reason = (
                unmet_needs(made, layout) or self._variant_reason(case) or redundant_mapping(case, self.attempt.layout)
            )
            reason = reason or (self.gpus.missing_for(made.transport, made.dtype) if on_gpu else None)
            reason = reason or self._config_reason(made) or self._memory_reason(made)
            if reason:
                return SkippedCase(reason)
            mine = self.gpus.own if on_gpu else None
            about = self.gpus.assumed(made), self.job.communicator
            make = partial(PreparedCase, comm, layout, made, chosen, mine, *about)
            prepared = make_unless_refused(make, comm) if made.transport == "nccl" else make()
        except BadInputError as error:  # on all ranks: it depends on the case and the layout only
            return SkippedCase(str(error))
        except NcclFailedError as error:
            return SkippedCase(str(error), "failed")
        return SkippedCase(prepared) if isinstance(prepared, str) else prepared

    def _variant_reason(self, case: Case) -> str | None:
        return variant_skip_reason(self.job.variant, self.job.sets, case, self.job.shape(case))

    def _config_reason(self, case: Case) -> str | None:
        """Return why NCCL's communicators cannot be made as the job has them, or None; the same on all ranks."""
        if not self.job.communicator or case.transport != "nccl":
            return None
        complaint = communicator_config.missing_for_config(min_nccl_version(self.job.communicator))
        return next(filter(None, self.comm.allgather(complaint)), None)

    def _memory_reason(self, case: Case) -> str | None:
        """Return that a node or a GPU lacks the memory for its ranks' buffers, or None; the same on all ranks."""
        places = self.attempt.places
        node = places[self.comm.rank].node
        crowd = sum(place.node == node for place in places)
        beside = self.attempt.aggregators
        workers = self.attempt.ranks - beside
        sharing = self.gpus.ranks_on_gpu if case.device == "cuda" else 0
        complaint = None
        try:
            check_memory([case], workers, crowd, available_memory(), aggregators=beside)
            if sharing:
                check_memory([case], workers, sharing, self.gpus.own.free_bytes, "cuda", beside)
        except BadInputError as error:
            complaint = str(error)
        return next(filter(None, self.comm.allgather(complaint)), None)

    def close(self) -> None:
        close_all_worlds()  # NCCL's communicators, each of which is one of MPI's
        self._mapped.close()
