"""``hpccoll train``: its options, the training steps that they ask for, and the dry run."""

import argparse
import json
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from hpccoll.cases.keys import RUN_OPTIONS
from hpccoll.cases.product import CaseRequest
from hpccoll.cli.option_parser import MPIEXEC, OptionParser
from hpccoll.cli.run_options import build_parser, common_lists, parameters_of, split_words
from hpccoll.common.errors import UnusableError
from hpccoll.common.limits import FLAG, RANKS
from hpccoll.common.options import Option, OptionKind
from hpccoll.common.units import parameter_values
from hpccoll.extensions.steps.step_workload import distinct_steps
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.model_file import load_models, models_from_json
from hpccoll.extensions.steps.training.models.digits import DIGITS
from hpccoll.extensions.steps.training.step_keys import WORKLOAD, option

if TYPE_CHECKING:
    from hpccoll.schedule import Parameter

EXAMPLES = """\
Examples:
  mpiexec -n 2 hpccoll train --model resnet50 --scale 64
  mpiexec -n 4 hpccoll train --scale 16 --bucket 5M,25M --overlap 0,1
  mpiexec -n 2 hpccoll train --model digits --compress none,topk=1%
  hpccoll train --model gpt2 --dry-run --ranks 8

Every combination of values is measured. The algorithm null leaves out all
collectives and codecs: what others take longer is exposed communication.
"""

OWN_OPTIONS = (
    Option(("-a", "--algorithms"), "algorithms of all-reduce", "ring,native,null", metavar="A,.."),
)
DRY_RUN_OPTIONS = (
    Option(("--dry-run",), "tensors, buckets and operations of the step", kind="flag"),
    Option(("--ranks",), "with --dry-run: number of ranks", shown_default="8", metavar="N"),
    Option(("--json",), "with --dry-run: JSON output", kind="flag"),
)
DRY_RANKS = "8"

SHARED_FLAGS = {
    "-t",
    "--device",
    "-d",
    "-o",
    "-n",
    "-w",
    "--aggregators",
    "--mapping",
    "--table",
    "--param",
    "--variant",
    "--executor",
    "--seconds",
    "--timeout",
    "--rounds",
    "--seed",
    "--shape",
    "--hosts",
    "--exit-zero",
    "--out",
}
"""The options that it has in common with ``hpccoll run``."""

DRILL = "corrupt"
"""The key of a training step that only the help with all options has."""

WITH_COMMAS = "parallel"
"""The key of a training step whose values have commas: its option is repeated for several."""


class TrainCommand:
    """The command; each method does what that of ``cli.job_command.JobCommand`` says."""

    summary = "Measure training steps on the ranks of an MPI job."

    def build_parser(self) -> argparse.ArgumentParser:
        options = {}
        for name, key in WORKLOAD.items():
            kind: OptionKind = "switch" if key.kind is FLAG else "list"
            options[name] = Option((option(name),), key.help_text, metavar="V,..", kind=kind)
        drills = [options.pop(DRILL)]
        shared: dict[str, list[Option]] = {}
        for title, options_of_run in RUN_OPTIONS.items():
            shared[title] = [
                shared_option
                for shared_option in options_of_run
                if SHARED_FLAGS.intersection(shared_option.flags)
            ]
        groups = {
            "The step": [*options.values(), *OWN_OPTIONS],
            "Without measuring": DRY_RUN_OPTIONS,
            "Drills": drills,
            **shared,
        }
        parser = OptionParser(
            "train", self.summary, groups, ["Drills", *shared], _end(shared), launcher=MPIEXEC
        )
        defaults_of_run = vars(build_parser().parse_args([]))
        own_defaults = vars(parser.parse_args([]))
        parser.set_defaults(**{**defaults_of_run, **own_defaults, "command": self})
        return parser

    def request(self, arguments: argparse.Namespace) -> CaseRequest:
        for flag, value in (("--json", arguments.json), ("--ranks", arguments.ranks)):
            if value and not arguments.dry_run:
                raise UnusableError(flag, "with --dry-run only")
        lists: dict[str, list[Parameter]] = {}
        for name, key in WORKLOAD.items():
            texts = getattr(arguments, name) or []
            if name != WITH_COMMAS:
                texts = [value for text in texts for value in text.split(",")]
            lists[name] = [key.read(option(name), text) for text in texts] or [key.default]
        own_models = load_models(map(str, lists["model"]), "--model", _load_yaml)
        lists["model"] = [own_models.name_of(str(model)) for model in lists["model"]]
        algorithms = split_words(arguments.algorithms)
        request = CaseRequest(
            **common_lists(arguments),
            workloads={TRAINING_STEP: [lists]},
            models=own_models.contents,
            algorithms=algorithms,
            params=parameters_of(TRAINING_STEP, algorithms, parameter_values(arguments.param)),
        )
        shapes = models_from_json(own_models.contents)
        for _, step in distinct_steps([lists], request.dtypes, shapes):
            step.shape(shapes)  # raises an error if the model does not exist
        if DIGITS in lists["model"] and not arguments.dry_run:
            from hpccoll.extensions.steps.measure.digits_replica import digits_file

            digits_file()  # raises an error if there are no images
        return request

    def print_dry_run(self, arguments: argparse.Namespace) -> None:
        """Print the tensors, buckets and operations of each training step; nothing runs, and MPI does not start."""
        # few are dry runs
        from hpccoll.extensions.steps.render.step_dry_run import dry_run_json, dry_run_lines

        request = self.request(arguments)
        ranks = RANKS.read("--ranks", arguments.ranks or DRY_RANKS)
        shapes = models_from_json(request.models)
        steps = distinct_steps(request.workloads[TRAINING_STEP], request.dtypes, shapes)
        for dtype, step in steps:
            step.check_ranks(ranks, dtype, arguments.op, arguments.device)
        if not arguments.json:
            for dtype, step in steps:
                print(*dry_run_lines(step, ranks, dtype, shapes), sep="\n")
            return
        records = [dry_run_json(step, ranks, dtype, shapes) for dtype, step in steps]
        print(json.dumps(records[0] if len(records) == 1 else records, indent=1))


def _end(shared: dict[str, list[Option]]) -> str:
    """Return the last lines of the help."""
    titles = list(shared)[:-1]
    flags = []
    for title in titles:
        for shared_option in shared[title]:
            flags.append(shared_option.flags[0])
    further = fill(f"Further options, as of 'hpccoll run': {', '.join(flags)}", 80)
    return f"{further}\n\n{EXAMPLES}"


def _load_yaml(path: Path, key: str) -> Any:
    # it imports pydantic: only rank 0 reads files
    from hpccoll.common.yaml_model import load_plain_yaml

    return load_plain_yaml(path, key)


TRAIN = TrainCommand()
