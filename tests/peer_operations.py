"""Operations that tests of the peer kernel run, and kernels compiled for them."""

from peer_cluster import peer_library
from schedule_examples import SUBJECTS, every_case

from hpccoll.schedule import dtype_of

SHAPES = (1, 1), (3, 2), (4, 4)
"""Channels, and those in flight."""


def operations(ranks, dtype, *, elements=203):
    """Yield every call of every schedule, in turns of channels."""
    turn = 0
    for name in SUBJECTS:
        for case in every_case(name, ranks):
            for in_place in case.placements:
                channels, window = SHAPES[turn % len(SHAPES)]
                turn += 1
                yield (
                    name,
                    case.operation(
                        elements,
                        dtype_of(dtype),
                        in_place=in_place,
                        channels=channels,
                        window=window,
                    ),
                )


def kernel_of(directory, operation, **more):
    return peer_library(directory, operation.dtype.name, operation.reduction.name, **more)
