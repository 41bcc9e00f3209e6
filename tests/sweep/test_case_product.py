"""The cases that a sweep file comes to."""

import json

import pytest
from synthetic_timings import measured_table

from hpccoll.cases.catalogue import algorithms_of, distinct_placements
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import COLLECTIVES
from hpccoll.sweep.case_product import count_cases, expand_cases
from hpccoll.sweep.sweep_file import Sweep


def swept(p=4, **keys):
    return list(expand_cases(Sweep.model_validate({"algorithms": "all", "bytes": 4096, "ranks": 4, **keys}), p))


def named(found):
    return {(case.collective, case.algorithm) for case in found}


def test_all_of_all_is_everything_but_the_floors():
    assert named(swept(collectives="all")) == {(name, each) for name in COLLECTIVES for each in algorithms_of(name)}


def test_all_among_others_is_all_and_those(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(measured_table({"ring": {8: 1e-6}}).to_json()))
    every = {("all_reduce", each) for each in algorithms_of("all_reduce")}
    found = swept(algorithms=["all", "auto", "ring"], table=str(tmp_path / "t.json"))
    assert named(found) == {*every, ("all_reduce", "auto")}
    assert len({case.id for case in found}) == len(found)
    found = swept(algorithms=["null", "all"], params={"ring": {"channels": 2}})
    assert named(found) == {*every, ("all_reduce", "null")}
    assert {case.collective for case in swept(collectives=["barrier", "all"])} == {*COLLECTIVES}


def test_every_collective_takes_those_of_the_algorithms_that_it_has():
    found = swept(collectives=["all_gather", "all_to_all"], algorithms=["ring", "bruck", "native"])
    assert named(found) == {
        ("all_gather", "ring"), ("all_gather", "bruck"), ("all_gather", "native"),
        ("all_to_all", "bruck"), ("all_to_all", "native"),
    }  # fmt: skip


def test_a_collective_that_has_none_of_the_algorithms_is_refused_with_those_that_it_has():
    with pytest.raises(BadInputError, match="one of broadcast: auto, binomial, chain, direct, native, null, scatt"):
        swept(collectives=["all_gather", "broadcast"], algorithms=["ring"])


def test_rooted_collectives_have_the_roots_and_others_none():
    found = swept(collectives=["gather", "all_gather"], algorithms="native", roots=[0, 3])
    assert {(case.collective, case.root) for case in found} == {("gather", 0), ("gather", 3), ("all_gather", None)}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("ends", [(0, 3)]),
        ("all", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        ([[2, 1], [0, 7]], [(2, 1), (0, 7)]),  # what does not fit is left out with the reason when it is planned
    ],
)
def test_pairs_are_the_ends_or_all_of_them_or_those_that_are_named(pairs, expected):
    found = swept(collectives="send_recv", algorithms="ping_pong", pairs=pairs)
    assert [(case.root, case.params["peer"]) for case in found] == expected


def test_the_pairs_at_once_are_an_argument_of_multi_pair_alone():
    found = swept(
        collectives=["multi_pair", "bidirectional"], algorithms="exchange", concurrent=[0, 1, 7], mapping="block"
    )
    assert [(case.collective, case.root, case.params.get("concurrent"), case.mapping) for case in found] == [
        *(("multi_pair", None, pairs, "block") for pairs in (0, 1, 7)), ("bidirectional", 0, None, None),
    ]  # fmt: skip


def test_mappings_are_those_of_collectives_in_which_all_ranks_take_part():
    found = swept(
        collectives=["all_reduce", "send_recv"], algorithms=["ring", "ping_pong"], mapping=["cyclic", "block"]
    )
    assert {(case.algorithm, case.mapping) for case in found} == {
        ("ring", "cyclic"), ("ring", "block"), ("ping_pong", None),
    }  # fmt: skip
    assert len({case.id for case in found}) == len(found)
    assert {case.mapping for case in swept()} == {None}


def test_traffic_is_named_with_what_a_file_held(tmp_path):
    file = tmp_path / "experts.csv"
    file.write_text("0,1\n3,0\n")
    found = swept(p=2, collectives="all_to_all_v", algorithms="native", traffic=["uniform", str(file)])
    uniform, of_file = (case.params["traffic"] for case in found)
    assert uniform == "uniform"
    assert of_file.startswith(f"{file}#")
    file.write_text("0,1\n1,0\n")
    with pytest.raises(BadInputError, match="the file as it was planned; it has changed since"):
        COLLECTIVES["all_to_all_v"].call(2, traffic=of_file)


def test_each_placement_that_there_is_comes_once():
    for case in (found := swept(collectives="all")):
        assert case.in_place in distinct_placements(case.collective, case.algorithm, (False, True))
    assert len({case.id for case in found}) == len(found)


def test_parameters_are_of_the_algorithm_in_whichever_collective():
    found = swept(
        collectives=["all_reduce", "broadcast"], algorithms=["ring", "chain"], params={"chain": {"channels": [1, 4]}}
    )
    assert [dict(case.params) for case in found if not case.in_place] == [{}, {"channels": 1}, {"channels": 4}]


def test_a_choice_says_how_bytes_move_so_that_auto_is_measured_once(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(measured_table({"ring": {8: 1e-6}}).to_json()))
    requested = {"algorithms": ["auto", "ring"], "table": str(tmp_path / "t.json"), "in_place": False}
    found = swept(**requested, transports=["shm", "mpi"])
    assert [(case.algorithm, case.transport) for case in found] == [("auto", "mpi"), ("ring", "shm"), ("ring", "mpi")]


def test_a_segment_that_is_named_twice_is_tried_once():
    found = swept(algorithms=["ring"], params={"ring": {"segment": ["64K", 65536, "1M"]}}, in_place=[False])
    assert [dict(case.params) for case in found] == [{"segment": 65536}, {"segment": 1 << 20}]


def test_a_library_and_who_moves_nothing_are_measured_once_whatever_transports_there_are():
    found = swept(algorithms=["ring", "native", "null"], transports=["shm", "mpi"])
    assert sorted({(case.algorithm, case.transport) for case in found}) == [
        ("native", "mpi"), ("null", "mpi"), ("ring", "mpi"), ("ring", "shm"),
    ]  # fmt: skip


def test_each_device_has_those_of_the_transports_that_move_its_memory():
    found = swept(
        algorithms=["ring", "native"], devices=["cpu", "cuda"], transports=["nccl", "mpi", "shm"], in_place=[False]
    )
    assert [(case.algorithm, case.device, case.transport) for case in found] == [
        ("ring", "cpu", "mpi"), ("ring", "cpu", "shm"), ("native", "cpu", "mpi"),
        ("ring", "cuda", "nccl"), ("ring", "cuda", "mpi"), ("native", "cuda", "nccl"), ("native", "cuda", "mpi"),
    ]  # fmt: skip


def test_timings_are_an_axis():
    found = swept(
        algorithms=["native"], devices="cuda", transports="nccl", in_place=True, timing=["single", "aggregated"]
    )
    assert [case.timing for case in found] == ["single", "aggregated"]
    sweep = Sweep.model_validate(
        {"algorithms": "ring", "bytes": [8, 16], "ranks": 4, "devices": "cuda", "transports": "nccl"}
        | {"timing": ["single", "aggregated"]}
    )
    assert count_cases(sweep, 4) == len([*expand_cases(sweep, 4)]) == 8


def test_a_graph_is_asked_of_nccl_alone_of_schedules_and_its_own_calls():
    requested = {"devices": ["cuda"], "transports": ["nccl", "mpi"], "algorithms": ["ring", "native"]}
    found = swept(**requested, params={"ring": {"graph": [0, 1]}, "native": {"graph": [1]}}, in_place=[True])
    assert sorted((case.algorithm, case.transport, case.params["graph"]) for case in found) == [
        ("native", "nccl", 1),
        ("ring", "mpi", 0),
        ("ring", "nccl", 0),
        ("ring", "nccl", 1),
    ]
    with pytest.raises(BadInputError, match="parameter graph: 2"):
        swept(**requested, params={"ring": {"graph": [2]}})
