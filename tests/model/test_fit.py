"""A machine that is known comes back from what the simulation says that patterns take on it."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_observations import MACHINE, SIZES, observation, observed

from hpccoll.model.fit import fit, line, ranges
from hpccoll.model.machine import Cpus, Machine, MessageCosts, Tier
from hpccoll.schedule import Layout

CALIBRATED = (
    8,
    64,
    512,
    2048,
    4096,
    8192,
    16384,
    32768,
    65536,
    131072,
    262144,
    1 << 20,
    1 << 22,
    1 << 24,
)
FOUR_NODES = Layout.of(4, 1)
LATENCY, BYTE = 2e-5, 1e-9
UNLIMITED = 1e14
"""Bytes a second that no machine here reaches."""


def of_rank(byte_s=BYTE, **others):
    """Return a machine whose ranks, or what ``others`` say, limit messages between nodes and between racks."""
    tiers = {"node": (1e-6, 1e-10), "rack": (LATENCY, byte_s), "fabric": (2 * LATENCY, byte_s)}
    return Machine(
        {name: Tier((MessageCosts(latency_s=a, byte_s=b),)) for name, (a, b) in tiers.items()},
        **others,
    )


def two_ranks(machine, layout=FOUR_NODES, noise=0.01, **more):
    """Return ping-pongs and exchanges of two ranks."""
    patterns = [("send_recv", "ping_pong"), ("bidirectional", "exchange")]
    return [
        one
        for name in patterns
        for one in observed(*name, layout, machine, CALIBRATED, noise, **more)
    ]


def pairs(machine, concurrent, layout=FOUR_NODES, noise=0.01, **more):
    return observed(
        "multi_pair", "exchange", layout, machine, CALIBRATED, noise, concurrent=concurrent, **more
    )


def machine_of(*observations):
    return fit([one for each in observations for one in each], "here")[0]


def assert_within(quantity, true):
    """Assert that a quantity is within 2 % of the true one, and its interval about there."""
    assert quantity.value == pytest.approx(true, rel=0.02)
    assert quantity.low <= quantity.value <= quantity.high
    assert quantity.low * 0.99 <= true <= quantity.high * 1.01


@given(
    alpha=st.floats(1e-7, 1e-2),
    beta=st.floats(1e-12, 1e-6),
    sizes=st.lists(st.integers(1, 1 << 30), min_size=3, max_size=20, unique=True),
)
def test_times_on_a_line_are_fitted_by_that_line(alpha, beta, sizes):
    found_alpha, found_beta = line({n: alpha + n * beta for n in sizes})
    for n in sizes:
        assert found_alpha + n * found_beta == pytest.approx(alpha + n * beta, rel=1e-4)


@given(st.dictionaries(st.integers(1, 1 << 30), st.floats(1e-7, 1.0), min_size=3, max_size=12))
def test_a_line_has_no_negative_costs_and_ranges_hold_every_size_once(curve):
    assert min(line(curve)) >= 0
    found = ranges(curve)
    assert [n for sizes in found for n in sizes] == sorted(curve)
    assert len(found[-1]) >= 3


@pytest.mark.parametrize("noise", [0, 0.01])
def test_a_message_is_half_a_round_trip_of_two_ranks(noise):
    layout = Layout.of(4, 2)
    trips = [
        observed("send_recv", "ping_pong", layout, MACHINE, SIZES, noise, **more)
        for more in ({}, {"peer": 1})
    ]
    found = machine_of(*trips)
    assert found.tiers.keys() == {"node", "rack"}
    for tier, (one,) in found.tiers.items():
        (true,) = MACHINE.tiers[tier].costs
        assert_within(one.latency_s, true.latency_s)
        byte_s = one.bytes_per_s if tier == "node" else found.port.bytes_per_s
        assert_within(byte_s, 1 / true.byte_s)
    assert found.tiers["rack"][0].bytes_per_s.value > UNLIMITED, (
        "one rank is not slower than the port"
    )


def test_two_protocols_have_costs_of_their_own():
    costs = (
        MessageCosts(latency_s=LATENCY, byte_s=BYTE),
        MessageCosts(5000, latency_s=3 * LATENCY, byte_s=BYTE),
    )
    small, large = machine_of(two_ranks(Machine({"rack": Tier(costs)}))).tiers["rack"]
    assert (small.from_bytes, large.from_bytes) == (0, 8192)
    assert_within(small.latency_s, LATENCY)
    assert_within(large.latency_s, 3 * LATENCY)


def test_the_librarys_ping_pong_counts_where_ours_was_not_measured():
    ours = observed("send_recv", "ping_pong")
    theirs = [replace(one, algorithm=None) for one in ours]
    slower = [replace(one, seconds=2 * one.seconds, rounds_s=()) for one in theirs]
    (true,) = MACHINE.tiers["rack"].costs
    for patterns in ([theirs], [slower, ours]):
        assert machine_of(*patterns).tiers["rack"][0].latency_s.value == pytest.approx(
            true.latency_s
        )


def test_two_sizes_are_no_line_and_intervals_widen_with_noise_over_rounds():
    trips = observed("send_recv", "ping_pong")
    assert [
        fit(one, "here") is None for one in (trips[:2], observed("all_reduce", "ring"), trips[:3])
    ] == [
        True,
        True,
        False,
    ]

    def width(noise):
        latency = machine_of(two_ranks(of_rank(), noise=noise)).tiers["rack"][0].latency_s
        return (latency.high - latency.low) / latency.value

    assert width(0) == pytest.approx(0, abs=1e-9)
    assert 0 < width(0.01) < width(0.03)


def test_shared_resources_are_what_pairs_share():
    machine = of_rank(port_byte_s=6e-10, memory_byte_s=8e-11)
    two_nodes, one_node = Layout.of(8, 4), Layout.of(8)
    found = machine_of(
        *(two_ranks(machine, layout) for layout in (two_nodes, one_node)),
        *(
            pairs(machine, concurrent, layout)
            for concurrent in (2, 4)
            for layout in (two_nodes, one_node)
        ),
    )
    assert_within(found.port.bytes_per_s, 1 / 6e-10)
    assert_within(found.tiers["rack"][0].bytes_per_s, 1 / BYTE)
    assert_within(found.memory.bytes_per_s, 1 / 8e-11)
    machine, racks = of_rank(uplink_byte_s=8e-10), Layout((0, 1, 2, 3), rack=(0, 0, 1, 1))
    found = machine_of(
        two_ranks(machine, racks), pairs(machine, 2, racks), two_ranks(machine, racks, peer=1)
    )
    assert_within(found.uplink.bytes_per_s, 1 / 8e-10)
    for quantity in (found.tiers["fabric"][0].bytes_per_s, found.port.bytes_per_s):
        assert_within(quantity, 1 / BYTE)
    assert_within(found.tiers["fabric"][0].latency_s, 2 * LATENCY)


TESTBED = {"about": {"kind": "measured on a testbed", "cpus": 2}}


def test_cpus_are_a_resource_if_pairs_slow_each_other_down_or_ranks_outnumber_them():
    slowed = of_rank(cpus=Cpus(2, 8e-10, "machine"))
    found = machine_of(two_ranks(slowed, **TESTBED), pairs(slowed, 2, **TESTBED))
    assert (found.cpus.cores, found.cpus.of, found.aggregators.kind) == (2, "machine", "unmetered")
    assert_within(found.cpus.bytes_per_s, 1 / 8e-10)
    assert_within(found.port.bytes_per_s, 1 / BYTE)
    assert machine_of(two_ranks(of_rank(), **TESTBED), pairs(of_rank(), 2, **TESTBED)).cpus is None
    assert machine_of(two_ranks(slowed), pairs(slowed, 2)).cpus is None, "real nodes share no CPUs"
    cpus = machine_of(two_ranks(of_rank(), about={"oversubscribed": True, "cpus": 3})).cpus
    assert (cpus.cores, cpus.of, cpus.bytes_per_s) == (3, "node", None)


def test_a_bucket_lets_a_burst_pass_after_a_pause():
    burst, port = 16384, 8e-8

    def with_bucket(one):
        """A rank that does not send for a while saves what then passes at once: in ping-pongs, not in exchanges."""
        alternates = one.collective == "send_recv"
        message = LATENCY + max(0, one.nbytes - burst * alternates) * port
        seconds = (1 + alternates) * message
        return replace(
            one,
            seconds=seconds,
            rounds_s=tuple(seconds * each / one.seconds for each in one.rounds_s),
        )

    found = machine_of([with_bucket(one) for one in two_ranks(of_rank())])
    assert found.port.burst_bytes.value == pytest.approx(burst, rel=0.1)
    assert_within(found.port.bytes_per_s, 1 / port)
    assert found.tiers["rack"][0].latency_s.value == pytest.approx(LATENCY, rel=0.02)
    for byte_s, nodes in product((1e-9, 1e-8), (4, 7)):  # noise, which ranks seed, is no bucket
        found = machine_of(two_ranks(of_rank(byte_s), Layout.of(nodes, 1), noise=0.02))
        assert found.port.burst_bytes.value == 0
        assert found.tiers["rack"][0].latency_s.value == pytest.approx(LATENCY, rel=0.03)


WORKING = Tier((MessageCosts(latency_s=LATENCY, overhead_s=3e-6, gap_s=8e-6, byte_s=1e-10),))


def trains(machine, layout=FOUR_NODES, delay_s=1e-3, **more):
    """Return trains of 1 and of 8 messages, without and with a delay before each message, which hides their bytes."""
    (one,) = machine.tiers["rack"].costs
    overhead_s = one.overhead_s * machine.slowdown(layout)
    for nbytes in CALIBRATED:
        reply = 2 * overhead_s + one.latency_s + nbytes * one.byte_s
        for messages in (1, 8):
            yield from observed(
                "send_recv", "train", layout, machine, [nbytes], messages=messages, copies=0, **more
            )
            hidden = messages * (delay_s + overhead_s) + nbytes / messages * one.byte_s
            delayed = hidden + one.latency_s + overhead_s + reply
            yield observation(
                "send_recv", "train", nbytes, delayed, layout, messages=messages, copies=128, **more
            )


def test_trains_show_overhead_and_gap():
    machine = Machine({"rack": WORKING})
    (found,) = machine_of(two_ranks(machine), trains(machine)).tiers["rack"]
    assert (found.overhead_s.value, found.latency_s.value) == pytest.approx(
        (3e-6, LATENCY), rel=0.02
    )
    assert found.gap_s.value == pytest.approx(8e-6, rel=0.05)


def crowded(contention, erratic=1.0):
    """Return patterns of two ranks with a CPU each, ping-pongs while two ranks shared each CPU, and a larger job."""
    machine = Machine({"rack": WORKING}, cpus=Cpus(2, of="machine", contention=contention))
    shared = observed("send_recv", "ping_pong", FOUR_NODES, machine, CALIBRATED, **TESTBED, peer=1)
    return [
        *two_ranks(machine, Layout.of(2, 1), **TESTBED),
        *trains(machine, Layout.of(2, 1), **TESTBED),
        *(
            replace(one, seconds=erratic * one.seconds, rounds_s=(), oversubscribed=True)
            for one in shared
        ),
        *observed("all_reduce", "ring", Layout.of(8, 1), machine, [1 << 20], **TESTBED),
    ]


@pytest.mark.parametrize("contention", [0.0, 1.7])
def test_ping_pongs_on_shared_cpus_show_what_another_rank_adds_and_change_no_other_number(
    contention,
):
    found = machine_of(crowded(contention))
    assert found.cpus.contention.value == pytest.approx(contention, abs=0.15)
    assert found.tiers["rack"][0].overhead_s.value == pytest.approx(3e-6, rel=0.05)
    assert machine_of(crowded(contention, erratic=100.0)).tiers == found.tiers


def halves(**more):
    return [
        one
        for name in ("reduce_scatter", "all_gather")
        for one in observed(name, "ring", noise=0.01, **more)
    ]


def test_a_reduction_is_what_a_reduce_scatter_takes_longer_than_its_all_gather():
    trips, true = observed("send_recv", "ping_pong", noise=0.01), MACHINE.fold_s["float32"]
    rate = machine_of(trips, halves()).reduction["float32"].bytes_per_s
    assert rate.value == pytest.approx(1 / true, rel=0.5), "the noise is about a third of the folds"
    assert rate.low < 1 / true < rate.high
    exact = [replace(one, rounds_s=()) for one in halves(rounds=101)]
    assert machine_of(trips, exact).reduction["float32"].bytes_per_s.value == pytest.approx(
        1 / true, rel=0.1
    )
    assert machine_of(trips, observed("reduce_scatter", "ring")).reduction == {}


def test_twins_are_of_one_placement_and_dtype_and_take_some_time_even_if_noise_hides_it():
    trips, gathers = observed("send_recv", "ping_pong"), observed("all_gather", "ring")
    other = [replace(one, in_place=True) for one in gathers]
    assert machine_of(trips, observed("reduce_scatter", "ring"), other).reduction == {}
    half = [replace(one, dtype="float16") for one in halves()]
    assert machine_of(trips, halves(), half).reduction.keys() == {"float32", "float16"}
    slow = [replace(one, seconds=2 * one.seconds, rounds_s=()) for one in gathers]
    found = machine_of(trips, observed("reduce_scatter", "ring"), slow)
    assert found.reduction["float32"].bytes_per_s.value == pytest.approx(1e12)


def test_patterns_on_more_than_half_of_the_nodes_are_held_out():
    everything = [
        one for nodes in (2, 4, 6, 8) for one in two_ranks(of_rank(), Layout.of(nodes, 1))
    ]
    machine, used = fit([*everything, *observed("all_reduce", "ring", Layout.of(8, 1))], "here")
    assert {one.layout.nodes for one in used} == {2, 4}
    assert machine.measured.nodes == [2, 4]
    _, on_most = fit(two_ranks(of_rank(), Layout.of(8, 1)), "here")
    assert {one.layout.nodes for one in on_most} == {8}, "no others show the way between nodes"
