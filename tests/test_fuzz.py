"""A few of the damaged files, bad inputs and extreme options that tests/fuzz.py tries."""

import os
from itertools import islice

import fuzz_files
import pytest
from cli_runner import invoke
from fuzz import in_child
from fuzz_inputs import fault, inputs, names, planned, read, run_limited, shown
from fuzz_options import COMMANDS, command_lines, options, run_in_child

SEED = 20261122


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fuzz_files.write_examples(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", fuzz_files.ALLOWED)
def test_damage_is_harmless_refused_or_named(whole, kind):
    damaged = fuzz_files.damaged_files(whole[kind], 40, seed=13)
    assert not {what: verdict for what, verdict in damaged if verdict not in fuzz_files.ALLOWED[kind]}


def test_a_changed_figure_and_a_process_that_dies_are_defects(whole, tmp_path):
    other = fuzz_files.results(tmp_path / "other.h5")
    other.attempts[0][1].pop()
    fuzz_files.hdf5.write_raw_file(other, other.path)
    assert fuzz_files.verdict(other.path, fuzz_files.read_raw(whole["raw file"])).startswith("other figures")
    assert in_child(lambda: os._exit(3))[0].startswith("its process ended with 3")


@pytest.mark.parametrize("number", range(5))
def test_a_bad_input_gives_one_line_per_mistake_and_leaves_no_file(number, tmp_path, monkeypatch):
    for attempt, bad_input in enumerate(islice(inputs(SEED + number, (planned, read, shown)), 6)):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        bad_input.write_files(directory)
        monkeypatch.chdir(directory)
        before = names(directory)
        result = invoke(*bad_input.arguments)
        assert fault(result.code, result.out, result.err) is None, (bad_input.arguments, result)
        assert names(directory) == before, bad_input.arguments


def test_a_bad_input_needs_little_time_and_memory():
    for bad_input in islice(inputs(SEED), 3):
        problem, cost, result = run_limited(bad_input)
        assert problem is None, (bad_input.arguments, cost, result)


def test_every_option_with_extreme_numbers_ends_in_one_line_or_well():
    tried = [words for _, words in islice(command_lines(5), 40)]
    assert not {words: defect for words in tried if (defect := run_in_child(words))}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_options_to_try(command):
    assert options(command)


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        ("predict step", "--micro-batches=" + "1" + "0" * 25, "a whole number from 1 to"),
        ("predict step", "--micro-batches=100000", "at most"),
        ("predict step", f"--batch={1 << 44}", "a whole number from 1 to"),
        ("predict step", "--samples=" + "9" * 400, "a whole number from 1 to"),
        ("predict step", "--algorithm=", "choose from"),
        ("predict step (closed form)", "--algorithm=", "choose from ring"),
        ("predict step (closed form)", "--compute=1e308", "a duration from 1e-15 to 1e+21 s"),
        ("predict", "--algorithms=", "choose from"),
        ("export-schedule", "--param=channels=4096", None),
    ],
)
def test_a_count_without_end_is_refused_at_once(command, option, words):
    result = invoke(*COMMANDS[command], *(["-p64"] if words is None else []), option)
    assert result.is_bad_input(words or "of text, or more, for 64 ranks and 4096 lanes")
