"""Compressed gradients: the operations that synchronise a bucket, codecs and collectives in turn.

A bucket of n gradients in float32 on p ranks becomes a chain of operations, each after the one
before it:

| compression | operations |
| --- | --- |
| fp16, bf16 | encode; all-reduce of n elements of the type; decode |
| fp8_e4m3, fp8_e5m2 | scale: the largest magnitude; all-reduce of it (max); encode; all-to-all of n bytes; sum: the parts of all ranks in float32, encoded anew with a scale of their own; all-gather of n bytes and the p scales; decode |
| topk=1% | select: the k = ceil(n/100) gradients of largest magnitude; all-gather of their positions and values, 8 p k bytes; add |

Ranks divide their gradients by p before they encode them, so that sums stay within the range of the
type. An all-reduce in fp16 or bf16 rounds at each hop; sums of fp8 are in float32, because three
bits of mantissa do not survive hops. What top-k gathers grows with p: a ring all-reduce moves 8 n
(p - 1) / p bytes through a port, this one 8 k (p - 1), so that it pays below p = n / k only. With
*feedback* each rank adds what its last message left out to its next gradients.

P. Micikevicius et al.: FP8 formats for deep learning, arXiv:2209.05433 (2022); A. Aji, K. Heafield:
Sparse communication for distributed gradient descent, EMNLP (2017), for top-k with residuals; S. P.
Karimireddy et al.: Error feedback fixes SignSGD and other gradient compression schemes, ICML
(2019).
"""  # noqa: E501  a row of a table is one line

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hpccoll.extensions.steps.training.compression import TOP_K, Compression
from hpccoll.extensions.steps.training.step_program import CODEC, StepOperation

WORD = 4
"""Messages of bytes are padded to the size of an int32, the type in which they move; a float32 has as many bytes."""


def compressed(bucket: StepOperation, compression: Compression, ranks: int) -> list[StepOperation]:
    """Return the chain that stands for the all-reduce of a bucket of float32 on ``ranks`` ranks."""
    return list(CHAINS[compression.name](compression, bucket, ranks))


def part_bytes(elements: int, ranks: int) -> int:
    """Return the bytes of fp8 that each of ``ranks`` ranks sums of ``elements`` gradients, padded to whole words."""
    return -(-elements // (ranks * WORD)) * WORD


def _codec(bucket: StepOperation, work: str, nbytes: int) -> StepOperation:
    return replace(
        bucket, label=f"{bucket.label} {work}", collective=CODEC, nbytes=nbytes, codec=work
    )


def _cast(dtype: str) -> "Operations":
    def operations(_: Compression, bucket: StepOperation, ranks: int) -> Iterator[StepOperation]:  # noqa: ARG001  as others
        yield _codec(bucket, "encode", bucket.nbytes)
        yield replace(bucket, nbytes=bucket.nbytes // 2, dtype=dtype, op="sum")
        yield _codec(bucket, "decode", bucket.nbytes)

    return operations


def _fp8(_: Compression, bucket: StepOperation, ranks: int) -> Iterator[StepOperation]:
    part = part_bytes(bucket.nbytes // WORD, ranks)
    yield _codec(bucket, "scale", bucket.nbytes)
    yield replace(bucket, label=f"{bucket.label} scale", nbytes=WORD, op="max")
    yield _codec(bucket, "encode", bucket.nbytes)
    yield replace(
        bucket,
        label=f"{bucket.label} parts",
        collective="all_to_all",
        nbytes=ranks * part,
        dtype="int32",
    )
    yield _codec(bucket, "sum", bucket.nbytes)
    yield replace(
        bucket,
        label=f"{bucket.label} sums",
        collective="all_gather",
        nbytes=ranks * (part + WORD),
        dtype="int32",
    )
    yield _codec(bucket, "decode", bucket.nbytes)


def _top_k(compression: Compression, bucket: StepOperation, ranks: int) -> Iterator[StepOperation]:
    kept = 2 * WORD * compression.kept_of(bucket.nbytes // WORD)
    yield _codec(bucket, "select", bucket.nbytes)
    yield replace(
        bucket,
        label=f"{bucket.label} kept",
        collective="all_gather",
        nbytes=ranks * kept,
        dtype="int32",
    )
    yield _codec(bucket, "add", ranks * kept)  # to zeros, which the selection leaves


Operations = Callable[[Compression, StepOperation, int], Iterator[StepOperation]]

CHAINS: Mapping[str, Operations] = {
    "fp16": _cast("float16"),
    "bf16": _cast("bfloat16"),
    "fp8_e4m3": _fp8,
    "fp8_e5m2": _fp8,
    TOP_K: _top_k,
}
"""The chain of operations of each compression. A codec's bytes are those that it goes through once."""

MESSAGE_DTYPES: Mapping[str, tuple[str, ...]] = {
    "fp16": ("float16",),
    "bf16": ("bfloat16",),
    "fp8_e4m3": ("float32", "int32"),
    "fp8_e5m2": ("float32", "int32"),
    TOP_K: ("int32",),
}
"""The types in which the collectives of each compression move and add."""
