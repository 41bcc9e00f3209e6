"""The drills of tests/slurm/test_life.py: what happens to a sweep on Slurm.

Most of a drill is waiting. So all drills that the selected tests look at run at the same time, each on nodes and in a
partition of its own, and a test sees what came of one: each drill is a fixture.
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
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from ground import LONG, SLOW, Ground, wait

from hpccoll.sweep.paths import workflows
from hpccoll.sweep.slurm.squeue import job_prefix

AT_ONCE = 6
"""Drills that run at the same time: one or two of them keep a core busy, and one that is in a hurry ends sooner."""
ENDS_S = 120
"""How long what was killed has for ending."""
DRILLS = {}


def drill(nodes, *, own_bed=False):
    """Make a fixture of what a drill on so many nodes returns; it leaves no job and no process behind.

    Nodes are those of one testbed for all drills, unless a drill breaks what they share.
    """

    def decorate(function):
        DRILLS[function.__name__] = function, nodes, own_bed

        @pytest.fixture(name=function.__name__, scope="module")
        def outcome(running):
            came, left = running[function.__name__].result()
            assert not left, left
            return came

        return outcome

    return decorate


def hold(function, ground):
    """Hold a drill, and return what it returns and what it leaves."""
    try:
        came, until = function(ground), time.monotonic() + ENDS_S
        while (left := ground.left()) and time.monotonic() < until:
            time.sleep(0.2)
        return came, left
    finally:
        for sweep in ground.started:
            sweep.kill()
            sweep.communicate()


@pytest.fixture(scope="module")
def wanted(request):
    """The drills that the selected tests look at."""
    here = [item for item in request.session.items if item.path == request.path]
    return [name for name in DRILLS if any(name in item.fixturenames for item in here)]


@pytest.fixture(scope="module")
def disk(tmp_path_factory, new_bed):  # noqa: ARG001 - what new_bed requires, mounting does, too
    """A file system of 4 MiB; hosts see what was mounted before they came up."""
    place = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="module")
def grounds(new_bed, wanted, disk, tmp_path_factory, mpiexec):  # noqa: ARG001 - there is an MPI library
    """Each drill's ground, on one testbed for all that need no testbed of their own."""
    shared = new_bed("drills")
    beds, grounds = defaultdict(lambda: itertools.count(1)), {}
    for name in wanted:
        _, count, own_bed = DRILLS[name]
        bed = new_bed(name.replace("_", "-")) if own_bed else shared
        nodes = [f"n{next(beds[bed])}" for _ in range(count)]
        partition = "work" if own_bed or name == "success" else name  # it alone outlives slurmctld
        grounds[name] = Ground(bed, tmp_path_factory.mktemp(name), name, nodes, disk, partition)
    for bed, numbers in beds.items():
        bed.up("--nodes", next(numbers) - 1, "--rate", "none")
        here = [ground for ground in grounds.values() if ground.bed is bed]
        orders = [
            f"{'update' if ground.partition == 'work' else 'create'} partitionname={ground.partition} "
            f"nodes={','.join(ground.nodes)}"
            for ground in here
        ]
        assert bed.run("scontrol", stdin="\n".join(orders)).code == 0
    yield grounds
    for bed in beds:
        none = partial(bed.slurm, "squeue", "--noheader")
        wait(lambda none=none: none() == "", "jobs are left", ENDS_S, every=0.5)  # or cleared away still
        bed.testbed("down")


@pytest.fixture(scope="module")
def running(grounds):
    """The drills, all started, the longest first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(hold, DRILLS[name][0], ground) for name, ground in grounds.items()}
        pool.shutdown(cancel_futures=True)


# The drills, the longest first.


@drill(nodes=2)
def kills(ground):
    """What a sweep is made of is killed, part by part; returns what was said after each."""
    arguments, said, kept = ground.plant(SLOW.replace("256", "8K")), {}, {}

    def keep():
        now = ground.measured()
        assert kept.items() <= now.items()
        kept.update(now)

    sweep = ground.measuring(*arguments)
    sweep.kill()  # 'testbed run', with which hpccoll dies, by SIGKILL; Snakemake hears of it
    sweep.communicate()
    wait(lambda: not ground.alive(), "the job goes on without its sweep")
    keep()

    sweep = ground.measuring(*arguments)
    kill_snakemake(ground)
    sweep.kill()
    sweep.communicate()
    wait(lambda: not ground.on_head("-m snakemake"), "Snakemake survives SIGKILL")
    keep()
    said["left by both"] = len(ground.alive())

    sweep = ground.measuring(*arguments)
    kill_snakemake(ground)
    said["third"] = ground.end(sweep)
    said["left by Snakemake"] = len(ground.on_head("")), len(ground.alive())
    keep()

    sweep = ground.measuring(*arguments)
    os.kill(sweep.pid, signal.SIGINT)
    said["interrupted"] = ground.end(sweep)
    said["left by Ctrl-C"] = len(ground.on_head("")), len(ground.alive())
    said["status"] = ground.status()
    keep()

    said["last"] = ground.hpccoll("sweep", *arguments)
    keep()
    return ground, said


def kill_snakemake(ground):
    for pid in ground.on_head("-m snakemake"):
        with suppress(ProcessLookupError):  # a child that was about to become squeue
            os.kill(pid, signal.SIGKILL)


@drill(nodes=2, own_bed=True)
def no_controller(ground):
    """Slurm's controller is killed while ranks measure, twice: somebody presses Ctrl-C, and it comes back."""
    arguments, said = ground.plant(SLOW), {}

    def without_controller():
        sweep = ground.measuring(*arguments)
        ground.bed.kill("head", "slurmctld")
        said["told"] = ground.told(sweep, "does not answer")
        return sweep

    sweep = without_controller()
    os.kill(sweep.pid, signal.SIGINT)
    said["interrupted"] = ground.end(sweep)
    kept = ground.measured()
    ground.bed.restart("head", "slurmctld")
    wait(lambda: ground.bed.run("scontrol", "ping").code == 0, "slurmctld does not come back", every=0.5)

    sweep = without_controller()
    ground.signal(signal.SIGCONT)
    wait((ground.out / "raw" / "mpi.n2x1.h5").exists, "ranks do not go on without a controller", every=0.5)
    ground.bed.restart("head", "slurmctld")
    said["last"] = ground.end(sweep)
    return ground, said, kept


@drill(nodes=2)
def time_limit(ground):
    """A case takes longer than its job has; Slurm lets what is stopped go on when it tells it to end."""
    sweep = ground.measuring(*ground.plant(LONG, signal_s=1), case=2)
    for pid in ground.ranks().values():
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    ground.shorten(1)
    return ground, ground.interrupted(sweep)


@drill(nodes=2)
def told_to_end(ground):
    """Slurm tells a job to end before its limit, which somebody has made shorter; the next one has time enough."""
    arguments = ground.plant(SLOW)
    sweep = ground.measuring(*arguments)
    ground.shorten(75)  # its signal is due 60 s before the end
    first = ground.interrupted(sweep)
    status, kept, files = ground.status(), ground.measured(), sorted(path.name for path in ground.out.glob("raw/*"))
    return ground, first, status, kept, files, ground.hpccoll("sweep", *arguments)


@drill(nodes=4)
def success(ground):
    """A sweep, the same again, and the same by Snakemake alone."""
    ground.plant(nodes="2, 4")
    first = ground.hpccoll("sweep", "s.yaml", "--profile", "testbed")
    before = (ground.out / "raw" / "mpi.n4x1.h5").read_bytes()
    queue = ground.queue()
    second = ground.hpccoll("sweep", "s.yaml", "--profile", "testbed")
    again = (
        (ground.out / "raw" / "mpi.n4x1.h5").read_bytes() == before,
        ground.queue().keys() - queue.keys(),
        len(queue),
    )
    plain = ground.run(
        sys.executable, "-m", "snakemake", "-s", workflows() / "Snakefile",
        "--workflow-profile", workflows() / "profiles" / "testbed", "--configfile", "s.yaml",
        "--config", "profile=testbed", "out=plain",
    )  # fmt: skip
    return ground, first, second, again, plain


@drill(nodes=2)
def killed_rank(ground):
    """A rank is killed; the same sweep again."""
    arguments = ground.plant(SLOW)
    sweep = ground.measuring(*arguments)
    os.kill(ground.ranks()[1], signal.SIGKILL)
    ground.signal(signal.SIGCONT)
    first, (job,) = ground.end(sweep), ground.queue()
    status, kept, page = ground.status(), ground.measured(), ground.page
    return ground, first, job, status, kept, page, ground.hpccoll("sweep", *arguments)


@drill(nodes=2)
def full_disk(ground):
    """The file system of the results is full while ranks measure; the same again when there is space."""
    ground.out = ground.disk / "full"
    arguments = [*ground.plant(SLOW), "--out", ground.out]
    sweep = ground.measuring(*arguments)
    with suppress(OSError), (ground.disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    ground.signal(signal.SIGCONT)
    first, status, kept = ground.end(sweep), ground.status(), ground.measured()
    (ground.disk / "filler").unlink()
    return ground, first, status, kept, ground.hpccoll("sweep", *arguments)


@drill(nodes=2)
def dead_worker(ground):
    """The second host of a job dies; the job that comes after it needs but one."""
    arguments = ground.plant(SLOW, nodes="1, 2", more="scaling: separate\n")
    sweep = ground.measuring(*arguments, "--", "--prioritize", "results/s/raw/mpi.n2x1.h5")
    os.kill(ground.init(ground.nodes[1]), signal.SIGKILL)
    return ground, ground.end(sweep)


@drill(nodes=2)
def dead_batch_host(ground):
    """The host dies that runs the job's script, srun and the first rank."""
    sweep = ground.measuring(*ground.plant(SLOW))
    os.kill(ground.init(ground.nodes[0]), signal.SIGKILL)
    return ground, ground.interrupted(sweep)


@drill(nodes=2)
def no_pmi(ground):
    """Ranks that Slurm does not introduce to each other."""
    said = ground.hpccoll("sweep", *ground.plant(launcher="srun --mpi=none"))
    return ground, said, ground.page


@drill(nodes=4)
def separate(ground):
    """A job for each size, one of them a single rank; a node is drained, and there never were as many as are asked."""
    ground.bed.slurm("scontrol", "update", f"nodename={ground.nodes[-1]}", "state=drain", "reason=drill")
    arguments = ground.plant(nodes="1, 2, 4, 8", more="scaling: separate\n")
    return ground, ground.hpccoll("sweep", *arguments, "--", "--jobs", "2")


@drill(nodes=2)
def wrong_launchers(ground):
    """A PMI that the library does not speak, and a launcher that goes its own way; each in a job like a sweep's."""
    said = {}
    for name, launcher in LAUNCHERS.items():
        ground.hpccoll("plan", *ground.plant(launcher=launcher), "--out", name)
        words = shlex.join([sys.executable, "-m", "hpccoll", "launch", f"{name}/plan.json", "mpi.n2x1"])
        job = ground.run(
            "sbatch", "--parsable", f"--partition={ground.name}", "--nodes=2", "--ntasks-per-node=1", "--exclusive",
            "--output=/dev/null", f"--wrap={words} --out {name}/raw/mpi.n2x1.h5",
        )  # fmt: skip
        code = ground.bed.end_of(job.out.strip())
        said[name] = code, ground.status(name), list((ground.home / name / "raw").glob("*.journal"))
    return said


LAUNCHERS = {"pmix": "srun --mpi=pmix", "template": "srun --mpi=pmi2 -n {ranks} -N 1 --overcommit"}


@drill(nodes=2)
def cancelled(ground):
    """Somebody cancels the job."""
    sweep = ground.measuring(*ground.plant(SLOW))
    ground.bed.slurm("scancel", *ground.alive())
    return ground, ground.end(sweep)


@drill(nodes=2)
def job_without_a_node(ground):
    """One of the nodes that a job needs is gone before it starts; the follower has little patience."""
    prefix = job_prefix(ground.out)
    ground.bed.slurm("scontrol", "update", f"nodename={ground.nodes[1]}", "state=drain", "reason=drill")
    ground.bed.run(
        "sbatch", f"--partition={ground.name}", "--nodes=2", f"--job-name={prefix}-x", "--output=/dev/null",
        "--comment=rule_measure_wildcards_mpi.n2x1", "--wrap=true",
    )  # fmt: skip
    ground.out.mkdir(parents=True)
    return ground, ground.run(sys.executable, "-c", FOLLOW, ground.out), ground.queue()


FOLLOW = """
import sys, time
from pathlib import Path
from hpccoll.sweep.slurm.monitor import Follower
follower, until = Follower(Path(sys.argv[1]), every_s=0.2, patience_s=1.0), time.monotonic() + 120
while not any(job.state == "CANCELLED" for job in follower._known.values()) and time.monotonic() < until:
    follower.look()
    time.sleep(0.2)
"""


@drill(nodes=1)
def bad_input(ground):
    """What is refused before anything is submitted."""

    def sweep(**site):
        return ground.hpccoll("sweep", *ground.plant(nodes="1", **site))

    said = {
        "partition": sweep(partition="nowhere"),
        "account": sweep(account="gold"),
        "key": sweep(partitoin="work"),
    }
    arguments = ground.plant(nodes="1")
    alone = ground.home / "bin"
    alone.mkdir()
    said["PATH"] = ground.run("env", f"PATH={alone}", sys.executable, "-m", "hpccoll", "sweep", *arguments)
    conf = Path(f"/run/hpccoll-testbed/{ground.bed.name}/etc/slurm.conf").read_text()
    (ground.home / "slurm.conf").write_text(re.sub("SlurmctldPort=.*", "SlurmctldPort=1", conf))
    said["controller"] = ground.hpccoll("sweep", *arguments, SLURM_CONF=str(ground.home / "slurm.conf"))
    return ground, said, ground.queue()
