"""How many cases a judgement must decide: a gate must stay closed if most cases are undecided."""

from dataclasses import dataclass

from hpccoll.common.units import format_count

LEAST_SHARE = 0.5
"""The least share of cases to be decided, unless the user requires a number of them."""


@dataclass(frozen=True, slots=True)
class DecidedCases:
    """The number of cases, how many of them are decided, and how many must be."""

    decided: int
    cases: int
    noun: str  # what a case is called: ``case`` or ``row``
    required: int | None = None  # None: LEAST_SHARE of them

    @property
    def are_few(self) -> bool:
        """Whether fewer cases are decided than must be; without any case there is nothing to decide."""
        if self.required is None:
            return self.decided < LEAST_SHARE * self.cases
        return self.decided < self.required

    @property
    def line(self) -> str:
        """A line for the user: how few are decided, and how to require another number."""
        needed = str(self.required)
        if self.required is None:
            needed = f"at least {LEAST_SHARE:.0%}"
        counted = (
            f"{self.decided} of {format_count(self.cases, self.noun)} decided, {needed} required"
        )
        remedy = "see the reasons above, measure more rounds where it is too noisy, or require another number"
        return f"not decided: {counted}; do: {remedy} by --require N"
