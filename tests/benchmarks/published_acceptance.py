"""What accept says of published rows, each without its own source: the table of ``results/golden/accept_published.md``.

python tests/benchmarks/published_acceptance.py DATA/published/nccl-tests.csv        # a minute
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from published_outputs import PublishedRow

from hpccoll.judge.held import Acceptance
from hpccoll.judge.verdicts import LARGE

GROUPS = (
    "healthy, 1 GiB and more",
    "healthy, smaller",
    "unhealthy, 1 GiB and more",
    "unhealthy, smaller",
)
HEALTH = {True: "healthy", False: "unhealthy"}

rows = PublishedRow.read(Path(sys.argv[1]))
by_machine: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
with TemporaryDirectory() as directory:
    for row in rows:
        if row.healthy is None:
            continue
        judged = row.judged(Path(directory))
        group = (
            f"{HEALTH[row.healthy]}, {'1 GiB and more' if row.call.nbytes >= LARGE else 'smaller'}"
        )
        word = {Acceptance.PASS: "pass", Acceptance.FAIL: "fail"}.get(
            judged.acceptance, "cannot tell"
        )
        by_machine[row.cells["machine"]][group][word if judged.expected else "too few sources"] += 1

WORDS = "pass", "fail", "cannot tell", "too few sources"
total: dict[str, Counter[str]] = defaultdict(Counter)
print(f"| machine | {' | '.join(GROUPS)} |")
print(f"| --- | {' | '.join('---' for _ in GROUPS)} |")
for machine, groups in sorted(by_machine.items()):
    for group, counts in groups.items():
        total[group] += counts
    cells = [
        ", ".join(f"{groups[group][word]} {word}" for word in WORDS if groups[group][word])
        for group in GROUPS
    ]
    print(f"| {machine} | {' | '.join(cells)} |")
cells = [
    ", ".join(f"{total[group][word]} {word}" for word in WORDS if total[group][word])
    for group in GROUPS
]
print(f"| all | {' | '.join(cells)} |")
