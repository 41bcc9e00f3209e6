"""The algorithm or feature that environment variables and communicator settings request from a library, in one word."""

from collections.abc import Mapping

from hpccoll.cases.communicator_settings import BUFFERS, CommunicatorSettings
from hpccoll.cases.library_algorithms import algorithms_by_word, forcing_variable, library_table

NCCL_ALGORITHMS = {
    "tree": "tree",
    "ring": "ring",
    "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
    "nvls": "nvls",
    "nvlstree": "nvls_tree",
    "pat": "pat",
}
"""The algorithms of NCCL_ALGO in lower case, and the project's names."""

NCCL_FUNCTIONS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""The collectives of NCCL_ALGO in lower case, and the project's names."""

SWITCH_ALGORITHMS = ("collnet_direct", "collnet_chain")
"""NCCL's algorithms in which the switches between nodes always reduce."""

SWITCH_REQUESTS = ("sharp", *SWITCH_ALGORITHMS)
"""The words that request a reduction in switches between nodes."""

WINDOW_COLLECTIVES = (None, "all_reduce", "reduce_scatter", "all_gather")
"""The collectives for which NCCL has kernels on symmetric windows; None is any collective."""

_SHARP_SWITCHES = {
    "NCCL_COLLNET_ENABLE": "0",
    "HCOLL_ENABLE_SHARP": "0",
    "MVP_ENABLE_SHARP": "0",
    "MV2_ENABLE_SHARP": "0",
}
"""Variables that request SHARP with any value but this."""

_UCC_LAYERS = (
    "UCC_CL_BASIC_TLS",
    "UCC_TLS",
    "UCC_CL_HIER_NODE_LEADERS_SBGP_TLS",
    "UCC_CL_HIER_NET_SBGP_TLS",
)
"""Variables that name the transport layers of UCC."""


def forced_algorithms(
    environment: Mapping[str, str], collective: str | None = None
) -> tuple[str, ...]:
    """Return the algorithms to which NCCL_ALGO restricts a collective; an empty tuple if it does not restrict it.

    The grammar is ``[list];function:list;...``; a list that begins with ``^`` names the excluded
    algorithms.

    Args:
        environment: the variables.
        collective: the collective, by the project's name. For None, entries for single functions
            count only if there is one entry in all.
    """
    forced: tuple[str, ...] = ()
    items = environment.get("NCCL_ALGO", "").lower().split(";")
    for item in items:
        function, colon, names = item.rpartition(":")
        if colon:
            if collective is None:
                is_of_others = len(items) > 1
            else:
                is_of_others = NCCL_FUNCTIONS.get(function.strip()) != collective
            if is_of_others:
                continue
        entries = (entry.strip() for entry in names.lstrip(" ^").split(","))
        named = [NCCL_ALGORITHMS[entry] for entry in entries if entry in NCCL_ALGORITHMS]
        excluded = names.strip().startswith("^")
        if named:
            forced = tuple(name for name in NCCL_ALGORITHMS.values() if (name in named) != excluded)
    return forced


def requested_by_environment(
    environment: Mapping[str, str],
    collective: str | None = None,
    communicator: CommunicatorSettings | None = None,
) -> str | None:
    """Return the request in one word; None if the library has the choice.

    Args:
        environment: the variables.
        collective: the collective, by the project's name: NCCL_ALGO may differ between collectives.
            None is the request for all collectives, or for the only one that NCCL_ALGO names.
        communicator: the settings of NCCL's communicators.

    Returns:
        An algorithm of NCCL; ``sharp`` if SHARP is requested and no other single algorithm is
        forced; or ``symmetric`` for kernels on symmetric windows, which take precedence over forced
        algorithms.
    """
    settings = communicator or {}
    if not environment and not settings:
        return None  # of most cases of a plan
    windows = settings.get(BUFFERS) == "symmetric" and settings.get("cta_policy") != "zero"
    if windows and collective in WINDOW_COLLECTIVES:
        return "symmetric"
    if "collnet_enable" in settings and "NCCL_COLLNET_ENABLE" not in environment:
        environment = {**environment, "NCCL_COLLNET_ENABLE": str(settings["collnet_enable"])}
    algorithms = forced_algorithms(environment, collective)
    sharp = any(environment.get(name, off) != off for name, off in _SHARP_SWITCHES.items()) or any(
        not (layers := environment.get(name, "")).startswith("^") and "sharp" in layers.split(",")
        for name in _UCC_LAYERS
    )
    if (
        sharp
        and set(algorithms) <= {*SWITCH_ALGORITHMS, "nvls"}
        and (len(algorithms) != 1 or algorithms == ("nvls",))
    ):
        return "sharp"
    return algorithms[0] if len(algorithms) == 1 else None


def forced_by_mpi(environment: Mapping[str, str], collective: str | None = None) -> str | None:
    """Return the algorithm that variables of Open MPI or MPICH force on a collective; None if they force none.

    For None, return the algorithm of all collectives on which the variables force one.
    """
    if not any(name.lower().endswith("_algorithm") for name in environment):
        return None  # most ranks need no table
    words = set[str]()
    for library, names in library_table()["variants"].items():
        if "switch" in names and environment.get(names["switch"], "0").lower() in (
            "0",
            "false",
            "no",
        ):
            continue
        for word, calls in algorithms_by_word(library).items():
            for ours, algorithm in calls.items():
                variable, value = forcing_variable(library, ours, algorithm)
                if collective in (None, ours) and environment.get(variable) in (word, value):
                    words.add(word)
    return words.pop() if len(words) == 1 else None
