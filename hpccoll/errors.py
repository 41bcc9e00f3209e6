"""What goes wrong because of what was asked: one line that names the key, the value and the valid choices."""

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr
from typing import Self

from hpccoll.terminal import printable

MAX_VALUE_CHARACTERS, MAX_MESSAGE_CHARACTERS = 300, 5000
"""Characters of a key, of a value and of all that a message says."""
MAX_COMPARED_CHARACTERS = 100
"""Characters of a word that is compared with others; how long that takes grows with the square."""


def did_you_mean(word: object, known: Iterable[str], min_similarity: float = 0.7) -> str:
    """Return the question, to stand before all of ``known``, whether the nearest was meant; empty if none is near.

    Args:
        word: that is not known.
        known: words.
        min_similarity: that makes a word near; two letters out of three do not: who says gpu does not mean cpu.
    """
    if not isinstance(word, str) or len(word) > MAX_COMPARED_CHARACTERS:
        return ""
    near = get_close_matches(word, known, n=1, cutoff=min_similarity)
    return f"did you mean {near[0]}? " if near else ""


def format_choices(word: object, known: Iterable[object], elsewhere: str = "") -> str:
    """Return what to choose from in place of ``word``, the nearest first, or ``elsewhere``: what else has the word."""
    names = [str(name) for name in known]
    return f"{'' if elsewhere else did_you_mean(word, names)}choose from {', '.join(names)}{elsewhere}"


class BadInputError(ValueError):
    """Input that cannot be used; the command line prints it as one line and exits with 2.

    Args:
        key: what was being set, in the user's words (``algorithm``, ``--bytes``, ``sweep.yaml: ranks``).
        value: what it was set to; None for nothing, which is then what is said.
        expected: the valid choices, or a phrase that says what would be valid.
    """

    def __init__(self, key: str, value: object, expected: str | Iterable[object]) -> None:
        expected = expected if isinstance(expected, str) else format_choices(value, expected)
        super().__init__(key, value, expected)  # by which it is made anew on other ranks, for rank 0 alone reads files
        self.key, self.value, self.expected = key, value, expected
        self.others: tuple[BadInputError, ...] = ()
        """What else is wrong with the same file, each for a line of its own."""

    def __str__(self) -> str:
        said = "is missing" if self.value is None else f"{format_value(self.value)} is not valid"
        return to_one_line(f"{abbreviate(self.key)}{' ' if self.value is None else ': '}{said}: {self.expected}")

    def with_key(self, key: str) -> Self:
        """Return the same complaint, with those beside it, of a key that says more of where it is."""
        made = type(self)(key, *self.args[1:])
        made.others = self.others
        return made


class UnusableError(BadInputError):
    """Input that cannot be used, for which no one value is to blame: the line says why.

    Args:
        key: what cannot be used: a file, or what was asked.
        why: it cannot.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, None, why)
        self.args = (key, why)

    def __str__(self) -> str:
        return to_one_line(f"{abbreviate(self.key)}: {self.expected}")


def file_error(key: str, path: object, error: OSError, done: str = "read") -> UnusableError:
    """Return the complaint that a file or directory cannot be read, or what else was to be ``done``, and why."""
    return UnusableError(key, f"{format_value(str(path))} cannot be {done}: {error.strerror}")


PATH_ERRNOS = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS)
"""What is wrong with the name of a file or directory, or with who may use it: whoever gave the name can mend it."""


def path_error(error: OSError | RuntimeError) -> UnusableError | None:
    """Return the complaint of a name of a file or directory that the system does not take; None of anything else."""
    if isinstance(error, RuntimeError):  # by which pathlib speaks of a loop of links, before Python 3.13
        return UnusableError("path", str(error)) if str(error).startswith("Symlink loop") else None
    if error.errno not in PATH_ERRNOS or error.filename is None:
        return None
    name = error.filename
    return file_error("path", os.fsdecode(name) if isinstance(name, bytes | str | os.PathLike) else name, error, "used")


def check_arguments(arguments: Iterable[str]) -> None:
    """See that the words of a command line are text: what is not has no place in files of results.

    Raises:
        BadInputError: for one that is not in UTF-8.
    """
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise BadInputError("argument", word, "text in UTF-8") from None


class _ValueRepr(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, MAX_VALUE_CHARACTERS, MAX_VALUE_CHARACTERS
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 50

    def repr_int(self, number: int, _level: int) -> str:
        digits = int(number.bit_length() * 0.30103)
        return (
            repr(number) if digits < MAX_VALUE_CHARACTERS else f"a number of {digits} digits"
        )  # Python does not write them all


_value_repr = _ValueRepr()


def format_value(value: object) -> str:
    """Return a value as a message shows it: as Python writes it, a long one without its middle."""
    return abbreviate(_value_repr.repr(value))


def abbreviate(text: str, most: int = MAX_VALUE_CHARACTERS) -> str:
    """Return a text, a long one without its middle."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}... ({len(text)} characters) ...{text[-most // 4 :]}"


def to_one_line(text: str) -> str:
    """Return a text as one line that is safe to print, whatever a file or a library put into it.

    Blanks stand for line breaks.
    """
    return printable(abbreviate(" ".join(text.split()), MAX_MESSAGE_CHARACTERS))


def combine_errors(first: BadInputError, *others: BadInputError) -> BadInputError:
    """Return the first of several complaints of one file with the others beside it."""
    first.others = others
    return first
