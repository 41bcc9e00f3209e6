"""The times of one case: of every iteration, at every rank or what is kept of them, its rounds one after the other."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MAX_SAMPLES = 1 << 22
"""Above this many samples of a round, only every n-th rank's are kept; what all ranks did is kept per iteration."""

Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """The times of one case, its rounds one after the other.

    Args:
        start_ns: of each iteration at each kept rank, by the clock of that rank, [iteration, kept rank].
        end_ns: the same.
        rank_stride: ranks 0, stride, 2 stride ... are kept, a power of two; 1 keeps all.
        min_ns: the shortest duration over all ranks, [iteration].
        median_ns: the median duration.
        max_ns: the longest duration: the time of the operation by the rule ``max``.
        span_ns: latest end minus earliest start, where all ranks read one clock, else empty.
        slowest_rank: the rank of the longest duration.
        round: which round the iteration belongs to, from 1 on.
        device_ns: what the GPU took by its own events, [iteration, kept rank]; empty where no events were recorded.
    """

    start_ns: Nanoseconds
    end_ns: Nanoseconds
    rank_stride: int
    min_ns: Nanoseconds
    median_ns: Nanoseconds
    max_ns: Nanoseconds
    span_ns: Nanoseconds
    slowest_rank: Nanoseconds
    round: NDArray[np.uint8]
    device_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))

    @classmethod
    def from_samples(
        cls,
        start_ns: Nanoseconds,
        end_ns: Nanoseconds,
        *,
        one_clock: bool,
        workers: int | None = None,
        limit: int = MAX_SAMPLES,
        round_number: int = 1,
        device_ns: Nanoseconds | None = None,
    ) -> "CaseTimes":
        """Summarise a round's times of the workers, and keep at most ``limit`` of each kind, aggregators' among them.

        Args:
            start_ns: [iteration, rank].
            end_ns: the same.
            one_clock: whether all ranks read one clock.
            workers: the ranks whose operation it is, the first ones; all unless given.
            limit: the most times that are kept.
            round_number: which round it is.
            device_ns: between two events on the GPU, around the operation, [iteration, rank].
        """
        begun, ended = start_ns[:, :workers], end_ns[:, :workers]
        durations = ended - begun
        stride = 1 << (-(-start_ns.size // limit) - 1).bit_length()  # those of two rounds have one in common
        return cls(
            start_ns=start_ns[:, ::stride].copy(),  # a view would keep all of it in memory
            end_ns=end_ns[:, ::stride].copy(),
            rank_stride=stride,
            min_ns=durations.min(axis=1),
            median_ns=np.median(durations, axis=1).astype(np.int64),
            max_ns=durations.max(axis=1),
            span_ns=ended.max(axis=1) - begun.min(axis=1) if one_clock else np.empty(0, np.int64),
            slowest_rank=durations.argmax(axis=1).astype(np.int64),
            round=np.full(len(durations), round_number, np.uint8),
            device_ns=np.empty((0, 0), np.int64) if device_ns is None else device_ns[:, ::stride].copy(),
        )

    def merge(self, later: "CaseTimes") -> "CaseTimes":
        """Return these times and ``later`` ones, of the ranks that both have kept."""
        stride = max(self.rank_stride, later.rank_stride)
        one_clock = len(self.span_ns) and len(later.span_ns)
        by_events = len(self.device_ns) and len(later.device_ns)

        def joined(name: str) -> Nanoseconds:
            return np.concatenate([getattr(times, name) for times in (self, later)])

        def of_ranks(name: str) -> Nanoseconds:
            return np.concatenate([getattr(times, name)[:, :: stride // times.rank_stride] for times in (self, later)])

        return CaseTimes(
            start_ns=of_ranks("start_ns"),
            end_ns=of_ranks("end_ns"),
            rank_stride=stride,
            min_ns=joined("min_ns"),
            median_ns=joined("median_ns"),
            max_ns=joined("max_ns"),
            span_ns=joined("span_ns") if one_clock else np.empty(0, np.int64),
            slowest_rank=joined("slowest_rank"),
            round=np.concatenate([self.round, later.round]),
            device_ns=of_ranks("device_ns") if by_events else np.empty((0, 0), np.int64),
        )
