"""Runs a diagnosis on all ranks: rank 0 leads, asks for slots of transfers between pairs, and collects their times.

Rank 0 sends each rank its part of each slot, and waits for what the ranks measured until the slot's deadline; it is an
endpoint, too. After the start no call waits for a rank. A rank leaves its transfer when rank 0 sends it the next order,
so that a rank that has stopped takes its partner out of one slot only. MPI cannot cancel what such a transfer has sent:
it goes on, so that it ends with a partner that is only late. With one that is lost it does not: then the launch ends by
MPI_Abort, because MPI_Finalize would wait.

Rank 0 sends each order by itself, in 4 to 8 us of its CPU. Up to about 1,000 ranks that is less than half of the
shortest slots, of 20 ms; of 4,096 the first pairs have ended when the last ones begin: not all transfer at once.
"""

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
from mpi4py import MPI

from hpccoll.analysis.diagnosis.matchings import consecutive_pairs, pair_up
from hpccoll.analysis.diagnosis.nodes_alone import HOSTS_SHARE_A_MACHINE
from hpccoll.analysis.diagnosis.packet_losses import LOSSES
from hpccoll.analysis.diagnosis.procedure import ask
from hpccoll.analysis.diagnosis.recorded import (
    KEPT,
    DiagnosisOptions,
    Load,
    MeasuredSlots,
    Question,
    RecordedDiagnosis,
    Recorder,
    StoppedError,
)
from hpccoll.analysis.diagnosis.records import Diagnosis, Floats, Integers, Purpose, Slots
from hpccoll.analysis.diagnosis.robust_statistics import QUARTILE, median, quantile, robust_deviation
from hpccoll.common.errors import UnusableError
from hpccoll.common.records import to_builtins
from hpccoll.common.text import join_words
from hpccoll.host.network_ports import find_ports
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.gpu_pair_transfers import choose_transfers
from hpccoll.measure.loss_recorder import LossRecorder, RankLosses, losses_of_hosts
from hpccoll.measure.mpi_startup import deadline
from hpccoll.measure.own_rates import own_seconds, seconds_of_nodes, share_a_machine
from hpccoll.measure.pair_transfers import (
    FAILED,
    OVER_MPI,
    UNKNOWN_RATE,
    BegunTransfer,
    Timing,
    Transfer,
    TransferKind,
    stream_at,
)
from hpccoll.measure.provenance import LoadRecorder, gather_attempt
from hpccoll.measure.ranks import Ranks, abort_job, print_of_rank
from hpccoll.store.host_load import KEY as LOAD

ShowSlots: TypeAlias = Callable[[int, int, Purpose], None]
"""Called at rank 0 about each second, with the slots that are measured, how many that will be as far as is known, and
why they are."""

LIMIT_SLOTS = 10
"""The deadline of a slot: so many times what slots take or last, and at least that of the kind of transfers."""

LEADER_LIMIT_S, SECONDS_PER_LINK = 30.0, 1e-5
"""After the deadline of a slot, the seconds without an order after which rank 1 ends the launch, and so many more for
each pair of nodes, whose effects rank 0 fits (a twentieth of that on one core); further ranks wait a second longer
each."""

SLOTS_OF_NOISE, MOST_NOISE, LONGEST_SLOT_S = 4, 0.02, 0.4
"""After how many slots, for which noise within a transfer, and up to which duration a slot is made twice as long."""

SHOW_INTERVAL_S, KEEP_INTERVAL_S = 1.0, 5.0
"""How often rank 0 shows its progress, and keeps what is measured: a launcher may kill all ranks if one dies."""

LEFT_LIMIT_S, END_LIMIT_S = 1.0, 300.0
"""How long, in the end, a rank waits for transfers that it has left, and for rank 0 to write the results and abort."""

UNFINISHED = "unfinished"
"""The key of the provenance with the hosts whose ranks do not answer at the end, or have transfers that did not end."""

ORDERS = 0
"""The tag of orders; an answer has that of its slot."""


@dataclass(frozen=True, slots=True)
class _Alone:
    """The order to measure what a rank does alone; the answer is that of ``own_seconds``."""

    tag: int


@dataclass(frozen=True, slots=True)
class _End:
    """The order to finish; the answer is a ``_Report``."""

    tag: int


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The last order."""

    aborts: bool  # whether the launch ends by MPI_Abort


@dataclass(frozen=True, slots=True)
class _Report:
    unfinished: bool  # whether this rank has left a transfer
    load: Mapping[str, object] | None  # what else used its host
    losses: RankLosses


_Order: TypeAlias = Transfer | _Alone | _End | _Verdict | None  # None: the rank rests


def run_diagnosis(
    ranks: Ranks,
    options: DiagnosisOptions,
    *,
    progress: ShowSlots,
    stop: Callable[[], int],
    keep: Callable[[RecordedDiagnosis], None],
) -> RecordedDiagnosis | None:
    """Diagnose the nodes of all ranks; all of them call this together.

    If a rank no longer answers, the others do not return: rank 0 calls ``end_launch`` when it has written the results.

    Args:
        ranks: as many on each node: the k-th rank of each is its endpoint on rail k.
        options: what is asked.
        progress: shows how far the diagnosis is.
        stop: returns the signal on which it is to end, 0 if none has come.
        keep: stores, at rank 0, what is measured so far: now and then, and before an exception ends the diagnosis.

    Returns:
        the diagnosis with all of its measurements at rank 0, None at others.

    Raises:
        BadInputError: on all ranks, if there is only one node, nodes have the same name or different numbers of ranks,
            or the options do not fit the nodes or their GPUs.
    """
    endpoints = _ranks_of_endpoints(ranks)
    hosts = tuple(host for host, _ in ranks.ranks_by_node)
    of_slurm = tuple(ranks.racks[rank] for rank in endpoints[: len(hosts)])
    question = options.question(hosts, of_slurm if all(of_slurm) else None, len(endpoints) // len(hosts))
    with deadline():  # these calls wait for all ranks
        gpus = RankGpus(ranks)
        kind = choose_transfers(gpus, options)
        on_gpus = kind is not OVER_MPI
        attempt = gather_attempt(ranks, 1, gpus.provenance(["nccl"] if on_gpus else ()))
        load = LoadRecorder(ranks.comm, attempt)
        ports = find_ports()
        rdma = all(ranks.comm.allgather(any(port.kind != "netdev" for port in ports)))
        losses = LossRecorder(() if ranks.local_rank else ports)
        member = _Member(ranks, kind, stop, losses, oversubscribed=attempt.oversubscribed)
    alone = partial(own_seconds, ranks.ranks_by_node[ranks.node_id], gpus.gpu_of_rank if on_gpus else None)
    if ranks.comm.rank:
        member.follow(alone, load)
        return None
    together = not on_gpus and (rdma if options.together is None else options.together)
    leader = _Leader(member, endpoints, question, progress, together=together)
    rates: Mapping[str, Floats] = {}
    if not share_a_machine(attempt):
        rates = seconds_of_nodes(leader.measure_alone(alone), [place.node for place in attempt.places])
    leader.choose_stream(options.slot_s)
    size = leader.stream.bytes
    if options.expected_bytes_per_s:
        question = replace(question, expected_s=size / options.expected_bytes_per_s)
    recorder, host_of_rank = Recorder(leader), [host for host, _ in ranks.node_ids]

    def recorded(
        measured: Sequence[MeasuredSlots],
        diagnosis: Diagnosis | None = None,
        reports: Mapping[int, _Report] = MappingProxyType({}),
    ) -> RecordedDiagnosis:
        unended = (bool(reports) and (rank not in reports or reports[rank].unfinished) for rank in range(member.size))
        unfinished = [host for host, found in zip(host_of_rank, unended, strict=True) if found]
        provenance = {
            **attempt.provenance, "run_id": attempt.run_id, "begun": attempt.created,
            "in_flight": leader.stream.in_flight, "slot_s": leader.stream.seconds,
            LOAD: [each.load for each in reports.values() if each.load],
            LOSSES: to_builtins(losses_of_hosts({k: each.losses for k, each in reports.items()}, host_of_rank)),
            UNFINISHED: list(dict.fromkeys(unfinished)), HOSTS_SHARE_A_MACHINE: share_a_machine(attempt),
            **({} if reports else {KEPT: True}),
        }  # fmt: skip
        return RecordedDiagnosis(
            question, Load(kind.program, kind.memory, size, together), (*measured,), diagnosis, rates, attempt.kind,
            attempt.machine, provenance,
        )  # fmt: skip

    leader.keep = lambda under_way: keep(recorded([*recorder.measured, *under_way]))
    diagnosis: Diagnosis | None = None
    with suppress(StoppedError):
        diagnosis = ask(question, recorder)
    return recorded(recorder.measured, diagnosis, leader.end(load))


def end_launch(recorded: RecordedDiagnosis | None, code: int) -> None:
    """End a launch in which a rank no longer answers, with an exit code; called last, at rank 0 with the results.

    MPI_Finalize would wait for that rank. It returns only if all ranks answer.
    """
    if recorded and (hosts := cast("list[str]", recorded.provenance[UNFINISHED])):
        print_of_rank(0, f"transfers of {join_words(hosts)} have not ended; the launch ends by MPI_Abort")
        abort_job(MPI.COMM_WORLD, code=code)
        os._exit(code)  # under srun MPI_Abort may return


def _ranks_of_endpoints(ranks: Ranks) -> list[int]:
    """Return the rank of each endpoint.

    Raises:
        UnusableError: if there is only one node, or nodes have different numbers of ranks, or the same name.
    """
    names = Counter(host for host, _ in ranks.ranks_by_node)
    if same := [host for host, number in names.items() if number > 1]:
        raise UnusableError("launch", f"several nodes are called {join_words(same)}; a diagnosis names nodes")
    counts = ", ".join(f"{count} on {host}" for (host, _), count in ranks.ranks_by_node.items())
    if len(ranks.ranks_by_node) < 2:
        raise UnusableError("launch", f"a diagnosis takes two nodes at least; the ranks: {counts}")
    if len({*ranks.ranks_by_node.values()}) > 1:
        raise UnusableError("launch", f"a diagnosis takes as many ranks on each node; the ranks: {counts}")
    by_node = defaultdict[tuple[str, str], list[int]](list)
    for rank, node in enumerate(ranks.node_ids):
        by_node[node].append(rank)
    return [rank for rail in zip(*by_node.values(), strict=True) for rank in rail]


class _Member:
    """A rank of a diagnosis: it has a transfer at a time. Created on all ranks together."""

    def __init__(
        self, ranks: Ranks, kind: TransferKind, stop: Callable[[], int], losses: LossRecorder, *, oversubscribed: bool
    ) -> None:
        self.kind, self._losses = kind, losses
        self.rank, self.size, self.stop, self._oversubscribed = ranks.comm.rank, ranks.comm.size, stop, oversubscribed
        self._leader = f"rank 0 on {ranks.node_ids[0][0]}"
        self.control, self._data = ranks.comm.Dup(), ranks.comm.Dup()
        self._transfer: BegunTransfer | None = None
        self._failed: list[BegunTransfer] = []
        self._sends = defaultdict[int, list[MPI.Request]](list)  # by rank; one that has stopped does not receive them
        self._left: list[BegunTransfer] = []  # that have not ended: a late partner may still write in their buffers

    def send(self, content: object, to: int, tag: int) -> None:
        """Send a message without waiting for it."""
        self._sends[to].append(self.control.issend(content, to, tag))

    def has_received(self, rank: int) -> bool:
        """Return whether a rank has received all that was sent; MPI stores few messages for one that has stopped."""
        self._sends[rank] = [send for send in self._sends[rank] if not send.Test()]
        return not self._sends[rank]

    def take(self, order: _Order) -> None:
        """Leave the current transfer, and begin that of an order."""
        if self._transfer:
            self._transfer.leave()
            self._left.append(self._transfer)
        self._transfer = self.kind.begin(self._data, order) if isinstance(order, Transfer) else None

    def advance(self) -> Timing | None:
        """Continue the transfer, and those that were left; return the timing of the former if it ends."""
        self._left = [each for each in self._left if not self._has_ended(each)]
        if self._transfer is None or not self._has_ended(self._transfer):
            return None
        timing, self._transfer = FAILED if self._transfer in self._failed else self._transfer.timing, None
        return timing

    def _has_ended(self, transfer: BegunTransfer) -> bool:
        try:
            return transfer.advance()
        except MPI.Exception as error:  # such as of a network port, or a partner that has died
            print_of_rank(self.rank, f"a transfer failed: {error}")
            self._failed.append(transfer)
            return True

    def report(self, load: LoadRecorder) -> _Report:
        """Leave the current transfer, let those that were left end if they do soon, and return what is left."""
        self.take(None)
        until = time.monotonic() + LEFT_LIMIT_S
        while self._left and time.monotonic() < until:
            self.advance()
            self.pause()
        return _Report(bool(self._left or self._failed), load.end(), self._losses.end())

    @property
    def rests(self) -> bool:
        """Whether this rank has no transfer."""
        return self._transfer is None

    def pause(self) -> None:
        """Wait for a moment: where ranks share cores, another one may need this one's."""
        seconds = PAUSES_S[self._oversubscribed, self.rests]
        time.sleep(seconds) if seconds else os.sched_yield()

    def follow(self, alone: Callable[[], object], load: LoadRecorder) -> None:
        """Do what rank 0 asks for, until it ends the diagnosis; return if the launch can end by MPI_Finalize."""
        orders, tag = self.control.irecv(source=0, tag=ORDERS), 0
        until = time.monotonic() + LEADER_LIMIT_S + self.rank
        while True:
            arrived, received = orders.test()
            if arrived:  # maybe one of several: the partners of earlier ones wait for their transfers, too
                order, silent_s = cast("tuple[_Order, float]", received)
                if isinstance(order, _Verdict):
                    break
                orders, until = self.control.irecv(source=0, tag=ORDERS), time.monotonic() + silent_s + self.rank
                self.take(order)
                if isinstance(order, Transfer):
                    tag = order.tag
                elif order:
                    self.send(alone() if isinstance(order, _Alone) else self.report(load), 0, order.tag)
            elif timing := self.advance():
                self.send((timing, self.stop()), 0, tag)
            elif time.monotonic() > until:
                what = f"{self._leader}, which leads the diagnosis, does not answer; the launch ends by MPI_Abort"
                print_of_rank(self.rank, what)
                abort_job(MPI.COMM_WORLD)
                os._exit(1)  # under srun MPI_Abort may return
            else:
                self.pause()
        if order.aborts:
            time.sleep(END_LIMIT_S)
            os._exit(1)
        self.close()

    def close(self) -> None:
        """Free the communicators, when all ranks have answered; all of them call this."""
        with deadline():
            MPI.Request.Waitall([*chain.from_iterable(self._sends.values())])
            self.control.Free()
            self._data.Free()


PAUSES_S = {
    (False, False): 0.0,
    (False, True): 1e-4,
    (True, False): 2e-4,
    (True, True): 2e-3,
}
"""Seconds between two looks for messages: by whether ranks outnumber the cores, and this one has no transfer."""


class _Leader:
    """Rank 0, which measures slots."""

    def __init__(
        self, member: _Member, endpoints: Sequence[int], question: Question, progress: ShowSlots, *, together: bool
    ) -> None:
        self._member, self._endpoints, self._hosts = member, endpoints, question.hosts
        self._progress, self._together = progress, together
        self._rng = np.random.default_rng(question.seed)
        self._shown = self._kept = time.monotonic()
        self.keep: Callable[[Sequence[MeasuredSlots]], None] = lambda _: None  # is given those of a request under way
        self.stream, self._rate, self._longest_s = UNKNOWN_RATE, math.nan, LONGEST_SLOT_S
        self._begun, self._measured = 0, 0  # slots: all, and those of the procedure
        self._largest_tag = cast("int", member.control.Get_attr(MPI.TAG_UB))
        self._durations: list[float] = []  # of slots, in seconds
        self._changes: list[float] = []  # within transfers, since the slot was made longer
        self._late: list[MPI.Request] = []  # of answers that have not come
        self._signal = 0

    def measure_alone(self, alone: Callable[[], Mapping[str, Floats]]) -> list[Mapping[str, Floats]]:
        """Return what each rank does alone, as ``own_seconds``; NaN of a rank that does not answer."""
        tag, own = self._next_tag(), dict[str, Floats]()
        orders = dict.fromkeys(range(1, self._member.size), _Alone(tag))
        answers = self._ask(tag, {0: None, **orders}, lambda: own.update(alone()))
        unknown = {name: np.full_like(seconds, np.nan) for name, seconds in own.items()}
        return [own, *(answers.get(rank, unknown) for rank in orders)]

    def choose_stream(self, slot_s: float | None) -> None:
        """Choose what pairs send by the rate of the faster ones; for ``slot_s`` seconds, if that is not None."""
        endpoints, nodes = len(self._endpoints), len(self._hosts)
        pairs = consecutive_pairs(np.arange(nodes)) + np.arange(0, endpoints, nodes)[:, None, None]
        by_rate = self._member.kind.by_rate
        for _ in by_rate:
            seconds = self._measure_slot(pair_up(endpoints, pairs))
            usual_s = float(quantile(np.where(np.isinf(seconds), np.nan, seconds), QUARTILE))
            self._rate = self.stream.bytes / usual_s
            before, self.stream = self.stream, stream_at(self._rate, by_rate)
            if self.stream == before or np.isinf(seconds).any():
                break
        if slot_s is not None:
            self.stream, self._longest_s = self.stream._replace(seconds=slot_s), slot_s
        self._changes.clear()

    def __call__(self, slots: Slots) -> Floats:
        """Measure slots, up to the first with a pair that does not answer.

        Raises:
            StoppedError: if a signal has come.
        """
        rows: list[Floats] = []
        try:
            self._measure_slots(slots, rows)
        except StoppedError:
            raise
        except BaseException:
            self._keep(slots, rows)
            raise
        return np.array(rows)

    def _keep(self, slots: Slots, rows: Sequence[Floats]) -> None:
        self.keep([MeasuredSlots(slots, np.array(rows))] if rows else [])
        self._kept = time.monotonic()

    def _measure_slots(self, slots: Slots, rows: list[Floats]) -> None:
        for partners in slots.partners:
            if self._signal or self._member.stop():
                raise StoppedError(rows)
            rows.append(self._measure_slot(partners))
            self._measured += 1
            if time.monotonic() > self._shown + SHOW_INTERVAL_S:
                self._shown = time.monotonic()
                self._progress(self._measured, self._measured + len(slots.partners) - len(rows), slots.purpose)
            if time.monotonic() > self._kept + KEEP_INTERVAL_S:
                self._keep(slots, rows)
            if np.isinf(rows[-1]).any():
                break
            if not self._measured % SLOTS_OF_NOISE:
                self._lengthen_slots()

    def _measure_slot(self, partners: Integers) -> Floats:
        tag = self._next_tag()
        orders: dict[int, _Order] = dict.fromkeys(range(self._member.size))
        pairs = [(one, other) for one, other in enumerate(partners.tolist()) if one != other]
        # The second direction may be slower: by 3 % where the cores are too slow.
        lower_first = self._rng.random(len(partners)) < 0.5
        messages = self.stream.messages_at(self._rate)
        for one, other in pairs:
            orders[self._endpoints[one]] = Transfer(
                self._endpoints[other], tag, self.stream, self._together,
                first=(one < other) == lower_first[min(one, other)], messages=messages,
            )  # fmt: skip
        began = time.monotonic()
        answers = self._ask(tag, orders)
        seconds = np.full(len(partners), np.nan)
        for one, other in pairs:  # the receiver has the time
            sent, received = (answers.get(self._endpoints[end], (FAILED, 0))[0] for end in (one, other))
            seconds[one] = math.inf if math.isinf(sent.seconds) else received.seconds
        took = time.monotonic() - began
        if missed := [pair for pair in pairs if pair[0] < pair[1] and math.isinf(seconds[pair[0]])]:
            nodes = len(self._hosts)
            names = join_words(" and ".join(self._hosts[end % nodes] for end in pair) for pair in missed)
            print_of_rank(0, f"slot {self._measured + 1}: {names} have not answered within {took:.1f} s")
        else:
            self._durations.append(took)
        self._changes += [timing.change for timing, _ in answers.values()]
        self._signal = self._signal or max((signal for _, signal in answers.values()), default=0)
        return seconds

    def _next_tag(self) -> int:
        self._begun += 1
        return 1 + self._begun % (self._largest_tag - 1)

    def _ask(
        self, tag: int, orders: Mapping[int, _Order], meanwhile: Callable[[], object] = lambda: None
    ) -> dict[int, Any]:
        """Send orders to ranks, do something, and return the answers by rank that come before the deadline."""
        member, asked = self._member, [rank for rank, order in orders.items() if order and rank]
        answers = [member.control.irecv(source=rank, tag=tag) for rank in asked]
        limit_s = self._limit_s
        silent_s = limit_s + LEADER_LIMIT_S + SECONDS_PER_LINK * len(self._hosts) ** 2
        for rank, order in orders.items():
            if rank and (order or member.has_received(rank)):
                member.send((order, silent_s), rank, ORDERS)
        member.take(orders[0])
        meanwhile()
        found: dict[int, Any] = {}
        until = time.monotonic() + limit_s
        expected = len(asked) + isinstance(orders[0], Transfer)
        in_time = True
        while len(found) < expected and in_time:
            in_time = time.monotonic() < until
            if timing := member.advance():
                found[0] = timing, member.stop()
            if member.rests or not in_time:  # otherwise this rank would receive more slowly than others
                arrived, contents = MPI.Request.testsome(answers)
                found |= zip((asked[k] for k in arrived or ()), contents or (), strict=True)
            member.pause()
        self._late += [answer for answer in answers if answer != MPI.REQUEST_NULL]
        return found

    @property
    def _limit_s(self) -> float:
        kind, usual_s = self._member.kind, self.stream.seconds
        if not self._durations:
            return max(kind.first_limit_s, LIMIT_SLOTS * usual_s)
        return max(kind.least_limit_s, LIMIT_SLOTS * max(usual_s, median(np.array(self._durations))))

    def _lengthen_slots(self) -> None:
        """Make slots twice as long if transfers vary too much within themselves; messages stay the same."""
        if robust_deviation(np.array(self._changes)) > MOST_NOISE:
            self.stream = self.stream._replace(seconds=min(2 * self.stream.seconds, self._longest_s))
        self._changes.clear()

    def end(self, load: LoadRecorder) -> dict[int, _Report]:
        """End the diagnosis on all ranks; return what they report by rank, without those that do not answer."""
        member, tag = self._member, self._next_tag()
        others = range(1, member.size)
        reports: dict[int, _Report] = self._ask(tag, {0: None, **dict.fromkeys(others, _End(tag))})
        reports[0] = member.report(load)
        aborts = len(reports) < member.size or any(report.unfinished for report in reports.values())
        for rank in others:
            member.send((_Verdict(aborts), 0.0), rank, ORDERS)
        if not aborts:
            member.close()
        return reports
