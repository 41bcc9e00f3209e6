"""What is asked: the job that a command line describes."""

import argparse
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpccoll.errors import BadInputError
from hpccoll.limits import AGGREGATORS, FACTOR, ITERATIONS, RANK, RANKS, ROUNDS, SECONDS, SEED, WARMUP
from hpccoll.run.options import ALL, DEFAULT
from hpccoll.spec.case import Case, Effort, Job, Shape
from hpccoll.units import format_size, parse_parameter, parse_size

if TYPE_CHECKING:
    from hpccoll.schedule import Layout


def job_from_args(arguments: argparse.Namespace, there: "Layout") -> Job:
    """Return the job that the command line describes, for ranks that are there already.

    Raises:
        BadInputError: for sizes and numbers that make no sense, and where a variable of this process wins over what
            NCCL's communicators are to be made with.
    """
    from hpccoll.tuning.table import check_job_table

    job = Job.load(arguments.job) if arguments.job else _job_from_options(arguments, there)
    check_job_table(job.table)
    if job.communicator:
        from hpccoll.evidence.communicator_settings import overridden_settings

        for setting, name in overridden_settings(os.environ, job.communicator):
            expected = f"unset: it would win over {setting} of variant {job.variant}"
            raise BadInputError(f"{name} of this shell", os.environ[name], expected)
    return job


def _job_from_options(arguments: argparse.Namespace, there: "Layout") -> Job:
    """Return the job that the options describe."""
    from hpccoll.schedule import collective
    from hpccoll.spec.catalogue import (
        algorithms_of,
        distinct_mappings,
        distinct_placements,
        distinct_transports,
        parameters_by_algorithm,
    )
    from hpccoll.tuning.auto import check_table_given
    from hpccoll.tuning.table import load_table

    family = collective(arguments.collective)
    sizes = _sizes(arguments)[:1] if family.token else _sizes(arguments)  # a barrier's size is its own
    op = arguments.op if family.has_op else None
    root = RANK.read("-r", arguments.root or "0") if family.rooted or arguments.root else None
    aggregators = AGGREGATORS.read("--aggregators", arguments.aggregators)
    if aggregators >= there.ranks:
        raise BadInputError("--aggregators", aggregators, f"at most {there.ranks - 1}: at least one rank works")
    asked = arguments.algorithms
    if asked is None:
        asked = DEFAULT if arguments.collective == "all_reduce" else ALL
    algorithms = algorithms_of(family.name) if asked == ALL else asked.split(",")
    table = None if arguments.table is None else load_table(arguments.table, "--table")
    check_table_given("--table", arguments.table and str(arguments.table), algorithms)
    if arguments.in_place and not family.in_place:
        raise BadInputError("--in-place", family.name, "left out: its contribution and its result have a buffer each")
    layout = replace(there, aggregators=aggregators)
    parameters = dict(map(parse_parameter, arguments.param))
    mappings = arguments.mapping.split(",") if arguments.mapping else (None,)
    cases = (
        Case(
            collective=arguments.collective, algorithm=algorithm, transport=transport, device=arguments.device,
            dtype=arguments.dtype, op=op, bytes=size, in_place=in_place, root=root,
            params=_resolve_peer(params, layout.workers), mapping=mapping,
        )
        for algorithm, params in parameters_by_algorithm(family.name, algorithms, parameters)
        for transport in distinct_transports(family.name, algorithm, arguments.transport.split(","), arguments.device)
        for size in sizes
        for in_place in distinct_placements(family.name, algorithm, (True,) if arguments.in_place else (False, True))
        for mapping in distinct_mappings(family.name, algorithm, mappings)
    )  # fmt: skip
    once = {case.id: case for case in cases}
    return Job(
        name="run", ranks=layout.workers, nodes=layout.nodes, aggregators=aggregators,
        **variant_settings(arguments),
        seed=SEED.read("--seed", arguments.seed), effort=_effort(arguments), table=table, cases=tuple(once.values()),
    )  # fmt: skip


def _resolve_peer(params: dict[str, int | str], workers: int) -> dict[str, int | str]:
    """Return parameters with the peer by its number: -1 is the last rank."""
    peer = params.get("peer")
    return {**params, "peer": peer % workers} if isinstance(peer, int) and -workers <= peer < 0 else params


def variant_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the variant of a command line, its variables, and what it has NCCL's communicators made with.

    Settings without a variant are one by the name of what they say: no row goes as NCCL at its defaults.

    Raises:
        BadInputError: for one that there is not, for a setting that there is not, and for one over which a variable of
            the variant wins.
    """
    from hpccoll.evidence.communicator_settings import overridden_settings
    from hpccoll.evidence.variants import named_variants, variant_communicator

    if arguments.variant is not None and arguments.variant not in named_variants():
        raise BadInputError("--variant", arguments.variant, named_variants())
    settings = dict(map(parse_parameter, arguments.communicator))
    environment = named_variants()[arguments.variant].environment if arguments.variant else {}
    communicator = variant_communicator(arguments.variant, settings, "--communicator")
    for setting, name in overridden_settings(environment, communicator):
        expected = f"left out: {name} of {arguments.variant} would win over it"
        raise BadInputError(f"--communicator.{setting}", communicator[setting], expected)
    return {
        "variant": arguments.variant or ",".join(arguments.communicator) or None,
        "environment": environment,
        "communicator": communicator,
    }


def parse_shape(text: str) -> Shape:
    found = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?:\+([0-9]{1,6}))?", text)
    nodes, each, aggregators = (int(number or 0) for number in found.groups()) if found else (0, 0, 0)
    if not 0 < nodes * each <= RANKS.maximum:
        expected = f"nodes x ranks on each, such as 4x2, or 1x4+1 with an aggregator; at most {RANKS.maximum} ranks"
        raise BadInputError("--shape", text, expected)
    return Shape(nodes, nodes * each, aggregators)


def _sizes(arguments: argparse.Namespace) -> list[int]:
    begin, end = parse_size(arguments.begin, "-b"), parse_size(arguments.end, "-e")
    factor = FACTOR.read("-f", arguments.factor)
    if begin < 1:
        raise BadInputError("-b", arguments.begin, "at least one byte")
    if begin > end:
        raise BadInputError("-e", arguments.end, f"at least the first size, -b {format_size(begin)}")
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return sizes


def _effort(arguments: argparse.Namespace) -> Effort:
    warmup = WARMUP.read("-w", arguments.warmup)
    most, timeout = SECONDS.read("--seconds", arguments.seconds), SECONDS.read("--timeout", arguments.timeout)
    rounds = ROUNDS.read("--rounds", arguments.rounds)
    if arguments.iterations is None:
        return Effort(warmup=warmup, seconds=most, timeout=timeout, rounds=rounds)
    n = ITERATIONS.read("-n", arguments.iterations)
    return Effort(warmup=warmup, min_iterations=n, max_iterations=n, timeout=timeout, rounds=rounds)
