"""The findings that a report begins with: what a diagnosis found slow before, then those on the runs themselves."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from hpccoll.analysis.opening_findings import opening_findings
from hpccoll.common.errors import BadInputError
from hpccoll.common.text import Finding, critical, join_words
from hpccoll.diagnosis.diagnosis_file import diagnosis_of_job, read_diagnosis
from hpccoll.diagnosis.verdict import verdict_of
from hpccoll.render.diagnosis_text import place_name
from hpccoll.store.host_names import host_ranges
from hpccoll.store.rows import Results, Run


def report_findings(results: Results) -> list[Finding]:
    """Return all findings on runs as a whole, what was slow in their allocations first: all times include it."""
    return [*_slow_parts(results.ours.runs), *opening_findings(results)]


def _slow_parts(runs: Iterable[Run]) -> Iterator[Finding]:
    """Yield what the diagnosis of a run's allocation found, of each diagnosis once."""
    files = {}
    for run in runs:
        variables = cast("Mapping[str, str]", run.provenance.get("variables") or {})
        files[
            diagnosis_of_job(Path(run.path).parent, run.job, variables.get("SLURM_JOB_ID", "local"))
        ] = run.job
    for file, job in files.items():
        try:
            verdicts = [
                fault for fault in verdict_of(read_diagnosis(file)).verdicts if not fault.wait
            ]
        except BadInputError:  # none was asked, or it failed, which the log of the job says
            continue
        if verdicts:
            named = [
                f"one of {host_ranges(fault.hosts)}"
                if fault.candidates
                else place_name(fault.place)
                for fault in verdicts
            ]
            text = f"All times were measured with what the diagnosis before found slow: {join_words(named)}. In {job}."
            remedy = f"How slow: hpccoll diagnose --report {file}"
            faults = [(fault.place.kind, *fault.hosts) for fault in verdicts]
            yield critical("slow_nodes", text, remedy=remedy, faults=faults, jobs=(job,))
