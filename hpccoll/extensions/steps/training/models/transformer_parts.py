"""The parts of transformers: products of matrices, norms, embeddings, and how tensor parallelism divides them.

With tensor parallelism, as Megatron-LM divides it, the first product of attention and of the
feed-forward network is divided by columns (its bias, too), the second by rows (its bias is not),
and the embedding by the vocabulary. A product of a matrix with n elements takes 2 n FLOPs a token;
the scores of attention and their product with the values take 4 s h FLOPs a token.
"""

from collections.abc import Iterable
from functools import partial

from hpccoll.extensions.steps.training.model_shape import (
    ModelShape,
    Module,
    Tensor,
    Transformer,
    sequence_of,
)


def product(
    name: str,
    inputs: int,
    outputs: int,
    tokens: int | None,
    block: int | None = None,
    part: str = "",
    *,
    bias: bool = True,
    split: str = "",
    score_flops: float = 0.0,
) -> Module:
    """Return a product whose weight is split by columns, by rows, or not; ``score_flops`` FLOPs of scores precede it.

    Without ``tokens`` it runs once for a sample.
    """
    weight = Tensor("weight", inputs * outputs, split=bool(split))
    tensors = (weight, Tensor("bias", outputs, split=split == "columns")) if bias else (weight,)
    flops = 2.0 * inputs * outputs * (tokens or 1) + score_flops
    return Module(name, tensors, flops, block, part, score_flops=score_flops, once=tokens is None)


columns, rows = partial(product, split="columns"), partial(product, split="rows")


def norm(name: str, hidden: int, block: int | None = None, *, bias: bool = True) -> Module:
    """Return a norm of ``hidden`` elements."""
    weight = Tensor("weight", hidden)
    tensors = (weight, Tensor("bias", hidden)) if bias else (weight,)
    return Module(name, tensors, block=block, weight_first=True)


def embedding(name: str, entries: int, hidden: int, *, split: bool = False) -> Module:
    """Return a table of ``entries`` rows; each token takes one."""
    weight = Tensor("weight", entries * hidden, split=split)
    return Module(name, (weight,), part="embedding" if split else "")


def output(name: str, hidden: int, vocabulary: int, tokens: int, *, tied: bool) -> Module:
    """Return the output layer of a language model; if ``tied``, its matrix is that of the embedding."""
    if tied:
        return Module(name, (), 2.0 * hidden * vocabulary * tokens, part="output")
    return columns(name, hidden, vocabulary, tokens, part="output", bias=False)


def shape(
    name: str, modules: Iterable[Module], dtype: str, source: str, transformer: Transformer
) -> ModelShape:
    """Return the shape of a transformer with the given modules."""
    return ModelShape(
        name, tuple(modules), dtype, sequence_of(transformer.sequence), source, transformer
    )
