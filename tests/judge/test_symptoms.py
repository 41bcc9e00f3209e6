"""Causes of fails: each symptom of a machine has its cause among the likeliest, and a log proves and excludes them."""

import os
import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from published_outputs import PublishedRow
from row_examples import make_row

from hpccoll.evidence.log_set import read_logs
from hpccoll.judge import causes as table
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.held import MODEL, PUBLISHED, RATE, TIME, Expected, HeldVerdict
from hpccoll.judge.symptoms import SYMPTOMS, explain
from hpccoll.model.machine_file import read_machine

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = 8, 64 * KIB, 64 * MIB, 256 * MIB, GIB, 8 * GIB
RATE_OF_LARGE = 450e9
ROWS = tomllib.loads(Path(table.__file__).with_suffix(".toml").read_text())


def verdict(
    share,
    nbytes,
    collective="all_reduce",
    nodes=2,
    in_place=False,
    quantity=RATE,
    rounds=(),
    **more,
):
    """Return the verdict on a row that has a share of the expected bandwidth."""
    expected = RATE_OF_LARGE / (1 + 32 * MIB / nbytes)
    measured = share * expected if quantity == RATE else nbytes / expected / share
    value = expected if quantity == RATE else nbytes / expected
    of_range = HeldVerdict.AS_EXPECTED if share > 0.95 else HeldVerdict.CANNOT_TELL
    of_range = HeldVerdict.SLOWER if share < 0.85 else of_range
    row = make_row(
        "native",
        nbytes=nbytes,
        collective=collective,
        ranks=8 * nodes,
        nodes=nodes,
        ranks_per_node=8,
        in_place=in_place,
        **{
            "transport": "nccl",
            "device": "cuda",
            "kind": "imported",
            "executed": "unknown",
            "round_medians_s": rounds,
        }
        | more,
    )
    expected = Expected(0.98 * value, value, 1.02 * value, PUBLISHED)
    return Judged(
        row=row, quantity=quantity, measured=measured, expected=expected, verdict=of_range
    )


def sweep(share, **more):
    """Return the verdicts on a sweep; a share for each size, or one for sizes from 1 MiB on.

    If these fail, nothing can be told of smaller ones.
    """
    small = 1.0 if share == 1.0 else 0.9
    shares = (
        share if isinstance(share, tuple) else [share if size >= MIB else small for size in SIZES]
    )
    return [
        verdict(each, size, in_place=in_place, **more)
        for size, each in zip(SIZES, shares, strict=True)
        for in_place in (False, True)
    ]


def causes_of(judged, machine="8xh100-400g", log=None):
    """Return the causes of the last fail."""
    *_, last = [one for one in explain(judged, machine and described(machine), log) if one.causes]
    return last.causes


@cache
def described(name):
    return read_machine(name, "--cluster")


SHOWN = {
    "dip": (sweep((1, 1, 1, 1, 0.6, 1)), "switch of algorithm"),
    "placement": ([one for one in sweep(0.6) if not one.row.in_place] + [one for one in sweep(1.0) if one.row.in_place],
                  "warm-up"),
    "small_nodes": (sweep((0.3, 0.5, 1, 1, 1, 1)) + sweep(1.0, nodes=1), "long"),
    "small": (sweep((0.3, 0.5, 1, 1, 1, 1), nodes=1), "cores"),
    "with_nodes": ([one for nodes, share in ((2, 0.9), (3, 0.7), (4, 0.58), (6, 0.4))
                    for one in sweep(share, nodes=nodes)], "adaptive routing"),
    "all_to_all": (sweep(0.5, collective="all_to_all") + sweep(1.0), "PXN"),
    "collective": (sweep(0.5, collective="all_gather") + sweep(1.0), "another algorithm"),
    "unstable": (sweep(0.8, rounds=(0.1, 0.15, 0.1)), "other jobs"),
    "rails": (sweep(0.75), "NICs are not used"),
    "ring_level": (sweep(0.77, nodes=1), "NVLS"),
    "node": (sweep(0.05, nodes=1), "peer-to-peer"),
    "nodes": (sweep(0.4) + sweep(1.0, nodes=1), "ACS"),
}  # fmt: skip
"""For each symptom, the verdicts on a machine that shows it, and its cause."""


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_each_symptom_has_its_cause_among_the_likeliest(symptom):
    judged, cause = SHOWN[symptom]
    assert any(cause in each.what for each in causes_of(judged))


@pytest.mark.parametrize(
    ("share", "cause"),
    [
        (0.48, "ACS"),
        (0.39, "ACS"),
        (0.5, "NICs are not used"),
        (0.79, "split"),
        (0.25, "GPUDirect"),
        (0.012, "sockets"),
        (0.044, "sockets"),
        (0.08, "tuner"),
        (0.09, "proxy"),
        (0.67, "far from its GPU"),
    ],
)
def test_the_share_that_is_left_tells_causes_of_the_network_apart(share, cause):
    assert any(cause in each.what for each in causes_of(sweep(share)))


def test_causes_of_times_are_those_of_the_same_share_of_bandwidth():
    assert causes_of(sweep(0.012, quantity=TIME)) == causes_of(sweep(0.012))


def test_a_network_is_no_suspect_where_one_node_is_as_slow():
    (first, *_) = causes_of(sweep(0.45, nodes=1) + sweep(0.45))
    assert "1 node" in first.because
    assert not any("ACS" in each.what for each in causes_of(sweep(0.45, nodes=1) + sweep(0.45)))


def test_between_nodes_of_one_fabric_no_network_is_a_suspect():
    causes = causes_of(sweep(0.5, nodes=4), "gb200-nvl72")
    assert any("links between GPUs" in each.what for each in causes)
    causes += causes_of(sweep(0.75, nodes=4), "gb200-nvl72")
    assert not any("network" in each.what or "NIC" in each.what for each in causes)
    assert any("NIC" in each.what for each in causes_of(sweep(0.5, nodes=32), "gb200-nvl72"))


def test_what_slows_every_size_is_no_cause_where_small_or_large_ones_pass():
    all_slow, small_pass, large_pass = (
        (0.2, 0.1, *[0.012] * 4),
        (1, 1, *[0.012] * 4),
        (0.2, 0.1, *[1] * 4),
    )
    for shares, is_cause in ((all_slow, True), (small_pass, False), (large_pass, False)):
        assert any("TCP sockets" in each.what for each in causes_of(sweep(shares))) == is_cause
    unknown = [one for one in sweep(all_slow) if one.row.bytes >= MIB]
    assert any("TCP sockets" in each.what for each in causes_of(unknown))


def test_high_latency_on_several_nodes_where_one_node_is_normal_has_causes_of_the_way_between_them():
    slow = (0.3, 0.5, 1, 1, 1, 1)
    causes = causes_of(sweep(slow) + sweep(1.0, nodes=1))
    assert "one node is normal" in causes[0].because
    for others in ([], sweep(slow, nodes=1)):
        of_pair = [
            one
            for one in explain(sweep(slow) + others, described("8xh100-400g"))
            if one.row.nodes == 2
        ]
        between = [each for one in of_pair for each in one.causes if "way between" in each.what]
        assert bool(between) == (not others)


def test_what_passes_has_no_causes_and_verdicts_stay():
    judged = sweep(0.4) + sweep(1.0, nodes=1)
    explained = explain(judged)
    assert [bool(one.causes) for one in explained] == [
        one.verdict is HeldVerdict.SLOWER for one in judged
    ]
    assert [one.row for one in explained] == [one.row for one in judged]


def test_a_wrong_result_is_no_symptom_of_a_slow_machine():
    wrong = [
        replace(one, verdict=HeldVerdict.WRONG, row=replace(one.row, wrong=3, status="wrong"))
        for one in sweep(1.0)
    ]
    assert not any(one.causes for one in explain(wrong))


def every_cause(machine=None, **more):
    """Return the causes of fails with all symptoms and shares."""
    shares = (each / 100 for each in range(1, 84))
    mixed = (sweep(share, nodes=nodes, **more) for share in shares for nodes in (1, 2))
    judged = [*mixed, *(one for one, _ in SHOWN.values() if not more)]
    return " ".join(
        f"{each.what} {each.check}" for one in judged for each in causes_of(one, machine)
    )


def test_causes_that_a_machine_cannot_have_are_left_out():
    assert {"NVLS", "ACS"} <= {*re.findall("NVLS|ACS", every_cause("8xh100-400g"))}
    assert "NVLS" not in every_cause("8xa100-200g")
    assert "NCCL_IB_" not in every_cause("aws-p5")
    assert "GPUDirect" not in every_cause("gcp-a3-mega")
    assert not re.search("NVLS|PXN", every_cause(transport="rccl"))
    assert not re.search("NCCL|GPU", every_cause(transport="mpi"))


def test_checks_are_those_of_the_vendor_of_the_gpus():
    of_nvidia = r"(?i)nvidia|cuda|nvlink|peermem|NCCL(?!_)|nccl-tests|nccl\.conf"
    of_amd = r"(?i)amd|rocm|hip_|rccl"
    assert not re.search(of_nvidia, every_cause(transport="rccl", device="rocm"))
    assert "rocm-smi" in every_cause(transport="rccl", device="rocm")
    assert not re.search(of_amd, every_cause())


def test_no_row_of_the_table_has_a_tool_of_one_vendor_alone():
    """What RCCL's nodes cannot have needs no check of theirs."""
    lacking = {*ROWS["lacking"]["transport rccl"]}
    for row in ROWS["cause"]:
        texts = row.get("what_amd", row["what"]), row.get("check_amd", row["check"])
        is_of_nvidia = re.search("(?i)nvidia|cuda|nvlink|peermem", " ".join(texts))
        assert not is_of_nvidia or lacking & {*row["needs"]}, row["what"]


PORTS = " ".join(f"[{port}]mlx5_{port}:1/IB" for port in range(8))
LOG = (
    "Using network IB",
    f"NET/IB : Using {PORTS} [RO]",
    "NCCL_DEBUG_SUBSYS set by environment to INIT,ENV,NET",
)
GDR = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"


def log_of(*lines):
    """Return the record of a log with these lines of NCCL."""
    return read_logs({"a.log": "".join(f"n1:100:100 [0] NCCL INFO {line}\n" for line in lines)})


PROVEN = [
    ("NCCL_PROTO set by environment to LL", "NCCL_PROTO"),
    ("NCCL_IB_SPLIT_DATA_ON_QPS set by environment to 1.", "split"),
    (GDR.replace("/GDRDMA", ""), "no GPUDirect"), ("Using network Socket", "sockets"),
    ("TUNER/Plugin: Using tuner plugin Example", "tuner"), ("NCCL_PXN_DISABLE set by environment to 1.", "PXN"),
    (f"NET/IB : Using {PORTS[:32]}", "NICs are not used"), ("NCCL_CUMEM_ENABLE set by environment to 0", "cuMem"),
]  # fmt: skip
"""Lines of logs, and the causes that they prove."""


@pytest.mark.parametrize(("line", "cause"), PROVEN)
def test_a_cause_that_the_log_proves_comes_first_and_quotes_it(line, cause):
    judged = sweep(0.5, collective="all_to_all") if "PXN" in cause else sweep(0.5)
    first, *others = causes_of(judged, log=log_of(line))
    assert cause in first.what
    assert (first.proven, any(other.proven for other in others)) == (True, False)


@pytest.mark.parametrize("share", [0.012, 0.2, 0.45, 0.78, (0.2, 0.3, 1, 1, 1, 1)])
def test_rdma_that_a_variable_turned_off_is_quoted_as_the_likeliest_cause(share):
    lines = "NCCL_IB_DISABLE set by environment to 1.", "NCCL_ALGO set by environment to Ring"
    for log in (log_of(*lines), log_of(*lines, "Using network Socket")):
        first, *_ = causes_of(sweep(share), log=log)
        assert (first.proven, first.because) == (True, "the log has NCCL_IB_DISABLE=1")


def of_library(library, judged):
    figures = ("", "2.23.4", "2.31.2")
    return [
        replace(one, library=library, expected=replace(one.expected, libraries=figures))
        for one in judged
    ]


def named_ages(judged):
    return [each for each in causes_of(judged) if "older NCCL" in each.what]


def test_an_older_library_than_that_of_figures_is_said_with_its_symptom_and_one_as_new_is_no_cause():
    (cause,) = named_ages(of_library("NCCL 2.20.3", sweep(0.7)))
    assert (
        "; NCCL 2.20.3 is older than those figures that say theirs (from 2.23.4 on)"
        in cause.because
    )
    assert not cause.proven
    assert not named_ages(of_library("NCCL 2.26.2", sweep(0.7)))


@pytest.mark.parametrize(("share", "nodes"), [(0.4, 2), (0.7, 1)])
def test_an_older_library_is_no_cause_of_what_nobody_has_seen_it_cause(share, nodes):
    assert not named_ages(of_library("NCCL 2.20.3", sweep(share, nodes=nodes)))


def test_an_older_library_of_one_output_explains_nothing_of_another():
    old, new = of_library("NCCL 2.20.3", sweep(1.0)), of_library("NCCL 2.26.2", sweep(0.7))
    assert not named_ages([*old, *new])


def test_causes_that_the_log_excludes_are_left_out():
    def named(share, *lines):
        return " ".join(
            each.what for each in causes_of(sweep(share), log=log_of(*lines) if lines else None)
        )

    for share, cause in (
        (0.5, "split"),
        (0.5, "NICs are not used"),
        (0.25, "GPUDirect"),
        (0.012, "sockets"),
    ):
        assert cause in named(share)
        assert cause not in named(share, *LOG, GDR)
    assert "ACS" in named(0.5, *LOG, GDR)
    assert "peer-to-peer" in causes_of(sweep(0.05, nodes=1), log=log_of(*LOG, GDR))[0].what
    p2p = log_of(*LOG, GDR, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    assert not any("peer-to-peer" in each.what for each in causes_of(sweep(0.05, nodes=1), log=p2p))


def test_variables_that_a_file_records_prove_causes_and_exclude_none():
    for variables, is_proven in (
        ({"NCCL_IB_SPLIT_DATA_ON_QPS": "1"}, True),
        ({"NCCL_DEBUG": "WARN"}, False),
    ):
        *_, last = explain(sweep(0.5), described("8xh100-400g"), variables=variables)
        assert [each.proven for each in last.causes if "split" in each.what] == [is_proven]


def test_the_algorithm_that_a_log_names_is_no_cause_of_what_is_held_against_it():
    ring = [
        replace(one, expected=replace(one.expected, origin=MODEL)) for one in sweep(0.8, nodes=1)
    ]
    assert "NVLS" in causes_of(sweep(0.8, nodes=1))[0].what
    assert not any("NVLS" in each.what for each in causes_of(ring))


FOUND = {
    "PROTO": "NCCL_PROTO",
    "CUMEM": "cuMem",
    "SPLIT": "split",
    "GDR_LEVEL": "GPUDirect",
    "tuner": "tuner",
    "pinned": "proxy",
    "": "ACS",
}
"""The causes of published numbers by what their settings say: what was found where that was taken back."""


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of published data"
)
def test_published_numbers_that_fail_have_the_cause_that_was_found_among_the_likeliest(tmp_path):
    rows = PublishedRow.read(Path(os.environ["HPCCOLL_DATA"]) / "published" / "nccl-tests.csv")
    unhealthy = [row for row in rows if row.healthy is False and row.call.nbytes >= GIB]
    assert len(unhealthy) == 11
    for row in unhealthy:
        variables = dict(re.findall(r"(NCCL_\w+)=(\w+)", row.cells["settings"]))
        (judged,) = explain([row.judged(tmp_path)], row.machine, variables=variables)
        cause = next(cause for setting, cause in FOUND.items() if setting in row.cells["settings"])
        assert any(cause in each.what for each in judged.causes), (row.cells, judged.causes)


PAGES = re.findall(
    r"^#     ([^:\n]+): https", Path(table.__file__).with_suffix(".toml").read_text(), re.MULTILINE
)
"""The titles of the pages that the table cites."""


def test_every_row_of_the_table_is_whole():
    assert len(PAGES) == 4
    names = {name for row in ROWS["cause"] for name in row["symptoms"]}
    assert names == {*SYMPTOMS}
    lacking = {each for traits in ROWS["lacking"].values() for each in traits}
    assert {each for row in ROWS["cause"] for each in row.get("needs", ())} == lacking
    for row in ROWS["cause"]:
        assert row["check"]
        pages = [title for title in PAGES if title in row["source"]]
        assert (
            pages or "assumed" in row["source"] or re.search(r"#\d+|\w/\w|OpenShift", row["source"])
        ), row
        assert 0 <= row.get("share", [0, 1])[0] < row.get("share", [0, 1])[1] <= 1
        assert all(re.compile(row[name]) for name in ("proven", "excluded") if name in row)


def test_what_cannot_be_told_says_what_a_log_shows_of_the_network():
    log = read_logs(
        {"a": "n1:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"}
    )
    for nodes, is_said in ((2, True), (1, False)):
        open_rows = [
            one for one in sweep(0.9, nodes=nodes) if one.verdict is HeldVerdict.CANNOT_TELL
        ]
        explained = explain(open_rows, described("8xh100-400g"), log)
        assert ["1 of 8" in one.reason for one in explained] == [is_said] * len(explained)
    assert not any(
        "1 of 8" in one.reason for one in explain(sweep(1.0), described("8xh100-400g"), log)
    )
