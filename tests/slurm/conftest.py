"""A real Slurm cluster on this machine, for tests that need several hosts."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import ENVIRONMENT, Said


class Bed:
    """A testbed of this test session."""

    program = Path(__file__).parents[2] / "slurm" / "testbed" / "testbed"

    def __init__(self, name: str) -> None:
        self.name = name

    def testbed(self, command, *arguments, timeout=240):
        """Call the testbed's command line."""
        ended = subprocess.run(
            [self.program, command, "--name", self.name, *map(str, arguments)],
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        return Said(ended.returncode, ended.stdout, ended.stderr)

    def up(self, *arguments):
        """Bring it up."""
        said = self.testbed("up", *arguments)
        assert said.code == 0, f"{said.code}\n{said.out}\n{said.err}"
        return said

    def run(self, *command, cwd=None, timeout=240, stdin="", **variables):
        """Run a command on the head host."""
        ended = subprocess.run(
            [self.program, "run", "--name", self.name, *map(str, command)], cwd=cwd, env={**ENVIRONMENT, **variables},
            input=stdin, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        return Said(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *command, cwd=None, **variables):
        """Start a command on the head host, as the leader of a process group; the caller ends it."""
        return subprocess.Popen(
            [self.program, "run", "--name", self.name, *map(str, command)], cwd=cwd, env={**ENVIRONMENT, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip

    def slurm(self, *command):
        """Return what a client of Slurm says: squeue, scontrol..."""
        said = self.run(*command)
        assert said.code == 0, f"{said.code}\n{said.out}\n{said.err}"
        return said.out

    def status(self):
        """Return what `status --json` says, up or not."""
        return json.loads(self.testbed("status", "--json").out)


@pytest.fixture(scope="session")
def new_bed(require) -> Iterator[Callable[[str], Bed]]:
    """Name a testbed; whatever comes of it, it is taken down in the end."""
    named = []

    def new_bed(word: str) -> Bed:
        bed = Bed(f"test-{os.getpid()}-{word}")
        said = bed.testbed("up", "--rate", "0mbit")  # which never comes up: what else is wrong is said first
        require("--rate" in said.err, said.err.strip())
        named.append(bed)
        return bed

    yield new_bed
    for bed in named:
        bed.testbed("down")


@pytest.fixture(scope="session")
def testbed(new_bed) -> Bed:
    """Have four nodes on wires of 1 Gbit/s."""
    bed = new_bed("main")
    bed.up("--nodes", 4, "--rate", "1gbit")
    return bed
