"""All that takes a GPU, in one command, with a verdict: its tests, and what our own kernels and calls cost on it.

By hand, on a GPU that nobody else uses:

    python tests/benchmarks/gpu.py                  # the benchmarks, a minute or two; the tests, half an hour
    python tests/benchmarks/gpu.py dispatch fold    # some benchmarks
    python tests/benchmarks/gpu.py tests -k drill   # some of the tests
    PYTHONPATH=. python3 tests/benchmarks/gpu.py --wheels wheels    # not installed, no network: carried wheels

It ends with 1 where something is not reached or cannot be run, and with 2 where there is no GPU. What is printed, and a
raw file, are added to results/golden/gpu-NAME/.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import numpy as np
from bare import ROOT, environment, missing
from kernels import ROUNDS, Here, Verdict, check, dispatch, fold, timings

from hpccoll.host.cpu_and_memory import cpu_model
from hpccoll.host.gpu_facts import gpu_facts
from hpccoll.sweep.paths import mpiexec_command
from hpccoll.transports.gpu import Gpu

CASES: Sequence[str] = (
    *("--device", "cuda", "-t", "nccl,staged", "-a", "native,ring,recursive_doubling"),
    *("-b", "1K", "-e", "16M", "-f", "16", "--seconds", "0.3", "--rounds", "1"),
)
SHARED_SINCE = 23000
"""The version of NCCL that lets several ranks have one GPU; before, each has to say that it is a host of its own."""

KIND = "measured on a shared GPU"


def run(here: Here) -> Iterator[Verdict]:
    """The rank program, a probe and then a measurement: two ranks that share the GPU. None of it is a speed."""
    from cupy.cuda import nccl

    from hpccoll.store.load_results import read_results

    own = ["env", "NCCL_MULTI_RANK_GPU_ENABLE=1"]
    if nccl.get_version() < SHARED_SINCE:
        own = ["sh", "-c", 'NCCL_HOSTID=rank-${PMI_RANK:-${PMIX_RANK:-$OMPI_COMM_WORLD_RANK}} exec "$@"', "sh"]
    line = [*mpiexec_command(), "-n", "2", *own, sys.executable, "-m", "hpccoll", "run", *CASES]
    # What MPI has set in this process since it started is none of theirs.
    few = {**os.environ, "NCCL_MAX_CTAS": "2", "NCCL_SOCKET_IFNAME": "lo"}
    raw = here.out / f"shared-{datetime.now(UTC):%Y%m%d-%H%M%S}.h5"
    with tempfile.TemporaryDirectory() as logs:
        for more in (["--probe", logs], ["--evidence", logs, "--out", str(raw)]):
            subprocess.run([*line, *more], env=few, check=False, timeout=240)
    found = read_results([raw])
    right = sum(row.status == "ok" and row.kind == KIND for row in found.rows)
    what = f"cases of {raw.name} that are right and {KIND}"
    yield Verdict(what, right, f"{found.planned}", right == found.planned)


def tests(here: Here) -> Iterator[Verdict]:
    """Everything that pytest marks with gpu."""
    some = ["-k", here.keyword] if here.keyword else []
    with tempfile.TemporaryDirectory() as place:
        said = Path(place) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "--durations=0", f"--junitxml={said}", *some]
        subprocess.run([*command, str(ROOT / "tests" / "gpu")], cwd=ROOT, check=False)
        (suite,) = ET.parse(said).iter("testsuite")  # noqa: S314  our own
    count, *others = (int(suite.attrib[word]) for word in ("tests", "failures", "errors", "skipped"))
    passed = count - sum(others)
    yield Verdict(" ".join(["tests that pass, pytest -m gpu", *some]), passed, f"{count}", 0 < passed == count)


class Benchmark(NamedTuple):
    """What to measure, and what it takes, as ``missing`` has it."""

    takes: str
    measure: Callable[[Here], Iterator[Verdict]]


BENCHMARKS = {
    "fold": Benchmark("gpu", fold),
    "check": Benchmark("gpu", check),
    "dispatch": Benchmark("nccl", dispatch),
    "timings": Benchmark("nccl", timings),
    "run": Benchmark("ranks", run),
    "tests": Benchmark("ranks", tests),
}
"""The tests last: they take longest."""


def verdicts(name: str, here: Here) -> Iterator[Verdict]:
    """Yield what a benchmark comes to; one that fails misses what it asks for, and the others go on."""
    benchmark = BENCHMARKS[name]
    if reason := missing(benchmark.takes):
        yield Verdict(f"{name}: not run, {reason}", 0, "1", False)
        return
    try:
        yield from benchmark.measure(here)
    except Exception:  # noqa: BLE001  whatever it is
        traceback.print_exc()
        yield Verdict(f"{name} came to an end", 0, "1", False)


def main() -> int:
    parse = argparse.ArgumentParser(description="Run all that takes a GPU, and print a verdict.")
    parse.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help=f"{', '.join(BENCHMARKS)} [all of them]")
    parse.add_argument("-k", dest="keyword", help="of the tests those whose names have this, as pytest takes it")
    parse.add_argument("--out", type=Path, help="where to leave the page and the raw file [results/golden/gpu-NAME]")
    parse.add_argument("--wheels", type=Path, help="a directory of wheels to install first, apart, for this run alone")
    asked = parse.parse_args()
    names = asked.benchmarks or [*BENCHMARKS]
    if strange := [name for name in names if name not in BENCHMARKS]:
        parse.error(f"{strange[0]}: choose from {', '.join(BENCHMARKS)}")
    os.environ.update(environment(None))
    if asked.wheels:
        again = [word for word in sys.argv if word != str(asked.wheels) and not word.startswith("--wheels")]
        return subprocess.run([sys.executable, *again], env=environment(asked.wheels), check=False).returncode
    if reason := missing("gpu"):
        print(f"{reason}: nothing was run")
        return 2
    gpu = Gpu(0)
    name = str(gpu_facts(gpu.id)["name"] or properties(gpu))
    slug = "-".join(name.lower().split())
    here = Here(gpu, (asked.out or ROOT / "results" / "golden" / f"gpu-{slug}").resolve(), asked.keyword)
    here.out.mkdir(parents=True, exist_ok=True)
    page = here.out / "README.md"
    if not page.exists():
        say(page, f"# {name}\n\nFrom `python tests/benchmarks/gpu.py`: each section is one call of it.")
    say(page, f"\n## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {' '.join(names)}\n\n{conditions(gpu, name)}\n")
    say(page, "| what | got | asked | |\n| --- | --: | --- | --- |")
    all_reached = True
    for verdict in (verdict for name in names for verdict in verdicts(name, here)):
        said = "reached" if verdict.reached else "**missed**"
        say(page, f"| {verdict.what} | {verdict.got:.3g} | {verdict.asked} | {said} |")
        all_reached &= verdict.reached
    say(page, f"\n{'All reached' if all_reached else 'Not all reached'}.")
    return 0 if all_reached else 1


def say(page: Path, words: str) -> None:
    """Print words, and add them to the page."""
    print(words, flush=True)
    with page.open("a") as file:
        file.write(f"{words}\n")


def properties(gpu: Gpu) -> str:
    """Return the name of a GPU by CUDA."""
    import cupy

    name: bytes = cupy.cuda.runtime.getDeviceProperties(gpu.number)["name"]
    return name.decode()


def conditions(gpu: Gpu, name: str) -> str:
    """Return what figures depend on."""
    import cupy
    from cupy.cuda import nccl

    facts = {word: fact for word, fact in gpu_facts(gpu.id).items() if fact is not None and word != "name"}
    libraries = f"CUDA {cupy.cuda.runtime.driverGetVersion()} by its driver, CuPy {cupy.__version__}"
    told = f"NCCL {nccl.get_version()}" if nccl.available else "no NCCL"
    known = "; ".join(f"{word} {fact}" for word, fact in facts.items())
    return (
        f"{name}; {libraries}, {told}, NumPy {np.__version__}, Python {sys.version.split()[0]}; {os.cpu_count()} CPUs "
        f"of {cpu_model()}; {known}. One GPU, {ROUNDS} rounds. A copy moves 2 bytes for each byte copied, a fold 3 for "
        "each byte folded, a payload and a check 1 for each byte filled or read."
    )


if __name__ == "__main__":
    sys.exit(main())
