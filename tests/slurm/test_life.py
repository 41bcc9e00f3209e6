"""Drills: the life of a sweep on real Slurm. Ranks, hosts, disks and people fail it; what was measured stays.

Most of a drill is waiting. So all drills that the selected tests look at run at the same time, each on nodes and in a
partition of its own, and a test sees what came of one.
"""

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import Said, inside

from hpccoll.store import hdf5
from hpccoll.store.journal import read_journal
from hpccoll.store.results import read_results
from hpccoll.store.scheduler import read_scheduled
from hpccoll.store.wire import with_headers
from hpccoll.sweep.locate import workflows
from hpccoll.sweep.queue import job_prefix

pytestmark = [pytest.mark.slurm, pytest.mark.sweep]

AT_ONCE = 11
"""Drills that run at the same time."""
ENDS_S = 60
"""How long what was killed has for ending."""
LONG_S = 600
"""How long a drill has for what should take a fraction of it: two cores may be busy."""

TINY = """
algorithms: [ring, native]
bytes: [8, 1M]
in_place: false
nodes: [{nodes}]
rounds: 1
effort: {{warmup: 1, min_iterations: 5, max_iterations: 5}}
"""
SLOW = """
algorithms: [ring, native]
bytes: {{from: 8, to: 256}}
in_place: false
nodes: [{nodes}]
rounds: 1
effort: {{warmup: 1, min_iterations: 3, max_iterations: 100000, seconds: 0.3, precision: 0.000001}}
"""
"""12 cases for each number of nodes, of 0.3 s each: time enough to break something."""
CASES = 12
LONG = """
algorithms: ring
bytes: [8, 32M]
in_place: false
nodes: [{nodes}]
rounds: 1
seed: 5
effort: {{warmup: 0, min_iterations: 4000, max_iterations: 4000}}
"""
"""Two cases; the first, by this seed, takes a second, and the other minutes."""


def wait(condition, what, seconds=LONG_S, every=0.05):
    until = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < until, what() if callable(what) else what
        time.sleep(every)
    return answer


def processes(mark):
    """Return the processes on all hosts that carry ``mark`` in their environment: their variables, by process."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            environ = (place / "environ").read_bytes()
            if mark.encode() in environ:
                pairs = (entry.partition(b"=") for entry in environ.split(b"\0"))
                variables = {name.decode(): value.decode() for name, _, value in pairs}
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(place.name)] = {**variables, "command": command}
    return found


@dataclass
class Ground:
    """Where a drill takes place: a directory, and nodes in a partition of the drill's name."""

    bed: object
    home: Path
    name: str
    nodes: list[str]
    disk: Path | None = None
    started: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self):
        self.out = self.home / "results" / "s"

    def plant(self, text=TINY, nodes="2", more="", **site):
        """Write the sweep file and the site file, and return the arguments of a sweep."""
        (self.home / "s.yaml").write_text(text.format(nodes=nodes) + more)
        return self.site(**site)

    def site(self, **keys):
        (self.home / "site.yaml").write_text(
            json.dumps({"partition": self.name, "launcher": "srun --mpi=pmi2", "minutes": 30, **keys})
        )
        return ["s.yaml", "--profile", "testbed", "--site", "site.yaml"]

    def run(self, *command, **variables):
        return self.bed.run(*command, cwd=self.home, timeout=LONG_S, **variables)

    def hpccoll(self, *arguments, **variables):
        """Run a command of hpccoll's on the head host to its end."""
        return self.run(sys.executable, "-m", "hpccoll", *arguments, **variables)

    def start(self, *arguments):
        """Start a sweep."""
        sweep = self.bed.start(sys.executable, "-m", "hpccoll", "sweep", *arguments, cwd=self.home)
        self.started.append(sweep)
        return sweep

    def end(self, sweep):
        """Let a sweep end by itself."""
        out, err = sweep.communicate(timeout=LONG_S)
        return Said(sweep.returncode, out, err)

    def measuring(self, *arguments, event="outcome"):
        """Start a sweep, wait until its job on two nodes has two outcomes more, and stop its ranks where they are."""
        before, sweep = self.events(event), self.start(*arguments)

        def far_enough():
            assert sweep.poll() is None, sweep.communicate()
            return self.events(event) >= before + 2

        wait(far_enough, lambda: f"{self.name} does not measure: {self.logs()}")
        self.signal(signal.SIGSTOP)  # they measure no more, and leave the cores to others
        return sweep

    def events(self, kind):
        journal = self.out / "raw" / "mpi.n2x1.h5.journal"
        return journal.read_bytes().count(b'\n{"%s"' % kind.encode()) if journal.exists() else 0

    def measured(self, job="mpi.n2x1"):
        """Return the start times of every case that has an outcome, by case and attempt."""
        whole = self.out / "raw" / f"{job}.h5"
        raw = hdf5.read(whole) if whole.exists() else read_journal(whole.with_name(whole.name + ".journal"))
        return {(o.case.id, a.number): o.times.start_ns.tobytes() for a, outcomes in raw.attempts for o in outcomes}

    def ranks(self):
        """Return the processes of the ranks, by rank, as they are numbered outside of their hosts."""
        found = processes(f"HPCCOLL_SWEEP={self.out}")
        ranks = {pid: v for pid, v in found.items() if " run --shape" in v["command"] and "SLURM_PROCID" in v}
        return {int(variables["SLURM_PROCID"]): pid for pid, variables in ranks.items()}

    def signal(self, number):
        """Send a signal to the ranks that are left: Slurm ends them, too, once one is dead."""
        for pid in self.ranks().values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def interrupted(self, sweep, state):
        """Interrupt a sweep when Slurm has given its job a state: Snakemake would look at it after a minute or two."""
        wait(lambda: [job.state for job in read_scheduled(self.out)] == [state], f"its job is not {state}", every=0.5)
        os.kill(sweep.pid, signal.SIGINT)
        return self.end(sweep)

    def on_head(self, words):
        found = processes(f"HPCCOLL_SWEEP={self.out}")
        return [pid for pid, v in found.items() if words in v["command"] and "SLURM_JOB_ID" not in v]

    def queue(self):
        """Return Slurm's number and state of each job in the partition, the latest first.

        Five minutes after its end, Slurm forgets a job: a drill asks while it runs, not a test that looks at it later.
        """
        said = self.bed.slurm("squeue", "--states=all", "--noheader", f"--partition={self.partition}", "--format=%i %T")
        return dict(sorted((line.split() for line in said.splitlines()), key=lambda row: -int(row[0])))

    def seconds(self):
        """Return how long the longest job in the partition ran."""
        said = self.bed.slurm("squeue", "--states=all", "--noheader", f"--partition={self.partition}", "--format=%M")
        return max(60 * int(minutes) + int(seconds) for minutes, seconds in (t.split(":") for t in said.split()))

    def shorten(self):
        """Give the job that runs a limit that it reaches after 30 to 90 s."""
        (number,) = self.alive()
        minutes = (self.seconds() + 30) // 60 + 1
        self.bed.slurm("scontrol", "update", f"jobid={number}", f"timelimit={minutes}")

    def alive(self):
        return {number: state for number, state in self.queue().items() if state in ("PENDING", "RUNNING")}

    def left(self):
        """Return what has not ended: Slurm's jobs, and the processes on all hosts that carry the sweep's mark.

        A job's own Snakemake does not count. Where it outlives the script that started it, proctrack/linuxproc of the
        testbed loses sight of it, and Slurm does not kill it as it would in a control group.
        """
        marked = processes(f"HPCCOLL_SWEEP={self.out.parent}")
        left = {pid: v["command"] for pid, v in marked.items() if " --mode remote" not in v["command"]}
        return self.alive() | left

    def init(self, node):
        """Return the first process of a node: whoever kills it pulls the plug."""
        return self.bed.status()["hosts"][node]["init"]

    def status(self, name=None):
        """Return what is said of the sweep, or of another one in this place; one drill at a time may ask."""
        with INSIDE:
            return inside("status", self.home / name if name else self.out)

    @property
    def partition(self):
        return "work" if self.name == "success" else self.name

    @property
    def page(self):
        return (self.out / "report" / "index.html").read_text()

    def logs(self):
        said = [self.out / "logs" / "snakemake.log", *self.out.glob("logs/**/*.log")]
        return "\n".join(f"{path}:\n{path.read_text()[-1500:]}" for path in said if path.exists())


DRILLS = {}
INSIDE = threading.Lock()
"""Held by the drill that runs a command inside this process, whose output and arguments there are once."""


def drill(nodes):
    """Make a fixture of what a drill on so many nodes returns; it leaves no job and no process behind."""

    def decorate(function):
        DRILLS[function.__name__] = function, nodes

        @pytest.fixture(name=function.__name__, scope="module")
        def outcome(running):
            came, left = running[function.__name__].result()
            assert left == {}
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
    """Each drill's ground, all on one testbed."""
    bed, nodes = new_bed("drills"), iter(itertools.count(1))
    grounds = {}
    for name in wanted:
        own = [f"n{next(nodes)}" for _ in range(DRILLS[name][1])]
        grounds[name] = Ground(bed, tmp_path_factory.mktemp(name), name, own, disk)
    bed.up("--nodes", next(nodes) - 1 or 1, "--rate", "none")
    orders = [f"create partitionname={ground.name} nodes={','.join(ground.nodes)}" for ground in grounds.values()]
    if "success" in grounds:  # which is on the partition that the testbed's site file names
        orders += [f"update partitionname=work nodes={','.join(grounds['success'].nodes)}"]
    assert bed.run("scontrol", stdin="\n".join(orders)).code == 0
    yield grounds
    assert bed.slurm("squeue", "--noheader") == ""
    bed.testbed("down")


@pytest.fixture(scope="module")
def running(grounds):
    """The drills, all started, the longest first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(hold, DRILLS[name][0], ground) for name, ground in grounds.items()}
        pool.shutdown(cancel_futures=True)


# The drills, the longest first.


@drill(nodes=2)
def time_limit(ground):
    """A case takes longer than its job has; Slurm lets what is stopped go on when it tells it to end."""
    sweep = ground.measuring(*ground.plant(LONG, signal_s=1), event="start")
    ground.shorten()
    for pid in ground.ranks().values():
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    return ground, ground.interrupted(sweep, "TIMEOUT")


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
    for pid in ground.on_head("-m snakemake"):
        os.kill(pid, signal.SIGKILL)
    sweep.kill()
    sweep.communicate()
    wait(lambda: not ground.on_head("-m snakemake"), "Snakemake survives SIGKILL")
    keep()
    said["left by both"] = len(ground.alive())

    sweep = ground.measuring(*arguments)
    for pid in ground.on_head("-m snakemake"):
        os.kill(pid, signal.SIGKILL)
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


@drill(nodes=2)
def told_to_end(ground):
    """Slurm tells a job to end before its limit, which somebody has made shorter; the next one has time enough."""
    arguments = ground.plant(SLOW)
    sweep = ground.measuring(*arguments)
    ground.shorten()
    first = ground.interrupted(sweep, "FAILED")
    status, kept, files = ground.status(), ground.measured(), sorted(path.name for path in ground.out.glob("raw/*"))
    return ground, first, status, kept, files, ground.hpccoll("sweep", *arguments)


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
    return ground, ground.interrupted(sweep, "NODE_FAIL")


@drill(nodes=2)
def no_pmi(ground):
    """Ranks that Slurm does not introduce to each other."""
    said = ground.hpccoll("sweep", *ground.plant(launcher="srun --mpi=none"))
    return ground, said, ground.page


@drill(nodes=2)
def wrong_launchers(ground):
    """A PMI that the library does not speak, and a launcher that goes its own way; each in a job like a sweep's."""
    said = {}
    for name, launcher in LAUNCHERS.items():
        ground.hpccoll("plan", *ground.plant(launcher=launcher), "--out", name)
        words = shlex.join([sys.executable, "-m", "hpccoll", "launch", f"{name}/plan.json", "mpi.n2x1"])
        ended = ground.run(
            "sbatch", "--wait", f"--partition={ground.name}", "--nodes=2", "--ntasks-per-node=1", "--exclusive",
            "--output=/dev/null", f"--wrap={words} --out {name}/raw/mpi.n2x1.h5",
        )  # fmt: skip
        said[name] = ended, ground.status(name), list((ground.home / name / "raw").glob("*.journal"))
    return said


LAUNCHERS = {"pmix": "srun --mpi=pmix", "template": "srun --mpi=pmi2 -n {ranks} -N 1 --overcommit"}


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
def cancelled(ground):
    """Somebody cancels the job."""
    sweep = ground.measuring(*ground.plant(SLOW))
    ground.bed.slurm("scancel", *ground.alive())
    return ground, ground.end(sweep)


@drill(nodes=4)
def separate(ground):
    """A job for each size, one of them a single rank; a node is drained, and there never were as many as are asked."""
    ground.bed.slurm("scontrol", "update", f"nodename={ground.nodes[-1]}", "state=drain", "reason=drill")
    arguments = ground.plant(nodes="1, 2, 4, 8", more="scaling: separate\n")
    return ground, ground.hpccoll("sweep", *arguments, "--", "--jobs", "2")


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
from hpccoll.sweep.follow import Follower
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


# What came of them.


def test_a_nested_sweep_is_complete_and_knows_where_it_was(success):
    ground, first, *_ = success
    assert first.code == 0, first.err
    assert "8 of 8 cases" in first.out
    results = read_results([ground.out])
    assert {(row.job, row.nodes, row.ranks, row.kind, row.status) for row in results.rows} == {
        ("mpi.n4x1", n, n, "measured on a testbed", "ok") for n in (2, 4)
    }
    assert len(results.rows) == 8
    raw = hdf5.read(ground.out / "raw" / "mpi.n4x1.h5")
    hosts = [[place.host for place in attempt.places] for attempt, _ in raw.attempts]
    assert hosts == [ground.nodes[:2], ground.nodes]
    assert "COMPLETED" in ground.status().out


def test_as_many_bytes_cross_the_wire_as_the_ring_needs(success):
    ground, *_ = success
    rows = [r for r in read_results([ground.out]).rows if (r.algorithm, r.bytes) == ("ring", 1 << 20)]
    assert [row.nodes for row in rows] == [2, 4]
    for row in rows:
        assert row.wire_bytes_predicted == 2 * (row.nodes - 1) * row.bytes
        assert row.wire_bytes_measured == pytest.approx(with_headers(row.wire_bytes_predicted, 9000), rel=0.04)


def test_a_second_sweep_submits_nothing(success):
    _, _, second, (same, new, jobs), _ = success
    assert second.code == 0, second.err
    assert (same, new, jobs) == (True, set(), 1)


def test_plain_snakemake_gives_the_same_cases(success):
    ground, *_, plain = success
    assert plain.code == 0, plain.err
    here, there = (read_results([ground.home / place]).rows for place in ("results/s", "plain"))
    planned, measured = ({(row.job, row.case_id, row.nodes, row.status) for row in rows} for rows in (here, there))
    assert measured == planned
    assert (ground.home / "plain" / "report" / "index.html").exists()


def test_separate_scaling_has_a_job_for_each_size_and_one_rank_is_one(separate):
    ground, said = separate
    assert said.code == 0, said.err
    assert sorted((job.job, job.state) for job in read_scheduled(ground.out)) == [
        ("mpi.n1x1", "COMPLETED"), ("mpi.n2x1", "COMPLETED"),
    ]  # fmt: skip
    there = sorted((row.job, row.nodes, row.ranks) for row in read_results([ground.out]).rows)
    assert there == [("mpi.n1x1", 1, 1)] * 4 + [("mpi.n2x1", 2, 2)] * 4


def test_a_killed_rank_is_named_and_the_next_sweep_measures_the_rest(killed_rank):
    ground, first, job, status, kept, page, second = killed_rank
    log = str(ground.out / "logs" / "slurm" / "rule_measure" / "mpi.n2x1" / f"{job}.log")
    assert (first.code, status.code) == (3, 3)
    for told in (status.out, page):
        assert "failed" in told
        assert ground.nodes[1] in told
        assert f"Slurm job {job}" in told
        assert log in told
    assert second.code == 0, second.err
    now = ground.measured()
    assert kept.items() <= now.items()
    assert len({case for case, _ in now}) == len(now)  # nothing was measured twice
    assert (len(now), {attempt for _, attempt in now}) == (CASES, {1, 2})


def test_a_job_that_is_told_to_end_finishes_its_case_and_the_next_goes_on(told_to_end):
    ground, first, status, kept, files, second = told_to_end
    assert (first.code, status.code) == (3, 3)
    assert "SIGUSR1 told it to end, as Slurm does before a time limit" in status.out
    assert 3 <= len(kept) < CASES
    assert files == ["mpi.n2x1.h5.journal"]
    assert second.code == 0, second.err
    now = ground.measured()
    assert kept.items() <= now.items()
    assert (len(now), {attempt for _, attempt in now}) == (CASES, {1, 2})
    assert sorted(path.name for path in ground.out.glob("raw/*")) == ["mpi.n2x1.h5"]


def test_a_job_that_reaches_its_limit_is_said_to_have(time_limit):
    ground, said = time_limit
    assert said.code == 3, said.err
    (job,) = read_scheduled(ground.out)
    assert re.fullmatch(r"00:\d\d:00", job.limit)
    for told in (said.out, ground.status().out, ground.page):
        assert f"TIMEOUT: it reached its time limit of {job.limit}; Slurm job {job.id}" in told
    assert len(ground.measured()) == 1


def test_a_job_that_somebody_cancels_is_said_to_be_cancelled(cancelled):
    ground, said = cancelled
    assert said.code == 3, said.err
    for told in (said.out, ground.status().out, ground.page):
        assert "CANCELLED: it was cancelled" in told
    assert len(ground.measured()) >= 2


def test_a_host_that_dies_is_told_and_what_does_not_need_it_is_measured(dead_worker):
    ground, said = dead_worker
    see_that_a_host_was_lost(ground, said)
    assert [(job.job, job.state) for job in read_scheduled(ground.out)] == [  # one after the other
        ("mpi.n2x1", "NODE_FAIL"), ("mpi.n1x1", "COMPLETED"),
    ]  # fmt: skip
    assert len(ground.measured("mpi.n1x1")) == CASES


def test_the_host_of_the_batch_script_may_die_too(dead_batch_host):
    see_that_a_host_was_lost(*dead_batch_host)


def see_that_a_host_was_lost(ground, said):
    assert said.code == 3, said.err
    for told in (said.out, ground.status().out, ground.page):
        assert "NODE_FAIL: one of its nodes failed" in told
    assert 2 <= len(ground.measured()) < CASES


def test_a_job_whose_node_is_gone_does_not_wait_for_ever(job_without_a_node):
    ground, said, queue = job_without_a_node
    assert said.code == 0, said.err
    assert list(queue.values()) == ["CANCELLED"]
    (job,) = read_scheduled(ground.out)
    assert "CANCELLED: it was cancelled (it waited 1 s, and Slurm says: " in job.words


def test_what_a_drained_node_and_the_partition_cannot_give_is_planned_away(separate):
    ground, said = separate
    assert said.code == 0, said.err
    results = read_results([ground.out])
    assert {(row.nodes, row.status) for row in results.rows} == {(1, "ok"), (2, "ok")}
    reasons = {gap.reason for gap in results.skipped}
    has = "partition separate has 4 nodes, 1 of them down or drained"
    assert reasons == {f"4 ranks on 4 nodes: {has}", f"8 ranks on 8 nodes: {has}"}
    assert has in ground.page


def test_ranks_that_believe_to_be_alone_are_told_at_once(no_pmi):
    ground, said, page = no_pmi
    status = ground.status()
    assert (said.code, status.code) == (3, 3)
    for told in (said.out, status.out, page):
        assert told.count("each rank believes it is alone; use the launcher of MPICH") == 1
        assert re.search(r"srun --mpi can be [\w, ]*pmi2", told)
    assert not list(ground.out.glob("raw/*.h5*l"))


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("pmix", ["unsupported PMI version PMIx", "srun --mpi can be", "pmi2"]),  # as MPICH itself says
        ("template", ["2 ranks: 2 on ", "asked for were 2 ranks on 2 nodes, 1 on each of "]),
    ],
)
def test_ranks_that_are_not_where_they_should_be_are_told_at_once(wrong_launchers, launcher, words):
    ended, status, journals = wrong_launchers[launcher]
    assert (ended.code, status.code, journals) == (2, 3, [])
    (line,) = [line for line in status.out.splitlines() if "not run: 4 cases" in line]
    assert [word for word in words if word not in line] == []


def test_every_part_of_a_sweep_may_be_killed_and_nothing_is_lost(kills):
    ground, said = kills
    assert said["left by both"] == 1
    assert said["left by Snakemake"] == said["left by Ctrl-C"] == (0, 0)
    for which in ("third", "interrupted"):
        assert said[which].code == 3, said[which].err
        assert said[which].out.splitlines()[-1] == "report: results/s/report/index.html"
    assert "CANCELLED: it was cancelled (the sweep was interrupted)" in said["status"].out, said["status"]
    assert "ended what an earlier sweep left running: Slurm job" in said["third"].err
    assert said["last"].code == 0, said["last"].err
    assert len(ground.measured()) == 22


def test_a_full_disk_is_told_and_with_space_the_sweep_goes_on(full_disk):
    ground, first, status, kept, second = full_disk
    assert (first.code, status.code) == (3, 3), first.err
    assert "No space left on device" in status.out
    assert second.code == 0, second.err
    assert kept.items() <= ground.measured().items()
    assert len(ground.measured()) == CASES


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("partition", ["partition", "'nowhere'", "bad_input", "work"]),
        ("account", ["account", "'gold'", "keeps no accounts"]),
        ("key", ["site.yaml", "partitoin", "partition, account"]),
        ("PATH", ["'scontrol'", "a command on PATH"]),
        ("controller", ["a controller that answers"]),  # it refuses, or takes its time on a busy machine
    ],
)
def test_bad_input_takes_one_line(bad_input, what, words):
    ground, said, queue = bad_input
    assert said[what].complains_of(*words)
    assert not ground.out.exists()
    assert queue == {}


def test_ranks_count_each_other_before_anything_is_measured(testbed):
    said = testbed.run("srun", "-N2", "-n2", "--mpi=pmi2", sys.executable, "-m", "hpccoll", "run", "--shape", "4x1")
    assert said.code == 2
    (line,) = [line for line in said.err.splitlines() if line.startswith("hpccoll: ")]
    assert "2 ranks: 1 on n1, 1 on n2" in line
    assert "asked for were 4 ranks on 4 nodes, 1 on each" in line
