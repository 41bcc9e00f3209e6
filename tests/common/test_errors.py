"""Errors of bad input: one line with key, value and valid choices."""

import errno
import pickle
import re
from pathlib import Path

import pytest

import hpccoll.common.errors
from hpccoll.common.errors import (
    MAX_MESSAGE_CHARACTERS,
    BadInputError,
    UnusableError,
    combine_errors,
    did_you_mean,
    fault_with_line,
    file_error,
    refusal_of,
)
from hpccoll.common.terminal import OutputError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (BadInputError("-b", 0, "at least one byte"), "-b: 0 is not valid: at least one byte"),
        (
            BadInputError("op", "summ", ["sum"]),
            "op: 'summ' is not valid: did you mean sum? choose from sum",
        ),
        (
            BadInputError("on", "gpu", ["cpu", "cuda"]),
            "on: 'gpu' is not valid: choose from cpu, cuda",
        ),
        (BadInputError("partition", None, ["work"]), "partition is missing: choose from work"),
        (BadInputError("path", "x.h5", "a\n  raw\tfile"), "path: 'x.h5' is not valid: a raw file"),
        (UnusableError("a.yaml", "it is not YAML:\n line 1"), "a.yaml: it is not YAML: line 1"),
        (
            file_error("CONFIG", "a", FileNotFoundError(2, "No such file or directory")),
            "CONFIG: 'a' cannot be read: No such file or directory",
        ),
    ],
)
def test_the_line_names_the_key_the_value_and_what_is_valid_also_on_other_ranks_and_by_another_key(
    error, line
):
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  mpi4py does the same between ranks
    assert (type(copy), str(copy), copy.key, copy.value) == (
        type(error),
        line,
        error.key,
        error.value,
    )
    made = combine_errors(error, BadInputError("seed", "x", "a number")).with_key(f"f: {error.key}")
    assert (type(made), str(made)) == (type(error), f"f: {line}")
    assert [str(other) for other in made.others] == ["seed: 'x' is not valid: a number"]


@pytest.mark.parametrize(
    ("word", "choices", "meant"),
    [
        ("H100", ["v100", "h100"], "did you mean h100? "),
        ("rign", ["Ring", "Tree"], "did you mean Ring? "),
        (
            "llama3-80b",
            ["llama2-70b", "llama3-70b", "llama3-8b"],
            "did you mean llama3-8b or llama3-70b? ",
        ),
        ("gpu", ["cpu"], ""),
        (7, ["7"], ""),
    ],
)
def test_the_nearest_words_are_meant_whatever_their_case(word, choices, meant):
    assert did_you_mean(word, choices) == meant


def test_a_prefix_stands_before_each_word_that_may_be_meant():
    assert did_you_mean("llama3-80b", ["llama3-8b", "llama3-70b"], prefix="--") == (
        "did you mean --llama3-8b or --llama3-70b? "
    )


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BadInputError("op", "xor", ["sum"]), 2, "op"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "mpiexec"), 2, "mpiexec"),
        (PermissionError(errno.EACCES, "Permission denied", b"a.h5"), 2, "a.h5"),
        (RuntimeError("Symlink loop from 'a'"), 2, "loop"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), 2, "working directory"),
        (OSError(errno.EMFILE, "Too many open files", "a.h5"), 1, "ulimit -n"),
        (RuntimeError("can't start new thread"), 1, "unavailable"),
        (MemoryError(), 1, "memory"),
        (ImportError("libx.so: failed to map segment from shared object"), 1, "memory"),
        (OutputError(errno.EBADF), 1, "stdout"),
    ],
    ids=repr,
)
def test_an_error_of_the_input_or_the_system_is_one_line_with_its_exit_code(error, code, words):
    refusal = refusal_of(error)
    assert (refusal.exit_code, words in str(refusal)) == (code, True)


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), KeyError("x"), ValueError("x"), ImportError("no module x")]
)
def test_an_error_of_the_program_is_no_refusal(error):
    assert refusal_of(error) is None


@pytest.mark.parametrize(
    "value",
    [[10**5000], "x" * 100_000, {f"k{i}": [[[[[["x" * 1000]]]]]] for i in range(10_000)}],
    ids=["list", "text", "nested"],
)
def test_a_value_of_any_length_leaves_its_line_readable(value):
    line = str(BadInputError("k" * 10_000, value, "x" * 100_000))
    assert len(line) < MAX_MESSAGE_CHARACTERS + 100
    assert line.startswith("kkk")
    assert len(str(BadInputError("ranks", value, "at most 8"))) < 500


def test_no_control_character_reaches_the_terminal():
    evil = "\x1b[31m\x07\x00\u202e\x9b\ud800\u2028"
    for error in (
        BadInputError(evil, evil, evil),
        UnusableError(evil, evil),
        file_error(evil, evil, OSError(2, evil)),
    ):
        assert str(error).isprintable()
        assert "\\x1b[31m" in str(error)


def test_a_fault_below_a_page_of_an_algorithm_names_the_line_of_the_page():
    page = Path(hpccoll.common.errors.__file__).parents[1] / "algorithms" / "mine.py"
    page_code = compile("\nregister()\n", str(page), "exec")

    def register():
        raise ValueError("it is there already")

    with pytest.raises(ValueError, match="already") as raised:
        exec(page_code, {"register": register})  # noqa: S102  it stands for a page of a user
    assert fault_with_line(raised.value) == "ValueError: it is there already (mine.py, line 2)"
    with pytest.raises(ValueError, match="already") as raised:
        register()
    assert re.fullmatch(r".* \(test_errors\.py, line \d+\)", fault_with_line(raised.value))
