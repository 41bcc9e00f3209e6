"""What Slurm's commands say, as recorded on real clusters, and where they say nothing."""

import pytest
import slurm_outputs
from cli_runner import invoke

from hpccoll.common.errors import BadInputError
from hpccoll.sweep.slurm import query


def test_without_slurm_or_a_controller_that_answers_a_plan_takes_one_line(
    programs, tmp_path, monkeypatch
):
    (tmp_path / "a.yaml").write_text("algorithms: ring\nbytes: 8\nnodes: 2\n")
    command = "plan", tmp_path / "a.yaml", "--profile", "slurm"
    assert invoke(*command).is_bad_input(
        "Slurm: no scontrol on PATH", "Slurm's module", "--profile local"
    )
    programs(
        "scontrol",
        code=1,
        err="slurm_load_partitions: Unable to contact slurm controller (connect failure)\n",
    )
    assert invoke(*command).is_bad_input(
        "Slurm: no controller answers: ", "Unable to contact slurm controller"
    )
    (programs.place / "sinfo").symlink_to("/bin/sleep")
    monkeypatch.setattr(query, "ANSWER_TIMEOUT_S", 0.1)
    with pytest.raises(
        BadInputError, match=r"Slurm: no controller answers within 0.1 s: see 'scontrol ping'"
    ):
        query.slurm_output("sinfo", "9")


def test_there_is_accounting_where_sacct_answers(programs):
    assert not query.has_accounting(), "there is no sacct"
    programs("sacct", code=1, err=slurm_outputs.DISABLED)
    assert not query.has_accounting()
    programs("sacct")
    assert query.has_accounting()


def test_a_launcher_that_is_missing_or_of_an_unknown_type_is_refused(programs):
    programs("srun", slurm_outputs.MPI_TYPES)
    elsewhere = (
        "$MPI_HOME/bin/mpirun -n {ranks}",
        "~/bin/launch",
        "/opt/of/compute/nodes/srun --mpi=pmi2",
    )
    for known in (
        "srun --mpi=pmi2",
        "srun --mpi=pmix_v4",
        "srun --mpi=openmpi",
        "srun",
        "srun -n {ranks}",
        *elsewhere,
    ):
        query.check_launcher(known, may_be_elsewhere=False)
    query.check_launcher("mpirun", may_be_elsewhere=True)
    with pytest.raises(BadInputError, match=r"launcher: 'srn --mpi=pmi2' .* there is no srn"):
        query.check_launcher("srn --mpi=pmi2", may_be_elsewhere=False)
    with pytest.raises(
        BadInputError,
        match=r"launcher: 'srun --mpi=pmi3' .* that this cluster has: none, pmi2, pmix",
    ):
        query.check_launcher("srun --mpi=pmi3", may_be_elsewhere=False)
    with pytest.raises(BadInputError, match=r"launcher: .*No closing quotation"):
        query.check_launcher("srun --comment=it's", may_be_elsewhere=False)
    programs("srun", code=1)
    query.check_launcher("srun --mpi=pmi3", may_be_elsewhere=False)  # srun lists no types


LISTS = {
    "22.05": "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n",
    "21.08": "srun: MPI types are...\nsrun: pmix\nsrun: none\nsrun: pmi2\n",
}


@pytest.mark.parametrize("version", LISTS)
def test_the_types_of_mpi_are_read_from_either_stream(programs, version):
    programs("srun", LISTS[version])
    assert query.mpi_types() == ["pmix", "none", "pmi2"]
    programs("srun", err=LISTS[version])
    assert query.mpi_types() == ["pmix", "none", "pmi2"]
