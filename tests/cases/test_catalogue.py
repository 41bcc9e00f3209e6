"""The catalogue: valid requests, and the reasons why some cannot run on a layout."""

from dataclasses import replace

import pytest
from catalogue_cases import ALL, BOTH, case
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.catalogue import (
    NATIVE,
    algorithms_of,
    check_case,
    choice_parameters,
    distinct_mappings,
    distinct_placements,
    exact_parameters,
    known_parameters,
    parameters_by_algorithm,
)
from hpccoll.cases.skip_reason import redundant_mapping, unmet_needs
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import COLLECTIVES, Layout
from hpccoll.schedule.unequal_blocks import PATTERNS


@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_every_listed_algorithm_is_valid_in_each_of_its_placements(name, algorithm):
    for in_place in distinct_placements(name, algorithm, BOTH):
        check_case(case(name, algorithm, in_place=in_place))
    for in_place in {*BOTH} - {*distinct_placements(name, algorithm, BOTH)}:
        if COLLECTIVES[name].in_place and COLLECTIVES[name].out_of_place and algorithm != NATIVE:
            continue  # an empty schedule: nothing is nothing in either place
        with pytest.raises(BadInputError, match="in_place"):
            check_case(case(name, algorithm, in_place=in_place))


def test_collectives_with_different_blocks_have_no_in_place_variant():
    out_of_place = {name for name, family in COLLECTIVES.items() if not family.in_place}
    assert out_of_place == {"all_to_all_v", "send_recv", "bidirectional", "multi_pair"}
    assert {distinct_placements(name, own, BOTH) for name, own in ALL if name in out_of_place} == {(False,)}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_native_collectives_have_arguments_and_no_schedule_parameters(name):
    family = COLLECTIVES[name]
    assert known_parameters(name, NATIVE) == (*family.arguments, "graph")
    for algorithm in algorithms_of(name)[:-1]:
        own = {*family.algorithm(algorithm).parameters}
        plan = () if family.uncut else ("channels", "window", "segment")
        assert {*known_parameters(name, algorithm)} == {*family.arguments, *plan, "graph", *own}


def test_parameters_go_to_the_algorithms_that_have_them():
    requested = parameters_by_algorithm("all_reduce", ["ring", "sharp_emulated", NATIVE], {"channels": 4, "radix": 2})
    assert requested == {"ring": {"channels": 4}, "sharp_emulated": {"channels": 4, "radix": 2}, NATIVE: {}}
    with pytest.raises(
        BadInputError, match="parameter: 'radix' is not valid: choose from channels, graph, segment, window"
    ):
        parameters_by_algorithm("all_reduce", ["ring", NATIVE], {"radix": 2})


def test_a_segment_is_a_size_with_or_without_a_unit():
    assert exact_parameters({"segment": "128K"}) == {"segment": 131072}
    with pytest.raises(BadInputError, match="parameter segment: 'short' is not valid: a number of bytes such as"):
        exact_parameters({"segment": "short"})


@pytest.mark.parametrize(
    ("asked", "p", "reason"),
    [
        (case("broadcast", "binomial", root=4), 4, "root: 4 is not valid: a rank from 0 to 3"),
        (case("send_recv", NATIVE, params={"peer": 2}), 2, "peer: 2 is not valid: another rank of 2 than the root, 0"),
        (case("send_recv", NATIVE), 1, "peer: -1 is not valid"),
        (case("send_recv", NATIVE, root=2), 3, "peer: -1 is not valid: another rank of 3 than the root, 2"),
        (case("send_recv", NATIVE, params={"peer": "last"}), 3, "peer: 'last' is not valid"),
        (case("multi_pair", NATIVE, params={"concurrent": 2}), 3, "concurrent: 2 is not valid: a number of pairs from"),
        (case("multi_pair", "exchange"), 1, "concurrent: 0 is not valid"),
        (case("all_to_all_v", "pairwise", params={"traffic": "rush"}), 3, "traffic: 'rush' is not valid"),
        (case("reduce_scatter", "recursive_halving"), 6, "recursive_halving of reduce_scatter needs a power-of-two"),
        (case("all_gather", NATIVE, bytes=64), 17, "64 B is less than one float32 for each of 17 ranks of all_gather"),
        (case(params={"channels": 513}), 2, "parameter channels: 513 is not valid: at most 512 lanes, it makes 513"),
        (
            case(params={"segment": 2}),
            2,
            "a larger one: 1024 channels follow from it (at most 512 lanes, it makes 1024)",
        ),
    ],
)
def test_a_value_that_does_not_fit_the_ranks_is_a_reason_and_no_error(asked, p, reason):
    assert reason in unmet_needs(asked, Layout.of(p))


@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_a_call_that_fits_runs_from_any_root_or_needs_what_the_algorithm_says(name, algorithm):
    family = COLLECTIVES[name]
    for p in (2, 3, 4):
        for root in range(p) if family.rooted else (None,):
            more = {"params": {"peer": (root + 1) % p}} if "peer" in family.arguments else {}
            reason = unmet_needs(case(name, algorithm, root=root, **more), Layout.of(p))
            assert reason is None or reason.startswith(f"{algorithm} of {name} needs ")
            assert reason is None or algorithm != NATIVE


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            case(params={"chanels": 2}),
            r"parameter of ring: 'chanels' is not valid: did you mean channels\? choose from channels,",
        ),
        (case(params={"channels": 0}), "parameter channels: 0 is not valid"),
        (case(params={"channels": "many"}), "parameter channels: 'many' is not valid"),
        (case(params={"segment": 0}), "parameter segment: 0 is not valid"),
        (case(params={"segment": 64, "channels": 2}), "parameter segment: 64 is not valid"),
        (case(algorithm=NATIVE, params={"channels": 2}), "parameter of native: 'channels' is not valid"),
        (case(params={"traffic": "zipf"}), "parameter of ring: 'traffic' is not valid"),
        (case(root=0), "root: 0 is not valid: none: all_reduce has no root"),
        (case(op="xor"), "op: 'xor' is not valid"),
        (case("all_gather", op="sum"), "op: 'sum' is not valid"),
        (case(mapping="plane"), "mapping: 'plane' is not valid: choose from block, cyclic"),
        (case("send_recv", NATIVE, mapping="block"), "mapping: 'block' is not valid: none: send_recv"),
    ],
)
def test_an_invalid_value_is_bad_input(asked, words):
    with pytest.raises(BadInputError, match=words):
        check_case(asked)


def test_an_invalid_parameter_of_an_algorithm_is_bad_input_before_it_runs():
    with pytest.raises(BadInputError, match="'rin'"):
        unmet_needs(case(algorithm="hierarchical", params={"inner": "rin"}), Layout.of(4))


@pytest.mark.parametrize(
    ("layout", "where"),
    [
        (Layout.of(4), "all on one node"),
        (Layout.of(4, 1), "one on each node"),
        (Layout((0, 1), (0, 1)), "one on each node in 2 racks"),
        (Layout((0, 1), (0, 0)), "one on each node"),
        (Layout((0, 1, 1), (0, 0, 0)), "3 on 2 nodes"),
        (Layout.of(1), "all on one node"),
    ],
)
def test_of_equal_mappings_one_is_measured(layout, where):
    assert [redundant_mapping(case(mapping=mapping), layout) for mapping in (None, "block")] == [None, None]
    assert (
        redundant_mapping(case(mapping="cyclic"), layout)
        == f"mapping cyclic numbers these ranks as block does: {where}"
    )


@pytest.mark.parametrize("layout", [Layout.of(4, 2), Layout((0, 1, 2, 3), (0, 0, 1, 1))])
def test_mappings_that_differ_are_all_measured(layout):
    assert {redundant_mapping(case(mapping=mapping), layout) for mapping in (None, "block", "cyclic")} == {None}


def test_two_named_ranks_and_a_floor_have_one_mapping():
    both = ("block", "cyclic")
    assert distinct_mappings("all_reduce", "ring", both) == distinct_mappings("all_reduce", NATIVE, both) == both
    assert distinct_mappings("all_reduce", "null", both) == ("block",)
    assert distinct_mappings("send_recv", NATIVE, both) == (None,)


@given(st.sampled_from([*PATTERNS]), st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([2, 4, 8]))
def test_the_size_of_unequal_blocks_is_that_of_a_rank_on_average(pattern, p, nbytes, itemsize):
    family = COLLECTIVES["all_to_all_v"]
    elements = family.elements(nbytes, itemsize, p)
    moved = family.call(p, traffic=pattern).bytes(elements, itemsize)
    rounding = (p * p * itemsize) // p + itemsize  # every block rounds down to an element
    assert elements * p * itemsize - rounding <= moved <= elements * p * itemsize
    if pattern == "uniform":
        assert moved == elements * p * itemsize


def test_the_graph_that_is_not_there_distinguishes_no_choice():
    assert choice_parameters("send_recv", {"peer": 3, "graph": 0}) == {}
    assert choice_parameters("all_reduce", {"graph": 1, "channels": 0}) == {"graph": 1, "channels": 0}


def test_a_timing_is_one_of_two_and_only_queued_operations_have_the_other():
    requested = replace(case("all_reduce", "ring"), timing="averaged")
    with pytest.raises(BadInputError, match="timing: 'averaged' is not valid: choose from single, aggregated"):
        check_case(requested)
    aggregated = replace(requested, timing="aggregated")
    check_case(aggregated)
    assert unmet_needs(aggregated, Layout.of(2)) == (
        "timing: 'aggregated' is not valid: single over mpi, where the host takes part; over nccl single, aggregated"
    )
    assert unmet_needs(replace(aggregated, device="cuda", transport="nccl"), Layout.of(2)) is None
