"""Where the messages of the protocol ``ll`` lie in words: 8 bytes, half data and half the flag of the operation.

Elements of less than 4 bytes share a word, and larger ones take two. Each span of a message begins
a word. A rank has words for each peer that sends to it, twice: for even and for odd operations.
"""

from hpccoll.transports.peer.program import SentSpans
from hpccoll.transports.shared_lowering import Span

WORD_BYTES, DATA_BYTES = 8, 4
"""The bytes of a word, and those of them that are data."""


def elements_of_word(itemsize: int) -> int:
    """Return the elements that share a word."""
    return max(1, DATA_BYTES // itemsize)


def words_of(elements: int, itemsize: int) -> int:
    """Return the number of words of elements that begin and end with a word."""
    return elements * itemsize // DATA_BYTES


def spans_in_words(sends: SentSpans, buffer: str, itemsize: int) -> SentSpans:
    """Return where the spans of all messages between two ranks lie in ``buffer``, the words for one operation."""
    end = 0
    placed: SentSpans = []
    for messages in sends:
        placed.append([])
        for message in messages:
            spans = []
            for span in message:
                spans.append(Span(buffer, end, end + len(span)))
                end += _whole_words(len(span), itemsize)
            placed[-1].append(spans)
    return placed


def elements_in_words(sends: SentSpans, itemsize: int) -> int:
    """Return the elements that the words of all messages between two ranks have room for, in one operation."""
    total = 0
    for messages in sends:
        for message in messages:
            total += sum(_whole_words(len(span), itemsize) for span in message)
    return total


def _whole_words(elements: int, itemsize: int) -> int:
    """Return the elements that fill the words of ``elements``."""
    together = elements_of_word(itemsize)
    return -(-elements // together) * together
