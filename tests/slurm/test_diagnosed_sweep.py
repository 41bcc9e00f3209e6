"""A sweep that has its nodes diagnosed, whole: Snakemake, Slurm, ranks, the verdict, and what a second sweep keeps."""

import json
from pathlib import Path

import pytest
import yaml
from sweep_sandbox import SweepSandbox

from hpccoll.diagnosis.diagnosis_file import read_diagnosis
from hpccoll.render.report_findings import report_findings
from hpccoll.store.load_results import read_results

pytestmark = [pytest.mark.slurm, pytest.mark.sweep, pytest.mark.long]

FILE = Path(__file__).parents[2] / "workflows" / "config" / "diagnose.yaml"
SHORT = {
    "nodes": [4],
    "bytes": [64],
    "effort": {"warmup": 1, "seconds": 0.05, "min_iterations": 2, "max_iterations": 2},
}


@pytest.fixture
def sandbox(testbed, mpiexec, tmp_path):  # noqa: ARG001 - there is an MPI library
    """Return a directory for the sweep, shortened, and its arguments; one node sends slowly."""
    box = SweepSandbox(testbed, tmp_path, "diagnose", ["n1", "n2", "n3", "n4"])
    (box.home / "s.yaml").write_text(json.dumps(yaml.safe_load(FILE.read_text()) | SHORT))
    assert testbed.command("fault", "n3", "--send", "--rate", "100mbit").code == 0
    yield box, box.site()
    testbed.command("clear")


def test_a_sweep_names_the_slow_node_of_its_allocation_and_keeps_its_measurements(sandbox):
    box, arguments = sandbox
    first = box.hpccoll("sweep", *arguments)
    assert first.code == 3, f"{first.out}\n{first.err}\n{box.logs()}"
    verdict = first.out.partition("n3 sends slowly: ")[2]
    assert "\n--exclude=n3\n" in verdict
    assert first.out.splitlines()[-1].startswith("report: ")
    results = read_results([box.out])
    assert {row.status for row in results.rows} == {"ok"}
    finding, *_ = report_findings(results)
    assert (finding.kind, finding.values["faults"]) == ("slow_nodes", [("send", "n3")])
    (file,) = box.out.glob("raw/*.diagnosis-*.h5")
    assert read_diagnosis(file).question.links
    before = {path: path.stat().st_mtime_ns for path in box.out.glob("raw/*")}
    second = box.hpccoll("sweep", *arguments)
    assert second.code == 3
    assert second.out.partition("n3 sends slowly: ")[2] == verdict
    assert {path: path.stat().st_mtime_ns for path in box.out.glob("raw/*")} == before
