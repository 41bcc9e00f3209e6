"""NCCL's own calls: their names, where formulas apply, and where a machine is slower than these know."""

import pytest
from predicted_machines import EXACT, NCCL, cluster, in_racks

from hpccoll.model.machine_file import read_machine
from hpccoll.model.nccl_candidates import (
    LibraryCalls,
    latency_beyond_formulas,
    library_names,
    unmodelled,
)
from hpccoll.schedule import Layout


@pytest.mark.parametrize(
    ("collective", "names"),
    [
        ("all_reduce", ("nccl_ring", "nccl_tree")),
        ("all_gather", ("nccl_ring",)),
        ("reduce_scatter", ("nccl_ring",)),
        ("all_to_all", ()),
        ("barrier", ()),
    ],
)
def test_nccls_algorithms_are_those_that_have_formulas_on_a_machine_with_its_section(
    collective, names
):
    assert library_names(cluster(nccl=NCCL), collective) == names
    assert library_names(cluster(), collective) == ()


@pytest.mark.parametrize(
    ("layout", "nbytes", "reason"),
    [
        (Layout.of(8, 4), 1024, None),
        (Layout.of(4, 4), 1024, "on one node"),
        (Layout.of(1), 1024, "one rank"),
        (Layout((0, 0, 1)), 1024, "as many ranks"),
        (Layout.of(8, 4), 2, "less than one float32"),
    ],
)
def test_formulas_apply_to_groups_with_as_many_ranks_on_each_of_several_nodes(
    layout, nbytes, reason
):
    found = LibraryCalls(in_racks(nccl=NCCL), "all_reduce", layout, "float32").unpredicted_reason(
        nbytes
    )
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


@pytest.mark.parametrize(
    ("architecture", "collective", "nodes", "missing"),
    [
        ("hopper", "all_reduce", 1, "NVLS"),
        ("hopper", "all_reduce", 2, "NVLSTree"),
        ("hopper", "all_reduce", 4, "NVLSTree"),
        ("blackwell", "all_reduce", 64, "NVLSTree"),
        ("hopper", "all_gather", 2, None),
        ("ampere", "all_reduce", 2, None),
        ("ampere", "all_reduce", 1, "the ring"),
    ],
)
def test_what_nccl_may_take_without_a_formula_depends_on_nodes_and_gpus(
    architecture, collective, nodes, missing
):
    machine = in_racks(nccl=NCCL | {"architecture": architecture})
    found = unmodelled(machine, collective, nodes, 8)
    assert bool(found) == bool(missing)
    assert (missing or "") in " ".join(found)
    # too few ranks for its switches
    assert "NVLS" not in " ".join(unmodelled(machine, collective, nodes, 4))


@pytest.mark.parametrize(
    ("ranks", "rails", "used"), [(8, 4, 8), (8, 8, 8), (8, 32, 8), (4, 8, 4), (4, 8, 2), (4, 8, 1)]
)
def test_the_ranks_of_a_group_have_the_channels_of_the_rails_that_they_use(ranks, rails, used):
    """Of 8 channels a whole node has all, also where it has more rails than ranks; half of its ranks have half."""
    machine = cluster(
        layout={"ranks_per_node": ranks, "rails": rails},
        nccl=NCCL,
        tiers=dict.fromkeys(("node", "rack"), EXACT),
    )
    calls = LibraryCalls(machine, "all_reduce", machine.layout(2, used), "float32")
    assert calls.taken.channels == NCCL["channels"] * used // ranks


def test_a_network_that_is_slower_than_nccls_constants_is_found():
    found = {
        name: latency_beyond_formulas(read_machine(name, "--cluster"))
        for name in ("8xh100-400g", "8xh100-400g-tcp")
    }
    assert found == {"8xh100-400g": None, "8xh100-400g-tcp": pytest.approx(30e-6)}
    slow = {"latency_s": {"value": 30e-6, "low": 10e-6}, "bytes_per_s": 1e9}
    # it may be no slower
    assert latency_beyond_formulas(cluster(nccl=NCCL, tiers={"rack": slow})) is None
    # no formulas
    assert latency_beyond_formulas(cluster(tiers={"rack": EXACT | {"latency_s": 1e-3}})) is None
