"""Reasons why a requested feature was not used, in log lines."""

import pytest

from hpccoll.evidence.log_set import read_logs

NCCL = "n1:9:9 [0] NCCL INFO "
WARN_NEW = "[2026-03-01 10:00:00] n1:9:9 [0] init.cc:68 (fillInfo) NCCL WARN "
WARN_OLD = "n1:9:9 [0] sharp_plugin.c:365 NCCL WARN "
MIXED_COUNTS = f"{WARN_NEW}Detected mixed local CollNet device counts across ranks (min 0, max 1)."
REFUSED = [
    (f"{NCCL}SHARP: Set to disable on this communicator", "sharp", "NCCL_SHARP_DISABLE is set"),
    (f"{NCCL}SHARP: Group size:2 is less than threshold:4. fallback to non-sharp", "sharp", "fewer nodes than NCCL_SH"),
    (
        f"{NCCL}Communicator has 1 nodes which is less than CollNet node threshold 2, disabling CollNet", "sharp",
        "fewer nodes than NCCL_COLLNET_NODE_THRESHOLD",
    ),
    (
        f"{NCCL}CollNet currently only supports up to 8 GPUs per node, disabling CollNet", "sharp",
        "more GPUs per node than CollNet",
    ),
    (f"{WARN_OLD}SHARP group create: Streaming Tree lock failed(-18)", "sharp", "the streaming tree is held"),
    ("[n1:0:9 - comm.c:1][x] ERROR Failed to lock SAT tree(ID:0x208 ret:0x4)", "sharp", "the streaming tree is held"),
    (f"{WARN_OLD}SHARP group create: No resource(-3)", "sharp", "no group of ranks could be made"),
    (f"{WARN_OLD}NET/IB : SHARP coll init error: Cannot create SHARP job(-11)", "sharp", "the aggregation manager"),
    ("[n1:0:9 - context.c:705][x] ERROR SHArP Job init error: No resource", "sharp", "the aggregation manager grants"),
    (f"{WARN_OLD}NET/IB : SHARP coll init error: Unknown(-1)", "sharp", "libsharp could not be started"),
    ("[n1:0:9 unique id 77] ERROR port is used by SM", "sharp", "port is used by SM"),
    (f"{MIXED_COUNTS} Set NCCL_IGNORE_COLLNET_MISMATCH=1 to continue.", "sharp", "nodes have different numbers"),
    (f"{WARN_NEW}Cannot initialize CollNet, using point-to-point network instead", "sharp", "CollNet could not be set"),
    (
        f"{WARN_OLD}CollNet is not supported or fails to initialize, ignoring NCCL_ALGO=COLLNET", "sharp",
        "CollNet could not be set up",
    ),
    (f"{WARN_OLD}SHARP int8,uint8,bfloat16 Datatypes not supported", "sharp-dtypes", "the switches do not add int8"),
    (f"{NCCL}NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)", "nvls", "the device or its driver"),
    (f"{WARN_OLD}Failed to bind NVLink SHARP (NVLS) Multicast memory of size 8 : CUDA error 1", "nvls", "NVSwitches"),
    (f"{WARN_OLD}This is not compatible with NCCL_NVLS_ENABLE=1.", "nvls", "several ranks on one GPU"),
    (
        f"{WARN_NEW}No algorithm/protocol available for function AllReduce with datatype ncclFloat32.", "algorithm",
        "nothing that NCCL_ALGO and NCCL_PROTO leave",
    ),
    (f"{WARN_OLD}Error : no algorithm/protocol available", "algorithm", "nothing that NCCL_ALGO"),
    (
        f"{WARN_NEW}No algorithm/protocol nor symKernelId available for function AllReduce with datatype ncclFloat32.",
        "algorithm", "nothing that NCCL_ALGO and NCCL_PROTO leave",
    ),
    (
        f'{WARN_NEW}config->algSelection "Ring" cannot be honored for AllReduce; falling back to automatic selection',
        "algorithm", "nothing that the call's own selection",
    ),
    (
        f"{NCCL}algSelection: selected set unavailable for AllReduce; falling back to automatic selection", "algorithm",
        "nothing that the call's own selection",
    ),
    (f"{NCCL}NET/Plugin : dlerror=x No plugin found (libnccl-net.so), using internal implementation", "plugin", "no n"),
    (f"{NCCL}NET/Plugin: No plugin found (libnccl-net.so)", "plugin", "no network plugin is found"),
    (f"{NCCL}NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", "plugin", "no network plug"),
    (f"{NCCL}Failed to open libibverbs.so[.1]", "rdma", "there is no libibverbs"),
    (f"{NCCL}Count not open libibverbs.so.1", "rdma", "there is no libibverbs"),  # sic, since 2.30
    (f"{NCCL}NET/IB : No device found.", "rdma", "NCCL finds no RDMA device"),
    (f"{NCCL}NCCL_IB_DISABLE set by environment to 1.", "rdma", "NCCL_IB_DISABLE is set"),
    (f"{NCCL}NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "gdr", "a NIC cannot reach"),
    (f"{WARN_OLD}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 7000", "gpu", "several ranks on one"),
    (f"{WARN_NEW}Multiple Ranks are using the same GPU/Partition.", "gpu", "several ranks on one GPU"),
]  # fmt: skip


NOT_REFUSED = [
    f"{NCCL}Count not open libibverbs.so",  # NCCL tries libibverbs.so.1 next
    f"{MIXED_COUNTS} Ignoring due to NCCL_IGNORE_COLLNET_MISMATCH.",
    f"{NCCL}NCCL_IB_DISABLE set by environment to 0.",
    f"{NCCL}NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
    f"{NCCL}NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
]


@pytest.mark.parametrize("line", NOT_REFUSED)
def test_a_line_that_refuses_nothing_is_no_reason(line):
    assert read_logs({"a": line}).unavailable == ()


@pytest.mark.parametrize(("line", "of", "reason"), REFUSED)
def test_a_line_is_recognised_with_its_feature_and_reason(line, of, reason):
    unavailable = read_logs({"a": line}).unavailable
    assert [(one.feature, one.line in line, one.reason[: len(reason)]) for one in unavailable] == [(of, True, reason)]
