"""The rates of codecs in measured steps: the slowest rank counts, and steps without compression do not."""

import pytest
from predicted_machines import fitted
from step_examples import step_case, step_outcome, step_times, steps

from hpccoll.extensions.steps.model.codec_fit import measured_codecs
from hpccoll.model.machine_file import read_machine, write_machine

MB = 10**6


def operation(label, collective, nbytes):
    return {
        "label": label,
        "collective": collective,
        "axis": "dp",
        "bytes": nbytes,
        "phase": "backward",
    }


CHAIN = [
    operation("bucket 1 encode", "codec", 8 * MB), operation("bucket 1", "all_reduce", 4 * MB),
    operation("bucket 1 decode", "codec", 8 * MB),
]  # fmt: skip


def raw(encode_ms, *, algorithm="ring", oversubscribed=False, **workload):
    """Return steps of ranks that encode for so many milliseconds, one for each rank, and decode for 2."""
    events = [(0, 0, ms, 0, 10, 20, 0, 20, 22, 0, 30) for ms in encode_ms]
    program = [[*CHAIN, {"phase": "forward"}]]
    found = steps({"null": 0}, oversubscribed=oversubscribed)
    case = step_case(algorithm, **workload)
    found.attempts[0] = (found.attempts[0][0], [step_outcome(case, step_times(events), program)])
    return found


def values(found):
    return {
        name: {work: each.bytes_per_s.value for work, each in of.items()}
        for name, of in found.items()
    }


def test_a_rate_is_the_bytes_of_a_pass_over_the_seconds_of_the_slowest_rank():
    found = measured_codecs([raw([4, 8], compress="fp16")])
    assert values(found) == {"fp16": {"encode": pytest.approx(1e9), "decode": pytest.approx(4e9)}}


def test_several_steps_give_an_interval_and_feedback_has_rates_of_its_own():
    found = measured_codecs([raw([4, 4], compress="fp16"), raw([8, 8], compress="fp16")])
    rate = found["fp16"]["encode"].bytes_per_s
    assert rate.low < rate.value < rate.high
    fed_back = measured_codecs([raw([8, 8], compress="topk=1%", feedback=1)])
    assert {*fed_back} == {"topk+feedback"}


@pytest.mark.parametrize(
    "workload",
    [
        {},
        {"compress": "none"},
        *(
            {"compress": "fp16", **more}
            for more in ({"oversubscribed": True}, {"algorithm": "null"})
        ),
    ],
)
def test_steps_without_compression_or_communication_or_with_more_ranks_than_cpus_have_none(
    workload,
):
    assert measured_codecs([raw([4, 4], **workload)]) == {}
    assert measured_codecs([steps({"ring": 12, "null": 0})]) == {}


def test_a_machine_file_keeps_them(tmp_path):
    codecs = measured_codecs([raw([4, 8], compress="fp16")])
    write_machine(fitted(codecs=codecs), tmp_path / "m.json")
    kept = read_machine(tmp_path / "m.json", "").codecs
    assert kept["fp16"]["encode"].bytes_per_s.value == pytest.approx(1e9)
