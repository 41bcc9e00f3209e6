"""The command-line parser of ``hpccoll run``; hpccoll/spec/input_keys.py declares the options."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

from hpccoll.errors import UnusableError, abbreviate, did_you_mean
from hpccoll.spec.input_keys import NETWORKS, RUN_OPTIONS, Option

EXAMPLES = """examples:
  mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M
  mpiexec -n 2 hpccoll run -a recursive_doubling,null -b 8 -e 1K -n 1000 --in-place
  mpiexec -n 4 hpccoll run -a ring,native -e 1M --rounds 9    # nine rounds instead of three, for a busy machine
  srun -N 4 -n 16 hpccoll run -a ring,native -b 1M -e 1G --param channels=8 --out ring.h5

Sizes are binary (1K is 1024 bytes), bandwidths are in GB/s of 1e9 bytes per second. Times are those of the slowest
rank. Every result is checked. The algorithm native is the library's own collective.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = re.match(r"unrecognized arguments: --([\w-]+)", message)
        names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        near = did_you_mean(unknown[1], names).replace("mean ", "mean --") if unknown else ""
        raise UnusableError("hpccoll run", f"{message}: {near}see 'hpccoll run --help'")


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
    for option in RUN_OPTIONS:
        parser.add_argument(*option.flags, **_argument(option))
    return parser
