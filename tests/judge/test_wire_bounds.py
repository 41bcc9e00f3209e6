"""What wires carry at most, as bus bandwidth: by hand, and above all that was published."""

import pytest

from hpccoll.judge.wire_bounds import wire_bound
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import read_machine
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import figures_of, word_of

LIKE = ClassSection(
    fabric="f",
    fabric_bytes_per_s=450e9,
    network_bytes_per_s=50e9,
    default_algorithms={1: "NVLS", 2: "NVLSTree"},
)


@pytest.mark.parametrize(
    ("collective", "nodes", "algorithm", "expected"),
    [
        ("all_reduce", 1, None, 2 * 7 / 9 * 450e9),
        ("all_reduce", 1, "ring", 450e9),
        ("all_gather", 1, None, 450e9),
        ("all_reduce", 2, "ring", 400e9),
        ("all_reduce", 2, "tree", 450e9),
        ("all_reduce", 2, None, 700e9),
        ("all_reduce", 4, None, 400e9),
        ("all_to_all", 2, None, 50e9 * 15 / 16 * 2),
        ("broadcast", 2, None, None),
        ("all_to_all", 4, None, 50e9 * 31 / 32 * 4 / 3),
    ],
)
def test_bounds_are_those_of_nvlink_and_of_ports_by_algorithm(
    collective, nodes, algorithm, expected
):
    found = wire_bound(LIKE, collective, nodes, 8, algorithm)
    assert found == (expected and pytest.approx(expected))


def test_a_class_without_rates_has_no_bound():
    assert wire_bound(ClassSection(fabric="f"), "all_reduce", 1, 8) is None
    assert wire_bound(ClassSection(fabric="f", fabric_bytes_per_s=1e9), "all_reduce", 2, 8) is None


@pytest.mark.parametrize("name", cluster_names())
def test_nothing_that_was_published_is_above_the_bound_of_its_wires(name):
    machine = read_machine(name, "--cluster")
    for figure in figures_of(machine) if machine.machine_class else ():
        algorithm = word_of(figure.algorithm) if figure.forced else None
        bound = wire_bound(
            machine.machine_class, figure.collective, figure.nodes, figure.gpus_per_node, algorithm
        )
        if bound and (figure.network or figure.nodes <= machine.machine_class.fabric_nodes):
            assert figure.rate <= bound, figure
