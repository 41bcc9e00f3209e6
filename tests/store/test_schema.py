"""The schema and its page: ``python tests/store/test_schema.py`` writes the table of columns into results/README.md."""

import json
import os
import re
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
TABLE = re.compile(r"(?<=<!-- columns -->\n).*(?=<!-- /columns -->)", re.DOTALL)


def columns():
    """Return the columns as a Markdown table."""
    lines = ["| name | dimensions | type | unit | absent | meaning |", "| --- " * 6 + "|"]
    for c in COLUMNS:
        dtype = {"bool": "uint8", "maybe": "int8", "str": "string"}.get(c.dtype, c.dtype)
        absent = "" if c.absent is None else "empty" if c.absent == "" else str(c.absent)
        lines.append(f"| {c.name} | {', '.join(c.dims)} | {dtype} | {c.unit} | {absent} | {c.meaning} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_columns_is_current():
    assert TABLE.findall(README.read_text()) == [columns()], "run python tests/store/test_schema.py"


def test_the_page_names_the_version():
    assert f"schema version {VERSION}" in README.read_text()


def test_every_measured_field_has_a_column():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    stored = {field.name for kind in (Outcome, RankLocation, CaseTimes) for field in fields(kind)} - {"case", "times"}
    assert stored <= set(names)


def test_every_column_has_a_meaning_and_an_absent_value_of_its_type():
    for column in COLUMNS:
        assert column.meaning
        assert set(column.dims) <= {"case", "iteration", "rank", "node_number", "port", "event"}
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
import raw_examples, test_schema
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
    "csv": export(results, "csv").splitlines()[0].split(","), "page": test_schema.columns(),
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
    assert "| stretch_s | case | float64 | s | nan | how far apart ranks started |" in found["page"]
    assert "skew (us)" in (tmp_path / "F.report" / "index.html").read_text()
    with h5py.File(out) as file:
        dataset = file["attempt_1/stretch_s"]
        assert (dataset[0], dataset.attrs["units"]) == (2.5e-6, "s")


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: columns(), README.read_text()))
