"""What ran, as judged by logs. The texts in logs/ are written after documented shapes; nothing of them was recorded."""

from pathlib import Path

import pytest

from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.port_bytes import PortBytes
from hpccoll.evidence.variants import named_variants
from hpccoll.evidence.verdict import Verdict, control_violation, judge_collective, network_mismatch

LOGS = Path(__file__).parent / "logs"
TEXTS = {path.stem: path.read_text() for path in sorted(LOGS.glob("*.log"))}
MIB = 1 << 20


def read(name, *more):
    return read_logs({f"{name}.log": "\n".join((TEXTS[name], *more))})


def test_what_was_asked_for_and_ran_is_called_so_with_the_line_that_says_it():
    made = judge_collective("ring", "all_reduce", 64 * MIB, 4, read("rdma-2.27"), dtype="float32", op="sum")
    assert made == Verdict("ring", "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}")
    assert not made.offloaded


def test_kernels_on_symmetric_windows_are_what_ran_and_where_they_did_not_it_is_no_silent_ring():
    record = read("settings")
    small, large = (judge_collective("symmetric", "all_reduce", size * MIB, 8, record).executed for size in (1, 64))
    assert small == "symmetric (AllReduce_RSxLD_AGxST)"
    assert large.startswith("ring (fallback: ")


@pytest.mark.parametrize(
    ("name", "control"),
    [
        ("nccl-symmetric", "nccl-symmetric-off"),
        ("nccl-traffic-class-comm", "nccl-traffic-class-comm-off"),
        ("nccl-cta-efficiency", "nccl-cta-default"),
    ],
)
def test_what_a_communicator_is_made_with_shows_in_its_log_and_its_control_does_without(name, control):
    on, off = (named_variants()[one].expected_evidence.is_met for one in (name, control))
    with_it = read("settings")
    reset = [
        "n1:300:310 [0] NCCL INFO Comm config Traffic class set to 0",
        "n1:300:310 [0] NCCL INFO Comm config CTAPolicy reset to NCCL_CTA_POLICY=0",
    ]
    without = read_logs(
        {"a.log": "\n".join((*(line for line in TEXTS["settings"].splitlines() if "Symm" not in line), *reset))}
    )
    assert (on(with_it), off(with_it)) == (True, False)
    assert (on(without), off(without)) == (False, True)
    assert named_variants()[name].control == control


def test_a_traffic_class_that_a_variable_wins_over_is_not_shown_by_its_own_line():
    beside = read("settings", "n1:300:310 [0] NCCL INFO NCCL_IB_TC set by environment to 26.")
    assert not named_variants()["nccl-traffic-class-comm"].expected_evidence.is_met(beside)


def test_what_was_left_to_the_library_is_called_what_it_chose():
    assert judge_collective(None, "all_reduce", 8, 4, read("rdma-2.27")).executed == "tree"


@pytest.mark.parametrize(
    ("of_case", "executed"),
    [
        ({"dtype": "float32"}, "ring"),
        ({"dtype": "bfloat16"}, "tree"),
        ({"op": "sum"}, "ring"),
        ({"op": "prod"}, "tree"),
    ],
)
def test_another_dtype_or_op_of_the_same_size_is_judged_by_its_own_line(of_case, executed):
    assert judge_collective(None, "all_reduce", 64 * MIB, 4, read("rdma-2.27"), **of_case).executed == executed


def test_an_average_is_logged_as_the_sum_that_it_is_scaled_from():
    assert (
        judge_collective(None, "all_reduce", 64 * MIB, 4, read("rdma-2.27"), dtype="float32", op="avg").executed
        == "ring"
    )


def test_lines_of_the_size_that_are_of_another_dtype_are_named():
    made = judge_collective(None, "all_reduce", 64 * MIB, 4, read("rdma-2.27"), dtype="float64", op="sum")
    assert made == Verdict(
        "unknown",
        "no line names all_reduce of 67108864 bytes with this dtype and op, only with float32 sum, bfloat16 prod",
    )


def test_what_nccl_takes_for_one_node_is_one_whatever_its_hosts():
    assert judge_collective("nvls", "all_reduce", MIB, 8, read("nvls"), nodes=4).executed == "nvls"


def test_lines_that_disagree_prove_nothing():
    made = judge_collective("ring", "all_reduce", 64 * MIB, 4, read("rdma-2.27"))
    assert made.executed == "unknown"
    assert made.evidence.startswith("the log names ring and tree for all_reduce of 64 MiB: AllReduce: ")


def test_a_size_that_the_log_does_not_name_is_not_guessed():
    made = judge_collective("ring", "all_reduce", 16, 4, read("rdma-2.27"))
    assert made == Verdict("unknown", "no line names all_reduce of 16 bytes, only of 8, 67108864 bytes")


def test_nccl_counts_the_bytes_of_one_rank_where_this_project_counts_all():
    record = read("rdma-2.27")
    assert judge_collective("ring", "all_gather", 16384, 4, record).executed == "ring"
    assert judge_collective("ring", "all_gather", 4096, 4, record).executed == "unknown"


@pytest.mark.parametrize("requested", ["sharp", "collnet_direct"])
def test_sharp_that_shows_its_lines_is_called_sharp(requested):
    made = judge_collective(requested, "all_reduce", 64 * MIB, 16, read("sharp"))
    assert made.executed == "sharp (collnet_direct)"
    assert "Algo COLLNET_DIRECT" in made.evidence
    assert "tree_type:SAT" in made.evidence
    assert made.evidence.endswith(str(PortBytes(64 * MIB, 16, 2, None)))
    assert made.offloaded


def test_ports_that_carried_what_a_ring_carries_take_the_label_away():
    ring = 2 * 15 / 16 * 64 * MIB
    made = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read("sharp"), port_bytes=ring)
    assert made.executed == "unknown"
    assert made.evidence.endswith(str(PortBytes(64 * MIB, 16, 2, ring)))
    one_vector = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read("sharp"), port_bytes=1.02 * 64 * MIB)
    assert one_vector.executed == "sharp (collnet_direct)"


def test_what_ports_carried_is_told_where_sharp_was_asked_for_and_something_else_ran():
    ring = 2 * 3 / 4 * 64 * MIB
    made = judge_collective("sharp", "all_reduce", 64 * MIB, 4, read("rdma-2.32"), nodes=4, port_bytes=ring)
    assert made.executed.startswith("ring (fallback: ")
    assert str(PortBytes(64 * MIB, 4, 4, ring)) in made.evidence
    assert (
        "vectors"
        not in judge_collective("tree", "all_reduce", 64 * MIB, 4, read("rdma-2.32"), port_bytes=ring).evidence
    )


def test_two_ranks_send_one_vector_either_way_so_that_ports_say_nothing():
    assert judge_collective("sharp", "all_reduce", 64 * MIB, 2, read("sharp"), port_bytes=64 * MIB).offloaded


def test_on_three_nodes_and_more_ports_also_tell_sharp_from_trees_between_nodes():
    tree = 2 * 3 / 4 * 64 * MIB
    made = judge_collective("sharp", "all_reduce", 64 * MIB, 32, read("sharp"), nodes=4, port_bytes=tree)
    assert made.executed == "unknown"
    assert made.evidence.endswith(str(PortBytes(64 * MIB, 32, 4, tree)))
    assert judge_collective(
        "sharp", "all_reduce", 64 * MIB, 32, read("sharp"), nodes=4, port_bytes=1.1 * 64 * MIB
    ).offloaded


def test_nvls_over_several_nodes_is_sharp_and_within_one_node_is_nvls():
    assert judge_collective("sharp", "all_reduce", MIB, 16, read("sharp-nvls")).executed == "sharp (nvls)"
    assert judge_collective("nvls", "all_reduce", MIB, 8, read("nvls")).executed == "nvls"
    assert judge_collective("nvls", "all_reduce", MIB, 8, read("nvls")).offloaded


def test_collnet_without_a_line_of_sharp_is_not_called_sharp():
    text = "\n".join(line for line in TEXTS["sharp"].splitlines() if "SHARP rank" not in line and "[group#" not in line)
    made = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read_logs({"a": text}))
    assert made.executed == "collnet_direct (not shown to be SHARP)"
    assert not named_variants()["nccl-sharp"].expected_evidence.is_met(read_logs({"a": text}))


GENERAL = "n1:1:1 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
SPECIAL = "n1:1:1 [0] sharp_plugin.c:365 NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"
RING = "n1:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"


def test_a_fallback_is_called_what_ran_with_the_line_that_says_most():
    record = read_logs({"a": f"{GENERAL}\n{SPECIAL}\n{RING}"})
    made = judge_collective("sharp", "all_reduce", MIB, 16, record)
    assert made.executed == "ring (fallback: NET/IB : SHARP coll init error: Cannot create SHARP job(-11))"
    assert not made.offloaded


def test_a_fallback_without_a_reason_says_so():
    assert (
        judge_collective("tree", "all_reduce", MIB, 4, read("socket")).executed == "ring (fallback: no line says why)"
    )


def test_missing_dtypes_of_switches_are_the_reason_for_those_dtypes_only():
    line = "n1:1:1 [0] sharp_plugin.c:382 NCCL WARN SHARP int8,uint8,bfloat16 Datatypes not supported"
    record = read_logs({"a": f"{line}\n{RING}"})
    assert "Datatypes" in judge_collective("sharp", "all_reduce", MIB, 16, record, dtype="bfloat16").executed
    assert "Datatypes" not in judge_collective("sharp", "all_reduce", MIB, 16, record, dtype="float32").executed


def test_a_forced_algorithm_that_cannot_do_it_gives_its_reason():
    line = (
        "n1:1:1 [0] tuning.cc:9 (f) NCCL WARN No algorithm/protocol available for function AllReduce with datatype x."
    )
    made = judge_collective("pat", "all_reduce", MIB, 4, read_logs({"a": line}))
    assert made.executed == "unknown"
    assert made.evidence.endswith("; No algorithm/protocol available for function AllReduce with datatype x.")


def test_symmetric_kernels_and_copy_engines_are_called_so_whatever_was_asked():
    record = read("rdma-2.32")
    assert judge_collective("ring", "all_reduce", MIB, 16, record).executed == "symmetric (AllReduce_RSxLD_AGxST)"
    multicast = read_logs({"a": TEXTS["rdma-2.32"].replace("RSxLD_AGxST", "RSxLDMC_AGxSTMC")})
    made = judge_collective("ring", "all_reduce", MIB, 16, multicast)
    assert (made.executed, made.offloaded) == ("symmetric_multicast (AllReduce_RSxLDMC_AGxSTMC)", True)
    assert judge_collective("ring", "all_gather", MIB, 16, record).executed == "copy_engine (cudaMemcpyBatchAsync)"


def test_ucc_is_sharp_where_its_trace_and_a_group_say_so():
    assert (
        judge_collective("sharp", "all_reduce", MIB, 4, read("ucc-sharp"), dtype="float32", op="sum").executed
        == "sharp"
    )
    assert judge_collective("sharp", "reduce", 8, 4, read("ucc-sharp")).executed == "ucp (fallback: no line says why)"


def test_a_barrier_is_judged_by_its_line_which_has_no_size():
    assert judge_collective(None, "barrier", 4, 4, read("ucc-sharp")).executed == "ucp"
    made = judge_collective("sharp", "barrier", 4, 4, read("sharp"))
    assert made == Verdict("unknown", "no line names barrier")


def test_an_all_gather_in_place_under_ucc_is_judged_by_the_block_of_one_rank():
    line = (
        "[1.2] [n1:700  :0]        ucc_coll.c:255  UCC_COLL INFO  coll_init: Allgather inplace: "
        "dst={0x7fc1, 64, int32, Host}; CL_BASIC {TL_UCP}, team_id 32768"
    )
    assert (
        judge_collective(None, "all_gather", 256, 4, read("ucc-sharp", line), dtype="int32", memory="host").executed
        == "ucp"
    )
    assert judge_collective(None, "all_gather", 1024, 4, read("ucc-sharp", line), dtype="int32").executed == "unknown"


def test_ucc_chooses_by_the_memory_of_buffers_and_is_judged_by_that():
    line = next(line for line in TEXTS["ucc-sharp"].splitlines() if "TL_SHARP}" in line)
    record = read("ucc-sharp", line.replace("Cuda", "Host").replace("TL_SHARP", "TL_UCP"))
    said = [
        judge_collective("sharp", "all_reduce", MIB, 4, record, memory=memory).executed
        for memory in ("cuda", "host", None)
    ]
    assert said == ["sharp", "ucp (fallback: no line says why)", "unknown"]


def test_a_hierarchical_collective_of_ucc_is_sharp_where_that_is_one_of_its_layers():
    text = TEXTS["ucc-sharp"].replace("CL_BASIC {TL_SHARP}", "CL_HIER {TL_UCP, TL_SHARP}")
    record = read_logs({"a": text})
    assert judge_collective("sharp", "all_reduce", MIB, 4, record).executed == "sharp (ucp+sharp)"
    assert named_variants()["ucc-sharp-hier"].expected_evidence.is_met(record)
    assert control_violation(record, "ucc-sharp-off")


def test_hcoll_is_sharp_only_where_ports_carried_one_vector_and_nothing_else_could_have():
    record = read("hcoll")
    unknown = judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=8)
    assert unknown.executed == "unknown"
    assert unknown.evidence.endswith(str(PortBytes(MIB, 8, 8, None)))
    assert judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=8, port_bytes=1.1 * MIB).executed == "sharp"
    assert judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=8, port_bytes=1.7 * MIB).executed == "unknown"
    assert judge_collective("sharp", "broadcast", MIB, 8, record, nodes=8, port_bytes=1.1 * MIB).executed == "unknown"
    assert judge_collective("sharp", "all_reduce", 8, 8, record, nodes=8, port_bytes=8.0).executed == "unknown"
    assert judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=2, port_bytes=MIB).executed == "unknown"


@pytest.mark.parametrize("vectors", [0.0, 0.05, 0.85])
def test_ports_that_did_not_count_a_vector_prove_nothing_and_contradict_nothing(vectors):
    made = judge_collective("sharp", "all_reduce", MIB, 8, read("hcoll"), nodes=8, port_bytes=vectors * MIB)
    assert made.executed == "unknown"
    assert made.evidence.endswith(str(PortBytes(MIB, 8, 8, vectors * MIB)))
    of_nccl = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read("sharp"), port_bytes=vectors * 64 * MIB)
    assert of_nccl.executed == "sharp (collnet_direct)"


def test_headers_of_a_small_vector_do_not_contradict_its_line():
    text = TEXTS["sharp"].replace("67108864 Bytes", "16 Bytes")
    made = judge_collective("sharp", "all_reduce", 16, 32, read_logs({"a": text}), nodes=4, port_bytes=180.0)
    assert made.executed == "sharp (collnet_direct)"
    assert made.evidence.endswith(str(PortBytes(16, 32, 4, 180.0)))


@pytest.mark.parametrize(
    ("name", "variants"),
    [
        ("sharp", {"nccl-sharp", "nccl-collnet-direct", "nccl-collnet-comm", "nccl-tree"}),
        ("sharp-nvls", {"nccl-collnet-comm", "nccl-sharp-nvls", "nccl-nvls"}),
        ("nvls", {"nccl-nvls", "nccl-sharp-off"}),
        ("socket", {"nccl-ring", "nccl-simple", "nccl-socket", "nccl-nvls-off", "nccl-sharp-off"}),
        ("ucc-sharp", {"ucc-sharp", "ucc-sharp-hier", "hcoll-sharp"}),
        ("hcoll", {"hcoll-sharp"}),
        ("rdma-2.27", {"nccl-ring", "nccl-tree", "nccl-ll", "nccl-ll128", "nccl-gdr", "nccl-all-rails"}),
        ("rdma-2.32", {"nccl-ring", "nccl-simple"}),
    ],
)
def test_a_variant_is_shown_by_the_logs_that_show_it(name, variants):
    record = read(name)
    assert not [variant for variant in variants if not named_variants()[variant].expected_evidence.is_met(record)]


def test_switches_by_another_algorithm_are_no_evidence_of_the_one_that_was_asked_for():
    shown = {
        name
        for name, one in named_variants().items()
        if one.expected_evidence.is_met and one.expected_evidence.is_met(read("sharp"))
    }
    assert not shown & {"nccl-collnet-chain", "nccl-sharp-nvls"}


def test_a_negative_control_must_lose_the_evidence():
    assert control_violation(read("socket"), "nccl-sharp-off") is None
    assert control_violation(read("nvls"), "nccl-sharp-off") is None
    still = "SHARP is off, and still: SHARP rank 0/2 initialized on mlx5_0:1"
    assert control_violation(read("sharp"), "nccl-sharp-off") == still
    assert "TL_SHARP" in control_violation(
        read_logs({"a": TEXTS["ucc-sharp"].replace("[group#", "group")}), "ucc-sharp-off"
    )
    assert control_violation(read("socket"), "nccl-nvls-off") is None
    assert control_violation(read("nvls"), "nccl-nvls-off").startswith("NVLS is off, and still: AllReduce: ")


@pytest.mark.parametrize("variant", ["nccl-sharp", "nccl-ring", "somebody's own"])
def test_what_is_no_control_may_show_anything(variant):
    assert control_violation(read("sharp"), variant) is None


def test_tcp_where_rdma_was_expected_is_a_red_line_with_its_reason():
    line = "RDMA was expected and TCP was used (NCCL: using network Socket): NET/IB : No device found."
    assert network_mismatch(read("socket"), "rdma") == line
    assert network_mismatch(read("socket"), "tcp") is None
    assert network_mismatch(read("socket"), None) is None


@pytest.mark.parametrize("name", ["rdma-2.27", "rdma-2.32", "sharp", "efa"])
def test_rdma_that_was_expected_is_no_red_line_and_where_tcp_was_expected_it_is(name):
    assert network_mismatch(read(name), "rdma") is None
    assert network_mismatch(read(name), "tcp").startswith("TCP was expected and RDMA was used (NCCL: using network ")


def test_a_provider_of_tcp_behind_libfabric_is_tcp():
    assert network_mismatch(read_logs({"a": TEXTS["efa"].replace("provider is efa", "provider is tcp")}), "rdma")


def test_one_node_needs_no_network():
    assert network_mismatch(read_logs({"a": TEXTS["nvls"].replace("network IB", "network Socket")}), "rdma") is None


def test_gpudirect_is_on_where_every_hop_has_it_and_off_where_none_has():
    on, off = (named_variants()[name].expected_evidence.is_met for name in ("nccl-gdr", "nccl-gdr-off"))
    text = TEXTS["rdma-2.32"]
    none, every = text.replace("/GDRDMA", ""), text.replace("/0/Shared", "/0/GDRDMA/Shared")
    records = [read_logs({"a": one}) for one in (every, text, none)]
    assert [(on(record), off(record)) for record in records] == [(True, False), (False, False), (False, True)]
