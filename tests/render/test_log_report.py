"""The report of ``hpccoll evidence``. The texts in logs/ are written after documented formats, not recorded."""

import os

import pytest
from cli_runner import invoke
from golden_page import assert_golden
from library_logs import LOGS, TEXTS

from hpccoll.evidence import log_set
from hpccoll.evidence.log_set import read_log_files
from hpccoll.render.log_report import launch_findings

GOLDEN_LOGS = ("sharp", "socket", "rdma-2.27", "rdma-2.32", "ucc-sharp", "hcoll", "settings")


@pytest.fixture
def findings(tmp_path):
    """Return the findings about a launch: of one of the logs, or of a text."""

    def findings(name="", expected=None, text=None):
        path = LOGS / f"{name}.log"
        if text is not None:
            path = tmp_path / "a.log"
            path.write_text(text)
        (launch,) = read_log_files([path]).launches
        return list(launch_findings(launch.record, expected))

    return findings


def texts(found, kind):
    return [one.text for one in found if one.kind == kind]


def test_the_whole_report_is_the_golden_page():
    ran = invoke("evidence", *(LOGS / f"{name}.log" for name in GOLDEN_LOGS), "--network", "rdma")
    assert_golden("log_report", ran.out.replace(str(LOGS), "logs"))


@pytest.mark.parametrize(
    ("name", "expected", "kind"),
    [
        ("socket", None, "network"), ("socket", "tcp", "network_expected"), ("socket", "rdma", "network_unexpected"),
        ("rdma-2.32", "rdma", "network_expected"), ("nvls", "rdma", "network_unused"),
        ("ucc-sharp", "rdma", "network_unknown"), ("ucc-sharp", None, None),
    ],
)  # fmt: skip
def test_the_network_is_found_with_and_without_an_expectation(findings, name, expected, kind):
    found = [one.kind for one in findings(name, expected) if one.title == "network between nodes"]
    assert found == ([kind] if kind else [])
    arguments = ["--network", expected] if expected else []
    assert invoke("evidence", LOGS / f"{name}.log", *arguments).code == (3 if kind == "network_unexpected" else 0)


@pytest.mark.parametrize(
    ("name", "removed", "channels"),
    [("rdma-2.27", "", "all channels"), ("rdma-2.32", "", "some channels"), ("rdma-2.32", "/GDRDMA", "no channel")],
)
def test_the_channels_with_gpudirect_are_found(findings, name, removed, channels):
    found = findings(text=TEXTS[name].replace(removed or "no such text", ""))
    assert [one.values["channels"] for one in found if one.kind == "gpudirect"] == [channels]


def test_a_warning_that_is_a_reason_is_not_repeated(findings):
    reason = "n1:9:9 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
    found = findings(text=f"{reason}\nn1:9:9 [0] x.cc:1 NCCL WARN another\n")
    assert [one.values["feature"] for one in found if one.kind == "unavailable"] == ["SHARP"]
    assert texts(found, "warning") == ["x.cc:1: another"]


def test_configuration_files_belong_to_the_logs_of_their_directory_and_without_any_to_all(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.log").write_text("n1:9:9 [0] NCCL INFO Using network IB\n")
    (tmp_path / "a" / "n1.2-etc.conf").write_text("NCCL_IB_HCA=mlx5\n")
    (tmp_path / "nccl.conf").write_text("NCCL_ALGO=Ring\n")
    logs = read_log_files([tmp_path / "a", tmp_path / "b", tmp_path / "nccl.conf"])
    assert [launch.record.settings for launch in logs.launches] == [
        {"NCCL_IB_HCA": "mlx5", "NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"}
    ]  # fmt: skip


def test_a_directory_is_all_of_its_files_and_dumps_are_described(tmp_path):
    (tmp_path / "a.log").write_text(TEXTS["nvls"])
    (tmp_path / "deeper").mkdir()
    (tmp_path / "graph.xml").write_text('<graphs version="1"><graph id="0" nchannels="2" speedintra="20"/></graphs>')
    (tmp_path / "another.xml").write_text("<html/>")
    gpu = '<pci busid="a"><gpu dev="0"/></pci>'
    nic = '<pci busid="b"><nic><net name="mlx5_0"/></nic></pci>'
    (tmp_path / "topology.xml").write_text(f'<system><cpu numaid="0"><pci busid="s">{gpu}{nic}</pci></cpu></system>')
    logs = read_log_files([tmp_path])
    assert [launch.names for launch in logs.launches] == [(str(tmp_path / "a.log"),)]
    assert logs.dumps == {
        str(tmp_path / "graph.xml"): "NCCL's search: 2 channels of 20 GB/s inside a node and 0 between",
        str(tmp_path / "topology.xml"): "balanced: each GPU has a NIC at PIX",
    }
    assert invoke("evidence", tmp_path).out.splitlines()[-2:] == [f"{name}: {s}" for name, s in logs.dumps.items()]


@pytest.mark.parametrize("name", ["a.log", "."])
def test_another_file_is_refused_with_the_variables_that_write_a_log(name, tmp_path):
    (tmp_path / "a.log").write_bytes(b"\xff\xfe nothing of the kind\n")
    assert invoke("evidence", tmp_path / name).is_bad_input("log", str(tmp_path / name), "NCCL_DEBUG=INFO", "UCC_COLL")


def test_other_files_are_refused_if_named_and_ignored_in_a_directory(tmp_path):
    (tmp_path / "a.log").write_text(TEXTS["nvls"])
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
def test_bad_arguments_take_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("evidence", *arguments).is_bad_input(*words)


def test_a_pipe_takes_one_line_and_is_no_log_of_its_directory(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert invoke("evidence", tmp_path / "fifo").is_bad_input("a pipe")
    (tmp_path / "sharp.log").write_bytes((LOGS / "sharp.log").read_bytes())
    assert invoke("evidence", tmp_path).code == 0


def test_only_the_head_of_a_large_unknown_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(log_set, "LOG_HEAD_BYTES", 1000)
    text, junk = (LOGS / "sharp.log").read_text(), "nothing of the kind\n" * 100
    (tmp_path / "late.log").write_text(junk + text)
    assert invoke("evidence", tmp_path / "late.log").is_bad_input("log", "no line of it begins as theirs do")
    (tmp_path / "early.log").write_text(text + junk + text)
    assert invoke("evidence", tmp_path / "early.log").code == 0
