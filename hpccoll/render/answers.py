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
from hpccoll.analysis.variant_gains import is_one_of_variants, variant_gain
from hpccoll.cases.case import IDLE, SINGLE
from hpccoll.common.text import first_few, join_ends, join_words, table_of
from hpccoll.common.units import format_factor, format_seconds, format_size
from hpccoll.render.answer_lines import (
    WITHIN_NOISE,
    Answer,
    AnswerLine,
    as_fast_as_native,
    basis_of,
    of_sizes,
    terminal_lines,
    untold,
)
from hpccoll.render.pair_answers import pair_answers
from hpccoll.render.unmeasured_text import not_measured
from hpccoll.render.workload_page import workload_answers
from hpccoll.schedule import collective
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
        for recommendation in recommendations:
            self.by_collective.setdefault(recommendation.setting.collective, []).append(
                recommendation
            )

    def foremost(self, name: str) -> list[Recommendation]:
        """Return the recommendations for the most ranks that had cores of their own, or for the most ranks.

        If these were timed in several ways, return those of single operations, and those of idle
        ranks before any load.
        """

        def size(candidate: Recommendation) -> tuple[int, int]:
            return candidate.setting.nodes, candidate.setting.ranks

        candidates = self.by_collective[name]
        candidates = [item for item in candidates if not item.measured.oversubscribed] or candidates
        largest = max(map(size, candidates))
        candidates = [item for item in candidates if size(item) == largest]
        candidates = [item for item in candidates if item.setting.timing == SINGLE] or candidates
        return [item for item in candidates if item.setting.load == IDLE] or candidates

    def split(self, name: str, most: int = MAX_SETTINGS) -> tuple[list[Answer], list[Answer]]:
        """Return the first answers of a collective, at most ``most``, and the others; none without any.

        The foremost settings are first, and those without enough cores come last.
        """
        if name not in self.by_collective:
            return [], []
        foremost = self.foremost(name)
        further = [item for item in self.by_collective[name] if item not in foremost]
        further.sort(
            key=lambda item: (
                item.measured.oversubscribed,
                -item.setting.nodes,
                -item.setting.ranks,
            )
        )
        count = min(most, len(foremost))
        answers = [self._answer(item) for item in (*foremost, *further)]
        return answers[:count], answers[count:]

    def choice_name(self, name: str) -> Callable[[Choice], str]:
        """Return a function that names choices: the algorithm, and the transport and parameters if these differ."""
        recommendations = self.by_collective.get(name, ())
        choices = {
            choice for recommendation in recommendations for choice in recommendation.choices
        }
        # of the library's own calls, and of schedules
        transports: dict[bool, set[str]] = defaultdict(set)
        parameters: dict[str, set[object]] = defaultdict(set)
        for choice in choices:
            transports[choice.is_native].add(choice.transport)
            parameters[choice.algorithm].add(choice.params)

        def named(choice: Choice) -> str:
            words = [choice.algorithm]
            if len(transports[choice.is_native]) > 1:
                words.append(choice.transport)
            if len(parameters[choice.algorithm]) > 1:
                words += [f"{parameter}={value}" for parameter, value in choice.params]
            return " ".join(filter(None, words))

        return named

    def setting_name(self, recommendation: Recommendation) -> str:
        """Return what distinguishes a setting from the others of its collective: ``4 ranks, in place``."""
        details = self.setting_details(recommendation)
        return ", ".join((recommendation.setting.shape_label, *details))

    def setting_details(self, recommendation: Recommendation) -> tuple[str, ...]:
        """Return what distinguishes a setting besides its ranks: ``("in place",)``."""
        details = _details(recommendation)
        shared = set(details)
        for compared in self.by_collective[recommendation.setting.collective]:
            shared &= set(_details(compared))
        return tuple(word for word in details if word not in shared)

    def _answer(self, recommendation: Recommendation) -> Answer:
        oversubscribed = recommendation.measured.oversubscribed
        where = self.setting_name(recommendation)
        if oversubscribed:
            where += " (more ranks than cores)"
        lines: list[AnswerLine] = []
        auto = recommendation.auto
        # next to native, with which it is compared
        only_auto = auto and len(recommendation.choices) == 1
        if not only_auto:
            lines += self._lines(recommendation)
        if auto:
            lines.append(_auto_line(recommendation, auto))
        return Answer(recommendation.setting.collective, where, tuple(lines), oversubscribed)

    def _lines(self, recommendation: Recommendation) -> Iterator[AnswerLine]:
        """Yield a line for each range of sizes; ranges without a choice that follow each other share one."""
        for reason, group in groupby(enumerate(recommendation.ranges), _line_key):
            numbers = [number for number, _ in group]
            yield self._line(recommendation, numbers[0], numbers[-1], reason)

    def _line(
        self, recommendation: Recommendation, first: int, last: int, reason: int | str
    ) -> AnswerLine:
        """Return the line of the ranges with the numbers ``first`` to ``last``; the reason is a text without choice."""
        ranges = recommendation.ranges[first : last + 1]
        entry = ""
        if isinstance(reason, int):
            text = self._advice(recommendation, ranges[0])
        else:
            text = self._no_choice(recommendation, ranges)
            if ranges[0].is_compared:
                entry = self._entry(recommendation, first, last)
        if text.endswith(f"keep {entry}"):
            entry = ""
        sizes = ""
        if _has_size(recommendation):
            sizes = sizes_in_words(recommendation, first, last)
        return AnswerLine(
            strength=ranges[0].strength,
            text=text,
            is_tie=reason == _NOISE,
            sizes=sizes,
            basis=_basis(ranges),
            figures=self._figures(recommendation, ranges),
            entry=entry,
        )

    def _name(self, recommendation: Recommendation, choice: Choice) -> str:
        """Return the name of a choice in a sentence, marked."""
        named = self.choice_name(recommendation.setting.collective)
        return f"`{named(choice)}`"

    def _advice(self, recommendation: Recommendation, chosen: RecommendedRange) -> str:
        name = self._name(recommendation, chosen.choice)
        gain = chosen.evidence.gain
        compared = ""
        if gain:
            compared = f": {as_fast_as_native(gain.factor)}{_by_size(chosen)}"
        if chosen.is_advice:
            return f"use {name}{compared}"
        if gain:
            return f"{name} may be faster{compared}"
        return f"{name} may be the best choice"

    def _no_choice(self, recommendation: Recommendation, ranges: Sequence[RecommendedRange]) -> str:
        evidence = ranges[0].evidence
        if not evidence.compared:
            name = self._name(recommendation, ranges[0].choice)
            if len(recommendation.choices) != 1:
                return f"only {name} was measured"
            times = f"{_times(recommendation)}{self._beside_default(recommendation)}"
            candidates = self.by_collective[recommendation.setting.collective]
            if is_one_of_variants(recommendation, candidates):
                return f"{name}: {times}"
            return f"only {name} was measured: {times}"
        verdicts = _verdicts_of(ranges)
        unsure = _unsure_choices(recommendation, ranges, verdicts)
        named = [choice for choice in recommendation.choices if choice in unsure]
        names = [self._name(recommendation, choice) for choice in named]
        why = untold(evidence, names)
        if why:
            return why
        if all(verdict.verdict in ("tie", "alone") for verdict in verdicts):
            most = "less than the noise"
        else:
            largest = recommendation.largest_ratio(named, [verdict.nbytes for verdict in verdicts])
            most = f"{format_factor(largest)} at most"
        sentence = f"{join_words(names)} differ by {most}"
        has_native = any(choice and choice.is_native for choice in unsure)
        is_behind = any(verdict.verdict == "behind" for verdict in verdicts)
        if has_native and not is_behind:
            sentence += f"; keep `{NATIVE}`"
        return sentence

    def _beside_default(self, recommendation: Recommendation) -> str:
        """Return how fast a variant is beside the default one: ``; 1.20x as fast as variant default (...)``."""
        candidates = self.by_collective[recommendation.setting.collective]
        gain = variant_gain(recommendation, candidates)
        if gain is None:
            return ""
        compared = f"{format_factor(gain.factor)} as fast as the default variant"
        if gain.within_noise:
            compared += f", {WITHIN_NOISE}"
        ends = join_ends((format_factor(gain.low), format_factor(gain.high)))
        return f"; {compared} ({ends} by size, in launches of their own)"

    def _entry(self, recommendation: Recommendation, first: int, last: int) -> str:
        """Return the choices of the ranges with the numbers ``first`` to ``last``: ``ring to 4 KiB, then star``."""
        named = self.choice_name(recommendation.setting.collective)
        parts = []
        for number in range(first, last + 1):
            part = named(recommendation.ranges[number].choice)
            if number < last:
                part += f" to {_cut_label(recommendation, number + 1)}"
            parts.append(part)
        return ", then ".join(parts)

    def _figures(
        self, recommendation: Recommendation, ranges: Sequence[RecommendedRange]
    ) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return the table of the sizes of some ranges."""
        named = self.choice_name(recommendation.setting.collective)
        verdicts = _verdicts_of(ranges)

        def lead_cell(verdict: SizeVerdict) -> str:
            rival = named(verdict.runner_up) if verdict.runner_up else ""
            return _lead(verdict.lead, rival)

        columns: list[tuple[str, Callable[[SizeVerdict], str]]] = []
        if _has_size(recommendation):
            columns.append(("size", lambda verdict: format_size(verdict.nbytes)))
        if len(ranges) > 1:
            columns.append(("choice", lambda verdict: named(verdict.choice)))
        columns.append(("time", lambda verdict: format_seconds(verdict.seconds)))
        if any(verdict.over_native for verdict in verdicts):
            columns.append(("over native", lambda verdict: _lead(verdict.over_native)))
        if any(verdict.lead for verdict in verdicts):
            columns.append(("over the next", lead_cell))
            columns.append(("clear", _clear))
        return table_of(columns, verdicts)


def _verdicts_of(ranges: Iterable[RecommendedRange]) -> list[SizeVerdict]:
    verdicts: list[SizeVerdict] = []
    for chosen in ranges:
        verdicts += chosen.verdicts
    return verdicts


def _details(recommendation: Recommendation) -> tuple[str, ...]:
    """Return what may distinguish a setting besides its ranks, in words."""
    return (*recommendation.setting.details, *recommendation.measured.conditions.words)


def _unsure_choices(
    recommendation: Recommendation,
    ranges: Sequence[RecommendedRange],
    verdicts: Iterable[SizeVerdict],
) -> set[Choice | None]:
    """Return the choices among which none is shown to be the fastest."""
    unsure: set[Choice | None] = {chosen.choice for chosen in ranges}
    for verdict in verdicts:
        if verdict.verdict in ("tie", "behind"):
            unsure.add(verdict.runner_up)
    if any(chosen.evidence.gain for chosen in ranges):
        unsure |= {choice for choice in recommendation.choices if choice.is_native}
    return unsure


MAX_NAMED_SIZES = 3
"""Sizes at which a choice is slower that its sentence names."""

LEAST_SPREAD = 1.1
"""The ratio of the ends of a range's factors from which on its sentence names both: below it the mean says enough."""


def _by_size(chosen: RecommendedRange) -> str:
    """Return how the factor over native varies: `` (0.94x to 2.40x by size; slower at 64 KiB: keep native there)``.

    Empty if it hardly does, and is nowhere below 1.
    """
    factors = {
        verdict.nbytes: verdict.over_native for verdict in chosen.verdicts if verdict.over_native
    }
    least = min(factors.values(), default=1.0)
    most = max(factors.values(), default=1.0)
    parts = []
    if most >= LEAST_SPREAD * least:
        ends = join_ends((format_factor(least), format_factor(most)))
        parts.append(f"{ends} by size")
    slower = [format_size(nbytes) for nbytes, factor in factors.items() if round(factor, 2) < 1]
    if slower:
        sizes = join_words(first_few(slower, MAX_NAMED_SIZES, "size"))
        parts.append(f"slower at {sizes}: keep native there")
    if not parts:
        return ""
    words = "; ".join(parts)
    return f" ({words})"


_CLEAR: Mapping[Verdict, str] = {"clear": "yes", "tie": "no", "behind": "slower", "alone": ""}


def _clear(verdict: SizeVerdict) -> str:
    """Return whether the choice of a size is clear, and if only over native, that."""
    if verdict.is_clear and verdict.verdict == "tie":
        return "over native"
    return _CLEAR[verdict.verdict]


def _lead(factor: float | None, rival: str = "") -> str:
    if factor is None:
        return ""
    return f"{format_factor(factor)} {rival}".rstrip()


_NOISE = "noise"


def _why_none(chosen: RecommendedRange) -> str:
    """Return why a range has no choice: ranges of one reason share a line."""
    if not chosen.is_compared and chosen.choice.label:
        return chosen.choice.label
    return untold(chosen.evidence, ()) or _NOISE


def _line_key(numbered: tuple[int, RecommendedRange]) -> int | str:
    """Return what the ranges of a line share: why they have no choice; a range with a choice has its own number."""
    number, chosen = numbered
    if chosen.strength == "none":
        return _why_none(chosen)
    return number


def _auto_line(recommendation: Recommendation, auto: AutoResult) -> AnswerLine:
    evidence = auto.evidence
    why = untold(evidence, [f"`{AUTO}`", f"`{NATIVE}`"])
    differs = auto.slower > 0 or evidence.clear > 0
    text = _auto_text(auto, why)
    slower = ""
    if auto.slower:
        slower = f"clearly slower at {of_sizes(auto.slower, len(auto.sizes))}"
    sizes = ""
    if _has_size(recommendation):
        sizes = join_ends(map(format_size, auto.sizes))
    is_tie = evidence.strength == "none" and not differs and not why
    return AnswerLine(evidence.strength, text, sizes, basis_of(evidence, slower), is_tie=is_tie)


def _auto_text(auto: AutoResult, why: str) -> str:
    """Return how fast ``auto`` is beside native; ``why`` that is unknown, or empty."""
    evidence = auto.evidence
    compared = as_fast_as_native(auto.gain.factor)
    if evidence.strength != "none":
        verb = "may be" if evidence.strength == "weak" else "is"
        return f"`{AUTO}` {verb} faster: {compared}"
    if not auto.slower and not evidence.clear:
        return why or f"`{AUTO}` and `{NATIVE}` differ by less than the noise"
    parts = []
    if evidence.clear:
        parts.append(f"faster at {of_sizes(evidence.clear, len(auto.sizes))}")
    if auto.slower:
        parts.append(f"slower at {of_sizes(auto.slower, len(auto.sizes))}")
    over_all = ", and faster at none"
    if evidence.clear or round(auto.gain.factor, 2) < 1:
        over_all = f"; over all {compared}"
    return f"`{AUTO}` is {join_words(parts)}{over_all}"


def name_settings(settings: Iterable[str]) -> str:
    """Return the first few of some settings, each once, and the number of the others: ``4 ranks; 3 ranks``."""
    return "; ".join(first_few(dict.fromkeys(settings), MAX_NAMED_SETTINGS, "setting"))


def _has_size(recommendation: Recommendation) -> bool:
    return not collective(recommendation.setting.collective).token


def sizes_in_words(recommendation: Recommendation, first: int, last: int | None = None) -> str:
    """Return sizes in words, within the measured ones: ``64 KiB to 4 MiB``.

    They are those of the ranges with the numbers ``first`` to ``last`` [first].
    """
    sizes = recommendation.measured.sizes
    begin, end = format_size(sizes[0]), format_size(sizes[-1])
    if first:
        begin = _cut_label(recommendation, first)
    if last is None:
        last = first
    following = last + 1
    if following < len(recommendation.ranges):
        end = _cut_label(recommendation, following)
    return join_ends((begin, end))


def _cut_label(recommendation: Recommendation, number: int) -> str:
    """Return the first size of a range, rounded up to two digits, so that it stays above the range before it."""
    chosen = recommendation.ranges[number].sizes
    cut = chosen.first
    unit = 1024 ** max(0, (cut.bit_length() - 1) // 10)
    digits = len(str(cut // unit))
    step = 10 ** max(0, digits - 2)
    rounded = math.ceil(cut / unit / step) * step * unit
    return format_size(min(rounded, chosen.sizes[0]))


def _basis(ranges: Sequence[RecommendedRange]) -> str:
    """Return what the strength of some ranges that share a line follows from."""
    first, *later = ranges
    if not first.evidence.compared or later:
        return ""
    unpaired = ", ".join(first.sizes.unpaired)
    remark = f"not in one launch with {unpaired}" if unpaired else ""
    return basis_of(first.evidence, remark)


def _times(recommendation: Recommendation) -> str:
    verdicts = list(recommendation.verdicts.values())
    if not _has_size(recommendation):
        return format_seconds(verdicts[0].seconds)
    ends = dict.fromkeys((verdicts[0], verdicts[-1]))
    text = " and ".join(
        f"{format_seconds(end.seconds)} at {format_size(end.nbytes)}" for end in ends
    )
    if recommendation.setting.collective == "send_recv":
        text += " for the round trip"
    if recommendation.setting.in_place is None:
        text += " (the geometric mean of both placements)"
    return text


def conclusion_lines(results: Results, answers: Answers) -> Iterator[str]:
    """Yield for a terminal what to use for each collective, what was not measured, and what workloads take.

    Collectives that have no answer for the same reason share a line.
    """
    for name in answers.by_collective:
        first, further = answers.split(name)
        yield from terminal_lines(first)
        if further:
            settings = name_settings(answer.where for answer in further)
            yield f"{name}: the report has the answers for {settings}."
    answers_of_pairs = pair_answers(results)
    answers_of_workloads = workload_answers(results)
    yield from terminal_lines(chain.from_iterable(answers_of_pairs.values()))
    yield from not_measured_line(results, answers)
    yield from terminal_lines(chain.from_iterable(answers_of_workloads.values()))
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(row.collective for row in results.ours.rows):
        has_answer = (
            name in answers.by_collective
            or name in answers_of_pairs
            or name in answers_of_workloads
        )
        if not has_answer:
            by_reason[_reason_unanswered(results, name)].append(name)
    for reason, names in by_reason.items():
        yield f"{', '.join(names)}: {reason}."


def not_measured_line(results: Results, answers: Answers) -> Iterator[str]:
    """Yield for a terminal what the answers do not cover, in a line; nothing without answers."""
    line = not_measured(results, list(answers.by_collective))
    if line:
        yield f"Not measured: {line}"


def unanswered(results: Results, name: str) -> Answer:
    """Return why a collective without an answer has none."""
    reason = f"{_reason_unanswered(results, name)}."
    return Answer(name, "", (AnswerLine(None, reason),))


def _reason_unanswered(results: Results, name: str) -> str:
    rows = [row for row in results.rows if row.collective == name]
    measured = [row for row in rows if row.ours]
    lone_ranks = lone_rank_reason(measured)
    if lone_ranks:
        return lone_ranks
    if not rows:
        return "nothing was measured"
    if not measured:
        kinds = dict.fromkeys(row.kind for row in sorted(rows, key=lambda row: row.precedence))
        return f"all times are {join_words(kinds, 'or')}, and not ranked"
    if all(row.rule == MEAN for row in measured):
        loops = join_words(dict.fromkeys(row.timing for row in measured))
        return f"all times are means by the loop of {loops}, and not ranked"
    if any(not row.floor and row.algorithm != AUTO for row in measured):
        return "no result is complete and correct"
    algorithms = sorted({row.algorithm for row in measured})
    verb = "was" if len(algorithms) == 1 else "were"
    return f"only {join_words(algorithms)} {verb} measured"
