"""A bare machine: what its Python lacks comes from wheels that were carried there, into a directory of its own.

Nothing of hpccoll is imported until it is asked what is missing: what hpccoll itself needs may be
among the wheels.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARRY = (
    "without a network carry wheels (pip download --no-deps -d wheels NAME) and say --wheels wheels"
)


def missing(needs: str, *, besides: Sequence[str] = ()) -> str | None:
    """Return what a part of ``gpu.py`` lacks here and what to do about it, None for nothing.

    Args:
        needs: one of NEEDS.
        besides: those needs that are met, in whatever way.
    """
    for need in NEEDS[: NEEDS.index(needs) + 1]:
        if need in besides:
            continue
        if reason := _LACKS[need]():
            return f"{reason}; {CARRY}" if "install" in reason else reason
    return None


def _gpu(transport: str = "staged") -> str | None:
    """Return what a transport lacks, with the CuPy that fits the driver if none is installed."""
    from hpccoll.host import gpu_stack
    from hpccoll.sweep.doctor.gpu import CUDA_OF_DRIVER
    from hpccoll.transports.gpu import missing_for_gpu

    reason = missing_for_gpu(transport)
    driver = gpu_stack.gpu_driver()
    fits = next(
        (cuda for least, cuda in CUDA_OF_DRIVER.items() if driver and driver.major >= least), None
    )
    return (
        f"{reason}; cupy-cuda{fits}x fits this driver"
        if reason and fits and "cupy" in reason
        else reason
    )


def _mpi() -> str | None:
    loads = subprocess.run(
        [sys.executable, "-c", "import mpi4py.MPI"], capture_output=True, text=True, check=False
    )
    if not loads.returncode:
        return None
    why = (loads.stderr.strip().splitlines() or ["it died"])[-1]
    return f"mpi4py starts no MPI ({why}): pip install mpi4py mpich"


def _ranks() -> str | None:
    if not shutil.which("mpiexec"):
        return "there is no mpiexec: pip install mpich"
    return _not_installed("h5py")


def _not_installed(*names: str) -> str | None:
    lacking = [name for name in names if find_spec(name) is None]
    return f"not installed: pip install {' '.join(lacking)}" if lacking else None


_LACKS = {
    "cuda": _gpu,
    "gpu": _gpu,
    "nccl": partial(_gpu, "nccl"),
    "mpi": _mpi,
    "ranks": _ranks,
    "tests": partial(_not_installed, "pytest", "hypothesis"),
}
NEEDS = (*_LACKS,)
"""What parts need, each with those before it."""


def environment(wheels: Path | None) -> Mapping[str, str]:
    """Return the environment of a Python that has this checkout, its own mpiexec, and what ``wheels`` hold."""
    python, paths = [ROOT], [Path(sys.executable).parent]
    changed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if wheels:
        place = Path(tempfile.mkdtemp(prefix="hpccoll-gpu-"))
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--ignore-installed",
        ]
        subprocess.run([*pip, "--prefix", place, *sorted(wheels.glob("*.whl"))], check=True)
        python += sorted(place.glob("**/*-packages"))  # Debian has a word of its own for it
        paths = [*place.glob("**/bin"), *paths]
        libraries = sorted(place.glob("**/lib/libmpi.so*"))
        # mpi4py would look below sys.prefix; of these it takes the first that is a library.
        changed |= {"MPI4PY_LIBMPI": os.pathsep.join(map(str, libraries))} if libraries else {}
    before = {
        name: [os.environ[name]] if os.environ.get(name) else [] for name in ("PYTHONPATH", "PATH")
    }
    changed["PYTHONPATH"] = os.pathsep.join([*map(str, python), *before["PYTHONPATH"]])
    return {**os.environ, **changed, "PATH": os.pathsep.join([*map(str, paths), *before["PATH"]])}
