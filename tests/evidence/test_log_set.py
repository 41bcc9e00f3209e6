"""What is read of logs. The texts in logs/ are written after documented shapes; nothing of them was recorded."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs

LOGS = Path(__file__).parent / "logs"
TEXTS = {path.stem: path.read_text() for path in sorted(LOGS.glob("*.log"))}


def read(name, *more):
    return read_logs({f"{name}.log": "\n".join((TEXTS[name], *more))})


def ran(record):
    return [(one.collective, one.bytes, one.algorithm, one.protocol, one.channels) for one in record.collectives]


def test_algorithm_protocol_and_channels_are_read_for_each_collective_and_size():
    assert ran(read("rdma-2.27")) == [
        ("all_reduce", 8, "tree", "LL", 1),
        ("all_reduce", 67108864, "ring", "SIMPLE", 16),
        ("all_reduce", 67108864, "tree", "LL128", 16),
        ("all_gather", 4096, "ring", "LL", 4),
    ]


def test_the_dtype_and_op_of_what_ran_are_those_of_the_call_before_it():
    of = [(one.dtype, one.op) for one in read("rdma-2.27").collectives]
    assert of == [("float32", "sum"), ("float32", "sum"), ("bfloat16", "prod"), ("float32", None)]


def test_the_newer_shape_is_read_with_symmetric_kernels_and_copy_engines():
    assert ran(read("rdma-2.32")) == [
        ("all_reduce", 67108864, "ring", "SIMPLE", 16),
        ("all_reduce", 1048576, "symmetric", "AllReduce_RSxLD_AGxST", 8),
        ("all_gather", 65536, "copy_engine", "cudaMemcpyBatchAsync", None),
        ("all_gather", 131072, "hierarchical_ce", "RMA proxy + CE", None),
    ]


def test_what_a_communicator_is_made_with_is_read_by_our_names_but_for_what_a_variable_resets():
    record = read("settings")
    assert record.communicator == {
        "net_name": "IB", "traffic_class": "106", "collnet_enable": "1", "cta_policy": "1", "nvls_ctas": "4",
    }  # fmt: skip
    assert record.settings["NCCL_MAX_CTAS"] == "2"
    assert not read("rdma-2.32").communicator


@pytest.mark.parametrize(
    ("name", "version", "network", "gdr", "nodes", "ranks"),
    [
        ("rdma-2.27", "2.27.7", ("IB",), True, 2, 4),
        ("rdma-2.32", "2.32.3", ("IBext_v11",), False, 2, 16),
        ("socket", "2.30.7", ("Socket",), None, 2, 4),
        ("sharp", "2.30.7", ("IBext_v10",), None, 2, 16),
        ("nvls", "2.28.9", ("IB",), None, 1, 8),
        ("efa", "2.28.9", ("Libfabric",), True, 2, 16),
    ],
)
def test_version_network_gpudirect_and_size_are_read(name, version, network, gdr, nodes, ranks):
    record = read(name)
    assert (record.library, record.version, record.network, record.gdr) == ("nccl", version, network, gdr)
    assert (record.nodes, record.ranks) == (nodes, ranks)


def test_the_largest_communicator_is_what_was_measured():
    small = "n1:9:9 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
    record = read("socket", small)
    assert (record.ranks, record.nodes) == (4, 2)


def test_channels_are_counted_by_their_way():
    assert read("rdma-2.27").paths == {
        "NET/IB/GDRDMA": 1, "NET/IB/GDRDMA/PXN": 1, "P2P/CUMEM": 1, "SHM/direct": 1
    }  # fmt: skip
    assert read("socket").paths == {"NET/Socket": 1, "P2P/IPC": 1}
    assert read("sharp").paths == {"COLLNET/SHARP/GDRDMA": 1}
    assert read("efa").paths == {"NET/AWS Libfabric/GDRDMA": 1}


def test_ports_plugins_and_settings_are_read():
    older = read("rdma-2.27")
    assert older.devices == ("mlx5_0:1/IB", "mlx5_1:1/RoCE")
    assert older.plugins == {"tuner": "site_tuner"}
    assert older.settings["NCCL_ALGO"] == "Ring,Tree"
    assert older.settings["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,NET,GRAPH,TUNING,COLL"
    assert read("rdma-2.32").settings == {"NCCL_COLLNET_ENABLE": "0"}
    assert read("sharp").plugins == {"net": "IBext_v10", "p2p": "IBext_v10", "collnet": "SHARP"}
    assert read("efa").plugins == {"net": "Libfabric", "tuner": "nccl_ofi_tuner", "fabric": "efa"}


def test_settings_of_a_file_are_read_where_the_environment_says_nothing_else():
    conf = "# a comment\nNCCL_ALGO=Tree\n NCCL_IB_HCA = mlx5 \nnot a setting\n"
    record = read_logs({"n1.log": TEXTS["rdma-2.27"], "/etc/nccl.conf": conf})
    assert record.files == ("/etc/nccl.conf",)
    assert (record.settings["NCCL_ALGO"], record.settings["NCCL_IB_HCA"]) == ("Ring,Tree", "mlx5")


def test_the_cost_model_is_read_from_the_table_without_what_nccl_will_not_use():
    model = {
        (one.collective, one.algorithm, one.protocol): (one.latency_s, one.bytes_per_s)
        for one in read("rdma-2.27").model
    }
    assert len(model) == 3 + 6 - 1
    assert model["all_reduce", "tree", "LL"] == pytest.approx((14.4e-6, 3.0e9))
    assert model["all_reduce", "ring", "SIMPLE"] == pytest.approx((56.4e-6, 24e9))
    assert ("all_reduce", "collnet_direct", "SIMPLE") not in model


def test_a_table_of_older_shape_is_read_too_and_one_that_is_cut_short_is_not():
    head = "n1:1:1 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Ring/Simple |"
    row = "n1:1:1 [0] NCCL INFO     AllReduce |    14.4/   3.0 |    56.4/  24.0 |"
    old = read_logs({"a": f"{head}\n{row}"}).model
    assert [(one.algorithm, one.protocol) for one in old] == [("tree", "LL"), ("ring", "SIMPLE")]
    assert read_logs({"a": f"{head}\n{row[:-16]}"}).model == ()
    assert read_logs({"a": row}).model == ()


def test_nvls_is_shown_by_multicast_and_heads_and_collnet_channels_show_nothing():
    record = read("nvls")
    assert [line.split(maxsplit=2)[1] for line in record.nvls] == ["multicast", "comm"]
    assert (record.collnet, record.sharp) == ((), ())


def test_sharp_is_shown_by_groups_of_several_ranks_and_jobs_are_only_a_promise():
    record = read("sharp")
    assert record.trees == ("LLT", "SAT")
    assert [line.split(maxsplit=1)[0] for line in record.sharp] == ["SHARP", "[group#:0]", "[group#:1]"]
    assert [line.partition("  ")[0] for line in record.collnet] == [
        "Connected Collnet Chains",
        "rank 0 Connected CollNet",
    ]
    alone = TEXTS["sharp"].replace("group size:2", "group size:1")
    assert read_logs({"a": alone}).trees == ()


def test_channels_to_sharp_before_it_refuses_are_no_evidence():
    before = TEXTS["sharp"].split("[n1:0:400")[0]
    record = read_logs({"a": before})
    assert record.paths == {"COLLNET/SHARP/GDRDMA": 1}
    assert (record.collnet, record.sharp) == ((), ())


def test_ucc_says_its_layer_its_sizes_and_where_sharp_may_be_chosen():
    record = read("ucc-sharp")
    assert (record.library, record.ranks, record.trees) == ("ucc", 4, ("LLT",))
    assert [
        (one.collective, one.bytes, one.algorithm, one.protocol, one.dtype, one.op) for one in record.collectives
    ] == [
        ("barrier", None, "ucp", "CL_BASIC", None, None),
        ("all_reduce", 1048576, "sharp", "CL_BASIC", "float32", "sum"),
        ("reduce", 8, "ucp", "CL_BASIC", "float64", "min"),
    ]
    assert record.scores == (
        "Allreduce: Host: {0..inf}:TL_SHARP:inf", "Allreduce: Cuda: {0..4095}:TL_UCP:10 {4K..inf}:TL_SHARP:inf"
    )  # fmt: skip


UCC = "[1.2] [n1:7  :0]        ucc_coll.c:255  UCC_COLL INFO  "
TEAM = "[1.1] [n1:7  :0]        ucc_team.c:452  UCC  INFO  ===== COLL_SCORE_MAP (team_id 32768, size 4) ====="


def in_place(function):
    return f"{UCC}coll_init: {function} inplace: dst={{0x7fc1, 64, int32, Host}}; CL_BASIC {{TL_UCP}}, team_id 32768"


def test_ucc_in_place_names_the_destination_of_which_a_block_is_one_of_a_team():
    text = "\n".join((TEAM, in_place("Allreduce max"), in_place("Allgather"), in_place("Gather"), in_place("Scatter")))
    assert [(one.collective, one.bytes, one.op) for one in read_logs({"a": text}).collectives] == [
        ("all_reduce", 256, "max"), ("all_gather", 64, None), ("gather", 64, None), ("scatter", None, None)
    ]  # fmt: skip


def test_ucc_in_place_tells_no_block_of_a_team_whose_size_nobody_says():
    assert [one.bytes for one in read_logs({"a": in_place("Allgather")}).collectives] == [None]
    other = TEAM.replace("32768", "32769")
    assert [one.bytes for one in read_logs({"a": f"{other}\n{in_place('Allgather')}"}).collectives] == [None]


def test_hcoll_is_known_by_the_lines_of_sharp_alone():
    record = read("hcoll")
    assert (record.library, record.trees, record.collectives) == ("sharp", ("LLT",), ())


NCCL = "n1:9:9 [0] NCCL INFO "
WARN_NEW = "[2026-03-01 10:00:00] n1:9:9 [0] init.cc:68 (fillInfo) NCCL WARN "
WARN_OLD = "n1:9:9 [0] sharp_plugin.c:365 NCCL WARN "
REFUSED = [
    (f"{NCCL}SHARP: Set to disable on this communicator", "sharp", "NCCL_SHARP_DISABLE is set"),
    (f"{NCCL}SHARP: Group size:2 is less than threshold:4. fallback to non-sharp", "sharp", "fewer nodes than NCCL_SH"),
    (
        f"{NCCL}Communicator has 1 nodes which is less than CollNet node threshold 2, disabling CollNet", "sharp",
        "fewer nodes than NCCL_COLLNET_NODE_THRESHOLD",
    ),
    (f"{WARN_OLD}SHARP group create: Streaming Tree lock failed(-18)", "sharp", "the streaming tree is held"),
    ("[n1:0:9 - comm.c:1][x] ERROR Failed to lock SAT tree(ID:0x208 ret:0x4)", "sharp", "the streaming tree is held"),
    (f"{WARN_OLD}SHARP group create: No resource(-3)", "sharp", "no group of ranks could be made"),
    (f"{WARN_OLD}NET/IB : SHARP coll init error: Cannot create SHARP job(-11)", "sharp", "the aggregation manager"),
    ("[n1:0:9 - context.c:705][x] ERROR SHArP Job init error: No resource", "sharp", "the aggregation manager grants"),
    (f"{WARN_OLD}NET/IB : SHARP coll init error: Unknown(-1)", "sharp", "libsharp could not be started"),
    ("[n1:0:9 unique id 77] ERROR port is used by SM", "sharp", "port is used by SM"),
    (f"{NCCL}Rank 0: 0 CollNet devices", "sharp", "no CollNet device: nccl-rdma-sharp-plugins is not loaded"),
    (f"{WARN_NEW}Detected mixed local CollNet device counts", "sharp", "nodes have different numbers"),
    (f"{WARN_NEW}Cannot initialize CollNet, using point-to-point network instead", "sharp", "CollNet could not be set"),
    (f"{WARN_OLD}SHARP int8,uint8,bfloat16 Datatypes not supported", "sharp-dtypes", "the switches do not add int8"),
    (f"{NCCL}NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)", "nvls", "the device or its driver"),
    (f"{WARN_OLD}Failed to bind NVLink SHARP (NVLS) Multicast memory of size 8 : CUDA error 1", "nvls", "NVSwitches"),
    (f"{WARN_OLD}This is not compatible with NCCL_NVLS_ENABLE=1.", "nvls", "several ranks on one GPU"),
    (
        f"{WARN_NEW}No algorithm/protocol available for function AllReduce with datatype ncclFloat32.", "algorithm",
        "nothing that NCCL_ALGO and NCCL_PROTO leave",
    ),
    (f"{WARN_OLD}Error : no algorithm/protocol available", "algorithm", "nothing that NCCL_ALGO"),
    (f"{NCCL}NET/IB : No device found.", "rdma", "NCCL finds no RDMA device"),
    (f"{NCCL}NCCL_IB_DISABLE set by environment to 1.", "rdma", "NCCL_IB_DISABLE is set"),
    (f"{NCCL}NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "gdr", "a NIC cannot reach"),
    (f"{WARN_OLD}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 7000", "gpu", "several ranks on one"),
    (f"{WARN_NEW}Multiple Ranks are using the same GPU/Partition.", "gpu", "several ranks on one GPU"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "of", "reason"), REFUSED)
def test_a_refusal_is_known_with_its_reason(line, of, reason):
    unavailable = read_logs({"a": line}).unavailable
    assert [(one.feature, one.line in line, one.reason[: len(reason)]) for one in unavailable] == [(of, True, reason)]


def test_warnings_are_kept_without_their_headers_each_once():
    again = f"{WARN_NEW}a warning of no consequence"
    assert read("rdma-2.32", again, again).warnings == ("a warning of no consequence",)


def test_messages_that_processes_wrote_into_one_line_are_taken_apart():
    first, second = TEXTS["rdma-2.27"].splitlines()[-5], TEXTS["socket"].splitlines()[-1]
    assert [one.line for one in read_logs({"a": first + second}).collectives] == [
        first.partition("INFO ")[2], second.partition("INFO ")[2]
    ]  # fmt: skip
    assert ran(read_logs({"a": f"3: {second}"})) == [("all_reduce", 1048576, "ring", "SIMPLE", 2)]


def test_a_line_that_is_cut_short_says_nothing():
    line = TEXTS["socket"].splitlines()[-1]
    header = line.index("AllReduce")
    assert [read_logs({"a": line[:end]}).collectives for end in range(header, len(line))] == [()] * (len(line) - header)
    assert len(read_logs({"a": line}).collectives) == 1


def test_no_log_makes_no_record_of_anything():
    assert read_logs({}) == LogRecord()
    assert read_logs({"a": "", "b": "a program's own output\n"}) == LogRecord()


@given(st.dictionaries(st.text(max_size=5), st.text()))
def test_garbage_is_passed_over(texts):
    read_logs(texts)


@pytest.mark.parametrize("part", [r"\S+", r" ?\[[^]]*\]", r"\{[^}]*\}", r"\d+"])
def test_a_line_without_one_of_its_parts_never_raises(part):
    lines = [line for text in TEXTS.values() for line in text.splitlines()]
    less = [line[: one.start()] + line[one.end() :] for line in lines for one in re.finditer(part, line)]
    assert read_logs({"a": "\n".join(less)}).library == "nccl"


def test_numbers_of_any_length_never_raise():
    long = {name: re.sub(r"\d+", lambda number: number[0] * 5000, text) for name, text in TEXTS.items()}
    assert read_logs(long).collectives == ()


@given(name=st.sampled_from(sorted(TEXTS)), seed=st.integers())
def test_a_damaged_log_never_raises_and_never_says_what_the_whole_one_does_not(name, seed):
    whole, chance = {one[:3] for one in ran(read(name))}, random.Random(seed)  # noqa: S311
    lines = TEXTS[name].splitlines()
    cut = [line[: chance.randrange(len(line) + 1)] if chance.random() < 0.5 else line for line in lines]
    glued = "".join(line + chance.choice(["\n", "", "\x00"]) for line in cut)
    record = read_logs({f"{name}.log": glued})
    assert LogRecord.from_json(record.to_json()) == record
    assert {one[:3] for one in ran(record)} <= whole
