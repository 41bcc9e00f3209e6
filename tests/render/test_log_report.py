"""The report of ``hpccoll evidence``. The texts in logs/ are written after documented formats, not recorded."""

import os

import pytest
from cli_runner import invoke
from golden_page import assert_golden
from library_logs import LOGS, TEXTS

from hpccoll.evidence import log_set
from hpccoll.evidence.log_set import read_log_files, read_logs
from hpccoll.render.log_report import launch_findings

GOLDEN_LOGS = ("sharp", "socket", "rdma-2.27", "rdma-2.32", "ucc-sharp", "hcoll", "settings")
REASON = "n1:9:9 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
MORE = {
    "no collective": "n1:9:9 [0] NCCL INFO x",
    "no collective of UCC": "[1.2] [n1:7  :0]  ucc_team.c:452  UCC  INFO  x",
    "no GPUDirect": TEXTS["rdma-2.32"].replace("/GDRDMA", ""),
    "a warning that is a reason": f"{REASON}\nn1:9:9 [0] x.cc:1 NCCL WARN another\n",
}


def test_the_whole_report_is_the_golden_page():
    ran = invoke("evidence", *(LOGS / f"{name}.log" for name in GOLDEN_LOGS), "--network", "rdma")
    page = ran.out.replace(str(LOGS), "logs").splitlines()
    for title, text in MORE.items():
        page += [f"-- {title}", *map(str, launch_findings(read_logs({"a": text}), None))]
    for name in ("socket", "nvls", "ucc-sharp"):
        for expected in (None, "rdma", "tcp"):
            found = launch_findings(read_logs({"a": TEXTS[name]}), expected)
            page += [
                f"-- {name}, expected {expected}",
                *(str(one) for one in found if "network" in one.kind),
            ]
    assert_golden("log_report", page)


def test_configuration_files_belong_to_the_logs_of_their_directory_and_without_any_to_all(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.log").write_text("n1:9:9 [0] NCCL INFO Using network IB\n")
    (tmp_path / "a" / "n1.2-etc.conf").write_text("NCCL_IB_HCA=mlx5\n")
    (tmp_path / "nccl.conf").write_text("NCCL_ALGO=Ring\n")
    logs = read_log_files([tmp_path / "a", tmp_path / "b", tmp_path / "nccl.conf"])
    settings = [launch.record.settings for launch in logs.launches]
    assert settings == [{"NCCL_IB_HCA": "mlx5", "NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"}]


@pytest.fixture
def directory(tmp_path):
    """A directory with a log, dumps of NCCL, and files that are neither."""
    gpu, nic = (
        '<pci busid="a"><gpu dev="0"/></pci>',
        '<pci busid="b"><nic><net name="mlx5_0"/></nic></pci>',
    )
    texts = {
        "a.log": TEXTS["nvls"],
        "page.xml": "<html/>",
        "job.sh": "srun hpccoll run\n",
        "graph.xml": '<graphs version="1"><graph id="0" nchannels="2" speedintra="20"/></graphs>',
        "topology.xml": f'<system><cpu numaid="0"><pci busid="s">{gpu}{nic}</pci></cpu></system>',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "deeper").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def test_a_directory_is_all_of_its_logs_and_dumps_and_other_files_are_refused_if_named(directory):
    first, *_, graph, topology = invoke("evidence", directory).out.splitlines()
    assert first == "NCCL 2.28.9, 8 ranks on 1 node"
    assert (
        graph
        == f"{directory}/graph.xml: NCCL's search: 2 channels of 20 GB/s inside a node and 0 between"
    )
    assert topology == f"{directory}/topology.xml: balanced: each GPU has a NIC at PIX"
    for name in ("job.sh", "page.xml"):
        assert invoke("evidence", directory / "a.log", directory / name).is_bad_input(
            "log", name, "a log of NCCL"
        )
    assert invoke("evidence", directory / "fifo").is_bad_input("a pipe")


def test_only_the_head_of_a_large_unknown_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(log_set, "LOG_HEAD_BYTES", 1000)
    text, junk = TEXTS["sharp"], "nothing of the kind\n" * 100
    (tmp_path / "late.log").write_text(junk + text)
    assert invoke("evidence", tmp_path / "late.log").is_bad_input(
        "log", "no line of it begins as theirs do"
    )
    (tmp_path / "early.log").write_text(text + junk + text)
    assert invoke("evidence", tmp_path / "early.log").code == 0


def test_a_network_is_as_expected_only_on_the_nodes_whose_logs_name_it(tmp_path):
    for rank in range(2):
        (tmp_path / f"{rank}.log").write_text(
            f"n{rank}:70:80 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ens1:10.0.0.1<0>\n"
            f"n{rank}:70:80 [0] NCCL INFO Using network IB\n"
            f"n{rank}:70:80 [0] NCCL INFO ncclCommInitRank comm 0x55f0 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId"
            " 1000 commId 0xad56c683b0c4ef12 - Init COMPLETE\n"
            f"n{rank}:70:80 [0] NCCL INFO comm 0x55f0 rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
        )
    whole = invoke("evidence", str(tmp_path), "--network", "rdma").out
    assert ", as expected\n" in whole
    assert "are missing" not in whole
    one = invoke("evidence", str(tmp_path / "0.log"), "--network", "rdma").out
    assert "as expected on n0; the logs of 1 of 2 nodes are missing" in one
