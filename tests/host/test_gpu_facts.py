"""GPU facts: NVML's answers are recorded, and unsupported queries are null."""

import ctypes
import sys
from types import SimpleNamespace

import pytest
from fake_nvml import BUS, Nvml, NvmlError

from hpccoll.host.gpu_facts import (
    FACT_QUERIES,
    gpu_description,
    gpu_facts,
    gpu_provenance,
    gpus_are_shared,
    is_near,
)

H100 = {
    "Name": "NVIDIA H100 80GB HBM3",
    "nvmlSystemGetDriverVersion": "560.35.03",
    "nvmlSystemGetCudaDriverVersion": 12060,
    "MemoryInfo": SimpleNamespace(total=80 << 30),
    "ClockInfo": 1980,
    "MaxClockInfo": 1980,
    "EccMode": [1, 1],
    "EnforcedPowerLimit": 700_000,
    "PersistenceMode": 1,
    "CurrPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    ("NvLinkState", 0): 0,
    ("NvLinkState", 1): 1,
}
"""A GPU without MIG and with two NVLinks, one of them up."""


def h100():
    nvml = Nvml()
    nvml.queries = {**H100}
    return nvml


def test_facts_that_nvml_does_not_support_are_null():
    assert gpu_facts(BUS, h100()) == {
        "bus": "0000:1b:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "560.35.03",
        "cuda": "12.6",
        "memory_bytes": 80 << 30,
        "sm_clock_mhz": 1980,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 1980,
        "power_limit_w": 700.0,
        "ecc": True,
        "mig": None,
        "persistence": True,
        "pcie_generation": 5,
        "pcie_width": 16,
        "nvlinks": 1,
        "nvlink_domain": None,
    }


class FabricInfo(ctypes.Structure):
    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
    )


@pytest.mark.parametrize(
    ("cluster", "state", "domain"),
    [(b"\x01" * 16, 3, f"{'01' * 16}.7"), (bytes(16), 3, None), (b"\x01" * 16, 2, None)],
    ids=["a domain", "one host", "not joined"],
)
def test_the_nvlink_domain_of_a_gpu_is_known_if_its_nvlink_reaches_other_hosts(
    cluster, state, domain
):
    def fill(_gpu, info):
        info._obj.clusterUuid[:], info._obj.cliqueId, info._obj.state = cluster, 7, state

    nvml = Nvml(GpuFabricInfoV=fill)
    nvml.c_nvmlGpuFabricInfoV_t = FabricInfo
    assert gpu_facts(BUS, nvml)["nvlink_domain"] == domain


NOTHING = {"bus": "0000:2a:00.0", **dict.fromkeys(FACT_QUERIES)}


@pytest.mark.parametrize("installed", [False, True])
def test_all_facts_are_null_without_nvml_or_driver(monkeypatch, installed):
    def fails():
        raise NvmlError

    module = SimpleNamespace(NVMLError=NvmlError, nvmlInit=fails) if installed else None
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert gpu_facts("0000:2a:00.0") == gpu_facts("0000:2a:00.0", h100()) == NOTHING


def rank(host, bus, **more):
    return host, {"gpu": {"bus": bus, "name": "H100"}, **more}


def test_equal_gpus_of_hosts_are_listed_once_and_ranks_refer_to_them_by_address():
    verdict = {"aware": False, "library": "no", "transfer": "transfer not tested"}
    nccl = {"version": "2.28.9", "files": ["/opt/libnccl.so.2"]}
    facts = {"cuda_aware_mpi": verdict, "nccl": nccl, "event_floor_ns": 2560}
    ranks = [rank(host, bus, **facts) for host in ("n1", "n2") for bus in ("1b", "2a")]
    assert gpu_provenance(ranks) == {
        "gpus": [
            {"hosts": ["n1", "n2"], "gpus": [{"bus": bus, "name": "H100"} for bus in ("1b", "2a")]}
        ],
        "event_floor_ns_of_rank": [2560] * 4,
        "gpu_of_rank": ["1b", "2a", "1b", "2a"],
        "ranks_far_from_gpu": None,
        "ranks_seeing_one_gpu": None,
        "cuda_aware_mpi": [{"hosts": ["n1", "n2"], "verdict": verdict}],
        "nccl": [{"hosts": ["n1", "n2"], "library": nccl}],
    }
    assert not gpus_are_shared(ranks)


@pytest.mark.parametrize(
    ("ranks", "alone"),
    [
        (
            [rank("n1", "1b", visible=1), rank("n1", "2a", visible=1), rank("n2", "1b", visible=2)],
            [0, 1],
        ),
        ([rank("n1", "1b", visible=1), rank("n2", "1b", visible=1)], None),  # one rank a node
        # the node may have one GPU
        ([rank("n1", "1b", visible=1), rank("n1", "1b", visible=1)], None),
        # slices of it
        ([rank("n1", "1b", visible=1, uuid="a"), rank("n1", "1b", visible=1, uuid="b")], None),
    ],
)
def test_ranks_that_see_no_other_gpu_of_their_node_are_recorded(ranks, alone):
    assert gpu_provenance(ranks)["ranks_seeing_one_gpu"] == alone


@pytest.mark.parametrize(
    ("local", "near"),
    [
        ("0-3,8", True),
        ("9-15", False),
        ("8-15", False),
        ("2", True),
        ("", None),
        ("none", None),
        (None, None),
    ],
)
def test_a_gpu_is_near_if_most_cpus_of_the_rank_are_on_its_numa_node_or_all_of_that_node_are_its(
    tmp_path, local, near
):
    device = tmp_path / "bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    if local is not None:
        (device / "local_cpulist").write_text(f"{local}\n")
    assert is_near("0000:1B:00.0", {2, 3, 8, 9}, tmp_path) is near


def test_without_cases_on_gpus_nothing_is_recorded_and_ranks_far_from_their_gpu_are_listed():
    assert {*gpu_provenance([("n1", {})]).values()} == {None}
    ranks = [
        rank("n1", "1b", near=True),
        rank("n1", "2a", near=False),
        rank("n2", "1b", near=None),
        ("n3", {}),
    ]
    assert gpu_provenance(ranks)["ranks_far_from_gpu"] == [1]


def test_the_description_of_a_machine_counts_its_gpus():
    assert gpu_description({"visible": 8, "gpu": {"bus": "1b", "name": "NVIDIA H100"}}) == [
        "8 NVIDIA H100"
    ]
    assert gpu_description({}) == []


def test_slices_of_a_gpu_have_one_address_and_are_not_shared():
    slices = [rank("n1", "1b", uuid=f"slice-{number}") for number in (1, 2)]
    assert not gpus_are_shared(slices)
    assert gpus_are_shared([rank("n1", "1b"), rank("n2", "1b"), rank("n2", "1b")])
    assert gpus_are_shared([*slices, slices[0]])
    assert gpu_provenance(slices)["gpus"] == [
        {"hosts": ["n1"], "gpus": [{"bus": "1b", "name": "H100"}] * 2}
    ]
