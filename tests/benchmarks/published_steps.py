"""How far predicted training steps are from published ones: the table of ``results/golden/published_steps.md``.

Of each published table one number is fitted, to the smallest row: the fraction of the peak at which a GPU computes.

    python tests/benchmarks/published_steps.py        # a few minutes
"""

import sys
from itertools import groupby
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from published_rows import predicted, tables

print("| table | step | GPUs | mesh | published | predicted | compute | bubble | exposed | error |")
print("| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: |")
errors = []
for table in tables():
    for number, (fraction, step) in enumerate(predicted(table)):
        row, timeline = step.row, step.timeline
        fitted = f"fitted: {fraction:.1%} of the peak" if number == 0 else f"{step.error:+.1%}"
        label = table["table"] if number == 0 else ""
        print(
            f"| {label} | {row.name} | {row.gpus:,} | {row.mesh.text} | {row.measured_s:.2f} s | "
            f"{step.seconds:.2f} s | {timeline.compute_s:.2f} s | {step.bubble_s:.2f} s | "
            f"{timeline.exposed_s:.2f} s | {fitted} |",
            flush=True,
        )
        if number:
            errors.append((table["table"], abs(step.error)))
print()
sizes = [error for _, error in errors]
print(f"{len(sizes)} predictions: mean error {mean(sizes):.1%}, largest {max(sizes):.1%}")
for name, each in groupby(errors, key=lambda pair: pair[0]):
    print(f"- {name}: mean {mean(e for _, e in each):.1%}")
