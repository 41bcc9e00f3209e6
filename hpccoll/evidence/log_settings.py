"""How libraries are made to say what they do, and how they are kept quiet while time is taken."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hpccoll.errors import UnusableError
from hpccoll.files import read_text
from hpccoll.limits import XML_BYTES

LOG_VARIABLES: Mapping[str, str] = {
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

QUIET_VARIABLES: Mapping[str, str] = {"NCCL_DEBUG": "WARN"}
"""Variables of a timed launch, unless its user has set them: rank 0 would take time to log."""

INTERRUPTED_FILE = "told-to-end"
"""The file, among the logs, of a launch that was told to end. An exit code would not do: who sees one rank end ends the
others, and what it then says is their signal."""


def enable_logging(place: Path) -> None:
    """Have the libraries that this process is about to load log into the directory ``place``."""
    place.mkdir(parents=True, exist_ok=True)
    os.environ.update({name: value.format(dir=place.resolve()) for name, value in LOG_VARIABLES.items()})


def remove_old_logs(place: Path) -> None:
    """Remove what an earlier launch has left in ``place``: it would pass for evidence of the one that begins."""
    for shape in ("nccl.*.log", "*.conf", "*.xml", INTERRUPTED_FILE):
        for path in place.glob(shape):
            path.unlink(missing_ok=True)


def copy_nccl_settings(place: Path) -> None:
    """Leave this host's files of settings in ``place``: NCCL reads them and does not say so."""
    for word, path in _files_of_settings():
        with suppress(OSError, UnusableError):
            text = read_text(path, "NCCL_CONF_FILE", XML_BYTES, "replace")
            settings = [line for line in text.splitlines() if line.startswith("NCCL_")]
            (place / f"{platform.node()}.{word}.conf").write_text("".join(f"{line}\n" for line in settings))


def _files_of_settings() -> Iterator[tuple[str, Path]]:
    """Yield the files that NCCL sets variables from where nobody has set them, the first before the second."""
    own, home = os.environ.get("NCCL_CONF_FILE"), os.environ.get("HOME")
    if own or home:
        yield "1-own", Path(own) if own else Path(home or "") / ".nccl.conf"
    yield "2-etc", Path("/etc/nccl.conf")


def quiet_nccl() -> None:
    """Have them say no more than what is wrong, unless somebody wants to hear more."""
    for name, value in QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
