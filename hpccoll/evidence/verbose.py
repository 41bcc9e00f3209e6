"""How libraries are made to say what they do, and how they are kept quiet while time is taken."""

import os
from collections.abc import Mapping
from pathlib import Path

LOGGING: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,TUNING,COLL",
    "NCCL_DEBUG_FILE": "{dir}/nccl.%h.%p.log",
    "NCCL_TOPO_DUMP_FILE": "{dir}/topology.xml",
    "NCCL_GRAPH_DUMP_FILE": "{dir}/graph.xml",
    "SHARP_COLL_LOG_LEVEL": "3",
    "UCC_COLL_TRACE": "info",
    "UCC_LOG_LEVEL": "info",
}
"""Variables that make libraries log, ``{dir}`` being where; what they do not send to a file comes with the output of
the launch: the lines of UCC and of libsharp."""

QUIET: Mapping[str, str] = {"NCCL_DEBUG": "WARN"}
"""Variables of a timed launch, unless its user has set them: rank 0 would take time to log."""


def log_into(place: Path) -> None:
    """Have the libraries that this process is about to load log into the directory ``place``."""
    place.mkdir(parents=True, exist_ok=True)
    os.environ.update({name: value.format(dir=place.resolve()) for name, value in LOGGING.items()})


def keep_quiet() -> None:
    """Have them say no more than what is wrong, unless somebody wants to hear more."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
