"""The help of every command fits a screen, and shows what a person types."""

import re
from itertools import chain

import pytest
from cli_runner import invoke

from hpccoll.cases.keys import FOR_THE_WORKFLOW, RUN_OPTIONS
from hpccoll.cli.commands import HIDDEN, RENAMED
from hpccoll.extensions.steps.cli.predict_step import PREDICT_STEP

MAX_LINES, COLUMNS = 50, 80

COMMANDS = (
    "sweep",
    "plan",
    "run",
    "train",
    "report",
    "export",
    "status",
    "compare",
    "accept",
    "import",
    "tune",
    "fit",
    "predict",
    "list",
    "show",
    "evidence",
    "trace",
    "doctor",
    "diagnose",
    "count",
    "order",
)
"""The commands of the contract that a person calls."""
PAGES = ["", *COMMANDS, "predict step", "launch"]


@pytest.fixture(autouse=True)
def _screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def page(command, option="--help"):
    result = invoke(*command.split(), option)
    assert (result.code, result.err) == (0, "")
    return result.out


@pytest.mark.parametrize("command", PAGES)
def test_the_help_of_a_command_fits_a_screen_and_has_an_example(command):
    lines = page(command).splitlines()
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert f"hpccoll {command}".strip() in "\n".join(lines).partition("Example")[2]


def used_options(example):
    """Return the options of hpccoll in the line of an example: none of what it starts, or passes on."""
    unquoted = re.sub(r"'[^']*'", "VALUE", example)
    own_words = unquoted.partition("hpccoll ")[2].partition(" -- ")[0]
    return set(re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", own_words))


@pytest.mark.parametrize("command", PAGES)
def test_the_examples_of_a_help_have_options_that_it_lists(command):
    options, _, examples = page(command).partition("\nExample")
    listed = set(re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", options)) | {"--help"}
    for example in examples.splitlines():
        words = example.partition("hpccoll ")[2]
        is_of_another_page = "--help" in words
        if words.startswith(command) and not is_of_another_page:
            assert used_options(example) <= listed, example


def test_the_first_help_has_a_line_for_each_command_of_the_contract_and_for_no_other():
    commands = re.findall(r"^  (\w+) ", page(""), re.MULTILINE)
    assert sorted(commands) == sorted(COMMANDS)
    assert page("") == invoke().out
    assert HIDDEN.keys() == {"launch", "--completion"}


@pytest.mark.parametrize("command", ["run", "train"])
def test_options_of_the_workflow_are_shown_only_with_all_others(command):
    short, whole = page(command), page(command, "--help-all")
    flags = [option.flags[0] for option in RUN_OPTIONS[FOR_THE_WORKFLOW]]
    assert not [flag for flag in flags if flag in short]
    listed = re.findall(r"^  (--?[\w-]+)", whole, re.MULTILINE)
    assert set(listed) >= {
        *re.findall(r"^  (--?[\w-]+)", short, re.MULTILINE),
        "--shape",
        "--hosts",
        "--exit-zero",
    }
    assert command == "train" or set(listed) >= {*flags}


def test_every_option_of_predict_step_stands_in_its_help():
    options = chain.from_iterable(PREDICT_STEP.options.values())
    assert [
        option.long_flag
        for option in options
        if option.long_flag.lstrip("-") not in page("predict step")
    ] == []


@pytest.mark.parametrize("name", RENAMED)
def test_a_command_of_an_earlier_version_names_its_successor(name):
    assert invoke(name, "x").is_bad_input(f"no command '{name}'", RENAMED[name])


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_completion_of_a_shell_knows_every_command_and_its_options(shell):
    script = invoke("--completion", shell).out
    assert [command for command in COMMANDS if command not in script] == []
    assert [
        option
        for option in ("--cluster", "--aggregators", "--compress", "--rule")
        if option not in script
    ] == []


def test_a_shell_without_completion_is_bad_input():
    assert invoke("--completion", "fish").is_bad_input("bash, zsh, tcsh")
