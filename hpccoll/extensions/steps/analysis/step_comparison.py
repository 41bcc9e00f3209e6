"""Training steps of one workload, which differ in the algorithm of their collectives."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpccoll.analysis.late_ranks import are_late_words
from hpccoll.analysis.round_comparison import clearly_faster, paired_rounds, time_ratio
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.analysis.strength import Evidence, Gain
from hpccoll.cases.algorithm_registry import is_workload
from hpccoll.common.text import Finding, warning
from hpccoll.common.units import format_count, format_per_cent, format_seconds, format_size
from hpccoll.extensions.steps.results.step_figures import closest_null
from hpccoll.extensions.steps.results.step_times import StepTimes
from hpccoll.store.call_key import CallKey, call_arguments
from hpccoll.store.rows import Row, RowKey

Workload = Mapping[str, Any]

COMPRESSION = "compress", "feedback"
"""The keys of a workload that say how gradients are compressed."""


def compression_text(workload: Workload) -> str:
    """Return how the gradients of a workload are compressed; an empty text if they are not."""
    name = str(workload["compress"])
    if name == "none":
        return ""
    if workload["feedback"]:
        return f"{name} with feedback"
    return name


_KEY_WORDS: Mapping[str, Callable[[Workload], str]] = {
    "bucket": lambda w: (
        f"{format_size(w['bucket'])} buckets" if w["bucket"] else f"default {w['buckets']} buckets"
    ),
    "buckets": lambda w: f"{w['buckets']} buckets",
    "overlap": lambda w: "overlapped" if w["overlap"] else "not overlapped",
    "micro_batches": lambda w: f"{w['micro_batches']} micro-batches",
    "parallel": lambda w: w["parallel"] or "data parallel",
    "sharding": lambda w: "replicated parameters" if w["sharding"] == "none" else w["sharding"],
    "sequence_length": lambda w: (
        format_count(w["sequence_length"], "token") if w["sequence_length"] else ""
    ),
    "parameter_dtype": lambda w: (
        f"parameters in {w['parameter_dtype']}" if w["parameter_dtype"] else ""
    ),
    "activation_dtype": lambda w: (
        f"activations in {w['activation_dtype']}" if w["activation_dtype"] else ""
    ),
    "compress": lambda w: compression_text(w) or "not compressed",
    "feedback": lambda _: "",
    "compute_us": lambda w: f"{format_seconds(w['compute_us'] * 1e-6)} of computation",
}
"""The words for a value of a key; other keys are written as ``key=value``."""


@dataclass(frozen=True, slots=True)
class StepComparison:
    """The steps of one workload on the same ranks, which differ in the algorithm of their collectives."""

    key: CallKey  # the call of the step
    workload: Workload  # the workload, with defaults
    shape: str  # the nodes and ranks in words: ``4 nodes``, ``4 ranks``
    # what distinguishes the workload, and where it ran, from others of its model
    details: tuple[str, ...]
    rows: tuple[Row, ...]  # a row for each algorithm, the fastest first
    null: Row | None  # the step without communication, if it was measured
    oversubscribed: bool  # whether there were more ranks than cores

    @property
    def model(self) -> str:
        """The model, the number by which it is divided, and its compression: ``resnet50/16``, ``resnet50 in fp16``."""
        scale = self.workload["scale"]
        if scale > 1:
            name = f"{self.workload['model']}/{scale}"
        else:
            name = str(self.workload["model"])
        if self.compression:
            return f"{name} in {self.compression}"
        return name

    @property
    def compression(self) -> str:
        """How gradients are compressed: ``topk=1% with feedback``; empty if they are not."""
        return compression_text(self.workload)

    @property
    def where(self) -> str:
        """The ranks, and what distinguishes the workload from others of its model."""
        crowded = ""
        if self.oversubscribed:
            crowded = " (more ranks than cores)"
        return ", ".join((f"{self.shape}{crowded}", *self.details))

    @property
    def title(self) -> str:
        return f"{self.model} on {self.where}"

    @property
    def ranked(self) -> bool:
        """Whether one of the algorithms is the best: several were measured, and the step has collectives."""
        return len(self.rows) > 1 and self.has_collectives

    @property
    def has_collectives(self) -> bool:
        """Whether ranks run collectives: a single one has no peer, and stages of one rank only exchange messages."""
        row = self.rows[0]
        return row.exchanges_data and pipeline_stages(self.workload) < row.ranks

    @property
    def clear(self) -> bool:
        return all(clearly_faster(self.rows[0], row) for row in self.rows[1:])

    def common(self, comparison: "StepComparison | None") -> Iterator[tuple[str, Row, Row]]:
        """Yield the names of the choices that another comparison has, too, with the rows of both."""
        rows_of_other = {Choice.of(row).name: row for row in comparison.rows} if comparison else {}
        for row in self.rows:
            name = Choice.of(row).name
            if name in rows_of_other:
                yield name, row, rows_of_other[name]

    def evidence(self, busy: Collection[str]) -> Evidence:
        """Return the evidence that the first of the rows is the fastest, or faster than native.

        ``busy`` are the ids of the runs during which something else used the machine.
        """
        best, *slower_rows = self.rows
        native = next((row for row in slower_rows if Choice.of(row).is_native), None)
        beats_native = native is not None and clearly_faster(best, native)
        common_rounds = [paired_rounds(best, row) for row in slower_rows]
        compared_runs: set[str] = set()
        for rounds in common_rounds:
            compared_runs.update(run for run, _ in rounds)
        return Evidence(
            compared=int(self.ranked),
            clear=int(self.ranked and (self.clear or beats_native)),
            rounds=min(map(len, common_rounds), default=0),
            gain=_gain(native, best) if native else None,
            has_intervals=best.interval is not None,
            oversubscribed=self.oversubscribed,
            busy=not compared_runs.isdisjoint(busy),
        )


def _gain(native: Row, best: Row) -> Gain:
    ratios = []
    for key, (native_round, best_round) in paired_rounds(native, best).items():
        ratios.append((key, native_round.median / best_round.median))
    return Gain.of([(time_ratio(native, best), ratios)])


_PLACE: Mapping[str, Callable[[Row], str]] = {
    "mapping": lambda row: row.mapping or "",
    "dtype": lambda row: f"gradients in {row.dtype}",
    "variant": lambda row: row.variant or "",
    "device": lambda row: row.device or "",
}
"""The words for the fields of rows that distinguish where and with what elements a workload ran."""


def workload_namer(
    rows: Iterable[Row], without: Collection[str] = ()
) -> Callable[[Row], tuple[str, ...]]:
    """Return a function that returns, in words, what distinguishes the workload of a row from others of its model.

    ``rows`` are all rows of training steps; the keys ``without`` are left out.
    """
    values: dict[tuple[str, str], set[object]] = defaultdict(set)
    for row in rows:
        workload = call_arguments(row)
        places = {name: getattr(row, name) for name in _PLACE}
        for key, value in {**workload, **places}.items():
            if not row.floor or key not in COMPRESSION:  # null is the same for each compression
                values[workload["model"], key].add(value)

    def name(row: Row) -> tuple[str, ...]:
        workload = call_arguments(row)
        words: dict[str, None] = {}
        for key in (*workload, *_PLACE):
            is_left_out = key == "scale" or key in without
            if not is_left_out and len(values[workload["model"], key]) > 1:
                words[_key_words(key, row, workload)] = None
        return tuple(filter(None, words))

    return name


def _key_words(key: str, row: Row, workload: Workload) -> str:
    if key in _PLACE:
        return _PLACE[key](row)
    if key in _KEY_WORDS:
        return _KEY_WORDS[key](workload)
    return f"{key}={workload[key]}"


def compare_steps(rows: Iterable[Row], machines: Mapping[str, str]) -> list[StepComparison]:
    """Return the steps of each workload and shape: of each model those on most ranks with cores of their own first.

    Only rows of measured steps count. Steps on different machines are not compared; ``machines``
    names the machine of each run_id.
    """
    rows = [row for row in rows if row.usable and row.ours and is_workload(row.collective)]
    has_several_machines = len({machines.get(row.run_id) for row in rows}) > 1
    details = workload_namer(rows, without=COMPRESSION)  # they are named with the model
    by_call: dict[CallKey, list[Row]] = defaultdict(list)
    for row in rows:
        key = CallKey.of(row, machines.get(row.run_id, ""))
        by_call[key.without("op", "in_place", "aggregators", "executor")].append(row)
    nulls: dict[CallKey, list[Row]] = defaultdict(list)
    for key, members in by_call.items():
        nulls[key.uncompressed] += (row for row in members if row.floor)
    comparisons = []
    for key, members in by_call.items():
        best = _best_of_each_choice(members)
        if not best:
            continue
        first = members[0]
        words = details(first)
        if has_several_machines:
            words = (*words, machines.get(first.run_id, "unknown machine"))
        comparison = StepComparison(
            key=key,
            workload=call_arguments(first),
            shape=Setting.of(first).shape_label,
            details=words,
            rows=tuple(best),
            null=closest_null(best[0], nulls[key.uncompressed]),
            oversubscribed=first.oversubscribed,
        )
        comparisons.append(comparison)
    models = list(dict.fromkeys(comparison.workload["model"] for comparison in comparisons))

    def order(comparison: StepComparison) -> tuple[object, ...]:
        row = comparison.rows[0]
        workload = comparison.workload
        position = models.index(workload["model"])
        values = [value if isinstance(value, int) else 0 for value in workload.values()]
        shape = comparison.oversubscribed, -row.nodes, -row.ranks
        return position, *shape, not workload["overlap"], comparison.compression, *values

    return sorted(comparisons, key=order)


def _best_of_each_choice(rows: Iterable[Row]) -> list[Row]:
    """Return the fastest row of each choice with communication, the fastest first."""
    best: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.median_s or 0.0):
        if not row.floor:
            best.setdefault(Choice.of(row).name, row)
    return list(best.values())


def product_findings(
    compared: Sequence[StepComparison], times_of: Callable[[RowKey], StepTimes | None]
) -> Iterator[Finding]:
    """Yield a warning if computations that are to be products of matrices are too small for one.

    It names the workload with the largest share of them. Each pipeline stage counts once.
    """
    products: list[tuple[int, int, StepComparison]] = []
    for step in compared:
        times = times_of(step.rows[0].key)
        programs = times.programs if times else ()
        too_small = sum(program.without_product for program in programs)
        if too_small:
            products.append((too_small, sum(len(program.phases) for program in programs), step))
    if not products:
        return
    too_small, computations, step = max(products, key=lambda counts: counts[0] / counts[1])
    text = (
        f"{too_small} of {format_count(computations, 'computation')} are too small for a product of matrices, and take "
        f"no time{worst_of(step, len(products), len(compared))}."
    )
    yield warning(
        "no_product",
        text,
        title="Computations without products",
        remedy="What overlaps with them is exposed. Take more samples, or a smaller scale.",
        none=too_small,
        computations=computations,
        workloads=len(products),
        of=len(compared),
    )


@dataclass(frozen=True, slots=True)
class _Lag:
    """A row of a step in which a rank is late."""

    seconds: float
    ranks: Sequence[tuple[str, int]]  # all late ranks of the row: name and number
    row: Row
    step: StepComparison


def late_findings(
    compared: Sequence[StepComparison], names: Mapping[RowKey, Callable[[int], str]]
) -> Iterator[Finding]:
    """Yield each late rank with the step of its largest lag, the largest first; those of one step are named together.

    ``names`` has what names the ranks of a row; other rows have numbers.
    """
    lags_of_rank: dict[tuple[str, int], list[_Lag]] = defaultdict(list)
    for step in compared:
        for row in step.rows:
            name_of = names.get(row.key, "rank {}".format)
            ranks = [(name_of(rank), rank) for rank in row.late_ranks]
            for rank in ranks:
                lags_of_rank[rank].append(_Lag(row.last_s or 0.0, ranks, row, step))
    named: set[tuple[str, int]] = set()
    largest_first = sorted(
        lags_of_rank.items(), key=lambda item: -max(lag.seconds for lag in item[1])
    )
    for rank, lags in largest_first:
        if rank not in named:
            largest = max(lags, key=lambda lag: lag.seconds)
            named.update(largest.ranks)
            steps = len({id(lag.step) for lag in lags})
            yield _late_finding(largest, steps, len(compared))


def _late_finding(lag: _Lag, steps: int, compared_steps: int) -> Finding:
    row = lag.row
    step = lag.step
    names = []
    for name, rank in lag.ranks:
        names.append(name if f"rank {rank}" in name else f"{name} (rank {rank})")
    later = format_seconds(row.last_s or 0.0)
    waiting = format_seconds(row.waiting_s or 0.0)
    transfer = format_seconds(row.transfer_s or 0.0)
    share = format_per_cent(row.last_share or 0.0)
    text = (
        f"{are_late_words(names)}{worst_of(step, steps, compared_steps)}, {Choice.of(row).name}. In a step {names[0]} "
        f"takes {later} longer than the median of the others, and is the latest in {share} of the steps; ranks wait up "
        f"to {waiting}, and the transfer is {transfer}."
    )
    causes = "other programs on its host"
    if step.workload["compute"] != "wait":
        causes += ", a low clock, a hot device"
    first_name, first_rank = lag.ranks[0]
    return warning(
        "late_rank",
        text,
        title="Late rank",
        remedy=f"A late rank comes late to collectives by itself: look for {causes}.",
        rank=first_rank,
        name=first_name,
        ranks=row.late_ranks,
        share=row.last_share,
        lag=row.last_s,
        waiting=row.waiting_s,
        transfer=row.transfer_s,
        workloads=steps,
        of=compared_steps,
    )


def worst_of(step: StepComparison, workloads: int, total: int) -> str:
    """Return the end of a sentence about ``workloads`` of all ``total`` workloads: it names the worst, ``step``."""
    if workloads > 1:
        return f" in {workloads} of {format_count(total, 'workload')}, most of all {step.title}"
    return f": {step.title}"


def pipeline_stages(workload: Workload) -> int:
    """Return the stages of the pipeline of a workload."""
    stages = re.search(r"\bpp=(\d+)", workload["parallel"])
    return int(stages[1]) if stages else 1


def bucket_of(row: Row) -> int:
    """Return the limit of buckets of a row, of the unscaled model in bytes; 0: the default of the rule."""
    return int(call_arguments(row)["bucket"])
