"""A host that stands in for a GPU in the check: the kernels, compiled as C++, run one thread after another."""

import ctypes
import subprocess

import numpy as np

SHIM = """
#include <cstdint>
#define __global__
#define __device__
#define __forceinline__ inline
struct uint4 { unsigned x, y, z, w; };
static struct { unsigned x, y; } blockIdx, threadIdx, gridDim, blockDim;
static unsigned long long atomicAdd(unsigned long long *at, unsigned long long more) {
    unsigned long long was = *at;
    *at += more;
    return was;
}
#define ITEMSIZE %(itemsize)s
#include "%(source)s"
template <typename... A> static void launch(void kernel(A...), unsigned wide, unsigned high, unsigned threads, A... a) {
    gridDim.x = wide, gridDim.y = high, blockDim.x = threads;
    for (blockIdx.y = 0; blockIdx.y < high; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < wide; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel(a...);
}
extern "C" void host_fill(unsigned x, unsigned y, unsigned t, const Segment *s, Word turn) {
    launch<const Segment *, Word>(fill, x, y, t, s, turn);
}
extern "C" void host_count_wrong(unsigned x, unsigned y, unsigned t, const Segment *s, Word turn, Word *wrong) {
    launch<const Segment *, Word, Word *>(count_wrong, x, y, t, s, turn, wrong);
}
"""


class HostGpu:
    """Takes the place of a Gpu.

    Args:
        directory: a directory for what the compiler makes.
    """

    def __init__(self, directory):
        self.directory, self.libraries = directory, {}

    def upload(self, values):
        memory = np.empty(values.nbytes + 16, np.uint8)
        start = -memory.ctypes.data % 16
        copy = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        copy[:] = values
        return copy

    def download(self, array):
        return array.copy()

    def address(self, array):
        return array.ctypes.data

    def synchronize(self):
        """All is done."""

    def kernel(self, source, name, itemsize):
        run = self.compiled(source, name, itemsize)

        def launch(grid, block, arguments):
            words = [ctypes.c_uint(number) for number in (*grid, *block)]
            run(*words, *(ctypes.c_uint64(int(argument)) for argument in arguments))

        return launch

    def compiled(self, source, name, itemsize):
        """Return the C function that launches a kernel: (wide, high, threads, arguments of the kernel)."""
        if itemsize not in self.libraries:
            program = self.directory / f"kernels-{itemsize}.cpp"
            program.write_text(SHIM % {"itemsize": itemsize, "source": source})
            library = program.with_suffix(".so")
            flags = ("-O1", "-Wall", "-Werror", "-shared", "-fPIC")
            if not library.exists():
                subprocess.run(["g++", *flags, str(program), "-o", str(library)], check=True)
            self.libraries[itemsize] = ctypes.CDLL(str(library))
        return getattr(self.libraries[itemsize], f"host_{name}")
