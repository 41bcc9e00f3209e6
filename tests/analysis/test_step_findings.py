"""The part of the report on training steps: its table, its findings, and that nothing of collectives is there."""

import json

import pytest
from step_examples import stage, step_case, step_outcome, step_times, steps, timeline_ms

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.group_findings import group_findings
from hpccoll.analysis.step_findings import step_table
from hpccoll.render.export import export
from hpccoll.render.terminal_summary import outcome_lines
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

MIB = 1 << 20


def results(*raw_results):
    return to_results(ResultFiles(raw_results=list(raw_results)))


def group_of(*raw_results):
    (group,) = chart_groups(results(*raw_results))
    return group


def finding(kind, *raw_results):
    return next((each for each in group_findings(group_of(*raw_results)) if each.kind == kind), None)


def table(*raw_results):
    """Return the lines of the table by their headings."""
    head, lines = step_table(group_of(*raw_results))
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_a_line_of_the_table_has_the_step_and_what_is_exposed():
    ring, native = table(steps({"native": 60, "ring": 12, "null": 0}, [{"scale": 16}]))
    assert (ring["model"], ring["on"], ring["algorithm"], ring[""]) == ("resnet50/16", "2 nodes", "ring", "best")
    assert (ring["step"], ring["null"], ring["exposed"], ring["share"]) == ("34 ms", "30 ms", "4 ms", "12 %")
    assert ring["all communication"] == "12 ms"
    assert (native["model"], native["algorithm"], native[""]) == ("", "native", "")


def test_steps_of_a_single_rank_have_times_but_no_best_and_no_sentence():
    alone = steps({"native": 60, "ring": 12, "null": 0}, ranks=1)
    assert [(line["algorithm"], line["step"], line.get("")) for line in table(alone)] == [
        ("ring", "34 ms", None), ("native", "76.7 ms", None),
    ]  # fmt: skip
    (line,) = [line for line in outcome_lines(results(alone)) if line.startswith("training_step")]
    assert "mpiexec -n 2" in line


def test_without_null_the_table_has_no_exposed_time():
    (ring,) = table(steps({"ring": 12}))
    assert ring["all communication"] == "12 ms"
    assert not {"null", "exposed", "share", "workload"} & ring.keys()
    assert finding("null_missing", steps({"ring": 12})).severity == "warning"
    assert finding("null_missing", steps({"ring": 12, "null": 0})) is None


def test_overlap_hides_what_it_saves():
    found = finding("overlap", steps({"ring": 12, "null": 0}, [{"overlap": 0}, {"overlap": 1}]))
    (ring,) = found.values["algorithms"]
    assert (ring["algorithm"], ring["hidden"], ring["of"]) == ("ring", pytest.approx(0.008), pytest.approx(0.012))


def test_overlap_is_not_judged_across_other_workloads():
    assert finding("overlap", steps({"ring": 12, "null": 0}, [{"overlap": 0, "bucket": 8}, {"overlap": 1}])) is None


def test_the_best_bucket_and_the_cost_of_others():
    raw = steps({"ring": 0, "null": 0}, [{"bucket": n * MIB} for n in (4, 25, 80)])
    _, outcomes = raw.attempts[0]
    takes = {4: 40, 25: 33, 80: 30}  # the step in ms; of null 30 ms
    outcomes[:] = [
        step_outcome(
            each.case,
            step_times([[0, 1, 2, 0, 10, 10, 30]] * 2,
                       [takes[each.case.params["bucket"] // MIB] if each.case.algorithm == "ring" else 30] * 2),
            [stage((8,), ("forward", "backward"))],
        )
        for each in outcomes
    ]  # fmt: skip
    values = finding("best_bucket", raw).values
    assert values["bucket"] == 80 * MIB
    assert [(each["bucket"] // MIB, round(each["cost"], 3)) for each in values["costs"]] == [(4, 0.333), (25, 0.1)]


def test_overlap_and_buckets_of_stages_alone_are_no_findings():
    both = [{"overlap": 0, "parallel": "pp=2"}, {"overlap": 1, "parallel": "pp=2"}]
    assert finding("overlap", steps({"ring": 12, "null": 0}, both)) is None
    limits = [{"bucket": n * MIB, "parallel": "pp=2"} for n in (4, 25)]
    assert finding("best_bucket", steps({"ring": 12, "null": 0}, limits)) is None


def test_limits_of_buckets_by_different_algorithms_are_not_compared():
    one, other = steps({"ring": 12}, [{"bucket": 4 * MIB}]), steps({"native": 9}, [{"bucket": 25 * MIB}], path="b.h5")
    assert finding("best_bucket", one, other) is None


@pytest.mark.parametrize(("overlapped_ms", "clear"), [(42, False), (41, True)])
def test_overlap_that_hides_nothing_is_not_clear(overlapped_ms, clear):
    raw = steps({"ring": 12, "null": 0}, [{"overlap": 0}, {"overlap": 1}])
    _, outcomes = raw.attempts[0]
    outcomes[:] = [
        step_outcome(each.case, step_times([timeline_ms(12)] * 2, [overlapped_ms] * 2), [stage()])
        if each.case.params["overlap"] and each.case.algorithm == "ring"
        else each
        for each in outcomes
    ]
    (ring,) = finding("overlap", raw).values["algorithms"]
    assert ring["clear"] is clear


def test_the_last_bucket_is_ready_only_after_the_backward_pass():
    values = finding("last_bucket", steps({"ring": 12, "null": 0})).values
    assert (values["nbytes"], values["buckets"], values["seconds"]) == (8000, 3, pytest.approx(0.004))
    assert finding("last_bucket", steps({"ring": 12}, [{"overlap": 0}])) is None


def test_a_last_bucket_that_is_ready_earlier_is_no_finding():
    raw = steps({"ring": 12})
    attempt, _ = raw.attempts[0]
    events = [*(10, 10, 12), *(15, 15, 18), 0, 10, 10, 30]
    program = [stage((8, 8), ("forward", "backward"))]
    raw.attempts[0] = attempt, [step_outcome(step_case(), step_times([events] * 2), program)]
    assert finding("last_bucket", raw) is None


def test_a_null_step_that_takes_longer_than_its_computation_is_a_warning():
    assert finding("null_overhead", steps({"ring": 12, "null": 0})) is None
    found = finding("null_overhead", steps({"ring": 12, "null": 0}, [{"compute_us": 25_000}]))
    assert (found.severity, found.values["excess"]) == ("warning", pytest.approx(0.005))
    assert finding("null_overhead", steps({"ring": 12, "null": 0}, [{"compute_us": 5, "compute": "none"}])) is None


def test_a_step_below_its_null_step_is_a_warning():
    found = finding("below_null", steps({"ring": 3, "null": 12}))
    assert found.values["seconds"] == pytest.approx(0.003)
    assert finding("below_null", steps({"ring": 12, "null": 0})) is None


def test_computations_without_a_product_of_matrices_are_a_warning():
    assert finding("no_product", steps({"ring": 12, "null": 0}, [{"compute": "gemm"}], products=[2, 1, 1, 3])) is None
    found = finding("no_product", steps({"ring": 12, "null": 0}, [{"compute": "gemm"}], products=[2, 0, 1, 0]))
    assert found.severity == "warning"
    assert (found.values["none"], found.values["computations"], found.values["workloads"]) == (2, 4, 1)


def test_rows_of_steps_are_exported_but_not_as_tables_of_nccl_tests():
    found = results(steps({"ring": 12, "null": 0}))
    (ring,) = (row for row in json.loads(export(found, "json")) if row["algorithm"] == "ring")
    figures = ring["communication_s"], ring["backward_s"], ring["forward_s"], ring["exposed_s"]
    assert figures == pytest.approx((0.012, 0.020, 0.010, 0.004))
    lines = export(found, "nccl-tests").splitlines()
    assert all(line.startswith("#") for line in lines)
    assert any("2 training steps" in line for line in lines)
