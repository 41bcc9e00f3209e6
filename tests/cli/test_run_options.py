"""The job that a command line of ``hpccoll run`` describes."""

import pytest
from job_from_command_line import job

from hpccoll.cases.case import Effort, Shape
from hpccoll.cases.catalogue import NATIVE
from hpccoll.cli.run_options import parse_shape
from hpccoll.common.errors import BadInputError

NCCL = "--device", "cuda", "-t", "nccl"


def one_size(*arguments, **more):
    """Return the cases at one size."""
    return job("-b", "4K", "-e", "4K", *arguments, **more).cases


@pytest.mark.parametrize(
    ("arguments", "property_", "expected"),
    [
        (["-a", "ring"], "in_place", {False, True}),
        (["-a", "ring", "--in-place"], "in_place", {True}),
        (["-c", "broadcast", "-r", "1"], "root", {1}),
        (["-a", "ring,native", "--mapping", "block,cyclic"], "mapping", {"block", "cyclic"}),
        (["-a", "ring"], "mapping", {None}),
        ([*NCCL, "--timing", "single,aggregated"], "timing", {"single", "aggregated"}),
    ],
)
def test_an_option_is_a_list_of_the_cases(arguments, property_, expected):
    assert {getattr(case, property_) for case in one_size(*arguments)} == expected


def test_a_parameter_goes_to_every_algorithm_that_has_it():
    cases = one_size("-a", "all", "--in-place", "--param", "radix=2", "--param", "channels=2,4")
    assert {case.algorithm for case in cases if "radix" in case.params} == {"sharp_emulated"}
    assert [case.algorithm for case in cases if "channels" not in case.params] == [NATIVE]
    assert {case.params["channels"] for case in cases if case.algorithm == "ring"} == {2, 4}


@pytest.mark.parametrize(
    ("collective", "given", "value"),
    [("all_to_all_v", "traffic=random", "random"), ("multi_pair", "concurrent=1", 1), ("send_recv", "peer=-2", 0)],
)
def test_an_argument_of_a_collective_goes_to_the_library_too(collective, given, value):
    cases = one_size("-c", collective, "--param", given)
    assert NATIVE in {case.algorithm for case in cases}
    assert {case.params[given.partition("=")[0]] for case in cases} == {value}


def test_a_variable_that_overrides_a_communicator_setting_is_refused(monkeypatch, tmp_path):
    few = ("-a", "ring", "--communicator", "max_ctas=4")
    monkeypatch.setenv("NCCL_MIN_CTAS", "2")
    (tmp_path / "job.json").write_text(job(*few).to_json())
    monkeypatch.setenv("NCCL_MAX_CTAS", "8")
    words = "NCCL_MAX_CTAS of this shell: '8' .* max_ctas of variant max_ctas=4"
    for arguments in (few, ("--job", str(tmp_path / "job.json"))):
        with pytest.raises(BadInputError, match=words):
            job(*arguments)
    assert job("-a", "ring").communicator == {}


@pytest.mark.parametrize(
    ("text", "shape"), [("4x2", Shape(4, 8)), ("1x4+1", Shape(1, 4, 1)), ("2x3+2", Shape(2, 6, 2))]
)
def test_a_shape_gives_nodes_ranks_on_each_and_aggregators(text, shape):
    assert parse_shape(text) == shape
    assert str(shape) == text
    assert shape.processes == shape.ranks + shape.aggregators == shape.ranks_per_node * shape.nodes


def test_a_number_of_iterations_is_exact_and_a_time_is_not():
    assert job("-n", "7", "-w", "2").effort == Effort(warmup=2, min_iterations=7, max_iterations=7, rounds=3)
    assert job("--seconds", "0.5").effort == Effort(seconds=0.5, rounds=3)
    assert job(*NCCL, "--operations", "5").effort.operations == 5
