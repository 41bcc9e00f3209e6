"""The network of digits: its images, and its gradients."""

from importlib import util

import numpy as np
import pytest

from hpccoll.common.errors import UnusableError
from hpccoll.extensions.steps.measure import digits_replica
from hpccoll.extensions.steps.measure.digits_replica import Digits, Replica
from hpccoll.extensions.steps.training.models.digits import BATCH, EPOCH, RATE, TRAINED, UNITS
from hpccoll.extensions.steps.training.training_step import TrainingStep

DATA = Digits.read()


def replicas(ranks=1, weights=None, *, mean=False, **keys):
    """Return the replicas of a run on so many ranks, which share weights."""
    workload = TrainingStep.of({"model": "digits", **keys})
    (program,) = workload.programs(ranks, "float32")
    weights = DATA.initial_weights() if weights is None else weights
    return [
        Replica(
            DATA,
            program,
            [np.zeros(each.elements, np.float32) for each in program.buckets],
            weights,
            (rank, ranks),
            micro_batches=workload.micro_batches,
            mean=mean,
        )
        for rank in range(ranks)
    ]


def gradients(of_ranks):
    """Return the sum of the gradients of ranks in the order of the tensors, and the loss of the batch."""
    for each in of_ranks:
        each.compute_all()
    names = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    of_tensors = (
        sum(each._gradients[name].astype(np.float64) for each in of_ranks).ravel() for name in names
    )
    return np.concatenate([*of_tensors]), sum(each.loss for each in of_ranks)


def test_an_epoch_trains_once_with_each_image_that_is_not_held_out():
    first, second = (
        [
            number
            for step in range(epoch * EPOCH, (epoch + 1) * EPOCH)
            for number in DATA.batch(step)
        ]
        for epoch in range(2)
    )
    assert sorted(first) == sorted(second) == [*range(TRAINED)]
    assert first != second
    assert len(DATA.images) - TRAINED == 357
    assert (DATA.images.min(), DATA.images.max(), {*DATA.labels}) == (0, 1, {*range(10)})


@pytest.mark.parametrize(
    "position", [5 * UNITS[1] + 3, UNITS[0] * UNITS[1] + 17, -UNITS[2] - 4, -2]
)
def test_gradients_are_the_slope_of_the_loss(position):
    weights, step = DATA.initial_weights(), 5e-3
    slope, _ = gradients(replicas(weights=weights))
    losses = []
    for moved in (step, -step):
        changed = weights.copy()
        changed[position] += moved
        losses.append(gradients(replicas(weights=changed))[1])
    assert slope[position] == pytest.approx(
        (losses[0] - losses[1]) / (2 * step), rel=0.02, abs=1e-5
    )


@pytest.mark.parametrize(
    ("ranks", "keys"),
    [
        (2, {}),
        (3, {}),
        (7, {}),
        (BATCH, {}),
        (1, {"micro_batches": 5}),
        (3, {"micro_batches": 2, "buckets": "each"}),
        (2, {"bucket": 4096, "overlap": 0}),
    ],
)
def test_the_batch_is_the_same_on_any_ranks_and_in_any_micro_batches_and_buckets(ranks, keys):
    expected, loss = gradients(replicas())
    found, of_ranks = gradients(replicas(ranks, **keys))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert of_ranks == pytest.approx(loss, rel=1e-6)
    averaged, _ = gradients(replicas(ranks, mean=True, **keys))
    assert averaged / ranks == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_an_update_goes_down_the_slope():
    (replica,) = replicas()
    before = replica.weights.copy()
    slope, _ = gradients([replica])
    hashed = replica.digest()
    replica.end_step()
    assert replica.weights == pytest.approx(before - RATE * slope, rel=1e-5, abs=1e-7)
    assert replica.digest() != hashed


def test_one_line_says_how_to_get_the_images(monkeypatch):
    monkeypatch.setattr(digits_replica, "find_spec", lambda _name: None)
    with pytest.raises(UnusableError, match=r"hpccoll\[digits\]"):
        digits_replica.digits_file()
    assert util.find_spec("sklearn")
