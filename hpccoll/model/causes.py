"""Why numbers are lower than expected: causes from symptoms, the likeliest first."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of a fail."""

    what: str  # what may be wrong
    check: str  # the command, or the line of a log, that shows whether it is
    because: str  # the symptom that it follows from

    def to_json(self) -> dict[str, str]:
        """Return the cause as JSON has it."""
        return asdict(self)
