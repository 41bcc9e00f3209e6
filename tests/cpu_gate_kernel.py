"""The gate's kernel, compiled for the host."""

import ctypes
import subprocess

from hpccoll.transports.nccl.gate import SOURCE

SHIM = """
#include <ctime>
#define __global__
#define __device__
#define __forceinline__ inline
static void __threadfence_system() { __sync_synchronize(); }
static unsigned long long host_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
"""
TIMER = 'asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));'


def gate_function(directory, name="gate"):
    """Return the C function gate (words, number, limit in nanoseconds) or pause (nanoseconds).

    They are compiled unless ``directory`` has them.
    """
    library = directory / "gate.so"
    if not library.exists():
        source = SOURCE.read_text()
        assert source.count(TIMER) == 1
        program = directory / "gate.cpp"
        program.write_text(SHIM + source.replace(TIMER, "now = host_nanoseconds();"))
        flags = ("-O2", "-Wall", "-Werror", "-shared", "-fPIC")
        subprocess.run(["g++", *flags, str(program), "-o", str(library)], check=True)
    return getattr(ctypes.CDLL(str(library)), name)
