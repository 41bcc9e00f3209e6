"""Numbers that are written with a unit: sizes, durations, rates, factors."""

from collections.abc import Callable
from dataclasses import dataclass

from hpccoll.common.limits import MAX_BYTES, IntegerRange, PositiveNumber
from hpccoll.common.units import (
    MAX_FACTOR,
    MAX_QUANTITY,
    parse_factor,
    parse_rate,
    parse_seconds,
    parse_size,
)


@dataclass(frozen=True, slots=True)
class NumberWithUnit:
    """The numbers of a range, which are written with a unit."""

    parse: Callable[[str, str], float]
    values: IntegerRange | PositiveNumber

    def read(self, key: str, text: str) -> float:
        """Parse a number with its unit.

        Raises:
            BadInputError: if ``text`` is not one, or the number is not in the range.
        """
        value = self.parse(text, key)
        self.values.check(key, value)
        return value

    def check(self, key: str, value: object) -> None:
        """Check that ``value`` is in the range.

        Raises:
            BadInputError: if it is not.
        """
        self.values.check(key, value)


BYTES = NumberWithUnit(parse_size, IntegerRange(1, MAX_BYTES))
DURATION = NumberWithUnit(parse_seconds, PositiveNumber(MAX_QUANTITY))
RATE = NumberWithUnit(parse_rate, PositiveNumber(MAX_QUANTITY))
TIMES = NumberWithUnit(parse_factor, PositiveNumber(MAX_FACTOR))
"""Factors, such as x2."""
