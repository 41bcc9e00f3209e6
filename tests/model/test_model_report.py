"""The printed model: its text where model and measurement agree, and where they differ."""

from dataclasses import replace

import pytest
from model_observations import MACHINE, observation
from raw_examples import case, outcome, raw, times
from synthetic_timings import times_around

from hpccoll.model.machine import Link
from hpccoll.model.model_report import UPLINKS, RunModel, _crossing_text, as_json, model_lines, models_of
from hpccoll.model.observations import observations
from hpccoll.model.validation import Crossing, Overtaking, validate
from hpccoll.schedule import Layout
from hpccoll.spec.case import TIMINGS

KIB = 1024.0
RING, STAR = Overtaking("ring", (8 * KIB,)), Overtaking("star", (2 * KIB, 4 * KIB, 8 * KIB))
ALIKE, RING_EVER, STAR_EVER = (Overtaking(name, ()) for name in (None, "ring", "star"))


@pytest.mark.parametrize(
    ("modelled", "measured", "words"),
    [
        (RING, Overtaking("ring", (9 * KIB,)), "ring overtakes star: modelled from 8 KiB, measured from 9 KiB"),
        (STAR, STAR, "star overtakes ring: modelled from 8 KiB (back and forth since 2 KiB), measured from 8 KiB ("),
        (RING, STAR, "modelled: ring overtakes star from 8 KiB; measured: star overtakes ring from 8 KiB (back"),
        (ALIKE, RING, "modelled: ring and star take the same; measured: ring overtakes star from 8 KiB"),
        (RING, STAR_EVER, "modelled: ring overtakes star from 8 KiB; measured: star is always ahead of ring"),
        (RING, RING_EVER, "modelled: ring overtakes star from 8 KiB; measured: ring is always ahead of star"),
    ],
)
def test_equal_crossings_are_printed_once_and_different_ones_for_each_side(modelled, measured, words):
    assert _crossing_text(Crossing(("ring", "star"), modelled, measured)).startswith(words)


def told(layout):
    observed = [observation("all_reduce", "ring", 1024, 1.0, layout)]
    machine = replace(MACHINE, links={**MACHINE.links, "fabric": Link(1e-4, 1e-8)})
    return list(model_lines(RunModel([raw()], "mpi", machine, validate(observed, machine))))


def test_a_shared_uplink_is_noted_for_racks_with_several_nodes():
    assert f"  {UPLINKS}" in told(Layout((0, 1, 2, 3), rack=(0, 0, 1, 1)))
    assert f"  {UPLINKS}" not in told(Layout((0, 1), rack=(0, 1)))
    assert f"  {UPLINKS}" not in told(Layout((0, 1, 2, 3)))


def test_a_common_mapping_is_named_once_and_differing_ones_in_each_name():
    def named(*mappings):
        each = [("ring", 1024), ("ring", 4096), ("star", 1024), ("star", 4096)]
        observed = [
            observation("all_reduce", name, size, 1.0, about={"mapping": mapping})
            for name, size in each
            for mapping in mappings
        ]
        return "\n".join(model_lines(RunModel([raw()], "mpi", MACHINE, validate(observed, MACHINE))))

    assert "6 nodes, float32 sum, mapping block, measured over modelled time" in named("block")
    assert "mapping=" not in named("block")
    assert "6 nodes, float32 sum, measured over modelled time" in named("block", "cyclic")
    assert {"mapping=block", "mapping=cyclic"} <= set(named("block", "cyclic").split())
    assert "mapping" not in named(None)


def test_each_executor_has_its_own_model_and_is_named_only_in_a_run_of_both():
    def models(*executors):
        sizes = [2**k for k in range(10, 16)]
        outcomes = [
            outcome(
                case(size, collective="send_recv", algorithm="ping_pong", op=None, root=0, params={"peer": -1}),
                bytes=size, executor=executor, params={"peer": -1}, times=times_around(slow * (1e-6 + 1e-10 * size)),
            )
            for executor, slow in executors
            for size in sizes
        ]  # fmt: skip
        return models_of([raw(one) for one in outcomes])

    compiled, python = models(("compiled", 1), ("python", 5))
    assert python.machine.links["rack"].alpha_s == pytest.approx(5 * compiled.machine.links["rack"].alpha_s, rel=0.01)
    assert [next(model_lines(model)).rpartition(", over ")[2] for model in (compiled, python)] == [
        "mpi by the compiled executor", "mpi by the python executor",
    ]  # fmt: skip
    (alone,) = models(("python", 5))
    assert next(model_lines(alone)).endswith(", over mpi")
    assert as_json(alone)["executor"] == "python"


def test_only_single_operations_are_observed():
    cases = [case(timing=timing, device="cuda", transport="nccl") for timing in TIMINGS]
    several = raw(*(outcome(one, times=times(gated=one.timing == "gated")) for one in cases))
    assert len([*observations(several)]) == 1
