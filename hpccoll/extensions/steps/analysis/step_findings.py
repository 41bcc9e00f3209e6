"""What measured training steps show: a table, and findings on overlap, buckets, products and the null step."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster, clearly_faster_anywhere
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.setting import Choice
from hpccoll.cases.rank_agreement import agreement
from hpccoll.common.text import Finding, info, join_words, warning
from hpccoll.common.units import (
    format_count,
    format_interval,
    format_per_cent,
    format_rounded_size,
    format_seconds,
    format_size,
)
from hpccoll.extensions.steps.analysis.paying_findings import paying_findings
from hpccoll.extensions.steps.analysis.step_comparison import (
    StepComparison,
    bucket_of,
    compare_steps,
    compression_text,
    late_findings,
    product_findings,
    workload_namer,
    worst_of,
)
from hpccoll.extensions.steps.results.step_times import StepTimes, step_of
from hpccoll.schedule import all_reduce
from hpccoll.store.call_key import CallKey, call_arguments
from hpccoll.store.rows import Row, RowKey

NULL_SHARE = 0.02
"""How much longer than its computation a step without communication may take before a finding names it."""

_HEAD = (
    "model",
    "workload",
    "on",
    "algorithm",
    "",
    "step",
    "95 % interval",
    "null",
    "exposed",
    "share",
    "all communication",
    "transfer",
    "waiting",
    "codecs",
)


def step_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of steps, the fastest algorithm of each workload first.

    Columns without any text are left out.
    """
    lines: list[tuple[str, ...]] = []
    for step in compare_steps((point.row for point in group.usable), group.machine_of_run):
        lines += _lines(step)
    head: list[str] = []
    columns: list[list[str]] = []
    for heading, *texts in zip(_HEAD, *lines, strict=True):
        if any(texts):
            head.append(heading)
            columns.append(texts)
    return head, list(map(list, zip(*columns, strict=True)))


def _lines(step: StepComparison) -> Iterator[tuple[str, ...]]:
    about = step.model, ", ".join(step.details), step.shape
    mark = ""
    if step.ranked:
        mark = "best" if step.clear else "a tie"
    for row in step.rows:
        bare = None
        if row.exposed_s is not None and row.median_s is not None:
            bare = row.median_s - row.exposed_s
        interval = ""
        if row.interval:
            interval = format_interval(row.interval)
        share = ""
        if row.exposed_share is not None:
            share = format_per_cent(row.exposed_share)
        times = _time(row.median_s), interval, _time(bare), _time(row.exposed_s), share
        parts = row.communication_s, row.transfer_s, row.waiting_s, row.codec_s
        yield (*about, Choice.of(row).name, mark, *times, *map(_time, parts))
        about = "", "", ""
        mark = ""


def trained_points(group: ChartGroup) -> dict[str, SeriesPoint]:
    """Return the trainings of a group by the words for their workload: on the most ranks, by the first algorithm."""
    points = [point for point in group.usable if _has_learned(point)]
    name = workload_namer([point.row for point in points])

    def order(point: SeriesPoint) -> tuple[int, str]:
        return -point.row.ranks, compression_text(call_arguments(point.row))

    trainings: dict[str, SeriesPoint] = {}
    for point in sorted(points, key=order):
        words = ", ".join(name(point.row)) or str(call_arguments(point.row)["model"])
        trainings.setdefault(words, point)
    return trainings


def _has_learned(point: SeriesPoint) -> bool:
    step = step_of(point.timeline)
    return step is not None and step.learned is not None


def training_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of trainings: what each has learned, and the times of its phases."""
    points = [point for point in group.usable if point.row.accuracy is not None]
    name = workload_namer([point.row for point in points])
    head = ["training", "on", "algorithm", "loss", "accuracy", "replicas", "serial run"]
    head += ["shard", "gradients", "all-reduce", "update"]
    lines = []
    for point in points:
        row = point.row
        training = ", ".join(name(row)) or str(call_arguments(row)["model"])
        loss = "not finite"
        if row.loss is not None:
            loss = f"{row.loss:.3f}"
        replicas = "equal"
        if row.diverged_steps:
            replicas = f"differ after {row.diverged_steps} steps"
        if row.serial_difference == 0:
            serial_run = "equal"
        else:
            serial_run = f"differs by {row.serial_difference or 0.0:.1e}"
        phases = map(_time, (row.shard_s, row.gradients_s, row.communication_s, row.update_s))
        place = group.shape_label(row), point.series
        lines.append([training, *place, loss, f"{row.accuracy:.2%}", replicas, serial_run, *phases])
    return head, lines


TRAINING_NOTE = (
    "Replicas: whether the weights of all ranks were equal bit by bit after every step. Serial run: the largest "
    "difference to the weights of the same run in one process, over the largest weight. Phases: the median over "
    "steps of the slowest rank; the all-reduce may run beside the gradients, and includes waiting for other ranks."
)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return format_seconds(seconds)


def step_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the findings that only groups of training steps have."""
    compared = compare_steps((point.row for point in group.usable), group.machine_of_run)
    steps: dict[RowKey, StepTimes | None] = {}
    names: dict[RowKey, Callable[[int], str]] = {}
    for point in group.usable:
        steps[point.row.key] = step_of(point.timeline)
        names[point.row.key] = point.rank_name
    yield from _null_findings(compared)
    yield from product_findings(compared, steps.get)
    yield from late_findings(compared, names)
    yield from _overlap_findings(compared)
    yield from _bucket_findings(compared)
    yield from _last_buckets(compared, steps)
    # Codecs that wait for a core seem to cost more.
    with_cores = [step for step in compared if not step.oversubscribed]
    yield from _codec_findings(with_cores)
    yield from _overflow_findings(compared)
    yield from paying_findings(
        with_cores, steps, {point.row.key: point.wire for point in group.usable}
    )
    yield from _crowded_findings(compared)
    yield from ranks_disagree_findings(point.row.algorithm for point in group.usable)


def ranks_disagree_findings(algorithms: Iterable[str]) -> Iterator[Finding]:
    """Yield which algorithms leave ranks with different bits of the gradients that they have reduced."""
    for name in sorted(set(algorithms)):
        algorithm = all_reduce.algorithms.get(name)
        if algorithm is None or agreement(all_reduce, algorithm) is not False:
            continue
        text = (
            f"With {name}, ranks add gradients in different orders: the last bits of their parameters may "
            "differ from rank to rank, and drift apart."
        )
        yield warning("ranks_disagree", text, algorithms=[name])


def _overlap_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield how much of the communication overlap hides, on the first ranks on which both were measured."""
    sequential: dict[CallKey, StepComparison] = {}
    for step in compared:
        if not step.workload["overlap"]:
            sequential[step.key.without_arguments("overlap")] = step
    for step in compared:
        if not step.workload["overlap"] or not step.has_collectives:
            continue
        without_overlap = sequential.get(step.key.without_arguments("overlap"))
        clauses = tuple(_overlap_clauses(step, without_overlap))
        if clauses:
            details = (word for word in step.details if word != "overlapped")
            where = ", ".join((f"{step.model} on {step.shape}", *details))
            yield info(
                "overlap",
                f"{where}: overlap hides {'; '.join(map(_overlap_text, clauses))}.",
                title="Overlap",
                remedy="The step with overlap is compared with the same step that synchronises gradients after the "
                "backward pass; without overlap everything is exposed.",
                algorithms=clauses,
            )
            return


def _overlap_clauses(
    step: StepComparison, without_overlap: StepComparison | None
) -> Iterator[dict[str, Any]]:
    """Yield what overlap hides with each algorithm whose exposed time without overlap is known."""
    for name, row, before in step.common(without_overlap):
        if before.exposed_s and before.exposed_s > 0:
            hidden = (before.median_s or 0.0) - (row.median_s or 0.0)
            is_clear = clearly_faster(row, before)
            yield {"algorithm": name, "hidden": hidden, "of": before.exposed_s, "clear": is_clear}


def _overlap_text(clause: Mapping[str, Any]) -> str:
    hidden = clause["hidden"]
    exposed = clause["of"]
    whole = f"{format_seconds(exposed)} with {clause['algorithm']}"
    if not clause["clear"]:
        return f"no clear part of {whole}"
    percent = 100 * hidden / exposed
    return f"{format_seconds(hidden)} of {format_seconds(exposed)} ({percent:.0f} %) with {clause['algorithm']}"


def _bucket_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield the best limit of buckets, and what others cost, for the fastest algorithm of the first such workload."""
    by_rest: dict[CallKey, list[StepComparison]] = defaultdict(list)
    for step in compared:
        if step.has_collectives:
            by_rest[step.key.without_arguments("bucket")].append(step)
    for steps in by_rest.values():
        best = min(steps, key=lambda step: step.rows[0].median_s or 0.0).rows[0]
        name = Choice.of(best).name
        rows = []
        for row in chain.from_iterable(step.rows for step in steps):
            if Choice.of(row).name == name:
                rows.append(row)
        costs = tuple(
            _bucket_cost(best, row) for row in sorted(rows, key=bucket_of) if row is not best
        )
        if not costs:
            continue
        first = steps[0]
        model = first.workload["model"]
        if first.compression:
            model += f" in {first.compression}"
        text = f"{model} on {first.shape}, {name}: {_bucket_text(bucket_of(best), costs)}"
        scale = first.workload["scale"]
        if scale > 1:
            text += f" (limits of the full model; here divided by {scale})"
        yield info("best_bucket", f"{text}.", title="Buckets", bucket=bucket_of(best), costs=costs)
        return


def _bucket_cost(best: Row, row: Row) -> dict[str, Any]:
    """Return how much longer a step takes with the limit of a row than with the best limit, as a share."""
    cost = (row.median_s or 0.0) / (best.median_s or 1.0) - 1
    return {"bucket": bucket_of(row), "cost": cost, "clear": clearly_faster(best, row)}


def _bucket_text(best: int, costs: Sequence[Mapping[str, Any]]) -> str:
    """Return what other limits cost: ``80 MiB is best; the default costs 9 %; 160 MiB is not clearly slower``."""
    worse: list[str] = []
    equal: list[str] = []
    for cost in costs:
        limit = _limit(cost["bucket"])
        if cost["clear"]:
            worse.append(f"{limit} costs {100 * cost['cost']:.0f} %")
        else:
            equal.append(limit)
    if not worse:
        return "no limit is clearly the best"
    clauses = [f"{_limit(best)} is best", ", ".join(worse)]
    if equal:
        verb = "is" if len(equal) == 1 else "are"
        clauses.append(f"{join_words(equal)} {verb} not clearly slower")
    return "; ".join(clauses)


def _limit(limit: int) -> str:
    if not limit:
        return "the default"
    return format_size(limit)


def _last_buckets(
    compared: Sequence[StepComparison], steps: Mapping[RowKey, StepTimes | None]
) -> Iterator[Finding]:
    """Yield the last bucket of the first overlapped workload, if it is ready only after all computations."""
    for step in compared:
        times = steps[step.rows[0].key]
        values = None
        if times and step.workload["overlap"]:
            values = _last_bucket(times)
        if values:
            size = format_rounded_size(values["nbytes"])
            takes = (
                f"{format_seconds(values['seconds'])} ({100 * values['share']:.0f} % of the step)"
            )
            text = (
                f"{step.model} on {step.shape}: the last of {values['buckets']} buckets, {size}, is never hidden: it "
                f"is ready when the backward pass has ended, and takes {takes} with {Choice.of(step.rows[0]).name}."
            )
            yield info("last_bucket", text, title="Last bucket", **values)
            return


def _last_bucket(step: StepTimes) -> dict[str, Any] | None:
    """Return the bytes and the seconds of the last bucket on the slowest rank; None if computations can hide it."""
    position = int(step.step_s[0].argmax())
    operations = zip(
        step.program(position).operations, step.operations(position)[0].tolist(), strict=True
    )
    times_of_buckets = []
    for operation, times in operations:
        bucket = re.match(r"bucket \d+( of experts)?", str(operation["label"]))
        if bucket and operation["phase"] == "backward":
            times_of_buckets.append((bucket[0], operation["bytes"], times))
    # The operations of a compressed bucket follow one another; with zero2 each micro-batch has all
    # buckets again.
    chains = [
        (label, list(members)) for label, members in groupby(times_of_buckets, key=itemgetter(0))
    ]
    computed = step.computations(position)[0]
    buckets = len({label for label, _ in chains})
    if buckets < 2 or not len(computed):
        return None
    _, last_chain = chains[-1]
    _, nbytes, (ready, begin, _) = last_chain[0]
    _, _, (_, _, end) = last_chain[-1]
    length = float(step.step_s[0, position])
    if ready < float(np.max(computed[:, 1])) - 1e-3 * length:
        return None
    seconds = end - begin
    return {"nbytes": nbytes, "buckets": buckets, "seconds": seconds, "share": seconds / length}


def _codec_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield each compression with which a step is clearly longer than without it, where that is worst, and why."""
    dense = {step.key.uncompressed: step for step in compared if not step.compression}
    worst: dict[str, tuple[float, Finding]] = {}
    for step in compared:
        if not step.compression:
            continue
        for name, row, before in step.common(dense.get(step.key.uncompressed)):
            if clearly_faster_anywhere(before, row):
                longer = (row.median_s or 0.0) - (before.median_s or 0.0)
                cost = longer, _codec_cost(step, name, row, before)
                largest = worst.get(step.compression, (0.0, cost[1]))
                worst[step.compression] = max(largest, cost, key=itemgetter(0))
    for _, finding in worst.values():
        yield finding


def _codec_cost(step: StepComparison, name: str, row: Row, before: Row) -> Finding:
    longer = (row.median_s or 0.0) - (before.median_s or 0.0)
    saved = (before.communication_s or 0.0) - (row.communication_s or 0.0)
    codec = row.codec_s or 0.0
    share = format_per_cent(longer / (before.median_s or 1.0))
    less = "no less"
    if saved > 0:
        less = f"{format_seconds(saved)} less"
    text = (
        f"{step.title}: with {name} the step takes {format_seconds(longer)} ({share}) longer than uncompressed; codecs "
        f"take {format_seconds(codec)}, and collectives {less}."
    )
    return warning(
        "codec_cost",
        text,
        title="Compression that costs more than it saves",
        remedy="Send gradients uncompressed on a network as fast as this one.",
        compression=step.compression,
        longer=longer,
        saved=saved,
        codec=codec,
    )


def _crowded_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield that compression is not judged where ranks shared cores."""
    compressed = [step for step in compared if step.compression]
    crowded = sum(step.oversubscribed for step in compressed)
    if not crowded:
        return
    workloads = format_count(len(compressed), "workload")
    text = (
        f"{crowded} of {workloads} with compressed gradients ran on more ranks than cores: their codecs waited for "
        "cores, so whether compression pays there is not said."
    )
    yield info(
        "codecs_crowded",
        text,
        title="Compression on shared cores",
        remedy="Start at most as many ranks as cores.",
        workloads=crowded,
        of=len(compressed),
    )


def _overflow_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield the compressed steps in which gradients overflowed, or means were infinite or NaN."""
    for step in compared:
        overflowed = max(row.overflowed or 0 for row in step.rows)
        not_finite = max(row.not_finite or 0 for row in step.rows)
        if not overflowed and not not_finite:
            continue
        gradients = format_count(overflowed, "gradient")
        means = format_count(not_finite, "mean")
        text = f"{step.title}: {gradients} overflowed, and {means} became infinite or NaN, over all ranks and steps."
        yield warning(
            "overflow",
            text,
            title="Overflow of compressed gradients",
            remedy="Scale gradients down before they are compressed, or take bf16, whose range is that of float32.",
            overflowed=overflowed,
            not_finite=not_finite,
            compression=step.compression,
        )


def _null_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    missing = []
    for step in compared:
        if all(row.exposed_s is None for row in step.rows):
            missing.append(step)
    if missing:
        yield warning(
            "null_missing",
            f"{len(missing)} of {format_count(len(compared), 'workload')} have no step without communication.",
            title="Exposed time unknown",
            remedy="Add the algorithm null: exposed communication is the time by which a step is longer than that of "
            "null.",
            workloads=len(missing),
            of=len(compared),
        )
    yield from _null_overhead(compared)
    yield from _below_null(compared)


def _null_overhead(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    late = []
    for step in compared:
        overhead = _null_excess(step)
        if overhead:
            late.append((overhead, step))
    if not late:
        return
    (excess, share), step = max(late, key=lambda pair: pair[0][1])
    fewer = "take an idle machine"
    if step.oversubscribed:
        fewer = "start fewer ranks, which wait for a core here"
    where = worst_of(step, len(late), len(compared))
    text = (
        f"without communication the step takes {format_seconds(excess)} ({100 * share:.1f} %) more than its "
        f"computation{where}."
    )
    yield warning(
        "null_overhead",
        text,
        title="Cost of the harness",
        remedy=f"The harness or the machine delays computations: exposed times leave that out. To lower it, {fewer}.",
        excess=excess,
        share=share,
        workloads=len(late),
        of=len(compared),
        oversubscribed=step.oversubscribed,
    )


def _below_null(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    below = []
    for step in compared:
        below += [(row, step) for row in step.rows if (row.exposed_high_s or 0.0) < 0]
    if not below:
        return
    row, step = min(below, key=lambda pair: pair[0].exposed_share or 0.0)
    seconds = -(row.exposed_s or 0.0)
    further = ""
    if len(below) > 1:
        further = f", and {format_count(len(below) - 1, 'other step')} likewise"
    text = (
        f"{step.title}: with {Choice.of(row).name} the step takes {format_seconds(seconds)} less than without "
        f"communication{further}: something else slowed the null step down."
    )
    yield warning("below_null", text, title="Below null", rows=len(below), seconds=seconds)


def _null_excess(step: StepComparison) -> tuple[float, float] | None:
    """Return how much longer than its computation the step without communication takes, and its share of that step.

    None if that is little.
    """
    workload = step.workload
    null = step.null
    has_bubble = "pp=" in str(workload["parallel"])
    if null is None or not null.median_s or workload["compute"] != "wait" or has_bubble:
        return None
    computation_s = 1e-6 * int(workload["compute_us"]) * int(workload["micro_batches"])
    excess = null.median_s - computation_s
    if excess <= NULL_SHARE * null.median_s:
        return None
    return excess, excess / null.median_s
