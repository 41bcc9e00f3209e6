"""The thread level that a rank requests from MPI."""

import os

import pytest

from hpccoll.host import cpu_and_memory
from hpccoll.measure.mpi_startup import LAUNCHERS, RANKS_OF_NODE_VARIABLES, default_thread_level


@pytest.fixture(autouse=True)
def four_cores_of_a_real_node(monkeypatch, tmp_path):
    for name in (*RANKS_OF_NODE_VARIABLES, *LAUNCHERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(cpu_and_memory, "cpu_quotas", lambda _: {})
    monkeypatch.setattr(cpu_and_memory, "TESTBED_FILE", tmp_path / "testbed.json")


@pytest.mark.parametrize("variable", RANKS_OF_NODE_VARIABLES)
def test_ranks_that_outnumber_the_cores_of_a_node_need_a_library_that_yields(monkeypatch, variable):
    assert default_thread_level("cpu") == "funneled"  # without word of the launcher
    for ranks, level in (("4", "funneled"), ("5", "multiple"), ("5(x2),1", "multiple")):
        monkeypatch.setenv(variable, ranks)
        assert (default_thread_level("cpu"), default_thread_level("cuda")) == (level, "multiple")


@pytest.mark.parametrize("variable", LAUNCHERS)
def test_ranks_of_other_nodes_count_where_all_share_the_cores_of_a_testbed(monkeypatch, variable):
    monkeypatch.setenv(variable, "5")
    assert default_thread_level("cpu") == "funneled"
    cpu_and_memory.TESTBED_FILE.write_text("{}")
    assert default_thread_level("cpu") == "multiple"


def test_a_quota_of_cpus_counts_as_cores(monkeypatch):
    monkeypatch.setenv(RANKS_OF_NODE_VARIABLES[0], "2")
    for quota, level in [(2.0, "funneled"), (1.5, "multiple"), (8.0, "funneled")]:
        monkeypatch.setattr(cpu_and_memory, "cpu_quotas", lambda _, quota=quota: {"0:1": quota})
        assert default_thread_level("cpu") == level
