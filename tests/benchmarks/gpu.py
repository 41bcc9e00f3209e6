"""All that takes a GPU, in one call of a few minutes, with a verdict for each thing that was tried.

Run it by hand, on idle GPUs:

    python tests/benchmarks/gpu.py --minutes 9                        # all parts, in 9 minutes at most
    python tests/benchmarks/gpu.py --only fold,nccl                   # some of them, also if they were reached before
    python tests/benchmarks/gpu.py --no-mps --only ranks              # ranks that share a GPU take turns
    python tests/benchmarks/gpu.py --only tests --shard 1/4 --minutes 30    # a quarter of the tests, pytest -m gpu
    PYTHONPATH=. python3 tests/benchmarks/gpu.py --wheels wheels      # not installed, no network: carried wheels

Parts run one after the other, the most important ones first, each in a process of its own with a
limit of its own, so that one that fails or hangs takes nothing along. Those without ranks need
NumPy, CuPy and msgspec alone; the others also an MPI, and are listed as not run without one. Each
verdict is printed and stored as soon as it is known: in results/golden/gpu-NAME, README.md has a
section for each call, verdicts.jsonl a record for each verdict, and reached.json how often each
part was reached. A part that two calls have reached is left out until one of its files changes. A
call ends at the first wrong result.

Exit codes: 0 all reached; 1 something was missed, or could not run, or had no time left; 2 no
usable GPU: nothing was run; 3 a wrong result.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bare import ROOT, environment, missing
from here import TESTS, Here, last_words
from mps import mps_server
from reached import ReachedParts, digest_of
from verdicts import (
    BEYOND,
    PART,
    REACHED,
    RECORDED,
    SKIPPED,
    WRONG,
    Page,
    Verdict,
    not_run,
    recorded,
)

SERVED, IN_TURNS = "MPS", "turns"
"""How ranks share a GPU: at the same time, under MPS if it starts; or one after the other."""

KERNELS = (
    "hpccoll/transports/nccl/fold.*",
    "hpccoll/measure/run/result_check*",
    "hpccoll/measure/run/payload.py",
)
STREAMS = "hpccoll/transports/gpu.py", "hpccoll/transports/nccl/*", "tests/benchmarks/timing.py"
RANK_PROGRAMS = (
    "hpccoll/measure/**/*",
    "hpccoll/extensions/steps/measure/*",
    "hpccoll/transports/**/*",
    "tests/gpu/*.py",
)
STEPS = "hpccoll/extensions/steps/training/*", "hpccoll/extensions/steps/measure/*", *STREAMS


class Part(NamedTuple):
    """A part of a call."""

    seconds: int  # its limit, after which it is ended; it is not begun where less is left
    # what it takes, as ``bare.missing`` has it; ``cuda`` is a GPU in whose place nothing can stand
    needs: str
    module: str  # the module of its function
    decides: str  # what it decides, in a sentence
    files: Sequence[str] = ()  # the files on which its result depends, beside its module
    shares: str = ""  # how several ranks may share a GPU; empty if it has a single rank
    several: bool = False  # whether it takes several GPUs
    function: str = ""  # its function [the name of the part]
    keyword: str | None = None  # of the tests those whose names have this [those of -k]

    @property
    def digest(self) -> str:
        """The digest of what it depends on."""
        return digest_of([f"tests/benchmarks/{self.module}.py", *self.files])


EVERY_CASE = "test_every_case_on_a_gpu_is_right_and_its_faults_are_seen[2]"

PARTS: Mapping[str, Part] = {
    "peer": Part(
        90, "ranks", "peer_kernel", "Is the peer kernel right, how long is a step, which protocol wins? Not tried.",
        ("tests/transports/peer/peer_ranks.py", *RANK_PROGRAMS), SERVED,
    ),
    "native_stall": Part(
        60, "tests", "suite", "Does a job go on if a rank stalls in a graph of NCCL's own call? Never passed.",
        RANK_PROGRAMS, SERVED, function="tests", keyword="stalls[native-1]",
    ),
    "every_case": Part(
        90, "tests", "suite", "Is every case right on 2 ranks that take turns? Not tried since the mend of null.",
        RANK_PROGRAMS, IN_TURNS, function="tests", keyword=EVERY_CASE,
    ),
    "one_gpu": Part(
        60, "ranks", "shared_gpu", "Do P2P channels and symmetric windows run on one GPU, with NCCL 2.30?",
        RANK_PROGRAMS, SERVED,
    ),
    "variants": Part(
        75, "ranks", "shared_gpu", "Which forced algorithms, protocols and settings show in NCCL's log as we read it?",
        ("hpccoll/evidence/*", "hpccoll/cases/variants.*", "tests/gpu/rank_gpu.py"), SERVED,
    ),
    "figures": Part(
        40, "cuda", "figures", "How much do values, rows, calls and the L2 cache change the figures of the page?",
        STREAMS,
    ),
    "costs": Part(20, "cuda", "costs", "What do launches and events cost the host, and what the device?", STREAMS),
    "nccl_tests": Part(
        45, "ranks", "launches", "Would our times agree with those of nccl-tests?",
        ("hpccoll/measure/timing_loop.py", "hpccoll/measure/run/*timing*", *STREAMS), SERVED,
    ),
    "phases": Part(
        40, "ranks", "launches", "Where does the time of a case go: is the time that a plan states right?",
        ("tests/benchmarks/phase_ranks.py", *RANK_PROGRAMS), SERVED,
    ),
    "silent": Part(
        45, "ranks", "launches", "What does the user read if a rank never enters NCCL's first operation?",
        RANK_PROGRAMS, SERVED,
    ),
    "launch_order": Part(
        60, "ranks", "launches", "Do steps of several communicators end, and what does NCCL's order of launches cost?",
        STEPS, SERVED,
    ),
    "run": Part(
        30, "ranks", "runs", "Are hpccoll run on 2 ranks, its probe and its evidence right?", RANK_PROGRAMS, SERVED,
    ),
    # 60 s on an H100, most of them deadlines, which are as long elsewhere
    "diagnosis": Part(
        65, "ranks", "runs", "Does a diagnosis of 2 ranks as nodes end if one fails, and if one stops?",
        RANK_PROGRAMS, SERVED,
    ),
    "facts": Part(
        20, "cuda", "facts", "What do the figures depend on: versions, clocks, ECC, compute mode?", KERNELS,
    ),
    "train": Part(
        30, "mpi", "steps", "Are training steps on one rank right, and their products as fast as alone?", STEPS,
    ),
    "bandwidth": Part(
        25, "cuda", "rates", "How fast are folds, fills, counts and pinned copies?", (*KERNELS, *STREAMS),
    ),
    "nccl": Part(
        40, "nccl", "nccl_calls", "Are NCCL's calls on one rank, graphs, aborts, settings and log right?",
        ("hpccoll/transports/nccl/*", "hpccoll/evidence/nccl.py"),
    ),
    "order": Part(
        10, "gpu", "order", "Are pauses, events between streams and a graph destroyed in flight right?", STREAMS,
    ),
    "failure": Part(10, "cuda", "order", "Is an illegal address an error with a name?", STREAMS),
    "ranks": Part(
        100, "ranks", "rank_programs", "Are cases, steps and a stalled rank right on 2, 3 and 4 ranks?",
        RANK_PROGRAMS, SERVED,
    ),
    "fold": Part(30, "gpu", "folds", "Is the fold kernel NumPy's, bit for bit?", KERNELS),
    "check": Part(
        20, "gpu", "checks", "Do fills and counts see every fault of the matrix?",
        ("tests/injected_faults.py", *KERNELS),
    ),
    "sanitizer": Part(
        30, "cuda", "sanitizer", "Does compute-sanitizer find errors in folds, fills and counts?", KERNELS,
    ),
    "busbw": Part(
        60, "ranks", "runs", "What bandwidth has all-reduce on 2 to all GPUs, and does NVLS run?",
        RANK_PROGRAMS, SERVED, several=True,
    ),
    "tests": Part(
        60, "tests", "suite", "Do the tests of pytest -m gpu pass, as many as the time allows?", RANK_PROGRAMS, SERVED,
    ),
}  # fmt: skip
"""In the order in which they run. All but ``tests`` run unless ``--only`` names some."""

NAMED_ONLY = ("tests",)
"""The parts that run only if ``--only`` names them."""

BEYOND_ONE_GPU = (
    "P2P, NVLS, symmetric kernels between GPUs, GPUDirect, CUDA-aware "
    "MPI, SHARP, the speed of any collective"
)
BEYOND_ONE_NODE = (
    "GPUDirect RDMA, SHARP, the network between nodes; symmetric "
    "windows and CUDA-aware MPI are in --only tests"
)

LAST_BEGIN = 0.8
"""The part of its limit after which a part begins nothing more."""
COMPLETE = (REACHED, RECORDED, PART)
"""The verdicts of a part that was reached."""
TERM_S = 5
"""Seconds that an ended part has to end its own processes."""


def main() -> int:
    asked = arguments()
    if asked.part:
        return run_part(*asked.part)
    os.environ.update(environment(None))
    if asked.wheels:
        again = [
            word
            for word in sys.argv
            if word != str(asked.wheels) and not word.startswith("--wheels")
        ]
        return subprocess.run(
            [sys.executable, *again], env=environment(asked.wheels), check=False
        ).returncode
    if reason := lacking("gpu", asked.on_host):
        print(f"nothing was run: {reason}; these parts would be:")
        for name in chosen(asked.only, gpus=1):
            print(f"{name}, {PARTS[name].seconds} s: {PARTS[name].decides}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a server of MPS is ended
    return call(asked)


def arguments() -> argparse.Namespace:
    """Return the arguments, checked."""
    parse = argparse.ArgumentParser(description="Run all that takes a GPU, and print verdicts.")
    parse.add_argument(
        "--only", type=part_names, help=f"the parts to run: {', '.join(PARTS)} [all but tests]"
    )
    parse.add_argument("--minutes", type=float, default=9.0, help="the time of the whole call [9]")
    parse.add_argument(
        "--shard",
        type=shard_of,
        default=(1, 1),
        metavar="K/N",
        help="every N-th of the tests, from the K-th on",
    )
    parse.add_argument(
        "--no-mps",
        action="store_true",
        help="ranks that share a GPU take turns, without a server of MPS",
    )
    parse.add_argument(
        "-k", dest="keyword", help="of the tests those whose names have this, as pytest takes it"
    )
    parse.add_argument(
        "--out", type=Path, help="where to leave the page and the records [results/golden/gpu-NAME]"
    )
    parse.add_argument(
        "--wheels",
        type=Path,
        help="a directory of wheels to install first, apart, for this call alone",
    )
    # For tests/test_gpu_benchmark.py: the directory of the NCCL test library, which stands for GPUs
    # and NCCL.
    parse.add_argument("--on-host", type=Path, help=argparse.SUPPRESS)
    # A part in its own process: its name, the file descriptor for its verdicts, and the arguments
    # of its Here, in JSON.
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


# ---- a call: parts one after the other
# ------------------------------------------------------------------------------


def call(asked: argparse.Namespace) -> int:
    """Run the parts, and return the exit code."""
    from hpccoll.transports.gpu import device_count

    end = time.monotonic() + 60 * asked.minutes
    gpus = 1 if asked.on_host else device_count()
    names = chosen(asked.only, gpus)
    name = "NCCL test library" if asked.on_host else device_name()
    out = (
        asked.out or ROOT / "results" / "golden" / f"gpu-{'-'.join(name.lower().split())}"
    ).resolve()
    title = f"{name}, in host memory: no figure here is of a GPU" if asked.on_host else name
    page = Page(
        out,
        title,
        f"{gpus} x {name}; {', '.join(names)}; {asked.minutes:g} minutes; {platform.platform()}",
    )
    reached = ReachedParts(out)
    left_out = (
        []
        if asked.only
        else [name for name in names if reached.is_settled(name, PARTS[name].digest)]
    )
    for name in names:
        if name in left_out:
            continue
        complete = True
        for verdict in verdicts(name, gpus, out, end, asked):
            page.add(name, verdict)
            complete &= verdict.status in COMPLETE
            if verdict.status == WRONG:
                page.say(f"\nA wrong result: the call ends here, exit code {page.code}.\n")
                return page.code
        if complete:
            reached.add(name, PARTS[name].digest)
    if left_out:
        page.add(
            "skipped", Verdict("reached twice, and unchanged since", SKIPPED, ", ".join(left_out))
        )
    beyond = BEYOND_ONE_GPU if gpus == 1 else BEYOND_ONE_NODE
    page.add(
        "beyond",
        Verdict(f"what {'one GPU' if gpus == 1 else 'one node'} cannot show", BEYOND, beyond),
    )
    page.say(f"\n{'Not all' if page.code else 'All'} reached, exit code {page.code}.\n")
    return page.code


def chosen(only: Sequence[str] | None, gpus: int) -> list[str]:
    """Return the parts to run: those that ``--only`` names; else those that this number of GPUs can show."""
    if only:
        return [name for name in PARTS if name in only]
    several = gpus > 1
    return [
        name
        for name, part in PARTS.items()
        if name not in NAMED_ONLY and (several or not part.several)
    ]


def verdicts(
    name: str, gpus: int, out: Path, end: float, asked: argparse.Namespace
) -> Iterator[Verdict]:
    """Yield the verdicts of a part, or the reason why it does not run."""
    part, left = PARTS[name], end - time.monotonic()
    what = f"{name}: {part.decides}"
    if part.several and gpus == 1:
        yield Verdict(what, BEYOND, "one GPU")
        return
    if left < part.seconds:
        reason = (
            f"no time: its limit is {part.seconds} s, and {max(0, left):.0f} "
            f"s of {asked.minutes:g} minutes are left"
        )
        yield not_run(what, reason)
        return
    if reason := lacking(part.needs, asked.on_host):
        yield not_run(what, reason)
        return
    yield Verdict(name, PART, part.decides, f"at most {part.seconds} s")
    with ExitStack() as stack:
        more: Mapping[str, str] = {}
        if part.shares and gpus < 4 and not asked.on_host:
            more, how = sharing(part, stack, no_mps=asked.no_mps)
            yield recorded(f"{name}: ranks that share a GPU run", how)
        left = end - time.monotonic()
        # Tests go on as long as there is time, and a slow host shows nothing.
        limit = left if name == "tests" or asked.on_host else min(left, part.seconds)
        yield from in_own_process(name, limit, out, asked, more)


def sharing(part: Part, stack: ExitStack, *, no_mps: bool) -> tuple[Mapping[str, str], str]:
    """Return the variables of ranks that share a GPU, and how they share it; ``stack`` ends what was started."""
    if no_mps:
        return {}, "in turns: --no-mps"
    if part.shares == IN_TURNS:
        return {}, "in turns, as this part asks for"
    return stack.enter_context(mps_server())


def in_own_process(
    name: str, limit: float, out: Path, asked: argparse.Namespace, more: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield the verdicts of a part as they come; a part that fails or takes too long has missed what it is for."""
    read, write = os.pipe()
    log = out / f"{name}.log"
    given = {
        "out": str(out),
        "seconds": LAST_BEGIN * limit,
        "limit": limit,
        "shard": asked.shard,
        "keyword": PARTS[name].keyword or asked.keyword,
        "on_host": asked.on_host and str(asked.on_host),
    }
    words = [sys.executable, __file__, "--part", json.dumps([name, write, given])]
    worst = ""
    with log.open("w") as said, os.fdopen(read) as lines:
        child = subprocess.Popen(
            words,
            pass_fds=[write],
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **more},
        )
        os.close(write)
        over = threading.Event()
        timer = threading.Timer(limit, lambda: (over.set(), end_group(child)))
        timer.start()
        try:
            for line in lines:
                verdict = Verdict(**json.loads(line))
                worst = worst or (verdict.status if verdict.status not in COMPLETE else "")
                yield verdict
            child.wait()
        finally:
            timer.cancel()
            end_group(child)
    if child.returncode or over.is_set():
        worst = "failed"
        how = f"ended after {limit:.0f} s, its limit"
        how = (
            how
            if over.is_set()
            else f"exit code {child.returncode}: {last_words(log.read_text(errors='replace'))}"
        )
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
    driver, name, device = (
        ctypes.CDLL("libcuda.so.1"),
        ctypes.create_string_buffer(100),
        ctypes.c_int(),
    )
    known = driver.cuInit(0) == driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    known = known and driver.cuDeviceGetName(name, len(name), device) == 0
    return name.value.decode() if known else "unknown GPU"


# ---- a part, in its own process
# -------------------------------------------------------------------------------------


def run_part(name: str, descriptor: int, given: Mapping[str, Any]) -> NoReturn:
    """Run a part, and write its verdicts, each as soon as it is known."""
    sys.path += [str(TESTS), str(TESTS / "gpu")]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = 0
    with os.fdopen(descriptor, "w") as lines:

        def tell(verdict: Verdict) -> None:
            # numbers of NumPy, too
            print(json.dumps(asdict(verdict), default=float), file=lines, flush=True)

        try:
            part = PARTS[name]
            function = getattr(import_module(part.module), part.function or name)
            for verdict in function(Here(**given, tell=tell)):
                tell(verdict)
        except Exception:  # noqa: BLE001  whatever it is, it is in the log
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a context that failed may hang at the interpreter's end


if __name__ == "__main__":
    sys.exit(main())
