"""What wires carry at most, as bus bandwidth: by hand, and above all that was published."""

import os
from pathlib import Path

import pytest
from published_outputs import PublishedRow

from hpccoll.judge.wire_bounds import FABRIC, PORTS, highest_possible, ring_below, wire_bound
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import figures_of, word_of

LIKE = ClassSection(
    fabric="f",
    fabric_bytes_per_s=450e9,
    network_bytes_per_s=50e9,
    default_algorithms={1: "NVLS", 2: "NVLSTree"},
)


def machine(like, rails=8):
    """Return a machine of a class, of nodes of 8 GPUs."""
    layout = {"ranks_per_node": 8, "rails": rails}
    return MachineFile.of(name="m", kind="described", layout=layout, **{"class": like.model_dump()})


@pytest.mark.parametrize(
    ("collective", "nodes", "algorithm", "expected"),
    [
        ("all_reduce", 1, None, 2 * 7 / 9 * 450e9),
        ("all_reduce", 1, "ring", 450e9),
        ("all_gather", 1, None, 450e9),
        ("all_reduce", 2, "ring", 400e9),
        ("all_reduce", 2, "tree", 450e9),
        ("all_reduce", 2, None, 750e9),
        ("all_reduce", 4, "ring", 400e9),
        ("all_reduce", 4, "tree", 450e9),
        ("all_reduce", 3, "nvls_tree", 23 / 24 * 3 / 2 * 400e9),
        ("all_to_all", 2, None, 50e9 * 15 / 16 * 2),
        ("broadcast", 2, None, None),
        ("all_to_all", 4, None, 50e9 * 31 / 32 * 4 / 3),
    ],
)
def test_bounds_are_those_of_nvlink_and_of_ports_by_algorithm(
    collective, nodes, algorithm, expected
):
    bound = wire_bound(machine(LIKE), collective, nodes, 8, algorithm)
    assert (bound and bound.rate) == (expected and pytest.approx(expected))


@pytest.mark.parametrize(
    ("nodes", "ranks_per_node", "rails", "wires", "rate"),
    [
        (2, 1, 8, PORTS, 50e9),  # one GPU has one of the ports
        (2, 1, 1, PORTS, 400e9),  # and all of a port that GPUs share
        (2, 2, 4, PORTS, 200e9),
        (1, 2, 8, FABRIC, 450e9),
        (2, 8, 8, PORTS, 400e9),
    ],
)
def test_some_gpus_of_a_node_have_the_ports_nearest_to_them(
    nodes, ranks_per_node, rails, wires, rate
):
    bound = wire_bound(machine(LIKE, rails), "all_reduce", nodes, ranks_per_node, "ring")
    assert (bound.wires, bound.rate) == (wires, pytest.approx(rate))


@pytest.mark.parametrize(
    ("collective", "nodes", "expected"),
    [
        ("all_reduce", 1, 2 * 7 / 9 * 450e9),
        ("all_reduce", 4, 2 * 31 / 32 * 400e9),  # switches of both may reduce
        ("all_gather", 1, 450e9),
        ("all_gather", 4, 500e9),  # each GPU gets from its port, too
        ("all_to_all", 4, 31 / 32 * 4 / 3 * 50e9),
        ("broadcast", 2, None),
    ],
)
def test_above_the_bound_of_any_algorithm_nothing_can_be(collective, nodes, expected):
    bound = highest_possible(machine(LIKE), collective, nodes, 8)
    assert (bound and bound.rate) == (expected and pytest.approx(expected))


def test_some_gpus_of_a_node_may_use_all_of_its_ports():
    bound = highest_possible(machine(LIKE), "all_gather", 2, 1)
    assert (bound.wires, bound.rate) == (PORTS, pytest.approx(400e9))


def test_one_gpu_a_node_needs_no_fabric_and_a_class_without_rates_has_no_bound():
    assert wire_bound(machine(ClassSection(fabric="f")), "all_reduce", 1, 8) is None
    of_ports = machine(ClassSection(fabric="f", network_bytes_per_s=1e9))
    assert wire_bound(of_ports, "all_reduce", 2, 8) is None
    assert wire_bound(of_ports, "all_gather", 2, 1).rate == 8e9 / 8
    of_fabric = machine(ClassSection(fabric="f", fabric_bytes_per_s=1e9))
    assert wire_bound(of_fabric, "all_reduce", 2, 8) is None


def own_cluster(rails=1, class_more=None, **sections):
    """Return a cluster of nodes of 4 GPUs with the ports that its section ``port`` has."""
    content = {
        "layout": {"ranks_per_node": 4, "rails": rails},
        "port": {"bytes_per_s": 12.5e9},
        "class": {"fabric": "pcie4", "fabric_bytes_per_s": 26e9} | (class_more or {}),
    }
    return MachineFile.of(name="own", kind="described", **(content | sections))


@pytest.mark.parametrize(
    ("rails", "ranks_per_node", "rate"), [(1, 4, 12.5e9), (1, 1, 12.5e9), (2, 4, 25e9)]
)
def test_the_gpus_of_a_node_share_the_ports_that_a_file_describes(rails, ranks_per_node, rate):
    of_ports = wire_bound(own_cluster(rails), "all_reduce", 2, ranks_per_node, "ring")
    assert (of_ports.wires, of_ports.rate) == (PORTS, pytest.approx(rate))
    share = own_cluster(rails, {"network_bytes_per_s": rails * 12.5e9 / 4}, port=None)
    assert wire_bound(share, "all_reduce", 2, ranks_per_node, "ring") == of_ports


def test_a_port_of_a_simulation_bounds_no_wire():
    """Messages may get less out of a port than its wire has."""
    costs = {"latency_s": 1e-6, "bytes_per_s": 1e9}
    simulated = own_cluster(tiers={"node": costs, "rack": costs})
    assert wire_bound(simulated, "all_reduce", 2, 4, "ring") is None


@pytest.mark.parametrize(
    ("rails", "nodes", "collective", "usual", "rate"),
    [
        (1, 2, "all_reduce", {}, 12.5e9),
        (1, 1, "all_reduce", {}, None),  # the fabric alone: a ring has all of it
        (1, 64, "all_reduce", {}, None),  # a tree on many nodes is as good
        (1, 2, "all_gather", {}, None),
        (1, 2, "all_reduce", {2: "NVLSTree"}, None),
    ],
)
def test_a_ring_is_beside_the_bound_where_it_is_likely_and_others_might_get_more(
    rails, nodes, collective, usual, rate
):
    machine = own_cluster(rails, {"default_algorithms": usual})
    place = collective, nodes, 4
    ring = ring_below(machine, wire_bound(machine, *place).rate, *place)
    assert (ring and ring.rate) == rate


@pytest.mark.parametrize("name", cluster_names())
def test_nothing_that_was_published_is_above_the_bound_of_its_wires(name):
    machine = read_machine(name, "--cluster")
    for figure in figures_of(machine) if machine.machine_class else ():
        algorithm = word_of(figure.algorithm) if figure.forced else None
        place = figure.collective, figure.nodes, figure.gpus_per_node
        bounds = wire_bound(machine, *place, algorithm), highest_possible(machine, *place)
        if figure.network or figure.nodes <= machine.machine_class.fabric_nodes:
            assert all(bound is None or figure.rate <= bound.rate for bound in bounds), figure


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of published data"
)
@pytest.mark.parametrize(("name", "known"), [("nccl-tests.csv", 630), ("nccl-tests-2.csv", 530)])
def test_no_published_row_healthy_or_not_is_above_what_can_be_on_its_machine(name, known):
    rows = PublishedRow.read(Path(os.environ["HPCCOLL_DATA"]) / "published" / name)
    bounds = []
    for row in rows:
        bound = highest_possible(row.machine, row.collective, row.nodes, row.gpus_per_node)
        if bound:
            bounds.append(bound)
            assert row.call.busbw * 1e9 <= bound.rate, row.cells
    assert len(bounds) >= known
