"""The table of named variants: environments that a sweep compares, each with what must be seen to believe it."""

from collections.abc import Mapping

from hpccoll.evidence import expected_evidence as expected
from hpccoll.evidence.communicator import BUFFERS, Settings
from hpccoll.evidence.expected_evidence import Demand
from hpccoll.evidence.requested import ALGORITHMS
from hpccoll.evidence.variables import OF_A_SITE
from hpccoll.evidence.variant import Limits, Variant

_ON_GPUS = ("cuda", "nccl")
_IN_FABRIC = ("cuda", "nccl", "infiniband", "sharp-plugin", "sharp-fabric")
_BY_NCCL4PY = (*_ON_GPUS, "nccl4py", "nccl-2.27")
_REDUCED = ("all_reduce", "reduce_scatter", "all_gather")
_BY_SWITCHES = ("int32", "int64", "float16", "float32", "float64", "bfloat16")
_COLLNET = Limits(
    collectives=_REDUCED, dtypes=_BY_SWITCHES, ops=("sum", "min", "max", "avg"), least_nodes=2, most_per_node=8
)
_CHAIN = Limits(
    collectives=("all_reduce",), dtypes=_BY_SWITCHES, ops=("sum", "min", "max", "avg"), least_nodes=2, most_per_node=8
)
_UCC = Limits(
    collectives=("all_reduce", "barrier", "broadcast", "reduce_scatter", "all_gather"),
    dtypes=_BY_SWITCHES, ops=("sum", "min", "max"), least_nodes=2, most_per_node=1,
)  # fmt: skip
_MPI_SHARP = Limits(
    collectives=("all_reduce", "barrier", "broadcast", "reduce"), ops=("sum", "min", "max"), least_nodes=4
)
_NVLS = Limits(collectives=_REDUCED, ops=("sum", "min", "max", "avg"), most_nodes=1)
_WINDOWS = Limits(collectives=_REDUCED, dtypes=("float16", "float32", "bfloat16"), ops=("sum", "avg"))
_REGISTERED = Limits(collectives=("reduce_scatter", "all_gather"), ops=("sum", "min", "max", "avg"))
_SHARP_LOG = {"SHARP_COLL_LOG_LEVEL": "3"}
_UCC_ON = {"OMPI_MCA_coll_ucc_enable": "1", "OMPI_MCA_coll_ucc_priority": "100"}


def _algorithm(name: str, needs: tuple[str, ...] = _ON_GPUS, limits: Limits | None = None) -> Variant:
    word = ALGORITHMS[name.lower()]
    return Variant(
        what=f"NCCL with algorithm {name} and no other", transport="nccl", environment={"NCCL_ALGO": name},
        demands=expected.ran(word), needs=needs, limits=limits or Limits(),
    )  # fmt: skip


def _protocol(name: str) -> Variant:
    return Variant(
        what=f"NCCL with protocol {name} and no other", transport="nccl", environment={"NCCL_PROTO": name},
        demands=expected.ran_with(name.upper()), needs=_ON_GPUS,
    )  # fmt: skip


def _network(what: str, environment: Mapping[str, str], demand: Demand, control: str | None = None) -> Variant:
    return Variant(
        what=what, transport="nccl", environment=environment, demands=demand, needs=(*_ON_GPUS, "infiniband"),
        limits=Limits(least_nodes=2), control=control,
    )  # fmt: skip


def _switches(what: str, algorithms: str, control: str, limits: Limits = _COLLNET) -> Variant:
    named = [ALGORITHMS[name.lower()] for name in algorithms.split(",")]
    return Variant(
        what=what, transport="nccl", needs=_IN_FABRIC, limits=limits, control=control,
        environment={"NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": algorithms, **_SHARP_LOG},
        demands=expected.switches_by(*named),
    )  # fmt: skip


def _made_with(
    what: str, settings: Settings, demand: Demand, control: str | None, limits: Limits | None = None,
    needs: tuple[str, ...] = _BY_NCCL4PY, environment: Mapping[str, str] | None = None,
) -> Variant:  # fmt: skip
    return Variant(
        what=what, transport="nccl", environment=environment or {}, communicator=settings, demands=demand, needs=needs,
        limits=limits or Limits(), control=control,
    )  # fmt: skip


def _behind_mpi(
    what: str, environment: Mapping[str, str], needs: tuple[str, ...], limits: Limits, control: str | None = None
) -> Variant:
    demand = expected.SHARP_BY_UCC if "ucc" in needs else expected.SHARP_BY_ITS_LINES
    return Variant(
        what=what, transport="mpi", environment={**environment, **_SHARP_LOG},
        demands=demand if control else expected.NO_SHARP, needs=needs, limits=limits, control=control,
    )  # fmt: skip


VARIANTS: Mapping[str, Variant] = {
    "nccl-ring": _algorithm("Ring"),
    "nccl-tree": _algorithm("Tree", limits=Limits(collectives=("all_reduce",))),
    "nccl-pat": _algorithm("PAT", limits=Limits(collectives=("reduce_scatter", "all_gather"), most_per_node=1)),
    "nccl-nvls": Variant(
        what="NVLink SHARP: the switches inside a node reduce", transport="nccl", environment={"NCCL_ALGO": "NVLS"},
        demands=expected.NVLS, needs=(*_ON_GPUS, "nvswitch"), limits=_NVLS, control="nccl-nvls-off",
    ),
    "nccl-nvls-off": Variant(
        what="NCCL without NVLink SHARP, the control of nccl-nvls", transport="nccl",
        environment={"NCCL_NVLS_ENABLE": "0"}, demands=expected.NO_NVLS, needs=_ON_GPUS,
    ),
    "nccl-nvls-tree": _algorithm(
        "NVLSTree", (*_ON_GPUS, "nvswitch"), Limits(collectives=("all_reduce",), least_nodes=2)
    ),
    "nccl-ll": _protocol("LL"),
    "nccl-ll128": _protocol("LL128"),
    "nccl-simple": _protocol("Simple"),
    "nccl-gdr": _network(
        "NCCL with GPUDirect RDMA wherever it can be", {"NCCL_NET_GDR_LEVEL": "SYS"}, expected.DIRECT, "nccl-gdr-off"
    ),
    "nccl-gdr-off": _network("NCCL through host memory", {"NCCL_NET_GDR_LEVEL": "LOC"}, expected.NOT_DIRECT),
    "nccl-traffic-class": _network(
        "NCCL in the traffic class 106, DSCP 26 with ECN, which RoCE fabrics often keep without loss",
        {"NCCL_IB_TC": "106"}, expected.BY_PORTS,
    ),
    "nccl-one-rail": _network("NCCL over one port of one NIC", {"NCCL_IB_HCA": "=mlx5_0:1"}, expected.ONE_RAIL),
    "nccl-all-rails": _network("NCCL over all NICs of a node", {"NCCL_IB_HCA": "mlx5"}, expected.SEVERAL_RAILS),
    "nccl-rails-apart": _network("rings and trees stay on their rail", {"NCCL_CROSS_NIC": "0"}, expected.BY_PORTS),
    "nccl-rails-crossed": _network("rings and trees may change rails", {"NCCL_CROSS_NIC": "1"}, expected.BY_PORTS),
    "nccl-socket": Variant(
        what="NCCL over TCP, where there is RDMA too", transport="nccl", environment={"NCCL_NET": "Socket"},
        demands=expected.TCP, needs=_ON_GPUS, limits=Limits(least_nodes=2),
    ),
    "ucx-one-rail": Variant(
        what="UCX with one rail for a large message", transport="mpi", environment={"UCX_MAX_RNDV_RAILS": "1"},
        demands=expected.BY_PORTS, needs=("infiniband",), limits=Limits(least_nodes=2),
    ),
    "ucx-four-rails": Variant(
        what="UCX with up to four rails for a large message", transport="mpi", environment={"UCX_MAX_RNDV_RAILS": "4"},
        demands=expected.BY_PORTS, needs=("infiniband",), limits=Limits(least_nodes=2),
    ),
    "nccl-collnet-direct": _switches("SHARP by NCCL, algorithm CollnetDirect", "CollnetDirect", "nccl-sharp-off"),
    "nccl-collnet-chain": _switches("SHARP by NCCL, algorithm CollnetChain", "CollnetChain", "nccl-sharp-off", _CHAIN),
    "nccl-sharp": _switches(
        "SHARP by NCCL: CollNet in either form, and nothing else", "CollnetDirect,CollnetChain", "nccl-sharp-off"
    ),
    "nccl-sharp-nvls": _switches("SHARP by NCCL, NVLS inside nodes and switches between", "NVLS", "nccl-sharp-off"),
    "nccl-sharp-allowed": Variant(
        what="SHARP by NCCL wherever its own tuning picks it", transport="nccl", needs=_IN_FABRIC, limits=_COLLNET,
        environment={"NCCL_COLLNET_ENABLE": "1", **_SHARP_LOG}, demands=expected.SHARP_BY_NCCL,
        control="nccl-sharp-off",
    ),
    "nccl-sharp-off": Variant(
        what="NCCL without SHARP, the control of nccl-sharp", transport="nccl", demands=expected.NO_SHARP,
        environment={"NCCL_COLLNET_ENABLE": "0", "NCCL_SHARP_DISABLE": "1", **_SHARP_LOG}, needs=_ON_GPUS,
        limits=Limits(least_nodes=2),
    ),
    "nccl-symmetric": _made_with(
        "NCCL on symmetric windows: kernels that read and write the memory of all GPUs of one NVLink",
        {BUFFERS: "symmetric"}, expected.SYMMETRIC, "nccl-symmetric-off", _WINDOWS,
    ),
    "nccl-symmetric-off": _made_with(
        "NCCL on memory of the same kind in no windows, the control of nccl-symmetric",
        {BUFFERS: "allocated"}, expected.NOT_SYMMETRIC, None,
    ),
    "nccl-collnet-comm": _made_with(
        "SHARP by NCCL wherever its own tuning picks it, allowed to one communicator", {"collnet_enable": 1},
        expected.SHARP_BY_NCCL, "nccl-collnet-comm-off", _COLLNET, (*_IN_FABRIC, "nccl4py", "nccl-2.27"), _SHARP_LOG,
    ),
    "nccl-collnet-comm-off": _made_with(
        "NCCL without SHARP, the control of nccl-collnet-comm", {"collnet_enable": 0}, expected.NO_SHARP, None,
        Limits(least_nodes=2), environment=_SHARP_LOG,
    ),
    "nccl-traffic-class-comm": _made_with(
        "NCCL with a traffic class for one communicator; over InfiniBand it is the service level, 0 to 15",
        {"traffic_class": 106}, expected.heard("traffic_class"), "nccl-traffic-class-comm-off", Limits(least_nodes=2),
        (*_BY_NCCL4PY, "infiniband"),
    ),
    "nccl-traffic-class-comm-off": _made_with(
        "NCCL in the default traffic class, the control of nccl-traffic-class-comm", {"traffic_class": 0},
        expected.not_heard("traffic_class"), None, Limits(least_nodes=2), (*_BY_NCCL4PY, "infiniband"),
    ),
    "nccl-cta-efficiency": _made_with(
        "NCCL with few thread blocks where switches of NVLink do the work, on registered buffers",
        {"cta_policy": "efficiency", BUFFERS: "registered"}, expected.heard("cta_policy"), "nccl-cta-default",
        _REGISTERED, (*_BY_NCCL4PY, "nvswitch"),
    ),
    "nccl-cta-default": _made_with(
        "NCCL on registered buffers with its default policy, the control of nccl-cta-efficiency",
        {"cta_policy": "default", BUFFERS: "registered"}, expected.not_heard("cta_policy"), None,
    ),
    "ucc-sharp": _behind_mpi(
        "SHARP by UCC under Open MPI, one rank per node",
        {**_UCC_ON, "UCC_CL_BASIC_TLS": "ucp,cuda,sharp", "UCC_TL_SHARP_TUNE": "allreduce:0-inf:inf"},
        ("openmpi", "ucc", "infiniband", "sharp-fabric"), _UCC, "ucc-sharp-off",
    ),
    "ucc-sharp-hier": _behind_mpi(
        "SHARP by UCC under Open MPI, between the first ranks of nodes",
        {
            **_UCC_ON, "OMPI_MCA_coll_ucc_cls": "basic,hier", "UCC_CL_HIER_NODE_LEADERS_SBGP_TLS": "ucp,sharp",
            "UCC_CL_HIER_TUNE": "allreduce:0-inf:inf:@rab",
        },
        ("openmpi", "ucc", "infiniband", "sharp-fabric"),
        Limits(collectives=("all_reduce",), dtypes=_BY_SWITCHES, ops=("sum", "min", "max"), least_nodes=2),
        "ucc-sharp-hier-off",
    ),
    "ucc-sharp-hier-off": _behind_mpi(
        "UCC under Open MPI between the first ranks of nodes without SHARP, the control of ucc-sharp-hier",
        {
            **_UCC_ON, "OMPI_MCA_coll_ucc_cls": "basic,hier", "UCC_CL_HIER_NODE_LEADERS_SBGP_TLS": "ucp",
            "UCC_CL_HIER_TUNE": "allreduce:0-inf:inf:@rab",
        },
        ("openmpi", "ucc"), Limits(least_nodes=2),
    ),
    "ucc-sharp-off": _behind_mpi(
        "UCC under Open MPI without SHARP, the control of ucc-sharp", {**_UCC_ON, "UCC_CL_BASIC_TLS": "ucp,cuda"},
        ("openmpi", "ucc"), Limits(least_nodes=2),
    ),
    "hcoll-sharp": _behind_mpi(
        "SHARP by HCOLL under HPC-X", {"OMPI_MCA_coll_hcoll_enable": "1", "HCOLL_ENABLE_SHARP": "3"},
        ("openmpi", "hcoll", "infiniband", "sharp-fabric"), _MPI_SHARP, "hcoll-sharp-off",
    ),
    "hcoll-sharp-off": _behind_mpi(
        "HCOLL without SHARP, the control of hcoll-sharp",
        {"OMPI_MCA_coll_hcoll_enable": "1", "HCOLL_ENABLE_SHARP": "0"}, ("openmpi", "hcoll"), Limits(least_nodes=2),
    ),
    "mvapich-sharp": _behind_mpi(
        "SHARP by MVAPICH", {"MVP_ENABLE_SHARP": "1", "MV2_ENABLE_SHARP": "1"},
        ("mvapich", "infiniband", "sharp-fabric"), _MPI_SHARP, "mvapich-sharp-off",
    ),
    "mvapich-sharp-off": _behind_mpi(
        "MVAPICH without SHARP, the control of mvapich-sharp", {"MVP_ENABLE_SHARP": "0", "MV2_ENABLE_SHARP": "0"},
        ("mvapich",), Limits(least_nodes=2),
    ),
}  # fmt: skip
"""By name, as a sweep file says them: ``variants: {nccl-ring: }``."""

EXAMPLES = (*OF_A_SITE, "traffic_class")
"""Variables and settings whose values in the table are examples: a sweep puts in those of its site."""


def as_known(name: str | None, sets: Mapping[str, object]) -> Variant | None:
    """Return the variant of the table that ``name`` still is in a sweep; None where the sweep has made it another.

    Args:
        name: of the variant.
        sets: its variables and its settings of communicators there. More may have been added, and those of a site put
            in.
    """
    known = VARIANTS.get(name or "")
    if known is None:
        return None
    own = {**known.environment, **known.communicator}
    return known if all(sets.get(key) == value for key, value in own.items() if key not in EXAMPLES) else None


def demanded(name: str | None) -> Demand | None:
    """Return the evidence that the variant ``name`` of a sweep has to show; None where the table does not know it."""
    return VARIANTS[name].demands if name is not None and name in VARIANTS else None
