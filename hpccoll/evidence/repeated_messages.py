"""Messages that exports of logs repeat, and that several logs hold."""

from collections import Counter, defaultdict
from collections.abc import Collection

from hpccoll.evidence.log_message import LogMessage, communicator_id

MAX_TIMED = 1 << 16
"""The number of messages with times within which one is found again: exports repeat what lies near."""


class RepeatedMessages:
    """Tells the messages of a launch that the program logged from those that repeat them.

    A message of a thread repeats an earlier one with the same text if it follows it directly, if
    both have the same time, or if they are in different logs or copies of one, in which the same
    communicator begins again. Two communicators of a thread may have channels with the same text;
    but other messages are between them.

    All texts of a thread are compared only if it is one of the ``copied``: those that several logs
    have, or that begin the same communicator again. Texts are remembered as hashes.
    """

    def __init__(self, copied: Collection[str]) -> None:
        self._copied = copied
        self._most: Counter[int] = Counter()  # of the copied threads, by thread and text
        self.begin_log()

    def begin_log(self) -> None:
        """Begin with the next log."""
        self._counts = defaultdict[str, Counter[int]](Counter)  # by thread and text
        self._timed: dict[int, None] = {}  # the latest ones: time, thread and text
        self._last: dict[str, tuple[str, str]] = {}  # by thread: time and text

    def is_new(self, message: LogMessage) -> bool:
        """Return whether the next message of the log repeats no other one; lines of programs repeat none."""
        at = message.time, message.text
        is_repeated = self._last.get(message.thread) == at
        self._last[message.thread] = at
        if message.time and self._was_timed(message):
            is_repeated = True
        if message.origin is None:
            return True
        if message.thread in self._copied:
            return self._exceeds_other_copies(message, is_repeated)
        return not is_repeated

    def _was_timed(self, message: LogMessage) -> bool:
        key = hash((message.time, message.thread, message.text))
        if key in self._timed:
            return True
        self._timed[key] = None
        if len(self._timed) > MAX_TIMED:
            del self._timed[next(iter(self._timed))]
        return False

    def _exceeds_other_copies(self, message: LogMessage, is_repeated: bool) -> bool:
        counts = self._counts[message.thread]
        key = hash((message.thread, message.text))
        if counts[key] and begins_communicator(message):
            counts.clear()
        counts[key] += not is_repeated
        if counts[key] <= self._most[key]:
            return False
        self._most[key] = counts[key]
        return True


def begins_communicator(message: LogMessage) -> bool:
    """Return whether a rank begins a communicator with an id."""
    return message.text.endswith("Init START") and communicator_id(message.text) is not None
