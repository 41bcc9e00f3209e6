"""The times of one case, of each iteration at all ranks or at some, round after round; what a training step ran.

What a row needs is known of each iteration, over all ranks. The times of each rank are far more:
those that lie in a file are read when they are asked for.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SAMPLES = 1 << 22
"""The most starts of a case, over all its rounds, that are kept: of more only those of every n-th rank are."""

Nanoseconds = NDArray[np.int64]

OF_TRAINING = "step_loss", "step_accuracy", "step_differing"
"""The fields of ``CaseTimes`` that only a training has."""

PER_RANK = "start_ns", "end_ns", "device_ns", "event_ns"
"""The fields of ``TimesOfRanks``."""


def samples_of_round(rounds: int) -> int:
    """Return the most samples that a round of a case with a given number of rounds keeps."""
    return max(1, MAX_SAMPLES // rounds)


def stride_within(limit: int, iterations: int, ranks: int, events: int = 1) -> int:
    """Return the stride of the ranks to keep, a power of two, so that the ranks of two rounds nest.

    ``iterations`` of every stride-th rank have at most ``limit`` samples of ``events`` times each.
    One rank is kept in any case.
    """
    stride = 1
    while stride < ranks and -(-ranks // stride) * iterations * events > limit:
        stride *= 2
    return stride


class KeptTimes(ABC):
    """The times of the ranks that are kept of a case; in memory, or in a file."""

    __slots__ = ()

    @property
    def is_in_memory(self) -> bool:
        """Whether reading them opens no file."""
        return False

    @abstractmethod
    def read(self) -> "TimesOfRanks":
        """Return them in memory.

        Raises:
            BadInputError: if they cannot be read, or differ from what was written.
        """

    def parts_thinned(self, factor: int) -> "tuple[tuple[KeptTimes, int], ...]":
        """Return the parts of a ``JoinedTimes`` that has every ``factor``-th rank."""
        return ((self, factor),)


def _nothing(*shape: int) -> Callable[[], Nanoseconds]:
    # for all cases: an object of each would be most of their memory
    nothing = np.empty(shape, np.int64)
    return lambda: nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesOfRanks(KeptTimes):
    """The times of the kept ranks in memory; all are empty if those of no rank are kept."""

    # the start of each iteration at each kept rank, by the clock of that rank, [iteration, kept
    # rank]
    start_ns: Nanoseconds = field(default_factory=_nothing(0, 0))
    # the end of each iteration, likewise
    end_ns: Nanoseconds = field(default_factory=_nothing(0, 0))
    # the time between GPU events, [iteration, kept rank]; empty if no events were recorded
    device_ns: Nanoseconds = field(default_factory=_nothing(0, 0))
    # of a training step, the times of its operations and computations, [iteration, kept rank,
    # event]; -1 for a rank without that event; empty for other cases
    event_ns: Nanoseconds = field(default_factory=_nothing(0, 0, 0))

    @property
    def is_in_memory(self) -> bool:
        return True

    def read(self) -> "TimesOfRanks":
        return self

    def thinned(self, factor: int) -> "TimesOfRanks":
        """Return those of every ``factor``-th of the kept ranks."""
        if factor == 1:
            return self
        # a view would keep all samples in memory
        return TimesOfRanks(**{name: getattr(self, name)[:, ::factor].copy() for name in PER_RANK})


@dataclass(frozen=True, slots=True)
class StoredTimes(KeptTimes):
    """The times of the kept ranks in a file."""

    load: Callable[[], TimesOfRanks]  # reads them; see ``KeptTimes.read`` for its errors

    def read(self) -> TimesOfRanks:
        return self.load()


@dataclass(frozen=True, slots=True)
class JoinedTimes(KeptTimes):
    """The times of the kept ranks by parts of the iterations, in order of execution; they need not be in memory."""

    # the times of each part, and its thinning: the joined times keep every n-th of its kept ranks
    parts: tuple[tuple[KeptTimes, int], ...]

    @property
    def is_in_memory(self) -> bool:
        return all(times.is_in_memory for times, _ in self.parts)

    def parts_thinned(self, factor: int) -> tuple[tuple[KeptTimes, int], ...]:
        # no deeper, however many are joined
        return tuple((times, factor * own) for times, own in self.parts)

    def read(self) -> TimesOfRanks:
        parts = [times.read().thinned(factor) for times, factor in self.parts]
        return TimesOfRanks(
            **{name: _join([getattr(part, name) for part in parts]) for name in PER_RANK}
        )


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join arrays by iteration; the result is empty if one of them is."""
    for part in parts:
        if not len(part):
            return part
    return np.concatenate(parts)


def start_skew(start_ns: Nanoseconds, clocks: Sequence[int]) -> Nanoseconds:
    """Return how far apart ranks of one clock start, the largest over clocks, [iteration].

    ``start_ns`` are [iteration, rank], ``clocks`` [rank]. Empty if no clock has two ranks.
    """
    order = np.argsort(clocks, kind="stable")
    _, first, ranks = np.unique(np.asarray(clocks)[order], return_index=True, return_counts=True)
    if not (ranks > 1).any():
        return np.empty(0, np.int64)
    by_clock = start_ns[:, order]
    latest, earliest = (
        extreme.reduceat(by_clock, first, axis=1) for extreme in (np.maximum, np.minimum)
    )
    skew: Nanoseconds = (latest - earliest).max(axis=1)
    return skew


def longest_on_device(device_ns: Nanoseconds | None) -> Nanoseconds:
    """Return ``CaseTimes.device_max_ns``; empty if a GPU has no events."""
    if device_ns is None or not device_ns.size or (device_ns < 0).any():
        return np.empty(0, np.int64)
    longest: Nanoseconds = device_ns.max(axis=1)
    return longest


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """The times of one case, round after round."""

    kept: KeptTimes  # the times of the kept ranks
    rank_stride: int  # a power of two; ranks 0, stride, 2 stride ... are kept, 1 keeps all
    # the shortest duration over all ranks, [iteration]; empty if another program measured only the
    # longest one
    min_ns: Nanoseconds = field(default_factory=_nothing(0))
    # the median duration over all ranks, [iteration]; empty likewise
    median_ns: Nanoseconds = field(default_factory=_nothing(0))
    # the longest duration over all ranks, [iteration]: the time of the operation by the rule
    # ``max``
    max_ns: Nanoseconds
    # the latest end minus the earliest start, [iteration]; empty unless all ranks read one clock
    span_ns: Nanoseconds = field(default_factory=_nothing(0))
    # the mean duration over all ranks, [iteration]: the time by the rule ``mean``; empty for other
    # timings
    mean_ns: Nanoseconds = field(default_factory=_nothing(0))
    # the rank of the longest duration, [iteration]; empty likewise
    slowest_rank: Nanoseconds = field(default_factory=_nothing(0))
    # how far apart ranks of one clock start, the largest over clocks, [iteration]; empty if no
    # clock has two ranks
    skew_ns: Nanoseconds = field(default_factory=_nothing(0))
    # the longest time between GPU events, over all ranks, [iteration]; empty if a rank has no
    # events
    device_max_ns: Nanoseconds = field(default_factory=_nothing(0))
    round: NDArray[np.uint8]  # the number of the round of the iteration, from 1
    # of a training, the loss of the batch before the update, [iteration]; empty for other cases
    step_loss: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # its accuracy on what is held out, after the update, [iteration]
    step_accuracy: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # the ranks whose weights differ from those of most ranks, after the update, [iteration]
    step_differing: NDArray[np.int64] = field(default_factory=_nothing(0))

    @classmethod
    def of_one(
        cls, seconds: float, ranks: int, *, one_clock: bool, round_number: int = 1
    ) -> "CaseTimes":
        """Return the times of one iteration, after which all ranks end at once; those of the first rank are kept."""
        end = np.full((1, ranks), max(1, round(seconds * 1e9)), np.int64)
        times = cls.from_samples(
            np.zeros_like(end), end, one_clock=one_clock, limit=1, round_number=round_number
        )
        return replace(times, skew_ns=np.empty(0, np.int64))  # nothing was measured

    @classmethod
    def of_slowest(cls, longest_ns: Nanoseconds) -> "CaseTimes":
        """Return the times of one round, given only the longest duration over ranks, [iteration]."""
        rounds = np.ones(len(longest_ns), np.uint8)
        return cls(kept=TimesOfRanks(), rank_stride=1, max_ns=longest_ns, round=rounds)

    @classmethod
    def from_samples(
        cls,
        start_ns: Nanoseconds,
        end_ns: Nanoseconds,
        *,
        one_clock: bool,
        clocks: Sequence[int] | None = None,
        workers: int | None = None,
        limit: int = MAX_SAMPLES,
        least_stride: int = 1,
        round_number: int = 1,
        device_ns: Nanoseconds | None = None,
        event_ns: Nanoseconds | None = None,
        has_mean: bool = False,
    ) -> "CaseTimes":
        """Summarise the workers' times of a round, and keep the samples of a subset of all ranks.

        Times are [iteration, rank], and those of a training step, ``event_ns``, [iteration, rank,
        event]. The workers are the first ranks [all]; of starts at most ``limit`` are kept, those
        of every ``least_stride``-th rank or of fewer. ``clocks`` has the number of the clock of
        each rank [one for all, or one for each]; ``has_mean`` is whether the time is a mean over
        ranks.
        """
        worker_starts, worker_ends = start_ns[:, :workers], end_ns[:, :workers]
        durations = worker_ends - worker_starts
        iterations, ranks = start_ns.shape
        mean_ns = np.empty(0, np.int64)
        if has_mean:
            mean_ns = np.rint(durations.mean(axis=1)).astype(np.int64)
        if clocks is None:
            clocks = [0] * ranks if one_clock else range(ranks)
        events = 1 if event_ns is None else max(1, event_ns.shape[2])
        stride = max(least_stride, stride_within(limit, iterations, ranks, events))
        optional = {"device_ns": device_ns, "event_ns": event_ns}
        rank_arrays = {"start_ns": start_ns, "end_ns": end_ns}
        rank_arrays |= {name: values for name, values in optional.items() if values is not None}
        return cls(
            # a view would keep all samples in memory
            kept=TimesOfRanks(
                **{name: values[:, ::stride].copy() for name, values in rank_arrays.items()}
            ),
            rank_stride=stride,
            min_ns=durations.min(axis=1),
            median_ns=np.median(durations, axis=1).astype(np.int64),
            max_ns=durations.max(axis=1),
            span_ns=worker_ends.max(axis=1) - worker_starts.min(axis=1)
            if one_clock
            else np.empty(0, np.int64),
            mean_ns=mean_ns,
            slowest_rank=durations.argmax(axis=1).astype(np.int64),
            skew_ns=start_skew(start_ns, clocks),
            device_max_ns=longest_on_device(device_ns),
            round=np.full(len(durations), round_number, np.uint8),
        )

    @property
    def start_ns(self) -> Nanoseconds:
        """The starts of the kept ranks; see ``TimesOfRanks``, whose ``kept.read()`` reads a file once for all."""
        return self.kept.read().start_ns

    @property
    def end_ns(self) -> Nanoseconds:
        """The ends of the kept ranks, likewise."""
        return self.kept.read().end_ns

    @property
    def device_ns(self) -> Nanoseconds:
        """The times between GPU events, likewise."""
        return self.kept.read().device_ns

    @property
    def event_ns(self) -> Nanoseconds:
        """The times within training steps, likewise."""
        return self.kept.read().event_ns

    def in_memory(self) -> "CaseTimes":
        """Return the same times with those of the kept ranks in memory."""
        return replace(self, kept=self.kept.read())

    def of_no_rank(self) -> "CaseTimes":
        """Return the same times without those of any rank."""
        return replace(self, kept=TimesOfRanks())

    def with_events(self, event_ns: Nanoseconds, rank_stride: int) -> "CaseTimes":
        """Return the same times with those within training steps, [iteration, kept rank, event].

        These are kept of every ``rank_stride``-th rank, and then the others, too.
        """
        ranks = self.kept.read().thinned(rank_stride // self.rank_stride)
        return replace(self, kept=replace(ranks, event_ns=event_ns), rank_stride=rank_stride)

    def with_training(self, training_fields: Mapping[str, NDArray[Any]]) -> "CaseTimes":
        """Return the same times with the fields OF_TRAINING, none of them for other cases."""
        values: dict[str, Any] = dict(training_fields)
        return replace(self, **values)

    def summarised(self, clocks: Sequence[int]) -> "CaseTimes":
        """Return the same times with what files of earlier releases lack: it follows from those of the kept ranks.

        ``clocks`` has the number of the clock of each rank.
        """
        ranks = self.kept.read()
        skew_ns = start_skew(ranks.start_ns, clocks[:: self.rank_stride])
        return replace(self, skew_ns=skew_ns, device_max_ns=longest_on_device(ranks.device_ns))

    def merge(self, later: "CaseTimes") -> "CaseTimes":
        """Return these times followed by ``later`` ones, of the ranks that both keep."""
        return CaseTimes.joined([self, later])

    @staticmethod
    def joined(parts: "Sequence[CaseTimes]") -> "CaseTimes":
        """Return the times of all parts, one after the other, of the ranks that all of them keep."""
        stride = max(times.rank_stride for times in parts)
        values = {name: _join([getattr(times, name) for times in parts]) for name in PER_ITERATION}
        kept = [
            part
            for times in parts
            for part in times.kept.parts_thinned(stride // times.rank_stride)
        ]
        return CaseTimes(rank_stride=stride, kept=JoinedTimes(tuple(kept)), **values)


PER_ITERATION = (
    "min_ns",
    "median_ns",
    "max_ns",
    "span_ns",
    "mean_ns",
    "slowest_rank",
    "skew_ns",
    "device_max_ns",
    "round",
    *OF_TRAINING,
)
"""The fields of ``CaseTimes`` with a value for each iteration."""


@dataclass(frozen=True, slots=True)
class SummaryRule:
    """How the times of a round are summarised."""

    number: int = 1  # the number of the round
    clocks: Sequence[int] | None = None  # the number of the clock of each rank [each has its own]
    workers: int | None = None  # the first ranks [all]
    limit: int = MAX_SAMPLES  # how many starts of the round are kept
    has_mean: bool = False  # whether its time is a mean over ranks

    def of(self, times_ns: Nanoseconds, iterations: int) -> CaseTimes:
        """Return the summary of some iterations.

        Args:
            times_ns: start, end and device time of each iteration at each rank, [3, iteration,
                rank]; a device time is -1 without a clock.
            iterations: how many the round has so far, with these: the more, the fewer ranks are
                kept.
        """
        start_ns, end_ns, device_ns = times_ns
        ranks = start_ns.shape[1]
        one_clock = self.clocks is not None and len(set(self.clocks)) == 1
        return CaseTimes.from_samples(
            start_ns,
            end_ns,
            one_clock=one_clock,
            clocks=self.clocks,
            workers=self.workers,
            limit=self.limit,
            least_stride=stride_within(self.limit, iterations, ranks),
            round_number=self.number,
            device_ns=device_ns if (device_ns >= 0).all() else None,
            has_mean=self.has_mean,
        )


@dataclass(frozen=True, slots=True)
class StageProgram:
    """What the ranks of a pipeline stage run."""

    # of each operation ``label``, ``collective``, ``axis``, ``bytes`` and ``phase``, in order of
    # start; ``receives`` if it is the receipt of a message
    operations: tuple[Mapping[str, Any], ...]
    phases: tuple[str, ...]  # the phase of each computation, in order
    # the number of computations that are to be products of matrices, and are too small for one
    without_product: int = 0

    @property
    def events(self) -> int:
        """The number of times of a run: three of each operation, then two of each computation."""
        return 3 * len(self.operations) + 2 * len(self.phases)


def stage_programs(text: str) -> tuple[StageProgram, ...]:
    """Return the programs of the column ``program`` of a raw file, one for each pipeline stage."""
    return tuple(
        StageProgram(
            tuple(entry for entry in stage if "label" in entry),
            tuple(entry["phase"] for entry in stage if "label" not in entry),
            sum(entry.get("products") == [] for entry in stage),
        )
        for stage in json.loads(text)
    )
