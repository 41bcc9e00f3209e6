"""The time of codecs in a predicted step: the bytes that each goes through, over its rate.

The rates are those of the first source that there is:

1. the rate that is asked for (``--codec-rate``), for all codecs;
2. the section ``codecs`` of a machine that was fitted to training steps with compression;
3. on GPUs, whose codecs do little but read and write memory: the rate of the memory over PASSES;
4. a core of a CPU, on which they were measured (``tests/benchmarks/codec_rates.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hpccoll.common.units import format_rate
from hpccoll.extensions.steps.training.compression import Compression
from hpccoll.extensions.steps.training.step_program import StepOperation
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound, Quantity
from hpccoll.schedule import Layout

FROM_MEMORY = 3
"""The bytes that a reduction moves for each byte of an operand: it reads two and writes one."""

REACHED = Quantity(value=0.9, low=0.73, high=1.34)
"""The part of the rate of a GPU's memory that kernels reach, by
results/golden/gpu-nvidia-h100-80gb-hbm3: our folds at 1 GiB; CUDA's copy; its copy of 16 MiB, which
are in the cache."""

PASSES: Mapping[str, Mapping[str, float]] = {
    "fp16": {"encode": 1.5, "decode": 1.5},  # four bytes are read and two written, or the reverse
    "bf16": {"encode": 1.5, "decode": 1.5},
    # one pass finds the scale, one writes a byte for every four; of the sum the parts are read for
    # their scale, and again to be written
    "fp8_e4m3": {"scale": 1.0, "encode": 1.25, "sum": 0.6, "decode": 1.25},
    "fp8_e5m2": {"scale": 1.0, "encode": 1.25, "sum": 0.6, "decode": 1.25},
    # PyTorch's multi-block top-k (TensorTopK.cu): a radix select of four digits of 8 bits, two
    # passes that gather, and one in which gradients become zero; each value that is added, 8 bytes
    # with its position, reads and writes a sector of 32 besides
    "topk": {"select": 7.0, "add": 9.0},
}
"""The bytes that codecs read and write on a GPU, over those that they go through once."""

FEEDBACK_PASSES = 2.0
"""What error feedback adds to the first of them: the residual is read and written."""

FIRST = "encode", "select"
"""The codecs that take up the residual of error feedback."""

CORE: Mapping[str, Mapping[str, float]] = {
    "fp16": {"encode": 0.68, "decode": 1.2},
    "fp16+feedback": {"encode": 0.39, "decode": 1.2},
    "bf16": {"encode": 2.1, "decode": 3.0},
    "bf16+feedback": {"encode": 1.1, "decode": 3.0},
    "fp8_e4m3": {"scale": 3.6, "encode": 1.0, "sum": 0.87, "decode": 1.9},
    "fp8_e4m3+feedback": {"scale": 2.2, "encode": 0.64, "sum": 0.6, "decode": 1.9},
    "fp8_e5m2": {"scale": 3.5, "encode": 1.0, "sum": 0.86, "decode": 1.9},
    "fp8_e5m2+feedback": {"scale": 2.2, "encode": 0.65, "sum": 0.61, "decode": 1.9},
    "topk": {"select": 0.63, "add": 0.17},
    "topk+feedback": {"select": 0.52, "add": 0.17},
}
"""The bytes that codecs go through in a second on a core of Intel Xeon at 2.5 GHz, of a virtual machine, in GB.

Those of topk are by CPU time beside other jobs, the best of 15 runs, at 1 %: of 0.1 to 10 % on 2 to
64 ranks ``select`` has 0.36 to 0.71, less the more is kept, and ``add`` 0.13 to 0.5, more the
closer together values lie."""


@dataclass(frozen=True, slots=True)
class CodecCosts:
    """The costs of the codecs of a compression."""

    rates: Mapping[str, Quantity]  # the bytes a second of each
    source: str  # where the rates come from, in words
    slowdown: float = 1.0  # how many times as long a codec takes because ranks share CPUs

    @classmethod
    def of(
        cls, machine: MachineFile, compression: Compression, layout: Layout, rate: float | None
    ) -> "CodecCosts":
        """Return the costs on a machine; ``rate`` is that of all codecs, in bytes a second, if it is known."""
        if rate:
            quantities = dict.fromkeys(PASSES[compression.name], Quantity(value=rate))
            return cls(quantities, f"codecs go through {format_rate(rate)}")
        measured = machine.codecs.get(compression.codec)
        if measured:
            rates = {work: section.bytes_per_s for work, section in measured.items()}
            return cls(rates, "codecs as measured", _slowdown(machine, layout))
        reduction = machine.reduction.get("float32")
        if machine.nccl and reduction:
            return cls._on_gpus(compression, FROM_MEMORY * reduction.bytes_per_s.value)
        return cls(
            {work: Quantity(value=1e9 * rate) for work, rate in CORE[compression.codec].items()},
            f"codecs of {compression.name} take as long as on a core of Intel Xeon at 2.5 GHz, in NumPy",
        )

    @classmethod
    def _on_gpus(cls, compression: Compression, memory: float) -> "CodecCosts":
        """Return the costs on GPUs whose memory reads and writes ``memory`` bytes a second."""
        passes = dict(PASSES[compression.name])
        if compression.feedback:
            for work in passes.keys() & set(FIRST):
                passes[work] += FEEDBACK_PASSES
        rates = {work: REACHED.times(memory / number) for work, number in passes.items()}
        numbers = ", ".join(f"{work} {number:g}" for work, number in passes.items())
        source = (
            f"codecs of {compression.name} read and write memory at 90 % (73 to 134 %) of its {format_rate(memory)}; "
            f"passes over their bytes: {numbers}; launches of kernels are not included"
        )
        return cls(rates, source)

    def seconds(self, operation: StepOperation, bound: Bound) -> float:
        """Return the seconds of a codec."""
        return (
            operation.nbytes * self.slowdown / self.rates[operation.codec].at(bound, is_rate=True)
        )


def _slowdown(machine: MachineFile, layout: Layout) -> float:
    """Return how many times as long a codec takes because ranks share CPUs."""
    cpus = machine.machine().cpus
    if cpus is None:
        return 1.0
    if cpus.of == "machine":
        ranks = layout.workers
    else:
        ranks = layout.ranks_per_node or 1
    return cpus.slowdown(ranks / cpus.cores)
