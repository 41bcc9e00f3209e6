"""A command: its arguments and options as a table, and the function that does its work."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hpccoll.cli.option_parser import OptionParser
from hpccoll.common.errors import UnusableError, file_error
from hpccoll.common.options import Option, PositionalArgument


@dataclass(frozen=True, slots=True)
class OptionsOfExtensions:
    """Options that extensions add to a command."""

    group: str  # the title of their group in the help
    options: Callable[[], Sequence[Option]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the command line. The docstring of its function is its help.

    The parameters of the function are the names of arguments and options. Three names are special:
    ``typed_flags`` gets the long flags that the user typed, ``rest`` the words after ``--``, and
    ``extension_options`` the values of options that extensions add, by their long flags.
    """

    name: str  # a word, or two: ``predict step``
    run: Callable[..., int | None]  # returns the exit code; None is 0
    example: str  # the last lines of its help
    arguments: Sequence[PositionalArgument] = ()
    # by the titles of the groups of its help
    options: Mapping[str, Sequence[Option]] = field(default_factory=dict)
    further: OptionsOfExtensions | None = None
    words: Callable[[], Mapping[str, str]] | None = None  # what stands for ``{name}`` in its texts
    subcommands: Callable[[], "Mapping[str, Command]"] = dict  # by the second word of their names

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return self._completed(self._help.partition("\n\n")[0], self._words)

    @property
    def _help(self) -> str:
        return inspect.cleandoc(self.run.__doc__ or "")

    @property
    def _words(self) -> Mapping[str, str] | None:
        if not self.words:
            return None
        return self.words()

    @staticmethod
    def _completed(text: str, words: Mapping[str, str] | None) -> str:
        if words is None:
            return text
        return text.format(**words)

    def parser(self) -> OptionParser:
        """Return the parser of its words."""
        words = self._words
        arguments = [
            replace(argument, help=self._completed(argument.help, words))
            for argument in self.arguments
        ]
        groups: dict[str, list[Option]] = {}
        for title, options in self.options.items():
            groups[title] = [
                replace(option, help=self._completed(option.help, words)) for option in options
            ]
        if self.further:
            groups.setdefault(self.further.group, []).extend(self.further.options())
        commands = {word: command.summary for word, command in self.subcommands().items()}
        end = self._completed(self.example, words)
        return OptionParser(
            self.name,
            self._completed(self._help, words),
            groups,
            None,
            end,
            arguments=arguments,
            commands=commands,
        )

    def main(self, words: Sequence[str]) -> int:
        """Run the command with the words that follow its name, and return the exit code.

        Raises:
            BadInputError: if an option is invalid.
            Exception: what the function of the command raises.
        """
        subcommands = self.subcommands()
        if words and words[0] in subcommands:
            return subcommands[words[0]].main(words[1:])
        own_words = list(words)
        rest: list[str] = []
        if self._passes_on:
            own_words, rest = _split_rest(own_words)
        parser = self.parser()
        values = self._values(parser, own_words)
        if self.further:
            options = self.further.options()
            values["extension_options"] = {
                option.long_flag: values.pop(option.parameter) for option in options
            }
        if self._passes_on:
            values["rest"] = rest
        if "typed_flags" in inspect.signature(self.run).parameters:
            values["typed_flags"] = parser.given_options(own_words)
        return int(self.run(**values) or 0)

    @property
    def _passes_on(self) -> bool:
        """Whether the function passes the words after ``--`` on."""
        return "rest" in inspect.signature(self.run).parameters

    def _values(self, parser: OptionParser, words: list[str]) -> dict[str, Any]:
        """Return the values of arguments and options by name."""
        parsed, unknown_words = parser.parse_known_intermixed_args(words)
        for word in unknown_words:
            if word in self.subcommands():
                raise UnusableError(words[0], f"write it after '{word}', whose option it is")
        if unknown_words:
            hint = ""
            if self._passes_on:
                hint = " (write after -- what is to be passed on)"
            parser.error(f"unrecognized arguments: {' '.join(unknown_words)}{hint}")
        values = vars(parsed)
        parser.check_bounds(values)
        self._check_files(values)
        return values

    def _check_files(self, values: Mapping[str, Any]) -> None:
        """Check that the files to read exist, before any other fault of the command line is named.

        Raises:
            UnusableError: if one does not exist.
        """
        for argument in self.arguments:
            if argument.must_exist:
                _check_existence(argument.key, values[argument.name])
        for option in chain.from_iterable(self.options.values()):
            if option.must_exist:
                _check_existence(option.long_flag, values[option.parameter])


def _check_existence(key: str, paths: Path | Sequence[Path] | None) -> None:
    """Check that files exist; of raw files that are being measured, only their journals do.

    Raises:
        UnusableError: if one does not exist; it names ``key``.
    """
    from hpccoll.store.journal import journal_path

    if paths is None:
        return
    if isinstance(paths, Path):
        paths = [paths]
    for path in paths:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            if not journal_path(path).exists():
                raise file_error(key, path, error) from None
        except (OSError, ValueError):  # whoever reads it says what is wrong
            continue


def _split_rest(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before and after the first ``--``."""
    if "--" not in words:
        return words, []
    position = words.index("--")
    return words[:position], words[position + 1 :]
