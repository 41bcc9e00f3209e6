"""``hpccoll evidence`` on logs of anybody. The texts in logs/ are written after documented shapes, not recorded."""

import json
import os
from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.evidence import report

LOGS = Path(__file__).parent / "logs"


def told(name, *more):
    """Return the lines for people of one of the logs."""
    return invoke("evidence", LOGS / f"{name}.log", *more).out.splitlines()


def test_what_ran_is_said_with_what_was_asked_for():
    said = invoke("evidence", LOGS / "sharp.log")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "NCCL 2.30.7, 16 ranks on 2 nodes"
    assert (
        "ran: all_reduce of 64 MiB: sharp (collnet_direct), protocol SIMPLE, 16 channels, sharp was asked for" in lines
    )
    assert (
        "ran: all_reduce of 8 B: tree (fallback: no line says why), protocol LL, 1 channel, sharp was asked for"
        in lines
    )


def test_sizes_that_nccl_counts_for_one_rank_are_said_to_be_so():
    assert "ran: all_gather of 4 KiB a rank (float32): ring, protocol LL, 4 channels" in told("rdma-2.27")


def test_a_kernel_that_is_the_name_of_what_ran_is_not_said_twice():
    assert "ran: all_reduce of 1 MiB: symmetric (AllReduce_RSxLD_AGxST), 8 channels" in told("rdma-2.32")


def test_what_ucc_chose_is_said_of_a_barrier_too_which_has_no_size():
    assert "ran: barrier: ucp, in layer CL_BASIC" in told("ucc-sharp")
    assert "ran: all_reduce of 1 MiB (float32 sum): sharp, in layer CL_BASIC" in told("ucc-sharp")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("hcoll", "HCOLL and MVAPICH never do"), ("silent", "NCCL_DEBUG_SUBSYS="), ("ucc", "UCC_COLL_TRACE")],
)
def test_where_no_line_says_what_ran_it_is_said_what_would(name, hint, tmp_path):
    heads = {"silent": "n1:9:9 [0] NCCL INFO x", "ucc": "[1.2] [n1:7  :0]  ucc_team.c:452  UCC  INFO  x"}
    log = LOGS / f"{name}.log"
    if name in heads:
        log = tmp_path / "a.log"
        log.write_text(heads[name])
    (ran,) = (line for line in invoke("evidence", log).out.splitlines() if line.startswith("ran: "))
    assert hint in ran


def test_tcp_where_rdma_was_expected_comes_first_and_ends_with_3():
    said = invoke("evidence", LOGS / "socket.log", "--network", "rdma")
    assert (said.code, said.out.splitlines()[0]) == (
        3, "RED: RDMA was expected and TCP was used (NCCL: using network Socket): NET/IB : No device found."
    )  # fmt: skip
    assert "network between nodes: TCP (Socket), which was not expected" in said.out.splitlines()


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("socket", [], "TCP (Socket); --network rdma or --network tcp says which was expected"),
        ("socket", ["--network", "tcp"], "TCP (Socket), as expected"),
        ("rdma-2.32", ["--network", "rdma"], "RDMA (IBext_v11), as expected"),
        ("nvls", ["--network", "rdma"], "RDMA (IB); unused, all ranks are on one node"),
    ],
)
def test_which_network_was_used_is_said_also_where_nobody_expected_one(name, more, words):
    said = invoke("evidence", LOGS / f"{name}.log", *more)
    assert (said.code, f"network between nodes: {words}" in said.out.splitlines()) == (0, True)


def test_where_no_line_names_a_network_it_is_not_passed_for_what_was_expected():
    said = invoke("evidence", LOGS / "ucc-sharp.log", "--network", "rdma").out.splitlines()
    assert "network between nodes: no line names it; whether it was RDMA, as expected, is unknown" in said
    assert not [line for line in told("ucc-sharp") if line.startswith("network")]


def test_ways_of_channels_are_explained_and_only_those_that_are_there():
    assert "channels that were set up: 1 NET/Socket, 1 P2P/IPC (NET between nodes, P2P between GPUs of a node)" in told(
        "socket"
    )


@pytest.mark.parametrize(
    ("name", "less", "words"), [("rdma-2.27", "", "all channels"), ("rdma-2.32", "", "some channels"),
                                ("rdma-2.32", "/GDRDMA", "no channel")],
)  # fmt: skip
def test_how_many_channels_go_straight_to_gpus_is_said(name, less, words, tmp_path):
    (tmp_path / "a.log").write_text((LOGS / f"{name}.log").read_text().replace(less or "no such words", ""))
    assert f"GPUDirect RDMA: on {words} of NET" in invoke("evidence", tmp_path / "a.log").out.splitlines()


def test_a_warning_that_is_a_reason_is_not_said_twice(tmp_path):
    warning = "n1:9:9 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
    (tmp_path / "a.log").write_text(f"{warning}\nn1:9:9 [0] x.cc:1 NCCL WARN another\n")
    said = invoke("evidence", tmp_path / "a.log").out
    assert said.count("Cannot initialize CollNet") == 1
    assert "warning: another" in said.splitlines()


def test_a_reason_stands_beside_what_there_was_not():
    assert "without RDMA: NCCL finds no RDMA device (NET/IB : No device found.)" in told("socket")


def test_json_has_the_record_and_what_it_comes_to():
    (said,) = json.loads(invoke("evidence", LOGS / "rdma-2.27.log", "--json").out)["launches"]
    assert said["record"]["version"] == "2.27.7"
    assert [(one["bytes"], one["executed"]) for one in said["executed"]] == [
        (8, "tree"), (67108864, "ring"), (67108864, "tree"), (4096, "ring")
    ]  # fmt: skip
    assert (said["red"], said["network"], said["logs"]) == (None, "rdma", [str(LOGS / "rdma-2.27.log")])


def test_logs_of_several_launches_are_told_one_after_the_other_and_one_red_line_ends_with_3():
    said = invoke("evidence", LOGS / "socket.log", LOGS / "rdma-2.32.log", "--network", "rdma")
    alarm, first, second = said.out.split("\n\n")
    assert said.code == 3
    assert alarm.startswith("RED in launch 1: RDMA was expected and TCP was used")
    assert first.splitlines()[0] == f"== launch 1 of 2: {LOGS}/socket.log"
    assert first.splitlines()[1].startswith("RED: ")
    assert second.splitlines()[:2] == [f"== launch 2 of 2: {LOGS}/rdma-2.32.log", "NCCL 2.32.3, 16 ranks on 2 nodes"]
    assert "RED" not in second


def test_of_many_logs_of_a_launch_one_is_named(tmp_path):
    for number in range(3):
        line = (
            f"n1:{number}:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {number} nranks 3 commId 0xa{{}} - Init START"
        )
        (tmp_path / f"{number}.log").write_text(line.format("1"))
        (tmp_path / f"other{number}.log").write_text(line.format("2"))
    heads = [line for line in invoke("evidence", tmp_path).out.splitlines() if line.startswith("==")]
    assert heads == [
        f"== launch {number} of 2: {tmp_path}/{first} and 2 more logs"
        for number, first in ((1, "0.log"), (2, "other0.log"))
    ]


def test_settings_are_of_the_logs_beside_them_and_of_all_where_there_are_none(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.log").write_text("n1:9:9 [0] NCCL INFO Using network IB\n")
    (tmp_path / "a" / "n1.2-etc.conf").write_text("NCCL_IB_HCA=mlx5\n")
    (tmp_path / "nccl.conf").write_text("NCCL_ALGO=Ring\n")
    launches = json.loads(
        invoke("evidence", tmp_path / "a", tmp_path / "b", tmp_path / "nccl.conf", "--json").out
    )["launches"]  # fmt: skip
    assert [launch["record"]["settings"] for launch in launches] == [
        {"NCCL_IB_HCA": "mlx5", "NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"}
    ]  # fmt: skip


def test_a_directory_is_all_of_its_files_and_a_dump_of_the_topology_says_the_balance(tmp_path):
    (tmp_path / "a.log").write_text((LOGS / "nvls.log").read_text())
    (tmp_path / "deeper").mkdir()
    (tmp_path / "graph.xml").write_text('<graphs version="1"><graph id="0" nchannels="2" speedintra="20"/></graphs>')
    (tmp_path / "another.xml").write_text("<html/>")
    gpu = '<pci busid="a"><gpu dev="0"/></pci>'
    nic = '<pci busid="b"><nic><net name="mlx5_0"/></nic></pci>'
    (tmp_path / "topology.xml").write_text(f'<system><cpu numaid="0"><pci busid="s">{gpu}{nic}</pci></cpu></system>')
    lines = invoke("evidence", tmp_path).out.splitlines()
    assert "ran: all_reduce of 1 MiB: nvls, protocol SIMPLE, 16 channels" in lines
    assert lines[-2:] == [
        f"{tmp_path}/graph.xml: NCCL's search: 2 channels of 20 GB/s inside a node and 0 between",
        f"{tmp_path}/topology.xml: balanced: each GPU has a NIC at PIX",
    ]


@pytest.mark.parametrize("name", ["a.log", "."])
def test_what_is_no_log_is_refused_with_the_variables_that_make_one(name, tmp_path):
    (tmp_path / "a.log").write_bytes(b"\xff\xfe nothing of the kind\n")
    assert invoke("evidence", tmp_path / name).is_bad_input("log", str(tmp_path / name), "NCCL_DEBUG=INFO", "UCC_COLL")


def test_a_file_that_is_named_is_a_log_and_of_a_directory_those_that_are_count(tmp_path):
    (tmp_path / "a.log").write_text((LOGS / "nvls.log").read_text())
    (tmp_path / "job.sh").write_text("srun hpccoll run\n")
    (tmp_path / "page.xml").write_text("<html/>")
    assert invoke("evidence", tmp_path).out.startswith("NCCL 2.28.9, 8 ranks on 1 node\n")
    for name in ("job.sh", "page.xml"):
        assert invoke("evidence", tmp_path / "a.log", tmp_path / name).is_bad_input("log", name, "a log of NCCL")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["log", "'nope'", "No such file"]),
        (["."], ["log", "'.'", "files of a log"]),
        ([".", "--network", "tpc"], ["--network", "'tpc'", "rdma, tcp"]),
    ],
)
def test_what_cannot_be_read_takes_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("evidence", *arguments).is_bad_input(*words)


def test_what_is_no_file_takes_one_line_and_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, word in (("/dev/zero", "a device"), (tmp_path / "fifo", "a pipe"), ("x" * 5000, "too long")):
        assert invoke("evidence", path).is_bad_input(word)
    (tmp_path / "sharp.log").write_bytes((LOGS / "sharp.log").read_bytes())
    assert invoke("evidence", tmp_path).code == 0, "a pipe in a directory is no log of it"


def test_of_a_large_file_of_something_else_no_more_than_its_head_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "LOG_HEAD_BYTES", 1000)
    text, junk = (LOGS / "sharp.log").read_text(), "nothing of the kind\n" * 100
    (tmp_path / "late.log").write_text(junk + text)
    assert invoke("evidence", tmp_path / "late.log").is_bad_input("log", "no line of it begins as theirs do")
    (tmp_path / "early.log").write_text(text + junk + text)
    assert invoke("evidence", tmp_path / "early.log").code == 0
