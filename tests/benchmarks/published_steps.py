"""How far predicted training steps are from published ones: the table of ``results/golden/published_steps.md``.

Of each published table one number is fitted, to the smallest row: the fraction of the peak at which
a GPU computes.
Each table is predicted twice: with NCCL's own algorithms where the model has them, and with
schedules of ours alone.

    python tests/benchmarks/published_steps.py        # a few minutes
"""

import sys
from itertools import groupby
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from published_rows import PredictedStep, predicted, tables


def error_or_fit(number: int, fraction: float, step: PredictedStep) -> str:
    return f"{step.error:+.1%}" if number else f"fitted: {fraction:.1%} of the peak"


print(
    "| table | step | GPUs | mesh | published | predicted | compute | bubble | exposed | ours | error |"
)
print("| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: | --: |")
errors = []
for table in tables():
    both = zip(predicted(table), predicted(table, library=False), strict=True)
    for number, ((fraction, step), (of_ours, ours)) in enumerate(both):
        row, timeline = step.row, step.timeline
        label = table["table"] if number == 0 else ""
        print(
            f"| {label} | {row.name} | {row.gpus:,} | {row.mesh.text} | {row.measured_s:.2f} s | "
            f"{step.seconds:.2f} s | {timeline.compute_s:.2f} s | {step.bubble_s:.2f} s | "
            f"{timeline.exposed_s:.2f} s | {error_or_fit(number, of_ours, ours)} | "
            f"{error_or_fit(number, fraction, step)} |",
            flush=True,
        )
        if number:
            errors.append((table["table"], abs(step.error), abs(ours.error)))
print()
for name, each in (
    ("all", errors),
    *((name, [*each]) for name, each in groupby(errors, key=lambda row: row[0])),
):
    library, ours = ([error[column] for error in each] for column in (1, 2))
    print(
        f"- {name}: {len(library)} predictions, mean error {mean(library):.1%}, largest {max(library):.1%}; "
        f"with our schedules {mean(ours):.1%}, {max(ours):.1%}"
    )
