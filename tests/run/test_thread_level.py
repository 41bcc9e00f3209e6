"""The thread level that a rank requests from MPI."""

import os

import pytest

from hpccoll.run.mpi_startup import RANKS_OF_NODE_VARIABLES, default_thread_level


@pytest.mark.parametrize("variable", RANKS_OF_NODE_VARIABLES)
@pytest.mark.parametrize(("ranks", "level"), [("4", "funneled"), ("5", "multiple"), ("5(x2),1", "multiple")])
def test_ranks_that_outnumber_the_cores_of_a_node_need_a_library_that_yields(monkeypatch, variable, ranks, level):
    for name in RANKS_OF_NODE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setenv(variable, ranks)
    assert default_thread_level("cpu") == level
    assert default_thread_level("cuda") == "multiple"


def test_without_word_of_the_launcher_one_thread_is_enough(monkeypatch):
    for name in RANKS_OF_NODE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert default_thread_level("cpu") == "funneled"
