"""Findings about the quality of measurements: what weakens results, agreement of rounds and launches."""

from dataclasses import replace

import pytest
from finding_values import kinds_of, only_values
from synthetic_timings import KIB, MIB, measured_results

from hpccoll.analysis.measurement_quality import noise_sentence


def test_wrong_rows_missing_convergence_oversubscription_and_machines_are_findings(make_row, make_run, group_of):
    rows = make_row(ranks=4, converged=False), make_row(run_id="run-2"), make_row("tree", status="wrong", wrong=2)
    group = group_of(*rows, runs=(make_run(), make_run(run_id="run-2", machine="another")))
    assert only_values(group, "wrong_results") == {"rows": 1, "series": ("tree",)}
    assert only_values(group, "not_converged") == {"loose": 1, "rows": 2, "oversubscribed": True}
    assert only_values(group, "oversubscribed") == {"ranks": (4,), "aggregators": 0}
    assert only_values(group, "several_machines")["machines"][1] == "another"


def test_cases_with_rounds_of_several_launches_are_counted(make_row, make_run, group_of):
    runs = make_run(), make_run(run_id="run-2")
    whole = make_row(nbytes=64, round_medians_s=(1e-5,) * 2, round_intervals_s=(None,) * 2)
    whole = replace(whole, round_run_ids=("run-1", "run-1"))
    resumed = replace(whole, bytes=8, requested_bytes=8, round_run_ids=("run-1", "run-2"))
    assert only_values(group_of(whole, runs=runs), "measured_once") == {"resumed_cases": 0}
    assert only_values(group_of(whole, resumed, runs=runs), "measured_once") == {"resumed_cases": 1}


def test_runs_that_disagree_are_counted_and_the_worst_is_named(make_row, make_run, group_of):
    rows = (
        make_row(),
        make_row(nbytes=64),
        make_row(seconds=1.5e-5, run_id="run-2"),
        make_row(nbytes=64, run_id="run-2"),
    )
    values = only_values(group_of(*rows, runs=(make_run(), make_run(run_id="run-2"))), "repeated_points")
    assert (values["points"], values["disagreeing"]) == (2, 1)
    assert values["max_ratio"] == pytest.approx(1.5)
    assert (values["series"], values["shape"], values["nbytes"]) == ("ring", "2 ranks", 1024)


def test_launches_that_are_joined_across_hosts_are_named(make_node_row, make_bed_run, group_of):
    rows = make_node_row(run_id="a"), make_node_row(nodes=4, run_id="b")
    runs = make_bed_run("a", job="small", hosts=["n9", "n10"]), make_bed_run("b", 4)
    group = group_of(*(replace(row, job=run.job) for row, run in zip(rows, runs, strict=True)), runs=runs)
    assert only_values(group, "mixed_hosts")["launches"] == (
        ("small", frozenset({"n9", "n10"})), ("mpi.n8x1", frozenset({"n1", "n2", "n3", "n4"})),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "differ"), [(["alpha"], False), (["alpha.cluster.example"], False), (["beta"], True)]
)
def test_a_case_with_rounds_on_different_hosts_is_a_finding(hosts, differ, rounds_row, make_run, group_of):
    row = rounds_row("ring", 10, 10, runs=["a", "b"])
    runs = make_run(run_id="a"), make_run(run_id="b", provenance={"hosts": hosts})
    assert ("rounds_on_different_hosts" in kinds_of(group_of(row, runs=runs))) is differ


def test_the_ratio_of_the_slowest_to_the_fastest_round_is_a_finding(rounds_row, group_of):
    rows = (
        rounds_row("ring", 10, 10, 20), rounds_row("native", 10, 11, 10), rounds_row("tree", 10, 10, 13),
    )  # fmt: skip
    values = only_values(group_of(*rows), "between_rounds")
    assert values["median_ratio"] == pytest.approx(1.3)
    assert (values["cases"], values["max_ratio"], values["series"]) == (3, pytest.approx(2.0), "ring")


TIMES = {KIB: 1e-4, MIB: 2e-4}


def test_noise_is_one_sentence():
    noisy = measured_results({"ring": {KIB: 1e-5}, "star": {KIB: 1e-5}}, drift=(1, 1.1, 3))
    assert noise_sentence(noisy).startswith(
        "Weak evidence: between the rounds of a case, times differ by a factor of 3"
    )
    calm = measured_results({"ring": {KIB: 1e-5}}, drift=(1, 1.1, 1.05))
    assert noise_sentence(calm).startswith("Some noise: between the rounds of a case, times differ by 10 %")
    quiet = noise_sentence(measured_results({"ring": {KIB: 1e-5}}, drift=(1, 1.01, 1.02)))
    assert quiet.startswith("Low noise: between the rounds of a case, times differ by 2 %")
    assert "in one round, and noise is therefore unknown" in noise_sentence(measured_results({"ring": TIMES}))
    assert noise_sentence(measured_results({"null": TIMES})) == ""


def test_a_time_without_an_interval_has_none_that_is_wide():
    few = measured_results({"ring": {KIB: 1e-5}}, drift=(1, 1.1))
    (row,) = few.rows
    bare = replace(few, rows=(row, replace(row, ci_low_s=None, ci_high_s=None, converged=False)))
    sentence = noise_sentence(bare)
    assert sentence.startswith("Some noise")
    assert sentence.endswith("; 1 of 2 times have no 95 % interval, which takes 6 iterations in each round.")
    assert "wider" not in sentence
