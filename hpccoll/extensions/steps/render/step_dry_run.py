"""The dry run of a training step: the tensors, buckets and operations of a workload, as JSON and as text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, TypedDict

from hpccoll.common.errors import abbreviate
from hpccoll.common.json_schema import described
from hpccoll.common.text import Columns, join_ends, table_lines, table_of
from hpccoll.common.units import format_count
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.extensions.steps.training.model_shape import BACKWARD_OVER_FORWARD, ModelShape, Module
from hpccoll.extensions.steps.training.parallelism import Parallelism, StepDtypesJson
from hpccoll.extensions.steps.training.step_program import (
    BACKWARD,
    FORWARD,
    GradientBucket,
    StepOperation,
    StepProgram,
)
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.schedule import itemsize

MAX_ROWS = 18
"""The maximum number of rows of a printed table: of a longer one the middle is left out."""


class TensorJson(TypedDict):
    """A tensor of gradients."""

    name: str
    elements: int
    bytes: int


class StageJson(TypedDict):
    """A pipeline stage; bytes and FLOPs are those of a rank."""

    stage: int
    parameters: int
    buckets: int
    forward_flops: float
    backward_flops: float


class _OperationKeys(TypedDict):
    label: str
    collective: str
    group: str
    group_ranks: int
    bytes: int
    dtype: str
    phase: str


class StepOperationJson(_OperationKeys):
    """A collective of a rank of a pipeline stage."""

    stage: int


class DryRunJson(StepDtypesJson):
    """What a step would do, as JSON has it."""

    model: str
    source: str
    scale: int
    parameters: int
    sample: str
    forward_flops: float
    dtype: str
    compress: str
    gradient_bytes: int
    ranks: int
    parallel: str
    sharding: str
    micro_batches: int
    samples: int
    tensors: list[TensorJson]
    buckets: Annotated[list[int], described("bytes, in the order of their collectives")]
    stages: list[StageJson]
    operations: list[StepOperationJson]


def dry_run_json(
    workload: TrainingStep, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None
) -> DryRunJson:
    """Return what a step would do on ``workers`` ranks, as ``hpccoll train --dry-run --json`` prints it.

    The ``dtype`` is that of what has no type of its own, ``models`` are the user's own by name.

    Returns:
        ``tensors`` in the order of the parameter list, ``buckets`` in bytes, in the order of their
        collectives, and ``operations`` in the order in which a rank of each pipeline stage starts
        them; bytes and FLOPs are those of a rank, but ``forward_flops`` is that of a sample of the
        whole model.
    """
    model = workload.shape(models)
    parallelism = workload.parallelism(workers, dtype)
    programs = workload.programs(workers, dtype, models)
    dtypes = workload.dtypes(dtype)
    element_bytes = itemsize(dtypes.gradient)
    tensors: list[TensorJson] = [
        {"name": tensor.name, "elements": tensor.elements, "bytes": tensor.elements * element_bytes}
        for tensor in model.tensors
    ]
    buckets = [
        bucket.elements * element_bytes for program in programs for bucket in program.buckets
    ]
    operations: list[StepOperationJson] = []
    for program in programs:
        for operation in program.operations:
            keys = _operation_json(operation, parallelism)
            operations.append({"stage": program.stage, **keys})
    return {
        "model": model.name,
        "source": model.source,
        "scale": model.scale,
        "parameters": model.parameters,
        "sample": model.sample,
        "forward_flops": model.forward_flops,
        "dtype": dtypes.gradient,
        **dtypes.keys,
        "compress": workload.compress,
        "gradient_bytes": model.parameters * element_bytes,
        "ranks": workers,
        "parallel": parallelism.mesh.text,
        "sharding": parallelism.sharding,
        "micro_batches": parallelism.micro_batches,
        "samples": parallelism.samples,
        "tensors": tensors,
        "buckets": buckets,
        "stages": [_stage_json(program) for program in programs],
        "operations": operations,
    }


def _stage_json(program: StepProgram) -> StageJson:
    return {
        "stage": program.stage,
        "parameters": program.model.parameters,
        "buckets": len(program.buckets),
        "forward_flops": program.flops(FORWARD),
        "backward_flops": program.flops(BACKWARD),
    }


def _operation_json(operation: StepOperation, parallelism: Parallelism) -> _OperationKeys:
    return {
        "label": operation.label,
        "collective": operation.collective,
        "group": operation.axis,
        "group_ranks": _group_ranks(operation, parallelism),
        "bytes": operation.nbytes,
        "dtype": operation.dtype,
        "phase": operation.phase,
    }


def _group_ranks(operation: StepOperation, parallelism: Parallelism) -> int:
    if operation.peer is not None:
        return 2
    return parallelism.mesh.size(operation.axis)


def dry_run_lines(
    workload: TrainingStep, workers: int, dtype: str, models: Mapping[str, ModelShape] | None = None
) -> Iterator[str]:
    """Yield the lines that ``hpccoll train --dry-run`` prints; the arguments are those of ``dry_run_json``."""
    parallelism = workload.parallelism(workers, dtype)
    programs = workload.programs(workers, dtype, models)
    gradient_dtype = workload.dtypes(dtype).gradient
    yield from _model_lines(workload.shape(models), gradient_dtype, workload.compress)
    yield ""
    yield from _bucket_lines(programs, parallelism, gradient_dtype)
    yield ""
    yield from _operation_lines(programs, parallelism)


def _model_lines(model: ModelShape, dtype: str, compress: str) -> Iterator[str]:
    smaller = ""
    if model.scale > 1:
        smaller = f", {model.scale} times smaller"
    parameters = format_count(f"{model.parameters:,}", "parameter")
    tensors = format_count(len(model.tensors), "tensor")
    gradient_bytes = model.parameters * itemsize(dtype)
    sent = "" if compress == DENSE else f", sent in {compress}"
    yield f"{model.name}{smaller}: {parameters} in {tensors}; {gradient_bytes:,} bytes of gradients in {dtype}{sent}"
    yield f"source: {model.source}"
    flops = model.forward_flops
    yield f"FLOPs of {model.sample}: {flops:.3g} forward, {BACKWARD_OVER_FORWARD * flops:.3g} backward"
    yield ""
    by_name = groupby(model.modules, lambda module: module.name.partition(".")[0])
    rows = [(name, list(modules)) for name, modules in by_name]
    yield from _shortened(table_lines(*table_of(_MODULES, rows), indent=""))


_MODULES: Columns[tuple[str, Sequence[Module]]] = (
    ("modules", lambda named: abbreviate(named[0], 26)),
    ("number", lambda named: len(named[1])),
    ("tensors", lambda named: sum(len(module.tensors) for module in named[1])),
    (
        "elements",
        lambda named: (
            f"{sum(tensor.elements for module in named[1] for tensor in module.tensors):,}"
        ),
    ),
    ("forward FLOPs", lambda named: f"{sum(module.forward_flops for module in named[1]):.3g}"),
)


def _bucket_lines(
    programs: Sequence[StepProgram], parallelism: Parallelism, dtype: str
) -> Iterator[str]:
    rule = "one for each block"
    if not parallelism.by_block:
        rule = f"rule {parallelism.buckets.framework}"
    yield f"buckets of gradients ({rule}), in the order of their collectives"
    element_bytes = itemsize(dtype)
    if len(programs) == 1:
        columns: Columns[GradientBucket] = (
            ("", lambda bucket: abbreviate(bucket.label, 22)),
            ("group", lambda bucket: bucket.axis),
            ("tensors", lambda bucket: len(bucket.tensors)),
            ("bytes", lambda bucket: f"{bucket.elements * element_bytes:,}"),
            ("first and last tensor", _end_tensors),
        )
        yield from _shortened(table_lines(*table_of(columns, programs[0].buckets), indent=""))
        return
    lines = [(_bucket_sizes(program, element_bytes),) for program in programs]
    for stages, (line,) in _alike(lines):
        yield f"{stages}: {line}"


def _end_tensors(bucket: GradientBucket) -> str:
    names = dict.fromkeys((bucket.tensors[0].name, bucket.tensors[-1].name))
    return " ... ".join(names)


def _bucket_sizes(program: StepProgram, element_bytes: int) -> str:
    """Return the number and the bytes of the buckets of a pipeline stage, in all and of the largest."""
    sizes = [bucket.elements * element_bytes for bucket in program.buckets]
    return f"{format_count(len(sizes), 'bucket')}, {sum(sizes):,} bytes, the largest {max(sizes, default=0):,}"


def _operation_lines(programs: Sequence[StepProgram], parallelism: Parallelism) -> Iterator[str]:
    ranks = format_count(parallelism.mesh.ranks, "rank")
    yield f"operations of a step on {ranks}, {parallelism.mesh.text}, by phase and group"
    for stages, lines in _alike(
        [tuple(_program_lines(program, parallelism)) for program in programs]
    ):
        if len(programs) > 1:
            yield f"{stages}:"
        yield from lines


def _program_lines(program: StepProgram, parallelism: Parallelism) -> Iterator[str]:
    flops = f"{program.flops(FORWARD):.3g} FLOPs forward, {program.flops(BACKWARD):.3g} backward"
    yield f"a rank computes {flops}"
    calls: dict[tuple[str, ...], Counter[int]] = {}
    for operation in program.operations:
        group_ranks = str(_group_ranks(operation, parallelism))
        key = (
            operation.phase,
            operation.axis,
            group_ranks,
            _operation_name(operation),
            operation.dtype,
        )
        calls.setdefault(key, Counter())[operation.nbytes] += 1
    yield from table_lines(*table_of(_CALLS, calls.items()), indent="")


def _operation_name(operation: StepOperation) -> str:
    if operation.codec:
        return operation.codec
    if operation.receives:
        return "receive"
    if operation.sends:
        return "send"
    return operation.collective


_CALLS: Columns[tuple[tuple[str, ...], Counter[int]]] = (
    ("phase", lambda call: call[0][0]),
    ("group", lambda call: call[0][1]),
    ("ranks", lambda call: call[0][2]),
    ("collective", lambda call: call[0][3]),
    ("dtype", lambda call: call[0][4]),
    ("calls", lambda call: call[1].total()),
    ("bytes", lambda call: f"{sum(nbytes * number for nbytes, number in call[1].items()):,}"),
    ("of a call", lambda call: join_ends(f"{nbytes:,}" for nbytes in sorted(call[1]))),
)


def _alike(lines_of_stages: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is said of each pipeline stage, once for consecutive stages that are alike, with their numbers."""
    first = 0
    for lines, alike in groupby(lines_of_stages):
        last = first + len(list(alike)) - 1
        if first == last:
            stages = f"stage {first}"
        else:
            stages = f"stages {first} to {last}"
        yield stages, lines
        first = last + 1


def _shortened(table: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a table; of a long one its beginning, how many rows are left out, and its end."""
    head, *rows = table
    left_out = len(rows) - MAX_ROWS
    if left_out > 0:
        end = MAX_ROWS // 3
        rows[MAX_ROWS - end : -end] = [f"... {left_out} more ..."]
    yield from (head, *rows)
