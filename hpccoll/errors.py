"""What goes wrong because of what was asked: one line that names the key, the value and the valid choices."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the question, to stand before all of ``known``, whether the nearest was meant; empty if none is near.

    Two letters out of three do not make a word near: who says gpu does not mean cpu.
    """
    near = get_close_matches(word, known, n=1, cutoff=0.7) if isinstance(word, str) else []
    return f"did you mean {near[0]}? " if near else ""


class BadInputError(ValueError):
    """Input that cannot be used; the command line prints it as one line and exits with 2.

    Args:
        key: what was being set, in the user's words (``algorithm``, ``--bytes``, ``sweep.yaml: ranks``).
        value: what it was set to.
        expected: the valid choices, or a phrase that says what would be valid.
    """

    def __init__(self, key: str, value: object, expected: str | Iterable[object]) -> None:
        if not isinstance(expected, str):
            choices = [str(choice) for choice in expected]
            expected = f"{did_you_mean(value, choices)}choose from {', '.join(choices)}"
        # What libraries say goes over several lines at times.
        super().__init__(" ".join(f"{key}: {value!r} is not valid: {expected}".split()))
        self.key, self.value, self.expected = key, value, expected
        self.others: tuple[BadInputError, ...] = ()
        """What else is wrong with the same file, each for a line of its own."""

    def __reduce__(self) -> tuple[type["BadInputError"], tuple[str, object, str]]:
        # Rank 0 finds what is wrong with a file and tells the others.
        return type(self), (self.key, self.value, self.expected)


class UnusableError(BadInputError):
    """Input that cannot be used, for which no one value is to blame: the line says why.

    Args:
        key: what cannot be used: a file, or what was asked.
        why: it cannot.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, None, why)
        self.args = (" ".join(f"{key}: {why}".split()),)

    def __reduce__(self) -> tuple[type["UnusableError"], tuple[str, str]]:  # type: ignore[override]
        return type(self), (self.key, self.expected)
