"""Predicted times beside LogGOPSim's, on the same parameters: ``show --format goal`` is what both simulate.

LogGOPSim is built as its README says; its programs are not part of hpccoll. All times are in
picoseconds there, because G is an integer. Every rank has a port of its own, whatever node it is
on: LogGOPSim knows no nodes.

    python tests/benchmarks/loggopsim.py DIRECTORY    # that of LogGOPSim and txt2bin: about 20 s
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hpccoll.cases.requested_schedule import requested_operation
from hpccoll.common.units import format_seconds, format_size
from hpccoll.extensions.plans.goal import goal_texts
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.simulation import AlgorithmSimulation

LATENCY, OVERHEAD, GAP, BYTE, FOLD = 1_000_000, 100_000, 50_000, 80, 100
"""L, o, g, G, and the time of a reduced byte, in picoseconds."""
ONE_AT_ONCE = (
    ("all_reduce", "ring", 1), ("all_reduce", "rabenseifner", 1), ("all_reduce", "recursive_doubling", 1),
    ("all_reduce", "swing", 1), ("all_reduce", "double_binary_tree", 1), ("all_reduce", "hierarchical", 4),
    ("all_gather", "bruck", 1), ("all_gather", "pat", 1), ("broadcast", "binomial", 1),
)  # fmt: skip
"""Algorithms with the ranks on each node; on powers of two, a rank of them sends and receives one message at once."""
SEVERAL = (
    ("all_reduce", "rabenseifner", 6), ("all_reduce", "recursive_doubling", 6), ("all_reduce", "double_binary_tree", 6),
    ("broadcast", "binomial", 6), ("all_reduce", "direct", 8), ("all_reduce", "bidirectional_ring", 8),
    ("all_reduce", "torus", 8),
)  # fmt: skip
"""Algorithms with the ranks on which a rank has several messages in flight, or its receiver is not ready."""
SIZES = 1 << 10, 1 << 20


class Times(NamedTuple):
    """The time of an operation by ``predict`` and by LogGOPSim, in seconds."""

    predicted: float
    theirs: float

    def __str__(self) -> str:
        """Return both times and their ratio, as cells of a table."""
        return f"{format_seconds(self.predicted)} | {format_seconds(self.theirs)} | {self.predicted / self.theirs:.4f}"


def machine(ranks_per_node: int) -> MachineFile:
    """Return the parameters of LogGOPSim as a machine."""
    second = 1e12
    costs = {
        "latency_s": LATENCY / second,
        "overhead_s": OVERHEAD / second,
        "gap_s": GAP / second,
        "bytes_per_s": second / BYTE,
    }
    return MachineFile.of(
        name="LogGP",
        kind="described",
        layout={"ranks_per_node": ranks_per_node},
        tiers={"node": costs, "rack": costs},
        reduction={"float32": {"bytes_per_s": second / FOLD}},
    )


def times(
    programs: Path, family: str, name: str, ranks: int, ranks_per_node: int, nbytes: int
) -> Times:
    """Return the times of an algorithm in one channel.

    Raises:
        RuntimeError: if LogGOPSim does not end, which its exit code does not say.
    """
    one_channel = {"channels": 1}
    described = machine(ranks_per_node)
    layout = described.layout(ranks // ranks_per_node)
    simulation = AlgorithmSimulation(
        described, family, name, one_channel, lambda _: layout, dtype="float32"
    )
    predicted = simulation.times(nbytes).seconds["value"]
    operation = requested_operation(name, family, layout, nbytes, parameters=one_channel)
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "a.goal"), Path(folder, "a.bin")
        text.write_text(
            "".join(
                goal_texts(
                    operation.schedules, operation.cut, window=operation.window, fold_cost=FOLD
                )
            )
        )
        subprocess.run(
            [programs / "txt2bin", "-i", text, "-o", binary], check=True, capture_output=True
        )
        parameters = {"L": LATENCY, "o": OVERHEAD, "g": GAP, "G": BYTE, "S": (1 << 31) - 1}
        options = [word for key, value in parameters.items() for word in (f"-{key}", str(value))]
        ran = subprocess.run(
            [programs / "LogGOPSim", "-f", binary, "-b", *options],
            check=True,
            capture_output=True,
            text=True,
        )
    _, found, rest = ran.stdout.partition("Maximum finishing time at host ")
    if not found:
        raise RuntimeError(f"LogGOPSim has not ended: {ran.stdout[-300:]}")
    return Times(predicted, int(rest.split(": ")[1].split()[0]) / 1e12)


def main() -> None:
    programs = Path(sys.argv[1])
    heads = " | ".join(f"{format_size(size)}: predict | LogGOPSim | ratio" for size in SIZES)
    print(
        f"| collective | algorithm | ranks | {heads} |\n| --- | --- | --: |"
        + " --: |" * 3 * len(SIZES)
    )
    rows = [(*each, ranks) for each in ONE_AT_ONCE for ranks in (8, 16, 64)]
    rows += [(family, name, 1, ranks) for family, name, ranks in SEVERAL]
    for family, name, ranks_per_node, ranks in rows:
        found = (times(programs, family, name, ranks, ranks_per_node, size) for size in SIZES)
        print(f"| {family} | {name} | {ranks} | {' | '.join(map(str, found))} |", flush=True)


if __name__ == "__main__":
    main()
