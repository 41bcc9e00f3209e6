"""The command line: a contract that scripts outside the project rely on."""

import json

import pytest
import raw_examples
from cli_runner import invoke
from golden_page import assert_golden

from hpccoll.schedule import COLLECTIVES
from hpccoll.store import hdf5


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "."],
        ["export", "whole.h5", "damaged.h5"],
        ["status", "."],
        ["tune", ".", "--out", "table.json"],
        ["report", "."],
    ],
)
def test_a_file_that_cannot_be_read_is_listed_and_the_exit_code_is_3(
    arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    hdf5.write_raw_file(
        raw_examples.raw(raw_examples.outcome(), raw_examples.outcome(raw_examples.case(8))),
        tmp_path / "whole.h5",
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
    assert_golden(
        "algorithms", (f"{name}: {' '.join(algorithms)}" for name, algorithms in there.items())
    )


@pytest.mark.parametrize(
    "command", ["report", "export", "status", "fit", "plan", "sweep", "evidence"]
)
@pytest.mark.parametrize("path", ["x" * 5000, "x" * 256, "loop", "a/\udcff"])
def test_a_name_that_the_system_refuses_takes_one_line(command, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert invoke(command, path).is_bad_input()
    assert [*tmp_path.iterdir()] == [tmp_path / "loop"]


@pytest.mark.parametrize(
    "words", [["\x1b[31m"], ["plan", "--\x1b[31m"], ["export", "\x1b"], ["run", "--\x1b[31m\x07"]]
)
def test_no_control_character_of_the_command_line_is_printed(words):
    result = invoke(*words)
    assert result.is_bad_input()
    assert result.err.rstrip("\n").isprintable()


def test_an_interrupted_command_ends_with_130(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hpccoll.store.result_files.read_all", interrupt)
    result = invoke("fit", ".")
    assert (result.code, result.out, result.err) == (130, "", "")
