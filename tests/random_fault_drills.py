"""The drills by hand: at random times of a sweep's life a part of it is killed or stopped, or its disk takes no more.

    python tests/random_fault_drills.py [--rounds 12] [--seed 1] [DRILL...]

After each the same sweep again has to complete: nothing that was measured is lost or measured
twice, nothing of ours is left running, exit codes are the documented ones, and no output holds a
traceback. Ends with 1 where a round failed. It needs root for the file systems that it mounts;
slurmd and slurmctld need the testbed, too.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cli_runner import ENVIRONMENT
from slurm_testbed import Testbed
from sweep_sandbox import LONG_S, SweepSandbox, processes_of_sweep

from hpccoll.common.errors import BadInputError

SWEEP = """
algorithms: [ring, native]
bytes: {{from: 8, to: 64}}
in_place: false
rounds: 1
effort: {{warmup: 1, min_iterations: 3, max_iterations: 100000, seconds: 0.25, precision: 0.000001, timeout: 4}}
"""
CASES = 8
MEASURING_S = 4.0
"""How long that takes, about."""
SETTLES_S = 30.0
"""How long a service may take that has come back until it knows what its jobs and nodes are."""
OURS = "Traceback (most recent call last)"


class FailedError(Exception):
    """A round has failed, and why."""


class Local:
    """Stands for the testbed where the ranks of a sweep run on this host, without Slurm."""

    def start(self, *command: object, cwd: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*map(str, command)],
            cwd=cwd,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def slurm(self, *_command: str) -> str:
        return ""


class Scene(SweepSandbox):
    """A sweep in a directory that is a small file system of its own."""

    def __init__(self, home: Path, testbed: Testbed | None, draw: random.Random) -> None:
        super().__init__(testbed or Local(), home, "s", ["n1", "n2"])
        self.random, self.notes, self.hit = draw, list[str](), False
        self.job = "mpi.n2x1" if testbed else "mpi.p2"
        arguments = self.plant(SWEEP, more="nodes: [2]\n" if testbed else "ranks: 2\n")
        self.arguments = arguments if testbed else arguments[:1]

    def sweep(self) -> subprocess.Popen[str]:
        return self.start(*self.arguments)

    def ended(self, sweep: subprocess.Popen[str], codes: set[int]) -> str:
        """Return what a sweep that ends with one of ``codes`` has printed."""
        try:
            ended = self.end(sweep)
        except subprocess.TimeoutExpired:
            raise FailedError(f"does not end: {self.left()}\n{self.logs()}") from None
        printed = f"{ended.out}\n{ended.err}"
        if ended.code not in codes or OURS in printed:
            raise FailedError(f"ended with {ended.code}\n{printed}\n{self.logs()}")
        self.notes.append(str(ended.code))
        return printed

    def kept(self) -> dict[tuple[str, int], bytes]:
        """Return the start times of what was measured, by case and attempt."""
        with suppress(BadInputError, OSError):
            return self.measured(self.job)
        return {}

    def find(self, part: str, sweep: subprocess.Popen[str]) -> int | None:
        """Return the process that is a part of the sweep, as soon as there is one; None where the sweep has ended.

        What lives only while it measures is hit at a random time of that.
        """
        if part == "sweep":
            return sweep.pid
        first = True
        while sweep.poll() is None:
            pids = [
                pid for pid, about in processes_of_sweep(self.out).items() if PARTS[part](about)
            ]
            if pids and (part == "snakemake" or not first):
                return self.random.choice(pids)
            time.sleep(self.random.uniform(0, MEASURING_S) if pids else 0.2)
            first = not pids
        return None


PARTS: dict[str, Callable[[dict[str, str]], object]] = {
    "rank": lambda about: "PMI_RANK" in about and "hpccoll run" in about["command"],
    "mpiexec": lambda about: (
        "PMI_RANK" not in about and re.match(r"(\S+ )?\S*mpiexec -n ", about["command"])
    ),
    "snakemake": lambda about: "-m snakemake -s" in about["command"],
}


def kill(part: str, scene: Scene, sweep: subprocess.Popen[str]) -> None:
    scene.hit = False
    with suppress(ProcessLookupError):
        if pid := scene.find(part, sweep):
            os.kill(pid, signal.SIGKILL)
            scene.hit = True


def stop(part: str, scene: Scene, sweep: subprocess.Popen[str]) -> None:
    """Stop a part; it goes on after seconds, or never does: a watchdog ends the job, or Ctrl-C the sweep."""
    pid = scene.find(part, sweep)
    scene.hit = bool(pid)
    if not pid:
        return
    for_ever = scene.random.random() < (0.5 if part == "rank" else 0.2)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        scene.notes.append("stopped for ever" if for_ever else "stopped")
        time.sleep(scene.random.uniform(0.5, 6))
        if not for_ever:
            os.kill(pid, signal.SIGCONT)
        elif part != "rank" and sweep.poll() is None:
            scene.notes.append("Ctrl-C")
            os.kill(sweep.pid, signal.SIGINT)


def full_disk(scene: Scene, sweep: subprocess.Popen[str]) -> None:
    filler = scene.home / "filler"
    with filler.open("wb", buffering=0) as file:
        while sweep.poll() is None:  # what is removed meanwhile is filled again
            with suppress(OSError):
                while True:
                    file.write(bytes(4096))
            time.sleep(0.05)
    filler.unlink()


def read_only(scene: Scene, sweep: subprocess.Popen[str]) -> None:
    """No directory takes a new name or loses one; root is bound by nothing less than this attribute."""
    places = [scene.home, *(place for place in scene.home.rglob("*") if place.is_dir())]
    subprocess.run(["chattr", "+i", *places], check=False, capture_output=True)  # one may be gone
    with suppress(subprocess.TimeoutExpired):
        sweep.wait(LONG_S)
    subprocess.run(["chattr", "-R", "-i", scene.home], check=False, capture_output=True)


def restart(
    host: str,
    service: str,
    least_s: float,
    most_s: float,
    scene: Scene,
    _sweep: subprocess.Popen[str],
) -> None:
    """Kill a service of Slurm's, and start it again after some seconds; then look after nodes, as operators have to.

    A controller that has not written that a job runs starts it again when it is back; the node
    refuses the second copy, and is drained for it, until somebody resumes it.
    """
    scene.testbed.kill(host, service)
    away_s = scene.random.uniform(least_s, most_s)
    scene.notes.append(f"away {away_s:.0f} s")
    time.sleep(away_s)
    scene.testbed.restart(host, service)
    until = time.monotonic() + SETTLES_S
    while time.monotonic() < until:
        for line in scene.testbed.run(
            "sinfo", "--noheader", "--Node", "--format=%N %T"
        ).out.splitlines():
            node, state = line.split()
            if state.startswith("drain"):
                scene.testbed.run("scontrol", "update", f"nodename={node}", "state=resume")
                scene.notes.append(f"{node} resumed")
        time.sleep(2)


@dataclass(frozen=True)
class Drill:
    """What is done to a sweep, and the exit codes that the sweep may have then."""

    hit: Callable[[Scene, subprocess.Popen[str]], None]
    codes: frozenset[int] = frozenset({0, 3})
    slurm: bool = False
    # whether it is for what lives only while it measures, and chooses its time itself
    measuring: bool = False


# Where it was so early that nothing could be written below --out: 1 of a full disk, which is no
# fault of the input, and 2 of a directory that the user may not write.
FULL = frozenset({0, 1, 3})
READ_ONLY = frozenset({0, 2, 3})
DRILLS = {
    "kill-rank": Drill(partial(kill, "rank"), measuring=True),
    "kill-mpiexec": Drill(partial(kill, "mpiexec"), measuring=True),
    "kill-snakemake": Drill(partial(kill, "snakemake")),
    "kill-sweep": Drill(partial(kill, "sweep"), frozenset({0, 3, -signal.SIGKILL})),
    "stop-rank": Drill(partial(stop, "rank"), measuring=True),
    "stop-mpiexec": Drill(partial(stop, "mpiexec"), measuring=True),
    "stop-snakemake": Drill(partial(stop, "snakemake")),
    "full-disk": Drill(full_disk, FULL),
    "read-only": Drill(read_only, READ_ONLY),
    "slurmd": Drill(partial(restart, "n2", "slurmd", 0, 30), slurm=True),
    "slurmctld": Drill(
        partial(restart, "head", "slurmctld", 15, 40), frozenset({0, 2}), slurm=True
    ),
}


def held(drill: Drill, scene: Scene, after_s: float) -> None:
    """Hold one round: hit the sweep ``after_s`` seconds after its start, and see the same sweep complete afterwards.

    Raises:
        FailedError: with what is wrong.
    """
    sweep = scene.sweep()
    try:
        with suppress(subprocess.TimeoutExpired):
            sweep.wait(0 if drill.measuring else after_s)
        scene.hit = sweep.poll() is None
        if scene.hit:
            drill.hit(scene, sweep)
        scene.ended(sweep, set(drill.codes))
        kept = scene.kept()
        scene.notes.append(f"{len(kept)} kept")
        sweep = scene.sweep()
        output = scene.ended(sweep, {0})
    finally:
        with suppress(ProcessLookupError):
            sweep.kill()
            sweep.communicate()
    now = scene.kept()
    if (
        f"{CASES} of {CASES} cases" not in output
        or len(now) != CASES
        or len({case for case, _ in now}) != CASES
    ):
        raise FailedError(f"not complete, or measured twice: {sorted(now)}\n{output}")
    if not kept.items() <= now.items():
        raise FailedError(f"lost: {sorted(kept.keys() - now.keys())}")
    if left := scene.left():
        raise FailedError(f"left: {left}")


@contextmanager
def file_system() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def cluster(name: str) -> Iterator[Testbed]:
    testbed = Testbed(f"by-hand-{os.getpid()}-{name}")
    try:
        testbed.up("--nodes", 2, "--rate", "none")
        yield testbed
    finally:
        testbed.command("down")


def rounds(name: str, count: int, seed: int) -> int:
    """Hold a drill so many times, and return how often it passed."""
    drill, passed, draw = DRILLS[name], 0, random.Random(f"{seed} {name}")  # noqa: S311 - times, not secrets
    life_s = 0.0
    for number in range(count + 1):  # the first is left alone, and says how long a sweep lives
        with file_system() as home, cluster(name) if drill.slurm else nullcontext() as testbed:
            scene = Scene(home, testbed, draw)
            if not number:
                begun = time.monotonic()
                scene.ended(scene.sweep(), {0})
                life_s = time.monotonic() - begun
                continue
            after_s = draw.uniform(0.1, life_s)
            try:
                held(drill, scene, after_s)
                # it had ended before: the same sweep again, from its beginning
                while not scene.hit:
                    shutil.rmtree(scene.out)
                    after_s *= 0.7
                    held(drill, scene, after_s)
            except FailedError as failure:
                print(
                    f"{name} {number}, after {after_s:.2f} s ({', '.join(scene.notes)}): {failure}",
                    flush=True,
                )
            else:
                passed += 1
                print(
                    f"{name} {number}, after {after_s:.2f} s ({', '.join(scene.notes)}): passed",
                    flush=True,
                )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("drills", nargs="*", metavar="DRILL", help=", ".join(DRILLS))
    arguments = parser.parse_args()
    if unknown := set(arguments.drills) - DRILLS.keys():
        parser.error(f"no such drill: {', '.join(sorted(unknown))}; valid: {', '.join(DRILLS)}")
    table = {
        name: rounds(name, arguments.rounds, arguments.seed) for name in arguments.drills or DRILLS
    }
    print("\n| drill | times | passed |\n| --- | --- | --- |")
    for name, passed in table.items():
        print(f"| {name} | {arguments.rounds} | {passed} |")
    return int(any(passed < arguments.rounds for passed in table.values()))


if __name__ == "__main__":
    sys.exit(main())
