"""The listing: every transport and variant by name, with what a machine lacks for it."""

from types import SimpleNamespace

import pytest
from cli_runner import invoke
from fake_machine_files import GPUS, RAILS, SWITCHES, equip

from hpccoll.cases import requirements
from hpccoll.cases.listing import listing, listing_lines
from hpccoll.cases.variants import named_variants
from hpccoll.host import gpu_stack
from hpccoll.training.models import MODELS
from hpccoll.training.step_keys import WORKLOAD
from hpccoll.training.workload import TRAINING_STEP


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """Have no NCCL but that of a test, an Open MPI, and CuPy."""
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[]))
    monkeypatch.setattr(requirements, "mpi_version", lambda: "Open MPI v5.0.3")
    monkeypatch.setattr(requirements, "find_spec", lambda _: "there")
    for name in ("LD_LIBRARY_PATH", "CONDA_PREFIX", "NCCL_HOME", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)


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


def test_supported_transports_and_variants_are_available(tmp_path):
    equip(tmp_path, GPUS, SWITCHES, RAILS, {"usr/lib64/libnccl.so.2": ""})
    assert set(reasons("transports", tmp_path).values()) == {None}
    found = reasons("variants", tmp_path)
    there = {name for name, reason in found.items() if reason is None}
    assert {"nccl-ring", "nccl-nvls", "nccl-gdr-off", "nccl-sharp-off", "ucx-four-rails"} <= there
    assert not there & {"nccl-sharp", "ucc-sharp", "hcoll-sharp", "mvapich-sharp"}


def test_a_variant_lists_its_settings_evidence_and_control(tmp_path):
    rows = {row["name"]: row for row in listing(tmp_path)["variants"]}
    assert list(rows) == list(named_variants())
    sharp = rows["nccl-sharp"]
    assert sharp["environment"]["NCCL_COLLNET_ENABLE"] == "1"
    assert (sharp["control"], sharp["transport"]) == ("nccl-sharp-off", "nccl")
    assert "COLLNET" in sharp["demands"]


def test_the_first_limit_of_a_variant_holds_for_all_cases(tmp_path):
    for row in listing(tmp_path)["variants"]:
        assert not any(row["limits"][scope] for scope in ("for_collectives", "for_dtypes", "before"))


def test_the_printed_listing_has_a_line_per_entry_and_the_settings_and_limits_of_variants():
    lines = invoke("list").out.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("variant ")]
    assert [lines[place].split()[1] for place in places] == list(named_variants())
    assert sum(line.startswith("transport ") for line in lines) == 5
    below = {lines[place].split()[1]: lines[place + 1].strip() for place in places}
    assert below["nccl-tree"] == "over nccl sets NCCL_ALGO=Tree; for all_reduce"
    assert below["nccl-nvls"] == (
        "over nccl sets NCCL_ALGO=NVLS; for all_reduce, reduce_scatter, all_gather; at most 1 node; "
        "at least 2 ranks per node"
    )
    assert below["nccl-one-rail"].startswith("over nccl sets NCCL_IB_HCA='=mlx5_0:1'")
    assert below["ucc-sharp"].endswith("; at least 2 nodes; at most 1 rank per node")


def test_the_listing_has_the_models_with_their_parameters_and_tensors(tmp_path):
    rows = {row["name"]: row for row in listing(tmp_path)["models"]}
    assert list(rows) == list(MODELS)
    assert (rows["resnet50"]["parameters"], rows["resnet50"]["tensors"]) == (25_557_032, 161)
    lines = invoke("list").out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("model ")] == list(MODELS)
    assert "model resnet50 (25,557,032 parameters in 161 tensors)" in lines


def test_the_listing_has_the_training_step_with_its_keys(tmp_path):
    (row,) = listing(tmp_path)["workloads"]
    assert row["name"] == TRAINING_STEP
    assert {name: key["default"] for name, key in row["keys"].items()} == {
        name: key.default for name, key in WORKLOAD.items()
    }
    (line,) = [line for line in invoke("list").out.splitlines() if line.startswith("workload ")]
    assert line.startswith("workload training_step model=resnet50 scale=1 ")


def test_the_printed_listing_has_each_reason_once(tmp_path):
    found = listing(tmp_path)
    lines = [*listing_lines(found)]
    reasons = lines[lines.index("not here:") + 1 :]
    missing = {reason: names for names, _, reason in (line.strip().partition(": ") for line in reasons)}
    assert len(missing) == len(reasons)
    assert missing["no CUDA device; NCCL not found"].split(", ")[:3] == ["nccl", "nccl-ring", "nccl-tree"]
    lacking = [row["name"] for kind in ("transports", "variants") for row in found[kind] if not row["available"]]
    assert sorted(", ".join(missing.values()).split(", ")) == sorted(lacking)
