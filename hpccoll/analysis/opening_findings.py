"""Findings on runs as a whole: stalled ranks, networks, variants without evidence, executors, slow machines.

The critical ones stand above the answers, on a page and in a terminal, and the others below.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median
from typing import Any, cast

from hpccoll.analysis.guideline_findings import guideline_findings
from hpccoll.analysis.library_evidence import probe_of_run
from hpccoll.analysis.measurement_quality import gpu_time_findings
from hpccoll.analysis.stall_recovery import RECOVERS, level_without_recovery
from hpccoll.cases.library_request import NCCL_FUNCTIONS
from hpccoll.cases.variants import known_variant
from hpccoll.common.text import Finding, critical, first_few, info, warning
from hpccoll.common.units import format_count
from hpccoll.evidence.expected_evidence import control_violation, is_shown
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.verdict import network_mismatch
from hpccoll.store.gpu_throttling import CLOCK_SHARE
from hpccoll.store.host_load import busy_hosts, describe_busy
from hpccoll.store.rows import Results, Run

MAX_GPUS = 4
"""GPUs that a sentence names; the table of rows has all of them."""

ON_FEWER_RANKS = "Rows of the remaining ranks are exported, not drawn"


def opening_findings(results: Results) -> list[Finding]:
    """Return all findings that the page begins with, the critical ones first: stalls, then networks, then variants."""
    results = results.ours
    stalls = list(_stalls(results))
    return [
        *_with_jobs(each for each in stalls if each[1].severity == "critical"),
        *_with_jobs(_logged_findings(results)),
        *_with_jobs(each for each in stalls if each[1].severity == "info"),
        *_several_executors(results),
        *_with_jobs(_gpu_bindings(results.runs)),
        *_with_jobs(_without_recovery(results)),
        *_busy_machine(results),
        *_slow_gpus(results),
        *gpu_time_findings(results),
        *guideline_findings(results),
    ]


def _stalls(results: Results) -> Iterator[tuple[Run, Finding]]:
    """Yield the stalls of ranks, with the cause; they are resolved if a later launch measured the whole job."""
    for run in results.runs:
        if cause := run.rank_loss:
            cause = cause[:1].upper() + cause[1:]
            if run.status == "partial":
                yield run, critical("ranks_stalled", f"{cause}. {ON_FEWER_RANKS}.", cause=cause)
            else:
                text = f"{cause}. {ON_FEWER_RANKS}; a later launch measured the whole job."
                yield run, info("stall_resolved", text, cause=cause)


def _logged_findings(results: Results) -> Iterator[tuple[Run, Finding]]:
    """Yield what the logs of runs contradict, or do not show: first of all runs their networks, then their variants."""
    records: list[tuple[Run, LogRecord]] = []
    for run in results.runs:
        record = probe_of_run(run).record
        if record:
            records.append((run, record))
    logged_variants = {run.variant for run, _ in records}
    # NCCL logs no algorithm for collectives that it builds from sends and receives.
    with_algorithm = {
        row.run_id for row in results.rows if row.collective in NCCL_FUNCTIONS.values() or row.transport != "nccl"
    }
    for run, record in records:
        yield from ((run, finding) for finding in _network_findings(run, record))
    for run, record in records:
        if run.run_id in with_algorithm:
            yield from ((run, finding) for finding in _variant_findings(run, record, logged_variants))


def _with_jobs(findings: Iterable[tuple[Run, Finding]]) -> Iterator[Finding]:
    """Yield each finding once, with the jobs of the runs that it applies to."""
    jobs: dict[str, dict[str, None]] = defaultdict(dict)
    unique: dict[str, Finding] = {}
    for run, finding in findings:
        unique[finding.text] = finding
        jobs[finding.text][run.job] = None
    for text, finding in unique.items():
        values = {**finding.values, "jobs": tuple(jobs[text])}
        yield replace(finding, text=f"{text} In {', '.join(jobs[text])}.", values=values)


def _several_executors(results: Results) -> Iterator[Finding]:
    by_device: dict[str, Counter[str]] = defaultdict(Counter)
    for row in results.rows:
        if row.executor:
            by_device[row.device][row.executor] += 1
    for rows in by_device.values():
        if len(rows) > 1:
            yield warning(
                "several_executors",
                f"The compiled executor measured {format_count(rows['compiled'], 'row')}; the Python executor measured "
                f"{rows['python']}, whose series are marked (python). Each of its operations includes microseconds of "
                "Python, which are most of the time of a small message. Lines and ratios are separate for each "
                "executor.",
                rows=dict(rows),
            )


def _gpu_bindings(runs: Iterable[Run]) -> Iterator[tuple[Run, Finding]]:
    for run in runs:
        if ranks := cast("list[int]", run.provenance.get("ranks_far_from_gpu")):
            text = (
                f"{format_count(len(ranks), 'rank')} (the first is {run.rank_name(ranks[0])}) had no CPU on the NUMA "
                "node of their GPU, so that small messages take longer."
            )
            remedy = (
                "Bind ranks next to their GPUs (srun --distribution=block:block --cpus-per-task=N; mpiexec of Open MPI "
                "--map-by slot:PE=N, where N is the cores of a node over its ranks), or list the GPUs in the order of "
                "the ranks (CUDA_VISIBLE_DEVICES)."
            )
            yield run, warning("far_gpus", text, remedy=remedy, number=len(ranks), first=run.rank_name(ranks[0]))
        if ranks := cast("list[int]", run.provenance.get("ranks_seeing_one_gpu")):
            text = (
                f"{format_count(len(ranks), 'rank')} saw one GPU only, and ranks of the same node used others. If "
                "Slurm hides those from the rank (--gpus-per-task, --gpu-bind), messages go through host memory "
                "instead of NVLink or PCIe."
            )
            remedy = "Do: srun --gpus-per-node=N --gpu-bind=none."
            yield run, warning("hidden_gpus", text, remedy=remedy, number=len(ranks))


def _without_recovery(results: Results) -> Iterator[tuple[Run, Finding]]:
    """Yield the runs over NCCL that a stalled rank would have ended, because MPI lacks a thread level."""
    transports = defaultdict[str, set[str]](set)
    for row in results.rows:
        transports[row.run_id].add(row.transport)
    for run in results.runs:
        level = level_without_recovery(run.provenance, len(run.rank_nodes), transports[run.run_id])
        if level:
            text = (
                f"MPI gave thread level {level}, so that a rank that stalls in NCCL ends the launch; with "
                f"{RECOVERS} the others go on."
            )
            yield run, info("no_stall_recovery", text, level=level)


def _busy_machine(results: Results) -> Iterator[Finding]:
    """Yield a warning with the runs in which something else used the machine; those that timed nothing do not count."""
    timed = {row.run_id for row in results.rows if row.median_s}
    loads = [busy_hosts(run.provenance) for run in results.runs if run.run_id in timed]
    busy = list(filter(None, loads))
    if busy:
        load = describe_busy(load for hosts in busy for load in hosts)
        where = f"in {len(busy)} of {format_count(len(timed), 'run')}"
        text = f"{load[:1].upper()}{load[1:]}, {where}."
        remedy = "Small leads may be chance; measure again on an idle machine."
        yield warning("busy_machine", text, remedy=remedy, launches=len(busy), all_launches=len(timed), load=load)


def _slow_gpus(results: Results) -> Iterator[Finding]:
    throttled: dict[str, list[Sequence[str]]] = defaultdict(list)
    shares: dict[str, list[tuple[str, float]]] = defaultdict(list)
    observed: Counter[str] = Counter()
    for row in results.rows:
        observed[row.run_id] += row.gpu_sm_clock is not None or bool(row.gpu_throttled)
        for gpu, why in row.gpu_throttled.items():
            throttled[gpu].append(why)
        for gpu, share in row.gpu_slow.items():
            shares[gpu].append((row.run_id, share))
    if throttled:
        gpus = tuple((gpu, len(each), tuple(dict.fromkeys(chain(*each)))) for gpu, each in sorted(throttled.items()))
        of_cases = f"of {format_count(observed.total(), 'case')}"
        named = [f"{gpu} in {cases} {of_cases} ({', '.join(why)})" for gpu, cases, why in gpus]
        text = f"Clocks of GPUs were lowered: {'; '.join(first_few(named, MAX_GPUS, 'GPU'))}."
        yield warning("gpus_throttled", text, remedy="Check cooling and power supply, and measure again.", gpus=gpus)
    slow = tuple(
        (gpu, len(of_gpu), median(share for _, share in of_gpu))
        for gpu, of_gpu in sorted(shares.items())
        if 2 * len(of_gpu) > sum(observed[run] for run in {run for run, _ in of_gpu})
    )
    if slow:
        named = [
            f"{gpu} at {100 * share:.0f} % of the median clock in {format_count(cases, 'case')}"
            for gpu, cases, share in slow
        ]
        text = (
            f"Clocks of GPUs are more than {100 * CLOCK_SHARE:g} % below those of the others: "
            f"{'; '.join(first_few(named, MAX_GPUS, 'GPU'))}. A collective waits for the slowest GPU."
        )
        remedy = "Compare the clock and power limits (nvidia-smi -q)."
        yield warning("gpu_clocks_differ", text, remedy=remedy, gpus=slow)


def _network_findings(run: Run, record: LogRecord) -> Iterator[Finding]:
    expected, reason = _expected_network(run)
    # A variant may request TCP itself; variables that a site or a user set do not count.
    sockets = run.environment.get("NCCL_NET") == "Socket" or run.environment.get("NCCL_IB_DISABLE") == "1"
    if not sockets and (mismatch := network_mismatch(record, expected)):
        mismatch = mismatch.rstrip(".")
        yield critical("network_mismatch", f"{mismatch}. Expected, because {reason}.", mismatch=mismatch, reason=reason)


def _variant_findings(run: Run, record: LogRecord, logged_variants: Collection[str | None]) -> Iterator[Finding]:
    name, known = run.variant or "", known_variant(run.variant, {**run.environment, **run.communicator})
    if known is None or not known.shows_in_logs:
        return
    if evidence := control_violation(known, record):
        evidence = evidence.rstrip(".")
        text = f"The negative control {name} failed: {evidence}."
        yield critical("control_failed", text, variant=name, evidence=evidence)
    elif not is_shown(known, record):
        failure = probe_of_run(run).failure
        expected = known.evidence_text
        text = f"The variant {name} does not show its expected evidence: {expected}."
        text += f" The probe {failure}." if failure else ""
        yield critical("evidence_missing", text, variant=name, expected=expected, probe_failure=failure)
    elif known.control and known.control not in logged_variants:
        text = f"{name} has no negative control: {known.control}, which must not show its evidence, left no logs."
        yield critical("control_missing", text, variant=name, control=known.control)


def _expected_network(run: Run) -> tuple[str | None, str]:
    """Return the network that nodes should use, ``rdma`` or ``tcp``, and the reason; None if nothing is known."""
    provenance: Mapping[str, Any] = run.provenance
    if network := provenance.get("network"):
        return str(network), "the site file says so"
    hosts = provenance.get("ports") or ()
    names = {port["name"]: None for host in hosts for port in host["ports"] if port["kind"] == "infiniband"}
    if not names:
        return None, ""
    return "rdma", f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} active"
