"""The GPU kernels of the package, compiled by NVRTC without a GPU.

``python tests/nvrtc_kernels.py`` compiles every kernel for every architecture, and prints how many and the time.
"""

import ctypes
import re
import sys
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

from hpccoll.transports.nccl.fold_kernel import KERNEL_OPS, KERNEL_TYPES, kernel_macros

PACKAGE = Path(__file__).parents[1] / "hpccoll"
ARCHITECTURES = ("sm_70", "sm_80", "sm_90", "sm_100", "sm_120")
"""Volta, Ampere, Hopper and Blackwell. NVRTC knows the last two since 12.8, and dropped the first with 13."""

KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
"""The definition of a kernel, with its name."""

ITEM_SIZES = (1, 2, 4, 8)
OPS = {macro: op for op, macro in KERNEL_OPS.items()}
"""One reduction for each kernel: an average is compiled as a sum."""


class Variant(NamedTuple):
    """A source with its macros."""

    source: Path
    macros: dict[str, str]

    @property
    def label(self):
        kind = {name: value for name, value in self.macros.items() if name not in ("THREADS", "UNROLL")}
        return " ".join([self.source.name, *(f"{name}={value}" for name, value in kind.items())])


def variants():
    """Return every source in the package with every set of macros with which it is compiled."""
    macros = {
        "fold.cu": [kernel_macros(element, op) for element, op in product(KERNEL_TYPES, OPS.values())],
        "result_check.cu": [{"ITEMSIZE": str(size)} for size in ITEM_SIZES],
    }
    return [Variant(source, each) for source in sorted(PACKAGE.rglob("*.cu")) for each in macros.get(source.name, [{}])]


class Nvrtc:
    """NVRTC, as the wheel nvidia-cuda-nvrtc-cu12 has it."""

    def __init__(self):
        spec = find_spec("nvidia")
        places = spec.submodule_search_locations if spec else ()
        found = [library for place in places for library in Path(place).glob("cuda_nvrtc/lib/libnvrtc.so.12")]
        self.library = ctypes.CDLL(str(found[0])) if found else None

    def compile(self, variant, architecture):
        """Return the machine code of a variant; empty if it does not compile; and what the compiler has to say."""
        nvrtc, program, size = self.library, ctypes.c_void_p(), ctypes.c_size_t()
        source, name = variant.source.read_bytes(), variant.source.name.encode()
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None) == 0
        options = [f"-D{name}={value}" for name, value in variant.macros.items()]
        words = [word.encode() for word in (*options, f"--gpu-architecture={architecture}")]
        failed = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(0 if failed else size.value)
        if not failed:
            nvrtc.nvrtcGetCUBIN(program, code)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        said = [line for line in log.value.decode().splitlines() if line and "are deprecated and may be" not in line]
        return code.raw, "\n".join(said)


def defect(nvrtc, variant, architecture):
    """Return what is wrong with a variant on an architecture; None if its kernels compile without a warning."""
    code, said = nvrtc.compile(variant, architecture)
    kernels = KERNEL.findall(variant.source.read_text())
    missing = [name for name in kernels if f".text.{name}\0".encode() not in code]
    if said or missing or not kernels:
        return f"{variant.label} for {architecture}: {said or f'no kernel {missing}'}"
    return None


if __name__ == "__main__":
    every, nvrtc, began = [*product(variants(), ARCHITECTURES)], Nvrtc(), time.process_time()
    defects = [*filter(None, (defect(nvrtc, *each) for each in every))]
    print(*defects, f"{len(every) - len(defects)} of {len(every)} compile", sep="\n", end=" ")
    print(f"in {time.process_time() - began:.0f} s of CPU time")
    sys.exit(bool(defects))
