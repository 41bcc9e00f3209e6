"""Tables that a C program prints in fields of a fixed width, with numbers that follow from each other.

A lost digit makes a line shorter than the others of its table, or its rate contradict its time. Nothing says which
number is right, so that such a line is an error.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from hpccoll.errors import BadInputError
from hpccoll.interop.benchmark_output import LineParser

SLACK, ROUNDING = 0.02, 0.01
"""The relative and the absolute difference that two numbers of a line may have."""


class PrintedTableParser(LineParser):
    """A parser that checks the lines of a table, and the numbers of a line, against each other."""

    line = ""
    printed: tuple[tuple[str, str], ...] = ()  # the place and the text of each line of the table

    def parse(self, lines: Iterable[str]) -> None:
        """Read the lines; a line of no known kind becomes a remark.

        Raises:
            BadInputError: for a line that cannot be read, or contradicts itself or its table.
        """
        super().parse(self._each(lines))
        self.end_table()

    def _each(self, lines: Iterable[str]) -> Iterator[str]:
        for self.line in lines:
            yield self.line

    def add_to_table(self) -> None:
        """Add the line that is being read to the lines of its table."""
        self.printed = (*self.printed, (self.where, self.line.rstrip()))

    def end_table(self) -> None:
        """Compare the lines of the table, and begin another one.

        Raises:
            BadInputError: if all lines but one are equally wide. Lines without padding are not compared, nor those
                that begin with a number that leaves no blank in its field.
        """
        printed = [each for each in self.printed if "  " in each[1].strip() and len(each[1].split()[0]) < 10]
        self.printed = ()
        width = Counter(len(text) for _, text in printed).most_common(1)
        odd = [(where, text) for where, text in printed if len(text) != width[0][0]]
        if len(odd) == 1:
            where, text = odd[0]
            raise BadInputError(where, text.strip(), f"a line of {width[0][0]} characters, as the rest of its table")

    def check_between(self, column: str, value: float, low: float, high: float) -> None:
        """Check a number against others of its line.

        Raises:
            BadInputError: if it is below ``low`` or above ``high`` by more than rounding explains.
        """
        if not low * (1 - SLACK) - ROUNDING <= value <= high * (1 + SLACK) + ROUNDING:
            expected = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
            raise self.error(self.line.strip(), f"{expected} as {column}, which its other columns say")
