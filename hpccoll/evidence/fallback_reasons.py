"""Reasons why a requested feature was not used, recognised in log lines. The table is ``fallback_reasons.toml``."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class _Reason(NamedTuple):
    """A row of the table: the pattern of its lines, searched for anywhere in a line, and what they say."""

    pattern: re.Pattern[str]
    feature: str
    reason: str


@cache
def _known_reasons() -> tuple[tuple[_Reason, ...], re.Pattern[str]]:
    """Return the table, and a pattern that any of its lines matches."""
    import tomllib  # only rank 0 reads logs

    rows = tomllib.loads(Path(__file__).with_name("fallback_reasons.toml").read_text())[
        "unavailable"
    ]
    reasons = tuple(
        _Reason(re.compile(row["pattern"]), row["feature"], row["reason"]) for row in rows
    )
    patterns = [f"(?:{row['pattern']})" for row in rows]
    return reasons, re.compile("|".join(patterns))


def unavailable_reason(text: str) -> tuple[str, str] | None:
    """Return the feature that a message reports as unavailable, and the reason; None if it reports nothing known."""
    reasons, any_pattern = _known_reasons()
    if not any_pattern.search(text):  # hardly any line of a long log matches
        return None
    return next((row.feature, row.reason) for row in reasons if row.pattern.search(text))


@cache
def reason_ranks() -> Mapping[tuple[str, str], int]:
    """Return the rank of each feature and reason; the most specific reason has the smallest."""
    reasons, _ = _known_reasons()
    return {(row.feature, row.reason): rank for rank, row in enumerate(reasons)}
