"""What NVML reports of a GPU between blocks of operations; NVML is a fake with the names of nvidia-ml-py."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from fake_nvml import BUS, Nvml

from hpccoll.host.gpu_monitor import ALL_LINKS, GpuMonitor
from hpccoll.store.schema import RANK_RESULT_MERGES


def monitor(nvml, bus=BUS):
    return GpuMonitor(bus, nvml, lambda: 0.0)


def violations(**seconds):
    """Return the answers of NVML for how long policies have lowered the clock."""
    return {
        ("ViolationStatus", f"NVML_PERF_POLICY_{policy.upper()}"): SimpleNamespace(
            violationTime=int(s * 1e9)
        )
        for policy, s in seconds.items()
    }


def test_states_are_read_after_blocks_and_counters_over_all_of_them():
    clock = SimpleNamespace(now=100.0)
    nvml = Nvml(
        {
            ("NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS): 1000,
            ("NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS): 50,
            ("PCIE_COUNT_TX_BYTES", 0): 7_000,
            ("PCIE_COUNT_RX_BYTES", 0): 0,
        },
        ClockInfo=0,
        Temperature=40,
        CurrentClocksEventReasons=0x1,
        TotalEnergyConsumption=5_000,
    )
    nvml.queries |= violations(power=1, thermal=1, sync_boost=7)
    watched = GpuMonitor(BUS, nvml, lambda: clock.now)
    nvml.queries["TotalEnergyConsumption"] = 6_000  # before the measurement
    watched.begin()
    for iterations, sm, memory, events, temperature in (
        (1, 1980, 2619, 0x0, 61),
        (9, 1200, 2619, 0x4, 65),
        (10, 1755, 1593, 0x48, 64),
    ):
        states = {("ClockInfo", "NVML_CLOCK_SM"): sm, ("ClockInfo", "NVML_CLOCK_MEM"): memory}
        nvml.queries |= states | {"CurrentClocksEventReasons": events, "Temperature": temperature}
        watched.after_block(iterations)
    nvml.fields = {
        ("NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS): 3000,
        ("NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS): 70,
        ("PCIE_COUNT_TX_BYTES", 0): 47_000,
        ("PCIE_COUNT_RX_BYTES", 0): 0,
    }
    nvml.queries |= {"TotalEnergyConsumption": 7_400_000} | violations(
        power=3.5, thermal=1.5, sync_boost=7
    )
    clock.now += 12.0
    found = watched.activity(operations=5)
    assert found == {
        "gpu_sm_clock": 1755e6,
        "gpu_memory_clock": 2619e6,
        "gpu_temperature": 65,
        "gpu_clock_events": 0x4C,
        "gpu_power": pytest.approx(7_394 / 12),
        "gpu_power_limit_s": 2.5,
        "gpu_thermal_s": 0.5,
        "gpu_sync_boost_s": 0.0,
        "gpu_nvlink_sent": 2000 * 1024 / 100,
        "gpu_nvlink_received": 204.8,
        "gpu_pcie_sent": 400.0,
        "gpu_pcie_received": 0.0,
    }
    assert found.keys() == RANK_RESULT_MERGES.keys()


def test_what_is_not_supported_is_unknown_and_never_0_and_without_nvml_is_everything(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    for nvml, bus in ((Nvml(), BUS), (Nvml(ClockInfo=1980), "0000:2a:00.0"), (None, BUS)):
        watched = monitor(nvml, bus)
        watched.after_block(3)
        assert watched.activity() == {}


def test_counters_that_wrap_decrease_or_disappear_are_unknown():
    fields = {("PCIE_COUNT_TX_BYTES", 0): 900, ("PCIE_COUNT_RX_BYTES", 0): 900}
    nvml = Nvml(fields, short=["PCIE_COUNT_TX_BYTES"], TotalEnergyConsumption=9)
    watched = monitor(nvml)
    watched.after_block(1)
    fields.update({("PCIE_COUNT_TX_BYTES", 0): 1900, ("PCIE_COUNT_RX_BYTES", 0): 100})
    del nvml.queries["TotalEnergyConsumption"]
    assert watched.activity() == {}


def test_newer_links_and_older_drivers_have_other_names():
    fields = {("NVLINK_COUNT_XMIT_BYTES", ALL_LINKS): 100}
    nvml = Nvml(fields, CurrentClocksThrottleReasons=0x20)
    watched = monitor(nvml)
    watched.after_block(2)
    fields["NVLINK_COUNT_XMIT_BYTES", ALL_LINKS] = 500
    assert watched.activity() == {"gpu_clock_events": 0x20, "gpu_nvlink_sent": 200.0}


def test_nvidia_ml_py_has_all_names(require):
    require(find_spec("pynvml"), "nvidia-ml-py is not installed")
    import pynvml

    nvml = Nvml()
    monitor(nvml)
    assert {name for name in nvml.used if not hasattr(pynvml, name)} == set()
    assert len(nvml.used) > len(RANK_RESULT_MERGES)
