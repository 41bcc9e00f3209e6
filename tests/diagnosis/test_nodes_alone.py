"""Nodes that are slow alone, and devices that differ: who is named, and that healthy machines are not accused."""

import numpy as np
import pytest

from hpccoll.diagnosis.nodes_alone import (
    DOES,
    FAILED_PAIRS,
    GPUS_OF_HOSTS,
    HOSTS_SHARE_A_MACHINE,
    MEMORY,
    PRODUCT,
    compare_rates,
    findings_of_nodes,
)
from hpccoll.diagnosis.recorded import Load, Question, RecordedDiagnosis

REPETITIONS = 16
HOSTS = tuple(f"n{number}" for number in range(1, 7))


def simulated(nodes, seed, *, spread=0.01, noise=0.03, spikes=0.05, slow=()):
    """Return seconds by rate; ``slow`` has the rate, the node and the factor of its time."""
    rng = np.random.default_rng([seed, nodes])
    times = {}
    for name in DOES:
        shape = REPETITIONS, nodes
        times[name] = rng.normal(0, spread, nodes) + rng.normal(0, noise, shape)
        times[name] += (rng.random(shape) < spikes) * rng.exponential(0.5, shape)
    for name, node, factor in slow:
        times[name][:, node] += np.log(factor)
    return {name: 0.01 * np.exp(each) for name, each in times.items()}


def slow_of(rates):
    return {(each.name, each.node) for each in compare_rates(rates) if each.slow}


@pytest.mark.parametrize("nodes", [8, 64])
@pytest.mark.parametrize(
    ("spread", "noise", "spikes"), [(0.01, 0.03, 0.05), (0.01, 0.06, 0.15), (0.03, 0.03, 0.15)]
)
def test_of_healthy_machines_one_in_a_hundred_has_a_slow_rate(nodes, spread, noise, spikes):
    runs = 500
    found = [
        slow_of(simulated(nodes, run, spread=spread, noise=noise, spikes=spikes))
        for run in range(runs)
    ]
    assert sum(map(bool, found)) <= 0.02 * runs  # 1 %, and what 500 runs scatter


@pytest.mark.parametrize("nodes", [8, 64])
def test_a_node_with_a_slow_memory_is_found_with_that_rate_only(nodes):
    found = [slow_of(simulated(nodes, run, slow=[(MEMORY, 2, 1.25)])) for run in range(50)]
    assert sum(each == {(MEMORY, 2)} for each in found) >= 48


def recorded(rates, hosts=None, memory="host", **provenance):
    nodes = next(iter(rates.values())).shape[1] if rates else len(hosts)
    names = hosts or tuple(f"n{number}" for number in range(1, nodes + 1))
    load = Load("MPI", memory, 1 << 20, together=True)
    return RecordedDiagnosis(
        Question(names, seed=1), load, (), None, rates, "measured", "cluster x", provenance
    )


def test_a_finding_names_the_node_its_rate_and_the_interval():
    rates = simulated(12, 3, slow=[(MEMORY, 2, 1.25), (PRODUCT, 4, 1.5), (PRODUCT, 5, 2)])
    memory, product = findings_of_nodes(recorded(rates, memory="GPU"))
    assert (memory.kind, memory.severity, memory.values["rate"]) == (
        "slow_alone",
        "warning",
        MEMORY,
    )
    ((host, ratio, low, high),) = memory.values["nodes"]
    assert host == "n3"
    assert low < 0.8 < high
    assert low < ratio < high
    assert memory.text.startswith(
        f"n3 copies memory on its GPU at {ratio:.2f}x the rate of the others ("
    )
    assert [each[0] for each in product.values["nodes"]] == ["n6", "n5"]  # the slowest first


def test_the_rates_of_few_nodes_are_printed_and_not_judged():
    rates = simulated(4, 3, slow=[(MEMORY, 2, 2)])
    assert slow_of(rates) == set()
    found = findings_of_nodes(recorded(rates))
    assert [(each.kind, each.severity, each.values["rate"]) for each in found] == [
        ("own_rates", "info", name) for name in DOES
    ]
    assert [len(each.values["nodes"]) for each in found] == [4, 4, 4]


def test_a_node_that_has_not_answered_has_no_rate():
    rates = simulated(9, 3)
    rates[MEMORY][:, 1] = np.nan
    assert {each.node for each in compare_rates(rates) if each.name == MEMORY} == {*range(9)} - {1}
    assert slow_of(rates) == set()


def test_hosts_of_one_machine_are_not_judged_and_a_finding_says_so():
    (found,) = findings_of_nodes(recorded({}, ("n1", "n2"), **{HOSTS_SHARE_A_MACHINE: True}))
    assert (found.kind, found.severity) == ("own_rates_unknown", "info")


def test_failed_launches_are_of_the_host_that_most_of_them_have_in_common():
    failed = [("n1", "n6"), ("n6", "n2"), ("n3", "n6"), ("n4", "n5")]
    pairs = [{"hosts": [*hosts], "why": f"error {number}"} for number, hosts in enumerate(failed)]
    directions, most, other = findings_of_nodes(recorded({}, HOSTS, **{FAILED_PAIRS: pairs}))
    assert (directions.kind, directions.severity) == ("directions_unknown", "info")
    assert (most.kind, most.severity, most.values["host"], most.values["launches"]) == (
        "launches_failed",
        "critical",
        "n6",
        3,
    )
    assert most.text == "MPI failed in 3 launches on n6, the last of them on n3 and n6: error 2."
    assert other.text == "MPI failed in a launch on n4 and n5: error 3."


def port(name="mlx5_0/1", rate="400 Gb/sec (4X NDR)"):
    return {"name": name, "kind": "infiniband", "link_layer": "InfiniBand", "rate": rate}


def differences(*groups):
    """Return what is said of devices, given the hosts and the devices of each group of hosts."""
    ports = [{"hosts": hosts.split(), "ports": devices} for hosts, devices in groups]
    hosts = tuple(host for hosts, _ in groups for host in hosts.split())
    return [
        (each.text, each.values) for each in findings_of_nodes(recorded({}, hosts, ports=ports))
    ]


def test_a_port_with_another_link_rate_than_those_of_most_nodes_is_named():
    ((text, values),) = differences(
        ("n1 n2 n4", [port()]), ("n3", [port(rate="100 Gb/sec (2X EDR)")])
    )
    assert (
        text
        == "mlx5_0/1 of n3: link rate 100 Gb/sec (2X EDR); of the other nodes 400 Gb/sec (4X NDR)."
    )
    assert (values["hosts"], values["value"], values["usual"]) == (
        ("n3",),
        "100 Gb/sec (2X EDR)",
        "400 Gb/sec (4X NDR)",
    )


def test_ports_that_few_nodes_lack_are_missing_and_those_that_few_have_are_not():
    both = [port(), port("mlx5_1/1")]
    ((text, _),) = differences(("n1 n2 n4", both), ("n3", [port()]))
    assert text == "mlx5_1/1 of n3 is missing or down."
    assert differences(("n1 n2 n4", [port()]), ("n3", both)) == []


def test_of_two_kinds_of_nodes_none_differs():
    assert differences(("n1 n2", [port()]), ("n3", [port(rate="200 Gb/sec (4X HDR)")])) == []


def test_gpus_with_a_lower_power_limit_are_named_together():
    def gpus(watts, ecc=False):
        return [
            {"bus": bus, "name": "H100", "power_limit_w": watts, "ecc": ecc} for bus in ("1b", "2c")
        ]

    provenance = [
        {"hosts": ["n1", "n2", "n3"], "gpus": gpus(700.0)},
        {"hosts": ["n4"], "gpus": gpus(500.0, ecc=True)},
    ]
    power, ecc = findings_of_nodes(recorded({}, ("n1", "n2", "n3", "n4"), gpus=provenance))
    assert power.text == "1b, 2c of n4: power limit (W) 500.0; of the other nodes 700.0."
    assert (ecc.values["fact"], ecc.values["value"], ecc.values["usual"]) == ("ECC", True, False)


def test_hosts_that_find_fewer_gpus_than_others_are_critical_and_why_none_is_used_is_said():
    visible = {**dict.fromkeys(HOSTS, 8), "n2": 7, "n5": 0}
    found = findings_of_nodes(
        recorded(
            {}, HOSTS, **{GPUS_OF_HOSTS: {"visible": visible, "unused_because": "no CUDA device"}}
        )
    )
    missing = [each for each in found if each.kind == "gpus_missing"]
    assert [(each.severity, each.values["hosts"], each.values["visible"]) for each in missing] == [
        ("critical", ("n5",), 0),
        ("critical", ("n2",), 7),
    ]
    (unused,) = (each for each in found if each.kind == "gpus_unused")
    assert "no CUDA device" in unused.text


def test_if_all_hosts_find_as_many_gpus_or_none_nothing_is_said_of_them():
    alike = {"visible": dict.fromkeys(HOSTS, 8), "unused_because": None}
    for of_hosts in (alike, None):
        kinds = {
            each.kind
            for each in findings_of_nodes(recorded({}, HOSTS, **{GPUS_OF_HOSTS: of_hosts}))
        }
        assert not kinds & {"gpus_missing", "gpus_unused"}
