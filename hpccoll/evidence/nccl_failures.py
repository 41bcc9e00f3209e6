"""Failures in NCCL's log: an error returns through its callers, and each of them logs ``file:line -> code``.

The warning that the same thread logged before is the cause. NCCL recovers from some errors, such as
those of a network plugin without devices: then the thread goes on with other messages before the
error reaches a function of the API. With NCCL_DEBUG=WARN only the causes are logged. Source:
NCCLCHECK and its neighbours in src/include/checks.h.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_record import LoggedFailure

_RESULTS = {
    1: "ncclUnhandledCudaError",
    2: "ncclSystemError",
    3: "ncclInternalError",
    4: "ncclInvalidArgument",
    5: "ncclInvalidUsage",
    6: "ncclRemoteError",
    8: "ncclTimeout",
}
"""ncclResult_t; 7 is not an error."""

_STEP = re.compile(r"(?:[\w./+-]*/src/)?([\w./+-]+:\d{1,9}) (?:\([^)]*\) )?-> ([1-68])(?![\w.])")

_CREATION = re.compile(r"(?:^|/)(?:init|bootstrap)\.\w+:")
"""Sources of the functions that create a communicator."""

_API = re.compile(r"(?:^|/)(?:init|group|enqueue)\.\w+:")
"""Sources of the functions that programs call."""

_PROXY = re.compile(r"(?:^|/)proxy\.\w+:")
"""The source of the threads that drive the network; when peers end, they end with an error without a cause."""


@dataclass(slots=True)
class ErrorTrace:
    """The course of one error in a process, which had ``created`` a communicator before or not.

    The causes are the warnings before the error, with their places; the steps are the places of the
    callers, from the innermost, that return the code. The thread has recovered if it went on with
    other messages.
    """

    process: str
    host: str | None  # None if the lines do not name it
    created: bool
    causes: list[str] = field(default_factory=list)
    code: int = 0
    steps: list[str] = field(default_factory=list)
    recovered: bool = False

    @property
    def is_failure(self) -> bool:
        """Whether NCCL did not recover from the error."""
        if any(map(_API.search, self.steps)):
            return True
        return bool(self.causes) and (not self.recovered or any(map(_PROXY.search, self.steps)))

    def as_failure(self, same: "Sequence[ErrorTrace]") -> LoggedFailure:
        """Return it as the failure of all processes that logged the ``same`` error."""
        kind = "call"
        if not self.created or any(map(_CREATION.search, self.steps)):
            kind = "communicator"
        steps = ", ".join(f"{place} -> {self.code}" for place in self.steps)
        processes = {trace.process for trace in same}
        hosts = filter(None, dict.fromkeys(trace.host for trace in same))
        return LoggedFailure(
            kind=kind,
            cause="; ".join(self.causes),
            callers=f"{steps}: {_RESULTS[self.code]}",
            processes=len(processes),
            hosts=tuple(hosts),
        )


class ErrorTraces:
    """The errors of all threads of a launch, in the order in which they began."""

    def __init__(self) -> None:
        self._all: list[ErrorTrace] = []
        self._open: dict[str, ErrorTrace] = {}  # by thread; the next line of a caller continues it
        # by thread: one that begins with warnings, and has no caller yet
        self._warned: dict[str, ErrorTrace] = {}
        self._by_code: dict[tuple[str, int], ErrorTrace] = {}  # by process and code: the last one
        self._creators: set[str] = set()  # processes that have created a communicator

    def add_message(self, message: LogMessage) -> None:
        process, thread = message.writer, message.thread
        if message.level == "WARN":
            trace = self._warned.setdefault(thread, self._begin(message))
            trace.causes.append(message.placed_text)
        elif step := _STEP.match(message.text):
            self._add_step(message, step[1], int(step[2]))
        else:
            self.go_on(thread)
            if "Init COMPLETE" in message.text:
                self._creators.add(process)

    def go_on(self, thread: str) -> None:
        """Add that a thread goes on with a message that is about no error."""
        if self._warned:
            self._warned.pop(thread, None)
        if thread in self._open:
            self._open.pop(thread).recovered = True

    def _begin(self, message: LogMessage) -> ErrorTrace:
        return ErrorTrace(message.writer, message.host, message.writer in self._creators)

    def _add_step(self, message: LogMessage, place: str, code: int) -> None:
        """Add a caller to the trace that it continues: of its thread, or, without a cause, of its process."""
        process, thread = message.writer, message.thread
        warned, trace = self._warned.pop(thread, None), self._open.get(thread)
        if trace is None or trace.code != code:
            trace = warned
        if trace is None:
            trace = self._by_code.get((process, code))
            if trace and not (trace.is_failure or (trace.causes and _API.search(place))):
                trace = None
        if trace is None or not trace.steps:
            trace = trace or self._begin(message)
            trace.code = code
            self._all.append(trace)
        if place not in trace.steps:
            trace.steps.append(place)
        self._open[thread] = self._by_code[process, code] = trace

    def failures(self) -> Iterator[LoggedFailure]:
        """Yield the failures; processes share a failure if they logged the same first place and code."""
        same: dict[tuple[str, int], list[ErrorTrace]] = {}
        for trace in filter(lambda trace: trace.is_failure, self._all):
            first = trace.steps[0]
            if trace.causes:
                first, _, _ = trace.causes[0].partition(": ")
            same.setdefault((first, trace.code), []).append(trace)
        for traces in same.values():
            yield traces[0].as_failure(traces)

    def of_source(self, name: str) -> Iterator[ErrorTrace]:
        """Yield the errors, recovered or not, that began in or went through the source file ``name``."""
        for trace in self._all:
            if any(name in place for place in (*trace.causes, *trace.steps)):
                yield trace
