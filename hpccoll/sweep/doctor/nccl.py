"""Checks of NCCL: the library that is loaded, its plugins, and its settings in the environment and in files."""

from collections.abc import Iterator

from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.findings import DoctorFinding, finding
from hpccoll.sweep.doctor.machine import MachineFacts, error_line

VERSION = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL({path!r}).ncclGetVersion(ctypes.byref(number))
print("%d.%d.%d" % (number.value // 10000, number.value // 100 % 100, number.value % 100))
"""
"""Needs no GPU; from NCCL 2.9 on the number is major x 10000 + minor x 100 + patch (nccl.h)."""


def _has_gpus(machine: MachineFacts) -> bool:
    return gpu_stack.gpu_count(machine.root) > 0


def library(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check which NCCL CuPy loads and which libraries it hides; also without a GPU, as on a login node."""
    libraries = gpu_stack.nccl_libraries(machine.root)
    if not libraries:
        yield finding("nccl_missing", "none")
        return
    loaded, *others = libraries
    child = machine.python(VERSION.format(path=str(loaded)))
    if child.returncode:
        yield finding("nccl_broken", "WRONG" if _has_gpus(machine) else "warn", path=loaded, error=error_line(child))
        return
    version = child.stdout.strip()
    if gpu_stack.is_from_wheel(loaded) and others:
        hidden = ", ".join(map(str, others))
        yield finding("nccl_hidden", "warn", version=version, path=loaded, hidden=hidden, site=others[0])
    else:
        yield finding("nccl", version=version, path=loaded)


def nccl4py(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check whether nccl4py is installed, which creates communicators with settings that CuPy does not offer."""
    if version := machine.wheel("nccl4py"):
        yield finding("nccl4py", version=version)
    else:
        yield finding("nccl4py_missing", "none")


def plugins(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check which plugins NCCL would load, and whether the network needs a missing one."""
    if not _has_gpus(machine):
        return
    loaded = gpu_stack.nccl_plugins(machine.root)
    kinds = {kind for _, kind in loaded}
    ports = [port for port in gpu_stack.rdma_ports(machine.root) if port.active]
    text = "; ".join(f"{kind or 'of another kind'}: {path}" for path, kind in loaded)
    remedy = _plugin_remedy(ports, kinds)
    if loaded:
        yield finding("nccl_plugins", "warn" if remedy else "ok", plugins=text, remedy=remedy)
    else:
        yield finding("nccl_plugins_missing", "none", remedy=remedy or "no network of this machine needs one")


def _plugin_remedy(ports: list[RdmaPort], kinds: set[str | None]) -> str:
    """Return how to get the plugin that the network needs; empty if none is missing."""
    if any(port.driver == "efa" for port in ports) and "aws-ofi-nccl" not in kinds:
        return (
            "without aws-ofi-nccl, NCCL does not see EFA and uses TCP: the EFA installer contains it; put "
            "/opt/amazon/ofi-nccl/lib on LD_LIBRARY_PATH"
        )
    if any(port.layer == "InfiniBand" for port in ports) and "SHARP" not in kinds:
        return "for SHARP in NCCL, load the module of HPC-X and put its nccl-rdma-sharp-plugins on LD_LIBRARY_PATH"
    return ""


SELECTION_VARIABLES = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_TUNER_PLUGIN",
)  # fmt: skip
"""Settings that select what NCCL executes; in a sweep, variants set them."""


def settings(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check the settings of NCCL in the environment and in files, which apply to every run."""
    if not _has_gpus(machine):
        return
    settings_found = gpu_stack.nccl_settings(machine.root)
    by_source: dict[str, list[str]] = {}
    for source, name, value in settings_found:
        by_source.setdefault(source, []).append(f"{name}={value}")
    chosen = list(dict.fromkeys(name for _, name, _ in settings_found if name in SELECTION_VARIABLES))
    text = "; ".join(f"{source} sets {', '.join(assignments)}" for source, assignments in by_source.items())
    text = text or "the environment, ~/.nccl.conf and /etc/nccl.conf set nothing"
    if chosen:
        yield finding("nccl_settings_chosen", "warn", settings=text, names=", ".join(chosen))
    else:
        yield finding("nccl_settings", settings=text)
