"""Tables and findings of training steps: for each rule the steps that show it, on a golden page."""

import json
from dataclasses import replace

import pytest
from finding_values import assert_findings
from step_examples import (
    compressed_step,
    stage,
    step_case,
    step_outcome,
    step_times,
    steps,
    timeline_ms,
)

from hpccoll.analysis.late_ranks import late_words
from hpccoll.extensions.steps.analysis.step_comparison import compare_steps, late_findings
from hpccoll.extensions.steps.analysis.step_findings import ranks_disagree_findings, step_table
from hpccoll.render.export import export
from hpccoll.render.terminal_summary import outcome_lines
from hpccoll.schedule import RecvReduce, Send, Step, all_reduce, dst
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

MIB = 1 << 20
JUDGED = "codec_cost paying_rate codecs_crowded"
RING, ONE_STAGE = {"ring": 12, "null": 0}, {"parallel": "pp=2"}
OVERLAP = [{"overlap": 0}, {"overlap": 1}]
LIMITS = [{"bucket": n * MIB} for n in (4, 25, 80)]


def results(*raw_results):
    return to_results(ResultFiles(raw_results=list(raw_results)))


def lasting(workloads, milliseconds):
    """Return steps whose ring takes the milliseconds that a function of the workload returns, if it returns any."""
    raw = steps(RING, workloads)
    _, outcomes = raw.attempts[0]
    outcomes[:] = [
        step_outcome(each.case, step_times([timeline_ms(12)] * 2, [takes] * 2), [stage()])
        if each.case.algorithm == "ring" and (takes := milliseconds(each.case.params))
        else each
        for each in outcomes
    ]
    return results(raw)


def ready_earlier():
    """Return a step whose last bucket is ready while the backward pass goes on."""
    raw = steps({"ring": 12})
    events, program = (
        [*(10, 10, 12), *(15, 15, 18), 0, 10, 10, 30],
        [stage((8, 8), ("forward", "backward"))],
    )
    raw.attempts[0] = (
        raw.attempts[0][0],
        [step_outcome(step_case(), step_times([events] * 2), program)],
    )
    return results(raw)


def on_wires(*, oversubscribed):
    """Return a step with and without compression on ports of 1 Gbit/s."""
    ports = [{"ports": [{"kind": "netdev", "speed": 1000, "mtu": 9000}]}]
    attempt = {"oversubscribed": oversubscribed, "provenance": {"ports": ports}}
    return results(steps({"ring": 12}, **attempt), compressed_step(6, 9, attempt=attempt))


def of_late_rank(**about):
    """Return a step in which rank 1 computes 5 ms longer before the first bucket."""
    on_time, late = (
        [*(begin, begin, 24), *(24, 24, 30), *(30, 30, 36), *timeline_ms(12)[9:]]
        for begin in (12, 17)
    )
    raw = steps(RING, **about)
    attempt, (_, null) = raw.attempts[0]
    raw.attempts[0] = attempt, [step_outcome(step_case(), step_times([on_time, late])), null]
    return results(raw)


def of_micro_batches():
    """Return a step of two micro-batches with two buckets each, as of zero2: the last one ends after all else."""
    events = [moment for at in (10, 20, 25, 35) for moment in (at, at, at + 5)]
    program = [[*stage((8, 6), ())[:2] * 2, *stage((), ("forward", "backward") * 2)]]
    times = step_times([[*events, 0, 5, 5, 20, 20, 25, 25, 35]] * 2)
    raw = steps({"ring": 12})
    raw.attempts[0] = raw.attempts[0][0], [step_outcome(step_case(), times, program)]
    return results(raw)


def test_each_rule_of_tables_and_findings_shows_in_its_steps():
    gemm, apart = [{"compute": "gemm"}], steps({"native": 9}, LIMITS[1:2], path="b.h5")
    assert_findings("step_findings", {
        "a line has the step and what is exposed, the fastest is the best": (
            step_table, results(steps({"native": 60, "ring": 12, "null": 0}, [{"scale": 16}]))),
        "a single rank has no best": (step_table, results(steps({"native": 60, **RING}, ranks=1))),
        "without null nothing is known to be exposed": (step_table, results(steps({"ring": 12}))),
        "and a warning says so": ("null_missing", results(steps({"ring": 12}))),
        "with null there is none": ("null_missing", results(steps(RING))),
        "overlap hides what it saves": ("overlap", results(steps(RING, OVERLAP))),
        "not across other workloads": ("overlap", results(steps(RING, [{"overlap": 0, "bucket": 8}, {"overlap": 1}]))),
        "nor of stages alone": ("overlap", results(steps(RING, [each | ONE_STAGE for each in OVERLAP]))),
        "what overlap hides is clear": ("overlap", lasting(OVERLAP, lambda w: 41 * w["overlap"])),
        "unless it is none": ("overlap", lasting(OVERLAP, lambda w: 42 * w["overlap"])),
        "the best limit of buckets has the costs of others": (
            "best_bucket", lasting(LIMITS, lambda w: {4: 40, 25: 33, 80: 30}[w["bucket"] // MIB])),
        "not of stages alone": ("best_bucket", results(steps(RING, [each | ONE_STAGE for each in LIMITS]))),
        "nor of different algorithms": ("best_bucket", results(steps({"ring": 12}, LIMITS[:1]), apart)),
        "the last bucket is ready after the backward pass": ("last_bucket", results(steps(RING))),
        "of a step that overlaps": ("last_bucket", results(steps({"ring": 12}, OVERLAP[:1]))),
        "a bucket that is ready earlier can be hidden": ("last_bucket", ready_earlier()),
        "each micro-batch has it": ("last_bucket", of_micro_batches()),
        "a chain is one bucket": ("last_bucket", results(compressed_step(6, 9))),
        "a compressed step is named, and has the time of its codecs": (
            step_table, results(steps(RING), compressed_step(6, 9))),
        "a step is longer with compression": ("codec_cost", results(steps({"ring": 12}), compressed_step(6, 9))),
        "shorter": ("codec_cost", results(steps({"ring": 12}), compressed_step(1, 2))),
        "shorter, with longer codecs than what they save": (
            "codec_cost", results(steps({"ring": 12}), compressed_step(11, 9, ready_ms=10))),
        "where the rate of the wire is known, it pays below another": (JUDGED, on_wires(oversubscribed=False)),
        "ranks share cores": (JUDGED, on_wires(oversubscribed=True)),
        "nothing is saved": (
            "codec_cost", results(steps({"ring": 12}), compressed_step(1, 14, compress="topk=10%", feedback=1))),
        "without an uncompressed step nothing is known": ("codec_cost", results(compressed_step(6, 9))),
        "gradients overflow": ("overflow", results(compressed_step(6, 9, overflowed=12, not_finite=3))),
        "none does": ("overflow", results(compressed_step(6, 9))),
        "overlap is not compared with another compression": (
            "overlap", results(steps(RING, OVERLAP[:1]), compressed_step(6, 9))),
        "null takes longer than its computation": ("null_overhead", results(steps(RING, [{"compute_us": 25_000}]))),
        "a little longer is nothing": ("null_overhead", results(steps(RING))),
        "nothing is computed": ("null_overhead", results(steps(RING, [{"compute_us": 5, "compute": "none"}]))),
        "a rank is late": ("late_rank", of_late_rank()),
        "on one host it has a number": ("late_rank", of_late_rank(nodes=1, provenance={"hosts": ["n0"]})),
        "none is": ("late_rank", results(steps(RING))),
        "a step takes less than null": ("below_null", results(steps({"ring": 3, "null": 12}))),
        "a step takes more": ("below_null", results(steps(RING))),
        "computations are too small for a product": ("no_product", results(steps(RING, gemm, products=[2, 0, 1, 0]))),
        "each has a product": ("no_product", results(steps(RING, gemm, products=[2, 1, 1, 3]))),
    })  # fmt: skip


def test_rows_of_steps_are_exported_but_not_as_tables_of_nccl_tests_and_one_rank_has_no_answer():
    found = results(steps(RING))
    (ring,) = (row for row in json.loads(export(found, "json")) if row["algorithm"] == "ring")
    figures = ring["communication_s"], ring["backward_s"], ring["forward_s"], ring["exposed_s"]
    assert figures == pytest.approx((0.012, 0.020, 0.010, 0.004))
    lines = export(found, "nccl-tests").splitlines()
    assert all(line.startswith("#") for line in lines)
    assert any("2 training steps" in line for line in lines)
    (line,) = [
        line
        for line in outcome_lines(results(steps(RING, ranks=1)))
        if line.startswith("training_step")
    ]
    assert "mpiexec -n 2" in line


def test_the_step_without_communication_of_a_comparison_is_the_one_of_its_exposed_times():
    one = steps(RING, path="one.h5", run_id="one")
    for several in ((one, steps({"null": 30}, path="other.h5", run_id="other", number=2)), (one,)):
        found = results(*several)
        (compared,) = compare_steps(found.rows, {})
        (ring,) = compared.rows
        assert ring.exposed_s == pytest.approx(ring.median_s - compared.null.median_s)
        assert compared.null.run_id == "one"


def test_each_late_rank_is_named_once_with_its_largest_lag():
    (first,) = compare_steps(of_late_rank(nodes=1, provenance={"hosts": ["n0"]}).rows, {})
    row = first.rows[0]
    ranks = {0: (0.001, 0.003), 1: (0.005,), 2: (0.002,)}
    rows = [
        replace(row, late_ranks=(rank,), last_s=lag) for rank, lags in ranks.items() for lag in lags
    ]
    found = late_findings([replace(first, rows=(each,)) for each in rows], {})
    assert [(each.values["rank"], each.values["lag"]) for each in found] == [
        (1, 0.005),
        (0, 0.003),
        (2, 0.002),
    ]


def test_ranks_that_are_late_in_one_step_are_named_together():
    (first,) = compare_steps(of_late_rank().rows, {})
    rows = [
        replace(first.rows[0], late_ranks=ranks, last_s=lag)
        for ranks, lag in (((2, 5), 0.05), ((5, 2), 0.04))
    ]
    (found,) = late_findings(
        [replace(first, rows=(each,)) for each in rows], {row.key: "n{}".format for row in rows}
    )
    assert (found.values["ranks"], found.values["lag"], found.values["workloads"]) == (
        (2, 5),
        0.05,
        2,
    )
    assert found.text.startswith("n2 (rank 2) and n5 (rank 5) are late")
    said = [late_words(replace(rows[0], late_ranks=ranks)) for ranks in ((2, 5), (*range(8),))]
    assert said == [
        "rank 2 and rank 5 are late",
        "rank 0, rank 1, rank 2 and 5 more ranks are late",
    ]


def test_an_algorithm_whose_ranks_add_in_orders_of_their_own_is_warned_of():
    def everyone_from_itself(layout, me):
        peers = [(me + away) % layout.workers for away in range(1, layout.workers)]
        yield Step(
            *(Send(peer, dst.all) for peer in peers), *(RecvReduce(peer, dst.all) for peer in peers)
        )

    all_reduce("own_orders")(everyone_from_itself)
    try:
        (finding,) = ranks_disagree_findings(["ring", "own_orders", "native", "ring"])
    finally:
        del all_reduce.algorithms["own_orders"]
    assert finding.kind == "ranks_disagree"
    assert finding.values["algorithms"] == ["own_orders"]
