"""Options and arguments of commands, as tables that parsers, help pages and completions read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hpccoll.common.errors import UnusableError
from hpccoll.common.limits import Key

OptionKind: TypeAlias = Literal[
    "value",  # a text
    "number",  # an integer
    "decimal",
    "path",
    "paths",  # one or more of them after one flag
    "list",  # texts; the flag is repeated
    "path-list",  # paths; the flag is repeated
    "switch",  # a text, 1 if the flag has no value; repeated
    "flag",  # true if it is given
    "toggle",  # --name or --no-name
]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command; the letters of ``hpccoll run`` are those of nccl-tests."""

    flags: tuple[str, ...]  # the short and the long form
    help: str  # a noun phrase
    # what is read if it is absent; None: absence has a meaning of its own
    default: str | float | bool | None = None
    shown_default: str | None = None  # the default in the help text, if it differs from ``default``
    # the key of the same meaning, whose bound holds for the option; None for other options
    key: Key | None = None
    metavar: str | None = None  # the placeholder of the value in the help text
    kind: OptionKind = "value"
    name: str = ""  # of the parameter of the command's function [the long flag]
    hidden: bool = False  # whether no help has it
    required: bool = False
    must_exist: bool = False  # whether it names files to read

    @property
    def help_text(self) -> str:
        """The help with the default in brackets, unless it says the default itself."""
        shown = self.shown_default or self.default
        if self.required:
            shown = "required"
        if "[" in self.help or isinstance(shown, bool) or shown in (None, ""):
            return self.help
        return f"{self.help} [{shown}]"

    @property
    def long_flag(self) -> str:
        """The longest of its flags."""
        return max(self.flags, key=len)

    @property
    def parameter(self) -> str:
        """The name of the parameter that gets its value."""
        if self.name:
            return self.name
        first = next(flag for flag in self.flags if flag.startswith("--"))
        return first.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class PositionalArgument:
    """A positional argument of a command."""

    name: str  # of the parameter of the command's function
    help: str  # a noun phrase
    metavar: str  # the placeholder in the help, in brackets if the argument may be left out
    kind: Literal["value", "path"] = "value"
    repeated: bool = False  # whether there may be several
    must_exist: bool = False  # whether it names files to read

    @property
    def key(self) -> str:
        """How messages name it: its placeholder without marks."""
        return self.metavar.strip("[].").replace(" ", " or ")

    @property
    def is_required(self) -> bool:
        """Whether it may not be left out."""
        return not self.metavar.startswith("[")


def check_one_given(key: str, choices: Mapping[str, object], hint: str = "") -> None:
    """Check that the user gave exactly one option of a set.

    Args:
        key: what the message begins with, such as the name of the command.
        choices: the values of the options by the words that name them; None, False and an empty
            value are absent.
        hint: what the message ends with if the user gave none.

    Raises:
        UnusableError: if the user gave none of them, or several.
    """
    used = [words for words, value in choices.items() if value not in (None, False, "", [])]
    if not used:
        raise UnusableError(key, f"give one of {', '.join(choices)}{hint}")
    if len(used) > 1:
        raise UnusableError(key, f"give only one of {', '.join(used)}")
