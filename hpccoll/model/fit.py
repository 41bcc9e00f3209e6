"""The fit of a machine to patterns of messages: pairs of ranks, several pairs at once, trains, and folding twins.

Half a round trip of a ping-pong gives o + L + n G + o by size: straight lines over ranges of sizes,
as few as reach every measured time within ``TOLERANCE``. Exchanges, in which both directions of a
port are busy, give the rate of the port; several pairs at once give the rate that they share.
Trains give o and g. The reduce-scatter and the all-gather of one algorithm differ in folding only.
Ping-pongs while more ranks share a CPU show what those add (``contention``); all else is fitted to
those with the fewest ranks to a CPU, since times are erratic where ranks wait for others to run.
Every parameter has an interval of 95 %, by the bootstrap over rounds.

T. Hoefler, A. Lichei, W. Rehm: Low-overhead LogGP parameter assessment for modern interconnection
networks, PMEO (2007). W. Gropp, L. Olson, P. Samfass: Modeling MPI communication performance on SMP
nodes, EuroMPI (2016) 41-50.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from hpccoll.model.machine import Cpus
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.message_patterns import (
    LARGE,
    MIN_SIZES,
    Curve,
    Measurements,
    Pattern,
    drawn_seconds,
)
from hpccoll.model.observations import Observation
from hpccoll.store.schema import ON_TESTBED

TOLERANCE = 0.05
"""The largest relative error of a line at a measured size."""

MIN_BURST = 4096
"""The fewest bytes of a burst: noise in the times of large messages looks like some, too."""

UNLIMITED = 1e-15
"""Seconds of a byte on what does not limit messages."""

MIN_FOLD_S = 1e-12
"""The least seconds of a folded byte, 1 TB/s, where noise hides what a reduction takes."""

REPLICAS = 200
"""The number of bootstrap samples."""


def line(curve: Mapping[int, float], least: int = 0) -> tuple[float, float]:
    """Return alpha and beta, both >= 0, of the line closest to the times of the sizes from ``least`` on.

    The sum of the squares of the relative errors is minimal, so that small messages count as much
    as large ones.
    """
    chosen = {nbytes: seconds for nbytes, seconds in curve.items() if nbytes >= least}
    if len(chosen) < MIN_SIZES:
        largest = sorted(curve.items())[-MIN_SIZES:]
        chosen = dict(largest)
    sizes = np.array(list(chosen), float)
    seconds = np.array(list(chosen.values()))
    shortest = seconds.min()
    scale = seconds.max() / sizes.max()
    columns = [shortest / seconds, sizes * scale / seconds]
    matrix = np.stack(columns, axis=1)
    (alpha, beta), _ = nnls(matrix, np.ones(len(sizes)))
    return float(alpha * shortest), float(beta * scale)


def ranges(curve: Mapping[int, float]) -> list[list[int]]:
    """Return the sizes in as few ranges as have a line within ``TOLERANCE`` of all their times; the last has three."""
    sizes = sorted(curve)
    end = len(sizes)
    shortest_last = min(MIN_SIZES, end)

    def is_range(first: int, last: int) -> bool:
        """Return whether the sizes from ``first`` to before ``last`` may be a range."""
        if last == end:
            if end - first < shortest_last:
                return False
            if end - first == MIN_SIZES:
                return True
        return _has_line({nbytes: curve[nbytes] for nbytes in sizes[first:last]})

    # by how many of the smallest sizes are in ranges: how many ranges these are, and where the last
    # one begins
    fewest: dict[int, tuple[int, int]] = {0: (0, 0)}
    for last in range(1, end + 1):
        starts = [first for first in range(last) if first in fewest and is_range(first, last)]
        if starts:
            best = min(starts, key=lambda first: (fewest[first][0], -first))
            fewest[last] = fewest[best][0] + 1, best
    pieces: list[list[int]] = []
    last = end
    while last:
        first = fewest[last][1]
        pieces.insert(0, sizes[first:last])
        last = first
    return pieces


def _has_line(curve: Mapping[int, float]) -> bool:
    """Return whether one line is within ``TOLERANCE`` of all times."""
    if len(curve) == 1:
        return True
    alpha, beta = line(curve)
    return all(
        abs((alpha + nbytes * beta) / seconds - 1) <= TOLERANCE for nbytes, seconds in curve.items()
    )


class Pieces(NamedTuple):
    """What the times of a tier consist of."""

    ranges: Sequence[Sequence[int]]  # the ranges of sizes that have a line each
    # whether ports let the bytes of the first range pass at once after a pause
    bucket: bool = False


def pieces_of(curves: Mapping[Pattern, Curve], tier: str) -> Pieces:
    """Return what the times of a tier consist of."""
    trips = curves[Pattern("half_trip", tier)]
    burst = _burst(curves, tier)
    small = [nbytes for nbytes in trips if nbytes <= burst / 8]
    large = [nbytes for nbytes in trips if nbytes >= 4 * burst]
    if _shows_bucket(curves, tier, burst) and len(large) >= MIN_SIZES:
        return Pieces([small or [min(trips)], large], bucket=True)
    return Pieces(ranges(trips))


def parameters(
    curves: Mapping[Pattern, Curve], pieces: Mapping[str, Pieces], slowdowns: Mapping[str, float]
) -> dict[str, float]:
    """Return all parameters by name, ``rack.0.latency_s``, from the curves of the patterns."""
    values: dict[str, float] = {}
    for tier, (tier_ranges, bucket) in pieces.items():
        trips = curves[Pattern("half_trip", tier)]
        overhead, gap = _overhead_and_gap(curves, tier)
        burst = _burst(curves, tier) if bucket else 0.0
        rate = line(trips, LARGE)[1]
        for number, sizes in enumerate(tier_ranges):
            times = {nbytes: trips[nbytes] for nbytes in sizes}
            if bucket and number == 0:
                alpha, beta = median(times.values()), rate
            elif len(times) > 1:
                alpha, beta = line(
                    {nbytes - round(burst): seconds for nbytes, seconds in times.items()}
                )
            else:
                nbytes = sizes[0]
                alpha, beta = max(0.0, times[nbytes] - nbytes * rate), rate
            name = f"{tier}.{number}"
            worked = min(overhead, alpha / 2)
            values[f"{name}.overhead_s"] = worked / slowdowns[tier]
            values[f"{name}.latency_s"] = alpha - 2 * worked
            values[f"{name}.gap_s"] = gap
            values[f"{name}.byte_s"] = max(beta, UNLIMITED)
        shared = dict(_shared(curves, tier))
        values |= shared
        if "port_byte_s" in shared and rate <= shared["port_byte_s"] * (1 + TOLERANCE):
            values |= {f"{tier}.{number}.byte_s": UNLIMITED for number in range(len(tier_ranges))}
        if bucket:
            values.setdefault("burst_bytes", burst)
    return values


def _overhead_and_gap(curves: Mapping[Pattern, Curve], tier: str) -> tuple[float, float]:
    """Return o and g by the differences of trains: medians over the sizes below ``LARGE``; 0 without trains."""
    trains = {}
    for key, curve in curves.items():
        if key[:2] == ("train", tier):
            trains[key.messages, key.copies] = curve
    many = max((messages for messages, _ in trains), default=1)
    copies = max((copies for _, copies in trains), default=0)
    if many == 1 or copies == 0:
        return 0.0, 0.0
    single = trains.get((1, 0), {})
    several = trains.get((many, 0), {})
    single_delayed = trains.get((1, copies), {})
    several_delayed = trains.get((many, copies), {})
    in_all = set(single).intersection(several, single_delayed, several_delayed)
    sizes = [nbytes for nbytes in single if nbytes in in_all and 4 * many <= nbytes < LARGE]
    if not sizes:
        return 0.0, 0.0
    rate = line(single, LARGE)[1] / 2  # the reply has all bytes, too
    overheads, gaps = [], []
    for nbytes in sizes:
        gaps.append((several[nbytes] - single[nbytes]) / (many - 1))
        delayed_s = several_delayed[nbytes] - single_delayed[nbytes]
        delayed_gap = delayed_s / (many - 1)
        copying = single_delayed[nbytes] - single[nbytes]
        overheads.append(delayed_gap + nbytes / many * rate - copying)
    return max(0.0, median(overheads)), max(0.0, median(gaps))


def _burst(curves: Mapping[Pattern, Curve], tier: str) -> float:
    """Return the bytes that pass a port at once after a pause, if the patterns show any; at least 0.

    A ping-pong leaves its ports idle for half of the time, an exchange does not: with a bucket of
    tokens the exchange of large messages takes longer by what the bucket lets pass.
    """
    trips = curves.get(Pattern("half_trip", tier), {})
    exchanges = curves.get(Pattern("exchange", tier), {})
    shared = [
        nbytes for nbytes in trips.keys() & exchanges.keys() if LARGE / 2 <= nbytes <= 32 * LARGE
    ]
    if tier == "node" or len(shared) < MIN_SIZES:
        return 0.0
    byte_s = max(line(exchanges, LARGE)[1], UNLIMITED)
    bursts = []
    for nbytes in shared:
        further_s = exchanges[nbytes] - trips[nbytes]
        bursts.append(further_s / byte_s)
    return max(0.0, median(bursts))


def _shows_bucket(curves: Mapping[Pattern, Curve], tier: str, burst: float) -> bool:
    """Return whether a bucket lets ``burst`` bytes pass: half a trip of fewer takes clearly less than they need."""
    if burst < MIN_BURST:
        return False
    trips = curves.get(Pattern("half_trip", tier), {})
    exchanges = curves.get(Pattern("exchange", tier), {})
    byte_s = line(exchanges, LARGE)[1]
    if not byte_s:
        return False
    least = min(trips.values())
    within_burst = [nbytes for nbytes in trips if burst / 4 <= nbytes <= burst]
    shares = [(trips[nbytes] - least) / (nbytes * byte_s) for nbytes in within_burst]
    return bool(shares) and median(shares) < 0.75


def _shared(curves: Mapping[Pattern, Curve], tier: str) -> Iterator[tuple[str, float]]:
    """Yield what a byte takes of what pairs of a tier share, and of CPUs that slow down pairs which share nothing."""
    alone = curves.get(Pattern("exchange", tier)) or curves[Pattern("half_trip", tier)]
    single = line(alone, LARGE)[1]
    # of a pair, in what it shares with others: ports have two directions
    messages = 2 if tier == "node" else 1
    together: list[float] = []
    unshared: dict[int, float] = {}
    for key, curve in curves.items():
        if key.name != "exchange" or key.tier != tier or key.pairs == 1:
            continue
        byte_s = line(curve, LARGE)[1]
        if key.sharing > 1:
            together.append(byte_s / (messages * key.sharing))
        else:
            unshared[key.pairs] = byte_s
    name = {"node": "memory_byte_s", "rack": "port_byte_s", "fabric": "uplink_byte_s"}[tier]
    if together:
        yield name, max(UNLIMITED, min(together))
    elif tier == "rack":
        yield name, max(UNLIMITED, single)
    if unshared:
        pairs = max(unshared)
        if unshared[pairs] > single * (1 + 2 * TOLERANCE):
            yield "cpus_byte_s", unshared[pairs] / (2 * pairs)


def _fold_rates(
    measured: Measurements, contention: float, draw: np.random.Generator | None = None
) -> dict[str, float]:
    """Return the seconds of a folded byte on a CPU of its own: medians of what reduce-scatters take longer."""
    cpus = Cpus(1, contention=contention)
    seconds_by_dtype = {}
    for dtype, pairs in measured.twins.items():
        differences = []
        for folding, gathering in pairs:
            nbytes = folding.nbytes * (folding.layout.workers - 1) / folding.layout.workers
            longer = drawn_seconds(folding, draw) - drawn_seconds(gathering, draw)
            differences.append(longer / nbytes / cpus.slowdown(folding.cpu_share))
        seconds_by_dtype[f"reduction.{dtype}"] = max(median(differences), MIN_FOLD_S)
    return seconds_by_dtype


def _contention(
    measured: Measurements, curves: Mapping[Pattern, Curve], draw: np.random.Generator | None = None
) -> float:
    """Return what another rank on its CPU adds to a work of a rank, in times of the work alone; 1 if unknown.

    It is the median over small messages, which take at most twice as long as the smallest. Their
    work is 2 o.
    """
    added = []
    for tier, ping_pongs in measured.sharing_cpus.items():
        alone = curves[Pattern("half_trip", tier)]
        least = alone[min(alone)]
        work = min(2 * _overhead_and_gap(curves, tier)[0], least)
        if not work:
            continue
        for observation, divisor in ping_pongs:
            alone_s = alone.get(observation.nbytes, math.inf)
            if alone_s <= 2 * least:
                longer = drawn_seconds(observation, draw) / divisor - alone_s
                added.append(longer / work / (observation.cpu_share - 1))
    return max(0.0, median(added)) if added else 1.0


def fit(
    observed: Sequence[Observation], name: str
) -> tuple[MachineFile, tuple[Observation, ...]] | None:
    """Return the machine fitted to patterns, and the observations it used; None without a ping-pong of three sizes.

    Patterns on more than half of the nodes are left out if those on fewer nodes cross the same
    tiers: a model is tested on more nodes than it was fitted to.
    """
    everywhere = Measurements.of(observed)
    most = max((observation.layout.nodes for observation in observed), default=1)
    measured = Measurements.of(
        [observation for observation in observed if 2 * observation.layout.nodes <= most]
    )
    if measured.tiers() != everywhere.tiers():
        measured = everywhere
    if not measured.tiers():
        return None
    curves = measured.curves()
    pieces = {tier: pieces_of(curves, tier) for tier in measured.tiers()}
    values = _fitted(measured, pieces)
    draw = np.random.default_rng(1)
    samples = defaultdict(list)
    for _ in range(REPLICAS):
        for key, value in _fitted(measured, pieces, draw).items():
            samples[key].append(value)
    quantities = {key: _quantity(value, samples.get(key, [])) for key, value in values.items()}
    used = measured.used()
    return _file(name, quantities, pieces, used), used


def _fitted(
    measured: Measurements, pieces: Mapping[str, Pieces], draw: np.random.Generator | None = None
) -> dict[str, float]:
    """Return all parameters by name, from all rounds or from those that are drawn."""
    curves = measured.curves(draw)
    contention = _contention(measured, curves, draw)
    values = parameters(curves, pieces, measured.slowdowns(contention))
    values |= _fold_rates(measured, contention, draw)
    values["contention"] = contention
    return values


def _quantity(value: float, samples: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(samples, (2.5, 97.5)) if samples else (value, value)
    return {"value": value, "low": min(float(low), value), "high": max(float(high), value)}


def _rate(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the rate, in bytes per second; its low end comes from the high end of the seconds per byte."""
    return {"value": 1 / seconds["value"], "low": 1 / seconds["high"], "high": 1 / seconds["low"]}


def _file(
    name: str,
    quantities: Mapping[str, Mapping[str, float]],
    pieces: Mapping[str, Pieces],
    used: Sequence[Observation],
) -> MachineFile:
    sections: dict[str, Any] = {
        "tiers": {
            tier: _tier_costs(tier, pieces_of_tier.ranges, quantities)
            for tier, pieces_of_tier in pieces.items()
        },
        "reduction": {
            key.removeprefix("reduction."): {"bytes_per_s": _rate(seconds)}
            for key, seconds in quantities.items()
            if key.startswith("reduction.")
        },
    }
    for section in ("port", "uplink", "memory"):
        seconds_of_byte = quantities.get(f"{section}_byte_s")
        if seconds_of_byte:
            sections[section] = {"bytes_per_s": _rate(seconds_of_byte)}
    if "port" in sections and "burst_bytes" in quantities:
        sections["port"]["burst_bytes"] = quantities["burst_bytes"]
    first = used[0]
    is_testbed = first.kind == ON_TESTBED  # whose nodes share the CPUs of one machine
    slowed_down = is_testbed and "cpus_byte_s" in quantities
    if slowed_down or any(observation.oversubscribed for observation in used):
        sections["cpus"] = {
            "cores": first.cpus,
            "of": "machine" if is_testbed else "node",
            "contention": quantities["contention"],
        }
        if slowed_down:
            per_core = {key: value * first.cpus for key, value in quantities["cpus_byte_s"].items()}
            sections["cpus"]["bytes_per_s"] = _rate(per_core)
    if is_testbed:
        sections["aggregators"] = {
            "kind": "unmetered",
            "source": "the aggregators of the testbed have no meter",
        }
    sections["measured"] = _measured_section(used)
    return MachineFile.of(name=name, kind="fitted", **sections)


def _tier_costs(
    tier: str, tier_ranges: Sequence[Sequence[int]], quantities: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Return the costs of the messages of a tier, by range of sizes, as a machine file has them."""
    costs = []
    for number, sizes in enumerate(tier_ranges):
        costs_of_range: dict[str, Any] = {"from_bytes": sizes[0] if number else 0}
        for key in ("latency_s", "overhead_s", "gap_s"):
            costs_of_range[key] = quantities[f"{tier}.{number}.{key}"]
        costs_of_range["bytes_per_s"] = _rate(quantities[f"{tier}.{number}.byte_s"])
        costs.append(costs_of_range)
    return costs


def _measured_section(used: Sequence[Observation]) -> dict[str, Any]:
    """Return the section on the measurements that a machine is fitted to."""
    first = used[0]
    sizes = [observation.nbytes for observation in used]
    layouts = [observation.layout for observation in used]
    nodes = {layout.nodes for layout in layouts}
    ranks_per_node = {layout.ranks_per_node or 1 for layout in layouts}
    files = {observation.file for observation in used}
    return {
        "kind": first.kind,
        "machine": first.machine,
        "transport": first.transport,
        "executor": first.executor,
        "nodes": sorted(nodes),
        "ranks_per_node": sorted(ranks_per_node),
        "smallest_bytes": min(sizes),
        "largest_bytes": max(sizes),
        "files": sorted(files),
    }
