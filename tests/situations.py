"""Situations that a command cannot choose: streams, disks, directories, limits, variables and locales.

A table of situations and a table of commands. By hand, ``python tests/situations.py`` tries every
command in every situation that concerns it; the suite takes a sample. In each, a command does what
it usually does, or says in one line what is in its way.
"""

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import raw_examples
from cli_runner import ENVIRONMENT

from hpccoll.cases.case import Effort
from hpccoll.common.terminal import printable
from hpccoll.store import hdf5

LIMIT_S = 300
"""A command that takes longer hangs."""
READ_ALL = "=-all,+dac_read_search"
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups " + " ".join(
    f"--{kind}{READ_ALL}" for kind in ("inh-caps", "ambient-caps", "bounding-set")
)
"""Another user, who may read all files, because Python may be in the home directory of root, and not write them."""
POWERLESS = "setpriv --inh-caps=-all --bounding-set=-all"
"""root without the right to read what permissions forbid."""
SWEEP = "algorithms: [ring]\nbytes: [8]\nranks: [2]\nrounds: 1\neffort: {min_iterations: 2, max_iterations: 2}\n"

COMMANDS = {
    "list": "list",
    "show-svg": "show ring -p 4 --out out/ring.svg",
    "show-png": "show ring -p 4 --out out/ring.png",
    "status": "status results",
    "report": "report results --out out/report",
    "export": "export results --format csv",
    "compare": "compare results other --out out/compared.html",
    "accept": "accept nccl.txt --cluster 8xh100-400g --out out/accepted.html",
    "tune": "tune results --out out/table.json",
    "predict-raw": "predict --cluster 8xh100-400g --nodes 2 -b 1M --out out/predicted.h5",
    "import": "import nccl.txt --out out/imported.h5",
    "evidence": "evidence nccl.log",
    "plan": "plan sweep.yaml",
    "plan-files": "plan sweep.yaml --out out/planned",
    "run": "run -a native -b 8 -e 8 --rounds 1 -n 5",
    "run-raw": "run -a native -b 8 -e 8 --rounds 1 -n 5 --out out/run.h5",
    "run-check": "run --check",
    "train-dry": "train --model resnet50 --dry-run",
    "doctor": "doctor",
    "named": "report résultats --out out/ré",
    "sweep": "sweep sweep.yaml --out out/sweep",
}
WRITERS = tuple(
    name for name, words in COMMANDS.items() if "out/" in words and not name.startswith("sweep")
)
PLAIN = tuple(name for name in COMMANDS if name not in ("doctor", "sweep"))
FEW = ("list", "show-svg", "report", "export", "predict-raw", "import", "plan-files", "run-raw")
FEW_MORE = (*FEW, "show-png", "compare", "tune", "evidence", "status", "named")


@dataclass(frozen=True)
class Situation:
    """What surrounds a command."""

    shell: str  # a script for bash; ``$HPCCOLL`` stands for the command and its arguments
    # the exit codes that are right; none stand for the usual one
    codes: tuple[int | None, ...] = (None,)
    commands: tuple[str, ...] = FEW  # the names of the commands that it concerns
    word: str = ""  # what a line that refuses names
    unread: bool = False  # whether stdout is a pipe that nobody reads
    says: bool = True  # whether a line on stderr can be read
    root: bool = False  # whether only root can bring it about


def _variables(
    *words: str, commands: tuple[str, ...] = FEW, **more: object
) -> dict[str, Situation]:
    return {word: Situation(f"env {word} $HPCCOLL", commands=commands, **more) for word in words}


def _small_disk(free: str) -> Situation:
    script = (
        f"mount -t tmpfs -o size=8m none out && cp -a kept/. out/ && head -c {free} /dev/zero > out/free; "
        "cat /dev/zero > out/fill 2> /dev/null; "
        "rm -f out/free; $HPCCOLL; code=$?; mkdir -p after; cp -a out/. after/ 2> /dev/null; "
        "rm -f after/fill; exit $code"
    )
    return Situation(
        f"unshare -m bash -c {shlex.quote(script)}", (None, 1), WRITERS, "No space left", root=True
    )


SITUATIONS = {
    "stdout closed": Situation("$HPCCOLL >&-", (1,), PLAIN, "stdout"),
    "stdout full": Situation("$HPCCOLL > /dev/full", (1,), PLAIN, "stdout"),
    "stdout unread": Situation("$HPCCOLL", (1,), PLAIN, unread=True),
    "stdout read once": Situation(
        "$HPCCOLL | head -1 > /dev/null; exit ${PIPESTATUS[0]}", (None, 1), PLAIN, says=False
    ),
    "stdout a file at its limit": Situation("ulimit -f 0; $HPCCOLL > limited", (1,), FEW, "ulimit -f"),
    "stderr closed": Situation("$HPCCOLL 2>&-", commands=(*PLAIN,), says=False),
    "stderr full": Situation("$HPCCOLL 2> /dev/full", commands=(*PLAIN,), says=False),
    "both full": Situation("$HPCCOLL > /dev/full 2>&1", (1,), FEW, says=False),
    "disk of 4k": _small_disk("4k"),
    "files of 0": Situation("ulimit -f 0; $HPCCOLL", (None, 1), WRITERS, "ulimit -f"),
    "files of 2 KiB": Situation("ulimit -f 2; $HPCCOLL", (None, 1), WRITERS, "ulimit -f"),
    "directory deleted": Situation(
        "mkdir gone; cd gone; rmdir ../gone; $HPCCOLL", (None, 2), (*FEW_MORE, "plan", "run")
    ),
    "PATH empty": Situation("PATH= $HPCCOLL", (None, 2), (*FEW_MORE, "doctor", "run", "train-dry", "sweep")),
    "foreign page": Situation(
        "mkdir -p out/report; echo foreign > out/report/index.html; $HPCCOLL", (2,), ("report",), "index.html"
    ),
    "output a loop": Situation("rm -rf out; ln -s out out; $HPCCOLL", (2,), WRITERS, "out"),
    "output read-only": Situation(
        f"chmod -R a+rX .; {NOBODY} $HPCCOLL", (None, 2), WRITERS, "ermission denied", root=True
    ),
    "input unreadable": Situation(
        f"chmod -R a+rX .; chmod 0 results/raw/*.h5 nccl.* sweep.yaml; {POWERLESS} $HPCCOLL", (2, 3),
        ("status", "export", "import", "evidence", "plan"), "ermission denied", root=True,
    ),
    "HOME missing": Situation("HOME=/nonexistent $HPCCOLL", commands=FEW_MORE),
    "no temporary directory": Situation(
        f"chmod -R a+rX .; chmod a+rwX out; cd /; {NOBODY} true; TMPDIR=/proc $HPCCOLL", (None, 2),
        ("list", "run-check"), root=True,
    ),
    **{
        f"memory of {kib} KiB": Situation(f"ulimit -v {kib}; $HPCCOLL", (None, 1), (*PLAIN, "doctor"), "ulimit -v")
        for kib in (200000, 400000, 600000)
    },
    **{
        f"{n} open files": Situation(f"ulimit -n {n}; $HPCCOLL", (None, 1), (*FEW_MORE, "run-check"), "ulimit -n")
        for n in (6, 12)
    },
    **{
        f"{n} processes": Situation(
            f"chmod -R a+rwX .; ulimit -u {n}; {NOBODY} env HOME=/nonexistent $HPCCOLL", (None, 1),
            (*FEW_MORE, "run-check"), "ulimit -u", root=True,
        )
        for n in (3,)
    },
    **_variables(
        "MPI4PY_RC_THREAD_LEVEL=x", "HPCCOLL_START_S=-1", "PMI_RANK=x", "SLURM_PROCID=x",
        commands=("run", "run-check", "list", "train-dry"), codes=(None, 2),
    ),
    **_variables(
        "COLUMNS=-5", "PYTHONWARNINGS=error", "XDG_CACHE_HOME=/proc/x", "PYTHONIOENCODING=ascii",
        "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0",
        commands=FEW_MORE,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: a signal), its streams, and the earlier files that it spoilt."""

    code: int
    out: str = ""
    err: str = ""
    spoilt: tuple[str, ...] = ()


@cache
def prepared(name: str) -> tuple[Path, Ended]:
    """Return a directory with the inputs of a command and its output, and how the command usually ends in it."""
    directory, inputs = (
        Path(tempfile.mkdtemp(prefix=f"hpccoll-{name}-")),
        Path(__file__).with_name("inputs"),
    )
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copy(inputs / "nccl-plain-for-comparison.txt", directory / "nccl.txt")
    shutil.copy(inputs / "nccl-plain-for-comparison.log", directory / "nccl.log")
    (directory / "sweep.yaml").write_text(SWEEP)
    sizes = [raw_examples.case(size) for size in (64, 1024)]
    rounds = [raw_examples.round_outcome(number, case) for case in sizes for number in (1, 2, 3)]
    for run in ("results", "other", "résultats"):
        (directory / run / "raw").mkdir(parents=True)
        written = raw_examples.raw(*rounds)
        written.job = raw_examples.job(*sizes, effort=Effort(rounds=3))
        hdf5.write_raw_file(written, directory / run / "raw" / "mpi.p2.h5")
    (directory / "out").mkdir()
    usual = _start(directory, name, Situation("$HPCCOLL"))
    shutil.copytree(directory / "out", directory / "kept", symlinks=True)
    return directory, usual


def end(situation: str, name: str) -> Ended:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "here")
        shutil.copytree(prepared(name)[0], directory, symlinks=True)
        ended = _start(directory, name, SITUATIONS[situation])
        subprocess.run(["chmod", "-R", "u+rwX", place], check=True)
        found = directory / ("after" if (directory / "after").exists() else "out")
        spoilt = [
            path
            for path in (directory / "kept").rglob("*")
            if _is_spoilt(path, found / path.relative_to(directory / "kept"))
        ]
    untouched = situation.startswith("output ") or not spoilt
    return replace(ended, spoilt=() if untouched else tuple(map(str, spoilt)))


def _is_spoilt(earlier: Path, now: Path) -> bool:
    """Return whether a file is lost or was half written."""
    if not earlier.is_file() or earlier.name.startswith("."):
        return False
    if not now.is_file() or not now.stat().st_size:
        return True
    if now.suffix == ".h5":
        hdf5.read_raw_file(now)
    return now.suffix != ".h5" and now.stat().st_size < earlier.stat().st_size / 2


def _start(directory: Path, name: str, situation: Situation) -> Ended:
    command = shlex.join([sys.executable, "-m", "hpccoll"]) + f" {COMMANDS[name]}"
    script = situation.shell.replace("$HPCCOLL", command)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=directory,
            env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=writing if situation.unread else subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(124, err="it hangs")
    finally:
        os.close(writing)
    return Ended(
        ended.returncode,
        (ended.stdout or b"").decode(errors="replace"),
        ended.stderr.decode(errors="replace"),
    )


def faults(situation: str, name: str) -> list[str]:
    """Return what is wrong with how a command ends in a situation."""
    expected, usual, ended = SITUATIONS[situation], prepared(name)[1], end(situation, name)
    lines = ended.err.splitlines()
    codes = [usual.code if code is None else code for code in expected.codes]
    found = [f"{part} was spoilt" for part in ended.spoilt]
    if ended.code not in codes:
        found.append(f"exit code {ended.code}, not {codes}")
    if "Traceback" in ended.err + ended.out:
        found.append("a traceback")
    if printable(ended.err + ended.out) != ended.err + ended.out:
        found.append("control characters")
    if (
        ended.code != usual.code
        and expected.says
        and not expected.unread
        and (len(lines) != 1 or not lines[0].startswith("hpccoll: "))
    ):
        found.append(f"{len(lines)} lines instead of one")
    if ended.code != usual.code and expected.says and expected.word not in ended.err:
        found.append(f"no word {expected.word}")
    return [*found, f"it says {ended.err[-600:]!r}"] if found else []


def pairs() -> Iterator[tuple[str, str]]:
    """Yield the situations, each with the commands that it concerns."""
    for situation, expected in SITUATIONS.items():
        if not expected.root or os.geteuid() == 0:
            yield from ((situation, name) for name in expected.commands)


if __name__ == "__main__":
    found = {pair: what for pair in pairs() if (what := faults(*pair))}
    print(*(f"{': '.join(pair)}: {'; '.join(what)}" for pair, what in found.items()), sep="\n")
    sys.exit(bool(found))
