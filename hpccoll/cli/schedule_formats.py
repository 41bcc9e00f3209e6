"""The formats of other programs in which ``hpccoll show`` writes a schedule. Extensions bring them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.extensions import contributions
from hpccoll.common.options import Option

if TYPE_CHECKING:
    from hpccoll.cases.requested_schedule import RequestedOperation


class ScheduleTexts(Protocol):
    """Returns the parts of a text that says a schedule in a format."""

    def __call__(
        self, operation: "RequestedOperation", options: Mapping[str, str], *, printed: bool
    ) -> Iterator[str]:
        """Return the parts, at most one for each rank; the first has the head.

        Args:
            operation: the schedule, and its messages.
            options: the values of the options of the format, by their long names.
            printed: whether the text is printed, not written into a file.

        Raises:
            BadInputError: if an option is invalid, or the format cannot say the schedule.
        """


class ScheduleFormat(NamedTuple):
    """A format that an extension brings (``Extension.schedule_formats``)."""

    name: str  # the value of --format
    help: str  # what it is, for the help
    texts: ScheduleTexts
    options: Sequence[Option] = ()  # those that only this format has
    about: str = ""  # sentences for the help
    examples: Sequence[str] = ()  # command lines for the help


def schedule_format(name: str, options: Mapping[str, str]) -> ScheduleFormat:
    """Return the format of a name, to which the options belong whose values are not the default.

    Raises:
        BadInputError: if no extension brings the format, or an option is of another one.
    """
    formats: dict[str, ScheduleFormat] = {
        brought.name: brought for brought in contributions("schedule_formats")
    }
    if not formats:
        raise UnusableError(
            "--format", "no extension that writes schedules for other programs is installed"
        )
    if name not in formats:
        raise BadInputError("--format", name, formats)
    for brought in formats.values():
        for option in brought.options:
            value = options[option.flags[-1]]
            if brought.name != name and value != option.default:
                raise BadInputError(
                    option.flags[-1], value, f"left out: it is an option of --format {brought.name}"
                )
    return formats[name]


def options_of_formats() -> list[Option]:
    """Return the options that only some formats have."""
    options: list[Option] = []
    for brought in contributions("schedule_formats"):
        options += brought.options
    return options


def words_of_formats() -> dict[str, str]:
    """Return what the help of ``hpccoll show`` says of the formats."""
    meanings: list[str] = []
    sentences: list[str] = []
    examples = ""
    for brought in contributions("schedule_formats"):
        meanings.append(f"{brought.name}: {brought.help}")
        sentences.append(brought.about)
        examples += "".join(f"\n  {example}" for example in brought.examples)
    files = [file_format.name for file_format in contributions("algorithm_formats")]
    return {
        "files": f", or the file of {' or '.join(files)}" if files else "",
        "formats": "; ".join(meanings) or "none is installed",
        "about": " ".join(sentences),
        "examples": examples,
    }
