"""The state of GPUs, as NVML reports it."""

import json

from fake_nvml import BUS, Nvml

from hpccoll.host import gpu_health
from hpccoll.host.gpu_health import gpu_state, print_gpu_states


def test_the_state_of_a_gpu_has_its_facts_and_its_faults():
    nvml = Nvml(
        Name="NVIDIA H100",
        CurrPcieLinkWidth=8,
        MaxPcieLinkWidth=16,
        TotalEccErrors=lambda _gpu, kind, since: 3 if (kind, since) == (1, 0) else 100,
        RemappedRows=(5, 0, 1, 0),
        CurrentClocksThrottleReasons=0x40,
        ComputeRunningProcesses=["a process"],
    )
    state = gpu_state(BUS, nvml)
    known = {name: value for name, value in state.items() if value is not None}
    assert known == {
        "name": "NVIDIA H100",
        "pcie_width": 8,
        "nvlinks": 0,
        "pcie_width_max": 16,
        "uncorrected_errors": 3,
        "remapping_pending": True,
        "remapping_failed": False,
        "clock_events": 0x40,
        "processes": 1,
    }


def test_a_gpu_that_nvml_does_not_find_has_an_error():
    assert [*gpu_state("0000:99:00.0", Nvml())] == ["error"]


def test_the_program_prints_the_gpus_of_the_driver_or_null_without_nvml(monkeypatch, capsys):
    monkeypatch.setattr(gpu_health, "gpu_addresses", lambda: [BUS])
    monkeypatch.setattr(gpu_health, "load_nvml", lambda: Nvml(Name="NVIDIA H100"))
    print_gpu_states()
    assert json.loads(capsys.readouterr().out)[BUS]["name"] == "NVIDIA H100"
    monkeypatch.setattr(gpu_health, "load_nvml", lambda: None)
    print_gpu_states()
    assert json.loads(capsys.readouterr().out) is None
