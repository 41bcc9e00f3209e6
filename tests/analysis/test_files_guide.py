"""The code in results/FILES.md runs as written, and reads all attempts of a resumed job."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import raw_examples
from written_runs import write_run

import hpccoll
from hpccoll.cases.case import Effort
from hpccoll.store import hdf5
from hpccoll.store.raw_results import RawResults

GUIDE = Path(__file__).parents[2] / "results" / "FILES.md"
BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
CASES = [
    raw_examples.case(size, in_place=in_place) for size in (8, 1024) for in_place in (False, True)
]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The results of ``hpccoll sweep``: its job was interrupted twice, once within the rounds of a case."""
    monkeypatch.chdir(tmp_path)
    file = Path("results/default/raw/mpi.p2.h5")
    file.parent.mkdir(parents=True)
    raw = RawResults(path=file, job=raw_examples.job(*CASES, effort=Effort(rounds=2)))
    launches = [CASES[0], CASES[1]], [CASES[0], CASES[2]], [CASES[1], CASES[2], CASES[3], CASES[3]]
    measured = dict.fromkeys((case.id for case in CASES), 0)
    for launch, cases in enumerate(launches, 1):
        raw.attempts.append((raw_examples.attempt(launch), []))
        for case in cases:
            measured[case.id] += 1
            times = raw_examples.times(
                4 + measured[case.id] + CASES.index(case), number=measured[case.id]
            )
            raw.record(raw_examples.outcome(case, times=times))
    assert raw.complete
    hdf5.write_raw_file(raw, file)
    write_run(Path("results/last-week/raw/mpi.p2.h5"))
    write_run(Path("results/today/raw/mpi.p2.h5"), {("ring", 4096): 1.3}, seed=2)
    return hpccoll.open("results/default")


def blocks(language):
    return [code for found, code in BLOCK.findall(GUIDE.read_text()) if found == language]


def test_every_python_example_runs_in_order_as_in_a_notebook(results, capsys):
    for library in ("altair", "xarray"):
        pytest.importorskip(library)
    medians = {row.case_id: f"{row.median_s * 1e6:.6g}" for row in results.rows.itertuples()}
    cells, tables = {}, 0
    for code in blocks("python"):
        exec(compile(code, str(GUIDE), "exec"), cells)  # noqa: S102 - the examples of the page
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        found = {
            words[0]: f"{float(words[1]):.6g}"
            for words in lines
            if len(words) == 2 and words[0] in medians
        }
        assert found in ({}, medians)
        tables += bool(found)
    assert tables == 1  # of h5py
    assert (cells["medians"].median("round").to_series() == cells["rows"].median_s).all()
    assert len(cells["rows"]) == len(CASES)
    assert cells["changed"].verdict.tolist().count("regression") == 1


def test_the_examples_of_h5dump_run(results, require):  # noqa: ARG001 - the files of the fixture
    require(shutil.which("h5dump"), "there is no h5dump (Debian: hdf5-tools)")
    examples = [code for code in blocks("sh") if code.startswith("h5dump")]
    assert examples
    for code in examples:
        ran = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert all(f"/attempt_{number}/max_ns" in ran.stdout for number in (1, 2, 3))
