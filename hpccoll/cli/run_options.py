"""The parsers of ``hpccoll run`` and ``hpccoll train``; hpccoll/cases/keys.py declares the options."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

from hpccoll.cases.keys import NETWORKS, OPTION_BY_FLAG, RUN_OPTIONS, TRAIN_ALGORITHMS, TRAIN_FLAGS, Option
from hpccoll.common.errors import UnusableError, abbreviate, did_you_mean

EXAMPLES = """examples:
  mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M
  mpiexec -n 2 hpccoll run -a recursive_doubling,null -b 8 -e 1K -n 1000 --in-place
  mpiexec -n 4 hpccoll run -a ring,native -e 1M --rounds 9    # nine rounds instead of three, for a busy machine
  srun -N 4 -n 16 hpccoll run -a ring,native -b 1M -e 1G --param channels=8 --out ring.h5

Sizes are binary (1K is 1024 bytes), bandwidths are in GB/s of 1e9 bytes per second. Times are those of the slowest
rank. Every result is checked. The algorithm native is the library's own collective.
"""


TRAIN_EXAMPLES = """examples:
  hpccoll train --model gpt2 --dry-run --ranks 8
  mpiexec -n 2 hpccoll train --model resnet50 --scale 64
  mpiexec -n 4 hpccoll train --model resnet50 --scale 16 --bucket 5M,25M,100M --overlap 0,1 -a ring,hierarchical,null
  srun -N 4 -n 16 hpccoll train --model llama2-7b --scale 100 --parallel dp=4,tp=4 --out step.h5

A step is a forward and a backward pass, and the collectives between the ranks. With several values of an option, each
combination is measured. The algorithm null leaves collectives out: what others take longer is exposed communication.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = re.match(r"unrecognized arguments: --([\w-]+)", message)
        names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        near = did_you_mean(unknown[1], names).replace("mean ", "mean --") if unknown else ""
        raise UnusableError(self.prog, f"{message}: {near}see '{self.prog} --help'")


MAX_PATH_BYTES, MAX_NAME_BYTES = 4000, 200
"""The system's limits are 4096 and 255; the rest is for the suffixes of the files next to a raw file."""


def _path(text: str) -> Path:
    path = Path(text)
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    if len(os.fsencode(text)) > MAX_PATH_BYTES or any(len(os.fsencode(p)) > MAX_NAME_BYTES for p in path.parts):
        raise argparse.ArgumentTypeError(f"{abbreviate(text)} is too long for the name of a file")
    return path


def _argument(option: Option) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for an option."""
    about: dict[str, Any] = {"help": option.help_text.replace("%", "%%")}
    if option.kind == "flag":
        return {**about, "action": "store_true"}
    about |= {"metavar": option.metavar} if option.metavar else {}
    if option.kind == "list":
        return {**about, "action": "append", "default": []}
    about |= {"type": _path} if option.kind == "path" else {"default": option.default}
    return {**about, "choices": NETWORKS} if "--network" in option.flags else about


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "hpccoll run", description="Measure collectives on the ranks of an MPI job.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    for each in RUN_OPTIONS:
        parser.add_argument(*each.flags, **_argument(each))
    parser.set_defaults(workload=None, dry_run=False)
    return parser


def build_train_parser() -> argparse.ArgumentParser:
    """Return the parser of ``hpccoll train``; what only ``hpccoll run`` has keeps its default."""
    from hpccoll.training.step_keys import (  # it imports NumPy, which 'hpccoll run --help' does not need
        WORKLOAD,
        option,
    )

    parser = _Parser(
        "hpccoll train", description="Measure training steps on the ranks of an MPI job.", epilog=TRAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.set_defaults(**{**vars(build_parser().parse_args([])), "workload": True})
    for name, key in WORKLOAD.items():
        parser.add_argument(option(name), action="append", metavar="V,..", help=key.help_text.replace("%", "%%"))
    algorithms = f"comma-separated algorithms of all-reduce [{TRAIN_ALGORITHMS}]"
    parser.add_argument("-a", "--algorithms", default=TRAIN_ALGORITHMS, help=algorithms)
    for flag in TRAIN_FLAGS:
        parser.add_argument(*OPTION_BY_FLAG[flag].flags, **_argument(OPTION_BY_FLAG[flag]))
    parser.add_argument("--dry-run", action="store_true", help="no measurement: tensors, buckets and operations")
    parser.add_argument("--ranks", help="with --dry-run: number of ranks [8]")
    parser.add_argument("--json", action="store_true", help="with --dry-run: JSON output")
    return parser
