"""Regret: how long a table's choices take in results that it was not made of, over the best single choice there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpccoll.choices.setting import Setting
from hpccoll.choices.table import Choice, TuneTable
from hpccoll.errors import BadInputError
from hpccoll.store.rows import Results
from hpccoll.tune.measured import geometric_mean, measured
from hpccoll.units import format_seconds, format_size


@dataclass(frozen=True, slots=True)
class Verdict:
    """One size of one setting: the choice and the best, each with its seconds in these results.

    ``apart`` where no launch measured both: then what launches are apart is in the regret.
    """

    setting: Setting
    nbytes: int
    choice: Choice
    seconds: float
    best: Choice
    best_seconds: float
    apart: bool = False

    @property
    def regret(self) -> float:
        """The time of the choice over that of the best: 1 where it is the best."""
        return self.seconds / self.best_seconds


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts, and in words what could not be judged, and what was measured in other conditions than here."""

    verdicts: tuple[Verdict, ...]
    unjudged: tuple[str, ...]
    strange: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """The geometric mean of the regrets."""
        return geometric_mean(verdict.regret for verdict in self.verdicts)

    def by_setting(self) -> Iterator[tuple[Setting, list[Verdict], float]]:
        """Yield each setting with its verdicts and the geometric mean of their regrets."""
        for setting in dict.fromkeys(verdict.setting for verdict in self.verdicts):
            found = [verdict for verdict in self.verdicts if verdict.setting == setting]
            yield setting, found, geometric_mean(verdict.regret for verdict in found)

    def to_json(self) -> dict[str, Any]:
        return {
            "geometric_mean": self.mean,
            "settings": [
                {
                    "setting": setting.to_json(),
                    "geometric_mean": mean,
                    "sizes": [
                        {
                            "bytes": v.nbytes, "choice": v.choice.words, "seconds": v.seconds, "best": v.best.words,
                            "best_seconds": v.best_seconds, "regret": v.regret, "apart": v.apart,
                        }
                        for v in found
                    ],
                }
                for setting, found, mean in self.by_setting()
            ],
            "unjudged": list(self.unjudged),
            "strange": list(self.strange),
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the same as a table for people."""
        for setting, found, mean in self.by_setting():
            yield setting.words
            for v in found:
                better = "" if v.choice == v.best else f", best {v.best.words}: {format_seconds(v.best_seconds)}"
                better += ", in another launch" if v.apart else ""
                took = f"{v.choice.words}: {format_seconds(v.seconds)}"
                yield f"{format_size(v.nbytes):>12}  {v.regret:.3f}  {took}{better}"
            yield f"{'mean':>12}  {mean:.3f}"
        yield from (f"not judged: {words}" for words in self.unjudged)
        yield from self.strange
        yield f"geometric mean of the regret at {len(self.verdicts)} sizes: {self.mean:.3f}"


def judge(table: TuneTable, results: Results) -> Judgement:
    """Return how ``table`` does in ``results``.

    Raises:
        BadInputError: where nothing of them can be judged.
    """
    entries = {entry.setting: entry for entry in table.entries}
    verdicts: list[Verdict] = []
    unjudged: list[str] = []
    strange: dict[str, None] = {}
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
                apart = not own.beside(least)
                verdicts.append(Verdict(setting, size, choice, own.seconds, best, least.seconds, apart))
            else:
                lacking.setdefault(choice, []).append(size)
        unjudged += [f"{setting.words}: {c.words} was not measured at {_sizes(at)}" for c, at in lacking.items()]
    if not verdicts:
        raise BadInputError(
            "PATHS", "; ".join(unjudged) or "no rows", "results in which choices of the table were measured"
        )
    return Judgement(tuple(verdicts), tuple(unjudged), tuple(strange))


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(format_size, sizes))
