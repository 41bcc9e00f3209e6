"""Where a drill with a sweep on Slurm takes place: a directory, nodes of the testbed, and the means to break things."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cli_runner import CommandResult, invoke

from hpccoll.store import hdf5
from hpccoll.store.checksummed_lines import starts_with_key
from hpccoll.store.journal import read_journal

LONG_S = 600
"""How long a drill has for what should take a fraction of it: two cores may be busy."""
INSIDE = threading.Lock()
"""Held by the drill that runs a command inside this process, whose output and arguments there are once."""

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


def processes_of_sweep(out):
    """Return the processes of sweeps in ``out``, on all hosts, without a job's own Snakemake.

    Where that outlives the script that started it, proctrack/linuxproc of the testbed loses sight
    of it, and Slurm does not kill it as it would in a control group.
    """
    found = processes(f"HPCCOLL_SWEEP={out}")
    return {pid: about for pid, about in found.items() if " --mode remote" not in about["command"]}


def start_times(raw):
    """Return the start times of what was measured, by case and attempt."""
    outcomes = ((attempt, each) for attempt, of_attempt in raw.attempts for each in of_attempt)
    return {
        (each.case.id, a.number): each.times.start_ns.tobytes()
        for a, each in outcomes
        if each.times is not None
    }


def logs_of(out):
    """Return the ends of the logs of a sweep."""
    logs = [out / "logs" / "snakemake.log", *out.glob("logs/**/*.log")]
    return "\n".join(
        f"{path}:\n{path.read_text(errors='replace')[-1500:]}" for path in logs if path.exists()
    )


@dataclass
class SweepSandbox:
    """Where a drill takes place: a directory, and nodes in a partition."""

    testbed: object
    home: Path
    name: str
    nodes: list[str]
    disk: Path | None = None
    partition: str = "work"
    started: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self):
        self.out = self.home / "results" / "s"

    def plant(self, text=TINY, nodes="2", more="", **site):
        """Write the sweep file and the site file, and return the arguments of a sweep."""
        (self.home / "s.yaml").write_text(text.format(nodes=nodes) + more)
        return self.site(**site)

    def site(self, **keys):
        (self.home / "site.yaml").write_text(
            json.dumps(
                {"partition": self.partition, "launcher": "srun --mpi=pmi2", "minutes": 30, **keys}
            )
        )
        return ["s.yaml", "--profile", "testbed", "--site", "site.yaml"]

    def run(self, *command, **variables):
        return self.testbed.run(*command, cwd=self.home, timeout=LONG_S, **variables)

    def hpccoll(self, *arguments, **variables):
        """Run a command of hpccoll's on the head host to its end."""
        return self.run(sys.executable, "-m", "hpccoll", *arguments, **variables)

    def start(self, *arguments):
        """Start a sweep."""
        sweep = self.testbed.start(
            sys.executable, "-m", "hpccoll", "sweep", *arguments, cwd=self.home
        )
        self.started.append(sweep)
        return sweep

    def end(self, sweep):
        """Let a sweep end by itself."""
        out, err = sweep.communicate(timeout=LONG_S)
        return CommandResult(sweep.returncode, out, err)

    def wait_for_line(self, sweep, text):
        """Return the first line of a sweep's stderr that contains ``text``, as soon as the sweep prints it."""
        return next(line for line in sweep.stderr if text in line)

    def measuring(self, *arguments, case=3):
        """Start a sweep, wait until its job on two nodes begins such a case of its own, and stop its ranks in there."""
        attempts, before, sweep = (
            self.events("attempt"),
            self.events("start"),
            self.start(*arguments),
        )

        def more(kind, number):
            assert sweep.poll() is None, sweep.communicate()
            return self.events(kind) >= number

        def idle():
            return f"{self.name} does not measure: {self.logs()}"

        wait(lambda: more("attempt", attempts + 1), idle)
        ranks = self.ranks()  # to look for them takes time, in which they would go on
        wait(lambda: more("start", before + case), idle, every=0.01)
        for pid in ranks.values():
            os.kill(pid, signal.SIGSTOP)  # they measure no more, and leave the cores to others
        return sweep

    def events(self, kind, job="mpi.n2x1"):
        journal = self.out / "raw" / f"{job}.h5.journal"
        return (
            sum(starts_with_key(line, kind) for line in journal.read_bytes().split(b"\n"))
            if journal.exists()
            else 0
        )

    def measured(self, job="mpi.n2x1"):
        """Return the start times of every case that has an outcome, by case and attempt."""
        whole = self.out / "raw" / f"{job}.h5"
        raw = (
            hdf5.read_raw_file(whole)
            if whole.exists()
            else read_journal(whole.with_name(whole.name + ".journal"))
        )
        return start_times(raw)

    def ranks(self):
        """Return the processes of the ranks, by rank, as they are numbered outside of their hosts."""
        found = processes(f"HPCCOLL_SWEEP={self.out}")
        # not srun
        ranks = {
            pid: v for pid, v in found.items() if " run --shape" in v["command"] and "PMI_RANK" in v
        }
        return {int(variables["PMI_RANK"]): pid for pid, variables in ranks.items()}

    def signal(self, number):
        """Send a signal to the ranks that are left: Slurm ends them, too, once one is dead."""
        for pid in self.ranks().values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def interrupted(self, sweep):
        """Interrupt a sweep when Slurm has ended its job: Snakemake would look at it after a minute or two."""
        (number,) = self.queue()
        self.testbed.end_of(number)
        os.kill(sweep.pid, signal.SIGINT)
        return self.end(sweep)

    def on_head(self, words):
        found = processes(f"HPCCOLL_SWEEP={self.out}")
        return [
            pid for pid, v in found.items() if words in v["command"] and "SLURM_JOB_ID" not in v
        ]

    def queue(self):
        """Return Slurm's number and state of each job in the partition, the latest first.

        Five minutes after its end, Slurm forgets a job: a drill asks while it runs, not a test that
            looks at it later.
        """
        output = self.testbed.slurm(
            "squeue",
            "--states=all",
            "--noheader",
            f"--partition={self.partition}",
            "--format=%i %T",
        )
        return dict(
            sorted((line.split() for line in output.splitlines()), key=lambda row: -int(row[0]))
        )

    def shorten(self, seconds):
        """Have the job that runs end after so many seconds, as an operator may; Slurm looks every 30 s."""
        (number,) = self.alive()
        self.testbed.slurm("scontrol", "update", f"jobid={number}", f"endtime=now+{seconds}")

    def alive(self):
        return {
            number: state
            for number, state in self.queue().items()
            if state in ("PENDING", "RUNNING")
        }

    def left(self):
        """Return what has not ended: Slurm's jobs, and the processes of sweeps here."""
        return self.alive() | {
            pid: about["command"] for pid, about in processes_of_sweep(self.out.parent).items()
        }

    def init(self, node):
        """Return the first process of a node: whoever kills it pulls the plug."""
        return self.testbed.status()["hosts"][node]["init"]

    def status(self, name=None):
        """Return the status of the sweep, or of another one in this directory; one drill at a time may call it."""
        with INSIDE:
            return invoke("status", self.home / name if name else self.out)

    @property
    def page(self):
        return (self.out / "report" / "index.html").read_text()

    def logs(self):
        return logs_of(self.out)
