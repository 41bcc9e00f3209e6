"""The costs of collectives on groups of a mesh: shared ports, parts of large groups, and interpolation."""

import pytest
from predicted_machines import EXACT, LATENCY, NCCL, RATE, SEGMENT, cluster

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.model import group_costs
from hpccoll.extensions.steps.model.group_costs import (
    AlgorithmTime,
    GroupCosts,
    GroupUse,
    group_use,
    interpolated,
    simulated_sizes,
)
from hpccoll.extensions.steps.training.parallelism import Mesh
from hpccoll.extensions.steps.training.step_program import Start, StepOperation, StepProgram
from hpccoll.model.machine import Cpus, Machine
from hpccoll.model.machine_sections import NcclSection
from hpccoll.model.nccl_model import nccl_estimates


def machine(ranks_per_node=1, rails=1, **sections):
    """Return a cluster of nodes of several ranks whose messages pass ports."""
    about = {
        "layout": {"ranks_per_node": ranks_per_node, "rails": rails},
        "port": {"bytes_per_s": RATE},
        "tiers": dict.fromkeys(("node", "rack"), EXACT),
    }
    return cluster(**(about | sections))


def cost(
    described,
    mesh,
    nbytes,
    collective="all_reduce",
    axis="dp",
    algorithm="ring",
    bounds=("value",),
    **more,
):
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
    machine_of_intervals, bounds = (
        cluster(tiers={"rack": SEGMENT}),
        ("low_cost", "value", "high_cost"),
    )
    low, value, high = cost(machine_of_intervals, Mesh(dp=2), nbytes, bounds=bounds)
    assert low < value < high


@pytest.mark.parametrize(
    ("limit", "part", "described", "collective", "algorithm"),
    [
        *(
            ("MOST_IN_A_RING", 8, machine(2), name, "ring")
            for name in ("all_reduce", "reduce_scatter", "all_gather")
        ),
        (
            "MOST_UNDER_SWITCHES",
            4,
            machine(aggregators={"kind": "switches"}),
            "all_reduce",
            "sharp_emulated",
        ),
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
        # the data-parallel groups of four tensor-parallel ranks share a node's port
        (1, Mesh(tp=4, dp=2), "dp", 4),
        (4, Mesh(tp=4, dp=2), "dp", 1),  # or have one each
        (1, Mesh(dp=8), "dp", 1),  # one group
        (1, Mesh(tp=4, dp=2), "tp", 1),  # groups of a node use no port
    ],
)
def test_groups_that_use_one_port_at_once_share_it(rails, mesh, axis, factor):
    described, nbytes = machine(4, rails), 1 << 20
    assert group_use(described.layout(2), mesh.groups(axis)).port == factor
    if mesh.size(axis) == 2:
        assert cost(described, mesh, nbytes) == pytest.approx(
            2 * (LATENCY + factor * nbytes / 2 / RATE)
        )


@pytest.mark.parametrize(("of", "cores"), [("node", 2), ("machine", 1)])
def test_groups_share_the_cpus_of_a_node_and_of_the_machine(of, cores):
    use = GroupUse(port=1, uplink=1, node=4, ranks=8)
    assert use.shared(Machine({}, cpus=Cpus(8, of=of))).cpus.cores == cores


def test_a_message_between_stages_goes_one_way():
    found = cost(
        machine(), Mesh(pp=2), 1 << 20, "send_recv", "pp", algorithm=None, peer=0, sends=True
    )
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


def gpus(rails=8, **sections):
    """Return a cluster of nodes of 8 GPUs, with a channel of NCCL for each port."""
    nccl = NCCL | {"channels": rails, "intra_bytes_per_s": RATE, "inter_bytes_per_s": RATE}
    tiers = {"node": EXACT | {"bytes_per_s": 100 * RATE}, "rack": EXACT, "fabric": EXACT}
    return machine(8, rails, **({"tiers": tiers, "nccl": nccl} | sections))


def used(described, mesh, collective="all_reduce", axis="dp", algorithm=None, nbytes=1 << 24):
    """Return the algorithm and the seconds of an operation, and what is not modelled."""
    operation = StepOperation("bucket 1", collective, axis, nbytes, "float32", "backward")
    costs = GroupCosts(described, described.layout(mesh.ranks // 8), mesh, algorithm)
    costs.prepare([StepProgram(0, None, (Start(operation),), ())])
    ((name),) = costs.algorithms().values()
    return name, costs.cost(operation), costs.unmodelled


def expected(nodes, ranks_per_node, collective="all_reduce", channels=8, rate=RATE, nbytes=1 << 24):
    """Return what NCCL expects with channels of a rate, by algorithm and protocol."""
    section = NcclSection(
        **(NCCL | {"channels": channels, "intra_bytes_per_s": rate, "inter_bytes_per_s": rate})
    )
    every = nccl_estimates(section, collective, nodes, ranks_per_node, nbytes)
    return {(each.algorithm, each.protocol): each.seconds for each in every}


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_groups_that_span_nodes_run_what_nccl_takes(collective):
    times = expected(4, 8, collective)
    (own, _), seconds = min(times.items(), key=lambda item: item[1])
    *runs, unmodelled = used(gpus(), Mesh(dp=32), collective)
    assert runs == [f"nccl_{own}", seconds]
    assert [each.missing for each in unmodelled] == (
        [("NVLSTree",)] if collective == "all_reduce" else []
    )


@pytest.mark.parametrize(
    ("requested", "collective", "runs"),
    [
        # of which it has no tree
        ("nccl_tree", "all_reduce", "nccl_tree"),
        ("nccl_tree", "all_gather", "nccl_ring"),
        # of which we have none
        ("ring", "all_reduce", "ring"),
        ("hierarchical", "reduce_scatter", "nccl_ring"),
        ("ring", "reduce_scatter", "ring"),
    ],
)
def test_a_requested_algorithm_runs_the_collectives_that_have_it(requested, collective, runs):
    assert used(gpus(), Mesh(dp=32), collective, algorithm=requested)[0] == runs


def test_a_group_inside_a_node_runs_a_schedule_that_stands_in_for_nccls_own_and_says_so():
    name, _, (unmodelled,) = used(gpus(), Mesh(tp=8, dp=2), axis="tp")
    assert not name.startswith("nccl")
    assert (unmodelled.work, unmodelled.missing[0], unmodelled.stands_in) == (
        "all_reduce tp",
        "NVLS",
        True,
    )
    assert used(gpus(), Mesh(tp=8, dp=2), axis="tp", algorithm="ring")[2] == []  # as requested
    assert used(machine(8, 8), Mesh(dp=16))[2] == []  # no cluster of NCCL
    name, _, (unmodelled,) = used(gpus(), Mesh(dp=16))  # on two nodes
    assert (name[:5], unmodelled.missing, unmodelled.stands_in) == ("nccl_", ("NVLSTree",), False)


@pytest.mark.parametrize(
    ("mesh", "axis", "nodes"), [(Mesh(tp=8, dp=2), "tp", 1), (Mesh(dp=16), "dp", 2)]
)
def test_a_time_without_a_formula_of_nccl_is_held_against_what_was_published(mesh, axis, nodes):
    nbytes = 1 << 24

    def published(low, high, algorithm):
        rates = {"low_bytes_per_s": low, "high_bytes_per_s": high}
        place = {"collective": "all_reduce", "nodes": nodes, "bytes": nbytes}
        return place | rates | {"algorithm": algorithm, "source": "a page"}

    _, seconds, (unknown,) = used(gpus(), mesh, axis=axis)
    assert unknown.over_published is None
    ranks = mesh.size(axis)
    busbw = 2 * (ranks - 1) / ranks * nbytes / seconds
    sections = [published(2 * busbw, 3 * busbw, "default")]
    _, _, (known,) = used(gpus(published=sections), mesh, axis=axis)
    assert known.over_published == pytest.approx((2, 3))  # NCCL is two to three times as fast


@pytest.mark.parametrize(
    ("tp", "rails", "channels", "share"),
    [
        (1, 8, 8, 1),  # all ranks of a node, all ports
        (2, 8, 4, 1),  # every second one, with a port each
        (8, 8, 1, 1),  # one rank of each node, with its own port
        (8, 4, 1, 2),  # with a port that it shares with another group
        (4, 1, 1, 4),  # two of each node, all of which have one port
    ],
)
def test_a_group_has_the_channels_of_its_ranks_ports_and_a_part_of_the_ports_that_others_use(
    tp, rails, channels, share
):
    """NCCL chooses by what it expects of whole ports, and takes the time of its part of them."""
    whole, part = (
        expected(4, 8 // tp, channels=channels, rate=rate) for rate in (RATE, RATE / share)
    )
    chosen = min(whole, key=lambda name: whole[name])
    assert used(gpus(rails), Mesh(tp=tp, dp=32 // tp))[:2] == (f"nccl_{chosen[0]}", part[chosen])


def test_groups_that_share_the_uplink_of_a_rack_have_a_part_of_it():
    """32 groups of replicas, one for each rank of a rack: four of them are on each rail."""
    racks = {"layout": {"ranks_per_node": 8, "rails": 8, "nodes_per_rack": 4}}
    free, shared = (
        used(gpus(**racks, **more), Mesh(dp=128, shard=32), axis="replica")[1]
        for more in ({}, {"uplink": {"bytes_per_s": RATE}})
    )
    assert shared == pytest.approx(4 * free, rel=0.1)
