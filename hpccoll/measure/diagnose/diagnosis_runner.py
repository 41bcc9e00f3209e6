"""Runs a diagnosis on all ranks: rank 0 leads, asks for slots of transfers between pairs, and collects their times.

Rank 0 sends each rank its part of each slot, and waits for what the ranks measured until the slot's
deadline; it is an endpoint, too. After the start no call waits for a rank. A rank leaves its
transfer when rank 0 sends it the next order, so that a rank that has stopped takes its partner out
of one slot only. MPI cannot cancel what such a transfer has sent: it goes on, so that it ends with
a partner that is only late. With one that is lost it does not: then the launch ends by MPI_Abort,
because MPI_Finalize would wait.

Rank 0 sends each order by itself, in 4 to 8 us of its CPU. Up to about 1,000 ranks that is less
than half of the shortest slots, of 20 ms; of 4,096 the first pairs have ended when the last ones
begin: not all transfer at once.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.common.records import to_builtins
from hpccoll.common.text import join_words
from hpccoll.diagnosis.core_waits import CORE_WAITS
from hpccoll.diagnosis.nodes_alone import (
    GPUS_OF_HOSTS,
    HOSTS_SHARE_A_MACHINE,
    TRANSFER_ERRORS,
    TransferError,
)
from hpccoll.diagnosis.packet_losses import LOSSES
from hpccoll.diagnosis.procedure import ask
from hpccoll.diagnosis.recorded import (
    KEPT,
    DiagnosisOptions,
    Load,
    MeasuredSlots,
    RecordedDiagnosis,
    Recorder,
    StoppedError,
)
from hpccoll.diagnosis.slot_records import Diagnosis, Floats
from hpccoll.host.network_ports import find_ports
from hpccoll.measure.diagnose.diagnosis_leader import Leader, ShowSlots
from hpccoll.measure.diagnose.diagnosis_member import Member, Report
from hpccoll.measure.diagnose.gpu_pair_transfers import choose_transfers
from hpccoll.measure.diagnose.loss_recorder import LossRecorder, losses_of_hosts
from hpccoll.measure.diagnose.own_rates import own_seconds, seconds_of_nodes, share_a_machine
from hpccoll.measure.diagnose.pair_transfers import (
    OVER_MPI,
)
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.mpi_startup import deadline
from hpccoll.measure.provenance import LoadRecorder, gather_attempt
from hpccoll.measure.ranks import Ranks, abort_job, print_of_rank
from hpccoll.store.schema import HOST_LOAD

UNFINISHED = "unfinished"
"""The key of the provenance with the hosts whose ranks do not answer at the end, or have transfers that did not end."""


def run_diagnosis(
    ranks: Ranks,
    options: DiagnosisOptions,
    *,
    progress: ShowSlots,
    stop: Callable[[], int],
    keep: Callable[[RecordedDiagnosis], None],
) -> RecordedDiagnosis | None:
    """Diagnose the nodes of all ranks; all of them call this together.

    If a rank no longer answers, the others do not return: rank 0 calls ``end_launch`` when it has
    written the results.

    Args:
        ranks: as many on each node: the k-th rank of each is its endpoint on rail k.
        options: what is asked.
        progress: shows how far the diagnosis is.
        stop: returns the signal on which it is to end, 0 if none has come.
        keep: stores, at rank 0, what is measured so far: now and then, and before an exception ends
            the diagnosis.

    Returns:
        the diagnosis with all of its measurements at rank 0, None at others.

    Raises:
        BadInputError: on all ranks, if there is only one node, nodes have the same name or
            different numbers of ranks, or the options do not fit the nodes or their GPUs; at rank
            0, if all transfers fail, some with an error.
    """
    endpoints = _ranks_of_endpoints(ranks)
    hosts = tuple(host for host, _ in ranks.ranks_by_node)
    racks_of_slurm = tuple(ranks.racks[rank] for rank in endpoints[: len(hosts)])
    question = options.question(
        hosts, racks_of_slurm if all(racks_of_slurm) else None, len(endpoints) // len(hosts)
    )
    with deadline():  # these calls wait for all ranks
        gpus = RankGpus(ranks)
        kind, gpus_of_hosts = choose_transfers(gpus, options)
        on_gpus = kind is not OVER_MPI
        gpu_errors, gpu_record = _about_gpus(gpus, options, used=on_gpus)
        attempt = gather_attempt(ranks, 1, gpu_record)
        load = LoadRecorder(ranks.comm, attempt)
        ports = find_ports()
        rdma = all(ranks.comm.allgather(any(port.kind != "netdev" for port in ports)))
        losses = LossRecorder(() if ranks.local_rank else ports)
        member = Member(ranks, kind, stop, losses, oversubscribed=attempt.oversubscribed)
    alone = partial(
        own_seconds, ranks.ranks_by_node[ranks.node_id], gpus.gpu_of_rank if on_gpus else None
    )
    if ranks.comm.rank:
        member.follow(alone, load)
        with deadline():
            member.close()
        return None
    together = not on_gpus and (rdma if options.together is None else options.together)
    leader = Leader(member, endpoints, question, progress, together=together)
    rates: Mapping[str, Floats] = {}
    if not share_a_machine(attempt):
        rates = seconds_of_nodes(
            leader.measure_alone(alone), [place.node for place in attempt.places]
        )
    try:
        leader.choose_stream(options.slot_s)
    except UnusableError as error:
        try:
            _end(leader, member, load)
        except Exception as second:  # noqa: BLE001  the first error is the one to be seen
            print_of_rank(
                0, f"the launch does not end as it should: {type(second).__name__}: {second}"
            )
            leader.aborts = True
        if leader.aborts:
            print_of_rank(0, str(error))
            abort_job(MPI.COMM_WORLD, code=error.exit_code)
        raise
    size = leader.stream.bytes
    if options.expected_bytes_per_s:
        question = replace(question, expected_s=size / options.expected_bytes_per_s)
    recorder, host_of_rank = Recorder(leader), [host for host, _ in ranks.node_ids]

    def recorded(
        measured: Sequence[MeasuredSlots],
        diagnosis: Diagnosis | None = None,
        reports: Mapping[int, Report] = MappingProxyType({}),
    ) -> RecordedDiagnosis:
        unended = (
            bool(reports) and (rank not in reports or reports[rank].unfinished)
            for rank in range(member.size)
        )
        unfinished = [
            host for host, is_unended in zip(host_of_rank, unended, strict=True) if is_unended
        ]
        provenance = {
            **attempt.provenance,
            "run_id": attempt.run_id,
            "begun": attempt.created,
            "in_flight": leader.stream.in_flight,
            "slot_s": leader.stream.seconds,
            CORE_WAITS: _longest_waits(reports, host_of_rank),
            HOST_LOAD: [report.load for report in reports.values() if report.load],
            LOSSES: to_builtins(
                losses_of_hosts({k: report.losses for k, report in reports.items()}, host_of_rank)
            ),
            UNFINISHED: list(dict.fromkeys(unfinished)),
            HOSTS_SHARE_A_MACHINE: share_a_machine(attempt),
            GPUS_OF_HOSTS: gpus_of_hosts,
            TRANSFER_ERRORS: gpu_errors + leader.errors,
            **({} if reports else {KEPT: datetime.now(UTC).isoformat(timespec="seconds")}),
        }
        return RecordedDiagnosis(
            question,
            Load(kind.program, kind.memory, size, together),
            (*measured,),
            diagnosis,
            rates,
            attempt.kind,
            attempt.machine,
            provenance,
        )

    leader.keep = lambda under_way: keep(recorded([*recorder.measured, *under_way]))
    diagnosis: Diagnosis | None = None
    with suppress(StoppedError):
        diagnosis = ask(question, recorder)
    return recorded(recorder.measured, diagnosis, _end(leader, member, load))


def _about_gpus(
    gpus: RankGpus, options: DiagnosisOptions, *, used: bool
) -> tuple[list[TransferError], Mapping[str, Any]]:
    """Return the hosts whose GPUs cannot be used, and the record of this rank's GPU; all ranks call this together."""
    if options.device == "cpu":  # nothing starts CUDA
        return [], {}
    sick = {**gpus.silent, **gpus.failures}
    errors = [TransferError(hosts=[host], why=why) for host, why in sick.items()]
    if used:
        return errors, gpus.provenance(["nccl"])
    return errors, {} if gpus.ranks.node_id[0] in gpus.silent else gpus.facts


def _longest_waits(reports: Mapping[int, Report], host_of_rank: Sequence[str]) -> dict[str, float]:
    """Return CORE_WAITS."""
    longest: dict[str, float] = {}
    for rank, report in reports.items():
        if report.waited is not None:
            longest[host_of_rank[rank]] = max(report.waited, longest.get(host_of_rank[rank], 0.0))
    return longest


def _end(leader: Leader, member: Member, load: LoadRecorder) -> Mapping[int, Report]:
    """End the diagnosis on all ranks, and return what those that answer report."""
    reports = leader.end(load)
    if not leader.aborts:
        with deadline():
            member.close()
    return reports


def end_launch(recorded: RecordedDiagnosis | None, code: int) -> None:
    """End a launch in which a rank no longer answers, with an exit code; called last, at rank 0 with the results.

    MPI_Finalize would wait for that rank. It returns only if all ranks answer.
    """
    if recorded and (hosts := cast("list[str]", recorded.provenance[UNFINISHED])):
        print_of_rank(
            0, f"transfers of {join_words(hosts)} have not ended; the launch ends by MPI_Abort"
        )
        abort_job(MPI.COMM_WORLD, code=code)
        os._exit(code)  # under srun MPI_Abort may return


def _ranks_of_endpoints(ranks: Ranks) -> list[int]:
    """Return the rank of each endpoint.

    Raises:
        UnusableError: if there is only one node, or nodes have different numbers of ranks, or the
            same name.
    """
    names = Counter(host for host, _ in ranks.ranks_by_node)
    if same := [host for host, number in names.items() if number > 1]:
        raise UnusableError(
            "launch", f"several nodes are called {join_words(same)}; a diagnosis names nodes"
        )
    counts = ", ".join(f"{count} on {host}" for (host, _), count in ranks.ranks_by_node.items())
    if len(ranks.ranks_by_node) < 2:
        raise UnusableError("launch", f"a diagnosis takes two nodes at least; the ranks: {counts}")
    if len({*ranks.ranks_by_node.values()}) > 1:
        raise UnusableError(
            "launch", f"a diagnosis takes as many ranks on each node; the ranks: {counts}"
        )
    by_node = defaultdict[tuple[str, str], list[int]](list)
    for rank, node in enumerate(ranks.node_ids):
        by_node[node].append(rank)
    return [rank for rail in zip(*by_node.values(), strict=True) for rank in rail]
