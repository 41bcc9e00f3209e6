"""The model of a run: its machine file, its JSON, and the models of raw files."""

from pathlib import Path

import pytest
from model_observations import observed, raw_trips
from modelled_runs import SIZES, TRIPS, modelled, slower, whole_model
from raw_examples import attempt, case, job, outcome, raw
from synthetic_timings import times_around

from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.run_model import models_of
from hpccoll.model.validation import Errors
from hpccoll.store.raw_results import RawResults


def test_json_has_the_machine_every_row_and_the_crossings():
    model = whole_model()
    found = model.to_json()
    assert (found["kind"], found["transport"], found["executor"]) == ("simulated", "mpi", "python")
    assert MachineFile.model_validate(found["machine_file"]) == model.machine_file()
    assert len(found["rows"]) == len(model.validated)
    rows = {(row["collective"], row["algorithm"], row["bytes"]): row for row in found["rows"]}
    ring, native = rows["all_reduce", "ring", 1 << 20], rows["all_reduce", "native", 1024]
    assert ring["held_out"] is True
    assert ring["measured_s"] == pytest.approx(1.1 * ring["predicted_s"], rel=0.05)
    assert [ring[key] for key in ("dtype", "op", "mapping", "racks", "reason")] == [
        "float32",
        "sum",
        None,
        1,
        None,
    ]
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


def test_each_executor_has_its_own_model_and_is_named_only_in_a_run_of_both():
    def latency(model):
        return model.machine.tiers["rack"][0].latency_s.value

    done = []
    both = [raw_trips("compiled"), raw_trips("python", 5)]
    compiled, python = models_of(both, progress=lambda number, of: done.append((number, of)))
    assert latency(python) == pytest.approx(5 * latency(compiled), rel=0.01)
    assert [model.over for model in (compiled, python)] == [
        "mpi by the compiled executor",
        "mpi by the python executor",
    ]
    assert done == [(number, 12) for number in range(1, 13)]
    (alone,) = models_of([raw_trips("python", 5)])
    assert alone.over == "mpi"
    assert alone.to_json()["executor"] == "python"


def test_imported_results_of_several_machines_in_a_file_have_a_model_each():
    def sums(factor):
        """Return what rings take on a machine."""
        return [
            outcome(
                case(1 << k),
                bytes=1 << k,
                executor="python",
                times=times_around(factor * (2e-6 + 1e-9 * 2**k)),
            )
            for k in range(3, 25)
        ]

    launches = [
        (attempt(1, kind="imported", machine="slow"), sums(10)),
        (attempt(2, kind="imported", machine="fast"), sums(1)),
    ]
    cases = [one.case for one in sums(1)]
    both = RawResults(path=Path("both.h5"), job=job(*cases), attempts=launches)
    models = models_of([both])
    assert [model.measured_on for model in models] == [("imported", "fast"), ("imported", "slow")]
    for model in models:
        assert len(model.validated) == len(cases)
        assert Errors.of(model.validated).error_median < 0.1


def test_files_of_one_machine_have_one_model_and_without_ping_pongs_there_is_none():
    sums = raw(*(outcome(case(1 << k), executor="python") for k in range(10, 14)), path="sums.h5")
    (model,) = models_of([raw_trips(), sums])
    assert {one.observation.collective for one in model.validated} == {"send_recv", "all_reduce"}
    assert {one.observation.collective for one in model.held_out} == {"all_reduce"}
    with pytest.raises(BadInputError, match=r"send_recv.*calibrate\.yaml"):
        models_of([sums])
    _, unfitted = models_of(
        [raw_trips(), raw(outcome(case(device="cuda", transport="nccl")), path="gpu.h5")]
    )
    assert (unfitted.machine, unfitted.to_json()["machine_file"]) == (None, None)
    with pytest.raises(BadInputError, match="send_recv"):
        unfitted.machine_file()
