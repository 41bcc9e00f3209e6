"""How often ``hpccoll diagnose`` is wrong, on simulated machines: false alarms, exact culprits, slots; and other rules.

    python tests/benchmarks/diagnose_simulated.py --runs 1000 --processes 2 --out diagnose.jsonl >
    diagnose.md
    python tests/benchmarks/diagnose_simulated.py --runs 20       # a first look, in minutes

What is measured is appended to ``--out``, a line for every 100 runs of a cell: the first of all
cells, then the others, few nodes first. A call that was killed, or ended after ``--minutes``, is
continued. It ends with 1 where what is asked is missed.
"""

import argparse
import json
import math
import os
import resource
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported: a process computes on one core
sys.path.append(str(Path(__file__).parents[1]))  # simulated_machine.py

import numpy as np
from pair_rules import ALL_PAIRS, RULES, Found
from simulated_machine import Environment, SimulatedMachine, components
from tables import print_table, verdict

from hpccoll.diagnosis.procedure import MOST_NODES_OF_ALL_PAIRS, complete, diagnose
from hpccoll.diagnosis.slot_records import OF_A_RACK, Component, Integers, Kind
from hpccoll.diagnosis.transfers import DIRECTIONS

SIZES = 8, 64, 256, 1024
RACKS = {64: 8, 256: 16, 1024: 32, 4096: 32}
"""The nodes of a rack, by nodes."""

PART = 100
"""The runs after which a line is written."""

DEFAULT = "3 %, 5 % spikes"
CONTENTION = "uplinks shared by hash"
ENVIRONMENTS = {
    DEFAULT: {},
    "noise 1 %": {"noise": 0.01},
    "noise 6 %": {"noise": 0.06},
    "15 % spikes": {"spikes": 0.15},
    "drift of 5 % a slot": {"drift": 0.05},
    "nodes differ by 1 %": {"spread": 0.01},
    CONTENTION: {"uplinks": True},
}
"""How times vary, and other than by default."""

HEALTHY, LEAST, TEN = (
    "healthy",
    "node by the smallest effect, in any direction",
    "ten nodes by 20 %",
)
FAULTS: dict[str, tuple[Kind, float]] = {
    "node by 5 %": ("node", 5),
    "node by 10 %": ("node", 10),
    "node by 20 %": ("node", 20),
    "send by 10 %": ("send", 10),
    "receive by 10 %": ("receive", 10),
    "link by 20 %": ("link", 20),
    "uplink by 20 %": ("uplink", 20),
    "rack by 20 %": ("rack", 20),
    TEN: ("node", 20),
}
"""The kind of a fault, and by how many per cent the rate is lower."""

OURS = "hpccoll"
COMPARED = HEALTHY, "node by 5 %", "node by 10 %", "node by 20 %"
COMPARED_SIZES = 64, 1024
"""The faults and nodes with which other rules are compared."""

MOST_ALARMS = 0.01
LEAST_EXACT = {
    "node by 5 %": {64: 0.85, 256: 0.85, 1024: 0.85},
    "node by 10 %": {8: 0.97, 64: 0.99, 256: 0.99, 1024: 0.99},
    "send by 10 %": dict.fromkeys(SIZES, 0.97),
    "receive by 10 %": dict.fromkeys(SIZES, 0.97),
    "link by 20 %": {8: 0.85, 64: 0.97, 256: 0.97, 1024: 0.97},
    "uplink by 20 %": {64: 0.97, 256: 0.97, 1024: 0.97},
    "rack by 20 %": {64: 0.97, 256: 0.97, 1024: 0.97},
    TEN: {1024: 0.97},
}
"""The share of runs with the exact culprit that is asked, by fault and nodes."""

MOST_SLOTS = {64: 110, 4096: 60}
"""The mean number of slots that is asked, by nodes; up to 64 nodes with links."""

SHOWN_SLOTS = HEALTHY, "node by 5 %", "node by 10 %", "link by 20 %", "rack by 20 %"


class Cell(NamedTuple):
    """One kind of machine, and a rule."""

    nodes: int
    environment: str
    fault: str
    rule: str

    def run(self, number: int) -> dict[str, float]:
        """Return what the rule says of one machine."""
        rng = np.random.default_rng([zlib.crc32(repr(self).encode()), number])
        options = dict(ENVIRONMENTS[self.environment])
        rack = RACKS.get(self.nodes, 0)
        if options.get("uplinks"):
            options["uplinks"] = rack
        environment = Environment(rack=rack, **options)
        machine = SimulatedMachine(self.nodes, environment, self.faults(environment, rng), rng)
        found, slots = self.judge(machine, number)
        truth, right = set(machine.faults), also_right(machine.faults, machine.racks)
        exact = bool(found) and found <= right if self.fault == LEAST else found == truth
        return {"exact": exact, "wrong": bool(found - truth - right), "slots": slots}

    def faults(
        self, environment: Environment, rng: np.random.Generator
    ) -> list[tuple[Component, float]]:
        if self.fault == HEALTHY:
            return []
        if self.fault == LEAST:  # which a healthy machine names
            healthy = SimulatedMachine(self.nodes, environment, [], rng)
            named = complete(
                diagnose(self.nodes, seed=0, racks=healthy.known_racks), healthy.measure
            ).smallest_effect
            return [(Component("node", (int(rng.integers(self.nodes)),)), 100 * (1 - 1 / named))]
        kind, percent = FAULTS[self.fault]
        places = self.nodes // RACKS[self.nodes] if kind in OF_A_RACK else self.nodes
        where = rng.choice(
            places, 2 if kind == "link" else 10 if self.fault == TEN else 1, replace=False
        ).tolist()
        if kind == "link":
            return [(Component(kind, tuple(sorted(where))), percent)]
        return [(Component(kind, (each,)), percent) for each in where]

    def judge(self, machine: SimulatedMachine, seed: int) -> Found:
        if self.rule != OURS:
            return RULES[self.rule](machine)
        links = True if self.fault.startswith("link") else None
        found = complete(
            diagnose(self.nodes, seed=seed, racks=machine.known_racks, links=links), machine.measure
        )
        return components(found), found.slots


def also_right(faults: Iterable[Component], racks: Integers) -> set[Component]:
    """Return what is not wrong, though not exact: other directions of slow nodes, and nodes of a slow rack."""
    nodes = set[int]()
    for fault in faults:
        if fault.kind == "rack":
            nodes.update(np.flatnonzero(np.isin(racks, fault.where)).tolist())
        elif fault.kind in DIRECTIONS:
            nodes.update(fault.where)
    return {Component(kind, (node,)) for node in nodes for kind in DIRECTIONS}


def cells() -> Iterator[tuple[Cell, float]]:
    """Yield all cells, and the share of ``--runs`` of each: few of those that take long."""
    for nodes in SIZES:
        around = [each for each in ENVIRONMENTS if each != CONTENTION or nodes in RACKS]
        yield from ((Cell(nodes, each, HEALTHY, OURS), 1) for each in around)
        faults = [each for each, asked in LEAST_EXACT.items() if nodes in asked]
        for fault in (*faults, LEAST):
            yield (
                Cell(nodes, DEFAULT, fault, OURS),
                0.1 if (nodes, fault) == (1024, "link by 20 %") else 1,
            )
    for fault in (HEALTHY, "node by 10 %"):
        yield Cell(4096, DEFAULT, fault, OURS), 0.1
    yield Cell(4096, DEFAULT, "link by 20 %", OURS), 0.002
    for nodes in COMPARED_SIZES:
        yield Cell(nodes, DEFAULT, "node by 20 %", OURS), 0.2
        for rule in RULES:
            share = 0.02 if nodes == 1024 and rule in ALL_PAIRS else 0.2
            yield from ((Cell(nodes, DEFAULT, fault, rule), share) for fault in COMPARED)


class Part(NamedTuple):
    """Some runs of a cell."""

    cell: Cell
    first: int
    runs: int

    def measure(self) -> dict[str, object]:
        """Return the record of these runs."""
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory starts anew
        start = time.process_time()
        got = [self.cell.run(number) for number in range(self.first, self.first + self.runs)]
        return {
            **self.cell._asdict(),
            "first": self.first,
            "runs": self.runs,
            **{name: sum(each[name] for each in got) for name in ("exact", "wrong", "slots")},
            "most_slots": max(each["slots"] for each in got),
            "cpu_s": time.process_time() - start,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def parts(runs: int) -> Iterator[Part]:
    """Yield what is to be measured for a number of runs in each cell."""
    for cell, share in cells():
        wanted = max(1, round(runs * share))
        for first in range(0, wanted, PART):
            yield Part(cell, first, min(PART, wanted - first))


Record = dict[str, float]


def totals(lines: list[str]) -> dict[Cell, Record]:
    """Return the sums over the records of each cell."""
    found: dict[Cell, Record] = {}
    for record in map(json.loads, lines):
        cell = Cell(*(record[name] for name in Cell._fields))
        total = found.setdefault(cell, defaultdict(float))
        for name in ("runs", "exact", "wrong", "slots", "cpu_s"):
            total[name] += record[name]
        for name in ("most_slots", "peak_mib"):
            total[name] = max(total[name], record[name])
    return found


def share(total: Record | None, *names: str) -> str:
    """Return shares of the runs in per cent, and how many runs there were."""
    if total is None:
        return ""
    shares = (f"{100 * total[name] / total['runs']:.1f}" for name in names)
    return f"{' / '.join(shares)} ({total['runs']:.0f})"


def print_tables(found: dict[Cell, Record]) -> None:
    print("# How often `hpccoll diagnose` is wrong: simulated machines\n")
    print(
        "A cell has per cent of runs, and in brackets how many runs there were.\n\n## False alarms\n"
    )

    def shown(nodes: int, environment: str, fault: str, rule: str = OURS) -> str:
        names = ["wrong"] if fault == HEALTHY else ["exact", "wrong"]
        return share(found.get(Cell(nodes, environment, fault, rule)), *names)

    sizes = [f"{nodes} nodes:" for nodes in SIZES]
    alarms = [
        [around, *(shown(nodes, around, HEALTHY) for nodes in SIZES)] for around in ENVIRONMENTS
    ]
    print_table(["healthy machine", *sizes], alarms)
    print("## Exact culprit / something healthy accused\n")
    culprits = [
        [fault, *(shown(nodes, DEFAULT, fault) for nodes in SIZES)]
        for fault in (*LEAST_EXACT, LEAST)
    ]
    print_table(["slow", *sizes], culprits)
    print("## Slots, and what planning, fitting, deciding and the simulation take in one process\n")
    slots = [
        [
            *(
                cell.nodes,
                cell.fault,
                f"{total['slots'] / total['runs']:.0f}",
                f"{total['most_slots']:.0f}",
            ),
            *(f"{total['cpu_s'] / total['runs']:.2f}", f"{total['peak_mib']:.0f}"),
        ]
        for cell, total in found.items()
        if (cell.rule, cell.environment) == (OURS, DEFAULT) and cell.fault in SHOWN_SLOTS
    ]
    print_table(
        ["nodes:", "slow", "mean slots:", "most slots:", "CPU seconds:", "peak MiB:"], slots
    )
    print(
        "## Other rules: exact culprit / something healthy accused; of a healthy machine, alarms\n"
    )
    rules = [
        [
            *(rule, nodes, *(shown(nodes, DEFAULT, fault, rule) for fault in COMPARED)),
            f"{total['slots'] / total['runs']:.0f}",
        ]
        for nodes in COMPARED_SIZES
        for rule in (*RULES, OURS)
        if (total := found.get(Cell(nodes, DEFAULT, HEALTHY, rule)))
    ]
    print_table(["rule", "nodes:", *(f"{fault}:" for fault in COMPARED), "slots:"], rules)


def print_verdicts(found: dict[Cell, Record]) -> bool:
    """Print what is asked and was measured, and return whether all of it is reached."""
    print("## What is asked\n")
    reached = []
    for cell, total in found.items():
        if cell.rule != OURS:
            continue
        name, runs = f"{cell.nodes} nodes, {cell.environment}, {cell.fault}", total["runs"]
        if cell.fault == HEALTHY:
            got = total["wrong"] / runs
            reached.append(
                verdict(
                    f"{name}: alarms at most {MOST_ALARMS:.0%}", f"{got:.1%}", got <= MOST_ALARMS
                )
            )
        if (least := LEAST_EXACT.get(cell.fault, {}).get(cell.nodes)) is not None:
            got = total["exact"] / runs
            reached.append(
                verdict(f"{name}: exact at least {least:.0%}", f"{got:.1%}", got >= least)
            )
        searches_links = cell.fault.startswith("link") and cell.nodes > MOST_NODES_OF_ALL_PAIRS
        if (
            cell.environment == DEFAULT
            and not searches_links
            and (most := MOST_SLOTS.get(cell.nodes))
        ):
            got = total["slots"] / runs
            reached.append(verdict(f"{name}: slots at most {most}", f"{got:.0f}", got <= most))
    return all(reached)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=20, help="runs of a cell; those that take long have fewer [20]"
    )
    parser.add_argument("--processes", type=int, default=1, help="processes at once [1]")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="after which it prints what it has [no limit]",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("diagnose_simulated.jsonl"), help="where records are added"
    )
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    asked.out.touch()
    # a killed call may have left a part of a line
    whole, newline, _ = asked.out.read_text().rpartition("\n")
    asked.out.write_text(whole + newline)
    wanted = sorted(
        parts(asked.runs), key=lambda part: (part.first > 0, part.cell.nodes, part.first)
    )
    names = [*Cell._fields, "first", "runs"]
    by_part = {tuple(json.loads(line)[name] for name in names): line for line in whole.splitlines()}
    missing = [part for part in wanted if (*part.cell, part.first, part.runs) not in by_part]
    with get_context("spawn").Pool(asked.processes) as pool, asked.out.open("a") as file:
        for record in pool.imap_unordered(Part.measure, missing):
            line = json.dumps(record)
            print(line, file=file, flush=True)
            by_part[tuple(record[name] for name in names)] = line
            print(f"{len(missing)} parts: {line}", file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    found = totals(
        [by_part[key] for part in wanted if (key := (*part.cell, part.first, part.runs)) in by_part]
    )
    measured = ((found[cell], share) for cell, share in cells() if cell in found)
    seconds = sum(
        total["cpu_s"] / total["runs"] * max(1, 1000 * share) for total, share in measured
    )
    print(f"1000 runs of a cell would take {seconds / 3600:.1f} h of one core", file=sys.stderr)
    print_tables(found)
    return 0 if print_verdicts(found) else 1


if __name__ == "__main__":
    sys.exit(main())
