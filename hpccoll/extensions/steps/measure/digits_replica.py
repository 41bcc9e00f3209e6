"""The network of ``--model digits`` on a rank: its images, its computations as its program has them, and its update."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import UnusableError
from hpccoll.extensions.steps.training.buckets import Bucket
from hpccoll.extensions.steps.training.models.digits import (
    BATCH,
    EPOCH,
    IMAGES,
    RATE,
    SEED,
    TRAINED,
    UNITS,
    digits,
)
from hpccoll.extensions.steps.training.step_program import FORWARD, Compute, StepProgram

Floats = NDArray[np.float32]

FILE = Path("datasets", "data", "digits.csv.gz")


def digits_file() -> Path:
    """Return the file of the images in scikit-learn, which is not imported; UnusableError if it is not installed."""
    package = find_spec("sklearn")
    paths = [
        Path(folder) / FILE for folder in (package and package.submodule_search_locations) or ()
    ]
    if not paths or not paths[0].is_file():
        raise UnusableError(
            "model", "digits needs scikit-learn's images; do: pip install 'hpccoll[digits]'"
        )
    return paths[0]


@dataclass(frozen=True)
class Digits:
    """The images, in an order that a seed draws: those to train with, then those that are held out."""

    images: Floats  # brightness, 0 to 1, [image, 64]
    labels: NDArray[np.int64]  # the digit, [image]
    seed: int

    @classmethod
    def read(cls, seed: int = SEED) -> "Digits":
        """Return the images of ``digits_file``."""
        rows = _rows(digits_file())[np.random.default_rng(seed).permutation(IMAGES)]
        return cls(rows[:, :-1] / np.float32(16), rows[:, -1].astype(np.int64), seed)

    def batch(self, step: int) -> NDArray[np.int64]:
        """Return the numbers of the images of a step, numbered from 0."""
        epoch, number = divmod(step, EPOCH)
        return np.random.default_rng((self.seed, epoch)).permutation(TRAINED)[
            number * BATCH : (number + 1) * BATCH
        ]

    def initial_weights(self) -> Floats:
        """Return the weights of a new network in one array: K. He et al., ICCV (2015); biases are 0."""
        rng = np.random.default_rng(self.seed)
        weights = []
        for inputs, outputs in pairwise(UNITS):
            drawn = rng.standard_normal(inputs * outputs, np.float32) * np.sqrt(
                np.float32(2 / inputs)
            )
            weights += [drawn, np.zeros(outputs, np.float32)]
        return np.concatenate(weights)


@cache
def _rows(path: Path) -> Floats:
    return np.loadtxt(path, np.float32, delimiter=",")


def _by_tensor(tensors: Bucket, values: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield the name of each tensor with its part of an array, in its shape."""
    shapes = {"hidden": UNITS[:2], "output": UNITS[1:]}
    begin = 0
    for tensor in tensors:
        (inputs, outputs), name = shapes[tensor.name.partition(".")[0]], tensor.name
        part = values[begin : begin + tensor.elements]
        yield name, part.reshape(inputs, outputs) if name.endswith("weight") else part
        begin += tensor.elements


class Replica:
    """The network of one rank, and what the rank computes.

    Args:
        data: the images.
        program: the program of the rank.
        gradients: the gradients of each bucket of the program, which computations write.
        weights: the weights in one array; replicas of a serial run share it.
        place: the rank, and the number of ranks.
        micro_batches: the micro-batches of the part of a batch that the rank has.
        mean: whether the collectives divide the sum of gradients by the number of ranks.
    """

    def __init__(
        self,
        data: Digits,
        program: StepProgram,
        gradients: Sequence[Floats],
        weights: Floats,
        place: tuple[int, int],
        *,
        micro_batches: int,
        mean: bool,
    ) -> None:
        self.computations = [
            partial(self._compute, e) for e in program.instructions if isinstance(e, Compute)
        ]
        rank, ranks = place
        self._data = data
        self.weights = weights
        self.gradients = gradients
        self._mine = slice(BATCH * rank // ranks, BATCH * (rank + 1) // ranks)
        self._micro_batches, self._scale = micro_batches, np.float32((ranks if mean else 1) / BATCH)
        buckets = zip(program.buckets, gradients, strict=True)
        self._gradients = {
            n: part for b, values in buckets for n, part in _by_tensor(b.tensors, values)
        }
        self._weights = dict(_by_tensor(digits().tensors, weights))
        self._modules = [module.name for module in digits().modules]
        self.step, self.loss = 0, 0.0
        """The steps so far; the part of this rank in the loss of the batch."""
        self.corrupt: Callable[[], None] | None = None
        """What a drill does to the gradients of a step before they are used."""
        self.phases_ns = [0, 0, 0]
        """Of the last step the ns of the rank's part, the gradients and the update."""

    def begin_step(self) -> None:
        begin = time.perf_counter_ns()
        mine = self._data.batch(self.step)[self._mine]
        parts = np.array_split(mine, self._micro_batches)
        self._parts = iter([(self._data.images[part], self._data.labels[part]) for part in parts])
        for gradient in self.gradients:
            gradient[:] = 0
        self.loss = 0.0
        self.phases_ns = [time.perf_counter_ns() - begin, 0, 0]

    def _compute(self, computation: Compute) -> None:
        begin = time.perf_counter_ns()
        if computation.phase == FORWARD:  # of the next micro-batch
            images, self._labels = next(self._parts)
            self._inputs = [images]
        for module in computation.modules:
            (self._forward if computation.phase == FORWARD else self._backward)(module)
        self.phases_ns[1] += time.perf_counter_ns() - begin

    def _forward(self, module: str) -> None:
        outputs = self._outputs(module, self._inputs[-1])
        if module == self._modules[-1]:
            self._lose(outputs)
        else:
            self._inputs.append(np.maximum(outputs, 0, out=outputs))

    def _outputs(self, module: str, inputs: Floats) -> Floats:
        outputs: Floats = (
            inputs @ self._weights[f"{module}.weight"] + self._weights[f"{module}.bias"]
        )
        return outputs

    def _lose(self, outputs: Floats) -> None:
        """Add the cross-entropy of a micro-batch to the loss, and begin the backward pass."""
        right = np.arange(len(outputs)), self._labels
        chances = np.exp(outputs - outputs.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        with np.errstate(divide="ignore"):
            self.loss -= float(np.log(chances[right]).sum(dtype=np.float64)) / BATCH
        chances[right] -= 1
        self._delta: Floats = chances * self._scale

    def _backward(self, module: str) -> None:
        inputs = self._inputs.pop()
        self._gradients[f"{module}.weight"] += inputs.T @ self._delta
        self._gradients[f"{module}.bias"] += self._delta.sum(0)
        if module != self._modules[0]:
            self._delta = (self._delta @ self._weights[f"{module}.weight"].T) * (inputs > 0)

    def end_step(self) -> None:
        begin = time.perf_counter_ns()
        if self.corrupt:
            self.corrupt()
        for name, gradients in self._gradients.items():
            self._weights[name] -= np.float32(RATE) * gradients
        self.step += 1
        self.phases_ns[2] = time.perf_counter_ns() - begin

    def compute_all(self) -> None:
        """Compute the gradients of a step in this thread."""
        self.begin_step()
        for computation in self.computations:
            computation()

    def digest(self) -> bytes:
        """Return the SHA-256 of the weights."""
        return hashlib.sha256(self.weights.data).digest()

    def accuracy(self) -> float:
        """Return the part of the held-out images that the network names rightly."""
        outputs = self._data.images[TRAINED:]
        for module in self._modules:
            outputs = self._outputs(module, np.maximum(outputs, 0))
        return float(np.mean(outputs.argmax(1) == self._data.labels[TRAINED:]))
