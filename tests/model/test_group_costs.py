"""The costs of collectives on groups of a mesh: shared ports, parts of large groups, and interpolation."""

import pytest
from predicted_machines import LATENCY, RATE, SEGMENT, cluster

from hpccoll.common.errors import BadInputError
from hpccoll.model import group_costs
from hpccoll.model.group_costs import AlgorithmTime, GroupCosts, GroupUse, group_use, interpolated, simulated_sizes
from hpccoll.model.machine import Cpus, Machine
from hpccoll.training.mesh import Mesh
from hpccoll.training.step_program import Start, StepOperation, StepProgram

PORT = {"bytes_per_s": RATE}
EXACT = {"latency_s": LATENCY, "bytes_per_s": RATE}
ONE_PIECE = {"channels": 1}


def machine(ranks_per_node=1, rails=1, **sections):
    """Return a cluster of nodes of several ranks whose messages pass ports."""
    about = {
        "layout": {"ranks_per_node": ranks_per_node, "rails": rails}, "port": PORT,
        "tiers": dict.fromkeys(("node", "rack"), EXACT),
    }  # fmt: skip
    return cluster(**(about | sections))


def cost(described, mesh, nbytes, collective="all_reduce", axis="dp", algorithm="ring", nodes=None, **more):
    """Return the seconds of one operation."""
    operation = StepOperation("bucket 1", collective, axis, nbytes, "float32", "backward", **more)
    ranks_per_node = described.geometry.ranks_per_node
    costs = GroupCosts(described, described.layout(nodes or mesh.ranks // ranks_per_node), mesh, algorithm, ONE_PIECE)
    costs.prepare([StepProgram(0, None, (Start(operation),), ())])
    return costs.cost(operation)


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_a_ring_takes_its_formula(ranks):
    described, nbytes = cluster(), 16 * 4096
    found = cost(described, Mesh(dp=ranks), nbytes)
    assert found == pytest.approx(2 * (ranks - 1) * (LATENCY + nbytes / ranks / RATE))


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_a_large_ring_simulated_by_part_of_its_ranks_takes_as_long_as_all_of_it(collective, monkeypatch):
    described, nbytes = machine(2), 1 << 22
    part = dict.fromkeys((8, 1 << 20), 0.0)
    for most in part:
        monkeypatch.setattr(group_costs, "MOST_IN_A_RING", most)
        part[most] = cost(described, Mesh(dp=32), nbytes, collective, nodes=16)
    assert part[8] == pytest.approx(part[1 << 20], rel=0.02)


def test_a_large_reduction_in_switches_takes_as_long_with_part_of_its_ranks(monkeypatch):
    described = machine(aggregators={"kind": "switches", "source": "assumed: ideal"})
    found = []
    for most in (4, 1 << 20):
        monkeypatch.setattr(group_costs, "MOST_UNDER_SWITCHES", most)
        found.append(cost(described, Mesh(dp=16), 1 << 22, algorithm="sharp_emulated"))
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize(
    ("rails", "mesh", "factor"),
    [
        (1, Mesh(tp=4, dp=2), 4),  # the data-parallel groups of four tensor-parallel ranks share the port of a node
        (4, Mesh(tp=4, dp=2), 1),  # or have one each
        (1, Mesh(dp=8), 1),  # one group
    ],
)
def test_groups_that_use_one_port_at_once_share_it(rails, mesh, factor):
    described = machine(4, rails)
    use = group_use(described.layout(2), mesh.groups("dp"))
    assert use.port == factor
    nbytes = 1 << 20
    if mesh.dp == 2:
        assert cost(described, mesh, nbytes) == pytest.approx(2 * (LATENCY + factor * nbytes / 2 / RATE))


def test_tensor_parallel_groups_of_a_node_use_no_port():
    described = machine(4)
    assert group_use(described.layout(2), Mesh(tp=4, dp=2).groups("tp")).port == 1


def test_groups_share_the_cpus_of_a_node_and_of_the_machine():
    use = GroupUse(port=1, uplink=1, node=4, ranks=8)
    for of, cores in (("node", 2), ("machine", 1)):
        assert use.shared(Machine({}, cpus=Cpus(8, of=of))).cpus.cores == cores


def test_a_message_between_stages_goes_one_way():
    found = cost(
        machine(), Mesh(pp=2), 1 << 20, "send_recv", "pp", algorithm=None, peer=0, sends=True
    )  # fmt: skip
    assert found == pytest.approx(LATENCY + (1 << 20) / RATE, rel=0.01)


def test_the_fastest_of_the_usual_algorithms_runs_unless_one_is_requested():
    described, mesh = cluster(), Mesh(dp=16)
    fastest, ring = (cost(described, mesh, 1024, algorithm=name) for name in (None, "ring"))
    assert fastest == pytest.approx(4 * (LATENCY + 1024 / RATE))
    assert ring > 5 * fastest


def test_a_requested_algorithm_that_cannot_run_is_bad_input():
    with pytest.raises(BadInputError, match="power-of-two"):
        cost(cluster(), Mesh(dp=6), 1024, "reduce_scatter", algorithm="recursive_halving")


def test_a_few_sizes_are_simulated_and_all_of_them_if_they_are_few():
    assert simulated_sizes({8, 2, 4}) == [2, 4, 8]
    chosen = simulated_sizes(range(1000, 2000000, 1000))
    assert len(chosen) == group_costs.MOST_SIZES
    assert (chosen[0], chosen[-1]) == (1000, 1999000)


def test_between_two_sizes_a_time_is_on_the_straight_line():
    times = [(size, AlgorithmTime("ring", {"value": 1.0 + size})) for size in (10, 20, 40)]
    assert [interpolated(times, size, "value") for size in (10, 15, 30, 40)] == [11, 16, 31, 41]


def test_intervals_of_the_machine_are_those_of_costs():
    described = cluster(tiers={"rack": SEGMENT})
    operation = StepOperation("bucket 1", "all_reduce", "dp", 1 << 16, "float32", "backward")
    costs = GroupCosts(described, described.layout(2), Mesh(dp=2), "ring", ONE_PIECE)
    costs.prepare([StepProgram(0, None, (Start(operation),), ())])
    low, value, high = (costs.cost(operation, bound) for bound in ("low_cost", "value", "high_cost"))
    assert low < value < high
