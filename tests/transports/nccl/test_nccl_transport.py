"""Plans over NCCL on fake GPUs: every algorithm is compiled and executed, and equals lockstep."""

import gc
import weakref
from collections import defaultdict, deque
from functools import partial
from itertools import product
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from fake_gpu_cluster import Cluster, DeadlockError, FakeDevice, plans
from schedule_examples import (
    ALGORITHMS,
    SUBJECTS,
    Case,
    buffers,
    case_of,
    copies_beside_arrivals,
    defined_part,
    every_case,
    of_lists,
    rotates,
)

from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS, all_gather, all_reduce, dtype_of
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.step import Recv, Send, Step, dst
from hpccoll.transports.nccl.cupy_device import CupyDevice
from hpccoll.transports.nccl.lowering import NcclLowering
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.shared_lowering import Span

WAYS = ((1, 1), (3, 1), (2, 2), (5, 2))
"""Channels and window."""
ELEMENTS, COUNTS = (*DTYPES, BFLOAT16), (0, 1, 4, 1000)


def check_equals_lockstep(asked, *, graph=False):
    """Run an operation twice on plans for all ranks, and compare bits."""
    inputs, outputs = buffers(asked, exact=False)
    before = [values.copy() for values in outputs]
    kept = [values.copy() for values in inputs]
    given = [values[:0] if asked.in_place else values for values in inputs]
    run_lockstep(asked, given, outputs)
    cluster = Cluster(asked.layout.ranks)
    room = [values.copy() for values in before]
    made = plans(cluster, asked, given, room)
    if graph:
        for plan in made:
            plan.prepared(graph=True)
        cluster.run()
    for _ in range(2):
        for me, plan in enumerate(made):
            room[me][:] = before[me]
            plan.run()
        cluster.run()
        for me, plan in enumerate(made):
            right = defined_part(asked, outputs[me], me) if me < asked.call.p else outputs[me][:0]
            assert plan.result.tobytes() == right.tobytes(), (me, asked)
            assert inputs[me].tobytes() == kept[me].tobytes(), "src was written"
    for plan in made:
        plan.close()


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_schedule_equals_lockstep_in_every_type_and_op(name):
    for ranks in (1, 2, 3, 5, 8):
        for turn, (case, count) in enumerate(
            product(every_case(name, ranks), (101,) if name in ALGORITHMS else COUNTS)
        ):
            for more, in_place in enumerate(case.placements):
                number = turn + more + ranks
                channels, window = WAYS[number % len(WAYS)]
                dtype, op = (
                    dtype_of(ELEMENTS[number % len(ELEMENTS)]),
                    [*REDUCTIONS][number % len(REDUCTIONS)],
                )
                asked = case.operation(
                    count, dtype, op, in_place=in_place, channels=channels, window=window
                )
                check_equals_lockstep(asked, graph=number % 4 == 0)


@pytest.mark.parametrize("graph", [False, True])
def test_a_repeated_operation_is_queued_so_often_with_a_graph_in_one_launch(graph):
    asked, cluster = case_of("all_reduce-ring", 2).operation(100, in_place=False), Cluster(2)
    made = plans(cluster, asked, *buffers(asked))
    for plan in made:
        plan.prepared(graph=graph)
    once = [device.queued for device in cluster.devices]
    cluster.run()
    for plan, device, length in zip(made, cluster.devices, once, strict=True):
        call = plan.repeated(3)
        before = device.queued
        call()
        assert device.queued - before == 3 * length // (1 + graph)
        assert [graph_.launch for graph_ in plan._graphs[-1:]] == [call] * graph
    cluster.run()


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("make", [rotates, copies_beside_arrivals])
def test_a_copy_reads_the_state_before_its_step(make, ranks):
    case = Case(all_gather.call(ranks), (make(ranks),))
    for channels, window in WAYS:
        check_equals_lockstep(
            case.operation(50, "int32", in_place=True, channels=channels, window=window)
        )


# ---- groups
# ---------------------------------------------------------------------------------------------------------


def meets_late(early):
    """Return a schedule of three ranks: one speaks with rank 2 before it hears of another that speaks at once."""
    late = 1 - early

    programs = {
        early: [Step(Send(late, 0))],
        late: [Step(Send(2, 1)), Step(Recv(early, 0))],
        2: [Step(Recv(late, 1))],
    }
    return of_lists(*(programs[me] for me in range(3)), units=3)


MISALIGNED = Case(all_reduce.call(3), (meets_late(0), meets_late(1)))
"""In the first lane rank 0's first step meets rank 1's second one, in the other it is the other way round."""


def run_misaligned():
    asked, cluster = MISALIGNED.operation(60), Cluster(3)
    lowerings = [NcclLowering(me, asked) for me in range(3)]
    said = [lowering.proposals() for lowering in lowerings]
    for me, lowering in enumerate(lowerings):
        room = {"src": np.zeros(0), "dst": np.zeros(60), "tmp": np.zeros(0)}
        for stage in lowering.stages([proposals[me] for proposals in said]):
            cluster.devices[me].group_call(room, stage.messages)()
    cluster.run()


def test_misaligned_lanes_do_not_deadlock_but_groups_by_step_number_would(monkeypatch):
    run_misaligned()

    def by_step_number(schedule, _times, me):
        found = defaultdict(deque)
        for number, step in enumerate(schedule.steps(me)):
            for action in step.actions:
                found[isinstance(action, Send), action.peer].append(number)
        return found

    monkeypatch.setattr("hpccoll.transports.nccl.lowering.message_times", by_step_number)
    with pytest.raises(DeadlockError, match="rank 0 waits to send to rank 1"):
        run_misaligned()


def stages_of(case, me, **how):
    asked = case.operation(3 << 10, "int32", **how)
    lowerings = [NcclLowering(rank, asked) for rank in range(asked.layout.ranks)]
    return lowerings[me].stages([lowering.proposals()[me] for lowering in lowerings])


def test_a_step_of_a_reduction_is_a_group_and_a_launch_of_the_even_channels_and_then_of_the_odd_ones():
    stages = stages_of(case_of("all_reduce-ring", 4), 1, channels=3, window=3)
    assert [len(stage.messages) for stage in stages] == [4, 2] * 6
    assert [[len(wave) for wave in stage.waves] for stage in stages] == [[2], [1]] * 3 + [[]] * 6


def test_a_rank_of_a_pipeline_receives_and_sends_in_one_group():
    stages = stages_of(case_of("broadcast-chain", 4), 1, channels=8, window=2)
    both = [{message.sends for message in stage.messages} for stage in stages]
    assert both.count({True, False}) >= 6
    assert len(stages) <= 12


def test_messages_are_split_into_pieces_contiguous_on_both_ranks():
    schedule = of_lists([Step(Send(1, dst[0] + dst[2]))], [Step(Recv(0, dst[1:3]))], units=3)
    case = Case(all_reduce.call(2), (schedule,))
    pieces = [
        [message.span for stage in stages_of(case, me) for message in stage.messages]
        for me in (0, 1)
    ]
    unit = 1 << 10
    assert pieces[0] == [Span("dst", 0, unit), Span("dst", 2 * unit, 3 * unit)]
    assert pieces[1] == [Span("dst", unit, 2 * unit), Span("dst", 2 * unit, 3 * unit)]


def test_scratch_is_aligned_like_the_target():
    for stage in stages_of(case_of("all_reduce-rabenseifner", 6), 5, channels=2, window=2):
        for wave in stage.waves:
            for move in wave:
                assert {span.start % 32 for span in move.inputs} == {move.out.start % 32}


def test_ranks_find_the_peers_whose_plans_mismatch():
    one, other = (case_of("all_reduce-ring", 3).operation(count) for count in (300, 3000))
    said = [NcclLowering(me, one if me else other).proposals() for me in range(3)]
    strange = [
        NcclLowering(me, one if me else other).mismatched_peers([of[me] for of in said])
        for me in range(3)
    ]
    assert strange[0] == [1, 2]
    assert strange[1] == strange[2] == [0]


def test_progress_describes_the_queued_operation_and_nccls_error():
    asked = case_of("all_reduce-ring", 2).operation(100)
    inputs, outputs = buffers(asked)
    plan, _ = plans(Cluster(2), asked, inputs, outputs)
    assert plan.progress() == "done"
    plan.enqueue()
    assert plan.progress() == "on the stream: 2 groups of messages with rank 1, 1 launches of folds"
    plan._device.said = "NCCL_ERROR_REMOTE_ERROR"
    assert plan.progress().endswith("launches of folds; NCCL reports: NCCL_ERROR_REMOTE_ERROR")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (None, None),
        (RuntimeError("NCCL_ERROR_REMOTE_ERROR"), "NCCL_ERROR_REMOTE_ERROR"),
        # of CuPy, which has no name for the status
        (KeyError(8), "status 8 of NCCL (ncclTimeout)"),
    ],
)
def test_a_device_returns_nccls_asynchronous_error(raised, error):
    communicator = Mock(check_async_error=Mock(side_effect=raised))
    assert CupyDevice(Mock(), communicator).error() == error


class Forgetful(FakeDevice):
    """Knows buffers by their addresses alone, as a GPU does."""

    def empty(self, count, dtype):
        array = super().empty(count, dtype)
        self.given = [*getattr(self, "given", []), weakref.ref(array)]
        return array

    def group_call(self, _buffers, _messages):
        return lambda: None

    def fold_calls(self, _operation, _buffers, waves, **_own_stream):
        return [lambda: None for _ in waves]


def test_a_plan_keeps_its_buffers_alive():
    asked, cluster = (
        case_of("all_reduce-rabenseifner", 2).operation(100, in_place=False),
        Cluster(2),
    )
    cluster.devices = [Forgetful(cluster, me) for me in (0, 1)]
    src, dst = buffers(asked)
    seen = [weakref.ref(array) for array in src + dst]
    made = plans(cluster, asked, src, dst)
    del src, dst
    seen += [given for device in cluster.devices for given in device.given]
    assert len(seen) >= 8
    assert all(array() is not None for array in seen)
    gc.disable()  # nobody waits for it on a GPU
    for plan in made:
        plan.close()
    freed = [array() is None for array in seen]
    gc.enable()
    assert all(freed)


@pytest.mark.parametrize("graph", [False, True])
def test_a_plan_keeps_its_calls_alive_with_and_without_a_graph(graph):
    table = np.empty(3)
    seen, calls = weakref.ref(table), [partial(len, table), list]
    captured = SimpleNamespace(launch=list, close=list)
    plan = StreamPlan(
        SimpleNamespace(wait=list, capture=lambda _: captured), np.empty(0), calls, "two calls"
    )
    del table, calls
    plan.prepared(graph=graph)
    assert seen() is not None
    plan.close()
    assert seen() is None


def test_a_rejected_plan_is_closed():
    asked, cluster = case_of("all_reduce-ring", 2).operation(100), Cluster(2)
    src, dst = buffers(asked)
    plan, _ = plans(cluster, asked, src, dst)

    plan.enqueue = Mock(side_effect=RuntimeError("NCCL_ERROR_INVALID_USAGE"))
    with pytest.raises(RuntimeError, match="INVALID_USAGE"):
        plan.prepared(graph=True)
    assert plan._buffers == []
