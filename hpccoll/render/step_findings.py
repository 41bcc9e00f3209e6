"""What measured training steps show: a table, and findings on overlap, buckets, products and the null step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpccoll.analysis.round_comparison import clearly_faster
from hpccoll.analysis.step_answers import StepComparison, algorithm_name, compare_steps, per_cent, small_computations
from hpccoll.common.units import format_seconds
from hpccoll.render.chart_groups import ChartGroup, SeriesPoint
from hpccoll.render.measurement_quality import agreement_findings, convergence_findings, weakness_findings
from hpccoll.render.report_finding import ReportFinding, info, warning
from hpccoll.render.step_charts import bucket_of
from hpccoll.store.call_key import CallKey
from hpccoll.store.step_times import StepTimes

NULL_SHARE = 0.02
"""How much longer than its computation a step without communication may take before a finding names it."""

_HEAD = (
    "model", "workload", "on", "algorithm", "", "step", "95 % interval", "null", "exposed", "share",
    "all communication",
)  # fmt: skip


def step_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of steps, the fastest algorithm of each workload first.

    Columns without any text are left out.
    """
    compared = compare_steps((point.row for point in group.usable), group.machine_of_run)
    lines = [line for each in compared for line in _lines(each)]
    columns = [(head, texts) for head, *texts in zip(_HEAD, *lines, strict=True) if any(texts)]
    return [head for head, _ in columns], [list(line) for line in zip(*(texts for _, texts in columns), strict=True)]


def _lines(each: StepComparison) -> Iterator[tuple[str, ...]]:
    """Yield a line for each algorithm; only the first one names the workload."""
    about = each.model, ", ".join(each.details), each.shape
    mark = ("best" if each.clear else "a tie") if each.ranked else ""
    for row in each.rows:
        bare = None if row.exposed_s is None or row.median_s is None else row.median_s - row.exposed_s
        interval = "" if row.ci_low_s is None else f"{_time(row.ci_low_s)} to {_time(row.ci_high_s)}"
        share = "" if row.exposed_share is None else per_cent(row.exposed_share)
        times = _time(row.median_s), interval, _time(bare), _time(row.exposed_s), share, _time(row.communication_s)
        yield (*about, algorithm_name(row), mark, *times)
        about, mark = ("", "", ""), ""


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds)


def step_findings(group: ChartGroup) -> list[ReportFinding]:
    """Return the findings of a group of training steps; warnings come first."""
    compared = compare_steps((point.row for point in group.usable), group.machine_of_run)
    steps = {id(point.row): point for point in group.usable}
    findings = [
        *_null_findings(compared),
        *_product_findings(compared, steps),
        *_overlap_findings(compared),
        *_bucket_findings(compared),
        *_last_buckets(compared, steps),
        *agreement_findings(group),
        *weakness_findings(group),
        *convergence_findings(group),
    ]
    return sorted(findings, key=lambda finding: finding.severity == "info")


def _without(each: StepComparison, key: str) -> CallKey:
    """Return what a comparison has in common with others that differ in one key of the workload."""
    others = tuple(argument for argument in each.key.arguments or () if argument[0] != key)
    return replace(each.key, arguments=others, requested_bytes=None)


def _overlap_findings(compared: Sequence[StepComparison]) -> Iterator[ReportFinding]:
    """Yield how much of the communication overlap hides, on the first ranks on which both were measured."""
    sequential = {_without(each, "overlap"): each for each in compared if not each.workload["overlap"]}
    for each in compared:
        other = sequential.get(_without(each, "overlap"))
        if not each.workload["overlap"] or not each.has_collectives or other is None:
            continue
        without = {algorithm_name(row): row for row in other.rows}
        clauses = tuple(
            {"algorithm": name, "hidden": (before.median_s or 0.0) - (row.median_s or 0.0), "of": before.exposed_s,
             "clear": clearly_faster(row, before)}
            for row in each.rows
            for name in [algorithm_name(row)]
            if (before := without.get(name)) and before.exposed_s and before.exposed_s > 0
        )  # fmt: skip
        if clauses:
            details = tuple(word for word in each.details if word != "overlapped")
            yield info("overlap", model=each.model, shape=each.shape, details=details, algorithms=clauses)
            return


def _bucket_findings(compared: Sequence[StepComparison]) -> Iterator[ReportFinding]:
    """Yield the best limit of buckets, and what others cost, for the fastest algorithm of the first such workload."""
    by_rest: dict[CallKey, list[StepComparison]] = {}
    for each in compared:
        if each.has_collectives:
            by_rest.setdefault(_without(each, "bucket"), []).append(each)
    for several in by_rest.values():
        best = min(several, key=lambda each: each.rows[0].median_s or 0.0).rows[0]
        name = algorithm_name(best)
        rows = sorted(
            (row for each in several for row in each.rows if algorithm_name(row) == name and row is not best),
            key=bucket_of,
        )
        costs = tuple(
            {"bucket": bucket_of(row), "cost": (row.median_s or 0.0) / (best.median_s or 1.0) - 1,
             "clear": clearly_faster(best, row)}
            for row in rows
        )  # fmt: skip
        if not costs:
            continue
        first = several[0]
        values = {"model": first.workload["model"], "scale": first.workload["scale"], "shape": first.shape}
        yield info("best_bucket", **values, algorithm=name, bucket=bucket_of(best), costs=costs)
        return


def _last_buckets(compared: Sequence[StepComparison], steps: dict[int, SeriesPoint]) -> Iterator[ReportFinding]:
    """Yield the last bucket of the first overlapped workload, if it is ready only after all computations."""
    for each in compared:
        step = steps[id(each.rows[0])].step
        if each.workload["overlap"] and step and (values := _last_bucket(step)):
            name = algorithm_name(each.rows[0])
            yield info("last_bucket", model=each.model, shape=each.shape, algorithm=name, **values)
            return


def _last_bucket(step: StepTimes) -> dict[str, Any] | None:
    """Return the bytes and the seconds of the last bucket on the slowest rank; None if computations can hide it."""
    position = int(step.step_s[0].argmax())
    buckets = [
        (each["bytes"], times)
        for each, times in zip(step.program(position).operations, step.operations(position)[0].tolist(), strict=True)
        if str(each["label"]).startswith("bucket") and each["phase"] == "backward"
    ]
    computed = step.computations(position)[0]
    if len(buckets) < 2 or not len(computed):
        return None
    nbytes, (ready, begin, end) = buckets[-1]
    length = float(step.step_s[0, position])
    if ready < float(np.max(computed[:, 1])) - 1e-3 * length:
        return None
    return {"nbytes": nbytes, "buckets": len(buckets), "seconds": end - begin, "share": (end - begin) / length}


def _null_findings(compared: Sequence[StepComparison]) -> Iterator[ReportFinding]:
    """Yield what makes exposed times uncertain: no null step, one slower than its computation, or one too slow."""
    missing = [each for each in compared if all(row.exposed_s is None for row in each.rows)]
    if missing:
        yield warning("null_missing", workloads=len(missing), of=len(compared))
    late = [(found, each) for each in compared if (found := _null_excess(each))]
    if late:
        (excess, share), each = max(late, key=lambda pair: pair[0][1])
        yield warning(
            "null_overhead", model=each.model, shape=each.shape, details=each.details, excess=excess, share=share,
            workloads=len(late), of=len(compared), oversubscribed=each.oversubscribed,
        )  # fmt: skip
    below = [(row, each) for each in compared for row in each.rows if (row.exposed_high_s or 0.0) < 0]
    if below:
        row, each = min(below, key=lambda pair: pair[0].exposed_share or 0.0)
        yield warning(
            "below_null", model=each.model, shape=each.shape, details=each.details, rows=len(below),
            algorithm=algorithm_name(row), seconds=-(row.exposed_s or 0.0),
        )  # fmt: skip


def _product_findings(compared: Sequence[StepComparison], steps: dict[int, SeriesPoint]) -> Iterator[ReportFinding]:
    """Yield the workload with the largest share of computations that are too small for a product of matrices."""
    if small := small_computations(compared, lambda row: steps[id(row)].step):
        each = small.step
        yield warning(
            "no_product", model=each.model, shape=each.shape, details=each.details, none=small.none,
            computations=small.computations, workloads=small.workloads, of=len(compared),
        )  # fmt: skip


def _null_excess(each: StepComparison) -> tuple[float, float] | None:
    """Return how much longer than its computation the step without communication takes, and its share of that step.

    None if that is little.
    """
    workload, null = each.workload, each.null
    stages = "pp=" in str(workload["parallel"])  # of a pipeline it also has the bubble
    if null is None or not null.median_s or workload["compute"] != "wait" or stages:
        return None
    excess = null.median_s - 1e-6 * int(workload["compute_us"]) * int(workload["micro_batches"])
    return (excess, excess / null.median_s) if excess > NULL_SHARE * null.median_s else None
