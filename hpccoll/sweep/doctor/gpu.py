"""GPUs: devices and their driver, the CuPy that fits it, NVLink, and whether MPI takes device buffers."""

import json
import re
from collections.abc import Iterator

from hpccoll.evidence import nic_gpu_affinity
from hpccoll.host import gpu_stack
from hpccoll.sweep.doctor.findings import DoctorFinding, found
from hpccoll.sweep.doctor.machine import Machine, error_line

CUDA_OF_DRIVER = {580: 13, 525: 12}
"""The CUDA that a driver runs, from these major versions on (CUDA's release notes, Toolkit Driver Version)."""

EXTRAS = "'hpccoll[cuda12]' or 'hpccoll[cuda13]'"
"""What brings a CuPy, by the CUDA of the driver."""

COMPUTES = "import cupy; n = cupy.cuda.runtime.getDeviceCount(); assert int((cupy.arange(4) + 1).sum()) == 10; print(n)"
"""Compiles a kernel, too, for which CuPy needs libraries of the CUDA toolkit."""


def cuda(machine: Machine) -> int | None:
    """Return the CUDA, by its major version, that the driver runs; None without a driver, or with too old a one."""
    driver = gpu_stack.gpu_driver(machine.root)
    return next((runs for least, runs in CUDA_OF_DRIVER.items() if driver and driver.major >= least), None)


def devices(machine: Machine) -> Iterator[DoctorFinding]:
    """See what GPUs there are; without one nothing is said of what only they need."""
    number, driver = gpu_stack.gpu_count(machine.root), gpu_stack.gpu_driver(machine.root)
    if not number:
        remedy = (
            "nodes may have some: srun --gpus-per-node=1 hpccoll doctor looks there" if machine.settings
            else f"where there is one, NVIDIA's driver from {min(CUDA_OF_DRIVER)} on shows it (nvidia-smi)"
        )  # fmt: skip
        yield found("gpu_missing", "none", remedy=remedy)
        return
    gpus = f"{number} x {' and '.join(gpu_stack.gpu_models(machine.root)) or 'NVIDIA device'}"
    if driver is None:
        yield found("gpu_no_driver", "warn", gpus=gpus)
    elif runs := cuda(machine):
        yield found("gpu", gpus=gpus, driver=driver.version, cuda=runs)
    else:
        yield found("gpu_old_driver", "warn", gpus=gpus, driver=driver.version, least=min(CUDA_OF_DRIVER))


def cupy(machine: Machine) -> Iterator[DoctorFinding]:
    """See that there is one CuPy, that it is for the CUDA of the driver, and that it computes.

    Where there is no driver to fit, as on a login node, see only that there is one.
    """
    runs = cuda(machine) if gpu_stack.gpu_count(machine.root) else None
    fitting = f"cupy-cuda{runs or 'N'}x"
    installed = {
        name: version
        for name in ("cupy", *(f"cupy-cuda{major}x" for major in (11, 12, 13)))
        if (version := machine.wheel(name))
    }
    if not installed:
        extra = f"'hpccoll[cuda{runs}]' ({fitting})" if runs else f"{EXTRAS}, as the driver of the GPUs runs it"
        yield found("cupy_missing", "none", extra=extra)
        return
    packages, names = " and ".join(" ".join(each) for each in installed.items()), " ".join(installed)
    if len(installed) > 1:
        yield found("cupy_twice", "WRONG", packages=packages, names=names, fitting=fitting)
        return
    if runs is None:
        yield found("cupy_untested", packages=packages)
        return
    built = re.search(r"cuda(\d+)x", packages)
    if built and int(built[1]) > runs:
        yield found("cupy_too_new", "WRONG", packages=packages, names=names, fitting=fitting)
        return
    child = machine.python(COMPUTES)
    if child.returncode:
        yield found("cupy_broken", "WRONG", packages=packages, error=error_line(child), fitting=fitting)
    else:
        yield found("cupy", packages=packages, gpus=child.stdout.strip())


def nvlink(machine: Machine) -> Iterator[DoctorFinding]:
    """See that the switches between GPUs are managed: without that CUDA does not start, and there is no NVLS."""
    switches = gpu_stack.nvswitch_count(machine.root)
    if not gpu_stack.gpu_count(machine.root):
        return
    if not switches:
        yield found("nvswitch_missing", "none")
    elif gpu_stack.is_process_running("nv-fabricmanager", machine.root):
        yield found("nvswitch", switches=switches)
    else:
        yield found("fabric_manager_missing", "warn", switches=switches)


def affinity(machine: Machine) -> Iterator[DoctorFinding]:
    """See that each GPU has an adapter as near as the others', where the bus says so."""
    places = dict(enumerate(gpu_stack.gpu_addresses(machine.root)))
    if near := nic_gpu_affinity.read_sysfs_topology(places, machine.root / "sys"):
        balance = nic_gpu_affinity.describe_balance(near)
        if balance.startswith("balanced"):
            yield found("gpu_nic_balanced", balance=balance)
        else:
            yield found("gpu_nic_unbalanced", "warn", balance=balance)


AWARE = """
import json
from mpi4py import MPI
from hpccoll.host.mpi_library import cuda_support
print(json.dumps(cuda_support()))
"""
"""Starts MPI, which is why a child asks."""

SWITCHES = {
    "CRAY": "MPICH_GPU_SUPPORT_ENABLED=1",
    "MVAPICH": "MV2_USE_CUDA=1 or MVP_USE_CUDA=1",
    "MPICH": "MPIR_CVAR_ENABLE_GPU=1",
}
"""What turns it on in libraries that are built for it, by a word of what they say of themselves."""


def aware_mpi(machine: Machine) -> Iterator[DoctorFinding]:
    """See what the MPI library says of device buffers; that it is true is tried in the job, by children."""
    if not gpu_stack.gpu_count(machine.root) or machine.library.returncode:
        return
    child = machine.python(AWARE)
    if child.returncode:
        yield found("cuda_aware_unknown", "warn", error=error_line(child))
        return
    aware, words = json.loads(child.stdout)
    if aware:
        yield found("cuda_aware", support=words)
        return
    then = "a job tries it" if aware is None else "cuda over mpi will be skipped, and staged goes by the host"
    switch = next((switch for name, switch in SWITCHES.items() if name in machine.library.stdout), None)
    remedy = f"if it is built for CUDA, set {switch}" if switch else "load the site's module of an MPI built with CUDA"
    yield found("cuda_unaware", "none", support=words, consequence=then, remedy=remedy)
