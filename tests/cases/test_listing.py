"""The listing: every transport and variant by name, with what a machine lacks for it."""

import pytest

from hpccoll.cases import requirements
from hpccoll.cases.listing import listing, listing_lines
from hpccoll.cases.variants import named_variants
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.models import MODELS
from hpccoll.extensions.steps.training.step_keys import WORKLOAD


@pytest.fixture(autouse=True)
def _machine(monkeypatch, bare_machine):  # noqa: ARG001
    """Have an Open MPI and CuPy, and no NCCL but that of a test."""
    monkeypatch.setattr(requirements, "mpi_version", lambda: "Open MPI v5.0.3")
    monkeypatch.setattr(requirements, "find_spec", lambda _: "there")


def test_the_listing_has_the_settings_and_evidence_of_variants_the_models_and_the_keys_of_a_step(
    tmp_path,
):
    found = listing(tmp_path)
    rows = {row["name"]: row for row in (*found["variants"], *found["models"], *found["workloads"])}
    assert list(rows) == [*named_variants(), *MODELS, TRAINING_STEP]
    sharp = rows["nccl-sharp"]
    assert (sharp["environment"]["NCCL_COLLNET_ENABLE"], sharp["control"], sharp["transport"]) == (
        "1",
        "nccl-sharp-off",
        "nccl",
    )
    assert "COLLNET" in sharp["demands"]
    first = [row["limits"] for row in found["variants"]]  # it holds for all cases
    assert not any(
        limits[scope] for limits in first for scope in ("for_collectives", "for_dtypes", "before")
    )
    assert (rows["resnet50"]["parameters"], rows["resnet50"]["tensors"]) == (25_557_032, 161)
    assert {name: key["default"] for name, key in rows[TRAINING_STEP]["keys"].items()} == {
        name: key.default for name, key in WORKLOAD.items()
    }


@pytest.fixture
def printed(tmp_path):
    return list(listing_lines(listing(tmp_path)))


BEGINNINGS = {
    "algorithms": "{collective} {name}",
    "transports": "transport {name}",
    "models": "model {name}",
}


@pytest.mark.parametrize("table", BEGINNINGS)
def test_each_entry_has_one_line(printed, tmp_path, table):
    for row in listing(tmp_path)[table]:
        begin = BEGINNINGS[table].format(**row)
        lines = [line for line in printed if line == begin or line.startswith(f"{begin} ")]
        assert len(lines) == 1, begin


def test_a_variant_is_printed_with_its_settings_and_its_limits(printed):
    at = next(i for i, line in enumerate(printed) if line.startswith("variant nccl-pat "))
    assert printed[at].endswith(", not here")
    settings, *limits = printed[at + 1].split("; ")
    assert settings.split() == ["over", "nccl", "sets", "NCCL_ALGO=PAT"]
    assert limits == ["for reduce_scatter, all_gather", "at most 1 rank per node"]


def test_variants_of_the_algorithms_of_a_library_are_one_entry(printed):
    assert sum(line.startswith("variant openmpi-") for line in printed) == 1
    at = next(i for i, line in enumerate(printed) if line.startswith("variant openmpi-ALGORITHM"))
    assert "    for all_reduce: " in printed[at + 1]
    assert "ring" in printed[at + 1].replace(",", "").split()


def test_what_is_not_here_is_named_once_with_its_reason(printed, tmp_path):
    missing = printed[printed.index("not here:") + 1 :]
    reasons = [line.partition(": ")[2] for line in missing]
    assert len(set(reasons)) == len(reasons)
    named = [name for line in missing for name in line.partition(": ")[0].split()]
    names = [name.rstrip(",") for name in named]
    assert len(set(names)) == len(names)
    transports = listing(tmp_path)["transports"]
    assert {row["name"] for row in transports if not row["available"]} <= set(names)
    assert "the MPI library is not MPICH" in reasons


def test_without_a_gpu_the_transport_peer_is_listed_with_the_reason(tmp_path):
    rows = {row["name"]: row for row in listing(tmp_path)["transports"]}
    assert (rows["peer"]["available"], rows["peer"]["reason"]) == (False, "no CUDA device")
