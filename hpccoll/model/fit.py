"""The fit of a machine to patterns of messages: pairs of ranks, several pairs at once, trains, and folding twins.

Half a round trip of a ping-pong gives o + L + n G + o by size: straight lines over ranges of sizes, as few as reach
every measured time within ``TOLERANCE``. Exchanges, in which both directions of a port are busy, give the rate of the
port; several pairs at once give the rate that they share. Trains give o and g. The reduce-scatter and the all-gather of
one algorithm differ in folding only. Ping-pongs while more ranks share a CPU show what those add (``contention``); all
else is fitted to those with the fewest ranks to a CPU, since times are erratic where ranks wait for others to run.
Every parameter has an interval of 95 %, by the bootstrap over rounds.

T. Hoefler, A. Lichei, W. Rehm: Low-overhead LogGP parameter assessment for modern interconnection networks, PMEO
(2007). W. Gropp, L. Olson, P. Samfass: Modeling MPI communication performance on SMP nodes, EuroMPI (2016) 41-50.
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
from hpccoll.model.message_patterns import LARGE, MIN_SIZES, Curve, Measurements, Pattern, drawn_seconds
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

    The sum of the squares of the relative errors is minimal, so that small messages count as much as large ones.
    """
    chosen = {n: seconds for n, seconds in curve.items() if n >= least}
    chosen = chosen if len(chosen) >= MIN_SIZES else dict(sorted(curve.items())[-MIN_SIZES:])
    sizes, seconds = np.array([*chosen], float), np.array([*chosen.values()])
    scale = seconds.max() / sizes.max()
    (alpha, beta), _ = nnls(np.stack([seconds.min() / seconds, sizes * scale / seconds], axis=1), np.ones(len(sizes)))
    return float(alpha * seconds.min()), float(beta * scale)


def ranges(curve: Mapping[int, float]) -> list[list[int]]:
    """Return the sizes in as few ranges as have a line within ``TOLERANCE`` of all their times; the last has three."""
    sizes = sorted(curve)

    def fits(first: int, last: int) -> bool:
        some = {n: curve[n] for n in sizes[first:last]}
        if len(some) == 1:
            return True
        alpha, beta = line(some)
        return all(abs((alpha + n * beta) / seconds - 1) <= TOLERANCE for n, seconds in some.items())

    end = len(sizes)
    fewest: dict[int, tuple[int, int]] = {0: (0, 0)}  # by how many sizes are in ranges: how many ranges, from where
    for last in range(1, end + 1):
        options = [
            (fewest[first][0] + 1, -first)
            for first in range(last)
            if first in fewest
            and (fits(first, last) or (last == end and first == end - MIN_SIZES))
            and not (last == end and end - first < min(MIN_SIZES, end))
        ]
        if options:
            count, first = min(options)
            fewest[last] = count, -first
    found: list[list[int]] = []
    last = end
    while last:
        first = fewest[last][1]
        found.insert(0, sizes[first:last])
        last = first
    return found


class Pieces(NamedTuple):
    """What the times of a tier consist of."""

    ranges: Sequence[Sequence[int]]  # the ranges of sizes that have a line each
    bucket: bool = False  # whether ports let the bytes of the first range pass at once after a pause


def pieces_of(curves: Mapping[Pattern, Curve], tier: str) -> Pieces:
    """Return what the times of a tier consist of."""
    trips = curves[Pattern("half_trip", tier)]
    burst = _burst(curves, tier)
    small, large = [n for n in trips if n <= burst / 8], [n for n in trips if n >= 4 * burst]
    if _shows_bucket(curves, tier, burst) and len(large) >= MIN_SIZES:
        return Pieces([small or [min(trips)], large], bucket=True)
    return Pieces(ranges(trips))


def parameters(
    curves: Mapping[Pattern, Curve], pieces: Mapping[str, Pieces], slowdowns: Mapping[str, float]
) -> dict[str, float]:
    """Return all parameters by name, ``rack.0.latency_s``, from the curves of the patterns."""
    found: dict[str, float] = {}
    for tier, (tier_ranges, bucket) in pieces.items():
        trips = curves[Pattern("half_trip", tier)]
        overhead, gap = _overhead_and_gap(curves, tier)
        burst, rate = _burst(curves, tier) if bucket else 0.0, line(trips, LARGE)[1]
        for number, sizes in enumerate(tier_ranges):
            some = {n: trips[n] for n in sizes}
            if bucket and number == 0:
                alpha, beta = median(some.values()), rate
            elif len(some) > 1:
                alpha, beta = line({n - round(burst): seconds for n, seconds in some.items()})
            else:
                ((n, seconds),) = some.items()
                alpha, beta = max(0.0, seconds - n * rate), rate
            name = f"{tier}.{number}"
            worked = min(overhead, alpha / 2)
            found[f"{name}.overhead_s"] = worked / slowdowns[tier]
            found[f"{name}.latency_s"] = alpha - 2 * worked
            found[f"{name}.gap_s"] = gap
            found[f"{name}.byte_s"] = max(beta, UNLIMITED)
        shared = dict(_shared(curves, tier))
        found |= shared
        if "port_byte_s" in shared and rate <= shared["port_byte_s"] * (1 + TOLERANCE):
            found |= {f"{tier}.{number}.byte_s": UNLIMITED for number in range(len(tier_ranges))}
        if bucket:
            found.setdefault("burst_bytes", burst)
    return found


def _overhead_and_gap(curves: Mapping[Pattern, Curve], tier: str) -> tuple[float, float]:
    """Return o and g by the differences of trains: medians over the sizes below ``LARGE``; 0 without trains."""
    trains = {(key.messages, key.copies): curve for key, curve in curves.items() if key[:2] == ("train", tier)}
    many, copied = max((n for n, _ in trains), default=1), max((c for _, c in trains), default=0)
    one, several, delayed, both = (trains.get(key, {}) for key in ((1, 0), (many, 0), (1, copied), (many, copied)))
    sizes = [n for n in one.keys() & several.keys() & delayed.keys() & both.keys() if 4 * many <= n < LARGE]
    if many == 1 or copied == 0 or not sizes:
        return 0.0, 0.0
    rate = line(one, LARGE)[1] / 2  # the reply has all bytes, too
    gaps = [(several[n] - one[n]) / (many - 1) for n in sizes]
    overheads = [(both[n] - delayed[n]) / (many - 1) + n / many * rate - (delayed[n] - one[n]) for n in sizes]
    return max(0.0, median(overheads)), max(0.0, median(gaps))


def _burst(curves: Mapping[Pattern, Curve], tier: str) -> float:
    """Return the bytes that pass a port at once after a pause, as far as the patterns show it; at least 0.

    A ping-pong leaves its ports idle for half of the time, an exchange does not: with a bucket of tokens the exchange
    of large messages takes longer by what the bucket lets pass.
    """
    trips, exchanges = (curves.get(Pattern(name, tier), {}) for name in ("half_trip", "exchange"))
    shared = [n for n in trips.keys() & exchanges.keys() if LARGE / 2 <= n <= 32 * LARGE]
    if tier == "node" or len(shared) < MIN_SIZES:
        return 0.0
    byte_s = max(line(exchanges, LARGE)[1], UNLIMITED)
    return max(0.0, median((exchanges[n] - trips[n]) / byte_s for n in shared))


def _shows_bucket(curves: Mapping[Pattern, Curve], tier: str, burst: float) -> bool:
    """Return whether a bucket lets ``burst`` bytes pass: half a trip of fewer takes clearly less than they need."""
    trips, exchanges = (curves.get(Pattern(name, tier), {}) for name in ("half_trip", "exchange"))
    if burst < MIN_BURST:
        return False
    least, byte_s = min(trips.values()), line(exchanges, LARGE)[1]
    small = [(trips[n] - least) / (n * byte_s) for n in trips if byte_s and burst / 4 <= n <= burst]
    return bool(small) and median(small) < 0.75


def _shared(curves: Mapping[Pattern, Curve], tier: str) -> Iterator[tuple[str, float]]:
    """Yield what a byte takes of what pairs of a tier share, and of CPUs that slow down pairs which share nothing."""
    alone = curves.get(Pattern("exchange", tier)) or curves[Pattern("half_trip", tier)]
    single = line(alone, LARGE)[1]
    exchanges = {
        key: line(curve, LARGE)[1]
        for key, curve in curves.items()
        if key.name == "exchange" and key.tier == tier and key.pairs > 1
    }
    messages = 2 if tier == "node" else 1  # of a pair, in what it shares with others: ports have two directions
    together = [byte_s / (messages * key.sharing) for key, byte_s in exchanges.items() if key.sharing > 1]
    name = {"node": "memory_byte_s", "rack": "port_byte_s", "fabric": "uplink_byte_s"}[tier]
    if together:
        yield name, max(UNLIMITED, min(together))
    elif tier == "rack":
        yield name, max(UNLIMITED, single)
    unshared = {key.pairs: byte_s for key, byte_s in exchanges.items() if key.sharing == 1}
    if unshared and unshared[pairs := max(unshared)] > single * (1 + 2 * TOLERANCE):
        yield "cpus_byte_s", unshared[pairs] / (2 * pairs)


def _fold_rates(measured: Measurements, contention: float, draw: np.random.Generator | None = None) -> dict[str, float]:
    """Return the seconds of a folded byte on a CPU of its own: medians of what reduce-scatters take longer."""
    found, cpus = {}, Cpus(1, contention=contention)
    for dtype, pairs in measured.twins.items():
        differences = []
        for folding, gathering in pairs:
            nbytes = folding.nbytes * (folding.layout.workers - 1) / folding.layout.workers
            longer = drawn_seconds(folding, draw) - drawn_seconds(gathering, draw)
            differences.append(longer / nbytes / cpus.slowdown(folding.cpu_share))
        found[f"reduction.{dtype}"] = max(median(differences), MIN_FOLD_S)
    return found


def _contention(
    measured: Measurements, curves: Mapping[Pattern, Curve], draw: np.random.Generator | None = None
) -> float:
    """Return what another rank on its CPU adds to a work of a rank, in times of the work alone; 1 if unknown.

    It is the median over small messages, which take at most twice as long as the smallest. Their work is 2 o.
    """
    added = []
    for tier, each in measured.sharing_cpus.items():
        alone = curves[Pattern("half_trip", tier)]
        least = alone[min(alone)]
        work = min(2 * _overhead_and_gap(curves, tier)[0], least)
        for one, divisor in each:
            if work and alone.get(one.nbytes, math.inf) <= 2 * least:
                longer = drawn_seconds(one, draw) / divisor - alone[one.nbytes]
                added.append(longer / work / (one.cpu_share - 1))
    return max(0.0, median(added)) if added else 1.0


def fit(observed: Sequence[Observation], name: str) -> tuple[MachineFile, tuple[Observation, ...]] | None:
    """Return the machine fitted to patterns, and the observations of these; None without a ping-pong of three sizes.

    Patterns on more than half of the nodes are left out if those on fewer nodes cross the same tiers: a model is tested
    on more nodes than it was fitted to.
    """
    everywhere = Measurements.of(observed)
    most = max((one.layout.nodes for one in observed), default=1)
    measured = Measurements.of([one for one in observed if 2 * one.layout.nodes <= most])
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
    found = parameters(curves, pieces, measured.slowdowns(contention)) | _fold_rates(measured, contention, draw)
    return found | {"contention": contention}


def _quantity(value: float, samples: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(samples, (2.5, 97.5)) if samples else (value, value)
    return {"value": value, "low": min(float(low), value), "high": max(float(high), value)}


def _rate(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the rate of seconds per byte; its low end is the high end of these."""
    return {"value": 1 / seconds["value"], "low": 1 / seconds["high"], "high": 1 / seconds["low"]}


def _file(
    name: str, found: Mapping[str, Mapping[str, float]], pieces: Mapping[str, Pieces],
    used: Sequence[Observation],
) -> MachineFile:  # fmt: skip
    sections: dict[str, Any] = {
        "tiers": {
            tier: [
                {
                    "from_bytes": sizes[0] if number else 0,
                    **{key: found[f"{tier}.{number}.{key}"] for key in ("latency_s", "overhead_s", "gap_s")},
                    "bytes_per_s": _rate(found[f"{tier}.{number}.byte_s"]),
                }
                for number, sizes in enumerate(tier_ranges)
            ]
            for tier, (tier_ranges, _) in pieces.items()
        },
        "reduction": {
            key.removeprefix("reduction."): {"bytes_per_s": _rate(each)}
            for key, each in found.items() if key.startswith("reduction.")
        },
    }  # fmt: skip
    for section in ("port", "uplink", "memory"):
        if seconds := found.get(f"{section}_byte_s"):
            sections[section] = {"bytes_per_s": _rate(seconds)}
    if "port" in sections and "burst_bytes" in found:
        sections["port"]["burst_bytes"] = found["burst_bytes"]
    first = used[0]
    testbed = first.kind == ON_TESTBED  # whose nodes share the CPUs of one machine
    slowed_down = testbed and "cpus_byte_s" in found
    if slowed_down or any(one.oversubscribed for one in used):
        sections["cpus"] = {
            "cores": first.cpus, "of": "machine" if testbed else "node", "contention": found["contention"]
        }  # fmt: skip
        if slowed_down:
            per_core = {key: value * first.cpus for key, value in found["cpus_byte_s"].items()}
            sections["cpus"]["bytes_per_s"] = _rate(per_core)
    if testbed:
        sections["aggregators"] = {"kind": "unmetered", "source": "the aggregators of the testbed have no meter"}
    sections["measured"] = {
        "kind": first.kind, "machine": first.machine, "transport": first.transport, "executor": first.executor,
        "nodes": sorted({one.layout.nodes for one in used}),
        "ranks_per_node": sorted({one.layout.ranks_per_node or 1 for one in used}),
        "smallest_bytes": min(one.nbytes for one in used), "largest_bytes": max(one.nbytes for one in used),
        "files": sorted({one.file for one in used}),
    }  # fmt: skip
    return MachineFile.of(name=name, kind="fitted", **sections)
