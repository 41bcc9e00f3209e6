"""The exact simulation takes what LogGP and max-min fair sharing say, in cases of which one can say it beforehand."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_examples import ALGORITHMS, cases
from simulated_cases import (
    equal_cut,
    first_case,
    simulated,
    simulated_steps,
    size_of,
    synchronous,
    uniform_machine,
)

from hpccoll.model.event_simulation import fair_rates, simulate_events
from hpccoll.model.machine import Cpus, Machine, MessageCosts, Tier
from hpccoll.schedule import (
    COLLECTIVES,
    Cost,
    Layout,
    Recv,
    Send,
    Step,
    ceil_log2,
    dst,
    is_power_of_two,
)

LATENCY, OVERHEAD, BYTE, FOLD = 3e-6, 7e-7, 1.1e-9, 4e-10
LOGGP = uniform_machine(
    MessageCosts(latency_s=LATENCY, overhead_s=OVERHEAD, byte_s=BYTE), fold_s={"float32": FOLD}
)
ONLY_BYTES = uniform_machine(MessageCosts(byte_s=1.0))


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("p", [8, 13])
def test_a_binomial_broadcast_takes_what_its_longest_path_does(p):
    tree = first_case("broadcast", "binomial", Layout.of(p, 1))
    nbytes, ready = size_of(equal_cut(tree)), {0: 0.0}
    for k in reversed(range(ceil_log2(p))):
        for parent in [rank for rank in ready if rank + (1 << k) < p]:
            ready[parent + (1 << k)] = ready[parent] + 2 * OVERHEAD + LATENCY + nbytes * BYTE
            ready[parent] += OVERHEAD + nbytes * BYTE
    assert simulated(tree, LOGGP) == exactly(max(ready.values()))


def test_a_message_costs_what_its_tier_and_its_size_cost():
    tiers = {
        name: Tier((MessageCosts(latency_s=latency), MessageCosts(1000, latency_s=7 * latency)))
        for name, latency in (("node", 1.0), ("rack", 10.0), ("fabric", 100.0))
    }
    for layout, cost in (
        (Layout((0, 0)), 1),
        (Layout((0, 1)), 10),
        (Layout((0, 1), rack=(0, 1)), 100),
    ):
        doubling = first_case("all_reduce", "recursive_doubling", layout)
        assert simulated(doubling, Machine(tiers)) == cost
        assert simulated(doubling, Machine(tiers), grains=4) == 7 * cost, (
            "1,024 bytes have other costs"
        )


def test_an_incast_shares_the_receiver_and_its_cpu_takes_one_message_after_another():
    direct = first_case("gather", "direct", Layout.of(5, 1))
    block = size_of(equal_cut(direct)) / 5
    assert simulated(direct, LOGGP) == exactly(OVERHEAD + 4 * block * BYTE + LATENCY + 4 * OVERHEAD)


def test_a_gap_keeps_messages_apart_and_not_those_of_another_rank():
    machine = uniform_machine(MessageCosts(gap_s=1.0))
    train = first_case("send_recv", "train", Layout.of(2, 1), messages=4)
    assert simulated(train, machine) == exactly(3)  # the reply is of the other rank
    assert simulated(first_case("multi_pair", "exchange", Layout.of(8, 4)), machine) == 0


def test_the_next_step_waits_for_the_fold():
    doubling = first_case("all_reduce", "recursive_doubling", Layout.of(4, 1))
    machine, cut = replace(ONLY_BYTES, fold_s={"float32": 3.0}), equal_cut(doubling)
    assert simulated(doubling, machine) == exactly(size_of(cut) * 2 * (1 + 3))
    unknown = simulate_events(doubling.slices, cut, machine, dtype="int8")
    assert unknown == exactly(size_of(cut) * 2), "nothing is known of what this type takes"


def late_receiver(me):
    """Rank 1 sends its unit to rank 2 before it receives what rank 0 has sent at the start."""
    if me == 0:
        yield Step(Send(1, 0))
    if me == 1:
        yield Step(Send(2, 1))
        yield Step(Recv(0, 0))
    if me == 2:
        yield Step(Recv(1, 1))


def test_a_synchronous_message_waits_for_its_receiver():
    machine = uniform_machine(MessageCosts(latency_s=5.0, byte_s=1.0))
    assert simulated_steps(Layout.of(3, 1), late_receiver, machine, 10) == exactly(15)
    assert simulated_steps(Layout.of(3, 1), late_receiver, synchronous(machine), 10) == exactly(
        10 + 15
    )


def test_messages_of_a_pair_follow_one_another():
    def steps(me):
        yield Step(*(Send(1, unit) if me == 0 else Recv(0, unit) for unit in range(2)))
        if me == 0:
            yield Step(Recv(1, 0))
        else:
            yield Step(Send(0, 0))

    machine = uniform_machine(MessageCosts(byte_s=1.0), port_byte_s=1.0)
    assert simulated_steps(Layout.of(2, 1), steps, machine, 10) == exactly(30)


def test_pairs_between_two_nodes_share_the_port_and_pairs_inside_share_the_memory():
    machine = uniform_machine(
        MessageCosts(latency_s=5.0, byte_s=1.0), port_byte_s=0.6, memory_byte_s=0.4
    )
    for pairs in (1, 2, 3):
        between = first_case("multi_pair", "exchange", Layout.of(2 * pairs, pairs))
        nbytes = size_of(equal_cut(between))
        assert simulated(between, machine) == exactly(5 + nbytes * max(1, 0.6 * pairs))
        inside = first_case("multi_pair", "exchange", Layout.of(2 * pairs))
        assert simulated(inside, machine) == exactly(5 + nbytes * max(1, 0.4 * 2 * pairs))


def test_rails_are_ports_of_their_own_and_nodes_of_a_rack_share_its_uplink():
    machine, node = (
        uniform_machine(MessageCosts(), port_byte_s=1.0, uplink_byte_s=0.7),
        (0, 0, 1, 1),
    )
    one, two = (
        first_case("multi_pair", "exchange", Layout(node, rail=rail))
        for rail in ((0, 0, 0, 0), (0, 1, 0, 1))
    )
    assert simulated(one, machine) == exactly(2 * simulated(two, machine))
    for pairs in (1, 2, 4):
        layout = Layout(tuple(range(2 * pairs)), rack=(0,) * pairs + (1,) * pairs)
        exchange = first_case("multi_pair", "exchange", layout)
        assert simulated(exchange, machine) == exactly(
            size_of(equal_cut(exchange)) * max(1, 0.7 * pairs)
        )


def test_when_a_message_ends_the_others_go_on_faster():
    sent = {0: dst[0:3], 1: dst[3:4]}

    def steps(me):
        yield Step(Send(me + 2, sent[me]) if me in sent else Recv(me - 2, sent[me - 2]))

    machine = uniform_machine(MessageCosts(), port_byte_s=1.0)
    assert simulated_steps(Layout.of(4, 2), steps, machine, 8) == exactly(3 * 8 + 8)


def test_a_rank_waits_for_its_cpu_because_others_poll():
    alone = first_case("send_recv", "ping_pong", Layout.of(8, 4))
    overheads = uniform_machine(MessageCosts(overhead_s=1.0, latency_s=1.0))
    for cpus, share in (
        (None, 1),
        (Cpus(1), 4),
        (Cpus(2), 2),
        (Cpus(16), 1),
        (Cpus(2, of="machine"), 4),
    ):
        assert simulated(alone, replace(overheads, cpus=cpus)) == 2 * (2 * share + 1)


def test_what_messages_take_of_shared_cpus_slows_all_of_them_down():
    machine = uniform_machine(MessageCosts(byte_s=1.0))
    for pairs, cores in product((1, 2, 4), (1, 2)):
        exchange = first_case("multi_pair", "exchange", Layout.of(2 * pairs, 1))
        everywhere = replace(machine, cpus=Cpus(cores, byte_s=0.8, of="machine"))
        nbytes = size_of(equal_cut(exchange))
        assert simulated(exchange, everywhere) == exactly(nbytes * max(1, 2 * pairs * 0.8 / cores))
        of_each_node = replace(machine, cpus=Cpus(cores, byte_s=0.8))
        assert simulated(exchange, of_each_node) == exactly(nbytes * max(1, 2 * 0.4 / cores))
        inside = first_case("multi_pair", "exchange", Layout.of(2 * pairs))
        assert simulated(inside, of_each_node) == exactly(nbytes * max(1, 2 * pairs * 0.8 / cores))


def test_idle_ports_let_a_burst_pass_at_once_and_uplinks_do_not():
    machine = uniform_machine(MessageCosts(), port_byte_s=1.0, burst_bytes=100)
    ping_pong = first_case("send_recv", "ping_pong", Layout.of(2, 1))
    nbytes = size_of(equal_cut(ping_pong, grains=2))
    # of the reply: ports saved 256 bytes
    assert simulated(ping_pong, machine, grains=2) == exactly(2 * nbytes - 100)
    train = first_case("send_recv", "train", Layout.of(2, 1), messages=2)
    assert simulated(train, machine) == exactly(2 * size_of(equal_cut(train)) - 100), (
        "only the reply follows a pause"
    )
    exchange = first_case("bidirectional", "exchange", Layout.of(2, 1))
    assert simulated(exchange, machine, grains=2) == exactly(nbytes), (
        "ports were not idle before the operation"
    )
    racks = first_case("send_recv", "ping_pong", Layout((0, 1), (0, 1)))
    # While the first message passes, the ports save up another one; the uplink takes half the time
    # of the ports.
    uplinks = replace(machine, uplink_byte_s=0.5, burst_bytes=10_000)
    assert simulated(racks, uplinks, grains=2) == exactly(1.5 * nbytes)


PORTS, UPLINKS = (
    uniform_machine(MessageCosts(), **{kind: 1.0}) for kind in ("port_byte_s", "uplink_byte_s")
)
FOLDS = uniform_machine(MessageCosts(), fold_s={"float32": 1.0})


@pytest.mark.parametrize(
    ("machine", "changes", "rack", "taken"),
    [
        (PORTS, {}, (), 4 + 4),
        (PORTS, {"unmetered_aggregators": True}, (), 2),
        (PORTS, {"switches": True}, (), 2),
        (ONLY_BYTES, {"unmetered_aggregators": True}, (), 4 + 4),
        (ONLY_BYTES, {"switches": True}, (), 2),
        # reductions of switches cost nothing
        (FOLDS, {}, (), 3),
        (FOLDS, {"switches": True}, (), 0),
        # the aggregator is above the racks: each sends two, and receives two
        (UPLINKS, {}, (0, 0, 1, 1, 2), 2 * 2),
        (UPLINKS, {}, (0, 0, 0, 1, 0), 2 * 1),
        (UPLINKS, {}, (0, 0, 0, 0, 0), 0),
    ],
)
def test_switches_and_unmetered_aggregators_have_no_limits_and_those_above_the_racks_no_uplink(
    machine, changes, rack, taken
):
    tree = first_case(
        "all_reduce",
        "sharp_emulated",
        Layout((0, 1, 2, 3, 4), rack or (0,) * 5, aggregators=1),
        radix=8,
    )
    assert simulated(tree, replace(machine, **changes)) == exactly(taken * size_of(equal_cut(tree)))


def found(case, channels=1, window=1):
    """Return the cost of a case: its seconds where only latencies, bytes, or folds cost some."""
    size = size_of(equal_cut(case, channels)) or 1
    machines = (
        uniform_machine(MessageCosts(latency_s=1.0)),
        synchronous(uniform_machine(MessageCosts(byte_s=1 / size))),
        uniform_machine(MessageCosts(), fold_s={"float32": 1 / size}),
    )
    return Cost(*(simulated(case, machine, channels, window) for machine in machines))


@pytest.mark.parametrize(
    "name", [name for name, (_, algorithm) in ALGORITHMS.items() if algorithm.cost]
)
def test_in_one_piece_it_takes_what_is_declared(name):
    """Latencies of messages that one rank sends in step after step pass together, so that they may take less."""
    collective, algorithm = ALGORITHMS[name]
    for p in (1, 2, 3, 6, 8, 13):
        for case in cases(collective, algorithm, Layout.of(p, 1)):
            if len(case.slices) == 1:
                declared, taken = algorithm.declared(p), found(case)
                assert (taken.sent, taken.reduced) == pytest.approx(
                    (declared.sent, declared.reduced)
                )
                assert taken.steps <= declared.steps
                # what the root of the other sends in step after step passes together, as said above
                overlap = name in ("send_recv-train", "broadcast-bine_large")
                if is_power_of_two(p) and not overlap:
                    assert taken.steps == declared.steps


def declared(collective, algorithm, **parameters):
    """Return the first case of an algorithm on 8 ranks, and its declared cost."""
    costs = COLLECTIVES[collective].algorithm(algorithm).declared(8, **parameters)
    return first_case(collective, algorithm, Layout.of(8, 1)), costs


def test_a_chain_is_faster_in_segments_as_it_declares():
    for channels in (1, 2, 8):
        chain, cost = declared("broadcast", "chain", channels=channels)
        assert found(chain, channels, window=4).sent == pytest.approx(cost.sent)


def test_two_trees_take_what_they_declare_in_one_piece_and_wait_where_the_window_is_narrow():
    trees, one = declared("all_reduce", "double_binary_tree", channels=1, window=1)
    assert found(trees) == one
    _, narrow = declared("all_reduce", "double_binary_tree", channels=32, window=1)
    waits, flows = (found(trees, 32, window).sent for window in (1, 32))
    assert waits == pytest.approx(narrow.sent, rel=0.2)
    assert waits > 1.5 * flows


RESOURCES = [("port out", number, 0) for number in range(5)]
PATHS = st.lists(
    st.dictionaries(st.sampled_from(RESOURCES), st.floats(1e-3, 1e3), min_size=1).map(
        lambda path: [*path.items()]
    ),
    min_size=1,
    max_size=12,
)


@given(PATHS)
def test_fair_rates_fill_a_resource_on_every_way_on_which_no_message_is_faster(paths):
    rates = fair_rates(paths)
    load = dict.fromkeys(RESOURCES, 0.0)
    for path, rate in zip(paths, rates, strict=True):
        for resource, seconds in path:
            load[resource] += rate * seconds
    assert max(load.values()) <= 1 + 1e-9

    def is_bottleneck(resource, rate):
        faster = [
            other
            for path, other in zip(paths, rates, strict=True)
            if resource in dict(path) and other > rate * (1 + 1e-9)
        ]
        return load[resource] >= 1 - 1e-9 and not faster

    for path, rate in zip(paths, rates, strict=True):
        assert any(is_bottleneck(resource, rate) for resource, _ in path)
