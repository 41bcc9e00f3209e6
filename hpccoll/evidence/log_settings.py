"""Logging of libraries: on for probes, off for timed operations; and copies of NCCL's configuration files."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hpccoll.common.errors import UnusableError
from hpccoll.common.files import read_text
from hpccoll.common.limits import XML_BYTES
from hpccoll.host.gpu_stack import nccl_configuration_files

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

PROBE_REMEDY = "hpccoll run with --probe DIR, and then with --evidence DIR"
"""How to get the evidence of NCCL's log."""

INTERRUPTED_FILE = "interrupted"
"""The file, among the logs, of a probe that a signal ended. An exit code does not work: when one
rank exits, launchers kill the others, and report their signal."""


def enable_logging(directory: Path) -> None:
    """Set the variables that make libraries log into ``directory``; this process must not have loaded them yet."""
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        {name: value.format(dir=directory.resolve()) for name, value in LOG_VARIABLES.items()}
    )


def log_variables_of_user() -> list[str]:
    """Return the variables of NCCL's log that are set: the log is the user's then, and nothing else is done with it."""
    return [name for name in LOG_VARIABLES if name.startswith("NCCL_DEBUG") and name in os.environ]


@contextmanager
def nccl_logging(directory: Path, reset: Callable[[], None]) -> Iterator[None]:
    """Have NCCL log into ``directory``, and restore the variables of its log afterwards.

    NCCL reads them again with the first message after each ``reset`` (``debug_reset``). Dumps that
    the user has named stay where they are.
    """
    logged = {
        name: text.format(dir=directory)
        for name, text in LOG_VARIABLES.items()
        if name.startswith("NCCL_")
    }
    before = {name: os.environ.get(name) for name in logged}
    changed = {
        name: text
        for name, text in logged.items()
        if name.startswith("NCCL_DEBUG") or before[name] is None
    }
    os.environ.update(changed)
    reset()
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]
        os.environ.update({name: text for name, text in before.items() if text is not None})
        reset()


def remove_old_logs(directory: Path) -> None:
    """Remove the logs of an earlier launch from ``directory``, so that they do not count as evidence for the next."""
    for pattern in ("nccl.*.log", "*.conf", "*.xml", INTERRUPTED_FILE):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


def copy_nccl_settings(directory: Path) -> None:
    """Copy the settings of this host's configuration files of NCCL to ``directory``: NCCL does not log them."""
    # the order of precedence
    for label, path in zip(("1-own", "2-etc"), nccl_configuration_files(), strict=True):
        with suppress(OSError, UnusableError):
            text = read_text(path, "NCCL_CONF_FILE", XML_BYTES, "replace")
            settings = [line for line in text.splitlines() if line.startswith("NCCL_")]
            copy = directory / f"{platform.node()}.{label}.conf"
            copy.write_text("".join(f"{line}\n" for line in settings))
