"""Verdicts on two runs: for each rule the runs that show it, and on a golden page what follows from them."""

from dataclasses import replace

import pytest
from compared_runs import SIZES, results
from golden_page import assert_golden
from row_examples import make_row

from hpccoll.common.errors import UnusableError
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.run_comparison import TOLERANCE, check_tolerance, compare
from hpccoll.store.rows import Gap

HARNESS, SLOWER_HARNESS = (make_row(algorithm="null", seconds=seconds) for seconds in (2e-7, 5e-7))
SKIPPED = make_row(
    nbytes=1 << 30, status="skipped", reason="needs a GPU", algbw_Bps=None, median_s=None
)
WRONG = make_row(nbytes=1024, seconds=1e-9, status="wrong", reason="3 elements differ")
DIED = Gap(case="ring-2-1024-0", job="local", status="failed", reason="rank 1 died")


def again(factors=None, **more):
    return results(factors, seed=2, **more)


def having(of, *rows, without=0):
    return replace(of, rows=(*rows, *of.rows[without:]))


def on_hosts(*names):
    return results(provenance={"hosts": ["n1", "n2"]}), again(provenance={"hosts": names})


def test_cases_that_add_in_another_order_than_before_are_named_and_change_no_verdict():
    before, now = results(order="a" * 16), again(order="b" * 16)
    compared = compare(before, now)
    (finding,) = compared.orders
    assert finding.kind == "order_changed"
    assert len(finding.values["cases"]) == len(SIZES)
    assert compared.to_json()["orders"][0]["kind"] == "order_changed"
    assert not compared.worse
    assert not compare(before, again(order="a" * 16)).orders
    assert not compare(before, again()).orders


A_LITTLE = results(noise=0.001), again(dict.fromkeys(SIZES, 1.03), noise=0.001)
BEFORE = {
    "versions": {"numpy": "2.4"},
    "variables": {"SLURM_JOB_ID": "1", "HPCCOLL_NODE_NAME": "gpu-1"},
    "host_load": [],
    "kernel": "6.1",
}
NOW = {
    "versions": {"numpy": "2.5"},
    "variables": {"SLURM_JOB_ID": "2", "HPCCOLL_NODE_NAME": "gpu-2", "UCX_TLS": "tcp"},
    "kernel": "6.1",
}
STEP, LATE = (
    {"transfer_s": 0.002, "waiting_s": 1e-5, "last_share": 0.0},
    {"late_ranks": (1,), "last_share": 1.0},
)
SCENARIOS = {
    "a slower and a faster case among unchanged ones": (results(), again({1024: 1.2, 2048: 0.8})),
    "a faster case alone is not worse": (results(), again({1024: 0.8})),
    "a change below the tolerance is none": A_LITTLE,
    "it is one with a smaller tolerance": (*A_LITTLE, 0.02),
    "of a training step, transfer that takes longer is named": (
        results(**STEP),
        again({1024: 1.2}, **{**STEP, "transfer_s": 0.004}),
    ),
    "and a rank that is late": (
        results(**STEP),
        again({1024: 1.2}, **{**STEP, "waiting_s": 0.005, **LATE}),
    ),
    "unless that is not known": (
        results(**STEP),
        again({1024: 1.2}, **{**STEP, "last_share": None}),
    ),
    "noise is undecided, and more rounds would decide": (
        results(rounds=3, noise=0.02),
        again(rounds=3, noise=0.02),
    ),
    "much noise is too noisy to tell": (results(rounds=3, noise=0.1), again(rounds=3, noise=0.1)),
    "what is gone is missing with its reason": (results(), results({1024: None}, missing=[DIED])),
    "what is there now is new": (results({1024: None}), results()),
    "a wrong result is worse however fast it is": (
        results(),
        having(again({1024: 0.5}), WRONG, without=1),
    ),
    "what the harness takes is not compared": (
        having(results(), HARNESS),
        having(again(), SLOWER_HARNESS),
    ),
    "nor missed": (having(results(), HARNESS), again()),
    "what neither could measure is no case": (having(results(), SKIPPED), having(again(), SKIPPED)),
    "what the old run could is missing": (
        having(results(), make_row(nbytes=1 << 30)),
        having(again(), SKIPPED),
    ),
    "hosts with domains are the same": on_hosts("n1.cluster.example", "N2"),
    "in any order": on_hosts("n2", "n1"),
    "another host is a change": on_hosts("n1", "n3"),
    "so is a host less": on_hosts("n1"),
    "changes are named but for those of every run": (
        results(provenance=BEFORE),
        again(provenance=NOW),
    ),
}


def test_each_rule_of_comparisons_shows_in_its_runs():
    lines = []
    for rule, (old, new, *tolerance) in SCENARIOS.items():
        compared = compare(old, new, *tolerance or [TOLERANCE])
        lines.append(f"-- {rule}{': worse' * compared.worse}")
        lines += [
            f"{held.verdict} {held.case.case_id}, {held.reason or 'sure'}"
            for held in compared.cases
            if held.verdict is not HeldVerdict.AS_EXPECTED
        ]
        lines.append(
            f"{len(compared.of(HeldVerdict.AS_EXPECTED))} unchanged; changes: {dict(compared.changes)}"
        )
    assert_golden("run_comparison", lines)


def test_cases_are_matched_by_what_was_asked_and_where():
    for changes, words in (({"ranks": 4}, "no case in common"), ({"dtype": "float64"}, "float64")):
        with pytest.raises(UnusableError, match=words):
            compare(results(), results(**changes))


def test_each_collective_and_shape_has_a_comparison_of_its_own_those_that_became_worse_first():
    old, new = (
        replace(of, rows=(*of.rows, *wider.rows))
        for of, wider in (
            (results(), results(ranks=4)),
            (again(), again({1024: 1.2}, ranks=4)),
        )
    )
    parts = compare(old, new).by_call
    assert [(*call, part.worse) for call, part in parts.items()] == [
        ("all_reduce", 4, 1, True),
        ("all_reduce", 2, 1, False),
    ]
    assert parts["all_reduce", 4, 1].factors(HeldVerdict.SLOWER) == pytest.approx([1.2], rel=0.05)


@pytest.mark.parametrize("tolerance", [0.0, -0.1, 1.0, float("nan")])
def test_a_tolerance_that_is_no_share_is_refused(tolerance):
    with pytest.raises(UnusableError, match="--tolerance"):
        check_tolerance(tolerance)
