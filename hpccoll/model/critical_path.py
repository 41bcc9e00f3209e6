"""The critical path of an operation: how often each kind of message, and each fold, follows another on it.

The time of an operation is the sum of the times of what is on the path. Each time is linear in
the parameters of a machine. So once the path is known, a fit of the parameters to measured times is
a regression. The path follows the simulation in waves (``wave_simulation``) for one lane: messages
of a wave share the rates of their ranks and of the ports of their nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.model.torus_links import Torus
from hpccoll.model.traffic import LaneWave, TooManyMessagesError, WaveRun, Waves
from hpccoll.schedule import Layout
from hpccoll.schedule.layout import TIERS

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]
Bools = NDArray[np.bool]
Numbers: TypeAlias = Ints | Floats

NODE = "node"
"""The tier whose messages stay inside a node."""

AWAY = TIERS.index("rack")
"""The first tier whose messages pass the ports of nodes."""


class PathWaves(Waves, Protocol):
    """The waves of an operation with one lane: see ``equal_waves`` and ``complete_exchange``."""

    @property
    def placed(self) -> Layout:
        """The layout of the ranks that the messages of the waves name."""


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
    # the bytes that pass the fullest link of its way through a torus; 0 without a torus
    link_bytes: int = 0
    hops: int = 0  # the links of that way
    # in how many segments its receiver folds it while it is on its way; 0 if it folds the whole
    segments: int = 0


class PathFold(NamedTuple):
    """What a rank folds after a step."""

    nbytes: int


class PathAddresses(NamedTuple):
    """A message of addresses, which comes before those of a schedule: see ``address_messages``."""

    tier: str
    nbytes: int
    before: int  # the messages of its sender that come before it


PathWork = PathMessage | PathFold

RowWork: TypeAlias = PathWork | PathAddresses
"""What an operation consists of: what is on its path, and what comes before its schedule."""


class WaveMessages(NamedTuple):
    """The messages of a wave, as arrays over them: see ``PathMessage``."""

    tier: Ints  # an index of TIERS
    nbytes: Ints
    before: Ints
    rank_bytes: Ints
    port_bytes: Ints
    link_bytes: Ints
    hops: Ints

    def kinds(self, *, received: bool) -> tuple[list[PathMessage], Ints]:
        """Return the different kinds of messages, and which of them each message is."""
        alike, kind_of_message = _distinct(np.stack(self))
        kinds = []
        for tier, nbytes, before, rank_bytes, port_bytes, link_bytes, hops in alike.T.tolist():
            kind = PathMessage(
                TIERS[tier], nbytes, before, rank_bytes, port_bytes, received, link_bytes, hops
            )
            kinds.append(kind)
        return kinds, kind_of_message


class WorkCosts(Protocol):
    """What the work on a path costs."""

    def messages_s(self, messages: WaveMessages, *, received: bool) -> Floats:
        """Return the seconds from the start of each message to its arrival, or until its sender has sent it."""

    def fold_s(self, nbytes: Ints) -> Floats:
        """Return the seconds of each fold."""

    def waits(self, nbytes: Ints) -> Bools:
        """Return whether each message waits for its receiver."""


MOST_MESSAGES = 1 << 20
"""The most messages of an operation to which a machine is fitted: those of the ranks that stand for all."""


def critical_path(
    waves: PathWaves, costs: WorkCosts, torus: Torus | None = None
) -> Counter[PathWork]:
    """Return how often each kind of work is on the path that ends last, of an operation with one lane.

    Args:
        waves: the waves of the operation; on a torus those of all ranks, or of complete exchanges.
        costs: what the work costs.
        torus: the torus of the nodes, if they are on one.

    Raises:
        TooManyMessagesError: if it has more than ``MOST_MESSAGES``.
    """
    counts = _Counts(waves.block)
    paths = _Paths(waves, costs, counts, torus)
    for _ in paths.advance(_with_few_messages(waves.of(0))):
        pass
    return counts.work_of_rank(paths.last_rank)


def _with_few_messages(runs: Iterable[WaveRun]) -> Iterator[WaveRun]:
    """Yield the runs of an operation; TooManyMessagesError if it has more than ``MOST_MESSAGES``."""
    messages = 0
    for run in runs:
        messages += run.repeats * _messages_of_cycle(run)
        if messages > MOST_MESSAGES:
            raise TooManyMessagesError
        yield run


def _messages_of_cycle(run: WaveRun) -> int:
    return sum(len(wave.source) for wave in run.waves)


def path_seconds(
    waves: PathWaves,
    costs: WorkCosts,
    machines: Sequence[WorkCosts],
    torus: Torus | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[float]:
    """Return what the work on the path costs on each machine; the path is that of ``critical_path``.

    Args:
        waves: the waves of the operation: see ``critical_path``.
        costs: what the work costs when the path is looked for.
        machines: what it costs on each machine.
        torus: the torus of the nodes, if they are on one.
        progress: is called now and then with the number of messages so far.
    """
    seconds = _Seconds(waves.block, machines)
    paths = _Paths(waves, costs, seconds, torus)
    for messages in paths.advance(waves.of(0)):
        if progress:
            progress(paths.blocks * messages)
    on_machines: list[float] = seconds.path[paths.last_rank].tolist()
    return on_machines


class _Sums(Protocol):
    """What is summed along the path to the next step of each rank, and to the end of its last message."""

    path: Floats  # [rank, what is summed]
    path_to_last: Floats

    def added_by(self, messages: WaveMessages, *, received: bool) -> Numbers:
        """Return what each message adds to a path."""

    def add(self, path: Floats, added: Numbers) -> None:
        """Add to some paths what messages add."""

    def fold(self, ranks: Ints, nbytes: Ints) -> None:
        """Add folds to the paths of some ranks."""


class _Counts:
    """How often each kind of work is on the paths: a column for each kind."""

    def __init__(self, ranks: int) -> None:
        self.kinds: dict[PathWork, int] = {}
        self.path: Floats = np.zeros((ranks, 16))
        self.path_to_last: Floats = np.zeros((ranks, 16))

    def added_by(self, messages: WaveMessages, *, received: bool) -> Ints:
        """Return the column of each message."""
        kinds, kind_of_message = messages.kinds(received=received)
        columns = np.array([self._column(kind) for kind in kinds], np.int64)
        column_of_message: Ints = columns[kind_of_message]
        return column_of_message

    def add(self, path: Floats, added: Numbers) -> None:
        path[np.arange(len(path)), added] += 1

    def fold(self, ranks: Ints, nbytes: Ints) -> None:
        for size in np.unique(nbytes):
            column = self._column(PathFold(int(size)))
            self.path[ranks[nbytes == size], column] += 1

    def work_of_rank(self, rank: int) -> Counter[PathWork]:
        """Return how often each kind of work is on the path of a rank."""
        counts = self.path[rank]
        counted: Counter[PathWork] = Counter()
        for work, column in self.kinds.items():
            if counts[column]:
                counted[work] = int(counts[column])
        return counted

    def _column(self, work: PathWork) -> int:
        column = self.kinds.setdefault(work, len(self.kinds))
        columns = self.path.shape[1]
        if column == columns:
            self.path = np.pad(self.path, ((0, 0), (0, columns)))
            self.path_to_last = np.pad(self.path_to_last, ((0, 0), (0, columns)))
        return column


class _Seconds:
    """The seconds of the work on the paths: a column for each machine."""

    def __init__(self, ranks: int, machines: Sequence[WorkCosts]) -> None:
        self.machines = machines
        self.path: Floats = np.zeros((ranks, len(machines)))
        self.path_to_last: Floats = np.zeros((ranks, len(machines)))

    def added_by(self, messages: WaveMessages, *, received: bool) -> Floats:
        """Return the seconds of each message, [message, machine]."""
        columns = [machine.messages_s(messages, received=received) for machine in self.machines]
        return np.stack(columns, axis=1)

    def add(self, path: Floats, added: Numbers) -> None:
        path += added

    def fold(self, ranks: Ints, nbytes: Ints) -> None:
        for column, machine in enumerate(self.machines):
            self.path[ranks, column] += machine.fold_s(nbytes)


def sharing_links(path: Counter[PathWork], ports: int) -> Counter[PathWork]:
    """Return a path whose messages share each link of a torus with those of other ports of the rank.

    Args:
        path: the path of one port.
        ports: the ports that send over a link at once, each as much.
    """
    shared: Counter[PathWork] = Counter()
    for work, count in path.items():
        if isinstance(work, PathMessage) and work.tier != NODE:
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
        segments = -(-work.nbytes // segment)
        for message, received in _received(path, work.nbytes, count).items():
            folded[message] -= received
            folded[message._replace(segments=segments)] += received
    return +folded


def _received(path: Counter[PathWork], nbytes: int, most: int) -> Counter[PathMessage]:
    """Return the messages of a number of bytes that a rank waits for, the first ``most`` of them."""
    received: Counter[PathMessage] = Counter()
    for work, count in path.items():
        if isinstance(work, PathMessage) and work.received and work.nbytes == nbytes:
            received[work] = min(count, most - received.total())
    return received


class _Paths:
    """The time at which each rank can begin its next step, and the path to it, of the ranks that stand for all."""

    def __init__(
        self, waves: PathWaves, costs: WorkCosts, sums: _Sums, torus: Torus | None
    ) -> None:
        self.ranks = waves.block
        self.torus = torus
        self.blocks = waves.layout.ranks // self.ranks
        self.layout = waves.placed
        self.node = np.array(self.layout.node)
        self.costs = costs
        self.sums = sums
        # by rank: when its step begins, when the last message of that step ends, and the bytes that
        # the step folds
        self.ready = np.zeros(self.ranks)
        self.last = np.zeros(self.ranks)
        self.folded = np.zeros(self.ranks, np.int64)
        self._before: _CompiledWave | None = None  # the wave that was compiled last

    def advance(self, runs: Iterable[WaveRun]) -> Iterator[int]:
        """Let all waves pass; yield now and then how many messages have passed."""
        passed = 0
        for run in runs:
            messages = _messages_of_cycle(run)
            compiled = [self._compiled(wave) for wave in run.waves]
            for _ in range(run.repeats):
                for wave in compiled:
                    wave.advance()
                passed += messages
                yield passed

    def _compiled(self, wave: LaneWave) -> "_CompiledWave":
        """Return a wave compiled: the one before it, if that has the same messages, as in a ring after a tree."""
        if self._before is None or not _are_alike(self._before.wave, wave):
            self._before = _CompiledWave(self, wave)
        return self._before

    @property
    def last_rank(self) -> int:
        """The rank that ends last."""
        return int(self.ready.argmax())


def _are_alike(first: LaneWave, second: LaneWave) -> bool:
    columns = "source", "target", "nbytes", "reduces", "ended"
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in columns)


class _CompiledWave:
    """A wave with the times of its messages, the same each time that it passes."""

    def __init__(self, paths: _Paths, wave: LaneWave) -> None:
        self.paths = paths
        self.wave = wave
        self.target = wave.target % paths.ranks
        self.folded: Ints | None = None
        if not len(wave.source):
            return
        if wave.reduces.any():
            folded = np.bincount(self.target, wave.nbytes * wave.reduces, paths.ranks)
            self.folded = folded.astype(np.int64)
        messages = _messages(paths, wave)
        self.waits = paths.costs.waits(wave.nbytes)
        self.directions = [
            _Direction(paths, messages, ranks, received=received)
            for received, ranks in ((True, self.target), (False, wave.source))
        ]

    def advance(self) -> None:
        """Let the messages pass, and end the steps that end with the wave."""
        paths, wave = self.paths, self.wave
        if len(wave.source):
            begin = paths.ready[wave.source]
            target_begin = paths.ready[self.target]
            is_late = self.waits & (target_begin > begin)
            origin = np.where(is_late, self.target, wave.source)
            begin = np.where(is_late, target_begin, begin)
            for direction in self.directions:
                direction.reach(begin, origin)
            if self.folded is not None:
                paths.folded += self.folded
        self._end_steps()

    def _end_steps(self) -> None:
        paths = self.paths
        sums = paths.sums
        ended = self.wave.ended
        waited = ended[paths.last[ended] > paths.ready[ended]]
        paths.ready[waited] = paths.last[waited]
        sums.path[waited] = sums.path_to_last[waited]
        folding = ended[paths.folded[ended] > 0]
        if len(folding):
            nbytes = paths.folded[folding]
            sums.fold(folding, nbytes)
            paths.ready[folding] += paths.costs.fold_s(nbytes)
            paths.folded[folding] = 0


class _Direction:
    """The arrivals of the messages of a wave at their receivers, or their ends at their senders."""

    def __init__(
        self, paths: _Paths, messages: WaveMessages, ranks: Ints, *, received: bool
    ) -> None:
        self.paths = paths
        self.ranks = ranks
        self.seconds = paths.costs.messages_s(messages, received=received)
        self.added = paths.sums.added_by(messages, received=received)
        self.has_one_each = int(np.bincount(ranks).max()) == 1

    def reach(self, begin: Floats, origin: Ints) -> None:
        """Raise the ends of the last messages of the ranks, and the paths to these ends.

        Args:
            begin: when each message begins.
            origin: the rank that it waited for, its sender or its receiver.
        """
        paths = self.paths
        sums = paths.sums
        end = begin + self.seconds
        is_later = end > paths.last[self.ranks]
        if not self.has_one_each:
            is_later &= self._is_latest(end)
        later = np.flatnonzero(is_later)
        if not len(later):
            return
        reached = self.ranks[later]
        paths.last[reached] = end[later]
        path = sums.path[origin[later]]
        sums.add(path, self.added[later])
        sums.path_to_last[reached] = path

    def _is_latest(self, end: Floats) -> Bools:
        """Return whether each message is the last one of its rank."""
        order = np.lexsort((end, self.ranks))
        ordered = self.ranks[order]
        is_latest = np.zeros(len(end), bool)
        is_latest[order] = np.append(ordered[1:] != ordered[:-1], True)
        return is_latest


def _messages(paths: _Paths, wave: LaneWave) -> WaveMessages:
    """Return all that the times of the messages of a wave depend on."""
    target = wave.target % paths.ranks
    tier = paths.layout.tier(wave.source, wave.target)
    before = np.maximum(_places(wave.source), _places(target))
    rank_bytes = np.maximum(
        _sums(wave.source * len(TIERS) + tier, wave.nbytes),
        _sums(target * len(TIERS) + tier, wave.nbytes),
    )
    away = tier >= AWAY
    port_bytes = np.zeros(len(tier), np.int64)
    if away.any():
        passing = wave.nbytes * away
        port_bytes = np.maximum(
            _sums(paths.node[wave.source], passing), _sums(paths.node[target], passing)
        )
    link_bytes, hops = _links(paths, wave)
    return WaveMessages(tier, wave.nbytes, before, rank_bytes, port_bytes * away, link_bytes, hops)


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
    if paths.blocks > 1:
        link_bytes = paths.torus.mean_link_bytes(source, target, wave.nbytes, paths.blocks)
    else:
        link_bytes = paths.torus.link_bytes(source, target, wave.nbytes)
    return link_bytes, paths.torus.hops(source, target)


def _sums(owners: Ints, nbytes: Ints) -> Ints:
    """Return for each message the bytes of all messages with the same owner."""
    sums = np.bincount(owners, nbytes.astype(float)).astype(np.int64)
    sum_of_message: Ints = sums[owners]
    return sum_of_message


def _places(ranks: Ints) -> Ints:
    """Return how many earlier messages each message has with the same rank."""
    if int(np.bincount(ranks).max()) == 1:
        return np.zeros_like(ranks)
    order = np.argsort(ranks, kind="stable")
    ordered = ranks[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    first = np.flatnonzero(is_first)
    counts = np.diff(np.append(first, len(ordered)))
    places = np.empty_like(order)
    places[order] = np.arange(len(ordered)) - np.repeat(first, counts)
    return places
