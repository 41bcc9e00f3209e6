"""How long the simulation of large machines takes, on one core, and how much memory.

Each case runs in a process of its own, with the machine ``8xh100-400g`` or, for one rank a node,
``1x100g-roce``. The time to import hpccoll stands apart; composing the schedule is part of the
simulation. Growth is the time, and the memory beyond the imports, over those of the case before it
of the same algorithm.

    python tests/benchmarks/simulate.py            # about two minutes
    python tests/benchmarks/simulate.py ring       # the cases of one algorithm
"""

import json
import resource
import subprocess
import sys
import time
from typing import NamedTuple


class Simulation(NamedTuple):
    """A case: an algorithm on nodes, and the seconds and GB that are asked of it, if any."""

    algorithm: str
    nodes: int
    ranks_per_node: int
    asked_s: float | None = None
    asked_gb: float | None = None
    outer: str = "ring"


CASES = (
    Simulation("ring", 256, 1),
    Simulation("ring", 1_024, 1, asked_s=1),
    Simulation("ring", 4_096, 1),
    Simulation("ring", 16_384, 1, asked_s=30, asked_gb=4),
    Simulation("recursive_doubling", 1_024, 1),
    Simulation("recursive_doubling", 16_384, 1, asked_s=2),
    Simulation("hierarchical", 256, 8),
    Simulation("hierarchical", 2_048, 8, asked_s=5),
    Simulation("hierarchical", 16_384, 8, outer="rabenseifner"),
    Simulation("hierarchical", 131_072, 8, asked_s=120, outer="rabenseifner"),
)
NBYTES = 1 << 30


def memory_gb() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def simulate_one(case: Simulation) -> dict[str, float]:
    """Return what the simulation of a case took, in this process."""
    began = time.perf_counter()
    from hpccoll.cases.algorithm_registry import COLLECTIVES
    from hpccoll.model.machine_file import read_machine
    from hpccoll.model.simulation import simulate
    from hpccoll.schedule import Cut

    imported, before = time.perf_counter(), memory_gb()
    machine = read_machine(
        "1x100g-roce" if case.ranks_per_node == 1 else "8xh100-400g", "--cluster"
    )
    layout = machine.layout(case.nodes, case.ranks_per_node)
    family = COLLECTIVES["all_reduce"]
    call = family.call(layout.workers)
    parameters = {"outer": case.outer} if case.algorithm == "hierarchical" else {}
    slices = call.slices(family.algorithm(case.algorithm), layout, **parameters)
    cut = Cut(call, NBYTES // 4, slices[0].units, len(slices), 4)
    messages = 0

    def count(done: int) -> None:
        nonlocal messages
        messages = done

    seconds = simulate(slices, cut, machine.machine(), progress=count).seconds
    return {
        "import_s": imported - began,
        "took_s": time.perf_counter() - imported,
        "gb": memory_gb(),
        "own_gb": memory_gb() - before,
        "messages": messages,
        "seconds": seconds,
    }


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(simulate_one(CASES[int(sys.argv[2])])))
        return
    last: dict[str, dict[str, float]] = {}
    print(
        f"{'case':<44}{'messages':>14}{'import s':>10}{'took s':>9}{'growth':>8}{'GB':>7}{'growth':>8}  asked"
    )
    for number, case in enumerate(CASES):
        if sys.argv[1:] and case.algorithm not in sys.argv[1:]:
            continue
        ran = subprocess.run(
            [sys.executable, __file__, "--one", str(number)],
            check=True,
            capture_output=True,
            text=True,
        )
        got = json.loads(ran.stdout)
        name = case.algorithm + (f" outer={case.outer}" if case.algorithm == "hierarchical" else "")
        before = last.get(name)
        growth = (
            ["", ""]
            if before is None
            else [f"{got[key] / before[key]:.1f}" for key in ("took_s", "own_gb")]
        )
        limits = ((case.asked_s, got["took_s"], "s"), (case.asked_gb, got["gb"], "GB"))
        asked = [
            f"{most:g} {unit}: {'reached' if it <= most else 'missed'}"
            for most, it, unit in limits
            if most
        ]
        print(
            f"{f'{name} {case.nodes:,} x {case.ranks_per_node}':<44}{got['messages']:>14,.0f}{got['import_s']:>10.2f}"
            f"{got['took_s']:>9.2f}{growth[0]:>8}{got['gb']:>7.2f}{growth[1]:>8}  {', '.join(asked)}",
            flush=True,
        )
        last[name] = got


if __name__ == "__main__":
    main()
