"""What a compression of gradients is: its name, what top-k keeps, and whether errors are fed back."""

from dataclasses import dataclass
from math import ceil

from hpccoll.common.errors import BadInputError

MOST_KEPT = 0.5
"""The largest part of the gradients that top-k keeps: with their positions, half of them are as many bytes as all."""

TOP_K = "topk"

COMPRESSIONS = "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", TOP_K
"""The compressions: see ``compressed_bucket``."""

DENSE = "none"
"""What stands for gradients that are not compressed."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression of gradients."""

    name: str  # one of COMPRESSIONS
    kept: float = 1.0  # the part of the gradients that topk keeps
    feedback: bool = False  # whether what a message leaves out is added to the next gradients

    @classmethod
    def parse(cls, text: str, *, feedback: bool = False) -> "Compression":
        """Return the compression of a text such as ``fp16`` or ``topk=1%``.

        Raises:
            BadInputError: if there is none of this name, or topk keeps nothing, or more than half.
        """
        name, equals, part = text.strip().partition("=")
        has_part = bool(equals)
        if name not in COMPRESSIONS or has_part != (name == TOP_K):
            valid = f"{', '.join(COMPRESSIONS[:-1])} or topk=1%, the part that is kept"
            raise BadInputError("compress", text, valid)
        return cls(name, _part(text, part) if has_part else 1.0, feedback)

    @property
    def codec(self) -> str:
        """The codecs that it takes: ``fp16``, or ``fp16+feedback``."""
        if self.feedback:
            return f"{self.name}+feedback"
        return self.name

    @property
    def text(self) -> str:
        """The compression as text: ``topk=1%``."""
        if self.name == TOP_K:
            return f"{self.name}={100 * self.kept:.12g}%"
        return self.name

    def kept_of(self, elements: int) -> int:
        """Return how many of ``elements`` gradients topk keeps: at least one."""
        return max(1, ceil(self.kept * elements - 1e-9))  # 1 % of 100 is 1, whatever is rounded


def compressions(texts: str, *, feedback: bool = False) -> "list[Compression | None]":
    """Return the compressions of a text such as ``none,fp16,topk=1%``, each once; None where nothing is compressed.

    Raises:
        BadInputError: if one of them is invalid.
    """
    if not texts:
        return [None]
    different = dict.fromkeys(text.strip() for text in texts.split(","))
    return [
        None if text == DENSE else Compression.parse(text, feedback=feedback) for text in different
    ]


def _part(text: str, part: str) -> float:
    try:
        number = float(part.removesuffix("%"))
    except ValueError:
        number = 0.0
    kept = number / 100 if part.endswith("%") else number
    if not 0 < kept <= MOST_KEPT:
        raise BadInputError(
            "compress", text, f"topk of more than 0% and at most {100 * MOST_KEPT:g}%"
        )
    return kept
