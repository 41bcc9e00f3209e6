"""The job that a command line of ``hpccoll train`` describes."""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpccoll.cases.case import RUN_JOB, Case, Job
from hpccoll.cases.input_keys import read_integer
from hpccoll.cli.job_from_args import effort_of, executor_of, variant_settings, with_aggregators
from hpccoll.cli.run_options import workload_flag
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import RANKS
from hpccoll.common.units import parameter_sets
from hpccoll.training.model_file import DTYPE, load_models, models_from_json
from hpccoll.training.models import MODELS
from hpccoll.training.workload import TRAINING_STEP, WORKLOAD, Workload

if TYPE_CHECKING:
    from hpccoll.schedule import Layout

DRY_RANKS = "8"
"""The default number of ranks of a dry run."""

WITH_COMMAS = "parallel"
"""The key whose values have commas: its option is repeated for several."""


def workloads_of(arguments: argparse.Namespace) -> tuple[list[Workload], dict[str, Any]]:
    """Return the workloads of a command line, and the content of the model files that they name.

    Raises:
        BadInputError: if a value is invalid.
    """
    DTYPE.check("-d", arguments.dtype)
    lists: dict[str, list[int | str]] = {}
    paths: list[Path] = []
    for name, key in WORKLOAD.items():
        given = getattr(arguments, name) or []
        texts = given if name == WITH_COMMAS else [text for each in given for text in each.split(",")]
        lists[name] = [key.read(workload_flag(name), text) for text in texts] or [key.default]
    for position, model in enumerate(lists["model"]):
        if model not in MODELS and Path(str(model)).suffix:
            paths.append(Path(str(model)))
            lists["model"][position] = paths[-1].stem
    models: dict[str, Any] = {}
    if paths:
        from hpccoll.common.yaml_model import load_plain_yaml

        models = load_models(paths, "--model", load_plain_yaml)
    combined = [Workload.of(dict(zip(lists, values, strict=True))) for values in product(*lists.values())]
    shapes = models_from_json(models)
    for workload in combined:
        workload.shape(shapes)  # raises an error if the model does not exist
    return list(dict.fromkeys(combined)), models


def requested_algorithms(arguments: argparse.Namespace) -> list[str]:
    """Return the algorithms of a command line.

    Raises:
        BadInputError: if all-reduce has no algorithm of such a name.
    """
    from hpccoll.cases.catalogue import algorithms_of, check_algorithm
    from hpccoll.cases.input_keys import ALL

    names = arguments.algorithms
    algorithms = list(algorithms_of(TRAINING_STEP)) if names == ALL else names.split(",")
    for algorithm in algorithms:
        check_algorithm(algorithm, [TRAINING_STEP])
    return algorithms


def job_of_workloads(arguments: argparse.Namespace, launched: "Layout") -> Job:
    """Return the job that the options describe."""
    from hpccoll.analysis.resolve_auto import check_table_given
    from hpccoll.analysis.table import load_table
    from hpccoll.cases.catalogue import distinct_mappings, distinct_transports, known_parameters

    for option, value in (("--json", arguments.json), ("--ranks", arguments.ranks)):
        if value:
            raise UnusableError(option, "with --dry-run only")
    found, models = workloads_of(arguments)
    layout = with_aggregators(arguments, launched)
    algorithms = requested_algorithms(arguments)
    table = None if arguments.table is None else load_table(arguments.table, "--table")
    check_table_given("--table", arguments.table and str(arguments.table), algorithms)
    combinations = parameter_sets(arguments.param)
    own = {each: set(known_parameters(TRAINING_STEP, each)) - {*WORKLOAD} for each in algorithms}
    every = set().union(*own.values())
    if unknown := next((name for name in combinations[0] if name not in every), None):
        raise BadInputError("parameter", unknown, sorted(every))
    mappings = arguments.mapping.split(",") if arguments.mapping else (None,)
    shapes = models_from_json(models)
    cases = (
        Case(
            collective=TRAINING_STEP, algorithm=algorithm, transport=transport, device=arguments.device,
            dtype=arguments.dtype, op=arguments.op, bytes=workload.gradient_bytes(arguments.dtype, shapes),
            in_place=True, mapping=mapping,
            params=workload.params | {name: value for name, value in parameters.items() if name in own[algorithm]},
        )
        for workload in found
        for parameters in combinations
        for algorithm in algorithms
        for transport in distinct_transports(TRAINING_STEP, algorithm, arguments.transport.split(","), arguments.device)
        for mapping in distinct_mappings(TRAINING_STEP, algorithm, mappings)
    )  # fmt: skip
    return Job(
        name=RUN_JOB, ranks=layout.workers, nodes=layout.nodes, aggregators=layout.aggregators,
        **variant_settings(arguments),
        seed=read_integer("--seed", arguments.seed), effort=effort_of(arguments), table=table,
        executor=executor_of(arguments.executor), models=models,
        cases=tuple({case.id: case for case in cases}.values()),
    )  # fmt: skip


def print_dry_run(arguments: argparse.Namespace) -> int:
    """Print the tensors, buckets and operations of each workload; nothing runs, and MPI does not start."""
    from hpccoll.training.dry_run import dry_run_json, dry_run_lines

    found, models = workloads_of(arguments)
    requested_algorithms(arguments)
    ranks, shapes = RANKS.read("--ranks", arguments.ranks or DRY_RANKS), models_from_json(models)
    if arguments.json:
        made = [dry_run_json(workload, ranks, arguments.dtype, shapes) for workload in found]
        lines = [json.dumps(made[0] if len(made) == 1 else made, indent=1)]
    else:
        lines = [line for workload in found for line in dry_run_lines(workload, ranks, arguments.dtype, shapes)]
    print(*lines, sep="\n")
    return 0
