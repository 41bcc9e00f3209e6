"""Ranks with hardly a zero in memory where MPICH puts its address, which is sent with what lies behind it."""

import ctypes

from hpccoll.measure.mpi_startup import start_mpi

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_size_t],
    [ctypes.c_void_p],
)


def filled(size):
    place = libc.malloc(size)
    ctypes.memset(place, 0x41, size)
    return place


gaps = []
for size in range(64, 1040, 16):
    for _ in range(60):
        gaps.append(filled(size))
        filled(6000)
for gap in gaps:
    libc.free(gap)
comm = start_mpi("cpu")
print(f"{comm.rank} of {comm.allreduce(1)}")
