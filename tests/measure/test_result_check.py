"""The check of every collective: right results have no wrong elements, and faults are detected wherever they are."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from rank_buffers import benches

from hpccoll.common.units import format_size
from hpccoll.measure.run.payload import GENERATIONS, bits
from hpccoll.measure.run.result_check import Check


@given(benches(), st.data())
def test_a_right_result_has_no_wrong_elements_and_every_changed_bit_is_detected(bench, data):
    for _ in range(GENERATIONS + 1):
        assert bench.wrong(bench.expected()) == 0
        if bench.result.size:
            element = data.draw(st.integers(0, bench.result.size - 1))
            bit = data.draw(st.integers(0, 8 * bench.result.itemsize - 1))
            raw = bits(bench.result)
            raw[element] ^= raw.dtype.type(1 << bit)
            assert bench.check.wrong() == 1
        bench.check.reset()


@given(benches(), st.data())
def test_every_changed_bit_of_a_guard_is_detected_and_restored_before_the_next_operation(
    bench, data
):
    assume(bench.guards)
    one = data.draw(st.sampled_from(bench.guards))
    for _ in range(2):
        np.copyto(bench.result, bench.expected())
        assert bench.check.wrong() == 0
        element = data.draw(st.integers(0, len(one.memory) - 1))
        bits(one.memory)[element] ^= 1
        assert bench.check.wrong() == 1
        assert (
            one.diagnose(one.memory, "rank 7")
            == f"rank 7: 1 of {len(one.memory)} elements {one.where} were overwritten"
        )
        bench.check.reset()
        assert one.diagnose(one.memory, "rank 7") is None


@given(benches(), st.data())
def test_out_of_place_every_changed_bit_of_src_is_detected(bench, data):
    np.copyto(bench.result, bench.right)
    assume(bench.src.size)
    element = data.draw(st.integers(0, bench.src.size - 1))
    bits(bench.src)[element] ^= 1
    assert bench.check.wrong() == (not bench.in_place)
    said = replace(bench.payload, generation=bench.check.generation).diagnose_source(bench.src)
    begin = format_size(element * bench.src.itemsize)
    words = f"rank {bench.payload.me}: src was overwritten: 1 of {bench.src.size} elements, from {begin} on"
    assert bench.in_place or said == words


@given(benches(), st.data())
def test_a_result_of_another_size_is_wrong_in_all_elements_even_if_each_is_right(bench, data):
    promised = bench.result.size
    length = data.draw(st.integers(0, bench.dst.size).filter(lambda length: length != promised))
    dst, claimed = bench.dst[bench.filled_units], bench.dst[:length]
    check = Check(
        bench.payload, bench.src, dst, claimed, in_place=bench.in_place, guards=bench.guards
    )
    check.reset()
    np.copyto(bench.result, bench.expected(generation=check.generation))
    assert check.wrong() == (promised or length)
    said = bench.payload.diagnose(claimed, in_place=bench.in_place)
    assert said.endswith(
        f"the plan says that its result has {length} elements; expected: {promised}"
    )


@given(benches())
def test_what_an_earlier_operation_or_another_rank_has_left_is_detected_and_workspace_is_left_alone(
    bench,
):
    one = bench.payload
    assume(bench.result.size >= 4)
    bench.dst[:] = 77
    bench.check.reset()
    outside = np.ones(bench.dst.size, bool)
    outside[bench.filled_units] = False
    assert (bench.dst[outside] == 77).all()
    for ago in range(1, GENERATIONS):
        assert (
            bench.wrong(bench.expected(generation=(bench.check.generation - ago) % GENERATIONS)) > 0
        )
    moves_own = one.call.collective.name in ("reduce_scatter", "all_to_all") and one.me < one.p
    for me in range(one.p if moves_own else 0):
        assert (bench.wrong(bench.expected(me=me)) > 0) == (me != one.me)
