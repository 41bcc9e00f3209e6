"""Critical paths: their sums are what the simulation says."""

from collections import Counter

import numpy as np
import pytest
from model_observations import observation

from hpccoll.model import critical_path as critical_path_module
from hpccoll.model.critical_path import (
    PathFold,
    PathMessage,
    WaveMessages,
    critical_path,
    folded_in_segments,
    path_seconds,
    sharing_links,
)
from hpccoll.model.equal_waves import OperationWaves
from hpccoll.model.machine import Machine, MessageCosts, Tier
from hpccoll.model.simulation import simulate_waves
from hpccoll.model.torus_links import Torus
from hpccoll.model.traffic import LaneWave, TooManyMessagesError, WaveRun
from hpccoll.schedule import Cut, Layout, itemsize
from hpccoll.schedule.layout import TIERS

MACHINE = Machine(
    tiers={
        "node": Tier((MessageCosts(latency_s=4e-7, overhead_s=1e-7, byte_s=1e-10),)),
        "rack": Tier(
            (
                MessageCosts(latency_s=2e-6, overhead_s=1e-7, byte_s=2e-10),
                MessageCosts(1 << 15, 6e-6, 1e-7, byte_s=1e-10, synchronous=True),
            )
        ),
    },
    fold_s={"float32": 2e-10},
    port_byte_s=9e-11,
)


class Costs:
    """The costs of ``MACHINE``."""

    def messages_s(self, messages, *, received):
        is_inside = messages.tier == TIERS.index("node")
        latency_s, overhead_s, byte_s = np.empty((3, len(is_inside)))
        for place, tier in enumerate(messages.tier):
            costs = MACHINE.tiers[TIERS[tier]].of(messages.nbytes[place])
            latency_s[place] = costs.latency_s
            overhead_s[place] = costs.overhead_s
            byte_s[place] = costs.byte_s
        port_byte_s = np.where(is_inside, 0, MACHINE.port_byte_s)
        passing = np.maximum(messages.rank_bytes * byte_s, messages.port_bytes * port_byte_s)
        queued = (1 + messages.before) * overhead_s
        if not received:
            return queued + passing
        return queued + passing + latency_s + overhead_s

    def fold_s(self, nbytes):
        return nbytes * MACHINE.fold_s["float32"]

    def waits(self, nbytes):
        return nbytes >= 1 << 15


def once(work):
    """Return the seconds of a kind of work."""
    if isinstance(work, PathFold):
        return Costs().fold_s(work.nbytes)
    columns = work._asdict() | {"tier": TIERS.index(work.tier)}
    received = columns.pop("received")
    del columns["segments"]  # how it is folded
    message = WaveMessages(**{name: np.array([value]) for name, value in columns.items()})
    (seconds,) = Costs().messages_s(message, received=received)
    return seconds


def operation(collective, algorithm, nbytes, layout):
    """Return the schedule and the cut of an operation."""
    one = observation(collective, algorithm, nbytes, 1.0, layout)
    (schedule,) = one.call.slices(one.algorithm, layout, **one.own_parameters)
    size = itemsize("float32")
    elements = one.call.collective.elements(nbytes, size, layout.workers)
    return schedule, Cut(one.call, elements, schedule.units, 1, size)


@pytest.mark.parametrize("nbytes", [256, 1 << 14, 1 << 22])
@pytest.mark.parametrize("layout", [Layout.of(16, 1), Layout.of(16, 4)], ids=["16x1", "4x4"])
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "recursive_doubling"),
        ("all_reduce", "rabenseifner"),
        ("all_gather", "bruck"),
        ("reduce_scatter", "recursive_halving"),
        ("broadcast", "binomial"),
        ("reduce", "bine"),
    ],
)
def test_the_sum_over_the_path_is_the_simulated_time(collective, algorithm, layout, nbytes):
    schedule, cut = operation(collective, algorithm, nbytes, layout)
    seconds = sum(
        count * once(work)
        for work, count in critical_path(OperationWaves((schedule,), cut), Costs()).items()
    )
    # messages of a wave that start at different times share a port in the path only
    tolerance = 0.02 if layout.nodes == layout.ranks else 0.25
    assert seconds == pytest.approx(simulate_waves([schedule], cut, MACHINE), rel=tolerance)


@pytest.mark.parametrize("torus", [None, Torus((4, 4))], ids=["no torus", "torus"])
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner"])
def test_seconds_along_the_path_are_those_of_the_counted_work(algorithm, torus):
    layout = Layout.of(16, 1) if torus else Layout.of(16, 4)
    schedule, cut = operation("all_reduce", algorithm, 1 << 18, layout)

    def waves():
        return OperationWaves((schedule,), cut, everyone=torus is not None)

    counted = critical_path(waves(), Costs(), torus)
    (seconds,) = path_seconds(waves(), Costs(), [Costs()], torus)
    assert seconds == pytest.approx(sum(count * once(work) for work, count in counted.items()))


def test_a_ring_has_a_message_and_a_fold_for_each_step():
    schedule, cut = operation("all_reduce", "ring", 1 << 20, Layout.of(8, 1))
    path = critical_path(OperationWaves((schedule,), cut), Costs())
    messages = sum(count for work, count in path.items() if isinstance(work, PathMessage))
    folds = sum(count for work, count in path.items() if isinstance(work, PathFold))
    assert (messages, folds) == (14, 7)


def test_messages_on_a_torus_share_its_links():
    schedule, cut = operation("all_reduce", "recursive_doubling", 1 << 14, Layout.of(16, 1))
    waves = OperationWaves((schedule,), cut, everyone=True)
    path = critical_path(waves, Costs(), Torus((4, 4)))
    messages = [work for work in path if isinstance(work, PathMessage)]
    # neighbours along both dimensions, and ranks two links apart, whose links two messages share
    assert {(message.hops, message.link_bytes) for message in messages} == {
        (1, 1 << 14),
        (2, 2 << 14),
    }
    assert sum(path[message] for message in messages) == 4
    without = critical_path(OperationWaves((schedule,), cut), Costs())
    assert {work.link_bytes for work in without if isinstance(work, PathMessage)} == {0}


def test_a_path_of_many_kinds_of_folds_has_all_of_them():
    layout = Layout.of(1 << 11, 1)
    schedule, cut = operation("reduce_scatter", "recursive_halving", 4 << 11, layout)
    path = critical_path(OperationWaves((schedule,), cut), Costs())
    folds = [work.nbytes for work in path if isinstance(work, PathFold)]
    assert sorted(folds) == [4 << step for step in range(11)]


class ListedWaves:
    """Waves of listed messages of all ranks, (source, target, bytes), each of which ends a step of all its ranks."""

    def __init__(self, layout, *waves, folds=()):
        self.layout = self.placed = layout
        self.block = layout.ranks
        runs = []
        for place, messages in enumerate(waves):
            source, target, nbytes = np.array(messages).T
            reduces = np.full(len(messages), place in folds)
            ended = np.unique([source, target])
            runs.append(WaveRun((LaneWave.of(source, target, reduces, nbytes, ended),), 1))
        self.runs = runs

    def of(self, _lane):
        return self.runs


SIZE = 1 << 20


@pytest.mark.parametrize(
    ("messages", "last"),
    [
        # the other message of the rank stays inside the node
        ([(0, 1, SIZE), (0, 2, SIZE)], PathMessage("rack", SIZE, 1, SIZE, SIZE, received=True)),
        ([(0, 2, SIZE), (0, 4, SIZE)], PathMessage("rack", SIZE, 1, 2 * SIZE, 2 * SIZE, received=True)),
        ([(0, 4, SIZE), (2, 4, SIZE)], PathMessage("rack", SIZE, 1, 2 * SIZE, 2 * SIZE, received=True)),
        # another rank sends through the port of the node, or receives through it
        ([(0, 2, SIZE), (1, 4, 4 * SIZE)], PathMessage("rack", SIZE, 0, SIZE, 5 * SIZE, received=True)),
        ([(0, 4, SIZE), (2, 5, 4 * SIZE)], PathMessage("rack", SIZE, 0, SIZE, 5 * SIZE, received=True)),
        ([(0, 1, 9 * SIZE), (1, 4, 8)], PathMessage("node", 9 * SIZE, 0, 9 * SIZE, 0, received=True)),
        # the first of two messages to a rank arrives last
        ([(2, 1, SIZE), (0, 1, SIZE)], PathMessage("rack", SIZE, 0, SIZE, SIZE, received=True)),
    ],
    ids=["inside", "sender", "receiver", "port out", "port in", "no port", "latest"],
)  # fmt: skip
def test_a_message_shares_what_others_pass_at_the_same_time(messages, last):
    assert critical_path(ListedWaves(Layout.of(6, 2), messages), Costs()) == {last: 1}


@pytest.mark.parametrize(
    ("nbytes", "messages_on_path"), [(SIZE, {SIZE: 2}), (64, {SIZE: 1})], ids=["waits", "does not"]
)
def test_a_large_message_waits_for_a_receiver_that_folds(nbytes, messages_on_path):
    waves = ListedWaves(Layout.of(3, 1), [(2, 1, SIZE)], [(0, 1, nbytes)], folds=(0,))
    path = critical_path(waves, Costs())
    assert path.pop(PathFold(SIZE)) == 1
    assert {message.nbytes: count for message, count in path.items()} == messages_on_path


def test_a_sender_begins_its_next_step_when_it_has_sent():
    waves = ListedWaves(Layout.of(3, 1), [(0, 1, 64)], [(0, 2, 64)])
    received = PathMessage("rack", 64, 0, 64, 64, received=True)
    assert critical_path(waves, Costs()) == {received._replace(received=False): 1, received: 1}


def test_more_messages_than_a_fit_can_follow_are_refused(monkeypatch):
    waves = ListedWaves(Layout.of(2, 1), [(0, 1, 8)])
    waves.runs = [WaveRun(waves.runs[0].waves, 5)]
    monkeypatch.setattr(critical_path_module, "MOST_MESSAGES", 5)
    assert critical_path(waves, Costs()).total() == 5
    monkeypatch.setattr(critical_path_module, "MOST_MESSAGES", 4)
    with pytest.raises(TooManyMessagesError):
        critical_path(waves, Costs())


def test_progress_is_in_messages_of_all_ranks():
    schedule, cut = operation("all_reduce", "ring", 1 << 20, Layout.of(8, 1))
    waves = OperationWaves((schedule,), cut)
    assert waves.block < 8
    shown = []
    path_seconds(waves, Costs(), [Costs()], progress=shown.append)
    assert shown[-1] == 8 * 14


def test_segments_are_folded_while_the_rest_of_a_message_is_on_its_way():
    message = PathMessage("rack", 4096, 0, 4096, 0, received=True)
    small = PathMessage("rack", 512, 0, 512, 0, received=True)
    path = Counter({message: 2, PathFold(4096): 1, small: 2, PathFold(512): 2})
    assert folded_in_segments(path, 1024) == {
        message: 1,
        message._replace(segments=4): 1,
        PathFold(1024): 1,
        small: 2,
        PathFold(512): 2,
    }
    assert folded_in_segments(path, 3000)[message._replace(segments=2)] == 1, "one is not full"
    assert folded_in_segments(path, 4096) == path, "a message of one segment"


def test_segments_are_of_all_messages_before_the_folds():
    near = PathMessage("rack", 4096, 0, 4096, 0, received=True)
    far = near._replace(tier="fabric")
    sent = near._replace(received=False)
    folds = {PathFold(1024): 3}
    path = Counter({sent: 1, near: 2, far: 2, PathFold(4096): 3})
    assert folded_in_segments(path, 1024) == {
        sent: 1,
        near._replace(segments=4): 2,
        far: 1,
        far._replace(segments=4): 1,
        **folds,
    }
    assert folded_in_segments(Counter({sent: 1, PathFold(4096): 3}), 1024) == {sent: 1, **folds}


def test_messages_inside_a_node_pass_no_link():
    inside = PathMessage("node", 4096, 0, 4096, 0, received=True)
    assert sharing_links(Counter({inside: 1}), 2) == {inside: 1}


def test_ports_that_send_over_one_link_pass_it_together():
    message = PathMessage("rack", 4096, 0, 4096, 0, received=True)
    path = Counter({message: 2, PathFold(4096): 1})
    assert sharing_links(path, 2) == {message._replace(link_bytes=8192): 2, PathFold(4096): 1}
    crossing = message._replace(link_bytes=5000)  # the link of another message of the same port
    assert sharing_links(Counter({crossing: 1}), 2) == {crossing._replace(link_bytes=10000): 1}
