"""``hpccoll evidence`` on logs of anybody. The texts in logs/ are written after documented shapes, not recorded."""

import json
from pathlib import Path

import pytest
from commands import inside

LOGS = Path(__file__).parent / "logs"


def test_what_ran_is_said_with_what_was_asked_for():
    said = inside("evidence", LOGS / "sharp.log")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "nccl 2.30.7, 16 ranks on 2 nodes"
    assert "all_reduce of 64 MiB: sharp (collnet_direct), SIMPLE in 16 channels, asked for sharp" in lines
    assert "all_reduce of 8 B: tree (fallback: no line says why), LL in 1 channel, asked for sharp" in lines


def test_tcp_where_rdma_was_expected_comes_first_and_ends_with_3():
    said = inside("evidence", LOGS / "socket.log", "--network", "rdma")
    assert (said.code, said.out.splitlines()[0]) == (
        3, "RED: RDMA was expected and TCP was used (NCCL: using network Socket): NET/IB : No device found."
    )  # fmt: skip
    assert inside("evidence", LOGS / "socket.log").code == 0


def test_a_reason_stands_beside_what_was_not_done():
    said = inside("evidence", LOGS / "socket.log")
    assert "not done: rdma: NCCL finds no RDMA device: NET/IB : No device found." in said.out.splitlines()


def test_json_has_the_record_and_what_it_comes_to():
    said = json.loads(inside("evidence", LOGS / "rdma-2.27.log", "--json").out)
    assert said["record"]["version"] == "2.27.7"
    assert [(one["bytes"], one["executed"]) for one in said["executed"]] == [
        (8, "tree"), (67108864, "ring"), (67108864, "tree"), (4096, "ring")
    ]  # fmt: skip
    assert said["red"] is None


def test_a_directory_is_all_of_its_files_and_a_dump_of_the_topology_says_the_balance(tmp_path):
    (tmp_path / "a.log").write_text((LOGS / "nvls.log").read_text())
    (tmp_path / "deeper").mkdir()
    (tmp_path / "graph.xml").write_text('<graphs version="1"><graph id="0" nchannels="2" speedintra="20"/></graphs>')
    (tmp_path / "another.xml").write_text("<html/>")
    gpu = '<pci busid="a"><gpu dev="0"/></pci>'
    nic = '<pci busid="b"><nic><net name="mlx5_0"/></nic></pci>'
    (tmp_path / "topology.xml").write_text(f'<system><cpu numaid="0"><pci busid="s">{gpu}{nic}</pci></cpu></system>')
    lines = inside("evidence", tmp_path).out.splitlines()
    assert "all_reduce of 1 MiB: nvls, SIMPLE in 16 channels" in lines
    assert lines[-2:] == [
        f"{tmp_path}/graph.xml: NCCL's search: 2 channels of 20 GB/s inside a node and 0 between",
        f"{tmp_path}/topology.xml: balanced: each GPU has a NIC at PIX",
    ]


def test_what_is_no_log_says_which_variables_make_one(tmp_path):
    (tmp_path / "a.log").write_bytes(b"\xff\xfe nothing of the kind\n")
    assert "NCCL_DEBUG=INFO" in inside("evidence", tmp_path).out


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
    assert inside("evidence", *arguments).complains_of(*words)
