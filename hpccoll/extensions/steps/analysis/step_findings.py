"""What measured training steps show: a table, and findings on overlap, buckets, products and the null step."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster, clearly_faster_anywhere
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.setting import Choice
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
from hpccoll.store.call_key import CallKey, call_arguments
from hpccoll.store.rows import RowKey

NULL_SHARE = 0.02
"""How much longer than its computation a step without communication may take before a finding names it."""

_HEAD = (
    "model", "workload", "on", "algorithm", "", "step", "95 % interval", "null", "exposed", "share",
    "all communication", "transfer", "waiting", "codecs",
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
    about = each.model, ", ".join(each.details), each.shape
    mark = ""
    if each.ranked:
        mark = "best" if each.clear else "a tie"
    for row in each.rows:
        bare = None if row.exposed_s is None or row.median_s is None else row.median_s - row.exposed_s
        interval = format_interval(row.interval) if row.interval else ""
        share = "" if row.exposed_share is None else format_per_cent(row.exposed_share)
        times = _time(row.median_s), interval, _time(bare), _time(row.exposed_s), share
        parts = row.communication_s, row.transfer_s, row.waiting_s, row.codec_s
        yield (*about, Choice.of(row).name, mark, *times, *map(_time, parts))
        about, mark = ("", "", ""), ""


def trained_points(group: ChartGroup) -> dict[str, SeriesPoint]:
    """Return the trainings of a group by the words for their workload: on the most ranks, by the first algorithm."""
    points = [point for point in group.usable if _has_learned(point)]
    name = workload_namer([point.row for point in points])
    found: dict[str, SeriesPoint] = {}
    for point in sorted(points, key=lambda p: (-p.row.ranks, compression_text(call_arguments(p.row)))):
        found.setdefault(", ".join(name(point.row)) or str(call_arguments(point.row)["model"]), point)
    return found


def _has_learned(point: SeriesPoint) -> bool:
    step = step_of(point.timeline)
    return step is not None and step.learned is not None


def training_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of the table of trainings: what each has learned, and the times of its phases."""
    points = [point for point in group.usable if point.row.accuracy is not None]
    name = workload_namer([point.row for point in points])
    head = ["training", "on", "algorithm", "loss", "accuracy", "replicas", "serial run",
            "shard", "gradients", "all-reduce", "update"]  # fmt: skip
    lines = []
    for point in points:
        row = point.row
        training = ", ".join(name(row)) or str(call_arguments(row)["model"])
        loss = "not finite" if row.loss is None else f"{row.loss:.3f}"
        replicas = f"differ after {row.diverged_steps} steps" if row.diverged_steps else "equal"
        serial_run = "equal" if row.serial_difference == 0 else f"differs by {row.serial_difference or 0.0:.1e}"
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
    return "" if seconds is None else format_seconds(seconds)


def step_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the findings that only groups of training steps have."""
    compared = compare_steps((point.row for point in group.usable), group.machine_of_run)
    steps = {point.row.key: step_of(point.timeline) for point in group.usable}
    yield from _null_findings(compared)
    yield from product_findings(compared, steps.get)
    yield from late_findings(compared, {point.row.key: point.rank_name for point in group.usable})
    yield from _overlap_findings(compared)
    yield from _bucket_findings(compared)
    yield from _last_buckets(compared, steps)
    alone = [each for each in compared if not each.oversubscribed]  # codecs that wait for a core seem to cost more
    yield from _codec_findings(alone)
    yield from _overflow_findings(compared)
    yield from paying_findings(alone, steps, {point.row.key: point.wire for point in group.usable})
    yield from _crowded_findings(compared)


def _overlap_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield how much of the communication overlap hides, on the first ranks on which both were measured."""
    sequential = {each.key.without_arguments("overlap"): each for each in compared if not each.workload["overlap"]}
    for each in compared:
        if not each.workload["overlap"] or not each.has_collectives:
            continue
        clauses = tuple(
            {"algorithm": name, "hidden": (before.median_s or 0.0) - (row.median_s or 0.0), "of": before.exposed_s,
             "clear": clearly_faster(row, before)}
            for name, row, before in each.common(sequential.get(each.key.without_arguments("overlap")))
            if before.exposed_s and before.exposed_s > 0
        )  # fmt: skip
        if clauses:
            details = (word for word in each.details if word != "overlapped")
            where = ", ".join((f"{each.model} on {each.shape}", *details))
            yield info(
                "overlap",
                f"{where}: overlap hides {'; '.join(map(_overlap_text, clauses))}.",
                title="Overlap",
                remedy="The step with overlap is compared with the same step that synchronises gradients after the "
                "backward pass; without overlap everything is exposed.",
                algorithms=clauses,
            )
            return


def _overlap_text(clause: Mapping[str, Any]) -> str:
    hidden, exposed = clause["hidden"], clause["of"]
    whole = f"{format_seconds(exposed)} with {clause['algorithm']}"
    if not clause["clear"]:
        return f"no clear part of {whole}"
    percent = 100 * hidden / exposed
    return f"{format_seconds(hidden)} of {format_seconds(exposed)} ({percent:.0f} %) with {clause['algorithm']}"


def _bucket_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield the best limit of buckets, and what others cost, for the fastest algorithm of the first such workload."""
    by_rest: dict[CallKey, list[StepComparison]] = {}
    for each in compared:
        if each.has_collectives:
            by_rest.setdefault(each.key.without_arguments("bucket"), []).append(each)
    for several in by_rest.values():
        best = min(several, key=lambda each: each.rows[0].median_s or 0.0).rows[0]
        name = Choice.of(best).name
        rows = sorted(
            (row for each in several for row in each.rows if Choice.of(row).name == name and row is not best),
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
        what = first.workload["model"] + (f" in {first.compression}" if first.compression else "")
        text = f"{what} on {first.shape}, {name}: {_bucket_text(bucket_of(best), costs)}"
        scale = first.workload["scale"]
        scaled = f" (limits of the full model; here divided by {scale})" if scale > 1 else ""
        yield info("best_bucket", f"{text}{scaled}.", title="Buckets", bucket=bucket_of(best), costs=costs)
        return


def _bucket_text(best: int, costs: Sequence[Mapping[str, Any]]) -> str:
    """Return what other limits cost: ``80 MiB is best; the default costs 9 %; 160 MiB is not clearly slower``."""
    worse = [f"{_limit(each['bucket'])} costs {100 * each['cost']:.0f} %" for each in costs if each["clear"]]
    if not worse:
        return "no limit is clearly the best"
    clauses = [f"{_limit(best)} is best", ", ".join(worse)]
    equal = [_limit(cost["bucket"]) for cost in costs if not cost["clear"]]
    if equal:
        clauses.append(f"{join_words(equal)} {'is' if len(equal) == 1 else 'are'} not clearly slower")
    return "; ".join(clauses)


def _limit(limit: int) -> str:
    return format_size(limit) if limit else "the default"


def _last_buckets(compared: Sequence[StepComparison], steps: Mapping[RowKey, StepTimes | None]) -> Iterator[Finding]:
    """Yield the last bucket of the first overlapped workload, if it is ready only after all computations."""
    for each in compared:
        step = steps[each.rows[0].key]
        if each.workload["overlap"] and step and (values := _last_bucket(step)):
            text = (
                f"{each.model} on {each.shape}: the last of {values['buckets']} buckets, "
                f"{format_rounded_size(values['nbytes'])}, is never hidden: it is ready when the backward pass has "
                f"ended, and takes {format_seconds(values['seconds'])} ({100 * values['share']:.0f} % of the step) "
                f"with {Choice.of(each.rows[0]).name}."
            )
            yield info("last_bucket", text, title="Last bucket", **values)
            return


def _last_bucket(step: StepTimes) -> dict[str, Any] | None:
    """Return the bytes and the seconds of the last bucket on the slowest rank; None if computations can hide it."""
    position = int(step.step_s[0].argmax())
    operations = zip(step.program(position).operations, step.operations(position)[0].tolist(), strict=True)
    of_buckets = []
    for operation, times in operations:
        bucket = re.match(r"bucket \d+( of experts)?", str(operation["label"]))
        if bucket and operation["phase"] == "backward":
            of_buckets.append((bucket[0], operation["bytes"], times))
    # The operations of a compressed bucket follow one another; with zero2 each micro-batch has all buckets again.
    chains = [(label, [*chain]) for label, chain in groupby(of_buckets, key=lambda each: each[0])]
    computed, buckets = step.computations(position)[0], len({label for label, _ in chains})
    if buckets < 2 or not len(computed):
        return None
    _, last = chains[-1]
    (_, nbytes, (ready, begin, _)), (*_, (*_, end)) = last[0], last[-1]
    length = float(step.step_s[0, position])
    if ready < float(np.max(computed[:, 1])) - 1e-3 * length:
        return None
    return {"nbytes": nbytes, "buckets": buckets, "seconds": end - begin, "share": (end - begin) / length}


def _codec_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield each compression with which a step is clearly longer than without it, where that is worst, and why."""
    dense = {each.key.uncompressed: each for each in compared if not each.compression}
    worst: dict[str, tuple[float, Finding]] = {}
    for each in compared:
        for name, row, before in each.common(dense.get(each.key.uncompressed) if each.compression else None):
            if not clearly_faster_anywhere(before, row):
                continue
            longer = (row.median_s or 0.0) - (before.median_s or 0.0)
            codec, saved = row.codec_s or 0.0, (before.communication_s or 0.0) - (row.communication_s or 0.0)
            share = format_per_cent(longer / (before.median_s or 1.0))
            less = f"{format_seconds(saved)} less" if saved > 0 else "no less"
            found = warning(
                "codec_cost",
                f"{each.title}: with {name} the step takes {format_seconds(longer)} ({share}) longer than "
                f"uncompressed; codecs take {format_seconds(codec)}, and collectives {less}.",
                title="Compression that costs more than it saves",
                remedy="Send gradients uncompressed on a network as fast as this one.",
                compression=each.compression, longer=longer, saved=saved, codec=codec,
            )  # fmt: skip
            worst[each.compression] = max(worst.get(each.compression, (0.0, found)), (longer, found), key=itemgetter(0))
    yield from (found for _, found in worst.values())


def _crowded_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield that compression is not judged where ranks shared cores."""
    compressed = [each for each in compared if each.compression]
    if crowded := sum(each.oversubscribed for each in compressed):
        yield info(
            "codecs_crowded",
            f"{crowded} of {format_count(len(compressed), 'workload')} with compressed gradients ran on more ranks "
            "than cores: their codecs waited for cores, so whether compression pays there is not said.",
            title="Compression on shared cores",
            remedy="Start at most as many ranks as cores.",
            workloads=crowded, of=len(compressed),
        )  # fmt: skip


def _overflow_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    """Yield the compressed steps in which gradients overflowed, or means were infinite or NaN."""
    for each in compared:
        overflowed = max(row.overflowed or 0 for row in each.rows)
        not_finite = max(row.not_finite or 0 for row in each.rows)
        if overflowed or not_finite:
            yield warning(
                "overflow",
                f"{each.title}: {format_count(overflowed, 'gradient')} overflowed, and "
                f"{format_count(not_finite, 'mean')} became infinite or NaN, over all ranks and steps.",
                title="Overflow of compressed gradients",
                remedy="Scale gradients down before they are compressed, or take bf16, whose range is that of float32.",
                overflowed=overflowed, not_finite=not_finite, compression=each.compression,
            )  # fmt: skip


def _null_findings(compared: Sequence[StepComparison]) -> Iterator[Finding]:
    missing = [each for each in compared if all(row.exposed_s is None for row in each.rows)]
    if missing:
        yield warning(
            "null_missing",
            f"{len(missing)} of {format_count(len(compared), 'workload')} have no step without communication.",
            title="Exposed time unknown",
            remedy="Add the algorithm null: exposed communication is the time by which a step is longer than that of "
            "null.",
            workloads=len(missing), of=len(compared),
        )  # fmt: skip
    late = []
    for each in compared:
        found = _null_excess(each)
        if found:
            late.append((found, each))
    if late:
        (excess, share), each = max(late, key=lambda pair: pair[0][1])
        fewer = "start fewer ranks, which wait for a core here" if each.oversubscribed else "take an idle machine"
        yield warning(
            "null_overhead",
            f"without communication the step takes {format_seconds(excess)} ({100 * share:.1f} %) more than its "
            f"computation{worst_of(each, len(late), len(compared))}.",
            title="Cost of the harness",
            remedy="The harness or the machine delays computations: exposed times leave that out. To lower it, "
            f"{fewer}.",
            excess=excess, share=share, workloads=len(late), of=len(compared), oversubscribed=each.oversubscribed,
        )  # fmt: skip
    below = [(row, each) for each in compared for row in each.rows if (row.exposed_high_s or 0.0) < 0]
    if below:
        row, each = min(below, key=lambda pair: pair[0].exposed_share or 0.0)
        seconds = -(row.exposed_s or 0.0)
        others = f", and {format_count(len(below) - 1, 'other step')} likewise" if len(below) > 1 else ""
        text = (
            f"{each.title}: with {Choice.of(row).name} the step takes {format_seconds(seconds)} less than "
            f"without communication{others}: something else slowed the null step down."
        )
        yield warning("below_null", text, title="Below null", rows=len(below), seconds=seconds)


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
