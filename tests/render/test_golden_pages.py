"""The golden page of each renderer; everything else about sentences is tested by kinds and values."""

from compared_runs import results as run_results
from golden_page import assert_golden
from predicted_machines import cluster
from step_examples import steps

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.group_findings import group_findings
from hpccoll.common.units import parse_rate
from hpccoll.extensions.steps.model.communication_wall import Wall, wall_points
from hpccoll.extensions.steps.model.step_prediction import ComputeRate, StepRequest, predict_steps
from hpccoll.extensions.steps.render.step_report import closed_form_lines, step_lines
from hpccoll.extensions.steps.training.models.transformers import gpt2
from hpccoll.judge.run_comparison import compare
from hpccoll.render.comparison_text import comparison_lines
from hpccoll.render.terminal_summary import outcome_lines
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles


def finding_lines(results):
    """Yield the lines of a report on a terminal, then the findings of each group of the page."""
    yield from outcome_lines(results)
    for group in chart_groups(results):
        yield f"-- {group.name}"
        for finding in group_findings(group):
            yield f"{finding.severity}: {finding}"
            yield from [f"  {finding.remedy}"] * bool(finding.remedy)
    yield ""


def test_the_findings_of_a_report(results, testbed_results):
    trained = steps(
        {"native": 60, "ring": 12, "null": 0}, [{"overlap": False}, {"bucket": 1 << 20}, {}]
    )
    trained = to_results(ResultFiles(raw_results=[trained]))
    assert_golden(
        "report_findings",
        (line for each in (results, testbed_results, trained) for line in finding_lines(each)),
    )


def test_the_findings_that_weaken_a_report(make_row, make_run, of_rows):
    load = {
        "host": "n0",
        "stolen": 0.031,
        "other_cores": 1.25,
        "load_average": [1.0, 1.0],
        "seconds": 9.0,
        "busiest": [{"name": "make", "cores": 1.25}],
    }
    gpus = {"ranks_far_from_gpu": [4, 5], "ranks_seeing_one_gpu": [0, 1], "host_load": [load]}
    runs = make_run(provenance=gpus), make_run(run_id="run-2", machine="another")
    slow = {
        "gpu_sm_clock": 1e9,
        "gpu_slow": {"n1 1b": 0.88},
        "gpu_throttled": {"n1 1b": ("power brake",)},
    }
    rows = [
        make_row(ranks=4, oversubscribed=True, converged=False, executor="python"),
        make_row("tree", status="wrong", wrong=2),
        make_row(
            "native",
            run_id="run-2",
            executor="compiled",
            requested="sharp",
            executed="ring (no switch)",
        ),
        make_row(run_id="run-2", ci_low_s=None, ci_high_s=None, **slow),
    ]
    results = of_rows(*rows, runs=runs)
    assert_golden("weak_report_findings", finding_lines(results))


def test_the_comparison_of_two_runs():
    load = [
        {
            "host": "n1",
            "stolen": 0.0,
            "other_cores": 1.5,
            "busiest": [{"name": "gcc", "cores": 1.5}],
        }
    ]
    provenance = {
        "host_load": load,
        "kernel": "6.2",
        "mpi": {"threads": "multiple"},
        "variables": {"NCCL_ALGO": "Ring"},
        "versions": {"numpy": "2.4"},
        "rack_power": "8 kW",
    }
    new = run_results({1024: 1.3, 2048: 0.4, 4096: None}, provenance=provenance, seed=2)
    assert_golden("compare", comparison_lines(compare(run_results(), new)))


def test_predicted_training_steps():
    model = gpt2("toy-gpt", blocks=4, hidden=64, vocabulary=1, sequence=8)
    request = StepRequest(
        model, [2, 4, 7], ComputeRate(step_s=1e-3), parallel="pp=2", algorithm=None
    )
    wall = Wall(7e9, 2, parse_rate("400gbit", "--rate"), 1.5, "ring", 0.0, 8, None)
    lines = (
        *step_lines(predict_steps(cluster(), request)),
        "",
        *closed_form_lines(wall_points(wall, [8, 64, 1024])),
    )
    assert_golden("predict_step", lines)
