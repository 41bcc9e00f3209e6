"""What choices made on few nodes cost on many, beside the library's own: those of tables, and those of machines.

A table of small runs, judged by ``tune``; the picture and a line for each machine:

    hpccoll tune small.h5 --out table.json
    hpccoll tune --judge table.json large.h5 --json > fugaku.json
    python tests/benchmarks/pico_regret.py fugaku.json ... results/golden/pico_regret.svg

Machines fitted to the small runs, with the directory that ``supercomputers.py`` takes:

    python tests/benchmarks/pico_regret.py --machines DIR              # all, about two minutes
    python tests/benchmarks/pico_regret.py --machines DIR leonardo     # one machine

It ends with 1 if a machine's choices cost more than asked.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import altair as alt
import numpy as np
from supercomputers import SPLITS, models

from hpccoll.common.errors import BadInputError
from hpccoll.model.observations import Observation
from hpccoll.model.run_model import RunModel
from hpccoll.model.validation import Validated
from hpccoll.schedule import Parameter
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.case_row import make_row
from hpccoll.store.rows import Row
from hpccoll.store.schema import ADDRESSES, COPIED, PORT_USE

OWN, TABLE = "the library's own choice", "the table of small runs"
MACHINE = "the machine of small runs"
MEDIAN, WORST_DECILE = 1.05, 1.5
"""The largest regrets that are asked of a machine's choices."""


SIZES = alt.Axis(
    values=[4, 4 << 10, 4 << 20, 512 << 20],
    labelExpr="{'4': '4 B', '4096': '4 KiB', '4194304': '4 MiB', '536870912': '512 MiB'}[datum.value]",
)


def points_of(judged: Path):
    """Yield a point for each regret of a judgement, which is named after its machine."""
    for setting in json.loads(judged.read_text())["settings"]:
        for size in setting["sizes"]:
            common = {"machine": judged.stem, "size": size["bytes"]}
            yield {**common, "choice": TABLE, "regret": size["regret"]}
            if size["default_regret"] is not None:
                yield {**common, "choice": OWN, "regret": size["default_regret"]}


def spread(regrets: Sequence[float]) -> str:
    """Return how many regrets there are, their median and their worst decile, as cells of a table."""
    middle, worst = np.quantile(regrets, (0.5, 0.9))
    return f"{len(regrets)} | {middle:.2f} | {worst:.2f}"


class Call(NamedTuple):
    """What a launch measured with several algorithms: one collective, element type and size."""

    run_id: str  # of the launch, which has one placement of ranks and one library
    collective: str
    dtype: str
    nbytes: int  # the size S that was moved

    @classmethod
    def of_row(cls, row: Row) -> "Call":
        return cls(row.run_id, row.collective, row.dtype, row.bytes)

    @classmethod
    def of_observation(cls, observation: Observation) -> "Call":
        _, run_id, _ = observation.key
        return cls(run_id, observation.collective, observation.dtype, observation.nbytes)


@dataclass(frozen=True)
class JudgedChoice:
    """What the choice of a machine costs at one call of a launch that the machine was not fitted to."""

    is_of_fitted_collective: bool  # whether the fit has seen the collective, on fewer nodes
    over_predicted: float  # its time over that of the best algorithm that the machine predicts
    over_all: float  # its time over that of the best of everything that the launch measured
    own_over_all: float | None  # the same for the library's own choice; None if it was not measured


class Predicted(NamedTuple):
    """What a machine can tell from others: implementations of an algorithm are one."""

    transport: str
    algorithm: str
    parameters: tuple[tuple[str, Parameter], ...]  # its own, and what else its results say of it


def judged_choices(*models: RunModel) -> Iterator[JudgedChoice]:
    """Yield the choice at each call for which a machine predicts several algorithms, over one transport or another."""
    fitted = set()
    rows: dict[Call, Sequence[Row]] = {}
    for model in models:
        fitted |= {
            (case.observation.transport, case.observation.collective)
            for case in model.validated
            if not case.held_out
        }
        rows |= measured_rows(model)
    for call, algorithms in predicted_algorithms(models).items():
        if len(algorithms) < 2:
            continue
        predicted = {key: cases[0].seconds for key, cases in algorithms.items()}
        measured = {key: typical_seconds(cases) for key, cases in algorithms.items()}
        chosen = min(predicted, key=predicted.__getitem__)
        chosen_s = measured[chosen]
        best_s = min(row.median_s for row in rows[call])
        own_s = [row.median_s for row in rows[call] if row.algorithm == NATIVE]
        yield JudgedChoice(
            is_of_fitted_collective=(chosen.transport, call.collective) in fitted,
            over_predicted=chosen_s / min(measured.values()),
            over_all=chosen_s / best_s,
            own_over_all=min(own_s) / best_s if own_s else None,
        )


def measured_rows(model: RunModel) -> Mapping[Call, Sequence[Row]]:
    """Return everything that was measured, with algorithms that ours lacks, by call."""
    rows = defaultdict(list)
    for raw in model.raw_results:
        for history in raw.histories():
            row = make_row(raw.job, history)
            if row.status == "ok" and row.median_s:
                rows[Call.of_row(row)].append(row)
    return rows


def predicted_algorithms(
    models: Sequence[RunModel],
) -> Mapping[Call, Mapping[Predicted, Sequence[Validated]]]:
    """Return by call the held-out measurements with a prediction, by what their machine can tell apart."""
    by_call = defaultdict(lambda: defaultdict(list))
    for model in models:
        for case in model.held_out:
            observation = case.observation
            if not case.seconds or not observation.algorithm:
                continue
            parameters = observation.own_parameters
            for name in ("ports", "segment", ADDRESSES, COPIED, PORT_USE):
                if name in observation.params:
                    parameters[name] = observation.params[name]
            told_apart = Predicted(
                observation.transport,
                observation.algorithm.name,
                tuple(sorted(parameters.items())),
            )
            by_call[Call.of_observation(observation)][told_apart].append(case)
    return by_call


def typical_seconds(cases: Sequence[Validated]) -> float:
    """Return the time of an algorithm, the geometric mean of its implementations."""
    return geometric_mean(case.observation.seconds for case in cases)


def machine_lines(machine: str, choices: Sequence[JudgedChoice]) -> Iterator[str]:
    """Yield the rows of a machine: for collectives that it was fitted to, for others, and for all."""
    of_fitted = [choice for choice in choices if choice.is_of_fitted_collective]
    of_others = [choice for choice in choices if not choice.is_of_fitted_collective]
    groups = {"fitted": of_fitted, "others": of_others, "all": choices}
    for collectives, group in groups.items():
        if not group:
            continue
        about = f"| {machine} | {collectives}"
        over_predicted = [choice.over_predicted for choice in group]
        over_all = [choice.over_all for choice in group]
        own = [choice.own_over_all for choice in group if choice.own_over_all]
        yield f"{about} | {MACHINE} | algorithms that it predicts | {spread(over_predicted)} |"
        yield f"{about} | {MACHINE} | everything measured | {spread(over_all)} |"
        if own:
            yield f"{about} | {OWN} | everything measured | {spread(own)} |"


def misses(machine: str, choices: Sequence[JudgedChoice]) -> Iterator[str]:
    """Yield which regrets of a machine's choices are larger than asked."""
    middle, worst = np.quantile([choice.over_all for choice in choices], (0.5, 0.9))
    if middle > MEDIAN:
        yield f"{machine}: median regret {middle:.3f}, asked {MEDIAN}"
    if worst > WORST_DECILE:
        yield f"{machine}: worst decile of regrets {worst:.3f}, asked {WORST_DECILE}"


def judge_machines(directory: Path, machines: Sequence[str]) -> int:
    """Print what the choices of machines cost; return 1 if that is more than asked."""
    print("| machine | collectives | choice | beside | calls | median | worst decile |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    missed: list[str] = []
    for machine in machines:
        try:
            models_of_machine = models(directory, machine)
        except BadInputError as error:
            print(f"{machine}: no machine is fitted: {error}", file=sys.stderr)
            continue
        choices = list(judged_choices(*models_of_machine))
        if not choices:
            print(f"{machine}: no call with several predicted algorithms", file=sys.stderr)
            continue
        print("\n".join(machine_lines(machine, choices)))
        missed += misses(machine, choices)
    print("\n".join(missed), file=sys.stderr)
    return int(bool(missed))


def draw_tables(files: Sequence[Path], picture: Path) -> None:
    """Print the regrets of judged tables, and draw them."""
    print("| machine | choice | sizes | median | worst decile |\n| --- | --- | --- | --- | --- |")
    points = []
    for judged in files:
        of_machine = list(points_of(judged))
        for choice in (TABLE, OWN):
            regrets = [point["regret"] for point in of_machine if point["choice"] == choice]
            print(f"| {judged.stem} | {choice} | {spread(regrets)} |")
        points += of_machine
    alt.Chart(alt.Data(values=points)).mark_point(filled=True, size=45, opacity=0.7).encode(
        x=alt.X("size:Q", title="size", scale=alt.Scale(type="log", base=2), axis=SIZES),
        y=alt.Y("regret:Q", title="time over that of the best", scale=alt.Scale(type="log")),
        color=alt.Color("choice:N", title=None, legend=alt.Legend(orient="top")),
        shape=alt.Shape("choice:N", title=None),
        column=alt.Column("machine:N", title=None),
    ).properties(width=230, height=220).save(picture)


def main() -> int:
    if sys.argv[1] == "--machines":
        directory, *machines = sys.argv[2:]
        return judge_machines(Path(directory), machines or list(SPLITS))
    *files, picture = map(Path, sys.argv[1:])
    draw_tables(files, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
