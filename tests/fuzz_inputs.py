"""Bad inputs to every command, made from good ones by chance: each ends with 2 and a line for each mistake.

    python tests/fuzz_inputs.py --seed 1 --inputs 300

runs so many as processes of their own, and says what the dearest took; tests/test_fuzz_inputs.py runs a few.
"""

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

import yaml

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from planned import last_of_each_key
from tuned import table

from hpccoll.case import Case, Job
from hpccoll.sweep.config import EffortSection, Sweep
from hpccoll.sweep.locate import site_files, workflows
from hpccoll.sweep.site import Site

GOLDEN = Path(__file__).parents[1] / "results" / "golden" / "raw-1.0.h5"
MOST_CPU_S, MOST_MIB = 5.0, 500
LONG_S = 120
"""What takes CPU seconds may take as long: processors may be busy."""

DEEP = 10_000
EVIL = (
    "-1", "9" * 5000, '"\\0"', '"\\e[31mred"', '"\\u202e"', '"a\\nb"', "x" * 10_000, "[" * DEEP, "{a: " * DEEP, "[[[1]]]",
    "&a [*a]", "*nowhere", "!!python/object/apply:os.system [ls]", "!!int x", "- 1\n- 2:", "\tx", "@", "%", "'",
)  # fmt: skip
"""What is bad as the value of any key of a sweep or site file."""
NO_NUMBERS = (
    "true", "yes", "no", "[on]", "1.5e", "inf", "nan", ".inf", "1e308", "1e999", "0x10", "1:30", "two", "''", "[]",
    str(1 << 63), str(10**18), "99999999", "1000000000000", "'1 2'",
)  # fmt: skip
NO_WORDS = ("true", "no", "rign", "1", "ring native", "['']", "Ring", "rіng")
"""The last one has a letter that only looks like an i."""
EVIL_JSON = (
    "-1", "[[]]", '"\\u0000"', '"\\u001b[31mred"', f'"{"x" * 10_000}"', "1" + "0" * 30, "9" * 5000, "1e308", "1e999", "NaN",
    '{"a": {"b": 1}}', "[" * DEEP, '{"a":' * DEEP, "-Infinity", '"\\ud800"', "'x'",
)  # fmt: skip
NO_FILES = (
    "zero", "fifo", "directory", "socket", "nowhere", "loop", "x" * 5000, "x" * 256, "bytes", "loop/x", "file/x", "",
)  # fmt: skip
"""Names, below the place of an input, of what is no file, or nothing that any command reads."""
WHOLE = (
    "", "- 1", "7", "null", "a: [1", "\0", "a\0: 1", "\x1b[2J: 1", "[" * DEEP, "{a: " * DEEP, "? [a]\n: 1", "a: 1\n---\nb: 2",
    "&a {b: *a}", "{" * DEEP, "<<: 7", "%YAML 9.9\n---\na: 1", "#" * (1 << 18), "a: " + "1, " * (1 << 17),
    "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 20)),
)  # fmt: skip
"""Whole files that are no sweep, site, job, plan or table."""
LEAST = "algorithms: [ring]\nbytes: [8]\nranks: [2]\n"
NUMBERS = (
    "9" * 5000,
    "1e14",
    "-1",
    "1.5",
    "",
    "x",
    "0x8",
    str(1 << 64),
    "99999999999",
    "inf",
    "nan",
    "1e20",
    "٣",
    "1_0",
)
"""What is no number of any option."""


@dataclass(frozen=True)
class Input:
    """A command line, in a directory with some files."""

    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)

    def lay(self, place: Path) -> None:
        """Write the files, and beside them what is no file."""
        for name, content in self.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        (place / "zero").symlink_to("/dev/zero")
        (place / "loop").symlink_to("loop")
        (place / "directory").mkdir()
        (place / "file").write_bytes(b"")
        (place / "bytes").write_bytes(bytes(range(256)) * 300)
        os.mkfifo(place / "fifo")
        with socket.socket(socket.AF_UNIX) as server:
            before = Path.cwd()
            os.chdir(place)  # the name of a socket is short
            server.bind("socket")
            os.chdir(before)


def _file(*words: str, **files: str | bytes) -> Input:
    """Return an input; of a file ``a_yaml`` the name is a.yaml."""
    named = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    return Input(words, {name: text if isinstance(text, bytes) else text.encode() for name, text in named.items()})


def _yaml(keys: dict[str, object], **raw: str) -> str:
    """Return keys with their values as YAML, and some with a text as it stands."""
    return "".join(f"{key}: {raw.get(key) or json.dumps(value)}\n" for key, value in {**keys, **raw}.items())


@cache
def _shipped(paths: tuple[Path, ...]) -> list[dict[str, object]]:
    return [yaml.safe_load(path.read_text()) for path in paths]


def bad_sweep(draw: random.Random) -> str | bytes:
    """Return a sweep file with a mistake."""
    good = draw.choice(_shipped(tuple(sorted((workflows() / "config").glob("*.yaml")))))
    key = draw.choice([*Sweep.model_fields])
    values = EVIL
    if key in ("seed", "rounds", "aggregators", "ranks", "roots"):
        values = (*EVIL, *NO_NUMBERS)
        good = {name: value for name, value in good.items() if key != "ranks" or "node" not in name}
    elif key in ("collectives", "algorithms", "devices", "transports", "dtypes", "ops", "mapping"):
        values = (*EVIL, *NO_WORDS)
    way = draw.randrange(8)
    if way == 0:
        return draw.choice(WHOLE)
    if way == 1:
        return _yaml(good) + draw.choice(
            ["frob: 1\n", f"{next(iter(good))}: 1\n", "'bytes': 8\n", "effort: {second: 1}\n"]
        )
    if way == 2:
        effort = draw.choice([*EffortSection.model_fields])
        return _yaml(good, effort=f"{{{effort}: {draw.choice([*EVIL[:-8], *NO_NUMBERS])}}}")
    if way == 3:
        bad = ("{'\\0': {A: 1}}", '{a: {"B\\0": 1}}', '{a: {B: "\\0"}}', "{a: {B=C: 1}}", f"{{{'v' * 260}: {{A: 1}}}}",
               "{../a: {A: 1}}", "{a: {B: [1]}}", "{nccl-rign: }", "{a: {communicator: {max_ctas: 99999999999999999999}}}",
               '{"a\\e": {A: 1}}', "{а: {A: 1}}", f"{{a: {{{'V' * 300}: 1}}}}", f"{{a: {{B: {'x' * 5000}}}}}")  # fmt: skip
        return _yaml(good, variants=draw.choice(bad))
    if way == 4:
        params = ("{ring: {channels: 0}}", "{ring: {channels: 1000000}}", "{ring: {segment: 99T}}", "{rign: {channels: 1}}",
                  "{ring: {channels: [true]}}", "{ring: {window: [[1]]}}", f"{{ring: {{channels: {'9' * 5000}}}}}")  # fmt: skip
        return LEAST + f"params: {draw.choice(params)}\n"
    if way == 5:
        sizes = ("{from: 0, to: 8}", "{from: 8, to: 4}", "{from: 8, to: 99999T}", "{from: 8, to: 1G, factor: 1}", "17T", "8Q",
                 "{from: 8, to: 8, factor: true}", f"[{', '.join(map(str, range(8, 20_000)))}]", "-8", "[]", "{from: yes}")  # fmt: skip
        return last_of_each_key(LEAST + f"bytes: {draw.choice(sizes)}\n")
    if way == 6:
        named = ("table: /dev/zero\nalgorithms: auto", "table: fifo\nalgorithms: auto", "table: bytes\nalgorithms: auto",
                 "collectives: all_to_all_v\nalgorithms: native\ntraffic: zero.csv",
                 "collectives: all_to_all_v\nalgorithms: native\ntraffic: /dev/zero",
                 f"table: {'x' * 5000}\nalgorithms: auto", 'table: "a\\0"\nalgorithms: auto',
                 "collectives: send_recv\nalgorithms: all\npairs: all\nranks: 4096", "ranks: [1000000]",
                 f"ranks: [{', '.join(map(str, range(1, 1500)))}]", "nodes: 262144\nranks: 2",
                 "collectives: all\nalgorithms: all\nbytes: {from: 1, to: 8T}\nranks: 4096\nmapping: [block, cyclic]")  # fmt: skip
        return last_of_each_key(LEAST + draw.choice(named) + "\n")
    return _yaml(good, **{key: draw.choice(values)})


def bad_site(draw: random.Random) -> str | bytes:
    """Return a site file with a mistake."""
    good = draw.choice(_shipped(tuple(site_files())))
    numbers = ("minutes", "memory_mb", "cpus_per_task", "signal_s", "start_s")
    key = draw.choice([*Site.model_fields])
    values = (*EVIL, *NO_NUMBERS) if key in numbers else EVIL
    way = draw.randrange(5)
    if way == 0:
        return draw.choice(WHOLE)
    if way == 1:
        bad = ("frob: 1\n", "gpus_per_node: 99999\n", "gpus_per_node: h100:0\n", "launcher: 'srun {}'\n",
               "launcher: 'srun {0.__class__}'\n", "sbatch: --array=1\n", "sbatch: ['-x']\n", "network: ib\n",
               'environment: {A: "\\0"}\n', "environment: {A=B: 1}\n", "container: {runtime: docker}\n",
               "container: {runtime: pyxis, image: 1, mounts: 7}\n", "aggregators: {feature: x}\n")  # fmt: skip
        return last_of_each_key(_yaml(good) + draw.choice(bad))
    return _yaml(good, **{key: draw.choice(values)})


def bad_json(draw: random.Random, good: object) -> str:
    """Return JSON of which one value is none that a program of ours would write."""
    if draw.randrange(4) == 0:
        return draw.choice([*WHOLE, "{}", "[]", "7", '"x"', "null", json.dumps(good)[:-9]])
    mark = "a value that is to be replaced"
    text = json.loads(json.dumps(good))
    inside = text
    while True:
        key = draw.choice([*inside] if isinstance(inside, dict) else range(len(inside)))
        deeper = inside[key]
        if not (isinstance(deeper, dict | list) and deeper and draw.randrange(6)):
            inside[key] = mark
            return json.dumps(text).replace(json.dumps(mark), draw.choice(EVIL_JSON))
        inside = deeper


JOB = Job(
    name="mpi.p2", ranks=2, environment={"A": "b"}, communicator={"max_ctas": 4}, variant="a",
    cases=(Case(collective="all_reduce", algorithm="ring", bytes=8, params={"channels": 2}),),
)  # fmt: skip
PLAN = {
    "name": "a", "profile": "local", "jobs": [json.loads(JOB.to_json())], "estimated_s": 1.0, "on_paper": False,
    "skips": [{"case": "a", "job": "mpi.p2", "reason": "b"}], "notes": ["a"],
    "resources": {"mpi.p2": {"nodes": 1}},
    "launcher": {
        "command": "mpiexec -n {ranks}", "program": "hpccoll", "setup": ["a"], "slurm": False, "patience_s": 60.0,
        "slurm_conf": None, "aggregator": None, "within": "", "network": None,
    },
}  # fmt: skip


@cache
def _table() -> dict[str, object]:
    """Return a table, less what is for people and no command looks at."""
    made = table({"ring": {8: 1e-6, 1024: 3e-6}}).to_json()
    of_a_run = {"run_id", "machine", "mpi"}
    return {**made, "runs": [{name: run[name] for name in of_a_run & run.keys()} for run in made["runs"]]}


def planned(draw: random.Random) -> Input:
    """Return a bad sweep, site or option of ``plan`` or ``sweep``."""
    command = draw.choice(["plan", "plan", "sweep"])
    ways = {
        "sweep file": lambda: _file(command, "a.yaml", a_yaml=bad_sweep(draw)),
        "site": lambda: _file("plan", "a.yaml", "--site=b.yaml", a_yaml=LEAST, b_yaml=bad_site(draw)),
        "file": lambda: _file(command, draw.choice(NO_FILES)),
        "site file": lambda: _file("plan", "a.yaml", f"--site={draw.choice(NO_FILES)}", a_yaml=LEAST),
        "table": lambda: _file(
            "plan", "a.yaml", a_yaml=last_of_each_key(LEAST + "algorithms: auto\ntable: t.json"),
            t_json=bad_json(draw, _table()),
        ),
        "option": lambda: _file(command, "a.yaml", draw.choice(_OPTIONS), a_yaml=LEAST),
        "bytes": lambda: _file(command, "a.yaml", a_yaml=draw.randbytes(200) + b"\xff"),
    }  # fmt: skip
    return ways[draw.choice(["sweep file"] * 6 + ["site"] * 3 + [*ways])]()


_OPTIONS = (
    "--profile=locla", "--profile=", "--site=nowhere", "--site=\x1b[31m", "--siet=hgx", "--out=/proc/nowhere/x",
    "--out=" + "x" * 5000, "--out=file/x", "--out=loop", "--json=1", "--out=a/\udcff", "b.yaml", "--profile=" + "x" * 10_000,
)  # fmt: skip


def run(draw: random.Random) -> Input:
    """Return a bad option or job of ``run``."""
    numbers = ("-b", "-e", "-f", "-n", "-w", "--seconds", "--timeout", "--rounds", "--seed", "--aggregators")
    number = tuple(n for n in NUMBERS if n not in ("1.5", "1e14", "1e20"))
    words = ("-c", "-t", "-d", "-o", "--device", "--variant", "--mapping", "--network", "--shape", "-a")
    params = (
        "channels=0",
        "channels=99999999",
        "segment=99T",
        "chanels=1",
        "=",
        "channels=" + "9" * 5000,
        "channels=1.5",
    )
    ways = {
        "number": lambda: _file("run", draw.choice(numbers), draw.choice(number)),
        "iterations": lambda: _file("run", draw.choice(["-n", "-w"]), draw.choice(NUMBERS)),
        "word": lambda: _file("run", draw.choice(words), draw.choice(["rign", "\x1b[31m", "x" * 10_000, "-", "9", "а"])),
        "parameter": lambda: _file("run", "-a", "ring", "--param", draw.choice(params)),
        "option": lambda: _file("run", draw.choice(["--frob", "--iteratons=3", "x", "-z", "--out", "--job", "-\x07"])),
        "job": lambda: _file("run", "--job", "j.json", j_json=bad_json(draw, json.loads(JOB.to_json()))),
        "file": lambda: _file("run", draw.choice(["--job", "--table", "--evidence"]), draw.choice(NO_FILES)),
        "out": lambda: _file("run", "-n", "1", "-e", "8", "--out", draw.choice(["x" * 5000, "x" * 250, "/proc/a/b", "loop/x"])),
    }  # fmt: skip
    return ways[draw.choice([*ways, "job", "job"])]()


def read(draw: random.Random) -> Input:
    """Return a bad path or option of a command that reads results."""
    golden = str(GOLDEN)
    command = draw.choice(["report", "export", "validate", "status", "tune", "model"])
    more = {"tune": ("--out=t.json",)}.get(command, ())
    ways = {
        "path": lambda: _file(command, draw.choice(NO_FILES), *more),
        "option": lambda: _file(command, golden, draw.choice(["--frob", "--\x1b[31m", "--" + "x" * 10_000])),
        "none": lambda: _file(command),
        "plan": lambda: _file(command, ".", *more, plan_json=bad_json(draw, PLAN)),
        "format": lambda: _file("export", golden, f"--format={draw.choice(['xml', '', 'x' * 10_000, '\x1b'])}"),
        "timing": lambda: _file("export", golden, f"--timing={draw.choice(['min', '', 'x' * 10_000])}"),
        "judge": lambda: _file("tune", golden, "--judge=t.json", t_json=bad_json(draw, _table())),
        "judged": lambda: _file("tune", golden, f"--judge={draw.choice(NO_FILES)}"),
        "both": lambda: _file("tune", golden, *draw.choice([(), ("--out=a", "--judge=b")])),
        "report": lambda: _file("report", golden, f"--out={draw.choice(['x' * 5000, '/proc/a', 'file/x', 'loop'])}"),
        "launch": lambda: _file("launch", "p.json", "mpi.p2", "--out=x.h5", p_json=bad_json(draw, PLAN)),
        "launched": lambda: _file("launch", draw.choice(NO_FILES), "mpi.p2", "--out=x.h5"),
        "job": lambda: _file("launch", "p.json", draw.choice(["nope", "../x", "x" * 5000]), "--out=x.h5",
                             p_json=json.dumps(PLAN)),
    }  # fmt: skip
    return ways[draw.choice([*ways])]()


def shown(draw: random.Random) -> Input:
    """Return a bad argument of ``show``, ``list``, ``evidence`` or ``doctor``."""
    outs = ("x.exe", "x", "x" * 5000 + ".svg", "/proc/a/b.svg", "file/x.svg", "loop/x.png")
    ways = {
        "workers": lambda: _file("show", "ring", "-p", draw.choice([*NUMBERS, "0", "129"])),
        "number": lambda: _file(
            "show", "ring", "-p", "4", f"{draw.choice(['--ranks-per-node', '--racks', '--aggregators', '--unit', '-r'])}",
            draw.choice([*NUMBERS, "99999999"]),
        ),
        "word": lambda: _file("show", draw.choice(["rign", "native", "", "\x1b", "x" * 10_000]), "-p", "4"),
        "parameter": lambda: _file("show", "ring", "-p", "4", "--param", draw.choice(["channels=4", "=", "x=" + "9" * 5000])),
        "out": lambda: _file("show", "ring", "-p", "4", "--out", draw.choice(outs)),
        "list": lambda: _file(draw.choice(["list", "doctor"]), draw.choice(["--frob", "x", "--jsno", "\x1b"])),
        "log": lambda: _file("evidence", draw.choice([*NO_FILES, "a.log"]), a_log=draw.randbytes(9999)),
        "expected": lambda: _file("evidence", "a.log", "--network=ib", a_log="x"),
        "command": lambda: _file(draw.choice(["sweeep", "", "--frob", "\x1b[31m", "x" * 10_000, "\udcff"])),
    }  # fmt: skip
    return ways[draw.choice([*ways])]()


FAMILIES: tuple[Callable[[random.Random], Input], ...] = (planned, planned, run, read, shown)


def inputs(seed: int, families: tuple[Callable[[random.Random], Input], ...] = FAMILIES) -> Iterator[Input]:
    """Yield bad inputs without end, the same ones for a seed."""
    draw = random.Random(seed)  # noqa: S311  no secret
    while True:
        yield draw.choice(families)(draw)


def fault(code: int, out: str, err: str) -> str | None:
    """Return what is wrong with how a command took a bad input, None if nothing is."""
    lines = err.splitlines()
    if code != 2:
        return f"it ended with {code}"
    if "Traceback" in err or not lines or any(not line.startswith("hpccoll: ") for line in lines):
        return "it said more than a line for each mistake"
    if bad := [line for line in lines if not line.isprintable()]:
        return f"it printed control characters: {bad[0]!r}"
    if too_long := [line for line in lines if len(line) > 6000]:
        return f"it printed a line of {len(too_long[0])} characters"
    return "it printed something else, too" if out else None


def names(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    cpu_s: float
    mib: float


def tried(one: Input) -> tuple[str | None, Cost, str]:
    """Run an input as a process; return what is wrong, what it took, and what it said."""
    with tempfile.TemporaryDirectory(prefix="f") as home:
        place = Path(home)
        one.lay(place)
        before = names(place)
        program = str(Path(__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": program, "OPENBLAS_NUM_THREADS": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(
                [sys.executable, "-m", "hpccoll", *one.words], cwd=place, env=environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, process_group=0,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),  # noqa: PLW1509  it only calls
            )  # fmt: skip
            until = time.monotonic() + LONG_S
            while not (ended := os.wait4(child.pid, os.WNOHANG))[0]:
                if time.monotonic() > until:
                    os.killpg(child.pid, signal.SIGKILL)
                    ended = os.wait4(child.pid, 0)
                    break
                time.sleep(0.01)
            child.returncode = code = os.waitstatus_to_exitcode(ended[1])
            out.seek(0), err.seek(0)
            said = [file.read().decode(errors="replace") for file in (out, err)]
        usage = ended[2]
        cost = Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        wrong = fault(code, *said)
        if time.monotonic() > until:
            wrong = f"it did not end in {LONG_S} s"
        elif cost.cpu_s > MOST_CPU_S or cost.mib > MOST_MIB:
            wrong = f"it took {cost.cpu_s:.1f} s and {cost.mib:.0f} MiB"
        elif left := names(place) - before:
            wrong = f"it left {sorted(left)[:5]}"
        return wrong, cost, said[1] or said[0]


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--inputs", type=int, default=300)
    parse.add_argument("--only", choices=[family.__name__ for family in FAMILIES], help="inputs of one kind")
    asked = parse.parse_args()
    families = tuple(family for family in FAMILIES if asked.only in (None, family.__name__))
    costs, wrongs, commands = [], 0, Counter()
    for number, one in enumerate(islice(inputs(asked.seed, families), asked.inputs)):
        wrong, cost, said = tried(one)
        costs.append(cost)
        commands[one.words[0] if len(one.words[0]) < 9 else "..."] += 1
        if wrong:
            wrongs += 1
            files = {name: content[:300] for name, content in one.files.items()}
            words = [word[:80] for word in one.words]
            print(f"{number}: {words} {files}\n  {wrong} ({cost})\n  {said[-1500:]!r}", flush=True)
    dearest, largest = max(cost.cpu_s for cost in costs), max(cost.mib for cost in costs)
    print(
        f"seed {asked.seed}: {len(costs) - wrongs} of {len(costs)} refused as they should be, by command {dict(commands)}"
    )
    print(f"the dearest took {dearest:.2f} CPU seconds, the largest {largest:.0f} MiB")
    return int(wrongs > 0)


if __name__ == "__main__":
    sys.exit(main())
