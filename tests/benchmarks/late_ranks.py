"""Late ranks and slow wires on the testbed: which of them a training step names, and by how much a rank is late.

    python tests/benchmarks/late_ranks.py --keep DIR      # about 6 minutes, alone on the machine
    python tests/benchmarks/late_ranks.py --read DIR      # from raw files that were kept

A rank of each of four hosts; a late one begins to compute 5 ms after the others in each step, or
computes for 35 ms instead of 30 (``tests/measure/late_ranks.py``). The table is that of
results/golden/late_ranks.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tables import print_table, verdict
from testbed_bench import ROOT, run_settings, run_testbed

from hpccoll.common.text import join_words
from hpccoll.common.units import format_per_cent
from hpccoll.store.call_key import call_arguments
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Row

NAME = "late"
HOSTS, LAG_US = 4, 5000
TRAIN = "--scale 256 -a ring,native,recursive_doubling --overlap 0,1 -n 40 --rounds 3 --seconds 10"


class Situation(NamedTuple):
    """What is wrong while steps are measured."""

    late: int | None = None  # the rank that is late
    slow: str = ""  # the host whose wire has half of its rate
    # it computes for 35 ms instead of 30, and with overlap only the forward third delays others
    is_slow: bool = False


SITUATIONS = {
    "healthy": Situation(),
    "rank 0 late": Situation(late=0),
    "rank 2 late": Situation(late=2),
    "rank 2 computes slowly": Situation(late=2, is_slow=True),
    "n2 at half rate": Situation(slow="n2"),
    "n2 at half rate, rank 3 late": Situation(late=3, slow="n2"),
}


def measure(name: str, keep: Path) -> None:
    """Measure a situation on a testbed of its own."""
    late, slow, is_slow = SITUATIONS[name]
    out, bed = keep / f"{name.replace(' ', '_')}.h5", ("--name", NAME)
    if out.exists():
        return
    drill = ROOT / "tests" / "measure" / "late_ranks.py"
    words = (
        sys.executable,
        drill,
        late or 0,
        0 if late is None else "x1.1667" if is_slow else LAG_US,
    )
    command = (
        f"srun -N {HOSTS} -n {HOSTS} --mpi=pmi2 {' '.join(map(str, words))} {TRAIN} --out {out}"
    )
    try:
        run_testbed("up", *bed, "--nodes", str(HOSTS), "--cpus", "1", "--rate", "100mbit")
        if slow:
            run_testbed("fault", *bed, slow, "--rate", "50mbit")
        run_testbed("run", *bed, *command.split())
    finally:
        run_testbed("down", *bed, check=False)


def named(row: Row) -> str:
    """Return the ranks that a row calls late, with the lag of the first."""
    return join_words(
        f"rank {rank}" for rank in row.late_ranks
    ) + f", {1e3 * (row.last_s or 0.0):.2f} ms" * bool(row.late_ranks)


def rows_of(name: str, keep: Path) -> dict[tuple[str, int], Row]:
    """Return the rows by algorithm and overlap."""
    rows = read_results([keep / f"{name.replace(' ', '_')}.h5"]).rows
    return {(row.algorithm, int(call_arguments(row)["overlap"])): row for row in rows}


def show(name: str, keep: Path) -> Iterator[bool]:
    """Print the steps of a situation beside those of a healthy cluster, and yield whether the right rank is late."""
    late, slow, is_slow = SITUATIONS[name]
    rows, healthy = rows_of(name, keep), rows_of("healthy", keep)
    print(f"\n{name}\n")
    print_table(
        (
            "algorithm",
            "overlap:",
            "step (ms):",
            "transfer (ms):",
            "of healthy:",
            "waiting (ms):",
            "last:",
            "share:",
            "late",
        ),
        (
            (
                algorithm,
                overlap,
                *(f"{1e3 * (each or 0.0):.1f}" for each in (row.median_s, row.transfer_s)),
                f"{(row.transfer_s or 0.0) / (healthy[algorithm, overlap].transfer_s or 1.0):.2f}",
                f"{1e3 * (row.waiting_s or 0.0):.2f}",
                "" if row.last_rank is None else row.last_rank,
                format_per_cent(row.last_share or 0.0),
                named(row),
            )
            for (algorithm, overlap), row in sorted(rows.items())
        ),
    )
    right = [row.late_ranks == (() if late is None else (late,)) for row in rows.values()]
    who = "no rank" if late is None else f"rank {late} alone"
    yield verdict(f"{who} is late", f"{sum(right)} of {len(right)} steps", all(right))
    if late is not None:
        asked = {overlap: LAG_US / 1000 / (3 if is_slow and overlap else 1) for _, overlap in rows}
        off = max(
            abs(1e3 * (row.last_s or 0.0) / asked[overlap] - 1)
            for (_, overlap), row in rows.items()
        )
        which = " or ".join(f"{each:.3g} ms" for each in dict.fromkeys(asked.values()))
        yield verdict(f"its lag, most off {which}", f"{off:.1%}, asked 10%", off <= 0.1)
    if slow:
        grown = min(
            (row.transfer_s or 0.0) / (healthy[key].transfer_s or 1.0) for key, row in rows.items()
        )
        yield verdict(
            "the transfer, over that of healthy wires", f"{grown:.2f}, asked 1.5", grown >= 1.5
        )


if __name__ == "__main__":
    sys.exit(run_settings(__doc__ or "", SITUATIONS, measure, show))
