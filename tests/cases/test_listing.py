"""The listing: every transport and variant by name, with what a machine lacks for it."""

from itertools import pairwise

import pytest

from hpccoll.cases import requirements
from hpccoll.cases.listing import listing, listing_lines
from hpccoll.cases.variants import named_variants
from hpccoll.training.models import MODELS
from hpccoll.training.step_keys import WORKLOAD
from hpccoll.training.workload import TRAINING_STEP


@pytest.fixture(autouse=True)
def _machine(monkeypatch, bare_machine):  # noqa: ARG001
    """Have an Open MPI and CuPy, and no NCCL but that of a test."""
    monkeypatch.setattr(requirements, "mpi_version", lambda: "Open MPI v5.0.3")
    monkeypatch.setattr(requirements, "find_spec", lambda _: "there")


def reasons(kind, root):
    """Return why each of a kind cannot run, by name."""
    return {row["name"]: row["reason"] for row in listing(root)[kind]}


def test_without_a_gpu_nothing_that_needs_one_is_available(tmp_path):
    assert reasons("transports", tmp_path) == {
        "mpi": None, "shm": None, "tiered": None, "staged": "no CUDA device", "nccl": "no CUDA device; NCCL not found",
    }  # fmt: skip
    found = reasons("variants", tmp_path)
    assert found["nccl-ring"] == "no CUDA device; NCCL not found"
    assert found["nccl-sharp"].startswith("no CUDA device; NCCL not found; no InfiniBand")
    assert found["ucx-one-rail"] == "no InfiniBand or RoCE port in use"
    assert found["mvapich-sharp-off"] == "the MPI library is not MVAPICH"


def test_the_listing_has_the_settings_and_evidence_of_variants_the_models_and_the_keys_of_a_step(tmp_path):
    found = listing(tmp_path)
    rows = {row["name"]: row for row in (*found["variants"], *found["models"], *found["workloads"])}
    assert list(rows) == [*named_variants(), *MODELS, TRAINING_STEP]
    sharp = rows["nccl-sharp"]
    assert (sharp["environment"]["NCCL_COLLNET_ENABLE"], sharp["control"], sharp["transport"]) == (
        "1", "nccl-sharp-off", "nccl",
    )  # fmt: skip
    assert "COLLNET" in sharp["demands"]
    first = [row["limits"] for row in found["variants"]]  # it holds for all cases
    assert not any(limits[scope] for limits in first for scope in ("for_collectives", "for_dtypes", "before"))
    assert (rows["resnet50"]["parameters"], rows["resnet50"]["tensors"]) == (25_557_032, 161)
    assert {name: key["default"] for name, key in rows[TRAINING_STEP]["keys"].items()} == {
        name: key.default for name, key in WORKLOAD.items()
    }


def test_the_printed_listing_has_a_line_per_entry_and_the_settings_and_limits_of_variants(tmp_path):
    found = listing(tmp_path)
    lines = [*listing_lines(found)]
    for kind in ("transports", "variants", "models", "workloads"):
        assert [line.split()[1] for line in lines if line.startswith(f"{kind[:-1]} ")] == [
            r["name"] for r in found[kind]
        ]
    below = {line.split()[1]: after.strip() for line, after in pairwise(lines) if line.startswith("variant ")}
    assert below["nccl-tree"] == "over nccl sets NCCL_ALGO=Tree; for all_reduce"
    assert below["nccl-nvls"] == (
        "over nccl sets NCCL_ALGO=NVLS; for all_reduce, reduce_scatter, all_gather; at most 1 node; "
        "at least 2 ranks per node"
    )
    assert below["nccl-one-rail"].startswith("over nccl sets NCCL_IB_HCA='=mlx5_0:1'")
    assert below["ucc-sharp"].endswith("; at least 2 nodes; at most 1 rank per node")
    assert "model resnet50 (25,557,032 parameters in 161 tensors)" in lines


def test_the_printed_listing_has_each_reason_once(tmp_path):
    found = listing(tmp_path)
    lines = [*listing_lines(found)]
    reasons = lines[lines.index("not here:") + 1 :]
    missing = {reason: names for names, _, reason in (line.strip().partition(": ") for line in reasons)}
    assert len(missing) == len(reasons)
    assert missing["no CUDA device; NCCL not found"].split(", ")[:3] == ["nccl", "nccl-ring", "nccl-tree"]
    lacking = [row["name"] for kind in ("transports", "variants") for row in found[kind] if not row["available"]]
    assert sorted(", ".join(missing.values()).split(", ")) == sorted(lacking)
