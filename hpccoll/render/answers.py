"""The answer in words: for each collective, a sentence on what to use, and a table with the gain and its certainty.

``hpccoll run``, ``sweep``, ``tune`` and the report all print these.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from statistics import geometric_mean

from hpccoll.analysis.rank_pairs import pair_answers
from hpccoll.analysis.recommendations import Recommendation, RecommendedRange, lone_rank_reason
from hpccoll.analysis.setting import Choice
from hpccoll.cases.case import LEAST_ITERATIONS, SINGLE
from hpccoll.common.text import Finding, first_few, in_brackets, info, join_ends, join_words
from hpccoll.common.units import TWICE, format_count, format_seconds, format_size
from hpccoll.render.step_answers import step_answers
from hpccoll.schedule import WORKLOADS, collective
from hpccoll.schedule.collective import AUTO
from hpccoll.store.rows import Results

MAX_CLAUSES = 3
"""Ranges of sizes that a sentence names, from the largest sizes on; the table has all of them."""

MAX_SENTENCES = 4
"""Settings of a collective that have a sentence; the table has all of them."""

MAX_NAMED_SETTINGS = 3
"""Settings that are named where only the table, or a fold of it, has their answers."""


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """A line of the table of answers, in words."""

    setting: str  # among the settings of its collective: ``4 ranks, in place``
    sizes: str  # empty for a collective without sizes
    choice: str
    gain: str  # the speed-up over native, with the least and the most of the rounds; empty for native
    certainty: str
    oversubscribed: bool  # more ranks than cores

    @property
    def where(self) -> str:
        """The setting, marked if there were more ranks than cores."""
        return _mark_crowded(self.setting, oversubscribed=self.oversubscribed)


class Answers:
    """The answers for all collectives of some results."""

    def __init__(self, recommendations: Iterable[Recommendation]) -> None:
        self.by_collective: dict[str, list[Recommendation]] = {}
        for each in recommendations:
            self.by_collective.setdefault(each.setting.collective, []).append(each)

    def findings(self, name: str) -> list[Finding]:
        """Return what to use in each of the foremost settings of a collective, and how fast ``auto`` was.

        These are the settings of the most ranks that had cores of their own, timed one operation at a time if possible.
        Names of choices stand between backticks, as in Markdown.
        """
        foremost = self.foremost(name)
        found = []
        for each in foremost[:MAX_SENTENCES]:
            of_auto = self._auto_finding(each)
            if not (of_auto and len(each.choices) == 1):  # native, which auto is compared with
                found.append(self._finding(each))
            found += [of_auto] if of_auto else []
        others = len(foremost) - MAX_SENTENCES
        return [*found, info("more", f"The table has {format_count(others, 'more setting')}.")] if others > 0 else found

    def foremost(self, name: str) -> list[Recommendation]:
        """Return the recommendations for the most ranks that had cores of their own, or for the most ranks.

        If these were timed in several ways, return those of single operations.
        """
        several = self.by_collective[name]
        fitting = [each for each in several if not each.measured.oversubscribed] or several
        most = max((each.setting.nodes, each.setting.ranks) for each in fitting)
        of_most = [each for each in fitting if (each.setting.nodes, each.setting.ranks) == most]
        return [each for each in of_most if each.setting.timing == SINGLE] or of_most

    def other_settings(self, name: str) -> list[str]:
        """Return the names of the settings of a collective that are not among the foremost."""
        foremost = self.foremost(name)
        return [self.setting_name(each) for each in self.by_collective[name] if each not in foremost]

    def table(self, name: str) -> list[AnswerLine]:
        """Return the lines of all settings of a collective: the foremost first, those without enough cores last."""
        if name not in self.by_collective:
            return []
        foremost = self.foremost(name)
        others = [each for each in self.by_collective[name] if each not in foremost]
        others.sort(key=lambda each: (each.measured.oversubscribed, -each.setting.nodes, -each.setting.ranks))
        return [line for each in (*foremost, *others) for line in self._lines(each)]

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

    def _where(self, each: Recommendation) -> str:
        where = f"{each.setting.collective} on {self.setting_name(each)}"
        return _mark_crowded(where, oversubscribed=each.measured.oversubscribed)

    def _auto_finding(self, each: Recommendation) -> Finding | None:
        """Return how much faster than native the choices of a table were; None unless both were measured.

        As with the gains of ranges, one that is clear at less than half of the sizes has no number.
        """
        gains: list[float] = []
        faster = slower = 0
        for size, auto in each.measured.auto.items():
            native = [time for choice, time in each.measured.times_at(size).items() if choice.is_native]
            if native:
                gains.append(min(time.ratio(auto) for time in native))
                faster += all(auto.clearly_faster(time) for time in native)
                slower += any(time.clearly_faster(auto) for time in native)
        if not gains:
            return None
        if not slower and 2 * faster < len(gains):
            return info("auto_unclear", f"`auto` is not clearly faster than {_own_call(each)}.", self._where(each))
        ends = dict.fromkeys(map(_gain_phrase, (min(gains), max(gains))))
        by_size = f"{' to '.join(ends)} by size" if len(ends) > 1 else ""
        counts = (("faster", faster), ("slower", slower))
        sure = [f"clearly {how}{_of_sizes(count, len(gains), 'sizes')}" for how, count in counts if count]
        gain = f"{_compared(geometric_mean(gains))} {_own_call(each)}"
        return info("auto", f"`auto` is {gain}{in_brackets(by_size, *sure)}.", self._where(each))

    def _finding(self, each: Recommendation) -> Finding:
        where = self._where(each)
        if len(each.choices) == 1:
            text = f"only {self._marked(each, each.choices[0])} was measured, and no advice follows: {_times(each)}."
            return info("only_choice", text, where)
        numbers = [*reversed(range(len(each.ranges)))]
        clauses = [self._clause(each, number) for number in numbers if each.ranges[number].is_advice]
        shown = clauses if len(clauses) <= MAX_CLAUSES else clauses[: MAX_CLAUSES - 1]
        more = len(clauses) - len(shown)
        rest = f"; for smaller sizes the table has {more} more ranges" if more else ""
        parts = [f"use {'; '.join(shown)}{rest}"] if shown else []
        for why, members in groupby(numbers, lambda number: self._doubt(each, number)):
            last, *_, first = [*members] * 2
            at = f" {sizes_in_words(each, first, last)}" if _has_size(each) else ""
            parts += [f"no advice{at}: {why}"] if why else []
        return info("advice" if clauses else "no_advice", f"{'; '.join(parts)}.", where)

    def _marked(self, each: Recommendation, choice: Choice) -> str:
        return f"`{self.choice_name(each.setting.collective)(choice)}`"

    def _clause(self, each: Recommendation, number: int) -> str:
        of_range = each.ranges[number]
        choice = _own_call(each, of_range.choice) or self._marked(each, of_range.choice)
        sizes = f" {sizes_in_words(each, number)}" if _has_size(each) else ""
        ties = _usual_ties(of_range, lambda rival: self._marked(each, rival))
        if of_range.gain is None:
            clear = of_range.count("clear")
            at = f"clear{_of_sizes(clear, len(of_range.verdicts), 'sizes')}" if clear else ""
            return f"{choice}{sizes}{in_brackets(at, ties)}"
        gain = f"{_compared(of_range.gain.factor)} {_own_call(each)}"
        return f"{choice}{sizes}{in_brackets(ties)}, {gain}{in_brackets(_sure_sizes(of_range))}"

    def _doubt(self, each: Recommendation, number: int) -> str:
        """Return why the choice of a range is no advice; empty if it is advice."""
        of_range = each.ranges[number]
        if of_range.is_advice:
            return ""

        def name(choice: Choice) -> str:
            return _own_call(each, choice) or self._marked(each, choice)

        if not of_range.is_compared:
            return f"only {name(of_range.choice)} was measured"
        if not each.has_intervals:
            return f"fewer than {LEAST_ITERATIONS} iterations have no 95 % interval"
        unsure = {verdict.runner_up for verdict in of_range.verdicts if verdict.verdict in ("tie", "behind")}
        unsure |= {of_range.choice, *(choice for choice in each.choices if choice.is_native and of_range.gain)}
        names = [name(choice) for choice in each.choices if choice in unsure]
        behind = of_range.count("behind") > of_range.count("tie")
        ties, sizes = of_range.count("tie", "behind"), len(of_range.verdicts)
        at = _of_sizes(ties, sizes, "sizes") if 0 < ties < sizes else ""
        return f"{join_words(names)} differ by less than {'another range is worth' if behind else 'the noise'}{at}"

    def _lines(self, each: Recommendation) -> Iterator[AnswerLine]:
        named = self.choice_name(each.setting.collective)
        for number, of_range in enumerate(each.ranges):
            yield AnswerLine(
                setting=self.setting_name(each), sizes=sizes_in_words(each, number) if _has_size(each) else "",
                choice=named(of_range.choice), gain=_gain_cell(of_range), certainty=_certainty(of_range, named),
                oversubscribed=each.measured.oversubscribed,
            )  # fmt: skip


def _mark_crowded(where: str, *, oversubscribed: bool) -> str:
    return f"{where} (more ranks than cores)" if oversubscribed else where


def name_settings(settings: Iterable[str]) -> str:
    """Return the first few of some settings, each once, and the number of the others: ``4 ranks; 3 ranks``."""
    return "; ".join(first_few(dict.fromkeys(settings), MAX_NAMED_SETTINGS, "setting"))


def _has_size(each: Recommendation) -> bool:
    return not collective(each.setting.collective).token


def _own_call(each: Recommendation, choice: Choice | None = None) -> str:
    """Return the words for the library's own call, such as ``MPICH's own``; empty for any other ``choice``."""
    if choice is not None and not choice.is_native:
        return ""
    choice = choice or next((other for other in each.choices if other.is_native), None)
    library = "NCCL" if choice and choice.transport == "nccl" else library_name(each.measured.conditions.mpi)
    return f"{library}'s own"


def library_name(version: str) -> str:
    """Return the name of an MPI library from its version text: ``MPICH`` from ``MPICH 5.0.2``."""
    return re.split(r"\s+(?:version\s+)?v?\d", version, maxsplit=1)[0] or "the library"


def sizes_in_words(each: Recommendation, first: int, last: int | None = None) -> str:
    """Return sizes in words, within the measured ones: ``from 64 KiB to 4 MiB``; all of them are ``at 8 B to 4 MiB``.

    They are those of the ranges with the numbers ``first`` to ``last`` [first].
    """
    sizes, after = each.measured.sizes, (first if last is None else last) + 1
    begin = _cut_label(each, first) if first else format_size(sizes[0])
    end = _cut_label(each, after) if after < len(each.ranges) else format_size(sizes[-1])
    whole = not first and after == len(each.ranges)
    return f"{'at' if whole or begin == end else 'from'} {join_ends((begin, end))}"


def _cut_label(each: Recommendation, number: int) -> str:
    """Return the first size of a range, rounded up to two digits, so that it stays above the range before it."""
    cut, measured = each.ranges[number].sizes.first, each.ranges[number].sizes.sizes[0]
    unit = 1024 ** max(0, (cut.bit_length() - 1) // 10)
    digits = 10 ** max(0, len(str(cut // unit)) - 2)
    rounded = math.ceil(cut / unit / digits) * digits * unit
    return format_size(min(rounded, measured))


def _gain_phrase(factor: float) -> str:
    """Return a gain: ``18 % faster``, ``2.1 times as fast``, ``3 % slower``, ``0.4 % faster``."""
    percent = 100 * (factor - 1)
    if round(percent) >= 100 * (TWICE - 1):
        return f"{factor:.1f} times as fast"
    size = f"{abs(percent):.{0 if round(abs(percent)) else 1}f}"
    return "as fast" if size == "0.0" else f"{size} % {'faster' if percent > 0 else 'slower'}"


def _compared(factor: float) -> str:
    """Return a gain before the name of what is slower: ``18 % faster than``, ``2.1 times as fast as``."""
    phrase = _gain_phrase(factor)
    return f"{phrase} {'as' if phrase.endswith('fast') else 'than'}"


def _sure_sizes(of_range: RecommendedRange) -> str:
    """Return at how many of the compared sizes a choice is clearly faster than native: ``clearly so at 3 of 8``."""
    compared = [each.beats_native for each in of_range.verdicts if each.beats_native is not None]
    of_compared = f"clearly so{_of_sizes(sum(compared), len(compared), 'sizes')}" if any(compared) else "not clearly so"
    less = len(compared) < len(of_range.verdicts)
    return of_compared + (f"; native was measured at {len(compared)} of {len(of_range.verdicts)} sizes" if less else "")


def _gain_cell(of_range: RecommendedRange) -> str:
    """Return the gain as a factor, with its least and most over the rounds: ``1.18x (1.12 to 1.25x by round)``.

    A gain that is no advice has no number.
    """
    gain = of_range.gain
    if gain is None:
        return "" if of_range.choice.is_native else "unknown"
    low, factor, high = (None if each is None else f"{each:.2f}" for each in (gain.low, gain.factor, gain.high))
    claimed = f"{factor}x" if of_range.is_advice else "not clear"
    return claimed if low is None or low == high else f"{claimed} ({low} to {high}x by round)"


def _usual_ties(of_range: RecommendedRange, named: Callable[[Choice], str]) -> str:
    """Return the choices that tie with that of a range, if there are ties at half of its sizes or more.

    For example ``a tie with ring at 2 of 3 sizes``. If the range has a gain, native is left out: the gain is over it.
    """
    rivals = Counter(each.runner_up for each in of_range.verdicts if each.verdict == "tie" and each.runner_up)
    if 2 * rivals.total() < len(of_range.verdicts):
        return ""
    others = {rival: count for rival, count in rivals.items() if of_range.gain is None or not rival.is_native}
    if not others:
        return ""
    count, sizes = sum(others.values()), len(of_range.verdicts)
    return f"a tie with {join_words(map(named, others))}{_of_sizes(count, sizes, 'sizes') if count < sizes else ''}"


def _certainty(of_range: RecommendedRange, named: Callable[[Choice], str]) -> str:
    sizes = len(of_range.verdicts)
    if not of_range.is_compared:
        return "no advice: nothing to compare with"
    clear = of_range.count("clear")
    faster = sum(bool(each.beats_native) for each in of_range.verdicts)
    parts = [] if of_range.is_advice else ["no advice"]
    parts += [f"clear{_of_sizes(clear, sizes)}"] if clear else []
    if faster > clear:
        parts.append(f"clearly faster than native{_of_sizes(faster, sizes)}")
    for verdict, words in (("tie", "a tie with {}"), ("behind", "slightly slower than {}")):
        rivals = Counter(each.runner_up for each in of_range.verdicts if each.verdict == verdict and each.runner_up)
        parts += [f"{words.format(named(rival))}{_of_sizes(count, sizes)}" for rival, count in rivals.items()]
    unpaired = of_range.sizes.unpaired
    return "; ".join((*parts, *([f"not in one launch with {', '.join(unpaired)}"] if unpaired else [])))


def _of_sizes(count: int, sizes: int, noun: str = "") -> str:
    """Return at how many of the sizes: `` at all 8 sizes``, `` at 3 of 8 sizes``; empty for a single size."""
    if sizes == 1:
        return ""
    both = "both sizes" if sizes == 2 else f"all {sizes} sizes"
    return f" at {both if count == sizes else f'{count} of {sizes} {noun}'.rstrip()}"


def _times(each: Recommendation) -> str:
    verdicts = list(each.verdicts.values())
    ends = dict.fromkeys((verdicts[0], verdicts[-1]))
    if not _has_size(each):
        return format_seconds(verdicts[0].seconds)
    trip = " for the round trip" if each.setting.collective == "send_recv" else ""
    mean = " (the geometric mean of both placements)" if each.setting.in_place is None else ""
    return " and ".join(f"{format_seconds(end.seconds)} at {format_size(end.nbytes)}" for end in ends) + trip + mean


def conclusion_lines(results: Results, answers: Answers) -> Iterator[str]:
    """Yield what to use for each collective, what training steps take, and why others have no answer."""
    for name in answers.by_collective:
        yield from (str(answer).replace("`", "") for answer in answers.findings(name))
    of_pairs, steps = pair_answers(results), step_answers(results)
    yield from map(str, (*chain.from_iterable(of_pairs.values()), *steps))
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(row.collective for row in results.ours.rows):
        if name not in (*answers.by_collective, *of_pairs) and not (steps and name in WORKLOADS):
            by_reason[_reason_unanswered(results, name)].append(name)
    yield from (f"{', '.join(names)}: {reason}." for reason, names in by_reason.items())


def unanswered(results: Results, name: str) -> Finding:
    """Return why a collective without an answer has none."""
    return info("unanswered", f"{_reason_unanswered(results, name)}.", name)


def _reason_unanswered(results: Results, name: str) -> str:
    rows = [row for row in results.rows if row.collective == name]
    measured = [row for row in rows if row.ours]
    others = sorted({row.algorithm for row in measured})
    if of_lone_ranks := lone_rank_reason(measured):
        return of_lone_ranks
    if any(not row.floor and row.algorithm != AUTO for row in measured):
        return "no result is complete and correct"
    if measured:
        return f"only {join_words(others)} {'was' if len(others) == 1 else 'were'} measured"
    return f"all times are {' or '.join(sorted({row.kind for row in rows}))}" if rows else "nothing was measured"
