"""What must be seen before anything else: a network that was not meant, a control that controls nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpccoll.evidence.records import Record
from hpccoll.evidence.verdict import control_fails, red_line
from hpccoll.report.library import found_in
from hpccoll.store.rows import Results, Run


def alarms(results: Results) -> tuple[str, ...]:
    """Return a sentence for everything of that kind, with the jobs that it is about."""
    variants = {row.run_id: row.variant for row in results.rows}
    about: dict[str, dict[str, None]] = {}
    for run in results.runs:
        if record := found_in(run).record:
            for said in _of_run(run, record, variants.get(run.run_id)):
                about.setdefault(said, {})[run.job] = None
    return tuple(f"{said} In {', '.join(jobs)}." for said, jobs in about.items())


def _of_run(run: Run, record: Record, variant: str | None) -> Iterator[str]:
    meant, why = expected(run)
    on_purpose = variant is not None and _sockets(run)
    if not on_purpose and (said := red_line(record, meant)):
        yield f"{said.rstrip('.')}. Expected, for {why}."
    if variant is not None and (said := control_fails(record, variant)):
        yield f"The control {variant} controls nothing: {said.rstrip('.')}."


def _sockets(run: Run) -> bool:
    """Return whether the environment of ``run`` asks for TCP."""
    variables: Mapping[str, Any] = run.provenance.get("variables") or {}  # type: ignore[assignment]
    return variables.get("NCCL_NET") == "Socket" or variables.get("NCCL_IB_DISABLE") == "1"


def expected(run: Run) -> tuple[str | None, str]:
    """Return by what nodes were to talk, ``rdma`` or ``tcp``, and how that is known; None where it is not."""
    provenance: Mapping[str, Any] = run.provenance
    if meant := provenance.get("network"):
        return str(meant), "the site file says so"
    hosts = provenance.get("ports") or ()
    there = {port["name"]: None for alike in hosts for port in alike["ports"] if port["kind"] == "infiniband"}
    return ("rdma", f"{', '.join(there)} {'are' if len(there) > 1 else 'is'} active") if there else (None, "")
