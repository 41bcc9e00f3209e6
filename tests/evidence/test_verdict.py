"""The verdict on what ran, by logs and port counters, and the evidence that variants must show."""

import pytest
from library_logs import TEXTS, read_log

from hpccoll.cases.variants import named_variants
from hpccoll.evidence.expected_evidence import control_violation, is_shown
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.port_bytes import PortBytes
from hpccoll.evidence.verdict import Verdict, judge_collective, network_mismatch

MIB = 1 << 20
LARGE = 64 * MIB
NOT_USED = " was expected and TCP was used (NCCL: using network Socket): "
NO_REASON = "(fallback: no line says why)"


def record_of(log, *, without=(), more=(), replaced=("", "")):
    """Return a record: of a log without the lines that have certain words, with further lines, and with a change."""
    if isinstance(log, LogRecord):
        return log
    lines = (line for line in TEXTS[log].splitlines() if not any(words in line for words in without))
    return read_logs({"a": "\n".join((*lines, *more)).replace(*replaced)})


def ucc_line(
    function, count, layer="TL_SHARP", buffers="src={{0x7f, {0}, float32, Host}}, dst={{0x8f, {0}, float32, Host}}"
):
    head = "[1.2] [n1:700  :0]  ucc_coll.c:255  UCC_COLL INFO  coll_init: "
    return f"{head}{function}: {buffers.format(count)}; CL_BASIC {{{layer}}}, team_id 32768"


GATHER_IN_PLACE = ucc_line("Allgather inplace", 64, "TL_UCP", "dst={{0x7fc1, {0}, int32, Host}}")
UCC_CUDA = next(line for line in TEXTS["ucc-sharp"].splitlines() if "TL_SHARP}" in line)
ON_HOST = UCC_CUDA.replace("Cuda", "Host").replace("TL_SHARP", "TL_UCP")
RING = "n1:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"
GENERAL = "n1:1:1 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
SPECIAL = "n1:1:1 [0] sharp_plugin.c:365 NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"
OLD_SWITCHES = "n1:1:1 [0] sharp_plugin.c:382 NCCL WARN SHARP int8,uint8,bfloat16 Datatypes not supported"
UNUSABLE = (
    "n1:1:1 [0] tuning.cc:9 (f) NCCL WARN No algorithm/protocol available for function AllReduce with datatype x."
)
SHARP_LINES = ("SHARP rank", "[group#")


@pytest.mark.parametrize(
    ("record", "requested", "case", "about", "executed"),
    [
        # confirmed, and the library's own choice
        ("rdma-2.27", "ring", ("all_reduce", LARGE, 4), {"dtype": "float32"}, "ring"),
        ("rdma-2.27", None, ("all_reduce", 8, 4), {}, "tree"),
        ("rdma-2.27", None, ("all_reduce", LARGE, 4), {"dtype": "bfloat16"}, "tree"),
        ("rdma-2.27", None, ("all_reduce", LARGE, 4), {"op": "prod"}, "tree"),
        ("rdma-2.27", None, ("all_reduce", LARGE, 4), {"dtype": "float32", "op": "avg"}, "ring"),  # a scaled sum
        ("rdma-2.27", "ring", ("all_gather", 16384, 4), {}, "ring"),  # NCCL counts the block of one rank
        # a line is evidence for its own size, dtype and op
        ("rdma-2.27", "ring", ("all_gather", 4096, 4), {}, "unknown"),
        ("rdma-2.27", "ring", ("all_reduce", LARGE, 4), {}, "unknown"),  # two lines disagree
        ("rdma-2.27", None, ("all_reduce", LARGE, 4), {"dtype": "float64", "op": "sum"}, "unknown"),
        # windows and copy engines, for every request
        ("rdma-2.32", "ring", ("all_reduce", MIB, 16), {}, "symmetric (AllReduce_RSxLD_AGxST)"),
        ("rdma-2.32", "ring", ("all_gather", MIB, 16), {}, "copy_engine (cudaMemcpyBatchAsync)"),
        (
            record_of("rdma-2.32", replaced=("RSxLD_AGxST", "RSxLDMC_AGxSTMC")), "ring", ("all_reduce", MIB, 16), {},
            "symmetric_multicast (AllReduce_RSxLDMC_AGxSTMC)",
        ),
        # SHARP of NCCL
        ("sharp", "sharp", ("all_reduce", LARGE, 16), {}, "sharp (collnet_direct)"),
        ("sharp-nvls", "sharp", ("all_reduce", MIB, 16), {}, "sharp (nvls)"),
        ("nvls", "nvls", ("all_reduce", MIB, 8), {}, "nvls"),
        ("nvls", "nvls", ("all_reduce", MIB, 8), {"nodes": 4}, "nvls"),  # one NVLink domain of four hosts
        (
            record_of("sharp", without=SHARP_LINES), "sharp", ("all_reduce", LARGE, 16), {},
            "collnet_direct (not shown to be SHARP)",
        ),
        # port bytes
        ("sharp", "sharp", ("all_reduce", LARGE, 16), {"port_bytes": 2 * 15 / 16 * LARGE}, "unknown"),
        ("sharp", "sharp", ("all_reduce", LARGE, 16), {"port_bytes": 1.02 * LARGE}, "sharp (collnet_direct)"),
        # fallbacks
        (
            record_of("nvls", without=("",), more=(GENERAL, SPECIAL, RING)), "sharp", ("all_reduce", MIB, 16), {},
            "ring (fallback: NET/IB : SHARP coll init error: Cannot create SHARP job(-11))",  # the most specific reason
        ),
        ("socket", "tree", ("all_reduce", MIB, 4), {}, f"ring {NO_REASON}"),
        # UCC
        ("ucc-sharp", "sharp", ("all_reduce", MIB, 4), {"dtype": "float32", "op": "sum"}, "sharp"),
        ("ucc-sharp", "sharp", ("reduce", 8, 4), {}, f"ucp {NO_REASON}"),
        ("ucc-sharp", None, ("barrier", 4, 4), {}, "ucp"),
        (
            record_of("ucc-sharp", replaced=("CL_BASIC {TL_SHARP}", "CL_HIER {TL_UCP, TL_SHARP}")), "sharp",
            ("all_reduce", MIB, 4), {}, "sharp (ucp+sharp)",
        ),
        (record_of("ucc-sharp", more=[GATHER_IN_PLACE]), None, ("all_gather", 256, 4), {"memory": "host"}, "ucp"),
        (record_of("ucc-sharp", more=[GATHER_IN_PLACE]), None, ("all_gather", 1024, 4), {"dtype": "int32"}, "unknown"),
        (record_of("ucc-sharp", more=[ON_HOST]), "sharp", ("all_reduce", MIB, 4), {"memory": "cuda"}, "sharp"),
        (record_of("ucc-sharp", more=[ON_HOST]), None, ("all_reduce", MIB, 4), {"memory": "host"}, "ucp"),
        (record_of("ucc-sharp", more=[ON_HOST]), "sharp", ("all_reduce", MIB, 4), {}, "unknown"),
        # HCOLL names no call: only port bytes prove SHARP
        ("hcoll", "sharp", ("all_reduce", MIB, 8), {"nodes": 8}, "unknown"),
        ("hcoll", "sharp", ("all_reduce", MIB, 8), {"nodes": 8, "port_bytes": 1.1 * MIB}, "sharp"),
        ("hcoll", "sharp", ("all_reduce", MIB, 8), {"nodes": 8, "port_bytes": 1.7 * MIB}, "unknown"),
        ("hcoll", "sharp", ("broadcast", MIB, 8), {"nodes": 8, "port_bytes": 1.1 * MIB}, "unknown"),
        ("hcoll", "sharp", ("all_reduce", 512, 8), {"nodes": 8, "port_bytes": 620.0, "port_packets": 2.0}, "sharp"),
    ],
)  # fmt: skip
def test_a_case_is_labelled_by_what_its_evidence_shows(record, requested, case, about, executed):
    verdict = judge_collective(requested, *case, record_of(record), **about)
    assert verdict.executed == executed


def test_the_evidence_names_lines_sizes_types_and_bytes():
    """The golden text of the renderer, for each kind of verdict."""
    record, sharp = read_log("rdma-2.27"), read_log("sharp")
    ring = "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}"
    assert judge_collective("ring", "all_reduce", LARGE, 4, record, dtype="float32") == Verdict("ring", ring)
    assert [
        judge_collective(None, "all_reduce", size, 4, record, dtype="float64", op="sum").evidence
        for size in (16, LARGE)
    ] == [
        "no line names all_reduce of 16 bytes, only of 8, 67108864 bytes",
        "no line names all_reduce of 67108864 bytes with this dtype and op, only with float32 sum, bfloat16 prod",
    ]
    disagreeing = judge_collective("ring", "all_reduce", LARGE, 4, record).evidence
    assert disagreeing.startswith("the log names ring and tree for all_reduce of 64 MiB: AllReduce: ")
    for counted in (None, 1.02 * LARGE, 2 * 15 / 16 * LARGE):
        evidence = judge_collective("sharp", "all_reduce", LARGE, 16, sharp, port_bytes=counted).evidence
        assert "Algo COLLNET_DIRECT" in evidence
        assert evidence.endswith(str(PortBytes(LARGE, 16, 2, counted)))
    fallen = judge_collective("sharp", "all_reduce", LARGE, 4, read_log("rdma-2.32"), nodes=4, port_bytes=1.5 * LARGE)
    assert str(PortBytes(LARGE, 4, 4, 1.5 * LARGE)) in fallen.evidence
    unusable = judge_collective("pat", "all_reduce", MIB, 4, read_logs({"a": UNUSABLE}))
    assert unusable.evidence.endswith("; No algorithm/protocol available for function AllReduce with datatype x.")


def test_unsupported_dtypes_are_the_reason_for_those_dtypes_only():
    record = read_logs({"a": f"{OLD_SWITCHES}\n{RING}"})
    found = {dtype: judge_collective("sharp", "all_reduce", MIB, 16, record, dtype=dtype).executed
             for dtype in ("bfloat16", "float32")}  # fmt: skip
    assert {dtype: "Datatypes" in executed for dtype, executed in found.items()} == {"bfloat16": True, "float32": False}


@pytest.mark.parametrize(
    ("function", "collective", "count", "needs_it"),
    [
        ("Allreduce sum", "all_reduce", 4096, False), ("Allreduce sum", "all_reduce", 4097, True),
        ("Bcast root 0", "broadcast", 4096, False), ("Bcast root 0", "broadcast", 8192, True),
        ("Reduce_scatter sum", "reduce_scatter", 1024, True), ("Allgather", "all_gather", 1024, True),
    ],
)  # fmt: skip
def test_ucc_is_sharp_above_16_kib_only_with_a_streaming_aggregation_tree(function, collective, count, needs_it):
    size = 4 * count * (4 if collective == "all_gather" else 1)
    refused = "[n1:0:700 - comm.c:1][x] ERROR Failed to lock SAT tree(ID:0x208 ret:0x4)"
    lines, tree = [ucc_line(function, count)], ["tree_type:SAT"]
    with_tree, without, with_reason = (
        judge_collective("sharp", collective, size, 4, record_of("ucc-sharp", without=left_out, more=more))
        for left_out, more in (((), lines), (tree, lines), (tree, [*lines, refused]))
    )
    assert (with_tree.executed, without.executed) == ("sharp", "unknown" if needs_it else "sharp")
    assert ("SHARP_COLL_ENABLE_SAT" in without.evidence) == needs_it
    assert with_reason.evidence.endswith("; Failed to lock SAT tree(ID:0x208 ret:0x4)") == needs_it


@pytest.mark.parametrize("requested", [None, "ring", "sharp", "symmetric", "nvls"])
def test_a_log_that_names_nothing_yields_unknown(requested):
    record = read_logs({"a": "n1:9:9 [0] NCCL INFO Bootstrap: Using eth0"})
    assert judge_collective(requested, "all_reduce", MIB, 4, record, nodes=4, port_bytes=MIB).executed == "unknown"


def shown(record):
    return {name for name, variant in named_variants().items() if is_shown(variant, record)}


def test_an_empty_record_meets_only_the_expectations_of_negative_controls():
    assert shown(LogRecord()) == {one.control for one in named_variants().values()} - {None, "nccl-gdr-off"}


@pytest.mark.parametrize(
    ("record", "variants", "others"),
    [
        ("sharp", "nccl-sharp nccl-collnet-direct nccl-collnet-comm nccl-tree", "nccl-collnet-chain nccl-sharp-nvls"),
        ("sharp-nvls", "nccl-collnet-comm nccl-sharp-nvls nccl-nvls", ""),
        ("nvls", "nccl-nvls nccl-sharp-off", ""),
        ("socket", "nccl-ring nccl-simple nccl-socket nccl-nvls-off nccl-sharp-off", ""),
        ("ucc-sharp", "ucc-sharp ucc-sharp-hier hcoll-sharp", ""),
        ("hcoll", "hcoll-sharp", ""),
        ("rdma-2.27", "nccl-ring nccl-tree nccl-ll nccl-ll128 nccl-gdr nccl-all-rails", ""),
        ("rdma-2.32", "nccl-ring nccl-simple", "nccl-gdr nccl-gdr-off"),  # some paths have GPUDirect
        (record_of("rdma-2.32", replaced=("/GDRDMA", "")), "nccl-gdr-off", "nccl-gdr"),
        (record_of("rdma-2.32", replaced=("/0/Shared", "/0/GDRDMA/Shared")), "nccl-gdr", "nccl-gdr-off"),
        (record_of("sharp", without=SHARP_LINES), "", "nccl-sharp"),
        (record_of("ucc-sharp", without=["tree_type:SAT"]), "", "ucc-sharp"),
        (record_of("ucc-sharp", without=["tree_type:SAT"], more=[ucc_line("Allreduce sum", 2)]), "ucc-sharp", ""),
        (
            "settings", "nccl-symmetric nccl-traffic-class-comm nccl-cta-efficiency",
            "nccl-symmetric-off nccl-traffic-class-comm-off nccl-cta-default",
        ),
        (
            record_of("settings", without=["Symm"], more=[
                "n1:300:310 [0] NCCL INFO Comm config Traffic class set to 0",
                "n1:300:310 [0] NCCL INFO Comm config CTAPolicy reset to NCCL_CTA_POLICY=0",
            ]),
            "nccl-symmetric-off nccl-traffic-class-comm-off nccl-cta-default",
            "nccl-symmetric nccl-traffic-class-comm nccl-cta-efficiency",
        ),
        (
            record_of("settings", more=["n1:300:310 [0] NCCL INFO NCCL_IB_TC set by environment to 26."]), "",
            "nccl-traffic-class-comm",  # the variable wins
        ),
    ],
)  # fmt: skip
def test_logs_show_the_variants_that_they_should(record, variants, others):
    found = shown(record_of(record))
    assert found >= {*variants.split()}
    assert not found & {*others.split()}


@pytest.mark.parametrize(
    ("record", "variant", "still"),
    [
        ("socket", "nccl-sharp-off", None), ("nvls", "nccl-sharp-off", None), ("socket", "nccl-nvls-off", None),
        ("sharp", "nccl-sharp-off", "SHARP is off, and still: SHARP rank 0/2 initialized on mlx5_0:1"),
        ("nvls", "nccl-nvls-off", "NVLS is off, and still: AllReduce: "),
        (record_of("ucc-sharp", without=["[group#"]), "ucc-sharp-off", "SHARP is off, and still: coll_init: Allreduce"),
        ("sharp", "nccl-sharp", None), ("sharp", "nccl-ring", None),  # no controls
    ],
)  # fmt: skip
def test_a_negative_control_must_lose_the_evidence(record, variant, still):
    found = control_violation(named_variants()[variant], record_of(record))
    assert found == still or (still and found.startswith(still))


@pytest.mark.parametrize(
    ("record", "expected", "mismatch"),
    [
        ("socket", "rdma", f"RDMA{NOT_USED}NET/IB : No device found."),
        ("socket", "tcp", None), ("socket", None, None),
        ("efa", "rdma", None), ("efa", "tcp", "TCP was expected and RDMA was used (NCCL: "),
        (record_of("efa", replaced=("provider is efa", "provider is tcp")), "rdma", "RDMA was expected and TCP was"),
        (record_of("nvls", replaced=("network IB", "network Socket")), "rdma", None),  # one node needs none
    ],
)  # fmt: skip
def test_another_network_than_expected_is_a_mismatch_with_its_reason(record, expected, mismatch):
    found = network_mismatch(record_of(record), expected)
    assert found == mismatch or (mismatch and found.startswith(mismatch))
