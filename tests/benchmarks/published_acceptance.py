"""What accept says of published rows, each without its own source: the table of ``results/golden/accept_published.md``.

python tests/benchmarks/published_acceptance.py DATA/published/nccl-tests*.csv        # minutes
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from published_outputs import PublishedRow

from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.verdicts import LARGE
from hpccoll.render.acceptance_text import NEAR_PUBLISHED, OF_SAID, verdict_words

GROUPS = (
    "healthy, 1 GiB and more",
    "healthy, smaller",
    "unhealthy, 1 GiB and more",
    "unhealthy, smaller",
)
HEALTH = {True: "healthy", False: "unhealthy"}
NOTHING = "nothing said"
WORDS = "pass", "fail", *OF_SAID.values(), "cannot tell", NOTHING


def print_table(path: Path, directory: Path) -> None:
    """Print what accept says of the rows of a file, by machine."""
    by_machine: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in PublishedRow.read(path):
        if row.healthy is None:
            continue
        judged = row.judged(directory)
        size = "1 GiB and more" if row.call.nbytes >= LARGE else "smaller"
        group = f"{HEALTH[row.healthy]}, {size}"
        words = verdict_words(judged)
        if judged.expected is None and words == "cannot tell":
            words = NOTHING
        if words == NEAR_PUBLISHED:
            words = OF_SAID[HeldVerdict.WITHIN_PUBLISHED]
        by_machine[row.cells["machine"]][group][words] += 1
    total: dict[str, Counter[str]] = defaultdict(Counter)
    print(f"| {path.name} | {' | '.join(GROUPS)} |")
    print(f"| --- | {' | '.join('---' for _ in GROUPS)} |")
    for machine, groups in sorted(by_machine.items()):
        for group, counts in groups.items():
            total[group] += counts
        print_line(machine, groups)
    print_line("all", total)
    print()


def print_line(name: str, groups: dict[str, Counter[str]]) -> None:
    """Print the line of a machine."""
    cells = []
    for group in GROUPS:
        counts = [f"{groups[group][words]} {words}" for words in WORDS if groups[group][words]]
        cells.append(", ".join(counts))
    print(f"| {name} | {' | '.join(cells)} |")


with TemporaryDirectory() as temporary:
    for file in sys.argv[1:]:
        print_table(Path(file), Path(temporary))
