"""Training steps on one rank: known pauses, products of matrices, results, and the order of their times."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from here import Here
from timing import device_seconds, in_rounds
from verdicts import Verdict, bound, holds, not_run, right

from hpccoll.extensions.steps.training.step_program import Compute

if TYPE_CHECKING:
    from hpccoll.extensions.steps.measure.prepared_step import PreparedStep

PAUSED = {"model": "resnet50", "scale": 4096, "compute_us": 20_000}
MULTIPLIED = {"model": "gpt2", "samples": 8, "compute": "gemm"}
"""Computations of some TFLOP each, so that their products are of the largest matrices."""

RUNS = 5


def prepared(here: Here, about: dict[str, Any]) -> "PreparedStep":
    """Return a step of one rank over NCCL, with gradients in float16."""
    from mpi4py import MPI

    from hpccoll.cases.case import Case
    from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
    from hpccoll.extensions.steps.training import TRAINING_STEP
    from hpccoll.extensions.steps.training.training_step import TrainingStep
    from hpccoll.measure.run.prepared_case import PreparedCase
    from hpccoll.schedule import Layout

    workload = TrainingStep.of(about)
    case = Case(
        collective=TRAINING_STEP,
        algorithm="native",
        transport="nccl",
        device="cuda",
        dtype="float16",
        bytes=workload.gradient_bytes("float16"),
        in_place=True,
        params=workload.params,
    )
    return PreparedStep(
        MPI.COMM_SELF,
        Layout.of(1),
        case,
        lambda comm, layout, inside, own: PreparedCase(comm, layout, inside, gpu=own),
        gpu=here.gpu,
    )


def run(step: "PreparedStep") -> tuple[float, int, bool]:
    """Return the seconds of a step by the device, its wrong elements, and whether its times are in order."""
    seconds, wrong, in_order = [], 0, True
    for turn in range(1 + RUNS):
        step.reset()
        step.run()
        if turn:  # the first one is warm-up
            seconds.append(step.device_ns() * 1e-9)
        wrong += step.wrong()
        (times,) = step.events(1)
        count = 3 * len(step.inside)
        operations, computations = times[:count].reshape(-1, 3), times[count:].reshape(-1, 2)
        in_order &= bool((operations[:, :-1] <= operations[:, 1:]).all())
        in_order &= bool((computations.ravel()[:-1] <= computations.ravel()[1:]).all())
    return median(seconds), wrong, in_order


def products_alone(here: Here, step: "PreparedStep") -> float:
    """Return the seconds of all products of a step back to back, by the calls that the step makes."""
    from hpccoll.extensions.steps.measure.step_computations import matrix_products
    from hpccoll.extensions.steps.measure.stream_step_engine import ROWS

    assert step.program
    shapes = [
        shape for of_computation in matrix_products(step.program, ROWS) for shape in of_computation
    ]
    multiply = here.gpu.products(max(rows for rows, _ in shapes))

    def queue() -> None:
        for rows, number in shapes:
            multiply(rows, number)

    return in_rounds(partial(device_seconds, here.gpu, queue, 1), RUNS)


def train(here: Here) -> Iterator[Verdict]:
    """A step of pauses and one of products."""
    from hpccoll.transports.nccl import communicators

    step = prepared(here, PAUSED)
    seconds, wrong, in_order = run(step)
    step.close()
    yield right(f"{1 + RUNS} training steps of pauses on one rank: elements", wrong)
    yield holds("the times of a step's operations and computations are in order", in_order)
    ratio = seconds / (PAUSED["compute_us"] * 1e-6)
    yield bound(
        "a step of 20 ms of pauses, by the device / asked",
        ratio,
        "0.98 to 1.02",
        abs(ratio - 1) <= 0.02,
    )
    if here.on_host:
        yield not_run(
            "the rate of products in a step", "it needs a GPU, and this is the NCCL test library"
        )
    else:
        yield from products(here)
    communicators.close_all_worlds()


def products(here: Here) -> Iterator[Verdict]:
    """The rate of the products in a step beside that of products alone."""
    from hpccoll.transports.gpu import missing_cublas

    if reason := missing_cublas():
        yield not_run("the rate of products in a step", reason)
        return
    step = prepared(here, MULTIPLIED)
    flops = sum(each.flops for each in step.engine.instructions if isinstance(each, Compute))
    alone = products_alone(here, step)
    seconds, wrong, in_order = run(step)
    step.close()
    yield holds(
        "training steps of products: no element is wrong, the times are in order",
        not wrong and in_order,
    )
    ratio = alone / seconds
    rate = f"{flops / alone / 1e12:.0f} TFLOP/s in float16, random values"
    what = f"products in a step of {flops / 1e12:.2g} TFLOP / the same products alone, {rate}"
    yield bound(what, ratio, "0.70 to 1.02", 0.7 <= ratio <= 1.02)
