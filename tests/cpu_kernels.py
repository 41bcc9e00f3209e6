"""The kernels of GPUs compiled for the host, where their threads run one after another: check, fold and pause."""

import ctypes
import os
import subprocess
from itertools import product

import numpy as np

from hpccoll.measure.run.result_check_gpu import SOURCE as CHECK
from hpccoll.schedule import REDUCTIONS
from hpccoll.transports.nccl.fold import KERNEL_OPS, KERNEL_TYPES, kernel_macros
from hpccoll.transports.nccl.fold import SOURCE as FOLD
from hpccoll.transports.nccl.pause import SOURCE as PAUSE
from hpccoll.transports.peer.program_tables import kernel_source
from hpccoll.transports.transport_interface import address


def compiled(directory, name, text, *flags):
    """Return the path of the library of a C++ program, compiled unless ``directory`` has it."""
    library = directory / f"{name}.so"
    if library.exists():
        return library
    own = directory / f"{name}-{os.getpid()}"  # several ranks may compile it at once
    program, made = own.with_suffix(".cpp"), own.with_suffix(".so")
    program.write_text(text)
    subprocess.run(["g++", *flags, "-shared", "-fPIC", str(program), "-o", str(made)], check=True)
    program.replace(directory / f"{name}.cpp")
    made.replace(library)
    return library


CHECK_SHIM = """
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
    """Takes the place of a Gpu; the compiler's output is in ``directory``."""

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

    def await_work(self):
        self.synchronize()

    def kernel(self, _source, name, itemsize):
        run = self.compiled(name, itemsize)

        def launch(grid, block, arguments):
            words = [ctypes.c_uint(number) for number in (*grid, *block)]
            run(*words, *(ctypes.c_uint64(int(argument)) for argument in arguments))

        return launch

    def compiled(self, name, itemsize):
        """Return the C function that launches a kernel: (wide, high, threads, arguments of the kernel)."""
        if itemsize not in self.libraries:
            text = CHECK_SHIM % {"itemsize": itemsize, "source": CHECK}
            library = compiled(
                self.directory, f"kernels-{itemsize}", text, "-O1", "-Wall", "-Werror"
            )
            self.libraries[itemsize] = ctypes.CDLL(str(library))
        return getattr(self.libraries[itemsize], f"host_{name}")


FOLD_SHIM = """
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
FOLD_KERNEL = """
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
    'asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));': "result = x + y;",
    'asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));': "result = x * y;",
    'asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));': "result = x / y;",
    'asm("{ .reg .pred p; setp.lt.f32 p, %1, %2; selp.s32 %0, 1, 0, p; }" : "=r"(result) : "f"(x), "f"(y));': (
        "result = x < y;"
    ),
    'extern "C" __global__': "__global__",
}
"""Instructions of the GPU and a linkage that is unique, and what replaces them."""


def compile_folds(directory):
    """Compile the kernel for every dtype and reduction, and return the path of the library."""
    source = FOLD.read_text()
    for assembly, plain in ASSEMBLY.items():
        assert assembly in source
        source = source.replace(assembly, plain)
    (directory / "fold.cu").write_text(source)
    program = FOLD_SHIM
    for element, op in product(KERNEL_TYPES, dict.fromkeys(KERNEL_OPS.values())):
        macros = kernel_macros(element, next(name for name in REDUCTIONS if KERNEL_OPS[name] == op))
        program += FOLD_KERNEL % {
            "name": f"{element}_{op}",
            "defines": "\n".join(f"#define {name} {value}" for name, value in macros.items()),
            "undefines": "\n".join(f"#undef {name}" for name in macros),
        }
    return compiled(directory, "fold", program, "-O1", "-w", "-fwrapv", "-ffp-contract=off")


def fold_launcher(library, element, op):
    """Return the C function that launches the kernel: (tiles, folds, inputs, ranges)."""
    return getattr(ctypes.CDLL(str(library)), f"launch_{element}_{KERNEL_OPS[op]}")


def queued_folds(directory):
    """Return what takes the place of ``fold._function``: the kernel of the host, which a stream launches."""

    def function(element, op, _device):
        launch = fold_launcher(directory / "fold.so", element, op)

        def run(grid, _block, arguments, stream):
            rows, inputs, count = arguments
            stream.launch(launch, grid[0], address(rows), address(inputs), count)

        return run

    return function


PEER_SHIM = (
    FOLD_SHIM.replace(
        "static struct { unsigned x; } blockIdx",
        "static thread_local struct { unsigned x; } blockIdx",
    )
    + """
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <vector>
struct Team { pthread_barrier_t barrier; bool any; long long* shared; };
static thread_local Team* team;
static void __syncthreads() { pthread_barrier_wait(&team->barrier); }
static bool __syncthreads_or(bool any) {  // nothing is run after it was true once
    if (any) __atomic_store_n(&team->any, true, __ATOMIC_RELAXED);
    __syncthreads();
    const bool result = __atomic_load_n(&team->any, __ATOMIC_RELAXED);
    __syncthreads();  // all threads have read it
    return result;
}
"""
)
"""The threads of a block are threads of the host, with a barrier of their own."""

PEER_ASSEMBLY = {
    'asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");': (
        "point(); value = __atomic_load_n(flag, __ATOMIC_ACQUIRE);"
    ),
    'asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");': (
        "point(); __atomic_store_n(flag, value, __ATOMIC_RELEASE);"
    ),
    'asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");': (
        "value = __atomic_load_n(word, __ATOMIC_RELAXED);"
    ),
    'asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");': (
        "point_of_word(); value = __atomic_load_n(word, __ATOMIC_RELAXED);"
    ),
    'asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");': (
        "point_of_word(); __atomic_store_n(word, value, __ATOMIC_RELAXED);"
    ),
    "__shared__ long long chunk[CHUNK * WORDS];": "long long* chunk = team->shared;",
}
"""The accesses of the peer kernel to flags, and those of C with the same order of memory."""

PEER_FLAGS = "-O1", "-w", "-fwrapv", "-ffp-contract=off", "-pthread"

PEER_LAUNCH = """
static void run_blocks(int blocks, const long long* programs, const long long* instructions, const long long* inputs,
                       Count* epochs, const int* abort, Count* waits) {
    std::vector<Team> teams(blocks);
    std::vector<long long> shared((size_t)blocks * CHUNK * WORDS);
    std::vector<std::thread> running;
    for (int block = 0; block < blocks; ++block) {
        Team* own = &teams[block];
        own->any = false, own->shared = &shared[(size_t)block * CHUNK * WORDS];
        pthread_barrier_init(&own->barrier, nullptr, THREADS);
        for (int thread = 0; thread < THREADS; ++thread)
            running.emplace_back([=] {
                blockIdx.x = block, threadIdx.x = thread, team = own;
                begin_thread();
                peer(programs, instructions, inputs, epochs, abort, waits);
                end_thread();
            });
    }
    for (auto& thread : running) thread.join();
    for (Team& own : teams) pthread_barrier_destroy(&own.barrier);
}

extern "C" void launch_peer(int blocks, const long long* programs, const long long* instructions,
                            const long long* inputs, Count* epochs, const int* abort, Count* waits) {
    run_blocks(blocks, programs, instructions, inputs, epochs, abort, waits);
}

// A rank of a cluster in one process: its tables, its buffers, their contents before each operation, and the results.
struct Rank {
    const long long *programs, *instructions, *inputs;
    Count *epochs, *waits;
    STORED *src, *dst;
    const STORED *contribution, *before;
    STORED* results;
    long long src_elements, dst_elements;
};

extern "C" void run_cluster(int count, const Rank* ranks, int blocks, int operations, const int* abort, unsigned seed) {
    begin_schedule(seed, count * blocks);
    std::vector<std::thread> running;
    for (int number = 0; number < count; ++number)
        running.emplace_back([=] {
            const Rank& rank = ranks[number];
            for (int operation = 0; operation < operations; ++operation) {
                for (long long i = 0; i < rank.src_elements; ++i) rank.src[i] = rank.contribution[i];
                for (long long i = 0; i < rank.dst_elements; ++i) rank.dst[i] = rank.before[i];
                run_blocks(blocks, rank.programs, rank.instructions, rank.inputs, rank.epochs, abort, rank.waits);
                for (long long i = 0; i < rank.dst_elements; ++i)
                    rank.results[operation * rank.dst_elements + i] = rank.dst[i];
            }
            end_rank(blocks);
        });
    for (auto& thread : running) thread.join();
}
"""

FREE_RUN = """
static void begin_schedule(unsigned, int) {}
static void begin_thread() {}
static void end_thread() {}
static void end_rank(int) {}
static void point() { sched_yield(); }
static void point_of_word() {
    static thread_local unsigned accesses;
    if (++accesses % 64 == 0) sched_yield();
}
"""
"""Blocks run as the host schedules its threads."""


def peer_program(element, op, replaced=(), scheduler=FREE_RUN, threads=1):
    """Return the C++ of the peer kernel for a dtype and a reduction.

    ``replaced`` are pairs of a text in it and what takes its place; ``threads`` are those of a
    block, one if the scheduler chooses which block runs.
    """
    text = kernel_source()
    for assembly, plain in {**ASSEMBLY, **PEER_ASSEMBLY}.items():
        assert assembly in text, assembly
        text = text.replace(assembly, plain)
    for before, after in replaced:
        assert before in text, before
        text = text.replace(before, after)
    macros = {**kernel_macros(element, op), "THREADS": str(threads), "UNROLL": "2"}
    defines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([PEER_SHIM, scheduler, *defines, text, PEER_LAUNCH])


def peer_launcher(directory, element, op):
    """Return the C function that runs the kernel: (blocks, programs, instructions, inputs, epochs, abort, waits)."""
    name = f"peer-{element}-{KERNEL_OPS[op]}"
    library = compiled(directory, name, peer_program(element, op), *PEER_FLAGS)
    return ctypes.CDLL(str(library)).launch_peer


def queued_peer_kernel(directory, element, op, _device):
    """Return what takes the place of ``peer_function``: the kernel of the host, which a stream launches."""
    launch = peer_launcher(directory, element, op)

    def run(grid, _block, arguments, stream, *, enable_cooperative_groups):
        assert enable_cooperative_groups
        *tables, abort, waits = arguments
        stream.launch(launch, grid[0], *map(address, tables), abort, waits)

    return run


PAUSE_SHIM = """
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
    """Return the C function pause (nanoseconds)."""
    source = PAUSE.read_text()
    assert source.count(TIMER) == 1
    text = PAUSE_SHIM + source.replace(TIMER, "now = host_nanoseconds();")
    return ctypes.CDLL(
        str(compiled(directory, "pause", text, "-O2", "-Wall", "-Werror"))
    ).hpccoll_pause
