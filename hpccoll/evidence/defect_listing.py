"""The rows of the table of defects that words select, and their text."""

import re
from collections.abc import Iterator, Sequence

from hpccoll.common.errors import BadInputError
from hpccoll.common.text import in_brackets
from hpccoll.evidence.defect_table import Defect, Version, known_defects, parse_version

_VERSION = re.compile(r"v?\d+(?:\.\d+)+|\d{3,6}")

KINDS = "slow", "hang", "crash", "fails", "wrong", "memory"
"""The kinds of defects, as the head of the table explains them."""


def select_defects(words: Sequence[str]) -> list[Defect]:
    """Return the rows that fit all words: a component, a version, a kind, an id, or a part of the text.

    Raises:
        BadInputError: if no row fits.
    """
    text = " ".join(words)
    rest, components = _named_components(text.lower())
    selected = []
    for defect in known_defects():
        if defect.component in components and all(_fits(defect, word) for word in rest.split()):
            selected.append(defect)
    if not selected:
        names = ", ".join(sorted(_components()))
        needed = f"a component ({names}), a version, a kind or a part of the text"
        raise BadInputError("list defects", text, needed)
    return selected


def _fits(defect: Defect, word: str) -> bool:
    """Return whether a row fits a version, a kind, or a part of its text."""
    if _VERSION.fullmatch(word):
        return _has_version(defect, parse_version(word))
    if word in KINDS:
        return defect.kind == word
    return word in _searched_text(defect)


def _components() -> set[str]:
    return {defect.component for defect in known_defects()}


def _named_components(text: str) -> tuple[str, set[str]]:
    """Return a text without the component that it begins with, and that component; all components without one.

    ``libfabric`` alone names all of its providers.
    """
    components = _components()
    for name in sorted(components, key=len, reverse=True):
        if f"{text} ".startswith(f"{name.lower()} "):
            return text[len(name) :], {name}
    if f"{text} ".startswith("libfabric "):
        providers = set(filter(re.compile("libfabric ").match, components))
        return text.removeprefix("libfabric"), providers
    return text, components


def _has_version(defect: Defect, version: Version) -> bool:
    """Return whether a version is in the range of a defect; a range without any version has none."""
    versions = defect.versions
    is_empty = not (versions.has_bound or versions.named or versions.after)
    return not is_empty and versions.contains(version)


def _searched_text(defect: Defect) -> str:
    parts = (
        defect.id,
        defect.component,
        defect.condition,
        defect.symptom,
        defect.workaround,
        *defect.collectives,
        *defect.sources,
    )
    return "\n".join(parts).lower()


def defect_rows(defects: Sequence[Defect]) -> Iterator[str]:
    """Yield what is known of each defect: versions and kind, symptom, condition, workaround and sources."""
    for defect in defects:
        yield f"{defect.id}: {defect.component} {defect.range_text}, {defect.kind}"
        yield f"  {defect.symptom}{in_brackets(defect.condition)}"
        if defect.workaround:
            yield f"  do: {defect.workaround}"
        notes = [CONFIRMED_BY[defect.confidence]]
        if defect.reread:
            notes.append(f"read again on {defect.reread}")
        if defect.silent:
            notes.append(f"only listed: {defect.silent}")
        yield f"  {', '.join(defect.sources)}{in_brackets(*notes)}"


CONFIRMED_BY = {
    "maintainer": "confirmed by a maintainer",
    "several": "several reports",
    "one": "one report",
}
"""The confidences in words."""
