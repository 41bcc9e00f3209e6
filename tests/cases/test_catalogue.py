"""The catalogue: valid requests, and the reasons why some cannot run on a layout."""

from dataclasses import replace
from pathlib import Path

import pytest
from catalogue_cases import case
from golden_page import assert_golden

from hpccoll.cases.catalogue import (
    NATIVE,
    check_case,
    choice_parameters,
    distinct_mappings,
    exact_parameters,
    parameters_by_algorithm,
)
from hpccoll.cases.skip_reason import redundant_mapping, unmet_needs
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Layout


def test_parameters_go_to_the_algorithms_that_have_them():
    requested = parameters_by_algorithm(
        "all_reduce", ["ring", "sharp_emulated", NATIVE], {"channels": 4, "radix": 2}
    )
    assert requested == {
        "ring": {"channels": 4},
        "sharp_emulated": {"channels": 4, "radix": 2},
        NATIVE: {},
    }
    with pytest.raises(
        BadInputError,
        match="parameter: 'radix' is not valid: choose from channels, graph, protocol, segment, w",
    ):
        parameters_by_algorithm("all_reduce", ["ring", NATIVE], {"radix": 2})
    with pytest.raises(
        BadInputError, match="parameter segment: 'short' is not valid: a number of bytes such as"
    ):
        exact_parameters({"segment": "short"})


MISFITS = [
    (case("broadcast", "binomial", root=4), 4), (case("send_recv", NATIVE, params={"peer": 2}), 2),
    (case("send_recv", NATIVE, params={"peer": "last"}), 3), (case("multi_pair", NATIVE, params={"concurrent": 2}), 3),
    (case("all_to_all_v", "pairwise", params={"traffic": "rush"}), 3),
    (case("reduce_scatter", "recursive_halving"), 6), (case("all_gather", NATIVE, bytes=64), 17),
    (case(params={"channels": 513}), 2), (case(params={"segment": 2}), 2),
]  # fmt: skip
"""Cases whose values do not fit the ranks: a reason, and no error."""
INVALID = [
    case(params={"chanels": 2}), case(params={"channels": 0}), case(params={"segment": 64, "channels": 2}),
    case(algorithm=NATIVE, params={"channels": 2}), case(params={"traffic": "zipf"}), case(root=0),
    case(algorithm="rinf"), case(op="xor"), case("all_gather", op="sum"), case(mapping="plane"),
    case("all_to_all_v", NATIVE, in_place=True), case("send_recv", NATIVE, mapping="block"),
    case(timing="averaged"), case(transport="staged"), case(device="tpu"), case(params={"load": "fire"}),
    case(device="cuda", transport="nccl", params={"load": "gemm"}), case(params={"load": "idle"}),
]  # fmt: skip


def test_a_value_that_does_not_fit_the_ranks_is_a_reason_and_an_invalid_one_bad_input():
    page = [f"{asked.id}, {p} ranks: {unmet_needs(asked, Layout.of(p))}" for asked, p in MISFITS]
    for asked in INVALID:
        with pytest.raises(BadInputError) as refused:
            check_case(asked)
        page.append(f"{asked.id}: {refused.value}")
    assert_golden("refusals", page, Path(__file__).parent / "golden")


def test_an_invalid_parameter_of_an_algorithm_is_bad_input_before_it_runs():
    with pytest.raises(BadInputError, match="'rin'"):
        unmet_needs(case(algorithm="hierarchical", params={"inner": "rin"}), Layout.of(4))


@pytest.mark.parametrize(
    ("layout", "where"),
    [
        (Layout.of(4), "all on one node"),
        (Layout((0, 1), (0, 1)), "one on each node in 2 racks"),
        (Layout((0, 1, 1), (0, 0, 0)), "3 on 2 nodes"),
        (Layout.of(4, 2), None),
        (Layout((0, 1, 2, 3), (0, 0, 1, 1)), None),
    ],
)
def test_of_equal_mappings_one_is_measured(layout, where):
    found = [
        redundant_mapping(case(mapping=mapping), layout) for mapping in (None, "block", "cyclic")
    ]
    assert found == [
        None,
        None,
        where and f"mapping cyclic numbers these ranks as block does: {where}",
    ]


def test_two_named_ranks_and_a_floor_have_one_mapping():
    requested = ("block", "cyclic")
    found = [
        distinct_mappings(*call, requested)
        for call in (("all_reduce", "null"), ("send_recv", NATIVE))
    ]
    assert found == [("block",), (None,)]


def test_neither_load_nor_the_graph_that_is_not_there_distinguishes_choices():
    assert choice_parameters("send_recv", {"peer": 3, "graph": 0}) == {}
    assert choice_parameters("all_reduce", {"graph": 1, "channels": 0, "load": "gemm"}) == {
        "graph": 1,
        "channels": 0,
    }


def test_each_transport_has_its_timings():
    requested = case("all_reduce", "ring")
    aggregated = replace(requested, timing="aggregated")
    check_case(aggregated)
    assert unmet_needs(aggregated, Layout.of(2)) == (
        "timing: 'aggregated' is not valid: single; over mpi also osu; over nccl also aggregated, "
        "nccl-tests; over peer also aggregated"
    )
    for transport, timing in (
        ("nccl", "aggregated"),
        ("nccl", "nccl-tests"),
        ("peer", "aggregated"),
        ("mpi", "osu"),
    ):
        assert (
            unmet_needs(
                replace(aggregated, device="cuda", transport=transport, timing=timing), Layout.of(2)
            )
            is None
        )
    for transport, timing in (("nccl", "osu"), ("mpi", "nccl-tests"), ("staged", "osu")):
        assert unmet_needs(
            replace(aggregated, device="cuda", transport=transport, timing=timing), Layout.of(2)
        )


def test_the_loop_of_osu_is_of_calls_among_all_ranks():
    ping_pong = case("send_recv", "ping_pong", op=None, root=0, params={"peer": 1}, timing="osu")
    assert "without barriers" in unmet_needs(ping_pong, Layout.of(2))
    assert unmet_needs(replace(ping_pong, timing="single"), Layout.of(2)) is None
