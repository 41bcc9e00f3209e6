"""A network that learns: replicas, the serial run, the warm-up, and the drill that corrupts a gradient."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.measure.digits_training import _differing
from hpccoll.extensions.steps.training.models.digits import BATCH
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.store.load_results import read_results


@pytest.fixture
def train(tmp_path, mpiexec):
    """Return a function that trains, and returns what has ended and its rows by algorithm and compression."""

    def run(ranks, *options, n=12):
        out = tmp_path / f"{len([*tmp_path.iterdir()])}.h5"
        ended = mpiexec(
            ranks,
            "-m",
            "hpccoll",
            "train",
            "--model",
            "digits",
            "-n",
            n,
            "--rounds",
            1,
            "--out",
            out,
            *options,
        )
        rows = {
            (row.algorithm, row.params.get("compress")): row for row in read_results([out]).rows
        }
        return ended, rows, out

    return run


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_replicas_are_equal_after_every_step_and_equal_to_a_serial_run(train, ranks):
    ended, rows, out = train(
        ranks,
        "-a",
        "ring,rabenseifner,native,null",
        "--micro-batches",
        2,
        "--buckets",
        "each",
        "--rounds",
        2,
    )
    assert ended.returncode == 0, ended.stderr
    known = [rows[name, None] for name in ("ring", "rabenseifner")]
    assert [(row.serial_difference, row.diverged_steps) for row in known] == [(0.0, 0)] * 2
    native, null = rows["native", None], rows["null", None]
    assert native.diverged_steps == 0
    assert 0 <= native.serial_difference < 1e-5
    assert (null.status, null.accuracy, null.weights) == ("ok", None, None)
    with h5py.File(out) as file:
        (attempt,) = (each for each in file.values() if isinstance(each, h5py.Group))
        of_ring = [*attempt["algorithm"].asstr()].index("ring")
        loss, accuracy, differing = (
            attempt[f"step_{name}"][of_ring] for name in ("loss", "accuracy", "differing")
        )
    assert np.array_equal(loss[:12], loss[12:])  # each round trains anew
    assert loss[0] == pytest.approx(np.log(10), rel=0.2)
    assert loss[11] == known[0].loss < loss[0]
    assert accuracy[11] == known[0].accuracy > accuracy[0]
    assert not differing.any()


@pytest.mark.mpi
def test_hierarchical_on_two_nodes_is_equal_to_a_serial_run(mpiexec):
    ended = mpiexec(4, Path(__file__).with_name("digits_ranks.py"), 5, "hierarchical", "ring")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert [(each["wrong"], each["serial_difference"]) for each in found.values()] == [(0, 0.0)] * 2
    assert found["hierarchical"]["weights"] != found["ring"]["weights"]


@pytest.mark.mpi
def test_means_that_all_ranks_have_alike_and_wrong_are_found_where_a_library_adds(mpiexec):
    wrong = {
        "native,none,0": "serial",
        "native,none,0.75": "serial",
        "native,none,nan": "serial",
        "native,fp16,0": "step 1",
        "native,fp16,0.75": "step 1",
        "native,fp16,nan": "step 1",
    }
    ended = mpiexec(
        4, Path(__file__).with_name("digits_ranks.py"), 12, "native", "native,fp16,1", *wrong
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert {name: each["wrong"] for name, each in found.items()} == {
        "native": 0,
        "native,fp16,1": 0,
        **dict.fromkeys(wrong, 1),
    }
    for name, reason in wrong.items():
        assert reason in found[name]["reasons"][0], name


@pytest.mark.mpi
def test_no_rank_seems_stuck_while_rank_0_trains_alone(mpiexec):
    ended = mpiexec(2, Path(__file__).with_name("digits_ranks.py"), 7, "ring")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["ring"]["beats"] >= 7


@pytest.mark.mpi
def test_an_aggregator_has_no_weights_and_the_others_are_equal_to_a_serial_run(train):
    ended, rows, _ = train(3, "--aggregators", 1, "-a", "sharp_emulated", n=6)
    assert ended.returncode == 0, ended.stderr
    row = rows["sharp_emulated", None]
    assert (row.status, row.serial_difference, row.diverged_steps) == ("ok", 0.0, 0)


@pytest.mark.mpi
def test_a_drill_after_the_last_step_is_refused(train):
    _, rows, _ = train(2, "-a", "ring", "--corrupt", "7:0", n=6)
    row = rows["ring", None]
    assert row.status == "skipped"
    assert "corrupt: step 7" in row.reason


@pytest.mark.mpi
def test_compressed_gradients_are_those_of_a_serial_run(train):
    kinds = "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "topk=1%"
    ended, rows, _ = train(
        3, "-a", "ring", "--compress", ",".join(kinds), "--feedback", 1, "--overlap", 0, n=6
    )
    assert ended.returncode == 0, ended.stderr
    assert {kind: rows["ring", kind].serial_difference for kind in kinds} == dict.fromkeys(
        kinds, 0.0
    )
    assert len({row.weights for row in rows.values()}) == len(kinds)


@pytest.mark.mpi
def test_a_warm_up_does_not_train(train):
    options = "-a", "ring", "--compress", "topk=1%", "--feedback", 1
    weights = {
        train(2, "-w", warmup, *options, n=5)[1]["ring", "topk=1%"].weights for warmup in (0, 4)
    }
    assert len(weights) == 1
    assert None not in weights


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        (1, "serial run"),
        (2, "step 5: rank 0 and rank 1 have"),
        (3, "step 5: rank 0 has other weights than the other 2"),
    ],
)
def test_a_gradient_that_is_corrupted_is_found_in_its_step(train, ranks, reason):
    ended, rows, _ = train(ranks, "-a", "ring", "--corrupt", "5:0", n=8)
    assert ended.returncode == 3
    row = rows["ring", None]
    assert (row.status, row.diverged_steps) == ("wrong", 4 if ranks > 1 else 0)
    assert reason in row.reason


@pytest.mark.parametrize(
    ("digests", "differing", "reasons"),
    [
        ([[1, 1, 1], [2, 2, 2]], [0, 0], []),
        (
            [[1, 1, 1], [2, 3, 2], [4, 5, 6]],
            [0, 1, 2],
            ["step 2: r1 has other weights than the other 2 ranks"],
        ),
        ([[1, 2, 2, 1]], [2], ["step 1: r0, r1, r2 and r3 have different weights"]),
    ],
)
def test_the_ranks_with_other_weights_than_most_are_named(digests, differing, reasons):
    found, words = _differing(np.array(digests, np.int64).view("V8"), "r{}".format)
    assert (found.tolist(), words) == (differing, reasons)


@pytest.mark.parametrize(
    ("keys", "ranks", "more", "key"),
    [
        ({"scale": 2}, 2, {}, "scale"),
        ({"compute": "gemm"}, 2, {}, "compute"),
        ({"samples": 4}, 2, {}, "samples"),
        ({"sharding": "zero1"}, 2, {}, "sharding"),
        ({}, 2, {"op": "max"}, "op"),
        ({}, 2, {"dtype": "float64"}, "dtype"),
        ({}, 2, {"device": "cuda"}, "device"),
        ({}, BATCH + 1, {}, "ranks"),
        ({"micro_batches": 17}, 2, {}, "ranks"),
        ({"corrupt": "5"}, 2, {}, "corrupt"),
        ({"corrupt": "5:2"}, 2, {}, "corrupt"),
        ({"corrupt": "0:1"}, 2, {}, "corrupt"),
        ({"corrupt": "1:1", "model": "resnet50"}, 2, {}, "corrupt"),
    ],
)
def test_what_a_network_that_learns_cannot_take_is_refused(keys, ranks, more, key):
    about = {"dtype": "float32", "op": "sum", "device": "cpu"}
    TrainingStep.of({"model": "digits", "micro_batches": 16, "corrupt": "1:1"}).check_ranks(
        2, *about.values()
    )
    with pytest.raises(BadInputError) as refused:
        TrainingStep.of({"model": "digits", **keys}).check_ranks(ranks, *{**about, **more}.values())
    assert refused.value.key == key
