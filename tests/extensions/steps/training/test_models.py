"""Models generated from their architecture have the parameters, tensors and FLOPs that are published for them."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.model_shape import with_sequence
from hpccoll.extensions.steps.training.models import MODEL_FILES, MODELS, model_of
from hpccoll.extensions.steps.training.parallelism import Parallelism
from hpccoll.extensions.steps.training.step_program import BACKWARD, FORWARD
from hpccoll.extensions.steps.training.step_program_builder import step_programs

PUBLISHED = {
    # torchvision.models documents num_params of the weights IMAGENET1K_V1
    "resnet50": (25_557_032, 161),
    "vgg16": (138_357_544, 32),
    # the lists of parameters of Hugging Face's classes: BertForPreTraining of
    # google-bert/bert-large-uncased, GPT2LMHeadModel of openai-community/gpt2 and gpt2-xl
    "bert-large": (336_226_108, 398),
    "gpt2": (124_439_808, 148),
    "gpt2-xl": (1_557_611_200, 580),
    # half of total_size, bytes in bfloat16, in model.safetensors.index.json of the Hugging Face
    # repositories meta-llama/Llama-2-7b-hf, Llama-2-70b-hf, Meta-Llama-3-8B, Meta-Llama-3-70B,
    # Llama-3.1-405B and mistralai/Mixtral-8x7B-v0.1
    "llama2-7b": (6_738_415_616, 291),
    "llama2-70b": (68_976_648_192, 723),
    "llama3-8b": (8_030_261_248, 291),
    "llama3-70b": (70_553_706_496, 723),
    "llama3-405b": (405_853_388_800, 1137),
    "mixtral-8x7b": (46_702_792_704, 995),
    # the dense layers of MLPerf training's recommendation benchmark: bottom 13-512-256-128, top
    # 479-1024-1024-512-256-1
    "dlrm": (2_368_897, 16),
    # 64 * 128 + 128 and 128 * 10 + 10
    "digits": (9_610, 4),
    # formula 2 of D. Narayanan et al., SC (2021), for l=96, h=12288, V=51200, s=2048, and the last
    # norm, which it lacks
    "gpt3-175b": (12 * 96 * 12288**2 + 13 * 96 * 12288 + (51200 + 2048) * 12288 + 2 * 12288, 1156),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_tensors_are_the_published_ones(name):
    model = model_of(name)
    assert (model.parameters, len(model.tensors)) == PUBLISHED[name]
    assert len({tensor.name for tensor in model.tensors}) == len(model.tensors)
    assert sorted(tensor.name for tensor in model.ready) == sorted(
        tensor.name for tensor in model.tensors
    )


@pytest.mark.parametrize(
    ("name", "multiplications"),
    # torchvision documents both as GFLOPS, with a product counted once
    [("resnet50", 4.09e9), ("vgg16", 15.47e9)],
)
def test_flops_of_images_are_twice_the_published_multiplications(name, multiplications):
    assert model_of(name).forward_flops == pytest.approx(2 * multiplications, rel=0.002)


@pytest.mark.parametrize("name", ["gpt2", "llama2-70b", "llama3-8b"])
def test_flops_of_a_token_are_twice_the_parameters_and_those_of_attention(name):
    model, shape = model_of(name), model_of(name).transformer
    attention = 4 * shape.sequence * shape.hidden * shape.blocks
    looked_up = sum(
        t.elements for t in model.tensors if t.name in ("embed_tokens.weight", "wpe.weight")
    )
    expected = 2 * (model.parameters - looked_up) + attention
    # norms and biases are no products
    assert model.forward_flops / shape.sequence == pytest.approx(expected, rel=1e-3)


def test_a_token_of_mixtral_takes_two_of_eight_experts():
    model = model_of("mixtral-8x7b")
    experts = sum(module.forward_flops for module in model.modules if module.expert is not None)
    parameters = sum(
        t.elements for module in model.modules if module.expert is not None for t in module.tensors
    )
    assert experts / model.transformer.sequence == pytest.approx(2 * parameters * 2 / 8)


@pytest.mark.parametrize(("recompute", "factor"), [(True, 96), (False, 72)])
def test_flops_of_gpt3_are_those_of_the_formula_of_megatron(recompute, factor):
    # D. Narayanan et al., SC (2021), appendix: 96 B s l h^2 (1 + s / 6h + V / 16 l h) with
    # recomputation; the output layer is not computed again, so that its term, 6 B s h V, is the
    # same without it.
    batch, blocks, hidden, vocabulary, sequence = 3, 96, 12288, 51200, 2048
    [program] = step_programs(
        model_of("gpt3-175b"), Parallelism(samples=batch, recompute=recompute)
    )
    blocks_flops = factor * batch * sequence * blocks * hidden**2 * (1 + sequence / (6 * hidden))
    expected = blocks_flops + 6 * batch * sequence * hidden * vocabulary
    assert program.flops(FORWARD) + program.flops(BACKWARD) == pytest.approx(expected)


def test_longer_samples_take_more_flops_only_where_each_token_is_computed():
    bert = model_of("bert-large")
    half, all_products = with_sequence(bert, 256), {module.name: module for module in bert.modules}
    alike = {
        each.name
        for each in half.modules
        if each.forward_flops == all_products[each.name].forward_flops > 0
    }
    assert alike == {"pooler", "cls.seq_relationship"}
    assert half.forward_flops < bert.forward_flops / 2


@pytest.mark.parametrize(
    ("name", "positions"), [("gpt2", 1024), ("bert-large", 512), ("gpt3-175b", 2048)]
)
def test_a_sample_is_no_longer_than_the_table_of_positions(name, positions):
    assert with_sequence(model_of(name), positions).transformer.sequence == positions
    with pytest.raises(
        BadInputError, match=f"sequence_length: {positions + 1} is not valid: at most {positions}, "
    ):
        with_sequence(model_of(name), positions + 1)
    # it has no table
    assert with_sequence(model_of("llama2-7b"), 1 << 20).transformer.sequence == 1 << 20


@pytest.mark.parametrize("name", ["resnet-50", "my.txt", "."])
def test_an_unknown_model_is_refused_with_the_nearest_name_and_the_files_that_are_models(name):
    with pytest.raises(BadInputError) as refused:
        model_of(name)
    assert [
        each
        for each in (*MODELS, *MODEL_FILES, "config.json")
        if each not in refused.value.expected
    ] == []
    assert ("did you mean resnet50" in refused.value.expected) == (name == "resnet-50")
