"""Random bad inputs to every command: each must exit with 2 and print one line per mistake.

``python tests/fuzz.py inputs`` runs them as processes, with limits of time and memory.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

import bad_inputs
import yaml
from bad_inputs import ESCAPE, NO_FILES
from planning_inputs import last_of_each_key
from shipped_sweeps import sweep_files
from synthetic_timings import measured_table
from written_runs import write_run

from hpccoll.cases.case import Case, Job
from hpccoll.sweep.paths import site_files, workflow_directory
from hpccoll.sweep.site_file import Site
from hpccoll.sweep.sweep_file import Sweep

DIRECTORY = tempfile.TemporaryDirectory(prefix="fuzz-")  # removed at the end of this process
RESULTS = str(write_run(Path(DIRECTORY.name) / "results.h5"))
MAX_CPU_S, MAX_MIB = 5.0, 500
TIMEOUT_S = 120
"""The wall-clock limit of an input, because processors may be busy."""
MAX_LINE_CHARACTERS = 6000


@dataclass(frozen=True)
class Input:
    """A command line and the files in its directory."""

    arguments: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)

    def write_files(self, directory: Path) -> None:
        """Write the files, and also links, a directory, a pipe and a socket."""
        for name, content in self.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        (directory / "zero").symlink_to("/dev/zero")
        (directory / "loop").symlink_to("loop")
        (directory / "directory").mkdir()
        (directory / "file").write_bytes(b"")
        (directory / "bytes").write_bytes(bytes(range(256)) * 300)
        os.mkfifo(directory / "fifo")
        with socket.socket(socket.AF_UNIX) as server:
            before = Path.cwd()
            os.chdir(directory)  # the name of a socket is short
            server.bind("socket")
            os.chdir(before)


def _file(*words: str, **files: str | bytes) -> Input:
    """Return an input; the keyword ``a_yaml`` names the file a.yaml."""
    named = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    return Input(words, {name: text if isinstance(text, bytes) else text.encode() for name, text in named.items()})


def _yaml(keys: dict[str, object], **raw: str) -> str:
    """Return keys with their values as YAML, and some with a text as it stands."""
    return "".join(f"{key}: {raw.get(key) or json.dumps(value)}\n" for key, value in {**keys, **raw}.items())


@cache
def _shipped(paths: tuple[Path, ...]) -> list[dict[str, object]]:
    return [yaml.safe_load(path.read_text()) for path in paths]


def bad_sweep(draw: random.Random) -> str:
    """Return a sweep file with a mistake."""
    way = draw.randrange(8)
    if way == 0:
        return draw.choice(bad_inputs.FILES)
    if way < 4:
        return last_of_each_key(bad_inputs.LEAST + draw.choice(bad_inputs.SWEEPS) + "\n")
    good = draw.choice(_shipped(sweep_files(workflow_directory())))
    key, values = draw.choice([*Sweep.model_fields]), bad_inputs.VALUES
    if key in ("seed", "rounds", "aggregators", "roots"):
        values = (*bad_inputs.VALUES, *bad_inputs.NO_NUMBERS)
    elif key in ("collectives", "algorithms", "devices", "transports", "dtypes", "ops", "mapping"):
        values = (*bad_inputs.VALUES, *bad_inputs.NO_WORDS)
    return _yaml(good, **{key: draw.choice(values)})


def bad_site(draw: random.Random) -> str:
    """Return a site file with a mistake."""
    good = draw.choice(_shipped(tuple(site_files())))
    key, way = draw.choice([*Site.model_fields]), draw.randrange(5)
    if way == 0:
        return draw.choice(bad_inputs.FILES)
    if way == 1:
        return last_of_each_key(_yaml(good) + draw.choice(bad_inputs.SITES) + "\n")
    number = key in ("minutes", "memory_mb", "cpus_per_task", "signal_s", "start_s")
    return _yaml(
        good, **{key: draw.choice((*bad_inputs.VALUES, *bad_inputs.NO_NUMBERS) if number else bad_inputs.VALUES)}
    )


def bad_json(draw: random.Random, good: object) -> str:
    """Return JSON of which one value is none that a program of ours would write."""
    if draw.randrange(4) == 0:
        return draw.choice([*bad_inputs.FILES, "{}", "[]", '"x"', json.dumps(good)[:-9]])
    mark = "a value that is to be replaced"
    text = json.loads(json.dumps(good))
    inside = text
    while True:
        key = draw.choice([*inside] if isinstance(inside, dict) else range(len(inside)))
        deeper = inside[key]
        if not (isinstance(deeper, dict | list) and deeper and draw.randrange(6)):
            inside[key] = mark
            return json.dumps(text).replace(json.dumps(mark), draw.choice(bad_inputs.JSON))
        inside = deeper


JOB = Job(
    name="mpi.p2", ranks=2, environment={"A": "b"}, communicator={"max_ctas": 4}, variant="a",
    cases=(Case(collective="all_reduce", algorithm="ring", bytes=8, params={"channels": 2}),),
)  # fmt: skip
PLAN = {
    "name": "a", "profile": "local", "jobs": [json.loads(JOB.to_json())], "estimated_s": 1.0, "offline": False,
    "skips": [{"case": "a", "job": "mpi.p2", "reason": "b"}], "notes": ["a"],
    "resources": {"mpi.p2": {"nodes": 1}},
    "launcher": {
        "command": "mpiexec -n {ranks}", "program": "hpccoll", "setup": ["a"], "slurm": False, "start_timeout_s": 60.0,
        "slurm_conf": None, "aggregator": None, "socket_distribution": "", "network": None,
    },
}  # fmt: skip


@cache
def _table() -> dict[str, object]:
    """Return a table, less what is for people and no command looks at."""
    made = measured_table({"ring": {8: 1e-6, 1024: 3e-6}}).to_json()
    of_a_run = {"run_id", "machine", "mpi"}
    return {**made, "runs": [{name: run[name] for name in of_a_run & run.keys()} for run in made["runs"]]}


def planned(draw: random.Random) -> Input:
    """Return a bad sweep, site or option of ``plan`` or ``sweep``."""
    command = draw.choice(["plan", "plan", "sweep"])
    ways = {
        "sweep file": lambda: _file(command, "a.yaml", a_yaml=bad_sweep(draw)),
        "site": lambda: _file("plan", "a.yaml", "--site=b.yaml", a_yaml=bad_inputs.LEAST, b_yaml=bad_site(draw)),
        "file": lambda: _file(command, draw.choice(NO_FILES)),
        "site file": lambda: _file("plan", "a.yaml", f"--site={draw.choice(NO_FILES)}", a_yaml=bad_inputs.LEAST),
        "table": lambda: _file(
            "plan", "a.yaml", a_yaml=last_of_each_key(bad_inputs.LEAST + "algorithms: auto\ntable: t.json"),
            t_json=bad_json(draw, _table()),
        ),
        "option": lambda: _file(command, "a.yaml", draw.choice(bad_inputs.PLANNING), a_yaml=bad_inputs.LEAST),
        "bytes": lambda: _file(command, "a.yaml", a_yaml=draw.randbytes(200) + b"\xff"),
    }  # fmt: skip
    return ways[draw.choice(["sweep file"] * 6 + ["site"] * 3 + [*ways])]()


def run(draw: random.Random) -> Input:
    """Return a bad option or job of ``run``."""
    numbers = ("-b", "-e", "-f", "-n", "-w", "--seconds", "--timeout", "--rounds", "--seed", "--aggregators")
    number = tuple(n for n in bad_inputs.NUMBERS if n not in ("1.5", "1e14", "1e20"))  # some may be fractions
    words = ("-c", "-t", "-d", "-o", "--device", "--variant", "--mapping", "--network", "--shape", "-a")
    no_words = ("rign", ESCAPE, "x" * bad_inputs.DEEP, "-", "9", bad_inputs.ALMOST)
    params = ("channels=0", "channels=99999999", "segment=99T", "chanels=1", "=", "channels=" + "9" * 5000)
    outs = ("x" * 5000, "x" * 250, "/proc/a/b", "loop/x")
    ways = {
        "number": lambda: _file("run", draw.choice(numbers), draw.choice(number)),
        "iterations": lambda: _file("run", draw.choice(["-n", "-w"]), draw.choice(bad_inputs.NUMBERS)),
        "word": lambda: _file("run", draw.choice(words), draw.choice(no_words)),
        "parameter": lambda: _file("run", "-a", "ring", "--param", draw.choice(params)),
        "option": lambda: _file("run", draw.choice(["--frob", "--iteratons=3", "x", "-z", "--out", "--job", "-\x07"])),
        "job": lambda: _file("run", "--job", "j.json", j_json=bad_json(draw, json.loads(JOB.to_json()))),
        "file": lambda: _file("run", draw.choice(["--job", "--table", "--evidence"]), draw.choice(NO_FILES)),
        "out": lambda: _file("run", "-n", "1", "-e", "8", "--out", draw.choice(outs)),
    }  # fmt: skip
    return ways[draw.choice([*ways, "job", "job"])]()


def read(draw: random.Random) -> Input:
    """Return a bad path or option of a command that reads results."""
    command = draw.choice(["report", "export", "validate", "status", "tune", "model"])
    more = {"tune": ("--out=t.json",)}.get(command, ())
    ways = {
        "path": lambda: _file(command, draw.choice(NO_FILES), *more),
        "option": lambda: _file(command, RESULTS, draw.choice(["--frob", "--\x1b[31m", "--" + "x" * bad_inputs.DEEP])),
        "none": lambda: _file(command),
        "plan": lambda: _file(command, ".", *more, plan_json=bad_json(draw, PLAN)),
        "format": lambda: _file("export", RESULTS, f"--format={draw.choice(('xml', '', 'x' * 10_000, ESCAPE))}"),
        "timing": lambda: _file("export", RESULTS, f"--timing={draw.choice(['min', '', 'x' * bad_inputs.DEEP])}"),
        "judge": lambda: _file("tune", RESULTS, "--judge=t.json", t_json=bad_json(draw, _table())),
        "judged": lambda: _file("tune", RESULTS, f"--judge={draw.choice(NO_FILES)}"),
        "both": lambda: _file("tune", RESULTS, *draw.choice([(), ("--out=a", "--judge=b")])),
        "report": lambda: _file("report", RESULTS, f"--out={draw.choice(['x' * 5000, '/proc/a', 'file/x', 'loop'])}"),
        "launch": lambda: _file("launch", "p.json", "mpi.p2", "--out=x.h5", p_json=bad_json(draw, PLAN)),
        "launched": lambda: _file("launch", draw.choice(NO_FILES), "mpi.p2", "--out=x.h5"),
        "job": lambda: _file("launch", "p.json", draw.choice(["nope", "../x", "x" * 5000]), "--out=x.h5",
                             p_json=json.dumps(PLAN)),
    }  # fmt: skip
    return ways[draw.choice([*ways])]()


def shown(draw: random.Random) -> Input:
    """Return a bad argument of ``show``, ``list``, ``evidence`` or ``doctor``."""
    params = ("channels=4", "=", "x=" + "9" * 5000)
    outs = ("x.exe", "x", "x" * 5000 + ".svg", "/proc/a/b.svg", "file/x.svg", "loop/x.png")
    ways = {
        "workers": lambda: _file("show", "ring", "-p", draw.choice([*bad_inputs.NUMBERS, "0", "129"])),
        "number": lambda: _file(
            "show", "ring", "-p", "4", draw.choice(["--racks", "--aggregators", "--unit", "-r"]),
            draw.choice([*bad_inputs.NUMBERS, "99999999"]),
        ),
        "word": lambda: _file("show", draw.choice(["rign", "native", "", "\x1b", "x" * bad_inputs.DEEP]), "-p", "4"),
        "parameter": lambda: _file("show", "ring", "-p", "4", "--param", draw.choice(params)),
        "out": lambda: _file("show", "ring", "-p", "4", "--out", draw.choice(outs)),
        "list": lambda: _file(draw.choice(["list", "doctor"]), draw.choice(["--frob", "x", "--jsno", "\x1b"])),
        "log": lambda: _file("evidence", draw.choice([*NO_FILES, "a.log"]), a_log=draw.randbytes(9999)),
        "expected": lambda: _file("evidence", "a.log", "--network=ib", a_log="x"),
        "command": lambda: _file(draw.choice(["sweeep", "", "--frob", "\x1b[31m", "x" * bad_inputs.DEEP, "\udcff"])),
    }  # fmt: skip
    return ways[draw.choice([*ways])]()


FAMILIES: tuple[Callable[[random.Random], Input], ...] = (planned, planned, run, read, shown)


def inputs(seed: int, families: tuple[Callable[[random.Random], Input], ...] = FAMILIES) -> Iterator[Input]:
    """Yield bad inputs without end; a seed always gives the same ones."""
    draw = random.Random(seed)  # noqa: S311  no secret
    while True:
        yield draw.choice(families)(draw)


def fault(code: int, out: str, err: str) -> str | None:
    """Return the defect in the response of a command to a bad input, None if there is none."""
    lines = err.splitlines()
    if code != 2:
        return f"it ended with {code}"
    if "Traceback" in err or not lines or any(not line.startswith("hpccoll: ") for line in lines):
        return "it said more than a line for each mistake"
    if bad := [line for line in lines if not line.isprintable()]:
        return f"it printed control characters: {bad[0]!r}"
    if too_long := [line for line in lines if len(line) > MAX_LINE_CHARACTERS]:
        return f"it printed a line of {len(too_long[0])} characters"
    return "it printed something else, too" if out else None


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@dataclass(frozen=True)
class Cost:
    """The resources that a process used."""

    cpu_s: float
    mib: float


RUN = """
import os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
child = os.fork()
if not child:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, used = os.wait4(child, 0)
os.write(int(sys.argv[1]), f"{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}".encode())
code = os.waitstatus_to_exitcode(status)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""Runs a program and writes its CPU seconds and MiB to a descriptor.

The peak memory of a process counts that of the process that it was forked from: a small one stands between.
"""


def run_limited(bad_input: Input) -> tuple[str | None, Cost, str]:
    """Run an input as a process with limits; return its defect, its cost and its output."""
    with tempfile.TemporaryDirectory(prefix="f") as home:
        directory = Path(home)
        bad_input.write_files(directory)
        before = names(directory)
        program = str(Path(__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": program, "OPENBLAS_NUM_THREADS": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as used:
            runner = [sys.executable, "-I", "-S", "-c", RUN, str(used.fileno())]
            child = subprocess.Popen(
                [*runner, sys.executable, "-m", "hpccoll", *bad_input.arguments], cwd=directory, env=environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0, pass_fds=[used.fileno()],
            )  # fmt: skip
            try:
                code, late = child.wait(TIMEOUT_S), False
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                code, late = child.wait(), True
            out.seek(0), err.seek(0), used.seek(0)
            output = [file.read().decode(errors="replace") for file in (out, err)]
            cost = Cost(*map(float, used.read().split() or (0, 0)))
        defect = fault(code, *output)
        if late:
            defect = f"it did not end in {TIMEOUT_S} s"
        elif cost.cpu_s > MAX_CPU_S or cost.mib > MAX_MIB:
            defect = f"it took {cost.cpu_s:.1f} s and {cost.mib:.0f} MiB"
        elif left := names(directory) - before:
            defect = f"it left {sorted(left)[:5]}"
        return defect, cost, output[1] or output[0]


def trials(seed: int, number: int, _directory: Path, only: str | None = None) -> Iterator[tuple[str, str, bool]]:
    """Yield bad inputs, the defect in the response to each, and whether there is one."""
    families = tuple(family for family in FAMILIES if only in (None, family.__name__))
    for bad_input in islice(inputs(seed, families), number):
        defect, cost, output = run_limited(bad_input)
        files = {name: content[:300] for name, content in bad_input.files.items()}
        what = f"{[word[:80] for word in bad_input.arguments]} {files}"
        yield what, f"{defect} ({cost})\n  {output[-1500:]!r}" if defect else "refused as they should be", bool(defect)
