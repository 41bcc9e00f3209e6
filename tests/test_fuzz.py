"""A few of the damaged files, bad inputs and extreme options that tests/fuzz.py tries."""

import os
import subprocess
import sys
from pathlib import Path

import fuzz_files
import fuzz_foreign
import pytest
from cli_runner import invoke
from fuzz import GROWTH_MIB, in_child
from fuzz_commands import COMMANDS, Input, defect_of, options


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fuzz_files.write_examples(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", fuzz_files.ALLOWED)
def test_damage_is_harmless_refused_or_named(whole, kind):
    damaged = fuzz_files.damaged_files(whole[kind], 40, seed=13)
    assert not {
        what: verdict for what, verdict in damaged if verdict not in fuzz_files.ALLOWED[kind]
    }


def test_a_changed_figure_and_a_process_that_dies_or_takes_much_memory_are_defects(whole, tmp_path):
    other = fuzz_files.results(tmp_path / "other.h5")
    other.attempts[0][1].pop()
    fuzz_files.hdf5.write_raw_file(other, other.path)
    assert fuzz_files.verdict(other.path, fuzz_files.read_raw(whole["raw file"])).startswith(
        "other figures"
    )
    assert in_child(lambda: os._exit(3))[0].startswith("its process ended with 3")
    assert in_child(lambda: str(len(b"1" * (GROWTH_MIB + 9 << 20))))[0].startswith("it took 5")


@pytest.mark.parametrize(("fuzzer", "number"), [("commands", 70), ("foreign", 15)])
def test_bad_inputs_extreme_options_and_files_of_others_end_in_lines_or_well(fuzzer, number):
    assert all(map(options, COMMANDS))
    # In a process that has drawn nothing: a child of one with V8's threads would wait for them when
    # it draws a chart.
    words = fuzzer, "--seed", "20261122", "--number", str(number)
    fuzzed = subprocess.run(
        [sys.executable, Path(__file__).with_name("fuzz.py"), *words],
        check=False,
        capture_output=True,
        text=True,
    )
    assert fuzzed.returncode == 0, fuzzed.stdout + fuzzed.stderr
    assert f"{number} tried: {number} ended as they should" in fuzzed.stdout


@pytest.mark.parametrize("shape", ["a group of 100,000 ranks", "archive of 50,000 links"])
def test_what_a_small_file_says_costs_no_more_than_it_holds(shape):
    arguments, name, make = fuzz_foreign.SHAPES[shape]
    tried = Input(
        tuple(each.replace("FILE", name) for each in arguments), {name: make()}, may_be_valid=True
    )
    assert in_child(lambda: defect_of(tried))[0] == ""


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        ("predict step", "--micro-batches=" + "1" + "0" * 25, "a whole number from 1 to"),
        ("predict step", "--micro-batches=100000", "at most"),
        ("predict step", f"--batch={1 << 44}", "a whole number from 1 to"),
        ("predict step", "--algorithm=", "choose from"),
        ("predict step (closed form)", "--compute=1e308", "a duration from 1e-15 to 1e+21 s"),
        ("predict", "--algorithms=", "choose from"),
        ("show (as GOAL)", "--param=channels=4096", None),
    ],
)
def test_a_count_without_end_is_refused_at_once(command, option, words):
    result = invoke(*COMMANDS[command], *(["-p64"] if words is None else []), option)
    assert result.is_bad_input(words or "of text, or more, for 64 ranks and 4096 lanes")
