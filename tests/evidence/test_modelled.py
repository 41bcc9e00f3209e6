"""What NCCL's own model gives for what its log says ran."""

from pathlib import Path

import pytest

from hpccoll.evidence.log_set import read_logs

LOG = (Path(__file__).parent / "logs" / "rdma-2.27.log").read_text()
SIZE = 64 << 20


def record(*, without="nothing"):
    return read_logs({"a.log": "\n".join(line for line in LOG.splitlines() if without not in line)})


def test_a_case_takes_the_latency_of_what_ran_and_its_bytes_at_their_bandwidth():
    ring_simple = 56.4e-6 + SIZE / 24e9
    assert record().modelled_seconds("all_reduce", SIZE, 4, dtype="float32", op="sum") == pytest.approx(ring_simple)
    tree_ll = 14.4e-6 + 8 / 3e9
    assert record().modelled_seconds("all_reduce", 8, 4) == pytest.approx(tree_ll)


def test_nothing_is_given_for_what_no_line_names_for_what_several_do_and_without_a_table():
    assert record().modelled_seconds("all_reduce", 16, 4) is None
    assert record().modelled_seconds("all_reduce", SIZE, 4) is None  # a ring for one dtype, a tree for another
    assert record(without="|").modelled_seconds("all_reduce", 8, 4) is None


def test_a_cell_that_two_communicators_fill_otherwise_says_nothing():
    second = next(line for line in LOG.splitlines() if "AllReduce |" in line).replace("14.4/", "99.9/")
    assert read_logs({"a.log": f"{LOG}\n{second}"}).modelled_seconds("all_reduce", 8, 4) is None
