"""The printed model: errors on what the fit has not seen come first, then the machine, then every work."""

from dataclasses import replace
from pathlib import Path

import pytest
from model_observations import MACHINE, observation, observed, raw_trips
from raw_examples import case, outcome, raw

from hpccoll.common.errors import BadInputError
from hpccoll.model.fit import fit
from hpccoll.model.machine import Cpus, MessageCosts, Tier
from hpccoll.model.machine_file import DeclaredSections, MachineFile
from hpccoll.model.model_report import RunModel, _crossing_text, as_json, model_lines, models_of
from hpccoll.model.validation import Crossing, Overtaking, validate
from hpccoll.schedule import Layout

GOLDEN = Path(__file__).with_name("model_report.golden.txt")
KIB = 1024.0
RING, STAR = (
    Overtaking("ring", (8 * KIB,), 64 << 10), Overtaking("star", (2 * KIB, 4 * KIB, 8 * KIB), 64 << 10),
)  # fmt: skip
ALIKE, RING_EVER, STAR_EVER = (Overtaking(name, (), 64 << 10) for name in (None, "ring", "star"))


@pytest.mark.parametrize(
    ("modelled", "measured", "words"),
    [
        (
            RING,
            Overtaking("ring", (9 * KIB,), 16 << 10),
            "ring overtakes star: modelled from 8 KiB to 64 KiB, measured from 9 KiB to 16 KiB",
        ),
        (
            STAR,
            STAR,
            "star overtakes ring: modelled from 8 KiB to 64 KiB (back and forth since 2 KiB), measured from 8 KiB to",
        ),
        (
            RING,
            STAR,
            "modelled: ring overtakes star from 8 KiB to 64 KiB; measured: star overtakes ring from 8 KiB to 64 KiB (",
        ),
        (ALIKE, RING, "modelled: ring and star take the same; measured: ring overtakes star from 8 KiB to 64 KiB"),
        (RING, STAR_EVER, "modelled: ring overtakes star from 8 KiB to 64 KiB; measured: star is always ahead of ring"),
        (RING, RING_EVER, "modelled: ring overtakes star from 8 KiB to 64 KiB; measured: ring is always ahead of star"),
    ],
)
def test_equal_crossings_are_printed_once_and_different_ones_for_each_side(modelled, measured, words):
    assert _crossing_text(Crossing(("ring", "star"), modelled, measured)).startswith(words)


def modelled(calibration, others, **more):
    """Return the model of a run: the machine fitted to a calibration, and its predictions of other measurements."""
    found = fit([*calibration, *others], "here")
    validated = validate([*calibration, *others], found.machine.machine(), found.used)
    return RunModel([raw()], "mpi", found, validated, **more)


SIZES = tuple(1 << k for k in range(10, 24, 2))
TRIPS = observed("send_recv", "ping_pong", Layout.of(4, 2), sizes=SIZES)


def slower(observations, factor):
    return [replace(one, seconds=one.seconds * factor) for one in observations]


def whole_model():
    """Return a model of everything: two protocols, shared resources, noise, held-out algorithms and native calls."""
    machine = replace(
        MACHINE,
        tiers={
            **MACHINE.tiers,
            "rack": Tier((MessageCosts(latency_s=3e-5, byte_s=1e-15), MessageCosts(5000, 9e-5, byte_s=1e-15))),
        },
        port_byte_s=8e-9,
        cpus=Cpus(2, 6e-9, "machine"),
    )
    about, four, six = {"kind": "measured on a testbed", "cpus": 2}, Layout.of(4, 1), Layout.of(8, 1)
    here = {"machine": machine, "noise": 0.01, "sizes": SIZES, "about": about}
    calibration = [
        *observed("send_recv", "ping_pong", four, **here),
        *observed("bidirectional", "exchange", four, **here),
        *observed("multi_pair", "exchange", four, concurrent=2, **here),
        *observed("reduce_scatter", "ring", four, **here),
        *observed("all_gather", "ring", four, **here),
    ]
    others = [
        *slower(observed("all_reduce", "ring", six, **here), 1.1),
        *slower(observed("all_reduce", "recursive_doubling", six, **here), 0.8),
        observation("all_reduce", "native", 1024, 1e-3, six),
    ]
    return modelled(calibration, others)


def test_the_whole_report_is_the_golden_text():
    assert "\n".join(model_lines(whole_model())) + "\n" == GOLDEN.read_text()


def test_errors_on_what_the_fit_has_not_seen_come_first():
    lines = [*model_lines(modelled(TRIPS, observed("all_reduce", "ring", sizes=SIZES)))]
    assert lines[1].startswith(f"held out: {len(SIZES)} cases")
    assert lines.index("parameters, with 95 % intervals over rounds") > 3
    alone = [*model_lines(modelled(TRIPS, []))]
    assert alone[1].startswith("no held-out measurement")


def test_a_common_mapping_is_named_once_and_differing_ones_in_each_name():
    def named(*mappings):
        each = [("ring", 1024), ("ring", 4096), ("star", 1024), ("star", 4096)]
        others = [
            observation("all_reduce", name, size, 1.0, about={"mapping": mapping})
            for name, size in each
            for mapping in mappings
        ]
        return "\n".join(model_lines(modelled(TRIPS, others)))

    assert "6 nodes, float32 sum, mapping block, measured over predicted time" in named("block")
    assert "mapping=" not in named("block")
    assert "6 nodes, float32 sum, measured over predicted time" in named("block", "cyclic")
    assert {"mapping=block", "mapping=cyclic"} <= set(named("block", "cyclic").split())
    assert "mapping" not in named(None)


def test_json_has_the_machine_every_row_and_the_crossings():
    model = whole_model()
    found = as_json(model)
    assert (found["kind"], found["transport"], found["executor"]) == ("simulated", "mpi", "python")
    assert MachineFile.model_validate(found["machine_file"]) == model.machine_file()
    assert len(found["rows"]) == len(model.validated)
    rows = {(row["collective"], row["algorithm"], row["bytes"]): row for row in found["rows"]}
    ring, native = rows["all_reduce", "ring", 1 << 20], rows["all_reduce", "native", 1024]
    assert ring["held_out"] is True
    assert ring["measured_s"] == pytest.approx(1.1 * ring["predicted_s"], rel=0.05)
    assert (ring["dtype"], ring["op"], ring["mapping"], ring["racks"], ring["reason"]) == (
        "float32",
        "sum",
        None,
        1,
        None,
    )
    assert (native["predicted_s"], native["measured_s"]) == (None, 1e-3)
    assert "unknown" in native["reason"]
    assert rows["send_recv", "ping_pong", 1024]["held_out"] is False
    (crossing,) = [each for each in found["crossings"] if each["collective"] == "all_reduce"]
    assert crossing["modelled"]["overtaker"] == crossing["measured"]["overtaker"] == "ring"


def test_the_machine_file_has_the_errors_of_held_out_measurements():
    model = modelled(TRIPS, slower(observed("all_reduce", "ring", sizes=SIZES), 1.25))
    validation = model.machine_file().validation
    assert validation["cases"] == len(SIZES)
    assert validation["ratio_median"] == pytest.approx(1.25, rel=0.05)
    assert "regret_mean" not in validation, "there is one algorithm"
    assert modelled(TRIPS, []).machine_file().validation == {}


# ---- from raw files -------------------------------------------------------------------------------------------------


def test_each_executor_has_its_own_model_and_is_named_only_in_a_run_of_both():
    def latency(model):
        return model.fit.machine.tiers["rack"][0].latency_s.value

    done = []
    both = [raw_trips("compiled"), raw_trips("python", 5)]
    compiled, python = models_of(both, progress=lambda number, of: done.append((number, of)))
    assert latency(python) == pytest.approx(5 * latency(compiled), rel=0.01)
    assert [next(model_lines(model)).rpartition(", over ")[2] for model in (compiled, python)] == [
        "mpi by the compiled executor", "mpi by the python executor",
    ]  # fmt: skip
    assert done == [(number, 12) for number in range(1, 13)]
    (alone,) = models_of([raw_trips("python", 5)])
    assert next(model_lines(alone)).endswith(", over mpi")
    assert as_json(alone)["executor"] == "python"


def test_declared_sections_replace_fitted_ones_and_count_in_predictions():
    declared = DeclaredSections.model_validate({"cpus": {"cores": 1, "bytes_per_s": 1e3, "of": "machine"}})
    (fitted,), (changed,) = models_of([raw_trips()]), models_of([raw_trips()], declared)
    assert changed.fit.machine.cpus == declared.cpus
    assert changed.fit.machine.tiers == fitted.fit.machine.tiers
    pairs = zip(changed.validated, fitted.validated, strict=True)
    assert all(one.seconds > 10 * other.seconds for one, other in pairs)


def test_files_of_one_machine_have_one_model():
    sums = raw(*(outcome(case(1 << k), executor="python") for k in range(10, 14)), path="sums.h5")
    (model,) = models_of([raw_trips(), sums])
    assert {one.observation.collective for one in model.validated} == {"send_recv", "all_reduce"}
    assert {one.observation.collective for one in model.held_out} == {"all_reduce"}


def test_without_ping_pongs_there_is_no_model():
    with pytest.raises(BadInputError, match=r"send_recv.*calibrate\.yaml"):
        models_of([raw()])
    other = outcome(case(device="cuda", transport="nccl"))
    fitted, unfitted = models_of([raw_trips(), raw(other, path="gpu.h5")])
    assert unfitted.fit is None
    assert next(model_lines(unfitted)).endswith("not modelled")
    assert as_json(unfitted)["machine_file"] is None
    assert fitted.fit
    with pytest.raises(BadInputError, match="send_recv"):
        unfitted.machine_file()
