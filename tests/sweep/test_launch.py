"""Launching the ranks of a job: shape after shape, and what is remembered of a launch that failed."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples
import slurm_outputs
from recorded_diagnoses import interrupted, recorded

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import CPUS_ON_NODE, Launcher, Plan
from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.diagnosis_file import write_diagnosis
from hpccoll.diagnosis.recorded import KEPT
from hpccoll.store import hdf5
from hpccoll.store.journal import Journal, journal_path, read_failure_notes, write_failure_note
from hpccoll.store.raw_results import Failure
from hpccoll.sweep import child_process
from hpccoll.sweep.launch import JobLaunch, launch
from hpccoll.sweep.site_file import Site
from hpccoll.sweep.slurm import squeue

CASES = tuple(raw_examples.case(8, ranks=n, nodes=n) for n in (1, 2, 4))
JOB = raw_examples.job(*CASES, name="mpi.n4x1", ranks=4, nodes=4)


@pytest.fixture
def here(tmp_path):
    """A plan whose launcher is a program that notes how it was called, and does what the file ``does`` says."""
    does = tmp_path / "launcher"
    does.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\nexec {sys.executable} {tmp_path}/does.py "$@"\n'
    )
    does.chmod(0o755)
    (tmp_path / "does.py").write_text("")
    launcher = Launcher(command=f"{does} -N {{nodes}} -n {{ranks}}")
    plan = Plan(
        name="x",
        profile="local",
        jobs=(JOB,),
        skips=(),
        launcher=launcher,
        resources={},
        estimated_s=1,
    )
    (tmp_path / "plan.json").write_text(plan.to_json())
    return tmp_path


def start(here):
    return launch(here / "plan.json", "mpi.n4x1", here / "raw" / "F.h5")


def calls(here):
    return [line.split(" hpccoll run ")[0] for line in (here / "calls").read_text().splitlines()]


def measured(here, *cases):
    """Have a journal in which ``cases`` have outcomes."""
    journal = Journal(here / "raw" / "F.h5", JOB)
    journal.begin(raw_examples.attempt())
    for case in cases:
        journal.record(raw_examples.outcome(case))
    return journal


def test_shapes_are_launched_from_the_smallest_and_checked_by_the_ranks(here):
    assert not start(here)  # for this launcher measures nothing
    assert calls(here) == ["-N 1 -n 1", "-N 2 -n 2", "-N 4 -n 4"]
    first = (here / "calls").read_text().splitlines()[0]
    assert first.endswith(
        f"--shape 1x1 --exit-zero --job {here}/jobs/mpi.n4x1.json --out {here}/raw/F.h5"
    )


def diagnosed(here, *options):
    """Have the plan ask for a diagnosis."""
    plan = Plan.load(here / "plan.json")
    (here / "plan.json").write_text(replace(plan, diagnose=options).to_json())


def test_the_nodes_of_a_job_are_diagnosed_before_its_first_launch_and_not_if_nothing_is_left_to_measure(
    here,
):
    diagnosed(here, "--links")
    measured(here, *CASES[:2]).close(remove=False)
    start(here)
    first, second = (here / "calls").read_text().splitlines()
    assert (
        first == f"-N 4 -n 4 hpccoll diagnose --links --out {here}/raw/mpi.n4x1.diagnosis-local.h5"
    )
    assert second.startswith("-N 4 -n 4 hpccoll run ")
    measured(here, CASES[2]).close(remove=False)
    assert start(here)
    assert len(calls(here)) == 2


def test_a_rank_that_dies_in_a_diagnosis_does_not_end_the_others(here):
    plan = Plan.load(here / "plan.json")
    killing = replace(plan.launcher, command=f"{plan.launcher.command} --kill-on-bad-exit=1")
    (here / "plan.json").write_text(replace(plan, launcher=killing, diagnose=()).to_json())
    start(here)
    first, second, *_ = (here / "calls").read_text().splitlines()
    assert "--kill-on-bad-exit=0" in first.split(" hpccoll diagnose ")[0]
    assert "--kill-on-bad-exit=1" in second.split(" hpccoll run ")[0]


def test_a_diagnosis_that_fails_costs_no_measurement(here, capfd):
    (here / "does.py").write_text("import sys\nsys.exit(4 if 'diagnose' in sys.argv else 0)\n")
    diagnosed(here)
    start(here)
    assert len(calls(here)) == 4
    assert "# no diagnosis: the launch ended with exit code 4" in capfd.readouterr().out
    assert not list(read_failure_notes(here / "raw" / "F.h5"))


def test_a_diagnosis_that_a_signal_interrupted_ends_the_job(here):
    diagnosed(here)
    file = here / "raw" / "mpi.n4x1.diagnosis-local.h5"
    file.parent.mkdir()
    write_diagnosis(interrupted(recorded(4)), file)
    assert not start(here)
    assert [line.split()[5] for line in calls(here)] == ["diagnose"]
    (note,) = read_failure_notes(here / "raw" / "F.h5")
    assert "interrupted by a signal" in note.message


def test_what_was_kept_of_a_diagnosis_whose_ranks_died_costs_no_measurement(here, capfd):
    diagnosed(here)
    file = here / "raw" / "mpi.n4x1.diagnosis-local.h5"
    file.parent.mkdir()
    kept = interrupted(recorded(4))
    write_diagnosis(replace(kept, provenance={**kept.provenance, KEPT: True}), file)
    start(here)
    assert len(calls(here)) == 4
    assert "# only a part of the diagnosis" in capfd.readouterr().out


def test_what_is_measured_is_not_launched_again(here):
    measured(here, CASES[0], CASES[2]).close(remove=False)
    start(here)
    assert calls(here) == ["-N 2 -n 2"]
    measured(here, CASES[1]).close(remove=False)
    assert start(here), "a complete job needs no launch"
    assert calls(here) == ["-N 2 -n 2"]


def test_a_launch_that_fails_is_remembered_in_its_own_words_and_the_next_is_tried(here):
    (here / "does.py").write_text(
        "import sys\nprint('noise', file=sys.stderr)\nprint('hpccoll: launcher: no good', file=sys.stderr)\n"
        "print('srun: error', file=sys.stderr)\nsys.exit(4)\n"
    )
    raw, words = (
        here / "raw" / "F.h5",
        "the launch of 1 rank on 1 node ended with exit code 4: launcher: no good",
    )
    raw.parent.mkdir()
    for rank in (-1, 3):  # of an earlier launch
        write_failure_note(raw, Failure(case_id="", rank=rank, message="old"))
    assert not start(here)
    assert len(calls(here)) == 3
    notes = [(note.rank, note.message) for note in read_failure_notes(raw)]
    assert {(3, "old"), (-1, words)} < {*notes}
    assert (-1, "old") not in notes


def test_a_launcher_that_was_killed_and_leaves_children_behind_does_not_hold_the_job(
    here, monkeypatch
):
    monkeypatch.setattr(child_process, "DRAIN_S", 0.1)
    (here / "does.py").write_text(LEAVES.format(here=str(here)))
    try:
        start(here)
    finally:
        left = [int(line) for line in (here / "left").read_text().splitlines()]
        alive = [pid for pid in left if Path(f"/proc/{pid}").exists()]
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
    assert len(alive) == 3  # one of each launch: none was waited for
    assert "ended by signal 9" in read_failure_notes(here / "raw" / "F.h5")[0].message


LEAVES = """
import os, subprocess
child = subprocess.Popen(["sleep", "60"])
with open("{here}/left", "a") as file:
    file.write(f"{{child.pid}}\\n")
os.kill(os.getpid(), 9)
"""


def test_no_shape_is_launched_after_signalled_ranks(here, monkeypatch):
    out = here / "raw" / "F.h5"
    measured(here, CASES[0]).close(remove=False)

    def signalled(launched, shape, *_):
        assert (launched.job, shape) == (JOB, Shape(2, 2))
        journal = Journal(out, JOB)
        journal.begin(raw_examples.attempt(2))
        journal.end("stopped by SIGUSR1")
        hdf5.write_raw_file(journal.raw, out)
        journal.close(remove=False)

    monkeypatch.setattr(JobLaunch, "measure", signalled)
    assert not start(here)
    assert not out.exists()  # its journal holds all of it: what the workflow finds is whole
    assert journal_path(out).exists()


def change(here, launcher=(), job=()):
    """Change fields of the launcher and of the job in the plan."""
    plan = json.loads((here / "plan.json").read_text())
    plan["launcher"] |= dict(launcher)
    plan["jobs"][0] |= dict(job)
    (here / "plan.json").write_text(json.dumps(plan))


def test_ranks_have_the_environment_of_their_variant_and_find_slurm_where_the_sweep_did(
    here, monkeypatch
):
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")  # restored by monkeypatch
    setup = ["export SHAPE=round", "export COLOUR=red"]  # the site's; the variant has the last word
    change(
        here, {"setup": setup, "slurm_conf": "/opt/slurm.conf"}, {"environment": {"COLOUR": "blue"}}
    )
    names = "COLOUR", "SHAPE", "SLURM_CONF"
    (here / "does.py").write_text(
        f"import os\nopen('{here}/seen', 'a').write(','.join(map(os.environ.get, {names})) + ' ')\n"
    )
    start(here)
    assert (here / "seen").read_text() == "blue,round,/opt/slurm.conf " * 3


def test_ranks_divide_the_cpus_that_slurm_gave_the_job(here, monkeypatch):
    """Snakemake's job step removes Slurm's variable, and srun gives a rank one CPU by itself."""
    option = re.search(r" --cpus-per-task=.*?\)\)", Site(gpus_per_node="8").rank_launcher().command)
    command = Plan.load(here / "plan.json").launcher.command
    change(here, {"command": command + option[0].replace("{ranks_per_node}", "2")})
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv(CPUS_ON_NODE, "1")  # restored by monkeypatch
    monkeypatch.setattr(squeue, "cpus_of_node", {"7": 24}.__getitem__)
    start(here)
    assert calls(here) == [f"-N {n} -n {n} --cpus-per-task=12" for n in (1, 2, 4)]


def test_a_job_without_hosts_for_its_aggregators_is_refused_before_it_starts(
    here, programs, monkeypatch
):
    change(
        here,
        {"slurm": True, "aggregator": "switch"},
        {"aggregators": 2, "dedicated_aggregators": True},
    )
    programs(
        "scontrol",
        {"show job": "JobId=7 NodeList=n[1-4],a1\n", "show hostnames": "a1\nn1\nn2\nn3\nn4\n"},
    )
    programs("sinfo", "a1|switch\nn1|worker\nn2|worker\nn3|worker\nn4|worker\n")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(
        BadInputError, match=r"hosts of aggregators: '1 of 5 hosts' .*: 2 that have .* switch"
    ):
        start(here)
    assert "1 of 5 hosts" in read_failure_notes(here / "raw" / "F.h5")[0].message
    assert not any(call.startswith("-N") for call in programs.calls())


PMI = "slurmstepd-n2: error: mpi/pmi2: value not properly terminated in client request"
UCX = "MPIDI_UCX_comm_addr_exchange(159)...: ucx function returned with failed status(Invalid parameter)"
SRUN = "srun: error: n1: task 0: Exited with exit code 15"


VICTIM = "srun: error: n1: task 0: Segmentation fault"
KILLED = "srun: error: n2: task 1: Killed"
ENDED = "srun: error: n3: task 2: Terminated"
CANCELLED = "slurmstepd-n1: error: *** STEP 2.1 ON n1 CANCELLED AT 2026-11-25T12:32:00 ***"
AT_LIMIT = f"{CANCELLED.removesuffix('***')}DUE TO TIME LIMIT ***"
MANY = [f"srun: error: n{code}: task 0: Exited with exit code {code}" for code in range(1, 9)]
BETWEEN = [
    "[n1:693:0] address.c:985 UCX ERROR failed to unpack address",
    "Abort(72500495) on node 0: Fatal error",
]
AFTER = [
    SRUN,
    "slurmstepd-n1: error: *** STEP 13.1 ON n1 CANCELLED ***",
    "srun: Force Terminated StepId=13.1",
]
TIMEOUT = "Timeout (0:02:30)!"
WAITED = f"a rank waited too long for the others in MPI_Init, MPI_Finalize or at the end: {TIMEOUT}"
CAUSES = {
    "the first error is before its consequences": (
        ["a line", PMI, *BETWEEN, UCX, *AFTER],
        [PMI, UCX, SRUN],
    ),
    "an error before a timeout": ([PMI, TIMEOUT, "Thread 0x1:"], [PMI, WAITED]),
    "an error after a timeout": ([TIMEOUT, PMI], [WAITED]),
    "the last line": (["cannot load", SRUN], ["cannot load", SRUN]),
    "a rank's own line": ([PMI, "r1 | stuck"], ["r1 | stuck"]),
    "a victim was first": (
        [VICTIM, "srun: Force Terminated StepId=2.0", KILLED, ENDED],
        [VICTIM, KILLED],
    ),
    "many ways": (MANY, MANY[: child_process.MAX_SRUN_ERRORS]),
    "SIGTERM was first": ([ENDED, KILLED], [ENDED, KILLED]),
    "Slurm ended the others": ([KILLED, CANCELLED, ENDED], [KILLED]),
    "scancel": ([CANCELLED, ENDED], [CANCELLED, ENDED]),
    "time limit": ([AT_LIMIT, KILLED], [AT_LIMIT, KILLED]),
}


@pytest.mark.parametrize(("lines", "named"), CAUSES.values(), ids=CAUSES)
def test_causes_are_named_and_what_only_follows_is_not(lines, named):
    assert child_process.root_cause(lines) == "; ".join(named)


def test_of_a_launch_that_says_much_its_beginning_and_its_end_are_known():
    much = f"print('first error', *range({3 * child_process.KEPT_LINES}), 'last', sep='\\n', file=sys.stderr)"
    says = f"import sys; {much}; sys.exit(4)"
    assert (
        child_process.run_child([sys.executable, "-c", says], 60.0)
        == "ended with exit code 4: first error; last"
    )


SUPPORTS = r"launcher: 'ends' .* ended with .*; srun --mpi supports none, pmi2, pmix$"


@pytest.mark.parametrize(
    ("about", "error"),
    [
        (
            {"command": "srun", "setup": ("module_ load openmpi",)},
            r"modules: 'module_ load openmpi' .*code 127: .*module_: .*not found",
        ),
        (
            {"command": "waits -N {nodes}", "start_timeout_s": 0.3},
            r"launcher: 'waits' .* did not end within 0.3 s; the MPI library supports --mpi=pmi2$",
        ),
        ({"command": "ends -N {nodes}", "program": "apptainer exec i.sif hpccoll"}, SUPPORTS),
        ({"command": "ends -N {nodes}"}, SUPPORTS),
    ],
    ids=["modules", "it hangs", "a container", "the library hangs, too"],
)
def test_ranks_that_do_not_connect_are_reported_with_what_the_library_supports(
    programs, about, error, monkeypatch
):
    programs("srun", slurm_outputs.MPI_TYPES)
    programs("ends", code=7)
    programs("true")
    programs("waits")
    (programs.place / "waits").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (programs.place / "bash").symlink_to("/bin/bash")

    def hangs(*_):
        raise subprocess.TimeoutExpired("python", 60)

    if len(about) == 1:  # the library of this Python is that of the ranks, and is asked
        monkeypatch.setattr("hpccoll.sweep.doctor.machine.MachineFacts.python", hangs)
    with pytest.raises(BadInputError, match=error):
        JobLaunch(Launcher(slurm=True, **about), JOB, ("n1", "n2")).check_connection()


@pytest.mark.parametrize(("refused", "launched"), [(1, 2), (5, 3)])  # times
def test_what_srun_refuses_for_want_of_the_controller_is_launched_again_when_it_answers(
    programs, tmp_path, refused, launched
):
    programs("scontrol", "Slurmctld(primary) at head is UP\n")
    (programs.place / "bash").symlink_to("/bin/bash")
    says = "srun: error: Unable to confirm allocation for job 2: Unable to contact slurm controller (connect failure)"
    calls, srun = tmp_path / "launches", programs.place / "srun"
    srun.write_text(
        f"#!/bin/bash\necho x >> {calls}\n(( $(/bin/wc -l < {calls}) > {refused} )) || ! echo '{says}' >&2\n"
    )
    srun.chmod(0o755)
    came = JobLaunch(Launcher(command="srun", slurm=True), JOB, ["n1"])._run("srun", 60.0)
    assert calls.read_text().count("x") == launched
    assert (came is None) == (launched > refused)


def test_ranks_that_have_begun_have_all_the_time_that_their_cases_take(monkeypatch):
    monkeypatch.setattr(child_process, "POLL_S", 0.01)
    assert child_process.run_child(["sleep", "0.5"], 0.1, has_started=lambda: True) is None
    assert (
        child_process.run_child(["sleep", "60"], 0.1, has_started=lambda: False)
        == "did not start within 0.1 s"
    )


def test_a_launch_names_the_hosts_that_it_is_for():
    launcher = Launcher(command="srun -N {nodes} --nodelist={hosts}", slurm=True)
    line = JobLaunch(launcher, JOB, ("n1", "n2", "n3", "n4"))._line(Shape(2, 2), "--check")
    assert line == "srun -N 2 --nodelist=n1,n2 hpccoll run --shape 2x1 --hosts n1,n2 --check"
    there = replace(JOB, cases=(replace(CASES[1], device="cuda", transport="nccl"), CASES[2]))
    on_gpus = JobLaunch(
        launcher, there, ("n1", "n2", "n3", "n4"), aliases={"n1": ["gpu01"], "n2": []}
    )
    assert on_gpus._line(Shape(2, 2)).endswith("run --shape 2x1 --hosts n1=gpu01,n2 --device cuda")
    assert "--device" not in on_gpus._line(Shape(4, 4))


@pytest.mark.parametrize(
    ("fails", "free", "named"),
    [
        ("kill -BUS $$", 64 << 20, True),
        ("sh -c 'kill -SEGV $$'", 64 << 20, True),
        ("echo '# shared memory: /dev/shm has 64 MiB' >&2; exit 15", 64 << 20, True),
        ("exit 7", 8 << 30, False),
        ("echo 'signal 17' >&2; exit 1", 2 << 20, False),
        ("exit 0", 2 << 20, False),
    ],
)
def test_a_launch_that_a_memory_fault_ended_names_small_shared_memory(
    monkeypatch, fails, free, named
):
    monkeypatch.setattr(
        child_process.SharedMemorySpace, "read", lambda: child_process.SharedMemorySpace(free, free)
    )
    failure = child_process.run_child(["bash", "-c", fails], 60) or ""
    assert ("shm has" in failure and "--shm-size" in failure) is named, failure
