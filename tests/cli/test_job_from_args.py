"""What a command line of ``hpccoll run`` asks for: a job."""

import pytest
from job_from_command_line import job

from hpccoll.cases.case import Effort, Job, Shape
from hpccoll.cases.catalogue import NATIVE, algorithms_of, check_case
from hpccoll.cases.variants import named_variants
from hpccoll.cli.job_from_args import parse_shape
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import COLLECTIVES


def one_size(*arguments, **more):
    """Return the cases at one size."""
    return job("-b", "4K", "-e", "4K", *arguments, **more).cases


def test_sizes_rise_by_the_factor_up_to_the_end():
    cases = job("-a", "ring", "-b", "8", "-e", "100", "-f", "3", "--in-place").cases
    assert [case.bytes for case in cases] == [8, 24, 72]


def test_both_placements_are_measured_unless_one_is_asked():
    assert {case.in_place for case in job("-a", "ring").cases} == {False, True}
    assert {case.in_place for case in job("-a", "ring", "--in-place").cases} == {True}


def test_a_run_has_three_rounds_as_a_sweep_has_unless_asked_otherwise():
    assert (job().effort.rounds, job("--rounds", "7").effort.rounds) == (3, 7)


@pytest.mark.parametrize("rounds", ["0", "256", "many"])
def test_rounds_that_cannot_be_are_refused(rounds):
    with pytest.raises(BadInputError, match="--rounds"):
        job("--rounds", rounds)


NCCL = "--device", "cuda", "-t", "nccl"


def test_timings_are_an_axis_of_cases_over_nccl():
    cases = one_size("-a", "ring", "--in-place", *NCCL, "--timing", "single,aggregated", "--operations", "5")
    assert [case.timing for case in cases] == ["single", "aggregated"]
    assert job(*NCCL, "--operations", "5").effort.operations == 5


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((*NCCL, "--timing", "mean"), "--timing: 'mean' is not valid: choose from single, aggregated"),
        (
            ("--timing", "aggregated"),
            "--timing: 'aggregated' is not valid: single over mpi, where the host takes part; over nccl",
        ),
        ((*NCCL, "--operations", "0"), "--operations: '0' is not valid: a whole number from 1 to 10000"),
        (("-t", "nccl", "--timing", "aggregated"), "transport: 'nccl' is not valid"),
    ],
)
def test_a_timing_that_cannot_be_is_refused_in_one_line(arguments, why):
    with pytest.raises(BadInputError, match=why):
        job(*arguments)


def test_what_is_named_twice_is_measured_once():
    assert job("-a", "ring,ring,native") == job("-a", "ring,native")


def test_parameters_are_of_schedules_and_not_of_the_library():
    cases = job("-a", "ring,native", "-b", "8", "-e", "8", "--in-place", "--param", "channels=4").cases
    assert {case.algorithm: case.params for case in cases} == {"ring": {"channels": 4}, "native": {}}


def test_a_parameter_goes_to_every_algorithm_that_knows_it():
    cases = one_size("-a", "all", "--in-place", "--param", "radix=2", "--param", "channels=4")
    assert [case.algorithm for case in cases if "radix" in case.params] == ["sharp_emulated"]
    assert [case.algorithm for case in cases if "channels" not in case.params] == [NATIVE]


def test_every_combination_of_several_values_of_parameters_is_measured():
    cases = one_size("-a", "ring,native", "--in-place", "--param", "channels=2,4", "--param", "window=1,2")
    assert {tuple(case.params.values()) for case in cases if case.algorithm == "ring"} == {
        (2, 1), (2, 2), (4, 1), (4, 2),
    }  # fmt: skip
    assert [dict(case.params) for case in cases if case.algorithm == NATIVE] == [{}], "it has none of them"


def test_an_argument_of_a_collective_goes_to_the_library_too():
    cases = one_size("-c", "all_to_all_v", "--param", "traffic=random")
    assert len(cases) > 1
    assert [dict(case.params) for case in cases] == [{"traffic": "random"}] * len(cases)
    assert {case.params["concurrent"] for case in one_size("-c", "multi_pair", "--param", "concurrent=1")} == {1}
    cases = one_size("-c", "send_recv", "--param", "peer=-2")
    assert {case.params["peer"] for case in cases} == {0}  # of two ranks, counted from the end


def test_all_are_the_algorithms_of_the_collective_and_the_library_without_the_floor():
    cases = one_size("-a", "all", "--in-place")
    floors = {name for name, algorithm in COLLECTIVES["all_reduce"].algorithms.items() if algorithm.floor}
    assert floors
    assert {case.algorithm for case in cases} == {*COLLECTIVES["all_reduce"].algorithms, NATIVE} - floors


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_collective_is_measured_with_all_it_has_and_no_case_twice(name):
    cases = one_size("-c", name, *(["-a", "all"] if name == "all_reduce" else []))
    assert tuple(dict.fromkeys(case.algorithm for case in cases)) == algorithms_of(name)
    assert len({case.id for case in cases}) == len(cases)
    family = COLLECTIVES[name]
    assert {case.op for case in cases} == {"sum" if family.has_op else None}
    assert {case.root for case in cases} == {0 if family.rooted else None}
    for case in cases:
        check_case(case)


@pytest.mark.parametrize("name", named_variants())
def test_every_named_variant_can_be_requested(name):
    made = job("--variant", name)
    assert (made.variant, made.environment) == (name, named_variants()[name].environment)


def test_a_variant_is_a_label_and_an_environment():
    made = job("--variant", "nccl-ring")
    assert (made.variant, made.environment) == ("nccl-ring", {"NCCL_ALGO": "Ring"})
    assert made.sha256 != job().sha256, "results of one are never continued by the other"


def test_a_variable_that_overrides_a_communicator_setting_is_refused_next_to_it(monkeypatch, tmp_path):
    few = ("-a", "ring", "--communicator", "max_ctas=4")
    monkeypatch.setenv("NCCL_MIN_CTAS", "2")
    (tmp_path / "job.json").write_text(job(*few).to_json())
    monkeypatch.setenv("NCCL_MAX_CTAS", "8")
    words = "NCCL_MAX_CTAS of this shell: '8' .* max_ctas of variant max_ctas=4"
    for arguments in (few, ("--job", str(tmp_path / "job.json"))):
        with pytest.raises(BadInputError, match=words):
            job(*arguments)
    assert job("-a", "ring").communicator == {}


def test_a_setting_over_which_a_variable_of_its_variant_wins_is_refused():
    with pytest.raises(BadInputError, match=r"--communicator\.net_name: 'IB' .*nccl-socket.* NCCL_NET"):
        job("--variant", "nccl-socket", "--communicator", "net_name=IB")


def test_a_root_is_that_of_every_case():
    assert {case.root for case in one_size("-c", "broadcast", "-r", "1")} == {1}


def test_a_barrier_has_one_size():
    assert len({case.bytes for case in job("-c", "barrier").cases}) == 1


def test_aggregators_are_the_last_of_the_ranks():
    with_one = job("--aggregators", "1", ranks=4)
    assert (with_one.ranks, with_one.aggregators, with_one.shapes) == (3, 1, (Shape(1, 3, 1),))
    assert job("--aggregators", "1", ranks=4, nodes=4).shapes == (Shape(3, 3, 1),)  # its host is no node of theirs


@pytest.mark.parametrize(
    ("text", "shape", "words"),
    [
        ("4x2", Shape(4, 8), "8 ranks on 4 nodes"),
        ("1x4+1", Shape(1, 4, 1), "4 ranks and 1 aggregator on 1 node"),
        ("2x3+2", Shape(2, 6, 2), "6 ranks and 2 aggregators on 2 nodes"),
    ],
)
def test_a_shape_says_nodes_ranks_on_each_and_aggregators(text, shape, words):
    assert parse_shape(text) == shape
    assert (str(shape), shape.text) == (text, words)
    assert shape.processes == shape.ranks + shape.aggregators
    assert shape.ranks_per_node * shape.nodes == shape.processes


def test_aggregators_that_are_apart_have_hosts_of_their_own():
    shape = Shape(2, 6, 3, dedicated_aggregators=True)
    assert (shape.hosts, shape.processes, shape.ranks_per_node) == (5, 9, 3)
    assert shape.text == "6 ranks on 2 nodes and 3 aggregators apart"
    assert shape == Shape(2, 6, 3) == parse_shape("2x3+3")


def test_mappings_are_cases_and_without_them_ranks_are_as_launched():
    assert {case.mapping for case in one_size("-a", "ring,native", "--mapping", "block,cyclic")} == {"block", "cyclic"}
    assert {case.mapping for case in one_size("-a", "ring")} == {None}
    assert {case.mapping for case in one_size("-c", "send_recv", "--mapping", "cyclic")} == {None}


def test_a_number_of_iterations_is_exact_and_a_time_is_not():
    assert job("-n", "7", "-w", "2").effort == Effort(warmup=2, min_iterations=7, max_iterations=7, rounds=3)
    assert job("--seconds", "0.5").effort == Effort(seconds=0.5, rounds=3)


def test_the_job_is_for_the_ranks_that_were_started_where_they_are():
    assert job(ranks=6, nodes=3).shapes == (Shape(3, 6),)


def test_a_job_file_says_it_all(tmp_path):
    planned = job("-a", "ring", ranks=3)
    (tmp_path / "job.json").write_text(planned.to_json())
    assert job("--job", str(tmp_path / "job.json"), ranks=7) == planned
    assert Job.load(tmp_path / "job.json").sha256 == planned.sha256
