"""What a launch over NCCL prints first and last, from the record of its attempt."""

from pathlib import Path

import pytest
import raw_examples
from golden_page import assert_golden

from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.printed_evidence import executed_lines, found_lines
from hpccoll.store.raw_results import RankLocation

LOGS = Path(__file__).parents[1] / "evidence" / "logs"
NCCL = {"version": "2.28.9", "files": ["/opt/libnccl.so.2"]}


def evidence(name, more=""):
    return ProbeResult(record=read_logs({name: (LOGS / name).read_text() + more})).to_json()


def gpu(nic="mlx5_0", **more):
    nics = {"distance": "PIX", "names": [nic]} if nic else None
    return {
        "name": "NVIDIA H100",
        "driver": "580.1",
        "cuda": "13.0",
        "nvlinks": 18,
        "nics": nics,
        **more,
    }


def attempt(gpus=(), nccl=({"hosts": ["n0", "n1"], "library": NCCL},), log=None, more="", **about):
    provenance = {"mpi": {"version": "MPICH 5"}, "gpus": gpus, "nccl": nccl}
    return raw_examples.attempt(
        provenance=provenance, evidence=evidence(log, more) if log else None, **about
    )


REFUSAL = (
    "n1:5:5 [0] NCCL INFO Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152\n"
)


def unknown(size, why):
    case = raw_examples.case(size, algorithm="native", **ON_GPU)
    return raw_examples.outcome(case, executed="unknown", evidence=why and f"{why} of {size}")


def ran(**sizes):
    """Return the results of NCCL's all-reduce, which ran as its log says."""
    log = "".join(
        f"n1:5:5 [0] NCCL INFO AllReduce: {size} Bytes -> Algo {name.upper()} proto {protocol} "
        "channel{Lo..Hi}={0..15}\n"
        for name, (protocol, *of_algorithm) in sizes.items()
        for size in of_algorithm
    )
    outcomes = [
        raw_examples.outcome(
            raw_examples.case(size, algorithm="native", in_place=in_place, **ON_GPU), executed=name
        )
        for name, (_, *of_algorithm) in sizes.items()
        for size in of_algorithm
        for in_place in (False, True)
    ]
    raw = raw_examples.raw(*outcomes, raw_examples.outcome(raw_examples.case(8, **ON_GPU)))
    made = ProbeResult(record=read_logs({"a.log": log})).to_json()
    raw.attempts = [(raw_examples.attempt(evidence=made), raw.attempts[0][1])]
    return raw


ON_GPU = {"device": "cuda", "transport": "nccl"}


def test_what_runs_on_gpus_begin_and_end_with():
    eight = [gpu(f"mlx5_{number}") for number in range(8)]
    slower = [{**each, "sm_clock_mhz": 900} for each in eight]
    alone = [{"hosts": ["n0"], "gpus": [gpu()]}]
    other = {"hosts": ["n1"], "gpus": [gpu(None, name="NVIDIA A100", nvlinks=0)]}
    attempts = {
        "equal nodes, no log": attempt(
            [{"hosts": ["n0"], "gpus": eight}, {"hosts": ["n1"], "gpus": slower}]
        ),
        "nodes that differ": attempt([*alone, other], log="sharp.log"),
        "one node": attempt(alone, log="nvls.log", nodes=1),
        "sockets": attempt(alone, log="socket.log"),
        "no GPU": raw_examples.attempt(),
        **{
            f"NVLS refused, {name}": attempt(alone, log=name, more=REFUSAL)
            for name in ("socket.log", "nvls.log")
        },
    }
    lines = [line for title, of in attempts.items() for line in (f"-- {title}", *found_lines(of))]
    lines += [
        "-- what ran",
        *executed_lines(ran(ring=("LL", 8, 1024), nvls=("SIMPLE", 65536, 1 << 20))),
    ]
    lines += [
        "-- what is unknown",
        *executed_lines(raw_examples.raw(unknown(8, "no line"), unknown(1024, "no line"))),
    ]
    unlogged = raw_examples.raw(unknown(8, None))
    lines += ["-- without a log", *executed_lines(unlogged)]
    unlogged.attempts = [(raw_examples.attempt(ranks=1), unlogged.attempts[0][1])]
    lines += ["-- one rank exchanges nothing", *executed_lines(unlogged)]
    assert_golden("run_evidence", lines)


@pytest.mark.parametrize(
    ("domains", "words"), [(("a.1", "b.1"), "is one NVLink domain"), (("a.1", None), None)]
)
def test_racks_of_slurm_that_are_nvlink_domains_by_nvml_are_named(domains, words):
    gpus = [
        {"hosts": [f"n{rack}"], "gpus": [gpu(nvlink_domain=domain)] * 4}
        for rack, domain in enumerate(domains)
    ]
    places = tuple(
        RankLocation(host=f"n{rack}", node=rack, clock=rack, pid=1, affinity="0", rack=rack)
        for rack in range(2)
    )
    lines = [
        line for line in found_lines(attempt(gpus, places=places)) if line.startswith("NVLink: ")
    ]
    assert (lines == []) if words is None else (words in lines[0])
