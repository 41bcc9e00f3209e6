"""Nodes that lose packets: who is named, and that healthy machines are not accused, however their counts scatter."""

from dataclasses import asdict

import numpy as np
import pytest

from hpccoll.diagnosis.packet_losses import (
    FALSE_ALARM,
    LOSSES,
    HostLosses,
    chance_of,
    findings_of_losses,
)

SEGMENTS = 60_000
"""What a node sends: as in a diagnosis of half a minute at 100 Mbit/s."""

SCATTER = {"alike": 1000.0, "as widely as their mean": 1.0}
"""How the shares that healthy nodes lose are distributed: the shape of a gamma distribution."""


def segments(nodes, rng, *, usual, faults=(), scatter="as widely as their mean"):
    """Return provenance; ``usual`` segments of a node are lost, and of faults (senders, receivers) a share."""
    rate = np.full((nodes, nodes), usual / SEGMENTS / 2)
    sending, receiving = rng.gamma(SCATTER[scatter], 1 / SCATTER[scatter], (2, nodes))
    rate *= sending[:, None] + receiving
    for senders, receivers, share in faults:
        rate[senders, receivers] += share
    np.fill_diagonal(rate, 0)
    sent = SEGMENTS // (nodes - 1)
    lost = rng.poisson(rate * sent)
    hosts = [
        HostLosses(
            f"n{k}", {f"n{peer}": [sent, int(lost[k, peer])] for peer in range(nodes) if peer != k}
        )
        for k in range(nodes)
    ]
    return {LOSSES: [asdict(each) for each in hosts]}


def named(provenance):
    """Return the hosts of each finding, with the directions that it says."""
    found = [each.values for each in findings_of_losses(provenance, {})]
    return {
        (*values["hosts"], *(word for word in ("sent", "received") if word in values))
        for values in found
    }


@pytest.mark.parametrize("scatter", SCATTER)
@pytest.mark.parametrize("usual", [0.3, 3, 100])
@pytest.mark.parametrize("nodes", [3, 12])
def test_of_healthy_machines_one_in_five_hundred_has_a_lossy_node(nodes, usual, scatter):
    rng, runs = np.random.default_rng([nodes, int(10 * usual), len(scatter)]), 300
    alarms = sum(
        bool(named(segments(nodes, rng, usual=usual, scatter=scatter))) for _ in range(runs)
    )
    assert alarms <= 2 * FALSE_ALARM * runs + 3.5  # and what 300 runs scatter


@pytest.mark.parametrize("bursts", [1, 5, 30])
@pytest.mark.parametrize("nodes", [16, 64])
def test_bursts_of_losses_on_a_healthy_machine_alarm_as_seldom(nodes, bursts):
    rng, alarms, runs = np.random.default_rng([nodes, bursts]), 0, 60
    for _ in range(runs):
        hosts = [HostLosses(f"n{k}", {}) for k in range(nodes)]
        for distance in rng.choice(np.arange(1, nodes), min(40, nodes - 1), replace=False):
            for k, host in enumerate(hosts):
                host.segments[f"n{(k + distance) % nodes}"] = [3500, 0]
        for _ in range(bursts):
            of_pairs = hosts[rng.integers(nodes)].segments
            of_pairs[rng.choice([*of_pairs])][1] += int(rng.geometric(1 / 8))
        alarms += bool(named({LOSSES: [asdict(each) for each in hosts]}))
    assert alarms <= 2 * FALSE_ALARM * runs + 1  # and what 60 runs scatter


def test_a_burst_with_one_partner_accuses_nobody_and_a_path_that_loses_much_is_a_warning():
    provenance = segments(64, np.random.default_rng(1), usual=0)
    provenance[LOSSES][3]["segments"]["n4"][1] = 60
    assert not named(provenance)
    provenance[LOSSES][3]["segments"]["n4"][1] = 600
    (found,) = findings_of_losses(provenance, {})
    assert (found.severity, found.values["hosts"]) == ("warning", ["n3", "n4"])


ALL = slice(None)


@pytest.mark.parametrize("nodes", [4, 8, 64])
@pytest.mark.parametrize(
    ("faults", "found"),
    [
        ([(1, ALL, 0.01)], ("n1", "sent")),
        ([(ALL, 1, 0.01)], ("n1", "received")),
        ([(1, ALL, 0.01), (ALL, 1, 0.01)], ("n1", "sent", "received")),
        ([(1, 2, 0.3)], ("n1", "n2", "sent")),
    ],
)
def test_a_node_or_a_path_that_loses_packets_is_named_and_nothing_else(nodes, faults, found):
    assert named(segments(nodes, np.random.default_rng(nodes), usual=1, faults=faults)) == {found}


def test_two_lossy_nodes_do_not_hide_each_other():
    faults = [(1, ALL, 0.01), (ALL, 5, 0.02)]
    assert named(segments(8, np.random.default_rng(1), usual=1, faults=faults)) == {
        ("n1", "sent"),
        ("n5", "received"),
    }
    faults = [(1, ALL, 0.01), (5, ALL, 0.01)]
    assert named(segments(8, np.random.default_rng(1), usual=1, faults=faults)) == {
        ("n1", "sent"),
        ("n5", "sent"),
    }


def test_much_loss_is_critical_and_little_is_a_warning():
    found = [
        next(
            findings_of_losses(
                segments(16, np.random.default_rng(2), usual=0.1, faults=[(3, ALL, share)]), {}
            )
        )
        for share in (0.012, 0.0004)
    ]
    assert [each.severity for each in found] == ["critical", "warning"]
    assert found[0].values["sent"] == pytest.approx(0.012, rel=0.2)
    assert found[0].values["usual"] < 1e-5
    assert "n3 sent had to be sent again" in found[0].text


def test_a_port_with_errors_is_named_with_its_counters():
    hosts = [asdict(HostLosses(f"n{k}", {}, [10**6, 10**6])) for k in range(8)]
    assert not named({LOSSES: hosts})
    hosts[2]["errors"][1] = {"symbol_error": 1}
    assert not named({LOSSES: hosts})  # by chance
    hosts[2]["errors"][1] = {"symbol_error": 40}
    (found,) = findings_of_losses({LOSSES: hosts}, {})
    assert (found.severity, found.values["hosts"], found.values["unit"]) == (
        "warning",
        ["n2"],
        "packets",
    )
    assert found.values["received"] == pytest.approx(4e-5)
    assert (
        "40 errors per million packets received (symbol_error 40), of whatever traffic"
        in found.text
    )


def crossing(rng, racks, faults, *, usual=0.3):
    """Return provenance and the rack of each host; of faults, masks of transfers [senders, receivers], a share."""
    rack = np.repeat(np.arange(racks), 8)
    nodes, sent = len(rack), 4000
    rate = np.full((nodes, nodes), usual / sent / nodes)
    for mask, share in faults:
        rate += np.where(mask(rack[:, None], rack[None, :], np.arange(nodes)), share, 0)
    lost = rng.poisson(rate * sent)
    hosts = [
        HostLosses(
            f"n{k}", {f"n{peer}": [sent, int(lost[k, peer])] for peer in range(nodes) if peer != k}
        )
        for k in range(nodes)
    ]
    rack_of = {f"n{k}": f"r{number}" for k, number in enumerate(rack)}
    return {LOSSES: [asdict(each) for each in hosts]}, rack_of


def leaves(name):
    return lambda sender, receiver, _: (sender == name) & (receiver != name)


def enters(name):
    return lambda sender, receiver, _: (sender != name) & (receiver == name)


@pytest.mark.parametrize("racks", [3, 4, 8])
@pytest.mark.parametrize(
    ("faults", "found"),
    [
        ([(leaves(1), 0.01)], {("r1", "sent")}),
        ([(enters(1), 0.01)], {("r1", "received")}),
        ([(leaves(1), 0.01), (enters(1), 0.01)], {("r1", "sent"), ("r1", "received")}),
    ],
)
def test_what_all_nodes_of_a_rack_lose_to_other_racks_only_is_of_its_uplink_and_accuses_none_of_them(
    racks, faults, found
):
    provenance, rack_of = crossing(np.random.default_rng(racks), racks, faults)
    findings = [*findings_of_losses(provenance, rack_of)]
    assert {each.kind for each in findings} == {"uplink_losses"}
    assert {each.severity for each in findings} == {"critical"}
    assert uplinks(findings) == found


@pytest.mark.parametrize("racks", [6, 8])
def test_two_lossy_uplinks_do_not_hide_each_other(racks):
    provenance, rack_of = crossing(
        np.random.default_rng(racks), racks, [(leaves(1), 0.01), (leaves(2), 0.02)]
    )
    assert uplinks(findings_of_losses(provenance, rack_of)) == {("r1", "sent"), ("r2", "sent")}


def uplinks(findings):
    return {
        (*each.values["racks"], word)
        for each in findings
        for word in ("sent", "received")
        if word in each.values
    }


@pytest.mark.parametrize(("racks", "said"), [(2, {"warning"}), (3, set()), (5, set())])
def test_uplinks_that_lose_alike_on_all_ways_between_racks_are_not_accused(racks, said):
    provenance, rack_of = crossing(
        np.random.default_rng(racks),
        racks,
        [(lambda sender, receiver, _: sender != receiver, 0.001)],
        usual=0,
    )
    assert {each.severity for each in findings_of_losses(provenance, rack_of)} == said


def test_of_two_racks_either_uplink_may_lose():
    provenance, rack_of = crossing(np.random.default_rng(1), 2, [(leaves(0), 0.01)])
    (found,) = findings_of_losses(provenance, rack_of)
    assert set(found.values["racks"]) == {"r0", "r1"}
    assert "uplink of rack r0 or rack r1" in found.remedy


@pytest.mark.parametrize(
    "mask",
    [
        lambda _sender, receiver, nodes: (nodes[:, None] == 9) & (receiver >= 0),
        lambda sender, receiver, _: (sender == 1) | (receiver == 1),  # within the rack, too
    ],
)
def test_a_lossy_node_or_a_rack_that_loses_within_itself_is_no_uplink(mask):
    provenance, rack_of = crossing(np.random.default_rng(2), 4, [(mask, 0.01)])
    assert "uplink_losses" not in {each.kind for each in findings_of_losses(provenance, rack_of)}


def test_healthy_racks_have_no_lossy_uplink():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        provenance, rack_of = crossing(rng, 4, [], usual=float(rng.choice([0.3, 30])))
        assert not [*findings_of_losses(provenance, rack_of)]


def test_of_two_nodes_and_of_older_files_nothing_is_said():
    assert not named(segments(2, np.random.default_rng(3), usual=1, faults=[(1, ALL, 0.1)]))
    assert not named({})


@pytest.mark.parametrize(
    ("count", "others", "nodes", "ways"), [(2, 0, 3, 1 / 6), (1, 1, 2, 2 / 3), (0, 7, 9, 1)]
)
def test_every_way_to_divide_events_among_nodes_is_equally_likely(count, others, nodes, ways):
    assert chance_of(count, others, nodes) == pytest.approx(ways)
