"""The listing: every transport and variant by name, with what a machine lacks for it."""

from pathlib import Path

import pytest
from golden_page import assert_golden

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


def test_the_printed_listing_of_a_machine_without_gpus(tmp_path):
    """A line for each entry, with the settings and limits of variants, and each reason once."""
    assert_golden("listing", listing_lines(listing(tmp_path)), Path(__file__).parent / "golden")
