"""The requirements of named variants and transports, and how each is detected on a machine."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from hpccoll.host import gpu_stack
from hpccoll.host.cuda_driver import supports_multicast
from hpccoll.host.gpu_stack import ROOT

MPI_VERSION_PROGRAM = "from mpi4py import MPI; print(MPI.Get_library_version())"


@cache
def mpi_version() -> str:
    """Return the version string of the MPI library, empty without one; a child asks, as MPI starts once per process."""
    code = f"import mpi4py; mpi4py.rc.initialize = False; {MPI_VERSION_PROGRAM}"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return child.stdout


def _cuda(root: Path) -> str | None:
    if not gpu_stack.gpu_count(root):
        return "no CUDA device"
    if not find_spec("cupy"):
        return "CuPy is not installed: pip install 'hpccoll[cuda12]' or 'hpccoll[cuda13]'"
    return gpu_stack.old_cupy_reason()


def _older_nccl(root: Path) -> str | None:
    """Return a reason if the NCCL that CuPy loads is too old; an unknown version is checked in the job."""
    libraries = gpu_stack.nccl_libraries(root)
    version = gpu_stack.nccl_version(libraries[0]) if libraries else None
    if version is None or version >= (2, 27):
        return None
    return f"NCCL {'.'.join(map(str, version))} is older than 2.27"


def _no_multicast(_root: Path) -> str | None:
    """Return a reason if the driver denies it; a machine without a driver says nothing about those with GPUs."""
    if supports_multicast() is False:
        return "no NVSwitch that multicasts, says the driver"
    return None


def _needs(probe: Callable[[Path], object], reason: str) -> Callable[[Path], str | None]:
    return lambda root: None if probe(root) else reason


def _library(name: str) -> Callable[[Path], str | None]:
    return _needs(
        lambda root: gpu_stack.find_libraries(f"{name}*", root=root),
        f"no {name} where the loader looks",
    )


MPI_LIBRARIES = {
    "openmpi": ("Open MPI", r"Open MPI v(\d+)\.(\d+)"), "mpich": ("MPICH", r"MPICH Version:\s*(\d+)\.(\d+)"),
    "mvapich": ("MVAPICH", r"MVAPICH()()"),
}  # fmt: skip
"""The MPI libraries, with the beginning of their version strings: that of Cray's MPICH begins otherwise."""


def wrong_mpi(library: str, version: str, since: str = "") -> str | None:
    """Return the reason if the MPI library of a version string is not ``library``, or is older than ``since``."""
    title, pattern = MPI_LIBRARIES[library]
    match = re.search(pattern, version)
    if not match:
        return f"the MPI library is not {title}"
    numbers = match.groups()
    if since and list(map(int, numbers)) < list(map(int, since.split("."))):
        return f"{title} {'.'.join(numbers)} is older than {since}"
    return None


def _mpi(library: str) -> Callable[[Path], str | None]:
    return lambda _: wrong_mpi(library, mpi_version())


REQUIREMENTS: Mapping[str, Callable[[Path], str | None]] = {
    "cuda": _cuda,
    "nccl": _needs(gpu_stack.nccl_libraries, "NCCL not found"),
    "nccl4py": _needs(
        lambda _: find_spec("nccl") and find_spec("nccl.bindings"),
        "nccl4py not found: pip install 'hpccoll[nccl4py]'",
    ),
    "nccl-2.27": _older_nccl,
    "infiniband": _needs(
        lambda root: any(
            port.active and port.driver != "efa" for port in gpu_stack.rdma_ports(root)
        ),
        "no InfiniBand or RoCE port in use",
    ),
    "nvswitch": _no_multicast,
    "sharp-plugin": _needs(
        lambda root: any(kind == "SHARP" for _, kind in gpu_stack.nccl_plugins(root)),
        "no SHARP plugin of NCCL where the loader looks",
    ),
    # only a job can test whether the switches take part
    "sharp-fabric": _library("libsharp_coll.so"),
    "ucc": _library("libucc.so"),
    "hcoll": _library("libhcoll.so"),
    **{library: _mpi(library) for library in MPI_LIBRARIES},
}
"""For each requirement, a function that returns the reason why it is not met below a root directory, or None."""


def missing_requirements(needs: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the reasons of those of ``needs`` that are not met; a login node may lack what compute nodes have."""
    reasons = (REQUIREMENTS[need](root) for need in needs)
    return [reason for reason in reasons if reason]
