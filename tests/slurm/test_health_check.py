"""Slurm drains a node that fails its health check, with our reason, and has it back once it is healthy."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from cli_runner import PROGRAMS
from patience import wait

from hpccoll.diagnosis.node_health import NodeReference, write_node_reference

pytestmark = [pytest.mark.slurm, pytest.mark.mpi]

SCRIPT = Path(__file__).parents[2] / "slurm" / "healthcheck.sh"

WRAPPER = """\
#!/bin/sh
export HPCCOLL={hpccoll} HPCCOLL_REFERENCE={directory}/$SLURMD_NODENAME.json
exec {script}
"""

HEALTH_CHECK = """
HealthCheckProgram={wrapper}
HealthCheckInterval=5
HealthCheckNodeState=IDLE
"""

PROLOG = """
Prolog={wrapper}
PrologFlags=Alloc
"""

HEALTHY_SHARE = 0.5
"""The part of what a node gave that its reference has: other tests use the CPUs of the machine, too."""


@pytest.fixture(scope="module")
def cluster(new_testbed, mpiexec):  # noqa: ARG001 - there is an MPI library
    """Have two nodes, whose slurm.conf is this module's own."""
    testbed = new_testbed("health")
    testbed.up("--nodes", 2, "--rate", "none")
    yield testbed
    testbed.command("down")


def node_state(cluster, node):
    """Return the state of a node, and why it is drained."""
    said = cluster.slurm("scontrol", "show", "node", "--oneliner", node)
    reason = re.search(r" Reason=(.*?)(?: \[|$)", said.strip())
    return re.search(r" State=(\S+)", said)[1], reason[1] if reason else ""


def is_drained(cluster, node):
    return "DRAIN" in node_state(cluster, node)[0]


@pytest.fixture
def reference(cluster, tmp_path):
    """Write the reference of n2 from what a check of it gives now."""
    words = sys.executable, "-m", "hpccoll", "diagnose", "--here", "--json"
    checked = cluster.run("srun", "--nodelist=n2", "-N1", "-n1", "-c2", "--mpi=none", *words)
    assert checked.code == 0, f"{checked.out}\n{checked.err}"
    record = json.loads(checked.out)
    rates = {name: [HEALTHY_SHARE * rate] for name, rate in record["rates"].items()}
    reference = NodeReference(host="n2", created="now", rates=rates, facts=record["facts"])
    write_node_reference(reference, tmp_path / "n2.json")


def script_of(tmp_path):
    """Return the script with the settings of this test, for slurm.conf has no place for them."""
    wrapper = tmp_path / "check.sh"
    text = WRAPPER.format(
        hpccoll=shlex.quote(str(PROGRAMS / "hpccoll")), directory=tmp_path, script=SCRIPT
    )
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    return wrapper


@pytest.fixture
def configure(cluster):
    """Add lines to slurm.conf; in the end they are taken back."""
    path = Path("/run/hpccoll-testbed") / cluster.name / "etc" / "slurm.conf"
    before = path.read_text()

    def configure(lines):
        path.write_text(before + lines)
        cluster.slurm("scontrol", "reconfigure")

    yield configure
    configure("")


@pytest.mark.usefixtures("reference")
def test_a_slow_node_is_drained_with_our_reason_and_comes_back_when_it_is_healthy(
    cluster, configure, tmp_path
):
    assert cluster.command("fault", "n2", "--cpu", "10%").code == 0
    try:
        configure(HEALTH_CHECK.format(wrapper=script_of(tmp_path)))
        wait(lambda: is_drained(cluster, "n2"), "n2 is not drained")
        state, reason = node_state(cluster, "n2")
        assert reason.startswith("hpccoll: bad: "), (state, reason)
        assert "of the reference" in reason or "did not end" in reason
    finally:
        cluster.command("clear")
    wait(lambda: not is_drained(cluster, "n2"), "n2 does not come back")
    assert not is_drained(cluster, "n1")
    assert cluster.run("srun", "--nodelist=n2", "hostname").out == "n2\n"


def test_as_a_prolog_it_keeps_jobs_from_a_bad_node_and_not_from_others(
    cluster, configure, tmp_path
):
    facts = {"host": {"CPUs": 1_000_000}}  # most of them are missing now
    reference = NodeReference(host="n2", created="now", rates={}, facts=facts)
    write_node_reference(reference, tmp_path / "n2.json")
    configure(PROLOG.format(wrapper=script_of(tmp_path)))
    assert cluster.run("srun", "--nodelist=n1", "hostname").out == "n1\n"
    refused = cluster.run("srun", "--nodelist=n2", "hostname")
    assert (refused.code != 0, refused.out) == (True, "")
    assert is_drained(cluster, "n2")
    assert node_state(cluster, "n2")[1].startswith("hpccoll: bad: host: CPUs ")
    cluster.slurm("scontrol", "update", "NodeName=n2", "State=RESUME")
