"""hpccoll on ranks that share a GPU: its timings, the cost of a case, a silent rank, several communicators."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from here import TESTS, Here, last_words, launched
from runs import measured
from verdicts import MISSED, WRONG, Verdict, bound, not_run, recorded

from hpccoll.common.units import format_size

if TYPE_CHECKING:
    from hpccoll.store.rows import Row

RANKS = 2
OURS, THEIRS = "aggregated", "nccl-tests"
"""The timings that are compared: the median over batches back to back, and the mean of nccl-tests' loop."""
SIZES = ("-b", "8", "-e", "16M", "-f", "64")
TIMED = (
    "--device",
    "cuda",
    "-t",
    "nccl",
    "-a",
    "native",
    *SIZES,
    "--seconds",
    "0.3",
    "--rounds",
    "3",
)
PHASED = (
    *("--device", "cuda", "-t", "nccl", "-a", "native,ring", "-b", "1K", "-e", "1M", "-f", "1024"),
    *("--param", "graph=0,1", "--timing", "single,aggregated", "--seconds", "0.1"),
)

TIMEOUT_S = 20
SILENT = (
    "--device",
    "cuda",
    "-t",
    "nccl",
    "-a",
    "native",
    "-b",
    "8",
    "-e",
    "8",
    "--timeout",
    f"{TIMEOUT_S}",
)
NAMED = "connecting NCCL"
"""The phase that a user must read of, if a rank never comes to NCCL's first operation."""

MESH_RANKS = 4
STEPS, ON_HOST_STEPS = 200, 10
MESH = (
    *(
        "train",
        "--device",
        "cuda",
        "-t",
        "nccl",
        "-a",
        "native",
        "--param",
        "graph=0,1",
        "--model",
        "gpt2",
    ),
    *("--scale", "65536", "--compute", "wait", "--compute-us", "2000", "--micro-batches", "4"),
    *("--parallel", "tp=2,pp=2", "-w", "2", "--rounds", "1"),
)
ORDER = "NCCL_LAUNCH_ORDER_IMPLICIT"


def nccl_tests(here: Here) -> Iterator[Verdict]:
    """The same calls by both timings."""
    times: dict[str, dict[int, float]] = {}
    for timing in (OURS, THEIRS):
        rows, _, failure = measured(
            here, RANKS, [*TIMED, "--timing", timing], f"timing-{timing}", probed=False
        )
        if failure:
            yield not_run(f"--timing {timing} on {RANKS} ranks", failure)
            return
        if any(row.status == "wrong" for row in rows):
            yield Verdict(f"--timing {timing} on {RANKS} ranks", WRONG, "wrong results")
            return
        times[timing] = {
            row.bytes: row.median_s for row in rows if row.status == "ok" and row.median_s
        }
    for nbytes in sorted(times[OURS].keys() & times[THEIRS].keys()):
        ratio = times[THEIRS][nbytes] / times[OURS][nbytes]
        yield recorded(f"all-reduce of {format_size(nbytes)}: time by {THEIRS} / {OURS}", ratio)


def phases(here: Here) -> Iterator[Verdict]:
    """Seconds of a case by phase, over all cases and rounds of a run."""
    command = here.rank_command(RANKS, "phase_ranks.py", *PHASED)
    code, output = launched(command, here.limit_left)
    what = f"the cost of a case on {RANKS} ranks"
    if code:
        yield Verdict(what, MISSED, last_words(output), "its phases")
        return
    if code is None:
        yield Verdict(what, MISSED, "it does not come to its end", "its phases")
        return
    found = json.loads(output.splitlines()[-1])
    for phase, (calls, seconds) in found["phases"].items():
        yield recorded(f"{phase}: calls, and seconds of all", f"{calls}; {seconds:.3g}")
    passes = found["passes"]
    yield recorded(
        f"{passes} passes of cases: seconds each, between", found["seconds"] / max(1, passes)
    )


def silent(here: Here) -> Iterator[Verdict]:
    """The last of the ranks stops before NCCL's first operation; what the user reads, and when the launch ends."""
    from launch import mpiexec

    place = str(here.on_host or "gpu")
    program = [sys.executable, str(TESTS / "measure" / "stalling_ranks.py")]
    stop = (place, f"{RANKS - 1}", "prepared", "1", "stops")
    code, output = launched([*mpiexec(RANKS), *program, *stop, *SILENT], here.limit_left)
    what = f"a rank never enters the first operation, --timeout {TIMEOUT_S}: the launch ends"
    got = "not before its limit" if code is None else f"exit code {code}"
    yield bound(what, got, "before the limit of the part", code is not None)
    lines = [line for line in output.splitlines() if NAMED in line]
    got = (lines or [last_words(output)])[0][:300]
    yield bound("what the user reads of it", got, f"'{NAMED}'", lines)


def launch_order(here: Here) -> Iterator[Verdict]:
    """Steps of four communicators, as calls and as graphs, with NCCL's order on the device and without."""
    steps = ON_HOST_STEPS if here.on_host else STEPS
    before = os.environ.get(ORDER)
    try:
        for value in ("1", "0"):
            os.environ[ORDER] = value
            arguments = (*MESH, "-n", f"{steps}")
            rows, planned, failure = measured(
                here, MESH_RANKS, arguments, f"order-{value}", probed=False
            )
            yield from _steps(
                rows, planned, failure, f"{steps} steps of tp=2, pp=2", f"{ORDER}={value}"
            )
    finally:
        os.environ.pop(ORDER, None)
        if before is not None:
            os.environ[ORDER] = before


def _steps(
    rows: "Sequence[Row]", planned: int, failure: str, steps: str, setting: str
) -> Iterator[Verdict]:
    what = f"{steps} on {MESH_RANKS} ranks, {setting}"
    if failure:
        yield Verdict(what, MISSED, failure, "all right")
        return
    statuses = [row.status for row in rows]
    if "wrong" in statuses:
        yield Verdict(what, WRONG, "wrong results", "all right")
        return
    ok = statuses.count("ok")
    yield bound(what, f"{ok} of {planned} right", "all right", ok == planned > 0)
    times = defaultdict(list)
    for row in rows:
        if row.median_s:
            times[row.params.get("graph", 0)].append(row.median_s)
    for graph, seconds in sorted(times.items()):
        yield recorded(f"a step with graph={graph}, {setting}, ms", 1e3 * median(seconds))
