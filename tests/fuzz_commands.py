"""Bad inputs to every command, and extreme numbers behind every option: ``python tests/fuzz.py commands``.

A bad input must exit with 2, print one line per mistake and leave no file. An extreme option may
also do well. Each command runs in a child of this process, with limits of time and memory.
"""

import json
import os
import random
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path

import bad_inputs
import yaml
from bad_inputs import ESCAPE, LEAST, NO_FILES
from cli_runner import CommandResult, invoke
from fuzz import in_child
from planning_inputs import last_of_each_key
from shipped_sweeps import sweep_files
from synthetic_timings import measured_table
from written_runs import write_run

from hpccoll.cases.case import Case, Job
from hpccoll.cases.plan import Launcher, Plan
from hpccoll.cli.commands import find_command
from hpccoll.sweep.paths import site_files, workflow_directory
from hpccoll.sweep.site_file import Site
from hpccoll.sweep.sweep_file import Sweep

DIRECTORY = tempfile.TemporaryDirectory(prefix="fuzz-")  # removed at the end of this process
RESULTS = str(write_run(Path(DIRECTORY.name) / "results.h5"))
MAX_LINE_CHARACTERS = 6000


@dataclass(frozen=True)
class Input:
    """A command line and the files in its directory."""

    arguments: tuple[str, ...]
    files: dict[str, str | bytes] = field(default_factory=dict)
    may_be_valid: bool = False

    def write_files(self) -> None:
        """Write the files into the working directory, and also links, a directory, a pipe and a socket."""
        for name, content in self.files.items():
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        Path("zero").symlink_to("/dev/zero")
        Path("loop").symlink_to("loop")
        Path("directory").mkdir()
        Path("file").write_bytes(b"")
        Path("bytes").write_bytes(bytes(range(256)) * 300)
        os.mkfifo("fifo")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")


def _yaml(keys: dict[str, object], **raw: str) -> str:
    """Return keys with their values as YAML, and some with a text as it stands."""
    return "".join(
        f"{key}: {raw.get(key) or json.dumps(value)}\n" for key, value in {**keys, **raw}.items()
    )


@cache
def _shipped(paths: tuple[Path, ...]) -> list[dict[str, object]]:
    return [yaml.safe_load(path.read_text()) for path in paths]


def bad_sweep(draw: random.Random) -> str:
    """Return a sweep file with a mistake."""
    key, values = draw.choice([*Sweep.model_fields]), bad_inputs.VALUES
    if key in ("rounds", "aggregators", "roots"):
        values += bad_inputs.NO_NUMBERS
    elif key in ("collectives", "algorithms", "devices", "transports", "dtypes", "ops", "mapping"):
        values += bad_inputs.NO_WORDS
    lines = [last_of_each_key(LEAST + draw.choice(bad_inputs.SWEEPS) + "\n") for _ in range(3)]
    changed = [
        _yaml(
            draw.choice(_shipped(sweep_files(workflow_directory()))), **{key: draw.choice(values)}
        )
    ] * 4
    return draw.choice([draw.choice(bad_inputs.FILES), *lines, *changed])


def bad_site(draw: random.Random) -> str:
    """Return a site file with a mistake."""
    good, key = draw.choice(_shipped(tuple(site_files()))), draw.choice([*Site.model_fields])
    is_number = key in ("minutes", "cpus_per_task", "signal_s", "start_s")
    values = bad_inputs.VALUES + bad_inputs.NO_NUMBERS * is_number
    lines = last_of_each_key(_yaml(good) + draw.choice(bad_inputs.SITES) + "\n")
    return draw.choice(
        [draw.choice(bad_inputs.FILES), lines, *[_yaml(good, **{key: draw.choice(values)})] * 3]
    )


def bad_json(draw: random.Random, good: object) -> str:
    """Return JSON of which one value is none that a program of ours would write."""
    if draw.randrange(4) == 0:
        return draw.choice([*bad_inputs.FILES, "{}", "[]", '"x"', json.dumps(good)[:-9]])
    mark = "a value that is to be replaced"
    inside = text = json.loads(json.dumps(good))
    while True:
        key = draw.choice([*inside] if isinstance(inside, dict) else range(len(inside)))
        deeper = inside[key]
        if not (isinstance(deeper, dict | list) and deeper and draw.randrange(6)):
            inside[key] = mark
            return json.dumps(text).replace(json.dumps(mark), draw.choice(bad_inputs.JSON))
        inside = deeper


JOB = Job(
    name="mpi.p2",
    ranks=2,
    environment={"A": "b"},
    communicator={"max_ctas": 4},
    variant="a",
    cases=(Case(collective="all_reduce", algorithm="ring", bytes=8, params={"channels": 2}),),
)
PLAN = Plan(
    name="a",
    profile="local",
    jobs=(JOB,),
    skips=(),
    launcher=Launcher(command="mpiexec -n {ranks}"),
    resources={},
    estimated_s=1.0,
)


def bad_job(draw: random.Random) -> str:
    return bad_json(draw, json.loads(JOB.to_json()))


def bad_plan(draw: random.Random) -> str:
    """Return a plan whose job is bad; a launch reads its own job and no other one."""
    return json.dumps({**json.loads(PLAN.to_json()), "jobs": "@"}).replace(
        '"@"', f"[{bad_job(draw)}]"
    )


@cache
def _table() -> dict[str, object]:
    """Return a table, less what is for people and no command looks at."""
    table = measured_table({"ring": {8: 1e-6, 1024: 3e-6}}).to_json()
    of_a_run = {"run_id", "machine", "mpi"}
    return {
        **table,
        "runs": [{name: run[name] for name in of_a_run & run.keys()} for run in table["runs"]],
    }


FILES: dict[str, Callable[[random.Random], str | bytes]] = {
    "a.yaml": lambda _: LEAST,
    "auto.yaml": lambda _: last_of_each_key(f"{LEAST}algorithms: auto\ntable: table.json"),
    "sweep.yaml": bad_sweep,
    "site.yaml": bad_site,
    "table.json": lambda draw: bad_json(draw, _table()),
    "job.json": bad_job,
    "plan.json": bad_plan,
    "good.json": lambda _: PLAN.to_json(),
    "a.log": lambda _: "x",
    "random": lambda draw: draw.randbytes(9999) + b"\xff",
}
"""The content of the files that command lines name."""
NAMED = {"auto.yaml": ("auto.yaml", "table.json"), ".": ("plan.json",)}
"""What comes with some words, each the names of files."""
LONG = "x" * bad_inputs.DEEP
WORDS: dict[str, Sequence[str]] = {
    "PLANNER": ("plan", "plan", "sweep"), "READER": ("report", "export", "status", "fit"),
    "NO_FILE": NO_FILES, "PLANNING": bad_inputs.PLANNING, "NUMBER": bad_inputs.NUMBERS, "RESULTS": (RESULTS,),
    "COUNT": ("-b", "-e", "-f", "-n", "-w", "--seconds", "--timeout", "--rounds", "--seed", "--aggregators"),
    # some may be fractions
    "NO_COUNT": tuple(n for n in bad_inputs.NUMBERS if n not in ("1.5", "1e14", "1e20")),
    "CHOICE": ("-c", "-t", "-d", "-o", "--device", "--variant", "--mapping", "--network", "--shape", "-a"),
    "NO_CHOICE": ("rign", ESCAPE, LONG, "-", "9", bad_inputs.ALMOST), "NO_FORMAT": ("xml", "", LONG, ESCAPE),
    "PARAM": ("channels=0", "channels=99999999", "segment=99T", "chanels=1", "=", "channels=" + "9" * 5000),
    "NO_OPTION": ("--frob", "--iteratons=3", "x", "-z", "--\x1b[31m", "-\x07", f"--{LONG}"),
    "NO_OUT": ("x" * 5000, "x" * 250, "/proc/a/b", "loop/x", "file/x"),
    "NO_PAGE": ("x" * 5000, "/proc/a", "file/x", "loop"),
    "NO_PICTURE": ("x.exe", "x", "x" * 5000 + ".svg", "/proc/a/b.svg", "file/x.svg", "loop/x.png"),
    "NO_COMMAND": ("sweeep", "", "--frob", "\x1b[31m", LONG, "\udcff"), "NO_JOB": ("nope", "../x", "x" * 5000),
    "SHOW_OPTION": ("--racks", "--aggregators", "--unit", "-r"),
}  # fmt: skip
"""The words that stand for the names in capitals in command lines."""
LINES = {
    "planned": (
        *["PLANNER sweep.yaml"] * 7, *["plan a.yaml --site=site.yaml"] * 4, "PLANNER NO_FILE",
        "plan a.yaml --site=NO_FILE", "plan auto.yaml", "PLANNER a.yaml PLANNING", "PLANNER random",
    ),
    "run": (
        "run COUNT NO_COUNT", "run CHOICE NO_CHOICE", "run -a ring --param PARAM", "run NO_OPTION",
        *["run --job job.json"] * 3, "run --job NO_FILE", "run --table NO_FILE",
        "run -n 1 -e 8 --out NO_OUT",
    ),
    "read": (
        "READER NO_FILE", "READER RESULTS NO_OPTION", "READER", "READER .", "tune NO_FILE --out=t.json",
        "export RESULTS --format=NO_FORMAT", "export RESULTS --timing=NO_FORMAT", "tune RESULTS",
        "tune RESULTS --judge=table.json", "tune RESULTS --judge=NO_FILE", "tune RESULTS --out=a --judge=b",
        "report RESULTS --out=NO_PAGE", "launch plan.json mpi.p2 --out=x.h5", "launch NO_FILE mpi.p2 --out=x.h5",
        "launch good.json NO_JOB --out=x.h5",
    ),
    "shown": (
        "show ring -p NUMBER", "show ring -p 0", "show ring -p 4097", "show ring -p 4 SHOW_OPTION NUMBER",
        "show NO_FORMAT -p 4", "show native -p 4", "show ring -p 4 --param PARAM", "show ring -p 4 --out NO_PICTURE",
        "list --frob", "doctor NO_OPTION", "evidence NO_FILE", "evidence random", "evidence a.log --network=ib",
        "NO_COMMAND",
    ),
}  # fmt: skip
"""Bad command lines by their family."""


def bad(draw: random.Random, family: str) -> Input:
    """Return a bad command line, with the files that it names."""
    words, files = [], {}
    for word in draw.choice(LINES[family]).split():
        option, equals, value = word.rpartition("=")
        words.append(f"{option}{equals}{draw.choice(WORDS.get(value, [value]))}")
        files |= {name: FILES[name](draw) for name in NAMED.get(value, [value]) if name in FILES}
    # a variable may have a long value; the launch then lacks the file of its job
    may_be_valid = words[0] == "launch"
    return Input(tuple(words), files, may_be_valid)


OSU = str(next((Path(__file__).parent / "inputs").glob("osu-barrier-full.txt"), ""))
COMMANDS = {
    "plan": ["plan", "a.yaml"],
    "report": ["report", RESULTS, "--out=page"],
    "export": ["export", RESULTS],
    "tune": ["tune", RESULTS, "--out=t.json"],
    "fit": ["fit", RESULTS],
    "compare": ["compare", RESULTS, RESULTS],
    "accept": ["accept", RESULTS, "--cluster=1x25g-tcp"],
    "predict": ["predict", "--cluster=8xh100-400g", "--nodes=2", "-b8"],
    "predict step": [
        "predict",
        "step",
        "--model=gpt2",
        "--cluster=8xh100-400g",
        "--nodes=2",
        "--compute=27ms",
    ],
    "predict step (closed form)": [
        "predict",
        "step",
        "--params=1e9",
        "--rate=400gbit",
        "--compute=27ms",
    ],
    "show": ["show", "ring", "-p", "4"],
    "show (as GOAL)": ["show", "ring", "-p", "4", "-b", "1K", "--format", "goal"],
    "import": ["import", OSU, "--out=F.h5"],
}
"""Commands that do well; ``extreme`` adds an option."""


def options(command: str) -> list[str]:
    """Return the options of a command that take a number or a word."""
    first, *second = command.partition(" (")[0].split()
    found = find_command(first)
    for word in second:
        found = found.subcommands()[word]
    every = chain.from_iterable(found.parser().groups.values())
    return [option.flags[0] for option in every if option.kind not in ("flag", "toggle")]


def extreme(draw: random.Random) -> Input:
    """Return a command with an extreme number behind an option."""
    command = draw.choice([*COMMANDS])
    option = draw.choice(options(command))
    number = draw.choice(
        [each for each in bad_inputs.EXTREMES if (option, each) != ("--out", "nan")]
    )
    value = f"{draw.choice(bad_inputs.PARAMETERS)}={number}" if option == "--param" else number
    word = f"{option}{'=' * option.startswith('--')}{value}"
    return Input((*COMMANDS[command], word), {"a.yaml": LEAST}, may_be_valid=True)


FAMILIES = (*LINES, "planned", "extreme", "extreme")


def inputs(seed: int, families: Sequence[str] = FAMILIES) -> Iterator[Input]:
    """Yield inputs without end; a seed always gives the same ones."""
    draw = random.Random(seed)  # noqa: S311  no secret
    while True:
        family = draw.choice(families)
        yield extreme(draw) if family == "extreme" else bad(draw, family)


def fault(of: Input, result: CommandResult) -> str:
    """Return the defect in the response of a command to an input; empty if there is none."""
    lines = result.err.splitlines()
    if result.code not in ((0, 2, 3) if of.may_be_valid else (2,)):
        return f"it ended with {result.code}: {result.err[-300:]}"
    if "Traceback" in result.err or "nan" in result.out.split():
        return "it printed a traceback, or nan"
    if result.code == 2 and (
        result.out or not lines or any(not line.startswith("hpccoll: ") for line in lines)
    ):
        return f"it did not say one line for each mistake: {result.out[:300]}{result.err[-300:]}"
    bad = [line for line in lines if not line.isprintable() or len(line) > MAX_LINE_CHARACTERS]
    return f"it printed control characters or a long line: {bad[0][:300]!r}" if bad else ""


def defect_of(tried: Input) -> str:
    """Run a command in an empty directory, and return its defect; empty without one."""
    with tempfile.TemporaryDirectory(prefix="f") as directory:
        os.chdir(directory)
        tried.write_files()
        before = {*Path().rglob("*")}
        try:
            defect = fault(tried, invoke(*tried.arguments))
        except BaseException:  # noqa: BLE001  any exception is a defect
            return traceback.format_exc()[-800:]
        left = () if tried.may_be_valid else {*Path().rglob("*")} - before
        return defect or (f"it left {sorted(map(str, left))[:5]}" if left else "")


def trials(
    seed: int, number: int, _directory: Path, only: str | None = None
) -> Iterator[tuple[str, str, bool]]:
    """Yield inputs of all families or of one, the defect in the response to each, and whether there is one."""
    for each in islice(inputs(seed, [only] if only else FAMILIES), number):
        defect = in_child(lambda each=each: defect_of(each))[0]
        files = {name: content[:300] for name, content in each.files.items()}
        yield (
            f"{[word[:80] for word in each.arguments]} {files}",
            defect or "ended as they should",
            bool(defect),
        )
