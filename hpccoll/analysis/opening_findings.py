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
from hpccoll.analysis.same_bits import same_bits_findings
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
    critical_stalls: list[tuple[Run, Finding]] = []
    resolved_stalls: list[tuple[Run, Finding]] = []
    for run, finding in _stalls(results):
        stalls = critical_stalls if finding.severity == "critical" else resolved_stalls
        stalls.append((run, finding))
    findings = list(_with_jobs(critical_stalls))
    findings += _with_jobs(_logged_findings(results))
    findings += _with_jobs(resolved_stalls)
    findings += _several_executors(results)
    findings += _with_jobs(_gpu_bindings(results.runs))
    findings += _with_jobs(_without_recovery(results))
    findings += _busy_machine(results)
    findings += _slow_gpus(results)
    findings += gpu_time_findings(results)
    findings += guideline_findings(results)
    findings += same_bits_findings(results)
    return findings


def _stalls(results: Results) -> Iterator[tuple[Run, Finding]]:
    """Yield the stalls of ranks, with the cause; they are resolved if a later launch measured the whole job."""
    for run in results.runs:
        if not run.rank_loss:
            continue
        cause = run.rank_loss[:1].upper() + run.rank_loss[1:]
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
    with_algorithm: set[str] = set()
    for row in results.rows:
        # NCCL logs no algorithm for collectives that it builds from sends and receives.
        if row.collective in NCCL_FUNCTIONS.values() or row.transport != "nccl":
            with_algorithm.add(row.run_id)
    for run, record in records:
        for finding in _network_findings(run, record):
            yield run, finding
    for run, record in records:
        if run.run_id in with_algorithm:
            for finding in _variant_findings(run, record, logged_variants):
                yield run, finding


def _with_jobs(findings: Iterable[tuple[Run, Finding]]) -> Iterator[Finding]:
    """Yield each finding once, with the jobs of the runs that it applies to."""
    jobs: dict[str, dict[str, None]] = defaultdict(dict)
    unique: dict[str, Finding] = {}
    for run, finding in findings:
        unique[finding.text] = finding
        jobs[finding.text][run.job] = None
    for text, finding in unique.items():
        names = tuple(jobs[text])
        values = {**finding.values, "jobs": names}
        yield replace(finding, text=f"{text} In {', '.join(names)}.", values=values)


def _several_executors(results: Results) -> Iterator[Finding]:
    by_device: dict[str, Counter[str]] = defaultdict(Counter)
    for row in results.rows:
        if row.executor:
            by_device[row.device][row.executor] += 1
    for rows in by_device.values():
        if len(rows) > 1:
            compiled = format_count(rows["compiled"], "row")
            text = (
                f"The compiled executor measured {compiled}; the Python executor measured {rows['python']}, whose "
                "series are marked (python). Each of its operations includes microseconds of Python, which are most of "
                "the time of a small message. Lines and ratios are separate for each executor."
            )
            yield warning("several_executors", text, rows=dict(rows))


def _gpu_bindings(runs: Iterable[Run]) -> Iterator[tuple[Run, Finding]]:
    for run in runs:
        far_ranks = cast("list[int]", run.provenance.get("ranks_far_from_gpu"))
        if far_ranks:
            yield run, _far_gpus(len(far_ranks), run.rank_name(far_ranks[0]))
        ranks_with_one_gpu = cast("list[int]", run.provenance.get("ranks_seeing_one_gpu"))
        if ranks_with_one_gpu:
            yield run, _hidden_gpus(len(ranks_with_one_gpu))


def _far_gpus(number: int, first: str) -> Finding:
    text = (
        f"{format_count(number, 'rank')} (the first is {first}) had no CPU on the NUMA node of their GPU, so that "
        "small messages take longer."
    )
    remedy = (
        "Bind ranks next to their GPUs (srun --distribution=block:block --cpus-per-task=N; mpiexec of Open MPI "
        "--map-by slot:PE=N, where N is the cores of a node over its ranks), or list the GPUs in the order of the "
        "ranks (CUDA_VISIBLE_DEVICES)."
    )
    return warning("far_gpus", text, remedy=remedy, number=number, first=first)


def _hidden_gpus(number: int) -> Finding:
    text = (
        f"{format_count(number, 'rank')} saw one GPU only, and ranks of the same node used others. If Slurm hides "
        "those from the rank (--gpus-per-task, --gpu-bind), messages go through host memory instead of NVLink or PCIe."
    )
    remedy = "Do: srun --gpus-per-node=N --gpu-bind=none."
    return warning("hidden_gpus", text, remedy=remedy, number=number)


def _without_recovery(results: Results) -> Iterator[tuple[Run, Finding]]:
    """Yield the runs on streams of GPUs that a stalled rank would have ended, because MPI lacks a thread level."""
    transports = defaultdict[str, set[str]](set)
    for row in results.rows:
        transports[row.run_id].add(row.transport)
    for run in results.runs:
        level = level_without_recovery(run.provenance, len(run.rank_nodes), transports[run.run_id])
        if level:
            text = (
                f"MPI gave thread level {level}, so a stalled rank ends the launch; with "
                f"{RECOVERS} the others go on."
            )
            yield run, info("no_stall_recovery", text, level=level)


def _busy_machine(results: Results) -> Iterator[Finding]:
    """Yield a warning with the runs in which something else used the machine; those that timed nothing do not count."""
    timed = {row.run_id for row in results.rows if row.median_s}
    busy = []
    for run in results.runs:
        hosts = busy_hosts(run.provenance) if run.run_id in timed else None
        if hosts:
            busy.append(hosts)
    if not busy:
        return
    load = describe_busy(chain.from_iterable(busy))
    where = f"in {len(busy)} of {format_count(len(timed), 'run')}"
    text = f"{load[:1].upper()}{load[1:]}, {where}."
    remedy = "Small leads may be chance; measure again on an idle machine."
    yield warning(
        "busy_machine", text, remedy=remedy, launches=len(busy), all_launches=len(timed), load=load
    )


def _slow_gpus(results: Results) -> Iterator[Finding]:
    reasons: dict[str, list[Sequence[str]]] = defaultdict(list)
    shares: dict[str, list[tuple[str, float]]] = defaultdict(list)
    observed: Counter[str] = Counter()
    for row in results.rows:
        observed[row.run_id] += row.gpu_sm_clock is not None or bool(row.gpu_throttled)
        for gpu, why in row.gpu_throttled.items():
            reasons[gpu].append(why)
        for gpu, share in row.gpu_slow.items():
            shares[gpu].append((row.run_id, share))
    if reasons:
        yield _throttled_gpus(reasons, observed.total())
    slow = []
    for gpu, slow_cases in sorted(shares.items()):
        runs = {run for run, _ in slow_cases}
        observed_cases = sum(observed[run] for run in runs)
        if 2 * len(slow_cases) > observed_cases:
            slow.append((gpu, len(slow_cases), median(share for _, share in slow_cases)))
    if slow:
        yield _slower_clocks(slow)


def _throttled_gpus(reasons: Mapping[str, Sequence[Sequence[str]]], all_cases: int) -> Finding:
    gpus = []
    sentences = []
    for gpu, reasons_of_cases in sorted(reasons.items()):
        cases = len(reasons_of_cases)
        why = tuple(dict.fromkeys(chain.from_iterable(reasons_of_cases)))
        gpus.append((gpu, cases, why))
        sentences.append(
            f"{gpu} in {cases} of {format_count(all_cases, 'case')} ({', '.join(why)})"
        )
    text = f"Clocks of GPUs were lowered: {'; '.join(first_few(sentences, MAX_GPUS, 'GPU'))}."
    remedy = "Check cooling and power supply, and measure again."
    return warning("gpus_throttled", text, remedy=remedy, gpus=tuple(gpus))


def _slower_clocks(gpus: Sequence[tuple[str, int, float]]) -> Finding:
    sentences = []
    for gpu, cases, share in gpus:
        sentences.append(
            f"{gpu} at {100 * share:.0f} % of the median clock in {format_count(cases, 'case')}"
        )
    text = (
        f"Clocks of GPUs are more than {100 * CLOCK_SHARE:g} % below those of the others: "
        f"{'; '.join(first_few(sentences, MAX_GPUS, 'GPU'))}. A collective waits for the slowest GPU."
    )
    remedy = "Compare the clock and power limits (nvidia-smi -q)."
    return warning("gpu_clocks_differ", text, remedy=remedy, gpus=tuple(gpus))


def _network_findings(run: Run, record: LogRecord) -> Iterator[Finding]:
    # A variant may request TCP itself; variables that a site or a user set do not count.
    if run.environment.get("NCCL_NET") == "Socket" or run.environment.get("NCCL_IB_DISABLE") == "1":
        return
    expected, reason = _expected_network(run)
    mismatch = network_mismatch(record, expected)
    if mismatch:
        mismatch = mismatch.rstrip(".")
        yield critical(
            "network_mismatch",
            f"{mismatch}. Expected, because {reason}.",
            mismatch=mismatch,
            reason=reason,
        )


def _variant_findings(
    run: Run, record: LogRecord, logged_variants: Collection[str | None]
) -> Iterator[Finding]:
    name = run.variant or ""
    variant = known_variant(run.variant, {**run.environment, **run.communicator})
    if variant is None or not variant.shows_in_logs:
        return
    evidence = control_violation(variant, record)
    if evidence:
        evidence = evidence.rstrip(".")
        text = f"The negative control {name} failed: {evidence}."
        yield critical("control_failed", text, variant=name, evidence=evidence)
    elif not is_shown(variant, record):
        failure = probe_of_run(run).failure
        expected = variant.evidence_text
        text = f"The variant {name} does not show its expected evidence: {expected}."
        if failure:
            text += f" The probe {failure}."
        yield critical(
            "evidence_missing", text, variant=name, expected=expected, probe_failure=failure
        )
    elif variant.control and variant.control not in logged_variants:
        text = f"{name} has no negative control: {variant.control}, which must not show its evidence, left no logs."
        yield critical("control_missing", text, variant=name, control=variant.control)


def _expected_network(run: Run) -> tuple[str | None, str]:
    """Return the network that nodes should use, ``rdma`` or ``tcp``, and the reason; None if nothing is known."""
    provenance: Mapping[str, Any] = run.provenance
    if network := provenance.get("network"):
        return str(network), "the site file says so"
    names: dict[str, None] = {}
    for host in provenance.get("ports") or ():
        for port in host["ports"]:
            if port["kind"] == "infiniband":
                names[port["name"]] = None
    if not names:
        return None, ""
    verb = "are" if len(names) > 1 else "is"
    return "rdma", f"{', '.join(names)} {verb} active"
