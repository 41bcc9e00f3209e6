"""``hpccoll sweep``: what it says of the diagnoses of its jobs."""

import os

import pytest
import raw_examples
from cli_runner import invoke
from recorded_diagnoses import recorded

from hpccoll.cases.plan import Launcher, Plan
from hpccoll.cli.sweep import print_diagnoses
from hpccoll.diagnosis.diagnosis_file import write_diagnosis
from hpccoll.diagnosis.slot_records import Component

JOBS = tuple(
    raw_examples.job(raw_examples.case(8, ranks=n, nodes=n), name=f"mpi.n{n}x1", ranks=n, nodes=n)
    for n in (1, 2, 4)
)
PLAN = Plan(
    name="x",
    profile="slurm",
    jobs=JOBS,
    skips=(),
    launcher=Launcher(command="env"),
    resources={},
    estimated_s=1,
    diagnose=(),
)


def diagnosed(out, name, *faults, age_s=0, seed=0):
    file = out / "raw" / name
    file.parent.mkdir(exist_ok=True)
    write_diagnosis(recorded(8, *faults, seed=seed), file)
    os.utime(file, (file.stat().st_mtime - age_s,) * 2)


def test_a_job_on_slow_nodes_is_not_forgotten_if_another_one_has_healthy_nodes(tmp_path, capsys):
    diagnosed(tmp_path, "mpi.n2x1.diagnosis-1.h5", (Component("node", (2,)), 25), age_s=60)
    diagnosed(tmp_path, "mpi.n4x1.diagnosis-2.h5", seed=1)
    assert print_diagnoses(PLAN, tmp_path) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "diagnosis of mpi.n2x1:"
    assert lines[1].startswith("n2 is slow")
    assert "--exclude=n2" in lines
    assert lines[lines.index("diagnosis of mpi.n4x1:") + 1].startswith("no node or link is slow")


def test_only_the_newest_diagnosis_of_a_job_of_the_plan_counts(tmp_path):
    slow = Component("node", (2,)), 25
    diagnosed(tmp_path, "mpi.n2x1.diagnosis-1.h5", slow, age_s=60)
    diagnosed(tmp_path, "other.n2x1.diagnosis-1.h5", slow)
    diagnosed(tmp_path, "mpi.n2x1.diagnosis-2.h5")
    diagnosed(tmp_path, "mpi.n4x1.diagnosis-3.h5")
    assert print_diagnoses(PLAN, tmp_path) == 0


def test_a_job_without_a_diagnosis_is_named(tmp_path, capsys):
    diagnosed(tmp_path, "mpi.n2x1.diagnosis-1.h5")
    assert print_diagnoses(PLAN, tmp_path) == 3
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "diagnosis of mpi.n4x1:"
    assert "logs has its output" in printed.err


@pytest.mark.parametrize("name", ["o{x}", "a: b"])
def test_a_directory_whose_name_snakemake_would_change_is_refused_before_anything_is_written(
    name, tmp_path
):
    result = invoke("sweep", "--out", tmp_path / name)
    assert result.is_bad_input("--out", name, "a path without braces")
    assert [*tmp_path.iterdir()] == []
