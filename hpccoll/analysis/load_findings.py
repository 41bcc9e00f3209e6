"""Findings where the choice among candidates changes under load: while each rank computes, too."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hpccoll.analysis.measured_choices import ChoiceTime, MeasuredSetting
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.analysis.strength import exceeds_noise_of_launches
from hpccoll.cases.case import IDLE
from hpccoll.common.text import Finding, info, join_words
from hpccoll.common.units import format_count, format_factor, format_size

Chosen: TypeAlias = Callable[[Setting, int], Choice | None]
"""Returns the choice in a setting at a size in bytes; None without one."""


def load_findings(settings: Mapping[Setting, MeasuredSetting], chosen: Chosen) -> Iterator[Finding]:
    """Yield where the choice under load differs from the idle one, and what the idle one loses there.

    The choice under load must be faster there by more than the 95 % intervals of all rounds, and by
    more than two launches easily differ. Where ranks outnumber cores, they wait for each other
    whatever is chosen: nothing is said.
    """
    same = Counter[str]()
    crowded = Counter[str]()
    for setting, measured in settings.items():
        if setting.load == IDLE:
            continue
        if measured.oversubscribed:
            crowded[setting.load] += 1
            continue
        losses = defaultdict[tuple[Choice, Choice], dict[int, _Loss]](dict)
        for size in measured.sizes:
            times = measured.times_at(size)
            idle_choice = chosen(setting.idle, size)
            loaded_choice = chosen(setting, size)
            if idle_choice not in times or loaded_choice not in times:
                continue
            loss = _loss(times[idle_choice], times[loaded_choice])
            if loss:
                losses[idle_choice, loaded_choice][size] = loss
            else:
                same[setting.load] += 1
        for (idle_choice, loaded_choice), loss_of_size in losses.items():
            yield _load_finding(setting, idle_choice, loaded_choice, loss_of_size)
    for load, count in same.items():
        text = f"At {format_count(count, 'size')}, over all settings, no choice is clearly faster than the idle one."
        yield info("load_same", text, f"load {load}", sizes=count)
    for load, count in crowded.items():
        text = f"{format_count(count, 'setting')} had more ranks than cores, where no choice under load is advised."
        yield info(
            "load_crowded",
            text,
            f"load {load}",
            "Start at most as many ranks as cores.",
            settings=count,
        )


@dataclass(frozen=True, slots=True)
class _Loss:
    """How many times as long the idle choice takes under load as the choice under load."""

    ratio: float
    low: float  # by the ends of the 95 % intervals that are closest
    high: float  # by those that are farthest apart


def _loss(idle: ChoiceTime, loaded: ChoiceTime) -> _Loss | None:
    """Return what the idle choice loses under load; None if its loss is not clear."""
    idle_low, idle_high = idle.ends
    loaded_low, loaded_high = loaded.ends
    ratio = idle.ratio(loaded)
    least = idle_low / loaded_high
    if not exceeds_noise_of_launches(ratio, least):
        return None
    return _Loss(ratio, least, idle_high / loaded_low)


def _load_finding(
    setting: Setting, idle: Choice, loaded: Choice, losses: Mapping[int, _Loss]
) -> Finding:
    factors = []
    values = []
    for size, loss in losses.items():
        ends = f"{format_factor(loss.low)} to {format_factor(loss.high)}"
        factors.append(f"{format_factor(loss.ratio)} ({ends}) at {format_size(size)}")
        values.append({"size": size, "loss": loss.ratio, "low": loss.low, "high": loss.high})
    return info(
        "load",
        f"{loaded.label} is the choice under load; the idle one, {idle.label}, takes {join_words(factors)} as long "
        "there.",
        title=setting.label,
        setting=setting.label,
        load=setting.load,
        idle=idle.label,
        loaded=loaded.label,
        losses=tuple(values),
    )
