"""A config.json of Hugging Face is a model with the parameters that are published for it; a wrong one is one line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.yaml_model import load_plain_yaml
from hpccoll.extensions.steps.training.model_file import load_models, model_from_json
from hpccoll.extensions.steps.training.model_shape import MAX_MODULES, with_sequence
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.models.hugging_face import ARCHITECTURES, LONGEST_SAMPLE
from hpccoll.extensions.steps.training.parallelism import Mesh, Parallelism, part_of
from hpccoll.extensions.steps.training.step_program import BACKWARD, FORWARD
from hpccoll.extensions.steps.training.step_program_builder import step_programs


def decoder(kind, hidden, blocks, heads, feed_forward, vocabulary, key_value=None, **more):
    """Return the config.json of a decoder; ``key_value`` is the number of heads of keys."""
    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "intermediate_size": feed_forward,
        "vocab_size": vocabulary,
        "max_position_embeddings": 32768,
    }
    grouped = {} if key_value is None else {"num_key_value_heads": key_value}
    return {"model_type": kind, **sizes, **grouped, "torch_dtype": "bfloat16", **more}


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
LLAMA = decoder(
    "llama",
    3072,
    28,
    24,
    8192,
    128256,
    8,
    head_dim=128,
    attention_bias=False,
    tie_word_embeddings=True,
    rope_scaling={"factor": "32.0"},
    rms_norm_eps="1e-05",
)
DEEPSEEK = decoder(
    "deepseek_v3",
    7168,
    61,
    128,
    18432,
    129280,
    128,
    **LATENT,
    q_lora_rank=1536,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    num_nextn_predict_layers=1,
)

MIXTRAL = decoder(
    "mixtral", 4096, 32, 32, 14336, 32000, 8, num_local_experts=8, num_experts_per_tok=2
)
QWEN = decoder(
    "qwen3_moe",
    2048,
    48,
    32,
    6144,
    151936,
    4,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    mlp_only_layers=[],
    head_dim=128,
)
V2 = decoder(
    "deepseek_v2",
    2048,
    27,
    16,
    10944,
    102400,
    16,
    **LATENT,
    q_lora_rank=None,
    n_routed_experts=64,
    n_shared_experts=2,
    num_experts_per_tok=6,
    moe_intermediate_size=1408,
    first_k_dense_replace=1,
)
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "vocab_size": 50257,
    "n_positions": 1024,
}
MODULES = {"modules": [{"name": "fc", "tensors": {"weight": 10}}]}

# Half of total_size, bytes in bfloat16, in model.safetensors.index.json of the repositories of
# Hugging Face; of Qwen2 0.5B and GPT-2, whose weights are one file, the number of parameters that
# Hugging Face shows. DeepSeek-V3 without the module that predicts a second token (README_WEIGHTS.md
# of its repository: 671B of main model weights), and without the 58 x 256 e_score_correction_bias,
# which are buffers in transformers and have no gradients.
PUBLISHED = {
    "Llama-3.2-3B": (LLAMA, 3_212_749_824),
    "Meta-Llama-3-8B": (decoder("llama", 4096, 32, 32, 14336, 128256, 8), 8_030_261_248),
    "Llama-2-7b without grouped queries": (decoder("llama", 4096, 32, 32, 11008, 32000), 6_738_415_616),
    "Mistral-7B-v0.1": (decoder("mistral", 4096, 32, 32, 14336, 32000, 8), 7_241_732_096),
    "Mixtral-8x7B-v0.1": (MIXTRAL, 46_702_792_704),
    "Qwen2-7B": (decoder("qwen2", 3584, 28, 28, 18944, 152064, 4), 7_615_616_512),
    "Qwen2-0.5B": (decoder("qwen2", 896, 24, 14, 4864, 151936, 2, tie_word_embeddings=True), 494_032_768),
    "Qwen3-8B": (decoder("qwen3", 4096, 36, 32, 12288, 151936, 8, head_dim=128), 8_190_735_360),
    "Qwen3-30B-A3B": (QWEN, 30_532_122_624),
    "gpt2": (GPT2, 124_439_808),
    "DeepSeek-V2-Lite": (V2, 15_706_484_224),
    "DeepSeek-V2": (
        decoder("deepseek_v2", 5120, 60, 128, 12288, 102400, 128, **LATENT, q_lora_rank=1536, n_routed_experts=160,
                n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1536, first_k_dense_replace=1),
        235_741_434_880,
    ),
    "DeepSeek-V3": (DEEPSEEK, 671_026_404_352),
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
    assert (same.transformer, same.forward_flops) == (
        known.transformer,
        pytest.approx(known.forward_flops),
    )


def test_samples_are_no_longer_than_those_of_training():
    assert (
        model_from_json("m", LLAMA).transformer.sequence
        == LONGEST_SAMPLE
        < LLAMA["max_position_embeddings"]
    )
    assert (
        model_from_json("m", {**LLAMA, "max_position_embeddings": 2048}).transformer.sequence
        == 2048
    )


def test_bias_of_a_config_is_that_of_all_products_of_attention():
    bare, biased = (
        model_from_json("m", {**LLAMA, "attention_bias": each}) for each in (False, True)
    )
    assert biased.parameters - bare.parameters == 28 * (3072 + 1024 + 1024 + 3072)


def test_experts_of_deepseek_are_in_all_blocks_but_the_first_and_ranks_divide_heads_and_not_low_ranks():
    model = model_from_json("v3", DEEPSEEK)
    first = min(module.block for module in model.modules if module.part == "experts")
    assert (first, model.transformer.experts, model.transformer.routed) == (3, 256, 8)
    half = {tensor.name: tensor.elements for tensor in part_of(model, Mesh(tp=2)).tensors}
    whole = {tensor.name: tensor.elements for tensor in model.tensors}
    for name, parts in (
        ("q_a_proj", 1),
        ("q_b_proj", 2),
        ("kv_a_proj_with_mqa", 1),
        ("kv_b_proj", 2),
        ("o_proj", 2),
    ):
        assert whole[f"layers.0.{name}.weight"] == parts * half[f"layers.0.{name}.weight"]
    small = model_from_json("v3", {**DEEPSEEK, "num_hidden_layers": 5, "n_routed_experts": 8})
    (program,) = step_programs(small, Parallelism(Mesh(tp=2, dp=4, ep=4)))
    exchanges = [each for each in program.operations if each.axis == "ep"]
    sums = [each for each in program.operations if each.axis == "tp"]
    # of two blocks with experts, and of all blocks
    assert (len(exchanges), len(sums)) == (4 * 2, 4 * 5 + 2)


def test_experts_do_not_limit_the_micro_batches_of_a_pipeline_but_tensors_that_are_gathered_one_by_one_do():
    model = model_from_json("v3", DEEPSEEK)
    Parallelism(Mesh(pp=16), micro_batches=480).check(model)
    with pytest.raises(BadInputError, match="micro_batches: 480"):
        Parallelism(Mesh(dp=16), sharding="zero3", micro_batches=480).check(model)
    small = model_from_json("v3", {**DEEPSEEK, "num_hidden_layers": 5, "n_routed_experts": 8})
    once, often = (
        step_programs(small, Parallelism(Mesh(pp=5), micro_batches=count)) for count in (1, 30)
    )
    for one, many in zip(once, often, strict=True):
        for phase in (FORWARD, BACKWARD):
            assert many.flops(phase) == pytest.approx(30 * one.flops(phase))
        assert len(many.operations) == 30 * len(one.operations)


def test_a_token_of_experts_takes_the_flops_of_those_it_goes_to():
    model = model_from_json("v3", DEEPSEEK)
    active = (
        sum(module.forward_flops - module.score_flops for module in model.modules)
        / model.transformer.sequence
        / 2
    )
    # DeepSeek-V3 (2024): 37B activated for each token
    assert active == pytest.approx(37e9, rel=0.03)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"model_type": "gemma2"}, ["model_type", "'gemma2'", ", ".join(sorted(ARCHITECTURES))]),
        ({"architectures": ["LlamaForCausalLM"]}, ["model_type is missing", "llama"]),
        (
            {"model_type": "llama", "hidden_size": 64},
            ["lacks num_hidden_layers, num_attention_heads, intermediate"],
        ),
        ({**LLAMA, "num_key_value_heads": 0}, ["num_key_value_heads: 0"]),
        ({**LLAMA, "vocab_size": "many"}, ["vocab_size"]),
        ({**LLAMA, "hidden_size": True}, ["hidden_size"]),
        ({**LLAMA, "num_attention_heads": 4096}, ["num_attention_heads: 4096", "at most 3072"]),
        (
            {**LLAMA, "num_key_value_heads": 7},
            ["num_key_value_heads: 7", "a divisor of 24, the num_attention_heads"],
        ),
        (
            {**MIXTRAL, "num_experts_per_tok": 9},
            ["num_experts_per_tok: 9", "at most 8, the num_local_experts"],
        ),
        (
            {**QWEN, "num_experts_per_tok": 129},
            ["num_experts_per_tok: 129", "at most 128, the num_experts"],
        ),
        (
            {**QWEN, "decoder_sparse_step": 49},
            ["decoder_sparse_step: 49", "at most 48, the num_hidden_layers"],
        ),
        (
            {**QWEN, "mlp_only_layers": [0, 48]},
            ["mlp_only_layers: [0, 48]", "less than 48, the num_hidden_layers"],
        ),
        (
            {**DEEPSEEK, "num_experts_per_tok": 257},
            ["num_experts_per_tok: 257", "at most 256, the n_routed_experts"],
        ),
        (
            {**DEEPSEEK, "first_k_dense_replace": 62},
            ["first_k_dense_replace: 62", "at most 61, the num_hidden_layers"],
        ),
        *(
            ({**LLAMA, key: value}, [f"{key}: {value!r}", "bfloat16"])
            for key in ("torch_dtype", "dtype")
            for value in ("float8", "", [], {}, False)
        ),
        ({**LLAMA, "tie_word_embeddings": "yes"}, ["tie_word_embeddings", "true or false"]),
        ({**DEEPSEEK, "n_routed_experts": 1 << 20}, ["n_routed_experts: 1048576"]),
        ({**LLAMA, "hidden_size": 1 << 24}, ["hidden_size, num_hidden_layers, ", "elements"]),
        ({**GPT2, "n_embd": 1 << 24}, ["n_layer, n_embd, vocab_size, n_positions: ", "elements"]),
    ],
)
def test_a_config_that_is_no_model_is_refused_in_one_line_with_all_that_is_missing(content, words):
    with pytest.raises(BadInputError) as refused:
        model_from_json("mine", content)
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("config", "key", "most"),
    [
        (LLAMA, "num_hidden_layers", 11111),
        (GPT2, "n_layer", 16666),
        ({**DEEPSEEK, "n_routed_experts": 8192}, "", 7),
    ],
)
def test_a_model_of_too_many_modules_is_refused_with_the_most_blocks_that_it_may_have(
    config, key, most
):
    key = key or "num_hidden_layers"
    with pytest.raises(
        BadInputError,
        match=f"at most {most}: .* have [0-9]+ modules, a model at most {MAX_MODULES}",
    ) as refused:
        model_from_json("mine", {**config, key: 65536})
    assert refused.value.key == key
    small = {"n_embd": 1, "hidden_size": 24, "moe_intermediate_size": 1}
    config = {**config, **{each: size for each, size in small.items() if each in config}}
    model = model_from_json("mine", {**config, key: most, "num_attention_heads": 24})
    assert sum(module.block is not None for module in model.modules) <= MAX_MODULES
    with pytest.raises(BadInputError):
        model_from_json("mine", {**config, key: most + 1, "num_attention_heads": 24})


@pytest.mark.parametrize(
    ("config", "equal"),
    [
        ({**V2, "q_lora_rank": ...}, {**V2, "q_lora_rank": 1536}),
        ({**V2, "n_shared_experts": ...}, V2),
        ({**DEEPSEEK, "q_lora_rank": ...}, DEEPSEEK),
        ({**DEEPSEEK, "n_shared_experts": ...}, DEEPSEEK),
        *(
            ({**DEEPSEEK, key: None}, {**DEEPSEEK, key: 0})
            for key in ("q_lora_rank", "n_shared_experts")
        ),
        *(({**QWEN, "head_dim": absent}, {**QWEN, "head_dim": 64}) for absent in (..., None)),
        (
            {**QWEN, "model_type": "qwen3", "head_dim": ...},
            {**QWEN, "model_type": "qwen3", "head_dim": 128},
        ),
        ({**LLAMA, "mlp_bias": None}, {**LLAMA, "mlp_bias": False}),
        ({**LLAMA, "torch_dtype": "torch.bfloat16"}, LLAMA),
        ({**LLAMA, "dtype": None}, LLAMA),
        ({**LLAMA, "torch_dtype": ...}, {**LLAMA, "torch_dtype": "float32"}),
    ],
)
def test_a_key_that_is_absent_or_null_has_the_value_that_transformers_gives_it(config, equal):
    given = {key: value for key, value in config.items() if value is not ...}
    assert model_from_json("m", given) == model_from_json("m", equal)


@pytest.mark.parametrize("key", ["q_lora_rank", "n_shared_experts"])
def test_a_null_of_deepseek_is_without_and_not_the_default(key):
    words = {"q_lora_rank": "q_a_proj", "n_shared_experts": "shared_experts"}[key]
    with_it, without = (model_from_json("m", {**DEEPSEEK, key: value}) for value in (1, None))
    assert [any(words in each.name for each in model.modules) for model in (with_it, without)] == [
        True,
        False,
    ]


def test_mlp_bias_of_deepseek_v2_is_that_of_all_feed_forward_networks_and_experts():
    bare, biased = (model_from_json("m", {**V2, "mlp_bias": each}) for each in (False, True))
    dense, experts = 2 * 10944 + 2048, (64 + 2) * 2 * 1408 + (64 + 1) * 2048
    assert biased.parameters - bare.parameters == dense + 26 * experts


@pytest.mark.parametrize(
    "config",
    [
        {**QWEN, "num_hidden_layers": 2, "mlp_only_layers": [0, 1]},
        {**V2, "first_k_dense_replace": 27},
    ],
)
def test_a_model_whose_experts_are_in_no_block_has_no_expert_parallelism(config):
    model = model_from_json("m", config)
    with pytest.raises(BadInputError, match="it has no experts"):
        Parallelism(Mesh(dp=2, ep=2)).check(model)


KEYS = sorted({*LLAMA, *DEEPSEEK})


@given(
    st.dictionaries(
        st.sampled_from(KEYS), st.none() | st.integers(-1, 9) | st.text(max_size=3) | st.booleans()
    )
)
def test_any_values_are_a_model_or_one_line(changed):
    for base in (LLAMA, {**DEEPSEEK, "num_hidden_layers": 4, "n_routed_experts": 4}):
        try:
            model_from_json("mine", {**base, **changed})
        except BadInputError as error:
            assert "\n" not in str(error)  # noqa: PT017  either outcome is right


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_a_file_is_read_however_its_json_is_laid_out(indent, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({**LLAMA, "rms_norm_eps": 1e-05}, indent=indent)
    )
    found = load_models([str(tmp_path / "config.json")], "--model", load_plain_yaml)
    assert model_from_json("m", found.contents[tmp_path.name]).parameters == 3_212_749_824


@pytest.mark.parametrize(
    ("path", "content", "name"),
    [
        ("models/Llama-3.2-3B/config.json", LLAMA, "Llama-3.2-3B"),
        ("my-model.json", LLAMA, "my-model"),
        ("config.yaml", LLAMA, "work"),
        ("../config.json", LLAMA, "above"),
        ("a/../b/config.json", LLAMA, "b"),
        ("/config.json", LLAMA, "config"),
        ("gpt2/config.json", LLAMA, "gpt2-config"),
        (
            "hub/models--meta-llama--Llama-3.2-3B/snapshots/13afe5124825/config.json",
            LLAMA,
            "Llama-3.2-3B",
        ),
        *((f"own/config.{suffix}", MODULES, "config") for suffix in ("json", "yaml", "yml")),
    ],
)
def test_a_config_of_hugging_face_is_the_model_of_its_folder_and_a_file_of_modules_that_of_its_stem(
    path, content, name, tmp_path, monkeypatch
):
    folder = tmp_path / "above" / "work"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    own = load_models([path, "resnet50"], "--model", lambda _path, _key: content)
    assert own.contents == {name: content}
    assert [own.name_of(model) for model in (path, "resnet50")] == [name, "resnet50"]


def test_configs_of_folders_of_one_name_are_refused_with_what_to_rename():
    names = ["a/mine/config.json", "b/mine/config.json"]
    with pytest.raises(
        BadInputError, match=r"a folder with another name: .* is that of a/mine/config\.json"
    ):
        load_models(names, "--model", lambda _path, _key: LLAMA)


def test_a_config_keeps_the_name_of_the_repository_that_its_link_is_in(tmp_path):
    blobs, snapshot = (
        tmp_path / "models--org--mine" / "blobs",
        tmp_path / "models--org--mine" / "snapshots" / "1",
    )
    for folder in (blobs, snapshot, tmp_path / "linked"):
        folder.mkdir(parents=True)
    (blobs / "f00").write_text(json.dumps(LLAMA))
    for link in (snapshot / "config.json", tmp_path / "linked" / "config.json"):
        link.symlink_to(blobs / "f00")
    names = [str(folder / "config.json") for folder in (snapshot, tmp_path / "linked")]
    assert [*load_models(names, "--model", load_plain_yaml).contents] == ["mine", "linked"]
