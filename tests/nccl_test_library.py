"""The test library of NCCL and the kernels of the host that go with it: compiled by a test, loaded by its ranks."""

import ctypes
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from cpu_kernels import HostGpu, compile_folds, pause_function

SOURCE = Path(__file__).parent / "gpu" / "libnccl" / "nccl.c"
NAME = "libnccl.so.2"
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fwrapv",
    "-shared",
    "-fPIC",
    "-pthread",
)


def missing():
    """Return what this machine lacks for the library and its users, None if nothing."""
    for compiler in ("gcc", "g++"):
        if not shutil.which(compiler):
            return f"there is no {compiler}"
    for module in ("cupy", "nccl"):
        if find_spec(module) is None:
            return f"{module} is not installed: pip install 'hpccoll[dev]' does so on Linux"
    return None


def compile_all(directory):
    """Compile the library and the kernels into ``directory``, for all ranks."""
    compile_folds(directory)
    pause_function(directory)
    HostGpu(directory).compiled("fill", 4)
    compile_library(directory)


def compile_library(directory, *flags):
    """Compile the library alone."""
    subprocess.run(
        ["gcc", *FLAGS, *flags, f"-Wl,-soname,{NAME}", "-o", directory / NAME, SOURCE], check=True
    )


def load(directory):
    """Load the library before CuPy and nccl4py look for theirs: they get the one of its name that is loaded."""
    library = ctypes.CDLL(str(directory / NAME))
    for name in ("hostStreamCreate", "hostCaptureEnd", "hostEventCreate"):
        getattr(library, name).restype = ctypes.c_void_p
    library.hostCalls.restype, library.hostEventTime.restype = ctypes.c_char_p, ctypes.c_int64
    return library
