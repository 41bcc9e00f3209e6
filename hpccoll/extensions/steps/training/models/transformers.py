"""GPT and BERT, as Hugging Face's transformers builds them."""

from collections.abc import Iterator

from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor, Transformer
from hpccoll.extensions.steps.training.models.transformer_parts import (
    columns,
    embedding,
    norm,
    output,
    product,
    rows,
    shape,
)

# ---- GPT
# ------------------------------------------------------------------------------------------------------------


GPT2 = "A. Radford et al.: Language models are unsupervised multitask learners (2019)"


def gpt2(
    name: str,
    blocks: int,
    hidden: int,
    vocabulary: int = 50257,
    sequence: int = 1024,
    *,
    feed_forward: int | None = None,
    tied: bool = True,
    dtype: str = "float32",
    source: str = GPT2,
) -> ModelShape:
    """Return a GPT-2: 124,439,808 parameters with 12 blocks of 768.

    The feed-forward network is four times as wide as the model by default; if ``tied``, the output
    matrix is the embedding.
    """
    modules = _gpt2(blocks, hidden, vocabulary, sequence, feed_forward or 4 * hidden, tied=tied)
    return shape(
        name, modules, dtype, source, Transformer(blocks, hidden, sequence, positions=sequence)
    )


def gpt3_175b() -> ModelShape:
    """Return GPT-3 175B as Megatron-LM trains it: sequences of 2,048 tokens, a vocabulary of 51,200."""
    source = "T. Brown et al.: Language models are few-shot learners, NeurIPS (2020), table 2.1"
    return gpt2("gpt3-175b", 96, 12288, 51200, 2048, dtype="bfloat16", source=source)


def _gpt2(
    blocks: int, hidden: int, vocabulary: int, sequence: int, feed_forward: int, *, tied: bool
) -> Iterator[Module]:
    yield embedding("wte", vocabulary, hidden, split=True)
    yield embedding("wpe", sequence, hidden)
    for block in range(blocks):
        yield from gpt2_block(block, hidden, sequence, feed_forward)
    yield norm("ln_f", hidden)
    yield output("lm_head", hidden, vocabulary, sequence, tied=tied)


def gpt2_block(block: int, hidden: int, sequence: int, feed_forward: int) -> Iterator[Module]:
    """Yield the modules of a block of GPT-2."""
    name = f"h.{block}"
    yield norm(f"{name}.ln_1", hidden, block)
    yield columns(f"{name}.attn.c_attn", hidden, 3 * hidden, sequence, block, "attention")
    scores = 4.0 * sequence**2 * hidden
    yield rows(
        f"{name}.attn.c_proj", hidden, hidden, sequence, block, "attention", score_flops=scores
    )
    yield norm(f"{name}.ln_2", hidden, block)
    yield columns(f"{name}.mlp.c_fc", hidden, feed_forward, sequence, block, "mlp")
    yield rows(f"{name}.mlp.c_proj", feed_forward, hidden, sequence, block, "mlp")


# ---- BERT
# -----------------------------------------------------------------------------------------------------------


def bert_large() -> ModelShape:
    """Return BERT-large with the heads of pretraining: 336,226,108 parameters."""
    blocks = 24
    hidden = 1024
    sequence = 512
    source = "J. Devlin et al.: BERT, NAACL (2019); BertForPreTraining"
    modules = _bert(blocks, hidden, 30522, sequence)
    return shape(
        "bert-large",
        modules,
        "float32",
        source,
        Transformer(blocks, hidden, sequence, positions=sequence),
    )


def _bert(blocks: int, hidden: int, vocabulary: int, sequence: int) -> Iterator[Module]:
    yield embedding("embeddings.word", vocabulary, hidden, split=True)
    yield embedding("embeddings.position", sequence, hidden)
    yield embedding("embeddings.token_type", 2, hidden)
    yield norm("embeddings.LayerNorm", hidden)
    for block in range(blocks):
        name = f"layer.{block}"
        for matrix in ("query", "key", "value"):
            yield columns(
                f"{name}.attention.{matrix}", hidden, hidden, sequence, block, "attention"
            )
        scores = 4.0 * sequence**2 * hidden
        yield rows(
            f"{name}.attention.output.dense",
            hidden,
            hidden,
            sequence,
            block,
            "attention",
            score_flops=scores,
        )
        yield norm(f"{name}.attention.output.LayerNorm", hidden, block)
        yield columns(f"{name}.intermediate", hidden, 4 * hidden, sequence, block, "mlp")
        yield rows(f"{name}.output.dense", 4 * hidden, hidden, sequence, block, "mlp")
        yield norm(f"{name}.output.LayerNorm", hidden, block)
    yield product("pooler", hidden, hidden, None)
    yield product("cls.transform.dense", hidden, hidden, sequence)
    yield norm("cls.transform.LayerNorm", hidden)
    # The matrix of the decoder is the embedding's; its bias is ready before the transform.
    bias = Tensor("bias", vocabulary, split=True)
    yield Module("cls.decoder", (bias,), 2.0 * vocabulary * hidden * sequence, part="output")
    yield product("cls.seq_relationship", hidden, 2, None)
