"""Extreme numbers and words behind every option of every command: each run ends within its limits, in one line or well.

    python tests/fuzz_options.py --seed 1

runs them all as children of this process; tests/test_fuzz_options.py runs a few.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import bad_inputs
import typer
from cli_runner import CommandResult, invoke
from fuzz_inputs import GOLDEN

from hpccoll.cli.main import app

CPU_S = 10
MEMORY_BYTES = 6 << 30
OSU = str(next((Path(__file__).parent / "inputs").glob("osu-barrier-full.txt"), ""))
CLUSTER = "--cluster=8xh100-400g"
COMMANDS = {
    "plan": ["plan", "a.yaml"],
    "report": ["report", GOLDEN, "--out=page"],
    "export": ["export", GOLDEN],
    "tune": ["tune", GOLDEN, "--out=t.json"],
    "model": ["model", GOLDEN],
    "compare": ["compare", GOLDEN, GOLDEN],
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


def run_in_child(words: tuple[str, ...]) -> tuple[str, float]:
    """Return the defect of a command line, empty without one, and the CPU seconds that it took."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            Path("a.yaml").write_text(bad_inputs.LEAST)
            os.write(write, _defect(words).encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        defect = pipe.read()
    _, status, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if code := os.waitstatus_to_exitcode(status):
        defect = f"it ended with {code} after {cpu_s:.0f} CPU seconds and {used.ru_maxrss >> 10} MiB"
    return defect, cpu_s


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


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--number", type=int, default=10_000)
    parse.add_argument("--only", help="of this command", choices=COMMANDS)
    arguments = parse.parse_args()
    defects, slowest, number = 0, 0.0, 0
    for command, words in command_lines(arguments.seed):
        if number == arguments.number or arguments.only not in (None, command):
            continue
        number += 1
        defect, cpu_s = run_in_child(words)
        slowest = max(slowest, cpu_s)
        if defect:
            defects += 1
            print(f"{' '.join(words)[:200]}\n  {defect}", flush=True)
    print(
        f"{number - defects} of {number} command lines ended as they should; the slowest took {slowest:.1f} CPU seconds"
    )
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
