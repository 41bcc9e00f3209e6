"""The products of square matrices that stand for the computations of a training step with ``compute: gemm``."""

from typing import TypeAlias

from hpccoll.training.step_program import Compute, StepProgram

Products: TypeAlias = tuple[tuple[int, int], ...]
"""The products of a computation: rows of the matrices, and how many of them."""

MAX_REST = 0.05
"""The part of a computation that may be left to the next one: small products take longer for their FLOPs."""


def matrix_products(program: StepProgram, rows: range) -> list[Products]:
    """Return the products of each computation of a program, in its order.

    A computation becomes products of the largest matrices that fit into it, and smaller ones for the rest, while that
    is more than a twentieth. What is left then is added to the next computation, so that the FLOPs of the step are
    right. If a computation, together with what is left from those before, is smaller than the smallest product, it has
    none.

    Args:
        program: the program.
        rows: the valid numbers of rows, in ascending order.
    """
    left, found = 0.0, []
    for each in program.instructions:
        if isinstance(each, Compute):
            left += each.flops
            found.append(_products(left, rows))
            left -= sum(number * product_flops(size) for size, number in found[-1])
    return found


def _products(flops: float, rows: range) -> Products:
    """Return the products of ``flops`` FLOPs, the largest ones first."""
    found, rest = [], flops
    while rest > MAX_REST * flops and (size := _largest(rest, rows)):
        number, rest = divmod(rest, product_flops(size))
        found.append((size, int(number)))
    return (*found,)


def _largest(flops: float, rows: range) -> int | None:
    """Return the rows of the largest matrices whose product fits into ``flops``; None if none does."""
    return max((size for size in rows if product_flops(size) <= flops), default=None)


def product_flops(rows: int) -> int:
    """Return the FLOPs of the product of two square matrices: a multiplication and an addition for each term."""
    return 2 * rows**3
