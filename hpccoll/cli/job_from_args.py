"""The job that a command line of ``hpccoll run`` describes."""

import argparse
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpccoll.cases.case import EXECUTORS, RUN_JOB, Case, Effort, Job, Shape
from hpccoll.cases.input_keys import ALL, DEFAULT_ALGORITHMS, read_integer, read_number
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import RANKS
from hpccoll.common.units import parameter_sets, parse_parameter, size_range

if TYPE_CHECKING:
    from hpccoll.schedule import Layout


def job_from_args(arguments: argparse.Namespace, layout: "Layout") -> Job:
    """Return the job that the command line describes.

    Args:
        arguments: the parsed options.
        layout: the layout of the running ranks.

    Raises:
        BadInputError: if a size or number is invalid, or a variable of this process overrides a setting of NCCL's
            communicators.
    """
    from hpccoll.analysis.table import check_job_table

    if arguments.workload:
        from hpccoll.cli.workload_job import job_of_workloads as from_options
    else:
        from_options = _job_from_options
    job = Job.load(arguments.job) if arguments.job else from_options(arguments, layout)
    check_job_table(job.table)
    if job.communicator:
        from hpccoll.cases.communicator_settings import overridden_settings

        for setting, name in overridden_settings(os.environ, job.communicator):
            expected = f"unset: it would override {setting} of variant {job.variant}"
            raise BadInputError(f"{name} of this shell", os.environ[name], expected)
    return job


def _job_from_options(arguments: argparse.Namespace, launched: "Layout") -> Job:
    """Return the job that the options describe."""
    from hpccoll.analysis.resolve_auto import check_table_given
    from hpccoll.analysis.table import load_table
    from hpccoll.cases.catalogue import (
        algorithms_of,
        distinct_mappings,
        distinct_placements,
        distinct_transports,
        parameters_by_algorithm,
    )
    from hpccoll.cases.transport_table import check_timings, transports_by_device
    from hpccoll.schedule import collective

    family = collective(arguments.collective)
    sizes = _sizes(arguments)[:1] if family.token else _sizes(arguments)  # a barrier has one size
    op = arguments.op if family.has_op else None
    root = read_integer("-r", arguments.root or "0") if family.rooted or arguments.root else None
    layout = with_aggregators(arguments, launched)
    names = arguments.algorithms
    if names is None:
        names = DEFAULT_ALGORITHMS if arguments.collective == "all_reduce" else ALL
    algorithms = algorithms_of(family.name) if names == ALL else names.split(",")
    table = None if arguments.table is None else load_table(arguments.table, "--table")
    check_table_given("--table", arguments.table and str(arguments.table), algorithms)
    if arguments.in_place and not family.in_place:
        raise BadInputError(
            "--in-place",
            family.name,
            "left out: the contribution and the result of this collective have separate buffers",
        )
    mappings = arguments.mapping.split(",") if arguments.mapping else (None,)
    transports, timings = arguments.transport.split(","), arguments.timing.split(",")
    transports_by_device((arguments.device,), transports)
    check_timings("--timing", timings, transports)
    cases = (
        Case(
            collective=arguments.collective, algorithm=algorithm, transport=transport, device=arguments.device,
            dtype=arguments.dtype, op=op, bytes=size, in_place=in_place, root=root,
            params=_resolve_peer(params, layout.workers), mapping=mapping, timing=timing,
        )
        for parameters in parameter_sets(arguments.param)
        for algorithm, params in parameters_by_algorithm(family.name, algorithms, parameters)
        for transport in distinct_transports(family.name, algorithm, transports, arguments.device)
        for size in sizes
        for in_place in distinct_placements(family.name, algorithm, (True,) if arguments.in_place else (False, True))
        for mapping in distinct_mappings(family.name, algorithm, mappings)
        for timing in timings
    )  # fmt: skip
    unique = {case.id: case for case in cases}
    return Job(
        name=RUN_JOB, ranks=layout.workers, nodes=layout.nodes, aggregators=layout.aggregators,
        **variant_settings(arguments),
        seed=read_integer("--seed", arguments.seed), effort=effort_of(arguments), table=table,
        executor=executor_of(arguments.executor),
        cases=tuple(unique.values()),
    )  # fmt: skip


def with_aggregators(arguments: argparse.Namespace, launched: "Layout") -> "Layout":
    """Return the layout of the ranks; the last ranks are the requested aggregators.

    Raises:
        BadInputError: if no worker is left.
    """
    aggregators = read_integer("--aggregators", arguments.aggregators)
    if aggregators >= launched.ranks:
        raise BadInputError(
            "--aggregators", aggregators, f"at most {launched.ranks - 1}: at least one rank is a worker"
        )
    return replace(launched, aggregators=aggregators)


def executor_of(requested: str | None) -> str | None:
    if requested not in (*EXECUTORS, None):
        raise BadInputError("--executor", requested, EXECUTORS)
    return requested


def _resolve_peer(params: dict[str, int | str], workers: int) -> dict[str, int | str]:
    """Return the parameters with a negative ``peer`` resolved: -1 is the last rank."""
    peer = params.get("peer")
    return {**params, "peer": peer % workers} if isinstance(peer, int) and -workers <= peer < 0 else params


def variant_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the variant of a command line, its variables, and its settings of NCCL's communicators.

    Settings without --variant form a variant of their own, named after them, so that no row is mistaken for NCCL's
    defaults.

    Raises:
        BadInputError: if the variant or a setting is unknown, or a variable of the variant overrides a setting.
    """
    from hpccoll.cases.communicator_settings import overridden_settings
    from hpccoll.cases.variants import named_variants, variant_communicator

    if arguments.variant is not None and arguments.variant not in named_variants():
        raise BadInputError("--variant", arguments.variant, named_variants())
    settings = dict(map(parse_parameter, arguments.communicator))
    environment = named_variants()[arguments.variant].environment if arguments.variant else {}
    communicator = variant_communicator(arguments.variant, settings, "--communicator")
    for setting, name in overridden_settings(environment, communicator):
        expected = f"no such setting with --variant {arguments.variant}, whose {name} would override it"
        raise BadInputError(f"--communicator.{setting}", communicator[setting], expected)
    return {
        "variant": arguments.variant or ",".join(arguments.communicator) or None,
        "environment": environment,
        "communicator": communicator,
    }


def parse_shape(text: str) -> Shape:
    found = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?:\+([0-9]{1,6}))?", text)
    nodes, per_node, aggregators = (int(number or 0) for number in found.groups()) if found else (0, 0, 0)
    if not 0 < nodes * per_node <= RANKS.maximum:
        expected = f"NODESxRANKS_PER_NODE, such as 4x2, or 1x4+1 with an aggregator; at most {RANKS.maximum} ranks"
        raise BadInputError("--shape", text, expected)
    return Shape(nodes, nodes * per_node, aggregators)


def _sizes(arguments: argparse.Namespace) -> list[int]:
    return size_range(arguments.begin, arguments.end, read_integer("-f", arguments.factor))


def effort_of(arguments: argparse.Namespace) -> Effort:
    warmup, rounds = read_integer("-w", arguments.warmup), read_integer("--rounds", arguments.rounds)
    seconds, timeout = read_number("--seconds", arguments.seconds), read_number("--timeout", arguments.timeout)
    operations = read_integer("--operations", arguments.operations)
    if arguments.iterations is None:
        return Effort(warmup=warmup, seconds=seconds, timeout=timeout, rounds=rounds, operations=operations)
    n = read_integer("-n", arguments.iterations)
    return Effort(
        warmup=warmup, min_iterations=n, max_iterations=n, timeout=timeout, rounds=rounds, operations=operations
    )
