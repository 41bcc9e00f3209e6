"""The values of a report's findings, by kind."""

from hpccoll.analysis.group_findings import group_findings


def values_of_kind(group, kind):
    """Return the values of each finding of one kind, in order."""
    return [finding.values for finding in group_findings(group) if finding.kind == kind]


def only_values(group, kind):
    """Return the values of the only finding of one kind."""
    (values,) = values_of_kind(group, kind)
    return values


def kinds_of(group):
    """Return the kinds of all findings, in order."""
    return [finding.kind for finding in group_findings(group)]
