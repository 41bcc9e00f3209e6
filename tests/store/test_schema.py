"""The schema and its page: ``python tests/store/test_schema.py`` writes the table of columns into results/README.md."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np

from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw import Outcome, RankLocation
from hpccoll.store.schema import COLUMNS, VERSION

README = Path(__file__).parents[2] / "results" / "README.md"
TABLE = re.compile(r"(?<=<!-- columns -->\n).*(?=<!-- /columns -->)", re.DOTALL)


def columns():
    """Return the columns as a Markdown table."""
    lines = ["| name | dimensions | type | unit | absent | since | meaning |", "| --- " * 7 + "|"]
    for c in COLUMNS:
        dtype = "uint8" if c.dtype == "bool" else "string" if c.dtype == "str" else c.dtype
        absent = "" if c.absent is None else "empty" if c.absent == "" else str(c.absent)
        lines.append(f"| {c.name} | {', '.join(c.dims)} | {dtype} | {c.unit} | {absent} | 1.{c.since} | {c.meaning} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_columns_is_current():
    assert TABLE.findall(README.read_text()) == [columns()], "run python tests/store/test_schema.py"


def test_the_page_names_the_version():
    assert f"schema version {VERSION}" in README.read_text()


def test_every_field_that_is_measured_has_a_column():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    held = {field.name for kind in (Outcome, RankLocation, CaseTimes) for field in fields(kind)} - {"case", "times"}
    assert held <= set(names)


def test_every_column_has_a_meaning_and_an_absent_value_that_its_type_can_hold():
    for column in COLUMNS:
        assert column.meaning
        assert set(column.dims) <= {"case", "iteration", "rank", "node_number", "port"}
        if column.dtype not in ("str", "bool") and column.absent is not None:
            assert np.array(column.absent).astype(column.dtype) == column.absent or np.isnan(column.absent)


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: columns(), README.read_text()))
