"""NCCL's log: the lines of 2.24 to 2.32, the numbers of 2.20 to 2.23, the table of the cost model, and RCCL's lines."""

import pytest

from hpccoll.cases.library_request import NCCL_ALGORITHMS
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.nccl import FORCED_SOCKETS, NUMBERED_ALGORITHMS, ONLY_SOCKETS
from hpccoll.evidence.verdict import judge_collective, network_mismatch

HEAD = "n1:9:9 [0] NCCL INFO "
"""The header of a line of NCCL."""


def read(*texts):
    """Return the record of lines of NCCL, without their header."""
    return read_logs({"a": "\n".join(HEAD + text for text in texts)})


PLAIN_RING = """\
n1:9:9 [0] NCCL INFO NCCL version 2.30.7+cuda12.9
n1:9:9 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
n1:9:9 [0] NCCL INFO Rank 0: 0 CollNet devices
n1:8:8 [1] NCCL INFO Rank 1: 0 CollNet devices
n1:9:9 [0] NCCL INFO AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
"""
"""As every NCCL from 2.30 on logs it, without a request for SHARP too."""
ASKED, NOT_ASKED = (f"{HEAD}NCCL_COLLNET_ENABLE set by environment to {value}." for value in (1, 0))
SETTING = f"{HEAD}Comm config collnetEnable set to 1"
EXTREMES = "Local CollNet device counts across ranks: min 0 max "


@pytest.mark.parametrize(
    ("before", "changed", "missing"),
    [
        ("", ("", ""), False), (NOT_ASKED, ("", ""), False), (ASKED, ("", ""), True), (SETTING, ("", ""), True),
        (f"{SETTING}\n{NOT_ASKED}", ("", ""), False),
        (ASKED, ("Rank 1: 0 CollNet", "Rank 1: 1 CollNet"), False),
        (ASKED, ("Rank 1: 0 CollNet", "Rank 1: 0 Net"), False), (ASKED, ("nRanks 2", "nRanks 3"), False),
        (ASKED, ("Rank 1: 0 CollNet devices", f"{EXTREMES}0"), True),
        (ASKED, ("Rank 1: 0 CollNet devices", f"{EXTREMES}1"), False),
    ],
)  # fmt: skip
def test_0_collnet_devices_of_all_ranks_are_a_reason_if_sharp_was_requested(before, changed, missing):
    record = read_logs({"a": f"{before}\n{PLAIN_RING}".replace(*changed)})
    reasons = [one.line for one in record.unavailable if one.feature == "sharp"]
    assert reasons == ["Rank 0: 0 CollNet devices"] * missing
    verdict = judge_collective("sharp" if missing else None, "all_reduce", 64, 2, record)
    assert verdict.executed == ("ring (fallback: Rank 0: 0 CollNet devices)" if missing else "ring")


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        ("P2P plugin IBext_v7", "plugins", {"p2p": "IBext_v7"}),
        ("P2P plugin v10 IBext_v7", "plugins", {"p2p": "IBext_v7"}),
        ("Using tuner plugin: 'site_tuner'", "plugins", {"tuner": "site_tuner"}),  # 2.20
        ("TUNER/Plugin: Using tuner plugin site_tuner", "plugins", {"tuner": "site_tuner"}),  # 2.21 to 2.27
        ("TUNER/Plugin: Using internal tuner plugin.", "plugins", {}),
        ("TUNER/Plugin: Using site_tuner (v6)", "plugins", {"tuner": "site_tuner"}),  # from 2.28 on
        ("PROFILER/Plugin: loaded ncclProfiler_v2.", "plugins", {"profiler": "ncclProfiler_v2"}),  # 2.24 and 2.25
        ("PROFILER/Plugin: Loaded site_profiler (v5)", "plugins", {"profiler": "site_profiler"}),  # from 2.28 on
        ("NET/Plugin: Loaded coll plugin SHARP (v7)", "plugins", {"collnet": "SHARP"}),  # 2.20 and 2.21
        ("NET/Plugin: Loaded collnet plugin SHARP (v12)", "plugins", {"collnet": "SHARP"}),
        ("GIN/Plugin: Loaded gin plugin IBext (v14)", "plugins", {"gin": "IBext"}),  # from 2.30 on
        ("RMA/Plugin: Loaded rma plugin IBext (v16)", "plugins", {"rma": "IBext"}),
        ("NCCL_IB_HCA set by environment to mlx5_0", "settings", {"NCCL_IB_HCA": "mlx5_0"}),
        ("NCCL_NTHREADS set by environment to 256.", "settings", {"NCCL_NTHREADS": "256"}),
        ("RCCL_MSCCL_ENABLE set by environment to 0.", "settings", {"RCCL_MSCCL_ENABLE": "0"}),
        ("TUNER/Plugin: NCCL_TUNER_PLUGIN set to site", "settings", {"NCCL_TUNER_PLUGIN": "site"}),  # 2.21 to 2.25
        ("NET/Plugin: Plugin name set by env to site.so", "settings", {"NCCL_NET_PLUGIN": "site.so"}),  # to 2.27
        ("Comm config maxCTAs reset to NCCL_MAX_CTAS=2", "settings", {"NCCL_MAX_CTAS": "2"}),
        ("Comm config graphUsageMode reset to 0 by NCCL_X=0", "settings", {"NCCL_X": "0"}),
        ("Comm config graphUsageMode set to 1", "communicator", {"graph_usage_mode": "1"}),
        ("Comm config graphUsageMode is set to 1 but the user is capturing graphs.", "communicator", {}),
        ("Channel 00 : 0[c000] -> 1[c100] via direct shared memory comm 0x5 nRanks 02", "paths", {"SHM": 1}),  # RCCL
    ],
)
def test_plugins_variables_and_settings_are_named_in_the_words_of_each_version(line, field, found):
    assert getattr(read(line), field) == found


SOCKET = ("NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket")
IB_PORTS, STARTED = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", "Initialized NET plugin Socket"


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        pytest.param((IB_PORTS, *SOCKET), [FORCED_SOCKETS], id="up to 2.26"),
        pytest.param((IB_PORTS, "Initialized NET plugin IB", *SOCKET, STARTED), [FORCED_SOCKETS], id="2.27 and 2.28.3"),
        pytest.param(
            ("Comm config netName reset to NCCL_NET=Socket", SOCKET[1]), [FORCED_SOCKETS], id="a setting overridden"
        ),
        pytest.param(("Comm config Net name set to socket", SOCKET[1]), [FORCED_SOCKETS], id="a setting"),
        # After a failure, NCCL does not start RDMA for further communicators of the process either.
        pytest.param((SOCKET[0], STARTED, SOCKET[1]), [ONLY_SOCKETS], id="nothing else was started"),
        pytest.param(
            ("NCCL_IB_DISABLE set by environment to 1.", STARTED, *SOCKET), ["NCCL_IB_DISABLE is set"], id="disabled"
        ),
        pytest.param(("Failed to initialize NET plugin IB", STARTED, *SOCKET), [], id="RDMA could not be started"),
        pytest.param((IB_PORTS, "Using network IB"), [], id="RDMA was used"),
        pytest.param((IB_PORTS, "Using network IB", *SOCKET), [], id="RDMA was used by other ranks"),
        pytest.param(SOCKET, [], id="nothing else is known"),
    ],
)
def test_the_reason_for_tcp_is_a_request_only_with_evidence_though_nccl_does_not_log_it(lines, reasons):
    assert [one.reason for one in read(*lines).unavailable if one.feature == "rdma"] == reasons


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("RCCL version 2.20.5+hip6.2 HEAD:0123456", "2.20.5"), ("RCCL version : 2.22.3-HEAD:0123456", "2.22.3"),
        ("RCCL version : 2.28.3", "2.28.3"),
        ("RCCL version 2.18.3+hip6.0 develop:0123456+", "2.18.3"), ("NCCL version 2.18.3+hip6.0", "2.18.3"),
    ],
)  # fmt: skip
def test_rccl_is_named_with_its_version_with_and_without_a_header(line, version):
    for head in ("", HEAD):
        record = read_logs({"a": f"{head}{line}\n{HEAD}NET/IB : No device found."})
        assert (record.library, record.version) == ("rccl", version)


@pytest.mark.parametrize(
    ("library", "line"),
    [
        ("rccl", "NET/Plugin : No plugin found (librccl-net.so), using internal implementation"),
        ("rccl", 'Missing "iommu=pt" from kernel command line which can lead to low RCCL performance'),
        ("rccl", "ROCr version 1.18"), ("rccl", "RCCL_MSCCL_ENABLE set by environment to 0."),
        ("nccl", "NET/IB : No device found."),
        # a value that someone chose names no library
        ("nccl", "NCCL_TOPO_FILE set by environment to /shared/RCCL/topology.xml"),
        ("nccl", "NET/Plugin: Plugin name set by env to /opt/librccl-net.so"),
        ("nccl", "Comm config Net name set to RCCL"),
        ("nccl", "TUNER/Plugin: NCCL_TUNER_PLUGIN set to librccl-tuner.so"),
    ],
)  # fmt: skip
def test_rccl_is_recognised_in_a_log_without_its_version(library, line):
    assert read(line).library == library


def test_the_line_with_the_version_decides_which_library_it_is():
    lines = ["NCCL version 2.30.7+cuda13.0", "TUNER/Plugin: Using /shared/RCCL/tuner.so"]
    assert (read(*lines).library, read(*lines[::-1]).library) == ("nccl", "nccl")


SIZE_KEYS = {"2.4": "nvmlDev {0}", "2.8": "busId {0}000", "2.18": "nvmlDev {0} busId {0}000 commId 0x{1}"}
"""What the lines about a rank name in versions before the number of nodes."""


def members(hosts, *, version="2.18", ranks=None, per_host=2, communicator="a", end="Init COMPLETE"):
    """Return the lines of the ranks of a communicator on ``hosts``, with those of sockets."""
    lines, size = [], ranks or per_host * len(hosts)
    for number in range(per_host * len(hosts)):
        gpu = number % per_host + 1
        head = f"{hosts[number // per_host]}:{100 + number}:{200 + number} [{gpu}] NCCL INFO "
        key = SIZE_KEYS[version].format(gpu, communicator)
        lines.append(f"{head}Using network Socket")
        lines.append(f"{head}comm 0x5 rank {number} nranks {size} cudaDev {gpu} {key} - {end}")
    return "\n".join(lines)


@pytest.mark.parametrize("version", SIZE_KEYS)
@pytest.mark.parametrize("end", ["Init START", "Init COMPLETE", "Destroy COMPLETE"])
def test_before_2_20_the_number_of_nodes_is_that_of_the_hosts_of_all_ranks(version, end):
    for hosts in (["n1"], ["n1", "n2"], ["n1.x", "n2.x", "n3.x"]):
        record = read_logs({"a": members(hosts, version=version, end=end)})
        assert (record.ranks, record.nodes) == (2 * len(hosts), len(hosts))
        assert (network_mismatch(record, "rdma") is None) == (len(hosts) == 1)


SPLIT = "ncclCommSplit comm 0x7 rank 0 nranks 1 cudaDev 1 busId 1000 parent 0x5 - Init START"
INSIDE = "comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0"
ACROSS = "comm 0x2 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
FOUR = members(["n1"], per_host=4)


@pytest.mark.parametrize(
    ("texts", "nodes"),
    [
        pytest.param([members(["n1"], ranks=4)], None, id="ranks are missing"),
        pytest.param([members(["localhost", "localhost"])], None, id="two hosts of one name"),
        pytest.param([members(["<node>"])], None, id="an anonymous host"),
        pytest.param(
            [members(["n1"]), f"{HEAD}Channel 00 : 0[1] -> 1[2] [send] via NET/Socket/0"], None, id="a network"
        ),
        pytest.param([members(["n1"], ranks=4), members(["n1"], communicator="b")], None, id="only a smaller one"),
        pytest.param([members(["n1"]), members(["n1"], communicator="b", per_host=1, ranks=2)], None, id="another one"),
        pytest.param([HEAD + INSIDE, HEAD + ACROSS, HEAD + SOCKET[1]], None, id="a smaller one over several nodes"),
        pytest.param([HEAD + INSIDE], 1, id="one communicator"),
        pytest.param([FOUR, members(["n1"], per_host=4, communicator="b")], 1, id="two on one host"),
        pytest.param([FOUR, f"n1:100:200 [1] NCCL INFO {SPLIT}"], 1, id="a split"),
        pytest.param([members(["n1"], version="2.8")] * 2, 1, id="two without ids"),
        pytest.param([FOUR.replace("comm 0x5", "[Rank 0] ncclCommInitRank comm 0x5")], 1, id="the call is named"),
    ],
)
def test_one_node_is_claimed_only_with_all_ranks_of_all_communicators(texts, nodes):
    record = read_logs({"a": "\n".join(texts)})
    assert record.nodes == nodes
    assert bool(network_mismatch(record, "rdma")) == (nodes is None)


@pytest.mark.parametrize(
    ("text", "network", "kind", "paths", "gdr"),
    [
        ("Ring 00 : 1 -> 0 [receive] via NET/Socket/0", "Socket", "tcp", {"NET/Socket": 1}, None),  # 2.4
        ("Ring 01 : 9[3d000] -> 8[b2000] [send] via NET/IB/1/GDRDMA", "IB", "rdma", {"NET/IB/GDRDMA": 1}, True),  # 2.5
        ("Using internal Network Socket", "Socket", "tcp", {}, None),
        ("Using internal Network IB", "IB", "rdma", {}, None),
        ("Using network FastSocket", "FastSocket", "tcp", {}, None),  # Google's plugins, over TCP
        ("Using network GPUDirectTCPX_v7", "GPUDirectTCPX_v7", "tcp", {}, None),
        ("Channel 00 : 8[0] -> 0[0] via NET/FasTrak/0/GDRDMA", "FasTrak", "tcp", {"NET/FasTrak/GDRDMA": 1}, None),
    ],
)  # fmt: skip
def test_the_network_is_named_in_the_words_of_all_versions_and_plugins(text, network, kind, paths, gdr):
    record = read(text)
    assert (record.network, record.network_type, record.paths, record.gdr) == ((network,), kind, paths, gdr)


def test_a_cost_table_of_the_older_format_is_read_and_a_truncated_one_is_not():
    head, row = "Latency/AlgBw |    Tree/    LL |    Ring/Simple |", "    AllReduce |    14.4/   3.0 |    56.4/  24.0 |"
    assert [(one.algorithm, one.protocol) for one in read(head, row).model] == [("tree", "LL"), ("ring", "SIMPLE")]
    assert read(head, row[:-16]).model == read(row).model == ()


def call(function, count):
    buffers = f"sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root 0"
    return f"{function}: opCount 0 {buffers} comm 0x3 [nranks=4] stream 0x4"


LINE = "4096 Bytes -> Algo 1 proto 2 time 12.400000"
NAMED = f"AllReduce: {LINE}"
GROUP = [call("AllReduce", 512), call("Broadcast", 512), LINE, LINE]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param([call("AllReduce", 1024), LINE], [("all_reduce", 4096, "ring")], id="a single call"),
        pytest.param([call("AllReduce", 1024), NAMED], [("all_reduce", 4096, "ring")], id="a named one, of 2.23"),
        pytest.param([*GROUP, call("AllReduce", 1024), LINE], [("all_reduce", 4096, "ring")], id="after a group"),
        pytest.param(["RCCL version 2.20.5+hip6.2", f"{call('AllReduce', 1024)} task 0 globalrank 0", LINE],
                     [("all_reduce", 4096, "ring")], id="of RCCL"),
        pytest.param([LINE], [], id="no call"),
        pytest.param([NAMED], [], id="no call, named"),
        pytest.param([call("AllReduce", 512), call("AllReduce", 512), LINE], [], id="the sum of a group"),
        pytest.param([call("Broadcast", 1024), call("AllReduce", 1024), LINE, LINE], [], id="a group of two kinds"),
        pytest.param([call("AllReduce", 512), LINE], [], id="another size"),
        pytest.param([call("AllGather", 1024), LINE], [], id="another size of all ranks"),
        pytest.param([call("Broadcast", 1024), NAMED], [], id="another function"),
        pytest.param([call("AllReduce", 1024).partition("comm")[0], LINE], [], id="a call that is cut short"),
        pytest.param([call("AllReduce", 1024), LINE.partition("time")[0]], [], id="a line that is cut short"),
        pytest.param([call("AllReduce", 1024), LINE.replace("Algo 1", "Algo 7")], [], id="a number without a name"),
    ],
)  # fmt: skip
def test_a_numbered_line_belongs_to_the_single_preceding_call_of_its_size_or_to_none(lines, found):
    assert [(one.collective, one.bytes, one.algorithm) for one in read(*lines).collectives] == found


def test_a_numbered_line_of_another_process_is_ignored():
    text = f"{HEAD}{call('AllReduce', 1024)}\n{HEAD.replace('n1:9', 'n2:9')}{LINE}"
    assert read_logs({"a": text}).collectives == ()


def test_every_algorithm_of_nccl_has_a_number():
    assert sorted(NUMBERED_ALGORITHMS) == sorted(NCCL_ALGORITHMS.values())


def test_numbered_choices_without_calls_are_kept():
    record = read(LINE, NAMED, LINE.replace("Algo 1", "Algo 0"))
    assert (record.choices, record.collectives) == (("4 KiB by ring SIMPLE", "4 KiB by tree SIMPLE"), ())
