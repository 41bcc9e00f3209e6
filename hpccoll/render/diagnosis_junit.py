"""A diagnosis as JUnit XML: a test for each node, and one for each link, path, uplink or rack that is slow."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hpccoll.common.units import format_count
from hpccoll.diagnosis.history import MachineHistory, PlaceHistory
from hpccoll.diagnosis.node_health import NodeHealth
from hpccoll.diagnosis.slot_records import Kind
from hpccoll.diagnosis.verdict import MachineVerdict, NamedFault
from hpccoll.judge.held import Acceptance
from hpccoll.render.diagnosis_text import fault_sentence, place_name, unended_text
from hpccoll.render.junit import NOT_READ, CheckedCase, whole_case, write_junit

CHECK = "hpccoll diagnose"

OF_A_NODE: tuple[Kind, ...] = "node", "send", "receive", "rail", "hung", "failed"
"""The faults of nodes; others have a test of their own."""

HEALTH = {"bad": Acceptance.FAIL, "cannot tell": Acceptance.CANNOT_TELL, "healthy": Acceptance.PASS}
"""What a CI system makes of the health of a node."""


def write_diagnosis_junit(
    verdict: MachineVerdict, hosts: Sequence[str], path: Path, *, is_any_unread: bool = False
) -> None:
    """Write the verdict on all ``hosts`` of a diagnosis; ``is_any_unread`` says that other files are damaged.

    Raises:
        OSError: if the file cannot be written.
    """
    reasons = list(_reasons(verdict, is_any_unread=is_any_unread))
    write_junit(path, CHECK, [*_cases(verdict, hosts), whole_case(reasons)])


def write_history_junit(
    history: MachineHistory, hosts: Sequence[str], path: Path, *, is_any_unread: bool = False
) -> None:
    """Write the verdict of the newest diagnosis on its ``hosts``, and what is slow again and again.

    Raises:
        OSError: if the file cannot be written.
    """
    cases = list(_cases(history.last, hosts))
    for place in history.places:
        if place.is_accused or place.is_lasting:
            cases.append(_lasting_case(place))
    reasons = list(_reasons(history.last, is_any_unread=is_any_unread))
    write_junit(path, CHECK, [*cases, whole_case(reasons)])


def write_health_junit(health: NodeHealth, host: str, path: Path) -> None:
    """Write the health of a node.

    Raises:
        OSError: if the file cannot be written.
    """
    write_junit(path, CHECK, [CheckedCase(host, "node", HEALTH[health.verdict], health.line)])


def _cases(verdict: MachineVerdict, hosts: Sequence[str]) -> Iterator[CheckedCase]:
    for host in hosts:
        yield _node_case(host, verdict)
    for fault in verdict.verdicts:
        if fault.place.kind not in OF_A_NODE and not _is_undecided(fault):
            name = place_name(fault.place)
            yield CheckedCase(name, fault.place.kind, Acceptance.FAIL, fault_sentence(fault))


def _node_case(host: str, verdict: MachineVerdict) -> CheckedCase:
    """Return the test of a node: what surely is its fault, what may be, or that nothing is."""
    accusations = [fault for fault in verdict.verdicts if host in fault.hosts]
    faults = [
        fault_sentence(fault)
        for fault in accusations
        if fault.place.kind in OF_A_NODE and not _is_undecided(fault)
    ]
    if faults:
        return CheckedCase(host, "node", Acceptance.FAIL, "; ".join(faults))
    doubts = [fault_sentence(fault) for fault in accusations if _is_undecided(fault)]
    if not verdict.complete:
        doubts.append(f"the diagnosis {unended_text(verdict)}")
    elif host in verdict.unjudged:
        doubts.append("too few of its transfers have a valid time")
    if doubts:
        return CheckedCase(host, "node", Acceptance.CANNOT_TELL, "; ".join(doubts))
    return CheckedCase(host, "node", Acceptance.PASS)


def _is_undecided(fault: NamedFault) -> bool:
    """Return whether something else may be slow, or the load of the node explains it."""
    return bool(fault.candidates or fault.wait)


def _lasting_case(history: PlaceHistory) -> CheckedCase:
    name = place_name(history.place)
    days = format_count(history.days, "day")
    message = f"{name} was slow or did not answer on {days}"
    return CheckedCase(f"{name}, over time", history.place.kind, Acceptance.FAIL, message)


def _reasons(verdict: MachineVerdict, *, is_any_unread: bool) -> Iterator[str]:
    """Yield why the diagnosis is not passed although no test of a part of the machine may have failed."""
    if is_any_unread:
        yield NOT_READ
    if not verdict.complete:
        yield f"the diagnosis {unended_text(verdict)}"
    if verdict.unjudged:
        yield f"{format_count(len(verdict.unjudged), 'node')} not judged"
    if any(_is_undecided(fault) for fault in verdict.verdicts):
        yield "something is slow, and the diagnosis cannot tell what"
    if verdict.too_many:
        yield "more than a quarter of the nodes seems slow"
    for finding in verdict.findings:
        if finding.severity == "critical":
            yield finding.with_remedy
