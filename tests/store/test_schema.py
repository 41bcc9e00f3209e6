"""The schema of raw files."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from hpccoll.store.case_times import CaseTimes, TimesOfRanks
from hpccoll.store.raw_results import Outcome, RankLocation
from hpccoll.store.schema import COLUMNS, VERSION

GUIDE = Path(__file__).parents[2] / "results" / "FILES.md"


def test_the_page_names_the_version():
    assert f"schema version {VERSION}" in GUIDE.read_text()


def test_every_measured_field_has_a_column_with_an_absent_value_of_its_type():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    stored = {
        field.name
        for kind in (Outcome, RankLocation, CaseTimes, TimesOfRanks)
        for field in fields(kind)
    }
    assert stored - {"case", "times", "kept"} <= set(names)
    for column in COLUMNS:
        if column.dtype not in ("str", "bool", "maybe") and column.absent is not None:
            assert np.array(column.absent).astype(column.dtype) == column.absent or np.isnan(
                column.absent
            )
