"""A machine fitted to collectives: which measurements it takes, and the machine file that follows from the fit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpccoll.common.units import format_size
from hpccoll.model.address_messages import address_messages
from hpccoll.model.collective_fit import (
    KEPT_MEMORY_BYTES,
    KNOTS,
    NODE,
    RACK,
    SYNCHRONOUS_BYTES,
    CollectiveModel,
    FittedRow,
    Floats,
    RowWork,
    fit_collectives,
    row_weights,
)
from hpccoll.model.critical_path import (
    MOST_MESSAGES,
    PathFold,
    PathMessage,
    critical_path,
    folded_in_segments,
    sharing_links,
)
from hpccoll.model.equal_waves import OperationWaves
from hpccoll.model.machine import TIER_LABELS
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.memory_work import MemoryWork, memory_work
from hpccoll.model.observations import Observation
from hpccoll.model.torus_links import Torus
from hpccoll.model.traffic import TooManyMessagesError
from hpccoll.model.validation import (
    Validated,
    other_peers_reason,
    unknown_tiers_reason,
    unmet_reason,
)
from hpccoll.schedule import Algorithm, Cut, Schedule, itemsize
from hpccoll.store.schema import (
    ADDRESSES,
    COPIED,
    IN_TURN,
    NOTHING_COPIED,
    PARTS_COPIED,
    PEERS,
    PORT_USE,
    VECTOR_COPIED,
)

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


class _TypicalCosts:
    """The costs with which the longest path of an operation is found."""

    def message_s(self, message: PathMessage) -> float:
        latency_s, byte_s = (3e-7, 2e-10) if message.tier == NODE else (2e-6, 1.25e-10)
        passing_s = max(message.rank_bytes * byte_s, message.port_bytes * 1e-10)
        queued_s = (1 + message.before) * 2e-7
        return queued_s + passing_s + (latency_s if message.received else 0)

    def fold_s(self, nbytes: int) -> float:
        return nbytes / 6e9

    def waits(self, nbytes: int) -> bool:
        return nbytes >= SYNCHRONOUS_BYTES


@dataclass(frozen=True, slots=True)
class CollectiveFit:
    """A machine fitted to collectives."""

    machine: MachineFile
    validated: Sequence[Validated]  # all measurements, with the times that the fitted model gives
    left_out: Counter[str]  # how many of those that it might be fitted to it is not, by the reason


def fit_machine_to_collectives(
    observed: Sequence[Observation],
    name: str,
    most_nodes: int | None = None,
    report: Callable[[], object] = lambda: None,
) -> CollectiveFit | None:
    """Return the machine fitted to collectives whose schedule is known; None if they are fewer than ``LEAST_ROWS``.

    Args:
        observed: the measurements.
        name: the name of the machine.
        most_nodes: the nodes of the largest job that it is fitted to [half of those of the largest
            one; all if all jobs are larger].
        report: is called for each measurement that was read.
    """
    if most_nodes is None:
        most_nodes = _usual_most_nodes(observed)
    operations = _Operations()
    reasons = []
    for observation in observed:
        reasons.append(_unmodelled_reason(observation) or operations.add(observation))
        report()
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
    fitted = {id(observation) for observation in used}
    validated = []
    for observation, reason in zip(observed, reasons, strict=True):
        missing = reason or unknown_tiers_reason(observation, machine.tiers)
        seconds = None
        if not missing:
            seconds = float(model.predict([operations.row(observation)])[0])
        validated.append(Validated(observation, seconds, missing, id(observation) not in fitted))
    return CollectiveFit(machine, validated, left_out)


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
    return reason or _several_schedules_reason(observation, observation.algorithm)


def _several_schedules_reason(observation: Observation, algorithm: Algorithm) -> str:
    several = len(_slices(observation, algorithm)) > 1
    return "it runs several schedules at once" if several else ""


def _slices(observation: Observation, algorithm: Algorithm) -> Sequence[Schedule]:
    return observation.call.slices(algorithm, observation.layout, **observation.own_parameters)


class _Operations:
    """The measured operations: what they consist of is found once for all measurements of one."""

    def __init__(self) -> None:
        self._paths: dict[object, tuple[Counter[RowWork], MemoryWork] | None] = {}

    def add(self, observation: Observation) -> str:
        """Find what an operation consists of; return why that is not found, nothing if it is."""
        key = self._key(observation)
        if key not in self._paths:
            try:
                self._paths[key] = _path(observation)
            except TooManyMessagesError:
                self._paths[key] = None
        return "" if self._paths[key] else f"more than {MOST_MESSAGES} messages"

    def row(self, observation: Observation) -> FittedRow:
        """Return the row of a measurement whose operation was found."""
        path = self._paths[self._key(observation)]
        if path is None:
            raise ValueError("the path of this operation was not found")
        work, memory = path
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
            _ports_at_once(observation),
        )

    @staticmethod
    def _key(observation: Observation) -> object:
        algorithm = observation.algorithm.name if observation.algorithm else ""
        parameters = tuple(sorted(observation.own_parameters.items()))
        return (
            observation.call,
            algorithm,
            parameters,
            observation.layout,
            observation.nbytes,
            observation.dtype,
            *(
                observation.params.get(name)
                for name in ("ports", "segment", PORT_USE, ADDRESSES, COPIED)
            ),
            _torus(observation),
            _ports_of_link(observation),
        )


def _ports(observation: Observation) -> int:
    """Return how many ports of a rank are in use, each with its part of the vector."""
    return int(observation.params.get("ports", 1))


def _ports_at_once(observation: Observation) -> int:
    """Return how many of them are in use at once."""
    in_turn = observation.params.get(PORT_USE) == IN_TURN
    return 1 if in_turn else _ports(observation)


def _torus(observation: Observation) -> Torus | None:
    """Return the torus of the nodes; None if there is none, or the messages go to other ranks than the schedule's."""
    return None if PEERS in observation.params else _torus_of_nodes(observation)


def _torus_of_nodes(observation: Observation) -> Torus | None:
    shape = observation.params.get("torus")
    if shape is None:
        return None
    torus = Torus.parse(str(shape))
    return torus if torus.nodes == observation.layout.nodes else None


def _ports_of_link(observation: Observation) -> int:
    """Return how many ports of a rank send over the same link of a torus at once."""
    torus = _torus_of_nodes(observation)
    if torus is None or torus.nodes == 1:
        return 1
    return -(-_ports_at_once(observation) // torus.links_of_node)


def _path(observation: Observation) -> tuple[Counter[RowWork], MemoryWork]:
    """Return what is on the critical path of a measured operation, and what it moves in memory."""
    algorithm = observation.algorithm
    if algorithm is None:
        raise ValueError("the library's own algorithm has no schedule")
    (schedule,) = _slices(observation, algorithm)
    call = observation.call
    size = itemsize(observation.dtype)
    elements = call.collective.elements(observation.nbytes, size, observation.layout.workers)
    elements_a_port = -(-elements // _ports(observation))
    cut = Cut(call, elements_a_port, schedule.units, 1, size)
    torus = _torus(observation)
    waves = OperationWaves((schedule,), cut, everyone=torus is not None)
    path = critical_path(waves, _TypicalCosts(), torus)
    folds = [kind.nbytes for kind in path if isinstance(kind, PathFold)]
    ports_at_once = _ports_at_once(observation)
    # each port receives its part of the vector
    largest_fold = max(folds, default=0) * ports_at_once
    memory = memory_work(call, algorithm.name, observation.nbytes, largest_fold)
    if COPIED in observation.params:
        memory = memory._replace(copied_bytes=_copied_bytes(observation))
    turns = _ports(observation) // ports_at_once
    ports_of_link = _ports_of_link(observation)
    if ports_of_link > 1:
        path = sharing_links(path, ports_of_link)
    segment = int(observation.params.get("segment", 0))
    if segment:
        path = folded_in_segments(path, segment)
    work: Counter[RowWork] = Counter({kind: count * turns for kind, count in path.items()})
    if ADDRESSES in observation.params:
        work += _addresses(observation)
    return work, memory


def _copied_bytes(observation: Observation) -> int:
    """Return what a rank copies, or a port of it if all ports copy at once."""
    size = observation.nbytes
    copied = {NOTHING_COPIED: 0, VECTOR_COPIED: size, PARTS_COPIED: size // _ports(observation)}
    return copied[str(observation.params[COPIED])]


def _addresses(observation: Observation) -> Counter[RowWork]:
    """Return the messages in which ranks tell each other first where their buffers are."""
    layout = observation.layout
    recipients = str(observation.params[ADDRESSES])
    tier = RACK if layout.nodes > 1 else NODE
    messages: Counter[RowWork] = Counter()
    messages.update(address_messages(recipients, tier, layout.workers, _ports(observation)))
    return messages


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
    reduction = {
        dtype: {"bytes_per_s": quantities.rate("fold", dtype)}
        for kind, dtype, _ in sorted(model.numbers)
        if kind == "fold"
    }
    sections["reduction"] = reduction
    if quantities.has("port", "all"):
        sections["port"] = {"bytes_per_s": quantities.rate("port", "all")}
    own_memory: dict[str, Any] = {"kept_bytes": KEPT_MEMORY_BYTES}
    rates = {
        "copied_bytes_per_s": "copy",
        "new_bytes_per_s": "fresh",
        "new_bytes_per_s_of_node": "fresh of node",
    }
    for key, quantity in rates.items():
        if quantities.has(quantity):
            own_memory[key] = quantities.rate(quantity)
    sections["own_memory"] = own_memory
    if model.larger_from:
        larger: dict[str, Any] = {
            "from_nodes": model.larger_from,
            "tiers": _network_tiers(quantities, groups, "larger"),
            "start_skew_s": quantities.seconds("skew", "larger"),
        }
        if quantities.has("port", "larger"):
            larger["port"] = {"bytes_per_s": quantities.rate("port", "larger")}
        sections["larger_jobs"] = larger
    return MachineFile.of(name=name, kind="fitted", **sections)


def _network_tiers(quantities: _Quantities, groups: set[str], jobs: str) -> dict[str, Any]:
    """Return the costs of messages between nodes, if any were seen; unseen ones between racks are as those inside."""
    if f"rack {jobs}" not in groups:
        return {}
    rack = quantities.tier(f"rack {jobs}")
    fabric = f"fabric {jobs}"
    return {"rack": rack, "fabric": quantities.tier(fabric) if fabric in groups else rack}


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
        "files": sorted({observation.file for observation in used}),
        "undetermined": undetermined(model),
    }


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
    return words


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
