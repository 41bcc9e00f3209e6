"""A rule of a tuning table, whatever its format, and what is wrong with one. The sentences are in ``findings.toml``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import cast

from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.common.errors import format_choices, format_value
from hpccoll.common.text import Finding, Severity
from hpccoll.extensions.tables.formats.json_lines import parse_json_lines

Span = tuple[int, int]
"""The first and the last number of a range."""
UNLIMITED = 2**64 - 1
ANY: Span = (0, UNLIMITED)
MAX_INT = 2**31 - 1


def includes(outer: Span, inner: Span) -> bool:
    """Return whether a range has all numbers of another one."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRule:
    """What a library is to do in a range of calls. Collectives, algorithms and parameters have the library's names."""

    collective: str
    algorithm: str
    # of the size that the library compares: all bytes of a call, unless ``measure`` says what else
    bytes: Span = ANY
    ranks: Span = ANY
    nodes: Span = ANY
    parameters: Mapping[str, int | str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()  # what must hold besides, in the words of the format
    measure: str = ""
    line: int = 0

    @property
    def empty_range(self) -> str:
        """The unit of a range that ends before it begins; an empty string if there is none."""
        for unit, (first, last) in (("size", self.bytes), ("number of ranks", self.ranks)):
            if last < first:
                return unit
        return ""

    def covers(self, later: "TuningRule") -> bool:
        """Return whether the rule applies to all calls of another one, but for their sizes."""
        if (self.collective, self.measure) != (later.collective, later.measure):
            return False
        if not set(self.conditions) <= set(later.conditions):
            return False
        return includes(self.ranks, later.ranks) and includes(self.nodes, later.nodes)


@cache
def _templates() -> Mapping[str, tuple[str, str, str]]:
    import tomllib  # only what reads tables needs it

    return cast(
        "Mapping[str, tuple[str, str, str]]",
        tomllib.loads(Path(__file__).with_name("findings.toml").read_text()),
    )


@dataclass(slots=True)
class TuningTable:
    """The rules of a table in the order in which its library tries them, and what is wrong with it."""

    format: str
    rules: list[TuningRule] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: str, line: int, value: object, **words: object) -> None:
        """Add a finding about a value on a line, counted from 1; 0 and None are the whole file.

        The words fill its template; a list as ``known`` becomes the valid choices, the nearest
        first.
        """
        if not isinstance(words.get("known", ""), str):
            words["known"] = format_choices(value, cast("Iterable[object]", words["known"]))
        severity, text, remedy = (part.format(**words) for part in _templates()[kind])
        title = f"line {line}" if line else "the table"
        sentence = f"{_subject(value)} {text}"
        values = {"line": line, "value": value}
        self.findings.append(
            Finding(kind, cast("Severity", severity), sentence, title, f"do: {remedy}", values)
        )

    def parse_json(self, text: str, outcome: str) -> tuple[object, list[int]]:
        """Return what ``parse_json_lines`` does; None and a finding for a text that is not JSON."""
        try:
            return parse_json_lines(text)
        except ValueError as error:
            self.add(
                "malformed",
                getattr(error, "lineno", 1),
                "JSON",
                why=f"is not valid ({error})",
                outcome=outcome,
            )
            return None, []

    def check_order(self) -> None:
        """Find rules that no call matches, and rules to which earlier ones leave only larger sizes; the first wins."""
        for place, rule in enumerate(self.rules):
            unit = rule.empty_range
            if unit:
                why = f"its last {unit} is below its first"
                self.add("never_matches", rule.line, rule.algorithm, why=why)
                continue
            earlier = [before for before in self.rules[:place] if before.covers(rule)]
            lines = []
            for before in earlier:
                if before.bytes[0] <= rule.bytes[1]:
                    lines.append(before.line)
            left = uncovered(rule.bytes, (before.bytes for before in earlier))
            if not left:
                self.add(
                    "never_matches", rule.line, rule.algorithm, why=f"line {lines[0]} comes first"
                )
            elif left[0][0] > rule.bytes[0] and rule.bytes != ANY:
                self.add("overlap", rule.line, rule.bytes[0], other=lines[0], last=left[0][0] - 1)

    def check_ranks(self, library: str, rule: TuningRule) -> None:
        """Find what an algorithm needs of the number of ranks where its rule also takes other numbers.

        Find also a rule for larger sizes of a collective that should have one rule.
        """
        facts = library_table()[library]
        why = facts.get("one_rule", {}).get(rule.collective)
        if rule.bytes[0] and why:
            self.add("one_rule", rule.line, rule.bytes[0], collective=rule.collective, why=why)
        algorithm = library_algorithms(library).get(rule.collective, {}).get(rule.algorithm)
        if algorithm is None:
            return
        first, last = rule.ranks
        ranks = first if first == last else 0
        holds = {
            "pow2": ranks and ranks & (ranks - 1) == 0,
            "even": ranks and ranks % 2 == 0,
            "two": ranks == 2,
        }
        for need in algorithm.needs:
            if not holds.get(need, True):
                kind = "needs_ranks"
                if need in facts.get("fatal_needs", ()):
                    kind = "needs_ranks_fatal"
                span = span_words(rule.ranks, "ranks")
                self.add(
                    kind, rule.line, rule.algorithm, need=library_table()["needs"][need], span=span
                )


def _subject(value: object) -> object:
    """Return how a finding begins that is about a value."""
    if value is None:
        return "it"
    if isinstance(value, int):
        return value
    return format_value(value)


def uncovered(whole: Span, parts: Iterable[Span]) -> list[Span]:
    """Return the ranges of a range that no part covers, ascending."""
    gaps = list[Span]()
    start = whole[0]
    for first, last in sorted(part for part in parts if part[0] <= part[1]):
        gaps.append((start, min(first - 1, whole[1])))
        start = max(start, last + 1)
    return [gap for gap in (*gaps, (start, whole[1])) if gap[0] <= gap[1]]


def span_words(span: Span, unit: str = "bytes") -> str:
    """Return a range in words: ``1 to 4 bytes``, ``8 bytes and more``."""
    if span == ANY:
        return f"all {'sizes' if unit == 'bytes' else f'numbers of {unit}'}"
    if span[1] == UNLIMITED:
        return f"{span[0]} {unit} and more"
    return f"{span[0]} to {span[1]} {unit}"


def rules_by_ranks(rules: Iterable[TuningRule]) -> dict[str, list[tuple[Span, list[TuningRule]]]]:
    """Return rules by collective, then by ranges of ranks that do not overlap, which together are all numbers."""
    by_collective: dict[str, list[TuningRule]] = {}
    for rule in rules:
        by_collective.setdefault(rule.collective, []).append(rule)
    by_ranks: dict[str, list[tuple[Span, list[TuningRule]]]] = {}
    for collective, its_rules in by_collective.items():
        by_ranks[collective] = []
        for span in _pieces(rule.ranks for rule in its_rules):
            applying = [rule for rule in its_rules if includes(rule.ranks, span)]
            by_ranks[collective].append((span, applying))
    return by_ranks


def size_steps(rules: Iterable[TuningRule]) -> list[tuple[Span, TuningRule | None]]:
    """Return the first rule that applies for all sizes, in ascending ranges; None where no rule does."""
    ordered = list(rules)
    steps: list[tuple[Span, TuningRule | None]] = []
    for first, last in _pieces(rule.bytes for rule in ordered):
        applying = next((rule for rule in ordered if includes(rule.bytes, (first, last))), None)
        begin = first
        if steps and steps[-1][1] is applying:
            (begin, _), _ = steps.pop()
        steps.append(((begin, last), applying))
    return steps


def _pieces(spans: Iterable[Span]) -> list[Span]:
    """Return the ranges of all numbers between whose ends no range begins or ends."""
    starts = {0, UNLIMITED + 1}
    for first, last in spans:
        starts |= {first, last + 1}
    return [(first, after - 1) for first, after in pairwise(sorted(starts))]
