"""What must be seen before anything else: ranks that stalled, another network than was meant, a control of nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.requested import NCCL_FUNCTIONS
from hpccoll.evidence.variants import known_variant
from hpccoll.evidence.verdict import control_violation, network_mismatch
from hpccoll.report.library_evidence import probe_of_run
from hpccoll.store.rows import Results, Run


def find_critical(results: Results) -> tuple[str, ...]:
    """Return a sentence for everything of that kind, with the jobs that it is about."""
    records = [(run, record) for run in results.runs if (record := probe_of_run(run).record)]
    logged = {run.variant for run, _ in records}
    # What NCCL does by sends and receives has no algorithm, and shows none.
    choices = {
        row.run_id for row in results.rows if row.collective in NCCL_FUNCTIONS.values() or row.transport != "nccl"
    }
    said = [(run, f"{how}.") for run, how in _stalled_runs(results) if run.status == "partial"]
    said += [(run, words) for run, record in records for words in _network_findings(run, record)]
    said += [
        (run, words)
        for run, record in records
        if run.run_id in choices
        for words in _variant_findings(run, record, logged)
    ]
    return _with_jobs(said)


def find_resolved(results: Results) -> tuple[str, ...]:
    """Return a sentence for every stall after which a later launch has measured all of the job: it alarms nobody."""
    more = "; a later launch has measured all that was asked."
    return _with_jobs((run, f"{how}{more}") for run, how in _stalled_runs(results) if run.status == "complete")


def _with_jobs(said: Iterable[tuple[Run, str]]) -> tuple[str, ...]:
    """Return each sentence once, with the jobs whose runs it was said of."""
    about: dict[str, dict[str, None]] = {}
    for run, words in said:
        about.setdefault(words, {})[run.job] = None
    return tuple(f"{words} In {', '.join(jobs)}." for words, jobs in about.items())


def _stalled_runs(results: Results) -> Iterator[tuple[Run, str]]:
    """Yield the runs of fewer ranks than were asked, with how that came to be and what becomes of them."""
    for run in results.runs:
        if how := run.left_behind:
            yield run, f"{_capitalised(how)}. What those measured is exported, and not drawn"


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def _network_findings(run: Run, record: LogRecord) -> Iterator[str]:
    meant, why = expected_network(run)
    if not _requests_sockets(run.environment) and (said := network_mismatch(record, meant)):
        yield f"{said.rstrip('.')}. Expected, for {why}."


def _requests_sockets(environment: Mapping[str, str]) -> bool:
    """Return whether a variant asks for TCP itself; what a site or a user has set by mistake is no excuse."""
    return environment.get("NCCL_NET") == "Socket" or environment.get("NCCL_IB_DISABLE") == "1"


def _variant_findings(run: Run, record: LogRecord, logged: Collection[str | None]) -> Iterator[str]:
    """Yield what a known variant has to show and does not, and whether its control was left out.

    Args:
        run: a launch of it.
        record: of that.
        logged: the variants that have left logs.
    """
    name, known = run.variant or "", known_variant(run.variant, {**run.environment, **run.communicator})
    if known is None or known.expected_evidence.is_met is None:
        return
    if said := control_violation(record, name):
        yield f"The control {name} controls nothing: {said.rstrip('.')}."
    elif not known.expected_evidence.is_met(record):
        why = f" The probe {why}." if (why := probe_of_run(run).failure) else ""
        yield f"The variant {name} does not show what it has to: {known.expected_evidence.description}.{why}"
    elif known.control and known.control not in logged:
        yield f"Nothing controls {name}: {known.control}, which has to lose its evidence, has left no logs."


def expected_network(run: Run) -> tuple[str | None, str]:
    """Return by what nodes were to talk, ``rdma`` or ``tcp``, and how that is known; None where it is not."""
    provenance: Mapping[str, Any] = run.provenance
    if meant := provenance.get("network"):
        return str(meant), "the site file says so"
    hosts = provenance.get("ports") or ()
    there = {port["name"]: None for alike in hosts for port in alike["ports"] if port["kind"] == "infiniband"}
    return ("rdma", f"{', '.join(there)} {'are' if len(there) > 1 else 'is'} active") if there else (None, "")
