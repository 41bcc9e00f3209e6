"""The picture of a step: which algorithms and ranks it has, and what is marked as exposed."""

from dataclasses import replace

import numpy as np
import pytest
from chart_outline import point_lines, values
from golden_page import assert_golden
from step_examples import stage, step_case, step_outcome, step_times, steps, timeline_ms

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.extensions.steps.analysis.step_findings import training_table
from hpccoll.extensions.steps.render.step_charts import MAX_MARKS, MAX_RANKS
from hpccoll.extensions.steps.render.step_page import STEP_FIGURES
from hpccoll.extensions.steps.render.step_prediction_charts import ROOM, _label
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

TIMELINE = STEP_FIGURES[0]


def drawn(*raw_results):
    (group,) = chart_groups(to_results(ResultFiles(raw_results=list(raw_results))))
    return TIMELINE.specification(group)


def marks(specification, part):
    return [d for d in values(specification) if d["part"] == part]


def one_step(events_ms, program=None, end_ms=None, **workload):
    """Return the results of a step by ring with the events of each rank."""
    raw = steps({"ring": 1}, [workload], ranks=len(events_ms))
    attempt, _ = raw.attempts[0]
    outcome = step_outcome(step_case(**workload), step_times(events_ms, end_ms), program)
    raw.attempts[0] = attempt, [outcome]
    return raw


def test_of_many_algorithms_the_fastest_and_native_have_a_panel(valid):
    takes = {
        "ring": 1,
        "hierarchical": 2,
        "recursive_doubling": 3,
        "tree": 4,
        "native": 50,
        "null": 0,
    }
    panels = valid(drawn(steps(takes)))["facet"]["sort"]
    assert [panel.split()[0] for panel in panels] == ["ring", "hierarchical", "native"]
    workloads = [{"overlap": 0}, {"overlap": 1}]
    several = (
        steps({"ring": 12}, workloads, ranks=n, path=f"{n}.h5", run_id=str(n)) for n in (2, 4)
    )
    (panel,) = drawn(*several)["facet"]["sort"]
    assert "ring on 4 nodes, overlapped: 34 ms" in panel


def test_what_the_timeline_of_a_step_shows():
    between = one_step([[0, 10, 15, 30]], [stage((), ("forward", "backward"))])
    at_once = [*(10, 10, 20), *(10, 12, 18), *(20, 20, 25), 0, 10]
    several = {
        "passes, buckets, and what no computation hides": steps({"ring": 12}),
        "nothing is computed between two computations": between,
        "collectives wait for each other": steps({"ring": 60}, [{"overlap": 0}]),
        "collectives at once are next to each other": one_step(
            [at_once], [stage((8, 8, 8), ("forward",))]
        ),
    }
    assert_golden(
        "timelines",
        (
            line
            for title, raw in several.items()
            for line in (f"# {title}", *point_lines(drawn(raw)))
        ),
    )


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
    # joined to one each
    assert len(marks(chart, "backward")) == len({d["rank"] for d in collectives}) > 1
    assert not any(d["label"] for d in collectives)


def test_the_shard_and_the_update_of_a_training_are_drawn_and_are_not_exposed():
    raw = one_step([[35, 35, 40, 5, 15, 15, 35]], [stage((8,), ("forward", "backward"))], [45])
    attempt, (outcome,) = raw.attempts[0]
    learned = replace(
        outcome, times=replace(outcome.times, step_loss=np.ones(6), step_accuracy=np.ones(6))
    )
    own = {"shard": (0, 0.005), "update": (0.04, 0.045)}
    for ran, parts in ((outcome, {}), (learned, own)):
        raw.attempts[0] = attempt, [ran]
        found = {
            d["part"]: (d["begin"], d["end"])
            for d in values(drawn(raw))
            if d["part"] in (*own, "exposed")
        }
        assert found == {
            part: pytest.approx(ends) for part, ends in (parts | {"exposed": (0.035, 0.04)}).items()
        }


def test_shares_say_what_is_exposed_and_every_compression_has_the_same_null():
    limits = [{"bucket": 1 << 22}, {"bucket": 1 << 24}]
    files = (
        steps({"ring": 12, "null": 0}, limits, ranks=n, path=f"{n}.h5", run_id=f"{n}")
        for n in (2, 4)
    )
    results = to_results(ResultFiles(raw_results=list(files)))
    compressed = [
        replace(
            row,
            params={**row.params, "compress": "fp16"},
            codec_s=1e-3,
            run_id=f"fp16 {row.run_id}",
        )
        for row in results.rows
        if not row.floor
    ]
    (group,) = chart_groups(replace(results, rows=(*results.rows, *compressed)))
    _, share, bucket, *_ = STEP_FIGURES
    panels = {d["panel"] for d in values(share.specification(group))}
    assert {panel.partition(",")[0] for panel in panels if "fp16" in panel} == {
        "exposed communication and codecs",
        "all communication",
    }
    points = values(bucket.specification(group))
    limits_of_null = [
        (panel, sorted(d["bucket"] for d in points if d["panel"] == panel and d["line"] == "floor"))
        for panel in sorted({d["panel"] for d in points})
    ]
    named = ("2 nodes, fp16", "2 nodes, not compressed", "4 nodes, fp16", "4 nodes, not compressed")
    assert limits_of_null == [(panel, [0, 1]) for panel in named]


def test_a_training_has_a_line_of_loss_and_of_accuracy_for_each_compression(valid):
    loss, accuracy = STEP_FIGURES[3:]
    raw = steps(
        {"ring": 1, "null": 0}, [{}, {"compress": "topk=1%", "feedback": 1}], iterations=100
    )
    attempt, outcomes = raw.attempts[0]
    learned = {"step_loss": np.linspace(2, 0.1, 100), "step_accuracy": np.linspace(0.1, 0.9, 100)}
    raw.attempts[0] = (
        attempt,
        [
            outcome
            if outcome.floor
            else replace(outcome, accuracy=0.9, times=replace(outcome.times, **learned))
            for outcome in outcomes
        ],
    )
    (group,) = chart_groups(to_results(ResultFiles(raw_results=[raw])))
    for figure, last in ((loss, 0.1), (accuracy, 0.9)):
        points = values(valid(figure.specification(group)))
        assert {d["series"] for d in points} == {"not compressed", "topk=1% with feedback"}
        assert max(points, key=lambda d: d["step"])["value"] == pytest.approx(last, abs=0.05)
    head, lines = training_table(group)
    assert [line[head.index("accuracy")] for line in lines] == ["90.00%"] * 2
    assert (
        loss.specification(*chart_groups(to_results(ResultFiles(raw_results=[steps({"ring": 1})]))))
        is None
    )


@pytest.mark.parametrize(("communication_s", "has_all"), [(0.5, True), (0.2, False), (0.1, False)])
def test_a_bar_has_the_share_of_all_communication_only_if_some_of_it_is_hidden(
    communication_s, has_all
):
    row = {"step_s": 1.0, "share": 0.2, "exposed_s": 0.2, "communication_s": communication_s}
    lines = _label(row, ROOM)
    assert [line for line in lines if line.startswith("all")] == (["all 50%"] if has_all else [])
    assert lines[-1] == "exposed 20.0%"
