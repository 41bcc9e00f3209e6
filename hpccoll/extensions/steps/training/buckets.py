"""Buckets: the gradients that one collective synchronises, as frameworks group them.

A *bucket* is a list of tensors in the order in which their gradients become ready. All frameworks
walk tensors in that order, about the reverse of the parameter list, and differ in when they close a
bucket:

- PyTorch's DDP (``ddp``) adds a tensor, and closes the bucket if it has reached its limit: buckets
  overshoot, and no tensor is divided. The first bucket has a limit of 1 MiB, unless the user gives
  a limit, and the others one of 25 MiB. The first iteration has one bucket of everything (``one``);
  after it the buckets are built anew, in the order in which gradients became ready. If DDP looks
  for unused parameters (``ddp_find_unused``) they are not: the limits apply to the parameter list,
  and the list of its buckets is reversed. It then adds an all-reduce of 4 bytes a tensor, left out
  here (torch/csrc/distributed/c10d/reducer.cpp, torch/nn/parallel/distributed.py, 2.15).
- Horovod fuses the gradients that are ready when its cycle of 1 ms begins, up to 128 MiB; a tensor
  that does not fit begins another bucket (horovod/common/operations.cc, controller.cc). Here
  gradients never wait for the cycle.
- Megatron-LM closes a bucket as DDP does, at the larger of 40 million parameters and a million for
  each data-parallel rank. Without overlap, and on all pipeline stages but the first, it has one
  bucket: see ``step_program``. Its distributed optimizer pads each tensor to 64 elements and each
  bucket to a multiple of the ranks and of 128, which is left out
  (megatron/core/distributed/distributed_data_parallel.py, param_and_grad_buffer.py).
- DeepSpeed closes a bucket before a tensor that would exceed 5e8 elements
  (deepspeed/runtime/zero/config.py, stage_1_and_2.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.model_shape import ModelShape, Tensor

MIB = 1 << 20
DDP_FIRST, DDP_LIMIT = MIB, 25 * MIB
HOROVOD_LIMIT = 128 * MIB
MEGATRON_ELEMENTS, MEGATRON_ELEMENTS_PER_RANK = 40_000_000, 1_000_000
DEEPSPEED_ELEMENTS = 500_000_000

Bucket = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class BucketRule:
    """When buckets are closed."""

    framework: str = "ddp"  # one of FRAMEWORKS
    limit: int | None = None  # the limit of a bucket in bytes [that of the framework]
    # of DDP, the limit of the first bucket [1 MiB; with a limit, that limit]
    first: int | None = None
    scale: int = 1  # a number by which all limits are divided, as the tensors of a scaled model are

    def __post_init__(self) -> None:
        if self.framework not in FRAMEWORKS:
            raise BadInputError("buckets", self.framework, FRAMEWORKS)
        for key, value in (("bucket", self.limit), ("first_bucket", self.first)):
            if value is not None and value < 1:
                raise BadInputError(key, value, "at least 1 byte")

    def buckets(self, model: ModelShape, itemsize: int, ranks: int = 1) -> list[Bucket]:
        """Return the buckets in the order of their collectives; the number of ranks matters to Megatron-LM."""
        return list(FRAMEWORKS[self.framework](self, model, itemsize, ranks))

    def limit_or(self, default: int) -> int:
        """Return the limit of a bucket in bytes, or the default, scaled."""
        return max(1, (self.limit or default) // self.scale)


def _ddp_limits(rule: BucketRule) -> tuple[int, int]:
    if rule.first:
        first = max(1, rule.first // rule.scale)
    else:
        first = rule.limit_or(DDP_FIRST)
    return first, rule.limit_or(DDP_LIMIT)


def _megatron_limit(rule: BucketRule, itemsize: int, ranks: int) -> int:
    return rule.limit_or(itemsize * max(MEGATRON_ELEMENTS, MEGATRON_ELEMENTS_PER_RANK * ranks))


def _reversed(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Return the last bucket first, and the last tensor of each first."""
    return [bucket[::-1] for bucket in reversed(list(buckets))]


FRAMEWORKS: Mapping[str, Callable[[BucketRule, ModelShape, int, int], Iterable[Bucket]]] = {
    "ddp": lambda rule, model, itemsize, _: closed_after(model.ready, itemsize, _ddp_limits(rule)),
    "ddp_find_unused": lambda rule, model, itemsize, _: _reversed(
        closed_after(model.tensors, itemsize, _ddp_limits(rule))
    ),
    "horovod": lambda rule, model, itemsize, _: closed_before(
        model.ready, itemsize, rule.limit_or(HOROVOD_LIMIT)
    ),
    "megatron": lambda rule, model, itemsize, ranks: closed_after(
        model.ready, itemsize, (_megatron_limit(rule, itemsize, ranks),)
    ),
    "deepspeed": lambda rule, model, itemsize, _: closed_before(
        model.ready, itemsize, rule.limit_or(itemsize * DEEPSPEED_ELEMENTS)
    ),
    "one": lambda _rule, model, _itemsize, _: [model.ready] if model.ready else [],
    "each": lambda _rule, model, _itemsize, _: ((tensor,) for tensor in model.ready),
}
"""The rules by name: the buckets of a model whose elements have ``itemsize`` bytes, on the number
of data-parallel ranks; ``one`` is a bucket of everything, ``each`` a bucket for each tensor."""


def closed_after(
    tensors: Iterable[Tensor], itemsize: int, limits: Sequence[int]
) -> Iterator[Bucket]:
    """Yield buckets that are closed after the tensor with which they reach their limit; the last limit repeats."""
    bucket: list[Tensor] = []
    nbytes = closed = 0
    for tensor in tensors:
        bucket.append(tensor)
        nbytes += tensor.elements * itemsize
        if nbytes >= limits[min(closed, len(limits) - 1)]:
            yield tuple(bucket)
            bucket, nbytes = [], 0
            closed += 1
    if bucket:
        yield tuple(bucket)


def closed_before(tensors: Iterable[Tensor], itemsize: int, limit: int) -> Iterator[Bucket]:
    """Yield buckets that are closed before the tensor with which they would exceed the limit."""
    bucket: list[Tensor] = []
    nbytes = 0
    for tensor in tensors:
        if bucket and nbytes + tensor.elements * itemsize > limit:
            yield tuple(bucket)
            bucket, nbytes = [], 0
        bucket.append(tensor)
        nbytes += tensor.elements * itemsize
    if bucket:
        yield tuple(bucket)
