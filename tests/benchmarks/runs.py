"""``hpccoll run`` on ranks: right results and evidence; and the bandwidth of all-reduce on several GPUs."""

import json
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from here import Here, last_words, launched
from verdicts import MISSED, Verdict, bound, not_run, recorded

if TYPE_CHECKING:
    from hpccoll.store.rows import Row

RANKS = 2
CASES: Sequence[str] = (
    *("--device", "cuda", "-a", "native,ring,recursive_doubling"),
    *("-b", "1K", "-e", "16M", "-f", "16", "--seconds", "0.3", "--rounds", "1"),
)
NODES = 2
COMMUNICATORS = re.compile(r"(\d+) communicators made, (\d+) ended")
"""What each rank of a diagnosis prints in the end."""
LARGEST = 1 << 30
ALL_REDUCE = (
    "--device",
    "cuda",
    "-t",
    "nccl",
    "-a",
    "native",
    "-b",
    "1K",
    "-e",
    "1G",
    "-f",
    "1024",
    "--seconds",
    "1",
)
NVLS = "nccl-nvls", "nccl-nvls-off"
"""NVLink SHARP, and its negative control."""

SHARED_KIND = "measured on a shared GPU"


def measured(
    here: Here, ranks: int, arguments: Sequence[str], name: str, *, probed: bool
) -> "tuple[list[Row], int, str]":
    """Return the rows of a run, how many were planned, and the last words of a launch that failed, else empty words."""
    from hpccoll.store.load_results import read_results

    raw = here.out / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}.h5"
    with tempfile.TemporaryDirectory() as logs:
        evidence = ["--evidence", logs] if probed else []
        for more in ([["--probe", logs]] if probed else []) + [[*evidence, "--out", str(raw)]]:
            code, output = launched(here.hpccoll_run(ranks, *arguments, *more), here.limit_left)
            if code not in (0, 3):  # 3: some cases are not right, which their rows say
                return [], 0, "it does not come to its end" if code is None else last_words(output)
    found = read_results([raw])
    return [*found.rows], found.planned, ""


def run(here: Here) -> Iterator[Verdict]:
    """A probe and then a measurement; every row is right, and names what ran."""
    shared = here.gpus < RANKS
    transports = "nccl" if here.on_host else "nccl,staged"
    rows, planned, failure = measured(here, RANKS, [*CASES, "-t", transports], "run", probed=True)
    what = f"hpccoll run on {RANKS} ranks: right rows"
    if failure:
        yield bound(what, failure, "all", reached=False)
        return
    wrong = [row for row in rows if row.status == "wrong"]
    if wrong:
        yield Verdict(what, "WRONG", f"{len(wrong)} of {planned} are wrong", "all")
        return
    ok = sum(row.status == "ok" for row in rows)
    yield bound(what, ok, f"{planned}", planned and ok == planned)
    if here.on_host:
        yield not_run("hpccoll run: rows that name what ran", "the NCCL test library writes no log")
        return
    if shared:
        marked = sum(row.kind == SHARED_KIND for row in rows)
        yield bound(f"rows that are {SHARED_KIND}", marked, f"{len(rows)}", marked == len(rows))
    native = [row for row in rows if row.transport == "nccl" and row.algorithm == "native"]
    unknown = [f"{row.bytes} B" for row in native if row.executed == "unknown"]
    named = ", ".join(sorted({row.executed for row in native}))
    got = f"unknown at {', '.join(unknown)}" if unknown else named
    yield bound(
        "what ran in native rows over nccl, by NCCL's log",
        got,
        "a name in all",
        native and not unknown,
    )


def diagnosis(here: Here) -> Iterator[Verdict]:
    """Diagnoses over NCCL: each slot has all of its times. Who is slow is no result: ranks may share a GPU.

    Then the last rank has an error, and then it stops: the other one waits for neither.
    """
    code, output, result = diagnosed(here)
    what = f"a diagnosis of {NODES} ranks: times between GPUs"
    if code or not result:
        yield Verdict(
            what,
            MISSED,
            "it does not come to its end" if code is None else last_words(output),
            "all",
        )
        return
    rows = [row for _, _, seconds in result["measured"] for row in seconds]
    found = sum(0 < seconds < math.inf for row in rows for seconds in row)
    asked = sum(
        one != partner
        for _, partners, seconds in result["measured"]
        for row, _ in zip(partners, seconds, strict=False)
        for one, partner in enumerate(row)
    )
    all_found = found == asked > 0 and result["load"]["memory"] == "GPU"
    yield bound(what, found, f"{asked}, in GPU memory", all_found)
    yield ended(output)
    yield recorded("noise of the time of a pair", result["diagnosis"]["noise"])
    code, output, result = diagnosed(here, sender=[NODES - 1, 8, "has no memory"])
    errors = {
        (each["hosts"][0], each["why"].partition(":")[0])
        for each in result.get("transfer_errors", [])
    }
    expected = {(f"n{NODES - 1}", "GPU memory")}
    yield bound(
        "a rank without GPU memory: errors",
        f"{errors}",
        f"{expected}",
        not code and errors == expected,
    )
    yield ended(output)
    code, output, result = diagnosed(here, sender=[NODES - 1, 8, "stops"])
    left = result.get("unfinished")
    yield bound(
        "a rank that stops: hosts with transfers that have not ended",
        f"{left}",
        "it alone",
        left == [f"n{NODES - 1}"],
    )


def diagnosed(here: Here, **options: object) -> tuple[int | None, str, dict[str, Any]]:
    """Return the exit code, the output and the record of a diagnosis, with the fields of its provenance beside it."""
    out = here.out / "diagnosis.json"
    out.unlink(missing_ok=True)
    words = json.dumps({"slot_s": 0.02, **options})
    code, output = launched(
        here.rank_program(NODES, "measure/gpu_diagnosis_ranks.py", str(out), words), here.limit_left
    )
    result = json.loads(out.read_text()) if out.exists() else {}
    return code, output, {**result.get("provenance", {}), **result}


def ended(output: str) -> Verdict:
    """Return whether each rank has ended all communicators that it made."""
    counts = COMMUNICATORS.findall(output)
    all_ended = len(counts) == NODES and all(made == ended for made, ended in counts)
    got = "; ".join(f"{made} and {ended}" for made, ended in counts)
    return bound("communicators that each rank made and ended", got, "as many", all_ended)


def busbw(here: Here) -> Iterator[Verdict]:
    """All-reduce on 2, 4, ... and all GPUs, and with NVLink SHARP and without on all."""
    counts = sorted({count for count in (2, 4, 8, here.gpus) if count <= here.gpus})
    for count in counts:
        yield bandwidth(here, count, [], "default")
    for variant in NVLS:
        yield bandwidth(here, here.gpus, ["--variant", variant], variant)


def bandwidth(here: Here, count: int, more: Sequence[str], name: str) -> Verdict:
    """Return the largest bus bandwidth of NCCL's all-reduce, and what ran."""
    what = f"all-reduce of {LARGEST >> 30} GiB on {count} GPUs, {name}: busbw GB/s"
    if here.seconds_left < 0:
        return not_run(what, "no time was left")
    rows, _, failure = measured(
        here, count, [*ALL_REDUCE, *more], f"busbw-{count}-{name}", probed=bool(more)
    )
    if any(row.status == "wrong" for row in rows):
        return Verdict(what, "WRONG", "wrong results")
    largest = [row for row in rows if row.status == "ok" and row.busbw_Bps]
    if not largest:
        return not_run(
            what,
            failure or "; ".join(sorted({row.reason or row.status for row in rows})) or "no row",
        )
    row = max(largest, key=lambda row: (row.bytes, row.busbw_Bps))
    return recorded(what, f"{row.busbw_Bps / 1e9:.4g}, {row.executed}")
