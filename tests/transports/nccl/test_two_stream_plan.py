"""Folds beside transfers: where a stream waits for the other one, and what comes of it if it does not."""

from dataclasses import replace

import pytest
from fake_gpu_cluster import MESSAGES, Cluster, FakeDevice, plans
from schedule_examples import buffers, case_of, defined_part

from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.transports.nccl import transport
from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.nccl.lowering import NcclLowering, NcclMessage, Stage
from hpccoll.transports.nccl.two_stream_plan import FoldWaits, fold_waits
from hpccoll.transports.shared_lowering import Span

A, B, SCRATCH = Span("dst", 0, 4), Span("dst", 4, 8), Span("scratch 0", 0, 4)


def receives(span):
    return NcclMessage(sends=False, peer=1, span=span)


def sends(span):
    return NcclMessage(sends=True, peer=1, span=span)


def folds(span):
    return [[Fold(span, (span, SCRATCH))]]


def test_a_group_waits_for_a_fold_that_reads_what_it_receives_but_sends_beside_it():
    stages = [
        Stage([receives(SCRATCH)], folds(A)),
        Stage([sends(SCRATCH)]),
        Stage([receives(SCRATCH)], folds(B)),
    ]
    assert fold_waits(stages) == FoldWaits({2: 0}, 2)


def test_streams_run_in_order_so_that_no_group_waits_for_a_fold_before_one_it_has_waited_for():
    stages = [
        Stage([receives(SCRATCH)], folds(A)),
        Stage([], folds(B)),
        Stage([sends(B)]),
        Stage([sends(A)]),
    ]
    assert fold_waits(stages) == FoldWaits({2: 1}, None)


def test_in_a_ring_of_two_channels_every_group_waits_for_the_fold_before_the_last_one():
    lowerings = [
        NcclLowering(me, case_of("all_reduce-ring", 4).operation(64, channels=2, window=2))
        for me in range(4)
    ]
    stages = lowerings[1].stages([lowering.proposals()[1] for lowering in lowerings])
    assert [bool(stage.waves) for stage in stages] == [True] * 6 + [False] * 6
    assert fold_waits(stages) == FoldWaits({number: number - 2 for number in range(2, 8)}, None)


def equals_lockstep(name, ranks, turn):
    """Return whether, at the end of its stream of messages, each plan of two channels has the result of lockstep."""
    asked = case_of(name, ranks).operation(96 + turn, channels=4, window=2, in_place=True)
    inputs, outputs = buffers(asked)
    before = [values.copy() for values in outputs]
    run_lockstep(asked, inputs, outputs)
    cluster = Cluster(ranks)
    cluster.chance.seed(turn)
    made = plans(cluster, asked, [values[:0] for values in inputs], before)
    found = [[] for _ in made]
    for device, plan, seen in zip(cluster.devices, made, found, strict=True):
        plan.run()
        device.queue(MESSAGES, lambda seen=seen, plan=plan: seen.append(plan.result.tobytes()))
    cluster.run()
    return found == [[defined_part(asked, right, me).tobytes()] for me, right in enumerate(outputs)]


@pytest.mark.parametrize(
    "name",
    [
        "all_reduce-ring",
        "all_reduce-double_binary_tree",
        "reduce-binomial",
        "reduce_scatter-recursive_halving",
    ],
)
def test_whichever_stream_is_ahead_the_result_is_that_of_lockstep(name):
    assert all(equals_lockstep(name, 4, turn) for turn in range(12))


@pytest.mark.parametrize("leave_out", [{"before": {}}, {"last": None}], ids=str)
def test_a_wait_of_messages_that_is_left_out_gives_a_wrong_result(leave_out, monkeypatch):
    monkeypatch.setattr(
        transport, "fold_waits", lambda stages: replace(fold_waits(stages), **leave_out)
    )
    name = "all_reduce-ring" if "before" in leave_out else "reduce_scatter-ring"
    assert not all(equals_lockstep(name, 4, turn) for turn in range(12))


def test_a_wait_of_folds_that_is_left_out_gives_a_wrong_result(monkeypatch):
    right = FakeDevice.folds_after_messages
    monkeypatch.setattr(
        FakeDevice, "folds_after_messages", lambda self: (right(self)[0], lambda: None)
    )
    assert not all(equals_lockstep("all_reduce-ring", 4, turn) for turn in range(12))
