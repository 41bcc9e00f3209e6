"""Where the workflow and the launcher are found."""

import os
import sys

import pytest
from cli_runner import invoke

from hpccoll.common.errors import BadInputError
from hpccoll.sweep import paths


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """A machine whose only mpiexec says what the test wants."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")

    def says(text):
        path = tmp_path / "mpiexec"
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)

    return says


@pytest.mark.usefixtures("launcher")
def test_no_launcher_takes_one_line_that_says_what_to_do(tmp_path):
    (tmp_path / "a.yaml").write_text("algorithms: ring\nbytes: 8\nranks: 2")
    with pytest.raises(BadInputError, match="launcher: no mpiexec in "):
        paths.mpiexec_command()
    for command in (["plan"], ["sweep", "--out", tmp_path / "out"]):
        result = invoke(*command, tmp_path / "a.yaml")
        assert result.is_bad_input(
            "mpiexec", str(tmp_path), "pip install 'hpccoll[local]'", "MPI module"
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_JOBID"])
def test_in_a_session_of_slurm_mpich_starts_ranks_here_and_not_by_srun(launcher, monkeypatch, name):
    launcher("HYDRA build details: Version: 5.0.2")
    monkeypatch.setenv(name, "77")
    assert paths.mpiexec_command() == ["mpiexec", "-launcher", "fork", "-host", "localhost"]


def test_mpich_needs_no_options(launcher, monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_JOBID"):
        monkeypatch.delenv(name, raising=False)
    launcher("HYDRA build details: Version: 5.0.2")
    assert paths.mpiexec_command() == ["mpiexec"]


@pytest.mark.parametrize(
    "text", ["mpirun (Open MPI) 4.1.6", "mpirun (OpenRTE) 4.1", "prterun (PRRTE) 3.0"]
)
def test_open_mpi_gets_the_option_for_shared_cores(launcher, monkeypatch, text):
    launcher(text)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert paths.mpiexec_command() == ["mpiexec", "--oversubscribe", "--allow-run-as-root"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert paths.mpiexec_command() == ["mpiexec", "--oversubscribe"]


def test_a_variable_names_another_launcher(launcher, monkeypatch, tmp_path):
    launcher("HYDRA build details: Version: 5.0.2")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOBID", raising=False)
    own = tmp_path / "mpiexec.own"
    own.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    own.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HPCCOLL_MPIEXEC", str(own))
    assert paths.mpiexec_command() == [str(own), "--oversubscribe"]
    monkeypatch.setenv("HPCCOLL_MPIEXEC", "absent")
    with pytest.raises(BadInputError, match="HPCCOLL_MPIEXEC"):
        paths.mpiexec_command()
