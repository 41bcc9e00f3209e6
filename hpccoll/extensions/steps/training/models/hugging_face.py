"""Models as Hugging Face publishes them: a config.json, whose ``model_type`` says which keys it has and what they mean.

The table ARCHITECTURES has the keys that each architecture needs, and the others that count with
the defaults of its class in transformers (4.40 to 4.57). DeepSeek's modules that predict further
tokens are left out, as transformers does.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import le
from typing import Any, NamedTuple, TypeGuard

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import IntegerRange, Kind
from hpccoll.extensions.steps.training.model_shape import MAX_MODULES, ModelShape, check_elements
from hpccoll.extensions.steps.training.models.decoders import (
    Attention,
    Decoder,
    Experts,
    LatentAttention,
)
from hpccoll.extensions.steps.training.models.transformers import gpt2, gpt2_block
from hpccoll.schedule import DTYPE

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
        return isinstance(value, list) and all(BLOCK.accepts(number) for number in value)


COUNT = IntegerRange(1, 1 << 24)
BLOCK = IntegerRange(0, 1 << 16)
TRUTH = Truth()
BLOCKS = IntegerRange(1, 1 << 16)
EXPERTS = IntegerRange(1, 1 << 13)
COUNT_OR_NONE = IntegerRange(0, COUNT.maximum)
_KINDS: Mapping[str, Kind[Any]] = {
    "num_hidden_layers": BLOCKS,
    "n_layer": BLOCKS,
    "first_k_dense_replace": BLOCK,
    "mlp_only_layers": Blocks(),
    "num_local_experts": EXPERTS,
    "num_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "q_lora_rank": COUNT_OR_NONE,
    "n_shared_experts": COUNT_OR_NONE,
    "tie_word_embeddings": TRUTH,
    "attention_bias": TRUTH,
    "mlp_bias": TRUTH,
}
"""The kinds of values by key; others are counts."""

_NULL: Config = {"q_lora_rank": 0, "n_shared_experts": 0}
"""What null means, by key; of other keys, that the key is absent."""


class _Relation(NamedTuple):
    """What the value of a key must be to that of another."""

    holds: Callable[[Any, Any], bool]
    words: str


_AT_MOST = _Relation(le, "at most")
_DIVIDES = _Relation(lambda value, dividend: dividend % value == 0, "a divisor of")
_BELOW = _Relation(
    lambda values, limit: all(value < limit for value in values), "numbers less than"
)
_RELATIONS: Sequence[tuple[str, _Relation, str]] = (
    ("num_attention_heads", _AT_MOST, "hidden_size"),
    ("num_key_value_heads", _DIVIDES, "num_attention_heads"),
    ("num_experts_per_tok", _AT_MOST, "num_local_experts"),
    ("num_experts_per_tok", _AT_MOST, "num_experts"),
    ("num_experts_per_tok", _AT_MOST, "n_routed_experts"),
    ("first_k_dense_replace", _AT_MOST, "num_hidden_layers"),
    ("decoder_sparse_step", _AT_MOST, "num_hidden_layers"),
    ("mlp_only_layers", _BELOW, "num_hidden_layers"),
)
"""What the values of an architecture that has both keys must be to each other."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to read the config.json of a ``model_type``."""

    # the model of a name, a config, a type and a source
    model: Callable[[str, Config, str, str], ModelShape]
    needs: tuple[str, ...]  # the keys without a default
    # the other keys that count; None: as other keys say
    defaults: Config = field(default_factory=dict)

    def read(self, content: Config) -> Config:
        """Return the values of all keys.

        Raises:
            BadInputError: names all keys that are missing, or the first whose value is not valid,
                alone or with others.
        """
        values = {}
        for key, value in content.items():
            meant = _NULL.get(key) if value is None else value
            if meant is not None:
                values[key] = meant
        missing = [key for key in self.needs if key not in values]
        if missing:
            raise UnusableError(
                f"model_type {content['model_type']}", f"lacks {', '.join(missing)}"
            )
        config = {
            key: values.get(key, self.defaults.get(key)) for key in (*self.needs, *self.defaults)
        }
        for key, value in config.items():
            if value is not None:
                _KINDS.get(key, COUNT).check(key, value)
        for key, relation, limit_key in _RELATIONS:
            value = config.get(key)
            limit = config.get(limit_key)
            if value is not None and limit is not None and not relation.holds(value, limit):
                raise BadInputError(key, value, f"{relation.words} {limit}, the {limit_key}")
        return config


def is_config(content: object) -> TypeGuard[Config]:
    """Return whether the content of a file is that of a config.json."""
    return isinstance(content, Mapping) and bool({"model_type", "architectures"} & content.keys())


def model_of_config(name: str, content: Config) -> ModelShape:
    """Return the model of the content of a config.json.

    Raises:
        BadInputError: if its architecture is unknown, a key is missing or wrong, or the model is
            too large.
    """
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise BadInputError("model_type", kind, sorted(ARCHITECTURES))
    architecture = ARCHITECTURES[kind]
    config = architecture.read(content)
    model = architecture.model(name, config, _dtype_of(content), f"a config.json of {kind}")
    check_elements(model, ", ".join(architecture.needs))
    return model


def _dtype_of(content: Config) -> str:
    """Return the type of the parameters, which ``torch_dtype`` had before transformers 4.56: float32 by default."""
    key = "torch_dtype"
    if content.get("dtype") is not None:
        key = "dtype"
    value = content.get(key)
    if value is None:
        return "float32"
    if not isinstance(value, str):
        raise DTYPE.refusal(key, value)
    return DTYPE.read(key, value.removeprefix("torch."))


def _check_modules(key: str, counts: Sequence[int]) -> None:
    """Check the number of modules of all blocks; ``counts`` has that of each, and ``key`` is the key of the blocks."""
    totals = list(accumulate(counts))
    total = totals[-1]
    if total > MAX_MODULES:
        fit = bisect_right(totals, MAX_MODULES)
        valid = f"at most {fit}: these blocks have {total} modules, a model at most {MAX_MODULES}"
        raise BadInputError(key, len(counts), valid)


def _gpt2(name: str, config: Config, dtype: str, source: str) -> ModelShape:
    blocks, hidden, vocabulary, sequence = (config[key] for key in _GPT2)
    feed_forward = config["n_inner"] or 4 * hidden
    _check_modules("n_layer", [len(list(gpt2_block(0, hidden, sequence, feed_forward)))] * blocks)
    return gpt2(
        name,
        blocks,
        hidden,
        vocabulary,
        sequence,
        feed_forward=feed_forward,
        tied=config["tie_word_embeddings"],
        dtype=dtype,
        source=source,
    )


def _decoder(
    attention: Callable[[Config], Attention | LatentAttention],
    experts: Callable[[Config], Experts] | None = None,
) -> Callable[[str, Config, str, str], ModelShape]:
    """Return what makes a model of the config of a decoder, with its attention and its experts."""

    def model(name: str, config: Config, dtype: str, source: str) -> ModelShape:
        decoder = Decoder(
            blocks=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            vocabulary=config["vocab_size"],
            sequence=min(config["max_position_embeddings"], LONGEST_SAMPLE),
            attention=attention(config),
            feed_forward=config["intermediate_size"],
            feed_forward_bias=config.get("mlp_bias", False),
            experts=experts(config) if experts else None,
            tied=config["tie_word_embeddings"],
        )
        _check_modules("num_hidden_layers", decoder.module_counts)
        return decoder.model(name, dtype, source)

    return model


def _grouped(config: Config, *, input_bias: bool = False, norms: bool = False) -> Attention:
    heads = config["num_attention_heads"]
    head = config["head_dim"] or config["hidden_size"] // heads
    bias = config.get("attention_bias", False)
    key_value = (config["num_key_value_heads"] or heads) * head
    return Attention(heads * head, key_value, bias or input_bias, bias, head if norms else 0)


def _latent(config: Config) -> LatentAttention:
    keys = "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "attention_bias"
    return LatentAttention(
        config["num_attention_heads"], config["q_lora_rank"], *(config[key] for key in keys)
    )


def _mixtral_experts(config: Config) -> Experts:
    number = config["num_local_experts"]
    routed = config["num_experts_per_tok"]
    return Experts(number, routed, config["intermediate_size"], range(config["num_hidden_layers"]))


def _qwen_experts(config: Config) -> Experts:
    every = config["decoder_sparse_step"]
    blocks = set(range(every - 1, config["num_hidden_layers"], every)) - set(
        config["mlp_only_layers"]
    )
    return Experts(
        config["num_experts"],
        config["num_experts_per_tok"],
        config["moe_intermediate_size"],
        blocks,
    )


def _deepseek_experts(config: Config) -> Experts:
    every = config["moe_layer_freq"]
    width = config["moe_intermediate_size"]
    after_dense = range(config["first_k_dense_replace"], config["num_hidden_layers"])
    blocks = {block for block in after_dense if block % every == 0}
    shared = config["n_shared_experts"] * width
    bias = config.get("mlp_bias", False)
    return Experts(
        config["n_routed_experts"], config["num_experts_per_tok"], width, blocks, shared, bias
    )


_DECODER = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
_GROUPED = (*_DECODER, "num_key_value_heads")
_UNTIED: Config = {"tie_word_embeddings": False}
_HEADS: Config = {**_UNTIED, "head_dim": None}
_LLAMA: Config = {**_HEADS, "num_key_value_heads": None, "attention_bias": False, "mlp_bias": False}
_QWEN3: Config = {**_HEADS, "attention_bias": False}
_DEEPSEEK = (
    *_DECODER,
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "first_k_dense_replace",
)
_OF_DEEPSEEK: Config = {
    **_UNTIED,
    "q_lora_rank": 1536,
    "moe_layer_freq": 1,
    "attention_bias": False,
}
_GPT2 = ("n_layer", "n_embd", "vocab_size", "n_positions")

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(_decoder(_grouped), _DECODER, _LLAMA),
    "mistral": Architecture(_decoder(_grouped), _GROUPED, _HEADS),
    "mixtral": Architecture(
        _decoder(_grouped, _mixtral_experts),
        (*_GROUPED, "num_local_experts", "num_experts_per_tok"),
        _HEADS,
    ),
    "qwen2": Architecture(_decoder(partial(_grouped, input_bias=True)), _GROUPED, _HEADS),
    "qwen3": Architecture(
        _decoder(partial(_grouped, norms=True)), _GROUPED, {**_QWEN3, "head_dim": 128}
    ),
    "qwen3_moe": Architecture(
        _decoder(partial(_grouped, norms=True), _qwen_experts),
        (*_GROUPED, "num_experts", "num_experts_per_tok", "moe_intermediate_size"),
        {**_QWEN3, "decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    "deepseek_v2": Architecture(
        _decoder(_latent, _deepseek_experts),
        _DEEPSEEK,
        {**_OF_DEEPSEEK, "n_shared_experts": 2, "mlp_bias": False},
    ),
    "deepseek_v3": Architecture(
        _decoder(_latent, _deepseek_experts), _DEEPSEEK, {**_OF_DEEPSEEK, "n_shared_experts": 1}
    ),
    "gpt2": Architecture(_gpt2, _GPT2, {"n_inner": None, "tie_word_embeddings": True}),
}
"""The architectures by ``model_type``."""
