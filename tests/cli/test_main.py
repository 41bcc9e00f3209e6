"""The command line: a contract that scripts outside the project rely on."""

import json

import pytest
import raw_examples
from cli_runner import invoke
from golden_page import assert_golden
from typer.main import get_command

from hpccoll.cli.main import app
from hpccoll.schedule import COLLECTIVES
from hpccoll.store import hdf5

COMMANDS = sorted(get_command(app).commands)
CONTRACT = "sweep plan run train report export validate status list show doctor model predict"


def test_the_commands_of_the_contract_are_there_and_what_each_does_has_room_in_its_line(monkeypatch):
    assert set(COMMANDS) >= {*CONTRACT.split()}
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke().out.partition("Commands:\n")[2].splitlines()
    assert len(lines) == len(COMMANDS)
    assert [line for line in lines if line.endswith("...")] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    assert f"hpccoll {command}" in invoke(command, "--help").out.partition("xample")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "."], ["export", "whole.h5", "damaged.h5"], ["validate", "."], ["tune", ".", "--out", "table.json"],
        ["report", "."],
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_listed_and_the_exit_code_is_3(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hdf5.write_raw_file(
        raw_examples.raw(raw_examples.outcome(), raw_examples.outcome(raw_examples.case(8))), tmp_path / "whole.h5"
    )
    (tmp_path / "damaged.h5").write_bytes((tmp_path / "whole.h5").read_bytes()[:-99])
    result = invoke(*arguments)
    (line,) = result.err.splitlines()
    assert (result.code, line.startswith("hpccoll: "), "damaged.h5" in line) == (3, True, True)
    assert result.out


def test_list_has_what_the_pages_register_and_the_librarys_own_and_the_names_of_the_contract():
    listed = json.loads(invoke("list", "--json").out)
    there = {name: sorted({*family.algorithms, "native"}) for name, family in COLLECTIVES.items()}
    assert {name: sorted(row["algorithms"]) for name, row in listed["collectives"].items()} == there
    assert sorted((row["collective"], row["name"]) for row in listed["algorithms"]) == sorted(
        (name, algorithm) for name, algorithms in there.items() for algorithm in algorithms
    )
    assert_golden("algorithms", (f"{name}: {' '.join(algorithms)}" for name, algorithms in there.items()))


@pytest.mark.parametrize("command", ["report", "export", "validate", "status", "model", "plan", "sweep", "evidence"])
@pytest.mark.parametrize("path", ["x" * 5000, "x" * 256, "loop", "a/\udcff"])
def test_a_name_that_the_system_refuses_takes_one_line(command, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert invoke(command, path).is_bad_input()
    assert [*tmp_path.iterdir()] == [tmp_path / "loop"]


@pytest.mark.parametrize("words", [["\x1b[31m"], ["plan", "--\x1b[31m"], ["export", "\x1b"], ["run", "--\x1b[31m\x07"]])
def test_no_control_character_of_the_command_line_is_printed(words):
    result = invoke(*words)
    assert result.is_bad_input()
    assert result.err.rstrip("\n").isprintable()
