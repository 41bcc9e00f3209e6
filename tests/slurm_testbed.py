"""A real Slurm cluster on this machine: a testbed that a test or a drill calls, breaks and mends."""

import json
import os
import re
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT, CommandResult

from hpccoll.sweep.slurm.squeue import LIVE_STATES

ENDED = f"""
until job=$(scontrol -o show job $0) && ! [[ $job =~ JobState=({"|".join(LIVE_STATES)}) ]]
do sleep 0.3; done
echo "$job"
"""
"""A job as it is when it has ended; a controller that is too busy to answer is asked again."""


def on_host(library, memory):
    """Return the variables with which hpccoll runs over NCCL without a GPU, for jobs, or for ranks by a site file.

    Args:
        library: the directory of the test library of NCCL.
        memory: a directory that all hosts share, for what ranks exchange.
    """
    programs = Path(__file__).parent / "gpu" / "on_host"
    path = f"{programs}{os.pathsep}{ENVIRONMENT['PATH']}"
    return {"PATH": path, "HPCCOLL_TEST_NCCL": str(library), "HPCCOLL_TEST_MEMORY": str(memory)}


class Testbed:
    """A testbed of this test session."""

    program = Path(__file__).parents[1] / "slurm" / "testbed" / "testbed"

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, command, *arguments, timeout=240):
        """Call the testbed's command line."""
        ended = subprocess.run(
            [self.program, command, "--name", self.name, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)

    def up(self, *arguments):
        """Bring it up."""
        result = self.command("up", *arguments)
        assert result.code == 0, f"{result.code}\n{result.out}\n{result.err}"
        return result

    def run(self, *command, cwd=None, timeout=240, stdin="", **variables):
        """Run a command on the head host."""
        with self.start(*command, cwd=cwd, stdin=subprocess.PIPE, **variables) as child:
            try:
                out, err = child.communicate(stdin, timeout)
            except subprocess.TimeoutExpired as late:
                seen = self.scene(command)
                os.killpg(child.pid, signal.SIGKILL)
                pytest.fail(f"{late}\n{seen}")
        return CommandResult(child.returncode, out, err)

    def start(self, *command, cwd=None, stdin=None, **variables):
        """Start a command on the head host, as the leader of a process group; the caller ends it."""
        return subprocess.Popen(
            [self.program, "run", "--name", self.name, *map(str, command)],
            cwd=cwd,
            env={**ENVIRONMENT, **variables},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def scene(self, command):
        """Return what there is to see where a command does not end: jobs, hosts, processes, and the logs of a sweep."""
        inside = [self.program, "run", "--name", self.name, "timeout", "30"]
        looks = (
            [*inside, "squeue", "--long", "--states=all"],
            [*inside, "sinfo", "--long", "--Node"],
            ["ps", "-ww", "-eo", "pid,ppid,stat,wchan:20,etime,args"],  # of all hosts
        )
        outs = [Path(place) for word, place in pairwise(map(str, command)) if word == "--out"]
        logs = [log for out in outs for log in sorted((out / "logs").rglob("*.log"))]
        seen = [
            subprocess.run(look, capture_output=True, text=True, check=False).stdout
            for look in looks
        ]
        seen += [f"{log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs]
        return "\n".join(seen)

    def slurm(self, *command):
        """Return what a client of Slurm says: squeue, scontrol..."""
        result = self.run(*command)
        assert result.code == 0, f"{result.code}\n{result.out}\n{result.err}"
        return result.out

    def end_of(self, number):
        """Wait for the end of a job, and return its exit code; sbatch --wait would look every 2, 6, 10... seconds."""
        job = self.slurm("bash", "-c", ENDED, number)
        return int(re.search(r" ExitCode=(\d+):", job)[1])

    def status(self):
        """Return what `status --json` says, up or not."""
        return json.loads(self.command("status", "--json").out)

    def kill(self, host, service):
        """Kill a service of Slurm's on a host: slurmctld on head, slurmd on a node."""
        os.kill(self.status()["hosts"][host][service], signal.SIGKILL)

    def restart(self, host, service):
        """Start a service again, as a child of the host's first process, like the one that was killed."""
        words = [service, "-D"] if host == "head" else [service, "-D", "-N", host]
        init = str(self.status()["hosts"][host]["init"])
        command = ["nsenter", "--target", init, "--all", "setsid", "--fork", *words]
        subprocess.run(
            command,
            env={"PATH": os.defpath + ":/usr/sbin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
