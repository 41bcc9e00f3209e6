"""Which known defects fit a run: its versions, what is known of its condition, and what went wrong in it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, TypeAlias, TypedDict

from hpccoll.common.text import first_few
from hpccoll.common.units import format_count
from hpccoll.evidence.defect_lines import defects_of_line
from hpccoll.evidence.defect_table import (
    Defect,
    Extent,
    Patterns,
    Version,
    known_defects,
    parse_version,
)

MOST = 3
"""How many defects are named with their symptoms; the others are counted."""

MOST_NAMES = 2
"""How many components the others name."""

PLAUSIBLE = 1.5
"""The ratio of two shares of the normal bandwidth up to which they may be the same fault."""

ENDS = "crash", "fails"
"""The kinds of defects that end a program."""

_MPI_LIBRARIES = frozenset(("Open MPI", "MPICH", "Cray MPICH", "Intel MPI"))
RIVALS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("NCCL", "RCCL"), frozenset(("NCCL", "RCCL"))),
    **dict.fromkeys(_MPI_LIBRARIES, _MPI_LIBRARIES),
}
"""For each library, the libraries between which a run chooses."""

_GPU_LIBRARIES = "nccl", "rccl"
TRANSPORTS = {
    **dict.fromkeys(("NCCL", "RCCL", "aws-ofi-nccl", "PyTorch", "fabric manager"), ("mpi",)),
    **dict.fromkeys(_MPI_LIBRARIES, _GPU_LIBRARIES),
    **dict.fromkeys(("UCX", "UCC", "HPC-X"), _GPU_LIBRARIES),
}
"""The transports that do not use a component."""

CONFIDENCES = "maintainer", "several", "one"
"""Who confirmed a defect, the most reliable first."""

ALIKE = {
    "all_to_all": ("all_to_all_v",),
    "bidirectional": ("send_recv",),
    "multi_pair": ("send_recv",),
}
"""Other collectives whose defects a collective may show: logs call all-to-alls with unequal blocks the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run; an empty field or None is not known."""

    versions: Mapping[str, str] = field(default_factory=dict)  # by component, as its own text
    gpus: Collection[str] = ()  # their names, or those that it may have
    mixed_gpus: bool | None = None  # whether ranks have different ones
    cpus: Collection[str] = ()  # their names
    networks: Collection[str] = ()  # the words of the table
    nodes: int | None = None
    ranks: int | None = None
    ranks_per_node: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    algorithms: Collection[str] = ()  # that ran, by the project's names
    protocols: Collection[str] = ()
    differing: Collection[str] = ()  # the variables that hosts set differently
    lines: Mapping[str, str] = field(default_factory=dict)  # of logs, by the ids of defects


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that went wrong in a run; a field that is empty or None is not known."""

    kind: str  # slow, wrong, hang, crash or fails
    transport: str = ""  # mpi, nccl or rccl
    collective: str = ""  # ``init`` is the creation of a communicator
    nbytes: int | None = None  # S
    share: float | None = None  # the measured over the expected bandwidth
    nodes: int | None = None
    ranks: int | None = None
    ranks_per_node: int | None = None
    device: str = ""
    text: str = ""  # the error


class FittingDefectJson(TypedDict):
    """A known defect that fits a run, as JSON has it."""

    id: str  # of ``hpccoll list defects``
    version: str
    good_version: str | None
    certain: bool
    kind: str
    symptom: str
    condition: str
    workaround: str | None
    sources: list[str]
    confidence: str
    reread: str | None
    line: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingDefect:
    """A defect that fits a run, and how surely it is the cause."""

    defect: Defect
    is_certain: bool  # whether it is the cause, and not only may be
    version: str  # the component, with its version if that is known
    line: str = ""  # the line of a log that shows it
    good_version: str = ""  # the version of another run, which does not have it
    met: int = 0  # how many of its needs are known to be met
    unknown: int = 0  # how many of its needs are not known

    @property
    def order(self) -> tuple[bool, bool, int, int, int]:
        """The sort key: the surest first."""
        confidence = CONFIDENCES.index(self.defect.confidence)
        return not self.is_certain, not self.line, self.unknown - self.met, confidence, self.unknown

    def to_json(self) -> FittingDefectJson:
        """Return it as JSON has it."""
        defect = self.defect
        return {
            "id": defect.id,
            "version": self.version,
            "good_version": self.good_version or None,
            "certain": self.is_certain,
            "kind": defect.kind,
            "symptom": defect.symptom,
            "condition": defect.condition,
            "workaround": defect.workaround or None,
            "sources": list(defect.sources),
            "confidence": defect.confidence,
            "reread": defect.reread or None,
            "line": self.line or None,
        }


def numbers_of_versions(facts: RunFacts) -> dict[str, Version]:
    """Return the numbers of the versions of a run, by component."""
    return {component: parse_version(text) for component, text in facts.versions.items()}


def fitting_defects(facts: RunFacts, troubles: Iterable[Trouble] = ()) -> list[FittingDefect]:
    """Return the defects that fit a run, the surest first.

    A trouble or a line of a log that is a symptom must fit each of them.
    """
    every_trouble = tuple(troubles)
    if not every_trouble and not facts.lines:
        return []
    facts = _with_lines_of_errors(facts, every_trouble)
    numbers = numbers_of_versions(facts)
    fitting = []
    for defect in known_defects():
        if not defect.silent:
            fitting += _fit(defect, facts, numbers, every_trouble)
    return sorted(fitting, key=lambda fit: fit.order)


def _with_lines_of_errors(facts: RunFacts, troubles: Sequence[Trouble]) -> RunFacts:
    """Return facts with the errors of troubles that match a pattern of a defect, besides lines of logs."""
    lines = {}
    for trouble in troubles:
        for name in defects_of_line(trouble.text):
            lines[name] = trouble.text
    return replace(facts, lines={**lines, **facts.lines})


HARDWARE = "gpu", "cpu", "network"
"""The needs that a machine meets before anything runs."""

SEVERE = "wrong", "hang", "crash"
"""The kinds of defects that a user of a machine should know before it shows any."""


def defects_of_machine(facts: RunFacts) -> list[Defect]:
    """Return the severe defects that a maintainer confirmed, of installed versions on hardware that they need."""
    numbers = numbers_of_versions(facts)
    defects = []
    for defect in known_defects():
        if defect.silent or defect.kind not in SEVERE or defect.confidence != CONFIDENCES[0]:
            continue
        version = numbers.get(defect.versions.component)
        if not version or not defect.versions.contains(version):
            continue
        answers = _answers(defect, facts, numbers, Trouble(kind=defect.kind), strict=())
        if answers is not None and any(answers.get(name) for name in HARDWARE):
            defects.append(defect)
    return defects


def _fit(
    defect: Defect,
    facts: RunFacts,
    numbers: Mapping[str, Version],
    troubles: Sequence[Trouble],
) -> list[FittingDefect]:
    """Return a defect as it fits best; nothing if it does not fit."""
    shown_by_line = defect.log is not None and defect.id in facts.lines
    in_range = _is_in_range(defect, numbers, shown_by_line=shown_by_line)
    if not in_range:
        return []
    signs = list(troubles)
    if shown_by_line:
        signs.append(Trouble(kind=defect.kind))
    fits = []
    for sign in signs:
        if not (shown_by_line or _is_symptom(defect, sign)):
            continue
        answers = _answers(defect, facts, numbers, sign)
        if answers is None:
            continue
        if shown_by_line or _is_specific(defect, answers, numbers):
            fits.append(_named(defect, facts, answers, shown_by_line=shown_by_line))
    fits.sort(key=lambda fit: fit.order)
    return fits[:1]


def _is_in_range(defect: Defect, numbers: Mapping[str, Version], *, shown_by_line: bool) -> bool:
    """Return whether the versions fit; one that is not known fits a line, or a range without ends."""
    rivals = RIVALS.get(defect.component, frozenset())
    if defect.component not in numbers and not rivals.isdisjoint(numbers):
        return False
    version = numbers.get(defect.versions.component)
    if not version:
        return shown_by_line or not defect.versions.has_bound
    return defect.versions.contains(version)


def _is_symptom(defect: Defect, trouble: Trouble) -> bool:
    """Return whether a trouble is what a defect causes; a crash with a line of its own is known by that line."""
    if defect.kind in ENDS:
        if trouble.kind not in ENDS or defect.log is not None:
            return False
    elif trouble.kind != defect.kind:
        return False
    if trouble.transport in TRANSPORTS.get(defect.component, ()):
        return False
    affected = {*defect.collectives}
    collectives = {trouble.collective, *ALIKE.get(trouble.collective, ())}
    if trouble.collective and "any" not in affected and affected.isdisjoint(collectives):
        return False
    share = defect.bandwidth_share
    if trouble.share is None or share is None:
        return True
    return abs(log(trouble.share / share)) <= log(PLAUSIBLE)


Answer: TypeAlias = bool | None
"""Whether a need is met; None if that is not known."""

SPECIFIC = (
    "gpu",
    "cpu",
    "mixed_gpus",
    "settings",
    "line",
    "differs",
    "logged_algorithm",
    "versions",
    "present",
)
"""The needs that few runs meet."""

STRICT = "mixed_gpus", "settings", "differs", "logged_algorithm", "present"
"""The needs that must be known to be met."""

LOGGED = "algorithm", "protocol", "line", "logged_algorithm"
"""The needs that a line of a log shows."""


def _answers(
    defect: Defect,
    facts: RunFacts,
    numbers: Mapping[str, Version],
    trouble: Trouble,
    strict: Collection[str] = STRICT,
) -> Mapping[str, Answer] | None:
    """Return whether each need of a defect is met; None if one is not, or a ``strict`` one is not known."""
    needs = defect.needs
    answers: dict[str, Answer] = {}
    for name, check in _CHECKS.items():
        need = getattr(needs, name)
        if need:
            answers[name] = check(need, facts, trouble)
    if needs.line is not None:
        answers["line"] = defect.id in facts.lines or None
    if needs.versions:
        answers["versions"] = _have_versions(needs.versions, numbers)
    if any(pattern_is_set(pattern, facts) for pattern in needs.unless):
        return None
    for name, answer in answers.items():
        if answer is False or (answer is None and name in strict):
            return None
    return answers


def _is_specific(
    defect: Defect, answers: Mapping[str, Answer], numbers: Mapping[str, Version]
) -> bool:
    """Return whether a need is met that few runs meet; without such needs the version must be known.

    Many runs have the network of a defect: it does not count where the defect also needs a GPU or a CPU.
    """
    specific = answers.keys() & SPECIFIC or answers.keys() & {"network"}
    if not specific:
        return defect.versions.component in numbers
    return any(answers[name] for name in specific)


def _named(
    defect: Defect, facts: RunFacts, answers: Mapping[str, Answer], *, shown_by_line: bool
) -> FittingDefect:
    unknown = list(answers.values()).count(None)
    text = facts.versions.get(defect.versions.component, "")
    version = defect.component
    is_certain = False
    if text:
        version = f"{defect.versions.component} {text}"
        is_certain = _is_certain(defect, answers, shown_by_line=shown_by_line)
    return FittingDefect(
        defect=defect,
        is_certain=is_certain,
        version=version,
        line=facts.lines.get(defect.id, ""),
        met=len(answers) - unknown,
        unknown=unknown,
    )


def _is_certain(defect: Defect, answers: Mapping[str, Answer], *, shown_by_line: bool) -> bool:
    """Return whether a defect of a known version is the cause, and not only may be.

    A maintainer must have confirmed it. A line of the log shows it if what few runs meet is known;
    without such a line all needs must be, and the row was read again at its sources.
    """
    if defect.confidence != CONFIDENCES[0]:
        return False
    specific = [answers[name] for name in SPECIFIC if name in answers]
    if shown_by_line:
        return None not in specific
    shown_by_log = not answers.keys().isdisjoint(LOGGED)
    is_known = bool(specific) and None not in answers.values()
    return is_known and (shown_by_log or bool(defect.reread))


def pattern_is_set(pattern: re.Pattern[str], facts: RunFacts) -> bool:
    """Return whether a pattern matches a variable of a run, as ``NAME=VALUE``."""
    for name, value in facts.variables.items():
        if pattern.fullmatch(f"{name}={value}"):
            return True
    return False


def _is_within(extent: Extent, value: int | None) -> Answer:
    if value is None:
        return None
    if len(extent) == 1:
        return extent[0] <= value
    return extent[0] <= value <= extent[1]


def _any_name_begins(words: Sequence[str], names: Collection[str]) -> Answer:
    """Return whether a word of one of the names begins with one of ``words``; words of blanks are whole phrases."""
    if not names:
        return None
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})")
    return any(map(pattern.search, names))


def _have_in_common(words: Sequence[str], values: Collection[str]) -> Answer:
    if not values:
        return None
    return not set(words).isdisjoint(values)


def _have_versions(
    ranges: Mapping[str, tuple[Version, Version]], numbers: Mapping[str, Version]
) -> Answer:
    """Return whether the versions of other components lie in [least, below)."""
    answer: Answer = True
    for component, (least, below) in ranges.items():
        version = numbers.get(component)
        if not version:
            answer = None
        elif version < least or (below and version >= below):
            return False
    return answer


def _all_set(patterns: Patterns, facts: RunFacts) -> bool:
    """Return whether each pattern matches a variable of the run."""
    return all(pattern_is_set(pattern, facts) for pattern in patterns)


_CHECKS: Mapping[str, Callable[[Any, RunFacts, Trouble], Answer]] = {
    "gpu": lambda need, facts, _: _any_name_begins(need, facts.gpus),
    "cpu": lambda need, facts, _: _any_name_begins(need, facts.cpus),
    "mixed_gpus": lambda _, facts, __: facts.mixed_gpus,
    "network": lambda need, facts, _: _have_in_common(need, facts.networks),
    "nodes": lambda need, facts, trouble: _is_within(need, trouble.nodes or facts.nodes),
    "ranks": lambda need, facts, trouble: _is_within(need, trouble.ranks or facts.ranks),
    "ranks_per_node": lambda need, facts, trouble: _is_within(
        need, trouble.ranks_per_node or facts.ranks_per_node
    ),
    "bytes": lambda need, _, trouble: _is_within(need, trouble.nbytes),
    "device": lambda need, _, trouble: _have_in_common(need, {trouble.device} - {""}),
    "algorithm": lambda need, facts, _: _have_in_common(need, facts.algorithms),
    "protocol": lambda need, facts, _: _have_in_common(need, facts.protocols),
    "logged_algorithm": lambda need, facts, _: _have_in_common(need, facts.algorithms),
    "settings": lambda need, facts, _: _all_set(need, facts),
    "differs": lambda need, facts, _: _have_in_common(need, facts.differing),
    "present": lambda need, facts, _: _have_in_common(need, facts.versions),
}
"""Whether each need is met, by its name."""


def surest_of_each(fitting: Iterable[FittingDefect]) -> list[FittingDefect]:
    """Return each defect as it fits best, the surest first."""
    best: dict[str, FittingDefect] = {}
    for fit in sorted(fitting, key=lambda fit: fit.order):
        best.setdefault(fit.defect.id, fit)
    return list(best.values())


def defect_sentence(fitting: FittingDefect) -> str:
    """Return a defect that fits in words, with its workaround and its first source; its subject goes before it."""
    defect = fitting.defect
    versions = fitting.version
    if fitting.good_version:
        versions += f" and not of {fitting.good_version}"
    if fitting.is_certain:
        sentence = f"is a known defect of {versions}: {defect.symptom}"
    else:
        sentence = f"may be a known defect of {versions}: {defect.symptom} ({defect.condition})"
    if defect.workaround:
        sentence += f"; do: {defect.workaround}"
    source = defect.sources[0]
    if defect.reread:
        source += f", read again on {defect.reread}"
    return f"{sentence} [{defect.id}: {source}]"


def defect_sentences(fitting: Sequence[FittingDefect], subject: str = "") -> list[str]:
    """Return the surest defects in words after their subject, and how many others fit, with what lists them."""
    sentences = [f"{subject}{defect_sentence(fit)}" for fit in fitting[:MOST]]
    unnamed = fitting[MOST:]
    if unnamed:
        names = dict.fromkeys(fit.version for fit in unnamed)
        count = format_count(len(unnamed), "more known defect")
        versions = ", ".join(first_few(names, MOST_NAMES, "component"))
        sentences.append(f"{subject}may be one of {count}, of {versions}: hpccoll list defects")
    return sentences
