"""Findings where the choice among candidates changes under load: while each rank computes, too."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from hpccoll.analysis.measured_choices import MeasuredSetting
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.analysis.strength import NOTICEABLE
from hpccoll.cases.case import IDLE
from hpccoll.common.text import Finding, info, join_words
from hpccoll.common.units import format_count, format_factor, format_size

Chosen: TypeAlias = Callable[[Setting, int], Choice | None]
"""Returns the choice in a setting at a size in bytes; None without one."""


def load_findings(settings: Mapping[Setting, MeasuredSetting], chosen: Chosen) -> Iterator[Finding]:
    """Yield where the choice under load is another one than the idle one, and what the idle one loses there.

    The choice under load must be faster there by more than the 95 % intervals of all rounds, and by more than two
    launches easily differ. Where ranks outnumber cores, they wait for each other whatever is chosen: nothing is said.
    """
    same, crowded = Counter[str](), Counter[str]()
    for setting, measured in settings.items():
        if setting.load == IDLE:
            continue
        if measured.oversubscribed:
            crowded[setting.load] += 1
            continue
        losses = defaultdict[tuple[Choice, Choice], dict[int, tuple[float, float, float]]](dict)
        for size in measured.sizes:
            times, before, now = measured.times_at(size), chosen(setting.idle, size), chosen(setting, size)
            if before in times and now in times:
                (low, high), (least, most) = times[before].ends, times[now].ends
                loss = times[before].ratio(times[now])
                if low > most and loss >= NOTICEABLE:
                    losses[before, now][size] = loss, low / most, high / least
                else:
                    same[setting.load] += 1
        for (before, now), at in losses.items():
            factors = (
                f"{format_factor(loss)} ({format_factor(low)} to {format_factor(high)}) at {format_size(size)}"
                for size, (loss, low, high) in at.items()
            )
            yield info(
                "load",
                f"{now.label} is the choice under load; the idle one, {before.label}, takes {join_words(factors)} as "
                "long there.",
                title=setting.label, setting=setting.label, load=setting.load, idle=before.label, loaded=now.label,
                losses=tuple({"size": size, "loss": loss, "low": low, "high": high}
                             for size, (loss, low, high) in at.items()),
            )  # fmt: skip
    for load, count in same.items():
        text = f"At {format_count(count, 'size')}, over all settings, no choice is clearly faster than the idle one."
        yield info("load_same", text, f"load {load}", sizes=count)
    for load, count in crowded.items():
        text = f"{format_count(count, 'setting')} had more ranks than cores, where no choice under load is advised."
        yield info("load_crowded", text, f"load {load}", "Start at most as many ranks as cores.", settings=count)
