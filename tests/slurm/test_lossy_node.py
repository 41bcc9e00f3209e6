"""A diagnosis of real hosts, one of which loses packets: the times hide it, the connections name it."""

import json
import sys

import pytest

pytestmark = pytest.mark.slurm

DIAGNOSE = (
    "srun",
    "-N",
    "4",
    "--ntasks-per-node=1",
    sys.executable,
    "-m",
    "hpccoll",
    "diagnose",
    "--json",
    "--no-links",
)


@pytest.mark.mpi
def test_a_node_that_loses_packets_is_named_with_the_direction(testbed, mpiexec):  # noqa: ARG001 - there is an MPI library
    assert testbed.command("fault", "n3", "--loss", "2%", "--receive").code == 0
    try:
        # of the packets of a node, some 4,000 carry data
        ended = testbed.run(*DIAGNOSE, "--seconds", "0.05")
    finally:
        testbed.command("clear")
    assert ended.code == 3, ended.err
    found = [each for each in json.loads(ended.out)["findings"] if each["kind"] == "losses"]
    assert [(each["hosts"], each["severity"]) for each in found] == [(["n3"], "critical")]
    assert 0.005 < found[0]["received"] < 0.05
    assert "sent" not in found[0]
