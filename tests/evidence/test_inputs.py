"""``hpccoll evidence`` on the logs that people have: the facts about each log of tests/inputs, and the exit code."""

import json
from pathlib import Path

import pytest
from cli_runner import invoke

INPUTS = Path(__file__).parents[1] / "inputs"

PLAIN = {
    "library": "nccl", "version": "2.27.5", "ranks": 4, "nodes": 2, "network": ["IB"], "gdr": True,
    "devices": ["mlx5_0:1/RoCE", "mlx5_1:1/RoCE"], "paths": {"NET/IB/GDRDMA": 1}, "warnings": [],
    "executed": [("all_reduce", 8 << 20, "ring")],
}  # fmt: skip
"""The facts of one log, which other files have behind prefixes, or with repetitions."""

NOT_RDMA = "RDMA was expected and TCP was used"
NO_DEVICE = "NCCL finds no RDMA device"

CASES = [
    (
        "nccl-2.10-two-nodes-libibverbs", "rdma", 3,
        {"version": "2.10.3", "network": ["Socket"], "red": NOT_RDMA, "reasons": "there is no libibverbs"},
    ),
    ("nccl-2.18-one-node-socket", None, 0, {"version": "2.18.5", "ranks": 4, "nodes": 1, "paths": {"SHM/direct": 4}}),
    ("nccl-2.18-one-node-socket", "rdma", 0, {"nodes": 1, "network": ["Socket"], "reasons": NO_DEVICE}),
    ("nccl-2.18-one-node-socket", "tcp", 0, {"nodes": 1}),
    ("nccl-2.8-tuning-table", None, 0, {"version": "2.8.3", "settings": {"NCCL_ALGO": "Ring"}, "modelled": 3}),
    (
        "nccl-2.9-efa", "rdma", 0,
        {"version": "2.9.9", "network": ["AWS Libfabric"], "gdr": True, "plugins": {"fabric": "efa"}},
    ),
    ("nccl-2.9-efa", "tcp", 3, {"red": "TCP was expected and RDMA was used"}),
    ("nccl-cloudwatch-timestamps", "rdma", 0, PLAIN),
    (
        "nccl-host-in-angle-brackets", None, 0,
        {"library": "nccl", "nodes": None, "network": ["Socket"], "paths": {"NET/Socket": 1}, "reasons": NO_DEVICE},
    ),
    ("nccl-host-in-angle-brackets", "rdma", 3, {"red": NOT_RDMA}),
    ("nccl-kubectl-timestamps", "rdma", 0, PLAIN),
    (
        "nccl-lines-with-device-only", None, 0,
        {"version": "2.23.4", "network": ["IB"], "choices": ["768 MiB by ring SIMPLE"], "executed": []},
    ),
    (
        "nccl-lines-without-host", None, 0,
        {"version": "2.24.3", "network": ["IBext_v8"], "executed": [("all_reduce", 8 << 20, "nvls")]},
    ),
    (
        "nccl-nvls-multicast-fails", None, 3,
        {
            "version": "2.26.2", "red": "a communicator was not created: transport/nvls.cc:254: Cuda failure 401",
            "reasons": "its set-up failed", "callers": "transport/nvls.cc:409 -> 1, init.cc:1330 -> 1",
        },
    ),
    ("nccl-plain-for-comparison", "rdma", 0, PLAIN),
    ("nccl-ray-prefix", "rdma", 0, PLAIN),
    ("nccl-torchrun-rank-prefix", "rdma", 0, PLAIN),
    (
        "rccl-two-nodes-socket", None, 0,
        {
            "library": "rccl", "version": "2.16.5", "paths": {"NET/Socket": 4, "P2P/IPC": 4}, "reasons": NO_DEVICE,
            "warned": "init.cpp:126: Missing",
        },
    ),
    ("rccl-two-nodes-socket", "rdma", 3, {"red": f"{NOT_RDMA} (RCCL"}),
    (
        "ucc-no-teams", None, 3,
        {
            "library": "ucc", "red": "UCC is not used: no team was created (ucc_team.c:294: No CL teams were created)",
            "warned": "cl_basic_team.c:131: no tl teams were created",
        },
    ),
]  # fmt: skip
"""Name of a log, the expected network, the exit code, and facts."""


def facts(launch):
    """Return the record of a launch, with what the tests look for in one text each."""
    record = launch["record"]
    return {
        **record, "red": launch["red"] or "", "modelled": len(record["model"]),
        "executed": [(one["collective"], one["bytes"], one["executed"]) for one in launch["executed"]],
        "reasons": ", ".join(one["reason"] for one in record["unavailable"]), "warned": ", ".join(record["warnings"]),
        "callers": ", ".join(one["callers"] for one in record["failures"]),
    }  # fmt: skip


TEXTS = ("red", "reasons", "warned", "callers")
"""The facts of which a part is expected."""


@pytest.mark.parametrize(("name", "network", "code", "expected"), CASES, ids=[f"{c[0]} {c[1] or ''}" for c in CASES])
def test_a_log_that_people_have_is_reported_with_its_facts_and_exit_code(name, network, code, expected):
    path = INPUTS / f"{name}.log"
    options = ["--network", network] if network else []
    ran = invoke("evidence", path, "--json", *options)
    found = facts(json.loads(ran.out)["launches"][0])
    assert (ran.code, ran.err, len(json.loads(ran.out)["launches"])) == (code, "", 1)
    assert bool(found["red"]) == (code == 3)
    assert {key: found[key] for key in expected if key not in TEXTS} == {
        key: value for key, value in expected.items() if key not in TEXTS
    }
    assert {key: part for key, part in expected.items() if key in TEXTS and part not in found[key]} == {}
    report = invoke("evidence", path, *options)
    assert (report.code, report.out.startswith("WRONG: ")) == (code, code == 3)


def test_the_table_has_every_log():
    assert {name for name, *_ in CASES} == {path.stem for path in INPUTS.glob("*.log")}


def test_a_set_up_of_nvls_that_failed_is_not_reported_as_available():
    out = invoke("evidence", INPUTS / "nccl-nvls-multicast-fails.log").out
    assert "available" not in out
    assert out.count("transport/nvls.cc:254") == 2, (
        "as the cause of the failure, and as the reason why NVLS is not used"
    )
