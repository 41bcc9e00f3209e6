"""The table of rows: every column is declared once, with a value, a heading and a format."""

from dataclasses import fields, replace

import pytest

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.render import report_columns
from hpccoll.render.report_columns import FORMATS, REPORT_COLUMNS, rows_table
from hpccoll.store.rows import Row


def test_every_column_has_a_value_and_a_format():
    names = {column.value for column in REPORT_COLUMNS if not callable(column.value)}
    assert names <= {field.name for field in fields(Row)}
    assert {column.format for column in REPORT_COLUMNS} <= FORMATS.keys()
    assert len({column.heading for column in REPORT_COLUMNS}) == len(REPORT_COLUMNS)


@pytest.mark.parametrize(
    ("device_s", "floor_s", "expected"),
    [
        (9e-6, 2.5e-6, "9.00"),
        (2.5e-6, 2.5e-6, "<= 2.50"),
        (2e-6, 2.5e-6, "<= 2.50"),
        (2e-6, None, "2.00"),
        (None, None, ""),
    ],
)
def test_a_time_by_events_is_never_below_that_of_two_events_in_a_row(
    device_s, floor_s, expected, of_rows, make_row
):
    others = make_row(device_s=1.0), make_row(device_s=2.0)
    table = rows_table(
        chart_groups(of_rows(make_row(device_s=device_s, device_floor_s=floor_s), *others))
    )
    place = table.head.index("by events of GPUs (us)")
    assert expected in [cells[place][1] for _, cells in table.rows]


def test_numbers_are_sorted_by_their_value_and_text_by_itself(of_rows, make_row, monkeypatch):
    monkeypatch.setattr(
        report_columns,
        "REPORT_COLUMNS",
        tuple(replace(column, always=True) for column in REPORT_COLUMNS),
    )
    rows = (
        make_row(seconds=1e-5),
        make_row(nbytes=64, median_s=None, ci_low_s=None, converged=False),
    )
    table = rows_table(chart_groups(of_rows(*rows)))
    for heading, *expected in (
        ("median (us)", (1e-5, "10.00"), ("", "")),
        ("95 % interval (us)", (pytest.approx(9.7e-6), "9.70 to 10.30"), ("", "")),
        ("size", (1024, "1 KiB"), (64, "64 B")),
        ("converged", (None, "yes"), (None, "no")),
    ):
        assert [cells[table.head.index(heading)] for _, cells in table.rows] == expected
