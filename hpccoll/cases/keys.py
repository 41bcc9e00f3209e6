"""One table of keys and bounds: sweep files, job files and the options of ``hpccoll run`` are declared here, once.

The rank program reads the table as it is; the models of sweep files take descriptions, bounds and defaults from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpccoll.common import limits
from hpccoll.common.limits import Key

DEFAULT_OPERATIONS = 20
"""As many as nccl-tests queues (its option -n)."""

EFFORT: Mapping[str, Key] = {
    "warmup": Key("warm-up iterations in each round of a case, not timed", 5, limits.WARMUP),
    "min_iterations": Key("fewest timed iterations of a case, over all rounds", 10, limits.ITERATIONS),
    "max_iterations": Key("most timed iterations of a case, over all rounds", 1000, limits.ITERATIONS),
    "seconds": Key("wall time of a case in seconds; its fewest iterations may take longer", 0.5, limits.SECONDS),
    "precision": Key(
        "half width of the 95 % interval, relative to the median, at which a round stops", 0.02, limits.PRECISION
    ),
    "timeout": Key("seconds without progress after which a rank counts as stuck", 120.0, limits.SECONDS),
    "operations": Key("operations of an iteration if the timing is aggregated", DEFAULT_OPERATIONS, limits.OPERATIONS),
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
        "algorithms, see 'hpccoll list'; native: the library's own; all: every algorithm of each collective",
        required=True,
    ),
    "devices": Key("devices of the buffers: cpu, cuda", ("cpu",)),
    "transports": Key("transports: mpi, shm, tiered; on device cuda nccl, mpi (CUDA-aware), staged", ("mpi",)),
    "dtypes": Key(
        "element types: int32, int64, float16, float32, float64, bfloat16 (on device cpu not for native)", ("float32",)
    ),
    "ops": Key("reductions: sum, prod, min, max, avg", ("sum",)),
    "bytes": Key("sizes: a list, or {from: 8, to: 4M, factor: 2}; required, except for workloads"),
    "in_place": Key("whether contribution and result share a buffer", (False, True)),
    "ranks": Key("numbers of ranks on one node, a job for each", bound=limits.RANKS_PER_NODE),
    "nodes": Key("numbers of nodes, instead of 'ranks'", bound=limits.RANKS),
    "ranks_per_node": Key("with 'nodes': numbers of ranks on each node", (1,), limits.RANKS_PER_NODE),
    "scaling": Key(
        "with 'nodes': nested (all sizes on the first nodes of one allocation) or separate allocations", "nested"
    ),
    "mapping": Key("rank order over racks and nodes: block (neighbours together), cyclic; if left out, as launched"),
    "roots": Key("roots of rooted collectives", (0,), limits.RANK),
    "pairs": Key("pairs of ranks for point to point: ends (first and last), all, or a list such as [[0, 1]]", "ends"),
    "concurrent": Key("numbers of pairs of ranks at once in multi_pair; 0: all of them", (0,), limits.RANK),
    "traffic": Key("block sizes of all_to_all_v: uniform, zipf, random, or a file *.csv of p x p weights", ("zipf",)),
    "aggregators": Key(
        "ranks in addition to the workers that only aggregate; with 'nodes', each on its own host",
        0,
        limits.AGGREGATORS,
    ),
    "params": Key("parameters by algorithm, each with the values to try: {ring: {channels: [1, 4]}}"),
    "table": Key("table for the algorithm auto: a file of 'hpccoll tune'"),
    "variants": Key(
        "environments to compare, a job for each: {name: {VARIABLE: value}}; a name of 'hpccoll list' sets its own"
    ),
    "timing": Key(
        "timings of cases over nccl: single, aggregated (operations back to back, as nccl-tests)",
        ("single",),
    ),
    "executor": Key("executor of cases in host memory: compiled, python; if left out, compiled if it is built"),
    "effort": Key("measuring time of each case"),
    "rounds": Key("passes over all cases, each in another order; they share the effort", 3, limits.ROUNDS),
    "seed": Key("seed of the random order of the cases", 1, limits.SEED),
}
"""The keys of a sweep file."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of ``hpccoll run``; letters are those of nccl-tests."""

    flags: tuple[str, ...]  # the short and the long form
    help: str  # a noun phrase
    default: str | None = None  # the text that is parsed if the option is absent; None if absence has its own meaning
    shown_default: str | None = None  # the default in the help text, if it differs from ``default``
    key: Key | None = None  # the key of the same meaning, whose bound holds for the option; None for other options
    metavar: str | None = None  # the placeholder of the value in the help text
    kind: str = "value"  # ``value``, ``path``, ``list`` (may be repeated) or ``flag``

    @property
    def help_text(self) -> str:
        """The help with the default in brackets."""
        shown = self.shown_default or self.default
        return f"{self.help} [{shown}]" if shown else self.help


DEFAULT_ALGORITHMS = "ring,recursive_doubling,native"
ALL = "all"
"""Selects all collectives, or all algorithms of a collective."""

RUN_OPTIONS = (
    Option(("-c", "--collective"), "collective", "all_reduce"),
    Option(
        ("-a", "--algorithms"), f"comma-separated algorithms, or {ALL}",
        shown_default=f"{DEFAULT_ALGORITHMS}; {ALL} for collectives other than all_reduce",
    ),
    Option(("-t", "--transport"), "transports: mpi, shm, tiered; on GPUs nccl, mpi, staged", "mpi", metavar="T,.."),
    Option(("--device",), "device of the buffers: cpu, cuda; with --job: GPUs assigned before MPI starts", "cpu"),
    Option(("-b", "--begin"), "smallest message size", "8"),
    Option(("-e", "--end"), "largest message size", "64M"),
    Option(("-f", "--factor"), SIZE_RANGE["factor"].help, "2", key=SIZE_RANGE["factor"]),
    Option(("-d", "--dtype"), "element type: int32, int64, float16, float32, float64, bfloat16", "float32"),
    Option(("-o", "--op"), "reduction", "sum"),
    Option(
        ("-n", "--iterations"), "timed iterations of a case over all rounds, at least 6 in each",
        shown_default="20 to 1000, until the interval is within 2 %", key=EFFORT["max_iterations"],
    ),
    Option(("-w", "--warmup"), EFFORT["warmup"].help, "5", key=EFFORT["warmup"]),
    Option(("-r", "--root"), "root of a rooted collective, or first rank", shown_default="0", key=SWEEP["roots"]),
    Option(
        ("--aggregators",), "number of last ranks that only aggregate (sharp_emulated)", "0", key=SWEEP["aggregators"],
        metavar="A",
    ),
    Option(("--mapping",), "rank orders over racks and nodes: block,cyclic", shown_default="as launched"),
    Option(("--in-place",), "only the in-place placement", shown_default="both placements", kind="flag"),
    Option(("--table",), SWEEP["table"].help, metavar="T.json", kind="path"),
    Option(("--param",), "parameter of the algorithm, or of all: channels=4, channels=1,4", metavar="K=V", kind="list"),
    Option(("--variant",), "named variant whose variables to set, such as nccl-ring; see hpccoll list", metavar="V"),
    Option(("--communicator",), "setting of NCCL's communicators, such as max_ctas=4", metavar="K=V", kind="list"),
    Option(
        ("--executor",), "executor of cases in host memory: compiled, python", shown_default="compiled if it is built"
    ),
    Option(("--timing",), "timings over nccl: single, aggregated", "single", metavar="MODE,.."),
    Option(("--operations",), EFFORT["operations"].help, f"{DEFAULT_OPERATIONS}", key=EFFORT["operations"]),
    Option(("--seconds",), EFFORT["seconds"].help, "1", key=EFFORT["seconds"]),
    Option(("--timeout",), EFFORT["timeout"].help, "120", key=EFFORT["timeout"]),
    Option(("--rounds",), SWEEP["rounds"].help, "3", key=SWEEP["rounds"], metavar="R"),
    Option(("--seed",), SWEEP["seed"].help, "1", key=SWEEP["seed"]),
    Option(("--job",), "job file of 'hpccoll plan', instead of the options above", kind="path"),
    Option(
        ("--shape",), "required shape, N nodes with K ranks each; another shape is an error",
        shown_default="any", metavar="NxK[+A]",
    ),
    Option(("--hosts",), "with --shape: required hosts; other hosts are an error", shown_default="any", metavar="A,B"),
    Option(
        ("--exit-zero",), "exit code 0 even if results are wrong or missing; the raw file holds the details",
        kind="flag",
    ),
    Option(("--check",), "no measurement, only a check that the ranks are connected", kind="flag"),
    Option(
        ("--probe",), "directory for the library's logs of one untimed run of its own collectives", metavar="DIR",
        kind="path",
    ),
    Option(("--evidence",), "directory or evidence file of an earlier --probe", metavar="PATH", kind="path"),
    Option(("--network",), "expected network between nodes, rdma or tcp; the report warns of a mismatch"),
    Option(("--out",), "raw file; an existing one of the same job is resumed", metavar="F.h5", kind="path"),
)  # fmt: skip
"""The options of ``hpccoll run``."""

TRAIN_ALGORITHMS = "ring,native,null"

TRAIN_FLAGS = (
    "-t", "--device", "-d", "-o", "-n", "-w", "--aggregators", "--mapping", "--table", "--param", "--variant",
    "--executor", "--seconds", "--timeout", "--rounds", "--seed", "--shape", "--hosts", "--exit-zero", "--out",
)  # fmt: skip
"""The options that ``hpccoll train`` has in common with ``hpccoll run``."""

NETWORKS = ("rdma", "tcp")
OPTION_BY_FLAG: Mapping[str, Option] = {flag: option for option in RUN_OPTIONS for flag in option.flags}


def read_option(flag: str, text: str) -> Any:
    """Return the number that is given for an option.

    Raises:
        BadInputError: if ``text`` is no number within the bound of the option's key.
    """
    key = OPTION_BY_FLAG[flag].key
    assert key is not None, "the table is wrong otherwise"  # noqa: S101
    assert key.bound is not None  # noqa: S101
    return key.bound.read(flag, text)
