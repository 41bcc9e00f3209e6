"""The dry run of a training step: the tensors, buckets and operations of a workload, as JSON and as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from hpccoll.common.errors import abbreviate
from hpccoll.common.units import format_count
from hpccoll.schedule import itemsize
from hpccoll.training.buckets import bucket_bytes
from hpccoll.training.model_shape import BACKWARD_OVER_FORWARD, ModelShape, Module
from hpccoll.training.parallelism import Parallelism
from hpccoll.training.step_program import BACKWARD, FORWARD, GradientBucket, StepOperation, StepProgram
from hpccoll.training.workload import Workload

MAX_ROWS = 18
"""The maximum number of rows of a printed table: of a longer one the middle is left out."""


def dry_run_json(
    workload: Workload, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None
) -> dict[str, Any]:
    """Return what a step would do on so many ranks, as ``hpccoll train --dry-run --json`` prints it.

    The ``dtype`` is that of gradients, ``models`` are the user's own by name.

    Returns:
        ``tensors`` in the order of the parameter list, ``buckets`` in bytes, in the order of their collectives, and
        ``operations`` in the order in which a rank of each pipeline stage starts them; bytes and FLOPs are those of a
        rank, but ``forward_flops`` is that of a sample of the whole model.
    """
    model, parallelism = workload.shape(models), workload.parallelism(workers, dtype)
    programs, size = workload.programs(workers, dtype, models), itemsize(dtype)
    return {
        "model": model.name, "source": model.source, "scale": model.scale, "parameters": model.parameters,
        "sample": model.sample, "forward_flops": model.forward_flops,
        "dtype": dtype, "gradient_bytes": model.parameters * size,
        "ranks": workers, "parallel": parallelism.mesh.text, "sharding": parallelism.sharding,
        "micro_batches": parallelism.micro_batches, "samples": parallelism.samples,
        "tensors": [
            {"name": tensor.name, "elements": tensor.elements, "bytes": tensor.elements * size}
            for tensor in model.tensors
        ],
        "buckets": [bucket_bytes(bucket.tensors, size) for program in programs for bucket in program.buckets],
        "stages": [
            {
                "stage": program.stage, "parameters": program.model.parameters, "buckets": len(program.buckets),
                "forward_flops": program.flops(FORWARD), "backward_flops": program.flops(BACKWARD),
            }
            for program in programs
        ],
        "operations": [
            {
                "stage": program.stage, "label": operation.label, "collective": operation.collective,
                "group": operation.axis, "group_ranks": _group_ranks(operation, parallelism),
                "bytes": operation.nbytes, "dtype": operation.dtype, "phase": operation.phase,
            }
            for program in programs
            for operation in program.operations
        ],
    }  # fmt: skip


def _group_ranks(operation: StepOperation, parallelism: Parallelism) -> int:
    return 2 if operation.peer is not None else parallelism.mesh.size(operation.axis)


def dry_run_lines(
    workload: Workload, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None
) -> Iterator[str]:
    """Yield the lines that ``hpccoll train --dry-run`` prints; the arguments are those of ``dry_run_json``."""
    model, parallelism = workload.shape(models), workload.parallelism(workers, dtype)
    programs = workload.programs(workers, dtype, models)
    yield from _model_lines(model, dtype)
    yield ""
    yield from _bucket_lines(programs, parallelism, dtype)
    yield ""
    yield from _operation_lines(programs, parallelism)


def _model_lines(model: ModelShape, dtype: str) -> Iterator[str]:
    smaller = f", {model.scale} times smaller" if model.scale > 1 else ""
    yield (
        f"{model.name}{smaller}: {format_count(f'{model.parameters:,}', 'parameter')} in "
        f"{format_count(len(model.tensors), 'tensor')}; {model.parameters * itemsize(dtype):,} bytes of gradients "
        f"in {dtype}"
    )
    yield f"source: {model.source}"
    flops = model.forward_flops
    yield f"FLOPs of {model.sample}: {flops:.3g} forward, {BACKWARD_OVER_FORWARD * flops:.3g} backward"
    yield ""
    yield f"{'modules':<28}{'number':>8}{'tensors':>9}{'elements':>18}{'forward FLOPs':>15}"
    by_name = groupby(model.modules, lambda module: module.name.partition(".")[0])
    yield from _shortened([_modules_line(name, [*each]) for name, each in by_name])


def _modules_line(name: str, modules: Sequence[Module]) -> str:
    tensors = [tensor for module in modules for tensor in module.tensors]
    elements = sum(tensor.elements for tensor in tensors)
    flops = sum(module.forward_flops for module in modules)
    return f"{abbreviate(name, 26):<28}{len(modules):>8}{len(tensors):>9}{elements:>18,}{flops:>15.3g}"


def _bucket_lines(programs: Sequence[StepProgram], parallelism: Parallelism, dtype: str) -> Iterator[str]:
    """Yield the buckets of a stage; of several stages only their numbers and bytes."""
    rule = "one for each block" if parallelism.by_block else f"rule {parallelism.buckets.framework}"
    yield f"buckets of gradients ({rule}), in the order of their collectives"
    if len(programs) == 1:
        yield f"{'':<24}{'group':<16}{'tensors':>7}{'bytes':>18}  first and last tensor"
        yield from _shortened([_bucket_line(bucket, dtype) for bucket in programs[0].buckets])
        return
    lines = [
        (f"{format_count(len(sizes), 'bucket')}, {sum(sizes):,} bytes, the largest {max(sizes, default=0):,}",)
        for sizes in ([bucket_bytes(each.tensors, itemsize(dtype)) for each in one.buckets] for one in programs)
    ]
    for stages, (line,) in _alike(lines):
        yield f"{stages}: {line}"


def _bucket_line(bucket: GradientBucket, dtype: str) -> str:
    first, last = bucket.tensors[0].name, bucket.tensors[-1].name
    nbytes = bucket_bytes(bucket.tensors, itemsize(dtype))
    names = f"{first}{f' ... {last}' * (first != last)}"
    return f"{abbreviate(bucket.label, 22):<24}{bucket.axis:<16}{len(bucket.tensors):>7}{nbytes:>18,}  {names}"


def _operation_lines(programs: Sequence[StepProgram], parallelism: Parallelism) -> Iterator[str]:
    ranks = format_count(parallelism.mesh.ranks, "rank")
    yield f"operations of a step on {ranks}, {parallelism.mesh.text}, by phase and group"
    yield f"{'phase':<10}{'group':<16}{'ranks':>7}  {'collective':<16}{'dtype':<10}{'calls':>7}{'bytes':>20}  of a call"
    for stages, lines in _alike([tuple(_program_lines(program, parallelism)) for program in programs]):
        if len(programs) > 1:
            yield f"{stages}:"
        yield from lines


def _program_lines(program: StepProgram, parallelism: Parallelism) -> Iterator[str]:
    flops = f"{program.flops(FORWARD):.3g} FLOPs forward, {program.flops(BACKWARD):.3g} backward"
    yield f"a rank computes {flops}"
    calls: dict[tuple[str, ...], Counter[int]] = {}
    for each in program.operations:
        name = "receive" if each.receives else ("send" if each.sends else each.collective)
        key = each.phase, each.axis, str(_group_ranks(each, parallelism)), name, each.dtype
        calls.setdefault(key, Counter())[each.nbytes] += 1
    for (phase, axis, size, name, dtype), sizes in calls.items():
        total = sum(nbytes * number for nbytes, number in sizes.items())
        least, most = min(sizes), max(sizes)
        each_call = f"{least:,}{f' to {most:,}' * (least < most)}"
        yield f"{phase:<10}{axis:<16}{size:>7}  {name:<16}{dtype:<10}{sizes.total():>7}{total:>20,}  {each_call}"


def _alike(of_stages: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is said of each pipeline stage, once for consecutive stages that are alike, with their numbers."""
    first = 0
    for lines, alike in groupby(of_stages):
        last = first + len([*alike]) - 1
        yield (f"stage {first}" if first == last else f"stages {first} to {last}"), lines
        first = last + 1


def _shortened(rows: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a table; of a long one its beginning, how many are left out, and its end."""
    if len(rows) <= MAX_ROWS:
        yield from rows
        return
    end = MAX_ROWS // 3
    yield from rows[: MAX_ROWS - end]
    yield f"... {len(rows) - MAX_ROWS} more ..."
    yield from rows[-end:]
