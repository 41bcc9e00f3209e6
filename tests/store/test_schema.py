"""The schema of raw files."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import h5py
import numpy as np

import hpccoll
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import Outcome, RankLocation
from hpccoll.store.schema import COLUMNS, VERSION

README = Path(__file__).parents[2] / "results" / "README.md"


def test_the_page_names_the_version():
    assert f"schema version {VERSION}" in README.read_text()


def test_every_measured_field_has_a_column_with_an_absent_value_of_its_type():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    stored = {field.name for kind in (Outcome, RankLocation, CaseTimes) for field in fields(kind)} - {"case", "times"}
    assert stored <= set(names)
    for column in COLUMNS:
        if column.dtype not in ("str", "bool", "maybe") and column.absent is not None:
            assert np.array(column.absent).astype(column.dtype) == column.absent or np.isnan(column.absent)


DECLARATION = """
    stretch_s: float | None = result(
        "float64", "how far apart ranks started", unit="s", heading="skew (us)", format="us", default=2.5e-6
    )
"""

PROGRAM = """
import json, sys
from pathlib import Path
import raw_examples
from hpccoll.cli.reference_tables import REFERENCES, reference_lines
from hpccoll.render.export import export
from hpccoll.render.report_writer import build_report
from hpccoll.store import hdf5
from hpccoll.store.journal import Journal, journal_path, read_journal
from hpccoll.store.load_results import read_results
out, = map(Path, sys.argv[1:])
raw = raw_examples.raw(raw_examples.outcome())
journal = Journal(out, raw.job)
journal.begin(raw.attempts[0][0])
journal.record(raw.attempts[0][1][0])
written = read_journal(journal_path(out), is_writer=True)
hdf5.write_raw_file(written, out)
journal.close(remove=True)
results = read_results([out])
build_report(results, out.with_suffix(".report"), "x")
json.dump({
    "journal": written.attempts[0][1][0].stretch_s, "exported": json.loads(export(results, "json"))[0]["stretch_s"],
    "csv": export(results, "csv").splitlines()[0].split(","),
    "reference": [*reference_lines([*REFERENCES["columns"]()])],
}, sys.stdout)
"""


def test_a_new_result_is_declared_in_one_place(tmp_path):
    shutil.copytree(Path(hpccoll.__file__).parent, tmp_path / "hpccoll")
    schema = tmp_path / "hpccoll" / "store" / "schema.py"
    head, last_field, rest = schema.read_text().partition("    floor: bool = result(")
    schema.write_text(head + DECLARATION.lstrip("\n") + last_field + rest)
    tests, out = Path(__file__).parents[1], tmp_path / "F.h5"
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, tests, Path(__file__).parent)))}
    command = [sys.executable, "-c", PROGRAM, str(out)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["journal"], found["exported"]) == (2.5e-6, 2.5e-6)
    assert "stretch_s" in found["csv"]
    (line,) = [line for line in found["reference"] if line.startswith("stretch_s ")]
    assert line.endswith("  how far apart ranks started (type float64; unit s; absent nan; by case)")
    assert "skew (us)" in (tmp_path / "F.report" / "index.html").read_text()
    with h5py.File(out) as file:
        dataset = file["attempt_1/stretch_s"]
        assert (dataset[0], dataset.attrs["units"]) == (2.5e-6, "s")
