"""Extreme numbers and words behind every option of every command: each run ends within its limits, in one line or well.

``python tests/fuzz.py options`` runs them all as children of its process.
"""

import os
import random
import tempfile
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import bad_inputs
import typer
from cli_runner import CommandResult, invoke
from fuzz import in_child
from fuzz_inputs import RESULTS

from hpccoll.cli.main import app

MEMORY_BYTES = 6 << 30
OSU = str(next((Path(__file__).parent / "inputs").glob("osu-barrier-full.txt"), ""))
CLUSTER = "--cluster=8xh100-400g"
COMMANDS = {
    "plan": ["plan", "a.yaml"],
    "report": ["report", RESULTS, "--out=page"],
    "export": ["export", RESULTS],
    "tune": ["tune", RESULTS, "--out=t.json"],
    "model": ["model", RESULTS],
    "compare": ["compare", RESULTS, RESULTS],
    "predict": ["predict", CLUSTER, "--nodes=2", "-b8"],
    "predict step": ["predict", "step", "--model=gpt2", CLUSTER, "--nodes=2", "--compute=27ms"],
    "predict step (closed form)": ["predict", "step", "--params=1e9", "--rate=400gbit", "--compute=27ms"],
    "show": ["show", "ring", "-p", "4"],
    "export-schedule": ["export-schedule", "ring", "-p", "4", "-b", "1K"],
    "import": ["import", OSU, "--out=F.h5"],
}
NUMBERS = (
    "0", "-1", "1", "7", "4096", "100000", "1000000", "16777216", str(10**9), str(1 << 44), str(1 << 63), str(10**25),
    "9" * 400, "1e308", "1e-308", "inf", "nan", "", "1-262144", "1T", "16T",
)  # fmt: skip
"""Counts, sizes and rates, of which some are valid, and larger than what anybody has time or memory for."""
PARAMETERS = ("channels", "window", "segment", "radix", "groups", "peer", "traffic", "inner")


def options(command: str) -> list[str]:
    """Return the options of a command that take a number or a word."""
    found = typer.main.get_command(app)
    for name in command.partition(" (")[0].split():
        found = found.commands[name]
    return [each.opts[0] for each in found.params if each.param_type_name == "option" and not each.is_flag]


def command_lines(seed: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield commands and command lines, in random order: every option of every command with every number."""
    lines = []
    for command, words in COMMANDS.items():
        for option in options(command):
            values = tuple(number for number in NUMBERS if option != "--out" or number != "nan")
            if option == "--param":
                values = tuple(f"{name}={number}" for name in PARAMETERS for number in NUMBERS)
            equals = "=" if option.startswith("--") else ""
            lines += [(command, (*words, f"{option}{equals}{value}")) for value in values]
    random.Random(seed).shuffle(lines)  # noqa: S311  no secret
    yield from lines


def run_in_child(words: tuple[str, ...]) -> str:
    """Return the defect of a command line, empty without one."""

    def judge() -> str:
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            Path("a.yaml").write_text(bad_inputs.LEAST)
            return _defect(words)

    return in_child(judge, MEMORY_BYTES)[0]


def _defect(words: tuple[str, ...]) -> str:
    try:
        result: CommandResult = invoke(*words)
    except BaseException:  # noqa: BLE001  any exception is a defect
        return traceback.format_exc()[-800:]
    if result.code not in (0, 2, 3):
        return f"it ended with {result.code}: {result.err[-300:]}"
    if result.code == 2 and len(result.err.splitlines()) != 1:
        return f"it said not one line: {result.err[-300:]}"
    return "it printed a traceback" * ("Traceback" in result.err) or "it printed nan" * ("nan" in result.out.split())


def trials(seed: int, number: int, _directory: Path, only: str | None = None) -> Iterator[tuple[str, str, bool]]:
    """Yield command lines, the defect of each, and whether there is one."""
    lines = (words for command, words in command_lines(seed) if only in (None, command))
    for words in islice(lines, number):
        defect = run_in_child(words)
        yield " ".join(words)[:200], defect or "ended as they should", bool(defect)
