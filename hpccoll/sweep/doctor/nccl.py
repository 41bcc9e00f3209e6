"""Checks of NCCL: the library that is loaded, its plugins, and its settings in the environment and in files."""

from hpccoll.common.text import Finding, absent, critical, info, warning
from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.machine import MachineFacts, error_line

VERSION = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL({path!r}).ncclGetVersion(ctypes.byref(number))
print("%d.%d.%d" % (number.value // 10000, number.value // 100 % 100, number.value % 100))
"""
"""Needs no GPU; from NCCL 2.9 on the number is major x 10000 + minor x 100 + patch (nccl.h)."""


def nccl_library(machine: MachineFacts) -> Finding:
    """Check which NCCL CuPy loads and which libraries it hides; also without a GPU, as on a login node."""
    libraries = gpu_stack.nccl_libraries(machine.root)
    if not libraries:
        remedy = "load the site's module, or pip install nvidia-nccl-cu12 (or -cu13, to match CuPy)"
        return absent("nccl_missing", "not found: cases over nccl will be skipped", remedy=remedy)
    loaded, *hidden = libraries
    child = machine.python(VERSION.format(path=str(loaded)))
    if child.returncode:
        problem = critical if machine.gpus else warning
        return problem("nccl_broken", f"{loaded} cannot be loaded ({error_line(child)})")
    version = f"{child.stdout.strip()}, {loaded}"
    if not (gpu_stack.is_from_wheel(loaded) and hidden):
        return info("nccl", version)
    names = ", ".join(map(str, hidden))
    remedy = f"to measure the site's NCCL, pip uninstall the wheel (nvidia-nccl-cu..), or set LD_PRELOAD={hidden[0]}"
    return warning("nccl_hidden", f"{version}; this wheel hides {names}", remedy=remedy)


def nccl4py(machine: MachineFacts) -> Finding:
    """Check whether nccl4py is installed, which creates communicators with settings that CuPy does not offer."""
    if version := machine.wheel("nccl4py"):
        return info("nccl4py", version)
    text = "not installed: variants with settings of communicators will be skipped"
    return absent("nccl4py_missing", text, remedy="pip install 'hpccoll[nccl4py]'")


def plugins(machine: MachineFacts) -> Finding | None:
    """Check which plugins NCCL would load, and whether the network needs a missing one."""
    if not machine.gpus:
        return None
    loaded = gpu_stack.nccl_plugins(machine.root)
    remedy = _plugin_remedy(
        [port for port in machine.rdma_ports if port.active], {kind for _, kind in loaded}
    )
    if not loaded:
        remedy = remedy or "no network of this machine needs one"
        return absent("nccl_plugins_missing", "none where the loader looks", remedy=remedy)
    text = "; ".join(f"{kind or 'of another kind'}: {path}" for path, kind in loaded)
    return (warning if remedy else info)("nccl_plugins", text, remedy=remedy)


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
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NET",
    "NCCL_COLLNET_ENABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_TUNER_PLUGIN",
)
"""Settings that select what NCCL executes; in a sweep, variants set them."""


def settings(machine: MachineFacts) -> Finding | None:
    """Check the settings of NCCL in the environment and in files, which apply to every run."""
    if not machine.gpus:
        return None
    settings_found = gpu_stack.nccl_settings(machine.root)
    by_source: dict[str, list[str]] = {}
    for source, name, value in settings_found:
        by_source.setdefault(source, []).append(f"{name}={value}")
    chosen = list(
        dict.fromkeys(name for _, name, _ in settings_found if name in SELECTION_VARIABLES)
    )
    text = "; ".join(
        f"{source} sets {', '.join(assignments)}" for source, assignments in by_source.items()
    )
    text = text or "the environment, ~/.nccl.conf and /etc/nccl.conf set nothing"
    if not chosen:
        return info("nccl_settings", text)
    remedy = f"unset {', '.join(chosen)}: a sweep sets the variables that it compares, in variants"
    return warning("nccl_settings_chosen", text, remedy=remedy, names=chosen)
