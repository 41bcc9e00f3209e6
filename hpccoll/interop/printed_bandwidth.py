"""The bandwidths that nccl-tests and rccl-tests print next to each time: they show whether ranks were read rightly.

``algbw`` is S over the time, ``busbw`` that times a factor of the collective and the ranks
(doc/PERFORMANCE.md of nccl-tests). Both are computed before they are rounded to two decimals, or to
fewer that fit the column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hpccoll.cases.algorithm_registry import collective
from hpccoll.interop.benchmark_output import read_cell, read_count

MEASURED = "time", "algbw", "busbw"
"""The columns that every placement has."""

SINGLETONS = "built without MPI=1, or started without the launcher of its MPI library"
"""Why each process may measure alone."""

_WITHOUT_OWN_BLOCK = "all_gather", "reduce_scatter"
"""The collectives whose algbw left out the block of the rank itself, as busbw does, before June 2020 (ec1b5e2)."""

_TOLERANCE = 0.02
"""The largest relative difference, rounding left out, of a printed bandwidth from the one computed from its row."""
_ROUNDING = 0.51
"""The largest difference between a printed number and the computed one, in units of the last digit."""
_NEAR = 64
"""How far the numbers of ranks that are compared with the bandwidths are from the number that was read."""


@dataclass(frozen=True, slots=True)
class PrintedBandwidth:
    """The printed time and bandwidths of a result, each with its largest error of rounding."""

    where: str  # the place of the result
    size: int  # S in bytes
    time: tuple[float, float]  # the time in microseconds
    algbw: tuple[float, float]  # in GB/s
    busbw: tuple[float, float]  # in GB/s

    @classmethod
    def read(cls, where: str, size: str, cells: Mapping[str, str]) -> "PrintedBandwidth":
        """Return the bandwidth of cells by their names in ``MEASURED``; BadInputError if one is not a number."""
        time, algbw, busbw = (_printed(where, name, cells[name]) for name in MEASURED)
        return cls(where, read_count(where, "size", size), time, algbw, busbw)

    def problem(self, name: str, ranks: int) -> tuple[str, str, str] | None:
        """Return where and which bandwidth does not follow from the time, and what would; None if both do."""
        time, unit = self.time
        if time <= unit:
            return None
        factor = _factor(name, ranks)
        for column, (printed, digit), times in (
            ("algbw", self.algbw, factor if self.may_be_older(name) else 1.0),
            ("busbw", self.busbw, factor),
        ):
            expected = times * self.size / time / 1e3
            if abs(printed - expected) > expected * (_TOLERANCE + unit / time) + digit:
                causes = "other ranks, or another collective; --ranks and --nodes replace lost lines of devices"
                if ranks > 1 and not printed:
                    causes = f"several processes of 1 rank each, {SINGLETONS}"
                reason = f"{expected:.4g}, which follows from its size and time on {ranks} ranks of {name} ({causes})"
                return f"{self.where}: {column}", f"{printed:g}", reason
        return None

    def may_be_older(self, name: str) -> bool:
        """Return whether algbw may leave out the block of the rank itself, as that of older versions did."""
        return name in _WITHOUT_OWN_BLOCK and self.algbw == self.busbw

    def admits(self, factor: float) -> bool:
        """Return whether busbw over algbw may be a factor, within the rounding of the printed digits."""
        (algbw, unit), (busbw, digit) = self.algbw, self.busbw
        return abs(busbw - factor * algbw) <= digit + factor * unit


def possible_ranks(name: str, ranks: int, bandwidths: Sequence[PrintedBandwidth]) -> list[int]:
    """Return the numbers of ranks near ``ranks`` that the digits of all bandwidths of a run allow.

    All digits show more than the tolerance of one result, which cannot tell 15 ranks from 16. The
    list is empty if they allow none, or if an older version printed them, which shows nothing of
    ranks.
    """
    if all(bandwidth.may_be_older(name) for bandwidth in bandwidths):
        return []
    possible = []
    for count in range(max(1, ranks - _NEAR), ranks + _NEAR + 1):
        factor = _factor(name, count)
        if all(bandwidth.admits(factor) for bandwidth in bandwidths):
            possible.append(count)
    return possible


def _factor(name: str, ranks: int) -> float:
    """Return busbw over algbw; of a single rank that of the formula, where ours is 0 for every collective."""
    factor = collective(name).busbw
    if factor is None:
        raise ValueError(f"{name} has no bandwidth")
    return factor(ranks) if ranks > 1 else float(factor(2) == factor(3))


def _printed(where: str, name: str, cell: str) -> tuple[float, float]:
    value = read_cell(where, name, cell)
    exponent = int(Decimal(cell).as_tuple().exponent)
    most = 300 if value >= 100 else -2  # fewer decimals only if none fit
    return value, _ROUNDING * 10.0 ** min(exponent, most)
