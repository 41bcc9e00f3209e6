"""A machine whose programs answer as a test wants."""

import os

import planning_inputs as sweeps
import pytest
import slurm_outputs

from hpccoll.sweep.planner import make_plan


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Write programs; no others are on PATH.

    ``programs(name, text, code=0, err="")`` answers any call with ``text``, or with that of the
    first of its keys that is among the arguments, where it is a dictionary. ``programs.calls()``
    are the command lines so far.
    """
    place = tmp_path / "programs"
    place.mkdir()
    log = tmp_path / "calls"
    monkeypatch.setenv("PATH", str(place))
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)

    def program(name, text="", code=0, err=""):
        replies = text if isinstance(text, dict) else {"": text}
        cases = []
        for number, (words, reply) in enumerate(replies.items()):
            answer = place / f".{name}.{number}"
            answer.write_text(reply)
            cases.append(f'*"{words}"*) /bin/cat {answer} ;;')
        complaint = place / f".{name}.err"
        complaint.write_text(err)
        script = [
            "#!/bin/sh",
            f'echo "{name} $*" >> {log}',
            'case "$*" in',
            *cases,
            "esac",
            f"/bin/cat {complaint} >&2",
            f"exit {code}",
        ]
        (place / name).write_text("\n".join(script) + "\n")
        (place / name).chmod(0o755)

    program.calls = lambda: log.read_text().splitlines() if log.exists() else []
    program.place = place
    return program


@pytest.fixture
def cluster(programs):
    """A cluster of two partitions without a database."""
    programs(
        "scontrol",
        {
            "show partition": slurm_outputs.PARTITIONS,
            "show job": slurm_outputs.JOB,
            "show hostnames n[1-2]": "n1\nn2\n",
        },
    )
    programs("sinfo", slurm_outputs.NODES)
    programs("sacct", code=1, err=slurm_outputs.DISABLED)
    programs("srun", slurm_outputs.MPI_TYPES)
    programs(
        "sbatch",
        err="sbatch: Job 3 to start at 2026-11-21T13:07:53 using 2 processors on nodes n[1-2]\n",
    )
    return programs


@pytest.fixture
def planned(tmp_path):
    def plan(text=sweeps.TEXT):
        path = tmp_path / "some.yaml"
        path.write_text(sweeps.last_of_each_key(text))
        return make_plan(path)

    return plan


@pytest.fixture
def on_cluster(programs, tmp_path):
    """Plan for a cluster of six nodes with four CPUs, of which two are gone."""
    programs("scontrol", sweeps.PARTITION)
    programs("sinfo", sweeps.NODES)
    programs("sbatch")
    programs("srun", slurm_outputs.MPI_TYPES)

    def plan(text=sweeps.CLUSTER, site="launcher: srun --mpi=pmi2\n", out=None):
        (tmp_path / "some.yaml").write_text(text)
        (tmp_path / "site.yaml").write_text(site)
        return make_plan(tmp_path / "some.yaml", "slurm-nodbd", str(tmp_path / "site.yaml"), out)

    plan.calls = programs.calls
    return plan
