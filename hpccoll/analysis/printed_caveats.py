"""Why a number that another program printed cannot be held against an expectation: from what its output says itself."""

import json
from collections.abc import Iterator, Mapping

from hpccoll.common.units import format_factor
from hpccoll.store.rows import Row

LARGE = 1 << 30
"""The size in bytes from which on the cost of starting an operation does not count."""

WARMUP = "warmup iters"
ITERATIONS = "iters"
AGGREGATED_OPERATIONS = "agg iters"
CHECKED = "validation"
"""Fields of the header of nccl-tests, which imported results keep among their columns."""

_REPETITIONS = ITERATIONS, "Iterations", "#repetitions"
"""The columns that count the operations of a time: of nccl-tests, OSU (option -f) and IMB."""

_SLOWEST = {
    "Avg Latency(us)": "Max Latency(us)",
    "Pure Comm.(us)": "Max Comm.(us)",
    "t_avg[usec]": "t_max[usec]",
}
"""The columns of OSU and IMB whose number is the mean over ranks, with those of the slowest rank."""
_NEAR_MEAN = 1.05
"""The time of the slowest rank over the mean, up to which the mean stands for it."""

_RANKS = {0: "rank 0 (-a 0)", 2: "the fastest rank (-a 2)"}
"""Whose time option -a of nccl-tests prints, where it is neither the mean nor that of the slowest rank."""
_COSTS_OF_START = "agg_iters", "average", "blocking", "graph", "stream_null"
"""Options of nccl-tests that change what starting an operation costs, and not the operation."""


def unreliable(cells: Mapping[str, str]) -> Iterator[str]:
    """Yield why the time of a result, from its columns as printed, is that of no operation in a steady state."""
    if cells.get(WARMUP) == "0":
        yield "it has no warm-up (-w 0)"
    if (
        any(cells.get(name) == "1" for name in _REPETITIONS)
        and cells.get(AGGREGATED_OPERATIONS, "1") == "1"
    ):
        yield "it is the time of a single operation"


def caveats_of(row: Row, *, alike: bool = False) -> list[str]:
    """Return why a row cannot be judged, each as a sentence without its end; none for what hpccoll measured itself.

    ``alike`` says that it is held against results of the same program with the same options.
    """
    outputs = json.loads(row.reported) if row.reported else []
    caveats: list[str] = []
    for cells in outputs:
        caveats += unreliable(cells)
    if not alike:
        for cells in outputs:
            caveats += _of_some_rank(cells)
        caveats += _of_options(row)
    return list(dict.fromkeys(caveats))


def _of_some_rank(cells: Mapping[str, str]) -> Iterator[str]:
    """Yield what a mean over ranks hides: an operation ends at its slowest rank."""
    mean = next((name for name in _SLOWEST if name in cells), None)
    if mean is None:
        return
    slowest = cells.get(_SLOWEST[mean])
    if slowest is None:
        yield f"{mean} is the mean over ranks, and no column has the slowest (OSU: -f)"
    elif (factor := float(slowest) / float(cells[mean])) > _NEAR_MEAN:
        yield f"{mean} is the mean over ranks, and the slowest took {format_factor(factor)} as long"


def _of_options(row: Row) -> Iterator[str]:
    if not row.imported:
        return
    options = {name: value for name, value in row.params.items() if name != "call"}
    ranks = _RANKS.get(int(options.get("average", 1)))
    if ranks is not None:
        yield f"it is the time of {ranks}"
    options_text = []
    for name, value in options.items():
        if row.bytes < LARGE or name not in _COSTS_OF_START:
            options_text.append(f"{name}={value}")
    if options_text:
        yield f"it has options that hpccoll does not know: {', '.join(options_text)}"
