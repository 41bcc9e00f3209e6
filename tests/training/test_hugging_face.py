"""A config.json of Hugging Face is a model with the parameters that are published for it; a wrong one is one line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.yaml_model import load_plain_yaml
from hpccoll.training.model_file import load_models, model_from_json, model_name
from hpccoll.training.model_shape import with_sequence
from hpccoll.training.models import model_of
from hpccoll.training.models.hugging_face import ARCHITECTURES, LONGEST_SAMPLE
from hpccoll.training.parallelism import Mesh, Parallelism, part_of
from hpccoll.training.step_program import BACKWARD, FORWARD
from hpccoll.training.step_program_builder import step_programs


def decoder(kind, hidden, blocks, heads, feed_forward, vocabulary, key_value=None, **more):
    """Return the config.json of a decoder; ``key_value`` is the number of heads of keys."""
    sizes = {
        "hidden_size": hidden, "num_hidden_layers": blocks, "num_attention_heads": heads,
        "intermediate_size": feed_forward, "vocab_size": vocabulary, "max_position_embeddings": 32768,
    }  # fmt: skip
    grouped = {} if key_value is None else {"num_key_value_heads": key_value}
    return {"model_type": kind, **sizes, **grouped, "torch_dtype": "bfloat16", **more}


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
LLAMA = decoder(
    "llama", 3072, 28, 24, 8192, 128256, 8, head_dim=128, attention_bias=False, tie_word_embeddings=True,
    rope_scaling={"factor": "32.0"}, rms_norm_eps="1e-05",
)  # fmt: skip
DEEPSEEK = decoder(
    "deepseek_v3", 7168, 61, 128, 18432, 129280, 128, **LATENT, q_lora_rank=1536, n_routed_experts=256,
    n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3,
    num_nextn_predict_layers=1,
)  # fmt: skip

# Half of total_size, bytes in bfloat16, in model.safetensors.index.json of the repositories of Hugging Face; of Qwen2
# 0.5B and GPT-2, whose weights are one file, the number of parameters that Hugging Face shows. DeepSeek-V3 without the
# module that predicts a second token: README_WEIGHTS.md of its repository, 671B of main model weights.
PUBLISHED = {
    "Llama-3.2-3B": (LLAMA, 3_212_749_824),
    "Meta-Llama-3-8B": (decoder("llama", 4096, 32, 32, 14336, 128256, 8), 8_030_261_248),
    "Llama-2-7b without grouped queries": (decoder("llama", 4096, 32, 32, 11008, 32000), 6_738_415_616),
    "Mistral-7B-v0.1": (decoder("mistral", 4096, 32, 32, 14336, 32000, 8), 7_241_732_096),
    "Mixtral-8x7B-v0.1": (
        decoder("mixtral", 4096, 32, 32, 14336, 32000, 8, num_local_experts=8, num_experts_per_tok=2), 46_702_792_704,
    ),
    "Qwen2-7B": (decoder("qwen2", 3584, 28, 28, 18944, 152064, 4), 7_615_616_512),
    "Qwen2-0.5B": (decoder("qwen2", 896, 24, 14, 4864, 151936, 2, tie_word_embeddings=True), 494_032_768),
    "Qwen3-8B": (decoder("qwen3", 4096, 36, 32, 12288, 151936, 8, head_dim=128), 8_190_735_360),
    "Qwen3-30B-A3B": (
        decoder("qwen3_moe", 2048, 48, 32, 6144, 151936, 4, num_experts=128, num_experts_per_tok=8,
                moe_intermediate_size=768, mlp_only_layers=[], head_dim=128), 30_532_122_624,
    ),
    "gpt2": ({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "vocab_size": 50257, "n_positions": 1024},
             124_439_808),
    "DeepSeek-V2-Lite": (
        decoder("deepseek_v2", 2048, 27, 16, 10944, 102400, 16, **LATENT, q_lora_rank=None, n_routed_experts=64,
                n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1),
        15_706_484_224,
    ),
    "DeepSeek-V2": (
        decoder("deepseek_v2", 5120, 60, 128, 12288, 102400, 128, **LATENT, q_lora_rank=1536, n_routed_experts=160,
                n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1536, first_k_dense_replace=1),
        235_741_434_880,
    ),
    "DeepSeek-V3": (DEEPSEEK, 671_026_419_200),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_config_has_the_parameters_that_are_published_for_its_model(name):
    config, parameters = PUBLISHED[name]
    model = model_from_json(name, config)
    assert model.parameters == parameters
    assert len({tensor.name for tensor in model.tensors}) == len(model.tensors)
    assert model.dtype == config.get("torch_dtype", "float32")


def test_the_published_configs_are_of_every_architecture():
    assert {config["model_type"] for config, _ in PUBLISHED.values()} == {*ARCHITECTURES}


@pytest.mark.parametrize(
    ("ours", "config"),
    [("llama3-8b", "Meta-Llama-3-8B"), ("mixtral-8x7b", "Mixtral-8x7B-v0.1"), ("gpt2", "gpt2")],
)
def test_a_config_of_a_model_of_hpccoll_is_that_model(ours, config):
    known, read = model_of(ours), model_from_json(config, PUBLISHED[config][0])
    assert read.tensors == known.tensors
    same = with_sequence(read, known.transformer.sequence)
    assert (same.transformer, same.forward_flops) == (known.transformer, pytest.approx(known.forward_flops))


def test_samples_are_no_longer_than_those_of_training():
    assert model_from_json("m", LLAMA).transformer.sequence == LONGEST_SAMPLE < LLAMA["max_position_embeddings"]
    assert model_from_json("m", {**LLAMA, "max_position_embeddings": 2048}).transformer.sequence == 2048


def test_bias_of_a_config_is_that_of_all_products_of_attention():
    bare, biased = (model_from_json("m", {**LLAMA, "attention_bias": each}) for each in (False, True))
    assert biased.parameters - bare.parameters == 28 * (3072 + 1024 + 1024 + 3072)


def test_experts_of_deepseek_are_in_all_blocks_but_the_first_and_ranks_divide_heads_and_not_low_ranks():
    model = model_from_json("v3", DEEPSEEK)
    first = min(module.block for module in model.modules if module.part == "experts")
    assert (first, model.transformer.experts, model.transformer.routed) == (3, 256, 8)
    half = {tensor.name: tensor.elements for tensor in part_of(model, Mesh(tp=2)).tensors}
    whole = {tensor.name: tensor.elements for tensor in model.tensors}
    for name, parts in (("q_a_proj", 1), ("q_b_proj", 2), ("kv_a_proj_with_mqa", 1), ("kv_b_proj", 2), ("o_proj", 2)):
        assert whole[f"layers.0.{name}.weight"] == parts * half[f"layers.0.{name}.weight"]
    small = model_from_json("v3", {**DEEPSEEK, "num_hidden_layers": 5, "n_routed_experts": 8})
    (program,) = step_programs(small, Parallelism(Mesh(tp=2, dp=4, ep=4)))
    exchanges = [each for each in program.operations if each.axis == "ep"]
    sums = [each for each in program.operations if each.axis == "tp"]
    assert (len(exchanges), len(sums)) == (4 * 2, 4 * 5 + 2)  # of two blocks with experts, and of all blocks


def test_experts_do_not_limit_the_micro_batches_of_a_pipeline_but_tensors_that_are_gathered_one_by_one_do():
    model = model_from_json("v3", DEEPSEEK)
    Parallelism(Mesh(pp=16), micro_batches=480).check(model)
    with pytest.raises(BadInputError, match="micro_batches: 480"):
        Parallelism(Mesh(dp=16), sharding="zero3", micro_batches=480).check(model)
    small = model_from_json("v3", {**DEEPSEEK, "num_hidden_layers": 5, "n_routed_experts": 8})
    once, often = (step_programs(small, Parallelism(Mesh(pp=5), micro_batches=count)) for count in (1, 30))
    for one, many in zip(once, often, strict=True):
        for phase in (FORWARD, BACKWARD):
            assert many.flops(phase) == pytest.approx(30 * one.flops(phase))
        assert len(many.operations) == 30 * len(one.operations)


def test_a_token_of_experts_takes_the_flops_of_those_it_goes_to():
    model = model_from_json("v3", DEEPSEEK)
    active = sum(module.forward_flops - module.score_flops for module in model.modules) / model.transformer.sequence / 2
    assert active == pytest.approx(37e9, rel=0.03)  # DeepSeek-V3 (2024): 37B activated for each token


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"model_type": "gemma2"}, ["model_type", "'gemma2'", ", ".join(sorted(ARCHITECTURES))]),
        ({"architectures": ["LlamaForCausalLM"]}, ["model_type is missing", "llama"]),
        ({"model_type": "llama", "hidden_size": 64}, ["lacks num_hidden_layers, num_attention_heads, intermediate"]),
        ({**LLAMA, "num_key_value_heads": 0}, ["num_key_value_heads: 0"]),
        ({**LLAMA, "vocab_size": "many"}, ["vocab_size"]), ({**LLAMA, "hidden_size": True}, ["hidden_size"]),
        ({**LLAMA, "num_attention_heads": 4096}, ["num_attention_heads: 4096", "at most 3072"]),
        ({**LLAMA, "torch_dtype": "float8"}, ["torch_dtype", "bfloat16"]),
        ({**LLAMA, "tie_word_embeddings": "yes"}, ["tie_word_embeddings", "true or false"]),
        ({**DEEPSEEK, "n_routed_experts": 1 << 20}, ["num_hidden_layers: 61", "modules"]),
        ({**LLAMA, "hidden_size": 1 << 24}, ["elements"]),
    ],
)  # fmt: skip
def test_a_config_that_is_no_model_is_refused_in_one_line_with_all_that_is_missing(content, words):
    with pytest.raises(BadInputError) as refused:
        model_from_json("mine", content)
    assert [word for word in words if word not in str(refused.value)] == []


KEYS = sorted({*LLAMA, *DEEPSEEK})


@given(st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(-1, 9) | st.text(max_size=3) | st.booleans()))
def test_any_values_are_a_model_or_one_line(changed):
    for base in (LLAMA, {**DEEPSEEK, "num_hidden_layers": 4, "n_routed_experts": 4}):
        try:
            model_from_json("mine", {**base, **changed})
        except BadInputError as error:
            assert "\n" not in str(error)  # noqa: PT017  either outcome is right


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_a_file_is_read_however_its_json_is_laid_out(indent, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "rms_norm_eps": 1e-05}, indent=indent))
    found = load_models([str(tmp_path / "config.json")], "--model", load_plain_yaml)
    assert model_from_json("m", found[tmp_path.name]).parameters == 3_212_749_824


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("models/Llama-3.2-3B/config.json", "Llama-3.2-3B"), ("my-model.json", "my-model"), ("config.yaml", None),
        ("hub/models--meta-llama--Llama-3.2-3B/snapshots/13afe5124825/config.json", "Llama-3.2-3B"),
    ],
)  # fmt: skip
def test_a_file_that_is_named_config_is_the_model_of_its_folder(path, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert model_name(path) == (name or tmp_path.name)
    assert [*load_models([path], "--model", lambda _path, _key: LLAMA)] == [name or tmp_path.name]
