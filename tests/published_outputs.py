"""Outputs of nccl-tests and rccl-tests with figures that were published, and logs of the algorithm that ran."""

import csv
import re
from contextlib import contextmanager
from dataclasses import dataclass

from printed_outputs import BUSBW, number

from hpccoll.evidence.log_set import read_logs
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import raw_results, read_output
from hpccoll.interop.nccl_tests_consistency import PROGRAMS
from hpccoll.judge.verdicts import judge_rows
from hpccoll.model import published_rates
from hpccoll.model.machine_file import read_machine
from hpccoll.schedule import NCCL_TESTS_NAMES
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

NAMES = {ours: theirs for theirs, ours in NCCL_TESTS_NAMES.items()}
ITEMSIZE = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}


@dataclass(frozen=True)
class Call:
    """A figure: busbw in GB/s of a size, out of place or in place."""

    nbytes: int
    busbw: float
    in_place: bool = False
    dtype: str = "float32"
    wrong: int = 0


H100 = "NVIDIA H100 80GB HBM3"
NAMED = "nccl-headers=22707 nccl-library=22707"


def printed(
    calls, nodes=2, gpus_per_node=8, collective="all_reduce", gpu=H100, warmup=5, library=NAMED
):
    """Return the text of an output with calls, those of one size and type in one line."""
    ranks, program = (
        nodes * gpus_per_node,
        next(name for name, ours in PROGRAMS.items() if ours == collective),
    )
    factor, redop = BUSBW[collective](ranks), "sum" if "reduce" in collective else "none"
    lines = [
        f"# nccl-tests version 2.17.4 {library}",
        f"# Collective test starting: {program}_perf",
        f"# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: {warmup} iters: 20 agg iters: 1",
        "# Using devices",
    ]
    for rank in range(ranks):
        node, device = divmod(rank, gpus_per_node)
        place = f"Pid {31000 + rank} on node-{node} device {device} [0000:{device:02x}] {gpu}"
        lines.append(f"#  Rank {rank} Group 0 {place}")
    heading = "time algbw busbw #wrong"
    lines += [
        "#   out-of-place   in-place",
        f"# size count type redop root {heading} {heading}",
        "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)",
    ]
    by_size = {}
    for call in calls:
        by_size.setdefault((call.nbytes, call.dtype), {})[call.in_place] = call
    for (nbytes, dtype), placed in sorted(by_size.items()):
        cells = [nbytes, nbytes // ITEMSIZE[dtype], NAMES.get(dtype, dtype), redop, -1]
        for in_place in (False, True):
            if in_place not in placed:
                cells += ["N/A"] * 4
                continue
            time = nbytes * factor / placed[in_place].busbw / 1e3
            algbw = nbytes / time / 1e3
            rates = number(algbw, 6).strip(), number(algbw * factor, 6).strip()
            cells += [f"{time:.4f}", *rates, placed[in_place].wrong]
        lines.append("  ".join(map(str, cells)))
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 7.95500 "]
    return "".join(f"{line}\n" for line in lines)


def imported(path, text, **given):
    """Import a text, about which a user says what is given, and return what ``judge_rows`` takes."""
    path.write_text(text)
    return ResultFiles(
        raw_results=[raw_results({path: read_output(path, SuppliedMetadata(**given))}, path)]
    )


def log_of(calls, algorithm, nodes=2, ranks=16):
    """Return a log of NCCL that names the algorithm of calls of all-reduce."""
    head = "node-0:31000:31000 [0] NCCL INFO"
    lines = [
        f"{head} NCCL version 2.27.7+cuda12.9",
        f"{head} comm 0x1 rank 0 nRanks {ranks} nNodes {nodes}",
    ]
    lines += [
        f"{head} AllReduce: {call.nbytes} Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..7}}"
        for call in calls
    ]
    return "".join(f"{line}\n" for line in lines)


MACHINES = {
    r"AWS p4d": "aws-p4d",
    r"p5en": "aws-p5en",
    r"AWS p5": "aws-p5",
    r"p6-b200": "aws-p6-b200",
    r"p6-b300": "aws-p6-b300",
    r"a3-high": "gcp-a3-high",
    r"a3-mega": "gcp-a3-mega",
    r"a4-high": "gcp-a4",
    r"A4X Max": "gcp-a4x-max",
    r"partitions of 4 GPUs": "4xgb200-400g",
    r"GB200": "gb200-nvl72",
    r"GB300": "gb300-nvl72",
    r"BM\.GPU\.?B?4": "oci-a100",
    r"g4dn": "aws-g4dn",
    r"g7e": "aws-g7e",
    r"a3-ultra": "gcp-a3-ultra",
    r"DGX Spark": "dgx-spark",
    r"GH200": "4xgh200-200g",
    r"NVLink bridge": "2xh100-bridge",
    r"A100 PCIe, 1x200G": "1xa100-200g",
    r"MOC H100": "1xh100-400g",
    r"H20 \(HGX\)|H20, 16xNDR": "8xh20-800g",
    r"MI300X": "8xmi300x-400g",
    r"MI325X": "8xmi325x-400g",
    r"MI350X": "8xmi350x-400g",
    r"MI355[Xx]": "8xmi355x-400g",
    r"PCIe|L40S|RTX|H20\b|H800|A800|H100 NVL|^H100$|4 IB NICs|Trainium|VR200": "",
    r"A100": "8xa100-200g",
    r"H100": "8xh100-400g",
    r"H200": "8xh200-400g",
    r"B200": "8xb200-400g",
    r"B300": "8xb300-800g",
}
"""The described cluster that is a published machine, by its name in the file; empty for those without a class."""

FORCED = {
    r"NCCL_ALGO=Tree": "TREE",
    r"(?i)NCCL_ALGO=Ring|NCCL_NVLS_ENABLE=0|NVLS off|no NVLS|^Ring$": "RING",
    "nvlstree forced": "NVLS_TREE",
}
"""The algorithm that settings choose; a setting that turns NVLS off leaves the ring to large sizes."""


@dataclass(frozen=True)
class PublishedRow:
    """A row of nccl-tests.csv that names a size and a place."""

    cells: dict[str, str]

    @classmethod
    def read(cls, path):
        """Return the rows of the file that an output can have; the others are averages or lack nodes."""
        with path.open() as file:
            rows = [cls(cells) for cells in csv.DictReader(file)]
        return [
            row
            for row in rows
            if row.cells["bytes"]
            and row.cells["nodes"]
            and row.cells["gpus_per_node"]
            and (row.cells["busbw_GBps"] or row.cells["time_us"])
            and row.collective in BUSBW
        ]

    @property
    def collective(self):
        return self.cells["collective"].replace("alltoall", "all_to_all")

    @property
    def nodes(self):
        return int(self.cells["nodes"])

    @property
    def gpus_per_node(self):
        return int(self.cells["gpus_per_node"])

    @property
    def healthy(self):
        """Whether it is healthy; None if nobody judged it."""
        return {"yes": True, "no": False}.get(self.cells["healthy"])

    @property
    def call(self):
        nbytes, ranks = int(self.cells["bytes"]), self.nodes * self.gpus_per_node
        time, printed = self.cells["time_us"], self.cells["busbw_GBps"]
        busbw = (
            nbytes * BUSBW[self.collective](ranks) / float(time) / 1e3 if time else float(printed)
        )
        dtype = "int8" if "int8" in self.cells["settings"] else "float32"
        wrong = 1000 if "wrong elements" in self.cells["settings"] else 0
        return Call(nbytes, busbw, self.cells["in_place"] == "yes", dtype, wrong)

    @property
    def origin(self):
        """The repository or thread of its source, or the source, as the table of the package names it."""
        source = self.cells["source"].removeprefix("github:")
        thread = re.match(r"https://github.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)", source)
        source = f"{thread[1]}#{thread[2]}" if thread else source
        repository = re.match(r"[\w.-]+/[\w.-]+(?:#\d+)?", source)
        return repository[0] if repository else source.partition(";")[0]

    @property
    def machine(self):
        """The described cluster that it was measured on, with its own network."""
        name = next(
            (
                name
                for pattern, name in MACHINES.items()
                if re.search(pattern, self.cells["machine"])
            ),
            "",
        )
        machine = read_machine(name or "8xh100-400g", "--cluster")
        like, rate = machine.machine_class, self.cells["network_gbps_per_gpu"]
        network = like.network if self.nodes <= like.fabric_nodes else None
        if "one NIC of the node" in self.cells["machine"]:  # of eight that it has
            network = like.network
        elif rate:
            network = f"{rate}g{(like.network or '').partition('g')[2]}"
        like = like.model_copy(update={"network": network}) if name else None
        return machine.model_copy(update={"machine_class": like})

    def judged(self, directory):
        """Import it alone, and return its verdict with its own source left out of what is expected."""
        gpu = "AMD Radeon Graphics" if "MI3" in self.cells["machine"] else "NVIDIA Graphics Device"
        library = "MSCCL++" if "MSCCL++" in self.cells["nccl_version"] else None
        named = "" if library else NAMED
        text = printed(
            [self.call], self.nodes, self.gpus_per_node, self.collective, gpu, library=named
        )
        files = imported(directory / "out.txt", text, library=library)
        forced = next(
            (
                word
                for pattern, word in FORCED.items()
                if re.search(pattern, self.cells["settings"])
            ),
            None,
        )
        log = read_logs({"nccl.log": log_of([self.call], forced, self.nodes)}) if forced else None
        with without_source(self.origin):
            (judged,) = judge_rows(files, to_results(files), self.machine, log)
        return judged


@contextmanager
def without_source(origin):
    """Leave the figures of a source out of the table."""
    every = published_rates.figures_by_fabric
    kept = {
        name: [one for one in figures if one.origin != origin] for name, figures in every().items()
    }
    published_rates.figures_by_fabric = lambda: kept
    try:
        yield
    finally:
        published_rates.figures_by_fabric = every
