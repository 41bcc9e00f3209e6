"""All-reduce in one step, and in two, on the memory of peers in both protocols: bits, bytes and folds."""

import pytest
from peer_cluster import PeerCluster, peer_library
from schedule_examples import cases

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.schedule import Layout
from hpccoll.schedule.count import count
from hpccoll.transports.peer.program import FoldWave, Push, Raise, buffer_of_peer, words_from

ALL_REDUCE = COLLECTIVES["all_reduce"]
ELEMENTS = 8 * 64
"""So that all units are equal: their bounds are multiples of 128 bytes."""


def shots(number, ranks, dtype):
    """Return all-reduce in one step, in which each rank folds all vectors, or in two, in which it folds its unit."""
    name, parameters = (
        ("recursive_multiplying", {"radix": ranks}) if number == 1 else ("direct", {})
    )
    layout = Layout.of(ranks)
    case = next(cases(ALL_REDUCE, ALL_REDUCE.algorithms[name], layout, **parameters))
    return case.operation(ELEMENTS, dtype)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("shots")


@pytest.mark.parametrize("protocol", ["simple", "ll"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_all_reduce_takes_the_steps_bytes_and_folds_of_its_schedule(
    directory, ranks, number, protocol
):
    for dtype in ("float16", "float32"):
        operation = shots(number, ranks, dtype)
        cluster = PeerCluster(operation, protocol)
        results = cluster.run(peer_library(directory, dtype, "sum"))
        assert results is not None
        assert cluster.wrong_ranks(results) == []
        counted = count([operation.lane_schedule(0)], operation.cut)
        foreign = {name(peer) for peer in range(ranks) for name in (words_from, in_dst)}
        for me, (program,) in enumerate(cluster.programs):
            sends = [step for step in program.instructions if is_send(step)]
            waves = [step for step in program.instructions if isinstance(step, FoldWave)]
            folds = [fold for wave in waves for fold in wave.folds]
            inputs = [span for fold in folds for span in fold.inputs]
            taken = sum(len(span) for span in inputs if span.buffer in foreign)
            reduced = sum(len(fold.out) * (len(fold.inputs) - 1) for fold in folds)
            assert len(sends) == number
            assert taken == (ranks - 1) * ELEMENTS * (1 if number == 1 else 2 / ranks)
            assert reduced * operation.dtype.itemsize == counted.reduced[me]


def in_dst(peer):
    return buffer_of_peer(peer, "dst")


def is_send(instruction):
    if isinstance(instruction, Raise):
        return instruction.flags[0].kind == "ready"
    return isinstance(instruction, Push)
