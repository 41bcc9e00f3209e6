"""The verdict on what ran, by logs and port counters."""

import pytest
from library_logs import TEXTS, read_log

from hpccoll.cases.variants import named_variants
from hpccoll.evidence.expected_evidence import control_violation, is_shown
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.port_bytes import PortBytes
from hpccoll.evidence.verdict import Verdict, judge_collective, network_mismatch

MIB = 1 << 20


def shows(name, record):
    return is_shown(named_variants()[name], record)


def violation(record, name):
    return control_violation(named_variants()[name], record)


def test_an_empty_record_meets_only_the_expectations_of_negative_controls():
    met = {name for name in named_variants() if shows(name, LogRecord())}
    assert met == {variant.control for variant in named_variants().values()} - {None, "nccl-gdr-off"}


def test_a_request_that_ran_is_confirmed_with_its_line():
    verdict = judge_collective("ring", "all_reduce", 64 * MIB, 4, read_log("rdma-2.27"), dtype="float32", op="sum")
    assert verdict == Verdict("ring", "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}")
    assert not verdict.offloaded


def test_symmetric_kernels_are_confirmed_and_another_algorithm_is_a_fallback():
    record = read_log("settings")
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
def test_communicator_settings_show_in_the_log_but_not_in_that_of_the_control(name, control):
    with_it = read_log("settings")
    reset = [
        "n1:300:310 [0] NCCL INFO Comm config Traffic class set to 0",
        "n1:300:310 [0] NCCL INFO Comm config CTAPolicy reset to NCCL_CTA_POLICY=0",
    ]
    without = read_logs(
        {"a.log": "\n".join((*(line for line in TEXTS["settings"].splitlines() if "Symm" not in line), *reset))}
    )
    assert [shows(one, with_it) for one in (name, control)] == [True, False]
    assert [shows(one, without) for one in (name, control)] == [False, True]
    assert named_variants()[name].control == control


def test_an_overridden_traffic_class_is_not_shown_by_its_own_line():
    overridden = read_log("settings", "n1:300:310 [0] NCCL INFO NCCL_IB_TC set by environment to 26.")
    assert not shows("nccl-traffic-class-comm", overridden)


def test_without_a_request_the_choice_of_the_library_is_the_label():
    assert judge_collective(None, "all_reduce", 8, 4, read_log("rdma-2.27")).executed == "tree"


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
    assert judge_collective(None, "all_reduce", 64 * MIB, 4, read_log("rdma-2.27"), **of_case).executed == executed


def test_an_average_is_logged_as_the_sum_that_it_is_scaled_from():
    assert (
        judge_collective(None, "all_reduce", 64 * MIB, 4, read_log("rdma-2.27"), dtype="float32", op="avg").executed
        == "ring"
    )


def test_lines_of_the_same_size_with_another_dtype_are_named():
    verdict = judge_collective(None, "all_reduce", 64 * MIB, 4, read_log("rdma-2.27"), dtype="float64", op="sum")
    assert verdict == Verdict(
        "unknown",
        "no line names all_reduce of 67108864 bytes with this dtype and op, only with float32 sum, bfloat16 prod",
    )


def test_a_node_of_nccl_may_be_several_hosts():
    assert judge_collective("nvls", "all_reduce", MIB, 8, read_log("nvls"), nodes=4).executed == "nvls"


def test_lines_that_disagree_prove_nothing():
    verdict = judge_collective("ring", "all_reduce", 64 * MIB, 4, read_log("rdma-2.27"))
    assert verdict.executed == "unknown"
    assert verdict.evidence.startswith("the log names ring and tree for all_reduce of 64 MiB: AllReduce: ")


def test_a_size_that_the_log_does_not_name_is_not_guessed():
    verdict = judge_collective("ring", "all_reduce", 16, 4, read_log("rdma-2.27"))
    assert verdict == Verdict("unknown", "no line names all_reduce of 16 bytes, only of 8, 67108864 bytes")


def test_bytes_that_nccl_counts_for_one_rank_are_converted():
    record = read_log("rdma-2.27")
    assert judge_collective("ring", "all_gather", 16384, 4, record).executed == "ring"
    assert judge_collective("ring", "all_gather", 4096, 4, record).executed == "unknown"


@pytest.mark.parametrize("requested", ["sharp", "collnet_direct"])
def test_sharp_with_its_lines_is_confirmed(requested):
    verdict = judge_collective(requested, "all_reduce", 64 * MIB, 16, read_log("sharp"))
    assert verdict.executed == "sharp (collnet_direct)"
    assert "Algo COLLNET_DIRECT" in verdict.evidence
    assert "tree_type:SAT" in verdict.evidence
    assert verdict.evidence.endswith(str(PortBytes(64 * MIB, 16, 2, None)))
    assert verdict.offloaded


def test_port_bytes_of_a_ring_contradict_sharp():
    ring = 2 * 15 / 16 * 64 * MIB
    verdict = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read_log("sharp"), port_bytes=ring)
    assert verdict.executed == "unknown"
    assert verdict.evidence.endswith(str(PortBytes(64 * MIB, 16, 2, ring)))
    one_vector = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read_log("sharp"), port_bytes=1.02 * 64 * MIB)
    assert one_vector.executed == "sharp (collnet_direct)"


def test_port_bytes_are_named_for_a_fallback_from_sharp():
    ring = 2 * 3 / 4 * 64 * MIB
    verdict = judge_collective("sharp", "all_reduce", 64 * MIB, 4, read_log("rdma-2.32"), nodes=4, port_bytes=ring)
    assert verdict.executed.startswith("ring (fallback: ")
    assert str(PortBytes(64 * MIB, 4, 4, ring)) in verdict.evidence
    assert (
        "vectors"
        not in judge_collective("tree", "all_reduce", 64 * MIB, 4, read_log("rdma-2.32"), port_bytes=ring).evidence
    )


def test_for_two_ranks_port_bytes_decide_nothing():
    assert judge_collective("sharp", "all_reduce", 64 * MIB, 2, read_log("sharp"), port_bytes=64 * MIB).offloaded


def test_on_three_nodes_port_bytes_distinguish_sharp_from_trees():
    tree = 2 * 3 / 4 * 64 * MIB
    verdict = judge_collective("sharp", "all_reduce", 64 * MIB, 32, read_log("sharp"), nodes=4, port_bytes=tree)
    assert verdict.executed == "unknown"
    assert verdict.evidence.endswith(str(PortBytes(64 * MIB, 32, 4, tree)))
    assert judge_collective(
        "sharp", "all_reduce", 64 * MIB, 32, read_log("sharp"), nodes=4, port_bytes=1.1 * 64 * MIB
    ).offloaded


def test_nvls_over_several_nodes_is_sharp_and_within_one_node_is_nvls():
    assert judge_collective("sharp", "all_reduce", MIB, 16, read_log("sharp-nvls")).executed == "sharp (nvls)"
    assert judge_collective("nvls", "all_reduce", MIB, 8, read_log("nvls")).executed == "nvls"
    assert judge_collective("nvls", "all_reduce", MIB, 8, read_log("nvls")).offloaded


def test_collnet_without_a_line_of_sharp_is_not_labelled_sharp():
    text = "\n".join(line for line in TEXTS["sharp"].splitlines() if "SHARP rank" not in line and "[group#" not in line)
    verdict = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read_logs({"a": text}))
    assert verdict.executed == "collnet_direct (not shown to be SHARP)"
    assert not shows("nccl-sharp", read_logs({"a": text}))


GENERAL = "n1:1:1 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"
SPECIAL = "n1:1:1 [0] sharp_plugin.c:365 NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"
RING = "n1:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"


def test_a_fallback_is_labelled_by_what_ran_with_the_most_specific_reason():
    record = read_logs({"a": f"{GENERAL}\n{SPECIAL}\n{RING}"})
    verdict = judge_collective("sharp", "all_reduce", MIB, 16, record)
    assert verdict.executed == "ring (fallback: NET/IB : SHARP coll init error: Cannot create SHARP job(-11))"
    assert not verdict.offloaded


def test_a_fallback_without_a_reason_is_marked():
    assert (
        judge_collective("tree", "all_reduce", MIB, 4, read_log("socket")).executed
        == "ring (fallback: no line says why)"
    )


def test_unsupported_dtypes_are_the_reason_for_those_dtypes_only():
    line = "n1:1:1 [0] sharp_plugin.c:382 NCCL WARN SHARP int8,uint8,bfloat16 Datatypes not supported"
    record = read_logs({"a": f"{line}\n{RING}"})
    assert "Datatypes" in judge_collective("sharp", "all_reduce", MIB, 16, record, dtype="bfloat16").executed
    assert "Datatypes" not in judge_collective("sharp", "all_reduce", MIB, 16, record, dtype="float32").executed


def test_an_unusable_forced_algorithm_gives_its_reason():
    line = (
        "n1:1:1 [0] tuning.cc:9 (f) NCCL WARN No algorithm/protocol available for function AllReduce with datatype x."
    )
    verdict = judge_collective("pat", "all_reduce", MIB, 4, read_logs({"a": line}))
    assert verdict.executed == "unknown"
    assert verdict.evidence.endswith("; No algorithm/protocol available for function AllReduce with datatype x.")


def test_symmetric_kernels_and_copy_engines_are_labelled_for_every_request():
    record = read_log("rdma-2.32")
    assert judge_collective("ring", "all_reduce", MIB, 16, record).executed == "symmetric (AllReduce_RSxLD_AGxST)"
    multicast = read_logs({"a": TEXTS["rdma-2.32"].replace("RSxLD_AGxST", "RSxLDMC_AGxSTMC")})
    verdict = judge_collective("ring", "all_reduce", MIB, 16, multicast)
    assert (verdict.executed, verdict.offloaded) == ("symmetric_multicast (AllReduce_RSxLDMC_AGxSTMC)", True)
    assert judge_collective("ring", "all_gather", MIB, 16, record).executed == "copy_engine (cudaMemcpyBatchAsync)"


def test_ucc_is_sharp_if_its_trace_and_a_group_show_it():
    assert (
        judge_collective("sharp", "all_reduce", MIB, 4, read_log("ucc-sharp"), dtype="float32", op="sum").executed
        == "sharp"
    )
    assert (
        judge_collective("sharp", "reduce", 8, 4, read_log("ucc-sharp")).executed == "ucp (fallback: no line says why)"
    )


def test_a_barrier_is_judged_by_its_line_which_has_no_size():
    assert judge_collective(None, "barrier", 4, 4, read_log("ucc-sharp")).executed == "ucp"
    verdict = judge_collective("sharp", "barrier", 4, 4, read_log("sharp"))
    assert verdict == Verdict("unknown", "no line names barrier")


def test_an_all_gather_in_place_under_ucc_is_judged_by_the_block_of_one_rank():
    line = (
        "[1.2] [n1:700  :0]        ucc_coll.c:255  UCC_COLL INFO  coll_init: Allgather inplace: "
        "dst={0x7fc1, 64, int32, Host}; CL_BASIC {TL_UCP}, team_id 32768"
    )
    assert (
        judge_collective(None, "all_gather", 256, 4, read_log("ucc-sharp", line), dtype="int32", memory="host").executed
        == "ucp"
    )
    assert (
        judge_collective(None, "all_gather", 1024, 4, read_log("ucc-sharp", line), dtype="int32").executed == "unknown"
    )


def test_ucc_is_judged_by_the_memory_type_of_buffers():
    line = next(line for line in TEXTS["ucc-sharp"].splitlines() if "TL_SHARP}" in line)
    record = read_log("ucc-sharp", line.replace("Cuda", "Host").replace("TL_SHARP", "TL_UCP"))
    executed = [
        judge_collective("sharp", "all_reduce", MIB, 4, record, memory=memory).executed
        for memory in ("cuda", "host", None)
    ]
    assert executed == ["sharp", "ucp (fallback: no line says why)", "unknown"]


def test_a_hierarchical_collective_of_ucc_is_sharp_if_one_of_its_layers_is():
    text = TEXTS["ucc-sharp"].replace("CL_BASIC {TL_SHARP}", "CL_HIER {TL_UCP, TL_SHARP}")
    record = read_logs({"a": text})
    assert judge_collective("sharp", "all_reduce", MIB, 4, record).executed == "sharp (ucp+sharp)"
    assert shows("ucc-sharp-hier", record)
    assert violation(record, "ucc-sharp-off")


def without_streaming_tree(name="ucc-sharp"):
    return "\n".join(line for line in TEXTS[name].splitlines() if "tree_type:SAT" not in line)


def ucc_line(function, count, layer="TL_SHARP"):
    buffer = f"src={{0x7f, {count}, float32, Host}}, dst={{0x8f, {count}, float32, Host}}"
    return (
        f"[1.2] [n1:700  :0]  ucc_coll.c:255  UCC_COLL INFO  coll_init: {function}: {buffer}; CL_BASIC {{{layer}}}, "
        "team_id 32768"
    )


@pytest.mark.parametrize(
    ("function", "collective", "count", "needs_it"),
    [
        ("Allreduce sum", "all_reduce", 4096, False),
        ("Allreduce sum", "all_reduce", 4097, True),
        ("Bcast root 0", "broadcast", 4096, False),
        ("Bcast root 0", "broadcast", 8192, True),
        ("Reduce_scatter sum", "reduce_scatter", 1024, True),
        ("Allgather", "all_gather", 1024, True),
    ],
)
def test_ucc_is_sharp_above_16_kib_only_with_a_streaming_aggregation_tree(function, collective, count, needs_it):
    size = 4 * count * (4 if collective == "all_gather" else 1)
    line = ucc_line(function, count)
    judged = [
        judge_collective("sharp", collective, size, 4, read_logs({"a": f"{text}\n{line}"}))
        for text in (TEXTS["ucc-sharp"], without_streaming_tree())
    ]
    assert [one.executed for one in judged] == ["sharp", "unknown" if needs_it else "sharp"]
    assert ("tree_type:SAT" in judged[1].evidence.replace("src=", "")) == needs_it
    assert judged[1].offloaded == (not needs_it)


def test_a_missing_streaming_tree_has_the_line_that_gives_the_reason():
    refused = "[n1:0:700 - comm.c:1][x] ERROR Failed to lock SAT tree(ID:0x208 ret:0x4)"
    verdict = judge_collective(
        "sharp", "all_reduce", MIB, 4, read_logs({"a": f"{without_streaming_tree()}\n{refused}"}), memory="cuda"
    )
    assert verdict.executed == "unknown"
    assert verdict.evidence.endswith("; Failed to lock SAT tree(ID:0x208 ret:0x4)")
    without = judge_collective("sharp", "all_reduce", MIB, 4, read_logs({"a": without_streaming_tree()}))
    assert "SHARP_COLL_ENABLE_SAT" in without.evidence


def test_the_variants_of_ucc_are_shown_by_large_calls_only_with_a_streaming_tree():
    assert shows("ucc-sharp", read_log("ucc-sharp"))
    assert not shows("ucc-sharp", read_logs({"a": without_streaming_tree()}))
    small = ucc_line("Allreduce sum", 2)
    assert shows("ucc-sharp", read_logs({"a": f"{without_streaming_tree()}\n{small}"}))


def test_small_vectors_of_hcoll_are_sharp_only_if_counted_packets_prove_it():
    judged = [
        judge_collective(
            "sharp", "all_reduce", size, 8, read_log("hcoll"), nodes=8, port_bytes=sent, port_packets=packets
        ).executed
        for size, sent, packets in ((512, 620.0, 2.0), (512, 620.0, None), (512, 1000.0, 4.0), (8, 90.0, 2.0))
    ]
    assert judged == ["sharp", "unknown", "unknown", "unknown"]


def test_for_other_collectives_of_hcoll_no_evidence_can_exist():
    verdict = judge_collective("sharp", "broadcast", MIB, 8, read_log("hcoll"), nodes=8, port_bytes=MIB)
    assert verdict.executed == "unknown"
    assert "port counters cannot distinguish SHARP for broadcast" in verdict.evidence


def test_a_log_that_names_nothing_yields_unknown():
    for text in (
        "",
        "srun: job 7 started\n# all_reduce ring 8 B 12.3 us\n",
        "n1:9:9 [0] NCCL INFO Bootstrap: Using eth0",
    ):
        record = read_logs({"a": text})
        for requested in (None, "ring", "sharp", "symmetric", "nvls"):
            verdict = judge_collective(requested, "all_reduce", MIB, 4, record, nodes=4, port_bytes=1.0 * MIB)
            assert (verdict.executed, verdict.offloaded) == ("unknown", False)


def test_hcoll_is_sharp_only_if_port_bytes_prove_it():
    record = read_log("hcoll")
    unknown = judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=8)
    assert unknown.executed == "unknown"
    assert unknown.evidence.endswith(str(PortBytes(MIB, 8, 8, None)))
    assert judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=8, port_bytes=1.1 * MIB).executed == "sharp"
    assert judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=8, port_bytes=1.7 * MIB).executed == "unknown"
    assert judge_collective("sharp", "broadcast", MIB, 8, record, nodes=8, port_bytes=1.1 * MIB).executed == "unknown"
    assert judge_collective("sharp", "all_reduce", 8, 8, record, nodes=8, port_bytes=8.0).executed == "unknown"
    assert judge_collective("sharp", "all_reduce", MIB, 8, record, nodes=2, port_bytes=MIB).executed == "unknown"


@pytest.mark.parametrize("vectors", [0.0, 0.05, 0.85])
def test_incomplete_port_counters_prove_and_contradict_nothing(vectors):
    verdict = judge_collective("sharp", "all_reduce", MIB, 8, read_log("hcoll"), nodes=8, port_bytes=vectors * MIB)
    assert verdict.executed == "unknown"
    assert verdict.evidence.endswith(str(PortBytes(MIB, 8, 8, vectors * MIB)))
    of_nccl = judge_collective("sharp", "all_reduce", 64 * MIB, 16, read_log("sharp"), port_bytes=vectors * 64 * MIB)
    assert of_nccl.executed == "sharp (collnet_direct)"


def test_headers_of_a_small_vector_do_not_contradict_its_line():
    text = TEXTS["sharp"].replace("67108864 Bytes", "16 Bytes")
    verdict = judge_collective("sharp", "all_reduce", 16, 32, read_logs({"a": text}), nodes=4, port_bytes=180.0)
    assert verdict.executed == "sharp (collnet_direct)"
    assert verdict.evidence.endswith(str(PortBytes(16, 32, 4, 180.0)))


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
def test_logs_show_the_variants_that_they_should(name, variants):
    record = read_log(name)
    assert not [variant for variant in variants if not shows(variant, record)]


def test_switches_by_another_algorithm_are_no_evidence_for_the_requested_one():
    shown = {name for name in named_variants() if shows(name, read_log("sharp"))}
    assert not shown & {"nccl-collnet-chain", "nccl-sharp-nvls"}


def test_a_negative_control_must_lose_the_evidence():
    assert violation(read_log("socket"), "nccl-sharp-off") is None
    assert violation(read_log("nvls"), "nccl-sharp-off") is None
    still = "SHARP is off, and still: SHARP rank 0/2 initialized on mlx5_0:1"
    assert violation(read_log("sharp"), "nccl-sharp-off") == still
    assert "TL_SHARP" in violation(read_logs({"a": TEXTS["ucc-sharp"].replace("[group#", "group")}), "ucc-sharp-off")
    assert violation(read_log("socket"), "nccl-nvls-off") is None
    assert violation(read_log("nvls"), "nccl-nvls-off").startswith("NVLS is off, and still: AllReduce: ")


@pytest.mark.parametrize("variant", ["nccl-sharp", "nccl-ring"])
def test_other_variants_than_controls_are_not_checked(variant):
    assert violation(read_log("sharp"), variant) is None


def test_tcp_instead_of_rdma_is_a_mismatch_with_its_reason():
    line = "RDMA was expected and TCP was used (NCCL: using network Socket): NET/IB : No device found."
    assert network_mismatch(read_log("socket"), "rdma") == line
    assert network_mismatch(read_log("socket"), "tcp") is None
    assert network_mismatch(read_log("socket"), None) is None


@pytest.mark.parametrize("name", ["rdma-2.27", "rdma-2.32", "sharp", "efa"])
def test_rdma_is_a_mismatch_only_if_tcp_was_expected(name):
    assert network_mismatch(read_log(name), "rdma") is None
    assert network_mismatch(read_log(name), "tcp").startswith(
        "TCP was expected and RDMA was used (NCCL: using network "
    )


def test_a_provider_of_tcp_behind_libfabric_is_tcp():
    assert network_mismatch(read_logs({"a": TEXTS["efa"].replace("provider is efa", "provider is tcp")}), "rdma")


def test_one_node_needs_no_network():
    assert network_mismatch(read_logs({"a": TEXTS["nvls"].replace("network IB", "network Socket")}), "rdma") is None


def test_gpudirect_is_on_if_all_paths_have_it_and_off_if_none_has():
    text = TEXTS["rdma-2.32"]
    none, every = text.replace("/GDRDMA", ""), text.replace("/0/Shared", "/0/GDRDMA/Shared")
    records = [read_logs({"a": one}) for one in (every, text, none)]
    found = [(shows("nccl-gdr", record), shows("nccl-gdr-off", record)) for record in records]
    assert found == [(True, False), (False, False), (False, True)]
