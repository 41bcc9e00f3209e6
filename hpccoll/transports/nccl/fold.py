"""Folds: the computations of a rank between its messages, arranged in waves; a wave is one kernel launch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hpccoll.transports.shared_lowering import Span


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold of ``inputs``, in order, into ``out``; a fold of one input is a copy.

    An element of ``out`` depends only on the elements of ``inputs`` with the same index, so that ``out`` itself may be
    an input. Values are rounded to the element type after each input, as in separate folds.
    """

    out: Span
    inputs: tuple[Span, ...]  # the spans that are read, as long as ``out`` each
    divisor: int = 0  # the divisor of the folded values, 0 for none; integers round down

    def conflicts_with(self, other: "Fold") -> bool:
        """Return whether the order of both matters."""
        return (
            self.out.overlaps(other.out)
            or any(self.out.overlaps(span) for span in other.inputs)
            or any(other.out.overlaps(span) for span in self.inputs)
        )

    def fused_with(self, then: "Fold") -> "Fold | None":
        """Return one fold equivalent to this one and ``then``, None unless ``then`` folds more inputs into ``out``."""
        if self.divisor or not then.inputs[0] == then.out == self.out or any(map(self.out.overlaps, then.inputs[1:])):
            return None
        return replace(self, inputs=self.inputs + then.inputs[1:], divisor=then.divisor)


def fold_waves(folds: Iterable[Fold]) -> list[list[Fold]]:
    """Return an ordered sequence of folds as waves. Folds of a wave do not conflict, and depend on earlier waves only.

    Successive folds into one span are fused, so that each of its elements is read and written once.
    """
    kept: list[Fold] = []
    for fold in folds:
        last = next((at for at in reversed(range(len(kept))) if kept[at].conflicts_with(fold)), None)
        fused = None if last is None else kept[last].fused_with(fold)
        if last is not None and fused:
            kept[last] = fused  # no later fold conflicts with it
        else:
            kept.append(fold)
    depths: list[int] = []
    for at, fold in enumerate(kept):
        depths.append(1 + max((depths[n] for n in range(at) if kept[n].conflicts_with(fold)), default=-1))
    waves = range(max(depths, default=-1) + 1)
    return [[fold for fold, depth in zip(kept, depths, strict=True) if depth == wave] for wave in waves]
