"""A real Slurm cluster on this machine, for tests that need several hosts."""

import os
from collections.abc import Callable, Iterator

import pytest
from beds import Bed


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
