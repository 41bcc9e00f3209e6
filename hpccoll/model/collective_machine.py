"""A machine fitted to collectives: which measurements it takes, and the machine file that follows from the fit."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpccoll.common.units import format_size
from hpccoll.model.collective_fit import (
    KEPT_MEMORY_BYTES,
    KNOTS,
    NODE,
    CollectiveModel,
    FittedRow,
    Floats,
    fit_collectives,
    row_weights,
)
from hpccoll.model.critical_path import MOST_MESSAGES
from hpccoll.model.machine import TIER_LABELS
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.observations import Observation
from hpccoll.model.operation_work import HABITS, OperationWork, operation_work
from hpccoll.model.path_times import SYNCHRONOUS_BYTES
from hpccoll.model.traffic import TooManyMessagesError
from hpccoll.model.unknown_messages import (
    other_peers_reason,
    several_schedules_reason,
    unmet_reason,
)
from hpccoll.schedule import Layout

MOST_RANKS = 1024
"""The most ranks of a measurement that a machine is fitted to: the paths of more take too long to find."""

LEAST_ROWS = 2 * len(KNOTS)
"""The fewest measurements that a machine is fitted to: twice the values of a curve."""

REPLICAS = 30
"""The number of bootstrap samples."""

UNDETERMINED = 0.6
"""The standard deviation of the logarithm of a quantity, with its prior, from which rows do not determine it."""

OUTLIER_WEIGHT = 0.1
"""Up to this weight a row is left out: its error is six times the typical one or more."""

LARGEST_RATE = 1e15
"""Bytes a second where a curve is flat."""

Number = dict[str, float]


@dataclass(frozen=True, slots=True)
class CollectiveFit:
    """A machine fitted to collectives."""

    machine: MachineFile
    used: Sequence[Observation]  # the measurements that it is fitted to
    left_out: Counter[str]  # how many of those that it might be fitted to it is not, by the reason


def fit_machine_to_collectives(
    observed: Sequence[Observation],
    name: str,
    most_nodes: int | None = None,
) -> CollectiveFit | None:
    """Return the machine fitted to collectives whose schedule is known; None if they are fewer than ``LEAST_ROWS``.

    Args:
        observed: the measurements.
        name: the name of the machine.
        most_nodes: the nodes of the largest job that it is fitted to [half of those of the largest
            one; all if all jobs are larger].
    """
    if most_nodes is None:
        most_nodes = _usual_most_nodes(observed)
    operations = _Operations()
    reasons = []
    for observation in observed:
        reason = _unmodelled_reason(observation)
        if not reason and observation.layout.nodes <= most_nodes:
            reason = operations.add(observation)
        reasons.append(reason)
    left_out: Counter[str] = Counter()
    used: list[Observation] = []
    for observation, reason in zip(observed, reasons, strict=True):
        if reason:
            left_out[reason] += 1
        elif observation.layout.nodes <= most_nodes:
            used.append(observation)
    if len(used) < LEAST_ROWS:
        return None
    rows = [operations.row(observation) for observation in used]
    model = fit_collectives(rows)
    outliers = int((model.weights < OUTLIER_WEIGHT).sum())
    if outliers:
        left_out["fitted, but hardly counted: nothing explains their times"] = outliers
    machine = _file(name, model, _replicas(model, rows), used)
    return CollectiveFit(machine, used, left_out)


def _usual_most_nodes(observed: Sequence[Observation]) -> int:
    nodes = {observation.layout.nodes for observation in observed}
    half = max(nodes, default=1) // 2
    return half if min(nodes, default=1) <= half else max(nodes, default=1)


def _unmodelled_reason(observation: Observation) -> str:
    """Return why nothing is known of the path of a measured operation; nothing if it is."""
    layout = observation.layout
    if observation.algorithm is None:
        return "the algorithm of the library is unknown"
    if layout.workers > MOST_RANKS:
        return f"more than {MOST_RANKS} ranks"
    if layout.workers < 2:
        return "one rank sends no messages"
    if layout.aggregators or observation.params.get("channels", 1) != 1:
        return "it has aggregators, or several channels"
    if int(observation.params.get("copies", 0)) > 0:
        return "copies on a rank are not modelled"
    reason = other_peers_reason(observation) or unmet_reason(observation)
    return reason or several_schedules_reason(observation)


class _Operations:
    """The measured operations: what they consist of is found once for all measurements of one."""

    def __init__(self) -> None:
        self._operations: dict[object, OperationWork | None] = {}

    def add(self, observation: Observation) -> str:
        """Find what an operation consists of; return why that is not found, nothing if it is."""
        key = self._key(observation)
        if key not in self._operations:
            try:
                self._operations[key] = operation_work(observation)
            except TooManyMessagesError:
                self._operations[key] = None
        return "" if self._operations[key] else f"more than {MOST_MESSAGES} messages"

    def row(self, observation: Observation) -> FittedRow:
        """Return the row of a measurement whose operation was found."""
        operation = self._operations[self._key(observation)]
        if operation is None:
            raise ValueError("the path of this operation was not found")
        work, memory = operation
        layout = observation.layout
        run = " ".join(observation.key[:2])
        return FittedRow(
            observation.seconds,
            work,
            memory,
            layout.nodes,
            layout.workers,
            run,
            observation.dtype,
            observation.ports_at_once,
        )

    @staticmethod
    def _key(observation: Observation) -> object:
        parameters = tuple(sorted(observation.own_parameters.items()))
        habits = tuple(observation.params.get(name) for name in HABITS)
        return (
            observation.call,
            observation.name_of_algorithm,
            parameters,
            observation.layout,
            observation.nbytes,
            observation.dtype,
            observation.ports,
            observation.ports_of_link,
            observation.folded_segment,
            observation.torus,
            habits,
        )


def _replicas(model: CollectiveModel, rows: Sequence[FittedRow]) -> list[Floats]:
    """Return the quantities of fits in which runs weigh more or less (the Bayesian bootstrap, D. Rubin 1981)."""
    draw = np.random.default_rng(1)
    runs = sorted({row.run for row in rows})
    weights = row_weights(rows)
    replicas = []
    for _ in range(REPLICAS):
        weight_of_run = dict(zip(runs, draw.exponential(size=len(runs)), strict=True))
        drawn = [weight * weight_of_run[row.run] for row, weight in zip(rows, weights, strict=True)]
        replica = model.copy()
        replica.fit(rows, drawn)
        replicas.append(replica.quantities(replica.values)[0])
    return replicas


class _Quantities:
    """The quantities of a model, with their intervals of 95 % over the replicas."""

    def __init__(self, model: CollectiveModel, replicas: Sequence[Floats]) -> None:
        self.model = model
        self.samples = [model.quantities(model.values)[0], *replicas]

    def has(self, name: str, group: str = "") -> bool:
        return (name, group, 0) in self.model.numbers

    def values(self, name: str, group: str = "", number: int = 0) -> Floats:
        """Return the value of a quantity, and those of the replicas."""
        place = self.model.numbers[name, group, number]
        return np.array([sample[place] for sample in self.samples])

    def seconds(self, name: str, group: str = "") -> Number:
        return _interval(self.values(name, group))

    def rate(self, name: str, group: str = "") -> Number:
        return _interval(np.minimum(LARGEST_RATE, 1 / self.values(name, group)))

    def tier(self, group: str) -> list[dict[str, Any]]:
        """Return the costs of the messages of a curve, by range of sizes, as a machine file has them."""
        overhead = np.full(len(self.samples), 0.0)
        if self.has("overhead"):
            overhead = self.values("overhead")
        costs: list[dict[str, Any]] = []
        for knot, from_bytes in enumerate(KNOTS[:-1]):
            low, high = (self.values("curve", group, place) for place in (knot, knot + 1))
            byte_s = (high - low) / (KNOTS[knot + 1] - from_bytes)
            alpha = np.maximum(0.0, low - from_bytes * byte_s)
            worked = np.minimum(overhead, alpha / 2)
            costs.append(
                {
                    "from_bytes": from_bytes if knot else 0,
                    "latency_s": _interval(alpha - 2 * worked),
                    "overhead_s": _interval(worked),
                    "bytes_per_s": _interval(1 / np.maximum(byte_s, 1 / LARGEST_RATE)),
                    "synchronous": from_bytes >= SYNCHRONOUS_BYTES,
                }
            )
        return costs


def _interval(values: Floats) -> Number:
    """Return the first value, with the interval of 95 % of the others."""
    value = float(values[0])
    low, high = np.percentile(values[1:], (2.5, 97.5)) if len(values) > 1 else (value, value)
    return {"value": value, "low": min(float(low), value), "high": max(float(high), value)}


def _file(
    name: str,
    model: CollectiveModel,
    replicas: Sequence[Floats],
    used: Sequence[Observation],
) -> MachineFile:
    """Return the machine file of a model, whose intervals are those of its replicas."""
    quantities = _Quantities(model, replicas)
    groups = {group for kind, group, _ in model.numbers if kind == "curve"}
    tiers = {}
    if NODE in groups:
        tiers[NODE] = quantities.tier(NODE)
    tiers |= _network_tiers(quantities, groups, "all")
    sections: dict[str, Any] = {
        "tiers": tiers,
        "start_skew_s": quantities.seconds("skew", "all"),
        "measured": _measured_section(used, model),
    }
    sections["reduction"] = {
        dtype: {"bytes_per_s": quantities.rate("fold", dtype)}
        for kind, dtype, _ in sorted(model.numbers)
        if kind == "fold"
    }
    if quantities.has("port", "all"):
        sections["port"] = {"bytes_per_s": quantities.rate("port", "all")}
    sections["own_memory"] = _own_memory_section(quantities)
    sections["critical_path"] = _critical_path_section(quantities)
    if quantities.has("link"):  # which jobs on a torus of one node do not pass
        tori = filter(None, (observation.torus for observation in used))
        sections["torus"] = {
            "dimensions": max(torus.dimensions for torus in tori),
            "hop_s": quantities.seconds("hop"),
            "link_bytes_per_s": quantities.rate("link"),
        }
    if model.larger_from:
        sections["larger_jobs"] = {
            "from_nodes": model.larger_from,
            **_larger_jobs_section(quantities, groups),
        }
    return MachineFile.of(name=name, kind="fitted", **sections)


def _own_memory_section(quantities: _Quantities) -> dict[str, Any]:
    section: dict[str, Any] = {"kept_bytes": KEPT_MEMORY_BYTES}
    rates = {
        "copied_bytes_per_s": "copy",
        "new_bytes_per_s": "fresh",
        "new_bytes_per_s_of_node": "fresh of node",
    }
    for key, quantity in rates.items():
        if quantities.has(quantity):
            section[key] = quantities.rate(quantity)
    return section


def _larger_jobs_section(quantities: _Quantities, groups: set[str]) -> dict[str, Any]:
    section: dict[str, Any] = {
        "tiers": _network_tiers(quantities, groups, "larger"),
        "start_skew_s": quantities.seconds("skew", "larger"),
    }
    if quantities.has("port", "larger"):
        section["port"] = {"bytes_per_s": quantities.rate("port", "larger")}
    return section


def _critical_path_section(quantities: _Quantities) -> dict[str, Any]:
    section: dict[str, Any] = {"following_s": quantities.seconds("overhead")}
    if quantities.has("further port"):
        section["further_port_s"] = quantities.seconds("further port")
        section["ports_bytes_per_s"] = quantities.rate("ports")
    for key, quantity in (("segment_s", "segment"), ("address_s", "address")):
        if quantities.has(quantity):
            section[key] = quantities.seconds(quantity)
    return section


def _network_tiers(quantities: _Quantities, groups: set[str], jobs: str) -> dict[str, Any]:
    """Return the costs of messages between nodes, if any were seen; unseen ones between racks are as those inside."""
    if f"rack {jobs}" not in groups:
        return {}
    tiers = {"rack": quantities.tier(f"rack {jobs}")}
    if f"fabric {jobs}" in groups:
        tiers["fabric"] = quantities.tier(f"fabric {jobs}")
    elif "fabric all" not in groups:
        tiers["fabric"] = tiers["rack"]
    return tiers


def _measured_section(used: Sequence[Observation], model: CollectiveModel) -> dict[str, Any]:
    first = used[0]
    layouts = [observation.layout for observation in used]
    sizes = [observation.nbytes for observation in used]
    return {
        "kind": first.kind,
        "machine": first.machine,
        "transport": first.transport,
        "executor": first.executor,
        "nodes": sorted({layout.nodes for layout in layouts}),
        "ranks_per_node": sorted({layout.ranks_per_node or 1 for layout in layouts}),
        "smallest_bytes": min(sizes),
        "largest_bytes": max(sizes),
        "tori": sorted({observation.torus.text for observation in used if observation.torus}),
        "ports": sorted({observation.ports for observation in used}),
        "nodes_per_rack": _most_nodes_in_rack(layouts),
        "files": sorted({observation.file for observation in used}),
        "undetermined": undetermined(model),
    }


def _most_nodes_in_rack(layouts: Sequence[Layout]) -> int | None:
    """Return the most nodes that a job had in one rack; None if no job had several racks."""
    if all(layout.racks == 1 for layout in layouts):
        return None
    most = 0
    for layout in layouts:
        rack_of_node = dict(zip(layout.node, layout.rack, strict=True))
        most = max(most, *Counter(rack_of_node.values()).values())
    return most


def undetermined(model: CollectiveModel) -> list[str]:
    """Return the quantities that the rows do not determine, in words."""
    knots: dict[str, list[int]] = defaultdict(list)
    words = []
    for (name, group, number), spread in model.spread().items():
        if spread < UNDETERMINED:
            continue
        if name == "curve":
            knots[group].append(KNOTS[number])
        else:
            jobs = f" in jobs of {model.larger_from} nodes and more" if group == "larger" else ""
            words.append(f"{_WORDS[name]}{jobs}")
    for group, sizes in knots.items():
        words.append(f"messages {_tier_words(group, model)} of {_sizes_text(sizes)}")
    tiers = {group.partition(" ")[0] for name, group, _ in model.numbers if name == "curve"}
    if "rack" in tiers and "fabric" not in tiers:
        words.append("messages between racks: taken as those between nodes")
    return list(dict.fromkeys(words))


_WORDS: Mapping[str, str] = {
    "fold": "the rate of reductions",
    "copy": "the rate of copies on a rank",
    "fresh": "the rate of new memory",
    "fresh of node": "how ranks of a node hinder each other in new memory",
    "port": "the rate of a port that ranks share",
    "ports": "the rate of all ports of a rank together",
    "further port": "the overhead of a further port of a rank",
    "link": "the rate of a link of the torus",
    "hop": "the latency of a link of the torus",
    "overhead": "the overhead of a message that follows others of its rank",
    "segment": "the overhead of a segment that is folded by itself",
    "address": "the overhead of a message of addresses",
    "skew": "how far apart ranks start",
}


def _tier_words(group: str, model: CollectiveModel) -> str:
    tier, _, jobs = group.partition(" ")
    label = TIER_LABELS[tier]
    return f"{label} in jobs of {model.larger_from} nodes and more" if jobs == "larger" else label


def _sizes_text(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return format_size(sizes[0])
    return f"{format_size(min(sizes))} to {format_size(max(sizes))}"
