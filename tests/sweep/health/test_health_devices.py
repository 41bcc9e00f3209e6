"""The devices of a node that is checked, on machines of files."""

import time

import pytest
from fake_machine_files import GPUS, adapter, equip

from hpccoll.diagnosis.node_health import NodeState
from hpccoll.sweep.health import devices, rates
from hpccoll.sweep.health.checked_node import CheckedNode, MeasurementError

BUS, SECOND = "0000:19:00.0", "0000:3b:00.0"
WELL = {"name": "NVIDIA H100", "pcie_width": 16, "pcie_width_max": 16, "nvlinks": 18}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a function that returns a node of such files."""
    monkeypatch.delenv("NCCL_IB_HCA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def node(*parts):
        return CheckedNode(time.monotonic() + 60, equip(tmp_path / "machine", *parts))

    return node


@pytest.fixture
def node_with_gpus(node):
    """Return a function that returns a node whose first GPU has such a state, and whose second one is well."""

    def node_with_gpus(**state):
        checked = node(GPUS)
        checked.gpu_answer = {BUS: {**WELL, **state}, SECOND: WELL}
        return checked

    return node_with_gpus


def kinds(state):
    return [finding.kind for finding in state.findings if finding.severity == "critical"]


def test_the_host_has_cpus_and_memory(node):
    facts = devices.host(node()).facts["host"]
    assert facts["CPUs"] >= 1
    assert facts["memory (GiB)"] > 0


def test_a_port_has_its_state_rate_mtu_and_pcie_link(node):
    roce = adapter("mlx5_0", layer="Ethernet", interface="eth0")
    assert devices.ports(node(roce)).facts["port mlx5_0:1"] == {
        "state": "ACTIVE",
        "rate (Gbit/s)": 400.0,
        "MTU": 9000,
        "PCIe (Gbit/s)": 504.1,
    }


def test_a_slow_pcie_link_is_said_and_a_reference_decides(node):
    state = devices.ports(node(adapter("mlx5_0", "16.0 GT/s PCIe x16")))
    assert [(finding.kind, finding.severity) for finding in state.findings] == [
        ("pcie_slow", "warning")
    ]


COUNTERS = "sys/class/infiniband/mlx5_0/ports/1/counters/"


@pytest.mark.parametrize(
    ("counter", "increase", "found"),
    [
        ("link_downed", 1, ["link_unstable"]),
        ("symbol_error", devices.MOST_BIT_ERRORS, []),
        ("symbol_error", devices.MOST_BIT_ERRORS + 1, ["port_errors"]),
    ],
)
def test_errors_of_a_port_count_from_the_begin_of_the_check(node, counter, increase, found):
    before = 1000
    checked = node(adapter("mlx5_0"), {f"{COUNTERS}{counter}": str(before)})
    assert kinds(devices.ports(checked)) == []
    (checked.root / COUNTERS / counter).write_text(str(before + increase))
    assert kinds(devices.ports(checked)) == found


def test_a_node_without_gpus_says_nothing_of_them(node):
    state = devices.gpus(node())
    assert (dict(state.facts), list(state.findings)) == ({}, [])


def test_healthy_gpus_have_facts_and_no_fault(node_with_gpus):
    state = devices.gpus(node_with_gpus())
    assert [*state.facts] == [f"GPU {BUS}", f"GPU {SECOND}"]
    assert state.facts[f"GPU {BUS}"]["nvlinks"] == 18
    assert list(state.findings) == []


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"error": "GPU is lost"}, "gpu_silent"),
        ({"uncorrected_errors": 2}, "gpu_memory_errors"),
        ({"remapping_failed": True}, "gpu_memory_errors"),
        ({"remapping_pending": True}, "gpu_memory_errors"),
        ({"pcie_width": 8}, "gpu_pcie_narrow"),
        ({"nvlinks": 12}, "gpu_nvlinks"),
        ({"clock_events": 0x40}, "gpu_throttled"),
    ],
)
def test_a_fault_of_a_gpu_needs_no_reference(node_with_gpus, fault, kind):
    state = devices.gpus(node_with_gpus(**fault))
    assert kinds(state) == [kind]
    assert BUS in state.findings[0].text


@pytest.mark.parametrize(
    "harmless", [{"clock_events": 0x1}, {"clock_events": 0x40, "processes": 1}]
)
def test_idle_clocks_and_heat_at_work_are_no_faults(node_with_gpus, harmless):
    assert kinds(devices.gpus(node_with_gpus(**harmless))) == []


def test_without_nvml_the_state_of_gpus_is_unknown_and_the_gpus_are_known(node):
    checked = node(GPUS)
    checked.gpu_answer = {}
    state = devices.gpus(checked)
    assert [finding.kind for finding in state.findings] == ["gpu_state_unknown"]
    assert len(state.facts) == 2


def test_a_driver_that_does_not_answer_is_a_fault(node, monkeypatch):
    asked = []

    def ask(self, *about):
        asked.append(about)
        return self.run(["/bin/sleep", "1000"], "x", 1)

    checked = node(GPUS)
    monkeypatch.setattr(CheckedNode, "ask", ask)
    with pytest.raises(MeasurementError) as raised:
        devices.gpus(checked)
    assert (raised.value.finding.kind, raised.value.finding.severity) == ("hangs", "critical")
    assert (rates.gpu_copies(checked), rates.nccl_all_reduce(checked)) == (NodeState(), NodeState())
    assert len(asked) == 1
