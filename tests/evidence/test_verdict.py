"""The verdict on what ran, by logs and port counters, and the evidence that variants must show."""

from golden_page import assert_golden
from library_logs import GOLDEN, TEXTS, read_log

from hpccoll.cases.variants import named_variants
from hpccoll.evidence.expected_evidence import control_violation, is_shown
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.verdict import NETWORKS, judge_collective, network_mismatch

MIB = 1 << 20
LARGE = 64 * MIB


def record_of(log, *, without=(), more=(), replaced=("", "")):
    """Return a record: of a log without the lines that have certain words, with further lines, and with a change."""
    if isinstance(log, LogRecord):
        return log
    lines = (
        line for line in TEXTS[log].splitlines() if not any(words in line for words in without)
    )
    return read_logs({"a": "\n".join((*lines, *more)).replace(*replaced)})


def ucc_line(
    function,
    count,
    layer="TL_SHARP",
    buffers="src={{0x7f, {0}, float32, Host}}, dst={{0x8f, {0}, float32, Host}}",
):
    head = "[1.2] [n1:700  :0]  ucc_coll.c:255  UCC_COLL INFO  coll_init: "
    return f"{head}{function}: {buffers.format(count)}; CL_BASIC {{{layer}}}, team_id 32768"


GATHER_IN_PLACE = ucc_line("Allgather inplace", 64, "TL_UCP", "dst={{0x7fc1, {0}, int32, Host}}")
UCC_CUDA = next(line for line in TEXTS["ucc-sharp"].splitlines() if "TL_SHARP}" in line)
ON_HOST = UCC_CUDA.replace("Cuda", "Host").replace("TL_SHARP", "TL_UCP")
RING = (
    "n1:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"
)
GENERAL = "n1:1:1 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
SPECIAL = "n1:1:1 [0] sharp_plugin.c:365 NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"
OLD_SWITCHES = (
    "n1:1:1 [0] sharp_plugin.c:382 NCCL WARN SHARP int8,uint8,bfloat16 Datatypes not supported"
)
TREE_LOCKED = "[n1:0:700 - comm.c:1][x] ERROR Failed to lock SAT tree(ID:0x208 ret:0x4)"
SHARP_LINES = ("SHARP rank", "[group#")


SHARP_LARGE, SHARP_MIB = ("sharp", "all_reduce", LARGE, 16), ("sharp", "all_reduce", MIB, 16)
UCC, HCOLL = ("sharp", "all_reduce", MIB, 4), ("sharp", "all_reduce", MIB, 8)
IN_PLACE, ON_BOTH = (
    record_of("ucc-sharp", more=[GATHER_IN_PLACE]),
    record_of("ucc-sharp", more=[ON_HOST]),
)
CASES = {
    "confirmed, and the library's own choice": [
        ("rdma-2.27", "ring", "all_reduce", LARGE, 4, {"dtype": "float32"}), ("rdma-2.27", None, "all_reduce", 8, 4),
        ("rdma-2.27", None, "all_reduce", LARGE, 4, {"dtype": "bfloat16"}),
        ("rdma-2.27", None, "all_reduce", LARGE, 4, {"op": "prod"}),
        # a scaled sum
        ("rdma-2.27", None, "all_reduce", LARGE, 4, {"dtype": "float32", "op": "avg"}),
        ("rdma-2.27", "ring", "all_gather", 16384, 4),  # NCCL counts the block of one rank
    ],
    "a line is evidence for its own size, dtype and op": [
        # two disagree
        ("rdma-2.27", "ring", "all_gather", 4096, 4), ("rdma-2.27", "ring", "all_reduce", LARGE, 4),
        ("rdma-2.27", None, "all_reduce", LARGE, 4, {"dtype": "float64", "op": "sum"}),
    ],
    "windows and copy engines, for every request": [
        ("rdma-2.32", "ring", "all_reduce", MIB, 16), ("rdma-2.32", "ring", "all_gather", MIB, 16),
        (record_of("rdma-2.32", replaced=("RSxLD_AGxST", "RSxLDMC_AGxSTMC")), "ring", "all_reduce", MIB, 16),
    ],
    "SHARP and NVLS of NCCL; one NVLink domain may have four hosts": [
        ("sharp", *SHARP_LARGE), ("sharp-nvls", *SHARP_MIB), ("nvls", "nvls", "all_reduce", MIB, 8),
        ("nvls", "nvls", "all_reduce", MIB, 8, {"nodes": 4}), (record_of("sharp", without=SHARP_LINES), *SHARP_LARGE),
    ],
    "bytes of ports": [("sharp", *SHARP_LARGE, {"port_bytes": ratio * LARGE}) for ratio in (2 * 15 / 16, 1.02)],
    "fallbacks, with the most specific reason": [
        (record_of("nvls", without=("",), more=(GENERAL, SPECIAL, RING)), *SHARP_MIB),
        ("socket", "tree", "all_reduce", MIB, 4),
    ],
    "older switches cannot add some dtypes, which is the reason for those only": [
        (read_logs({"a": f"{OLD_SWITCHES}\n{RING}"}), *SHARP_MIB, {"dtype": dtype}) for dtype in ("bfloat16", "float32")
    ],
    "UCC": [
        ("ucc-sharp", *UCC, {"dtype": "float32", "op": "sum"}), ("ucc-sharp", "sharp", "reduce", 8, 4),
        ("ucc-sharp", None, "barrier", 4, 4),
        (record_of("ucc-sharp", replaced=("CL_BASIC {TL_SHARP}", "CL_HIER {TL_UCP, TL_SHARP}")), *UCC),
        (IN_PLACE, None, "all_gather", 256, 4, {"memory": "host"}),
        (IN_PLACE, None, "all_gather", 1024, 4, {"dtype": "int32"}), (ON_BOTH, *UCC, {"memory": "cuda"}),
        (ON_BOTH, None, "all_reduce", MIB, 4, {"memory": "host"}), (ON_BOTH, *UCC),
    ],
    "HCOLL names no call: only bytes of ports prove SHARP": [
        *(("hcoll", *HCOLL, {"nodes": 8, "port_bytes": ratio and ratio * MIB}) for ratio in (None, 1.1, 1.7)),
        ("hcoll", "sharp", "broadcast", MIB, 8, {"nodes": 8, "port_bytes": 1.1 * MIB}),
        ("hcoll", "sharp", "all_reduce", 512, 8, {"nodes": 8, "port_bytes": 620.0, "port_packets": 2.0}),
    ],
    "UCC above 16 KiB only with a streaming aggregation tree, and why there is none": [
        (record_of("ucc-sharp", without=lost, more=[ucc_line(function, count), *why]), "sharp", collective, nbytes, 4)
        for function, collective, count, nbytes in (
            ("Allreduce sum", "all_reduce", 4096, 16384), ("Allreduce sum", "all_reduce", 4097, 16388),
            ("Bcast root 0", "broadcast", 4096, 16384), ("Bcast root 0", "broadcast", 8192, 32768),
            ("Reduce_scatter sum", "reduce_scatter", 1024, 4096), ("Allgather", "all_gather", 1024, 16384),
        )
        for lost, why in (((), ()), (["tree_type:SAT"], ()), (["tree_type:SAT"], [TREE_LOCKED]))
    ],
    "a log that names nothing": [
        (read_logs({"a": "n1:9:9 [0] NCCL INFO Bootstrap: Using eth0"}), requested, "all_reduce", MIB, 4,
         {"nodes": 4, "port_bytes": MIB}) for requested in (None, "ring", "sharp", "symmetric", "nvls")
    ],
}  # fmt: skip
"""A log, the request, the case, and what else is known of it."""


def test_a_case_is_labelled_by_what_its_evidence_shows():
    page = []
    for title, cases in CASES.items():
        page.append(f"== {title}")
        for log, requested, *case, more in (
            each if len(each) == 6 else (*each, {}) for each in cases
        ):
            found = judge_collective(requested, *case, record_of(log), **more)
            name = log if isinstance(log, str) else "a changed log"
            page += [
                f"{name}: {requested} {case} {more}",
                f"  {found.executed} <- {found.evidence}",
            ]
    assert_golden("evidence", page, GOLDEN)


def test_an_empty_record_meets_only_the_expectations_of_negative_controls():
    shown = {name for name, variant in named_variants().items() if is_shown(variant, LogRecord())}
    assert shown == {one.control for one in named_variants().values()} - {None, "nccl-gdr-off"}


SETTINGS_OFF = [
    "n1:300:310 [0] NCCL INFO Comm config Traffic class set to 0",
    "n1:300:310 [0] NCCL INFO Comm config CTAPolicy reset to NCCL_CTA_POLICY=0",
]
VARIABLE = "n1:300:310 [0] NCCL INFO NCCL_IB_TC set by environment to 26."
RECORDS = {
    **{name: read_log(name) for name in TEXTS},
    "rdma-2.32 without GPUDirect": record_of("rdma-2.32", replaced=("/GDRDMA", "")),
    "rdma-2.32 with GPUDirect on all paths": record_of(
        "rdma-2.32", replaced=("/0/Shared", "/0/GDRDMA/Shared")
    ),
    "sharp without lines of SHARP": record_of("sharp", without=SHARP_LINES),
    "ucc-sharp without a tree": record_of("ucc-sharp", without=["tree_type:SAT"]),
    "ucc-sharp without a tree, small": record_of(
        "ucc-sharp", without=["tree_type:SAT"], more=[ucc_line("Allreduce sum", 2)]
    ),
    "ucc-sharp without a group": record_of("ucc-sharp", without=["[group#"]),
    "settings that are off": record_of("settings", without=["Symm"], more=SETTINGS_OFF),
    "settings and a variable, which wins": record_of("settings", more=[VARIABLE]),
    "efa over TCP": record_of("efa", replaced=("provider is efa", "provider is tcp")),
    "one node with sockets": record_of("nvls", replaced=("network IB", "network Socket")),
}


def test_the_variants_that_each_log_shows_the_controls_that_it_contradicts_and_mismatches_of_its_network():
    page = []
    for title, record in RECORDS.items():
        variants = named_variants().items()
        shown = " ".join(name for name, variant in variants if is_shown(variant, record))
        page += [f"== {title}", f"shows: {shown}"]
        page += [
            f"{name}: {found}"
            for name, variant in variants
            if (found := control_violation(variant, record))
        ]
        page += filter(None, (network_mismatch(record, expected) for expected in NETWORKS))
    assert_golden("variants", page, GOLDEN)
