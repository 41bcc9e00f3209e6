"""GPUs: devices and their driver, the CuPy that fits it, NVLink, and whether MPI takes device buffers."""

import json
import re
from collections.abc import Iterator

from hpccoll.evidence import topology
from hpccoll.host import hardware
from hpccoll.sweep.doctor.machine import Finding, Machine

CUDA_OF_DRIVER = {580: 13, 525: 12}
"""The CUDA that a driver runs, from these major versions on (CUDA's release notes, Toolkit Driver Version)."""

EXTRAS = "'hpccoll[cuda12]' or 'hpccoll[cuda13]'"
"""What brings a CuPy, by the CUDA of the driver."""

COMPUTES = "import cupy; n = cupy.cuda.runtime.getDeviceCount(); assert int((cupy.arange(4) + 1).sum()) == 10; print(n)"
"""Compiles a kernel, too, for which CuPy needs libraries of the CUDA toolkit."""


def cuda(machine: Machine) -> int | None:
    """Return the CUDA, by its major version, that the driver runs; None without a driver, or with too old a one."""
    driver = hardware.gpu_driver(machine.root)
    return next((runs for least, runs in CUDA_OF_DRIVER.items() if driver and driver.major >= least), None)


def devices(machine: Machine) -> Iterator[Finding]:
    """See what GPUs there are; without one nothing is said of what only they need."""
    found, driver = hardware.gpu_count(machine.root), hardware.gpu_driver(machine.root)
    if not found:
        look = (
            "nodes may have some: srun --gpus-per-node=1 hpccoll doctor looks there" if machine.settings
            else f"where there is one, NVIDIA's driver from {min(CUDA_OF_DRIVER)} on shows it (nvidia-smi)"
        )  # fmt: skip
        yield Finding("GPU", "no CUDA device: GPU cases will be skipped", look, "none")
        return
    count = f"{found} x {' and '.join(hardware.gpu_models(machine.root)) or 'NVIDIA device'}"
    if driver is None:
        yield Finding("GPU", f"{count}, no driver is loaded", "see what nvidia-smi says", "warn")
    elif runs := cuda(machine):
        yield Finding("GPU", f"{count}, driver {driver.version}, for CUDA {runs} and older")
    else:
        least = min(CUDA_OF_DRIVER)
        yield Finding("GPU", f"{count}, driver {driver.version}", f"CuPy needs driver {least} or newer", "warn")


def cupy(machine: Machine) -> Iterator[Finding]:
    """See that there is one CuPy, that it is for the CUDA of the driver, and that it computes.

    Where there is no driver to fit, as on a login node, see only that there is one.
    """
    runs = cuda(machine) if hardware.gpu_count(machine.root) else None
    fits = f"cupy-cuda{runs or 'N'}x"
    there = {
        name: told
        for name in ("cupy", *(f"cupy-cuda{major}x" for major in (11, 12, 13)))
        if (told := machine.wheel(name))
    }
    if not there:
        extra = f"'hpccoll[cuda{runs}]' ({fits})" if runs else f"{EXTRAS}, as the driver of the GPUs runs it"
        yield Finding("CuPy", "not installed: GPU cases will be skipped", f"pip install {extra}", "none")
        return
    said = " and ".join(f"{name} {told}" for name, told in there.items())
    if len(there) > 1:
        remedy = f"they overwrite each other: pip uninstall {' '.join(there)}, then pip install {fits}"
        yield Finding("CuPy", said, remedy, "WRONG")
        return
    if runs is None:
        yield Finding("CuPy", f"{said} is installed; whether it computes shows where there is a GPU")
        return
    built = re.search(r"cuda(\d+)x", said)
    if built and int(built[1]) > runs:
        remedy = f"its CUDA is newer than the driver's: pip uninstall {next(iter(there))}, then pip install {fits}"
        yield Finding("CuPy", said, remedy, "WRONG")
        return
    child = machine.python(COMPUTES)
    if child.returncode:
        why = (child.stderr.strip().splitlines() or ["it died"])[-1]
        remedy = f"see nvidia-smi; where a library of CUDA is missing, load its module, or pip install '{fits}[ctk]'"
        yield Finding("CuPy", f"{said} does not compute ({why})", remedy, "WRONG")
    else:
        yield Finding("CuPy", f"{said} computes, and sees {child.stdout.strip()} of the GPUs")


def nvlink(machine: Machine) -> Iterator[Finding]:
    """See that the switches between GPUs are managed: without that CUDA does not start, and there is no NVLS."""
    switches = hardware.nvswitch_count(machine.root)
    if not hardware.gpu_count(machine.root):
        return
    if not switches:
        yield Finding("NVLink", "no NVSwitch is seen: variants of NVLS fall back, and say so",
                      "where there are some, a container may hide them", "none")  # fmt: skip
    elif hardware.is_process_running("nv-fabricmanager", machine.root):
        yield Finding("NVLink", f"{switches} NVSwitches, and the fabric manager runs: NVLS from H100 on")
    else:
        remedy = "a container may hide it; else the admin starts nvidia-fabricmanager, of the driver's version"
        yield Finding("NVLink", f"{switches} NVSwitches, and no fabric manager is seen", remedy, "warn")


def affinity(machine: Machine) -> Iterator[Finding]:
    """See that each GPU has an adapter as near as the others', where the bus says so."""
    places = dict(enumerate(hardware.gpu_addresses(machine.root)))
    if near := topology.read_sysfs_topology(places, machine.root / "sys"):
        said = topology.describe_balance(near)
        if said.startswith("balanced"):
            yield Finding("GPUs and adapters", said)
        else:
            remedy = "rings go at the pace of the worst: see nvidia-smi topo -m"
            yield Finding("GPUs and adapters", said, remedy, "warn")


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


def aware_mpi(machine: Machine) -> Iterator[Finding]:
    """See what the MPI library says of device buffers; that it is true is tried in the job, by children."""
    if not hardware.gpu_count(machine.root) or machine.library.returncode:
        return
    child = machine.python(AWARE)
    if child.returncode:
        yield Finding("MPI and GPUs", (child.stderr.strip().splitlines() or ["it died"])[-1], mark="warn")
        return
    aware, words = json.loads(child.stdout)
    if aware:
        yield Finding("MPI and GPUs", f"{words}: a job tries it")
        return
    then = "a job tries it" if aware is None else "cuda over mpi will be skipped, and staged goes by the host"
    switch = next((switch for name, switch in SWITCHES.items() if name in machine.library.stdout), None)
    remedy = f"if it is built for CUDA, set {switch}" if switch else "load the site's module of an MPI built with CUDA"
    yield Finding("MPI and GPUs", f"{words}: {then}", remedy, "none")
