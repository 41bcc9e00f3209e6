"""The algorithms of the last years beside those of before, on eight hosts in two racks that share few wires.

By hand, as root, on an idle machine, about 70 minutes:

    python tests/benchmarks/trees.py --keep DIR            # prints the tables of results/golden/trees.md
    python tests/benchmarks/trees.py --read DIR            # from raw files that were kept

*aligned* is the sweep of workflows/config/trees.yaml: ranks 0 to 3 are in one rack, 4 to 7 in the
other one. In *shifted*, ranks 0, 1, 6 and 7 share a rack. A ratio is the time of the fastest
algorithm of before, over that of the new one: the median over the rounds.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import yaml
from tables import Times, print_table, ratio, ratios, verdict
from testbed_bench import ROOT, run_settings, run_sweep, run_testbed

from hpccoll.analysis.setting import Choice
from hpccoll.cases.requested_schedule import requested_schedule
from hpccoll.common.units import format_seconds, format_size
from hpccoll.render.pictures.schedule_text import rack_lines
from hpccoll.render.pictures.schedule_view import ScheduleView, view_of
from hpccoll.store.load_results import read_results

NEW = "bine", "knomial", "recursive_multiplying", "pat"
RACKS = {"aligned": (0, 0, 0, 0, 1, 1, 1, 1), "shifted": (0, 0, 1, 1, 1, 1, 0, 0)}
SHAPES = {"aligned": (7, 8), "shifted": (7, 4)}
SHIFTED_HOSTS = [f"n{number}" for number in (3, 4, 5, 6, 7, 8, 1, 2)]
SHIFTED = {
    "all_reduce": "bine,recursive_doubling,rabenseifner,swing,ring",
    "all_gather": "bine,recursive_doubling,bruck,ring",
    "reduce_scatter": "bine,recursive_halving,ring",
    **dict.fromkeys(("broadcast", "reduce", "gather", "scatter"), "bine,binomial"),
}
EFFORT = "-b 1K -e 4M -f 16 --in-place -w 1 --rounds 3 --seconds 0.3"


def measure(name: str, keep: Path) -> None:
    """Measure one order of ranks on a testbed of its own."""
    run_testbed(
        "up",
        "--nodes",
        "8",
        "--cpus",
        "1",
        "--rate",
        "1gbit",
        "--racks",
        "2",
        "--uplink",
        "200mbit",
    )
    try:
        if name == "aligned":
            run_sweep(
                name,
                yaml.safe_load((ROOT / "workflows" / "config" / "trees.yaml").read_text()),
                keep,
            )
            return
        hosts = keep / "hosts"
        hosts.write_text("".join(f"{host}\n" for host in SHIFTED_HOSTS))
        (keep / name).mkdir(exist_ok=True)
        for collective, algorithms in SHIFTED.items():
            command = (
                f"srun -n 8 --distribution=arbitrary --mpi=pmi2 hpccoll run "
                f"-c {collective} -a {algorithms} {EFFORT}"
            )
            out = keep / name / f"{collective}.h5"
            run_testbed(
                "run",
                *command.split(),
                "--out",
                str(out),
                environment={"SLURM_HOSTFILE": str(hosts)},
            )
    finally:
        run_testbed("down", check=False)


def times_of(name: str, keep: Path) -> Mapping[str, Mapping[int, Mapping[str, Times]]]:
    """Return the times of each collective, size and choice."""
    found: dict[str, dict[int, dict[str, Times]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_results([keep / name]).rows:
        rounds = tuple(time for time in row.round_medians_s if time)
        if row.status == "ok" and rounds:
            found[row.collective][row.bytes][Choice.of(row).name] = rounds
    return found


def show(name: str, keep: Path) -> Iterator[bool]:
    """Print how fast each new algorithm is, what leaves a rack, and yield whether all sizes are there."""
    found = times_of(name, keep)
    sizes = sorted({nbytes for of_size in found.values() for nbytes in of_size})
    rows, traffic = list[tuple[str, ...]](), list[tuple[str, str]]()
    for collective, of_size in sorted(found.items()):
        best = {nbytes: fastest_of_before(times) for nbytes, times in of_size.items()}
        cells = (
            f"{best[each]} {format_seconds(median(of_size[each][best[each]]))}" for each in sizes
        )
        rows.append((collective, "fastest of before", *cells))
        algorithms = {choice.split()[0] for times in of_size.values() for choice in times}
        for new in (each for each in NEW if each in algorithms):
            rows.append(("", new, *(compared(new, of_size[each], best[each]) for each in sizes)))
        most = {
            each: most_from_a_rack(each, collective, RACKS[name])
            for each in algorithms - {"native"}
        }
        ordered = sorted(most, key=lambda each: (most[each], each))
        traffic.append((collective, ", ".join(f"{each} {most[each]:g}" for each in ordered)))
    print(f"\n## {name}\n")
    print_table(("collective", "algorithm", *(f"{format_size(each)}:" for each in sizes)), rows)
    print_table(("collective", "the most that leaves a rack, in S"), traffic)
    yield verdict(
        f"{name}: collectives, sizes",
        f"{len(found)}, {len(sizes)}",
        (len(found), len(sizes)) == SHAPES[name],
    )


def fastest_of_before(times: Mapping[str, Times]) -> str:
    """Return the choice with the smallest median over rounds, of those that are not new."""
    return min(
        (each for each in times if each.split()[0] not in NEW), key=lambda each: median(times[each])
    )


def compared(new: str, times: Mapping[str, Times], best: str) -> str:
    """Return how many times as fast a new algorithm is, with its best parameters; bold: it is faster in each round."""
    own = {
        choice: ratio(times[best], each)
        for choice, each in times.items()
        if choice.split()[0] == new
    }
    choice = max(own, key=lambda each: own[each])
    mark = "**" * (min(ratios(times[best], times[choice])) > 1)
    parameters = choice.partition("=")[2]
    return f"{mark}{own[choice]:.2f}{mark}{parameters and f' ({parameters})'}"


def most_from_a_rack(algorithm: str, collective: str, racks: tuple[int, ...]) -> float:
    """Return how many S an algorithm sends out of the rack that sends most, with its parameters by default."""
    layout = replace(view_of(algorithm, collective, len(racks), racks="2").layout, rack=racks)
    call, registered, slices = requested_schedule(
        algorithm, collective, layout, root=None, parameters={}
    )
    (line,) = rack_lines(ScheduleView(call, slices, algorithm, registered.title, None))
    return float(line.rpartition(": ")[2].removesuffix(" S"))


if __name__ == "__main__":
    sys.exit(run_settings(__doc__ or "", RACKS, measure, show))
