"""A command: its arguments and options as a table, and the function that does its work."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpccoll.cli.option_parser import OptionParser
from hpccoll.common.errors import UnusableError
from hpccoll.common.options import Argument, Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the command line. The docstring of its function is its help.

    The parameters of the function are the names of arguments and options. One called ``given`` gets the options that
    were typed, one called ``rest`` the words after ``--``.
    """

    name: str  # a word, or two: ``predict step``
    run: Callable[..., int | None]  # returns the exit code; None is 0
    example: str
    arguments: Sequence[Argument] = ()
    options: Mapping[str, Sequence[Option]] = field(default_factory=dict)  # by the titles of the groups of its help
    subcommands: Callable[[], "Mapping[str, Command]"] = dict  # by the second word of their names

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return self._help.partition("\n\n")[0]

    @property
    def _help(self) -> str:
        return inspect.cleandoc(self.run.__doc__ or "")

    def parser(self) -> OptionParser:
        """Return the parser of its words."""
        commands = {word: command.summary for word, command in self.subcommands().items()}
        return OptionParser(
            self.name, self._help, self.options, None, self._end, arguments=self.arguments, commands=commands
        )

    @property
    def _end(self) -> str:
        title = "Examples" if "; " in self.example else "Example"
        return f"{title}: {self.example}"

    def main(self, words: Sequence[str]) -> int:
        """Run the command with the words that follow its name, and return the exit code.

        Raises:
            BadInputError: if an option is invalid, and whatever the function raises.
        """
        subcommands = self.subcommands()
        if words and words[0] in subcommands:
            return subcommands[words[0]].main(words[1:])
        parameters = inspect.signature(self.run).parameters
        own_words = list(words)
        values: dict[str, Any] = {}
        if "rest" in parameters:
            own_words, values["rest"] = _split_rest(own_words)
        parser = self.parser()
        known, unknown_words = parser.parse_known_intermixed_args(own_words)
        for word in unknown_words:
            if word in subcommands:
                raise UnusableError(own_words[0], f"write it after '{word}', whose option it is")
        if unknown_words:
            parser.error(f"unrecognized arguments: {' '.join(unknown_words)}")
        values |= vars(known)
        if "given" in parameters:
            values["given"] = parser.given_options(own_words)
        return int(self.run(**values) or 0)


def _split_rest(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before and after the first ``--``."""
    if "--" not in words:
        return words, []
    position = words.index("--")
    return words[:position], words[position + 1 :]
