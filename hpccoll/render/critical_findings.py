"""Findings that the page begins with: stalled ranks, networks, variants without evidence, executors, slow machines."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.requested_algorithm import NCCL_FUNCTIONS
from hpccoll.evidence.variants import known_variant
from hpccoll.evidence.verdict import control_violation, network_mismatch
from hpccoll.render.library_evidence import probe_of_run
from hpccoll.render.report_finding import ReportFinding, critical, info, warning
from hpccoll.store.gpu_throttling import CLOCK_SHARE
from hpccoll.store.host_load import busy_hosts
from hpccoll.store.rows import Results, Run


def opening_findings(results: Results) -> tuple[ReportFinding, ...]:
    """Return all findings that the page begins with, the critical ones first."""
    results = results.ours
    return (
        *find_critical(results), *find_resolved(results), *find_several_executors(results),
        *find_far_gpus(results), *find_hidden_gpus(results), *find_busy_machine(results),
        *find_slow_gpus(results),
    )  # fmt: skip


def find_critical(results: Results) -> tuple[ReportFinding, ...]:
    """Return the critical findings, each once with the ``jobs`` it applies to: stalls, then networks, then variants."""
    records = [(run, record) for run in results.runs if (record := probe_of_run(run).record)]
    logged_variants = {run.variant for run, _ in records}
    # NCCL logs no algorithm for collectives that it builds from sends and receives.
    with_algorithm = {
        row.run_id for row in results.rows if row.collective in NCCL_FUNCTIONS.values() or row.transport != "nccl"
    }
    stalls = _stalled_runs(results)
    findings = [(run, critical("ranks_stalled", cause=cause)) for run, cause in stalls if run.status == "partial"]
    findings += [(run, finding) for run, record in records for finding in _network_findings(run, record)]
    findings += [
        (run, finding)
        for run, record in records
        if run.run_id in with_algorithm
        for finding in _variant_findings(run, record, logged_variants)
    ]
    return _with_jobs(findings)


def find_resolved(results: Results) -> tuple[ReportFinding, ...]:
    """Return the stalls after which a later launch measured the whole job, each once with its ``jobs``."""
    stalls = _stalled_runs(results)
    return _with_jobs((run, info("stall_resolved", cause=cause)) for run, cause in stalls if run.status == "complete")


def find_several_executors(results: Results) -> tuple[ReportFinding, ...]:
    """Return a warning with the rows of each executor if both measured buffers of one device."""
    by_device: dict[str, Counter[str]] = defaultdict(Counter)
    for row in results.rows:
        if row.executor:
            by_device[row.device][row.executor] += 1
    return tuple(warning("several_executors", rows=dict(rows)) for rows in by_device.values() if len(rows) > 1)


def find_far_gpus(results: Results) -> tuple[ReportFinding, ...]:
    """Return a warning with the ``jobs`` in which CPUs of ranks are on another NUMA node than their GPU."""
    far: list[tuple[Run, Any]] = [(run, run.provenance.get("ranks_far_from_gpu")) for run in results.runs]
    return _with_jobs((run, warning("far_gpus", number=len(ranks), first=ranks[0])) for run, ranks in far if ranks)


def find_hidden_gpus(results: Results) -> tuple[ReportFinding, ...]:
    """Return a warning with the ``jobs`` in which ranks saw their own GPU only, although their node has others."""
    alone: list[tuple[Run, Any]] = [(run, run.provenance.get("ranks_seeing_one_gpu")) for run in results.runs]
    return _with_jobs((run, warning("hidden_gpus", number=len(ranks))) for run, ranks in alone if ranks)


def find_busy_machine(results: Results) -> tuple[ReportFinding, ...]:
    """Return a warning with the launches in which something else used the machine, and the most that was used.

    Launches that timed nothing do not count.
    """
    timed = {row.run_id for row in results.rows if row.median_s}
    busy = [hosts for run in results.runs if run.run_id in timed and (hosts := busy_hosts(run.provenance))]
    if not busy:
        return ()
    loads = [load for hosts in busy for load in hosts]
    others = max(loads, key=lambda load: load.other_cores)
    stolen = max(loads, key=lambda load: load.stolen)
    return (
        warning(
            "busy_machine",
            launches=len(busy),
            all_launches=len(timed),
            other_cores=others.other_cores if others.used_by_others else None,
            host=others.host,
            names=tuple(others.busiest)[:3],
            stolen=stolen.stolen if stolen.was_stolen else None,
        ),
    )


def find_slow_gpus(results: Results) -> tuple[ReportFinding, ...]:
    """Return warnings with the GPUs whose clocks were lowered, and those that ran below the others in most cases."""
    reasons: dict[str, dict[str, None]] = defaultdict(dict)
    throttled: Counter[str] = Counter()
    shares: dict[str, list[float]] = defaultdict(list)
    runs_of: dict[str, set[str]] = defaultdict(set)
    observed: Counter[str] = Counter()
    for row in results.rows:
        observed[row.run_id] += row.gpu_sm_clock is not None or bool(row.gpu_throttled)
        for gpu, why in row.gpu_throttled.items():
            throttled[gpu] += 1
            reasons[gpu].update(dict.fromkeys(why))
        for gpu, share in row.gpu_slow.items():
            shares[gpu].append(share)
            runs_of[gpu].add(row.run_id)
    found = []
    if throttled:
        gpus = tuple((gpu, cases, tuple(reasons[gpu])) for gpu, cases in sorted(throttled.items()))
        found.append(warning("gpus_throttled", gpus=gpus, cases=observed.total()))
    slow = tuple(
        (gpu, len(of_gpu), median(of_gpu))
        for gpu, of_gpu in sorted(shares.items())
        if 2 * len(of_gpu) > sum(observed[run] for run in runs_of[gpu])
    )
    if slow:
        found.append(warning("gpu_clocks_differ", gpus=slow, share=CLOCK_SHARE))
    return tuple(found)


def _with_jobs(findings: Iterable[tuple[Run, ReportFinding]]) -> tuple[ReportFinding, ...]:
    """Return each finding once, with the jobs of the runs that it applies to."""
    unique: list[tuple[ReportFinding, dict[str, None]]] = []
    for run, finding in findings:
        jobs = next((jobs for other, jobs in unique if other == finding), None)
        if jobs is None:
            unique.append((finding, jobs := {}))
        jobs[run.job] = None
    return tuple(
        ReportFinding(finding.kind, finding.severity, {**finding.values, "jobs": tuple(jobs)})
        for finding, jobs in unique
    )


def _stalled_runs(results: Results) -> Iterator[tuple[Run, str]]:
    """Yield the runs on fewer ranks than requested, with the cause, capitalised."""
    for run in results.runs:
        if cause := run.rank_loss:
            yield run, cause[:1].upper() + cause[1:]


def _network_findings(run: Run, record: LogRecord) -> Iterator[ReportFinding]:
    expected, reason = expected_network(run)
    if not _requests_sockets(run.environment) and (mismatch := network_mismatch(record, expected)):
        yield critical("network_mismatch", mismatch=mismatch.rstrip("."), reason=reason)


def _requests_sockets(environment: Mapping[str, str]) -> bool:
    """Return whether a variant itself requests TCP; variables that a site or a user set do not count."""
    return environment.get("NCCL_NET") == "Socket" or environment.get("NCCL_IB_DISABLE") == "1"


def _variant_findings(run: Run, record: LogRecord, logged_variants: Collection[str | None]) -> Iterator[ReportFinding]:
    """Yield whether a known variant lacks its expected evidence, or a control run that confirms it.

    Args:
        run: a launch of the variant.
        record: the logs of that launch.
        logged_variants: the variants that left logs.
    """
    name, known = run.variant or "", known_variant(run.variant, {**run.environment, **run.communicator})
    if known is None or known.expected_evidence.is_met is None:
        return
    if evidence := control_violation(record, name):
        yield critical("control_failed", variant=name, evidence=evidence.rstrip("."))
    elif not known.expected_evidence.is_met(record):
        failure = probe_of_run(run).failure
        yield critical(
            "evidence_missing", variant=name, expected=known.expected_evidence.description, probe_failure=failure
        )
    elif known.control and known.control not in logged_variants:
        yield critical("control_missing", variant=name, control=known.control)


def expected_network(run: Run) -> tuple[str | None, str]:
    """Return the network that nodes should use, ``rdma`` or ``tcp``, and the reason; None if nothing is known."""
    provenance: Mapping[str, Any] = run.provenance
    if network := provenance.get("network"):
        return str(network), "the site file says so"
    hosts = provenance.get("ports") or ()
    names = {port["name"]: None for host in hosts for port in host["ports"] if port["kind"] == "infiniband"}
    return ("rdma", f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} active") if names else (None, "")
