"""NCCL: which library is taken, which plugins it finds, and what sets things unseen."""

from collections.abc import Iterator

from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.findings import DoctorFinding, found
from hpccoll.sweep.doctor.machine import Machine, error_line

VERSION = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL({path!r}).ncclGetVersion(ctypes.byref(number))
print("%d.%d.%d" % (number.value // 10000, number.value // 100 % 100, number.value % 100))
"""
"""Needs no GPU; from 2.9 on the number is major x 10000 + minor x 100 + patch (nccl.h)."""


def _needed(machine: Machine) -> bool:
    return gpu_stack.gpu_count(machine.root) > 0


def library(machine: Machine) -> Iterator[DoctorFinding]:
    """See which NCCL CuPy loads, and which one that hides; also without a GPU, as on a login node."""
    libraries = gpu_stack.nccl_libraries(machine.root)
    if not libraries:
        yield found("nccl_missing", "none")
        return
    taken, *others = libraries
    child = machine.python(VERSION.format(path=str(taken)))
    if child.returncode:
        yield found("nccl_broken", "WRONG" if _needed(machine) else "warn", path=taken, error=error_line(child))
        return
    version = child.stdout.strip()
    if gpu_stack.is_from_wheel(taken) and others:
        hidden = ", ".join(map(str, others))
        yield found("nccl_hidden", "warn", version=version, path=taken, hidden=hidden, site=others[0])
    else:
        yield found("nccl", version=version, path=taken)


def nccl4py(machine: Machine) -> Iterator[DoctorFinding]:
    """See whether there is nccl4py, by which communicators are made with settings that CuPy cannot give them."""
    if version := machine.wheel("nccl4py"):
        yield found("nccl4py", version=version)
    else:
        yield found("nccl4py_missing", "none")


def plugins(machine: Machine) -> Iterator[DoctorFinding]:
    """See which plugins NCCL would load, and whether the network needs one that is not there."""
    if not _needed(machine):
        return
    loaded = gpu_stack.nccl_plugins(machine.root)
    kinds = {kind for _, kind in loaded}
    ports = [port for port in gpu_stack.rdma_ports(machine.root) if port.active]
    text = "; ".join(f"{kind or 'of another kind'}: {path}" for path, kind in loaded)
    remedy = _plugin_remedy(ports, kinds)
    if loaded:
        yield found("nccl_plugins", "warn" if remedy else "ok", plugins=text, remedy=remedy)
    else:
        yield found("nccl_plugins_missing", "none", remedy=remedy or "no network here asks for one")


def _plugin_remedy(ports: list[RdmaPort], kinds: set[str | None]) -> str:
    """Return what to do for the plugin that the network here asks for, nothing where it is there."""
    if any(port.driver == "efa" for port in ports) and "aws-ofi-nccl" not in kinds:
        return (
            "without aws-ofi-nccl NCCL does not see EFA, and uses TCP: the EFA installer brings it, put "
            "/opt/amazon/ofi-nccl/lib on LD_LIBRARY_PATH"
        )
    if any(port.layer == "InfiniBand" for port in ports) and "SHARP" not in kinds:
        return "for SHARP by NCCL load the module of HPC-X, whose nccl-rdma-sharp-plugins go on LD_LIBRARY_PATH"
    return ""


CHOOSING = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_TUNER_PLUGIN")
"""Settings that decide what runs: of a sweep that is the business of its variants."""


def settings(machine: Machine) -> Iterator[DoctorFinding]:
    """See what the environment and files set for every run, the files unseen."""
    if not _needed(machine):
        return
    settings_found = gpu_stack.nccl_settings(machine.root)
    places: dict[str, list[str]] = {}
    for place, name, value in settings_found:
        places.setdefault(place, []).append(f"{name}={value}")
    chosen = list(dict.fromkeys(name for _, name, _ in settings_found if name in CHOOSING))
    text = "; ".join(f"{place} sets {', '.join(words)}" for place, words in places.items())
    text = text or "the environment, ~/.nccl.conf and /etc/nccl.conf set nothing"
    if chosen:
        yield found("nccl_settings_chosen", "warn", settings=text, names=", ".join(chosen))
    else:
        yield found("nccl_settings", settings=text)
