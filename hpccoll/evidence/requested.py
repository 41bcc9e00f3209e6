"""What an environment asks a library for, in one word: also one that a sweep file writes by itself."""

from collections.abc import Mapping

from hpccoll.evidence.communicator_settings import BUFFERS, CommunicatorSettings

NCCL_ALGORITHMS = {
    "tree": "tree",
    "ring": "ring",
    "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
    "nvls": "nvls",
    "nvlstree": "nvls_tree",
    "pat": "pat",
}
"""What NCCL_ALGO calls an algorithm, in any case of letters; and what we do."""

NCCL_FUNCTIONS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""What NCCL_ALGO calls a collective."""

SWITCH_ALGORITHMS = ("collnet_direct", "collnet_chain")
"""NCCL's algorithms that leave the reduction to the switches between nodes, wherever they run."""

SWITCH_REQUESTS = ("sharp", *SWITCH_ALGORITHMS)
"""Words in which these are asked for."""

WINDOW_COLLECTIVES = (None, "all_reduce", "reduce_scatter", "all_gather")
"""The collectives for which NCCL has kernels on symmetric windows; None is whichever."""

_OFF = {"NCCL_COLLNET_ENABLE": "0", "HCOLL_ENABLE_SHARP": "0", "MVP_ENABLE_SHARP": "0", "MV2_ENABLE_SHARP": "0"}
"""Variables that ask for SHARP by any value but this."""

_LAYERS = ("UCC_CL_BASIC_TLS", "UCC_TLS", "UCC_CL_HIER_NODE_LEADERS_SBGP_TLS", "UCC_CL_HIER_NET_SBGP_TLS")
"""Variables that name the transport layers of UCC."""


def forced_algorithms(environment: Mapping[str, str], collective: str | None = None) -> tuple[str, ...]:
    """Return the algorithms that NCCL_ALGO leaves for a collective, in our words; none where it leaves all.

    Its grammar is ``[list];function:list;...``; a list that begins with ``^`` names those that are left out.
    """
    chosen: tuple[str, ...] = ()
    parts = environment.get("NCCL_ALGO", "").lower().split(";")
    for part in parts:
        function, colon, names = part.rpartition(":")
        if colon and (len(parts) > 1 if collective is None else NCCL_FUNCTIONS.get(function.strip()) != collective):
            continue
        named = [
            NCCL_ALGORITHMS[word] for name in names.lstrip(" ^").split(",") if (word := name.strip()) in NCCL_ALGORITHMS
        ]
        left_out = names.strip().startswith("^")
        chosen = tuple(own for own in NCCL_ALGORITHMS.values() if (own in named) != left_out) if named else chosen
    return chosen


def requested_by_environment(
    environment: Mapping[str, str], collective: str | None = None, communicator: CommunicatorSettings | None = None
) -> str | None:
    """Return what a variant asks for in one word, None where it leaves the choice to the library.

    Args:
        environment: its variables.
        collective: in our word; NCCL_ALGO may say different things of different ones. None: what it says of all, or
            of the only one that it names.
        communicator: what NCCL's communicators are made with.

    Returns:
        an algorithm of NCCL; ``sharp``: where only what switches reduce is left, or they are asked to and nothing is
        forced; or ``symmetric``: kernels on symmetric windows, which no forced algorithm keeps from running.
    """
    settings = communicator or {}
    if (
        settings.get(BUFFERS) == "symmetric"
        and settings.get("cta_policy") != "zero"
        and collective in WINDOW_COLLECTIVES
    ):
        return "symmetric"
    if "collnet_enable" in settings and "NCCL_COLLNET_ENABLE" not in environment:
        environment = {**environment, "NCCL_COLLNET_ENABLE": str(settings["collnet_enable"])}
    algorithms = forced_algorithms(environment, collective)
    sharp = any(environment.get(name, off) != off for name, off in _OFF.items()) or any(
        not (layers := environment.get(name, "")).startswith("^") and "sharp" in layers.split(",") for name in _LAYERS
    )
    if sharp and set(algorithms) <= {*SWITCH_ALGORITHMS, "nvls"} and (len(algorithms) != 1 or algorithms == ("nvls",)):
        return "sharp"
    return algorithms[0] if len(algorithms) == 1 else None
