"""The parser of a command: arguments and options that a table declares, in the groups of its help.

Every rank reads its command line with it, so it is argparse's, which every Python has.
"""

import argparse
import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from hpccoll.cases.keys import NETWORKS
from hpccoll.common.errors import UnusableError, abbreviate, did_you_mean
from hpccoll.common.options import Option, OptionKind, PositionalArgument

HELP, HELP_ALL = "--help", "--help-all"

HELP_COLUMNS = 80
"""The width of what argparse itself formats; ``help_page`` has the width of the terminal."""

MAX_PATH_BYTES, MAX_NAME_BYTES = 4000, 200
"""The system's limits are 4096 and 255; the rest is for the suffixes of the files next to a raw file."""

MPIEXEC = "mpiexec -n RANKS"
"""What starts a command on each rank, in usage lines."""

COMMANDS = "Commands"
ARGUMENTS = "Arguments"
OPTIONS = "Options"
"""Titles of groups of the help."""


class OptionParser(argparse.ArgumentParser):
    """The parser of a command.

    Args:
        command: the name of the command.
        summary: what it does, a sentence, and further paragraphs.
        groups: its options by the titles of their groups.
        extra_groups: the titles of groups that only ``--help-all`` shows; None if there is no such help.
        end: the last lines of the help.
        arguments: its positional arguments.
        commands: what commands of a second word do, by that word.
        launcher: what starts the command on each rank; empty for a command that ranks do not run.
    """

    def __init__(
        self,
        command: str,
        summary: str,
        groups: Mapping[str, Sequence[Option]],
        extra_groups: Collection[str] | None,
        end: str,
        *,
        arguments: Sequence[PositionalArgument] = (),
        commands: Mapping[str, str] | None = None,
        launcher: str = "",
    ) -> None:
        # With a width, argparse does not ask for that of the terminal, and every rank imports less.
        formatter = partial(argparse.HelpFormatter, width=HELP_COLUMNS)
        super().__init__(
            f"hpccoll {command}".rstrip(),
            description=summary,
            epilog=end,
            allow_abbrev=False,
            add_help=False,
            formatter_class=formatter,
        )
        self.groups = groups
        self.extra_groups = extra_groups
        self.arguments = arguments
        self.commands = commands or {}
        self.launcher = launcher
        for argument in arguments:
            self.add_argument(argument.name, **_positional(argument))
        for option in chain.from_iterable(groups.values()):
            self.add_argument(*option.flags, **_argument(option))
        help_flags = (HELP,) if extra_groups is None else ("-h", HELP, HELP_ALL)
        self.add_argument(
            *help_flags,
            action=_HelpAction,
            nargs=0,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
        )

    def page(self, *, everything: bool) -> str:
        """Return the help, with or without the groups in ``extra_groups``."""
        from hpccoll.cli.help_page import Entries, help_page  # ranks print none

        groups: dict[str, Entries] = {
            COMMANDS: list(self.commands.items()),
            ARGUMENTS: [(argument.metavar, argument.help) for argument in self.arguments],
        }
        last = OPTIONS
        for title, options in self.groups.items():
            if everything or title not in (self.extra_groups or ()):
                groups[title] = [
                    (_name(option), option.help_text) for option in options if not option.hidden
                ]
                last = title
        help_entry = (HELP, "this page")
        if self.extra_groups is not None:
            help_entry = (f"-h, {HELP}", f"this page; {HELP_ALL}: with all options")
        groups[last] = [*groups.get(last, ()), help_entry]
        command_word = "[COMMAND]" if self.commands else ""
        metavars = (argument.metavar for argument in self.arguments)
        words = (self.launcher, self.prog, command_word, *metavars, "[OPTIONS]")
        return help_page(
            " ".join(filter(None, words)), self.description or "", groups, self.epilog or ""
        )

    def given_options(self, words: Sequence[str]) -> list[str]:
        """Return the long flags of the options that were typed, whatever their values."""
        defaults = {action.dest: action.default for action in self._actions}
        for action in self._actions:
            action.default = argparse.SUPPRESS
        try:
            typed = vars(self.parse_intermixed_args(words))
        finally:
            for action in self._actions:
                action.default = defaults[action.dest]
        by_name = {
            option.parameter: option.long_flag
            for option in chain.from_iterable(self.groups.values())
        }
        return [by_name[name] for name in typed if name in by_name]

    def check_bounds(self, values: Mapping[str, Any]) -> None:
        """Check that numbers are within the bounds of their keys.

        Raises:
            BadInputError: if one is not.
        """
        for option in chain.from_iterable(self.groups.values()):
            value = values[option.parameter]
            if option.kind == "number" and option.key and option.key.bound and value is not None:
                option.key.bound.check(option.long_flag, value)

    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = re.match(r"unrecognized arguments: (--|)([\w-]+)", message)
        near = ""
        if unknown and unknown[1]:
            names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
            near = did_you_mean(unknown[2], names, prefix="--")
        elif unknown:
            near = did_you_mean(unknown[2], self.commands)
        raise UnusableError(
            self.prog.removeprefix("hpccoll "), f"{message}: {near}see '{self.prog} --help'"
        )


class _HelpAction(argparse.Action):
    """Prints the help, and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: object,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, OptionParser)  # noqa: S101
        print(parser.page(everything=option_string == HELP_ALL))
        parser.exit()


def _name(option: Option) -> str:
    """Return an option as the help names it: its flags, and the placeholder of its value."""
    if option.kind == "toggle":
        return option.long_flag.replace("--", "--[no-]", 1)
    return f"{', '.join(option.flags)} {option.metavar or ''}".rstrip()


def _positional(argument: PositionalArgument) -> dict[str, Any]:
    about: dict[str, Any] = {"metavar": argument.metavar.strip("[]").removesuffix("...")}
    if argument.repeated:
        about["nargs"] = "+" if argument.is_required else "*"
    elif not argument.is_required:
        about["nargs"] = "?"
    if argument.kind == "path":
        about["type"] = _path
    return about


def _path(text: str) -> Path:
    path = Path(text)
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    if len(os.fsencode(text)) > MAX_PATH_BYTES or any(
        len(os.fsencode(p)) > MAX_NAME_BYTES for p in path.parts
    ):
        raise argparse.ArgumentTypeError(f"{abbreviate(text)} is too long for the name of a file")
    return path


_OF_KIND: Mapping[OptionKind, Mapping[str, Any]] = {
    "value": {},
    "number": {"type": int},
    "decimal": {"type": float},
    "path": {"type": _path},
    "paths": {"type": _path, "nargs": "+"},
    "list": {"action": "append"},
    "path-list": {"action": "append", "type": _path},
    "switch": {"action": "append", "nargs": "?", "const": "1"},
    "flag": {"action": "store_true"},
    "toggle": {"action": argparse.BooleanOptionalAction},
}
"""What argparse calls each kind of option."""

_REPEATED = "list", "path-list", "switch"


def _argument(option: Option) -> dict[str, Any]:
    settings = dict(_OF_KIND[option.kind])
    settings["dest"] = option.parameter
    if option.kind in _REPEATED:
        settings["default"] = []
    elif option.kind != "flag":
        settings["default"] = option.default
    if option.required:
        settings["required"] = True
    if "--network" in option.flags:
        settings["choices"] = NETWORKS
    return settings
