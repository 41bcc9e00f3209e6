"""The parser of the commands that ranks run: options that are declared in the groups of its help.

Every rank reads its command line with it, so it is argparse's: Typer takes longer to import.
"""

import argparse
import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from hpccoll.cases.keys import NETWORKS, Option
from hpccoll.common.errors import UnusableError, abbreviate, did_you_mean

HELP, HELP_ALL = "--help", "--help-all"

HELP_COLUMNS = 80
"""The width of what argparse itself formats; ``help_page`` has the width of the terminal."""

MAX_PATH_BYTES, MAX_NAME_BYTES = 4000, 200
"""The system's limits are 4096 and 255; the rest is for the suffixes of the files next to a raw file."""


class OptionParser(argparse.ArgumentParser):
    """The parser of a command.

    Args:
        command: the name of the command.
        summary: what it does, a sentence.
        groups: its options by the titles of their groups.
        more: the titles of groups that only ``--help-all`` shows.
        end: the last lines of the help.
    """

    def __init__(
        self, command: str, summary: str, groups: Mapping[str, Sequence[Option]], more: Collection[str], end: str
    ) -> None:
        # With a width, argparse does not ask for that of the terminal, and every rank imports less.
        formatter = partial(argparse.HelpFormatter, width=HELP_COLUMNS)
        super().__init__(
            f"hpccoll {command}", description=summary, epilog=end, allow_abbrev=False, add_help=False,
            formatter_class=formatter,
        )  # fmt: skip
        self.groups, self.more = groups, more
        for option in chain.from_iterable(groups.values()):
            self.add_argument(*option.flags, **_argument(option))
        self.add_argument("-h", "--help", HELP_ALL, action=_HelpAction, nargs=0)

    def page(self, *, everything: bool) -> str:
        """Return the help, with or without the groups that are ``more``."""
        from hpccoll.cli.help_page import Entries, help_page  # ranks print none

        groups: dict[str, Entries] = {
            title: [(_name(option), option.help_text) for option in options]
            for title, options in self.groups.items()
            if everything or title not in self.more
        }
        *_, last = groups
        groups[last] = [*groups[last], (f"-h, {HELP}", f"this page; {HELP_ALL}: with all options")]
        usage = f"mpiexec -n RANKS {self.prog} [OPTIONS]"
        return help_page(usage, self.description or "", groups, self.epilog or "")

    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = re.match(r"unrecognized arguments: --([\w-]+)", message)
        names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        near = did_you_mean(unknown[1], names).replace("mean ", "mean --") if unknown else ""
        raise UnusableError(self.prog, f"{message}: {near}see '{self.prog} --help'")


class _HelpAction(argparse.Action):
    """Prints the help, and ends the program."""

    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: object, _values: object, option_string: str | None = None
    ) -> None:
        assert isinstance(parser, OptionParser)  # noqa: S101
        print(parser.page(everything=option_string == HELP_ALL))
        parser.exit()


def _name(option: Option) -> str:
    """Return an option as the help names it: its flags, and the placeholder of its value."""
    return f"{', '.join(option.flags)} {option.metavar or ''}".rstrip()


def _argument(option: Option) -> dict[str, Any]:
    if option.kind == "flag":
        return {"action": "store_true"}
    if option.kind == "switch":
        return {"action": "append", "default": [], "nargs": "?", "const": "1"}
    if option.kind == "list":
        return {"action": "append", "default": []}
    if option.kind == "paths":
        return {"nargs": "+", "type": _path}
    about: dict[str, Any] = {"type": _path} if option.kind == "path" else {"default": option.default}
    return {**about, "choices": NETWORKS} if "--network" in option.flags else about


def _path(text: str) -> Path:
    path = Path(text)
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    if len(os.fsencode(text)) > MAX_PATH_BYTES or any(len(os.fsencode(p)) > MAX_NAME_BYTES for p in path.parts):
        raise argparse.ArgumentTypeError(f"{abbreviate(text)} is too long for the name of a file")
    return path
