"""The answer in words: for each setting of a collective what to use at which sizes, how much faster, and how sure.

``hpccoll run``, ``sweep``, ``tune`` and the report all print these.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby

from hpccoll.analysis.recommendations import (
    AutoResult,
    Recommendation,
    RecommendedRange,
    SizeVerdict,
    Verdict,
    lone_rank_reason,
)
from hpccoll.analysis.setting import Choice
from hpccoll.cases.case import IDLE, SINGLE
from hpccoll.common.text import first_few, join_ends, join_words, table_of
from hpccoll.common.units import format_factor, format_seconds, format_size
from hpccoll.render.answer_lines import (
    Answer,
    AnswerLine,
    as_fast_as_native,
    basis_of,
    of_sizes,
    terminal_lines,
    untold,
)
from hpccoll.render.pair_answers import pair_answers
from hpccoll.render.step_answers import step_answers
from hpccoll.render.unmeasured_text import not_measured
from hpccoll.schedule import WORKLOADS, collective
from hpccoll.schedule.collective import AUTO, NATIVE
from hpccoll.store.rows import MEAN, Results

MAX_SETTINGS = 4
"""The most settings of a collective whose answers come first; those of the others are folded, or in the report only."""

MAX_NAMED_SETTINGS = 3
"""Settings that are named where only the report, or a fold of it, has their answers."""


class Answers:
    """The answers for all collectives of some results."""

    def __init__(self, recommendations: Iterable[Recommendation]) -> None:
        self.by_collective: dict[str, list[Recommendation]] = {}
        for each in recommendations:
            self.by_collective.setdefault(each.setting.collective, []).append(each)

    def foremost(self, name: str) -> list[Recommendation]:
        """Return the recommendations for the most ranks that had cores of their own, or for the most ranks.

        If these were timed in several ways, return those of single operations, and those of idle ranks before any load.
        """
        several = self.by_collective[name]
        fitting = [each for each in several if not each.measured.oversubscribed] or several
        most = max((each.setting.nodes, each.setting.ranks) for each in fitting)
        of_most = [each for each in fitting if (each.setting.nodes, each.setting.ranks) == most]
        of_most = [each for each in of_most if each.setting.timing == SINGLE] or of_most
        return [each for each in of_most if each.setting.load == IDLE] or of_most

    def split(self, name: str, most: int = MAX_SETTINGS) -> tuple[list[Answer], list[Answer]]:
        """Return the first answers of a collective, at most so many, and the others; none without any.

        The foremost settings are first, and those without enough cores come last.
        """
        if name not in self.by_collective:
            return [], []
        foremost = self.foremost(name)
        others = [each for each in self.by_collective[name] if each not in foremost]
        others.sort(key=lambda each: (each.measured.oversubscribed, -each.setting.nodes, -each.setting.ranks))
        count = min(most, len(foremost))
        every = [*map(self._answer, (*foremost, *others))]
        return every[:count], every[count:]

    def choice_name(self, name: str) -> Callable[[Choice], str]:
        """Return a function that names choices: the algorithm, and the transport and parameters if these differ."""
        choices = {choice for each in self.by_collective.get(name, ()) for choice in each.choices}
        transports = {choice.transport for choice in choices if not choice.is_native}
        transports_of_native = {choice.transport for choice in choices if choice.is_native}
        parameters: dict[str, set[object]] = defaultdict(set)
        for choice in choices:
            parameters[choice.algorithm].add(choice.params)

        def named(choice: Choice) -> str:
            several = len(transports_of_native if choice.is_native else transports) > 1
            params = choice.params if len(parameters[choice.algorithm]) > 1 else ()
            words = choice.algorithm, choice.transport if several else "", *(f"{k}={value}" for k, value in params)
            return " ".join(filter(None, words))

        return named

    def setting_name(self, each: Recommendation) -> str:
        """Return what distinguishes a setting from the others of its collective: ``4 ranks, in place``."""
        return ", ".join((each.setting.shape_label, *self.setting_details(each)))

    def setting_details(self, each: Recommendation) -> tuple[str, ...]:
        """Return what distinguishes a setting besides its ranks: ``("in place",)``."""
        several = self.by_collective[each.setting.collective]
        shared = set.intersection(*({*other.setting.details, *other.measured.conditions.words} for other in several))
        return tuple(word for word in (*each.setting.details, *each.measured.conditions.words) if word not in shared)

    def _answer(self, each: Recommendation) -> Answer:
        crowded = each.measured.oversubscribed
        where = f"{self.setting_name(each)}{' (more ranks than cores)' * crowded}"
        only_auto = each.auto and len(each.choices) == 1  # next to native, with which it is compared
        lines = [] if only_auto else [*self._lines(each)]
        lines += [_auto_line(each, each.auto)] if each.auto else []
        return Answer(each.setting.collective, where, tuple(lines), crowded)

    def _lines(self, each: Recommendation) -> Iterator[AnswerLine]:
        """Yield a line for each range of sizes; ranges without a choice that follow each other share one."""
        numbered = enumerate(each.ranges)
        for key, members in groupby(numbered, lambda one: one[0] if one[1].strength != "none" else _why_none(one[1])):
            (first, of_range), *_, (last, _) = [*members] * 2
            ranges = each.ranges[first : last + 1]
            text = self._advice(each, of_range) if isinstance(key, int) else self._no_choice(each, ranges)
            entry = "" if isinstance(key, int) or not of_range.is_compared else self._entry(each, first, last)
            yield AnswerLine(
                strength=of_range.strength,
                text=text,
                is_tie=key == _NOISE,
                sizes=sizes_in_words(each, first, last) if _has_size(each) else "",
                basis=_basis(ranges),
                figures=self._figures(each, ranges),
                entry="" if text.endswith(f"keep {entry}") else entry,
            )

    def _name(self, each: Recommendation, choice: Choice) -> str:
        """Return the name of a choice in a sentence, marked."""
        return f"`{self.choice_name(each.setting.collective)(choice)}`"

    def _advice(self, each: Recommendation, of_range: RecommendedRange) -> str:
        name, gain = self._name(each, of_range.choice), of_range.evidence.gain
        compared = f": {as_fast_as_native(gain.factor)}{_by_size(of_range)}" if gain else ""
        if of_range.is_advice:
            return f"use {name}{compared}"
        return f"{name} may be {'faster' if gain else 'the best choice'}{compared}"

    def _no_choice(self, each: Recommendation, ranges: Sequence[RecommendedRange]) -> str:
        evidence = ranges[0].evidence
        if not evidence.compared:
            times = f": {_times(each)}" if len(each.choices) == 1 else ""
            return f"only {self._name(each, ranges[0].choice)} was measured{times}"
        verdicts = [verdict for of_range in ranges for verdict in of_range.verdicts]
        unsure = {verdict.runner_up for verdict in verdicts if verdict.verdict in ("tie", "behind")}
        unsure |= {of_range.choice for of_range in ranges}
        if any(of_range.evidence.gain for of_range in ranges):
            unsure |= {choice for choice in each.choices if choice.is_native}
        named = [choice for choice in each.choices if choice in unsure]
        names = [self._name(each, choice) for choice in named]
        if why := untold(evidence, names):
            return why
        behind = any(verdict.verdict == "behind" for verdict in verdicts)
        largest = each.largest_ratio(named, [verdict.nbytes for verdict in verdicts])
        unclear = all(verdict.verdict in ("tie", "alone") for verdict in verdicts)
        most = "less than the noise" if unclear else f"{format_factor(largest)} at most"
        has_native = any(choice and choice.is_native for choice in unsure)
        keep = f"; keep `{NATIVE}`" if has_native and not behind else ""
        return f"{join_words(names)} differ by {most}{keep}"

    def _entry(self, each: Recommendation, first: int, last: int) -> str:
        """Return the choices of the ranges with the numbers ``first`` to ``last``: ``ring to 4 KiB, then star``."""
        named = self.choice_name(each.setting.collective)
        names = [named(of_range.choice) for of_range in each.ranges[first : last + 1]]
        ends = [f" to {_cut_label(each, number)}" for number in range(first + 1, last + 1)]
        return ", then ".join(map("".join, zip(names, [*ends, ""], strict=True)))

    def _figures(
        self, each: Recommendation, ranges: Sequence[RecommendedRange]
    ) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return the table of the sizes of some ranges."""
        named = self.choice_name(each.setting.collective)
        verdicts = [verdict for of_range in ranges for verdict in of_range.verdicts]
        compared = any(of.lead for of in verdicts)
        optional: list[tuple[bool, str, Callable[[SizeVerdict], str]]] = [
            (_has_size(each), "size", lambda of: format_size(of.nbytes)),
            (len(ranges) > 1, "choice", lambda of: named(of.choice)),
            (True, "time", lambda of: format_seconds(of.seconds)),
            (any(of.over_native for of in verdicts), "over native", lambda of: _lead(of.over_native)),
            (compared, "over the next", lambda of: _lead(of.lead, named(of.runner_up) if of.runner_up else "")),
            (compared, "clear", _clear),
        ]
        return table_of([(heading, cell) for shown, heading, cell in optional if shown], verdicts)


MAX_NAMED_SIZES = 3
"""Sizes at which a choice is slower that its sentence names."""

LEAST_SPREAD = 1.1
"""The ratio of the ends of a range's factors from which on its sentence names both: below it the mean says enough."""


def _by_size(of_range: RecommendedRange) -> str:
    """Return how the factor over native varies: `` (0.94x to 2.40x by size; slower at 64 KiB)``.

    Empty if it hardly does, and is nowhere below 1.
    """
    factors = {each.nbytes: each.over_native for each in of_range.verdicts if each.over_native}
    ends = min(factors.values(), default=1.0), max(factors.values(), default=1.0)
    by_size = f"{join_ends(map(format_factor, ends))} by size" if ends[1] >= LEAST_SPREAD * ends[0] else ""
    sizes = [format_size(nbytes) for nbytes, factor in factors.items() if round(factor, 2) < 1]
    slower = f"slower at {join_words(first_few(sizes, MAX_NAMED_SIZES, 'size'))}" if sizes else ""
    words = "; ".join(filter(None, (by_size, slower)))
    return f" ({words})" if words else ""


_CLEAR: Mapping[Verdict, str] = {"clear": "yes", "tie": "no", "behind": "slower", "alone": ""}


def _clear(of: SizeVerdict) -> str:
    """Return whether the choice of a size is clear, and if only over native, that."""
    return "over native" if of.is_clear and of.verdict == "tie" else _CLEAR[of.verdict]


def _lead(factor: float | None, rival: str = "") -> str:
    return "" if factor is None else f"{format_factor(factor)} {rival}".rstrip()


_NOISE = "noise"


def _why_none(of_range: RecommendedRange) -> str:
    """Return why a range has no choice: ranges of one reason share a line."""
    alone = of_range.choice.label if not of_range.is_compared else ""
    return alone or untold(of_range.evidence, ()) or _NOISE


def _auto_line(each: Recommendation, auto: AutoResult) -> AnswerLine:
    evidence, compared = auto.evidence, as_fast_as_native(auto.gain.factor)
    names = [f"`{name}`" for name in (AUTO, NATIVE)]
    why = untold(evidence, names)
    if evidence.strength != "none":
        text = f"`{AUTO}` {'may be' if evidence.strength == 'weak' else 'is'} faster: {compared}"
    elif auto.slower or evidence.clear:
        counts = {"faster": evidence.clear, "slower": auto.slower}
        parts = (f"{word} at {of_sizes(count, len(auto.sizes))}" for word, count in counts.items() if count)
        over_all = (
            f"; over all {compared}" if evidence.clear or round(auto.gain.factor, 2) < 1 else ", and faster at none"
        )
        text = f"`{AUTO}` is {join_words(parts)}{over_all}"
    else:
        text = why or f"{join_words(names)} differ by less than the noise"
    slower = f"clearly slower at {of_sizes(auto.slower, len(auto.sizes))}" if auto.slower else ""
    sizes = join_ends(map(format_size, auto.sizes)) if _has_size(each) else ""
    is_tie = evidence.strength == "none" and not (auto.slower or evidence.clear or why)
    return AnswerLine(evidence.strength, text, sizes, basis_of(evidence, slower), is_tie=is_tie)


def name_settings(settings: Iterable[str]) -> str:
    """Return the first few of some settings, each once, and the number of the others: ``4 ranks; 3 ranks``."""
    return "; ".join(first_few(dict.fromkeys(settings), MAX_NAMED_SETTINGS, "setting"))


def _has_size(each: Recommendation) -> bool:
    return not collective(each.setting.collective).token


def sizes_in_words(each: Recommendation, first: int, last: int | None = None) -> str:
    """Return sizes in words, within the measured ones: ``64 KiB to 4 MiB``.

    They are those of the ranges with the numbers ``first`` to ``last`` [first].
    """
    sizes, after = each.measured.sizes, (first if last is None else last) + 1
    begin = _cut_label(each, first) if first else format_size(sizes[0])
    end = _cut_label(each, after) if after < len(each.ranges) else format_size(sizes[-1])
    return join_ends((begin, end))


def _cut_label(each: Recommendation, number: int) -> str:
    """Return the first size of a range, rounded up to two digits, so that it stays above the range before it."""
    cut, measured = each.ranges[number].sizes.first, each.ranges[number].sizes.sizes[0]
    unit = 1024 ** max(0, (cut.bit_length() - 1) // 10)
    digits = 10 ** max(0, len(str(cut // unit)) - 2)
    rounded = math.ceil(cut / unit / digits) * digits * unit
    return format_size(min(rounded, measured))


def _basis(ranges: Sequence[RecommendedRange]) -> str:
    """Return what the strength of some ranges that share a line follows from."""
    first, *others = ranges
    if not first.evidence.compared or others:
        return ""
    unpaired = ", ".join(first.sizes.unpaired)
    return basis_of(first.evidence, f"not in one launch with {unpaired}" if unpaired else "")


def _times(each: Recommendation) -> str:
    verdicts = list(each.verdicts.values())
    ends = dict.fromkeys((verdicts[0], verdicts[-1]))
    if not _has_size(each):
        return format_seconds(verdicts[0].seconds)
    trip = " for the round trip" if each.setting.collective == "send_recv" else ""
    mean = " (the geometric mean of both placements)" if each.setting.in_place is None else ""
    return " and ".join(f"{format_seconds(end.seconds)} at {format_size(end.nbytes)}" for end in ends) + trip + mean


def conclusion_lines(results: Results, answers: Answers) -> Iterator[str]:
    """Yield for a terminal what to use for each collective, what was not measured, and what training steps take.

    Collectives that have no answer for the same reason share a line.
    """
    for name in answers.by_collective:
        first, others = answers.split(name)
        yield from terminal_lines(first)
        if others:
            yield f"{name}: the report has the answers for {name_settings(other.where for other in others)}."
    of_pairs, steps = pair_answers(results), step_answers(results)
    yield from terminal_lines(chain.from_iterable(of_pairs.values()))
    yield from not_measured_line(results, answers)
    yield from terminal_lines(steps)
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(row.collective for row in results.ours.rows):
        if name not in (*answers.by_collective, *of_pairs) and not (steps and name in WORKLOADS):
            by_reason[_reason_unanswered(results, name)].append(name)
    yield from (f"{', '.join(names)}: {reason}." for reason, names in by_reason.items())


def not_measured_line(results: Results, answers: Answers) -> Iterator[str]:
    """Yield for a terminal what the answers do not cover, in a line; nothing without answers."""
    if line := not_measured(results, [*answers.by_collective]):
        yield f"Not measured: {line}"


def unanswered(results: Results, name: str) -> Answer:
    """Return why a collective without an answer has none."""
    return Answer(name, "", (AnswerLine(None, f"{_reason_unanswered(results, name)}."),))


def _reason_unanswered(results: Results, name: str) -> str:
    rows = [row for row in results.rows if row.collective == name]
    measured = [row for row in rows if row.ours]
    others = sorted({row.algorithm for row in measured})
    if of_lone_ranks := lone_rank_reason(measured):
        return of_lone_ranks
    if measured and all(row.rule == MEAN for row in measured):
        loops = join_words(dict.fromkeys(row.timing for row in measured))
        return f"all times are means by the loop of {loops}, and not ranked"
    if any(not row.floor and row.algorithm != AUTO for row in measured):
        return "no result is complete and correct"
    if measured:
        return f"only {join_words(others)} {'was' if len(others) == 1 else 'were'} measured"
    kinds = [row.kind for row in sorted(rows, key=lambda row: row.precedence)]
    return f"all times are {join_words(dict.fromkeys(kinds), 'or')}, and not ranked" if rows else "nothing was measured"
