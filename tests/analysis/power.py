"""How often ``hpccoll compare`` finds a change, and how often one that is none: changes injected into recorded rows.

    python tests/analysis/power.py results/some-sweep

The noise is that of recorded rounds: the logarithms of round medians over those of their case. Each
trial deals them anew to the rounds of 40 cases in two runs, and changes one case, or all of them.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from hpccoll.analysis.shift import shifts
from hpccoll.common.units import format_factor
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.run_comparison import TOLERANCE, verdict_on_shift
from hpccoll.store.load_results import read_results

CASES, TRIALS = 40, 400
SHIFTS = 0.05, 0.10, 0.20
ROUNDS = 3, 5, 9


def recorded_noise(path: Path) -> list[np.ndarray]:
    """Return the deviations of the rounds of each recorded case, as large as those of independent rounds."""
    found = []
    for row in read_results([path]).rows:
        medians = [median for median in row.round_medians_s if median]
        if row.status == "ok" and len(medians) > 1:
            logs = np.log(medians)
            found.append((logs - logs.mean()) * np.sqrt(len(logs) / (len(logs) - 1)))
    return found


def verdicts(
    noise: list[np.ndarray], rounds: int, factors: np.ndarray, generator: np.random.Generator
) -> list[str]:
    """Return the verdicts of one trial: each case has the noise of a recorded one."""
    chosen = generator.choice(len(noise), CASES)
    runs = [
        [
            list(
                np.exp(generator.choice(noise[n], rounds) * generator.choice((-1, 1), rounds))
                * factor
            )
            for n, factor in zip(chosen, each, strict=True)
        ]
        for each in (np.ones(CASES), factors)
    ]
    return [verdict_on_shift(shift, rounds, TOLERANCE)[0] for shift in shifts(*runs)]


def print_row(noise: list[np.ndarray], rounds: int, changed: int, shift: float) -> None:
    generator = np.random.default_rng(1)
    factors = np.ones(CASES)
    factors[:changed] = 1 + shift
    found, false, pairs = Counter(), 0, 0
    for _ in range(TRIALS):
        given = verdicts(noise, rounds, factors, generator)
        found.update(given[:changed])
        alarms = sum(
            verdict in (HeldVerdict.SLOWER, HeldVerdict.FASTER) for verdict in given[changed:]
        )
        false, pairs = false + alarms, pairs + bool(alarms)
    power = f"{found[HeldVerdict.SLOWER] / (TRIALS * changed):.0%}" if changed else ""
    unchanged = TRIALS * (CASES - changed)
    cases = f"{false / unchanged:.2%}" if unchanged else ""
    any_case = f"{pairs / TRIALS:.0%}" if unchanged else ""
    print(f"| {rounds} | {changed} | {format_factor(1 + shift)} | {power} | {cases} | {any_case} |")


def main() -> None:
    noise = recorded_noise(Path(sys.argv[1]))
    spread = np.array([each.std() for each in noise])
    print("# What a comparison of two runs finds\n")
    print(f"{TRIALS} trials of {CASES} cases, with the noise of {len(noise)} recorded cases,")
    low, middle, high = (f"{value:.2%}" for value in np.percentile(spread, (10, 50, 90)))
    print(f"whose rounds scatter by {middle} in the median ({low} to {high}).")
    print(f"A change matters if a case takes at least {format_factor(1 + TOLERANCE)} as long.\n")
    print(
        "| rounds | changed cases | new / old | found | false alarms of other cases | pairs of runs with one |"
    )
    print("| --: | --: | --: | --: | --: | --: |")
    for rounds in ROUNDS:
        print_row(noise, rounds, 0, 0.0)
        for changed in (1, CASES):
            for shift in SHIFTS:
                print_row(noise, rounds, changed, shift)


if __name__ == "__main__":
    main()
