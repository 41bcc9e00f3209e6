"""Transformers: BERT, GPT, Llama and Mixtral, as Hugging Face's transformers builds them.

With tensor parallelism, as Megatron-LM divides it, the first product of attention and of the feed-forward network is
divided by columns (its bias, too), the second by rows (its bias is not), and the embedding by the vocabulary. A product
of a matrix with n elements takes 2 n FLOPs a token; the scores of attention and their product with the values take
4 s h FLOPs a token.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from hpccoll.training.model_shape import ModelShape, Module, Tensor, Transformer, sequence_of


def _product(
    name: str, inputs: int, outputs: int, tokens: int, block: int | None = None, part: str = "", *, bias: bool = True,
    split: str = "", more: float = 0.0,
) -> Module:  # fmt: skip
    """Return a product whose weight is split by columns, by rows, or not; ``more`` FLOPs of scores precede it."""
    weight = Tensor("weight", inputs * outputs, split=bool(split))
    tensors = (weight, Tensor("bias", outputs, split=split == "columns")) if bias else (weight,)
    return Module(name, tensors, 2.0 * inputs * outputs * tokens + more, block, part, score_flops=more)


_columns, _rows = partial(_product, split="columns"), partial(_product, split="rows")


def _shape(
    name: str, modules: Iterable[Module], dtype: str, source: str, blocks: int, hidden: int, sequence: int,
    experts: int = 0, routed: int = 0,
) -> ModelShape:  # fmt: skip
    transformer = Transformer(blocks, hidden, sequence, experts, routed)
    return ModelShape(name, tuple(modules), dtype, sequence_of(sequence), source, transformer)


def _norm(name: str, hidden: int, block: int | None = None, *, bias: bool = True) -> Module:
    tensors = (Tensor("weight", hidden), *([Tensor("bias", hidden)] if bias else ()))
    return Module(name, tensors, block=block, weight_first=True)


def _embedding(name: str, entries: int, hidden: int, *, split: bool = False) -> Module:
    return Module(name, (Tensor("weight", entries * hidden, split=split),), part="embedding" * split)


# ---- GPT ------------------------------------------------------------------------------------------------------------


def gpt2(name: str, blocks: int, hidden: int, vocabulary: int = 50257, sequence: int = 1024) -> ModelShape:
    """Return a GPT-2, whose output matrix is the embedding: 124,439,808 parameters with 12 blocks of 768."""
    source = "A. Radford et al.: Language models are unsupervised multitask learners (2019)"
    return _shape(name, _gpt2(blocks, hidden, vocabulary, sequence), "float32", source, blocks, hidden, sequence)


def gpt3_175b() -> ModelShape:
    """Return GPT-3 175B as Megatron-LM trains it: sequences of 2,048 tokens, a vocabulary of 51,200."""
    blocks, hidden, sequence = 96, 12288, 2048
    source = "T. Brown et al.: Language models are few-shot learners, NeurIPS (2020), table 2.1"
    return _shape("gpt3-175b", _gpt2(blocks, hidden, 51200, sequence), "bfloat16", source, blocks, hidden, sequence)


def _gpt2(blocks: int, hidden: int, vocabulary: int, sequence: int) -> Iterator[Module]:
    yield _embedding("wte", vocabulary, hidden, split=True)
    yield _embedding("wpe", sequence, hidden)
    for block in range(blocks):
        name = f"h.{block}"
        yield _norm(f"{name}.ln_1", hidden, block)
        yield _columns(f"{name}.attn.c_attn", hidden, 3 * hidden, sequence, block, "attention")
        scores = 4.0 * sequence**2 * hidden
        yield _rows(f"{name}.attn.c_proj", hidden, hidden, sequence, block, "attention", more=scores)
        yield _norm(f"{name}.ln_2", hidden, block)
        yield _columns(f"{name}.mlp.c_fc", hidden, 4 * hidden, sequence, block, "mlp")
        yield _rows(f"{name}.mlp.c_proj", 4 * hidden, hidden, sequence, block, "mlp")
    yield _norm("ln_f", hidden)
    yield Module("lm_head", (), 2.0 * vocabulary * hidden * sequence, part="output")  # its matrix is that of wte


# ---- BERT -----------------------------------------------------------------------------------------------------------


def bert_large() -> ModelShape:
    """Return BERT-large with the heads of pretraining: 336,226,108 parameters."""
    blocks, hidden, sequence = 24, 1024, 512
    source = "J. Devlin et al.: BERT, NAACL (2019); BertForPreTraining"
    return _shape("bert-large", _bert(blocks, hidden, 30522, sequence), "float32", source, blocks, hidden, sequence)


def _bert(blocks: int, hidden: int, vocabulary: int, sequence: int) -> Iterator[Module]:
    yield _embedding("embeddings.word", vocabulary, hidden, split=True)
    yield _embedding("embeddings.position", 512, hidden)
    yield _embedding("embeddings.token_type", 2, hidden)
    yield _norm("embeddings.LayerNorm", hidden)
    for block in range(blocks):
        name = f"layer.{block}"
        for each in ("query", "key", "value"):
            yield _columns(f"{name}.attention.{each}", hidden, hidden, sequence, block, "attention")
        scores = 4.0 * sequence**2 * hidden
        yield _rows(f"{name}.attention.output.dense", hidden, hidden, sequence, block, "attention", more=scores)
        yield _norm(f"{name}.attention.output.LayerNorm", hidden, block)
        yield _columns(f"{name}.intermediate", hidden, 4 * hidden, sequence, block, "mlp")
        yield _rows(f"{name}.output.dense", 4 * hidden, hidden, sequence, block, "mlp")
        yield _norm(f"{name}.output.LayerNorm", hidden, block)
    yield _product("pooler", hidden, hidden, 1)
    yield _product("cls.transform.dense", hidden, hidden, sequence)
    yield _norm("cls.transform.LayerNorm", hidden)
    # The matrix of the decoder is the embedding's; its bias is ready before the transform.
    bias = Tensor("bias", vocabulary, split=True)
    yield Module("cls.decoder", (bias,), 2.0 * vocabulary * hidden * sequence, part="output")
    yield _product("cls.seq_relationship", hidden, 2, 1)


# ---- Llama and Mixtral ----------------------------------------------------------------------------------------------


def llama(
    name: str, blocks: int, hidden: int, feed_forward: int, vocabulary: int, key_value: int | None = None,
    sequence: int = 4096,
) -> ModelShape:  # fmt: skip
    """Return a Llama; with grouped queries the width of keys and values is less than ``hidden``, the default."""
    modules = _llama(blocks, hidden, feed_forward, vocabulary, key_value or hidden, sequence)
    source = "H. Touvron et al.: Llama 2 (2023); A. Grattafiori et al.: The Llama 3 herd of models (2024)"
    return _shape(name, modules, "bfloat16", source, blocks, hidden, sequence)


def mixtral_8x7b() -> ModelShape:
    """Return Mixtral 8x7B: two of eight experts for each token, 46,702,792,704 parameters."""
    blocks, hidden, sequence, experts, routed = 32, 4096, 4096, 8, 2
    modules = _llama(blocks, hidden, 14336, 32000, 1024, sequence, experts=experts, routed=routed)
    source = "A. Jiang et al.: Mixtral of experts (2024), table 1"
    return _shape("mixtral-8x7b", modules, "bfloat16", source, blocks, hidden, sequence, experts, routed)


def _llama(
    blocks: int, hidden: int, feed_forward: int, vocabulary: int, key_value: int, sequence: int, *,
    experts: int = 0, routed: int = 0,
) -> Iterator[Module]:  # fmt: skip
    yield _embedding("embed_tokens", vocabulary, hidden, split=True)
    for block in range(blocks):
        name = f"layers.{block}"
        yield _columns(f"{name}.q_proj", hidden, hidden, sequence, block, "attention", bias=False)
        yield _columns(f"{name}.k_proj", hidden, key_value, sequence, block, "attention", bias=False)
        yield _columns(f"{name}.v_proj", hidden, key_value, sequence, block, "attention", bias=False)
        scores = 4.0 * sequence**2 * hidden
        yield _rows(f"{name}.o_proj", hidden, hidden, sequence, block, "attention", bias=False, more=scores)
        if experts:
            gate = Tensor("weight", hidden * experts)
            yield Module(f"{name}.gate", (gate,), 2.0 * gate.elements * sequence, block, "experts")
            yield from _experts(name, hidden, feed_forward, sequence, block, experts, routed)
        else:
            yield _columns(f"{name}.gate_proj", hidden, feed_forward, sequence, block, "mlp", bias=False)
            yield _columns(f"{name}.up_proj", hidden, feed_forward, sequence, block, "mlp", bias=False)
            yield _rows(f"{name}.down_proj", feed_forward, hidden, sequence, block, "mlp", bias=False)
        yield _norm(f"{name}.input_layernorm", hidden, block, bias=False)
        yield _norm(f"{name}.post_attention_layernorm", hidden, block, bias=False)
    yield _norm("norm", hidden, bias=False)
    yield _columns("lm_head", hidden, vocabulary, sequence, part="output", bias=False)


def _experts(
    name: str, hidden: int, feed_forward: int, sequence: int, block: int, experts: int, routed: int
) -> Iterator[Module]:
    """Yield the experts of a block; each token goes to ``routed`` of them."""
    elements = hidden * feed_forward
    for expert in range(experts):
        for part in ("w1", "w2", "w3"):
            weight = Tensor("weight", elements, split=True)
            flops = 2.0 * elements * sequence * routed / experts
            yield Module(f"{name}.experts.{expert}.{part}", (weight,), flops, block, "experts", expert=expert)
