"""Regret: how long a table's choices take in results that it was not made of, over the best single choice there."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpccoll.errors import BadInputError
from hpccoll.store.rows import Results
from hpccoll.tuning.measured_choices import geometric_mean, measured, side_by_side
from hpccoll.tuning.regret import held_out
from hpccoll.tuning.setting import Setting
from hpccoll.tuning.table import Choice, TuneTable
from hpccoll.units import format_seconds, format_size


@dataclass(frozen=True, slots=True)
class Verdict:
    """One size of one setting: the choice and the best, each with its seconds in these results.

    Args:
        seconds: of the choice, side by side with the others.
        best_seconds: of the best, likewise.
        held_out: the least that the regret may be, as far as rounds tell: noise makes the regret too large.
        apart: whether no launch measured both: then what launches are apart is in the regret.
        unsure: what the regret may be off by, relative, as far as rounds tell.
        beyond: whether the size lies outside of those that the table was made of.
    """

    setting: Setting
    nbytes: int
    choice: Choice
    seconds: float
    best: Choice
    best_seconds: float
    held_out: float
    apart: bool = False
    unsure: float = 0.0
    beyond: bool = False

    @property
    def regret(self) -> float:
        """The time of the choice over that of the best: 1 where it is the best, else as much as it may be."""
        return self.seconds / self.best_seconds

    @property
    def told_apart(self) -> bool:
        """Whether the best is faster by more than rounds differ: an algorithm under two names never is."""
        return self.choice != self.best and math.log(self.regret) > self.unsure


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts, and in words what could not be judged, and what was measured in other conditions than here."""

    verdicts: tuple[Verdict, ...]
    unjudged: tuple[str, ...]
    strange: tuple[str, ...] = ()
    fixed: Mapping[Setting, tuple[Choice, float]] = field(default_factory=dict)
    """Of a setting, the best of the choices that do not look at the size, and the geometric mean of its regrets."""

    @property
    def mean(self) -> float:
        """The geometric mean of the regrets."""
        return geometric_mean(verdict.regret for verdict in self.verdicts)

    @property
    def held_out(self) -> float:
        """The geometric mean of what they may be at least."""
        return geometric_mean(verdict.held_out for verdict in self.verdicts)

    def by_setting(self) -> Iterator[tuple[Setting, list[Verdict], float, float]]:
        """Yield each setting with its verdicts and the geometric means of their regrets, at most and at least."""
        for setting in dict.fromkeys(verdict.setting for verdict in self.verdicts):
            found = [verdict for verdict in self.verdicts if verdict.setting == setting]
            most, least = (geometric_mean(each) for each in zip(*((v.regret, v.held_out) for v in found), strict=True))
            yield setting, found, most, least

    def to_json(self) -> dict[str, Any]:
        return {
            "geometric_mean": self.mean,
            "held_out": self.held_out,
            "settings": [
                {
                    "setting": setting.to_json(),
                    "geometric_mean": most,
                    "held_out": least,
                    "fixed": self._fixed(setting),
                    "sizes": [
                        {
                            "bytes": v.nbytes, "choice": v.choice.words, "seconds": v.seconds, "best": v.best.words,
                            "best_seconds": v.best_seconds, "regret": v.regret, "held_out": v.held_out,
                            "unsure": v.unsure, "apart": v.apart, "beyond": v.beyond,
                        }
                        for v in found
                    ],
                }
                for setting, found, most, least in self.by_setting()
            ],
            "unjudged": list(self.unjudged),
            "strange": list(self.strange),
        }  # fmt: skip

    def _fixed(self, setting: Setting) -> dict[str, Any] | None:
        found = self.fixed.get(setting)
        return found and {"choice": found[0].words, "geometric_mean": found[1]}

    def lines(self) -> Iterator[str]:
        """Yield the same as a table for people."""
        yield "regret: the time of the table's choice over that of the best, as measured here; 1 where it is the best"
        for setting, found, most, least in self.by_setting():
            yield setting.words
            for v in found:
                better = "" if v.choice == v.best else f"; best {v.best.words}: {format_seconds(v.best_seconds)}"
                better += ", in another launch" if v.apart else ""
                unclear = f", but not clearly: noise may put the regret off by {100 * v.unsure:.0f} %"
                better += unclear if better and not v.told_apart else ""
                took = f"{v.choice.words}: {format_seconds(v.seconds)}"
                better += "; beyond the sizes that the table was made of" if v.beyond else ""
                yield f"{format_size(v.nbytes):>12}  {v.regret:.3f}  {took}{better}"
            yield f"{'mean':>12}  {most:.3f}" + _at_least(most, least)
            if setting in self.fixed:
                choice, fixed = self.fixed[setting]
                yield f"{'one for all':>12}  {fixed:.3f}  {choice.words}, the best single choice for these sizes"
        yield from (f"not judged: {words}" for words in self.unjudged)
        yield from self.strange
        yield f"geometric mean of the regret at {len(self.verdicts)} sizes: {self.mean:.3f}" + _at_least(
            self.mean, self.held_out
        )


def judge(table: TuneTable, results: Results) -> Judgement:
    """Return how ``table`` does in ``results``.

    Raises:
        BadInputError: where nothing of them can be judged.
    """
    entries = {entry.setting: entry for entry in table.entries}
    verdicts: list[Verdict] = []
    unjudged: list[str] = []
    strange: dict[str, None] = {}
    fixed: dict[Setting, tuple[Choice, float]] = {}
    for setting, found in measured(results).items():
        seconds: dict[int, dict[Choice, float]] = {}
        if setting not in entries:
            unjudged.append(f"{setting.words}: the table has no choice for it")
            continue
        made = table.conditions(entries[setting])
        if made and found.conditions not in made:
            strange[f"the table was made on {' and '.join(made)}, and these results on {found.conditions}"] = None
        known = [size for r in entries[setting].ranges for size in r.sizes]
        lacking: dict[Choice, list[int]] = {}
        for size in found.sizes:
            there = {choice: curve[size] for choice, curve in found.curves.items() if size in curve}
            choice = entries[setting].at(size).choice
            if choice in there:
                took = seconds[size] = side_by_side(there)
                best = min(took, key=lambda one: took[one])
                own, least = there[choice], there[best]
                apart, unsure = not own.beside(least), own.unsure(least) if choice != best else 0.0
                low = min(max(1.0, held_out(there, choice) or 1.0), took[choice] / took[best])
                beyond = not min(known, default=size) <= size <= max(known, default=size)
                verdicts.append(
                    Verdict(setting, size, choice, took[choice], best, took[best], low, apart, unsure, beyond)
                )
            else:
                lacking.setdefault(choice, []).append(size)
        if alone := _fixed(seconds):
            fixed[setting] = alone
        unjudged += [f"{setting.words}: {c.words} was not measured at {_sizes(at)}" for c, at in lacking.items()]
    if not verdicts:
        raise BadInputError(
            "PATHS", "; ".join(unjudged) or "no rows", "results in which choices of the table were measured"
        )
    return Judgement(tuple(verdicts), tuple(unjudged), tuple(strange), fixed)


def _fixed(seconds: Mapping[int, Mapping[Choice, float]]) -> tuple[Choice, float] | None:
    """Return the choice that is best where one has to do for all sizes, and its mean regret."""
    if len(seconds) < 2:
        return None
    means = {
        choice: geometric_mean(took[choice] / min(took.values()) for took in seconds.values())
        for choice in sorted(set.intersection(*map(set, seconds.values())), key=str)
    }
    best = min(means, key=lambda choice: means[choice], default=None)
    return None if best is None else (best, means[best])


def _at_least(most: float, least: float) -> str:
    return "" if f"{least:.3f}" == f"{most:.3f}" else f" at most, {least:.3f} at least: noise hides where between"


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(format_size, sizes))
