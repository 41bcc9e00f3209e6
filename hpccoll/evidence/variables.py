"""What the variables do that variants set, one line each."""

import shlex
from collections.abc import Mapping


def assignment(name: str, value: str) -> str:
    """Return a variable and its value as a shell takes them, and as nobody misreads them: ``A='=mlx5_0:1'``."""
    return f"{name}='{value}'" if "=" in value and shlex.quote(value) == value else f"{name}={shlex.quote(value)}"


VARIABLES: Mapping[str, str] = {
    "NCCL_ALGO": "the algorithms that NCCL may choose from; since 2.24 nothing else, and an error where none fits",
    "NCCL_PROTO": "the protocols that NCCL may choose from: LL (latency), LL128 (NVLink), Simple (bandwidth)",
    "NCCL_COLLNET_ENABLE": "1: NCCL may let switches between nodes reduce, by a CollNet plugin; 0 (default): never",
    "NCCL_NVLS_ENABLE": "2 (default): NVLink SHARP where it can be had; 1: it must be; 0: never",
    "NCCL_SHARP_DISABLE": "1: the SHARP plugin of NCCL refuses every communicator, and says so",
    "NCCL_NET": "the network that NCCL must use, with nothing to fall back to: IB, Socket, or a plugin's name",
    "NCCL_NET_GDR_LEVEL": "how far from its GPU a NIC may be for GPUDirect RDMA: LOC (never) ... SYS (always)",
    "NCCL_IB_TC": "the traffic class of NCCL's messages over InfiniBand or RoCE; (DSCP << 2) + ECN bits",
    "NCCL_IB_HCA": "the NICs and ports that NCCL may use: mlx5 (all that begin so), =mlx5_0:1 (exactly that)",
    "NCCL_CROSS_NIC": "0: rings and trees use one rail on all nodes; 1: they may change; 2 (default): if it is faster",
    "UCX_MAX_RNDV_RAILS": "over how many rails UCX stripes a large message",
    "OMPI_MCA_coll_ucc_enable": "1: Open MPI lets UCC carry out its collectives",
    "OMPI_MCA_coll_ucc_priority": "100: before all other components of Open MPI",
    "OMPI_MCA_coll_ucc_cls": "the collective layers of UCC under Open MPI; it overrides UCC_CLS",
    "OMPI_MCA_coll_hcoll_enable": "1: Open MPI lets HCOLL carry out its collectives",
    "UCC_CL_BASIC_TLS": "the transport layers that UCC's basic layer chooses from; sharp is off unless it is named",
    "UCC_TL_SHARP_TUNE": "the score of SHARP by collective and size; inf: before all others",
    "UCC_CL_HIER_NODE_LEADERS_SBGP_TLS": "the transport layers of UCC between the first ranks of nodes",
    "UCC_CL_HIER_TUNE": "the score of UCC's hierarchical layer; @rab: reduce in nodes, all-reduce between, broadcast",
    "HCOLL_ENABLE_SHARP": "0: off; 1: if there is some; 2: forced; 3: forced on all communicators",
    "MVP_ENABLE_SHARP": "1: MVAPICH 3 and later use SHARP for small messages in host memory, if there is some",
    "MV2_ENABLE_SHARP": "1: MVAPICH2 uses SHARP below its hierarchical collectives, if there is some; 0: off",
    "SHARP_COLL_LOG_LEVEL": "3: libsharp says which jobs and groups it is given",
}
"""The variables of the table of variants."""

OF_A_SITE = ("NCCL_IB_HCA", "NCCL_IB_TC", "UCX_MAX_RNDV_RAILS")
"""Those whose values in the table of variants are examples: a sweep puts in those of its site."""

OF_IB = "NCCL_IB_"
"""What the variables begin with that NCCL reads where it goes over InfiniBand or RoCE by itself."""
NOT_IB = ("socket", "libfabric", "aws libfabric")
"""Networks that NCCL_NET can name, in whatever case, which read none of those."""

OF_A_FABRIC = (
    *OF_A_SITE, "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_CROSS_NIC", "SHARP_COLL_LOG_LEVEL",
)  # fmt: skip
"""Those that a site may set for good: they describe its network, and a variant then compares with what is usual there.
The others choose how collectives go."""
