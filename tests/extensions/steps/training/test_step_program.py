"""Programs of steps: what two published workloads list, and what must hold for any mesh."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.buckets import FRAMEWORKS, BucketRule
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.models.decoders import mixtral_8x7b
from hpccoll.extensions.steps.training.models.transformers import gpt2
from hpccoll.extensions.steps.training.parallelism import (
    SHARDINGS,
    Mesh,
    Parallelism,
    StepDtypes,
    part_of,
)
from hpccoll.extensions.steps.training.step_program import (
    BACKWARD,
    FORWARD,
    STEP,
    Compute,
    Start,
    Wait,
)
from hpccoll.extensions.steps.training.step_program_builder import step_programs

SMALL = gpt2("small", blocks=6, hidden=64, vocabulary=128, sequence=32)


def operations(model, stage=0, **parallelism):
    shape = model_of(model) if isinstance(model, str) else model
    return step_programs(shape, Parallelism(**parallelism))[stage].operations


def totals(listed):
    """Return the calls and the bytes of operations by collective, axis and phase."""
    calls, nbytes = Counter(), Counter()
    for each in listed:
        key = each.collective, each.axis, each.phase
        calls[key] += 1
        nbytes[key] += each.nbytes
    return {key: (calls[key], nbytes[key]) for key in calls}


def test_llama_with_zero3_has_the_calls_and_bytes_that_aicb_lists():
    # github.com/aliyun/aicb, workloads of physical clusters: L7B-D1-C02_Llama7B_zero3_mbs1.csv,
    # buckets of 1e9 elements
    rule = BucketRule("deepspeed", limit=2 * 10**9)
    listed = operations("llama2-7b", mesh=Mesh(dp=128), sharding="zero3", buckets=rule)
    assert totals(listed) == {
        ("all_gather", "dp", FORWARD): (291, 13_476_831_232),
        ("all_gather", "dp", BACKWARD): (291, 13_476_831_232),
        ("reduce_scatter", "dp", BACKWARD): (7, 13_476_831_232),
    }


def test_llama_on_two_tensor_parallel_ranks_has_the_calls_and_bytes_that_aicb_lists():
    # L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv: samples of 2048 tokens; of the calls of a pass
    # 64 are the layers', and one is the embedding's or the output layer's; of each parameter 4
    # bytes are reduced and 2 gathered, of fewer parameters there
    llama = model_of("llama2-7b")
    llama = replace(llama, transformer=replace(llama.transformer, sequence=2048))
    listed = operations(
        llama,
        mesh=Mesh(tp=2, dp=64),
        sharding="zero1",
        overlap=False,
        buckets=BucketRule("megatron"),
        dtypes=StepDtypes("float32", "bfloat16", "bfloat16"),
    )
    elements = part_of(llama, Mesh(tp=2)).parameters
    assert totals(listed) == {
        ("all_reduce", "tp", FORWARD): (65, 65 * 16_777_216),
        ("all_reduce", "tp", BACKWARD): (65, 65 * 16_777_216),
        ("reduce_scatter", "dp", BACKWARD): (1, 4 * elements),
        ("all_gather", "dp", STEP): (1, 2 * elements),
    }


@pytest.mark.parametrize(
    ("sharding", "reduces", "gathers", "rounds"),
    [
        ("none", 1, 0, 1),
        ("zero1", 1, 1, 1),
        ("zero2", 1, 1, 3),
        ("zero3", 1, 2, 3),
        ("fsdp", 1, 2, 3),
    ],
)
def test_each_sharding_moves_as_many_times_the_bytes_of_the_model_as_published(
    sharding, reduces, gathers, rounds
):
    # S. Rajbhandari et al.: ZeRO, SC (2020), section 7: an all-reduce is a reduce-scatter and an
    # all-gather, so that ZeRO-1 and 2 move as much as no sharding does, and ZeRO-3 1.5 times as
    # much. Of several micro-batches, only what is not divided is accumulated.
    def moved(micro_batches):
        total = Counter()
        for each in operations(
            SMALL, mesh=Mesh(dp=8), sharding=sharding, micro_batches=micro_batches
        ):
            total[each.collective == "all_gather"] += each.nbytes
        return total

    nbytes = 4 * SMALL.parameters
    assert moved(1) == Counter({False: reduces * nbytes, True: gathers * nbytes})
    assert moved(3)[False] == rounds * reduces * nbytes


def test_hybrid_sharding_reduces_each_shard_over_the_replicas_after_its_reduce_scatter():
    [program] = step_programs(SMALL, Parallelism(Mesh(dp=8, shard=4), sharding="hsdp"))
    found = totals(program.operations)
    nbytes = 4 * SMALL.parameters
    assert found[("reduce_scatter", "shard", BACKWARD)] == (8, nbytes)
    assert found[("all_reduce", "replica", BACKWARD)] == (8, nbytes // 4)
    assert (
        found[("all_gather", "shard", FORWARD)]
        == found[("all_gather", "shard", BACKWARD)]
        == (8, nbytes)
    )
    starts = [each for each in program.instructions if isinstance(each, Start)]
    for start in starts:
        if start.operation.axis == "replica":
            before = starts[start.after].operation
            assert (before.collective, before.label) == ("reduce_scatter", start.operation.label)


def test_with_overlap_a_bucket_starts_when_its_last_gradient_is_ready_and_without_after_the_pass():
    [early], [late] = (
        step_programs(model_of("resnet50"), Parallelism(Mesh(dp=4), overlap=overlap))
        for overlap in (True, False)
    )
    assert [type(each) for each in late.instructions] == [Compute, Compute, *[Start] * 5]
    assert [type(each) for each in early.instructions] == [Compute, *[Compute, Start] * 5]
    assert early.operations == late.operations
    shares = [each.flops / early.flops(BACKWARD) for each in early.instructions[1::2]]
    assert shares[0] < 0.01  # the output layer
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("overlap", [True, False])
def test_updated_parameters_are_gathered_after_all_gradients_have_been_reduced(overlap):
    parallelism = Parallelism(Mesh(dp=8, ep=2), sharding="zero1", overlap=overlap)
    [program] = step_programs(mixtral_8x7b(), parallelism)
    starts = [each for each in program.instructions if isinstance(each, Start)]
    reduces = sum(each.operation.phase != STEP for each in starts)
    first = program.instructions.index(starts[reduces])
    assert {each.number for each in program.instructions[:first] if isinstance(each, Wait)} == set(
        range(reduces)
    )
    assert {each.operation.collective for each in program.instructions[first:]} == {"all_gather"}


@pytest.mark.parametrize(("sharding", "second"), [("zero3", "h"), ("fsdp", "block 0")])
def test_parameters_are_gathered_one_unit_ahead_of_the_computation(sharding, second):
    [program], [late] = (
        step_programs(SMALL, Parallelism(Mesh(dp=4), sharding=sharding, overlap=overlap))
        for overlap in (True, False)
    )
    first = takewhile(lambda each: isinstance(each, Start), program.instructions)
    assert {each.operation.label.partition(".")[0] for each in first} >= {"wte", second}
    assert late.instructions[0].operation.label.startswith("wte")
    assert not any(
        isinstance(one, Start) and one.operation.phase == FORWARD and isinstance(two, Compute)
        for one, two in pairwise(late.instructions)
    )  # nothing is computed beside a gather


def test_megatron_has_buckets_only_where_they_are_overlapped_and_on_the_first_stage():
    def buckets(stage, *, overlap):
        rule = BucketRule("megatron", limit=50_000)
        found = operations(SMALL, stage, mesh=Mesh(dp=2, pp=2), buckets=rule, overlap=overlap)
        return sum(each.axis == "dp" for each in found)

    assert buckets(0, overlap=True) > 1
    assert buckets(1, overlap=True) == buckets(0, overlap=False) == buckets(1, overlap=False) == 1


ACTIVATIONS = 32 * 64 * 4
"""Bytes of a sample of the small model between its blocks: tokens, hidden, and four bytes."""
SUM, SCATTER, GATHER = "all_reduce", "reduce_scatter", "all_gather"
TWO, STAGES = {"mesh": Mesh(tp=2)}, {"mesh": Mesh(tp=2, pp=2)}
WHOLE = {FORWARD: 2 * 6 + 1, BACKWARD: 2 * 6 + 1}
FIRST, LAST = {FORWARD: 2 * 3 + 1, BACKWARD: 2 * 3}, {FORWARD: 2 * 3, BACKWARD: 2 * 3 + 1}
"""Sums of six blocks, and of three: the first stage adds up the embedding forward, the last the output backward."""


@pytest.mark.parametrize(
    ("parallelism", "stage", "calls"),
    [
        (TWO, 0, {SUM: WHOLE}),
        (TWO | {"recompute": True}, 0, {SUM: {FORWARD: 2 * 6 + 1, BACKWARD: 2 * 6 + 1 + 2 * 6}}),
        (TWO | {"sequence": True}, 0, {SCATTER: WHOLE, GATHER: WHOLE}),
        (STAGES, 0, {SUM: FIRST}),
        (STAGES, 1, {SUM: LAST}),
        # gathered before the output layer forward, and before the embedding backward
        (STAGES | {"sequence": True}, 0, {SCATTER: FIRST, GATHER: LAST}),
        (STAGES | {"sequence": True}, 1, {SCATTER: LAST, GATHER: FIRST}),
    ],
)
def test_each_block_exchanges_activations_twice_a_pass_and_stages_send_their_part(
    parallelism, stage, calls
):
    found = totals(operations(SMALL, stage, **parallelism))
    assert {key: of for key, of in found.items() if key[1] == "tp"} == {
        (name, "tp", phase): (count, count * ACTIVATIONS)
        for name, of_phases in calls.items()
        for phase, count in of_phases.items()
    }
    sent = ACTIVATIONS / 2 if "sequence" in parallelism else ACTIVATIONS
    assert {of for key, of in found.items() if key[1] == "pp"} <= {(1, sent)}


def test_experts_have_two_exchanges_a_block_and_pass_and_their_gradients_are_summed_over_their_replicas():
    model = mixtral_8x7b()
    found = totals(operations(model, mesh=Mesh(dp=16, ep=4), samples=3))
    tokens = 3 * 4096 * 4096 * 2 * 2  # b s h, two experts a token, two bytes
    assert found[("all_to_all_v", "ep", FORWARD)] == (2 * 32, 2 * 32 * tokens)
    assert found[("all_to_all_v", "ep", BACKWARD)] == (2 * 32, 2 * 32 * tokens)
    experts = 2 * 32 * 8 * 3 * 4096 * 14336
    assert found[("all_reduce", "expert_replica", BACKWARD)][1] == experts / 4
    assert found[("all_reduce", "dp", BACKWARD)][1] == 2 * model.parameters - experts


def test_ranks_that_divide_experts_and_sequences_exchange_their_part_of_the_tokens():
    model = mixtral_8x7b()
    whole, divided = (
        totals(operations(model, mesh=Mesh(tp=tp, dp=8, ep=8), sequence=tp > 1)) for tp in (1, 4)
    )
    for phase in (FORWARD, BACKWARD):
        assert divided["all_to_all_v", "ep", phase][1] * 4 == whole["all_to_all_v", "ep", phase][1]
    activations = 4096 * 4096 * 2
    # of each block once for attention, and twice for its experts; for the output layer
    gathered = 32 * (1 + 2) + 1
    assert divided[("all_gather", "tp", FORWARD)] == (2 * 32 + 1, gathered * activations)


@st.composite
def parallelisms(draw):
    sharding = draw(st.sampled_from(SHARDINGS))
    sharded = sharding in ("zero3", "fsdp", "hsdp")
    tp, shard = (
        draw(st.sampled_from([1, 2, 4])),
        draw(st.integers(2, 3)) if sharding == "hsdp" else 1,
    )
    pp = 1 if sharded else draw(st.integers(1, 6))
    rule = BucketRule(
        draw(st.sampled_from([*FRAMEWORKS])), draw(st.none() | st.integers(1, 200_000))
    )
    rule = BucketRule() if sharding in ("fsdp", "hsdp") else rule
    return Parallelism(
        Mesh(tp, shard * draw(st.integers(1, 3)), pp, shard),
        rule,
        sharding,
        sequence=tp > 1 and draw(st.booleans()),
        overlap=draw(st.booleans()),
        micro_batches=draw(st.integers(1, 4)),
        samples=draw(st.integers(1, 3)),
        recompute=draw(st.booleans()),
    )


@given(parallelisms())
def test_what_a_stage_sends_another_receives_in_the_same_order(parallelism):
    sent, received = defaultdict(list), defaultdict(list)
    for program in step_programs(SMALL, parallelism):
        for each in program.operations:
            if each.peer is not None:
                ends = (program.stage, each.peer) if each.sends else (each.peer, program.stage)
                (sent if each.sends else received)[ends].append(
                    (each.phase, each.nbytes, each.dtype)
                )
    assert sent == received
    mesh = parallelism.mesh
    neighbours = [ends for a, b in pairwise(range(mesh.pp)) for ends in ((a, b), (b, a))]
    assert {ends: len(messages) for ends, messages in sent.items()} == dict.fromkeys(
        neighbours, parallelism.micro_batches
    )


@given(parallelisms())
def test_the_gradients_of_a_step_are_those_of_the_tensors_of_the_rank(parallelism):
    mesh, programs = parallelism.mesh, step_programs(SMALL, parallelism)
    for program in programs:
        names = Counter(tensor.name for bucket in program.buckets for tensor in bucket.tensors)
        assert names == Counter(tensor.name for tensor in program.model.tensors)
        reduced = sum(
            each.nbytes
            for each in program.operations
            if each.axis in ("dp", "shard") and each.collective in ("all_reduce", "reduce_scatter")
        )
        rounds = 1 if parallelism.sharding in ("none", "zero1") else parallelism.micro_batches
        assert reduced == (mesh.dp > 1) * rounds * 4 * program.model.parameters


@given(parallelisms())
def test_all_ranks_together_compute_the_model_once_for_each_sample(parallelism):
    mesh, programs = parallelism.mesh, step_programs(SMALL, parallelism)
    samples = parallelism.samples * parallelism.micro_batches * mesh.dp
    computed = {
        phase: mesh.dp * mesh.tp * sum(program.flops(phase) for program in programs)
        for phase in (FORWARD, BACKWARD)
    }
    blocks = sum(module.forward_flops for module in SMALL.modules if module.block is not None)
    assert computed[FORWARD] == pytest.approx(samples * SMALL.forward_flops)
    again = blocks if parallelism.recompute else 0
    assert computed[BACKWARD] == pytest.approx(samples * (2 * SMALL.forward_flops + again))


@given(st.integers(1, 6), st.sampled_from([1, 2, 4]))
def test_the_parts_of_all_ranks_are_the_model(stages, tp):
    parts = [part_of(SMALL, Mesh(tp=tp, pp=stages), stage) for stage in range(stages)]
    assert [tensor.name for part in parts for tensor in part.tensors] == [
        tensor.name for tensor in SMALL.tensors
    ]
    whole = {tensor.name: tensor for tensor in SMALL.tensors}
    for tensor in (tensor for part in parts for tensor in part.tensors):
        assert tensor.elements * (tp if tensor.split else 1) == whole[tensor.name].elements
    blocks = [len({module.block for module in part.modules} - {None}) for part in parts]
    assert max(blocks) - min(blocks) <= 1
    assert blocks[-1] == min(blocks)  # the last stage has the output layer, too


@pytest.mark.parametrize(
    ("model", "wrong", "key"),
    [
        ("resnet50", {"mesh": Mesh(tp=2)}, "parallel tp"),
        ("gpt2", {"mesh": Mesh(pp=13)}, "parallel pp"),
        ("gpt2", {"mesh": Mesh(dp=2, ep=2)}, "parallel ep"),
        ("mixtral-8x7b", {"mesh": Mesh(dp=3, ep=3)}, "parallel ep"),
        ("gpt2", {"mesh": Mesh(dp=2), "sharding": "hsdp"}, "parallel shard"),
        ("gpt2", {"mesh": Mesh(dp=2, shard=2), "sharding": "fsdp"}, "parallel shard"),
        ("gpt2", {"mesh": Mesh(dp=2, pp=2), "sharding": "fsdp"}, "sharding"),
        ("mixtral-8x7b", {"mesh": Mesh(dp=2, ep=2), "sharding": "fsdp"}, "sharding"),
        ("gpt2", {"sharding": "fsdp", "buckets": BucketRule("megatron")}, "buckets"),
        ("gpt2", {"sharding": "fsdp", "buckets": BucketRule(limit=1000)}, "bucket"),
        ("gpt2", {"sharding": "fsdp", "buckets": BucketRule(first=1000)}, "first_bucket"),
        ("gpt2", {"mesh": Mesh(dp=2), "sequence": True}, "sequence"),
        ("resnet50", {"recompute": True}, "recompute"),
        ("gpt2", {"sharding": "zero4"}, "sharding"),
        ("gpt2", {"micro_batches": 0}, "micro_batches"),
        ("gpt2", {"micro_batches": 100_000}, "micro_batches"),
        ("gpt2", {"samples": 0}, "samples"),
    ],
)
def test_what_a_model_cannot_be_trained_by_is_refused(model, wrong, key):
    with pytest.raises(BadInputError) as error:
        step_programs(model_of(model), Parallelism(**wrong))
    assert error.value.key == key
