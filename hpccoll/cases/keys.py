"""One table of keys and bounds: sweep files, job files and the options of ``hpccoll run`` are declared here, once.

The rank program reads the table as it is; the models of sweep files take descriptions, bounds and
defaults from it.
"""

from collections.abc import Mapping
from typing import Any

from hpccoll.common import limits
from hpccoll.common.limits import Key
from hpccoll.common.options import Option

DEFAULT_OPERATIONS = 20
"""As many as nccl-tests queues (its option -n)."""

EFFORT: Mapping[str, Key] = {
    "warmup": Key("warm-up iterations in each round of a case, not timed", 5, limits.WARMUP),
    "min_iterations": Key(
        "fewest timed iterations of a case, over all rounds", 10, limits.ITERATIONS
    ),
    "max_iterations": Key(
        "most timed iterations of a case, over all rounds", 1000, limits.ITERATIONS
    ),
    "seconds": Key(
        "wall time of a case in seconds; its fewest iterations may take longer", 0.5, limits.SECONDS
    ),
    "precision": Key(
        "half width of the 95 % interval, relative to the median, at which a round stops",
        0.02,
        limits.PRECISION,
    ),
    "timeout": Key(
        "seconds without progress after which a rank counts as stuck", 120.0, limits.SECONDS
    ),
    "operations": Key(
        "operations of an iteration if the timing is aggregated",
        DEFAULT_OPERATIONS,
        limits.OPERATIONS,
    ),
    "loop_warmup": Key(
        "-w of nccl-tests, -x of OSU, in their timings; if left out, theirs", bound=limits.WARMUP
    ),
    "loop_iterations": Key(
        "-n of nccl-tests, -i of OSU, in their timings; if left out, theirs",
        bound=limits.ITERATIONS,
    ),
}
"""The keys of ``effort`` in a sweep file and a job file."""

SIZE_RANGE: Mapping[str, Key] = {
    "from": Key("smallest size, such as 8 or 64K (powers of 1024)", required=True),
    "to": Key("largest size; included if the factor reaches it", required=True),
    "factor": Key("ratio of one size to the one before", 2, limits.FACTOR),
}
"""The keys of a range of sizes, ``bytes`` in a sweep file."""

SWEEP: Mapping[str, Key] = {
    "workloads": Key(
        "training steps, a list of {model: resnet50, ...} with the options of 'hpccoll train'; without 'collectives' "
        "only these are measured"
    ),
    "collectives": Key("collectives, see 'hpccoll list'; all: every collective", ("all_reduce",)),
    "algorithms": Key(
        "algorithms, see 'hpccoll list'; native: the library's own; all: every algorithm of each collective; "
        "file:PLAN, from the sweep file: a schedule in a file",
        required=True,
    ),
    "devices": Key("devices of the buffers: cpu, cuda", ("cpu",)),
    "transports": Key(
        "transports: mpi, shm, tiered; on device cuda nccl, mpi (CUDA-aware), staged", ("mpi",)
    ),
    "dtypes": Key(
        "element types: int32, int64, float16, float32, float64, bfloat16 (on device cpu not for native)",
        ("float32",),
    ),
    "ops": Key("reductions: sum, prod, min, max, avg", ("sum",)),
    "bytes": Key("sizes: a list, or {from: 8, to: 4M, factor: 2}; required, except for workloads"),
    "in_place": Key("whether contribution and result share a buffer", (False, True)),
    "ranks": Key("numbers of ranks on one node, a job for each", bound=limits.RANKS_PER_NODE),
    "nodes": Key("numbers of nodes, instead of 'ranks'", bound=limits.RANKS),
    "ranks_per_node": Key(
        "with 'nodes': ranks on each node: numbers, or gpus, a rank for each GPU",
        (1,),
        limits.RANKS_PER_NODE,
    ),
    "scaling": Key(
        "with 'nodes': nested (all sizes on the first nodes of one allocation) or separate allocations",
        "nested",
    ),
    "mapping": Key(
        "rank order over racks and nodes: block (neighbours together), cyclic; if left out, as launched"
    ),
    "roots": Key("roots of rooted collectives", (0,), limits.RANK),
    "pairs": Key(
        "pairs of ranks for point to point: ends (first and last), all, or a list such as [[0, 1]]",
        "ends",
    ),
    "concurrent": Key(
        "numbers of pairs of ranks at once in multi_pair; 0: all of them", (0,), limits.RANK
    ),
    "traffic": Key(
        "block sizes of all_to_all_v: uniform, zipf, random, or a file *.csv of p x p weights",
        ("zipf",),
    ),
    "aggregators": Key(
        "ranks in addition to the workers that only aggregate; with 'nodes', each on its own host",
        0,
        limits.AGGREGATORS,
    ),
    "params": Key(
        "parameters by algorithm, each with the values to try: {ring: {channels: [1, 4]}}"
    ),
    "table": Key("table for the algorithm auto: a file of 'hpccoll tune'"),
    "variants": Key(
        "environments to compare, a job for each: {name: {VARIABLE: value}}; names of 'hpccoll list', such as "
        "openmpi-*, set their own"
    ),
    "timing": Key(
        "timings: single; over nccl and peer aggregated (operations back to back); over nccl nccl-tests; over mpi osu",
        ("single",),
    ),
    "load": Key(
        "what ranks compute meanwhile: idle (nothing), gemm (products of matrices, on device cpu)",
        ("idle",),
    ),
    "executor": Key(
        "executor of cases in host memory: compiled, python; if left out, compiled if it is built"
    ),
    "diagnose": Key(
        "with 'nodes': the nodes of each job are diagnosed before it measures; options of 'hpccoll diagnose': "
        "{links: true, racks: FILE}, or {}"
    ),
    "effort": Key("measuring time of each case"),
    "rounds": Key(
        "passes over all cases, each in another order; they share the effort", 3, limits.ROUNDS
    ),
    "seed": Key("seed of the random order of the cases", 1, limits.SEED),
}
"""The keys of a sweep file."""

DIAGNOSE: Mapping[str, Key] = {
    "links": Key("whether single slow links are looked for [up to 64 nodes]"),
    "racks": Key("file of the racks of hosts [Slurm's topology]"),
}
"""The keys of ``diagnose`` in a sweep file."""


DEFAULT_ALGORITHMS = "ring,recursive_doubling,native"
ALL = "all"
"""Selects all collectives, or all algorithms of a collective."""

LARGEST, LARGEST_OVER_NCCL = "64M", "1G"
"""The largest message sizes of ``hpccoll run``: NCCL reaches its bandwidth far above 64 MiB."""

FOR_THE_WORKFLOW = "For the workflow"
"""The group of options that sweeps and batch scripts set; the help of a command leaves it out."""

RUN_OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "What to measure": (
        Option(("-c", "--collective"), "collective", "all_reduce", metavar="NAME"),
        Option(
            ("-a", "--algorithms"), f"algorithms, file:PLAN or {ALL}", metavar="A,..",
            shown_default=f"{ALL}; for all_reduce: {DEFAULT_ALGORITHMS}",
        ),
        Option(("-t", "--transport"), "mpi, shm, tiered; on GPUs nccl, mpi, staged", "mpi", metavar="T,.."),
        Option(("--device",), "device of the buffers: cpu, cuda", "cpu", metavar="NAME"),
        Option(("-b", "--begin"), "smallest message size", "8", metavar="SIZE"),
        Option(
            ("-e", "--end"), "largest message size", shown_default=f"{LARGEST}; nccl: {LARGEST_OVER_NCCL}",
            metavar="SIZE",
        ),
        Option(("-f", "--factor"), SIZE_RANGE["factor"].help, "2", key=SIZE_RANGE["factor"], metavar="N"),
        Option(("-d", "--dtype"), "int32, int64, float16/32/64, bfloat16", "float32", metavar="TYPE"),
        Option(("-o", "--op"), "reduction: sum, prod, min, max, avg", "sum", metavar="NAME"),
        Option(
            ("-r", "--root"), "root of a rooted collective, or first rank", shown_default="0", key=SWEEP["roots"],
            metavar="RANK",
        ),
        Option(("--in-place",), "only in place", shown_default="in place and out of place", kind="flag"),
        Option(
            ("--aggregators",), "last ranks, which only aggregate (sharp_emulated)", "0", key=SWEEP["aggregators"],
            metavar="N",
        ),
        Option(("--mapping",), "rank order: block, cyclic", shown_default="as launched", metavar="M,.."),
        Option(("--load",), "computation meanwhile: idle, gemm (matrices)", "idle", metavar="L,.."),
        Option(("--param",), "parameter of the algorithms: channels=4, channels=1,4", metavar="K=V", kind="list"),
        Option(("--table",), "table of 'hpccoll tune' for the algorithm auto", metavar="T.json", kind="path"),
        Option(("--variant",), "variant of 'hpccoll list', such as nccl-ring", metavar="NAME"),
        Option(("--communicator",), "setting of an NCCL communicator, such as max_ctas=4", metavar="K=V", kind="list"),
    ),
    "How long": (
        Option(
            ("-n", "--iterations"), "timed iterations", shown_default="20 to 1000, until sure within 2 %",
            key=EFFORT["max_iterations"], metavar="N",
        ),
        Option(
            ("-w", "--warmup"), "untimed iterations before each round", shown_default=f"{EFFORT['warmup'].default}",
            key=EFFORT["warmup"], metavar="N",
        ),
        Option(("--seconds",), "wall time of a case in seconds", "1", key=EFFORT["seconds"], metavar="S"),
        Option(("--rounds",), "passes over all cases, each in another order", "3", key=SWEEP["rounds"], metavar="N"),
        Option(
            ("--timeout",), "seconds without progress until a rank is stuck", "120", key=EFFORT["timeout"], metavar="S"
        ),
    ),
    "How it runs": (
        Option(
            ("--executor",), "compiled, python", shown_default="compiled if it is built", metavar="NAME",
        ),
        Option(
            ("--timing",), "single, aggregated, nccl-tests, osu", shown_default="by transport",
            metavar="T,..",
        ),
        Option(
            ("--operations",), "operations of an aggregated iteration", f"{DEFAULT_OPERATIONS}",
            key=EFFORT["operations"], metavar="N",
        ),
        Option(("--seed",), SWEEP["seed"].help, "1", key=SWEEP["seed"], metavar="N"),
        Option(("--network",), "expected network: rdma, tcp; reports warn of another", metavar="NAME"),
        Option(("--check",), "no measurement: whether the ranks are connected", kind="flag"),
    ),
    "Output": (
        Option(("--out",), "raw file; an existing one of the same job is resumed", metavar="F.h5", kind="path"),
    ),
    FOR_THE_WORKFLOW: (
        Option(
            ("--job",), "job file of 'hpccoll plan', instead of cases and times; with --device: GPUs assigned before "
            "MPI starts", metavar="JOB.json", kind="path",
        ),
        Option(
            ("--shape",), "required shape, N nodes with K ranks each; another shape is an error",
            shown_default="any", metavar="NxK[+A]",
        ),
        Option(
            ("--hosts",), "with --shape: required hosts; other hosts are an error", shown_default="any", metavar="A,B"
        ),
        Option(
            ("--exit-zero",), "exit code 0 even if results are wrong or missing; the raw file holds the details",
            kind="flag",
        ),
        Option(
            ("--probe",), "directory for the library's logs of one untimed run of its own collectives", metavar="DIR",
            kind="path",
        ),
        Option(("--evidence",), "directory or evidence file of an earlier --probe", metavar="PATH", kind="path"),
        Option(
            ("--try-gpu-pair",), "file for whether MPI moves GPU memory between two ranks, which it may crash; with "
            "--device cuda, nothing is measured", metavar="F.json", kind="path",
        ),
        Option(("--gpu-pair",), "file of an earlier --try-gpu-pair on two nodes", metavar="F.json", kind="path"),
    ),
}  # fmt: skip
"""The options of ``hpccoll run``, by the groups of its help."""

NETWORKS = ("rdma", "tcp")
OPTION_BY_FLAG: Mapping[str, Option] = {
    flag: option for group in RUN_OPTIONS.values() for option in group for flag in option.flags
}


def read_option(flag: str, text: str) -> Any:
    """Return the number that is given for an option.

    Raises:
        BadInputError: if ``text`` is not a number within the bound of the option's key.
    """
    key = OPTION_BY_FLAG[flag].key
    assert key is not None, "the table is wrong otherwise"  # noqa: S101
    assert key.bound is not None  # noqa: S101
    return key.bound.read(flag, text)
