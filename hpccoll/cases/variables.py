"""Environment variables of the libraries: their effects, the names and values that NCCL knows, and their validation."""

import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from hpccoll.cases.library_request import NCCL_FUNCTIONS
from hpccoll.common.errors import BadInputError, did_you_mean

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
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1: Open MPI's component tuned takes algorithms of variables and files",
    "OMPI_MCA_coll_tuned_CALL_algorithm": "the number or name of Open MPI's algorithm for a call, such as allreduce",
    "OMPI_MCA_coll_han_priority": "0: Open MPI's hierarchical component HAN leaves all calls to others, such as tuned",
    "MPIR_CVAR_CALL_INTRA_ALGORITHM": "the name of MPICH's algorithm for a call, such as ALLREDUCE",
    "MPIR_CVAR_CALL_COMPOSITION": "how MPICH divides a call between nodes and memory; the value here: not at all",
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
"""The variables of the named variants, and their effects in one line each; CALL stands for the name of a call."""

SITE_VARIABLES = ("NCCL_IB_HCA", "NCCL_IB_TC", "UCX_MAX_RNDV_RAILS")
"""Variables whose values in the table of variants are examples: a sweep replaces them by those of its site."""

FABRIC_VARIABLES = (
    *SITE_VARIABLES,
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_CROSS_NIC",
    "SHARP_COLL_LOG_LEVEL",
)
"""Variables that describe the network: a site may set them for all jobs, and variants are then
compared on top of them. The other variables choose how collectives run."""

NCCL_PREFIX = "NCCL_"

IB_PREFIX = "NCCL_IB_"
"""The prefix of the variables that NCCL's own InfiniBand and RoCE network reads."""

NETWORKS_WITHOUT_IB = ("socket", "libfabric", "aws libfabric")
"""Values of NCCL_NET, in lower case, for which NCCL reads none of those."""

NCCL_VERSIONS = "2.20 to 2.32"
"""The versions of NCCL whose variables are listed."""


@cache
def nccl_names() -> frozenset[str]:
    """Return the names of the variables of NCCL and its plugins, with the prefix; the file names its sources."""
    lines = Path(__file__).with_name("nccl_variables.txt").read_text().splitlines()
    return frozenset(line for line in lines if line.startswith(NCCL_PREFIX))


LIST_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "NCCL_ALGO": ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"),
    "NCCL_PROTO": ("LL", "LL128", "Simple"),
}
"""Variables that hold a list, with the words that may be in it, in any case. The grammar is that of
NCCL 2.24: ``a,b``; ``^a`` for all others; ``allreduce:a;allgather:b``. NCCL 2.24 and later refuse an
unknown word; earlier versions ignore it silently."""

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
"""Variables that hold one word, with the valid ones. For another word NCCL takes its default, and logs that it does."""


def assignment(name: str, value: str) -> str:
    """Return an assignment as a shell takes it, quoted if the value has an equals sign: ``A='=mlx5_0:1'``."""
    quoted = shlex.quote(value)
    if "=" in value and quoted == value:
        quoted = f"'{value}'"
    return f"{name}={quoted}"


def check_variables(key: str, variables: Mapping[str, object]) -> None:
    """Check the values of those variables whose valid values are known; messages call the variables ``key``.

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
                grammar = "in a list, such as {0},{1}, ^{0} or allreduce:{0};allgather:{1}".format(
                    *valid_names
                )
                raise BadInputError(key, text, f"{near}one of {', '.join(valid_names)}, {grammar}")


def unknown_nccl_variables(variables: Mapping[str, object]) -> Iterator[str]:
    """Yield a warning for each variable that has NCCL's prefix and is not in the list of its variables."""
    for name in variables:
        if name.upper().startswith(NCCL_PREFIX) and name not in nccl_names():
            without_prefix = name.upper().removeprefix(NCCL_PREFIX)
            names = sorted(nccl_name.removeprefix(NCCL_PREFIX) for nccl_name in nccl_names())
            near = did_you_mean(without_prefix, names, prefix=NCCL_PREFIX)
            yield f"{name} is not in our list of NCCL's variables (NCCL {NCCL_VERSIONS}); {near}".strip(
                "; "
            )
