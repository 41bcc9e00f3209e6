"""NCCL's own collectives on a fake library that implements the semantics of nccl.h on the memory of all ranks."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu_cluster import Cluster
from schedule_examples import buffers, calls_of, contributions, result

from hpccoll.errors import BadInputError
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, Layout
from hpccoll.transports.nccl import communicator_config, communicators, cupy_device
from hpccoll.transports.nccl.vendor import (
    CALLS,
    NCCL_OPS,
    NCCL_TYPES,
    NcclCallArguments,
    NcclVendorTransport,
    check_placement,
)
from hpccoll.transports.transport_interface import Operation

NUMPY = {NCCL_TYPES[name]: np.dtype(name) for name in (*DTYPES, "uint8")}
FOLDS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}
STREAM = 4711


class Room(np.ndarray):
    """An array that says as CuPy's do where its memory is."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def memory(address, count, datatype):
    dtype = NUMPY[datatype]
    if not count:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


class Library:
    """The communicators of all ranks; what they are asked is done by ``finish``, as nccl.h says it is."""

    def __init__(self, ranks):
        self.asked = [[] for _ in range(ranks)]
        self.ranks = [Communicator(self, me) for me in range(ranks)]

    def finish(self):
        collective = [asked[0] for asked in self.asked if asked and asked[0][0] not in ("send", "recv")]
        if collective:
            (name,) = {name for name, _ in collective}
            getattr(self, name)([arguments for _, arguments in collective])
        else:
            self.messages()

    def messages(self):
        inbox = {}
        for me, asked in enumerate(self.asked):
            for name, (address, count, datatype, peer) in asked:
                if name == "send":
                    inbox.setdefault((me, peer), []).append(memory(address, count, datatype).copy())
        for me, asked in enumerate(self.asked):
            for name, (address, count, datatype, peer) in asked:
                if name == "recv":
                    memory(address, count, datatype)[:] = inbox[peer, me].pop(0)
        assert not any(inbox.values()), "what is sent is received"

    def reduced(self, all_arguments):
        """Fold what all have; arguments begin with sendbuf, recvbuf, count, datatype and op."""
        values = [memory(sent, count, datatype).copy() for sent, _, count, datatype, *_ in all_arguments]
        total = values[0]
        for value in values[1:]:
            total = FOLDS[all_arguments[0][4]](total, value)
        return total

    def allReduce(self, asked):  # noqa: N802
        total = self.reduced(asked)
        for _, target, count, datatype, _ in asked:
            memory(target, count, datatype)[:] = total

    def reduce(self, asked):
        total = self.reduced([arguments[:5] for arguments in asked])
        _, target, count, datatype, _, root = asked[asked[0][5]]
        memory(target, count, datatype)[:] = total
        assert root == asked[0][5]

    def reduceScatter(self, asked):  # noqa: N802
        total = self.reduced([(sent, to, count * len(asked), datatype, op) for sent, to, count, datatype, op in asked])
        for me, (_, target, count, datatype, _) in enumerate(asked):
            memory(target, count, datatype)[:] = total[me * count : (me + 1) * count]

    def allGather(self, asked):  # noqa: N802
        whole = np.concatenate([memory(sent, count, datatype) for sent, _, count, datatype in asked])
        for _, target, count, datatype in asked:
            memory(target, count * len(asked), datatype)[:] = whole

    def broadcast(self, asked):
        sent, _, count, datatype, root = asked[asked[0][4]]
        value = memory(sent, count, datatype).copy()
        for _, target, count, datatype, its_root in asked:
            assert its_root == root
            memory(target, count, datatype)[:] = value


class Communicator:
    def __init__(self, library, me):
        self.library, self.me = library, me

    def __getattr__(self, name):
        def call(*arguments):
            *arguments, stream = arguments
            assert stream == STREAM
            self.library.asked[self.me].append((name, tuple(arguments)))

        return call


class Bindings:
    """nccl4py's calls, whose handles are the communicators of CuPy."""

    def __getattr__(self, name):
        (cupys,) = (cupys for cupys, own in communicator_config.CUPY_TO_NCCL4PY.items() if own == name)
        return lambda *arguments: getattr(arguments[-2], cupys)(*arguments[:-2], arguments[-1])


def of_cupy(handle):
    return handle


@pytest.fixture(params=[of_cupy, communicator_config.ConfiguredCommunicator])
def binding(request, monkeypatch):
    """Return what a binding makes of a communicator."""
    monkeypatch.setattr(communicator_config, "_nccl", Bindings)
    return request.param


def grouped(calls):
    def group():
        for call, arguments in calls:
            call(*arguments)

    return group


def calls():
    """Yield every call of every collective on three workers, in and out of place."""
    for collective in COLLECTIVES.values():
        for call in calls_of(collective, 3):
            for in_place in (True, False):
                if in_place and not (collective.in_place and collective.name != "all_to_all"):
                    continue
                if not in_place and not collective.out_of_place:
                    continue
                yield call, in_place


@pytest.mark.parametrize(
    ("call", "in_place"),
    [*calls()],
    ids=lambda value: f"{value.collective.name}-{value.root}-{value.peer}" if hasattr(value, "root") else str(value),
)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_each_call_passes_the_buffers_counts_and_ranks_of_its_collective(call, in_place, dtype, binding):
    barrier = call.collective.token
    ops = ["max"] if barrier else REDUCTIONS if call.collective.reduces else ["sum"]
    for op in ops:
        count, reduction = 1 if barrier else 37, REDUCTIONS[op]
        asked = Operation(call, Layout.of(3), (), count, np.dtype(dtype), reduction, in_place=in_place)
        inputs, outputs = ([values.view(Room) for values in of_all] for of_all in buffers(asked))
        given = contributions(asked)
        library = Library(3)
        word = [np.array([me], np.int32).view(Room) for me in range(3)]
        arguments = [
            NcclCallArguments(binding(library.ranks[me]), me, asked, inputs[me], outputs[me], word[me], STREAM, grouped)
            for me in range(3)
        ]
        before = [values.tobytes() for values in outputs]
        made = [CALLS[call.collective.name](each) for each in arguments]
        for queued in made:
            queued()
        library.finish()
        for me, each in enumerate(arguments):
            asked.reduction.scale(each.result, 3)
            if barrier:
                assert outputs[me].tobytes() == before[me], "a barrier leaves the payload as it is"
            else:
                assert np.array_equal(each.result, result(asked, given, me)), (me, op)


def test_types_and_ops_equal_those_of_nccl_h():
    assert NCCL_TYPES == {"uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
    assert {op: NCCL_OPS[op] for op in ("sum", "prod", "max", "min")} == {"sum": 0, "prod": 1, "max": 2, "min": 3}
    assert NCCL_OPS["avg"] == NCCL_OPS["sum"]
    assert set(CALLS) == set(COLLECTIVES)


def test_all_to_all_in_place_is_bad_input():
    call = COLLECTIVES["all_to_all"].call(2)
    asked = Operation(call, Layout.of(2), (), 4, np.dtype("int32"), REDUCTIONS["sum"], in_place=True)
    with pytest.raises(BadInputError, match="in_place of all_to_all of native over nccl"):
        check_placement(asked)


@pytest.fixture
def vendor(monkeypatch):
    """Return what makes the plan of a rank, on a fake of NCCL and of its GPU."""

    def make(asked, me, library, cluster, dst):
        communicator = library.ranks[me] if me < asked.layout.workers else None
        made = SimpleNamespace(communicator=communicator, workers=lambda _count: communicator)
        monkeypatch.setattr(communicators, "nccl_world", lambda _comm, _library: made)
        monkeypatch.setattr(cupy_device, "CupyDevice", lambda _gpu, _communicator: cluster.devices[me])
        monkeypatch.setattr(cupy_device, "group_calls", grouped)
        gpu = SimpleNamespace(stream=SimpleNamespace(ptr=STREAM))
        return NcclVendorTransport(SimpleNamespace(rank=me), gpu).plan(asked, dst[:0], dst)

    return make


def test_an_average_is_a_sum_and_a_division_without_the_aggregators(vendor):
    call, layout = COLLECTIVES["all_reduce"].call(2), Layout.of(2, aggregators=1)
    asked = Operation(call, layout, (), 37, np.dtype("float32"), REDUCTIONS["avg"], in_place=True)
    library, cluster = Library(2), Cluster(3)
    rooms = [np.full(37, me, np.float32).view(Room) for me in range(3)]
    made = [vendor(asked, me, library, cluster, rooms[me]) for me in range(3)]
    assert [len(plan.result) for plan in made] == [37, 37, 0]
    assert [plan.progress() for plan in made] == ["on the stream: inside NCCL's all_reduce"] * 2 + ["done"]
    library.finish()  # what was queued to warm up
    cluster.run()
    assert [room.tolist() for room in rooms] == [[0.5] * 37, [0.5] * 37, [2] * 37]
