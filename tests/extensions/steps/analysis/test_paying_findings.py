"""Where compression pays by measured steps: the wire's rate, what it saves, and what codecs take."""

import pytest
from step_examples import step_case, step_outcome, step_times, steps

from hpccoll.analysis.wire_bandwidth import Wire
from hpccoll.extensions.steps.analysis.paying_findings import paying_findings
from hpccoll.extensions.steps.analysis.step_comparison import compare_steps
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

LINK = 125e6
COMPUTED_MS, DENSE_MS = 10, 80


def operation(label, collective="all_reduce"):
    return {"label": label, "collective": collective, "axis": "dp", "bytes": 8, "phase": "backward"}


def outcome(milliseconds, labels, ready_ms, computed_ms, **workload):
    """Return a step whose operations follow one another from when the first is ready."""
    events, at = [], ready_ms
    for each in milliseconds:
        events += [ready_ms, at, at + each]
        at += each
    program = [
        [
            *(operation(label, "codec" if " " in label else "all_reduce") for label in labels),
            {"phase": "forward"},
        ]
    ]
    times = step_times([[*events, 0, computed_ms]] * 2)
    return step_outcome(step_case("ring", **workload), times, program)


WIRE = Wire(line_rate=LINK, calibrated_rate=0.956 * LINK)  # of which headers take a part


def found(wire_ms, codec_ms, *, ready_ms=COMPUTED_MS, computed_ms=COMPUTED_MS, wire=WIRE):
    """Return the findings of a dense step, and of one whose wire and two codecs take so long."""
    raw = steps({"null": 0})
    both = [
        outcome([DENSE_MS], ["bucket"], ready_ms, computed_ms),
        outcome(
            [codec_ms, wire_ms, codec_ms],
            ["bucket encode", "bucket", "bucket decode"],
            ready_ms,
            computed_ms,
            compress="fp16",
        ),
    ]
    raw.attempts[0] = raw.attempts[0][0], both
    results = to_results(ResultFiles(raw_results=[raw]))
    compared = compare_steps(results.rows, {})
    return list(
        paying_findings(compared, results.timelines, {row.key: wire for row in results.rows})
    )


@pytest.mark.parametrize(("wire_ms", "codec_ms"), [(40, 10), (40, 40), (20, 5)])
def test_without_overlap_the_rate_is_that_of_the_wire_times_what_is_saved_over_what_codecs_take(
    wire_ms, codec_ms
):
    ((finding,), expected) = (
        found(wire_ms, codec_ms),
        8 * LINK * (DENSE_MS - wire_ms) / (2 * codec_ms),
    )
    (rate,) = finding.values["rates"]
    assert (rate["compress"], rate["likely"]) == ("fp16", pytest.approx(expected, rel=0.002))
    assert "fp16 pays below" in finding.text


def test_where_computation_hides_codecs_compression_pays_until_it_hides_all_messages():
    computed_ms = 200
    (finding,) = found(40, 2, ready_ms=0, computed_ms=computed_ms)
    expected = 8 * LINK * DENSE_MS / computed_ms
    assert finding.values["rates"][0]["likely"] == pytest.approx(expected, rel=0.002)


def test_a_message_as_long_as_without_compression_pays_at_no_rate():
    (finding,) = found(DENSE_MS, 1)
    assert finding.values["rates"][0]["high"] == 0


@pytest.mark.parametrize("wire", [Wire(), Wire(mtu=9000)])
def test_nothing_is_said_where_the_rate_of_the_wire_is_unknown(wire):
    assert found(40, 10, wire=wire) == []
    (finding,) = found(40, 10, wire=Wire(port_rate=LINK))
    assert finding.values["rates"]
