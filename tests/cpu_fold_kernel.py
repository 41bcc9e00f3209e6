"""The fold kernel, compiled for the host for every dtype and reduction: its threads run one after another."""

import ctypes
import subprocess
from itertools import product
from pathlib import Path

from hpccoll.schedule import REDUCTIONS
from hpccoll.transports.nccl.fold import KERNEL_OPS, KERNEL_TYPES, SOURCE, kernel_macros

PREAMBLE = """
#include <string.h>
#include <math.h>
#include <utility>
#define __device__ static
#define __global__ static
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)
struct uint4 { unsigned x, y, z, w; };
static struct { unsigned x; } blockIdx, threadIdx;
static unsigned __float_as_uint(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
static float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
static float from_half(unsigned short stored) { _Float16 value; memcpy(&value, &stored, 2); return (float)value; }
static unsigned short to_half(float value) {
    _Float16 half = (_Float16)value;
    unsigned short bits;
    memcpy(&bits, &half, 2);
    return bits;
}
"""
KERNEL = """
%(defines)s
namespace %(name)s {
#include "fold.cu"
}
extern "C" void launch_%(name)s(int tiles, const long long* folds, const long long* inputs, int ranges) {
    for (blockIdx.x = 0; blockIdx.x < tiles; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < THREADS; ++threadIdx.x) %(name)s::fold(folds, inputs, ranges);
}
%(undefines)s
"""
ASSEMBLY = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));': "value = from_half(stored);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));': "stored = to_half(value);",
    'extern "C" __global__': "__global__",
}
"""Instructions of the GPU and a linkage that is unique, and what replaces them."""


def compile_folds(directory: Path) -> Path:
    """Compile the kernel with g++ unless ``directory`` has it, and return the library."""
    library = directory / "fold.so"
    if library.exists():
        return library
    source = SOURCE.read_text()
    for assembly, plain in ASSEMBLY.items():
        assert assembly in source
        source = source.replace(assembly, plain)
    (directory / "fold.cu").write_text(source)
    program = PREAMBLE
    for element, op in product(KERNEL_TYPES, dict.fromkeys(KERNEL_OPS.values())):
        macros = kernel_macros(element, next(name for name in REDUCTIONS if KERNEL_OPS[name] == op))
        program += KERNEL % {
            "name": f"{element}_{op}",
            "defines": "\n".join(f"#define {name} {value}" for name, value in macros.items()),
            "undefines": "\n".join(f"#undef {name}" for name in macros),
        }
    (directory / "fold.cpp").write_text(program)
    flags = ["-O1", "-w", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", library, directory / "fold.cpp"], check=True)
    return library


def fold_launcher(library: Path, element: str, op: str):
    """Return the C function that launches the kernel: (tiles, folds, inputs, ranges)."""
    return getattr(ctypes.CDLL(str(library)), f"launch_{element}_{KERNEL_OPS[op]}")
