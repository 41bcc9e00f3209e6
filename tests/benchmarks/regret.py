"""What `auto` costs: a table is made of one launch, and judged by another, at sizes between those of the first, too.

By hand, on an idle machine; the testbed needs root:

    python tests/benchmarks/regret.py                     # one node and the testbed, a quarter of an hour
    python tests/benchmarks/regret.py node --rounds 7

It ends with 1 where the geometric mean of the regret is not shown to be at most 1.05.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import launcher, measure
from settings import CHOICES
from testbed_bench import setting_parser

from hpccoll.analysis.judge_table import judge_table
from hpccoll.analysis.tune_table import build_table
from hpccoll.render.choice_table_text import judgement_lines
from hpccoll.store.load_results import read_results

MOST = 1.05
"""Regret, the geometric mean over all sizes and placements."""


def run(name: str, rounds: int, keep: Path) -> bool:
    """Make and judge a table, and print what it cost."""
    judged = CHOICES[name]
    first, second = (keep / f"{name}-{what}.h5" for what in ("table", "judged"))
    with launcher(judged) as (start, _):
        for setting, raw in ((replace(judged, sizes=judged.sizes[::2]), first), (judged, second)):
            print(
                f"{raw.stem}: {sum(1 for _ in setting.cases())} cases, {rounds} rounds...",
                file=sys.stderr,
                flush=True,
            )
            measure(setting, rounds, start, raw)
    results = read_results([second])
    found = judge_table(build_table(read_results([first])), results)
    one = results.runs[0]
    print(f"## {name}: {judged.nodes} x {judged.each} ranks\n")
    print(f"{one.created}, {one.machine}; {one.kind}; {rounds} rounds.\n")
    print("```text", *judgement_lines(found), "```", "", sep="\n", flush=True)
    shown = (
        "reached"
        if found.mean <= MOST
        else "**missed**"
        if found.held_out > MOST
        else "not told: it may be either"
    )
    print(f"- asked {MOST}: {shown}\n", flush=True)
    return found.mean <= MOST


def main() -> int:
    parse = setting_parser("Make tables of choices and judge them.", CHOICES)
    parse.add_argument("--rounds", type=int, default=7)
    asked = parse.parse_args()
    with tempfile.TemporaryDirectory() as keep:
        # all of them, whatever one shows
        reached = [run(name, asked.rounds, Path(keep)) for name in asked.settings]
        return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
