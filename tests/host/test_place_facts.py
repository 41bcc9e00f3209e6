"""Facts about the environment of a process."""

import platform
import shutil
import sys

import pytest
from cli_runner import ENVIRONMENT, spawn

from hpccoll.host import place_facts
from hpccoll.host.place_facts import is_oversubscribed, rack_name


def masks(*texts):
    return [frozenset(map(int, text.split())) for text in texts]


TWO = masks("0 1", "0 1")


@pytest.mark.parametrize(
    ("ranks", "quotas", "oversubscribed"),
    [
        (TWO, [], False),
        (masks("0 1", "0 1", "0 1"), [], True),
        (masks("0 1 2 3", "0", "1"), [], False),
        (masks("0", "0", "1 2 3"), [], True),  # two ranks on one core
        # a rank on half a CPU
        (TWO, [{"pod": 2.0}, {"pod": 2.0}], False),
        (TWO, [{"pod": 0.5}, {}], True),
        # each rank has a quota of its own
        (TWO, [{"pod": 2.0, "a": 1.0}, {"pod": 2.0, "b": 1.0}], False),
        (TWO, [{"slice": 1.0, "a": 1.0}, {"slice": 1.0, "b": 1.0}], True),
    ],
)
def test_a_node_is_oversubscribed_if_ranks_must_share_a_cpu_or_exceed_a_quota(
    ranks, quotas, oversubscribed
):
    assert is_oversubscribed(ranks, quotas) is oversubscribed


@pytest.mark.parametrize(
    ("address", "pattern", "rack"),
    [
        (None, None, ""),
        ("n1", None, ""),
        ("spine.rack2.n7", None, "spine.rack2"),
        # srun(1), SLURM_TOPOLOGY_ADDR_PATTERN; topology_p_get_node_addr in
        # src/plugins/topology/*/topology_*.c
        ("s3.s0.dev1", "switch.switch.node", "s3.s0"),
        ("s3.s[1-2].dev1", "switch.switch.node", "s3.s[1-2]"),
        ("b8.tux1", "block.node", "b8"),
        ("tux1", "node", ""),
        ("ring0:3.node04", "ring:position.node", "ring0"),
        ("pod1:0:3:1.node14", "torus:x:y:z.node", "pod1"),
        # names of nodes with a domain
        ("tux1.cluster.example", "node", ""),
        ("b8.tux1.cluster.example", "block.node", "b8"),
        # patterns that are unknown, or do not fit
        ("b8.tux1", "block.host", "b8"),
        ("tux1", "block.node", ""),
        ("a.b", "", "a"),
        (None, "block.node", ""),
    ],
)
def test_the_rack_of_a_node_is_what_is_above_it_in_slurms_topology(
    address, pattern, rack, monkeypatch
):
    for name, value in (("SLURM_TOPOLOGY_ADDR", address), ("SLURM_TOPOLOGY_ADDR_PATTERN", pattern)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert rack_name() == rack


def test_a_name_that_is_given_comes_before_that_of_mpi(monkeypatch):
    monkeypatch.setenv("HPCCOLL_NODE_NAME", "gpu-7")
    assert place_facts.node_name() == "gpu-7"


@pytest.mark.mpi
def test_ranks_that_are_given_different_names_run_on_nodes_of_these_names(require):
    launcher = shutil.which("mpiexec.hydra", path=ENVIRONMENT["PATH"])
    require(launcher, "there is no mpiexec of MPICH")
    program = [sys.executable, "-m", "hpccoll", "run", "--check"]
    first = ["-n", "1", "-env", "HPCCOLL_NODE_NAME", "gpu-7"]
    second = ["-n", "1", "-env", "HPCCOLL_NODE_NAME", "gpu-9"]
    command = [launcher, *first, *program, ":", *second]
    checked = spawn("run", "--check", launcher=command)
    assert checked.code == 0, checked.err
    assert "gpu-7" in checked.out
    assert "gpu-9" in checked.out


def test_a_process_without_mpi_has_the_name_of_the_kernel(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert place_facts.node_name() == platform.node()
