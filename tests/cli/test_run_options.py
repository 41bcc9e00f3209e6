"""The job that a command line of ``hpccoll run`` describes."""

from pathlib import Path

import pytest
from golden_page import assert_golden
from job_from_command_line import job

from hpccoll.cases.case import Shape
from hpccoll.cli.run_options import parse_shape
from hpccoll.common.errors import BadInputError


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


@pytest.mark.parametrize(
    ("theirs", "ours"), [("half", "float16"), ("float", "float32"), ("double", "float64")]
)
def test_element_types_may_have_the_names_of_nccl_tests_and_rows_have_those_of_numpy(theirs, ours):
    assert {case.dtype for case in job("-a", "ring", "-d", theirs).cases} == {ours}
    assert job("-a", "ring", "-d", theirs) == job("-a", "ring", "-d", ours)


@pytest.mark.parametrize(
    "option", ["-b", "-e", "-f", "-r", "--timing", "--mapping", "-a", "-t", "-d"]
)
def test_an_empty_value_is_not_the_usual_one(option):
    with pytest.raises(BadInputError, match="''"):
        job("-c", "broadcast", option, "")


COMMANDS = """
-a ring
-a ring --in-place
-c broadcast -r 1
-a ring,native --mapping block,cyclic
-a all --in-place --param radix=2 --param channels=2,4
--device cuda -t nccl --timing single,aggregated --operations 5
-c all_to_all_v --param traffic=random
-c multi_pair --param concurrent=1
-c send_recv --param peer=-2
-a ring -n 7 -w 2
-a ring --seconds 0.5
-a native --timing osu -n 7 -w 0
-a native --device cuda -t nccl
-a native --device cuda -t nccl,mpi
-a ring,native --in-place --device cuda -t nccl,peer
"""
"""An option is a list of the cases; parameters go to the algorithms that have them, arguments of collectives to all."""


def test_the_jobs_of_some_command_lines_are_the_golden_page():
    lines = []
    for command in COMMANDS.strip().splitlines():
        made = job("-b", "4K", "-e", "4K", *command.split())
        lines += [f"$ hpccoll run -b 4K -e 4K {command}", str(made.effort)]
        for case in made.cases:
            place = "in place" if case.in_place else "out of place"
            words = (
                case.algorithm,
                case.transport,
                place,
                f"root {case.root}",
                f"mapping {case.mapping}",
                case.timing,
            )
            lines.append(f"  {', '.join(words)}: {dict(case.params)}")
    assert_golden("jobs", lines, Path(__file__).with_name("golden"))
