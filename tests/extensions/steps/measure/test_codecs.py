"""Codecs: fp8 tables are ml_dtypes' casts, chains in one process give the mean, and what does not fit is counted."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpccoll.extensions.steps.measure.codecs import (
    BLOCK,
    CODECS,
    CodecMessage,
    Fp8,
    largest_magnitude,
    largest_positions,
    not_finite,
)
from hpccoll.extensions.steps.training.compressed_bucket import compressed, part_bytes
from hpccoll.extensions.steps.training.compression import COMPRESSIONS, Compression
from hpccoll.extensions.steps.training.step_program import StepOperation
from hpccoll.schedule import dtype_of

TYPES = {"fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}
ALL = [name if name != "topk" else "topk=5%" for name in COMPRESSIONS]
FLOATS = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100
)


def codecs_of(text, gradients, *, feedback=False, in_place=False):
    """Return the codecs of ranks in one process, and the operations of their chain with the messages of all."""
    compression, ranks = Compression.parse(text, feedback=feedback), len(gradients)
    bucket = StepOperation(
        "bucket 1", "all_reduce", "dp", gradients[0].nbytes, "float32", "backward"
    )
    chain = compressed(bucket, compression, ranks)
    messages = [
        [_message(each, ranks, rank, in_place=in_place) for each in chain if not each.is_codec]
        for rank in range(ranks)
    ]
    kind = CODECS[compression.name]
    return [kind(compression, gradients[r], messages[r], ranks, r) for r in range(ranks)], chain


def _message(operation, ranks, rank, *, in_place):
    dtype = dtype_of(operation.dtype)
    arrived = np.full(operation.nbytes // dtype.itemsize, 77, dtype)
    part = arrived.reshape(ranks, -1)[rank] if operation.collective == "all_gather" else arrived
    return CodecMessage(part if in_place else part.copy(), arrived)


@np.errstate(over="ignore", invalid="ignore")
def step(codecs, chain):
    """Run a chain on all ranks of this process."""
    number = 0
    for operation in chain:
        if operation.is_codec:
            for codec in codecs:
                getattr(codec, operation.codec)()
            continue
        sent = [codec.messages[number].own.copy() for codec in codecs]
        for rank, codec in enumerate(codecs):
            codec.messages[number].arrived[:] = _arrived(operation, sent, rank)
        number += 1


def _arrived(operation, sent, rank):
    if operation.collective == "all_reduce":
        return (np.max if operation.op == "max" else np.sum)(sent, axis=0)
    of_ranks = (
        sent
        if operation.collective == "all_gather"
        else [np.split(each, len(sent))[rank] for each in sent]
    )
    return np.concatenate(of_ranks)


def normal(ranks, elements, seed=1):
    return [
        np.random.default_rng([seed, r]).standard_normal(elements, np.float32) for r in range(ranks)
    ]


@given(
    arrays(np.float32, st.integers(1, 300), elements=st.floats(width=32)), st.sampled_from([*TYPES])
)
def test_fp8_tables_give_what_the_casts_of_ml_dtypes_give(values, name):
    kind, codes, decoded = Fp8(name), np.empty(len(values), np.uint8), np.empty_like(values)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(TYPES[name])
        kind.encode(values, np.float32(1), codes)
        kind.decode(codes, np.float32(1), decoded)
    found = codes.view(TYPES[name])
    assert np.array_equal(
        found[~np.isnan(cast)].view(np.uint8), cast[~np.isnan(cast)].view(np.uint8)
    )
    assert np.isnan(found[np.isnan(cast)].astype(np.float32)).all()
    assert np.array_equal(decoded, found.astype(np.float32), equal_nan=True)
    assert not_finite(codes, name) == np.count_nonzero(~np.isfinite(cast.astype(np.float32)))


@pytest.mark.parametrize("name", [*TYPES])
def test_every_half_between_two_codes_is_rounded_as_the_cast_does(name):
    codes = np.arange(256, dtype=np.uint8).view(TYPES[name]).astype(np.float32)
    finite = np.sort(codes[np.isfinite(codes)])
    halves = ((finite[1:].astype(float) + finite[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [
            np.nextafter(halves, np.float32(-np.inf)),
            halves,
            np.nextafter(halves, np.float32(np.inf)),
        ]
    )
    found = np.empty(len(values), np.uint8)
    Fp8(name).encode(values, np.float32(1), found)
    assert np.array_equal(
        found.view(TYPES[name]).astype(np.float32), values.astype(TYPES[name]).astype(np.float32)
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("text", "error"), [("fp16", 1e-3), ("bf16", 2e-2), ("fp8_e4m3", 0.09), ("fp8_e5m2", 0.2)]
)
@pytest.mark.parametrize(
    ("ranks", "elements"), [(1, 5), (2, 1), (3, 2 * BLOCK + 17), (5, 3), (8, 1000)]
)
def test_every_rank_ends_with_about_the_mean(text, error, ranks, elements, in_place):
    gradients = normal(ranks, elements)
    mean = np.mean(gradients, axis=0, dtype=np.float64)
    largest = max(map(largest_magnitude, gradients))
    codecs, chain = codecs_of(text, gradients, in_place=in_place)
    step(codecs, chain)
    for codec in codecs:
        assert np.array_equal(codec.gradient, codecs[0].gradient)
        assert np.abs(codec.gradient - mean).max() <= error * largest
        assert (codec.overflowed, codec.not_finite) == (0, 0)


@given(st.sampled_from(ALL), st.integers(1, 6), st.integers(1, 400), st.integers(0, 9))
def test_a_chain_gives_what_is_expected_of_it(text, ranks, elements, seed):
    gradients = normal(ranks, elements, seed)
    averaged = [each / np.float32(ranks) for each in gradients]
    codecs, chain = codecs_of(text, gradients)
    step(codecs, chain)
    expected = codecs[0].mean(codecs[0].compression, averaged.__getitem__, range(ranks))
    if text in ("fp16", "bf16"):
        assert codecs[0].gradient == pytest.approx(expected, abs=0.01 * ranks)
    else:
        assert np.array_equal(codecs[0].gradient, expected)


@given(arrays(np.float32, st.integers(1, 200), elements=FLOATS), st.data())
def test_topk_selects_the_largest_magnitudes_and_of_equal_ones_the_first(values, data):
    kept = data.draw(st.integers(1, len(values)))
    expected = sorted(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:kept])
    assert largest_positions(values, kept).tolist() == expected


@given(st.integers(0, 50), st.integers(0, 10), st.integers(1, 60))
def test_topk_sends_what_is_not_a_number_first(at, infinite, kept):
    values = np.arange(61, dtype=np.float32)
    values[at], values[50 + infinite] = np.nan, -np.inf
    positions = set(largest_positions(values, kept).tolist())
    assert {at, 50 + infinite} <= positions if kept > 1 else positions <= {at, 50 + infinite}
    assert len(positions) == kept


@given(
    st.sampled_from(ALL),
    st.integers(1, 4),
    st.integers(4, 60),
    st.sampled_from([1e-40, 1e-6, 1.0, 1e4]),
)
def test_with_feedback_nothing_is_lost_but_what_is_still_to_be_sent(text, ranks, elements, size):
    steps, gradients = 6, [each * np.float32(size) for each in normal(ranks, elements)]
    codecs, chain = codecs_of(text, [each.copy() for each in gradients], feedback=True)
    given_, arrived = (
        np.sum(gradients, axis=0, dtype=np.float64) / ranks * steps,
        np.zeros(elements),
    )
    for _ in range(steps):
        for codec, gradient in zip(codecs, gradients, strict=True):
            codec.gradient[:] = gradient
        step(codecs, chain)
        arrived += codecs[0].gradient
    left = np.sum([codec.residual for codec in codecs], axis=0, dtype=np.float64)
    # of the sums on their way
    rounding = {"fp16": 2.0**-11, "bf16": 2.0**-8}.get(text, 1e-5) * ranks * steps * 5
    assert arrived + left == pytest.approx(given_, abs=rounding * size + 1e-42 * steps)


@pytest.mark.parametrize(("text", "too_large"), [("fp16", 1e6), ("bf16", 3.4e38)])
def test_gradients_that_a_type_cannot_hold_are_counted_and_leave_nothing_behind(text, too_large):
    (codec,), chain = codecs_of(
        text, [np.array([1, too_large, np.nan, -too_large], np.float32)], feedback=True
    )
    step([codec], chain)
    assert (codec.overflowed, codec.not_finite) == (2, 3)
    assert codec.residual.tolist() == [0] * 4


@pytest.mark.parametrize("text", ["fp8_e4m3", "fp8_e5m2", "topk=50%"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_arrives_as_such_and_spoils_no_other(text, bad):
    gradients = normal(3, 100)
    gradients[1][42] = bad
    codecs, chain = codecs_of(text, gradients, feedback=True)
    step(codecs, chain)
    for codec in codecs:
        assert not np.isfinite(codec.gradient[42])
        assert np.isfinite(np.delete(codec.gradient, 42)).all()
        assert (codec.overflowed, codec.not_finite) == (0, 1)
        assert np.isfinite(codec.residual).all()


def test_topk_forgets_what_is_not_finite_and_counts_each_mean_once():
    gradients = normal(3, 1000)
    codecs, chain = codecs_of(
        "topk=1%", [np.where(np.arange(1000) < 500, np.nan, g) for g in gradients], feedback=True
    )
    step(codecs, chain)
    assert [codec.not_finite for codec in codecs] == [10] * 3
    assert all(np.isfinite(codec.residual).all() for codec in codecs)


@pytest.mark.parametrize("name", [*TYPES])
def test_gradients_of_zero_stay_zero_and_small_ones_do_not_overflow(name):
    for value in (0.0, 1e-44, 1e-30):
        codecs, chain = codecs_of(name, [np.full(9, value, np.float32) for _ in range(2)])
        step(codecs, chain)
        assert np.abs(codecs[0].gradient - value).max() <= max(0.1 * value, 1e-44)
        assert codecs[0].not_finite == 0


def test_parts_are_whole_words_and_cover_all_gradients():
    for elements in range(1, 70):
        for ranks in range(1, 9):
            part = part_bytes(elements, ranks)
            assert part % 4 == 0
            assert part * ranks >= elements
