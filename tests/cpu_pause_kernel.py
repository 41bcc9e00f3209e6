"""The kernel of the pause, compiled for the host."""

import ctypes
import subprocess

from hpccoll.transports.nccl.pause import SOURCE

SHIM = """
#include <ctime>
#define __global__
#define __device__
#define __forceinline__ inline
#define pause hpccoll_pause // unistd.h has one of this name
static unsigned long long host_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
"""
TIMER = 'asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));'


def pause_function(directory):
    """Return the C function pause (nanoseconds), compiled unless ``directory`` has it."""
    library = directory / "pause.so"
    if not library.exists():
        source = SOURCE.read_text()
        assert source.count(TIMER) == 1
        program = directory / "pause.cpp"
        program.write_text(SHIM + source.replace(TIMER, "now = host_nanoseconds();"))
        flags = ("-O2", "-Wall", "-Werror", "-shared", "-fPIC")
        subprocess.run(["g++", *flags, str(program), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library)).hpccoll_pause
