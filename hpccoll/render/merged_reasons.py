"""Reasons of many rows in few lines: those that differ in figures only become one, with ranges of the figures."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hpccoll.common.text import join_ends

Row = TypeVar("Row")

_FIGURE = re.compile(
    r"(?<![\w.])(?:\d[\d.,]*(?:e[+-]?\d+)?(?: (?:[kMGT]?B/s|[mun]?s)|x)|\d+ sources?)\b"
)
"""A rate, a time, a factor or a number of sources in a reason. Nodes, ranks and sizes of calls are none."""

_SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "n": 1e-9}
"""The values of the prefixes of units."""


def merged_reasons(reasons: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Return the rows of reasons that differ in figures only under one reason, with the range of each figure."""
    texts: dict[str, list[str]] = defaultdict(list)
    rows: dict[str, list[Row]] = defaultdict(list)
    for reason, rows_of_reason in reasons.items():
        alike = _FIGURE.sub("\0", _without_ranges(reason))
        texts[alike].append(reason)
        rows[alike] += rows_of_reason
    return {_with_ranges(texts[alike]): rows_alike for alike, rows_alike in rows.items()}


_RANGE = re.compile(rf"({_FIGURE.pattern}) to ({_FIGURE.pattern})")


def _without_ranges(reason: str) -> str:
    """Return a reason with the first figure of each range: some rows have one figure where others have a range."""
    return _RANGE.sub(r"\1", reason)


def _with_ranges(reasons: Sequence[str]) -> str:
    """Return reasons that differ in figures only as one, with the lowest and the highest of each figure."""
    figures = [_figures(reason) for reason in reasons]
    ranges = iter(_range(place) for place in zip(*figures, strict=True))
    return _FIGURE.sub(lambda _: next(ranges), _without_ranges(reasons[0]))


def _figures(reason: str) -> list[list[str]]:
    """Return the ends of each figure of a reason, one or two."""
    ends = []
    either = re.compile(rf"{_RANGE.pattern}|{_FIGURE.pattern}")
    for figure in either.finditer(reason):
        range_ends = list(filter(None, figure.groups()))
        ends.append(range_ends or [figure[0]])
    return ends


def _range(ends_of_rows: Iterable[Sequence[str]]) -> str:
    """Return the lowest and the highest of figures as one text: ``152 to 355 GB/s``."""
    figures = {figure for ends in ends_of_rows for figure in ends}
    low, *_, high = sorted([*figures, *figures], key=_value)
    if low == high:
        return low
    number, unit = _parts(low)
    if _singular(unit) == _singular(_parts(high)[1]):
        low = number  # one unit for both ends
    return join_ends((low, high))


def _singular(unit: str) -> str:
    return unit.removesuffix("s") if "source" in unit else unit


def _parts(figure: str) -> tuple[str, str]:
    """Return the number of a figure and its unit: ``152`` and `` GB/s``."""
    end = re.search(r"x$| .*$", figure)
    if end is None:
        return figure, ""
    return figure[: end.start()], end[0]


def _value(figure: str) -> float:
    number, unit = _parts(figure)
    word = unit.strip()
    is_prefixed = word not in ("", "x", "s", "B/s") and not word.startswith("source")
    scale = _SCALES[word[0]] if is_prefixed else 1.0
    return scale * float(number.replace(",", ""))
