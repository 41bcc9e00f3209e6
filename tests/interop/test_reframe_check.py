"""The check for ReFrame, run by ReFrame: results become performance variables, and bounds of a reference thresholds."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hpccoll.judge.reference import Reference, ReferenceCase, write_reference
from hpccoll.judge.run_comparison import cases_of_rows
from hpccoll.store.load_results import read_results

pytestmark = pytest.mark.mpi

SETTINGS = """
site_configuration = {
    "systems": [{
        "name": "here", "hostnames": [".*"], "prefix": "PREFIX",
        "partitions": [{"name": "local", "scheduler": "local", "launcher": "mpiexec", "environs": ["plain"]}],
    }],
    "environments": [{"name": "plain"}],
}
"""

CHECK = """
import reframe as rfm

from hpccoll.interop.reframe_check import HpccollCheck


@rfm.simple_test
class AllReduce(HpccollCheck):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    num_tasks = 2
    run_options = ["-a", "ring,native", "-b", "1K", "-e", "4K", "-f", "4", "-n", "6"]
    reference_file = "REFERENCE"
"""


@pytest.fixture(scope="module")
def reframe(mpiexec, require, tmp_path_factory):  # noqa: ARG001 - there is an MPI library
    """Run the check with a reference, or without one, and return its exit code, its report and its raw file."""
    require(find_spec("reframe"), "there is no ReFrame: pip install 'hpccoll[reframe]'")

    def run(reference: Path | None = None):
        directory = tmp_path_factory.mktemp("reframe")
        (directory / "settings.py").write_text(SETTINGS.replace("PREFIX", str(directory)))
        (directory / "check.py").write_text(CHECK.replace("REFERENCE", str(reference or "")))
        program = Path(sys.executable).with_name("reframe")
        options = [
            "-C",
            "settings.py",
            "-c",
            "check.py",
            "-r",
            "--report-file",
            "report.json",
            "--keep-stage-files",
        ]
        path = f"{program.parent}:/usr/bin:/bin"
        ran = subprocess.run(
            [program, *options],
            cwd=directory,
            env={"PATH": path, "HOME": str(directory)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (directory / "report.json").exists(), ran.stdout + ran.stderr
        report = json.loads((directory / "report.json").read_text())
        (result,) = directory.rglob("stage/**/result.h5")
        return ran.returncode, report["runs"][0]["testcases"][0], result

    return run


@pytest.fixture(scope="module")
def recorded(reframe):
    return reframe()


def reference_of(result, path, factor):
    """Write a reference whose times are those of a result times a factor, with bounds of ten per cent."""
    cases = cases_of_rows(read_results([result]).rows).values()
    scaled = [
        ReferenceCase.of([case], [seconds] * 3, seconds / 1.1, seconds * 1.1)
        for case in cases
        for seconds in [case.seconds * factor]
    ]
    write_reference(Reference(runs=["here"], cases=scaled, facts={}), path)
    return path


def test_every_case_is_a_performance_variable_and_without_a_reference_none_is_judged(recorded):
    code, test, result = recorded
    assert (code, test["result"]) == (0, "pass"), test["fail_reason"]
    ids = {case.case_id for case in cases_of_rows(read_results([result]).rows).values()}
    assert len(ids) == 8
    assert {name.rpartition(":")[2] for name in test["perfvalues"]} == ids


@pytest.mark.parametrize(
    ("factor", "ended"), [(1e-9, (1, "fail", "performance")), (1e9, (0, "pass", None))]
)
def test_a_case_slower_than_the_bound_of_its_reference_fails_the_check(
    reframe, recorded, tmp_path, factor, ended
):
    code, test, _ = reframe(reference_of(recorded[2], tmp_path / "reference.json", factor))
    assert (code, test["result"], test["fail_phase"]) == ended, test["fail_reason"]
