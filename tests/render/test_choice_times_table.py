"""The table of all choices at every size, beside the map of choices."""

import pytest
from row_examples import make_row

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.render.charts import FIGURES
from hpccoll.render.choice_times_table import choice_tables

pytestmark = pytest.mark.usefixtures("small_maps")


def test_each_column_of_the_map_has_a_table_with_a_unit_for_each_size_and_gaps_where_nothing_was_measured(
    of_rows,
):
    times = {
        ("native", 8): 3e-7,
        ("ring", 8): 2e-6,
        ("native", 64): 3e-3,
        ("ring", 64): 2e-3,
        ("star", 64): 4e-3,
    }
    results = of_rows(
        *(make_row(name, nbytes=size, seconds=s) for (name, size), s in times.items())
    )
    recommendations = recommend(results)
    (group,) = chart_groups(results, recommendations)
    (table,) = choice_tables(group)
    (cells,) = FIGURES[0].specification(group)["datasets"].values()
    assert {cell["on"] for cell in cells} == {table.setting}
    assert table.sizes == (("8 B", "ns"), ("64 B", "ms"))
    rows = {
        name: [cell and (cell.time, cell.factor, cell.chosen) for cell in of_row]
        for name, of_row in table.rows
    }
    assert rows == {
        "ring": [("2,000", "6.67x", False), ("2", "1.00x", True)],
        "native": [("300", "1.00x", True), ("3", "1.50x", False)],
        "star": [None, ("4", "2.00x", False)],
    }


def test_tables_of_several_settings_say_which_in_the_words_of_the_map(of_rows):
    rows = (
        make_row(name, nbytes=size, seconds=s, params={}, variant=variant)
        for name, s in (("native", 2e-6), ("ring", 1e-6))
        for size in (8, 64)
        for variant in ("quick", "plain")
    )
    results = of_rows(*rows)
    groups = chart_groups(results, recommend(results))
    tables = [table.setting for group in groups for table in choice_tables(group)]
    assert len(set(tables)) == len(tables) == 2


def test_a_folded_map_has_the_labels_of_its_tables_also_where_another_part_has_more_settings(
    of_rows,
):
    rows = (
        make_row(
            name,
            nbytes=8,
            seconds=s,
            params={},
            ranks=ranks,
            oversubscribed=crowded,
            mapping=mapping,
        )
        for name, s in (("native", 2e-6), ("ring", 1e-6))
        for ranks, crowded, mapping in (
            (2, False, "block"),
            (2, False, "cyclic"),
            (4, True, "cyclic"),
        )
    )
    results = of_rows(*rows)
    for group in chart_groups(results, recommend(results)):
        parts = [part for part in (group.fitting, group.crowded) if part]
        cells = [
            cell
            for part in parts
            for cell in next(iter(FIGURES[0].specification(part)["datasets"].values()))
        ]
        assert {cell["on"] for cell in cells} == {table.setting for table in choice_tables(group)}
