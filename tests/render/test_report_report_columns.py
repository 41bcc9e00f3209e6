"""The table of rows: every column is declared once, with a value, a heading and a format."""

from dataclasses import fields, replace

import pytest

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.render import report_columns
from hpccoll.render.report_columns import FORMATS, REPORT_COLUMNS, rows_table
from hpccoll.store.rows import Row


@pytest.fixture
def cells_of(of_rows, monkeypatch):
    """``cells_of(heading, *rows)`` returns the texts and the sort keys of a column; None for a column of text."""
    every = tuple(replace(column, always=True) for column in REPORT_COLUMNS)
    monkeypatch.setattr(report_columns, "REPORT_COLUMNS", every)

    def cells(heading, *rows):
        table = rows_table(chart_groups(of_rows(*rows)))
        keys, texts = zip(*(cells[table.head.index(heading)] for _, cells in table.rows), strict=True)
        return list(texts), None if keys[0] is None else list(keys)

    return cells


def test_every_column_has_a_value_and_a_format():
    names = {column.value for column in REPORT_COLUMNS if not callable(column.value)}
    assert names <= {field.name for field in fields(Row)}
    assert {column.format for column in REPORT_COLUMNS} <= FORMATS.keys()
    assert len({column.heading for column in REPORT_COLUMNS}) == len(REPORT_COLUMNS)


def test_numbers_are_sorted_by_their_value_and_text_by_itself(cells_of, make_row):
    rows = make_row(seconds=1e-5), make_row(nbytes=64, median_s=None, ci_low_s=None, converged=False)
    assert cells_of("median (us)", *rows) == (["10.00", ""], [1e-5, ""])
    assert cells_of("95 % interval (us)", *rows) == (["9.70 to 10.30", ""], [pytest.approx(9.7e-6), ""])
    assert cells_of("size", *rows) == (["1 KiB", "64 B"], [1024, 64])
    assert cells_of("converged", *rows) == (["yes", "no"], None)
