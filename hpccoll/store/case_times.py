"""The times of one case, of each iteration at all ranks or at some, round after round; what a training step ran."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SAMPLES = 1 << 22
"""If a round has more samples, only every n-th rank's are kept; per-iteration summaries cover all ranks."""

Nanoseconds = NDArray[np.int64]

OF_TRAINING = "step_loss", "step_accuracy", "step_differing"
"""The fields of ``CaseTimes`` that only a training has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """The times of one case, round after round."""

    # the start of each iteration at each kept rank, by the clock of that rank, [iteration, kept rank]
    start_ns: Nanoseconds
    end_ns: Nanoseconds  # the end of each iteration, likewise
    rank_stride: int  # a power of two; ranks 0, stride, 2 stride ... are kept, 1 keeps all
    min_ns: Nanoseconds  # the shortest duration over all ranks, [iteration]
    median_ns: Nanoseconds  # the median duration over all ranks, [iteration]
    # the longest duration over all ranks, [iteration]: the time of the operation by the rule ``max``
    max_ns: Nanoseconds
    # the latest end minus the earliest start, [iteration]; empty unless all ranks read one clock
    span_ns: Nanoseconds = field(default_factory=lambda: np.empty(0, np.int64))
    # the mean duration over all ranks, [iteration]: the time by the rule ``mean``; empty for other timings
    mean_ns: Nanoseconds = field(default_factory=lambda: np.empty(0, np.int64))
    slowest_rank: Nanoseconds  # the rank of the longest duration, [iteration]
    round: NDArray[np.uint8]  # the number of the round of the iteration, from 1
    # the time between GPU events, [iteration, kept rank]; empty if no events were recorded
    device_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))
    # of a training step, the times of its operations and computations, [iteration, kept rank, event]; -1 for a rank
    # without that event; empty for other cases
    event_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0, 0), np.int64))
    # of a training, the loss of the batch before the update, [iteration]; empty for other cases
    step_loss: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # its accuracy on what is held out, after the update, [iteration]
    step_accuracy: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # the ranks whose weights differ from those of most ranks, after the update, [iteration]
    step_differing: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of_one(cls, seconds: float, ranks: int, *, one_clock: bool, round_number: int = 1) -> "CaseTimes":
        """Return the times of one iteration, after which all ranks end at once; those of the first rank are kept."""
        end = np.full((1, ranks), max(1, round(seconds * 1e9)), np.int64)
        return cls.from_samples(np.zeros_like(end), end, one_clock=one_clock, limit=1, round_number=round_number)

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
        event_ns: Nanoseconds | None = None,
        of_training: Mapping[str, NDArray[Any]] | None = None,
        has_mean: bool = False,
    ) -> "CaseTimes":
        """Summarise the workers' times of a round, and keep the samples of a subset of all ranks.

        Times are [iteration, rank], and those of a training step, ``event_ns``, [iteration, rank, event]. The workers
        are the first ranks [all]; of starts at most ``limit`` are kept. ``of_training`` has the fields OF_TRAINING;
        ``has_mean`` is whether the time is a mean over ranks.
        """
        worker_starts, worker_ends = start_ns[:, :workers], end_ns[:, :workers]
        durations = worker_ends - worker_starts
        size = max(start_ns.size, 0 if event_ns is None else event_ns.size)
        mean_ns = np.empty(0, np.int64)
        if has_mean:
            mean_ns = np.rint(durations.mean(axis=1)).astype(np.int64)
        stride = 1 << (-(-size // limit) - 1).bit_length()  # a power of two: the ranks kept in two rounds then nest
        return cls(
            start_ns=start_ns[:, ::stride].copy(),  # a view would keep all samples in memory
            end_ns=end_ns[:, ::stride].copy(),
            rank_stride=stride,
            min_ns=durations.min(axis=1),
            median_ns=np.median(durations, axis=1).astype(np.int64),
            max_ns=durations.max(axis=1),
            span_ns=worker_ends.max(axis=1) - worker_starts.min(axis=1) if one_clock else np.empty(0, np.int64),
            mean_ns=mean_ns,
            slowest_rank=durations.argmax(axis=1).astype(np.int64),
            round=np.full(len(durations), round_number, np.uint8),
            device_ns=np.empty((0, 0), np.int64) if device_ns is None else device_ns[:, ::stride].copy(),
            event_ns=np.empty((0, 0, 0), np.int64) if event_ns is None else event_ns[:, ::stride].copy(),
            **(of_training or {}),
        )

    def merge(self, later: "CaseTimes") -> "CaseTimes":
        """Return these times followed by ``later`` ones, of the ranks that both keep."""
        stride = max(self.rank_stride, later.rank_stride)

        def join(name: str, *, by_rank: bool = False) -> Any:
            """Join two arrays by iteration; the result is empty if one of them is."""
            first, second = getattr(self, name), getattr(later, name)
            if not (len(first) and len(second)):
                return second if len(first) else first
            if by_rank:
                first, second = first[:, :: stride // self.rank_stride], second[:, :: stride // later.rank_stride]
            return np.concatenate([first, second])

        per_iteration = ("min_ns", "median_ns", "max_ns", "span_ns", "mean_ns", "slowest_rank", "round", *OF_TRAINING)
        per_rank = ("start_ns", "end_ns", "device_ns", "event_ns")
        return CaseTimes(
            rank_stride=stride,
            **{name: join(name) for name in per_iteration},
            **{name: join(name, by_rank=True) for name in per_rank},
        )


@dataclass(frozen=True, slots=True)
class StageProgram:
    """What the ranks of a pipeline stage run."""

    # of each operation ``label``, ``collective``, ``axis``, ``bytes`` and ``phase``, in order of start; ``receives`` if
    # it is the receipt of a message
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
            tuple(each for each in stage if "label" in each),
            tuple(each["phase"] for each in stage if "label" not in each),
            sum(each.get("products") == [] for each in stage),
        )
        for stage in json.loads(text)
    )
