"""Computations become products of matrices whose FLOPs are theirs, however small they are."""

import pytest

from hpccoll.extensions.steps.measure import stream_step_engine
from hpccoll.extensions.steps.measure.step_computations import matrix_products, product_flops
from hpccoll.extensions.steps.training.model_shape import ModelShape
from hpccoll.extensions.steps.training.step_program import Compute, StepProgram
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.matrix_multiplication import HOST_ROWS

MODEL = ModelShape("none", (), "float32", "a sample", "none")
ROWS = range(128, 512 + 1, 128)
SMALLEST, LARGEST = product_flops(ROWS[0]), product_flops(ROWS[-1])


def products(*flops, rows=ROWS):
    return matrix_products(
        StepProgram(0, MODEL, tuple(Compute("forward", each) for each in flops), ()), rows
    )


def flops_of(computation):
    return sum(number * product_flops(size) for size, number in computation)


def test_a_computation_has_products_of_the_largest_matrices_and_the_rest_is_left_to_the_next():
    assert products(2 * LARGEST + product_flops(384) + SMALLEST) == [((512, 2), (384, 1))]
    assert products(product_flops(256) + 2 * SMALLEST) == [((256, 1), (128, 2))]
    assert products(*[SMALLEST] * 5) == [((128, 1),)] * 5
    found = products(*[SMALLEST / 8] * 80)
    assert sum(map(flops_of, found)) == 10 * SMALLEST
    assert found.count(()) == 70
    assert products(0.0, 0.0) == [(), ()]


@pytest.mark.parametrize("rows", [HOST_ROWS, stream_step_engine.ROWS])
@pytest.mark.parametrize(
    "workload",
    [
        {},
        {"model": "llama2-7b", "parallel": "tp=2,pp=4", "micro_batches": 4},
    ],
)
def test_every_computation_of_a_whole_model_has_a_product_and_about_its_flops(workload, rows):
    for program in TrainingStep.of(workload).programs(8, "float32"):
        computations = [each for each in program.instructions if isinstance(each, Compute)]
        found = matrix_products(program, rows)
        assert all(found)
        assert sum(map(flops_of, found)) == pytest.approx(
            sum(each.flops for each in computations), rel=0.02
        )
        for each, of_each in zip(computations, found, strict=True):
            if each.flops > product_flops(rows[-1]) / 10:
                assert flops_of(of_each) == pytest.approx(each.flops, rel=0.2)
