"""What a launch over NCCL prints first and last, from the record of its attempt."""

from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples

from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.printed_evidence import executed_lines, found_lines

LOGS = Path(__file__).parents[1] / "evidence" / "logs"
NCCL = {"version": "2.28.9", "files": ["/opt/libnccl.so.2"]}


def evidence(name, more=""):
    return ProbeResult(record=read_logs({name: (LOGS / name).read_text() + more})).to_json()


def gpu(nic="mlx5_0", **more):
    nics = {"distance": "PIX", "names": [nic]} if nic else None
    return {"name": "NVIDIA H100", "driver": "580.1", "cuda": "13.0", "nvlinks": 18, "nics": nics, **more}


def attempt(gpus=(), nccl=({"hosts": ["n0", "n1"], "library": NCCL},), log=None, **more):
    provenance = {"mpi": {"version": "MPICH 5"}, "gpus": gpus, "nccl": nccl}
    return raw_examples.attempt(provenance=provenance, evidence=evidence(log) if log else None, **more)


def about(lines, name):
    return [line.partition(": ")[2] for line in lines if line.partition(": ")[0].split()[0].rstrip(",") == name]


def test_equal_nodes_share_the_lines_about_gpus_links_and_adapters():
    eight = [gpu(f"mlx5_{number}") for number in range(8)]
    slower = [{**each, "sm_clock_mhz": 900} for each in eight]
    lines = list(found_lines(attempt([{"hosts": ["n0"], "gpus": eight}, {"hosts": ["n1"], "gpus": slower}])))
    (gpus,), (nics,) = about(lines, "GPUs"), about(lines, "NICs")
    assert "8 x NVIDIA H100" in gpus
    assert "18 NVLinks" in gpus
    assert "mlx5_7" in nics
    assert "balanced: each GPU has a NIC at PIX" in nics
    assert about(lines, "NCCL") == ["2.28.9 (/opt/libnccl.so.2)"]


def test_nodes_that_differ_are_named():
    found = [{"hosts": ["n0"], "gpus": [gpu()]}, {"hosts": ["n1"], "gpus": [gpu(None, name="NVIDIA A100", nvlinks=0)]}]
    lines = list(found_lines(attempt(found)))
    assert [line.partition(":")[0] for line in lines[:4]] == ["GPUs of n0", "GPUs of n1", "NICs of n0", "NICs of n1"]
    assert "no NVLink" in lines[1]
    assert "no RDMA adapter" in lines[3]


def test_nvls_and_sharp_are_as_nccls_log_says():
    found = [{"hosts": ["n0"], "gpus": [gpu()]}]
    nvls = list(found_lines(attempt(found, log="nvls.log", nodes=1)))
    assert about(nvls, "NVLS")[0].startswith("possible (NVLS multicast support is available on dev 0")
    assert about(nvls, "SHARP")[0].startswith("not possible on one node")
    sharp = list(found_lines(attempt(found, log="sharp.log")))
    assert about(sharp, "SHARP")[0].startswith("possible (SHARP rank 0/2 initialized on mlx5_0:1")
    assert about(sharp, "NVLS")[0].startswith("unknown")
    assert about(sharp, "network") == ["IBext_v10, mlx5_0:1/IB/SHARP, mlx5_1:1/IB/SHARP"]
    (refused,) = about(list(found_lines(attempt(found, log="socket.log"))), "SHARP")
    assert refused == "not requested; do: --variant nccl-sharp"


@pytest.mark.parametrize(("name", "begins"), [("socket.log", "not possible, "), ("nvls.log", "possible (NVLS")])
def test_a_refusal_of_nvls_has_its_reason_and_its_line(name, begins):
    refusal = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152"
    made = evidence(name, f"n1:5:5 [0] NCCL INFO {refusal}\n")
    of = replace(attempt([{"hosts": ["n0"], "gpus": [gpu()]}]), evidence=made)
    (nvls,) = about(list(found_lines(of)), "NVLS")
    assert nvls.startswith(begins)
    assert f"NVSwitches refuse multicast memory ({refusal})" in nvls


def test_without_a_log_what_nccl_can_do_is_unknown_with_what_to_do():
    lines = list(found_lines(attempt([{"hosts": ["n0"], "gpus": [gpu()]}])))
    assert lines[-1].startswith("network, NVLS and SHARP: unknown, no log of NCCL was read")
    assert not list(found_lines(raw_examples.attempt()))


def test_what_ran_is_named_by_ranges_of_sizes_with_the_protocol_of_nccls_lines():
    ran = {8: "ring", 1024: "ring", 65536: "nvls", 1 << 20: "nvls"}
    protocols = {8: "LL", 1024: "LL", 65536: "SIMPLE", 1 << 20: "SIMPLE"}
    log = "".join(
        f"n1:5:5 [0] NCCL INFO AllReduce: {size} Bytes -> Algo {ran[size].upper()} proto {protocols[size]} "
        "channel{Lo..Hi}={0..15}\n"
        for size in ran
    )  # fmt: skip
    on_gpu = {"device": "cuda", "transport": "nccl"}
    outcomes = [
        raw_examples.outcome(
            raw_examples.case(size, algorithm="native", in_place=in_place, **on_gpu), executed=executed
        )
        for size, executed in ran.items()
        for in_place in (False, True)
    ]
    raw = raw_examples.raw(*outcomes, raw_examples.outcome(raw_examples.case(8, **on_gpu)))
    made = ProbeResult(record=read_logs({"a.log": log})).to_json()
    raw.attempts = [(raw_examples.attempt(evidence=made), raw.attempts[0][1])]
    assert list(executed_lines(raw)) == [
        "all_reduce by NCCL: nvls, SIMPLE from 64 KiB to 1 MiB; ring, LL from 8 B to 1 KiB"
    ]


def test_what_is_unknown_has_one_reason_for_a_range_of_sizes():
    unknown = [
        raw_examples.outcome(
            raw_examples.case(size, algorithm="native", device="cuda", transport="nccl"), executed="unknown",
            evidence=evidence and f"{evidence} of {size}",
        )
        for size, evidence in ((8, "no line"), (1024, "no line"))
    ]  # fmt: skip
    assert list(executed_lines(raw_examples.raw(*unknown))) == [
        "all_reduce by NCCL: unknown from 8 B to 1 KiB (no line of 1024)"
    ]
    alone = raw_examples.raw(replace(unknown[0], evidence=None))
    (line,) = executed_lines(alone)
    assert line.startswith("all_reduce by NCCL: unknown at 8 B (no log of NCCL was read")
    alone.attempts = [(raw_examples.attempt(ranks=1), alone.attempts[0][1])]
    assert not list(executed_lines(alone))
