"""The shape of a model: its parameter tensors, module by module, and what a forward pass through each module computes.

A tensor-parallel group divides the tensors that are ``split``; an expert-parallel group divides the experts; a pipeline
divides the blocks. FLOPs count a multiplication and an addition as two operations, and of a forward
pass only the products of matrices and the convolutions, as is customary: D. Narayanan et al.: Efficient large-scale
language model training on GPU clusters using Megatron-LM, SC (2021), appendix.
"""

from dataclasses import dataclass, replace
from functools import cached_property

BACKWARD_OVER_FORWARD = 2
"""FLOPs of a backward pass over those of the forward pass: it has a product for the input and one for the weights."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter of a model, and so a gradient.

    Args:
        name: the name within its module, such as ``weight``.
        elements: the number of elements.
        split: whether tensor parallelism divides it.
    """

    name: str
    elements: int
    split: bool = False


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a model, such as a convolution: its gradients are ready when its backward pass ends.

    Args:
        name: the name of the module, such as ``layer1.0.conv1``.
        tensors: its tensors, in the order of a framework's parameter list.
        forward_flops: FLOPs of the forward pass of one sample.
        block: the number of the block of a pipeline that it belongs to; None for what is before or after all blocks.
        part: the part of a transformer that tensor parallelism divides: ``embedding``, ``attention``, ``mlp``,
            ``experts`` or ``output``; empty for what every rank computes.
        weight_first: whether its weight is ready before its bias, as of norms and convolutions in PyTorch.
        expert: the number of the expert that it belongs to; expert parallelism divides the experts.
    """

    name: str
    tensors: tuple[Tensor, ...]
    forward_flops: float = 0.0
    block: int | None = None
    part: str = ""
    weight_first: bool = False
    expert: int | None = None

    @property
    def ready(self) -> tuple[Tensor, ...]:
        """The tensors in the order in which their gradients become ready."""
        return self.tensors if self.weight_first else self.tensors[::-1]


@dataclass(frozen=True, slots=True)
class Transformer:
    """What the parallelism of a transformer depends on.

    Args:
        blocks: the number of blocks.
        hidden: h, the elements of an activation of one token.
        sequence: s, the tokens of a sample.
        experts: the number of experts of a block; 0 without experts.
        routed: the experts that each token goes to.
    """

    blocks: int
    hidden: int
    sequence: int
    experts: int = 0
    routed: int = 0


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class ModelShape:
    """A model as its gradient tensors.

    Args:
        name: the name of the model.
        modules: its modules in forward order.
        dtype: the usual type of its gradients.
        sample: what a sample is, in words.
        transformer: what its parallelism depends on; None for other models.
        source: where the architecture parameters come from.
        scale: how many times smaller than the model its tensors are.
    """

    name: str
    modules: tuple[Module, ...]
    dtype: str
    sample: str
    source: str
    transformer: Transformer | None = None
    scale: int = 1

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in the order of a framework's parameter list, with full names."""
        return tuple(_named(module, tensor) for module in self.modules for tensor in module.tensors)

    @cached_property
    def ready(self) -> tuple[Tensor, ...]:
        """All tensors in the order in which a backward pass makes their gradients ready, with full names."""
        return tuple(_named(module, tensor) for module in reversed(self.modules) for tensor in module.ready)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def forward_flops(self) -> float:
        """FLOPs of a forward pass of one sample."""
        return sum(module.forward_flops for module in self.modules)


def _named(module: Module, tensor: Tensor) -> Tensor:
    return replace(tensor, name=f"{module.name}.{tensor.name}")


def scaled(model: ModelShape, factor: int) -> ModelShape:
    """Return a model with ``factor`` times fewer elements in each tensor, at least one, and as many fewer FLOPs.

    The number of tensors and their proportions stay, so that buckets whose limits are divided alike are those of the
    model, ``factor`` times smaller.
    """
    if factor == 1:
        return model
    modules = tuple(
        replace(
            module,
            tensors=tuple(replace(tensor, elements=max(1, tensor.elements // factor)) for tensor in module.tensors),
            forward_flops=module.forward_flops / factor,
        )
        for module in model.modules
    )
    return replace(model, modules=modules, scale=factor)
