"""All that takes a GPU, in one call of a few minutes, with a verdict for each thing that was tried.

Run it by hand, on idle GPUs:

    python tests/benchmarks/gpu.py                                    # all parts, in 3 minutes on an H100
    python tests/benchmarks/gpu.py --only fold,nccl                   # some of them
    python tests/benchmarks/gpu.py --only tests --shard 1/4 --minutes 30    # a quarter of the tests, pytest -m gpu
    PYTHONPATH=. python3 tests/benchmarks/gpu.py --wheels wheels      # not installed, no network: carried wheels

Parts run one after the other, each in a process of its own, so that one that fails or hangs takes nothing along. Those
without ranks need NumPy, CuPy and msgspec alone; the others also an MPI, and are listed as not run without one. Each
verdict is printed and stored as soon as it is known: in results/golden/gpu-NAME, README.md has a section for each call,
and verdicts.jsonl a record for each verdict. A call ends at the first wrong result.

Exit codes: 0 all reached; 1 something was missed, or could not run, or had no time left; 2 no usable GPU: nothing was
run; 3 a wrong result.
"""

import argparse
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bare import ROOT, environment, missing
from here import TESTS, Here, last_words
from mps import mps_server
from verdicts import BEYOND, WRONG, Page, Verdict, not_run, recorded


class Part(NamedTuple):
    """A part of a call."""

    seconds: int  # about twice what it takes on an H100; it is not begun where less is left
    needs: str  # what it takes, as ``bare.missing`` has it; ``cuda`` is a GPU in whose place nothing can stand
    module: str  # the module of its function, which has the name of the part
    what: str  # what it shows
    shared: bool = False  # whether several ranks may share a GPU, which they do under MPS if it starts
    several: bool = False  # whether it takes several GPUs


PARTS: Mapping[str, Part] = {
    "facts": Part(15, "cuda", "facts", "versions, clocks, ECC, compute mode; compilation of the kernels"),
    "fold": Part(30, "gpu", "folds", "the fold kernel against NumPy, bit for bit"),
    "check": Part(20, "gpu", "checks", "fills and counts; every fault of the matrix is counted"),
    "bandwidth": Part(15, "cuda", "rates", "folds, fills and counts beside a copy; pinned copies"),
    "costs": Part(10, "cuda", "costs", "launches, events, 21 launches directly and as a graph"),
    "order": Part(10, "gpu", "order", "pauses, events between streams, a graph destroyed in flight"),
    "failure": Part(10, "cuda", "order", "an illegal address is an error with a name"),
    "nccl": Part(
        20, "nccl", "nccl_calls", "NCCL on one rank: calls, messages to itself, graphs, aborts, settings, log"
    ),
    "train": Part(15, "mpi", "steps", "training steps on one rank: pauses, products, the timeline"),
    "sanitizer": Part(20, "cuda", "sanitizer", "compute-sanitizer on small folds, fills and counts"),
    "ranks": Part(
        100, "ranks", "rank_programs", "2, 3 and 4 ranks: cases, training steps, a stalled rank", shared=True
    ),
    "run": Part(30, "ranks", "runs", "hpccoll run on 2 ranks, with a probe, and its evidence", shared=True),
    # 60 s on an H100, most of them deadlines, which are as long elsewhere
    "diagnosis": Part(65, "ranks", "runs", "hpccoll diagnose on 2 ranks as nodes; one fails, one stops", shared=True),
    "busbw": Part(60, "ranks", "runs", "all-reduce on 2 to all GPUs; NVLS and its negative control", several=True),
    "tests": Part(60, "tests", "suite", "the tests, pytest -m gpu, as far as the time goes", shared=True),
}
"""In the order in which they run. All but ``tests`` run unless ``--only`` names some."""

BEYOND_ONE_GPU = (
    "P2P, NVLS, symmetric kernels between GPUs, GPUDirect, CUDA-aware MPI, SHARP, the speed of any collective"
)
BEYOND_ONE_NODE = (
    "GPUDirect RDMA, SHARP, the network between nodes; symmetric windows and CUDA-aware MPI are in --only tests"
)

OVERRUN = 4
"""A part is ended after so many times its seconds, or when the time of the call is over: a GPU may be several times as
slow as an H100. In the second half of that time it begins nothing more."""
TERM_S = 5
"""Seconds that an ended part has to end its own processes."""


def main() -> int:
    asked = arguments()
    if asked.part:
        return run_part(*asked.part)
    os.environ.update(environment(None))
    if asked.wheels:
        again = [word for word in sys.argv if word != str(asked.wheels) and not word.startswith("--wheels")]
        return subprocess.run([sys.executable, *again], env=environment(asked.wheels), check=False).returncode
    names = [name for name in PARTS if (name in asked.only if asked.only else name != "tests")]
    if reason := lacking("gpu", asked.on_host):
        print(f"nothing was run: {reason}; these parts would be:")
        for name in names:
            print(f"{name}, {PARTS[name].seconds} s: {PARTS[name].what}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a server of MPS is ended
    return call(asked, names)


def arguments() -> argparse.Namespace:
    """Return the arguments, checked."""
    parse = argparse.ArgumentParser(description="Run all that takes a GPU, and print verdicts.")
    parse.add_argument("--only", type=part_names, help=f"the parts to run: {', '.join(PARTS)} [all but tests]")
    parse.add_argument("--minutes", type=float, default=9.0, help="the time of the whole call [9]")
    parse.add_argument(
        "--shard", type=shard_of, default=(1, 1), metavar="K/N", help="every N-th of the tests, from the K-th on"
    )
    parse.add_argument("-k", dest="keyword", help="of the tests those whose names have this, as pytest takes it")
    parse.add_argument("--out", type=Path, help="where to leave the page and the records [results/golden/gpu-NAME]")
    parse.add_argument("--wheels", type=Path, help="a directory of wheels to install first, apart, for this call alone")
    # For tests/test_gpu_benchmark.py: the directory of the NCCL test library, which stands for GPUs and NCCL.
    parse.add_argument("--on-host", type=Path, help=argparse.SUPPRESS)
    # A part in its own process: its name, the file descriptor for its verdicts, and the arguments of its Here, in JSON.
    parse.add_argument("--part", type=json.loads, help=argparse.SUPPRESS)
    return parse.parse_args()


def part_names(text: str) -> list[str]:
    names = text.split(",")
    if strange := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"{strange[0]!r}; valid: {', '.join(PARTS)}")
    return names


def shard_of(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r}; valid: K/N such as 1/4, with K from 1 to N")
    return int(number), int(count)


def lacking(needs: str, on_host: Path | None) -> str | None:
    """Return what a part lacks on this machine, None for nothing."""
    if on_host and needs == "cuda":
        return "it needs a GPU, and this is the NCCL test library"
    return missing(needs, besides=("cuda", "gpu", "nccl") if on_host else ())


# ---- a call: parts one after the other ------------------------------------------------------------------------------


def call(asked: argparse.Namespace, names: list[str]) -> int:
    """Run the parts, and return the exit code."""
    from hpccoll.transports.gpu import device_count

    end = time.monotonic() + 60 * asked.minutes
    gpus = 1 if asked.on_host else device_count()
    name = "NCCL test library" if asked.on_host else device_name()
    out = (asked.out or ROOT / "results" / "golden" / f"gpu-{'-'.join(name.lower().split())}").resolve()
    title = f"{name}, in host memory: no figure here is of a GPU" if asked.on_host else name
    page = Page(out, title, f"{gpus} x {name}; {', '.join(names)}; {asked.minutes:g} minutes; {platform.platform()}")
    for name in names:
        for verdict in verdicts(name, gpus, out, end, asked):
            page.add(name, verdict)
            if verdict.status == WRONG:
                page.say(f"\nA wrong result: the call ends here, exit code {page.code}.\n")
                return page.code
    beyond = BEYOND_ONE_GPU if gpus == 1 else BEYOND_ONE_NODE
    page.add("beyond", Verdict(f"what {'one GPU' if gpus == 1 else 'one node'} cannot show", BEYOND, beyond))
    page.say(f"\n{'Not all' if page.code else 'All'} reached, exit code {page.code}.\n")
    return page.code


def verdicts(name: str, gpus: int, out: Path, end: float, asked: argparse.Namespace) -> Iterator[Verdict]:
    """Yield the verdicts of a part, or the reason why it does not run."""
    part, left = PARTS[name], end - time.monotonic()
    if part.several and gpus == 1:
        yield Verdict(f"{name}: {part.what}", BEYOND, "one GPU")
    elif left < part.seconds:
        reason = (
            f"no time: it takes about {part.seconds} s, and {max(0, left):.0f} s of {asked.minutes:g} minutes are left"
        )
        yield not_run(f"{name}: {part.what}", reason)
    elif reason := lacking(part.needs, asked.on_host):
        yield not_run(f"{name}: {part.what}", reason)
    else:
        with ExitStack() as stack:
            more: Mapping[str, str] = {}
            if part.shared and gpus < 4 and not asked.on_host:
                more, how = stack.enter_context(mps_server())
                yield recorded(f"{name}: ranks that share a GPU run", how)
            left = end - time.monotonic()
            whole = name == "tests" or asked.on_host  # a slow host shows nothing
            limit = left if whole else min(left, OVERRUN * part.seconds)
            seconds = limit if whole else limit / 2
            yield from in_own_process(name, seconds, limit, out, asked, more)


def in_own_process(
    name: str, seconds: float, limit: float, out: Path, asked: argparse.Namespace, more: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield the verdicts of a part as they come; a part that fails or takes too long has missed what it is for."""
    read, write = os.pipe()
    log = out / f"{name}.log"
    given = {
        "out": str(out), "seconds": seconds, "limit": limit, "shard": asked.shard, "keyword": asked.keyword,
        "on_host": asked.on_host and str(asked.on_host),
    }  # fmt: skip
    words = [sys.executable, __file__, "--part", json.dumps([name, write, given])]
    worst = ""
    with log.open("w") as said, os.fdopen(read) as lines:
        child = subprocess.Popen(
            words, pass_fds=[write], stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **more},
        )  # fmt: skip
        os.close(write)
        over = threading.Event()
        timer = threading.Timer(limit, lambda: (over.set(), end_group(child)))
        timer.start()
        try:
            for line in lines:
                verdict = Verdict(**json.loads(line))
                worst = worst or (verdict.status if verdict.status not in ("reached", "recorded") else "")
                yield verdict
            child.wait()
        finally:
            timer.cancel()
            end_group(child)
    if child.returncode or over.is_set():
        worst = "failed"
        how = f"ended after {limit:.0f} s, its limit"
        how = how if over.is_set() else f"exit code {child.returncode}: {last_words(log.read_text(errors='replace'))}"
        yield Verdict(f"{name} comes to its end", "missed", how, "yes")
    if not worst:
        log.unlink()


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """End a part and its processes; ranks are ended by their launcher, which takes a moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + TERM_S
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(child.pid, number)
            while time.monotonic() < until:
                child.poll()
                os.killpg(child.pid, 0)
                time.sleep(0.05)


def device_name() -> str:
    """Return the name of the first GPU, by the driver and without a context."""
    driver, name, device = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(100), ctypes.c_int()
    known = driver.cuInit(0) == driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    known = known and driver.cuDeviceGetName(name, len(name), device) == 0
    return name.value.decode() if known else "unknown GPU"


# ---- a part, in its own process -------------------------------------------------------------------------------------


def run_part(name: str, descriptor: int, given: Mapping[str, Any]) -> NoReturn:
    """Run a part, and write its verdicts, each as soon as it is known."""
    sys.path.append(str(TESTS))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = 0
    with os.fdopen(descriptor, "w") as lines:

        def tell(verdict: Verdict) -> None:
            print(json.dumps(asdict(verdict), default=float), file=lines, flush=True)  # numbers of NumPy, too

        try:
            for verdict in getattr(import_module(PARTS[name].module), name)(Here(**given, tell=tell)):
                tell(verdict)
        except Exception:  # noqa: BLE001  whatever it is, it is in the log
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a context that failed may hang at the interpreter's end


if __name__ == "__main__":
    sys.exit(main())
