"""The GPU kernels of the package, compiled by NVRTC of CUDA 12 and 13 without a GPU."""

import ctypes
import re
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

from hpccoll.transports.nccl.fold import KERNEL_OPS, KERNEL_TYPES, kernel_macros
from hpccoll.transports.nccl.fold import SOURCE as FOLD
from hpccoll.transports.peer.program_tables import SOURCE as PEER

PACKAGE = Path(__file__).parents[1] / "hpccoll"
OLDEST, NEWEST = 70, 121
"""The compute capabilities 7.0 (Volta, which NVRTC 13 dropped) to 12.1 (Blackwell)."""

LIBRARIES = {12: "cuda_nvrtc/lib/libnvrtc.so.12", 13: "cu13/lib/libnvrtc.so.13"}
"""NVRTC by its major version, in the wheels nvidia-cuda-nvrtc-cu12 and nvidia-cuda-nvrtc."""

SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
"""What the assembler says of a kernel: bytes of each thread that are not in registers."""

KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
"""The definition of a kernel, with its name."""

ITEM_SIZES = (1, 2, 4, 8)
OPS = {macro: op for op, macro in KERNEL_OPS.items()}
"""One reduction for each kernel: an average is compiled as a sum."""


class Variant(NamedTuple):
    """A source with its macros, and the source in front of it in the text that is compiled."""

    source: Path
    macros: dict[str, str]
    front: Path | None = None

    @property
    def text(self):
        return (self.front.read_text() if self.front else "") + self.source.read_text()

    @property
    def label(self):
        kind = {
            name: value for name, value in self.macros.items() if name not in ("THREADS", "UNROLL")
        }
        return " ".join([self.source.name, *(f"{name}={value}" for name, value in kind.items())])


def variants():
    """Return every source in the package with every set of macros with which it is compiled."""
    of_folds = [kernel_macros(element, op) for element, op in product(KERNEL_TYPES, OPS.values())]
    macros = {
        "fold.cu": of_folds,
        "peer.cu": of_folds,
        "result_check.cu": [{"ITEMSIZE": str(size)} for size in ITEM_SIZES],
    }
    front = {PEER: FOLD}
    return [
        Variant(source, each, front.get(source))
        for source in sorted(PACKAGE.rglob("*.cu"))
        for each in macros.get(source.name, [{}])
    ]


class Nvrtc:
    """NVRTC of a major version of CUDA, as its wheel has it."""

    def __init__(self, major):
        spec = find_spec("nvidia")
        places = spec.submodule_search_locations if spec else ()
        found = [library for place in places for library in Path(place).glob(LIBRARIES[major])]
        self.major, self.library = major, ctypes.CDLL(str(found[0])) if found else None

    @property
    def architectures(self):
        """The architectures that it compiles for and that are supported here."""
        count = ctypes.c_int()
        assert self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
        found = (ctypes.c_int * count.value)()
        assert self.library.nvrtcGetSupportedArchs(found) == 0
        return [f"sm_{number}" for number in found if OLDEST <= number <= NEWEST]

    def compile(self, variant, architecture, *more):
        """Return the machine code of a variant; empty if it does not compile; and what the compiler has to say.

        For a virtual architecture, compute_90 say, the code is PTX. ``more`` are further options.
        """
        nvrtc, program, size = self.library, ctypes.c_void_p(), ctypes.c_size_t()
        source, name = variant.text.encode(), variant.source.name.encode()
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None) == 0
        options = [f"-D{name}={value}" for name, value in variant.macros.items()]
        options += [f"--gpu-architecture={architecture}", *(more or ["--ptxas-options=-v"])]
        words = [option.encode() for option in options]
        failed = nvrtc.nvrtcCompileProgram(
            program, len(words), (ctypes.c_char_p * len(words))(*words)
        )
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        kind = "PTX" if architecture.startswith("compute_") else "CUBIN"
        getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(0 if failed else size.value)
        if not failed:
            getattr(nvrtc, f"nvrtcGet{kind}")(program, code)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        said = [
            line
            for line in log.value.decode().splitlines()
            if line and "are deprecated and may be" not in line
        ]
        return code.raw, "\n".join(said)


def complaints(said, kernels):
    """Return what of a compiler's words is no mere information: warnings, errors, and bytes outside of registers."""
    others = [line for line in said.splitlines() if not line.startswith("ptxas")]
    frames = SPILLS.findall(said)
    missing = [] if others or len(frames) >= kernels else ["the assembler reports no stack frames"]
    return [
        *others,
        *missing,
        *(f"{a} bytes of stack, {b} of spills" for a, b, _ in frames if int(a) or int(b)),
    ]


def defect(nvrtc, variant, architecture):
    """Return what is wrong with a variant on an architecture; None if its kernels compile without a word."""
    code, said = nvrtc.compile(variant, architecture)
    kernels = KERNEL.findall(variant.text)
    missing = [name for name in kernels if f".text.{name}\0".encode() not in code]
    wrong = complaints(said, len(kernels)) + [f"no kernel {name}" for name in missing]
    if wrong or not kernels:
        return f"{variant.label} for {architecture} by CUDA {nvrtc.major}: {'; '.join(wrong)}"
    return None
