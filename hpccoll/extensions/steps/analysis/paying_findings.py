"""From which rate of the network downward compression pays, by measured training steps with and without it."""

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
    compared: Sequence[StepComparison], steps: Mapping[RowKey, StepTimes | None], wires: Mapping[RowKey, Wire]
) -> Iterator[Finding]:
    """Yield below which rate of a link each compression pays, by workload and algorithm."""
    dense = {each.key.uncompressed: each for each in compared if not each.compression}
    found: dict[str, list[tuple[str, PayingRate]]] = {}
    for each in compared:
        other = dense.get(each.key.uncompressed) if each.compression else None
        for name, row, before in each.common(other):
            if other and (rate := _paying_rate(before, row, steps, wires[row.key])):
                found.setdefault(f"{other.title}, {name}", []).append((each.compression, rate))
    for where, rates in found.items():
        text = "; ".join(f"{what} {rate.text}" for what, rate in rates)
        yield info(
            "paying_rate", f"{where}: {text}.", title="Where compression pays",
            remedy="The rates are those at which wires are set, headers included: on slower ones the compressed "
            "step is shorter. Collectives take longer there in proportion, codecs and computations do not. Intervals "
            "are those of the measured steps.",
            rates=tuple({"compress": what, **rate._asdict()} for what, rate in rates),
        )  # fmt: skip


def _paying_rate(
    before: Row, row: Row, steps: Mapping[RowKey, StepTimes | None], wire: Wire
) -> PayingRate | None:  # fmt: skip
    """Return the rates below which a step takes less than the one before; None if a time or the wire is unknown."""
    link = wire.line_rate or wire.port_rate
    timed = [_timed(each, steps.get(each.key)) for each in (before, row)]
    if link is None or row.nodes < 2 or None in timed:
        return None
    dense, compressed = (each for each in timed if each)

    def factor(first: int, second: int) -> float:
        return paying_factor(lambda x: compressed(x, second) - dense(x, first))

    return PayingRate.of(link, factor(0, 0), (factor(-1, 1), factor(1, -1)))


def _timed(row: Row, step: StepTimes | None) -> Callable[[float, int], float] | None:
    """Return the seconds of a step on a network x times as fast, as measured or at an end of its interval: -1, 0, 1.

    None if its ranks await more than its operations at its end, as those of several stages or tensor-parallel ones do.
    """
    if step is None or len(step.programs) > 1 or {each["axis"] for each in step.programs[0].operations} != {"dp"}:
        return None
    positions = range(len(step.ranks))
    times = np.stack([step.operations(position)[0] for position in positions])  # [rank, operation, 3]
    computed = max((float(step.computations(position)[0].max(initial=0.0)) for position in positions), default=0.0)
    is_codec = np.array([each["collective"] == CODEC for each in step.programs[0].operations])
    lasted, ready = times[..., 2] - times[..., 1], times[..., 0].max(axis=0)
    seconds = np.where(is_codec, lasted.max(axis=0), lasted.min(axis=0))  # the rank that waits for no other one
    low, high = row.interval or (row.median_s or 0.0,) * 2
    wires = float(seconds[~is_codec].sum()) or 1.0
    bounds = {0: 1.0, -1: 1 + (low - (row.median_s or 0.0)) / wires, 1: 1 + (high - (row.median_s or 0.0)) / wires}

    def step_s(x: float, bound: int) -> float:
        end = 0.0
        for begin, each in zip(ready, np.where(is_codec, seconds, seconds * max(0.0, bounds[bound]) / x), strict=True):
            end = max(end, float(begin)) + float(each)
        return max(end, computed)

    return step_s
