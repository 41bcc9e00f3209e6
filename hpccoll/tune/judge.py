"""Regret: how long a table's choices take in results that it was not made of, over the best single choice there."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

from hpccoll.choices.setting import Setting
from hpccoll.choices.table import Choice, TuneTable
from hpccoll.errors import BadInputError
from hpccoll.store.rows import Results
from hpccoll.tune.measured import Curves, geometric_mean, measured
from hpccoll.tune.regret import regret
from hpccoll.units import format_seconds, format_size


@dataclass(frozen=True, slots=True)
class Verdict:
    """One size of one setting: the choice and the best, each with its seconds in these results.

    Args:
        regret: the time of the choice over that of the best: 1 where it is the best, less by noise alone.
        apart: whether no launch measured both: then what launches are apart is in the regret.
        unsure: what the regret may be off by, relative, as far as rounds tell.
    """

    setting: Setting
    nbytes: int
    choice: Choice
    seconds: float
    best: Choice
    best_seconds: float
    regret: float
    apart: bool = False
    unsure: float = 0.0

    @property
    def over_least(self) -> float:
        """The median of the choice over the least median, noise and all."""
        return self.seconds / self.best_seconds

    @property
    def told_apart(self) -> bool:
        """Whether the best is faster by more than rounds differ: an algorithm under two names never is."""
        return self.choice != self.best and math.log(self.over_least) > self.unsure


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
    def error(self) -> float:
        """The standard error of that mean, relative: what the regrets are apart over the root of their number."""
        logs = [math.log(verdict.regret) for verdict in self.verdicts]
        return stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0

    @property
    def over_least(self) -> float:
        """The geometric mean of the medians over the least ones."""
        return geometric_mean(verdict.over_least for verdict in self.verdicts)

    def by_setting(self) -> Iterator[tuple[Setting, list[Verdict], float]]:
        """Yield each setting with its verdicts and the geometric mean of their regrets."""
        for setting in dict.fromkeys(verdict.setting for verdict in self.verdicts):
            found = [verdict for verdict in self.verdicts if verdict.setting == setting]
            yield setting, found, geometric_mean(verdict.regret for verdict in found)

    def to_json(self) -> dict[str, Any]:
        return {
            "geometric_mean": self.mean,
            "error": self.error,
            "over_least": self.over_least,
            "settings": [
                {
                    "setting": setting.to_json(),
                    "geometric_mean": mean,
                    "fixed": self._fixed(setting),
                    "sizes": [
                        {
                            "bytes": v.nbytes, "choice": v.choice.words, "seconds": v.seconds, "best": v.best.words,
                            "best_seconds": v.best_seconds, "regret": v.regret, "over_least": v.over_least,
                            "unsure": v.unsure, "apart": v.apart,
                        }
                        for v in found
                    ],
                }
                for setting, found, mean in self.by_setting()
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
        yield "(in each round the best of the other rounds: less than 1, or more beside the least time, is noise)"
        for setting, found, mean in self.by_setting():
            yield setting.words
            for v in found:
                better = "" if v.choice == v.best else f"; best {v.best.words}: {format_seconds(v.best_seconds)}"
                better += ", in another launch" if v.apart else ""
                unclear = f", but not clearly: noise may put the regret off by {100 * v.unsure:.0f} %"
                better += unclear if better and not v.told_apart else ""
                took = f"{v.choice.words}: {format_seconds(v.seconds)}"
                yield f"{format_size(v.nbytes):>12}  {v.regret:.3f}  {took}{better}"
            yield f"{'mean':>12}  {mean:.3f}"
            if setting in self.fixed:
                choice, fixed = self.fixed[setting]
                yield f"{'one for all':>12}  {fixed:.3f}  {choice.words}, the best single choice for these sizes"
        yield from (f"not judged: {words}" for words in self.unjudged)
        yield from self.strange
        of_all, with_noise = f"{self.mean:.3f} +- {self.error:.3f}", f"{self.over_least:.3f} over the least times"
        yield f"geometric mean of the regret at {len(self.verdicts)} sizes: {of_all} ({with_noise}, noise and all)"


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
        if setting not in entries:
            unjudged.append(f"{setting.words}: the table has no choice for it")
            continue
        made = table.conditions(entries[setting])
        if made and found.conditions not in made:
            strange[f"the table was made on {' and '.join(made)}, and these results on {found.conditions}"] = None
        lacking: dict[Choice, list[int]] = {}
        for size in found.sizes:
            there = {choice: curve[size] for choice, curve in found.curves.items() if size in curve}
            choice = entries[setting].at(size).choice
            if choice in there:
                best = min(there, key=lambda one: there[one].seconds)
                own, least = there[choice], there[best]
                apart, unsure = not own.beside(least), own.unsure(least) if choice != best else 0.0
                verdicts.append(
                    Verdict(
                        setting, size, choice, own.seconds, best, least.seconds, regret(there, choice), apart, unsure
                    )
                )
            else:
                lacking.setdefault(choice, []).append(size)
        if alone := _fixed([verdict.nbytes for verdict in verdicts if verdict.setting == setting], found.curves):
            fixed[setting] = alone
        unjudged += [f"{setting.words}: {c.words} was not measured at {_sizes(at)}" for c, at in lacking.items()]
    if not verdicts:
        raise BadInputError(
            "PATHS", "; ".join(unjudged) or "no rows", "results in which choices of the table were measured"
        )
    return Judgement(tuple(verdicts), tuple(unjudged), tuple(strange), fixed)


def _fixed(sizes: Sequence[int], curves: Curves) -> tuple[Choice, float] | None:
    """Return the choice that is best where one has to do for all ``sizes``, and its mean regret."""
    if len(sizes) < 2:
        return None
    there = [{choice: curve[size] for choice, curve in curves.items() if size in curve} for size in sizes]
    everywhere = [choice for choice in curves if all(choice in one for one in there)]
    means = {choice: geometric_mean(regret(one, choice) for one in there) for choice in everywhere}
    best = min(means, key=lambda choice: means[choice], default=None)
    return None if best is None else (best, means[best])


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(format_size, sizes))
