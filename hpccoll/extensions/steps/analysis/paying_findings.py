"""From which rate of the network downward compression pays, by measured training steps with and without it."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from hpccoll.analysis.wire_bandwidth import Wire
from hpccoll.common.text import Finding, info
from hpccoll.extensions.steps.analysis.paying_rate import PayingRate, paying_factor
from hpccoll.extensions.steps.analysis.step_comparison import StepComparison
from hpccoll.extensions.steps.results.step_times import StepTimes
from hpccoll.store.rows import Row, RowKey

CODEC = "codec"


def paying_findings(
    compared: Sequence[StepComparison],
    steps: Mapping[RowKey, StepTimes | None],
    wires: Mapping[RowKey, Wire],
) -> Iterator[Finding]:
    """Yield below which rate of a link each compression pays, by workload and algorithm."""
    dense = {step.key.uncompressed: step for step in compared if not step.compression}
    rates_of_call: dict[str, list[tuple[str, PayingRate]]] = defaultdict(list)
    for step in compared:
        uncompressed = dense.get(step.key.uncompressed)
        if not step.compression or not uncompressed:
            continue
        for name, row, before in step.common(uncompressed):
            rate = _paying_rate(before, row, steps, wires[row.key])
            if rate:
                rates_of_call[f"{uncompressed.title}, {name}"].append((step.compression, rate))
    for where, rates in rates_of_call.items():
        text = "; ".join(f"{compression} {rate.text}" for compression, rate in rates)
        yield info(
            "paying_rate",
            f"{where}: {text}.",
            title="Where compression pays",
            remedy="The rates are those at which wires are set, headers included: on slower ones the compressed "
            "step is shorter. Collectives take longer there in proportion, codecs and computations do not. Intervals "
            "are those of the measured steps.",
            rates=tuple({"compress": compression, **rate._asdict()} for compression, rate in rates),
        )


def _paying_rate(
    before: Row, row: Row, steps: Mapping[RowKey, StepTimes | None], wire: Wire
) -> PayingRate | None:
    """Return the rates below which a step takes less than the one before; None if a time or the wire is unknown."""
    link = wire.line_rate or wire.port_rate
    dense = _timed(before, steps.get(before.key))
    compressed = _timed(row, steps.get(row.key))
    if link is None or row.nodes < 2 or dense is None or compressed is None:
        return None

    def factor(dense_bound: int, compressed_bound: int) -> float:
        return paying_factor(lambda x: compressed(x, compressed_bound) - dense(x, dense_bound))

    return PayingRate.of(link, factor(0, 0), (factor(-1, 1), factor(1, -1)))


def _timed(row: Row, step: StepTimes | None) -> Callable[[float, int], float] | None:
    """Return the seconds of a step on a network x times as fast, as measured or at an end of its interval: -1, 0, 1.

    None with pipelines or tensor parallelism: their ranks also wait before the end of the step.
    """
    if step is None or len(step.programs) > 1:
        return None
    operations = step.programs[0].operations
    if {operation["axis"] for operation in operations} != {"dp"}:
        return None
    positions = range(len(step.ranks))
    # of shape [rank, operation, 3]
    times = np.stack([step.operations(position)[0] for position in positions])
    computed = max(
        (float(step.computations(position)[0].max(initial=0.0)) for position in positions),
        default=0.0,
    )
    is_codec = np.array([operation["collective"] == CODEC for operation in operations])
    ready = times[..., 0].max(axis=0)
    lasted = times[..., 2] - times[..., 1]
    # the rank that waits for no other one
    seconds = np.where(is_codec, lasted.max(axis=0), lasted.min(axis=0))
    middle = row.median_s or 0.0
    low, high = row.interval or (middle, middle)
    wires = float(seconds[~is_codec].sum()) or 1.0
    bounds = {0: 1.0, -1: 1 + (low - middle) / wires, 1: 1 + (high - middle) / wires}

    def step_s(x: float, bound: int) -> float:
        on_wires = seconds * max(0.0, bounds[bound]) / x
        end = 0.0
        for begin, duration in zip(ready, np.where(is_codec, seconds, on_wires), strict=True):
            end = max(end, float(begin)) + float(duration)
        return max(end, computed)

    return step_s
