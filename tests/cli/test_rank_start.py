"""What a rank imports and opens when it starts: thousands of ranks do so at once, on one file system."""

import json
from pathlib import Path

import pytest

MODULES = 340
"""The most modules that a rank may import which only measures; NumPy, mpi4py, msgspec and what they import are 220."""

OPENS = 550
"""The most files that its Python code may open, also if no module is compiled yet; MPI_Init opens others."""

MODULES_OF_FIRST = 590
"""The most modules that rank 0 may import, which also reads the job, decides, writes and reports."""


@pytest.fixture
def counts(mpiexec, tmp_path):
    """Return what each of two ranks has imported and opened, by rank, after an all-reduce by ring."""
    program = Path(__file__).with_name("counted_start.py")
    options = ["run", "-a", "ring", "-b", "8", "-e", "8", "-n", "5", "--rounds", "1", "--out"]
    ran = mpiexec(2, program, tmp_path, *options, tmp_path / "ring.h5")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.mpi
def test_a_rank_imports_and_opens_little(counts):
    assert len(counts[1]["modules"]) <= MODULES
    assert counts[1]["opens"] <= OPENS
    assert len(counts[0]["modules"]) <= MODULES_OF_FIRST


@pytest.mark.mpi
def test_a_rank_imports_only_what_its_cases_need(counts):
    """Rank 0 also reads the job, decides which cases are made and in which order, writes and reports."""
    first, second = (set(of_rank["modules"]) for of_rank in counts)
    reporting = {"h5py", "hpccoll.render", "hpccoll.store.journal", "hpccoll.evidence.log_set"}
    deciding = {
        "hpccoll.cases.skip_reason",
        "hpccoll.cases.variants",
        "hpccoll.measure.run.round_order",
    }
    assert reporting | deciding <= first
    of_other_cases = {
        "hpccoll.extensions.steps.training.training_step",
        "hpccoll.transports.gpu",
        "hpccoll.transports.nccl",
        "hpccoll.measure.deadline_sync",
    }
    not_needed = {"numpy.random", "shutil", "socket", "subprocess"}
    assert not (reporting | deciding | of_other_cases | not_needed) & second
    pages = {name for name in first | second if name.startswith("hpccoll.algorithms.")}
    assert pages == {"hpccoll.algorithms.ring"}
