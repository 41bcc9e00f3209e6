"""Logging of libraries: switched on for probes, off for timed launches; and copies of NCCL's configuration files."""

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
"""The variables that switch logging on; ``{dir}`` is the directory. UCC and libsharp log to the launch's output."""

QUIET_VARIABLES: Mapping[str, str] = {"NCCL_DEBUG": "WARN"}
"""The variables of a timed launch, unless the user has set them: logging would take time at rank 0."""

INTERRUPTED_FILE = "interrupted"
"""The file, among the logs, of a probe that a signal ended. An exit code does not work: when one rank exits, launchers
kill the others, and report their signal."""


def enable_logging(directory: Path) -> None:
    """Set the variables that make libraries log into ``directory``; this process must not have loaded them yet."""
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.update({name: value.format(dir=directory.resolve()) for name, value in LOG_VARIABLES.items()})


def remove_old_logs(directory: Path) -> None:
    """Remove the logs of an earlier launch from ``directory``, so that they do not count as evidence for the next."""
    for pattern in ("nccl.*.log", "*.conf", "*.xml", INTERRUPTED_FILE):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


def copy_nccl_settings(directory: Path) -> None:
    """Copy the settings of this host's configuration files of NCCL to ``directory``: NCCL does not log them."""
    for label, path in _configuration_files():
        with suppress(OSError, UnusableError):
            text = read_text(path, "NCCL_CONF_FILE", XML_BYTES, "replace")
            settings = [line for line in text.splitlines() if line.startswith("NCCL_")]
            copy = directory / f"{platform.node()}.{label}.conf"
            copy.write_text("".join(f"{line}\n" for line in settings))


def _configuration_files() -> Iterator[tuple[str, Path]]:
    """Yield the files from which NCCL takes variables that the environment lacks, in the order of precedence."""
    conf_file, home = os.environ.get("NCCL_CONF_FILE"), os.environ.get("HOME")
    if conf_file or home:
        yield "1-own", Path(conf_file) if conf_file else Path(home or "") / ".nccl.conf"
    yield "2-etc", Path("/etc/nccl.conf")


def quiet_nccl() -> None:
    """Restrict NCCL's log to warnings, unless the user has set its level."""
    for name, value in QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
