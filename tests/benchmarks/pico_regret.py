"""What tables of small runs cost on large ones, beside the library's own choice: a picture and a table of judgements.

hpccoll tune small.h5 --out table.json
hpccoll tune --judge table.json large.h5 --json > fugaku.json
python tests/benchmarks/pico_regret.py fugaku.json ... results/golden/pico_regret.svg
"""

import json
import sys
from pathlib import Path

import altair as alt
import numpy as np

OWN, TABLE = "the library's own choice", "the table of small runs"


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


def spread(points, choice):
    regrets = [point["regret"] for point in points if point["choice"] == choice]
    middle, worst = np.quantile(regrets, (0.5, 0.9))
    return f"{len(regrets)} | {middle:.2f} | {worst:.2f}"


def main() -> None:
    *files, picture = map(Path, sys.argv[1:])
    print("| machine | choice | sizes | median | worst decile |\n| --- | --- | --- | --- | --- |")
    points = []
    for judged in files:
        of_machine = list(points_of(judged))
        for choice in (TABLE, OWN):
            print(f"| {judged.stem} | {choice} | {spread(of_machine, choice)} |")
        points += of_machine
    alt.Chart(alt.Data(values=points)).mark_point(filled=True, size=45, opacity=0.7).encode(
        x=alt.X("size:Q", title="size", scale=alt.Scale(type="log", base=2), axis=SIZES),
        y=alt.Y("regret:Q", title="time over that of the best", scale=alt.Scale(type="log")),
        color=alt.Color("choice:N", title=None, legend=alt.Legend(orient="top")),
        shape=alt.Shape("choice:N", title=None),
        column=alt.Column("machine:N", title=None),
    ).properties(width=230, height=220).save(picture)


if __name__ == "__main__":
    main()
