"""Each known defect speaks of a run that has it, and of no other."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import invoke
from defect_examples import (
    LINES,
    SPEAKING,
    affected_run,
    bad_version,
    good_version,
    with_version,
    without_condition,
)

from hpccoll.evidence.defect_lines import CRASH, required_texts
from hpccoll.evidence.defect_listing import select_defects
from hpccoll.evidence.defect_table import VersionRange, known_defects, parse_version
from hpccoll.evidence.defects import (
    MOST,
    RunFacts,
    Trouble,
    defect_sentences,
    fitting_defects,
)
from hpccoll.evidence.log_set import read_log_files, read_logs
from hpccoll.evidence.logged_defects import defects_of_log

TESTS = Path(__file__).parents[1]
DATA = Path(os.environ.get("HPCCOLL_DATA", "/nowhere")) / "inputs"


def ids(facts, *troubles):
    return [fit.defect.id for fit in fitting_defects(facts, troubles)]


def of_id(name):
    return next(defect for defect in known_defects() if defect.id == name)


def test_the_table_has_at_least_110_rows_that_speak_and_a_reason_for_each_other_one():
    rows = known_defects()
    assert (len(rows), len({defect.id for defect in rows})) == (173, 173)
    assert len(SPEAKING) >= 110
    assert all(len(defect.silent) > 20 for defect in rows if defect not in SPEAKING)
    assert {defect.id for defect in SPEAKING if defect.log or defect.needs.line} == LINES.keys()


@pytest.mark.parametrize("defect", SPEAKING, ids=lambda defect: defect.id)
def test_a_row_speaks_of_a_run_that_has_the_defect(defect):
    facts, trouble = affected_run(defect)
    (fit,) = [fit for fit in fitting_defects(facts, [trouble]) if fit.defect.id == defect.id]
    assert fit.is_certain <= (defect.confidence == "maintainer")
    assert fit.is_certain <= bool(defect.reread or fit.line or defect.needs.algorithm)
    sentence = defect_sentences([fit])[0]
    assert defect.workaround in sentence
    assert defect.sources[0] in sentence


@pytest.mark.parametrize("defect", SPEAKING, ids=lambda defect: defect.id)
def test_a_row_is_silent_of_the_next_version_or_without_the_condition(defect):
    facts, trouble = affected_run(defect)
    next_version = good_version(defect)
    other = (
        with_version(facts, defect, next_version)
        if next_version
        else without_condition(facts, defect)
    )
    assert defect.id not in ids(other, trouble)


@pytest.mark.parametrize("defect", SPEAKING, ids=lambda defect: defect.id)
def test_a_row_is_silent_of_a_run_without_any_trouble(defect):
    facts, _ = affected_run(defect)
    if defect.log is None:
        assert ids(facts) == []


@pytest.mark.parametrize("kind", ["slow", "wrong", "hang", "crash", "fails"])
def test_a_trouble_of_another_kind_is_no_symptom(kind):
    for defect in SPEAKING:
        facts, trouble = affected_run(defect)
        is_same = defect.kind == kind or {defect.kind, kind} == {"crash", "fails"}
        if not is_same and defect.log is None:
            assert defect.id not in ids(facts, replace(trouble, kind=kind))


def test_a_contradicting_gpu_silences_a_row_and_an_unknown_one_leaves_it_out_without_another_need():
    facts, trouble = affected_run(of_id("nccl-nvlstree-b300-multinode"))
    name = "nccl-nvlstree-b300-multinode"
    assert name in ids(facts, trouble)
    assert name not in ids(replace(facts, gpus=["NVIDIA H100 80GB HBM3"]), trouble)
    assert name not in ids(replace(facts, gpus=[]), trouble)
    assert name not in ids(facts, replace(trouble, nodes=2))
    assert name not in ids(facts, replace(trouble, collective="all_gather"))
    assert name not in ids(facts, replace(trouble, transport="mpi"))


def test_how_much_is_left_must_be_near_what_the_sources_say():
    facts, trouble = affected_run(of_id("nccl-nvlstree-b300-multinode"))
    speaks = [
        share for share in (0.1, 0.2, 0.27, 0.4, 0.8) if ids(facts, replace(trouble, share=share))
    ]
    assert speaks == [0.2, 0.27, 0.4]


def test_a_maintainers_row_is_certain_with_all_of_its_needs_and_another_one_is_not():
    def is_certain(name, **changed):
        facts, trouble = affected_run(of_id(name))
        fits = fitting_defects(replace(facts, **changed), [trouble])
        return next(fit.is_certain for fit in fits if fit.defect.id == name)

    assert is_certain("nccl-nvlstree-b300-multinode")
    assert not is_certain("nccl-nvlstree-b300-multinode", algorithms=[])
    assert not is_certain("nccl-211-a100-2nic-fall")


def test_a_workaround_that_is_set_silences_its_row():
    facts, trouble = affected_run(of_id("nccl-blackwell-16-ctas"))
    assert "nccl-blackwell-16-ctas" in ids(facts, trouble)
    with_remedy = replace(facts, variables={"NCCL_MIN_CTAS": "32"})
    assert "nccl-blackwell-16-ctas" not in ids(with_remedy, trouble)


def test_rows_of_rccl_say_nothing_of_nccl_and_rows_of_one_mpi_nothing_of_another():
    line = {"rocm-linux-68-gdr-off": "GPU Direct RDMA Disabled"}
    assert ids(RunFacts(versions={"RCCL": "2.20.5"}, lines=line)) == ["rocm-linux-68-gdr-off"]
    assert ids(RunFacts(versions={"NCCL": "2.20.5"}, lines=line)) == []
    trouble = Trouble(kind="wrong", collective="reduce", device="cuda")
    assert ids(RunFacts(versions={"Open MPI": "4.1.2"}), trouble) == ["ompi-cuda-reduce-wrong"]
    assert ids(RunFacts(versions={"MPICH": "4.1.2"}), trouble) == []


def test_the_error_of_a_failed_case_counts_as_a_line_of_a_log():
    trouble = Trouble(kind="fails", transport="mpi", text="rank 3: cxil_map: write error")
    (fit,) = fitting_defects(RunFacts(versions={"Cray MPICH": "8.1.29"}), [trouble])
    assert (fit.defect.id, fit.line) == ("cray-mpich-gdrcopy-map-error", trouble.text)
    assert ids(RunFacts(versions={"Open MPI": "5.0.3"}), trouble) == []


def test_at_most_three_defects_are_named_and_the_others_counted():
    facts = RunFacts(
        versions={"aws-ofi-nccl": "1.12.0", "NCCL": "2.20.3"},
        gpus=["NVIDIA H100 80GB HBM3"],
        networks=["efa"],
        nodes=2,
    )
    fits = fitting_defects(facts, [Trouble(kind="slow", collective="all_reduce", nbytes=1 << 15)])
    assert len(fits) == 2
    sentences = defect_sentences(fits * 3)
    assert len(sentences) == MOST + 1
    assert "3 more known defects" in sentences[-1]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.29.7", (2, 29, 7)),
        ("v2.29.7-1", (2, 29, 7, 1)),
        ("22907", (2, 29, 7)),
        ("2408", (2, 4, 8)),
        ("580", (580,)),
        ("550.144.03", (550, 144, 3)),
        ("1.13.2-aws", (1, 13, 2)),
        ("7.2.0.0-43", (7, 2, 0, 0, 43)),
        ("unknown", ()),
    ],
)
def test_versions_are_read_as_programs_print_them(text, version):
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        (VersionRange("", (2, 26, 2), (2, 27, 5)), ["2.26.2", "2.27.4"], ["2.26.1", "2.27.5"]),
        (VersionRange("", (), (2, 30, 3)), ["2.30.2", "2.18"], ["2.30.3", "2.31"]),
        (VersionRange("", (2, 29), is_open=True), ["2.29.2", "2.40"], ["2.28.9"]),
        (VersionRange("", named=((2, 29, 7),), is_open=True), ["2.29.7", "2.31"], ["2.29.3"]),
        (VersionRange("", (2, 20, 3), named=((2, 20, 3),)), ["2.20.3"], ["2.20.5", "2.19"]),
        (VersionRange("", named=((2, 20, 5), (2, 21, 5))), ["2.20.5", "2.21.5"], ["2.22.3"]),
        (VersionRange("", after=(2, 18, 5), is_open=True), ["2.19.3"], ["2.18.5", "2.17"]),
        (VersionRange("", (1, 16), named=((1, 17),), is_open=True), ["1.18.0"], ["1.15.9"]),
    ],
)
def test_ranges_end_where_the_sources_say_or_at_the_versions_that_they_name(
    versions, inside, outside
):
    assert all(versions.contains(parse_version(text)) for text in inside)
    assert not any(versions.contains(parse_version(text)) for text in outside)


def test_versions_that_have_a_defect_are_in_its_range_and_good_ones_are_not():
    for defect in SPEAKING:
        bad, good = bad_version(defect), good_version(defect)
        assert bad is None or defect.versions.contains(parse_version(bad))
        assert good is None or not defect.versions.contains(parse_version(good))


# what logs show, by the commands


def write_log(tmp_path, *lines):
    path = tmp_path / "nccl.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


BANNER = "n1:100:120 [0] NCCL INFO NCCL version {}+cuda12.9"


DEVICE = "#  Rank  0 Group  0 Pid   100 on         n1 device  0 [0x01] {}"


def test_evidence_names_the_defect_of_a_line_with_workaround_and_source(tmp_path):
    def evidence(version, *more):
        line = LINES["nccl-blackwell-shared-memory"]
        step = "n1:100:120 [0] NCCL INFO enqueue.cc:1556 -> 1"
        return invoke("evidence", write_log(tmp_path, BANNER.format(version), *more, line, step))

    said = evidence("2.25.1", DEVICE.format("NVIDIA GeForce RTX 5090"))
    assert "is a known defect of NCCL 2.25.1" in said.out
    assert "NCCL 2.26.2" in said.out
    assert "NVIDIA/nccl-tests#287" in said.out
    assert "may be a known defect of NCCL 2.25.1" in evidence("2.25.1").out
    assert "known defect" not in evidence("2.25.1", DEVICE.format("NVIDIA H200")).out
    newer = evidence("2.26.2")
    assert "known defect" not in newer.out
    assert newer.code == said.code


def test_evidence_names_a_hang_at_the_start_by_the_variables_that_hosts_set_differently(tmp_path):
    def log(version):
        lines = []
        for rank, host in enumerate(("n1", "n2")):
            head = f"{host}:10{rank}:120 [0] NCCL INFO"
            lines += [
                f"{head} NCCL version {version}+cuda12.4",
                f"{head} NCCL_CROSS_NIC set by environment to {rank}",
            ]
            begun = f"ncclCommInitRank comm 0x5a{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0"
            lines.append(f"{head} {begun} busId 19000 commId 0xabc - Init START")
        return write_log(tmp_path, *lines)

    assert "nccl-crossnic-inconsistent-hang" in invoke("evidence", log("2.20.5")).out
    assert "known defect" not in invoke("evidence", log("2.21.5")).out


def test_the_gpus_that_nccl_tests_lists_count(tmp_path):
    timeout = (
        "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 ms"
    )
    for gpu, expected in (("NVIDIA GB10", True), ("NVIDIA L4", False)):
        log = write_log(tmp_path, BANNER.format("2.29.2"), DEVICE.format(gpu), timeout)
        assert ("nccl-arm-weak-cas-hang" in invoke("evidence", log).out) == expected


@pytest.mark.parametrize(
    "name",
    [name for name in LINES if of_id(name).log and of_id(name).component in ("NCCL", "container")],
)
def test_evidence_reads_the_line_of_each_row_of_nccl_with_the_version_that_has_it(tmp_path, name):
    defect = of_id(name)
    version = bad_version(defect) or "2.28.3"
    log = write_log(tmp_path, BANNER.format(version), LINES[name])
    (launch,) = read_log_files([log]).launches
    assert name in {fit.defect.id for fit in defects_of_log(launch.record)}


def test_versions_of_the_plugin_libfabric_rocm_and_ucx_are_read():
    record = read_logs(
        {
            "a.log": "n1:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.17.2\n"
            "n1:1:2 [0] NCCL INFO NET/OFI Using Libfabric version 2.1\n"
            "ROCm version : 7.2.0.0-43\n"
            "[1.5] [n1:1:0]  ucp_context.c:2190 UCX  INFO  Version 1.18.0 (loaded from /opt/libucp.so.0)\n"
        }
    )
    expected = {"aws-ofi-nccl": "1.17.2", "libfabric": "2.1", "ROCm": "7.2.0.0-43", "UCX": "1.18.0"}
    assert record.components == expected


def test_a_line_of_a_crash_is_a_trouble():
    record = read_logs({"a.log": "n1: *** Process received signal: Segmentation fault (11)\n"})
    assert CRASH in record.defect_lines


def healthy_logs():
    folders = (TESTS / "inputs", TESTS / "evidence" / "logs", DATA, DATA / "more")
    return [path for folder in folders for path in sorted(folder.glob("*.log"))]


ILL = {
    "nccl-nvls-multicast-fails",
    "nccl-2.28-memlock-in-container",
    "nccl-2.22-completion-status-12",
    "nccl-2.31-init-never-completes",
    "rccl-2.30-two-gpus-in-a-container",
    "ucx-1.18-tcp",
    "ucc-no-teams",
}
"""Logs of runs that failed, or of another program."""


def test_no_row_speaks_of_a_healthy_log_and_few_of_one_that_failed():
    spoken = Counter()
    for path in healthy_logs():
        if path.stem == "ucx-1.18-tcp":
            continue
        for launch in read_log_files([path]).launches:
            fits = defects_of_log(launch.record)
            spoken[path.stem] += len(fits)
    assert {name for name, count in spoken.items() if count} <= ILL
    assert max(spoken.values()) <= MOST


def test_words_select_rows_by_component_version_kind_and_text():
    assert {defect.component for defect in select_defects(["ucx"])} == {"UCX"}
    assert {defect.kind for defect in select_defects(["hang"])} == {"hang"}
    names = {defect.id for defect in select_defects(["nccl", "2.29.7"])}
    assert "nccl-nvlstree-b300-multinode" in names
    assert "nccl-arm-weak-cas-hang" not in names
    names = {defect.id for defect in select_defects(["NCCL 2.29.7 slow B300"])}
    assert names == {"nccl-nvlstree-b300-multinode", "nccl-b300-nvls-below-ring-medium"}
    assert len(select_defects([])) == 173
    assert {defect.component for defect in select_defects(["open", "mpi"])} == {"Open MPI"}


def test_list_defects_prints_rows_and_refuses_words_that_fit_none():
    said = invoke("list", "defects", "nccl", "2.29.7", "--json")
    assert said.code == 0
    assert invoke("list", "defects", "no-such-word").code == 2
    assert "NCCL before 2.30.3" in invoke("list", "defects", "nvlstree-b300").out


def test_a_line_that_matches_a_pattern_has_one_of_the_texts_that_it_requires():
    for defect in SPEAKING:
        for pattern in filter(None, (defect.log, defect.needs.line)):
            texts = list(required_texts(pattern))
            assert all(len(text) >= 4 for text in texts), (defect.id, texts)
            assert any(text in LINES[defect.id] for text in texts)


def test_the_texts_that_a_pattern_requires_are_those_outside_of_groups_one_for_each_alternative():
    pattern = re.compile(r"Failed to bind|nvls\.cc.*Cuda failure 4|C(a|b)ma +0|a\(\): chunks?")
    assert list(required_texts(pattern)) == ["Failed to bind", "Cuda failure 4", "ma", ": chunk"]
