"""Names of series, settings and files, from the coordinates in which rows differ."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from hpccoll.analysis.row_labels import (
    concurrent_label,
    has_size,
    requested_note,
    tier_label,
    traffic_pattern,
)
from hpccoll.analysis.setting import Choice
from hpccoll.cases.algorithm_registry import is_workload
from hpccoll.cases.case import COMPILED, IDLE, PYTHON
from hpccoll.common.units import format_count
from hpccoll.schedule.collective import AUTO, NATIVE
from hpccoll.store.call_key import CallKey, call_arguments, root_rank
from hpccoll.store.rows import Row

_ELEMENT_FIELDS = ("dtype", "op")
"""Fields without a meaning for collectives that move no elements."""
_LABELLED = *_ELEMENT_FIELDS, "device", "mapping", "timing", "rule"
"""The fields of calls that name a setting."""
_EXECUTOR_MARKS = {COMPILED: "", PYTHON: "(python)"}
_SERIES_DETAILS: Mapping[str, Callable[[Row], str | None]] = {
    "executor": lambda row: _EXECUTOR_MARKS.get(row.executor or ""),
    "transport": lambda row: row.transport,
    "variant": lambda row: row.variant or "",
    "params": lambda row: " ".join(f"{name}={value}" for name, value in Choice.of(row).params),
    "mapping": lambda row: row.mapping,
    "tier": tier_label,
}
"""What may be part of the name of a series, by the field of the row; None if the row has no such detail."""


def series_namer(rows: Iterable[Row]) -> Callable[[Row], str]:
    """Return a function that names the series of a row: its algorithm, what ran instead, and what differs.

    If a collective has several transports, all of its algorithms that move bytes are named with theirs. If both
    executors measured buffers of one device, all rows of the Python executor are marked.
    """
    seen: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        for field, describe in _SERIES_DETAILS.items():
            if (detail := describe(row)) is not None:
                seen[_compared_with(row, field)].add(detail)

    def name(row: Row) -> str:
        differing = (field for field in _SERIES_DETAILS if len(seen[_compared_with(row, field)]) > 1)
        details = (_SERIES_DETAILS[field](row) for field in differing)
        return " ".join(filter(None, (row.algorithm, requested_note(row), *details))) + (
            " (floor)" if row.floor else ""
        )

    return name


def _compared_with(row: Row, field: str) -> tuple[str, ...]:
    """Return the key of the rows among which ``field`` has to differ to be part of the name of ``row``."""
    if field == "executor":
        return row.device, field
    moves = not row.floor and row.algorithm not in (NATIVE, AUTO)
    return row.collective, "any that moves bytes" if field == "transport" and moves else row.algorithm, field


def imported_name(row: Row, library: str = "") -> str:
    """Return the name of the series of another program: ``osu MPI_Iallreduce (single)``, with a library if given."""
    how = ", ".join(filter(None, (row.timing, library)))
    return f"{row.source} {call_label(row.params) or row.algorithm} ({how})"


def call_label(params: Mapping[str, object]) -> str:
    """Return what another program called, and with which options: ``MPI_Iallreduce``, ``graph=1``; or empty."""
    return ", ".join(str(value) if name == "call" else f"{name}={value}" for name, value in params.items())


def setting_keys(rows: Iterable[Row], *, loosely: bool = False) -> list[tuple[str, ...]]:
    """Return the key of the setting of each row: its collective, and the labels of its setting.

    Only the foremost rows of a collective matter for labels (see ``OfKind.precedence``): others join their settings.
    Keys that compare ``loosely`` leave out how operations were timed, and types of elements that nothing reduces.
    """
    rows = list(rows)
    by_collective: dict[str, list[Row]] = defaultdict(list)
    foremost = {row.collective: row.precedence for row in sorted(rows, key=lambda row: -row.precedence)}
    for row in rows:
        if row.precedence == foremost[row.collective]:
            by_collective[row.collective].append(row)
    shape_labels = {collective: _shape_labels(members) for collective, members in by_collective.items()}
    mappings = {collective: {row.mapping for row in members} for collective, members in by_collective.items()}
    rooted = {row.collective for row in rows if root_rank(row)}
    loaded = {row.collective for row in rows if row.load}

    def key(row: Row) -> tuple[str, ...]:
        pattern, root = traffic_pattern(row), root_rank(row)
        load = IDLE if row.collective in loaded else ""
        call = (
            str(call_arguments(row)["model"]) if is_workload(row.collective) else "",
            f"traffic {pattern}" if pattern else "",
            concurrent_label(row),
            f"load {row.load}" if row.load else load,
            f"root {root}" if row.collective in rooted else "",
        )
        moves = has_size(row.collective) or is_workload(row.collective)
        silent: tuple[str, ...] = () if moves else _ELEMENT_FIELDS
        if loosely:
            silent = (*silent, "timing", "rule", *(_ELEMENT_FIELDS if row.op is None else ()))
        if len(mappings[row.collective]) > 1:
            silent = (*silent, "mapping")  # series are named after it, because mappings are compared
        words = zip(_LABELLED, CallKey.of(row).words(*_LABELLED), strict=True)
        labels = ["" if name in silent else word for name, word in words]
        return (row.collective, *call, *labels, *shape_labels[row.collective](row))

    return [*map(key, rows)]


def _shape_labels(rows: Sequence[Row]) -> Callable[[Row], tuple[str, str]]:
    """Return a function from a row of one collective to the labels of its aggregators and ranks per node."""
    shapes = {CallKey.of(row).only("ranks", "nodes", "ranks_per_node") for row in rows}
    per_node = {shape.ranks_per_node for shape in shapes}
    # A setting names the ranks per node if equal ranks are on few nodes and many, or if all nodes are alike.
    spread = len({shape.ranks for shape in shapes}) < len(shapes) or (
        len(per_node) == 1 and any((shape.nodes or 1) > 1 for shape in shapes)
    )
    aggregator_counts: dict[CallKey, set[int]] = defaultdict(set)
    for row in rows:
        aggregator_counts[CallKey.of(row).only("ranks", "nodes")].add(row.aggregators)
    counts = set().union(*aggregator_counts.values())
    show_aggregators = counts != {0} and (
        len(counts) == 1 or any(len(numbers) > 1 for numbers in aggregator_counts.values())
    )
    show_number = len(counts - {0}) == 1 or any(len(numbers - {0}) > 1 for numbers in aggregator_counts.values())

    def labels(row: Row) -> tuple[str, str]:
        # Idle aggregators take no time: rows of other kinds without any join the measured rows with the fewest.
        number = row.aggregators or (0 if row.ours else min(counts))
        exact = format_count(number, "aggregator") if show_number else "aggregators"
        aggregators = exact if number else "no aggregators"
        each = f"{format_count(row.ranks_per_node or 'unequal', 'rank')} per node"
        return aggregators if show_aggregators else "", each if spread else ""

    return labels


def group_file_names(keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return a file name for each key: the collective, and the labels in which its groups differ."""
    names: dict[tuple[str, ...], str] = {}
    uses: Counter[str] = Counter()
    words_at = defaultdict[tuple[str, int], set[str]](set)  # the words of a collective at each place of its keys
    for key in keys:
        for place, word in enumerate(key):
            words_at[key[0], place].add(word)
    for key in keys:
        differing = [word for place, word in enumerate(key) if place and len(words_at[key[0], place]) > 1]
        name = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in (key[0], *filter(None, differing)))
        uses[name] += 1
        names[key] = name if uses[name] == 1 else f"{name}-{uses[name]}"
    return names
