"""Environment variables of the libraries: their effects, the names and values that NCCL knows, and their validation.

Sources of the names: the user guide of NCCL, Environment Variables, back to 2.4; the parameters that the library of
2.32.3 names itself; the sources of nccl-rdma-sharp-plugins and of NCCL Inspector. Newer versions have more names.
"""

import shlex
from collections.abc import Iterator, Mapping

from hpccoll.errors import BadInputError, did_you_mean
from hpccoll.evidence.requested_algorithm import NCCL_FUNCTIONS

VARIABLES: Mapping[str, str] = {
    "NCCL_ALGO": "the algorithms that NCCL may choose from; since 2.24 an error if none of them applies",
    "NCCL_PROTO": "the protocols that NCCL may choose from: LL (latency), LL128 (NVLink), Simple (bandwidth)",
    "NCCL_P2P_LL_THRESHOLD": "bytes per channel up to which sends and receives in a node use protocol LL [16384]",
    "NCCL_COLLNET_ENABLE": "1: NCCL may let switches between nodes reduce, by a CollNet plugin; 0 (default): never",
    "NCCL_NVLS_ENABLE": "2 (default): NVLink SHARP if available; 1: required; 0: never",
    "NCCL_SHARP_DISABLE": "1: the SHARP plugin of NCCL refuses every communicator, and logs it",
    "NCCL_NET": "the network that NCCL must use, without fallback: IB, Socket, or a plugin's name",
    "NCCL_NET_GDR_LEVEL": "the largest distance of a NIC from its GPU for GPUDirect RDMA: LOC (never) ... SYS (always)",
    "NCCL_IB_TC": "the traffic class of NCCL's messages over InfiniBand or RoCE; (DSCP << 2) + ECN bits",
    "NCCL_IB_HCA": "the NICs and ports that NCCL may use: mlx5 (all that begin so), =mlx5_0:1 (exactly that)",
    "NCCL_CROSS_NIC": "0: rings and trees use one rail on all nodes; 1: they may change; 2 (default): if it is faster",
    "UCX_MAX_RNDV_RAILS": "the number of rails over which UCX stripes a large message",
    "OMPI_MCA_coll_ucc_enable": "1: Open MPI lets UCC carry out its collectives",
    "OMPI_MCA_coll_ucc_priority": "100: before all other components of Open MPI",
    "OMPI_MCA_coll_ucc_cls": "the collective layers of UCC under Open MPI; it overrides UCC_CLS",
    "OMPI_MCA_coll_hcoll_enable": "1: Open MPI lets HCOLL carry out its collectives",
    "UCC_CL_BASIC_TLS": "the transport layers that UCC's basic layer chooses from; sharp is off unless named",
    "UCC_TL_SHARP_TUNE": "the score of SHARP by collective and size; inf: before all others",
    "UCC_CL_HIER_NODE_LEADERS_SBGP_TLS": "the transport layers of UCC between the first ranks of nodes",
    "UCC_CL_HIER_TUNE": "the score of UCC's hierarchical layer; @rab: reduce in nodes, all-reduce between, broadcast",
    "HCOLL_ENABLE_SHARP": "0: off; 1: if available; 2: forced; 3: forced on all communicators",
    "MVP_ENABLE_SHARP": "1: MVAPICH 3 and later use SHARP for small messages in host memory, if available",
    "MV2_ENABLE_SHARP": "1: MVAPICH2 uses SHARP below its hierarchical collectives, if available; 0: off",
    "SHARP_COLL_ENABLE_SAT": "1: streaming-aggregation trees for large messages; 0 (default): low-latency trees only",
    "SHARP_COLL_LOG_LEVEL": "3: libsharp logs the jobs and groups that it is given",
}
"""The variables of the named variants, and their effects in one line each."""

SITE_VARIABLES = ("NCCL_IB_HCA", "NCCL_IB_TC", "UCX_MAX_RNDV_RAILS")
"""Variables whose values in the table of variants are examples: a sweep replaces them by those of its site."""

FABRIC_VARIABLES = (
    *SITE_VARIABLES, "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_CROSS_NIC", "SHARP_COLL_LOG_LEVEL",
)  # fmt: skip
"""Variables that describe the network: a site may set them for all jobs, and variants are then compared on top of them.
The other variables choose how collectives run."""

NCCL_PREFIX = "NCCL_"

IB_PREFIX = "NCCL_IB_"
"""The prefix of the variables that NCCL's own InfiniBand and RoCE network reads."""

NETWORKS_WITHOUT_IB = ("socket", "libfabric", "aws libfabric")
"""Values of NCCL_NET, in lower case, for which NCCL reads none of those."""

_NCCL_NAMES = """
    ALGO ALLGATHERV_ENABLE ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CE_COLL_AG_MULTICAST_THRESHOLD CGA_CLUSTER_SIZE
    CHECKS_DISABLE CHECK_MODE CHECK_POINTERS CHUNK_SIZE COLLNET_ENABLE COLLNET_NODE_THRESHOLD COMM_BLOCKING COMM_ID
    COMM_SHRINK_SHARE_RESOURCES COMM_SPLIT_SHARE_RESOURCES CONF_FILE CONNECT_ROUND_MAX_PEERS CROSS_NIC CTA_POLICY
    CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG DEBUG_FILE DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS
    DMABUF_ENABLE ENV_PLUGIN GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE GDRCOPY_SYNC_ENABLE
    GDR_FLUSH_DISABLE GIN_ENABLE GIN_PLUGIN GIN_TYPE GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK GRAPH_FILE
    GRAPH_HELPER_DISABLE GRAPH_MIXING_SUPPORT GRAPH_REGISTER GRAPH_STREAM_ORDERING HOSTID IBEXT_DISABLE IBVERBS_LIB
    IB_ADAPTIVE_ROUTING IB_ADDR_FAMILY IB_ADDR_RANGE IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DATA_DIRECT
    IB_DEVICE_PCI_ORDER IB_DISABLE IB_ECE_ENABLE IB_FIFO_TC IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_MERGE_VFS IB_OOO_RQ
    IB_PCI_RELAXED_ORDERING IB_PKEY IB_QPS_PER_CONNECTION IB_RAIL_POLICY IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS
    IB_ROCE_VERSION_NUM IB_ROUTABLE_FLID_GID_INDEX IB_SL IB_SPLIT_DATA_ON_QPS IB_SUBNET_AWARE_ROUTING IB_TC IB_TIMEOUT
    IB_USE_INLINE IB_WARN_RAIL_LOCAL IGNORE_COLLNET_MISMATCH IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P
    IGNORE_NET_MISMATCH INSPECTOR_DUMP_DIR INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS INSPECTOR_DUMP_VERBOSE
    INSPECTOR_ENABLE INSPECTOR_REQUIRE_KERNEL_TIMING L1_SHARED_MEMORY_CARVEOUT LAUNCH_MODE LAUNCH_ORDER_IMPLICIT
    LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER LL128_BUFFSIZE LL128_C2C LL128_NTHREADS LL_BUFFSIZE LL_THRESHOLD
    LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS MAX_NRINGS MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS
    MIN_NRINGS MIN_P2P_NCHANNELS MNNVL_CLIQUE_ID MNNVL_CROSS_CLIQUE MNNVL_ENABLE MNNVL_RAIL_PER_HOST
    MNNVL_SCATTER_NETS_ENABLE MNNVL_UUID MULTI_RANK_GPU_ENABLE MULTI_SEGMENT_REGISTER NCHANNELS_PER_NET_PEER NET
    NETDEVS_POLICY NET_DISABLE_INTRA NET_FORCE_FLUSH NET_FORCE_MERGE NET_GDR_C2C NET_GDR_LEVEL NET_GDR_READ
    NET_MERGE_LEVEL NET_MERGE_POLICY NET_OPTIONAL_RECV_COMPLETION NET_OVERHEAD NET_PLUGIN NET_SHARED_BUFFERS
    NET_SHARED_COMMS NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVB_PRECONNECT NVLINK_UTIL_CENTRIC_SCHED_ENABLE
    NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE NVLS_ENABLE NVLS_NCHANNELS NVTX_DISABLE OOB_NET_ENABLE OOB_NET_IFNAME
    P2P_DIRECT_DISABLE P2P_DISABLE P2P_EPOCH_ENABLE P2P_LEVEL P2P_LL_THRESHOLD P2P_MAX_PEERS P2P_NET_CHUNKSIZE
    P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_PXN_LEVEL P2P_READ_ENABLE P2P_SCHEDULE_GROUP_SIZE P2P_USE_CUDA_MEMCPY
    PAT_ENABLE PAT_NDIMS PROFILER_PLUGIN PROGRESS_APPENDOP_FREQ PROTO PROXY_APPEND_BATCH_SIZE PROXY_CPUSET
    PROXY_DUMP_SIGNAL PXN_C2C PXN_DISABLE RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR REPORT_CONNECT_PROGRESS RMA_DISABLE
    RUNTIME_CONNECT RUN_DIAGNOSTICS SET_CPU_STACK_SIZE SET_STACK_SIZE SET_THREAD_NAME SHARP_COLL_TRACE SHARP_DISABLE
    SHARP_DISABLE_ALLGATHER SHARP_DISABLE_REDUCE_SCATTER SHARP_GROUP_SIZE_THRESH SHARP_MAX_COMMS SHARP_V3_DATATYPES
    SHM_DISABLE SHM_LOCALITY SHM_USE_CUDA_MEMCPY SINGLE_PROC_MEM_REG_ENABLE SINGLE_RING_THRESHOLD SOCKET_FAMILY
    SOCKET_IFNAME SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_NTHREADS SOCKET_POLL_TIMEOUT_MSEC SOCKET_RCVBUF
    SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_SNDBUF SYM_CE_THRESHOLD SYM_GIN_KERNELS_ENABLE SYM_KERNEL
    SYM_TMA_ENABLE THREAD_THRESHOLDS TOPO_DUMP_FILE TOPO_DUMP_FILE_RANK TOPO_FILE TREE_THRESHOLD TUNER_CONFIG_FILE
    TUNER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD UNPACK_DOUBLE_NCHANNELS WARN_ENABLE_DEBUG_INFO WIN_ENABLE
    WIN_STRIDE WORK_ARGS_BYTES WORK_FIFO_BYTES
"""
NCCL_NAMES = frozenset(_NCCL_NAMES.split())
"""The variables of NCCL and its plugins, without the prefix."""

LIST_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "NCCL_ALGO": ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"),
    "NCCL_PROTO": ("LL", "LL128", "Simple"),
}
"""Variables that hold a list of these words, in any case. The grammar is that of NCCL 2.24: ``a,b``; ``^a`` for all
others; ``allreduce:a;allgather:b``. NCCL 2.24 and later refuse an unknown word; earlier versions ignore it silently."""

_PATH_TYPES = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", *"012345")
"""Distances by the names of NCCL's path types, and the numbers that older versions had for some of them."""

CHOICE_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "NCCL_COLLNET_ENABLE": ("0", "1"),
    "NCCL_CROSS_NIC": ("0", "1", "2"),
    "NCCL_NET_GDR_LEVEL": _PATH_TYPES,
    "NCCL_NVLS_ENABLE": ("0", "1", "2"),
    "NCCL_P2P_LEVEL": _PATH_TYPES,
    "NCCL_SHARP_DISABLE": ("0", "1"),
}
"""Variables that hold one of these words. For another word NCCL takes its default, and logs that it does."""


def assignment(name: str, value: str) -> str:
    """Return an assignment as a shell takes it, quoted if the value has an equals sign: ``A='=mlx5_0:1'``."""
    return f"{name}='{value}'" if "=" in value and shlex.quote(value) == value else f"{name}={shlex.quote(value)}"


def check_variables(key: str, variables: Mapping[str, object]) -> None:
    """Check the values of those variables whose valid values are known.

    Args:
        key: the name of the variables in messages.
        variables: the variables, with values as YAML reads them.

    Raises:
        BadInputError: names the first value that is not valid.
    """
    for name, value in variables.items():
        text = str(value)
        if name in CHOICE_VARIABLES and text not in CHOICE_VARIABLES[name]:
            raise BadInputError(f"{key}.{name}", value, CHOICE_VARIABLES[name])
        if name in LIST_VARIABLES:
            _check_list(f"{key}.{name}", text, LIST_VARIABLES[name])


def _check_list(key: str, text: str, valid_names: tuple[str, ...]) -> None:
    for item in text.split(";"):
        function, colon, names = item.rpartition(":")
        if colon and function.lower() not in NCCL_FUNCTIONS:
            raise BadInputError(key, text, f"before a colon one of {', '.join(NCCL_FUNCTIONS)}")
        for name in names.removeprefix("^").split(","):  # no blanks: NCCL does not strip them
            if name.lower() not in {word.lower() for word in valid_names}:
                near = did_you_mean(name.strip(), valid_names)
                grammar = "in a list, such as {0},{1}, ^{0} or allreduce:{0};allgather:{1}".format(*valid_names)
                raise BadInputError(key, text, f"{near}one of {', '.join(valid_names)}, {grammar}")


def unknown_nccl_variables(variables: Mapping[str, object]) -> Iterator[str]:
    """Yield a warning for each variable that has NCCL's prefix and that no known version or plugin of NCCL reads."""
    for name in variables:
        without_prefix = name.upper().removeprefix(NCCL_PREFIX)
        if name.upper().startswith(NCCL_PREFIX) and not (name.startswith(NCCL_PREFIX) and without_prefix in NCCL_NAMES):
            near = did_you_mean(without_prefix, sorted(NCCL_NAMES)).replace("mean ", f"mean {NCCL_PREFIX}")
            warning = f"{name} is no variable of NCCL up to 2.32 or of its plugins, which ignore it silently"
            yield f"{warning}; {near}".strip("; ")
