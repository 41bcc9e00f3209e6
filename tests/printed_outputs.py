"""Correct outputs of nccl-tests, OSU and IMB, made at random from a seed, and the results that each has.

The formats are those of nccl-tests 2.19 and before (src/util.cu), of OSU 5.3.2, 7.0 and 7.4
(osu_coll.c, util/osu_util_mpi.c) and of IMB 2.3 to 2021.11 (IMB_g_info.c, IMB_output.c). A table
has at least four lines: the last digit of a single line could be lost without a trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

BUSBW: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1,
    "reduce_scatter": lambda n: (n - 1) / n,
    "reduce": lambda _: 1,
    "all_to_all": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
}
"""The factor between the two bandwidths that nccl-tests prints, of each collective on n ranks."""

PREFIXES = (
    "",
    "",
    "",
    "0: ",
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "[0] ",
    "2024-03-01T10:00:00.123456789Z ",
    "job-0 | ",
)
NOISE = (
    "srun: job 4711 has been allocated resources",
    "[node-a:1234] mca: bml: Using self btl for send to node-a",
    "",
)


@dataclass(frozen=True)
class Printed:
    """One result as the program printed it; ``busbw`` in GB/s is known of nccl-tests only."""

    collective: str
    ranks: int
    nodes: int
    bytes: int
    in_place: bool
    seconds: float
    busbw: float | None = None


@dataclass(frozen=True)
class Output:
    """An output, what a user says about it, and its results."""

    suite: str
    text: str
    given: dict[str, object]
    results: tuple[Printed, ...]
    ranks: int
    nodes: int
    prefix: str


def output_of_seed(seed: int, suite: str) -> Output:
    """Return the output of a suite that a seed makes."""
    return output(Random(f"{suite} {seed}"), suite)  # noqa: S311  no secret


def output(random: Random, suite: str, like: Output | None = None) -> Output:
    """Return an output of a suite, a key of ``SUITES``; of the ranks, nodes and prefix of another one, if given."""
    nodes = like.nodes if like else random.choice([1, 2, 3, 4])
    ranks = like.ranks if like else nodes * random.choice([2, 4, 8])
    prefix = like.prefix if like else random.choice(PREFIXES)
    lines, given, results = SUITES[suite](random, ranks, nodes)
    text = "".join(f"{prefix}{line}\n" for line in lines)
    if not prefix:
        text = random.choice(NOISE) + "\n" + text
    return Output(suite, text, given, tuple(results), ranks, nodes, prefix)


def times(random: Random, sizes: Sequence[int], rate: float = 20e3) -> list[float]:
    """Return times in microseconds, rounded to two digits after the point."""
    return [
        round((random.uniform(2, 9) + size / rate) * random.uniform(0.9, 1.1), 2) for size in sizes
    ]


def number(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it: with as many digits after the point, up to two, as there is room."""
    return next(
        (text for digits in (2, 1, 0) if len(text := f"{value:{width}.{digits}f}") <= width),
        f"{value:.1e}",
    )


def nccl_tests(random: Random, ranks: int, nodes: int):
    name = random.choice(list(BUSBW))
    version = random.choice(["", "2.17.4", "2.19.6", "2.20.0 (b4d5bee)"])
    kind, itemsize = random.choice(
        [("float", 4), ("half", 2), ("double", 8), ("bfloat16", 2), ("int32", 4)]
    )
    redop = random.choice(["sum", "max"]) if "reduce" in name else "none"
    smallest = 1 << random.randrange(10, 16)
    sizes = [smallest << step for step in range(random.randrange(4, 12))]
    whole = (each - each % (itemsize * ranks) for each in sizes)
    us = {size: times(random, [size, size], 100e3) for size in whole}
    lines, results = nccl_tests_table(
        name, us, ranks, nodes, version=version, kind=(kind, itemsize), redop=redop
    )
    given = {} if version else {"program": lines[-1].rpartition(" ")[2]}
    return lines if version else lines[:-1], given, results


def nccl_tests_output(rates, *, name="all_reduce", ranks=16, nodes=2):
    """Return an output of nccl-tests whose bus bandwidths in GB/s are ``rates``, by size, in both placements."""
    us = {size: [size * BUSBW[name](ranks) / rate / 1e3] * 2 for size, rate in rates.items()}
    lines, _ = nccl_tests_table(name, us, ranks, nodes)
    return "".join(f"{line}\n" for line in lines)


def nccl_tests_table(name, us, ranks, nodes, *, version="2.17.6", kind=("float", 4), redop="sum"):
    """Return the lines of an output of nccl-tests, and its results; ``us``: the times of both placements by size."""
    root = "0" if name in ("broadcast", "reduce", "gather", "scatter") else "-1"
    program, itemsize, sizes = (
        f"{'alltoall' if name == 'all_to_all' else name}_perf",
        kind[1],
        [*us],
    )
    lines = (
        [
            f"# nccl-tests version {version} nccl-headers=22707 nccl-library=22707",
            f"# Collective test starting: {program}",
        ]
        if version
        else []
    )
    lines += [
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0" + (" unalign: 0" if version else ""),
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        node, device = divmod(rank, ranks // nodes)
        place = f"on {f'node-{node}':>10} device {device:2} [0000:{device:02x}:00] NVIDIA H100 80GB HBM3"
        lines.append(f"#  Rank {rank:2} Group {0:2} Pid {31000 + rank:6} {place}")
    wrong = 6 if version else 5
    one = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6} {'#wrong':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6} {'':>6}"
    lines += [
        "#",
        f"# {'':52}         out-of-place                       in-place          ",
        f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{one}{one}",
        f"# {'(B)':>10}  {'(elements)':>12}  {'':24}{units}{units}",
    ]
    results = []
    factor = BUSBW[name](ranks)
    for size, both in us.items():
        blocks = (
            ranks
            if name in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
            else 1
        )
        line = f"{size:12}  {size // itemsize // blocks:12}  {kind[0]:>8}  {redop:>6}  {root:>6}"
        for in_place, time in enumerate(both):
            algbw = size / time / 1e3
            busbw = number(algbw * factor, 6)
            line += f"  {number(time, 7):>7}  {number(algbw, 6):>6}  {busbw:>6}  {0:>{wrong}}"
            results.append(
                Printed(name, ranks, nodes, size, bool(in_place), time * 1e-6, float(busbw))
            )
        lines.append(line)
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 7.95500 ", "#"]
    return [*lines, f"# Collective test concluded: {program}"], results


OSU_TESTS = {
    "Allreduce": ("all_reduce", False), "Reduce": ("reduce", False), "Broadcast": ("broadcast", False),
    "Allgather": ("all_gather", True), "Allgatherv": ("all_gather", True), "Gather": ("gather", True),
    "Scatter": ("scatter", True), "Reduce_scatter": ("reduce_scatter", False),
    "All-to-All Personalized Exchange": ("all_to_all", True),
}  # fmt: skip
"""The collective of each program of OSU, and whether its size is that of a block."""


def osu(random: Random, ranks: int, nodes: int):
    version, width = random.choice(
        [("5.3.2", 18), ("5.6.3", 18), ("7.0", 20), ("7.4", 20), ("7.5", 20)]
    )
    device = random.choice(["", "", "-CUDA"])
    results: list[Printed] = []
    lines: list[str] = []
    for _ in range(random.randrange(1, 4)):
        make = random.choice([osu_collective, osu_collective, osu_nonblocking, osu_pair, osu_pairs])
        name, itemsize = random.choice([("MPI_CHAR", 1), ("MPI_INT", 4), ("MPI_FLOAT", 4)])
        datatype, itemsize = ([f"# Datatype: {name}."], itemsize) if version > "7.1" else ([], 4)
        title, more, heading, line_of = make(random, ranks, nodes, version, width)
        device = "" if make is osu_pairs else device
        lines += [
            "",
            f"# OSU MPI{device} {title} v{version}",
            *more,
            *datatype,
            f"{'# Size':<10}{heading}",
        ]
        if device and version < "6" and make is osu_pair:
            lines.insert(-1, "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)")
        smallest = max(itemsize, 1 << random.randrange(0, 12))
        sizes = [smallest << step for step in range(random.randrange(4, 12))]
        for size, time in zip(sizes, times(random, sizes), strict=True):
            line, result = line_of(size, time)
            lines.append(f"{size:<10}{line}")
            results.append(result)
    return lines, {"ranks": ranks, "nodes": nodes}, results


# Each returns the title of a program, the lines below it, the headings but the first, and what
# makes a line and its result from a size and a time.


def osu_collective(random, ranks, nodes, version, width):
    title, (collective, of_block) = random.choice(list(OSU_TESTS.items()))
    full, headless = random.random() < 0.5, random.random() < 0.2
    validated, tails = (
        version > "6" and random.random() < 0.3,
        version > "7.3" and random.random() < 0.3,
    )
    heading = f"{'Avg Latency(us)':>{width}}"
    if not headless:
        heading += (
            f"{'Min Latency(us)':>{width}}{'Max Latency(us)':>{width}}{'Iterations':>12}"
            if full
            else ""
        )
        heading += f"{'Validation':>{width}}" if validated else ""
        heading += (
            "".join(f"{f'P{each} Tail Lat(us)':>{width}}" for each in (50, 90, 99)) if tails else ""
        )

    def line_of(size, time):
        line = f"{time:{width}.2f}" + (
            f"{time * 0.9:{width}.2f}{time * 1.2:{width}.2f}{1000:12}" if full else ""
        )
        line += f"{'Pass':>{width}}" if validated else ""
        line += "".join(f"{time * factor:{width}.2f}" for factor in (1, 1.1, 1.3)) if tails else ""
        size *= ranks if of_block else 1
        return line, Printed(collective, ranks, nodes, size, collective == "broadcast", time * 1e-6)

    return f"{title} Latency Test", [], heading, line_of


def osu_nonblocking(random, ranks, nodes, version, width):
    title, collective, blocks = random.choice(
        [("Allreduce", "all_reduce", 1), ("Allgather", "all_gather", ranks)]
    )
    factors = {"Overall(us)": 1.4, "Compute(us)": 1.05}
    full = random.random() < 0.5
    factors |= {"Coll. Init(us)": 0.2, "MPI_Test(us)": 0, "MPI_Wait(us)": 0.15} if full else {}
    factors |= {"Pure Comm.(us)": 1}
    factors |= {"Min Comm.(us)": 0.9, "Max Comm.(us)": 1.1} if full and version > "7" else {}
    factors |= {"Overlap(%)": 0.1}

    def line_of(size, time):
        line = "".join(f"{factor * time:{width}.2f}" for factor in factors.values())
        return line, Printed(collective, ranks, nodes, size * blocks, False, time * 1e-6)

    more = ["# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait", ""]
    return (
        f"Non-blocking {title} Latency Test",
        more,
        "".join(f"{name:>{width}}" for name in factors),
        line_of,
    )


def osu_pair(random, _ranks, nodes, version, width):
    collectives = {
        "Latency": "send_recv",
        "Bandwidth": "send_recv",
        "Bi-Directional Bandwidth": "bidirectional",
    }
    title = random.choice(list(collectives))
    name = (
        "Bandwidth (MB/s)"
        if "Bandwidth" in title
        else "Avg Latency(us)"
        if version > "7.4"
        else "Latency (us)"
    )

    def line_of(size, time):
        value = time if title == "Latency" else round(size / time, 2)
        seconds = 2 * (time if title == "Latency" else size / value if value else 0) * 1e-6
        return f"{value:{width}.2f}", Printed(
            collectives[title], 2, min(nodes, 2), size, False, seconds
        )

    return f"{title} Test", [], f"{name:>{width}}", line_of


def osu_pairs(_random, ranks, nodes, _version, width):
    pairs = ranks // 2

    def line_of(size, time):
        rate = round(pairs * size / time, 2)
        seconds = pairs * size / rate * 1e-6 if rate else 0
        result = Printed("multi_pair", 2 * pairs, min(nodes, 2 * pairs), size, False, seconds)
        return f"{rate:{width}.2f}{rate * 1e6 / size:{width}.2f}", result

    more, heading = (
        [f"# [ pairs: {pairs} ] [ window size: 64 ]"],
        f"{'MB/s':>{width}}{'Messages/s':>{width}}",
    )
    return "Multiple Bandwidth / Message Rate Test", more, heading, line_of


IMB_VERSIONS = {
    " (R) MPI Benchmark Suite V3.2": True,
    " (R) MPI Benchmarks 4.0 Update 1": True,
    " (R) MPI Benchmarks 2018": True,
    " (R) MPI Benchmarks 2018 Update 1": True,
    "(R) MPI Benchmarks 2018": True,
    "(R) MPI Benchmarks 2019": True,
    "(R) MPI Benchmarks 2019 Update 1": False,
    "(R) MPI Benchmarks 2019 Update 6": False,
    "(R) MPI Benchmarks 2021.7": False,
}
"""The line of the version, and whether Reduce_scatter counts the bytes of the vector."""

IMB_BENCHMARKS = {
    "Allreduce": ("all_reduce", False), "Reduce": ("reduce", False), "Reduce_scatter": ("reduce_scatter", True),
    "Allgather": ("all_gather", True), "Alltoall": ("all_to_all", True), "Bcast": ("broadcast", False),
    "Gather": ("gather", True), "Scatter": ("scatter", True),
}  # fmt: skip


def imb(random: Random, ranks: int, nodes: int):
    version, vector = random.choice(list(IMB_VERSIONS.items()))
    checked = random.random() < 0.3
    lines = [
        "#" + 64 * "-",
        f"#    Intel{version}, MPI-1 part    ",
        "#" + 64 * "-",
        "# MPI_Datatype                   :   MPI_BYTE ",
        "# MPI_Datatype for reductions    :   MPI_FLOAT",
    ]
    results: list[Printed] = []
    names = random.sample(["PingPong", *IMB_BENCHMARKS], random.randrange(1, 5))
    for name in names:
        counts = [2] if name == "PingPong" else [n for n in (2, 4, 8, 16) if n < ranks] + [ranks]
        for count in counts:
            imb_section(random, name, count, (ranks, nodes), vector, checked, lines, results)
    lines += ["", "", "# All processes entering MPI_Finalize", ""]
    return lines, {"nodes": nodes}, results


def imb_section(random, name, count, place, vector, checked, lines, results):
    ranks, nodes = place
    pair = name == "PingPong"
    names = ["t[usec]", "Mbytes/sec"] if pair else ["t_min[usec]", "t_max[usec]", "t_avg[usec]"]
    names = ["#bytes", "#repetitions", *names, *(["defects"] if checked else [])]
    lines += ["", "#" + 51 * "-", f"# Benchmarking {name} ", f"# #processes = {count} "]
    if waiting := ranks - count:
        lines.append(
            f"# ( {waiting} additional process{'es' if waiting > 1 else ''} waiting in MPI_Barrier)"
        )
    lines += ["#" + 51 * "-", "".join(f"{each:>13}" for each in names)]
    sizes = [0, *(4 << step for step in range(random.randrange(4, 12)))]
    used = -(-count // (ranks // nodes))
    collective, of_block = ("send_recv", False) if pair else IMB_BENCHMARKS[name]
    blocks = count if of_block and not (vector and name == "Reduce_scatter") else 1
    for size, time in zip(sizes, times(random, sizes), strict=True):
        cells = [time, size / time] if pair else [time * 0.8, time * 1.1, time]
        lines.append(
            f"{size:13}{1000:13}"
            + "".join(f"{cell:13.2f}" for cell in [*cells, *([0] if checked else [])])
        )
        if size:
            seconds = (2 if pair else 1) * time * 1e-6
            results.append(
                Printed(collective, count, used, size * blocks, collective == "broadcast", seconds)
            )


SUITES = {"nccl-tests": nccl_tests, "osu": osu, "imb": imb}
