"""Folds and their waves, and the fold kernel compiled for the host, where its arithmetic can be checked."""

import ctypes
import shutil
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from cpu_kernels import compile_folds, fold_launcher
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.schedule import REDUCTIONS
from hpccoll.transports.nccl.fold import KERNEL_TYPES, THREADS, Fold, fold_waves, launch_tables
from hpccoll.transports.shared_lowering import Span

SPANS = st.builds(lambda at, length: (at, at + length), st.integers(0, 12), st.just(4))


@st.composite
def moves(draw):
    out, *inputs = (
        Span(draw(st.sampled_from("ab")), *draw(SPANS)) for _ in range(draw(st.integers(2, 4)))
    )
    own = out if draw(st.booleans()) else inputs[0]
    apart = [span for span in inputs[1:] if not span.overlaps(out)]
    return Fold(out, (own, *apart), draw(st.sampled_from([0, 0, 2])))


def run(ordered, room):
    for move in ordered:
        value = sum(room[span.buffer][span.start : span.stop] for span in move.inputs)
        room[move.out.buffer][move.out.start : move.out.stop] = (
            value // move.divisor if move.divisor else value
        )


@given(st.lists(moves(), max_size=7))
def test_waves_equal_sequential_folds_in_any_order_within_a_wave(asked):
    before = {"a": np.arange(100, 116), "b": np.arange(16) ** 2}
    found = []
    for ordered in (
        asked,
        *([m for wave in fold_waves(asked) for m in wave[::by]] for by in (1, -1)),
    ):
        room = {name: values.copy() for name, values in before.items()}
        run(ordered, room)
        found.append({name: values.tolist() for name, values in room.items()})
    assert found[0] == found[1] == found[2]


def test_folds_into_one_span_are_fused_and_dependent_folds_are_in_later_waves():
    place, other, a, b, c = (
        Span("dst", 0, 4),
        Span("dst", 4, 8),
        *(Span("in", at, at + 4) for at in (0, 4, 8)),
    )
    first, then, last = Fold(place, (a,)), Fold(place, (place, b)), Fold(place, (place, c))
    assert fold_waves([first, then, Fold(other, (place,)), last, Fold(c, (c,), 2)]) == [
        [Fold(place, (a, b))],
        [Fold(other, (place,))],
        [Fold(place, (place, c))],
        [Fold(c, (c,), 2)],
    ]
    apart = [Fold(place, (place, a)), Fold(other, (other, b))]
    assert fold_waves(apart) == [apart]


# ---- the kernel, compiled for the host
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_host(tmp_path_factory, require):
    """Return the function that launches the kernel on the host, by dtype and reduction."""
    require(shutil.which("g++"), "there is no g++ to compile the fold kernel with")
    return partial(fold_launcher, compile_folds(tmp_path_factory.mktemp("fold")))


def launched(kernel, moves, buffers):
    addresses = {name: buffer.ctypes.data for name, buffer in buffers.items()}
    rows, inputs, tiles = launch_tables(moves, addresses, next(iter(buffers.values())).itemsize)
    kernel(tiles, *(ctypes.c_void_p(table.ctypes.data) for table in (rows, inputs)), len(rows))


def aligned(values, offset=0):
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 16 + offset * values.itemsize
    view = room[start : start + values.nbytes].view(values.dtype)
    view[:] = values
    return view


def numbers(dtype, count, seed):
    chance = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (chance.standard_normal(count) * 3).astype(dtype)
    return chance.integers(-1000 if np.dtype(dtype).kind == "i" else 0, 200, count).astype(dtype)


@pytest.mark.parametrize("element", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("divisor", [2, 255, 300])
def test_an_average_of_integers_rounds_down_for_every_number_of_ranks(element, divisor, on_host):
    given, span = numbers(element, 2000, divisor), Span("out", 0, 2000)
    room = {"out": aligned(given)}
    launched(on_host(element, "avg"), [Fold(span, (span,), divisor)], room)
    assert room["out"].tolist() == [int(value) // divisor for value in given]


@pytest.mark.parametrize("element", [element for element in KERNEL_TYPES if element != "bfloat16"])
def test_the_kernel_equals_numpy_bit_for_bit_for_all_alignments_and_lengths(element, on_host):
    tile = THREADS * 4 * 16 // np.dtype(element).itemsize
    for op, (turn, length) in product(REDUCTIONS, enumerate((1, 7, 100, tile - 3, 2 * tile + 5))):
        kernel, shifts = on_host(element, op), ((0, 0, 0), (3, 3, 3), (1, 0, 2))[turn % 3]
        given = [
            aligned(numbers(element, length + 9, seed), shift) for seed, shift in enumerate(shifts)
        ]
        room = {"out": given[0], "a": given[1], "b": given[2]}
        divisor = 3 if op == "avg" else 0
        with np.errstate(over="ignore"):
            right = REDUCTIONS[op].fold(REDUCTIONS[op].fold(room["out"], room["a"]), room["b"])[
                2 : 2 + length
            ]
        if divisor:
            REDUCTIONS[op].scale(right, divisor)
        before = room["out"].copy()
        places = [Span(name, 2, 2 + length) for name in ("out", "a", "b")]
        launched(kernel, [Fold(places[0], tuple(places), divisor)], room)
        assert room["out"][2 : 2 + length].tobytes() == right.tobytes(), (op, length)
        assert room["out"][:2].tobytes() == before[:2].tobytes()
        assert room["out"][2 + length :].tobytes() == before[2 + length :].tobytes()


def test_a_launch_executes_all_folds_of_its_wave(on_host):
    room = {
        "out": aligned(np.zeros(50000, np.float32)),
        "in": aligned(numbers("float32", 50000, 1)),
    }
    cuts = [0, 1, 2, 130, 4000, 30000, 30001, 50000]
    parts = [(Span("out", a, b), Span("in", a, b)) for a, b in pairwise(cuts)]
    launched(on_host("float32", "sum"), [Fold(out, (of,)) for out, of in parts], room)
    assert room["out"].tobytes() == room["in"].tobytes()


def as_bfloat16(values):
    """Round float32 to the nearest bfloat16, and of two to the even one, by exact arithmetic."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    low, high = bits & 0xFFFF, bits >> 16
    up = (low > 0x8000) | ((low == 0x8000) & (high & 1 == 1))
    return np.where(np.isnan(values), high | 0x40, high + up).astype(np.uint16)


def widened(stored):
    return (stored.astype(np.uint32) << 16).view(np.float32)


def test_bfloat16_is_computed_in_float32_and_rounded_at_each_fold(on_host):
    for op in REDUCTIONS:
        a, b, c = (aligned(as_bfloat16(numbers("float32", 3000, seed))) for seed in range(3))
        fold = REDUCTIONS[op].fold
        right = as_bfloat16(fold(widened(as_bfloat16(fold(widened(a), widened(b)))), widened(c)))
        if op == "avg":
            right = as_bfloat16(widened(right) / np.float32(3))
        places = [Span(name, 0, 3000) for name in "abc"]
        launched(
            on_host("bfloat16", op),
            [Fold(places[0], tuple(places), 3 * (op == "avg"))],
            {"a": a, "b": b, "c": c},
        )
        assert a.tobytes() == right.tobytes(), op


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_every_fold_propagates_nan(element, on_host):
    for op in ("min", "max", "sum"):
        given = np.array([[1, np.nan, 2, np.nan], [np.nan, 1, 3, np.nan]], np.float32)
        a, b = (
            aligned(as_bfloat16(each) if element == "bfloat16" else each.astype(element))
            for each in given
        )
        launched(
            on_host(element, op),
            [Fold(Span("a", 0, 4), (Span("a", 0, 4), Span("b", 0, 4)))],
            {"a": a, "b": b},
        )
        assert np.isnan(widened(a) if element == "bfloat16" else a).tolist() == [
            True,
            True,
            False,
            True,
        ]
