"""A real Slurm cluster on this machine, for tests that need several hosts."""

import os
from collections.abc import Callable, Iterator

import pytest
from slurm_testbed import Testbed


@pytest.fixture(scope="session")
def new_testbed(require) -> Iterator[Callable[[str], Testbed]]:
    """Name a testbed; whatever comes of it, it is taken down in the end."""
    named = []

    def new_testbed(word: str) -> Testbed:
        testbed = Testbed(f"test-{os.getpid()}-{word}")
        # it never comes up: any other error comes first
        result = testbed.command("up", "--rate", "0mbit")
        require("--rate" in result.err, result.err.strip())
        named.append(testbed)
        return testbed

    yield new_testbed
    for testbed in named:
        testbed.command("down")


@pytest.fixture(scope="session")
def testbed(new_testbed) -> Testbed:
    """Have four nodes on wires of 1 Gbit/s, each with eight GPUs that only Slurm knows."""
    testbed = new_testbed("main")
    testbed.up("--nodes", 4, "--rate", "1gbit", "--gpus", 8)
    return testbed


@pytest.fixture(scope="session")
def fabric(new_testbed) -> Testbed:
    """Have four workers in two racks, two aggregators, and two rails, on slow wires."""
    testbed = new_testbed("fabric")
    uplinks = ("--racks", 2, "--uplink", "100mbit")
    testbed.up("--nodes", 4, "--rate", "100mbit", *uplinks, "--aggregators", 2, "--rails", 2)
    return testbed
