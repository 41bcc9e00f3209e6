"""The text of a diagnosis: what is slow, how much and how surely, what to exclude, and what would have been found."""

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hpccoll.common.text import first_few, join_ends, join_words, rack_text, tables_within
from hpccoll.common.units import format_count, format_factor, format_per_cent, format_size
from hpccoll.diagnosis.history import DAYS, MachineHistory, PastState, State
from hpccoll.diagnosis.nodes_alone import MOST_NAMED, RATE_DOUBTFUL
from hpccoll.diagnosis.slot_records import LEAST_RACK, Kind, Purpose
from hpccoll.diagnosis.verdict import MachineVerdict, NamedFault, Place
from hpccoll.store.host_names import host_ranges

NAMES: Mapping[Kind, str] = {
    "node": "{hosts}",
    "send": "what {hosts} sends",
    "receive": "what {hosts} receives",
    "rail": "rail {rail} of {hosts}",
    "link": "the link between {hosts}",
    "shared_link": "the path that {hosts} share to all others",
    "uplink": "the uplink of {rack} ({hosts})",
    "rack": "{rack} ({hosts})",
    "hung": "{hosts}",
    "failed": "{hosts}",
}
"""A component as a part of a sentence."""

SENTENCES: Mapping[Kind, str] = {
    "node": "{name} is slow: its transfers take {factor} as long as those of other nodes",
    "send": "{hosts} sends slowly: what it sends takes {factor} as long as what others send",
    "receive": "{hosts} receives slowly: what it receives takes {factor} as long as what others receive",
    "rail": "{name} is slow: its transfers take {factor} as long as those of other nodes",
    "link": "{name} is slow: transfers over it take {factor} as long as over others",
    "shared_link": "{name} is slow: transfers over it take {factor} as long as others",
    "uplink": "{name} is slow: transfers over it take {factor} as long as over others",
    "rack": "{name} is slow: transfers within it and to others take {factor} as long as those of other racks",
}
"""What is slow, and how much, by the kind of the fault."""

REASONS: Mapping[Kind, str] = {
    "node": "transfers take {factors} the usual time",
    "send": "sending takes {factors} the usual time",
    "receive": "receiving takes {factors} the usual time",
    "hung": "it does not answer",
    "failed": "{error}",
}
"""Why a node is excluded, by the kind of its fault."""

SLOTS: Mapping[Purpose, str] = {
    "screen": "of all nodes",
    "racks": "beside healthy racks",
    "retest": "beside healthy nodes",
    "accused": "among slow nodes",
    "links": "beside healthy links",
    "hung": "of this pair alone",
}
"""The slots that may decide on a fault."""

OWN_PROGRAMS = "MPI", "NCCL"
"""What transfers by default; another program decides what it transfers, and --rate is refused beside it."""

LEAST_CHANCE = 1e-6
"""Smaller chances are not told apart: they are of noise that is normal even in its tails."""


def diagnosis_lines(verdict: MachineVerdict) -> Iterator[str]:
    """Yield the answer, then what to exclude, then what stands beside it, and what it is based on."""
    critical: list[str] = []
    remarks: list[str] = []
    for finding in verdict.findings:
        lines = critical if finding.severity == "critical" else remarks
        lines.append(finding.with_remedy.removesuffix("."))
    if not verdict.complete:
        yield f"the diagnosis {unended_text(verdict)}, and says nothing about the nodes; do: {_unended_remedy(verdict)}"
    if verdict.unjudged:
        were = "were" if len(verdict.unjudged) > 1 else "was"
        yield f"{host_ranges(verdict.unjudged)} {were} not judged: too few of the transfers have a valid time"
    if verdict.accuses_none:
        yield _healthy_sentence(verdict)
    yield from _faults(verdict)
    yield from critical
    if verdict.exclude and verdict.kubernetes:
        for host in verdict.exclude:
            yield f"kubectl cordon {shlex.quote(host)}"
    elif verdict.exclude:
        yield f"--exclude={shlex.quote(','.join(verdict.exclude))}"
        yield from _drain_commands(verdict)
    if math.isfinite(verdict.smallest_effect):
        yield _sensitivity_sentence(verdict)
    yield from _unseen(verdict)
    yield from remarks
    yield _basis(verdict)


def _healthy_sentence(verdict: MachineVerdict) -> str:
    """Return that nothing is slow: ``no node or link is slow``."""
    if verdict.only_directions:
        return "neither direction between the two nodes is slower than the other"
    judged = ["node"]
    if verdict.links:
        judged.append("link")
    if verdict.racks:
        judged.append("rack")
    no = "no other" if verdict.unjudged else "no"
    doubts = [finding for finding in verdict.findings if finding.kind == RATE_DOUBTFUL]
    all_may_be_slow = any(finding.severity == "critical" for finding in doubts)
    slow = "slower than the rest" if all_may_be_slow else "slow"
    return f"{no} {join_words(judged, 'or')} is {slow}"


def _sensitivity_sentence(verdict: MachineVerdict) -> str:
    """Return the smallest effects that the diagnosis would have found."""
    subject = "a direction that takes" if verdict.only_directions else "a node whose transfers take"
    smallest = format_factor(verdict.smallest_effect)
    sentence = f"{subject} {smallest} as long would have been found in 90 % of diagnoses"
    link = verdict.smallest_link_effect
    has_healthy_links = verdict.links and verdict.accuses_none and not verdict.only_directions
    if has_healthy_links and math.isfinite(link):
        sentence += f", and a single link over which they take {format_factor(link)}"
    return sentence


def _unseen(verdict: MachineVerdict) -> Iterator[str]:
    """Yield which faults the diagnosis cannot show, each with what would show it."""
    takes_rate = verdict.load.program in OWN_PROGRAMS
    rate = "--rate RATE, the usual one"
    if verdict.only_directions:
        remedy = f"add a node, or {rate}" if takes_rate else "add a node"
        yield f"whether both directions are slow is unknown; do: {remedy}"
    elif verdict.accuses_none and not verdict.has_rate:
        remedy = f"; do: {rate}" if takes_rate else ""
        yield f"whether all nodes are slow alike is unknown: nothing says how fast they should be{remedy}"
    if verdict.complete and verdict.unjudged_racks:
        racks = join_words(
            first_few([rack_text(name) for name in verdict.unjudged_racks], MOST_NAMED, "rack")
        )
        were = "were" if len(verdict.unjudged_racks) > 1 else "was"
        yield f"{racks} {were} not judged: it takes {LEAST_RACK} racks of {LEAST_RACK} nodes at least"
    if verdict.complete and not verdict.links:
        yield "single links were not judged; do: --links"


def _faults(verdict: MachineVerdict) -> Iterator[str]:
    """Yield what is faulty, each with its evidence: nodes that do not answer together, others by their effects."""
    certain = [fault for fault in verdict.verdicts if not fault.candidates]
    hung = [fault for fault in certain if fault.place.kind == "hung"]
    failed = [fault for fault in certain if fault.place.kind == "failed"]
    if verdict.too_many:
        many = "seem slow: effects are lower bounds, and no node"
        if 4 * (len(hung) + len(failed)) > verdict.nodes:
            many = "do not answer or fail: no node" if failed else "do not answer: no node"
        yield f"more than a quarter of the nodes {many} is excluded"
    if hung:
        hosts: list[str] = []
        missed = []
        for fault in hung:
            hosts += fault.hosts
            missed.append(f"{fault.hosts[0]} with {join_words(fault.missed_with)}")
        do = "do" if len(hung) > 1 else "does"
        yield f"{_hosts(hosts)} {do} not answer"
        yield f"  missed deadlines: {'; '.join(first_few(missed, MOST_NAMED, 'node'))}"
    for fault in sorted(verdict.verdicts, key=lambda fault: -fault.effect):
        if fault not in hung:
            yield fault_sentence(fault)
            yield f"  {_evidence(fault)}"


def fault_sentence(fault: NamedFault) -> str:
    """Return what is slow, and how much."""
    if not math.isfinite(fault.effect):
        return _silent_sentence(fault)
    place = fault.place
    factor = format_factor(fault.effect)
    interval = f"(95 %: {format_factor(fault.low)} to {format_factor(fault.high)})"
    if fault.candidates:
        names = ", or ".join(first_few(map(_both, fault.candidates), MOST_NAMED, "explanation"))
        cannot = "the diagnosis cannot tell what is slow"
        return f"{cannot}: {names}; transfers take {factor} the usual time {interval}"
    if fault.wait:
        cannot = f"the diagnosis cannot tell under this load whether {place_name(place)} is slow"
        return f"{cannot}: transfers take {factor} the usual time {interval}"
    sentence = SENTENCES[place.kind].format(
        name=place_name(place), hosts=_hosts(place.hosts), factor=factor
    )
    return f"{sentence} {interval}"


def _silent_sentence(fault: NamedFault) -> str:
    """Return what fails, or does not answer."""
    if fault.candidates:
        which = f"the diagnosis cannot tell which of {_hosts(fault.hosts)}"
        return f"{which} fail: {fault.error}" if fault.error else f"{which} do not answer"
    name = place_name(fault.place)
    return f"{name} fails: {fault.error}" if fault.error else f"{name} does not answer"


def place_name(place: Place) -> str:
    """Return a component as a part of a sentence."""
    hosts = _hosts(place.hosts)
    rack = rack_text(place.rack or "")
    name = NAMES[place.kind].format(hosts=hosts, rack=rack, rail=place.rail)
    if place.rail is not None and place.kind != "rail":
        name += f" on rail {place.rail}"
    return name


def _hosts(hosts: Sequence[str]) -> str:
    if len(hosts) <= 2:
        return join_words(hosts)
    return host_ranges(hosts)


def _both(explanation: Sequence[Place]) -> str:
    names = join_words(map(place_name, explanation))
    return f"both {names}" if len(explanation) > 1 else names


def _evidence(fault: NamedFault) -> str:
    """Return by which slots a fault was found, how sure it is, and whether its node is not excluded although it is."""
    ends = math.isfinite(fault.effect)
    if fault.candidates and not ends:
        return "no transfer between them ended; none of them is excluded"
    if fault.place.kind == "failed":
        return f"its transfers with {join_words(fault.missed_with)} ended with an error"
    slots = format_count(fault.slots.get(fault.deciding, 0), "slot")
    parts = [f"{slots} {SLOTS[fault.deciding]} decided"]
    if not ends:
        parts.append("both nodes answer to others")
    elif fault.wait:
        host, share, share_of_others, explained = fault.wait
        waited = f"the rank of {host} waited for a core {format_per_cent(share)} of the time"
        parts.append(f"{waited}, those of others {format_per_cent(share_of_others)}")
        parts.append(f"that may make transfers take up to {format_factor(explained)} as long")
        parts.append("therefore not excluded")
    else:
        below = "below " if fault.chance < LEAST_CHANCE else ""
        parts.append(
            f"chance on a healthy machine {below}{100 * max(fault.chance, LEAST_CHANCE):.2g} %"
        )
    if fault.candidates:
        parts.append("none of them is excluded")
    if fault.under_load_only:
        parts.append(
            "it is as fast as others while the rest of the machine is silent, and therefore not excluded"
        )
    return "; ".join(parts)


def _drain_commands(verdict: MachineVerdict) -> Iterator[str]:
    """Yield a command for the administrator for the excluded nodes of each kind of fault; nothing executes it."""
    by_reason = defaultdict[tuple[Kind, str | None], dict[str, float]](dict)
    for fault in verdict.verdicts:
        host = fault.hosts[0]
        if host in verdict.exclude and fault.place.kind in REASONS:
            by_reason[fault.place.kind, fault.error][host] = fault.effect
    begun = verdict.begun[:16].replace("T", " ")
    for (kind, error), effects in by_reason.items():
        finite = sorted(effect for effect in effects.values() if math.isfinite(effect))
        factors = join_ends(map(format_factor, finite))
        names = shlex.quote(",".join(host for host in verdict.exclude if host in effects))
        reason = REASONS[kind].format(factors=factors, error=_without_quotes(error or ""))
        yield f'scontrol update NodeName={names} State=DRAIN Reason="hpccoll: {reason} ({begun} UTC)"'


def _without_quotes(text: str) -> str:
    """Return a text without the characters that have a meaning within double quotes of a shell."""
    return "".join(letter for letter in text if letter not in '"$`\\')


def _basis(verdict: MachineVerdict) -> str:
    load = verdict.load
    nodes = format_count(verdict.nodes, "node")
    if verdict.racks:
        nodes += f" in {len(verdict.racks)} racks"
    how = "both directions at once" if load.together else "one direction after the other"
    parts = [
        f"{verdict.kind}: {nodes}",
        format_count(verdict.slots, "slot"),
        f"transfers of {format_size(load.bytes)}, {how}, over {load.program} in {load.memory} memory",
    ]
    if math.isfinite(verdict.noise):
        parts.append(f"noise {format_per_cent(verdict.noise)}")
    return ", ".join(parts)


SYMBOLS: Mapping[State, str] = {
    "slow": "{factor}",
    "hung": "hung",
    "failed": "failed",
    "candidate": "{factor}?",
    "healthy": ".",
    "absent": "-",
    "undecided": "?",
}
LEGEND: Mapping[State, str] = {
    "hung": "hung: it did not answer",
    "failed": "failed: it answered with an error",
    "candidate": "1.10x?: it, or another one",
    "healthy": ".: not accused",
    "absent": "-: not in the diagnosis",
    "undecided": "?: not ended, not judged, or under load",
}
"""What a diagnosis said of a place, in the table of all diagnoses."""


def history_lines(history: MachineHistory, width: int) -> Iterator[str]:
    """Yield what is slow again and again, and a table of all places that were ever accused, ``width`` columns wide."""
    rows = history.places
    names = []
    for row in rows:
        name = place_name(row.place)
        names.append(f"{name} of {row.cluster}" if row.cluster else name)
    for name, row in zip(names, rows, strict=True):
        if row.is_lasting:
            yield f"{name} was slow on {row.days} days"
        elif row.is_accused:
            yield f"{name} was accused in its last diagnosis"
    if not any(row.is_lasting or row.is_accused for row in rows):
        yield f"nothing was slow on {DAYS} days or more"
    yield from _unknown_of_last(history.last)
    if rows:
        columns = []
        for number, heading in enumerate(_headings(history.begun)):
            columns.append((heading, [_symbol(row.states[number]) for row in rows]))
        yield from tables_within(width, ("accused", names), columns)
        states = {past.state for row in rows for past in row.states}
        for state, meaning in LEGEND.items():
            if state in states:
                yield f"  {meaning}"


def unended_text(verdict: MachineVerdict) -> str:
    """Return whether an incomplete diagnosis still runs or ended, in words that follow a subject."""
    if verdict.kept_at is None:
        return "was interrupted"
    if not verdict.kept_at:
        return "is still running, or was killed"
    day, time = verdict.kept_at[:10], verdict.kept_at[11:19]
    return f"is still running, or was killed after {day} {time} UTC"


def _unended_remedy(verdict: MachineVerdict) -> str:
    again = "submit it again with the same --out"
    if verdict.kept_at is None:
        return again
    if not verdict.slurm_job:
        return f"if it runs, wait for its end; else {again}"
    return f"if 'squeue -j {verdict.slurm_job}' shows it, wait for its end; else {again}"


def _headings(begun: Sequence[str]) -> list[str]:
    """Return the day of each diagnosis, with the minute if several began on one day."""
    days = [moment[5:10] for moment in begun]
    if len(set(days)) == len(days):
        return days
    return [f"{moment[5:10]} {moment[11:16]}" for moment in begun]


def _unknown_of_last(last: MachineVerdict) -> Iterator[str]:
    """Yield what the newest diagnosis does not know, or what is wrong besides slow places: it is not healthy then."""
    if not last.complete:
        remedy = _unended_remedy(last)
        yield f"the newest diagnosis {unended_text(last)}, and says nothing about the nodes; do: {remedy}"
    if last.unjudged:
        yield f"the newest diagnosis did not judge {host_ranges(last.unjudged)}"
    for finding in last.findings:
        if finding.severity == "critical":
            yield f"newest diagnosis: {finding.with_remedy.removesuffix('.')}"


def _symbol(past: PastState) -> str:
    factor = format_factor(past.effect) if past.effect else "hung"
    return SYMBOLS[past.state].format(factor=factor)
