"""The report of ``hpccoll evidence``. The texts in logs/ are written after documented formats, not recorded."""

import json
import os

import pytest
from cli_runner import invoke
from library_logs import LOGS, TEXTS

from hpccoll.evidence import log_set
from hpccoll.evidence.log_report import TEMPLATES, LogFinding, launch_findings, render
from hpccoll.evidence.log_set import read_log_files

GOLDEN_LOGS = ("sharp", "socket", "rdma-2.27", "rdma-2.32", "ucc-sharp", "hcoll", "settings")


def findings(name, expected=None, *, text=None, tmp_path=None):
    """Return the findings about a launch: of one of the logs, or of a text."""
    path = LOGS / f"{name}.log"
    if text is not None:
        path = tmp_path / "a.log"
        path.write_text(text)
    (launch,) = read_log_files([path]).launches
    return list(launch_findings(launch.record, expected))


def values(found, kind):
    """Return the values of each finding of a kind, without empty ones."""
    return [{key: value for key, value in one.values.items() if value} for one in found if one.kind == kind]


def test_the_whole_report_is_the_golden_text():
    """Every template that these logs need; the launches have blank lines between them."""
    ran = invoke("evidence", *(LOGS / f"{name}.log" for name in GOLDEN_LOGS), "--network", "rdma")
    assert ran.out.replace(str(LOGS), "logs") == (LOGS / "report.golden.txt").read_text()


def test_a_finding_has_a_severity_and_optional_parts_without_values_are_left_out():
    sentence = LogFinding("network_mismatch", {"sentence": "[a] {b}"})
    assert (sentence.severity, render(sentence)) == ("critical", "RED: [a] {b}")
    bare = LogFinding("library", {"library": "NCCL", "version": None, "ranks": None, "nodes": 1})
    assert render(bare) == "NCCL on 1 node"
    assert {severity for severity, _ in TEMPLATES.values()} == {"critical", "warning", "info"}


def test_a_collective_is_found_with_the_request_and_what_ran():
    found = values(findings("sharp"), "collective")
    assert found[0] == {
        "collective": "all_reduce", "bytes": 64 << 20, "executed": "sharp (collnet_direct)", "protocol": "SIMPLE",
        "channels": 16, "requested": "sharp",
    }  # fmt: skip
    assert found[1]["executed"] == "tree (fallback: no line says why)"


def test_sizes_that_nccl_counts_for_one_rank_are_marked():
    found = values(findings("rdma-2.27"), "collective")
    assert [one.get("counted") for one in found if one["collective"] == "all_gather"] == ["a rank"]
    assert not any("counted" in one for one in found if one["collective"] == "all_reduce")


def test_a_kernel_in_the_name_of_what_ran_is_not_repeated_as_the_protocol():
    symmetric = next(one for one in values(findings("rdma-2.32"), "collective") if one["bytes"] == 1 << 20)
    assert symmetric["executed"] == "symmetric (AllReduce_RSxLD_AGxST)"
    assert "protocol" not in symmetric


def test_layers_of_ucc_are_found_also_for_a_barrier_which_has_no_size():
    barrier, all_reduce, _ = values(findings("ucc-sharp"), "collective")
    assert barrier == {"collective": "barrier", "executed": "ucp", "layer": "CL_BASIC"}
    assert (all_reduce["bytes"], all_reduce["elements"], all_reduce["layer"]) == (1 << 20, "float32 sum", "CL_BASIC")


@pytest.mark.parametrize(
    ("text", "kind", "remedy"),
    [
        (TEXTS["hcoll"], "no_collective_sharp", "hpccoll run"),
        ("n1:9:9 [0] NCCL INFO x", "no_collective_nccl", "NCCL_DEBUG_SUBSYS="),
        ("[1.2] [n1:7  :0]  ucc_team.c:452  UCC  INFO  x", "no_collective_ucc", "UCC_COLL_TRACE"),
    ],
)
def test_a_log_without_collectives_is_a_warning_with_a_remedy(text, kind, remedy, tmp_path):
    (found,) = (one for one in findings("", text=text, tmp_path=tmp_path) if "collective" in one.kind)
    assert (found.kind, found.severity) == (kind, "warning")
    assert remedy in render(found)


def test_tcp_instead_of_rdma_comes_first_and_ends_with_3():
    first = findings("socket", "rdma")[0]
    assert (first.kind, first.severity) == ("network_mismatch", "critical")
    assert first.values["sentence"].endswith("NET/IB : No device found.")
    ran = invoke("evidence", LOGS / "socket.log", "--network", "rdma")
    assert (ran.code, ran.out.splitlines()[0]) == (3, render(first))


@pytest.mark.parametrize(
    ("name", "expected", "kind", "network", "names"),
    [
        ("socket", None, "network", "TCP", ("Socket",)),
        ("socket", "tcp", "network_expected", "TCP", ("Socket",)),
        ("socket", "rdma", "network_unexpected", "TCP", ("Socket",)),
        ("rdma-2.32", "rdma", "network_expected", "RDMA", ("IBext_v11",)),
        ("nvls", "rdma", "network_unused", "RDMA", ("IB",)),
    ],
)
def test_the_network_is_found_with_and_without_an_expectation(name, expected, kind, network, names):
    (found,) = values(findings(name, expected), kind)
    assert (found["network"], found["names"]) == (network, names)
    arguments = ["--network", expected] if expected else []
    assert invoke("evidence", LOGS / f"{name}.log", *arguments).code == (3 if kind == "network_unexpected" else 0)


def test_an_unnamed_network_is_unknown_only_if_one_was_expected():
    assert values(findings("ucc-sharp", "rdma"), "network_unknown") == [{"network": "RDMA"}]
    assert not [one for one in findings("ucc-sharp") if one.kind.startswith("network")]


def test_the_legend_explains_the_paths_of_channels_that_occur():
    (found,) = values(findings("socket"), "channels")
    assert found["paths"] == {"NET/Socket": 1, "P2P/IPC": 1}
    assert [entry.split()[0] for entry in found["legend"]] == ["NET", "P2P"]


@pytest.mark.parametrize(
    ("name", "removed", "channels"),
    [("rdma-2.27", "", "all channels"), ("rdma-2.32", "", "some channels"), ("rdma-2.32", "/GDRDMA", "no channel")],
)
def test_the_channels_with_gpudirect_are_found(name, removed, channels, tmp_path):
    text = TEXTS[name].replace(removed or "no such text", "")
    assert values(findings("", text=text, tmp_path=tmp_path), "gpudirect") == [{"channels": channels}]


def test_a_warning_that_is_a_reason_is_not_repeated(tmp_path):
    warning = "n1:9:9 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
    found = findings("", text=f"{warning}\nn1:9:9 [0] x.cc:1 NCCL WARN another\n", tmp_path=tmp_path)
    assert [one["feature"] for one in values(found, "unavailable")] == ["SHARP"]
    assert values(found, "warning") == [{"line": "x.cc:1: another"}]


def test_a_reason_comes_with_its_feature_and_line():
    assert values(findings("socket"), "unavailable")[1:] == [
        {"feature": "RDMA", "reason": "NCCL finds no RDMA device", "line": "NET/IB : No device found."}
    ]


def test_json_has_the_record_and_the_verdicts():
    (launch,) = json.loads(invoke("evidence", LOGS / "rdma-2.27.log", "--json").out)["launches"]
    assert launch["record"]["version"] == "2.27.7"
    assert [(one["bytes"], one["executed"]) for one in launch["executed"]] == [
        (8, "tree"), (67108864, "ring"), (67108864, "tree"), (4096, "ring")
    ]  # fmt: skip
    assert (launch["red"], launch["network"], launch["logs"]) == (None, "rdma", [str(LOGS / "rdma-2.27.log")])


def test_json_of_a_record_keeps_the_keys_of_earlier_versions():
    (launch,) = json.loads(invoke("evidence", LOGS / "socket.log", "--json").out)["launches"]
    assert {"ran", "refusals", "model"} <= launch["record"].keys()
    assert [one["of"] for one in launch["record"]["refusals"]] == ["plugin", "rdma"]


def test_logs_of_several_launches_are_reported_one_after_the_other_and_one_mismatch_ends_with_3():
    ran = invoke("evidence", LOGS / "socket.log", LOGS / "rdma-2.32.log", "--network", "rdma")
    critical, first, second = ran.out.split("\n\n")
    assert ran.code == 3
    assert critical.startswith("RED in launch 1: ")
    assert first.splitlines()[0] == f"== launch 1 of 2: {LOGS}/socket.log"
    assert first.splitlines()[1].startswith("RED: ")
    assert second.splitlines()[0] == f"== launch 2 of 2: {LOGS}/rdma-2.32.log"
    assert "RED" not in second


def test_one_of_many_logs_of_a_launch_is_named(tmp_path):
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


def test_devices_and_pipes_take_one_line_and_never_block(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, word in (("/dev/zero", "a device"), (tmp_path / "fifo", "a pipe"), ("x" * 5000, "too long")):
        assert invoke("evidence", path).is_bad_input(word)
    (tmp_path / "sharp.log").write_bytes((LOGS / "sharp.log").read_bytes())
    assert invoke("evidence", tmp_path).code == 0, "a pipe in a directory is no log of it"


def test_only_the_head_of_a_large_unknown_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(log_set, "LOG_HEAD_BYTES", 1000)
    text, junk = (LOGS / "sharp.log").read_text(), "nothing of the kind\n" * 100
    (tmp_path / "late.log").write_text(junk + text)
    assert invoke("evidence", tmp_path / "late.log").is_bad_input("log", "no line of it begins as theirs do")
    (tmp_path / "early.log").write_text(text + junk + text)
    assert invoke("evidence", tmp_path / "early.log").code == 0
