"""A diagnosis by ranks: diagnosis_ranks.py OUT [OPTIONS], a JSON file and object.

The object has fields of DiagnosisOptions, and

    nodes: the name of the node of each rank, by default that of its host;
    boots: whether each rank is on a node of its own, whatever the names;
    machines: whether these nodes are said to be machines of their own;
    stops_early: the rank that stops before rank 0 leads, which the others wait for a second only;
    stops_alone: the rank that stops while it measures what it does alone;
    gpu_hangs: the rank the driver of whose GPU does not answer;
    fails_alone: the rank with an error while it measures what it does alone;
    leader_stops: whether rank 0 stops when the others have reported;
    leader_limit_s: LEADER_LIMIT_S;
    report: what rank 1 reports at the end: of REPORTS;
    polls: whether each rank prints what it calls from pause to pause while its transfers are under
    way;
    fault: of a rank, from its transfer of a number on, from 0: [RANK, NUMBER, KIND], of FAULTS;
        with a fourth item, the PARTNER, from the first transfer with that rank on.
"""

import json
import math
import os
import signal
import sys
import time
from dataclasses import asdict
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.recorded import DiagnosisOptions
from hpccoll.host import tcp_connections
from hpccoll.measure import mpi_startup

comm = mpi_startup.start_mpi("cpu")

from mpi4py import MPI  # noqa: E402

from hpccoll.measure import gpu_liveness, provenance, ranks, roll_call  # noqa: E402  they start MPI
from hpccoll.measure.diagnose import (  # noqa: E402  likewise
    diagnosis_leader,
    diagnosis_member,
    diagnosis_runner,
    loss_recorder,
    pair_transfers,
)
from hpccoll.transports import gpu  # noqa: E402

LATE = pair_transfers.Timing(1e6, 0.0)
"""The answer that comes after its slot has ended."""


CONNECTIONS = 2000
"""As many as a rank of a large launch has, or one whose library opens several for each pair."""


class Unreadable:
    """What rank 0 cannot read."""

    def __reduce__(self):
        return int, ("no number",)


REPORTS = {
    "large": lambda: loss_recorder.RankLosses(
        {
            (("10.0.0.1", k), ("10.0.0.2", k)): tcp_connections.SentSegments(1, 0)
            for k in range(CONNECTIONS)
        },
        {},
    ),
    "unreadable": Unreadable,
}


def fail_alone(*_):
    raise MemoryError("the GPU is full")


def count_gpus(count=gpu.device_count):
    print("the driver of GPUs is asked\n", end="", flush=True)
    return count()


def slot_file(number):
    return Path(f"{sys.argv[1]}-{number}")


def answer_late(member, order):
    send = member.send

    def send_late(_timing, to, tag):
        member.send = send
        while not slot_file(order.tag).exists():  # the tag is the number of the next slot
            time.sleep(0.01)
        send((LATE, 0), to, tag)

    member.send = send_late


def pause(_member, order):
    while not slot_file(order.tag).exists():
        time.sleep(0.01)


def send_slowly(_member, _order):
    send = pair_transfers._Sender._send

    def send_later(self, message):
        time.sleep(0.01)
        return send(self, message)

    pair_transfers._Sender._send = send_later


def report_an_error(member, _order):
    advance = member.advance

    def advance_with_error():
        member.advance = advance
        os.kill(os.getpid(), signal.SIGUSR1)  # this slot is the last one
        return pair_transfers.Timing(math.inf, math.nan, "the GPU is lost")

    member.advance = advance_with_error


class Answer(MPI.Request):
    """A message that rank 0 receives, which says if it is forgotten before it has come."""

    def __del__(self):
        if self != MPI.REQUEST_NULL and not ended:
            print("an answer is forgotten\n", end="", flush=True)


class Control:
    """The communicator of orders and answers."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        return getattr(self.of, name)

    def irecv(self, **where):
        return Answer(self.of.irecv(**where))


def fail_in_mpi(member, _order):
    def advance():
        raise MPI.Exception(MPI.ERR_OTHER)

    member._transfer.advance = advance


FAULTS = {
    "stops": lambda *_: os.kill(os.getpid(), signal.SIGSTOP),
    "dies": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
    "pauses": pause,
    "fails": fail_in_mpi,
    "reports an error": report_an_error,
    "is interrupted": lambda *_: os.kill(os.getpid(), signal.SIGUSR1),
    "answers late": answer_late,
    "sends slowly": send_slowly,
}


def fail(who, when, kind, partner=None):
    """Have a rank fail when it begins its transfer of a number, or the next one with a partner.

    Rank 0 leaves a file for each slot that it begins.
    """
    take, slots, transfers = diagnosis_member.Member.take, count(1), iter(range(when))
    begun = []

    def take_with_fault(self, order):
        begins = self.rank == who and not begun and isinstance(order, pair_transfers.Transfer)
        if begins and next(transfers, None) is None and partner in (None, order.partner):
            begun.append(order)
        fails = order in begun
        # its partner waits for its messages
        take(self, None if fails and kind == "reports an error" else order)
        if self.rank == 0 and not isinstance(self.control, Control):
            self.control = Control(self.control)
        if self.rank == 0:
            slot_file(next(slots)).touch()
        if fails:
            FAULTS[kind](self, order)

    diagnosis_member.Member.take = take_with_fault


called = []
"""What a rank has called since its transfer began, or since its last pause."""

polls = set()


def record_calls():
    """Have this rank record what it calls from pause to pause while its transfer is under way."""
    member = diagnosis_member.Member

    def take(self, order, take=member.take):
        called.clear()
        take(self, order)

    def pause(self, pause=member.pause):
        if not self.rests:
            polls.add(tuple(called))
        called.clear()
        pause(self)

    def recorded(name, function):
        def call(*arguments):
            called.append(name)
            return function(*arguments)

        return call

    member.take, member.pause = take, pause
    for name in ("arrived_order", "advance", "send"):
        setattr(member, name, recorded(name, getattr(member, name)))
    diagnosis_leader.MPI = SimpleNamespace(
        Request=SimpleNamespace(testsome=recorded("testsome", MPI.Request.testsome)),
        REQUEST_NULL=MPI.REQUEST_NULL,
        TAG_UB=MPI.TAG_UB,
    )


options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
nodes = options.pop("nodes", None)
limit_s = options.pop("leader_limit_s", diagnosis_member.LEADER_LIMIT_S)
diagnosis_member.LEADER_LIMIT_S = diagnosis_leader.LEADER_LIMIT_S = limit_s
if options.pop("machines", False):
    provenance.boot_id = ranks.boot_id = lambda: nodes[comm.rank]
if options.pop("boots", False):
    ranks.boot_id = lambda: str(comm.rank)
if nodes:
    provenance.node_name = ranks.node_name = lambda: nodes[comm.rank]
if fault := options.pop("fault", None):
    fail(*fault)
if (early := options.pop("stops_early", None)) is not None:
    roll_call.LATE_S = 1.0
    os.environ[mpi_startup.START_TIMEOUT_VARIABLE] = "4"
    if comm.rank == early:
        diagnosis_runner.find_ports = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
if comm.rank == options.pop("stops_alone", None):
    diagnosis_runner.own_seconds = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
if comm.rank == options.pop("fails_alone", None):
    diagnosis_runner.own_seconds = fail_alone
gpu.device_count = count_gpus
if (hangs := options.pop("gpu_hangs", None)) is not None:
    gpu_liveness.reason_gpu_hangs = lambda _: "it does not answer" if comm.rank == hangs else None
    if comm.rank == hangs:
        gpu.device_count = lambda: time.sleep(3600)
if options.pop("leader_stops", False) and comm.rank == 0:
    diagnosis_member.Member.report = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
report = options.pop("report", None)
if report and comm.rank == 1:
    loss_recorder.LossRecorder.end = lambda _: REPORTS[report]()
ended = []
pids = comm.gather(os.getpid())


def end(self, load, end=diagnosis_leader.Leader.end):
    ended.append(True)
    return end(self, load)


diagnosis_leader.Leader.end = end
sent = [0] * comm.size  # messages to each rank


def send_counted(self, content, to, tag, send=diagnosis_member.Member.send):
    sent[to] += 1
    send(self, content, to, tag)


diagnosis_member.Member.send = send_counted
shows_polls = options.pop("polls", False)
if shows_polls:
    record_calls()
diagnosis_leader.KEEP_INTERVAL_S = 0.0


def write(recorded):
    found = recorded.diagnosis
    result = {
        "question": asdict(recorded.question),
        "load": asdict(recorded.load),
        "diagnosis": found and asdict(found),
        "rates": {name: seconds.tolist() for name, seconds in recorded.rates.items()},
        "kind": recorded.kind,
        "machine": recorded.machine,
        "provenance": recorded.provenance,
        "pids": pids,
        "sent": sent,
        "measured": [
            [each.slots.purpose, each.slots.partners.tolist(), each.seconds.tolist()]
            for each in recorded.measured
        ],
    }
    out = Path(sys.argv[1])
    out.with_suffix(".part").write_text(json.dumps(result))
    out.with_suffix(".part").replace(out)


stop = mpi_startup.StopSignal()
try:
    recorded = diagnosis_runner.run_diagnosis(
        ranks.Ranks(roll_call.NamingComm(comm)),
        DiagnosisOptions(**{"seed": 1, **options}),
        stop=lambda: stop.signal,
        progress=lambda *done: print(*done, flush=True),
        keep=write,
    )
except BadInputError as error:
    print(f"rank {comm.rank}: {error}\n", end="", flush=True)
    sys.exit(0)
if shows_polls:
    print(f"polls of rank {comm.rank}: {json.dumps(sorted(polls))}\n", end="", flush=True)
if recorded:
    write(recorded)
    diagnosis_runner.end_launch(recorded, 3)
