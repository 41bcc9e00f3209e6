"""One golden text: each template of a finding, rendered once."""

from pathlib import Path

import pytest

from hpccoll.render.finding_templates import TEMPLATES, explain_finding, render_finding
from hpccoll.render.report_finding import ReportFinding

GOLDEN = Path(__file__).with_name("finding_sentences.txt")
POINT = {"series": "ring", "shape": "2 nodes", "nbytes": 1024, "pair": "", "placement": "in place"}
HOSTS = frozenset({"n1", "n2", "n7"})
LOGGED = {"variant": "nccl-gdr", "jobs": ("a", "b")}
EXAMPLES = {
    "ranks_stalled": {"cause": "Rank 2 stalled", "jobs": ("a",)},
    "stall_resolved": {"cause": "Rank 2 stalled", "jobs": ("a",)},
    "network_mismatch": {"mismatch": "RDMA was expected, TCP was used", "reason": "mlx5_0 is active", "jobs": ("a",)},
    "control_failed": {**LOGGED, "evidence": "GPUDirect is off, and still: NET/IB/GDRDMA"},
    "evidence_missing": {**LOGGED, "expected": "channels via NET/.../GDRDMA", "probe_failure": "was killed"},
    "control_missing": {**LOGGED, "control": "nccl-gdr-off"},
    "several_executors": {"rows": {"compiled": 12, "python": 9}},
    "far_gpus": {"number": 4, "first": 12, "jobs": ("a", "b")},
    "hidden_gpus": {"number": 8, "jobs": ("a", "b")},
    "busy_machine": {
        "launches": 2, "all_launches": 5, "other_cores": 1.25, "host": "n1", "names": ("cc1", "make"), "stolen": 0.031,
    },
    "gpus_throttled": {
        "cases": 40,
        "gpus": (("n1 0000:1b:00.0", 12, ("hardware thermal slowdown", "power brake")), *[("n2 1b", 1, ("x",))] * 5),
    },
    "gpu_clocks_differ": {"share": 0.05, "gpus": (("n1 0000:1b:00.0", 12, 0.883),)},
    "no_interval": {"bare": 4, "rows": 10, "least": 6},
    "not_converged": {"loose": 9, "rows": 10, "oversubscribed": True},
    "fallback": {
        "series": "native (sharp asked, ring ran)", "requested": "sharp", "executed": "ring", "rows": 2,
        "reasons": ("no SHARP", "no switch", "no plugin"),
    },
    "library": {"summary": "NCCL 2.30.7 over IB", "series": ("native", "ring"), "shared": False},
    "library_model": {"series": "native", "ratios": ((1.5, 1048576), (2.0, 1024))},
    "mapping_cost": {
        "nbytes": 4194304, "shape": "8 nodes",
        "series": (
            {"name": "ring", "fast": "block", "slow": "cyclic", "ratio": 4.0, "clear": True, "rack_sizes": (3.5, 14)},
            {"name": "native", "fast": "block", "slow": "cyclic", "ratio": 1.01, "clear": False, "rack_sizes": None},
        ),
    },
    "pair_extremes": {
        "series": "ping_pong", "nbytes": 8, "shape": "2 nodes", "quantity": "seconds", "pairs": 4, "median": 6e-6,
        "fastest": "ranks 0 (a) and 2 (b)", "fastest_value": 5e-6, "slowest": "ranks 1 (a) and 3 (b)",
        "slowest_value": 9e-6, "ratio": 1.8, "clear": True,
    },
    "highest_busbw": {
        **POINT, "busbw": 3.3e7, "interval": (3.2e7, 3.4e7), "offloaded_algbw": 1e7, "auto_busbw": 3.4e7,
    },
    "wire_share": {
        "best": (
            {"series": "ring", "share": 0.98, "wire": "the calibrated wire", "nbytes": 4194304, "shape": "2 nodes"},
            {"series": "tree", "share": 0.95, "wire": "2 calibrated wires", "nbytes": 4194304, "shape": "4 nodes"},
        ),
    },
    "wire_uncalibrated": {"wire": "100 Mbit/s", "ratio": 0.792},
    "rails": {
        "shape": "2 nodes", "nbytes": 16777216,
        "series": (
            {"name": "ring one", "machine": "", "ports": {"eth0": 0.99}, "unused": ("rail2",), "gain": None},
            {
                "name": "ring two", "machine": "machine 1", "ports": {"eth0": 0.5, "rail2": 0.5}, "unused": (),
                "gain": 2.0, "base": "ring one", "other_launch": True,
            },
        ),
    },
    "overlap": {
        "model": "resnet50", "shape": "4 nodes", "details": ("25 MiB buckets",),
        "algorithms": (
            {"algorithm": "ring", "hidden": 11e-3, "of": 20e-3, "clear": True},
            {"algorithm": "native", "hidden": 1e-3, "of": 30e-3, "clear": False},
        ),
    },
    "best_bucket": {
        "model": "gpt2", "scale": 16, "shape": "4 nodes", "algorithm": "ring", "bucket": 80 << 20,
        "costs": (
            {"bucket": 0, "cost": 0.09, "clear": True}, {"bucket": 25 << 20, "cost": 0.06, "clear": True},
            {"bucket": 160 << 20, "cost": 0.01, "clear": False},
        ),
    },
    "last_bucket": {
        "model": "gpt2", "shape": "4 nodes", "algorithm": "ring", "nbytes": 176446464, "buckets": 13, "seconds": 12e-3,
        "share": 0.29,
    },
    "null_missing": {"workloads": 2, "of": 3},
    "null_overhead": {
        "model": "resnet50", "shape": "4 ranks", "details": (), "excess": 4.4e-3, "share": 0.12, "workloads": 2,
        "of": 3, "oversubscribed": True,
    },
    "below_null": {
        "model": "resnet50", "shape": "2 ranks", "details": ("overlapped",), "rows": 2, "algorithm": "ring",
        "seconds": 2e-3,
    },
    "no_product": {
        "model": "resnet50/64", "shape": "2 ranks", "details": (), "none": 2, "computations": 6, "workloads": 1,
        "of": 1,
    },
    "between_rounds": {
        **POINT, "median_ratio": 1.3, "cases": 3, "max_ratio": 2.0,
    },
    "measured_once": {"resumed_cases": 1},
    "repeated_points": {**POINT, "points": 2, "disagreeing": 1, "max_ratio": 1.5},
    "wrong_results": {"rows": 1, "series": ("ring", "tree")},
    "oversubscribed": {"ranks": (4, 6, 8), "aggregators": 1},
    "several_machines": {"machines": ("2 cores of A", "4 cores of B")},
    "rounds_on_different_hosts": {"cases": 2},
    "mixed_hosts": {"launches": (("small", HOSTS),)},
}  # fmt: skip


def text_of(kind):
    finding = ReportFinding(kind, "info", EXAMPLES[kind])
    title, sentence = render_finding(finding)
    statement = f"{title}: {sentence}" if title else sentence
    return "\n  ".join(filter(None, (statement, explain_finding(finding))))


def test_each_template_is_rendered_as_in_the_golden_text():
    assert EXAMPLES.keys() == TEMPLATES.keys()
    assert "".join(f"[{kind}]\n{text_of(kind)}\n\n" for kind in TEMPLATES) == GOLDEN.read_text()


def test_nothing_is_best_or_slowest_if_nothing_is_clear():
    alike = tuple({**each, "clear": False} for each in EXAMPLES["best_bucket"]["costs"])
    _, buckets = render_finding(ReportFinding("best_bucket", "info", {**EXAMPLES["best_bucket"], "costs": alike}))
    assert (
        buckets == "gpt2 on 4 nodes, ring: no limit is clearly the best (limits of the full model; here divided by 16)."
    )
    _, pairs = render_finding(ReportFinding("pair_extremes", "info", {**EXAMPLES["pair_extremes"], "clear": False}))
    assert pairs == "the median of 4 pairs is 6 us; no pair is clearly slower (5 us to 9 us)."


@pytest.mark.parametrize("kind", ["highest_busbw", "repeated_points", "between_rounds"])
def test_a_brace_in_a_name_is_text(kind):
    values = {**EXAMPLES[kind], "series": "{x}", "pair": "ranks 0 ({y.__class__}) and 1"}
    _, sentence = render_finding(ReportFinding(kind, "info", values))
    assert "{x} with 2 nodes at 1 KiB, ranks 0 ({y.__class__}) and 1, in place" in sentence


@pytest.mark.parametrize("nbytes", [None, 1024])
def test_a_collective_without_a_size_has_none_in_its_sentences(nbytes):
    for kind, changes in (
        ("highest_busbw", {"nbytes": nbytes}),
        ("rails", {"nbytes": nbytes}), ("mapping_cost", {"nbytes": nbytes}),
        ("library_model", {"ratios": ((2.0, nbytes),)}),
    ):  # fmt: skip
        text = " ".join(render_finding(ReportFinding(kind, "info", EXAMPLES[kind] | changes)))
        assert (" B" in text or "KiB" in text) is (nbytes is not None)
