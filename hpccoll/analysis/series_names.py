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
from hpccoll.store.rows import PICO, Row

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

    If a collective has several transports, all of its algorithms that move bytes are named with
    theirs. If both executors measured buffers of one device, all rows of the Python executor are
    marked.
    """
    seen: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        for field, describe in _SERIES_DETAILS.items():
            detail = describe(row)
            if detail is not None:
                seen[_compared_with(row, field)].add(detail)

    def name(row: Row) -> str:
        words = [row.algorithm, requested_note(row)]
        for field, describe in _SERIES_DETAILS.items():
            if len(seen[_compared_with(row, field)]) > 1:
                words.append(describe(row) or "")
        if row.floor:
            words.append("(floor)")
        return " ".join(filter(None, words))

    return name


def _compared_with(row: Row, field: str) -> tuple[str, ...]:
    """Return the key of the rows among which ``field`` has to differ to be part of the name of ``row``."""
    if field == "executor":
        return row.device, field
    moves = not row.floor and row.algorithm not in (NATIVE, AUTO)
    if field == "transport" and moves:
        return row.collective, "any that moves bytes", field
    return row.collective, row.algorithm, field


def imported_name(row: Row, library: str = "", machine: str = "") -> str:
    """Return the name of the series of another program, with the library and the machine if given.

    For example ``osu MPI_Iallreduce (single)``.
    """
    where = tuple(filter(None, (library, machine)))
    if row.source == PICO:
        return _pico_name(row, where)
    call = call_label(row.params) or row.algorithm
    return f"{row.source} {call} ({', '.join((row.timing, *where))})"


def _pico_name(row: Row, where: Sequence[str]) -> str:
    """Return PICO's own name of an algorithm, with its segment and ports, and where it ran if given."""
    params = dict(row.params)
    for name in ("call", "scatter", "gather"):  # the name says them
        params.pop(name, None)
    words = [str(params.pop("implementation", row.algorithm))]
    words += [f"{name}={value}" for name, value in params.items()]
    if where:
        words.append(f"({', '.join(where)})")
    return " ".join(words)


def call_label(params: Mapping[str, object]) -> str:
    """Return what another program called, and with which options: ``MPI_Iallreduce``, ``graph=1``; or empty."""
    words = []
    for name, value in params.items():
        words.append(str(value) if name == "call" else f"{name}={value}")
    return ", ".join(words)


def setting_keys(rows: Iterable[Row], *, loosely: bool = False) -> list[tuple[str, ...]]:
    """Return the key of the setting of each row: its collective, and the labels of its setting.

    Only the foremost rows of a collective matter for labels (see ``OfKind.precedence``): others
    join their settings. Keys that compare ``loosely`` leave out how operations were timed, and
    types of elements that nothing reduces.
    """
    rows = list(rows)
    shape_labels: dict[str, Callable[[Row], tuple[str, str]]] = {}
    mappings: dict[str, set[str]] = {}
    for collective, foremost in _foremost_rows(rows).items():
        shape_labels[collective] = _shape_labels(foremost)
        mappings[collective] = {row.mapping for row in foremost}
    rooted = {row.collective for row in rows if root_rank(row)}
    loaded = {row.collective for row in rows if row.load}

    def key(row: Row) -> tuple[str, ...]:
        call = _call_labels(
            row, names_root=row.collective in rooted, names_load=row.collective in loaded
        )
        silent = _silent_fields(row, loosely=loosely)
        if len(mappings[row.collective]) > 1:
            silent.add("mapping")  # series are named after it, because mappings are compared
        words = zip(_LABELLED, CallKey.of(row).words(*_LABELLED), strict=True)
        labels = ["" if name in silent else word for name, word in words]
        return (row.collective, *call, *labels, *shape_labels[row.collective](row))

    return list(map(key, rows))


def _foremost_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each collective that have the lowest precedence of all of its rows."""
    precedence: dict[str, int] = {}
    for row in rows:
        precedence[row.collective] = min(
            precedence.get(row.collective, row.precedence), row.precedence
        )
    foremost: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.precedence == precedence[row.collective]:
            foremost[row.collective].append(row)
    return foremost


def _call_labels(row: Row, *, names_root: bool, names_load: bool) -> tuple[str, ...]:
    """Return the arguments of a call in words, each at its place; an empty text stands for a default."""
    model = str(call_arguments(row)["model"]) if is_workload(row.collective) else ""
    pattern = traffic_pattern(row)
    traffic = f"traffic {pattern}" if pattern else ""
    load = IDLE if names_load else ""
    if row.load:
        load = f"load {row.load}"
    root = f"root {root_rank(row)}" if names_root else ""
    return model, traffic, concurrent_label(row), load, root


def _silent_fields(row: Row, *, loosely: bool) -> set[str]:
    """Return the fields that the setting of a row leaves out, because they have no meaning for it."""
    silent: set[str] = set()
    moves_elements = has_size(row.collective) or is_workload(row.collective)
    if not moves_elements:
        silent.update(_ELEMENT_FIELDS)
    if loosely:
        silent.update(("timing", "rule"))
    if loosely and row.op is None:
        silent.update(_ELEMENT_FIELDS)
    return silent


def _shape_labels(rows: Sequence[Row]) -> Callable[[Row], tuple[str, str]]:
    """Return a function from a row of one collective to the labels of its aggregators and ranks per node."""
    names_ranks_per_node = _names_ranks_per_node(rows)
    counts_of_shape: dict[CallKey, set[int]] = defaultdict(set)
    for row in rows:
        counts_of_shape[CallKey.of(row).only("ranks", "nodes")].add(row.aggregators)
    counts: set[int] = set().union(*counts_of_shape.values())
    differ_on_a_shape = any(len(numbers) > 1 for numbers in counts_of_shape.values())
    names_aggregators = counts != {0} and (len(counts) == 1 or differ_on_a_shape)
    positive_counts_differ = any(len(numbers - {0}) > 1 for numbers in counts_of_shape.values())
    names_number = len(counts - {0}) == 1 or positive_counts_differ

    def aggregator_label(row: Row) -> str:
        # Idle aggregators take no time: rows of other kinds without any join the measured rows with
        # the fewest.
        number = row.aggregators or (0 if row.ours else min(counts))
        if not number:
            return "no aggregators"
        return format_count(number, "aggregator") if names_number else "aggregators"

    def labels(row: Row) -> tuple[str, str]:
        aggregators = ranks = ""
        if names_aggregators:
            aggregators = aggregator_label(row)
        if names_ranks_per_node:
            ranks = f"{format_count(row.ranks_per_node or 'unequal', 'rank')} per node"
        return aggregators, ranks

    return labels


def _names_ranks_per_node(rows: Sequence[Row]) -> bool:
    """Return whether a setting names the ranks per node: equal ranks are on few nodes and many, or all are alike."""
    shapes = {CallKey.of(row).only("ranks", "nodes", "ranks_per_node") for row in rows}
    if len({shape.ranks for shape in shapes}) < len(shapes):
        return True
    spans_nodes = any((shape.nodes or 1) > 1 for shape in shapes)
    return spans_nodes and len({shape.ranks_per_node for shape in shapes}) == 1


def group_file_names(keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return a file name for each key: the collective, and the labels in which its groups differ."""
    names: dict[tuple[str, ...], str] = {}
    uses: Counter[str] = Counter()
    # the words of a collective at each place of its keys
    words_at = defaultdict[tuple[str, int], set[str]](set)
    for key in keys:
        for place, word in enumerate(key):
            words_at[key[0], place].add(word)
    for key in keys:
        collective, *labels = key
        words = [collective]
        for place, word in enumerate(labels, 1):
            if word and len(words_at[collective, place]) > 1:
                words.append(word)
        name = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in words)
        uses[name] += 1
        names[key] = name if uses[name] == 1 else f"{name}-{uses[name]}"
    return names
