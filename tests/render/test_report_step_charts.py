"""Charts of steps: the share of communication against nodes, and the time of a step against the limit of buckets."""

from dataclasses import replace

import pytest
from step_examples import steps

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.render.charts import STEP_FIGURES
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.rows import Results

_, SHARE, BUCKET = STEP_FIGURES
MIB = 1 << 20


def of_nodes(*nodes, workloads=({},), **takes):
    return to_results(
        ResultFiles(
            raw_results=[steps(takes, workloads, ranks=n, path=f"{n}.h5", run_id=f"run-{n}") for n in nodes]
        )
    )  # fmt: skip


def group_of(results):
    (group,) = chart_groups(results)
    return group


def points(specification, **wanted):
    values = next(iter(specification["datasets"].values()))
    return [d for d in values if wanted.items() <= d.items()]


def test_shares_against_nodes_are_of_exposed_and_of_all_communication(valid):
    chart = valid(SHARE.specification(group_of(of_nodes(2, 4, ring=12, native=60, null=0))))
    exposed, everything = chart["facet"]["sort"]
    (ring,) = points(chart, series="ring", panel=exposed, nodes=4)
    assert ring["value"] == pytest.approx(4 / 34)
    (ring,) = points(chart, series="ring", panel=everything, nodes=4)
    assert ring["value"] == pytest.approx(12 / 34)
    assert not points(chart, series="null (floor)")


def test_one_number_of_nodes_makes_no_curve():
    assert SHARE.specification(group_of(of_nodes(2, ring=12, null=0))) is None


def test_predicted_shares_are_dashed_in_the_same_panels(valid):
    measured = of_nodes(2, 4, ring=12, null=0)
    predicted = [
        replace(row, kind="simulated", nodes=8, ranks=8, run_id="prediction") for row in measured.rows if row.nodes == 4
    ]
    chart = valid(SHARE.specification(group_of(replace(measured, rows=(*measured.rows, *predicted)))))
    exposed = chart["facet"]["sort"][0]
    (ring,) = points(chart, nodes=8, panel=exposed)
    assert (ring["line"], ring["value"]) == ("simulated", pytest.approx(4 / 34))


def test_steps_are_drawn_against_the_limits_of_buckets(valid):
    workloads = [{"bucket": n * MIB, "scale": 16} for n in (80, 4, 25)] + [{"scale": 16}]
    chart = valid(BUCKET.specification(group_of(of_nodes(2, workloads=workloads, ring=12, null=0))))
    assert sorted(d["bucket"] for d in points(chart, series="ring")) == [0, 1, 2, 3]
    axis = str(chart["spec"]["layer"])
    assert '["default", "4 MiB", "25 MiB", "80 MiB"]' in axis
    assert "divided by 16" in axis


def test_without_several_limits_no_bucket_chart_is_drawn():
    assert BUCKET.specification(group_of(of_nodes(2, 4, ring=12, null=0))) is None


def test_each_model_has_charts_of_its_own():
    results = of_nodes(2, 4, workloads=[{}, {"model": "gpt2"}], ring=12, null=0)
    groups = chart_groups(results)
    assert [group.setting.split(",")[0] for group in groups] == ["gpt2", "resnet50"]
    assert all(len(group.points) == 4 for group in groups)


def test_charts_of_collectives_need_no_steps():
    assert chart_groups(Results(rows=(), runs=(), planned=0)) == ()
