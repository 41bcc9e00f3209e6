"""The costs of collectives on groups of a mesh: shared ports, parts of large groups, and interpolation."""

import pytest
from predicted_machines import EXACT, LATENCY, RATE, SEGMENT, cluster

from hpccoll.common.errors import BadInputError
from hpccoll.model import group_costs
from hpccoll.model.group_costs import AlgorithmTime, GroupCosts, GroupUse, group_use, interpolated, simulated_sizes
from hpccoll.model.machine import Cpus, Machine
from hpccoll.training.parallelism import Mesh
from hpccoll.training.step_program import Start, StepOperation, StepProgram


def machine(ranks_per_node=1, rails=1, **sections):
    """Return a cluster of nodes of several ranks whose messages pass ports."""
    about = {
        "layout": {"ranks_per_node": ranks_per_node, "rails": rails}, "port": {"bytes_per_s": RATE},
        "tiers": dict.fromkeys(("node", "rack"), EXACT),
    }  # fmt: skip
    return cluster(**(about | sections))


def cost(described, mesh, nbytes, collective="all_reduce", axis="dp", algorithm="ring", bounds=("value",), **more):
    """Return the seconds of one operation, at each bound if there are several."""
    operation = StepOperation("bucket 1", collective, axis, nbytes, "float32", "backward", **more)
    layout = described.layout(mesh.ranks // described.geometry.ranks_per_node)
    costs = GroupCosts(described, layout, mesh, algorithm, {"channels": 1})
    costs.prepare([StepProgram(0, None, (Start(operation),), ())])
    found = [costs.cost(operation, bound) for bound in bounds]
    return found if len(bounds) > 1 else found[0]


def test_a_ring_takes_its_formula_and_has_the_interval_of_the_machine():
    nbytes = 16 * 4096
    for ranks in (2, 16):
        ring_s = 2 * (ranks - 1) * (LATENCY + nbytes / ranks / RATE)
        assert cost(cluster(), Mesh(dp=ranks), nbytes) == pytest.approx(ring_s)
    machine_of_intervals, bounds = cluster(tiers={"rack": SEGMENT}), ("low_cost", "value", "high_cost")
    low, value, high = cost(machine_of_intervals, Mesh(dp=2), nbytes, bounds=bounds)
    assert low < value < high


@pytest.mark.parametrize(
    ("limit", "part", "described", "collective", "algorithm"),
    [
        *(("MOST_IN_A_RING", 8, machine(2), name, "ring") for name in ("all_reduce", "reduce_scatter", "all_gather")),
        ("MOST_UNDER_SWITCHES", 4, machine(aggregators={"kind": "switches"}), "all_reduce", "sharp_emulated"),
    ],
)
def test_a_large_group_simulated_by_part_of_its_ranks_takes_as_long_as_all_of_it(
    monkeypatch, limit, part, described, collective, algorithm
):
    found = []
    for most in (part, 1 << 20):
        monkeypatch.setattr(group_costs, limit, most)
        found.append(cost(described, Mesh(dp=32), 1 << 22, collective, algorithm=algorithm))
    assert found[0] == pytest.approx(found[1], rel=0.02)


@pytest.mark.parametrize(
    ("rails", "mesh", "axis", "factor"),
    [
        (1, Mesh(tp=4, dp=2), "dp", 4),  # the data-parallel groups of four tensor-parallel ranks share a node's port
        (4, Mesh(tp=4, dp=2), "dp", 1),  # or have one each
        (1, Mesh(dp=8), "dp", 1),  # one group
        (1, Mesh(tp=4, dp=2), "tp", 1),  # groups of a node use no port
    ],
)
def test_groups_that_use_one_port_at_once_share_it(rails, mesh, axis, factor):
    described, nbytes = machine(4, rails), 1 << 20
    assert group_use(described.layout(2), mesh.groups(axis)).port == factor
    if mesh.size(axis) == 2:
        assert cost(described, mesh, nbytes) == pytest.approx(2 * (LATENCY + factor * nbytes / 2 / RATE))


@pytest.mark.parametrize(("of", "cores"), [("node", 2), ("machine", 1)])
def test_groups_share_the_cpus_of_a_node_and_of_the_machine(of, cores):
    use = GroupUse(port=1, uplink=1, node=4, ranks=8)
    assert use.shared(Machine({}, cpus=Cpus(8, of=of))).cpus.cores == cores


def test_a_message_between_stages_goes_one_way():
    found = cost(machine(), Mesh(pp=2), 1 << 20, "send_recv", "pp", algorithm=None, peer=0, sends=True)
    assert found == pytest.approx(LATENCY + (1 << 20) / RATE, rel=0.01)


def test_the_fastest_of_the_usual_algorithms_runs_unless_one_is_requested_which_must_be_able_to():
    fastest, ring = (cost(cluster(), Mesh(dp=16), 1024, algorithm=name) for name in (None, "ring"))
    assert fastest == pytest.approx(4 * (LATENCY + 1024 / RATE))
    assert ring > 5 * fastest
    with pytest.raises(BadInputError, match="power-of-two"):
        cost(cluster(), Mesh(dp=6), 1024, "reduce_scatter", algorithm="recursive_halving")


def test_a_few_sizes_are_simulated_and_a_time_between_two_is_on_the_straight_line():
    assert simulated_sizes({8, 2, 4}) == [2, 4, 8]
    chosen = simulated_sizes(range(1000, 2000000, 1000))
    assert (len(chosen), chosen[0], chosen[-1]) == (group_costs.MOST_SIZES, 1000, 1999000)
    times = [(size, AlgorithmTime("ring", {"value": 1.0 + size})) for size in (10, 20, 40)]
    assert [interpolated(times, size, "value") for size in (10, 15, 30, 40)] == [11, 16, 31, 41]
