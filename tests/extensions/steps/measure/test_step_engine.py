"""The engine of training steps drives what has started while it computes, whatever the collectives are."""

from hpccoll.extensions.steps.measure import step_engine
from hpccoll.extensions.steps.measure.step_computations import END, product_flops
from hpccoll.extensions.steps.measure.step_engine import StepEngine
from hpccoll.extensions.steps.training.model_shape import ModelShape
from hpccoll.extensions.steps.training.step_program import (
    Compute,
    Start,
    StepOperation,
    StepProgram,
    Wait,
)
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.matrix_multiplication import HOST_ROWS, Gemm

MODEL = ModelShape("none", (), "float32", "a sample", "none")


class Collective:
    """A collective that ends when it has been driven so often."""

    def __init__(self, polls):
        self.polls, self.left, self.starts = polls, None, 0

    def start(self):
        self.left, self.starts = self.polls, self.starts + 1

    def advance(self):
        self.left -= 1
        return self.left <= 0


def operation(axis):
    return StepOperation("bucket", "all_reduce", axis, 4, "float32", "backward")


def engine(instructions, collectives, **workload):
    program = StepProgram(0, MODEL, tuple(instructions), ())
    workload = TrainingStep.of({"compute_us": 2000, **workload})
    return StepEngine(program, workload, collectives, [each.axis for each in program.operations])


def test_collectives_of_one_stream_follow_one_another_and_others_do_not_wait_for_them():
    slow, second, other = Collective(10**9), Collective(1), Collective(1)
    program = [Start(operation("dp")), Start(operation("dp")), Start(operation("tp")), Wait(2)]
    made = engine(program, [slow, second, other])
    made.await_end = lambda number, wait=made.await_end: wait(number) if number == 2 else None
    made.run()
    assert (slow.starts, second.starts, other.starts) == (1, 0, 1)
    assert made.times[3 * 2 + END] > 0


def test_a_wait_ends_with_its_collective_and_what_follows_begins_then():
    made = engine([Start(operation("tp")), Wait(0), Compute("forward", 1.0)], [Collective(5)])
    made.run()
    (times,) = made.runs
    assert times[3] >= times[END]


def test_a_computation_ends_after_its_products_and_every_step_has_the_same_products(monkeypatch):
    multiplied = []
    monkeypatch.setattr(
        step_engine.np, "matmul", lambda a, _b, out: multiplied.append((len(a), len(out)))
    )
    computations = [
        Compute("forward", 2.0 * product_flops(128)),
        Compute("backward", 1.0 * product_flops(64)),
    ]
    made = engine([*computations, Start(operation("dp"))], [Collective(5)], compute="gemm")
    try:
        for _ in range(2):
            made.run()
    finally:
        made.close()
    assert multiplied == [(128, 128), (128, 128), (64, 64)] * 2
    assert all(begin < end for times in made.runs for begin, end in (times[3:5], times[5:7]))


def test_the_thread_that_multiplies_can_be_closed_while_it_works():
    gemm = Gemm([((HOST_ROWS[-1], 10**9),)])
    products = gemm.start()
    assert not products.done()
    gemm.close()
    products.result()


def test_an_aggregator_runs_the_collectives_and_computes_nothing():
    collectives = [Collective(2), Collective(2)]
    made = StepEngine(None, TrainingStep.of({}), collectives, ["dp", "dp"])
    made.run()
    assert made.events == 6
    assert [each.starts for each in collectives] == [1, 1]
