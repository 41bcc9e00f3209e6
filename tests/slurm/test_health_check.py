"""Slurm drains a node that fails its health check, with our reason, and has it back once it is healthy."""

import json
import re
import shlex
import subprocess
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

SMALL_MTU = 1500


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


def write_reference(directory, facts):
    """Write a reference of n2 without rates: other tests use the CPUs of the machine, too."""
    reference = NodeReference(host="n2", created="now", rates={}, facts=facts)
    write_node_reference(reference, directory / "n2.json")


def facts_of_n2(cluster):
    """Return what a check of n2 reads of its devices."""
    words = sys.executable, "-m", "hpccoll", "diagnose", "--here", "--json"
    checked = cluster.run("srun", "--nodelist=n2", "-N1", "-n1", "-c2", "--mpi=none", *words)
    record = json.loads(checked.out)
    assert any(name.startswith("memory copies") for name in record["rates"])
    return record["facts"]


def set_mtu(cluster, nbytes):
    """Set the MTU of the wire of n2 at its end."""
    init = str(cluster.status()["hosts"]["n2"]["init"])
    setting = "ip", "link", "set", "dev", "eth0", "mtu", str(nbytes)
    subprocess.run(["nsenter", "--target", init, "--net", *setting], check=True)


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


def test_a_bad_node_is_drained_with_our_reason_and_comes_back_when_it_is_healthy(
    cluster, configure, tmp_path
):
    facts = facts_of_n2(cluster)
    usual_mtu = facts["port eth0"]["MTU"]
    write_reference(tmp_path, facts)
    set_mtu(cluster, SMALL_MTU)
    try:
        configure(HEALTH_CHECK.format(wrapper=script_of(tmp_path)))
        wait(lambda: is_drained(cluster, "n2"), "n2 is not drained")
        _, reason = node_state(cluster, "n2")
        expected = f"port eth0: MTU {SMALL_MTU} instead of {usual_mtu}"
        assert reason == f"hpccoll: bad: {expected}"
    finally:
        set_mtu(cluster, usual_mtu)
    wait(lambda: not is_drained(cluster, "n2"), "n2 does not come back")
    assert not is_drained(cluster, "n1")
    assert cluster.run("srun", "--nodelist=n2", "hostname").out == "n2\n"


def test_as_a_prolog_it_keeps_jobs_from_a_bad_node_and_not_from_others(
    cluster, configure, tmp_path
):
    write_reference(tmp_path, {"host": {"CPUs": 1_000_000}})  # most of them are missing now
    configure(PROLOG.format(wrapper=script_of(tmp_path)))
    assert cluster.run("srun", "--nodelist=n1", "hostname").out == "n1\n"
    runs = []

    def is_refused():
        """Return whether n2 refuses a job: its slurmd may not have read the new slurm.conf yet."""
        runs.append(cluster.run("srun", "--nodelist=n2", "hostname"))
        return runs[-1].code != 0

    wait(is_refused, "n2 takes jobs")
    assert runs[-1].out == ""
    assert is_drained(cluster, "n2")
    assert node_state(cluster, "n2")[1].startswith("hpccoll: bad: host: CPUs ")
    cluster.slurm("scontrol", "update", "NodeName=n2", "State=RESUME")
