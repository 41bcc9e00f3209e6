"""What a report begins with if a diagnosis preceded its runs."""

from dataclasses import replace

import pytest
from recorded_diagnoses import recorded

from hpccoll.diagnosis.core_waits import CORE_WAITS
from hpccoll.diagnosis.diagnosis_file import diagnosis_of_job, write_diagnosis
from hpccoll.diagnosis.slot_records import Component
from hpccoll.render.report_findings import report_findings
from hpccoll.render.terminal_summary import outcome_lines


@pytest.fixture
def diagnosed(tmp_path, make_row, make_run, of_rows):
    """``diagnosed(*faults)`` are the results of a run with a stall, in an allocation whose diagnosis found faults."""

    def diagnosed(*faults, allocation="7", waits=()):
        diagnosis = recorded(16, *faults)
        waited = replace(diagnosis, provenance={**diagnosis.provenance, CORE_WAITS: dict(waits)})
        write_diagnosis(waited, diagnosis_of_job(tmp_path, "all.n16", "7"))
        facts = {
            "variables": {"SLURM_JOB_ID": allocation},
            "left_behind": [{"how": "rank 3 stalled"}],
        }
        run = make_run(
            job="all.n16", path=str(tmp_path / "all.n16.h5"), status="partial", provenance=facts
        )
        return of_rows(make_row(), runs=[run])

    return diagnosed


def test_the_first_finding_is_what_the_diagnosis_of_the_allocation_found_slow(diagnosed):
    results = diagnosed((Component("send", (3,)), 20), (Component("node", (5,)), 30))
    slow, stalled = report_findings(results)
    assert (slow.kind, slow.severity, stalled.kind) == ("slow_nodes", "critical", "ranks_stalled")
    assert sorted(slow.values["faults"]) == [("node", "n5"), ("send", "n3")]
    assert next(outcome_lines(results)) == slow.with_remedy


def test_a_healthy_diagnosis_or_that_of_another_allocation_is_no_finding(diagnosed):
    for results in (diagnosed(), diagnosed((Component("node", (5,)), 30), allocation="8")):
        assert [finding.kind for finding in report_findings(results)] == ["ranks_stalled"]


def test_what_the_load_of_a_node_may_explain_is_no_finding(diagnosed):
    results = diagnosed(
        (Component("node", (5,)), 20),
        waits={f"n{number}": 0.5 * (number == 5) for number in range(16)},
    )
    assert [finding.kind for finding in report_findings(results)] == ["ranks_stalled"]
