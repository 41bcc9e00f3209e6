"""Sweep files of exactly the calls of a counted program."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpccoll.analysis.counted_gain import (
    COLLECTIVES,
    DEFAULT,
    measurable_kinds,
    measured_bytes,
    measured_dtype,
)
from hpccoll.analysis.counted_shares import CountedShares, KindShare
from hpccoll.cases.plan import PROFILES
from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_per_cent
from hpccoll.schedule import collective
from hpccoll.store.counted_job import CountedJob, CountedLaunch

LEAST_SHARE = 0.002
"""Calls of a kind that takes less of the run are not measured."""

OPS = {"MPI_SUM": "sum", "MPI_PROD": "prod", "MPI_MIN": "min", "MPI_MAX": "max"}

LAUNCHES = 3
"""How often each promising choice is launched, in turn with the default: a launch may be slow as a whole, which the
rounds within it cannot show."""

EFFORT = {
    "warmup": 2,
    "min_iterations": 10,
    "max_iterations": 300,
    "seconds": 0.5,
    "precision": 0.02,
}


@dataclass(frozen=True, slots=True)
class CountedSweep:
    """The sweep of one collective on communicators of one shape."""

    name: str
    content: dict[str, Any]  # of the sweep file

    @property
    def collective(self) -> str:
        """The name of the collective."""
        (name,) = self.content["collectives"]
        return str(name)

    def launch(self, number: int, variants: Collection[str]) -> "CountedSweep":
        """Return the sweep that launches the default and some variants once more; ``number`` counts from 1."""
        chosen: dict[str, Any] = {DEFAULT: {}, **dict.fromkeys(variants)}
        return CountedSweep(f"{self.name}-launch{number}", {**self.content, "variants": chosen})


def library_of(job: CountedJob) -> str:
    """Return whose algorithms a program can choose among: mpich or openmpi.

    Raises:
        UnusableError: if its library is another one.
    """
    library, _ = _tunable_launch(job)
    return library


def launch_of_library(job: CountedJob) -> CountedLaunch:
    """Return the first launch whose library is that of ``library_of``.

    Raises:
        UnusableError: if there is none.
    """
    _, launch = _tunable_launch(job)
    return launch


def _tunable_launch(job: CountedJob) -> tuple[str, CountedLaunch]:
    """Return the first launch with a library that has tables, and the name of that library."""
    for launch in job.launches:
        if launch.abi == "Open MPI" or launch.library.startswith("Open MPI"):
            return "openmpi", launch
        if launch.library.startswith("MPICH"):
            return "mpich", launch
    libraries = ", ".join(dict.fromkeys(launch.library for launch in job.launches))
    raise UnusableError(
        "--for", f"the program ran on {libraries}: tables exist for MPICH and Open MPI"
    )


def counted_sweeps(shares: CountedShares) -> list[CountedSweep]:
    """Return the sweeps of the calls of a program that take longest: a collective, a shape and an element type each.

    A sweep has equally many ranks on each node: calls on other communicators are not measured.

    Raises:
        UnusableError: if its library is neither MPICH nor Open MPI, or no calls can be measured.
    """
    library = library_of(shares.job)
    by_shape: dict[tuple[str, int, int, str], list[KindShare]] = {}
    for share in measurable_kinds(shares):
        group = share.group
        has_equal_nodes = group.size % max(group.nodes, 1) == 0
        if share.share >= LEAST_SHARE and has_equal_nodes:
            name = COLLECTIVES[share.kind.collective]
            shape = name, group.size, group.nodes, measured_dtype(share)
            by_shape.setdefault(shape, []).append(share)
    if not by_shape:
        least = format_per_cent(LEAST_SHARE)
        raise UnusableError(
            "--for",
            f"no kind of call can be measured: each takes less than {least} of the run, or its nodes have "
            "unequal numbers of ranks",
        )
    sweeps = []
    for shape, kinds in by_shape.items():
        sweeps.append(_sweep(library, *shape, kinds))
    return sweeps


def check_profile(sweeps: Sequence[CountedSweep], profile: str) -> None:
    """Check that the communicators of sweeps exist where they are measured.

    Raises:
        UnusableError: if this machine is to measure one whose ranks are on two nodes or more.
    """
    if profile != "local":
        return
    for sweep in sweeps:
        if "nodes" in sweep.content:
            clusters = " or ".join(PROFILES[1:])
            (nodes,) = sweep.content["nodes"]
            raise UnusableError(
                "--for",
                f"the program's ranks were on {nodes} nodes, and profile local uses this machine alone; "
                f"do: --profile {clusters}, with --site for your cluster",
            )


def _sweep(
    library: str, name: str, ranks: int, nodes: int, dtype: str, kinds: Sequence[KindShare]
) -> CountedSweep:
    content: dict[str, Any] = {"collectives": [name], "algorithms": ["native"]}
    sizes = set()
    placements = set()
    for share in kinds:
        sizes.add(measured_bytes(share))
        placements.add(share.kind.in_place)
    content["bytes"] = sorted(sizes)
    content["in_place"] = sorted(placements)
    content |= _shape(ranks, nodes)
    longest = kinds[0].kind
    if collective(name).reduces:
        content["dtypes"] = [dtype]
        content["ops"] = [OPS.get(longest.operation, "sum")]
    content["variants"] = {DEFAULT: {}, f"{library}-*": None}
    content["effort"] = EFFORT
    content["seed"] = 1
    return CountedSweep(f"{name}-{ranks}x{max(nodes, 1)}-{dtype}", content)


def _shape(ranks: int, nodes: int) -> dict[str, Any]:
    """Return the keys of a communicator's shape, whose nodes have equally many ranks."""
    if nodes <= 1:
        return {"ranks": [ranks]}
    return {"nodes": [nodes], "ranks_per_node": [ranks // nodes]}


def write_sweep(sweep: CountedSweep, directory: Path) -> Path:
    """Write a sweep file into a directory, which is made if needed, and return its path.

    Raises:
        OSError: if it cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{sweep.name}.yaml"
    path.write_text(yaml.safe_dump(sweep.content, sort_keys=False))
    return path
