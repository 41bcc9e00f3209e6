"""The picture of a step: which algorithms and ranks it has, and what is marked as exposed."""

import pytest
from step_examples import BUCKETS, stage, step_case, step_outcome, step_times, steps, timeline_ms

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.render.charts import STEP_FIGURES
from hpccoll.render.step_charts import MAX_MARKS, MAX_RANKS
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

TIMELINE = STEP_FIGURES[0]


def drawn(*raw_results):
    (group,) = chart_groups(to_results(ResultFiles(raw_results=list(raw_results))))
    return TIMELINE.specification(group)


def marks(specification, part):
    return [d for d in next(iter(specification["datasets"].values())) if d["part"] == part]


def one_step(events_ms, program=None, end_ms=None, **workload):
    """Return the results of a step by ring with the events of each rank."""
    raw = steps({"ring": 1}, [workload], ranks=len(events_ms))
    attempt, _ = raw.attempts[0]
    outcome = step_outcome(step_case(**workload), step_times(events_ms, end_ms), program)
    raw.attempts[0] = attempt, [outcome]
    return raw


def test_of_many_algorithms_the_fastest_and_native_have_a_panel(valid):
    takes = {"ring": 1, "hierarchical": 2, "recursive_doubling": 3, "tree": 4, "native": 50, "null": 0}
    panels = valid(drawn(steps(takes)))["facet"]["sort"]
    assert [panel.split()[0] for panel in panels] == ["ring", "hierarchical", "native"]
    workloads = [{"overlap": 0}, {"overlap": 1}]
    several = (steps({"ring": 12}, workloads, ranks=n, path=f"{n}.h5", run_id=str(n)) for n in (2, 4))
    (panel,) = drawn(*several)["facet"]["sort"]
    assert "ring on 4 nodes, overlapped: 34 ms" in panel


def test_passes_buckets_and_what_no_computation_hides_are_where_they_ran():
    chart = drawn(steps({"ring": 12}))
    at = {
        part: [(d["begin"], d["end"]) for d in marks(chart, part) if d["rank"].startswith("0")]
        for part in ("collective", "backward", "exposed")
    }
    assert at["collective"] == [pytest.approx(((10 + 20 * n / 3) * 1e-3, (14 + 20 * n / 3) * 1e-3)) for n in (1, 2, 3)]
    assert at["backward"] == [pytest.approx((0.010, 0.030))]
    assert at["exposed"] == [pytest.approx((0.030, 0.034))]
    assert [d["size"] for d in marks(chart, "collective")[:3]] == ["3.91 KiB", "15.6 KiB", "7.81 KiB"]
    (exposed,) = marks(drawn(one_step([[0, 10, 15, 30]], [stage((), ("forward", "backward"))])), "exposed")
    assert (exposed["begin"], exposed["end"]) == pytest.approx((0.010, 0.015))  # between computations, too


def test_a_collective_that_is_ready_before_it_begins_has_a_line():
    queued = marks(drawn(steps({"ring": 60}, [{"overlap": 0}])), "queued")
    assert len(queued) == 2 * (len(BUCKETS) - 1)


def test_collectives_that_run_at_once_are_drawn_next_to_each_other():
    events = [*(10, 10, 20), *(10, 12, 18), *(20, 20, 25), 0, 10]
    chart = drawn(one_step([events], [stage((8, 8, 8), ("forward",))]))
    lanes = [(d["top"], d["bottom"]) for d in marks(chart, "collective")]
    assert lanes[0] == lanes[2]
    assert lanes[1][0] >= lanes[0][1]


def test_of_many_ranks_the_first_the_last_and_the_slowest_are_drawn():
    events = [timeline_ms(12 + (rank == 13) * 5) for rank in range(40)]
    ranks = {d["rank"].split()[0] for d in marks(drawn(one_step(events)), "forward")}
    assert {"0", "13", "39"} <= ranks
    assert len(ranks) <= MAX_RANKS


def test_with_many_buckets_fewer_ranks_are_drawn():
    sizes = (1000,) * 400
    program = [stage(sizes, ("forward", *["backward"] * 400))]
    chart = drawn(one_step([timeline_ms(30, buckets=sizes)] * 32, program))
    collectives = marks(chart, "collective")
    assert len(collectives) <= MAX_MARKS
    assert len(marks(chart, "backward")) == len({d["rank"] for d in collectives}) > 1  # joined to one each
    assert not any(d["label"] for d in collectives)


def test_without_a_timeline_nothing_is_drawn():
    raw = steps({"ring": 12})
    attempt, (outcome,) = raw.attempts[0]
    raw.attempts[0] = attempt, [step_outcome(outcome.case, outcome.times, program=None)]
    results = to_results(ResultFiles(raw_results=[raw]))
    (group,) = chart_groups(type(results)(rows=results.rows, runs=results.runs, planned=1))
    assert TIMELINE.specification(group) is None
