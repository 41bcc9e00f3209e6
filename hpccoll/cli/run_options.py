"""The options of ``hpccoll run`` and ``hpccoll train``: their parsers, and the job that a command line describes.

hpccoll/cases/keys.py declares the options.
"""

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from hpccoll.cases.case import AGGREGATED, EXECUTORS, RUN_JOB, SINGLE, Effort, Job, Parameter, Shape
from hpccoll.cases.keys import (
    ALL,
    DEFAULT_ALGORITHMS,
    DRY_RUN_OPTIONS,
    FOR_THE_WORKFLOW,
    LARGEST,
    LARGEST_OVER_NCCL,
    RUN_OPTIONS,
    TRAIN_FLAGS,
    TRAIN_OPTIONS,
    Option,
    read_option,
)
from hpccoll.cli.option_parser import OptionParser
from hpccoll.common.errors import BadInputError, UnusableError, did_you_mean
from hpccoll.common.limits import FLAG, MAX_CASES, RANKS
from hpccoll.common.units import parameter_values, parse_parameter, sizes_between

if TYPE_CHECKING:
    from hpccoll.cases.product import CaseRequest
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

TRAIN_SUMMARY = "Measure training steps on the ranks of an MPI job."
TRAIN_END = """\
Examples:
  mpiexec -n 2 hpccoll train --model resnet50 --scale 64
  mpiexec -n 4 hpccoll train --scale 16 --bucket 5M,25M --overlap 0,1
  mpiexec -n 2 hpccoll train --model digits --compress none,topk=1%
  hpccoll train --model gpt2 --dry-run --ranks 8

Every combination of values is measured. The algorithm null leaves out all
collectives and codecs: what others take longer is exposed communication.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = OptionParser("run", RUN_SUMMARY, RUN_OPTIONS, (FOR_THE_WORKFLOW,), RUN_END)
    parser.set_defaults(workload=None, dry_run=False)
    return parser


def build_train_parser() -> argparse.ArgumentParser:
    """Return the parser of ``hpccoll train``; what only ``hpccoll run`` has keeps its default."""
    # It imports NumPy, which 'hpccoll run --help' does not need.
    from hpccoll.extensions.steps.training.step_keys import (
        WORKLOAD,
        option,
    )

    keys = {
        name: Option((option(name),), key.help_text, metavar="V,..", kind="switch" if key.kind is FLAG else "list")
        for name, key in WORKLOAD.items()
    }
    drills = [keys.pop(DRILL)]
    shared = {
        title: [each for each in options if {*each.flags} & {*TRAIN_FLAGS}] for title, options in RUN_OPTIONS.items()
    }
    flags = (each.flags[0] for title in [*shared][:-1] for each in shared[title])
    end = fill(f"Further options, as of 'hpccoll run': {', '.join(flags)}", 80)
    groups = {
        "The step": [*keys.values(), *TRAIN_OPTIONS], "Without measuring": DRY_RUN_OPTIONS, "Drills": drills, **shared,
    }  # fmt: skip
    parser = OptionParser("train", TRAIN_SUMMARY, groups, ["Drills", *shared], f"{end}\n\n{TRAIN_END}")
    of_run, own = (vars(each.parse_args([])) for each in (build_parser(), parser))
    parser.set_defaults(**{**of_run, **own, "workload": True})
    return parser


def job_from_args(arguments: argparse.Namespace, launched: "Layout") -> Job:
    """Return the job that the command line describes, for the layout of the running ranks.

    Raises:
        BadInputError: if a value is invalid, or a variable of this process overrides a setting of NCCL's communicators.
    """
    from hpccoll.analysis.choice_table import TuneTable
    from hpccoll.cases.catalogue import load_job

    job = load_job(arguments.job, on_rank=True) if arguments.job else _job_from_options(arguments, launched)
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
    from hpccoll.extensions.steps.measure.digits_replica import digits_file
    from hpccoll.extensions.steps.training.models.digits import DIGITS

    aggregators = read_option("--aggregators", arguments.aggregators)
    if aggregators >= launched.ranks:
        expected = f"at most {launched.ranks - 1}: at least one rank is a worker"
        raise BadInputError("--aggregators", aggregators, expected)
    layout = replace(launched, aggregators=aggregators)
    request = train_request(arguments) if arguments.workload else _call_request(arguments, layout.workers)
    table = None if arguments.table is None else load_table(arguments.table, "--table")
    check_table_given("--table", arguments.table and str(arguments.table), request.algorithms)
    if (count := count_cases(request, layout.workers)) > MAX_CASES:
        raise UnusableError("options", f"{count} cases; a job has at most {MAX_CASES}")
    if arguments.executor not in (*EXECUTORS, None):
        raise BadInputError("--executor", arguments.executor, EXECUTORS)
    cases = tuple(expand_cases(request, layout.workers))
    job = Job(
        name=RUN_JOB, ranks=layout.workers, nodes=layout.nodes, aggregators=layout.aggregators,
        **variant_settings(arguments), seed=read_option("--seed", arguments.seed), effort=_effort(arguments),
        table=table, executor=arguments.executor, models=request.models, plans=file_paths(cases),
        extensions=tables_of_cases(cases), cases=cases,
    )  # fmt: skip
    check_job(job)
    if DIGITS in {case.params.get("model") for case in job.cases}:
        digits_file()  # raises an error if there are no images
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
        expected = "left out: the contribution and the result of this collective have separate buffers"
        raise BadInputError("--in-place", family.name, expected)
    common = _common_lists(arguments)
    timings = _words(given_or_usual(arguments.timing, _default_timing(common["transports"])))
    largest = given_or_usual(arguments.end, _default_largest(common["transports"]))
    transports_by_device((arguments.device,), common["transports"])
    check_timings("--timing", timings, common["transports"])
    usual = DEFAULT_ALGORITHMS if family.name == "all_reduce" else ALL
    algorithms = with_files(_words(given_or_usual(arguments.algorithms, usual)))
    given = parameter_values(arguments.param)
    calls = {name: given.pop(name, [default]) for name, default in family.arguments.items()}
    return CaseRequest(
        **common, collectives=[family.name], algorithms=algorithms, timings=timings, roots=[root],
        loads=_words(arguments.load),
        sizes=sizes_between(arguments.begin, largest, read_option("-f", arguments.factor)),
        in_place=(True,) if arguments.in_place else (False, True),
        pairs=list(dict.fromkeys((root, _rank_from_end(peer, workers)) for peer in calls.get("peer", []))),
        concurrent=calls.get("concurrent", []), traffic=calls.get("traffic", []),
        params=_parameters(family.name, algorithms, given),
    )  # fmt: skip


def given_or_usual(value: str | None, usual: str) -> str:
    """Return what the user gave for an option, even if it is empty and thus refused, or what is usual without it."""
    return usual if value is None else value


def _default_timing(transports: list[str]) -> str:
    """Return how operations are timed; beside another transport, NCCL's are timed as those of the other."""
    if transports == ["nccl"]:
        return AGGREGATED
    return SINGLE


def _default_largest(transports: list[str]) -> str:
    if transports == ["nccl"]:
        return LARGEST_OVER_NCCL
    return LARGEST


def takes_sizes_that_fit(arguments: argparse.Namespace) -> bool:
    """Return whether the memory of the GPUs limits the sizes: over NCCL, if the user gives no largest size."""
    is_chosen = arguments.job or arguments.workload or arguments.end is not None
    return not is_chosen and _words(arguments.transport) == ["nccl"]


def train_request(arguments: argparse.Namespace) -> "CaseRequest":
    """Return the request of ``hpccoll train``.

    Raises:
        BadInputError: if a value is invalid.
    """
    from hpccoll.cases.product import CaseRequest
    from hpccoll.extensions.steps.step_workload import distinct_steps
    from hpccoll.extensions.steps.training import TRAINING_STEP
    from hpccoll.extensions.steps.training.model_file import load_models, models_from_json
    from hpccoll.extensions.steps.training.step_keys import WORKLOAD, option

    for flag, value in (("--json", arguments.json), ("--ranks", arguments.ranks)):
        if value and not arguments.dry_run:
            raise UnusableError(flag, "with --dry-run only")
    lists: dict[str, list[Parameter]] = {}
    for name, key in WORKLOAD.items():
        given = getattr(arguments, name) or []
        texts = given if name == WITH_COMMAS else [text for each in given for text in each.split(",")]
        lists[name] = [key.read(option(name), text) for text in texts] or [key.default]
    own = load_models(map(str, lists["model"]), "--model", _load_yaml)
    lists["model"] = [own.name_of(str(model)) for model in lists["model"]]
    algorithms = _words(arguments.algorithms)
    request = CaseRequest(
        **_common_lists(arguments), workloads={TRAINING_STEP: [lists]}, models=own.contents, algorithms=algorithms,
        params=_parameters(TRAINING_STEP, algorithms, parameter_values(arguments.param)),
    )  # fmt: skip
    shapes = models_from_json(own.contents)
    for _, workload in distinct_steps([lists], request.dtypes, shapes):
        workload.shape(shapes)  # raises an error if the model does not exist
    return request


DRILL = "corrupt"
"""The key of a training step that only the help with all options has."""

WITH_COMMAS = "parallel"
"""The key of a training step whose values have commas: its option is repeated for several."""


def _load_yaml(path: Path, key: str) -> Any:
    from hpccoll.common.yaml_model import load_plain_yaml  # it imports pydantic: only rank 0 reads files

    return load_plain_yaml(path, key)


def _common_lists(arguments: argparse.Namespace) -> dict[str, Any]:
    from hpccoll.schedule import DTYPE

    return {
        "devices": [arguments.device], "transports": _words(arguments.transport),
        "dtypes": [DTYPE.read("-d", arguments.dtype)], "ops": [arguments.op],
        "mappings": [None] if arguments.mapping is None else _words(arguments.mapping),
    }  # fmt: skip


def _parameters(
    name: str, entries: list[str], given: dict[str, list[Parameter]]
) -> dict[str, dict[str, list[Parameter]]]:
    from hpccoll.cases.catalogue import parameters_by_algorithm
    from hpccoll.cases.product import check_algorithms, select_algorithms

    check_algorithms(entries, [name])
    return parameters_by_algorithm(name, select_algorithms(name, entries), given)


def _rank_from_end(rank: Parameter, ranks: int) -> Any:
    """Return a rank that may be counted from the end: -1 is the last one."""
    return rank % ranks if isinstance(rank, int) and -ranks <= rank < 0 else rank


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(text.split(",")))


def variant_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the variant of a command line, its variables, and its settings of NCCL's communicators.

    Settings without --variant form a variant of their own, named after them, so that no row is mistaken for NCCL's
    defaults.

    Raises:
        BadInputError: if the variant or a setting is unknown, or a variable of the variant overrides a setting.
    """
    if arguments.variant is None and not arguments.communicator:
        return {"variant": None, "environment": {}, "communicator": {}}
    from hpccoll.cases.communicator_settings import overridden_settings
    from hpccoll.cases.variants import named_variants, short_names, variant_communicator

    if arguments.variant is not None and arguments.variant not in named_variants():
        near = did_you_mean(arguments.variant, named_variants())
        raise BadInputError("--variant", arguments.variant, f"{near}choose from {', '.join(short_names())}")
    settings = dict(parse_parameter(text, "--communicator") for text in arguments.communicator)
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


def _effort(arguments: argparse.Namespace) -> Effort:
    effort = Effort(
        rounds=read_option("--rounds", arguments.rounds),
        seconds=read_option("--seconds", arguments.seconds), timeout=read_option("--timeout", arguments.timeout),
        operations=read_option("--operations", arguments.operations),
    )  # fmt: skip
    if arguments.warmup is not None:
        warmup = read_option("-w", arguments.warmup)
        effort = replace(effort, warmup=warmup, loop_warmup=warmup)
    if arguments.iterations is None:
        return effort
    n = read_option("-n", arguments.iterations)
    return replace(effort, min_iterations=n, max_iterations=n, loop_iterations=n)
