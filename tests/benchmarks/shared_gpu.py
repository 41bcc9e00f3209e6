"""NCCL between ranks of one GPU: what its logs say ran when ranks are peers, and when each is a node of its own.

The logs stay beside the page, in ``logs``: they are what the parsers of evidence have to read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from here import Here, last_words, launched
from rank_gpu import EACH_IS_A_NODE, SHARED_SINCE
from verdicts import MISSED, WRONG, Verdict, bound, not_run, recorded

from hpccoll.cases.variants import named_variants
from hpccoll.evidence.expected_evidence import is_shown
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.transports.gpu import loaded_nccl_version

CASES = (
    "--device",
    "cuda",
    "-t",
    "nccl",
    "-a",
    "native",
    "-f",
    "64",
    "--seconds",
    "0.1",
    "--rounds",
    "1",
)
PEER_CASES = (*CASES, "-b", "1K", "-e", "16M")
NODE_CASES = (*CASES, "-b", "64K", "-e", "4M")
SUBSYSTEMS = "INIT,ENV,NET,GRAPH,TUNING,COLL,P2P"

VARIANTS: Mapping[str, Sequence[str]] = {
    "nccl-tree": (), "nccl-pat": ("-c", "all_gather"), "nccl-ll": (), "nccl-simple": (),
    "nccl-p2p-ll-off": ("-c", "all_to_all"), "nccl-traffic-class-comm": (),
    "nccl-cta-efficiency": ("-c", "all_gather"),
}  # fmt: skip
"""Variants that ranks on one GPU can show if each is a node, with more options. Their requirements
and limits count the nodes of the machine, so that their settings are given one by one."""

REFUSED = "nccl-nvls"
"""The variant that NCCL must refuse here, because one GPU has no switches."""


def logged(
    here: Here, name: str, ranks: int, arguments: Sequence[str], more: Mapping[str, str]
) -> tuple[int | None, str, LogRecord]:
    """Return the exit code and the output of a run, and what its logs say, which stay in the directory of the page."""
    place = here.out / "logs" / name
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    variables = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
        "NCCL_DEBUG_FILE": f"{place}/%h.%p.log",
    }
    command = here.hpccoll_run(ranks, *arguments)
    code, output = launched(
        command, min(here.limit_left, here.seconds_left + 5), {**variables, **more}
    )
    (place / "output.txt").write_text(output)
    return code, output, read_logs(texts_of(place))


def texts_of(place: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in sorted(place.glob("*.log"))}


def failure_of(what: str, code: int | None, output: str) -> Verdict | None:
    """Return the verdict on a run that did not come to its end with right results, else None."""
    if code == 0:
        return None
    if code is None:
        return Verdict(what, MISSED, "it does not come to its end", "all right")
    status = WRONG if " wrong" in output and code == 3 else MISSED
    return Verdict(what, status, last_words(output), "all right")


def one_gpu(here: Here) -> Iterator[Verdict]:
    """P2P channels, and symmetric windows, between two ranks of one GPU; NCCL 2.30 takes them for peers."""
    _ = here.gpu  # which loads the test library
    version = loaded_nccl_version() or ()
    words = ".".join(map(str, version))
    if version < (SHARED_SINCE // 10000, SHARED_SINCE // 100 % 100):
        yield not_run(
            "peers on one GPU",
            f"NCCL {words} refuses them; do: pip install 'nvidia-nccl-cu12>=2.30'",
        )
        return
    shared = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    what = f"two ranks of one GPU over NCCL {words}"
    code, output, record = logged(here, "peers", 2, (*PEER_CASES, "-a", "native,ring"), shared)
    if failure := failure_of(what, code, output):
        yield failure
        return
    yield bound(what, "all right", "all right", reached=True)
    paths = sorted(record.paths)
    yield bound(
        "channels between them",
        ", ".join(paths) or "none logged",
        "P2P",
        any("P2P" in path for path in paths),
    )
    what = "symmetric windows between two ranks of one GPU"
    code, output, record = logged(
        here, "symmetric", 2, (*PEER_CASES, "--communicator", "buffers=symmetric"), shared
    )
    if failure := failure_of(what, code, output):
        yield failure
        return
    ran = sorted({line.algorithm for line in record.collectives})
    yield bound(what, ", ".join(ran) or "none logged", "symmetric", "symmetric" in ran)


def variants(here: Here) -> Iterator[Verdict]:
    """Forced algorithms, protocols and settings between ranks that are nodes to NCCL; each must show in the log."""
    nodes = {EACH_IS_A_NODE: "1"}
    for name, more in VARIANTS.items():
        what = f"{name} on 2 ranks as nodes"
        if here.seconds_left < 0:
            yield not_run(what, "no time was left")
            continue
        variant = named_variants()[name]
        settings: list[str] = []
        for key, value in variant.communicator.items():
            settings += ["--communicator", f"{key}={value}"]
        environment = {name: str(value) for name, value in variant.environment.items()}
        code, output, record = logged(
            here, name, 2, (*NODE_CASES, *more, *settings), {**nodes, **environment}
        )
        if failure := failure_of(what, code, output):
            yield failure
            continue
        ran = sorted(
            {f"{line.algorithm} {line.protocol or ''}".strip() for line in record.collectives}
        )
        yield bound(
            what,
            ", ".join(ran) or "no line of a call",
            variant.evidence_text,
            is_shown(variant, record),
        )
    if here.seconds_left > 0:
        environment = {
            name: str(value) for name, value in named_variants()[REFUSED].environment.items()
        }
        code, output, record = logged(here, REFUSED, 2, NODE_CASES, {**nodes, **environment})
        ran = sorted({line.algorithm for line in record.collectives})
        reached = code is not None and "nvls" not in ran
        yield bound(
            f"{REFUSED} without switches",
            f"exit code {code}: {last_words(output)}",
            "refused",
            reached,
        )
    yield recorded(
        "logs kept", json.dumps(sorted(path.name for path in (here.out / "logs").glob("*")))
    )
