"""NCCL: which library is taken, which plugins it finds, and what sets things unseen."""

from collections.abc import Iterator

from hpccoll.host import hardware
from hpccoll.host.hardware import RdmaPort
from hpccoll.sweep.doctor.machine import Finding, Machine

VERSION = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL({path!r}).ncclGetVersion(ctypes.byref(number))
print("%d.%d.%d" % (number.value // 10000, number.value // 100 % 100, number.value % 100))
"""
"""Needs no GPU; from 2.9 on the number is major x 10000 + minor x 100 + patch (nccl.h)."""


def _needed(machine: Machine) -> bool:
    return hardware.gpu_count(machine.root) > 0


def library(machine: Machine) -> Iterator[Finding]:
    """See which NCCL CuPy loads, and which one that hides; also without a GPU, as on a login node."""
    found = hardware.nccl_libraries(machine.root)
    if not found:
        remedy = "load the site's module, or pip install nvidia-nccl-cu12 (or -cu13, as CuPy is)"
        yield Finding("NCCL", "not found: cases over nccl will be skipped", remedy, "none")
        return
    taken, *others = found
    child = machine.python(VERSION.format(path=str(taken)))
    if child.returncode:
        why = (child.stderr.strip().splitlines() or ["it died"])[-1]
        yield Finding("NCCL", f"{taken} cannot be loaded ({why})", mark="WRONG" if _needed(machine) else "warn")
        return
    said = f"{child.stdout.strip()}, {taken}"
    if hardware.is_from_wheel(taken) and others:
        remedy = f"to measure the site's, pip uninstall the wheel (nvidia-nccl-cu..), or set LD_PRELOAD={others[0]}"
        yield Finding("NCCL", f"{said}; this wheel hides {', '.join(map(str, others))}", remedy, "warn")
    else:
        yield Finding("NCCL", said)


def nccl4py(machine: Machine) -> Iterator[Finding]:
    """See whether there is nccl4py, by which communicators are made with settings that CuPy cannot give them."""
    if told := machine.wheel("nccl4py"):
        yield Finding("nccl4py", told)
    else:
        said = "not installed: variants that set what communicators are made with will be skipped"
        yield Finding("nccl4py", said, "pip install 'hpccoll[nccl4py]'", "none")


def plugins(machine: Machine) -> Iterator[Finding]:
    """See which plugins NCCL would load, and whether the network needs one that is not there."""
    if not _needed(machine):
        return
    found = hardware.nccl_plugins(machine.root)
    kinds = {kind for _, kind in found}
    ports = [port for port in hardware.rdma_ports(machine.root) if port.active]
    told = "; ".join(f"{kind or 'of another kind'}: {path}" for path, kind in found)
    remedy = _plugin_remedy(ports, kinds)
    if found:
        yield Finding("NCCL plugins", told, remedy, "warn" if remedy else "ok")
    else:
        remedy = remedy or "no network here asks for one"
        yield Finding("NCCL plugins", "none where the loader looks", remedy, "none")


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


def settings(machine: Machine) -> Iterator[Finding]:
    """See what the environment and files set for every run, the files unseen."""
    if not _needed(machine):
        return
    found = hardware.nccl_settings(machine.root)
    places: dict[str, list[str]] = {}
    for place, name, value in found:
        places.setdefault(place, []).append(f"{name}={value}")
    chosen = list(dict.fromkeys(name for _, name, _ in found if name in CHOOSING))
    remedy = f"take out {', '.join(chosen)}: what a sweep compares it sets itself, as variants" if chosen else ""
    told = "; ".join(f"{place} sets {', '.join(words)}" for place, words in places.items())
    told = told or "the environment, ~/.nccl.conf and /etc/nccl.conf set nothing"
    yield Finding("NCCL settings", told, remedy, "warn" if remedy else "ok")
