"""Training steps of one workload, which differ in the algorithm of their collectives."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpccoll.analysis.round_comparison import clearly_faster, paired_rounds, time_ratio
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.analysis.strength import Evidence, Gain
from hpccoll.cases.algorithm_registry import WORKLOADS
from hpccoll.common.text import Finding, first_few, join_words, warning
from hpccoll.common.units import format_count, format_per_cent, format_seconds, format_size
from hpccoll.store.call_key import CallKey, call_arguments
from hpccoll.store.load_results import closest_null
from hpccoll.store.rows import Row, RowKey
from hpccoll.store.step_times import StepTimes
from hpccoll.store.step_waiting import is_lag

Workload = Mapping[str, Any]

COMPRESSION = "compress", "feedback"
"""The keys of a workload that say how gradients are compressed."""


def compression_text(workload: Workload) -> str:
    """Return how the gradients of a workload are compressed; an empty text if they are not."""
    name = workload["compress"]
    return "" if name == "none" else f"{name} with feedback" if workload["feedback"] else str(name)


_KEY_WORDS: Mapping[str, Callable[[Workload], str]] = {
    "bucket": lambda w: f"{format_size(w['bucket'])} buckets" if w["bucket"] else f"default {w['buckets']} buckets",
    "buckets": lambda w: f"{w['buckets']} buckets",
    "overlap": lambda w: "overlapped" if w["overlap"] else "not overlapped",
    "micro_batches": lambda w: f"{w['micro_batches']} micro-batches",
    "parallel": lambda w: w["parallel"] or "data parallel",
    "sharding": lambda w: "replicated parameters" if w["sharding"] == "none" else w["sharding"],
    "sequence_length": lambda w: format_count(w["sequence_length"], "token") if w["sequence_length"] else "",
    "parameter_dtype": lambda w: f"parameters in {w['parameter_dtype']}" if w["parameter_dtype"] else "",
    "activation_dtype": lambda w: f"activations in {w['activation_dtype']}" if w["activation_dtype"] else "",
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
    details: tuple[str, ...]  # what distinguishes the workload, and where it ran, from others of its model
    rows: tuple[Row, ...]  # a row for each algorithm, the fastest first
    null: Row | None  # the step without communication, if it was measured
    oversubscribed: bool  # whether there were more ranks than cores

    @property
    def model(self) -> str:
        """The model, the number by which it is divided, and its compression: ``resnet50/16``, ``resnet50 in fp16``."""
        scale = self.workload["scale"]
        name = f"{self.workload['model']}/{scale}" if scale > 1 else str(self.workload["model"])
        return f"{name} in {self.compression}" if self.compression else name

    @property
    def compression(self) -> str:
        """How gradients are compressed: ``topk=1% with feedback``; empty if they are not."""
        return compression_text(self.workload)

    @property
    def where(self) -> str:
        """The ranks, and what distinguishes the workload from others of its model."""
        crowded = " (more ranks than cores)" if self.oversubscribed else ""
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
        return all(clearly_faster(self.rows[0], other) for other in self.rows[1:])

    def common(self, other: "StepComparison | None") -> Iterator[tuple[str, Row, Row]]:
        """Yield the names of the choices that another comparison has, too, with the rows of both."""
        others = {Choice.of(row).name: row for row in other.rows} if other else {}
        rows = ((Choice.of(row).name, row) for row in self.rows)
        return ((name, row, others[name]) for name, row in rows if name in others)

    def evidence(self, busy: Collection[str]) -> Evidence:
        """Return the evidence that the first of the rows is the fastest, or faster than native.

        ``busy`` are the ids of the runs during which something else used the machine.
        """
        best, *others = self.rows
        native = next((row for row in others if Choice.of(row).is_native), None)
        is_clear = self.ranked and (self.clear or bool(native and clearly_faster(best, native)))
        common = [paired_rounds(best, other) for other in others]
        return Evidence(
            compared=int(self.ranked),
            clear=int(is_clear),
            rounds=min(map(len, common), default=0),
            gain=_gain(native, best) if native else None,
            has_intervals=best.interval is not None,
            oversubscribed=self.oversubscribed,
            busy=any(run in busy for rounds in common for run, _ in rounds),
        )


def _gain(native: Row, best: Row) -> Gain:
    rounds = paired_rounds(native, best).items()
    return Gain.of([(time_ratio(native, best), [(key, one.median / other.median) for key, (one, other) in rounds])])


_PLACE: Mapping[str, Callable[[Row], str]] = {
    "mapping": lambda row: row.mapping or "",
    "dtype": lambda row: f"gradients in {row.dtype}",
    "variant": lambda row: row.variant or "",
    "device": lambda row: row.device or "",
}
"""The words for the fields of rows that distinguish where and with what elements a workload ran."""


def workload_namer(rows: Iterable[Row], without: Collection[str] = ()) -> Callable[[Row], tuple[str, ...]]:
    """Return a function that returns, in words, what distinguishes the workload of a row from others of its model.

    ``rows`` are all rows of training steps; the keys ``without`` are left out.
    """
    values: dict[tuple[str, str], set[object]] = defaultdict(set)
    for row in rows:
        workload = call_arguments(row)
        for key, value in {**workload, **{name: getattr(row, name) for name in _PLACE}}.items():
            if not row.floor or key not in COMPRESSION:  # null is no other one for each compression
                values[workload["model"], key].add(value)

    def name(row: Row) -> tuple[str, ...]:
        workload = call_arguments(row)
        differing = [key for key in (*workload, *_PLACE) if len(values[workload["model"], key]) > 1]
        words = (
            _PLACE[key](row) if key in _PLACE else _KEY_WORDS.get(key, lambda w, key=key: f"{key}={w[key]}")(workload)
            for key in differing
            if key not in ("scale", *without)
        )
        return tuple(dict.fromkeys(filter(None, words)))

    return name


def compare_steps(rows: Iterable[Row], machines: Mapping[str, str]) -> list[StepComparison]:
    """Return the steps of each workload and shape: of each model those on most ranks with cores of their own first.

    Only rows of measured steps count. Steps of several machines, which ``machines`` names by run_id, are not compared.
    """
    rows = [row for row in rows if row.usable and row.ours and row.collective in WORKLOADS]
    several_machines = len({machines.get(row.run_id) for row in rows}) > 1
    details = workload_namer(rows, without=COMPRESSION)  # they are named with the model
    grouped: dict[CallKey, list[Row]] = defaultdict(list)
    for row in rows:
        key = CallKey.of(row, machines.get(row.run_id, ""))
        grouped[key.without("op", "in_place", "aggregators", "executor")].append(row)
    nulls: dict[CallKey, list[Row]] = defaultdict(list)
    for key, of in grouped.items():
        nulls[key.uncompressed] += (row for row in of if row.floor)
    made = []
    for key, members in grouped.items():
        first = members[0]
        best: dict[str, Row] = {}
        for row in sorted(members, key=lambda row: row.median_s or 0.0):
            if not row.floor:
                best.setdefault(Choice.of(row).name, row)
        if best:
            null = closest_null(next(iter(best.values())), nulls[key.uncompressed])
            words = (*details(first), *[machines.get(first.run_id, "unknown machine")] * several_machines)
            about = key, call_arguments(first), Setting.of(first).shape_label, words
            made.append(StepComparison(*about, (*best.values(),), null, first.oversubscribed))
    models = list(dict.fromkeys(each.workload["model"] for each in made))

    def order(each: StepComparison) -> tuple[object, ...]:
        first = each.rows[0]
        position = models.index(each.workload["model"])
        keys = (value if isinstance(value, int) else 0 for value in each.workload.values())
        late, compression = not each.workload["overlap"], each.compression
        return position, each.oversubscribed, -first.nodes, -first.ranks, late, compression, *keys

    return sorted(made, key=order)


def product_findings(
    compared: Sequence[StepComparison], times_of: Callable[[RowKey], StepTimes | None]
) -> Iterator[Finding]:
    """Yield a warning if computations that are to be products of matrices are too small for one.

    It names the workload with the largest share of them. Each pipeline stage counts once.
    """
    programs = [(times.programs, each) for each in compared if (times := times_of(each.rows[0].key))]
    found = [
        (none, sum(len(program.phases) for program in of_step), each)
        for of_step, each in programs
        if (none := sum(program.without_product for program in of_step))
    ]
    if not found:
        return
    none, computations, step = max(found, key=lambda each: each[0] / each[1])
    text = (
        f"{none} of {format_count(computations, 'computation')} are too small for a product of matrices, and take no "
        f"time{worst_of(step, len(found), len(compared))}."
    )
    yield warning(
        "no_product", text, title="Computations without products",
        remedy="What overlaps with them is exposed. Take more samples, or a smaller scale.",
        none=none, computations=computations, workloads=len(found), of=len(compared),
    )  # fmt: skip


def late_findings(
    compared: Sequence[StepComparison], names: Mapping[RowKey, Callable[[int], str]]
) -> Iterator[Finding]:
    """Yield each late rank with the step of its largest lag, the largest first; those of one step are named together.

    ``names`` has what names the ranks of a row; other rows have numbers.
    """
    found: dict[tuple[str, int], list[tuple[float, list[tuple[str, int]], Row, StepComparison]]] = defaultdict(list)
    for each in compared:
        for row in each.rows:
            ranks = [(names.get(row.key, "rank {}".format)(rank), rank) for rank in row.late_ranks]
            for one in ranks:
                found[one].append((row.last_s or 0.0, ranks, row, each))
    named = set[tuple[str, int]]()
    for one, late in sorted(found.items(), key=lambda one: -max(lag for lag, *_ in one[1])):
        if one in named:
            continue
        _, ranks, row, step = max(late, key=lambda one: one[0])
        named.update(ranks)
        who = [name if f"rank {rank}" in name else f"{name} (rank {rank})" for name, rank in ranks]
        others = len({id(each) for *_, each in late})
        lag, waiting, transfer = (format_seconds(each or 0.0) for each in (row.last_s, row.waiting_s, row.transfer_s))
        text = (
            f"{_are_late(who)}{worst_of(step, others, len(compared))}, {Choice.of(row).name}. In a step {who[0]} takes "
            f"{lag} longer than the median of the others, and is the latest in "
            f"{format_per_cent(row.last_share or 0.0)} of the steps; ranks wait up to {waiting}, and the transfer is "
            f"{transfer}."
        )
        yield warning(
            "late_rank", text, title="Late rank",
            remedy="A late rank comes late to collectives by itself: look for other programs on its host"
            + ("." if step.workload["compute"] == "wait" else ", a low clock, a hot device."),
            rank=ranks[0][1], name=ranks[0][0], ranks=row.late_ranks, share=row.last_share, lag=row.last_s,
            waiting=row.waiting_s, transfer=row.transfer_s, workloads=others, of=len(compared),
        )  # fmt: skip


def late_words(row: Row) -> str:
    """Return which ranks of a training step are late; empty if that is not known."""
    if row.late_ranks:
        return _are_late([f"rank {rank}" for rank in row.late_ranks])
    if row.last_share is None:
        return ""
    return "which rank is late is not clear" if is_lag(row.last_s, row.median_s) else "no rank is late"


def _are_late(names: Sequence[str]) -> str:
    return f"{join_words(first_few(names, 3, 'rank'))} {'are' if len(names) > 1 else 'is'} late"


def worst_of(each: StepComparison, workloads: int, of: int) -> str:
    """Return the end of a sentence about a workload, which is the worst of several."""
    several = f" in {workloads} of {format_count(of, 'workload')}, most of all " if workloads > 1 else ": "
    return several + each.title


def pipeline_stages(workload: Workload) -> int:
    """Return the stages of the pipeline of a workload."""
    found = re.search(r"\bpp=(\d+)", workload["parallel"])
    return int(found[1]) if found else 1


def bucket_of(row: Row) -> int:
    """Return the limit of buckets of a row, of the unscaled model in bytes; 0: the default of the rule."""
    return int(call_arguments(row)["bucket"])
