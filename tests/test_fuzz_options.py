"""Extreme numbers behind options: fewer than ``python tests/fuzz_options.py`` tries."""

from itertools import islice

import pytest
from fuzz_options import COMMANDS, command_lines, options, run_in_child


def test_every_option_with_extreme_numbers_ends_in_one_line_or_well():
    tried = [words for _, words in islice(command_lines(5), 40)]
    assert not {words: defect for words in tried for defect, _ in [run_in_child(words)] if defect}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_options_to_try(command):
    assert options(command)


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        ("predict step", "--micro-batches=" + "1" + "0" * 25, "a whole number from 1 to 1048576"),
        ("predict step", "--micro-batches=100000", "at most "),
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
    from cli_runner import invoke

    result = invoke(*COMMANDS[command], *(["-p64"] if words is None else []), option)
    assert result.is_bad_input(words or "of text, or more, for 64 ranks and 4096 lanes")
