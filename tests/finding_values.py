"""Golden pages of what follows from rows: tables, and findings by their kinds and values."""

from collections.abc import Mapping

from golden_page import assert_golden

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.group_findings import group_findings


def assert_findings(name, scenarios):
    """Compare with a golden page what follows, in each scenario, from the results that show its rule.

    A scenario has what is shown, a function of a group that returns a table, or the kinds of
    findings, and results.
    """
    lines = []
    for rule, (shown, results) in scenarios.items():
        lines.append(f"-- {rule}")
        for group in chart_groups(results):
            if callable(shown):
                head, body = shown(group)
                lines += [" | ".join(line).rstrip() for line in (head, *body)]
            else:
                lines += value_lines(
                    each for each in group_findings(group) if each.kind in shown.split()
                )
    assert_golden(name, lines)


def value_lines(findings):
    """Return the severity, the kind and the values of findings."""
    return [f"{each.severity} {each.kind} {text_of(each.values)}" for each in findings] or [
        "nothing"
    ]


def text_of(value):
    """Return a value with numbers of five digits, and names before the values of a mapping."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {text_of(each)}" for name, each in value.items())
    if isinstance(value, tuple | list | frozenset):
        return (
            f"({'; '.join(map(text_of, sorted(value) if isinstance(value, frozenset) else value))})"
        )
    return f"{value:.5g}" if isinstance(value, float) else str(value)
