"""Checks of NCCL: the library that is loaded, its plugins, and its settings in the environment and in files."""

from collections.abc import Iterator

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


def nccl_library(machine: MachineFacts) -> Iterator[Finding]:
    """Check which NCCL CuPy loads and which libraries it hides; also without a GPU, as on a login node."""
    libraries = gpu_stack.nccl_libraries(machine.root)
    if not libraries:
        remedy = "load the site's module, or pip install nvidia-nccl-cu12 (or -cu13, to match CuPy)"
        yield absent("nccl_missing", "not found: cases over nccl will be skipped", "NCCL", remedy)
        return
    loaded, *others = libraries
    child = machine.python(VERSION.format(path=str(loaded)))
    if child.returncode:
        problem = critical if machine.gpus else warning
        yield problem("nccl_broken", f"{loaded} cannot be loaded ({error_line(child)})", "NCCL")
        return
    found = f"{child.stdout.strip()}, {loaded}"
    if gpu_stack.is_from_wheel(loaded) and others:
        hidden = ", ".join(map(str, others))
        remedy = (
            f"to measure the site's NCCL, pip uninstall the wheel (nvidia-nccl-cu..), or set LD_PRELOAD={others[0]}"
        )
        yield warning("nccl_hidden", f"{found}; this wheel hides {hidden}", "NCCL", remedy)
    else:
        yield info("nccl", found, "NCCL")


def nccl4py(machine: MachineFacts) -> Iterator[Finding]:
    """Check whether nccl4py is installed, which creates communicators with settings that CuPy does not offer."""
    if version := machine.wheel("nccl4py"):
        yield info("nccl4py", version, "nccl4py")
    else:
        text = "not installed: variants with settings of communicators will be skipped"
        yield absent("nccl4py_missing", text, "nccl4py", "pip install 'hpccoll[nccl4py]'")


def plugins(machine: MachineFacts) -> Iterator[Finding]:
    """Check which plugins NCCL would load, and whether the network needs a missing one."""
    if not machine.gpus:
        return
    loaded = gpu_stack.nccl_plugins(machine.root)
    kinds = {kind for _, kind in loaded}
    ports = [port for port in gpu_stack.rdma_ports(machine.root) if port.active]
    text = "; ".join(f"{kind or 'of another kind'}: {path}" for path, kind in loaded)
    remedy = _plugin_remedy(ports, kinds)
    if loaded:
        state = warning if remedy else info
        yield state("nccl_plugins", text, "NCCL plugins", remedy)
    else:
        remedy = remedy or "no network of this machine needs one"
        yield absent("nccl_plugins_missing", "none where the loader looks", "NCCL plugins", remedy)


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


def settings(machine: MachineFacts) -> Iterator[Finding]:
    """Check the settings of NCCL in the environment and in files, which apply to every run."""
    if not machine.gpus:
        return
    settings_found = gpu_stack.nccl_settings(machine.root)
    by_source: dict[str, list[str]] = {}
    for source, name, value in settings_found:
        by_source.setdefault(source, []).append(f"{name}={value}")
    chosen = list(dict.fromkeys(name for _, name, _ in settings_found if name in SELECTION_VARIABLES))
    text = "; ".join(f"{source} sets {', '.join(assignments)}" for source, assignments in by_source.items())
    text = text or "the environment, ~/.nccl.conf and /etc/nccl.conf set nothing"
    if chosen:
        remedy = f"unset {', '.join(chosen)}: a sweep sets the variables that it compares, in variants"
        yield warning("nccl_settings_chosen", text, "NCCL settings", remedy, names=chosen)
    else:
        yield info("nccl_settings", text, "NCCL settings")
