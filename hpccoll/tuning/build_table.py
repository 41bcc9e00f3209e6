"""Making of a tune table from raw files: for each setting, the ranges of sizes whose gain exceeds the noise.

Between measured sizes, times are interpolated linearly in log(time) over log(bytes); a cut between two ranges lies at
the crossing of the lines of their choices.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpccoll import __version__
from hpccoll.errors import BadInputError, UnusableError, file_error
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results
from hpccoll.tuning.measured_choices import Curves, MeasuredSetting, comparable_seconds, measured_settings
from hpccoll.tuning.table import Choice, ChoiceRange, TableEntry, TuneTable, load_table, mpi_version

MIN_CUT_PRICE = 0.03
"""The smallest gain that justifies another range: a relative time, summed over the measured sizes of the range."""

NOISE_WARNING_PERCENT = 10
"""The uncertainty of the ratio of the two fastest choices, in per cent, from which on a warning is printed."""

DIGITS = 4
"""The decimals of ratios in a table, which are for people."""

RULE = (
    "ranges minimise the sum of log(time / best time) over the measured sizes plus a price for each cut: the median "
    "over sizes of the uncertainty of the ratio of the two best (half its spread over the rounds that measured both; "
    "with fewer than two such rounds the root of the sum of squares of their half 95 % intervals or half spreads "
    f"between runs, relative), at least {MIN_CUT_PRICE}; times are compared by the median of their ratios to the "
    "fastest over the rounds that measured both; a cut lies where the times of its choices cross, interpolated "
    "linearly in log time over log bytes"
)

Times = NDArray[np.float64]


def build_table(results: Results) -> TuneTable:
    """Return the tune table of the measured choices.

    Raises:
        BadInputError: if the results have no choices, or mix machines, MPI libraries or executors within a setting.
    """
    measured = measured_settings(results)
    if not measured:
        statuses = Counter("wrong" if row.wrong else row.status for row in results.rows)
        counts = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "no rows"
        missing = "no complete and correct result of an algorithm (a floor and auto do not count)"
        raise UnusableError("PATHS", f"{missing}; results: {counts}")
    entries = tuple(
        TableEntry(
            setting=setting, runs=of_setting.runs, ranges=choose_ranges(of_setting), executor=of_setting.executor
        )
        for setting, of_setting in measured.items()
    )
    used = {run for entry in entries for run in entry.runs}
    runs = [
        {
            "run_id": run.run_id, "job": run.job, "created": run.created, "kind": run.kind, "machine": run.machine,
            "hosts": run.provenance.get("hosts"), "mpi": mpi_version(run.provenance), "path": run.path,
        }
        for run in results.runs
        if run.run_id in used
    ]  # fmt: skip
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return TuneTable(created=created, hpccoll_version=__version__, rule=RULE, runs=runs, entries=entries)


def write_table(table: TuneTable, out: Path) -> Iterator[str]:
    """Write ``table`` to ``out``, and yield its lines for people.

    Raises:
        BadInputError: if ``out`` cannot be written, or holds something other than a table.
    """
    _check_replaceable(out)
    try:
        with replacing_file(out.resolve()) as unfinished:
            unfinished.write_text(json.dumps(table.to_json(), indent=1) + "\n")
    except OSError as error:
        raise file_error("--out", out, error, "written") from None
    for entry in table.entries:
        yield entry.setting.label
        for r in entry.ranges:
            native = "" if r.over_native is None else f", {r.over_native:.2f} of native's"
            unpaired = f"; not in one launch with {', '.join(r.unpaired)}" if r.unpaired else ""
            yield f"  {r.label}: {r.choice.label} ({r.over_best:.2f} of the best time{native}){unpaired}"
    yield f"table: {out}"


def table_warnings(results: Results) -> Iterator[str]:
    """Yield warnings about a table made from ``results``: missing cases, and choices that noise cannot separate."""
    if results.missing:
        cases = f"{len(results.missing)} of {results.planned} cases"
        yield f"partial: {cases} are missing, and the table does not consider them"
    noise = {setting: 100 * ratio_noise(measured) for setting, measured in measured_settings(results).items()}
    noisy = [setting for setting in noise if noise[setting] >= NOISE_WARNING_PERCENT]
    if noisy:
        worst = max(noisy, key=lambda setting: noise[setting])
        yield (
            f"noise: in {len(noisy)} of {len(noise)} settings the ratio of the two fastest may be off by "
            f"{NOISE_WARNING_PERCENT} % or more (median over sizes; {noise[worst]:.0f} % in {worst.label}): either may "
            "be the faster. More time for each case helps, and so does a machine without other load."
        )


def _check_replaceable(out: Path) -> None:
    """Refuse to overwrite anything but a table: the file may be a raw file, even one from which the table is made."""
    if not out.is_file() or not out.stat().st_size:
        return
    try:
        load_table(out, "--out")
    except BadInputError:
        raise BadInputError("--out", str(out), "a new file, or a table: it holds something else") from None


def choose_ranges(measured: MeasuredSetting) -> tuple[ChoiceRange, ...]:
    """Return the ranges of one setting, by RULE."""
    sizes, choices = measured.sizes, list(measured.curves)
    logs = log_times(measured.curves, sizes)
    excess = logs - logs.min(axis=0)
    rows = _cheapest_rows(excess, cut_price(measured))
    starts = [i for i in range(len(sizes)) if i == 0 or rows[i] != rows[i - 1]]
    cuts = [0, *(_cut(sizes[i - 1 : i + 1], *logs[[rows[i - 1], rows[i]], i - 1 : i + 1]) for i in starts[1:]), None]
    return tuple(
        ChoiceRange(
            first=cuts[n] or 0,
            below=cuts[n + 1],
            choice=choices[rows[start]],
            sizes=tuple(sizes[start:end]),
            over_best=round(float(np.exp(excess[rows[start], start:end].mean())), DIGITS),
            over_native=_over_native(choices, logs[:, start:end], rows[start]),
            unpaired=tuple(_unpaired(measured.curves, choices[rows[start]], sizes[start:end])),
        )
        for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(sizes)], strict=True))
    )


def log_times(curves: Curves, sizes: Sequence[int]) -> Times:
    """Return the logarithm of each choice's seconds at ``sizes``, [choice, size]; infinite outside its own sizes."""
    at = np.log(sizes)
    seconds = {
        size: comparable_seconds({choice: curve[size] for choice, curve in curves.items() if size in curve})
        for size in sizes
    }
    rows = [
        np.interp(at, np.log(list(curve)), np.log([seconds[size][choice] for size in curve]), left=np.inf, right=np.inf)
        for choice, curve in curves.items()
    ]
    return np.array(rows)


def cut_price(measured: MeasuredSetting) -> float:
    """Return the gain that justifies a cut: the noise of a ratio, and at least MIN_CUT_PRICE."""
    return max(MIN_CUT_PRICE, ratio_noise(measured))


def ratio_noise(measured: MeasuredSetting) -> float:
    """Return the relative uncertainty of the ratio of the two fastest: median over sizes; 0 for a single choice."""
    noises = []
    for size in measured.sizes:
        times = measured.times_at(size)
        best, *others = sorted(times, key=comparable_seconds(times).__getitem__)
        noises.append(times[best].ratio_noise(times[others[0]]) if others else 0.0)
    return float(np.median(noises))


def _cheapest_rows(excess: Times, price: float) -> list[int]:
    """Return a row for each column of ``excess`` so that the sum, plus ``price`` for every change, is least."""
    total = excess[:, 0]
    origins = []
    for column in excess.T[1:]:
        best = int(total.argmin())
        stay = total <= total[best] + price
        origins.append(np.where(stay, np.arange(len(total)), best))
        total = np.where(stay, total, total[best] + price) + column
    rows = [int(total.argmin())]
    for origin in reversed(origins):
        rows.append(int(origin[rows[-1]]))
    return rows[::-1]


def _cut(sizes: Sequence[int], before: Times, after: Times) -> int:
    """Return the first size of the choice ``after``: the crossing of its line with that of ``before``.

    If only one of them was measured at both sizes, the other takes over where its measurements end; if neither was,
    the cut lies in the middle.
    """
    known = np.isfinite([before[1], after[0]])
    if known.all():
        lead_before, lead_after = after[0] - before[0], before[1] - after[1]
        fraction = lead_before / (lead_before + lead_after) if lead_before + lead_after > 0 else 0.5
    else:
        fraction = 0.5 if not known.any() else float(known[0])
    cut = sizes[0] * (sizes[1] / sizes[0]) ** fraction
    return int(np.clip(np.ceil(cut), sizes[0] + 1, sizes[1]))


def _unpaired(curves: Curves, choice: Choice, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the labels of choices that no launch measured together with ``choice`` at one of their common ``sizes``."""
    chosen = curves[choice]
    for other, curve in curves.items():
        if other != choice and any(not chosen[n].shares_launch(curve[n]) for n in sizes if n in chosen and n in curve):
            yield other.label


def _over_native(choices: Sequence[Choice], logs: Times, row: int) -> float | None:
    native_choices = [number for number, choice in enumerate(choices) if choice.algorithm == NATIVE]
    if not native_choices:
        return None
    ratios = logs[row] - logs[native_choices].min(axis=0)
    return round(float(np.exp(ratios.mean())), DIGITS) if np.isfinite(ratios).all() else None
