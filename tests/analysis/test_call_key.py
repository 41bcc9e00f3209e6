"""The identity of a call: results that differ in one field of it are nowhere compared, joined or lost."""

import json
from collections import Counter
from dataclasses import fields, replace

import pytest
from row_examples import make_row

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend_placements
from hpccoll.analysis.series_points import best_placements
from hpccoll.analysis.setting import Setting
from hpccoll.analysis.speedups import efficiencies, speedups
from hpccoll.analysis.tune_table import build_table
from hpccoll.common.errors import BadInputError
from hpccoll.judge.run_comparison import compare
from hpccoll.render.export import export
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Results, Run

OTHERS = {
    "collective": [{}, {"collective": "reduce_scatter"}],
    "arguments": [
        {"collective": "all_to_all_v", "op": None, "params": {"traffic": name}} for name in ("zipf", "uniform")
    ],
    "dtype": [{}, {"dtype": "float16"}],
    "op": [{}, {"op": "max"}],
    "root": [{"collective": "broadcast", "op": None, "root": root} for root in (0, 1)],
    "pair": [{"collective": "send_recv", "op": None, "root": 0, "params": {"peer": peer}} for peer in (1, 2)],
    "requested_bytes": [{}, {"scale": 2}],
    "in_place": [{}, {"in_place": True}],
    "ranks": [{}, {"ranks": 6}],
    "nodes": [{}, {"nodes": 4}],
    "ranks_per_node": [{}, {"ranks_per_node": None}],
    "racks": [{}, {"racks": 2}],
    "aggregators": [{}, {"aggregators": 2}],
    "mapping": [{}, {"mapping": "cyclic"}],
    "device": [{}, {"device": "cuda"}],
    "machine": [{}, {"run_id": "run-2"}],
    "variant": [{}, {"variant": "tcp"}],
    "executor": [{}, {"executor": "compiled"}],
    "timing": [{}, {"timing": "aggregated"}],
    "rule": [{}, {"rule": "span"}],
    "kind": [{}, {"kind": "measured on a shared GPU"}],
    "source": [{"kind": "imported", "source": name} for name in ("osu", "imb")],
}  # fmt: skip
"""For each field the changes of two sets of rows that differ in it alone; only machines need two launches."""

PAIRS = [
    *((field.name, OTHERS[field.name]) for field in fields(CallKey)),
    ("arguments", [{}, {"load": "gemm", "params": {"load": "gemm"}}]),
]
"""Each field with such changes; load is an argument only of calls under it."""

SHARED_IN_TABLES = {"op", "root", "requested_bytes", "in_place"}
"""What a setting of a table joins: one choice serves all reductions, roots and perhaps placements, by size."""

CURVES = {"ranks", "nodes", "ranks_per_node", "racks", "aggregators"}
"""Efficiency compares along these."""


def rows_of(changes, level=1.0, lead=2.0):
    """Return rows of native and ring, which is ``lead`` times as fast, of four rounds at three sizes."""
    values = dict(changes)
    scale, run = values.pop("scale", 1), values.get("run_id", "run-1")
    made = []
    for nbytes in (1024 * scale, 16384 * scale, 262144 * scale):
        for algorithm, factor in (("native", lead), ("ring", 1.0)):
            medians = [1e-9 * nbytes * level * factor * drift for drift in (1.0, 1.01, 0.99, 1.02)]
            made.append(
                make_row(
                    algorithm,
                    nbytes=nbytes,
                    seconds=medians[0],
                    transport="mpi",
                    **{
                        "ranks": 4,
                        "nodes": 2,
                        "ranks_per_node": 2,
                        "oversubscribed": False,
                        "device": "cpu",
                        **values,
                    },
                    rounds=4,
                    round_medians_s=tuple(medians),
                    round_run_ids=(run,) * 4,
                    round_intervals_s=tuple((each * 0.999, each * 1.001) for each in medians),
                )
            )
    return made


def results(*rows):
    runs = [
        Run(
            run_id=run,
            job="local",
            attempt=1,
            created="2026-01-05T10:00:00Z",
            status="complete",
            kind="measured",
            machine=f"machine of {run}",
            path="a.h5",
            provenance={},
        )
        for run in dict.fromkeys(row.run_id for row in rows)
    ]
    return Results(rows=rows, runs=tuple(runs), planned=len(rows))


def rounded(*values):
    return tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in values)


def report_figures(of, field):
    """Return the figures of a report: its answers, speed-ups, efficiencies and points of curves."""
    # a report advises nothing for each of several pairs of ranks
    recommendations = recommend_placements(of)
    groups = chart_groups(of, recommendations)
    points = [point for group in groups for point in group.usable]
    yield from (
        ("speedup", p.point.row.requested_bytes, *rounded(p.value, *p.ends))
        for p in speedups(points)
    )
    for group in groups:
        if field != "in_place":
            yield from (
                ("placement", *rounded(p.row.median_s)) for p in best_placements(group.points)
            )
        if field not in {"in_place", *CURVES}:
            yield from (("efficiency", *rounded(each.value)) for each in efficiencies(group.points))
    if field not in SHARED_IN_TABLES:
        for each in recommendations:
            for part in each.ranges:
                yield (
                    "range",
                    part.sizes.first,
                    part.choice.label,
                    part.strength,
                    *rounded(part.evidence.gain.factor),
                )
            yield from (
                ("verdict", size, verdict.choice.label, verdict.verdict, *rounded(verdict.lead))
                for size, verdict in each.verdicts.items()
            )


def table_figures(of, field):
    """Return the ranges of each setting of a tuning table."""
    if field not in {"source", *SHARED_IN_TABLES}:
        for entry in build_table(of).entries:
            yield from ((entry.setting, part.first, part.choice.label) for part in entry.ranges)


def comparison_figures(of, _field):
    """Return the verdicts of a comparison with a run in which native takes twice as long."""
    later = replace(
        of,
        rows=tuple(
            replace(
                row,
                median_s=row.median_s * 2,
                round_medians_s=tuple(2 * each for each in row.round_medians_s),
            )
            if row.algorithm == "native"
            else row
            for row in of.rows
        ),
    )
    for held in compare(of, later).cases:
        factor = held.shift.factor if held.shift else 0.0
        old_s = held.expected.value if held.expected else None
        yield (
            held.case.coordinates["algorithm"],
            held.case.coordinates["requested_bytes"],
            str(held.verdict),
            *rounded(old_s, held.measured, factor),
        )


def export_figures(of, field):
    """Return the records as JSON, and the lines with numbers as nccl-tests prints them."""
    yield from (json.dumps(record, sort_keys=True) for record in json.loads(export(of, "json")))
    # a line has both placements; aggregated rows are exported instead
    if field not in {"in_place", "timing"}:
        yield from (
            line for line in export(of, "nccl-tests").splitlines() if not line.startswith("#")
        )


@pytest.mark.parametrize(
    "figures", [report_figures, table_figures, comparison_figures, export_figures]
)
@pytest.mark.parametrize(("field", "pair"), PAIRS)
def test_results_that_differ_in_one_field_have_the_figures_that_each_has_alone(
    field, pair, figures
):
    one, other = pair
    first, second = rows_of(one), rows_of(other, level=3.7, lead=1.6)
    keys = [CallKey.of(rows[0], rows[0].run_id) for rows in (first, second)]
    assert [
        each.name for each in fields(CallKey) if len({getattr(key, each.name) for key in keys}) > 1
    ] == [field]
    alone = Counter(figures(results(*first), field)) + Counter(figures(results(*second), field))
    try:
        together = Counter(figures(results(*first, *second), field))
    except BadInputError:  # a table is of one machine, executor, kind and rule
        assert figures is table_figures
        assert Setting.of(first[0]) == Setting.of(second[0])
        return
    assert together == alone


def test_a_label_names_what_differs_among_keys():
    one, other = (
        CallKey.of(make_row(**more), "here")
        for more in ({}, {"mapping": "cyclic", "dtype": "float16"})
    )
    assert (one.label([one, other]), other.label([one, other])) == (
        "float32, mapping block",
        "float16, mapping cyclic",
    )
    assert one.label([one, one]) == ""


def test_the_last_rank_and_all_pairs_are_the_ranks_that_they_mean():
    key = CallKey.of(
        make_row(collective="send_recv", op=None, ranks=4, root=1, params={"peer": -1})
    )
    assert (key.pair, key.root, key.arguments) == ((1, 3), None, ())
