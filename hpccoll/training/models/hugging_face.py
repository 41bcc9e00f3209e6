"""Models as Hugging Face publishes them: a config.json, whose ``model_type`` says which keys it has and what they mean.

The table ARCHITECTURES has the keys that each architecture needs, and the others that count with the defaults of its
class in transformers (4.40 to 4.57). DeepSeek's modules that predict further tokens are left out, as transformers does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import IntegerRange, Kind
from hpccoll.schedule import DTYPE
from hpccoll.training.model_shape import MAX_MODULES, ModelShape
from hpccoll.training.models.decoders import Attention, Decoder, Experts, LatentAttention
from hpccoll.training.models.transformers import gpt2

LONGEST_SAMPLE = 8192
"""The most tokens of a sample: models are trained on fewer than the positions that they are then extended to."""

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Truth(Kind[bool]):
    """True and false."""

    def __str__(self) -> str:
        return "true or false"

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Blocks(Kind[list[int]]):
    """Lists of numbers of blocks."""

    def __str__(self) -> str:
        return "a list of numbers of blocks"

    def accepts(self, value: object) -> bool:
        return isinstance(value, list) and all(BLOCK.accepts(each) for each in value)


COUNT, BLOCK, TRUTH = IntegerRange(1, 1 << 24), IntegerRange(0, 1 << 16), Truth()
_KINDS: Mapping[str, Kind[Any]] = {
    "num_hidden_layers": IntegerRange(1, 1 << 16), "n_layer": IntegerRange(1, 1 << 16),
    "first_k_dense_replace": BLOCK, "mlp_only_layers": Blocks(), "tie_word_embeddings": TRUTH, "attention_bias": TRUTH,
    "mlp_bias": TRUTH,
}  # fmt: skip
"""The kinds of values by key; others are counts."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to read the config.json of a ``model_type``."""

    model: Callable[[str, Config, str, str], ModelShape]  # the model of a name, a config, a type and a source
    needs: tuple[str, ...]  # the keys without a default
    defaults: Config = field(default_factory=dict)  # the other keys that count; None: without it

    def read(self, content: Config) -> Config:
        """Return the values of all keys.

        Raises:
            BadInputError: names all keys that are missing, or the first whose value is not valid.
        """
        given = {key: value for key, value in content.items() if value is not None}
        if missing := [key for key in self.needs if key not in given]:
            raise UnusableError(f"model_type {content['model_type']}", f"lacks {', '.join(missing)}")
        config = {key: given.get(key, self.defaults.get(key)) for key in (*self.needs, *self.defaults)}
        for key, value in config.items():
            if value is not None:
                _KINDS.get(key, COUNT).check(key, value)
        return config


def is_config(content: object) -> TypeGuard[Config]:
    """Return whether the content of a file is that of a config.json."""
    return isinstance(content, Mapping) and bool({"model_type", "architectures"} & content.keys())


def model_of_config(name: str, content: Config) -> ModelShape:
    """Return the model of the content of a config.json.

    Raises:
        BadInputError: if its architecture is unknown, or a key is missing or wrong.
    """
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise BadInputError("model_type", kind, sorted(ARCHITECTURES))
    architecture = ARCHITECTURES[kind]
    config = architecture.read(content)
    key = "dtype" if content.get("dtype") else "torch_dtype"  # its name before transformers 4.56
    dtype = DTYPE.read(key, str(content.get(key) or "float32"))
    return architecture.model(name, config, dtype, f"a config.json of {kind}")


def _gpt2(name: str, config: Config, dtype: str, source: str) -> ModelShape:
    sizes = (config[key] for key in ("n_layer", "n_embd", "vocab_size", "n_positions"))
    feed_forward, tied = config["n_inner"], config["tie_word_embeddings"]
    return gpt2(name, *sizes, feed_forward=feed_forward, tied=tied, dtype=dtype, source=source)


def _decoder(
    attention: Callable[[Config], Attention | LatentAttention], experts: Callable[[Config], Experts] | None = None
) -> Callable[[str, Config, str, str], ModelShape]:
    """Return what makes a model of the config of a decoder, with its attention and its experts."""

    def model(name: str, config: Config, dtype: str, source: str) -> ModelShape:
        found = experts(config) if experts else None
        blocks = config["num_hidden_layers"]
        if blocks * (3 * found.number if found else 1) > MAX_MODULES:
            raise BadInputError("num_hidden_layers", blocks, f"at most {MAX_MODULES} modules together")
        return Decoder(
            blocks=blocks, hidden=config["hidden_size"], vocabulary=config["vocab_size"],
            sequence=min(config["max_position_embeddings"], LONGEST_SAMPLE), attention=attention(config),
            feed_forward=config["intermediate_size"], feed_forward_bias=config.get("mlp_bias", False), experts=found,
            tied=config["tie_word_embeddings"],
        ).model(name, dtype, source)  # fmt: skip

    return model


def _grouped(config: Config, *, input_bias: bool = False, norms: bool = False) -> Attention:
    heads = config["num_attention_heads"]
    if heads > config["hidden_size"]:
        raise BadInputError("num_attention_heads", heads, f"at most {config['hidden_size']}, the hidden_size")
    head = config["head_dim"] or config["hidden_size"] // heads
    bias = config.get("attention_bias", False)
    key_value = (config["num_key_value_heads"] or heads) * head
    return Attention(heads * head, key_value, bias or input_bias, bias, head if norms else 0)


def _latent(config: Config) -> LatentAttention:
    keys = "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "attention_bias"
    return LatentAttention(config["num_attention_heads"], config["q_lora_rank"] or 0, *(config[key] for key in keys))


def _mixtral_experts(config: Config) -> Experts:
    number, routed = config["num_local_experts"], config["num_experts_per_tok"]
    return Experts(number, routed, config["intermediate_size"], range(config["num_hidden_layers"]))


def _qwen_experts(config: Config) -> Experts:
    every, dense = config["decoder_sparse_step"], {*config["mlp_only_layers"]}
    blocks = {each for each in range(every - 1, config["num_hidden_layers"], every) if each not in dense}
    return Experts(config["num_experts"], config["num_experts_per_tok"], config["moe_intermediate_size"], blocks)


def _deepseek_experts(config: Config, *, gate_bias: bool = False) -> Experts:
    every, first, width = config["moe_layer_freq"], config["first_k_dense_replace"], config["moe_intermediate_size"]
    blocks = {each for each in range(first, config["num_hidden_layers"]) if each % every == 0}
    shared = (config["n_shared_experts"] or 0) * width
    return Experts(config["n_routed_experts"], config["num_experts_per_tok"], width, blocks, shared, gate_bias)


_DECODER = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip
_GROUPED = (*_DECODER, "num_key_value_heads")
_UNTIED: Config = {"tie_word_embeddings": False}
_HEADS: Config = {**_UNTIED, "head_dim": None}
_LLAMA: Config = {**_HEADS, "num_key_value_heads": None, "attention_bias": False, "mlp_bias": False}
_QWEN3: Config = {**_UNTIED, "head_dim": 128, "attention_bias": False}
_DEEPSEEK = (
    *_DECODER, "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts",
    "num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace",
)  # fmt: skip
_OF_DEEPSEEK: Config = {
    **_UNTIED, "q_lora_rank": None, "n_shared_experts": None, "moe_layer_freq": 1, "attention_bias": False,
}  # fmt: skip

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(_decoder(_grouped), _DECODER, _LLAMA),
    "mistral": Architecture(_decoder(_grouped), _GROUPED, _HEADS),
    "mixtral": Architecture(
        _decoder(_grouped, _mixtral_experts), (*_GROUPED, "num_local_experts", "num_experts_per_tok"), _HEADS
    ),
    "qwen2": Architecture(_decoder(partial(_grouped, input_bias=True)), _GROUPED, _HEADS),
    "qwen3": Architecture(_decoder(partial(_grouped, norms=True)), _GROUPED, _QWEN3),
    "qwen3_moe": Architecture(
        _decoder(partial(_grouped, norms=True), _qwen_experts),
        (*_GROUPED, "num_experts", "num_experts_per_tok", "moe_intermediate_size"),
        {**_QWEN3, "decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    "deepseek_v2": Architecture(_decoder(_latent, _deepseek_experts), _DEEPSEEK, _OF_DEEPSEEK),
    "deepseek_v3": Architecture(_decoder(_latent, partial(_deepseek_experts, gate_bias=True)), _DEEPSEEK, _OF_DEEPSEEK),
    "gpt2": Architecture(
        _gpt2, ("n_layer", "n_embd", "vocab_size", "n_positions"), {"n_inner": None, "tie_word_embeddings": True}
    ),
}
"""The architectures by ``model_type``."""
