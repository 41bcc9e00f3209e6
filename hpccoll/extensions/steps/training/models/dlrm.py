"""DLRM, a recommender: the dense part, whose gradients are averaged; embedding tables are exchanged by all-to-alls."""

from collections.abc import Iterator
from itertools import pairwise

from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor

BOTTOM = 13, 512, 256, 128
TOP = 479, 1024, 1024, 512, 256, 1
"""The widths of the MLPs of MLPerf: 26 tables and the bottom MLP interact in pairs, 27 x 26 / 2 + 128 = 479."""


def dlrm() -> ModelShape:
    """Return the dense part of MLPerf's DLRM: 2,368,897 parameters; embeddings are model-parallel."""
    return ModelShape(
        "dlrm",
        tuple(_dlrm()),
        "float32",
        "a click",
        "M. Naumov et al.: Deep learning recommendation model (2019); MLPerf training 0.7",
    )


def _dlrm() -> Iterator[Module]:
    for name, widths in (("bot_l", BOTTOM), ("top_l", TOP)):
        for number, (inputs, outputs) in enumerate(pairwise(widths)):
            tensors = Tensor("weight", inputs * outputs), Tensor("bias", outputs)
            yield Module(f"{name}.{2 * number}", tensors, 2.0 * inputs * outputs)
