"""The options of ``hpccoll run`` and of commands like it: the parser, and the job that a command line describes.

hpccoll/cases/keys.py declares the options.
"""

import argparse
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpccoll.cases.case import AGGREGATED, EXECUTORS, RUN_JOB, SINGLE, Effort, Job, Parameter, Shape
from hpccoll.cases.keys import (
    ALL,
    DEFAULT_ALGORITHMS,
    FOR_THE_WORKFLOW,
    LARGEST,
    LARGEST_OVER_NCCL,
    RUN_OPTIONS,
    read_option,
)
from hpccoll.cli.option_parser import MPIEXEC, OptionParser
from hpccoll.common.errors import BadInputError, UnusableError, did_you_mean
from hpccoll.common.limits import MAX_CASES, RANKS
from hpccoll.common.units import parameter_values, parse_parameter, sizes_between

if TYPE_CHECKING:
    from hpccoll.cases.product import CaseRequest
    from hpccoll.cli.extension_commands import JobCommand
    from hpccoll.schedule import Layout

RUN_SUMMARY = "Measure collectives on the ranks of an MPI job."
RUN_END = """\
Examples:
  mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M
  mpiexec -n 4 hpccoll run -c all_gather -b 1M -e 1M --rounds 9 --out ring.h5

Every result is checked; native is the library's own call; 1K is 1024 bytes.
-b -e -f -d -o -n -w -r, and float, half and double, are those of nccl-tests;
-c, -a and -t are not: there they are check, average and threads.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = OptionParser(
        "run", RUN_SUMMARY, RUN_OPTIONS, (FOR_THE_WORKFLOW,), RUN_END, launcher=MPIEXEC
    )
    parser.set_defaults(command=None, dry_run=False)
    return parser


def job_from_args(arguments: argparse.Namespace, launched: "Layout") -> Job:
    """Return the job that the command line describes, for the layout of the running ranks.

    Raises:
        BadInputError: if a value is invalid, or a variable of this process overrides a setting of
            NCCL's communicators.
    """
    from hpccoll.analysis.choice_table import TuneTable
    from hpccoll.cases.catalogue import load_job

    if arguments.job:
        job = load_job(arguments.job, on_rank=True)
    else:
        job = _job_from_options(arguments, launched)
    if job.table is not None:
        TuneTable.from_json(job.table)  # refuses what is not a table
    if job.communicator:
        from hpccoll.cases.communicator_settings import overridden_settings

        for setting, name in overridden_settings(os.environ, job.communicator):
            expected = f"unset: it would override {setting} of variant {job.variant}"
            raise BadInputError(f"{name} of this shell", os.environ[name], expected)
    return job


def _job_from_options(arguments: argparse.Namespace, launched: "Layout") -> Job:
    from hpccoll.analysis.choice_table import check_table_given, load_table
    from hpccoll.cases.algorithm_files import file_paths, tables_of_cases
    from hpccoll.cases.catalogue import check_job
    from hpccoll.cases.product import count_cases, expand_cases

    aggregators = read_option("--aggregators", arguments.aggregators)
    if aggregators >= launched.ranks:
        expected = f"at most {launched.ranks - 1}: at least one rank is a worker"
        raise BadInputError("--aggregators", aggregators, expected)
    layout = replace(launched, aggregators=aggregators)
    command: JobCommand | None = arguments.command
    if command:
        request = command.request(arguments)
    else:
        request = _call_request(arguments, layout.workers)
    table = None
    if arguments.table is not None:
        table = load_table(arguments.table, "--table")
    check_table_given("--table", arguments.table and str(arguments.table), request.algorithms)
    if (count := count_cases(request, layout.workers)) > MAX_CASES:
        raise UnusableError("options", f"{count} cases; a job has at most {MAX_CASES}")
    if arguments.executor not in (*EXECUTORS, None):
        raise BadInputError("--executor", arguments.executor, EXECUTORS)
    cases = tuple(expand_cases(request, layout.workers))
    job = Job(
        name=RUN_JOB,
        ranks=layout.workers,
        nodes=layout.nodes,
        aggregators=layout.aggregators,
        **variant_settings(arguments),
        seed=read_option("--seed", arguments.seed),
        effort=_effort(arguments),
        table=table,
        executor=arguments.executor,
        models=request.models,
        plans=file_paths(cases),
        extensions=tables_of_cases(cases),
        named=request.named_beside_all,
        cases=cases,
    )
    check_job(job)
    return job


def _call_request(arguments: argparse.Namespace, workers: int) -> "CaseRequest":
    from hpccoll.cases.algorithm_files import with_files
    from hpccoll.cases.product import CaseRequest
    from hpccoll.cases.transport_table import check_timings, transports_by_device
    from hpccoll.schedule import collective

    family = collective(arguments.collective)
    root = read_option("-r", given_or_usual(arguments.root, "0"))
    if arguments.root and not family.rooted:
        raise BadInputError("root", root, f"none: {family.name} has no root")
    if arguments.in_place and not family.in_place:
        expected = (
            "left out: the contribution and the result of this collective have separate buffers"
        )
        raise BadInputError("--in-place", family.name, expected)
    common = common_lists(arguments)
    timings = split_words(given_or_usual(arguments.timing, _default_timing(common["transports"])))
    largest = given_or_usual(arguments.end, _default_largest(common["transports"]))
    transports_by_device((arguments.device,), common["transports"])
    check_timings("--timing", timings, common["transports"])
    if family.name == "all_reduce":
        usual = DEFAULT_ALGORITHMS
    else:
        usual = ALL
    algorithms = with_files(split_words(given_or_usual(arguments.algorithms, usual)))
    parameters = parameter_values(arguments.param)
    calls = {name: parameters.pop(name, [default]) for name, default in family.arguments.items()}
    return CaseRequest(
        **common,
        collectives=[family.name],
        algorithms=algorithms,
        timings=timings,
        roots=[root],
        loads=split_words(arguments.load),
        sizes=sizes_between(arguments.begin, largest, read_option("-f", arguments.factor)),
        in_place=(True,) if arguments.in_place else (False, True),
        pairs=list(
            dict.fromkeys((root, _rank_from_end(peer, workers)) for peer in calls.get("peer", []))
        ),
        concurrent=calls.get("concurrent", []),
        traffic=calls.get("traffic", []),
        params=parameters_of(family.name, algorithms, parameters),
    )


def given_or_usual(value: str | None, usual: str) -> str:
    """Return what the user gave for an option, even if it is empty and thus refused, or what is usual without it."""
    return usual if value is None else value


def _default_timing(transports: list[str]) -> str:
    """Return how operations are timed: over all transports alike, back to back if all have that."""
    from hpccoll.cases.transport_table import TRANSPORTS

    for name in transports:
        if name not in TRANSPORTS or AGGREGATED not in TRANSPORTS[name].timings:
            return SINGLE
    return AGGREGATED


def _default_largest(transports: list[str]) -> str:
    if transports == ["nccl"]:
        return LARGEST_OVER_NCCL
    return LARGEST


def takes_sizes_that_fit(arguments: argparse.Namespace) -> bool:
    """Return whether the memory of the GPUs limits the sizes: over NCCL, if the user gives no largest size."""
    is_chosen = arguments.job or arguments.command or arguments.end is not None
    return not is_chosen and split_words(arguments.transport) == ["nccl"]


def common_lists(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a request that all commands have an option for."""
    from hpccoll.schedule import DTYPE

    return {
        "devices": [arguments.device],
        "transports": split_words(arguments.transport),
        "dtypes": [DTYPE.read("-d", arguments.dtype)],
        "ops": [arguments.op],
        "mappings": [None] if arguments.mapping is None else split_words(arguments.mapping),
    }


def parameters_of(
    name: str, entries: list[str], parameters: dict[str, list[Parameter]]
) -> dict[str, dict[str, list[Parameter]]]:
    """Return the parameters of each of the algorithms of a collective that entries select.

    Raises:
        BadInputError: if an entry selects nothing, or no algorithm has a parameter.
    """
    from hpccoll.cases.catalogue import parameters_by_algorithm
    from hpccoll.cases.product import check_algorithms, select_algorithms

    check_algorithms(entries, [name])
    return parameters_by_algorithm(name, select_algorithms(name, entries), parameters)


def _rank_from_end(rank: Parameter, ranks: int) -> Any:
    """Return a rank that may be counted from the end: -1 is the last one."""
    if isinstance(rank, int) and -ranks <= rank < 0:
        return rank % ranks
    return rank


def split_words(text: str) -> list[str]:
    """Return the words of a list with commas, each once."""
    return list(dict.fromkeys(text.split(",")))


def variant_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the variant of a command line, its variables, and its settings of NCCL's communicators.

    Settings without --variant form a variant of their own, named after them, so that no row is
    mistaken for NCCL's defaults.

    Raises:
        BadInputError: if the variant or a setting is unknown, or a variable of the variant
            overrides a setting.
    """
    if arguments.variant is None and not arguments.communicator:
        return {"variant": None, "environment": {}, "communicator": {}}
    from hpccoll.cases.communicator_settings import overridden_settings
    from hpccoll.cases.variants import named_variants, short_names, variant_communicator

    if arguments.variant is not None and arguments.variant not in named_variants():
        near = did_you_mean(arguments.variant, named_variants())
        raise BadInputError(
            "--variant", arguments.variant, f"{near}choose from {', '.join(short_names())}"
        )
    settings = dict(parse_parameter(text, "--communicator") for text in arguments.communicator)
    environment = named_variants()[arguments.variant].environment if arguments.variant else {}
    communicator = variant_communicator(arguments.variant, settings, "--communicator")
    for setting, name in overridden_settings(environment, communicator):
        expected = (
            f"no such setting with --variant {arguments.variant}, whose {name} would override it"
        )
        raise BadInputError(f"--communicator.{setting}", communicator[setting], expected)
    return {
        "variant": arguments.variant or ",".join(arguments.communicator) or None,
        "environment": environment,
        "communicator": communicator,
    }


def parse_shape(text: str) -> Shape:
    match = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?:\+([0-9]{1,6}))?", text)
    nodes, per_node, aggregators = (
        (int(number or 0) for number in match.groups()) if match else (0, 0, 0)
    )
    if not 0 < nodes * per_node <= RANKS.maximum:
        expected = f"NODESxRANKS_PER_NODE, such as 4x2, or 1x4+1 with an aggregator; at most {RANKS.maximum} ranks"
        raise BadInputError("--shape", text, expected)
    return Shape(nodes, nodes * per_node, aggregators)


def _effort(arguments: argparse.Namespace) -> Effort:
    effort = Effort(
        rounds=read_option("--rounds", arguments.rounds),
        seconds=read_option("--seconds", arguments.seconds),
        timeout=read_option("--timeout", arguments.timeout),
        operations=read_option("--operations", arguments.operations),
    )
    if arguments.warmup is not None:
        warmup = read_option("-w", arguments.warmup)
        effort = replace(effort, warmup=warmup, loop_warmup=warmup)
    if arguments.iterations is None:
        return effort
    n = read_option("-n", arguments.iterations)
    return replace(effort, min_iterations=n, max_iterations=n, loop_iterations=n)
