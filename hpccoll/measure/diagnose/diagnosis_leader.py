"""Rank 0 of a diagnosis leads it: it orders the transfers of each slot, and collects their times until a deadline."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

import numpy as np
from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.common.text import join_words
from hpccoll.diagnosis.matchings import consecutive_pairs, pair_up
from hpccoll.diagnosis.nodes_alone import TransferError, error_text
from hpccoll.diagnosis.recorded import MeasuredSlots, Question, StoppedError
from hpccoll.diagnosis.robust_statistics import QUARTILE, median, quantile, robust_deviation
from hpccoll.diagnosis.slot_records import Floats, Integers, Purpose, Slots
from hpccoll.measure.diagnose.diagnosis_member import (
    LEADER_LIMIT_S,
    ORDERS,
    Alone,
    End,
    Go,
    LastOrder,
    Member,
    Order,
    Report,
    measured_alone,
)
from hpccoll.measure.diagnose.loss_recorder import RankLosses
from hpccoll.measure.diagnose.pair_transfers import (
    FAILED,
    UNKNOWN_RATE,
    Timing,
    Transfer,
    stream_at,
)
from hpccoll.measure.provenance import LoadRecorder
from hpccoll.measure.ranks import print_of_rank

ShowSlots: TypeAlias = Callable[[int, int, Purpose], None]
"""Called at rank 0 about each second, with the slots that are measured, how many are expected in
all, and why they are."""

LIMIT_SLOTS = 10
"""A slot times out after this number of usual slot durations, but not before the minimum of the transport."""

SECONDS_PER_LINK = 1e-5
"""How much later ranks end a launch without orders for each pair of nodes, whose effects rank 0
fits (a twentieth of that on one core)."""

SLOTS_OF_NOISE = 4
"""How many slots pass until the noise of transfers decides again how long slots are."""

MOST_NOISE = 0.02
"""The change within a transfer, by its robust deviation, above which slots become twice as long."""

LONGEST_SLOT_S = 0.4
"""The duration up to which slots become longer."""

SHOW_INTERVAL_S, KEEP_INTERVAL_S = 1.0, 5.0
"""How often rank 0 shows its progress, and keeps what is measured: a launcher may kill all ranks if one dies."""


class Leader:
    """Rank 0, which measures slots."""

    def __init__(
        self,
        member: Member,
        endpoints: Sequence[int],
        question: Question,
        progress: ShowSlots,
        *,
        together: bool,
    ) -> None:
        self._member = member
        self._endpoints = endpoints
        self._hosts = question.hosts
        self._host_of_rank = {
            rank: question.hosts[end % len(question.hosts)] for end, rank in enumerate(endpoints)
        }
        self._progress, self._together = progress, together
        self._rng = np.random.default_rng(question.seed)
        self._shown = self._kept = time.monotonic()
        # is given those of a request under way
        self.keep: Callable[[Sequence[MeasuredSlots]], None] = lambda _: None
        self.stream = UNKNOWN_RATE
        self._rate = math.nan
        self._longest_s = LONGEST_SLOT_S
        self._begun, self._measured = 0, 0  # slots: all, and those of the procedure
        self._largest_tag = cast("int", member.control.Get_attr(MPI.TAG_UB))
        self._durations: list[float] = []  # of slots, in seconds
        self.errors: list[TransferError] = []  # of transfers
        self._changes: list[float] = []  # within transfers, since the slot was made longer
        # by rank: answers that have not come
        self._late = defaultdict[int, list[MPI.Request]](list)
        # answers that are not waited for: MPI may still write in their buffers
        self._unneeded: list[MPI.Request] = []
        self._signal = 0
        # whether a pair has, of those that connect before they transfer
        self._has_connected = False
        # whether the launch ends by MPI_Abort, because a rank does not answer at the end
        self.aborts = False

    def measure_alone(
        self, alone: Callable[[], Mapping[str, Floats]]
    ) -> list[Mapping[str, Floats]]:
        """Return what each rank does alone, as ``own_seconds``; NaN of a rank that fails or does not answer."""
        tag = self._next_tag()
        own = list[tuple[Mapping[str, Floats], str | None]]()
        orders = dict.fromkeys(range(1, self._member.size), Alone(tag))
        answers = self._ask(tag, {0: None, **orders}, lambda: own.append(measured_alone(alone)))
        answers[0] = own[0]
        for rank, (_, why) in sorted(answers.items()):
            if why:
                self.errors.append(TransferError(hosts=[self._host_of_rank[rank]], why=why))
                print_of_rank(0, f"alone, {error_text(self.errors[-1])}")
        measured: Mapping[str, Floats] = next(
            (seconds for seconds, _ in answers.values() if seconds), {}
        )
        unknown = {name: np.full_like(seconds, np.nan) for name, seconds in measured.items()}
        return [answers.get(rank, ({}, None))[0] or unknown for rank in range(self._member.size)]

    def choose_stream(self, slot_s: float | None) -> None:
        """Choose what pairs send by the rate of the faster ones; for ``slot_s`` seconds, if that is not None.

        Raises:
            UnusableError: if no pair has a time, and some have failed with an error.
        """
        endpoints = len(self._endpoints)
        nodes = len(self._hosts)
        pairs = consecutive_pairs(np.arange(nodes)) + np.arange(0, endpoints, nodes)[:, None, None]
        by_rate = self._member.kind.by_rate
        for _ in by_rate:
            seconds = self._measure_slot(pair_up(endpoints, pairs))
            usual_s = float(quantile(np.where(np.isinf(seconds), np.nan, seconds), QUARTILE))
            if math.isnan(usual_s):
                self._refuse_to_go_on()
            self._rate = self.stream.bytes / usual_s
            before, self.stream = self.stream, stream_at(self._rate, by_rate)
            if self.stream == before or np.isinf(seconds).any():
                break
        if slot_s is not None:
            self.stream, self._longest_s = self.stream._replace(seconds=slot_s), slot_s
        self._changes.clear()

    def _refuse_to_go_on(self) -> None:
        """Raise the reason why no pair has a time, if it is the program's and not that of single nodes.

        Raises:
            UnusableError: if a transfer has an error, or no pair has connected.
        """
        kind = self._member.kind
        program = f"transfers over {kind.program}"
        if self.errors:
            raise UnusableError(program, f"no pair has a time; {error_text(self.errors[0])}")
        if kind.connects_first and not self._has_connected:
            raise UnusableError(
                program,
                "no pair has connected; do: read the messages of the ranks, or --device cpu",
            )

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
            with suppress(Exception):  # the first error is the one to be seen
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
                self._progress(
                    self._measured, self._measured + len(slots.partners) - len(rows), slots.purpose
                )
            if time.monotonic() > self._kept + KEEP_INTERVAL_S:
                self._keep(slots, rows)
            if np.isinf(rows[-1]).any():
                break
            if not self._measured % SLOTS_OF_NOISE:
                self._lengthen_slots()

    def _measure_slot(self, partners: Integers) -> Floats:
        tag = self._next_tag()
        orders: dict[int, Order] = dict.fromkeys(range(self._member.size))
        pairs = [
            (endpoint, partner)
            for endpoint, partner in enumerate(partners.tolist())
            if endpoint != partner
        ]
        # The second direction may be slower: by 3 % where the cores are too slow.
        lower_first = (self._rng.random(len(partners)) < 0.5).tolist()
        messages = self.stream.messages_at(self._rate)
        for endpoint, partner in pairs:
            orders[self._endpoints[endpoint]] = Transfer(
                self._endpoints[partner],
                tag,
                self.stream,
                self._together,
                first=(endpoint < partner) == lower_first[min(endpoint, partner)],
                messages=messages,
            )
        began = time.monotonic()
        answers: dict[int, tuple[Timing, int]] = self._ask(tag, orders)
        if self._member.kind.connects_first:
            answers = self._go(answers, orders)
        timings = {rank: timing for rank, (timing, _) in answers.items()}
        seconds = np.full(len(partners), np.nan)
        for endpoint, partner in pairs:  # the receiver has the time
            sent, received = (
                timings.get(self._endpoints[end], FAILED) for end in (endpoint, partner)
            )
            if math.isinf(sent.seconds):
                seconds[endpoint] = math.inf
            else:
                seconds[endpoint] = received.seconds
        if missed := [pair for pair in pairs if pair[0] < pair[1] and math.isinf(seconds[pair[0]])]:
            self._show_missed(missed, timings, time.monotonic() - began)
        else:
            self._durations.append(time.monotonic() - began)
        self._changes += [timing.change for timing in timings.values()]
        self._signal = self._signal or max((signal for _, signal in answers.values()), default=0)
        return seconds

    def _go(
        self, answers: Mapping[int, tuple[Timing, int]], orders: Mapping[int, Order]
    ) -> dict[int, tuple[Timing, int]]:
        """Have all pairs that have connected transfer at once; return their answers, and those of ranks that failed."""
        connected = {
            rank for rank, (timing, _) in answers.items() if not math.isinf(timing.seconds)
        }
        tag = self._next_tag()
        go = dict[int, Order].fromkeys(orders)
        for rank, order in orders.items():
            if isinstance(order, Transfer) and {rank, order.partner} <= connected:
                go[rank] = Go(order.partner, tag)
                self._has_connected = True
        return {
            rank: answer for rank, answer in answers.items() if rank not in connected
        } | self._ask(tag, go)

    def _show_missed(
        self, missed: Sequence[tuple[int, int]], timings: Mapping[int, Timing], took: float
    ) -> None:
        """Print which pairs of endpoints have no times, and keep the errors of those that have some."""
        shown = len(self.errors)
        silent = list[str]()
        for pair in missed:
            hosts = [self._hosts[end % len(self._hosts)] for end in pair]
            errors = [timings.get(self._endpoints[end], FAILED).error for end in pair]
            self.errors += [
                TransferError(hosts=named, why=why)
                for named, why in zip((hosts, hosts[::-1]), errors, strict=True)
                if why
            ]
            silent += [] if any(errors) else [" and ".join(hosts)]
        slot = f"slot {self._measured + 1}"
        for error in self.errors[shown:]:
            print_of_rank(0, f"{slot}: {error_text(error)}")
        if silent:
            print_of_rank(0, f"{slot}: {join_words(silent)} have not answered within {took:.1f} s")

    def _next_tag(self) -> int:
        self._begun += 1
        return 1 + self._begun % (self._largest_tag - 1)

    def _ask(
        self, tag: int, orders: Mapping[int, Order], meanwhile: Callable[[], object] = lambda: None
    ) -> dict[int, Any]:
        """Send orders to ranks, do something, and return the answers by rank that come before the deadline."""
        member = self._member
        ranks = list[int]()
        answers = list[MPI.Request]()
        limit_s, waiting = self._limit_s, {**orders}
        rest = {rank: waiting.pop(rank) for rank, order in orders.items() if order is None}
        answers_of_ranks: dict[int, Any] = {}
        self._send({rank: None for rank in rest if not self._is_silent(rank)}, limit_s)

        def send_waiting() -> None:
            ready = self._ready(waiting)
            ranks.extend(rank for rank in ready if rank)
            answers.extend(member.control.irecv(source=rank, tag=tag) for rank in ready if rank)
            self._send(ready, limit_s)

        send_waiting()
        if isinstance(waiting.get(0), Transfer):
            member.take(None)  # its own transfer of an earlier slot is not an answer
        meanwhile()
        until = time.monotonic() + limit_s
        awaited = {*waiting, *ranks} | ({0} if isinstance(orders[0], Transfer | Go) else set())
        in_time = True
        while awaited and in_time:
            in_time = time.monotonic() < until
            if waiting:
                send_waiting()
            member.arrived_order()
            if timing := member.advance():
                answers_of_ranks[0] = timing, member.stop()
            # While it transfers, this rank does what all others do, and nothing else, unless its
            # GPU transfers.
            if member.rests or member.kind.connects_first or not in_time:
                arrived, contents = MPI.Request.testsome(answers)
                answers_of_ranks |= zip(
                    (ranks[k] for k in arrived or ()), contents or (), strict=True
                )
                for rank in awaited & answers_of_ranks.keys():
                    awaited -= _answered(rank, orders[rank], answers_of_ranks[rank])
            member.pause()
        self._keep_pending(ranks, answers, awaited)
        return answers_of_ranks

    def _keep_pending(
        self, ranks: Sequence[int], answers: Sequence[MPI.Request], awaited: set[int]
    ) -> None:
        """Keep the answers that have not come, by whether their ranks are awaited."""
        self._unneeded = [answer for answer in self._unneeded if not answer.test()[0]]
        for rank, answer in zip(ranks, answers, strict=True):
            if answer == MPI.REQUEST_NULL:
                continue
            kept = self._late[rank] if rank in awaited else self._unneeded
            kept.append(answer)

    def _ready(self, waiting: dict[int, Order]) -> dict[int, Order]:
        """Take out the orders whose ranks, and partners, have answered earlier ones in time or late, and return them.

        The others may have died: MPICH 5.0 dies of a message to a process that has (over UCX and
            OFI).
        """
        silent = {rank for rank in waiting if self._is_silent(rank)}
        is_ready = {
            rank: rank not in silent
            and not (isinstance(order, Transfer | Go) and order.partner in silent)
            for rank, order in waiting.items()
        }
        return {rank: waiting.pop(rank) for rank, ready in is_ready.items() if ready}

    def _is_silent(self, rank: int) -> bool:
        """Return whether a rank owes an answer, or has not received an order."""
        if rank in self._late:
            self._late[rank] = [answer for answer in self._late[rank] if not answer.test()[0]]
        return bool(self._late.get(rank)) or not self._member.has_received(rank)

    def _send(self, orders: Mapping[int, Order], limit_s: float) -> None:
        """Send orders to ranks, which have a number of seconds to answer; rank 0 takes its own order last."""
        silent_s = limit_s + LEADER_LIMIT_S + SECONDS_PER_LINK * len(self._hosts) ** 2
        for rank, order in orders.items():
            if rank:
                self._member.send((order, limit_s, silent_s), rank, ORDERS)
        if 0 in orders:
            self._member.limit_s = limit_s
            self._member.take(orders[0])

    @property
    def _limit_s(self) -> float:
        kind = self._member.kind
        usual_s = self.stream.seconds
        if not self._durations:
            return max(kind.first_limit_s, LIMIT_SLOTS * usual_s)
        return max(
            kind.least_limit_s, LIMIT_SLOTS * max(usual_s, median(np.array(self._durations)))
        )

    def _lengthen_slots(self) -> None:
        """Make slots twice as long if transfers vary too much within themselves; messages stay the same."""
        if robust_deviation(np.array(self._changes)) > MOST_NOISE:
            self.stream = self.stream._replace(
                seconds=min(2 * self.stream.seconds, self._longest_s)
            )
        self._changes.clear()

    def end(self, load: LoadRecorder) -> dict[int, Report]:
        """End the diagnosis on all ranks; return what they report by rank, without those that do not answer."""
        member = self._member
        tag = self._next_tag()
        other_ranks = range(1, self._member.size)
        limit_s = self._limit_s
        end = End(tag)
        waiting: dict[int, Order] = dict.fromkeys(other_ranks, end)
        until = time.monotonic() + limit_s
        reports: dict[int, Report] = {}
        arriving: dict[int, MPI.Request] = {}
        while len(reports) < len(other_ranks) and time.monotonic() < until:
            self._send(self._ready(waiting), limit_s)
            for rank in other_ranks:
                # A report may be long: its size is probed first.
                if rank not in arriving and (
                    message := member.control.improbe(source=rank, tag=tag)
                ):
                    arriving[rank] = message.irecv()
                if rank in arriving and rank not in reports:
                    try:
                        arrived, report = arriving[rank].test()
                    except Exception as error:  # noqa: BLE001  a report is less than the verdict
                        print_of_rank(0, f"the report of rank {rank} is unreadable: {error}")
                        arrived = True
                        report = Report(unfinished=False, load=None, losses=RankLosses({}, {}))
                    if arrived:
                        reports[rank] = cast("Report", report)
            member.pause()
        reports[0] = member.report(load)
        self.aborts = len(reports) < member.size or any(
            report.unfinished for report in reports.values()
        )
        for rank in other_ranks:
            if rank in reports:
                member.send((LastOrder(self.aborts), 0.0, 0.0), rank, ORDERS)
        return reports


def _answered(rank: int, order: Order, answer: Any) -> set[int]:
    """Return the ranks whose answers are not waited for after that of a rank: a partner may wait for one that fails."""
    if isinstance(order, Transfer | Go) and answer[0].error:
        return {rank, order.partner}
    return {rank}
