"""Folds: what a rank computes between its messages, as data: moves, in waves that each are one launch of a kernel."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hpccoll.transports.buffer_pieces import Span


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold the ``inputs``, in their order, into ``out``; one input alone is copied.

    Every element of ``out`` depends on those of the same place alone, so that an input may be ``out`` itself. What is
    folded is rounded to the element's type at each input, as if each fold were a move of its own.

    Args:
        out: where to.
        inputs: as long as ``out`` each.
        divisor: of the folded values at last, where there is one; integers round down.
    """

    out: Span
    inputs: tuple[Span, ...]
    divisor: int = 0

    def conflicts_with(self, other: "Fold") -> bool:
        """Return whether the order of the two matters."""
        return (
            self.out.overlaps(other.out)
            or any(self.out.overlaps(span) for span in other.inputs)
            or any(other.out.overlaps(span) for span in self.inputs)
        )

    def fused_with(self, then: "Fold") -> "Fold | None":
        """Return what both do as one move, where ``then`` goes on with all of what this one makes, and nothing else."""
        if self.divisor or not then.inputs[0] == then.out == self.out or any(map(self.out.overlaps, then.inputs[1:])):
            return None
        return replace(self, inputs=self.inputs + then.inputs[1:], divisor=then.divisor)


def fold_waves(moves: Iterable[Fold]) -> list[list[Fold]]:
    """Return moves that follow one another as waves: moves of one do not touch each other, and need none of a later.

    Folds one after the other into one place are one move, in which each element is read and written once.
    """
    kept: list[Fold] = []
    for move in moves:
        last = next((at for at in reversed(range(len(kept))) if kept[at].conflicts_with(move)), None)
        chained = None if last is None else kept[last].fused_with(move)
        if last is not None and chained:
            kept[last] = chained  # nothing behind it touches what the move does
        else:
            kept.append(move)
    depth: list[int] = []
    for at, move in enumerate(kept):
        depth.append(1 + max((depth[n] for n in range(at) if kept[n].conflicts_with(move)), default=-1))
    levels = range(max(depth, default=-1) + 1)
    return [[move for move, of in zip(kept, depth, strict=True) if of == level] for level in levels]
