"""A tune table made of raw files: for each setting, the fewest ranges of sizes that lose nothing worth a range.

Between the sizes that were measured, times are taken on straight lines from one to the next of log(time) over
log(bytes), and a cut lies where the lines of two choices cross.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpccoll import __version__
from hpccoll.errors import BadInputError, UnusableError, no_file
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results
from hpccoll.tuning.measured_choices import Curves, Measured, measured, side_by_side
from hpccoll.tuning.table import Choice, Entry, Range, TuneTable, library, load_table

PRICE = 0.03
"""What another range has to gain at least, as a relative time summed over the measured sizes that it serves."""

LOOSE = 10
"""Per cent that the ratio of the two fastest may be off by before it is worth a word."""

DIGITS = 4
"""Of the ratios that a table holds for people to read."""

RULE = (
    "ranges minimise the sum of log(time / best time) over the measured sizes, and a price for each cut: the median "
    "over sizes of what the ratio of the two best may be off by (half of what it is apart between the rounds in which "
    "both took a turn; where those are fewer than two the half 95 % intervals or what runs are apart, relative, as a "
    f"hypotenuse), at least {PRICE}; times are compared by the median of their ratios to the fastest over "
    "the rounds that both took a turn in; a cut lies where those of its choices cross, on straight lines of log time "
    "over log bytes"
)

Times = NDArray[np.float64]


def make(results: Results) -> TuneTable:
    """Return the table of what was measured.

    Raises:
        BadInputError: where nothing can be chosen among, or a setting mixes machines.
    """
    found = measured(results)
    if not found:
        there = Counter("wrong" if row.wrong else row.status for row in results.rows)
        words = ", ".join(f"{count} {status}" for status, count in there.items()) or "no rows"
        lack = "no whole and right result of an algorithm, of which a floor and auto are none"
        raise UnusableError("PATHS", f"{lack}; there are: {words}")
    entries = tuple(Entry(setting=s, runs=m.runs, ranges=ranges(m)) for s, m in found.items())
    used = {run for entry in entries for run in entry.runs}
    runs = [
        {
            "run_id": run.run_id, "job": run.job, "created": run.created, "kind": run.kind, "machine": run.machine,
            "hosts": run.provenance.get("hosts"), "mpi": library(run.provenance), "path": run.path,
        }
        for run in results.runs
        if run.run_id in used
    ]  # fmt: skip
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return TuneTable(created=created, hpccoll_version=__version__, rule=RULE, runs=runs, entries=entries)


def write(table: TuneTable, out: Path) -> Iterator[str]:
    """Write ``table`` to ``out``, and yield it in lines for people.

    Raises:
        BadInputError: where ``out`` cannot be written, or holds something else than a table.
    """
    _see_that_it_may_go(out)
    try:
        with replacing_file(out.resolve()) as unfinished:
            unfinished.write_text(json.dumps(table.to_json(), indent=1) + "\n")
    except OSError as error:
        raise no_file("--out", out, error, "written") from None
    for entry in table.entries:
        yield entry.setting.words
        for r in entry.ranges:
            native = "" if r.over_native is None else f", {r.over_native:.2f} of native's"
            apart = f"; not in one launch with {', '.join(r.apart)}" if r.apart else ""
            yield f"  {r.words}: {r.choice.words} ({r.over_best:.2f} of the best time{native}){apart}"
    yield f"table: {out}"


def cautions(results: Results) -> Iterator[str]:
    """Yield why not to trust a table that is made of ``results``: what is missing, and what noise leaves open."""
    if results.missing:
        yield f"partial: {len(results.missing)} of {results.planned} cases are missing, and not chosen among"
    off = {setting: 100 * noise(of) for setting, of in measured(results).items()}
    loose = [setting for setting in off if off[setting] >= LOOSE]
    if loose:
        worst = max(loose, key=lambda setting: off[setting])
        yield (
            f"noise: in {len(loose)} of {len(off)} settings the ratio of the two fastest may be off by {LOOSE} % or "
            f"more (median over sizes; {off[worst]:.0f} % in {worst.words}): either may be the faster. More time for "
            "each case helps, and so does a machine that nobody else uses."
        )


def _see_that_it_may_go(out: Path) -> None:
    """See that what is written over is a table: a raw file would be lost, maybe the very one that this is made of."""
    if not out.is_file() or not out.stat().st_size:
        return
    try:
        load_table(out, "--out")
    except BadInputError:
        raise BadInputError("--out", str(out), "a new file, or a table: it holds something else") from None


def ranges(of: Measured) -> tuple[Range, ...]:
    """Return the choices of one setting by size, as RULE says."""
    sizes, choices = of.sizes, list(of.curves)
    logs = log_times(of.curves, sizes)
    excess = logs - logs.min(axis=0)
    taken = _cheapest(excess, price(of))
    starts = [i for i in range(len(sizes)) if i == 0 or taken[i] != taken[i - 1]]
    cuts = [0, *(_cut(sizes[i - 1 : i + 1], *logs[[taken[i - 1], taken[i]], i - 1 : i + 1]) for i in starts[1:]), None]
    return tuple(
        Range(
            first=cuts[n] or 0,
            below=cuts[n + 1],
            choice=choices[taken[start]],
            sizes=tuple(sizes[start:end]),
            over_best=round(float(np.exp(excess[taken[start], start:end].mean())), DIGITS),
            over_native=_over_native(choices, logs[:, start:end], taken[start]),
            apart=tuple(_apart(of.curves, choices[taken[start]], sizes[start:end])),
        )
        for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(sizes)], strict=True))
    )


def log_times(curves: Curves, sizes: Sequence[int]) -> Times:
    """Return the logarithm of each choice's seconds at ``sizes``, [choice, size]; infinite beyond what was measured."""
    at = np.log(sizes)
    there = {size: side_by_side({c: curve[size] for c, curve in curves.items() if size in curve}) for size in sizes}
    rows = [
        np.interp(at, np.log(list(curve)), np.log([there[size][c] for size in curve]), left=np.inf, right=np.inf)
        for c, curve in curves.items()
    ]
    return np.array(rows)


def price(of: Measured) -> float:
    """Return what a cut has to gain: what rounds or intervals cannot tell apart, and at least PRICE."""
    return max(PRICE, noise(of))


def noise(of: Measured) -> float:
    """Return what the ratio of the two fastest may be off by, relative, the median over sizes; 0 without a second."""
    noises = []
    for size in of.sizes:
        there = {choice: curve[size] for choice, curve in of.curves.items() if size in curve}
        best, *others = sorted(there, key=side_by_side(there).__getitem__)
        noises.append(there[best].unsure(there[others[0]]) if others else 0.0)
    return float(np.median(noises))


def _cheapest(excess: Times, price: float) -> list[int]:
    """Return the row for each column of ``excess`` whose sum, with ``price`` for every change, is least."""
    total = excess[:, 0]
    origins = []
    for column in excess.T[1:]:
        best = int(total.argmin())
        stay = total <= total[best] + price
        origins.append(np.where(stay, np.arange(len(total)), best))
        total = np.where(stay, total, total[best] + price) + column
    taken = [int(total.argmin())]
    for origin in reversed(origins):
        taken.append(int(origin[taken[-1]]))
    return taken[::-1]


def _cut(sizes: Sequence[int], before: Times, after: Times) -> int:
    """Return the first size that ``after`` serves: where its line crosses that of ``before``, between two sizes.

    Beyond what one of them was measured at, the other serves; where neither was, they meet half way.
    """
    known = np.isfinite([before[1], after[0]])
    if known.all():
        ahead, behind = after[0] - before[0], before[1] - after[1]
        part = ahead / (ahead + behind) if ahead + behind > 0 else 0.5
    else:
        part = 0.5 if not known.any() else float(known[0])
    cut = sizes[0] * (sizes[1] / sizes[0]) ** part
    return int(np.clip(np.ceil(cut), sizes[0] + 1, sizes[1]))


def _apart(curves: Curves, choice: Choice, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the choices that no launch measured together with ``choice`` at one of ``sizes`` that both have."""
    own = curves[choice]
    for other, curve in curves.items():
        if other != choice and any(not own[n].beside(curve[n]) for n in sizes if n in own and n in curve):
            yield other.words


def _over_native(choices: Sequence[Choice], logs: Times, taken: int) -> float | None:
    natives = [number for number, choice in enumerate(choices) if choice.algorithm == NATIVE]
    if not natives:
        return None
    ratios = logs[taken] - logs[natives].min(axis=0)
    return round(float(np.exp(ratios.mean())), DIGITS) if np.isfinite(ratios).all() else None
