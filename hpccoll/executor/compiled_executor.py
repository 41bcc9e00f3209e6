"""The compiled executor: lowered steps as arrays that C runs, without a call of Python in between.

Ranks of a node synchronise by words in shared memory instead of empty messages. Each word has one
writer and one reader: it counts the parts of a lane that the sender has made ready, or that the
receiver has read.
"""

import ctypes
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from hpccoll.executor.library import load_library
from hpccoll.executor.lowered_step import (
    LocalCall,
    LocalCopy,
    LocalFold,
    LocalWork,
    LoweredStep,
    MpiMessage,
    describe_progress,
)
from hpccoll.executor.mpi_functions import (
    handle,
    mpi_functions,
    probe_struct,
    request_array,
    status_array,
)
from hpccoll.executor.structures import (
    DTYPES,
    FAILED_CALLS,
    MESSAGE,
    SEQUENCE,
    SIGNAL,
    STEP,
    STRUCTURES,
    WORK,
    WORK_COPY,
    WORK_FOLD,
    WORK_SCALE,
    Records,
    kernel,
    records,
)
from hpccoll.schedule.operation import Array

NEVER = 2**63 - 1
"""A time that does not come."""

WORD_SPACING = 8
"""The distance of two words in elements of int64: a cache line, so that writers do not slow each other down."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """How the compiled executor runs."""

    # whether ranks outnumber the cores: a waiting rank then gives its core to others at once
    oversubscribed: bool
    dtypes: tuple[str, ...] = DTYPES  # the element types that it can fold


class NodeMemory(Protocol):
    """Memory that all ranks of a node can read, such as ``SharedMemory`` of the transports, which says what it does."""

    node: MPI.Intracomm
    ranks: list[int]

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array: ...

    def views(self, own: Array) -> Mapping[int, Array]: ...

    def close(self) -> None: ...


class CompiledExecutor:
    """Runs a plan in C: blocking calls of the library, then sequences of steps.

    Args:
        initial: the number of sequences that start at once [all].
        persistent: whether the requests are created once; otherwise each run creates new ones.
        large: whether a rank starts messages with counts above MAX_COUNT anew in each run.
        shared: the shared memory of the node if ranks synchronise by words; all ranks then create
            it together.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        options: ExecutorOptions,
        sequences: Sequence[Sequence[LoweredStep]] = (),
        initial: int | None = None,
        *,
        persistent: bool = True,
        large: bool = False,
        shared: NodeMemory | None = None,
        calls: Sequence[Records] = (),
    ) -> None:
        self.sequences = sequences  # their arrays must outlive this plan
        self._library = load_library()
        steps = [step for sequence in sequences for step in sequence]
        encoder = _Encoder(_signals(steps, shared, comm.rank) if shared else {})
        messages = [
            message
            for step in steps
            for message in step.messages
            if not (shared and message.is_signal)
        ]
        self.requests: list[MPI.Prequest] = []
        message_rows: list[tuple[int, ...]] = []
        if persistent:
            self.requests = [message.persistent(comm) for message in messages]
        else:
            message_rows = [_message_row(message) for message in messages]
        for step in steps:
            encoder.add(step)
        slots = encoder.max_messages
        self._at = _sequence_records(sequences)
        self._arrays = {
            "works": records(encoder.works, WORK),
            "messages": records(message_rows, MESSAGE),
            "signals": records(encoder.signals, SIGNAL),
            "steps": records(encoder.steps, STEP),
            "sequences": self._at,
            "requests": request_array(self.requests),
            "active": request_array([MPI.REQUEST_NULL] * (slots * len(sequences))),
            "indices": np.zeros(max(1, slots * len(sequences)), np.int32),
            "statuses": status_array(slots * len(sequences)),
            "calls": np.concatenate(calls) if calls else np.zeros(1, np.uint8),
        }
        addresses = {name: array.ctypes.data for name, array in self._arrays.items()}
        if not persistent:
            addresses["requests"] = 0
        self._mpi = mpi_functions(large=large)
        self._plan = STRUCTURES["plan_t"](
            **addresses,
            sequence_count=len(sequences),
            call_count=len(calls),
            slots=slots,
            probe=probe_struct(comm, self._mpi, self._arrays["statuses"]),
            initial=len(sequences) if initial is None else initial,
            idle=STRUCTURES["idle_t"](shares_core=options.oversubscribed),
        )
        self._reference = ctypes.byref(self._plan)
        self.address = ctypes.addressof(self._plan)
        self._plan.started = len(sequences)

    def start(self) -> None:
        """Start a run: blocking calls are made, and the first messages are started."""
        self.check(self._library.hpccoll_start(self._reference))

    def advance(self) -> bool:
        """Advance a started run until it would have to wait; return whether it has ended."""
        ended = self._library.hpccoll_progress(self._reference)
        self.check(ended)
        return bool(ended)

    def run(self) -> None:
        """Run the plan once."""
        self.check(self._library.hpccoll_run(self._reference))

    @property
    def running(self) -> bool:
        """Whether a run has started and not ended."""
        return bool(self._plan.running)

    @property
    def started(self) -> int:
        """The number of sequences that the current run has started."""
        return int(self._plan.started)

    @property
    def failed(self) -> int:
        """The number in FAILED_CALLS of the MPI function that has failed, 0 if none has."""
        return int(self._plan.failed)

    def check(self, code: int) -> None:
        """Raise the error of a call that returned ``code``.

        Raises:
            RuntimeError: if the code is negative; names the function, the step, its peers and MPI's
                error.
        """
        if code < 0:
            function, error = FAILED_CALLS[self.failed], MPI.Get_error_string(self._plan.error)
            where = f" ({self.progress()})" if self.started else ""
            raise RuntimeError(f"{function} fails: {error}{where}")

    def progress(self) -> str:
        """Return the current step of each started sequence, and the peers of that step."""
        started = self.started  # another thread may ask while C starts sequences
        current = (self._at["at"] - self._at["first"])[:started]
        return describe_progress(self.sequences[:started], [int(at) for at in current])

    def close(self) -> None:
        """Free the requests."""
        for request in self.requests:
            request.Free()


def _sequence_records(sequences: Sequence[Sequence[LoweredStep]]) -> Records:
    """Return the first step, the current step and the end of each sequence; the steps of all are in one array."""
    ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
    rows = np.zeros(max(1, len(sequences)), SEQUENCE)
    rows["end"][: len(sequences)] = ends
    rows["first"][1 : len(sequences)] = ends[:-1]
    rows["at"] = rows["first"]
    return rows


def wait_all(plans: Sequence[CompiledExecutor]) -> None:
    """Wait until all started plans have ended; each of them advances whenever it can.

    Raises:
        RuntimeError: if a plan fails.
    """
    _wait(plans, len(plans), NEVER)


def advance_until(plans: Sequence[CompiledExecutor], until_ns: int) -> bool:
    """Advance started plans until one of them has ended, or a time has come; without plans, sleep until then.

    Args:
        plans: started plans that have not ended.
        until_ns: the time, by ``time.perf_counter_ns``.

    Returns:
        whether a plan has ended.

    Raises:
        RuntimeError: if a plan fails.
    """
    return _wait(plans, 1, until_ns)


def _wait(plans: Sequence[CompiledExecutor], needed: int, until_ns: int) -> bool:
    """Advance plans until a given number have ended; return False if a time comes first."""
    addresses = (ctypes.c_void_p * len(plans))(*(plan.address for plan in plans))
    numbers = map(ctypes.c_int64, (len(plans), needed, until_ns))
    code = int(load_library().hpccoll_wait(addresses, *numbers))
    if code < 0:
        for plan in plans:
            plan.check(-plan.failed)
    return code > 0


class _SignalKey(NamedTuple):
    """The word of a lane between two ranks of a node."""

    peer: int
    writes: bool  # whether this rank writes the word
    lane: int
    ready: bool  # whether the word counts parts that are ready; otherwise parts that have been read

    @classmethod
    def of(cls, message: MpiMessage) -> "_SignalKey":
        return cls(message.peer, message.sends, message.lane, message.nbytes > 0)


class _Word(NamedTuple):
    """A word: its address, and the number of signals that it gets in a run."""

    address: int
    per_run: int


def _signals(steps: Iterable[LoweredStep], shared: NodeMemory, me: int) -> dict[_SignalKey, _Word]:
    """Return the words of this rank's signals; all ranks of the shared memory call this together."""
    signals = [message for step in steps for message in step.messages if message.is_signal]
    counts = Counter(map(_SignalKey.of, signals))
    written = [key for key in counts if key.writes]
    words = shared.empty(len(written) * WORD_SPACING, np.dtype(np.int64))
    words[...] = 0
    views = shared.views(words)
    indices: dict[int, dict[tuple[int, bool], int]] = {rank: {} for rank in views}
    for i, key in enumerate(written):
        indices[key.peer][key.lane, key.ready] = i
    received = shared.node.alltoall([indices[rank] for rank in shared.ranks])
    read = dict(zip(shared.ranks, received, strict=True))
    # No rank raises a signal before its peer has zeroed its words: the exchange comes after that on
    # all ranks.
    words_of_signals = {}
    for key, per_run in counts.items():
        if key.writes:
            view = views[me]
            index = indices[key.peer][key.lane, key.ready]
        else:
            view = views[key.peer]
            index = read[key.peer][key.lane, key.ready]
        address = view.ctypes.data + index * WORD_SPACING * view.itemsize
        words_of_signals[key] = _Word(address, per_run)
    return words_of_signals


class _Encoder:
    """Turns steps into the rows of the arrays of a plan.

    Args:
        words: the words of signals; messages without a word are messages of MPI.

    Attributes:
        max_messages: the largest number of messages of MPI in a step.
    """

    def __init__(self, words: dict[_SignalKey, _Word]) -> None:
        self._words = words
        self._ordinals = Counter[_SignalKey]()
        self.works: list[tuple[int, ...]] = []
        self.signals: list[tuple[int, ...]] = []
        self.steps: list[tuple[int, ...]] = []
        self._messages = self.max_messages = 0

    def add(self, step: LoweredStep) -> None:
        """Append a step."""
        signals = [message for message in step.messages if _SignalKey.of(message) in self._words]
        before = self._add_works(step.before)
        raised = self._add_signals(message for message in signals if message.sends)
        messages = len(step.messages) - len(signals)
        first = self._messages
        self._messages += messages
        self.max_messages = max(self.max_messages, messages)
        awaited = self._add_signals(message for message in signals if not message.sends)
        after = self._add_works(step.after)
        self.steps.append((*before, *raised, first, self._messages, *awaited, *after))

    def _add_works(self, works: Iterable[LocalWork]) -> tuple[int, int]:
        first = len(self.works)
        # The remaining calls are memory fences for the messages of the Python executor.
        self.works += [_work_row(work) for work in works if not isinstance(work, LocalCall)]
        return first, len(self.works)

    def _add_signals(self, messages: Iterable[MpiMessage]) -> tuple[int, int]:
        first = len(self.signals)
        for key in map(_SignalKey.of, messages):
            self._ordinals[key] += 1
            word = self._words[key]
            self.signals.append((word.address, self._ordinals[key], word.per_run))
        return first, len(self.signals)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]  # faster than through ctypes
    return address


def _work_row(work: LocalWork) -> tuple[int, ...]:
    assert not isinstance(work, LocalCall)  # noqa: S101
    target = _address(work.target)
    dtype = work.target.dtype.name
    if isinstance(work, LocalCopy):
        return WORK_COPY, 0, work.target.nbytes, target, _address(work.source), 0, 0
    if isinstance(work, LocalFold):
        number = kernel(work.fold.__name__, dtype)
        return WORK_FOLD, number, len(work.target), target, _address(work.a), _address(work.b), 0
    return WORK_SCALE, kernel("add", dtype), len(work.target), target, 0, 0, work.workers


def _message_row(message: MpiMessage) -> tuple[int, ...]:
    data, count, datatype = message.data
    return _address(data), count, handle(datatype), message.sends, message.peer, message.tag
