"""How the cost of proofs, of ``show`` and of predictions grows with the number of ranks.

Each point runs in a process of its own. CPU seconds are user and system time without the imports;
MiB is the most memory; the exponent is that of the growth of the CPU seconds since the point
before.

    python tests/benchmarks/growth_schedule.py            # some minutes
    python tests/benchmarks/growth_schedule.py proof      # one stage
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable

NBYTES = 16 << 20
PER_NODE = 8


def proof(p: int, algorithm: str = "ring", collective: str = "all_reduce") -> None:
    """Prove an algorithm for p ranks."""
    from hpccoll.cases.algorithm_registry import COLLECTIVES
    from hpccoll.schedule import Layout, out_of_place
    from hpccoll.schedule.prove import prove

    family = COLLECTIVES[collective]
    call = family.call(p)
    slices = call.slices(family.algorithm(algorithm), Layout.of(p))
    placed = slices if family.in_place else [out_of_place(call, each) for each in slices]
    prove(call, placed, in_place=family.in_place)


def show_text(p: int, algorithm: str = "ring", collective: str = "all_reduce") -> None:
    """Describe an algorithm for p ranks as ``hpccoll show`` does."""
    from hpccoll.render.pictures.schedule_text import describe
    from hpccoll.render.pictures.schedule_view import view_of

    describe(view_of(algorithm, collective, p))


def predict(algorithm: str, collective: str, p: int) -> None:
    """Predict the time of an algorithm on p ranks of ``8xh100-400g``, with its interval."""
    from hpccoll.model.machine_file import read_machine
    from hpccoll.model.predict import Request
    from hpccoll.model.predict import predict as predictions

    request = Request([p // PER_NODE], [NBYTES], collective, [algorithm])
    found = predictions(read_machine("8xh100-400g", "--cluster"), request).predictions
    if not any(each.algorithm == algorithm for each in found):
        raise SystemExit(f"{algorithm} on {p} ranks is not predicted")


PROVEN = (
    ("ring", "all_reduce"), ("recursive_doubling", "all_reduce"), ("rabenseifner", "all_reduce"),
    ("pairwise", "all_to_all"), ("bruck", "all_to_all"), ("pairwise", "all_to_all_v"),
)  # fmt: skip
PREDICTED = (
    ("bidirectional_ring", "all_reduce"), ("double_binary_tree", "all_reduce"), ("direct", "all_reduce"),
    ("pairwise", "all_to_all"), ("sharp_emulated", "all_reduce"),
)  # fmt: skip


def points() -> dict[str, list[tuple[str, Callable[[int], None], tuple[int, ...]]]]:
    """Return the stages, each with its rows: a name, what runs, and the numbers of ranks."""
    proven = [
        (
            f"{collective} {algorithm}",
            lambda p, a=algorithm, c=collective: proof(p, a, c),
            (128, 256, 512, 1024),
        )
        for algorithm, collective in PROVEN
    ]
    shown = [
        (f"all_reduce {algorithm}", lambda p, a=algorithm: show_text(p, a), (128, 512, 1024, 4096))
        for algorithm in ("ring", "recursive_doubling")
    ]
    predicted = [
        (
            f"{collective} {algorithm}",
            lambda p, a=algorithm, c=collective: predict(a, c, p),
            (256, 4096, 65536),
        )
        for algorithm, collective in PREDICTED
    ]
    large = [
        (
            f"all_reduce {algorithm}",
            lambda p, a=algorithm: predict(a, "all_reduce", p),
            (65536, 1 << 20),
        )
        for algorithm in ("ring", "hierarchical")
    ]
    return {"proof": proven, "show_text": shown, "predict": [*predicted, *large]}


def measured(stage: str, row: int, p: int) -> tuple[float, float] | None:
    """Return the CPU seconds and the MiB of a point, run in a process of its own; None if it fails."""
    command = [sys.executable, __file__, stage, str(row), str(p)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        return None
    cpu, mib = child.stdout.split()
    return float(cpu), float(mib)


def run_point(stage: str, row: int, p: int) -> None:
    import hpccoll.model.predict
    import hpccoll.render.pictures.schedule_text  # noqa: F401 - not part of what is measured

    _, run, _ = points()[stage][row]
    before = time.process_time()
    run(p)
    cpu = time.process_time() - before
    print(cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    if len(sys.argv) == 4:
        run_point(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        return
    print(
        "| stage | what | ranks | CPU s | MiB | exponent |\n| --- | --- | --- | --- | --- | --- |"
    )
    for stage, rows in points().items():
        for row, (name, _, counts) in enumerate(
            rows if stage in sys.argv[1:] or len(sys.argv) == 1 else []
        ):
            last = None
            for p in counts:
                point = measured(stage, row, p)
                if point is None:
                    print(f"| {stage} | {name} | {p:,} | failed | | |", flush=True)
                    break
                exponent = (
                    f"{math.log(point[0] / last[1]) / math.log(p / last[0]):.1f}" if last else ""
                )
                print(
                    f"| {stage} | {name} | {p:,} | {point[0]:.2f} | {point[1]:.0f} | {exponent} |",
                    flush=True,
                )
                last = p, point[0]


if __name__ == "__main__":
    main()
