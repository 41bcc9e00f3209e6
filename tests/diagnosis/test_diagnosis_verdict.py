"""The verdict of a diagnosis: its JSON is the contract, and names what is at fault and by which slots."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from recorded_diagnoses import interrupted, recorded

from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.nodes_alone import TRANSFER_ERRORS
from hpccoll.diagnosis.recorded import DiagnosisOptions, MeasuredSlots
from hpccoll.diagnosis.slot_records import Component, Fault, Slots
from hpccoll.diagnosis.verdict import verdict_of

NODE, LINK, UPLINK = Component("node", (5,)), Component("link", (1, 6)), Component("uplink", (3,))


def found(*faults, nodes=16, **asked):
    """Return the verdict on a simulated machine as its readers have it."""
    return strict_json(
        verdict_of(recorded(nodes, *((fault, 30) for fault in faults), **asked)).to_json()
    )


def strict_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


def test_a_slow_node_is_named_with_its_effect_its_interval_and_the_slots_that_decided():
    verdict = found(NODE)
    (fault,) = verdict["verdicts"]
    assert (fault["kind"], fault["where"], fault["rail"], fault["candidates"]) == (
        "node",
        ["n5"],
        None,
        [],
    )
    assert 1.3 < fault["low"] < fault["effect"] < fault["high"] < 1.6
    assert fault["confidence"] > 0.999
    assert fault["slots"]["screen"] >= 15
    assert 12 <= fault["slots"]["retest"] <= 36
    assert verdict["exclude"] == ["n5"]
    assert verdict["links"]
    assert (verdict["nodes"], verdict["racks"], verdict["complete"]) == (16, [], True)
    assert verdict["load"] == {
        "program": "MPI",
        "memory": "host",
        "bytes": 4 << 20,
        "together": True,
    }


def test_a_link_counts_the_slots_in_which_its_nodes_were_a_pair_and_excludes_nothing():
    verdict = found(LINK)
    (fault,) = verdict["verdicts"]
    assert (fault["kind"], fault["where"], verdict["exclude"]) == ("link", ["n1", "n6"], [])
    assert 1 <= fault["slots"]["screen"] <= 3  # of all pairs
    assert fault["slots"]["links"] >= 9


def test_an_uplink_is_named_with_its_rack_and_the_hosts_of_the_rack():
    verdict = found(UPLINK, nodes=64)
    (fault,) = verdict["verdicts"]
    assert (fault["kind"], fault["rack"]) == ("uplink", "rack3")
    assert fault["where"] == [f"n{node}" for node in range(24, 32)]
    assert verdict["racks"] == [f"rack{number}" for number in range(8)]


def test_a_slow_rail_is_named_with_its_node_and_excludes_nothing():
    verdict = found(Component("rail", (5,), 1), nodes=8, rails=2)
    (fault,) = verdict["verdicts"]
    assert (fault["kind"], fault["where"], fault["rail"], verdict["exclude"]) == (
        "rail",
        ["n5"],
        1,
        [],
    )


@pytest.mark.parametrize("seed", range(3))
def test_slots_have_the_purpose_of_the_rails_that_they_measure(seed):
    diagnosis = recorded(16, (Component("rail", (3,), 1), 30), rails=2, seed=seed)
    (fault,) = verdict_of(diagnosis).verdicts
    assert (fault.place.rail, fault.deciding) == (1, "retest")
    assert fault.slots["retest"] >= 12
    for each in diagnosis.measured:
        if each.slots.purpose in ("retest", "accused", "alone"):
            # of the healthy rail none is measured again
            assert (each.slots.partners == np.arange(32))[:, :16].all()


def test_of_a_hung_node_what_is_not_finite_is_null():
    verdict = found(nodes=2, hung=[1])
    assert {fault["kind"] for fault in verdict["verdicts"]} == {"hung"}
    assert {
        verdict["verdicts"][0][name] for name in ("effect", "low", "high", "confidence", "chance")
    } == {None}
    assert (verdict["noise"], verdict["smallest_effect"]) == (None, None)


def test_a_hung_node_is_named_with_the_nodes_to_which_it_did_not_answer():
    diagnosis = recorded(16, hung=[3])
    (fault,) = verdict_of(diagnosis).verdicts
    missed = [each for each in diagnosis.measured if np.isinf(each.seconds).any()]
    partners = [each.slots.partners[len(each.seconds) - 1, 3] for each in missed]
    assert fault.missed_with == tuple(f"n{partner}" for partner in partners)
    assert len(partners) == 2


def test_a_node_whose_transfers_end_with_errors_has_failed_with_the_last_one_and_is_excluded():
    diagnosis = recorded(16, hung=[3])
    errors = [
        {"hosts": ["n3", "n7"], "why": why}
        for why in ("NCCL: internal error", "NCCL: unhandled cuda error")
    ]
    # as its partner has it
    errors.append({"hosts": ["n7", "n3"], "why": "NCCL: remote process exited"})
    verdict = verdict_of(
        replace(diagnosis, provenance={**diagnosis.provenance, TRANSFER_ERRORS: errors})
    )
    (fault,) = strict_json(verdict.to_json())["verdicts"]
    assert (fault["kind"], fault["where"], fault["error"]) == (
        "failed",
        ["n3"],
        "NCCL: unhandled cuda error",
    )
    assert verdict.exclude == ("n3",)
    of_others = {**diagnosis.provenance, TRANSFER_ERRORS: errors[2:]}
    (silent,) = verdict_of(replace(diagnosis, provenance=of_others)).verdicts
    assert (silent.place.kind, silent.error) == ("hung", None)


def test_an_error_of_a_node_that_no_fault_names_is_critical_with_its_text():
    diagnosis = recorded(16, hung=[3])
    errors = [{"hosts": ["n5"], "why": "GPU 3 fails: CUDA_ERROR_ECC_UNCORRECTABLE"}]
    errors += [{"hosts": ["n6", "n7"], "why": f"NCCL: error {number}"} for number in range(2)]
    errors += [
        {"hosts": ["n3", "n7"], "why": "of the fault"},
        {"hosts": ["n7", "n3"], "why": "of its partner"},
    ]
    verdict = verdict_of(
        replace(diagnosis, provenance={**diagnosis.provenance, TRANSFER_ERRORS: errors})
    )
    found = [(each.severity, each.values["hosts"], each.values["why"]) for each in verdict.findings]
    assert found == [
        ("critical", ("n5",), errors[0]["why"]),
        ("critical", ("n6", "n7"), "NCCL: error 1"),
    ]
    healthy = recorded(16)
    alone = replace(healthy, provenance={**healthy.provenance, TRANSFER_ERRORS: errors[:1]})
    assert not verdict_of(alone).is_healthy
    assert verdict_of(replace(alone, diagnosis=None)).findings


def test_two_nodes_are_both_named_if_a_direction_between_them_is_slow_and_none_is_excluded():
    verdict = found(Component("send", (1,)), nodes=2)
    (fault,) = verdict["verdicts"]
    assert {(place["kind"], *place["where"]) for (place,) in fault["candidates"]} == {
        ("send", "n1"),
        ("receive", "n0"),
    }
    assert (set(fault["where"]), verdict["exclude"]) == ({"n0", "n1"}, [])


@pytest.mark.parametrize(("expected", "unseen"), [(None, True), (0.02, False)])
def test_that_both_directions_of_two_nodes_are_slow_takes_an_expected_time(expected, unseen):
    verdict = verdict_of(recorded(2, (Component("node", (1,)), 30), expected_s=expected))
    assert (verdict.is_healthy, verdict.only_directions) == (unseen, unseen)


@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
@pytest.mark.parametrize(
    ("expected", "is_healthy", "doubts"), [(0.01, False, 1), (0.02, True, 0), (0.04, True, 1)]
)
def test_a_rate_that_no_node_has_is_doubtful_and_slower_ones_are_not_healthy(
    nodes, expected, is_healthy, doubts
):
    verdict = verdict_of(recorded(nodes, expected_s=expected))
    found = [
        finding.values["factor"] for finding in verdict.findings if finding.kind == "rate_doubtful"
    ]
    assert (verdict.is_healthy, verdict.exclude) == (is_healthy, ())
    assert found == pytest.approx([0.02 / expected] * doubts, rel=0.05)


@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
def test_a_little_less_than_the_rate_of_the_wire_is_a_warning_and_accuses_none(nodes):
    verdict = verdict_of(recorded(nodes, expected_s=0.02 / 1.1))
    assert [(each.kind, each.severity) for each in verdict.findings] == [
        ("rate_doubtful", "warning")
    ]
    assert verdict.is_healthy


@pytest.mark.parametrize("slower", [0, 12])
def test_two_nodes_that_a_doubtful_rate_does_not_judge_are_said_to_be_judged_by_their_directions_only(
    slower,
):
    doubtful = verdict_of(
        recorded(2, (Component("node", (1,)), slower), expected_s=0.02 if slower else 0.02 / 1.1)
    )
    assert [each.kind for each in doubtful.findings] == ["rate_doubtful"]
    assert doubtful.only_directions
    assert not verdict_of(recorded(2, expected_s=0.02)).only_directions


def test_a_slow_node_makes_no_rate_doubtful():
    assert verdict_of(recorded(3, (Component("node", (1,)), 30), expected_s=0.02)).findings == ()


def test_of_three_nodes_that_never_answer_no_two_are_compared():
    diagnosis = recorded(3, hung=[2])
    assert verdict_of(diagnosis).only_directions
    (hung,) = diagnosis.diagnosis.faults
    any_of_them = replace(
        hung, candidates=tuple((Component("hung", (node,)),) for node in range(3))
    )
    unclear = replace(diagnosis.diagnosis, faults=(any_of_them,))
    assert not verdict_of(replace(diagnosis, diagnosis=unclear)).only_directions


def test_a_healthy_machine_has_no_verdicts_and_an_interrupted_diagnosis_is_not_healthy():
    healthy = recorded(16)
    assert verdict_of(healthy).is_healthy
    assert 1 < verdict_of(healthy).smallest_effect < 1.1
    verdict = verdict_of(interrupted(healthy))
    assert (verdict.is_healthy, verdict.complete, verdict.links) == (False, False, False)
    assert verdict.slots == len(healthy.measured[0].seconds)
    strict_json(verdict.to_json())


@pytest.mark.parametrize("nodes", [4, 16])
def test_a_node_without_times_was_not_judged_and_the_machine_is_not_healthy(nodes):
    verdict = verdict_of(recorded(nodes, failing=[3]))
    assert (verdict.unjudged, verdict.verdicts) == (("n3",), ())
    assert (verdict.accuses_none, verdict.is_healthy) == (True, False)
    assert 1 < verdict.smallest_effect < 1.25
    assert found(nodes=nodes, failing=[3])["unjudged"] == ["n3"]


def test_if_no_node_has_times_nothing_is_said_of_any_and_nothing_would_have_been_found():
    verdict = found(failing=range(16))
    assert len(verdict["unjudged"]) == 16
    assert (verdict["noise"], verdict["smallest_effect"]) == (None, None)
    assert not verdict_of(recorded(16, failing=range(16))).accuses_none


def test_a_node_that_does_not_answer_is_judged_and_so_is_one_with_a_few_transfers_without_a_time():
    assert verdict_of(recorded(16, hung=[3])).unjudged == ()
    assert verdict_of(recorded(16, failing=[3], hung=[4])).unjudged == ("n3",)


def test_what_is_slow_under_load_only_or_of_too_many_is_told_and_not_excluded():
    diagnosis = recorded(16, (NODE, 30))
    (fault,) = diagnosis.diagnosis.faults
    under_load = replace(diagnosis.diagnosis, faults=(replace(fault, under_load_only=True),))
    many = replace(diagnosis.diagnosis, too_many=True)
    for changed in (under_load, many):
        verdict = verdict_of(replace(diagnosis, diagnosis=changed))
        assert (len(verdict.verdicts), verdict.exclude, verdict.is_healthy) == (1, (), False)


def test_a_link_that_never_answers_was_decided_by_the_search_for_silent_nodes():
    diagnosis = recorded(16)
    partners = np.arange(16)[None].copy()
    partners[0, [1, 6]] = 6, 1
    asked = MeasuredSlots(
        Slots(partners, "hung"), np.where(partners == np.arange(16), np.nan, np.inf)
    )
    dead = Fault(LINK, math.inf, math.inf, math.inf, 0.0)
    found = replace(diagnosis.diagnosis, faults=(dead,))
    (fault,) = verdict_of(
        replace(diagnosis, measured=(*diagnosis.measured, asked), diagnosis=found)
    ).verdicts
    assert (fault.deciding, fault.slots["hung"]) == ("hung", 1)


@pytest.mark.parametrize(
    ("racks", "reason"),
    [
        (None, "they are unknown"),
        (["a"] * 8 + ["b"] * 8, "there are 2, of 16 nodes"),
        (["a", "b", "c", "d"] * 3 + ["e"] * 4, "there are 5"),
    ],
)
def test_uplinks_that_cannot_be_judged_are_bad_input_if_they_are_asked_for(racks, reason):
    hosts = [f"n{node}" for node in range(16)]
    with pytest.raises(BadInputError, match=f"--uplink: .*{reason}.*--racks"):
        DiagnosisOptions(seed=1, uplinks=True).question(hosts, racks)
    DiagnosisOptions(seed=1, uplinks=True).question(hosts, ["a", "b", "c", "d"] * 4)


def test_racks_are_given_for_hosts_with_or_without_their_domain():
    racks = {"n1": "a", "n2.cluster": "b", "n3": "a"}
    assert DiagnosisOptions(seed=1, racks=racks).question(["n1.cluster", "n2"]).racks == ("a", "b")
    with pytest.raises(BadInputError, match=r"--racks: no rack is given for n\[4-5\]"):
        DiagnosisOptions(seed=1, racks=racks).question(["n1", "n4", "n5"])
