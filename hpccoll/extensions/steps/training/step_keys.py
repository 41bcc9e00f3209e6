"""The keys of a training step, for ``hpccoll train``, the section ``workloads`` of sweep files and ``predict step``.

Options of the command line are generated from the tables: ``--micro-batches`` is the key
``micro_batches``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpccoll.common import limits
from hpccoll.common.limits import (
    FLAG,
    IntegerRange,
    Kind,
    OneOfWords,
    PositiveNumber,
    PrintableText,
)
from hpccoll.common.quantities import BYTES, DURATION, RATE, TIMES, NumberWithUnit
from hpccoll.extensions.steps.training.buckets import FRAMEWORKS, BucketRule
from hpccoll.extensions.steps.training.compression import COMPRESSIONS, DENSE, Compression
from hpccoll.extensions.steps.training.parallelism import PER_STEP, SHARDINGS, Parallelism
from hpccoll.schedule import DTYPE

WAIT = "wait"
GEMM = "gemm"
NOTHING = "none"
COMPUTATIONS = WAIT, GEMM, NOTHING
"""How ranks compute: not at all, as a host whose accelerator computes; by products of matrices; or in no time."""


PEAK_FLOPS: Mapping[str, float] = {
    "v100": 125e12,
    "a100": 312e12,
    "h100": 989e12,
    "h200": 989e12,
    "b200": 2250e12,
    "mi300x": 1307e12,
}
"""Dense FLOPs a second of 16-bit products of matrices, by the data sheets of NVIDIA and AMD."""

GPU = OneOfWords((*PEAK_FLOPS,), tuple((name.upper(), name) for name in PEAK_FLOPS))
"""The GPUs whose peak is known; options also take them as vendors write them, such as H100."""

TOKENS = IntegerRange(1, 1 << 24)


@dataclass(frozen=True, slots=True)
class CompressionText(OneOfWords):
    """Names of compressions; that of top-k has the part that is kept: see ``Compression``."""

    def accepts(self, value: object) -> bool:
        return value == DENSE or (isinstance(value, str) and self.parse(value) == value)

    def parse(self, text: str) -> str:
        """Return the text as files have it: ``topk=1%`` of ``topk=0.01``; BadInputError if it is not a compression."""
        if text == DENSE:
            return text
        return Compression.parse(text).text


@dataclass(frozen=True, slots=True)
class StepKey:
    """A key of a training step."""

    help: str  # a noun phrase, with the default in brackets if it is not the value
    # the default; 0, an empty name and None stand for a default that depends on other keys
    default: Any
    kind: Kind[Any] | NumberWithUnit  # the valid values

    @property
    def help_text(self) -> str:
        """The help with the default in brackets."""
        says_default = "[" in self.help or self.default in (None, "") or self.kind is FLAG
        if says_default:
            return self.help
        return f"{self.help} [{self.default}]"

    def read(self, name: str, text: str) -> Any:
        """Parse a value; BadInputError if it is not valid."""
        return self.kind.read(name, text)

    def check(self, name: str, value: object) -> None:
        """Check a value; BadInputError if it is neither valid nor a default that depends on other keys."""
        if value != self.default or self.kind not in (BYTES, TOKENS, DTYPE):
            self.kind.check(name, value)


WORKLOAD: Mapping[str, StepKey] = {
    "model": StepKey("model of 'hpccoll list', a config.json, or F.yaml", "resnet50", PrintableText(minimum=1)),
    "scale": StepKey("divisor of tensors, activations and bucket limits", 1, IntegerRange(1, 1 << 20)),
    "compute": StepKey("computation: wait (idle, as a host whose GPU computes), "
                       "gemm (products of matrices), none", WAIT, OneOfWords(COMPUTATIONS)),
    "compute_us": StepKey(
        "with wait: microseconds that a rank computes for a micro-batch, a third of them forward", 30_000,
        IntegerRange(1, 3_600_000_000),
    ),
    "samples": StepKey("samples of a micro-batch of a data-parallel rank", 1, PER_STEP),
    "micro_batches": StepKey("micro-batches of a step, which synchronises once", 1, PER_STEP),
    "overlap": StepKey("1: gradients are synchronised during the backward pass; 0: after it", 1, FLAG),
    "buckets": StepKey(f"rule of buckets: {', '.join(FRAMEWORKS)}", "ddp", OneOfWords((*FRAMEWORKS,))),
    "bucket": StepKey("bytes of a bucket of the unscaled model [the rule's]", 0, BYTES),
    "first_bucket": StepKey("bytes of ddp's first bucket [1M; with --bucket those]", 0, BYTES),
    "parallel": StepKey("mesh of ranks: dp=4,tp=2,pp=2 [all data parallel]", "", PrintableText()),
    "sharding": StepKey(", ".join(SHARDINGS), "none", OneOfWords(SHARDINGS)),
    "sequence": StepKey("1: tensor-parallel ranks divide the sequence, too", 0, FLAG),
    "recompute": StepKey("1: the backward pass repeats the forward pass of blocks", 0, FLAG),
    "sequence_length": StepKey("tokens of a sample of a transformer [its own]", 0, TOKENS),
    "compress": StepKey("none, fp16, bf16, fp8_e4m3, fp8_e5m2, topk=1%", DENSE,
                        CompressionText((DENSE, *COMPRESSIONS))),
    "feedback": StepKey("1: what compression left out is added later", 0, FLAG),
    "gradient_dtype": StepKey("type in which gradients are summed [-d]", "", DTYPE),
    "parameter_dtype": StepKey("type in which parameters are gathered [-d]", "", DTYPE),
    "activation_dtype": StepKey("type of activations between ranks [-d]", "", DTYPE),
    "corrupt": StepKey("drill of digits, STEP:RANK: where a synchronised gradient is changed [nowhere]", "",
                       PrintableText()),
}  # fmt: skip
"""The keys of a step that is measured, the arguments of ``training_step``."""

_BOTH = (
    "parallel",
    "sharding",
    "buckets",
    "bucket",
    "samples",
    "micro_batches",
    "overlap",
    "sequence",
    "recompute",
    "sequence_length",
)
_DTYPES = "gradient_dtype", "parameter_dtype", "activation_dtype"

PREDICTED: Mapping[str, StepKey] = {
    "model": StepKey(WORKLOAD["model"].help, None, WORKLOAD["model"].kind),
    **{name: WORKLOAD[name] for name in _BOTH},
    "buckets": replace(WORKLOAD["buckets"], help="rule of buckets of 'hpccoll train --help'"),
    "ranks_per_node": StepKey("GPUs on each node [the machine's; with --params 1]", None, limits.RANKS_PER_NODE),
    "batch": StepKey("samples of a step on all GPUs, not of a micro-batch", None, TOKENS),
    "dtype": StepKey("type of all that moves [that of the model]", None, DTYPE),
    **{name: WORKLOAD[name] for name in _DTYPES},
    "gradient_dtype": replace(
        WORKLOAD["gradient_dtype"], help="type; --parameter-dtype, --activation-dtype, too [-d]"
    ),
    "compress": StepKey("fp16, bf16, fp8_e4m3, fp8_e5m2, topk=1%; --feedback", "", PrintableText()),
    "feedback": WORKLOAD["feedback"],
    "codec_rate": StepKey("bytes of float32 that codecs pass a second", None, PositiveNumber(1e18)),
    "algorithm": StepKey("algorithm [NCCL's or the fastest; of --params ring]", None, PrintableText()),
    "flops_rate": StepKey("FLOPs a second of a GPU while it computes", None, PositiveNumber(1e21)),
    "mfu": StepKey("fraction of the peak of the GPU, not --flops-rate", None, PositiveNumber(1.0)),
    "gpu": StepKey(f"that GPU: {', '.join(PEAK_FLOPS)}", None, GPU),
    "compute": StepKey("time that a GPU computes in a step, such as 430ms", None, DURATION),
    "step": StepKey("time of the whole step on the first --nodes: 1.9s", None, DURATION),
    "rate": StepKey("factor of all rates of the network: x2", None, TIMES),
}  # fmt: skip
"""The keys of a step that is predicted."""

WALL: Mapping[str, StepKey] = {
    "params": StepKey("parameters of the model, such as 7e9", None, PositiveNumber(1e18)),
    "gpus": StepKey("numbers of GPUs, such as 8-16384 [8, or --nodes]", None, PrintableText()),
    "rate": StepKey("network: x2; with --params the link: 400gbit", None, RATE),
    "node_rate": StepKey("rate between GPUs of a node, for hierarchical", None, RATE),
    "bytes_per_element": StepKey("bytes of a gradient", 2, IntegerRange(1, 16)),
    "latency": StepKey("latency of a message, such as 5us", 0.0, DURATION),
    "tokens": StepKey("tokens of a GPU in a step, with --flops-rate", None, PositiveNumber(1e18)),
}
"""The further keys of a step whose time closed formulas give."""


def parallelism_of(keys: Mapping[str, Any], **fields: Any) -> Parallelism:
    """Return how the model of a step is trained, of keys that both tables have; limits are divided as tensors are."""
    rule = BucketRule(
        keys["buckets"],
        keys["bucket"] or None,
        keys.get("first_bucket") or None,
        scale=keys.get("scale", 1),
    )
    text = keys.get("compress", DENSE)
    if text == DENSE:
        compression = None
    else:
        compression = Compression.parse(text, feedback=bool(keys.get("feedback")))
    return Parallelism(
        compression=compression,
        buckets=rule,
        sharding=keys["sharding"],
        sequence=bool(keys["sequence"]),
        overlap=bool(keys["overlap"]),
        micro_batches=keys["micro_batches"],
        samples=keys["samples"],
        recompute=bool(keys["recompute"]),
        **fields,
    )


def option(name: str) -> str:
    """Return the option of a key."""
    return f"--{name.replace('_', '-')}"
