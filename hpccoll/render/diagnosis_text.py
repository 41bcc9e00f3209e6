"""The text of a diagnosis: what is slow, how much and how surely, what to exclude, and what would have been found."""

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hpccoll.common.text import first_few, join_ends, join_words, rack_text, tables_within
from hpccoll.common.units import format_count, format_factor, format_per_cent, format_size
from hpccoll.diagnosis.history import DAYS, MachineHistory, PastState, State
from hpccoll.diagnosis.nodes_alone import MOST_NAMED, RATE_DOUBTFUL
from hpccoll.diagnosis.records import LEAST_RACK, Kind, Purpose
from hpccoll.diagnosis.verdict import MachineVerdict, NamedFault, Place
from hpccoll.store.host_names import host_ranges

NAMES: Mapping[Kind, str] = {
    "node": "{hosts}", "send": "what {hosts} sends", "receive": "what {hosts} receives",
    "rail": "rail {rail} of {hosts}", "link": "the link between {hosts}",
    "shared_link": "the path that {hosts} share to all others",
    "uplink": "the uplink of {rack} ({hosts})", "rack": "{rack} ({hosts})", "hung": "{hosts}", "failed": "{hosts}",
}  # fmt: skip
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
    "node": "transfers take {factors} the usual time", "send": "sending takes {factors} the usual time",
    "receive": "receiving takes {factors} the usual time", "hung": "it does not answer", "failed": "{error}",
}  # fmt: skip
"""Why a node is excluded, by the kind of its fault."""

SLOTS: Mapping[Purpose, str] = {
    "screen": "of all nodes", "racks": "beside healthy racks", "retest": "beside healthy nodes",
    "accused": "among slow nodes", "links": "beside healthy links", "hung": "of this pair alone",
}  # fmt: skip
"""The slots that may decide on a fault."""

OWN_PROGRAMS = "MPI", "NCCL"
"""What transfers by default; another program decides what it transfers, and --rate is refused beside it."""

LEAST_CHANCE = 1e-6
"""Smaller chances are not told apart: they are of noise that is normal even in its tails."""


def diagnosis_lines(verdict: MachineVerdict) -> Iterator[str]:
    """Yield the answer, then what to exclude, then what stands beside it, and what it is based on."""
    critical, others = (
        [each.with_remedy.removesuffix(".") for each in verdict.findings if (each.severity == "critical") is first]
        for first in (True, False)
    )
    if not verdict.complete:
        yield "the diagnosis was interrupted, and says nothing about the nodes; do: submit it again with the same --out"
    if verdict.unjudged:
        were = "were" if len(verdict.unjudged) > 1 else "was"
        yield f"{host_ranges(verdict.unjudged)} {were} not judged: too few of the transfers have a valid time"
    if verdict.accuses_none:
        other = "other " if verdict.unjudged else ""
        judged = ["node", *(["link"] if verdict.links else []), *(["rack"] if verdict.racks else [])]
        of_two = "neither direction between the two nodes is slower than the other"
        is_slow_alike = any(each.kind == RATE_DOUBTFUL and each.severity == "critical" for each in verdict.findings)
        slow = "slower than the rest" if is_slow_alike else "slow"
        yield of_two if verdict.only_directions else f"no {other}{join_words(judged, 'or')} is {slow}"
    yield from _faults(verdict)
    yield from critical
    if verdict.exclude:
        yield f"--exclude={shlex.quote(','.join(verdict.exclude))}"
        yield from _drain_commands(verdict)
    if math.isfinite(verdict.smallest_effect):
        what = "a direction that takes" if verdict.only_directions else "a node whose transfers take"
        found = f"{what} {format_factor(verdict.smallest_effect)} as long would have been found in 90 % of diagnoses"
        link = verdict.smallest_link_effect
        say_of_links = verdict.links and verdict.accuses_none and not verdict.only_directions and math.isfinite(link)
        yield f"{found}, and a single link over which they take {format_factor(link)}" if say_of_links else found
    yield from _unseen(verdict)
    yield from others
    yield _basis(verdict)


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
        racks = join_words(first_few([rack_text(name) for name in verdict.unjudged_racks], MOST_NAMED, "rack"))
        were = "were" if len(verdict.unjudged_racks) > 1 else "was"
        yield f"{racks} {were} not judged: it takes {LEAST_RACK} racks of {LEAST_RACK} nodes at least"
    if verdict.complete and not verdict.links:
        yield "single links were not judged; do: --links"


def _faults(verdict: MachineVerdict) -> Iterator[str]:
    """Yield what is faulty, each with its evidence: nodes that do not answer together, others by their effects."""
    hung = [fault for fault in verdict.verdicts if fault.place.kind == "hung" and not fault.candidates]
    failed = [fault for fault in verdict.verdicts if fault.place.kind == "failed" and not fault.candidates]
    if verdict.too_many:
        is_hung = 4 * (len(hung) + len(failed)) > verdict.nodes
        silent = f"do not answer{' or fail' if failed else ''}: no node"
        many = silent if is_hung else "seem slow: effects are lower bounds, and no node"
        yield f"more than a quarter of the nodes {many} is excluded"
    if hung:
        yield f"{_hosts([host for fault in hung for host in fault.hosts])} {'do' if hung[1:] else 'does'} not answer"
        missed = [f"{fault.hosts[0]} with {join_words(fault.missed_with)}" for fault in hung]
        yield f"  missed deadlines: {'; '.join(first_few(missed, MOST_NAMED, 'node'))}"
    for fault in sorted(verdict.verdicts, key=lambda fault: -fault.effect):
        if fault not in hung:
            yield fault_sentence(fault)
            yield f"  {_evidence(fault)}"


def fault_sentence(fault: NamedFault) -> str:
    """Return what is slow, and how much."""
    place, factor = fault.place, format_factor(fault.effect)
    interval = f"(95 %: {format_factor(fault.low)} to {format_factor(fault.high)})"
    if not math.isfinite(fault.effect):
        several = f"the diagnosis cannot tell which of {_hosts(fault.hosts)} "
        if fault.error:
            return f"{several}fail: {fault.error}" if fault.candidates else f"{place_name(place)} fails: {fault.error}"
        return f"{several}do not answer" if fault.candidates else f"{place_name(place)} does not answer"
    if fault.candidates:
        names = ", or ".join(first_few(map(_both, fault.candidates), MOST_NAMED, "explanation"))
        cannot = "the diagnosis cannot tell what is slow"
        return f"{cannot}: {names}; transfers take {factor} the usual time {interval}"
    if fault.wait:
        name = place_name(place)
        cannot = f"the diagnosis cannot tell under this load whether {name} is slow"
        return f"{cannot}: transfers take {factor} the usual time {interval}"
    sentence = SENTENCES[place.kind].format(name=place_name(place), hosts=_hosts(place.hosts), factor=factor)
    return f"{sentence} {interval}"


def place_name(place: Place) -> str:
    """Return a component as a part of a sentence."""
    name = NAMES[place.kind].format(hosts=_hosts(place.hosts), rack=rack_text(place.rack or ""), rail=place.rail)
    return name if place.rail is None or place.kind == "rail" else f"{name} on rail {place.rail}"


def _hosts(hosts: Sequence[str]) -> str:
    return join_words(hosts) if len(hosts) <= 2 else host_ranges(hosts)


def _both(explanation: Sequence[Place]) -> str:
    names = join_words(map(place_name, explanation))
    return f"both {names}" if len(explanation) > 1 else names


def _evidence(fault: NamedFault) -> str:
    """Return by which slots a fault was found, how sure it is, and whether its node is not excluded although it is."""
    ends = math.isfinite(fault.effect)
    if fault.candidates and not ends:
        return "no transfer between them ended; none of these is excluded"
    if fault.place.kind == "failed":
        return f"its transfers with {join_words(fault.missed_with)} ended with an error"
    parts = [f"{format_count(fault.slots.get(fault.deciding, 0), 'slot')} {SLOTS[fault.deciding]} decided"]
    if not ends:
        parts.append("both nodes answer to others")
    elif fault.wait:
        host, *shares, explained = fault.wait
        share, of_others = map(format_per_cent, shares)
        parts.append(f"the rank of {host} waited for a core {share} of the time, those of others {of_others}")
        parts.append(f"that may make transfers take up to {format_factor(explained)} as long")
        parts.append("therefore not excluded")
    else:
        below = "below " if fault.chance < LEAST_CHANCE else ""
        parts.append(f"chance on a healthy machine {below}{100 * max(fault.chance, LEAST_CHANCE):.2g} %")
    if fault.candidates:
        parts.append("none of these is excluded")
    if fault.under_load_only:
        parts.append("it is as fast as others while the rest of the machine is silent, and therefore not excluded")
    return "; ".join(parts)


def _drain_commands(verdict: MachineVerdict) -> Iterator[str]:
    """Yield a command for the administrator for the excluded nodes of each kind of fault; nothing executes it."""
    effects = defaultdict[tuple[Kind, str | None], dict[str, float]](dict)
    for fault in verdict.verdicts:
        host, *_ = fault.hosts
        if host in verdict.exclude and fault.place.kind in REASONS:
            effects[fault.place.kind, fault.error][host] = fault.effect
    for (kind, error), of_hosts in effects.items():
        factors = join_ends(format_factor(effect) for effect in sorted(of_hosts.values()) if math.isfinite(effect))
        names = shlex.quote(",".join(host for host in verdict.exclude if host in of_hosts))
        plain = "".join(letter for letter in error or "" if letter not in '"$`\\')  # as it stands in a shell's quotes
        reason, begun = REASONS[kind].format(factors=factors, error=plain), verdict.begun[:16].replace("T", " ")
        yield f'scontrol update NodeName={names} State=DRAIN Reason="hpccoll: {reason} ({begun} UTC)"'


def _basis(verdict: MachineVerdict) -> str:
    load = verdict.load
    nodes = format_count(verdict.nodes, "node") + (f" in {len(verdict.racks)} racks" if verdict.racks else "")
    how = "both directions at once" if load.together else "one direction after the other"
    transfers = f"transfers of {format_size(load.bytes)}, {how}, over {load.program} in {load.memory} memory"
    noise = f"noise {format_per_cent(verdict.noise)}" if math.isfinite(verdict.noise) else ""
    return ", ".join(filter(None, (f"{verdict.kind}: {nodes}", format_count(verdict.slots, "slot"), transfers, noise)))


SYMBOLS: Mapping[State, str] = {
    "slow": "{factor}", "hung": "hung", "failed": "failed", "candidate": "{factor}?", "healthy": ".", "absent": "-",
    "undecided": "?",
}  # fmt: skip
LEGEND: Mapping[State, str] = {
    "hung": "hung: it did not answer",
    "failed": "failed: it answered with an error",
    "candidate": "1.10x?: it, or another one",
    "healthy": ".: not accused",
    "absent": "-: not in the diagnosis",
    "undecided": "?: interrupted, not judged, or under load",
}
"""What a diagnosis said of a place, in the table of all diagnoses."""


def history_lines(history: MachineHistory, width: int) -> Iterator[str]:
    """Yield what is slow again and again, and a table of all places that were ever accused, ``width`` columns wide."""
    begun, rows = history.begun, history.places
    names = [place_name(row.place) + (f" of {row.cluster}" if row.cluster else "") for row in rows]
    for name, row in zip(names, rows, strict=True):
        if row.is_lasting:
            yield f"{name} was slow on {row.days} days"
        elif row.is_accused:
            yield f"{name} was accused in its last diagnosis"
    if not any(row.is_lasting or row.is_accused for row in rows):
        yield f"nothing was slow on {DAYS} days or more"
    yield from _unknown_of_last(history.last)
    if rows:
        days = [each[5:10] for each in begun]
        heads = days if len({*days}) == len(days) else [f"{each[5:10]} {each[11:16]}" for each in begun]
        cells = [[_symbol(row.states[number]) for row in rows] for number in range(len(begun))]
        labels = "accused", names
        yield from tables_within(width, labels, [*zip(heads, cells, strict=True)])
        used = {each.state for row in rows for each in row.states}
        yield from (f"  {meaning}" for state, meaning in LEGEND.items() if state in used)


def _unknown_of_last(last: MachineVerdict) -> Iterator[str]:
    """Yield what the newest diagnosis does not know, or what is wrong besides slow places: it is not healthy then."""
    if not last.complete:
        yield "the newest diagnosis was interrupted, and says nothing about the nodes"
    if last.unjudged:
        yield f"the newest diagnosis did not judge {host_ranges(last.unjudged)}"
    for each in last.findings:
        if each.severity == "critical":
            yield f"newest diagnosis: {each.with_remedy.removesuffix('.')}"


def _symbol(past: PastState) -> str:
    return SYMBOLS[past.state].format(factor=format_factor(past.effect) if past.effect else "hung")
