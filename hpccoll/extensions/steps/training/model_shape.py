"""The shape of a model: its parameter tensors, module by module, and what a forward pass through each module computes.

A tensor-parallel group divides the tensors that are ``split``; an expert-parallel group divides the
experts; a pipeline divides the blocks. FLOPs count a multiplication and an addition as two
operations, and of a forward pass only the products of matrices and the convolutions, as is
customary: D. Narayanan et al.: Efficient large-scale language model training on GPU clusters using
Megatron-LM, SC (2021), appendix.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import IntegerRange

MAX_MODULES = 100_000
"""The most modules of a model: of an architecture with thousands of experts, or of a file."""

ELEMENTS = IntegerRange(1, 1 << 40)
"""The elements of a tensor of a user's own model, and of all its tensors."""

BACKWARD_OVER_FORWARD = 2
"""FLOPs of a backward pass over those of the forward pass: it has a product for the input and one for the weights."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter of a model, and so a gradient."""

    name: str  # the name within its module, such as ``weight``
    elements: int
    split: bool = False  # whether tensor parallelism divides it


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a model, such as a convolution: its gradients are ready when its backward pass ends."""

    name: str  # the name of the module, such as ``layer1.0.conv1``
    tensors: tuple[Tensor, ...]  # its tensors, in the order of a framework's parameter list
    forward_flops: float = 0.0  # FLOPs of the forward pass of one sample
    # the number of the block of a pipeline that it belongs to; None for what is before or after all
    # blocks
    block: int | None = None
    # the part of a transformer that tensor parallelism divides: ``embedding``, ``attention``,
    # ``mlp``, ``experts`` or ``output``; empty for what every rank computes
    part: str = ""
    # whether its weight is ready before its bias, as of norms and convolutions in PyTorch
    weight_first: bool = False
    # the number of the expert that it belongs to; expert parallelism divides the experts
    expert: int | None = None
    # the part of the FLOPs that grows with the square of the tokens of a sample
    score_flops: float = 0.0
    once: bool = False  # whether it runs once for a sample, however many tokens that has

    @property
    def ready(self) -> tuple[Tensor, ...]:
        """The tensors in the order in which their gradients become ready."""
        if self.weight_first:
            return self.tensors
        return self.tensors[::-1]


@dataclass(frozen=True, slots=True)
class Transformer:
    """What the parallelism of a transformer depends on."""

    blocks: int
    hidden: int  # h, the elements of an activation of one token
    sequence: int  # s, the tokens of a sample
    experts: int = 0  # the number of experts of a block; 0 without experts
    routed: int = 0  # the experts that each token goes to
    # the entries of its table of positions, the most tokens; None without a table
    positions: int | None = None


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class ModelShape:
    """A model as its gradient tensors."""

    name: str  # the name of the model
    modules: tuple[Module, ...]  # its modules in forward order
    dtype: str  # the usual type of its gradients
    sample: str  # what a sample is, in words
    source: str  # where the architecture parameters come from
    transformer: Transformer | None = None  # what its parallelism depends on; None for other models
    scale: int = 1  # how many times smaller than the model its tensors are

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in the order of a framework's parameter list, with full names."""
        return tuple(_named(module, tensor) for module in self.modules for tensor in module.tensors)

    @cached_property
    def ready(self) -> tuple[Tensor, ...]:
        """All tensors in the order in which a backward pass makes their gradients ready, with full names."""
        return tuple(
            _named(module, tensor) for module in reversed(self.modules) for tensor in module.ready
        )

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


def check_elements(model: ModelShape, key: str) -> None:
    """Check the number of parameters of a user's own model; BadInputError with ``key`` if it has none or too many."""
    if not ELEMENTS.accepts(model.parameters):
        valid = f"{ELEMENTS.minimum} to {ELEMENTS.maximum} together, the elements of all tensors"
        raise BadInputError(key, model.parameters, valid)


def scaled(model: ModelShape, factor: int) -> ModelShape:
    """Return a model with ``factor`` times fewer elements in each tensor, at least one, and as many fewer FLOPs.

    The number of tensors and their proportions stay, so that buckets whose limits are divided alike
    are those of the model, ``factor`` times smaller.
    """
    if factor == 1:
        return model
    modules = tuple(_scaled_module(module, factor) for module in model.modules)
    return replace(model, modules=modules, scale=factor)


def _scaled_module(module: Module, factor: int) -> Module:
    tensors = tuple(
        replace(tensor, elements=max(1, tensor.elements // factor)) for tensor in module.tensors
    )
    forward_flops = module.forward_flops / factor
    score_flops = module.score_flops / factor
    return replace(module, tensors=tensors, forward_flops=forward_flops, score_flops=score_flops)


def with_sequence(model: ModelShape, tokens: int | None) -> ModelShape:
    """Return a model whose samples have ``tokens`` tokens; without a number, the model.

    Raises:
        BadInputError: if the model is not a transformer, or has fewer positions.
    """
    if tokens is None:
        return model
    if model.transformer is None:
        raise BadInputError("sequence_length", tokens, f"a transformer, unlike {model.name}")
    positions = model.transformer.positions
    if positions is not None and tokens > positions:
        raise BadInputError(
            "sequence_length", tokens, f"at most {positions}, the positions that {model.name} has"
        )
    longer = tokens / model.transformer.sequence
    modules = tuple(
        module if module.once else _lengthened(module, longer) for module in model.modules
    )
    transformer = replace(model.transformer, sequence=tokens)
    return replace(model, modules=modules, transformer=transformer, sample=sequence_of(tokens))


def _lengthened(module: Module, longer: float) -> Module:
    """Return a module that passes ``longer`` times as many tokens."""
    return replace(
        module,
        forward_flops=module.forward_flops * longer + module.score_flops * longer * (longer - 1),
        score_flops=module.score_flops * longer**2,
    )


def sequence_of(tokens: int) -> str:
    """Return what a sample of a transformer is, in words."""
    return f"a sequence of {tokens} tokens"
