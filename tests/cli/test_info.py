"""The command evidence: what keeps it from saying that all is as expected, and the exit code of each."""

import pytest
from cli_runner import invoke

from tests.traces.kernel_files import begun_communicator

HEAD = "{host}:70:80 [0] NCCL INFO"
EXPECTED = ", as expected"


def healthy_log(rank, network="IB"):
    """Return the log of one of two ranks, each on a node of its own, that created a communicator."""
    head = HEAD.format(host=f"n{rank}")
    begun = begun_communicator(rank, 2, "START"), begun_communicator(rank, 2, "COMPLETE")
    of_node = f"{head} comm 0x55f0 rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
    used = f"{head} NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ens1:10.0.0.1<0>\n{head} Using network {network}\n"
    return (used if network else "") + "".join(begun) + of_node


@pytest.fixture
def evidence(tmp_path):
    """Return a function that runs the command on logs of a run that used RDMA."""

    def evidence(*logs):
        for number, text in enumerate(logs):
            (tmp_path / f"{number}.log").write_text(text)
        return invoke("evidence", tmp_path, "--network", "rdma")

    return evidence


def test_a_run_whose_logs_are_all_there_was_as_expected(evidence):
    ended = evidence(healthy_log(0), healthy_log(1))
    assert (ended.code, f"{EXPECTED}\n" in ended.out, "WRONG" in ended.out) == (0, True, False)


def test_another_network_is_wrong_and_ends_with_3(evidence):
    ended = evidence(healthy_log(0, "Socket"), healthy_log(1, "Socket"))
    assert (ended.code, EXPECTED in ended.out, ended.out.startswith("WRONG")) == (3, False, True)


def test_a_network_that_no_line_names_is_unknown_and_ends_with_0(evidence):
    ended = evidence(healthy_log(0, ""), healthy_log(1, ""))
    assert (ended.code, EXPECTED in ended.out, "no line names it" in ended.out) == (0, False, True)


def test_if_lines_name_no_host_it_is_unknown_whether_all_nodes_used_the_network_which_ends_with_0(
    evidence,
):
    of_unnamed = (healthy_log(rank).replace(f"n{rank}:70:80 ", "") for rank in range(2))
    ended = evidence("".join(of_unnamed))
    assert (ended.code, EXPECTED in ended.out) == (0, False)
    assert "no line names its host: whether all 2 nodes used it is unknown" in ended.out


def test_nodes_without_a_log_are_counted_and_end_with_0(evidence):
    ended = evidence(healthy_log(0))
    assert (ended.code, f"{EXPECTED}\n" in ended.out) == (0, False)
    assert f"{EXPECTED} on n0; the logs of 1 of 2 nodes are missing" in ended.out


def test_a_communicator_that_a_rank_did_not_complete_is_wrong_and_ends_with_3(evidence):
    ended = evidence(healthy_log(0), healthy_log(1).replace("COMPLETE", "START"))
    assert (ended.code, ended.out.startswith("WRONG")) == (3, True)
    assert "rank 1 did not complete it" in ended.out.splitlines()[0]


def test_a_call_that_failed_is_wrong_with_the_hosts_that_logged_it_and_ends_with_3(evidence):
    def failing(rank):
        warning = HEAD.format(host=f"n{rank}").replace(
            "NCCL INFO", "misc/socket.cc:10 NCCL WARN connection reset"
        )
        steps = (f"misc/socket.cc:{line} -> 6" for line in (12, 34))
        called = [*steps, "enqueue.cc:99 -> 6"]
        return healthy_log(rank) + "\n".join(
            [warning, *(f"{HEAD.format(host=f'n{rank}')} {each}" for each in called)]
        )

    ended = evidence(failing(0), failing(1))
    assert (
        ended.code,
        ended.out.startswith("WRONG: a call failed on n0, n1 (in 2 processes)"),
    ) == (3, True)
    ended = evidence(failing(0), healthy_log(1))
    assert ended.out.startswith("WRONG: a call failed on n0: misc/socket.cc:10: connection reset")
