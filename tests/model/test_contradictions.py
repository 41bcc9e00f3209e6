"""Machine files whose sections contradict each other: refused, with the keys and the values of both."""

import json

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.model.contradictions import contradictions
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import MachineFile, read_machine


def described(kind="described", **changed):
    """Return the content of a cluster of 8 GPUs with 4 ports of 25 GB/s."""
    rate = {"latency_s": 5e-6, "bytes_per_s": {"value": 24e9, "low": 22e9, "high": 25e9}}
    return {
        "name": "mine", "kind": kind, "layout": {"ranks_per_node": 8, "rails": 4, "nodes_per_rack": 4},
        "tiers": {"node": {"latency_s": 1e-6, "bytes_per_s": 240e9}, "rack": rate, "fabric": rate},
        "port": {"bytes_per_s": {"value": 24e9, "high": 25e9}},
        "nccl": {"architecture": "ampere", "channels": 4, "intra_bytes_per_s": 24e9, "inter_bytes_per_s": 24e9},
    } | changed  # fmt: skip


NCCL = described()["nccl"]
TIERS = described()["tiers"]
CONTRADICTIONS = {
    "channels on two nodes": (
        {"nccl": NCCL | {"intra_bytes_per_s": 60e9}},
        ["nccl.channels: 4", "nccl.intra_bytes_per_s 60 GB/s = 240 GB/s", "twice layout.rails 4", "= 200 GB/s"],
    ),
    "channels": (
        {"nccl": NCCL | {"channels": 8}},
        ["nccl.channels: 8", "nccl.inter_bytes_per_s 24 GB/s = 192 GB/s", "layout.rails 4", "port.bytes_per_s 25 GB/s"],
    ),
    "rails": ({"layout": {"ranks_per_node": 8, "rails": 3}}, ["layout.rails: 3", "layout.ranks_per_node: 8"]),
    "messages in ports": (
        {"port": {"bytes_per_s": 20e9}, "nccl": None}, ["tiers.rack.bytes_per_s", "port.bytes_per_s", "20 GB/s"],
    ),
    "fabric rate": (
        {"tiers": TIERS | {"rack": {"latency_s": 5e-6, "bytes_per_s": 10e9}}},
        ["tiers.fabric.bytes_per_s", "24 GB/s", "tiers.rack.bytes_per_s", "10 GB/s"],
    ),
    "fabric latency": (
        {"tiers": TIERS | {"fabric": {"latency_s": 4e-6, "bytes_per_s": 24e9}}},
        ["tiers.fabric.latency_s: 4e-06", "tiers.rack.latency_s, 5e-06 s"],
    ),
    "uplink": (
        {"layout": {"ranks_per_node": 8, "rails": 4}, "uplink": {"oversubscription": 2}},
        ["uplink.oversubscription: 2.0", "layout.nodes_per_rack"],
    ),
    "shares of ports": (
        {"class": {"fabric": "nvlink3", "network_bytes_per_s": 24e9}},
        ["class.network_bytes_per_s: '24 GB/s'", "12 GB/s", "layout.rails 4", "port.bytes_per_s 24 GB/s"],
    ),
    "memory without tiers": ({"tiers": {}, "memory": {"bytes_per_s": 1e9}}, ["memory: ", "tiers"]),
    "uplink without tiers": ({"tiers": {}, "uplink": {"bytes_per_s": 1e9}}, ["uplink: ", "tiers"]),
    "CPUs without tiers": ({"tiers": {}, "cpus": {"cores": 2}}, ["cpus: ", "tiers"]),
    "links of a torus": (
        {"torus": {"dimensions": 3, "hop_s": 1e-7, "link_bytes_per_s": 6e9}}, ["torus.dimensions: 3", "critical_path"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_is_one_line_with_both_keys_and_values(name):
    changed, words = CONTRADICTIONS[name]
    with pytest.raises(ValueError, match=words[0].replace(".", r"\.")) as refused:
        MachineFile.of(**described(**changed))
    assert [word for word in words if word not in str(refused.value)] == []


def test_the_description_that_they_change_is_none():
    assert [*contradictions(MachineFile.of(**described()))] == []


def test_intervals_that_overlap_and_fits_whose_numbers_have_errors_are_no_contradiction():
    slower = {"bytes_per_s": {"value": 20e9, "high": 23e9}}  # the tier has 22 to 25 GB/s
    MachineFile.of(**described(port=slower, nccl=None))
    MachineFile.of(**described("fitted", port={"bytes_per_s": 20e9}, nccl=None))
    # fewer than ports: a limit of the user
    MachineFile.of(**described(nccl=NCCL | {"channels": 2}))
    # one message does not use all channels
    slow_inside = TIERS | {"node": {"latency_s": 1e-6, "bytes_per_s": 80e9}}
    MachineFile.of(**described(tiers=slow_inside))


@pytest.mark.parametrize("name", cluster_names())
def test_no_shipped_cluster_contradicts_itself(name):
    assert [*contradictions(read_machine(name, "--cluster"))] == []


def test_the_published_case_is_refused_as_bad_input(tmp_path):
    """4 ports of 200 Gbit/s, and 8 channels of NCCL, as of nccl-tests#100."""
    content = read_machine("8xa100-200g", "--cluster").model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    content["layout"]["rails"] = 4
    (tmp_path / "a.yaml").write_text(json.dumps(content))
    with pytest.raises(BadInputError, match=r"a\.yaml: nccl\.channels: 8 .* layout\.rails 4 x"):
        read_machine(tmp_path / "a.yaml", "--cluster")
