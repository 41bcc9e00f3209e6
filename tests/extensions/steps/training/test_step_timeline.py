"""The timeline: closed forms of pipelines and of overlapped buckets, and what must hold for any program."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor, Transformer
from hpccoll.extensions.steps.training.parallelism import Mesh, Parallelism
from hpccoll.extensions.steps.training.step_program import (
    BACKWARD,
    CODEC,
    FORWARD,
    Compute,
    Start,
    StepOperation,
    StepProgram,
    Wait,
)
from hpccoll.extensions.steps.training.step_program_builder import step_programs
from hpccoll.extensions.steps.training.step_timeline import step_timeline

MODEL = ModelShape("any", (Module("m", (Tensor("w", 1),)),), "float32", "a sample", "a test")


def bucket(number, axis="dp", collective="all_reduce"):
    return StepOperation(f"bucket {number}", collective, axis, 1, "float32", BACKWARD)


def program(*instructions, stage=0):
    return StepProgram(stage, MODEL, tuple(instructions), ())


def flops(computation):
    return computation.flops


def operations(timeline, stage=0):
    return [span for span in timeline.spans[stage] if span.operation]


seconds = st.floats(0, 10, allow_nan=False)
steps = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12)
"""The seconds of a part of the backward pass, and of the collective of the bucket that it completes."""


def overlapped(parts):
    instructions = [Compute(FORWARD, 1.0)]
    for number, (computed, _) in enumerate(parts):
        instructions += [Compute(BACKWARD, computed), Start(bucket(number))]
    return program(*instructions)


def cost_of(parts):
    return lambda operation: parts[int(operation.label.split()[1])][1]


@given(steps)
def test_a_bucket_starts_when_it_is_ready_and_the_one_before_it_has_ended(parts):
    timeline = step_timeline([overlapped(parts)], flops, cost_of(parts))
    ready, end = 1.0, 0.0
    for (computed, communicated), span in zip(parts, operations(timeline), strict=True):
        ready += computed
        begin, end = max(ready, end), max(ready, end) + communicated
        assert (span.ready_s, span.begin_s, span.end_s) == pytest.approx((ready, begin, end))
    assert timeline.step_s == pytest.approx(end)
    assert timeline.exposed_s == pytest.approx(max(0.0, end - ready))
    assert timeline.communication_s == pytest.approx(sum(communicated for _, communicated in parts))
    if all(communicated <= following for (_, communicated), (following, _) in pairwise(parts)):
        assert timeline.exposed_s == pytest.approx(parts[-1][1]), (
            "the last bucket has nothing to hide behind"
        )


def test_an_operation_after_another_waits_for_it_and_the_stream_goes_on():
    shards = [bucket(number, "shard", "reduce_scatter") for number in (1, 2)]
    replicas = [bucket(number, "replica") for number in (1, 2)]
    instructions = Start(shards[0]), Start(replicas[0], 0), Start(shards[1]), Start(replicas[1], 2)
    timeline = step_timeline(
        [program(*instructions)], flops, lambda each: {"shard": 2.0, "replica": 3.0}[each.axis]
    )
    assert [(each.begin_s, each.end_s) for each in operations(timeline)] == [
        (0, 2),
        (2, 5),
        (2, 4),
        (5, 8),
    ]


def encoded(numbers, computed=10.0):
    """Return a backward pass of buckets that are encoded, reduced and decoded when their part is computed."""
    instructions = []
    for number in numbers:
        codecs = [
            replace(bucket(number), label=f"bucket {number} {work}", collective=CODEC, codec=work)
            for work in ("encode", "decode")
        ]
        instructions += [
            Compute(BACKWARD, computed),
            *map(Start, (codecs[0], bucket(number), codecs[1])),
        ]
    return program(*instructions)


@given(st.integers(1, 9), st.floats(0, 3), st.floats(0, 3))
def test_codecs_on_the_device_that_computes_take_turns_with_it_and_others_hide_all_but_those_of_the_last_bucket(
    buckets, codec, reduced
):
    beside, shared = (
        step_timeline(
            [encoded(range(buckets))],
            flops,
            lambda one: codec if one.is_codec else reduced,
            codecs_compute=shared,
        )
        for shared in (False, True)
    )
    assert beside.exposed_s == pytest.approx(2 * codec + reduced)
    assert shared.exposed_s == pytest.approx(2 * codec * buckets + reduced)
    assert (shared.compute_s, shared.codec_s) == pytest.approx((10 * buckets, 2 * codec * buckets))


@given(st.floats(1, 50), st.floats(0, 3))
def test_on_a_network_that_is_never_idle_it_does_not_matter_where_codecs_run(reduced, codec):
    beside, shared = (
        step_timeline(
            [encoded(range(3), computed=0.0)],
            flops,
            lambda one: codec if one.is_codec else reduced,
            codecs_compute=shared,
        )
        for shared in (False, True)
    )
    assert shared.step_s == pytest.approx(beside.step_s) == pytest.approx(3 * (reduced + 2 * codec))


def test_a_wait_exposes_what_is_left():
    timeline = step_timeline(
        [program(Start(bucket(1)), Compute(FORWARD, 2.0), Wait(0), Compute(FORWARD, 1.0))],
        flops,
        lambda _: 5.0,
    )
    assert (timeline.step_s, timeline.bare_s, timeline.exposed_s) == (6.0, 3.0, 3.0)
    assert timeline.share == 0.5


def equal_blocks(blocks):
    """Return a transformer whose blocks compute as much, and that has nothing before or after them."""
    modules = tuple(
        Module(f"h.{block}", (Tensor("w", 8, split=True),), 1.0, block, "mlp")
        for block in range(blocks)
    )
    return ModelShape(
        "equal", modules, "float32", "a sample", "a test", Transformer(blocks, hidden=4, sequence=2)
    )


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 12))
def test_the_bubble_of_a_pipeline_is_that_of_the_formula(stages, blocks, micro_batches):
    parallelism = Parallelism(Mesh(pp=stages), micro_batches=micro_batches)
    timeline = step_timeline(
        step_programs(equal_blocks(stages * blocks), parallelism), flops, lambda _: 0.0
    )
    assert timeline.step_s == pytest.approx((micro_batches + stages - 1) * 3 * blocks)
    assert timeline.bubble_s / timeline.step_s == pytest.approx(
        (stages - 1) / (micro_batches + stages - 1)
    )
    assert timeline.exposed_s == 0


@given(st.integers(1, 40), st.floats(0.01, 100), st.floats(0, 1))
def test_a_step_without_a_pipeline_has_no_bubble_whatever_is_rounded(blocks, rate, seconds):
    """Computations that wait for gathers begin at other times than those that do not, and round otherwise."""
    programs = step_programs(equal_blocks(blocks), Parallelism(Mesh(dp=2), sharding="fsdp"))
    timeline = step_timeline(programs, lambda compute: compute.flops / rate, lambda _: seconds)
    assert str(timeline.bubble_s) == "0.0"
    assert timeline.exposed_s >= 0


@given(st.integers(1, 4), st.integers(1, 12), st.floats(0.01, 100), st.floats(0, 1))
def test_no_bubble_of_a_pipeline_is_below_zero(stages, micro_batches, rate, seconds):
    parallelism = Parallelism(Mesh(dp=2, pp=stages), micro_batches=micro_batches)
    programs = step_programs(equal_blocks(3 * stages), parallelism)
    timeline = step_timeline(programs, lambda compute: compute.flops / rate, lambda _: seconds)
    assert timeline.bubble_s >= 0


def test_a_message_delays_the_next_stage_by_its_time():
    parallelism = Parallelism(Mesh(pp=3))
    timeline = step_timeline(step_programs(equal_blocks(3), parallelism), flops, lambda _: 0.5)
    # two forward, two back, one after the other
    assert timeline.exposed_s == pytest.approx(4 * 0.5)
    # the stage in the middle; a receipt is no transfer
    assert timeline.communication_s == pytest.approx(2 * 0.5)


def test_programs_that_wait_for_each_other_are_reported():
    receive = StepOperation("stage 1", "send_recv", "pp", 1, "float32", FORWARD, peer=1)
    with pytest.raises(RuntimeError, match="wait for messages"):
        step_timeline([program(Start(receive))], flops, lambda _: 0.0)


@given(
    st.sampled_from([Mesh(), Mesh(dp=4), Mesh(tp=2, dp=2), Mesh(pp=2, dp=2), Mesh(pp=4, tp=2)]),
    st.sampled_from(["none", "zero1", "zero2"]),
    st.booleans(),
    st.integers(1, 4),
    st.floats(0, 2),
)
def test_a_step_lasts_from_its_computation_to_all_of_it_in_turn(
    mesh, sharding, overlap, micro_batches, communicated
):
    parallelism = Parallelism(mesh, sharding=sharding, overlap=overlap, micro_batches=micro_batches)
    programs = step_programs(equal_blocks(4), parallelism)
    timeline = step_timeline(programs, flops, lambda _: communicated)
    operations = sum(len(program.operations) for program in programs)
    computed = sum(program.flops(FORWARD) + program.flops(BACKWARD) for program in programs)
    assert timeline.compute_s <= timeline.bare_s + 1e-9
    assert timeline.bare_s <= timeline.step_s
    assert timeline.step_s <= computed + operations * communicated + 1e-9
    assert 0 <= timeline.share < 1
    for spans in timeline.spans:
        assert all(0 <= span.begin_s <= span.end_s for span in spans)
        for stream in {span.operation.stream for span in spans if span.operation}:
            ends = [span for span in spans if span.operation and span.operation.stream == stream]
            assert all(
                one.end_s <= two.begin_s
                for one, two in pairwise(ends)
                if not two.operation.receives
            )


@given(st.sampled_from(["none", "zero1", "zero2", "zero3", "fsdp"]), st.floats(0.01, 2))
def test_overlap_makes_no_step_longer(sharding, communicated):
    overlapped, late = (
        step_programs(equal_blocks(6), Parallelism(Mesh(dp=4), sharding=sharding, overlap=each))
        for each in (True, False)
    )
    longest = step_timeline(late, flops, lambda _: communicated).step_s
    assert step_timeline(overlapped, flops, lambda _: communicated).step_s <= longest + 1e-9
