"""A finding of the report as data: its kind, its severity and its values.

Functions that compute return findings; ``finding_templates`` turns them into sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """A statement about the results.

    Args:
        kind: a key of ``finding_templates.TEMPLATES``.
        severity: ``critical`` findings are shown above everything else; a ``warning`` weakens results.
        values: names, and figures in SI units: seconds, bytes, bytes per second, ratios.
    """

    kind: str
    severity: Severity
    values: Mapping[str, Any]


def info(kind: str, **values: object) -> ReportFinding:
    """Return a finding that states a result."""
    return ReportFinding(kind, "info", values)


def warning(kind: str, **values: object) -> ReportFinding:
    """Return a finding that weakens results."""
    return ReportFinding(kind, "warning", values)


def critical(kind: str, **values: object) -> ReportFinding:
    """Return a finding that may make results useless."""
    return ReportFinding(kind, "critical", values)
