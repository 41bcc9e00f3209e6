"""Measurements for a counted program use the MPI library that the program ran on."""

from dataclasses import replace

import pytest
from counted_examples import CountedRankExample

from hpccoll.common.errors import UnusableError
from hpccoll.sweep import program_library
from hpccoll.sweep.counted_launch import join_rank_files
from hpccoll.sweep.program_library import library_variables

OPEN_MPI = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"
MPICH = "MPICH Version:      5.0.2"
LAUNCHER = """#!/bin/sh
test "$1" = --version && exit
for rank in 0 1; do echo "{size} {version}, by $MPI4PY_LIBMPI"; done
"""
"""A launcher whose ranks say of which library they are."""


@pytest.fixture
def finds(monkeypatch):
    """Let mpi4py find a library here."""

    def finds(version):
        monkeypatch.setattr(program_library, "mpi_version", lambda: version)

    return finds


@pytest.fixture
def launcher(monkeypatch, tmp_path):
    """Have one launcher on this machine, which Debian's packages name after the library."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def launcher(version, size=2, name="mpiexec.openmpi"):
        path = tmp_path / name
        path.write_text(LAUNCHER.format(version=version, size=size))
        path.chmod(0o755)
        return str(path)

    return launcher


@pytest.fixture
def job_of(tmp_path):
    """Return a job that was counted on a library."""

    def job_of(version):
        abi = version.partition(" v")[0]
        CountedRankExample(version=version, abi=abi, size=1).write(tmp_path / "ranks")
        return join_rank_files(tmp_path / "ranks")

    return job_of


@pytest.mark.parametrize("version", [MPICH, OPEN_MPI])
def test_the_library_that_mpi4py_finds_anyway_needs_no_variable(finds, job_of, version):
    finds(version)
    assert library_variables(job_of(version), "local", None) == {}


@pytest.mark.parametrize("found", [MPICH, "", "Open MPI v5.0.11"])
def test_ranks_on_this_machine_load_the_programs_library_by_a_launcher_that_connects_them(
    finds, job_of, launcher, found
):
    finds(found)
    path = launcher(OPEN_MPI)
    variables = library_variables(job_of(OPEN_MPI), "local", None)
    assert variables == {"MPI4PY_LIBMPI": "/usr/lib/libmpi.so.12", "HPCCOLL_MPIEXEC": path}


@pytest.mark.parametrize(("version", "size"), [(MPICH, 2), (OPEN_MPI, 1), ("", 2)])
def test_ranks_of_another_library_or_that_start_alone_are_refused(
    finds, job_of, launcher, version, size
):
    finds(MPICH)
    launcher(version, size)
    with pytest.raises(UnusableError) as refused:
        library_variables(job_of(OPEN_MPI), "local", None)
    message = str(refused.value)
    for word in ("Open MPI v4.1.4", "/usr/lib/libmpi.so.12", "MPICH 5.0.2", "HPCCOLL_MPIEXEC"):
        assert word in message


@pytest.mark.usefixtures("launcher")
def test_another_version_of_the_same_library_is_measured_if_the_programs_cannot_be(finds, job_of):
    finds("Open MPI v5.0.11")
    assert library_variables(job_of(OPEN_MPI), "local", None) == {}


def test_on_a_cluster_another_library_is_refused_unless_the_site_file_may_bring_it(
    finds, job_of, tmp_path
):
    finds(MPICH)
    job = job_of(OPEN_MPI)
    with pytest.raises(UnusableError, match="modules"):
        library_variables(job, "slurm", None)
    site = tmp_path / "site.yaml"
    site.write_text("modules: [openmpi]\n")
    assert library_variables(job, "slurm", str(site)) == {}
    finds(OPEN_MPI)
    assert library_variables(job, "slurm", None) == {}


def test_the_launcher_of_a_command_comes_first(job_of, launcher, finds):
    finds("")
    own = launcher(OPEN_MPI, name="mpirun.mine")
    launcher(OPEN_MPI)
    job = replace(job_of(OPEN_MPI), command="mpirun.mine -n 2 ./app")
    assert library_variables(job, "local", None)["HPCCOLL_MPIEXEC"] == own
