"""The drills of tests/slurm/test_life.py: what happens to a sweep on Slurm.

Most of a drill is waiting. So all drills that the selected tests look at run at the same time, each
on nodes and in a partition of its own, and a test sees what came of one: each drill is a fixture.
"""

import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from sweep_sandbox import LONG, SLOW, SweepSandbox, wait

from hpccoll.sweep.paths import workflow_directory
from hpccoll.sweep.slurm.squeue import job_prefix

AT_ONCE = 6
"""Drills that run at the same time: one or two of them keep a core busy, and one that is in a hurry ends sooner."""
ENDS_S = 120
"""How long what was killed has for ending."""
DRILLS = {}


def drill(nodes, *, own_testbed=False):
    """Make a fixture of what a drill on so many nodes returns; it leaves no job and no process behind.

    Nodes are those of one testbed for all drills, unless a drill breaks what they share.
    """

    def decorate(function):
        DRILLS[function.__name__] = function, nodes, own_testbed

        @pytest.fixture(name=function.__name__, scope="module")
        def outcome(running):
            came, left = running[function.__name__].result()
            assert not left, left
            return came

        return outcome

    return decorate


def hold(function, sandbox):
    """Hold a drill, and return what it returns and what it leaves."""
    try:
        came, until = function(sandbox), time.monotonic() + ENDS_S
        while (left := sandbox.left()) and time.monotonic() < until:
            time.sleep(0.2)
        return came, left
    finally:
        for sweep in sandbox.started:
            sweep.kill()
            sweep.communicate()


@pytest.fixture(scope="module")
def wanted(request):
    """The drills that the selected tests look at."""
    here = [item for item in request.session.items if item.path == request.path]
    return [name for name in DRILLS if any(name in item.fixturenames for item in here)]


@pytest.fixture(scope="module")
def disk(tmp_path_factory, new_testbed):  # noqa: ARG001 - what new_testbed requires, mounting does, too
    """A file system of 4 MiB; hosts see what was mounted before they came up."""
    place = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="module")
def sandboxes(new_testbed, wanted, disk, tmp_path_factory, mpiexec):  # noqa: ARG001 - there is an MPI library
    """Each drill's sandbox, on one testbed for all that need no testbed of their own."""
    shared = new_testbed("drills")
    beds, sandboxes = defaultdict(lambda: itertools.count(1)), {}
    for name in wanted:
        _, count, own_testbed = DRILLS[name]
        testbed = new_testbed(name.replace("_", "-")) if own_testbed else shared
        nodes = [f"n{next(beds[testbed])}" for _ in range(count)]
        # it alone outlives slurmctld
        partition = "work" if own_testbed or name == "success" else name
        sandboxes[name] = SweepSandbox(
            testbed, tmp_path_factory.mktemp(name), name, nodes, disk, partition
        )
    for testbed, numbers in beds.items():
        testbed.up("--nodes", next(numbers) - 1, "--rate", "none")
        here = [sandbox for sandbox in sandboxes.values() if sandbox.testbed is testbed]
        orders = [
            f"{'update' if sandbox.partition == 'work' else 'create'} partitionname={sandbox.partition} "
            f"nodes={','.join(sandbox.nodes)}"
            for sandbox in here
        ]
        assert testbed.run("scontrol", stdin="\n".join(orders)).code == 0
    yield sandboxes
    for testbed in beds:
        none = partial(testbed.slurm, "squeue", "--noheader")
        # or cleared away still
        wait(lambda none=none: none() == "", "jobs are left", ENDS_S, every=0.5)
        testbed.command("down")


@pytest.fixture(scope="module")
def running(sandboxes):
    """The drills, all ended; they began with the longest.

    No test goes on before: between two of them pytest exchanges ``sys.stdout``, to which a drill's
    ``status`` prints.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        drills = {
            name: pool.submit(hold, DRILLS[name][0], sandbox) for name, sandbox in sandboxes.items()
        }
        wait_for_all(drills.values())
        return drills


# The drills, the longest first.


@drill(nodes=2)
def kills(sandbox):
    """Kill the parts of a sweep one by one; return the result after each."""
    arguments, results, kept = sandbox.plant(SLOW.replace("256", "8K")), {}, {}

    def keep():
        now = sandbox.measured()
        assert kept.items() <= now.items()
        kept.update(now)

    sweep = sandbox.measuring(*arguments)
    sweep.kill()  # 'testbed run', with which hpccoll dies, by SIGKILL; Snakemake hears of it
    sweep.communicate()
    wait(lambda: not sandbox.alive(), "the job goes on without its sweep")
    keep()

    sweep = sandbox.measuring(*arguments)
    kill_snakemake(sandbox)
    sweep.kill()
    sweep.communicate()
    wait(lambda: not sandbox.on_head("-m snakemake"), "Snakemake survives SIGKILL")
    keep()
    results["left by both"] = len(sandbox.alive())

    sweep = sandbox.measuring(*arguments)
    kill_snakemake(sandbox)
    results["third"] = sandbox.end(sweep)
    results["left by Snakemake"] = len(sandbox.on_head("")), len(sandbox.alive())
    keep()

    sweep = sandbox.measuring(*arguments)
    os.kill(sweep.pid, signal.SIGINT)
    results["interrupted"] = sandbox.end(sweep)
    results["left by Ctrl-C"] = len(sandbox.on_head("")), len(sandbox.alive())
    results["status"] = sandbox.status()
    keep()

    results["last"] = sandbox.hpccoll("sweep", *arguments)
    keep()
    return sandbox, results


def kill_snakemake(sandbox):
    for pid in sandbox.on_head("-m snakemake"):
        with suppress(ProcessLookupError):  # a child that was about to become squeue
            os.kill(pid, signal.SIGKILL)


@drill(nodes=2, own_testbed=True)
def no_controller(sandbox):
    """Slurm's controller is killed twice while ranks measure: the sweep gets Ctrl-C, then the controller returns."""
    arguments, results = sandbox.plant(SLOW), {}

    def without_controller():
        sweep = sandbox.measuring(*arguments)
        sandbox.testbed.kill("head", "slurmctld")
        results["outage"] = sandbox.wait_for_line(sweep, "does not answer")
        return sweep

    sweep = without_controller()
    os.kill(sweep.pid, signal.SIGINT)
    results["interrupted"] = sandbox.end(sweep)
    kept = sandbox.measured()
    sandbox.testbed.restart("head", "slurmctld")
    wait(
        lambda: sandbox.testbed.run("scontrol", "ping").code == 0,
        "slurmctld does not come back",
        every=0.5,
    )

    sweep = without_controller()
    sandbox.signal(signal.SIGCONT)
    wait(
        (sandbox.out / "raw" / "mpi.n2x1.h5").exists,
        "ranks do not go on without a controller",
        every=0.5,
    )
    sandbox.testbed.restart("head", "slurmctld")
    results["last"] = sandbox.end(sweep)
    return sandbox, results, kept


@drill(nodes=2)
def time_limit(sandbox):
    """A case takes longer than its job has; Slurm lets what is stopped go on when it tells it to end."""
    sweep = sandbox.measuring(*sandbox.plant(LONG, signal_s=1), case=2)
    for pid in sandbox.ranks().values():
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    sandbox.shorten(1)
    return sandbox, sandbox.interrupted(sweep)


@drill(nodes=2)
def near_time_limit(sandbox):
    """Slurm signals a job before its time limit, which was shortened; the next job has enough time."""
    arguments = sandbox.plant(SLOW)
    sweep = sandbox.measuring(*arguments)
    sandbox.shorten(75)  # its signal is due 60 s before the end
    first = sandbox.interrupted(sweep)
    status, kept, files = (
        sandbox.status(),
        sandbox.measured(),
        sorted(path.name for path in sandbox.out.glob("raw/*")),
    )
    return sandbox, first, status, kept, files, sandbox.hpccoll("sweep", *arguments)


@drill(nodes=4)
def success(sandbox):
    """A sweep, and the same again."""
    sandbox.plant(nodes="2, 4")
    first = sandbox.hpccoll("sweep", "s.yaml", "--profile", "testbed")
    before = (sandbox.out / "raw" / "mpi.n4x1.h5").read_bytes()
    queue = sandbox.queue()
    second = sandbox.hpccoll("sweep", "s.yaml", "--profile", "testbed")
    again = (
        (sandbox.out / "raw" / "mpi.n4x1.h5").read_bytes() == before,
        sandbox.queue().keys() - queue.keys(),
        len(queue),
    )
    return sandbox, first, second, again


@drill(nodes=2)
def plain(sandbox):
    """A sweep by Snakemake alone."""
    sandbox.plant()
    return sandbox, sandbox.run(
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        workflow_directory() / "Snakefile",
        "--workflow-profile",
        workflow_directory() / "profiles" / "testbed",
        "--configfile",
        "s.yaml",
        "--config",
        "profile=testbed",
        "out=results/s",
        "site=site.yaml",
    )


@drill(nodes=2)
def killed_rank(sandbox):
    """A rank is killed."""
    sweep = sandbox.measuring(*sandbox.plant(SLOW))
    (job,) = sandbox.queue()
    os.kill(sandbox.ranks()[1], signal.SIGKILL)
    sandbox.signal(signal.SIGCONT)
    return sandbox, sandbox.end(sweep), job, sandbox.status(), sandbox.measured(), sandbox.page


@drill(nodes=2)
def full_disk(sandbox):
    """The file system of the results is full while ranks measure; the same again when there is space."""
    sandbox.out = sandbox.disk / "full"
    arguments = [*sandbox.plant(SLOW), "--out", sandbox.out]
    sweep = sandbox.measuring(*arguments)
    with suppress(OSError), (sandbox.disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    sandbox.signal(signal.SIGCONT)
    first, status, kept = sandbox.end(sweep), sandbox.status(), sandbox.measured()
    (sandbox.disk / "filler").unlink()
    return sandbox, first, status, kept, sandbox.hpccoll("sweep", *arguments)


@drill(nodes=2)
def dead_worker(sandbox):
    """The second host of a job dies; the job that comes after it needs but one."""
    arguments = sandbox.plant(SLOW, nodes="1, 2", more="scaling: separate\n")
    sweep = sandbox.measuring(*arguments, "--", "--prioritize", "results/s/raw/mpi.n2x1.h5")
    os.kill(sandbox.init(sandbox.nodes[1]), signal.SIGKILL)
    return sandbox, sandbox.end(sweep)


@drill(nodes=2)
def dead_batch_host(sandbox):
    """The host dies that runs the job's script, srun and the first rank."""
    sweep = sandbox.measuring(*sandbox.plant(SLOW))
    os.kill(sandbox.init(sandbox.nodes[0]), signal.SIGKILL)
    return sandbox, sandbox.interrupted(sweep)


@drill(nodes=2)
def no_pmi(sandbox):
    """Ranks that Slurm does not introduce to each other."""
    result = sandbox.hpccoll("sweep", *sandbox.plant(launcher="srun --mpi=none"))
    return sandbox, result, sandbox.page


@drill(nodes=4)
def separate(sandbox):
    """A job for each size, one of them a single rank; a node is drained, and there never were as many as are asked."""
    sandbox.testbed.slurm(
        "scontrol", "update", f"nodename={sandbox.nodes[-1]}", "state=drain", "reason=drill"
    )
    arguments = sandbox.plant(nodes="1, 2, 4, 8", more="scaling: separate\n")
    return sandbox, sandbox.hpccoll("sweep", *arguments, "--", "--jobs", "2")


@drill(nodes=2)
def wrong_launchers(sandbox):
    """No PMI, one that the library does not speak, and a launcher that goes its own way; in jobs like a sweep's."""
    results = {}
    for name, launcher in LAUNCHERS.items():
        sandbox.hpccoll("plan", *sandbox.plant(launcher=launcher), "--out", name)
        words = shlex.join(
            [sys.executable, "-m", "hpccoll", "launch", f"{name}/plan.json", "mpi.n2x1"]
        )
        job = sandbox.run(
            "sbatch",
            "--parsable",
            f"--partition={sandbox.name}",
            "--nodes=2",
            "--ntasks-per-node=1",
            "--exclusive",
            "--output=/dev/null",
            f"--wrap={words} --out {name}/raw/mpi.n2x1.h5",
        )
        assert job.code == 0, job.err
        code = sandbox.testbed.end_of(job.out.strip())
        results[name] = (
            code,
            sandbox.status(name),
            list((sandbox.home / name / "raw").glob("*.journal")),
        )
    return results


LAUNCHERS = {
    "none": "srun --mpi=none",
    "pmix": "srun --mpi=pmix",
    "template": "srun --mpi=pmi2 -n {ranks} -N 1 --overcommit",
}


@drill(nodes=2)
def cancelled(sandbox):
    """Somebody cancels the job."""
    sweep = sandbox.measuring(*sandbox.plant(SLOW))
    sandbox.testbed.slurm("scancel", *sandbox.alive())
    return sandbox, sandbox.end(sweep)


@drill(nodes=2)
def job_without_a_node(sandbox):
    """One of the nodes that a job needs is gone before it starts; the monitor has little patience."""
    prefix = job_prefix(sandbox.out)
    sandbox.testbed.slurm(
        "scontrol", "update", f"nodename={sandbox.nodes[1]}", "state=drain", "reason=drill"
    )
    sandbox.testbed.run(
        "sbatch",
        f"--partition={sandbox.name}",
        "--nodes=2",
        f"--job-name={prefix}-x",
        "--output=/dev/null",
        "--comment=rule_measure_wildcards_mpi.n2x1",
        "--wrap=true",
    )
    sandbox.out.mkdir(parents=True)
    return sandbox, sandbox.run(sys.executable, "-c", WATCH_JOBS, sandbox.out), sandbox.queue()


WATCH_JOBS = """
import sys, time
from pathlib import Path
from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor
monitor, until = SlurmMonitor(Path(sys.argv[1]), every_s=0.2, pending_limit_s=1.0), time.monotonic() + 120
while not any(job.state == "CANCELLED" for job in monitor._known.values()) and time.monotonic() < until:
    monitor.poll()
    time.sleep(0.2)
"""


@drill(nodes=1)
def bad_input(sandbox):
    """What is refused before anything is submitted."""

    def sweep(**site):
        return sandbox.hpccoll("sweep", *sandbox.plant(nodes="1", **site))

    results = {
        "partition": sweep(partition="nowhere"),
        "account": sweep(account="gold"),
        "key": sweep(partitoin="work"),
    }
    arguments = sandbox.plant(nodes="1")
    alone = sandbox.home / "bin"
    alone.mkdir()
    results["PATH"] = sandbox.run(
        "env", f"PATH={alone}", sys.executable, "-m", "hpccoll", "sweep", *arguments
    )
    conf = Path(f"/run/hpccoll-testbed/{sandbox.testbed.name}/etc/slurm.conf").read_text()
    (sandbox.home / "slurm.conf").write_text(re.sub("SlurmctldPort=.*", "SlurmctldPort=1", conf))
    results["controller"] = sandbox.hpccoll(
        "sweep", *arguments, SLURM_CONF=str(sandbox.home / "slurm.conf")
    )
    return sandbox, results, sandbox.queue()
