"""Decoders of Llama's kind: Llama, Mistral, Mixtral, Qwen and DeepSeek, as Hugging Face's transformers builds them.

Each block has an RMS norm, attention, another norm, and a gated feed-forward network or experts.
What differs is data: how many heads share keys and values, which products have a bias, whether
queries and keys have norms, whether they come from products of low rank (DeepSeek-AI: DeepSeek-V2
(2024), section 2.1), and which blocks have experts.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention whose heads may share keys and values: grouped queries."""

    query: int  # the elements of the queries of a token: heads x elements of a head
    key_value: int  # the elements of its keys, and of its values
    input_bias: bool = False  # whether the products that make queries, keys and values have a bias
    output_bias: bool = False  # whether the product after attention has one
    head_norm: int = 0  # the elements of a head, if queries and keys have norms; 0 without norms

    def modules(self, name: str, hidden: int, tokens: int, block: int) -> Iterator[Module]:
        """Yield the modules of the attention of a block."""
        for matrix, width in (
            ("q_proj", self.query),
            ("k_proj", self.key_value),
            ("v_proj", self.key_value),
        ):
            yield columns(
                f"{name}.{matrix}", hidden, width, tokens, block, "attention", bias=self.input_bias
            )
        if self.head_norm:
            yield _head_norm(f"{name}.q_norm", self.head_norm, block)
            yield _head_norm(f"{name}.k_norm", self.head_norm, block)
        scores = 4.0 * tokens**2 * self.query
        yield rows(
            f"{name}.o_proj",
            self.query,
            hidden,
            tokens,
            block,
            "attention",
            bias=self.output_bias,
            score_flops=scores,
        )


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention whose queries, keys and values come from products of low rank (MLA)."""

    heads: int
    query_rank: int  # the rank of queries; 0: one product makes them
    key_value_rank: int  # the rank of keys and values
    unrotated: int  # the elements of a head of queries and keys without their position
    rotated: int  # those with it; of keys, all heads share them
    value: int  # the elements of a head of values
    # whether the products to the ranks, and the one after attention, have a bias
    bias: bool = False

    def modules(self, name: str, hidden: int, tokens: int, block: int) -> Iterator[Module]:
        """Yield the modules of the attention of a block; every tensor-parallel rank has the products to the ranks."""
        inside = tokens, block, "attention"
        query = self.heads * (self.unrotated + self.rotated)
        rank = self.key_value_rank
        if self.query_rank:
            yield product(f"{name}.q_a_proj", hidden, self.query_rank, *inside, bias=self.bias)
            yield _head_norm(f"{name}.q_a_layernorm", self.query_rank, block)
            yield columns(f"{name}.q_b_proj", self.query_rank, query, *inside, bias=False)
        else:
            yield columns(f"{name}.q_proj", hidden, query, *inside, bias=False)
        yield product(
            f"{name}.kv_a_proj_with_mqa", hidden, rank + self.rotated, *inside, bias=self.bias
        )
        yield _head_norm(f"{name}.kv_a_layernorm", rank, block)
        yield columns(
            f"{name}.kv_b_proj",
            rank,
            self.heads * (self.unrotated + self.value),
            *inside,
            bias=False,
        )
        values = self.heads * self.value
        scores = 2.0 * tokens**2 * (query + values)
        yield rows(f"{name}.o_proj", values, hidden, *inside, bias=self.bias, score_flops=scores)


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a block, each a feed-forward network."""

    number: int
    routed: int  # the experts that a token goes to
    width: int  # the width of an expert
    blocks: Collection[int]  # the numbers of the blocks that have experts
    shared: int = 0  # the width of the expert that every token goes to; 0 without one
    bias: bool = False  # whether the products of experts have a bias

    def modules(self, name: str, hidden: int, tokens: int, block: int) -> Iterator[Module]:
        """Yield the experts of a block; a bias that balances their load has no gradient and is left out."""
        yield product(f"{name}.gate", hidden, self.number, tokens, block, "experts", bias=False)
        share = self.routed / self.number  # of the tokens
        for expert in range(self.number):
            path = f"{name}.experts.{expert}"
            for module in _feed_forward(
                path, hidden, self.width, tokens, block, "experts", bias=self.bias
            ):
                yield replace(module, forward_flops=module.forward_flops * share, expert=expert)
        if self.shared:
            path = f"{name}.shared_experts"
            yield from _feed_forward(
                path, hidden, self.shared, tokens, block, "experts", bias=self.bias
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The shape of a decoder."""

    blocks: int
    hidden: int  # h, the elements of an activation of one token
    vocabulary: int
    sequence: int  # the tokens of a sample
    attention: Attention | LatentAttention
    feed_forward: int  # the width of the feed-forward network of blocks without experts
    feed_forward_bias: bool = False
    experts: Experts | None = None
    tied: bool = False  # whether the output matrix is the embedding

    def model(self, name: str, dtype: str, source: str) -> ModelShape:
        """Return the model as its modules."""
        about = Transformer(self.blocks, self.hidden, self.sequence)
        if self.experts and any(self._experts_by_block):
            about = replace(about, experts=self.experts.number, routed=self.experts.routed)
        return shape(name, self._modules(), dtype, source, about)

    @property
    def module_counts(self) -> list[int]:
        """The number of modules of each block; only one block of each kind is made to count them."""
        counts: dict[bool, int] = {}
        modules_by_block = []
        for block, has_experts in enumerate(self._experts_by_block):
            if has_experts not in counts:
                counts[has_experts] = len(list(self._block(block)))
            modules_by_block.append(counts[has_experts])
        return modules_by_block

    @property
    def _experts_by_block(self) -> list[bool]:
        return [
            self.experts is not None and block in self.experts.blocks
            for block in range(self.blocks)
        ]

    def _block(self, block: int) -> Iterator[Module]:
        name = f"layers.{block}"
        size = (self.hidden, self.sequence, block)
        yield from self.attention.modules(name, *size)
        if self.experts and block in self.experts.blocks:
            yield from self.experts.modules(name, *size)
        else:
            width = self.feed_forward
            bias = self.feed_forward_bias
            yield from _feed_forward(
                name, self.hidden, width, self.sequence, block, "mlp", bias=bias
            )
        yield norm(f"{name}.input_layernorm", self.hidden, block, bias=False)
        yield norm(f"{name}.post_attention_layernorm", self.hidden, block, bias=False)

    def _modules(self) -> Iterator[Module]:
        yield embedding("embed_tokens", self.vocabulary, self.hidden, split=True)
        for block in range(self.blocks):
            yield from self._block(block)
        yield norm("norm", self.hidden, bias=False)
        yield output("lm_head", self.hidden, self.vocabulary, self.sequence, tied=self.tied)


def _head_norm(name: str, elements: int, block: int) -> Module:
    """Return a norm inside of attention, which every tensor-parallel rank has."""
    return Module(name, (Tensor("weight", elements),), block=block, part="attention")


def _feed_forward(
    name: str, hidden: int, width: int, tokens: int, block: int, part: str, *, bias: bool = False
) -> Iterator[Module]:
    for matrix in ("gate_proj", "up_proj"):
        yield columns(f"{name}.{matrix}", hidden, width, tokens, block, part, bias=bias)
    yield rows(f"{name}.down_proj", width, hidden, tokens, block, part, bias=bias)


def llama(
    name: str,
    blocks: int,
    hidden: int,
    feed_forward: int,
    vocabulary: int,
    key_value: int | None = None,
    sequence: int = 4096,
) -> ModelShape:
    """Return a Llama; with grouped queries the width of keys and values is less than ``hidden``, the default."""
    decoder = Decoder(
        blocks=blocks,
        hidden=hidden,
        vocabulary=vocabulary,
        sequence=sequence,
        feed_forward=feed_forward,
        attention=Attention(hidden, key_value or hidden),
    )
    source = "H. Touvron et al.: Llama 2 (2023); A. Grattafiori et al.: The Llama 3 herd of models (2024)"
    return decoder.model(name, "bfloat16", source)


def mixtral_8x7b() -> ModelShape:
    """Return Mixtral 8x7B: two of eight experts for each token, 46,702,792,704 parameters."""
    decoder = Decoder(
        blocks=32,
        hidden=4096,
        vocabulary=32000,
        sequence=4096,
        feed_forward=14336,
        attention=Attention(4096, 1024),
        experts=Experts(8, 2, 14336, range(32)),
    )
    return decoder.model(
        "mixtral-8x7b", "bfloat16", "A. Jiang et al.: Mixtral of experts (2024), table 1"
    )
