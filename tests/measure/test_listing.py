"""The listing: every transport and variant by name, with what is missing for it on a machine."""

from types import SimpleNamespace

import pytest
from commands import inside
from equipped import GPUS, RAILS, SWITCHES, equip

from hpccoll.evidence.variants import VARIANTS
from hpccoll.measure import equipment, needs
from hpccoll.measure.listing import listing


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """Have no NCCL but that of a test, an Open MPI, and CuPy."""
    monkeypatch.setattr(equipment, "sys", SimpleNamespace(path=[]))
    monkeypatch.setattr(needs, "mpi_words", lambda: "Open MPI v5.0.3")
    monkeypatch.setattr(needs, "find_spec", lambda _: "there")
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


def test_what_a_machine_has_is_available_on_it(tmp_path):
    equip(tmp_path, GPUS, SWITCHES, RAILS, {"usr/lib64/libnccl.so.2": ""})
    assert set(reasons("transports", tmp_path).values()) == {None}
    found = reasons("variants", tmp_path)
    there = {name for name, reason in found.items() if reason is None}
    assert {"nccl-ring", "nccl-nvls", "nccl-gdr-off", "nccl-sharp-off", "ucx-four-rails"} <= there
    assert not there & {"nccl-sharp", "ucc-sharp", "hcoll-sharp", "mvapich-sharp"}


def test_a_variant_is_told_with_all_that_it_sets_demands_and_is_compared_with(tmp_path):
    rows = {row["name"]: row for row in listing(tmp_path)["variants"]}
    assert list(rows) == list(VARIANTS)
    sharp = rows["nccl-sharp"]
    assert sharp["environment"]["NCCL_COLLNET_ENABLE"] == "1"
    assert (sharp["control"], sharp["transport"]) == ("nccl-sharp-off", "nccl")
    assert "COLLNET" in sharp["demands"]


def test_people_read_a_line_for_each():
    said = inside("list").out.splitlines()
    assert [line.split()[1] for line in said if line.startswith("variant ")] == list(VARIANTS)
    assert sum(line.startswith("transport ") for line in said) == 5
