"""NCCL's log: the lines of 2.24 to 2.32, the numbers of 2.20 to 2.23, the table of the cost model, and RCCL's lines."""

import pytest
from cli_runner import invoke
from library_logs import LOGS, TEXTS, read_log

from hpccoll.cases.requested_algorithm import NCCL_ALGORITHMS
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.nccl import FORCED_SOCKETS, NUMBERED_ALGORITHMS, ONLY_SOCKETS
from hpccoll.evidence.verdict import judge_collective, network_mismatch

HEAD = "n1:9:9 [0] NCCL INFO "
"""The header of a line of NCCL."""


def ran(record):
    return [(one.collective, one.bytes, one.algorithm, one.protocol, one.channels) for one in record.collectives]


def test_algorithm_protocol_and_channels_are_read_for_each_collective_and_size():
    assert ran(read_log("rdma-2.27")) == [
        ("all_reduce", 8, "tree", "LL", 1),
        ("all_reduce", 67108864, "ring", "SIMPLE", 16),
        ("all_reduce", 67108864, "tree", "LL128", 16),
        ("all_gather", 4096, "ring", "LL", 4),
    ]


def test_dtype_and_op_of_a_collective_are_those_of_the_preceding_call():
    of = [(one.dtype, one.op) for one in read_log("rdma-2.27").collectives]
    assert of == [("float32", "sum"), ("float32", "sum"), ("bfloat16", "prod"), ("float32", None)]


def test_the_newer_format_is_read_with_symmetric_kernels_and_copy_engines():
    assert ran(read_log("rdma-2.32")) == [
        ("all_reduce", 67108864, "ring", "SIMPLE", 16),
        ("all_reduce", 1048576, "symmetric", "AllReduce_RSxLD_AGxST", 8),
        ("all_gather", 65536, "copy_engine", "cudaMemcpyBatchAsync", None),
        ("all_gather", 131072, "hierarchical_ce", "RMA proxy + CE", None),
        ("all_gather", 262144, "hierarchical_ce", "RMA proxy + CE", None),
    ]


def test_communicator_settings_are_read_except_those_that_a_variable_overrides():
    record = read_log("settings")
    assert record.communicator == {
        "net_name": "IB", "traffic_class": "106", "collnet_enable": "1", "cta_policy": "1", "nvls_ctas": "4",
    }  # fmt: skip
    assert record.settings["NCCL_MAX_CTAS"] == "2"
    assert not read_log("rdma-2.32").communicator


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
def test_version_network_gpudirect_and_size_are_read_log(name, version, network, gdr, nodes, ranks):
    record = read_log(name)
    assert (record.library, record.version, record.network, record.gdr) == ("nccl", version, network, gdr)
    assert (record.nodes, record.ranks) == (nodes, ranks)


@pytest.mark.parametrize("build", ["", "+cuda12.9", ": the test library of hpccoll, in host memory"])
def test_the_build_is_what_the_line_says_behind_the_version(build):
    record = read_logs({"a": f"{HEAD}NCCL version 2.30.7{build}\n"})
    assert (record.version, record.build) == ("2.30.7", build)


PLAIN_RING = """\
n1:9:9 [0] NCCL INFO NCCL version 2.30.7+cuda12.9
n1:9:9 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
n1:9:9 [0] NCCL INFO Rank 0: 0 CollNet devices
n1:8:8 [1] NCCL INFO Rank 1: 0 CollNet devices
n1:9:9 [0] NCCL INFO AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
"""
"""As every NCCL from 2.30 on logs it, without a request for SHARP too."""
ASKED = f"{HEAD}NCCL_COLLNET_ENABLE set by environment to 1."


def sharp_reasons(text):
    return [one.line for one in read_logs({"a": text}).unavailable if one.feature == "sharp"]


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        (None, False),
        (f"{HEAD}NCCL_COLLNET_ENABLE set by environment to 0.", False),
        (ASKED, True),
        (f"{HEAD}Comm config collnetEnable set to 1", True),
        (f"{HEAD}Comm config collnetEnable set to 1\n{HEAD}NCCL_COLLNET_ENABLE set by environment to 0.", False),
    ],
)
def test_0_collnet_devices_are_a_reason_only_if_sharp_was_requested(more, missing):
    text = PLAIN_RING if more is None else f"{more}\n{PLAIN_RING}"
    assert sharp_reasons(text) == ["Rank 0: 0 CollNet devices"] * missing
    verdict = judge_collective("sharp" if missing else None, "all_reduce", 64, 2, read_logs({"a": text}))
    assert verdict.executed == ("ring (fallback: Rank 0: 0 CollNet devices)" if missing else "ring")


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        (("Rank 1: 0 CollNet", "Rank 1: 1 CollNet"), False),
        (("Rank 1: 0 CollNet", "Rank 1: 0 Net"), False),
        (("nRanks 2", "nRanks 3"), False),
        (("Rank 1: 0 CollNet devices", "Local CollNet device counts across ranks: min 0 max 0"), True),
        (("Rank 1: 0 CollNet devices", "Local CollNet device counts across ranks: min 0 max 1"), False),
    ],
)
def test_0_collnet_devices_are_a_reason_only_if_all_ranks_have_none(changed, missing):
    assert bool(sharp_reasons(f"{ASKED}\n{PLAIN_RING}".replace(*changed))) == missing


@pytest.mark.parametrize("line", ["P2P plugin IBext_v7", "P2P plugin v10 IBext_v7"])
def test_the_network_plugin_of_sharp_is_named_with_and_without_its_version(line):
    assert read_logs({"a": HEAD + line}).plugins == {"p2p": "IBext_v7"}


@pytest.mark.parametrize(
    ("line", "plugins"),
    [
        ("Using tuner plugin: 'site_tuner'", {"tuner": "site_tuner"}),  # 2.20
        ("TUNER/Plugin: Using tuner plugin site_tuner", {"tuner": "site_tuner"}),  # 2.21 to 2.27
        ("TUNER/Plugin: Using internal tuner plugin.", {}),
        ("TUNER/Plugin: Using site_tuner (v6)", {"tuner": "site_tuner"}),  # from 2.28 on
        ("PROFILER/Plugin: loaded ncclProfiler_v2.", {"profiler": "ncclProfiler_v2"}),  # 2.24 and 2.25
        ("PROFILER/Plugin: loaded site_profiler", {"profiler": "site_profiler"}),  # 2.26 and 2.27
        ("PROFILER/Plugin: Loaded site_profiler (v5)", {"profiler": "site_profiler"}),  # from 2.28 on
        ("NET/Plugin: Loaded coll plugin SHARP (v7)", {"collnet": "SHARP"}),  # 2.20 and 2.21
        ("NET/Plugin: Loaded collnet plugin SHARP (v12)", {"collnet": "SHARP"}),
        ("NET/Plugin: Loaded gin plugin IBext (v12)", {"gin": "IBext"}),  # 2.28 and 2.29
        ("GIN/Plugin: Loaded gin plugin IBext (v14)", {"gin": "IBext"}),  # from 2.30 on
        ("RMA/Plugin: Loaded rma plugin IBext (v16)", {"rma": "IBext"}),
    ],
)
def test_plugins_are_named_in_the_words_of_each_version(line, plugins):
    assert read_logs({"a": HEAD + line}).plugins == plugins


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("NCCL_IB_HCA set by environment to mlx5_0", {"NCCL_IB_HCA": "mlx5_0"}),
        ("NCCL_NTHREADS set by environment to 256.", {"NCCL_NTHREADS": "256"}),
        ("RCCL_MSCCL_ENABLE set by environment to 0.", {"RCCL_MSCCL_ENABLE": "0"}),
        ("TUNER/Plugin: NCCL_TUNER_PLUGIN set to site", {"NCCL_TUNER_PLUGIN": "site"}),  # 2.21 to 2.25
        ("NET/Plugin: Plugin name set by env to site.so", {"NCCL_NET_PLUGIN": "site.so"}),  # 2.21 to 2.27
        ("PROFILER/Plugin: Plugin name set by env to site.so", {"NCCL_PROFILER_PLUGIN": "site.so"}),
        ("Comm config maxCTAs reset to NCCL_MAX_CTAS=2", {"NCCL_MAX_CTAS": "2"}),
        ("Comm config graphUsageMode reset to 0 by NCCL_GRAPH_MIXING_SUPPORT=0", {"NCCL_GRAPH_MIXING_SUPPORT": "0"}),
    ],
)
def test_variables_are_named_in_the_words_of_each_version(line, settings):
    assert read_logs({"a": HEAD + line}).settings == settings


def test_a_warning_about_a_setting_of_the_communicator_is_no_setting():
    warning = "Comm config graphUsageMode is set to 1 but the user is capturing graphs on the stream."
    assert read_logs({"a": HEAD + warning}).communicator == {}
    assert read_logs({"a": f"{HEAD}Comm config graphUsageMode set to 1"}).communicator == {"graph_usage_mode": "1"}


SOCKET = (f"{HEAD}NET/Socket : Using [0]eth0:10.0.0.1<0>", f"{HEAD}Using network Socket")
IB_PORTS = f"{HEAD}NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
STARTED = f"{HEAD}Initialized NET plugin Socket"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((IB_PORTS, *SOCKET), id="up to 2.26"),
        pytest.param((IB_PORTS, f"{HEAD}Initialized NET plugin IB", *SOCKET, STARTED), id="2.27 and 2.28.3"),
        pytest.param((f"{HEAD}Comm config netName reset to NCCL_NET=Socket", SOCKET[1]), id="a setting overridden"),
        pytest.param((f"{HEAD}Comm config Net name set to socket", SOCKET[1]), id="a setting"),
    ],
)
def test_requested_sockets_are_the_reason_for_tcp_though_nccl_does_not_log_the_request(lines):
    record = read_logs({"a": "\n".join(lines)})
    assert [(one.feature, one.reason) for one in record.unavailable] == [("rdma", FORCED_SOCKETS)]
    assert network_mismatch(record, "rdma").endswith("Using network Socket")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((f"{HEAD}Failed to initialize NET plugin IB", STARTED, *SOCKET), id="RDMA could not be started"),
        pytest.param((IB_PORTS, f"{HEAD}Using network IB"), id="RDMA was used"),
        pytest.param((IB_PORTS, f"{HEAD}Using network IB", *SOCKET), id="RDMA was used by other ranks"),
        pytest.param(SOCKET, id="nothing else is known"),
    ],
)
def test_tcp_is_not_attributed_to_a_request_without_evidence(lines):
    assert read_logs({"a": "\n".join(lines)}).unavailable == ()


def test_sockets_as_the_only_network_that_was_started_are_no_proof_of_a_request():
    """After a failure, NCCL does not start RDMA for further communicators of the process either."""
    record = read_logs({"a": "\n".join((SOCKET[0], STARTED, SOCKET[1]))})
    assert [(one.feature, one.reason) for one in record.unavailable] == [("rdma", ONLY_SOCKETS)]
    assert network_mismatch(record, "rdma").endswith("Using network Socket")


def test_another_reason_for_tcp_comes_before_the_request():
    record = read_logs({"a": "\n".join((f"{HEAD}NCCL_IB_DISABLE set by environment to 1.", STARTED, *SOCKET))})
    assert [one.reason for one in record.unavailable] == ["NCCL_IB_DISABLE is set"]


def test_a_configuration_file_that_requests_sockets_is_the_reason_for_tcp():
    record = read_logs({"a": SOCKET[1], "nccl.conf": "NCCL_NET=Socket\n"})
    assert [one.reason for one in record.unavailable] == [FORCED_SOCKETS]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("RCCL version 2.16.5+hip5.6 HEAD:0123456", "2.16.5"),
        ("RCCL version 2.20.5+hip6.2 HEAD:0123456", "2.20.5"),
        ("RCCL version : 2.22.3-HEAD:0123456", "2.22.3"),
        ("RCCL version : 2.28.3-develop:0123456", "2.28.3"),
        ("RCCL version : 2.28.3", "2.28.3"),
        ("RCCL version 2.28.3-HEAD:0123456", "2.28.3"),
        ("RCCL version 2.18.3+hip6.0 develop:0123456+", "2.18.3"),
        ("NCCL version 2.18.3+hip6.0", "2.18.3"),
    ],
)
@pytest.mark.parametrize("head", ["", HEAD])
def test_rccl_is_named_with_its_version_with_and_without_a_header(head, line, version):
    record = read_logs({"a": f"{head}{line}\n{HEAD}NET/IB : No device found."})
    assert (record.library, record.version) == ("rccl", version)


@pytest.mark.parametrize(
    "line",
    [
        "NET/Plugin : No plugin found (librccl-net.so), using internal implementation",
        'Missing "iommu=pt" from kernel command line which can lead to low RCCL performance',
        "ROCr version 1.18",
        "RCCL_MSCCL_ENABLE set by environment to 0.",
    ],
)
def test_rccl_is_recognised_in_a_log_without_its_version(line):
    assert read_logs({"a": f"{HEAD}{line}"}).library == "rccl"
    assert read_logs({"a": f"{HEAD}NET/IB : No device found."}).library == "nccl"


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_TOPO_FILE set by environment to /shared/RCCL/topology.xml",
        "NET/Plugin: Plugin name set by env to /opt/librccl-net.so",
        "Comm config Net name set to RCCL",
        "TUNER/Plugin: NCCL_TUNER_PLUGIN set to librccl-tuner.so",
    ],
)
def test_a_value_that_someone_chose_does_not_name_the_library(line):
    assert read_logs({"a": f"{HEAD}{line}"}).library == "nccl"


@pytest.mark.parametrize("before", [True, False])
def test_the_line_with_the_version_decides_which_library_it_is(before):
    lines = [f"{HEAD}NCCL version 2.30.7+cuda13.0", f"{HEAD}TUNER/Plugin: Using /shared/RCCL/tuner.so"]
    record = read_logs({"a": "\n".join(lines if before else lines[::-1])})
    assert (record.library, record.version) == ("nccl", "2.30.7")


def test_channels_of_rccl_are_counted_without_the_communicator_that_their_lines_name():
    record = read_log("rccl-2.16")
    assert (record.library, record.version, record.network_type) == ("rccl", "2.16.5", "tcp")
    assert record.paths == {"NET/Socket": 4, "P2P/IPC": 4}


def test_collectives_of_rccl_are_read_as_those_of_nccl():
    record = read_log("rccl-2.27")
    assert (record.library, record.version, record.nodes, record.ranks) == ("rccl", "2.27.7", 2, 16)
    assert ran(record) == [
        ("all_reduce", 67108864, "ring", "SIMPLE", 56), ("all_reduce", 8, "tree", "LL", 4),
        ("all_gather", 4096, "ring", "LL", 2),
    ]  # fmt: skip
    assert judge_collective("tree", "all_reduce", 8, 16, record).executed == "tree"
    assert judge_collective(None, "all_gather", 16 * 4096, 16, record).executed == "ring"


def test_numbered_algorithms_of_rccl_are_read():
    head = f"{HEAD}RCCL version 2.20.5+hip6.2 HEAD:0123456"
    called = f"{call('AllReduce', 1024)} task 0 globalrank 0"
    record = read_logs({"a": f"{head}\n{called}\n{LINE}"})
    assert [(one.collective, one.bytes, one.algorithm) for one in record.collectives] == [("all_reduce", 4096, "ring")]


def test_the_report_on_rccls_logs_names_rccl():
    lines = invoke("evidence", LOGS / "rccl-2.16.log").out.splitlines()
    assert lines[0] == "RCCL 2.16.5"
    assert any(line.startswith("ran: no line says what: RCCL logs it from ROCm") for line in lines)
    assert invoke("evidence", LOGS / "rccl-2.27.log").out.startswith("RCCL 2.27.7, 16 ranks on 2 nodes\n")


def test_ranks_and_nodes_are_those_of_the_largest_communicator():
    small = "n1:9:9 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
    record = read_log("socket", small)
    assert (record.ranks, record.nodes) == (4, 2)


SIZE_KEYS = {"2.4": "nvmlDev {0}", "2.8": "busId {0}000", "2.18": "nvmlDev {0} busId {0}000 commId 0x{1}"}
"""What the lines about a rank name in versions before the number of nodes."""


def members(hosts, *, version="2.18", ranks=None, per_host=2, communicator="a", first=0, end="Init COMPLETE"):
    """Return the lines of the ranks of a communicator on ``hosts``, with those of sockets."""
    lines, size = [], ranks or per_host * len(hosts)
    for number in range(per_host * len(hosts)):
        host, gpu = hosts[number // per_host], number % per_host + 1
        head = f"{host}:{100 + number}:{200 + number} [{gpu}] NCCL INFO "
        key = SIZE_KEYS[version].format(gpu, communicator)
        lines += [
            f"{head}Using network Socket",
            f"{head}comm 0x5 rank {number + first} nranks {size} cudaDev {gpu} {key} - {end}",
        ]
    return "\n".join(lines)


@pytest.mark.parametrize("version", SIZE_KEYS)
@pytest.mark.parametrize("end", ["Init START", "Init COMPLETE", "Destroy COMPLETE"])
def test_before_2_20_the_number_of_nodes_is_that_of_the_hosts_of_all_ranks(version, end):
    for hosts, nodes in ((["n1"], 1), (["n1", "n2"], 2), (["n1.x", "n2.x", "n3.x"], 3)):
        record = read_logs({"a": members(hosts, version=version, end=end)})
        assert (record.ranks, record.nodes) == (2 * len(hosts), nodes)
        assert (network_mismatch(record, "rdma") is None) == (nodes == 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(members(["n1"], ranks=4), id="ranks are missing"),
        pytest.param(members(["localhost", "localhost"]), id="two hosts of one name"),
        pytest.param(members(["<node>"]), id="an anonymous host"),
        pytest.param(members(["n1"]) + f"\n{HEAD}Channel 00 : 0[1] -> 1[2] [send] via NET/Socket/0", id="a network"),
        pytest.param(members(["n1"], ranks=4) + "\n" + members(["n1"], communicator="b"), id="only a smaller one"),
        pytest.param(members(["n1"]) + "\n" + members(["n1"], communicator="b", per_host=1, ranks=2), id="another one"),
    ],
)
def test_one_node_is_not_claimed_without_all_ranks_of_all_communicators(text):
    record = read_logs({"a": text})
    assert record.nodes is None
    assert network_mismatch(record, "rdma")


def test_several_communicators_on_one_host_are_on_one_node():
    one, other = members(["n1"], per_host=4), members(["n1"], per_host=4, communicator="b")
    split = (
        "n1:100:200 [1] NCCL INFO ncclCommSplit comm 0x7 rank 0 nranks 1 cudaDev 1 busId 1000 parent 0x5 - Init START"
    )
    for text in (
        f"{one}\n{other}",
        f"{one}\n{split}",
        members(["n1"], version="2.8") + "\n" + members(["n1"], version="2.8"),
    ):
        assert read_logs({"a": text}).nodes == 1
    lines = members(["n1"], per_host=4).replace("comm 0x5", "[Rank 0] ncclCommInitRank comm 0x5")
    assert read_logs({"a": lines}).nodes == 1


def test_a_smaller_communicator_over_several_nodes_is_no_single_node():
    inside = f"{HEAD}comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0"
    across = f"{HEAD}comm 0x2 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
    text = f"{inside}\n{across}\n{SOCKET[1]}"
    assert (read_logs({"a": text}).ranks, read_logs({"a": text}).nodes) == (4, None)
    assert network_mismatch(read_logs({"a": text}), "rdma")
    assert read_logs({"a": inside}).nodes == 1


def test_channels_are_counted_by_their_path():
    assert read_log("rdma-2.27").paths == {
        "NET/IB/GDRDMA": 1, "NET/IB/GDRDMA/PXN": 1, "P2P/CUMEM": 1, "SHM/direct": 1
    }  # fmt: skip
    assert read_log("socket").paths == {"NET/Socket": 1, "P2P/IPC": 1}
    assert read_log("sharp").paths == {"COLLNET/SHARP/GDRDMA": 1}
    shared = f"{HEAD}Channel 00 : 0[c000] -> 1[c100] via direct shared memory"
    assert read_logs({"a": f"{shared}\n{shared.replace('00 :', '01 :')} comm 0x5 nRanks 02"}).paths == {"SHM": 2}
    assert read_log("efa").paths == {"NET/AWS Libfabric/GDRDMA": 1}


@pytest.mark.parametrize(
    ("text", "network", "kind", "paths", "gdr"),
    [
        ("Ring 00 : 1 -> 0 [receive] via NET/Socket/0", "Socket", "tcp", {"NET/Socket": 1}, None),  # 2.4
        ("Ring 01 : 9[3d000] -> 8[b2000] [send] via NET/IB/1/GDRDMA", "IB", "rdma", {"NET/IB/GDRDMA": 1}, True),  # 2.5
        ("Using internal Network Socket", "Socket", "tcp", {}, None),  # 2.3
        ("Using internal Network IB", "IB", "rdma", {}, None),
    ],
)  # fmt: skip
def test_the_network_is_named_in_the_words_of_old_versions_too(text, network, kind, paths, gdr):
    record = read_logs({"a": f"{HEAD}{text}"})
    assert (record.network, record.network_type, record.paths, record.gdr) == ((network,), kind, paths, gdr)


@pytest.mark.parametrize("name", ["FastSocket", "GPUDirectTCPX_v7", "FasTrak"])
def test_plugins_for_tcp_are_no_rdma(name):
    for text in (f"Using network {name}", f"Channel 00/0 : 8[0] -> 0[0] [receive] via NET/{name}/0/GDRDMA"):
        record = read_logs({"a": f"{HEAD}{text}"})
        assert (record.network, record.network_type, record.gdr) == ((name,), "tcp", None)
        assert (network_mismatch(record, "tcp"), bool(network_mismatch(record, "rdma"))) == (None, True)


def test_sockets_do_not_lack_gpudirect_rdma():
    text = f"{HEAD}NET/%s : GPU Direct RDMA Disabled for HCA 0 'eth0'"
    found = {name: bool(read_logs({"a": text % name}).unavailable) for name in ("Socket", "FastSocket", "IB")}
    assert found == {"Socket": False, "FastSocket": False, "IB": True}


def test_ports_plugins_and_settings_are_read():
    older = read_log("rdma-2.27")
    assert older.devices == ("mlx5_0:1/IB", "mlx5_1:1/RoCE")
    assert older.plugins == {"tuner": "site_tuner"}
    assert older.settings["NCCL_ALGO"] == "Ring,Tree"
    assert older.settings["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,NET,GRAPH,TUNING,COLL"
    assert read_log("rdma-2.32").settings == {"NCCL_COLLNET_ENABLE": "0"}
    assert read_log("sharp").plugins == {"net": "IBext_v10", "p2p": "IBext_v10", "collnet": "SHARP"}
    assert read_log("efa").plugins == {"net": "Libfabric", "tuner": "nccl_ofi_tuner", "fabric": "efa"}


def test_the_cost_model_is_read_without_pairs_that_nccl_never_uses():
    model = {
        (one.collective, one.algorithm, one.protocol): (one.latency_s, one.bytes_per_s)
        for one in read_log("rdma-2.27").model
    }
    assert len(model) == 3 + 6 - 1
    assert model["all_reduce", "tree", "LL"] == pytest.approx((14.4e-6, 3.0e9))
    assert model["all_reduce", "ring", "SIMPLE"] == pytest.approx((56.4e-6, 24e9))
    assert ("all_reduce", "collnet_direct", "SIMPLE") not in model


def test_a_cost_table_of_the_older_format_is_read_and_a_truncated_one_is_not():
    head = "n1:1:1 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Ring/Simple |"
    row = "n1:1:1 [0] NCCL INFO     AllReduce |    14.4/   3.0 |    56.4/  24.0 |"
    old = read_logs({"a": f"{head}\n{row}"}).model
    assert [(one.algorithm, one.protocol) for one in old] == [("tree", "LL"), ("ring", "SIMPLE")]
    assert read_logs({"a": f"{head}\n{row[:-16]}"}).model == ()
    assert read_logs({"a": row}).model == ()


def test_multicast_and_heads_show_nvls_and_collnet_channels_show_nothing():
    record = read_log("nvls")
    assert [line.split(maxsplit=2)[1] for line in record.nvls] == ["multicast", "comm"]
    assert (record.collnet, record.sharp) == ((), ())


def call(function, count):
    buffers = f"sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root 0"
    return f"{HEAD}{function}: opCount 0 {buffers} comm 0x3 [nranks=4] stream 0x4"


def ran_of_lines(*lines):
    return [(one.collective, one.bytes, one.algorithm) for one in read_logs({"a": "\n".join(lines)}).collectives]


def test_numbered_algorithms_are_read_for_each_single_call_with_its_dtype_and_op():
    record = read_logs({"a": TEXTS["numbers-2.22"]})
    assert [
        (one.collective, one.bytes, one.algorithm, one.protocol, one.dtype, one.op) for one in record.collectives
    ] == [
        ("all_reduce", 8, "tree", "LL", "float32", "sum"),
        ("all_reduce", 67108864, "ring", "SIMPLE", "float32", "sum"),
        ("all_gather", 2048, "ring", "LL128", "bfloat16", None),
        ("reduce_scatter", 32768, "nvls", "SIMPLE", "float64", "max"),
        ("broadcast", 512, "ring", "LL", "uint8", None),
    ]
    assert {one.channels for one in record.collectives} == {None}


def test_the_size_of_a_case_counts_all_ranks_as_in_newer_versions():
    record = read_logs({"a": TEXTS["numbers-2.22"]})
    assert judge_collective(None, "all_gather", 8192, 4, record, dtype="bfloat16").executed == "ring"
    assert judge_collective("tree", "all_reduce", 64 * 2**20, 4, record).executed == "ring (fallback: no line says why)"
    assert judge_collective(None, "all_gather", 2048, 4, record).executed == "unknown"


def test_the_numbers_follow_nccls_order_of_algorithms():
    assert sorted(NUMBERED_ALGORITHMS) == sorted(NCCL_ALGORITHMS.values())
    for number, name in enumerate(NUMBERED_ALGORITHMS):
        line = f"{HEAD}4096 Bytes -> Algo {number} proto 2 time 1.0"
        assert ran_of_lines(call("AllReduce", 1024), line) == [("all_reduce", 4096, name)]
    assert ran_of_lines(call("AllReduce", 1024), f"{HEAD}4096 Bytes -> Algo 7 proto 2 time 1.0") == []


@pytest.mark.parametrize("named", ["", "AllReduce: "])
def test_a_numbered_line_belongs_to_the_single_preceding_call(named):
    line = f"{HEAD}{named}4096 Bytes -> Algo 1 proto 2 time 12.400000"
    small = f"{HEAD}{named}8 Bytes -> Algo 0 proto 0 time 1.000000"
    assert ran_of_lines(call("AllReduce", 1024), line, call("AllReduce", 2), small) == [
        ("all_reduce", 4096, "ring"), ("all_reduce", 8, "tree")
    ]  # fmt: skip


LINE = f"{HEAD}4096 Bytes -> Algo 1 proto 2 time 12.400000"
NAMED = LINE.replace("4096 Bytes", "AllReduce: 4096 Bytes")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([LINE], id="no call"),
        pytest.param([NAMED], id="no call, named"),
        pytest.param([call("AllReduce", 512), call("AllReduce", 512), LINE], id="the sum of a group"),
        pytest.param([call("Broadcast", 1024), call("AllReduce", 1024), LINE, LINE], id="a group of two kinds"),
        pytest.param([call("AllReduce", 512), LINE], id="another size"),
        pytest.param([call("AllGather", 1024), LINE], id="another size of all ranks"),
        pytest.param([call("Broadcast", 1024), NAMED], id="another function"),
        pytest.param([call("AllReduce", 1024).partition("comm")[0], LINE], id="a call that is cut short"),
        pytest.param([call("AllReduce", 1024), LINE.replace("n1:9", "n2:9")], id="another process"),
        pytest.param([call("AllReduce", 1024), LINE.partition("time")[0]], id="a line that is cut short"),
    ],
)
def test_an_ambiguous_numbered_line_is_ignored(lines):
    assert ran_of_lines(*lines) == []


def test_after_a_group_the_next_single_call_is_read():
    group = [call("AllReduce", 512), call("Broadcast", 512), LINE, LINE]
    assert ran_of_lines(*group, call("AllReduce", 1024), LINE) == [("all_reduce", 4096, "ring")]


def test_numbered_choices_without_calls_are_reported_with_how_to_have_the_calls(tmp_path):
    (tmp_path / "a.log").write_text(f"{LINE}\n{NAMED}\n{LINE.replace('Algo 1', 'Algo 0')}")
    record = read_logs({"a": (tmp_path / "a.log").read_text()})
    assert (record.choices, record.collectives) == (("4 KiB by ring SIMPLE", "4 KiB by tree SIMPLE"), ())
    assert "ran: 4 KiB by ring SIMPLE, 4 KiB by tree SIMPLE; no line says" in invoke("evidence", tmp_path).out
    assert read_logs({"a": f"{call('AllReduce', 1024)}\n{LINE}"}).choices == ()


def test_the_evidence_command_reports_numbered_algorithms():
    lines = invoke("evidence", LOGS / "numbers-2.22.log").out.splitlines()
    assert lines[0] == "NCCL 2.22.3, 4 ranks on 2 nodes"
    assert "ran: all_reduce of 64 MiB (float32 sum): ring, protocol SIMPLE" in lines
    assert "ran: all_gather of 2 KiB a rank (bfloat16): ring, protocol LL128" in lines
