"""Checks of GPUs: devices and driver, the CuPy for that driver, NVLink, and whether MPI accepts device buffers."""

import json
import os
import re

from hpccoll.common.text import Finding, absent, critical, info, warning
from hpccoll.common.units import format_count
from hpccoll.evidence import nic_gpu_affinity
from hpccoll.host import gpu_stack
from hpccoll.sweep.doctor.machine import MachineFacts, error_line

CUDA_OF_DRIVER = {580: 13, 525: 12}
"""The newest CUDA by the minimum version of the driver (CUDA's release notes, Toolkit Driver Version); majors."""

EXTRAS = "'hpccoll[cuda12]' or 'hpccoll[cuda13]'"
"""The extras of this package that install CuPy."""

COMPUTES = """
from hpccoll.host.gpu_stack import choose_kernel_cache
choose_kernel_cache()
import cupy
assert int((cupy.arange(4) + 1).sum()) == 10
print(cupy.cuda.runtime.getDeviceCount())
"""
"""Also compiles a kernel, for which CuPy needs libraries of the CUDA toolkit."""


def cuda(machine: MachineFacts) -> int | None:
    """Return the newest major version of CUDA that the driver supports; None if it is missing or too old."""
    driver = gpu_stack.gpu_driver(machine.root)
    return next(
        (runs for least, runs in CUDA_OF_DRIVER.items() if driver and driver.major >= least), None
    )


def devices(machine: MachineFacts) -> Finding:
    """Check the GPUs and their driver."""
    number = machine.gpus
    driver = gpu_stack.gpu_driver(machine.root)
    if not number:
        remedy = (
            "if compute nodes have some, run srun --gpus-per-node=1 hpccoll doctor"
            if machine.settings
            else f"if there is one, install NVIDIA's driver {min(CUDA_OF_DRIVER)} or newer, and check with nvidia-smi"
        )
        return absent("gpu_missing", "no CUDA device: GPU cases will be skipped", remedy=remedy)
    gpus = f"{number} x {' and '.join(gpu_stack.gpu_models(machine.root)) or 'NVIDIA device'}"
    if driver is None:
        return warning(
            "gpu_no_driver", f"{gpus}, no driver is loaded", remedy="run nvidia-smi to see why"
        )
    if runs := cuda(machine):
        return info("gpu", f"{gpus}, driver {driver.version}, for CUDA {runs} and older")
    remedy = f"CuPy needs driver {min(CUDA_OF_DRIVER)} or newer"
    return warning("gpu_old_driver", f"{gpus}, driver {driver.version}", remedy=remedy)


def cupy(machine: MachineFacts) -> Finding:
    """Check that exactly one CuPy is installed, that it is new enough, built for the driver's CUDA, and computes.

    If there is no driver, as on a login node, only check that one is installed and new enough.
    """
    runs = cuda(machine) if machine.gpus else None
    fitting = f"cupy-cuda{runs or 'N'}x"
    versions = {name: machine.wheel(name) for name in gpu_stack.CUPY_PACKAGES}
    installed = {name: version for name, version in versions.items() if version}
    if not installed:
        if runs:
            extra = f"'hpccoll[cuda{runs}]' ({fitting})"
        else:
            extra = f"{EXTRAS}, to match the driver of the GPUs"
        return absent(
            "cupy_missing",
            "not installed: GPU cases will be skipped",
            remedy=f"pip install {extra}",
        )
    packages = " and ".join(" ".join(package) for package in installed.items())
    names = " ".join(installed)
    if len(installed) > 1:
        remedy = (
            f"they overwrite each other's files: pip uninstall {names}, then pip install {fitting}"
        )
        return critical("cupy_twice", packages, remedy=remedy)
    if any(map(gpu_stack.is_old_cupy, installed.values())):
        least = gpu_stack.MIN_CUPY
        remedy = f"CuPy {least} or newer is needed: pip uninstall {names}, then pip install '{fitting}>={least}'"
        return critical(
            "cupy_too_old", f"{packages} is too old: GPU cases will be skipped", remedy=remedy
        )
    if runs is None:
        text = f"{packages} is installed; only a machine with a GPU shows whether it computes"
        return info("cupy_untested", text)
    built = re.search(r"cuda(\d+)x", packages)
    if built and int(built[1]) > runs:
        newer = "its CUDA is newer than the driver supports"
        return critical(
            "cupy_too_new",
            packages,
            remedy=f"{newer}: pip uninstall {names}, then pip install {fitting}",
        )
    return _computing_cupy(machine, packages, fitting)


def _computing_cupy(machine: MachineFacts, packages: str, fitting: str) -> Finding:
    child = machine.python(COMPUTES)
    if child.returncode:
        remedy = f"run nvidia-smi; if a CUDA library is missing, load its module, or pip install '{fitting}[ctk]'"
        return critical(
            "cupy_broken", f"{packages} does not compute ({error_line(child)})", remedy=remedy
        )
    return info("cupy", f"{packages} computes, and sees {child.stdout.strip()} of the GPUs")


def nvlink(machine: MachineFacts) -> Finding | None:
    """Check whether GPUs multicast through NVSwitches, as NVLS needs, and that the fabric manager runs.

    CUDA does not start on GPUs behind NVSwitches without that manager. A container hides it, and
    GB200 has its switches on other trays: what the driver says of multicast comes first.
    """
    if not machine.gpus:
        return None
    switches = gpu_stack.nvswitch_count(machine.root)
    multicast = machine.nvlink["multicast"]
    if multicast:
        return info("nvswitch", "the driver reports multicast through NVSwitches: NVLS works")
    if switches and not gpu_stack.is_process_running("nv-fabricmanager", machine.root):
        text = f"{switches} NVSwitches, and no fabric manager is visible"
        remedy = "otherwise the administrator starts nvidia-fabricmanager of the driver's version"
        return warning(
            "fabric_manager_missing", text, remedy=f"the container may hide it; {remedy}"
        )
    if multicast is None:
        text = "the driver does not say whether GPUs multicast through NVSwitches, as NVLS needs"
        return absent("nvswitch_unknown", text, remedy="CUDA 12.1 or newer does (driver 530)")
    text = "the driver reports no multicast through NVSwitches: NVLS variants fall back, and their rows show it"
    return absent("nvswitch_missing", text, remedy="NVLS needs H100 or newer behind NVSwitches")


IMEX_SERVICE = "nvidia-imex"


def nvlink_domain(machine: MachineFacts) -> Finding | None:
    """Check that hosts of one NVLink domain can share memory: there are IMEX channels, and their service runs."""
    domains = machine.nvlink["domains"] if machine.gpus else ()
    channels = gpu_stack.imex_channels(machine.root)
    if not domains and not channels:
        return None
    if not domains:
        text = f"{format_count(channels, 'IMEX channel')}, but NVML names no NVLink domain that these GPUs have joined"
        return warning(
            "nvlink_domain_missing",
            text,
            remedy="pip install nvidia-ml-py; nvidia-smi -q, section Fabric",
        )
    text = f"NVLink reaches other hosts, in domain {' and '.join(domains)}"
    if not channels:
        remedy = "the administrator enables them (NVreg_CreateImexChannel0=1, or Slurm's switch/nvidia_imex)"
        text += ", but there is no IMEX channel: NCCL uses the network between hosts"
        return warning("imex_channel_missing", text, remedy=remedy)
    if not gpu_stack.is_process_running(IMEX_SERVICE, machine.root):
        text += f"; {IMEX_SERVICE} is not visible"
        remedy = f"the container may hide it; otherwise systemctl status {IMEX_SERVICE}"
        return warning("imex_service_missing", text, remedy=remedy)
    return info(
        "nvlink_domain", f"{text}, by {format_count(channels, 'IMEX channel')}; {IMEX_SERVICE} runs"
    )


def affinity(machine: MachineFacts) -> Finding | None:
    """Check that all GPUs are equally close to an adapter, if sysfs shows the distances."""
    addresses = dict(enumerate(gpu_stack.gpu_addresses(machine.root)))
    nearest = nic_gpu_affinity.read_sysfs_topology(addresses, machine.root / "sys")
    if not nearest:
        return None
    balance = nic_gpu_affinity.describe_balance(nearest)
    if balance.startswith("balanced"):
        return info("gpu_nic_balanced", balance)
    remedy = "a ring is as slow as its slowest GPU: see 'nvidia-smi topo -m'"
    return warning("gpu_nic_unbalanced", balance, remedy=remedy)


UCX_CUDA = ("cuda_copy", "cuda_ipc")
UCX_GDR = ("gdr_copy", "cuda", "all")
"""Names in UCX_TLS that include the transport gdr_copy; cuda is an alias of all transports of CUDA
(ucp_tl_aliases in src/ucp/core/ucp_context.c of UCX)."""


def ucx_transports(_: MachineFacts) -> Finding | None:
    """Check that UCX_TLS does not leave out GDRCopy, by which the CPU copies small messages from and to GPU memory."""
    value = os.environ.get("UCX_TLS", "")
    names = {name.strip() for name in value.split(",")}
    if not names & {*UCX_CUDA} or names & {*UCX_GDR}:
        return None
    text = f"UCX_TLS={value} names transports of CUDA but not gdr_copy: small messages on GPUs take longer"
    return warning(
        "ucx_without_gdr_copy",
        text,
        remedy="write cuda instead of their names: it includes all of them",
    )


AWARE = """
import json
from mpi4py import MPI
from hpccoll.host.mpi_library import cuda_support
print(json.dumps(cuda_support()))
"""
"""Runs in a child process, because it calls MPI_Init."""

SWITCHES = {
    "CRAY": "MPICH_GPU_SUPPORT_ENABLED=1",
    "MVAPICH": "MV2_USE_CUDA=1 or MVP_USE_CUDA=1",
    "MPICH": "MPIR_CVAR_ENABLE_GPU=1",
}
"""The variable that enables device buffers in libraries built for CUDA, by a part of their version text."""


def aware_mpi(machine: MachineFacts) -> Finding | None:
    """Check whether the MPI library reports support of device buffers; a job verifies it in child processes."""
    if not machine.gpus or machine.library.returncode:
        return None
    child = machine.python(AWARE)
    if child.returncode:
        return warning("cuda_aware_unknown", error_line(child))
    aware, support = json.loads(child.stdout)
    if aware:
        return info("cuda_aware", f"{support}: each job verifies it")
    consequence = "mpi on cuda will be skipped; staged copies through host memory"
    if aware is None:
        consequence = "each job verifies it"
    switch = next(
        (switch for name, switch in SWITCHES.items() if name in machine.library.stdout), None
    )
    remedy = "load the site's module of an MPI built with CUDA"
    if switch:
        remedy = f"if it is built for CUDA, set {switch}"
    return absent("cuda_unaware", f"{support}: {consequence}", remedy=remedy)
