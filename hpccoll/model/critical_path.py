"""The critical path of an operation: how often each kind of message, and each fold, follows another on it.

The time of an operation is the sum of what is on the path. All are linear in the
parameters of a machine, so that a fit of the parameters to measured times is a regression once the
path is known. The path follows the simulation in waves (``wave_simulation``) for one lane: messages
of a wave share the rates of their ranks and of the ports of their nodes.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.model.equal_waves import OperationWaves
from hpccoll.model.torus_links import Torus
from hpccoll.model.traffic import LaneWave, TooManyMessagesError
from hpccoll.schedule.layout import TIERS

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]

AWAY = TIERS.index("rack")
"""The first tier whose messages pass the ports of nodes."""


class PathMessage(NamedTuple):
    """A kind of message: all that its time depends on."""

    tier: str
    nbytes: int
    # the messages of its sender, or of its receiver if these are more, that come before it
    before: int
    # the bytes of its tier that pass its rank in one direction at the same time
    rank_bytes: int
    port_bytes: int  # likewise the port of its node; 0 inside a node
    # whether its receiver waits for it; else its sender does, which does not wait for the latency
    received: bool
    link_bytes: int = (
        0  # those that pass the fullest link of its way through a torus; 0 without a torus
    )
    hops: int = 0  # the links of that way
    segments: int = (
        0  # in how many segments its receiver folds it while it is on its way, if in any
    )


class PathFold(NamedTuple):
    """What a rank folds after a step."""

    nbytes: int


PathWork = PathMessage | PathFold


class PathCosts(Protocol):
    """What the work on a path costs, to find the longest path."""

    def message_s(self, message: PathMessage) -> float:
        """Return the seconds from the start of a message to its arrival, or until its sender has sent it."""

    def fold_s(self, nbytes: int) -> float:
        """Return the seconds of a fold."""

    def waits(self, nbytes: int) -> bool:
        """Return whether a message waits for its receiver."""


MOST_MESSAGES = 1 << 20
"""The most messages, of the ranks that stand for all, of an operation whose path is looked for."""


def critical_path(
    waves: OperationWaves, costs: PathCosts, torus: Torus | None = None
) -> Counter[PathWork]:
    """Return how often each kind of work is on the path that ends last, of an operation with one lane.

    Args:
        waves: the waves of the operation; on a torus those of all ranks, as none stand for others.
        costs: what the work costs.
        torus: the torus of the nodes, if they are on one.

    Raises:
        TooManyMessagesError: if it has more than ``MOST_MESSAGES``.
    """
    paths = _Paths(waves, costs, torus)
    messages = 0
    for run in waves.of(0):
        messages += run.repeats * sum(len(wave.source) for wave in run.waves)
        if messages > MOST_MESSAGES:
            raise TooManyMessagesError
        compiled = [_CompiledWave(paths, wave) for wave in run.waves]
        for _ in range(run.repeats):
            for wave in compiled:
                wave.advance()
    return paths.longest()


def sharing_links(path: Counter[PathWork], ports: int) -> Counter[PathWork]:
    """Return a path whose messages share each link of a torus with those of other ports of the rank.

    Args:
        path: the path of one port.
        ports: the ports that send over a link at once, each as much.
    """
    shared: Counter[PathWork] = Counter()
    for work, count in path.items():
        if isinstance(work, PathMessage):
            link_bytes = max(work.link_bytes, work.rank_bytes)
            shared[work._replace(link_bytes=ports * link_bytes)] += count
        else:
            shared[work] += count
    return shared


def folded_in_segments(path: Counter[PathWork], segment: int) -> Counter[PathWork]:
    """Return a path on which ranks fold each segment of a message while the next one is on its way.

    After the message there is the fold of the last segment alone.

    Args:
        path: the path without segments.
        segment: the bytes of a segment.
    """
    folded = Counter(path)
    for work, count in path.items():
        if not isinstance(work, PathFold) or work.nbytes <= segment:
            continue
        del folded[work]
        folded[PathFold(segment)] += count
        for message in _received(path, work.nbytes):
            folded[message] -= count
            folded[message._replace(segments=-(-message.nbytes // segment))] += count
    return +folded


def _received(path: Counter[PathWork], nbytes: int) -> Sequence[PathMessage]:
    """Return a message of a number of bytes that a rank waits for; none if there is none."""
    messages = [
        work
        for work in path
        if isinstance(work, PathMessage) and work.received and work.nbytes == nbytes
    ]
    return messages[:1]


class _Paths:
    """The time at which each rank can begin its next step, and the path to it, of the ranks that stand for all."""

    def __init__(self, waves: OperationWaves, costs: PathCosts, torus: Torus | None) -> None:
        self.ranks = waves.block
        self.torus = torus
        blocks = waves.layout.ranks // self.ranks
        self.layout = waves.layout
        if blocks > 1:
            self.layout = waves.layout.subset(range(2 * self.ranks))
        self.node = np.array(self.layout.node)
        # the nodes of another block are those of this one
        node_of_block = self.node[: self.ranks]
        self.port = np.concatenate([node_of_block] * (len(self.node) // self.ranks))
        self.costs = costs
        self.ready = np.zeros(self.ranks)
        self.last = np.zeros(self.ranks)
        self.kinds: dict[PathWork, int] = {}
        self.path = np.zeros((self.ranks, 16))
        self.path_to_last = np.zeros((self.ranks, 16))
        self.folded = np.zeros(self.ranks, np.int64)

    def number(self, work: PathWork) -> int:
        """Return the column of a kind of work."""
        number = self.kinds.setdefault(work, len(self.kinds))
        columns = self.path.shape[1]
        if number == columns:
            self.path = np.pad(self.path, ((0, 0), (0, columns)))
            self.path_to_last = np.pad(self.path_to_last, ((0, 0), (0, columns)))
        return number

    def longest(self) -> Counter[PathWork]:
        """Return the path to the rank that ends last."""
        counts = self.path[int(self.ready.argmax())]
        longest: Counter[PathWork] = Counter()
        for work, number in self.kinds.items():
            if counts[number]:
                longest[work] = int(counts[number])
        return longest


class _CompiledWave:
    """A wave with the kinds of its messages, the same each time that it passes."""

    def __init__(self, paths: _Paths, wave: LaneWave) -> None:
        self.paths = paths
        self.wave = wave
        self.target = wave.target % paths.ranks
        tier = paths.layout.tier(wave.source, wave.target)
        columns = _columns(paths, wave, tier)
        alike, self.kind_of = _distinct(columns)
        received = []
        sent = []
        self.seconds = np.zeros((2, alike.shape[1]))
        synchronous = []
        for number, kind in enumerate(alike.T.tolist()):
            tier_number, nbytes, before, rank_bytes, port_bytes, link_bytes, hops = kind
            arrival = PathMessage(
                TIERS[tier_number], nbytes, before, rank_bytes, port_bytes, True, link_bytes, hops
            )
            departure = arrival._replace(received=False)
            received.append(paths.number(arrival))
            sent.append(paths.number(departure))
            self.seconds[:, number] = (
                paths.costs.message_s(arrival),
                paths.costs.message_s(departure),
            )
            synchronous.append(paths.costs.waits(nbytes))
        self.columns = np.array([received, sent], np.int64).reshape(2, -1)
        self.waits = np.array(synchronous, bool)[self.kind_of]

    def advance(self) -> None:
        """Let the messages pass, and end the steps that end with the wave."""
        paths, wave = self.paths, self.wave
        if len(wave.source):
            begin = paths.ready[wave.source]
            target_begin = paths.ready[self.target]
            is_late = self.waits & (target_begin > begin)
            origin = np.where(is_late, self.target, wave.source)
            begin = np.where(is_late, target_begin, begin)
            for direction, ranks in enumerate((self.target, wave.source)):
                self._reach(direction, ranks, begin, origin)
            paths.folded += np.bincount(
                self.target, wave.nbytes * wave.reduces, paths.ranks
            ).astype(np.int64)
        self._end_steps()

    def _reach(self, direction: int, ranks: Ints, begin: Floats, origin: Ints) -> None:
        """Raise the ends of the messages of some ranks, which receive or send, and the paths to these ends."""
        paths = self.paths
        end = begin + self.seconds[direction][self.kind_of]
        order = np.lexsort((end, ranks))
        is_last = np.append(ranks[order][1:] != ranks[order][:-1], True)
        latest = order[is_last]
        later = latest[end[latest] > paths.last[ranks[latest]]]
        if not len(later):
            return
        reached = ranks[later]
        paths.last[reached] = end[later]
        path = paths.path[origin[later]]
        path[np.arange(len(later)), self.columns[direction][self.kind_of[later]]] += 1
        paths.path_to_last[reached] = path

    def _end_steps(self) -> None:
        paths = self.paths
        ended = self.wave.ended
        waited = ended[paths.last[ended] > paths.ready[ended]]
        paths.ready[waited] = paths.last[waited]
        paths.path[waited] = paths.path_to_last[waited]
        folding = ended[paths.folded[ended] > 0]
        for nbytes in np.unique(paths.folded[folding]):
            ranks = folding[paths.folded[folding] == nbytes]
            column = paths.number(PathFold(int(nbytes)))  # before the path, which it may widen
            paths.path[ranks, column] += 1
            paths.ready[ranks] += paths.costs.fold_s(int(nbytes))
        paths.folded[folding] = 0


def _columns(paths: _Paths, wave: LaneWave, tier: Ints) -> Ints:
    """Return tier, bytes, messages before, bytes of the rank, of the port and of a link, and hops, by message."""
    target = wave.target % paths.ranks
    before = np.maximum(_places(wave.source), _places(target))
    rank_bytes = np.maximum(
        _sums(wave.source * len(TIERS) + tier, wave.nbytes),
        _sums(target * len(TIERS) + tier, wave.nbytes),
    )
    away = tier >= AWAY
    port_bytes: Floats = np.zeros(len(tier))
    if away.any():
        passing = wave.nbytes * away
        port_bytes = np.maximum(
            _sums(paths.port[wave.source], passing), _sums(paths.port[target], passing)
        )
    link_bytes, hops = _links(paths, wave)
    columns = np.stack([tier, wave.nbytes, before, rank_bytes, port_bytes * away, link_bytes, hops])
    whole: Ints = columns.astype(np.int64)
    return whole


def _distinct(columns: Ints) -> tuple[Ints, Ints]:
    """Return the distinct columns of a table, and which of them each column is; ``np.unique`` is slower at this."""
    number = np.zeros(columns.shape[1], np.int64)
    for row in columns:
        values, value = np.unique(row, return_inverse=True)
        _, number = np.unique(number * len(values) + value, return_inverse=True)
    _, first = np.unique(number, return_index=True)
    return columns[:, first], number


def _links(paths: _Paths, wave: LaneWave) -> tuple[Ints, Ints]:
    """Return the bytes of the fullest link, and the hops, by message; zeros without a torus."""
    if paths.torus is None:
        none = np.zeros(len(wave.source), np.int64)
        return none, none
    source, target = paths.node[wave.source], paths.node[wave.target]
    link_bytes = paths.torus.link_bytes(source, target, wave.nbytes)
    return link_bytes, paths.torus.hops(source, target)


def _sums(owners: Ints, nbytes: Ints) -> Floats:
    """Return for each message the bytes of all messages with the same owner."""
    sums: Floats = np.bincount(owners, nbytes.astype(float)).astype(float)
    return sums[owners]


def _places(ranks: Ints) -> Ints:
    """Return how many earlier messages each message has with the same rank."""
    order = np.argsort(ranks, kind="stable")
    ordered = ranks[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    first = np.flatnonzero(is_first)
    counts = np.diff(np.append(first, len(ordered)))
    places = np.empty_like(order)
    places[order] = np.arange(len(ordered)) - np.repeat(first, counts)
    return places
