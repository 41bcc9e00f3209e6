"""Files of other programs, damaged or costly, to every command that reads some: ``python tests/fuzz.py foreign``.

Recorded jobs and archives of them, logs, tuning tables, plans, clusters, models, diagnoses. A
command may read such a file, and otherwise refuses it in one line; it never takes more than the
limits of a child of this process.
"""

import io
import json
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml
from fuzz import in_child
from fuzz_commands import RESULTS, Input, bad_json, defect_of
from fuzz_files import damaged, lines_changed
from plan_machine import exported
from recorded_diagnoses import recorded
from traces.kernel_files import inspector_line, kernel, nccl_log, step, write_kineto
from traces.recorded_files import Call, Ring, as_json, as_pickle, dump, ras

import hpccoll
from hpccoll.diagnosis.diagnosis_file import write_diagnosis

DP = Ring("0", (0, 1, 2, 3), "default_pg")


def recorder_dump() -> dict[str, object]:
    """Return a dump of rank 0, of which one all-reduce is open."""
    return dump(0, [Call(DP), Call(DP), Call(DP, "all_gather")], completed={0, 1})


def kineto_trace() -> dict[str, object]:
    """Return a trace of two steps with a collective each."""
    events = [
        step(0, 0, 500),
        kernel("allreduce", 1, 100, 50),
        step(1, 500, 500),
        kernel("allreduce", 2, 600, 50),
    ]
    path = Path("kineto.json")
    content: dict[str, object] = json.loads(write_kineto(path, 0, events).read_text())
    path.unlink()
    return content


MPICH_TABLE = {
    "collective=allreduce": {"comm_size<=8": {"algorithm=MPIR_Allreduce_intra_ring": {}}}
}
MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


CLUSTER = Path(hpccoll.__file__).parent / "model/clusters/1x25g-tcp.yaml"


@cache
def _cluster() -> object:
    return yaml.safe_load(CLUSTER.read_text())


@cache
def _plan() -> object:
    return exported("all_reduce", "ring", 4, 4)


PREDICT = ("predict", "--cluster=FILE", "--nodes=2", "-b8")
STEP = ("predict", "step", "--model=FILE", "--cluster=8xh100-400g", "--nodes=2", "--compute=27ms")

OBJECTS: Mapping[str, tuple[Sequence[str], str, Callable[[], object]]] = {
    "Flight Recorder": (("trace", "FILE"), "rank_0.json", lambda: json.loads(as_json(recorder_dump()))),
    "RAS": (("trace", "FILE"), "ras.json", lambda: ras({0: 3, 1: 2}, missing=(2,))),
    "Kineto": (("trace", "FILE"), "trace.json", kineto_trace),
    "Inspector": (("trace", "FILE"), "inspector.log", lambda: json.loads(inspector_line(0, 1, 50.0))),
    "MPICH's table": (("tune", "--lint=FILE"), "table.json", lambda: MPICH_TABLE),
    "plan": (("show", "FILE"), "plan.json", _plan),
    "cluster": (PREDICT, "cluster.yaml", _cluster),
    "accepted cluster": (("accept", RESULTS, "--cluster=FILE"), "cluster.yaml", _cluster),
    "model": (STEP, "config.json", lambda: MODEL),
}  # fmt: skip
"""Files of one JSON value, of which one part is replaced: the command, the file's name, and its content."""


@cache
def _diagnosis() -> bytes:
    path = Path(RESULTS).with_name("diagnosis.h5")
    write_diagnosis(recorded(4), path)
    return path.read_bytes()


RULES = "2 # of 2.0\n1\n0 # all_gather\n1\n2\n2\n0 1 0 0\n1048576 4 0 0\n"
CSV = "allreduce,0,65536,tree,ll,4,1,8,-1,-1\nallreduce,65537,-1,ring,simple,8,2,16,-1,-1\n"
UCC = "UCC_TL_UCP_TUNE=allreduce:0-4k:@knomial#allreduce:4k-inf:@sra_knomial\n"

TEXTS: Mapping[str, tuple[Sequence[str], str, Callable[[], bytes]]] = {
    "pickle": (("trace", "FILE"), "rank_0", lambda: as_pickle(recorder_dump())),
    "archive": (("trace", "FILE"), "job.tar.gz", lambda: archive({"rank_0": as_pickle(recorder_dump())})),
    "zip": (("trace", "FILE"), "job.zip", lambda: zipped({"rank_0": as_pickle(recorder_dump())})),
    "log of a job": (("trace", "FILE"), "nccl.log", lambda: nccl_log(0, 20).encode()),
    "log": (("evidence", "FILE"), "nccl.log", lambda: nccl_log(0, 20).encode()),
    "rules of Open MPI": (("tune", "--lint=FILE"), "rules.conf", RULES.encode),
    "table of NCCL": (("tune", "--lint=FILE"), "nccl.csv", CSV.encode),
    "string of UCC": (("tune", "--lint=FILE"), "ucc.conf", UCC.encode),
    "imported output": (("import", "FILE", "--out=F.h5"), "out.txt", lambda: _output("nccl-two-nodes-of-8-h100.txt")),
    "diagnosis": (("diagnose", "--report", "FILE"), "results.h5", _diagnosis),
}  # fmt: skip
"""Files of bytes or lines, of which a place is damaged: as ``OBJECTS``."""


@cache
def _output(name: str) -> bytes:
    return (Path(__file__).parent / "inputs" / name).read_bytes()


def archive(files: Mapping[str, bytes], links: int = 0) -> bytes:
    """Return a compressed tar archive of files and symbolic links."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
        for number in range(links):
            link = tarfile.TarInfo(f"link{number}")
            link.type, link.linkname = tarfile.SYMTYPE, "link0"
            tar.addfile(link)
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return content.getvalue()


def _ranks_of_kineto(ranks: int, operations: int) -> bytes:
    """Return a trace whose collectives name as many ranks."""
    named = str([*range(ranks)])
    events = [
        kernel(
            "allreduce",
            number,
            100 * number,
            50,
            **{"Process Group Ranks": named, "Group size": ranks},
        )
        for number in range(operations)
    ]
    return json.dumps({**kineto_trace(), "traceEvents": events}).encode()


def _ras_text(ranks: int, groups: int, in_class: int) -> bytes:
    """Return a report in words of communicators that claim as many ranks."""
    table = [f"{group} 1 4 8 {ranks} {ranks} RUNNING MISMATCH" for group in range(groups)]
    blocks = [
        f"#{group}-0 ({group:016x}) MISMATCH\n"
        "Communicator ranks have different AllReduce operation counts\n"
        f"{in_class} ranks have launched up to operation 12\n"
        f"{in_class} ranks have launched up to operation 13\n"
        for group in range(groups)
    ]
    heading = "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors"
    return "\n".join([heading, *table, *blocks]).encode()


def _dump_of(ranks: int) -> bytes:
    return as_pickle(dump(0, [Call(Ring("0", tuple(range(ranks))))] * 20, completed={0}))


SHAPES: Mapping[str, tuple[Sequence[str], str, Callable[[], bytes]]] = {
    "a group of 100,000 ranks": (("trace", "FILE"), "rank_0", lambda: _dump_of(100_000)),
    "Kineto of 60,000 ranks": (("trace", "FILE"), "trace.json", lambda: _ranks_of_kineto(60_000, 1)),
    "Kineto of 20,000 collectives": (("trace", "FILE"), "trace.json", lambda: _ranks_of_kineto(2, 20_000)),
    "RAS of 100,000,000 ranks": (("trace", "FILE"), "ras.txt", lambda: _ras_text(10**8, 20, 10**8)),
    "RAS of 5,000 groups": (("trace", "FILE"), "ras.txt", lambda: _ras_text(32, 5000, 16)),
    "archive of 50,000 links": (("trace", "FILE"), "a.tgz", lambda: archive({}, links=50_000)),
    "archive of 3,000 empty files": (("trace", "FILE"), "a.tgz", lambda: archive({f"f{n}": b"" for n in range(3000)})),
    "archive of zeros": (("trace", "FILE"), "a.tgz", lambda: archive({"rank_0": bytes(600 << 20)})),
    "zip of zeros": (("trace", "FILE"), "a.zip", lambda: zipped({"rank_0": bytes(600 << 20)})),
    "pickle of 3,000,000 lists": (("trace", "FILE"), "rank_0", lambda: pickle.dumps([[] for _ in range(3_000_000)])),
    "pickle of 5,000,000 numbers": (("trace", "FILE"), "rank_0", lambda: pickle.dumps([*range(5_000_000)])),
    "pickle that refers to itself": (("trace", "FILE"), "rank_0", lambda: _doubling_pickle(100)),
    "log of 2,000,000,000 ranks": (("evidence", "FILE"), "a.log", lambda: _log_of(2_000_000_000)),
    "rules of 1,000,000 sizes": (("tune", "--lint=FILE"), "rules", lambda: b"1\n2\n1\n2\n1000000\n0 1 0 0\n"),
    "UCC of 1 MB": (("tune", "--lint=FILE"), "u", lambda: b"UCC_TL_UCP_TUNE=" + b"allreduce:0-4k:@knomial#" * 40_000),
}  # fmt: skip
"""Small files that say much, as ``OBJECTS``."""


def _doubling_pickle(levels: int) -> bytes:
    """Return a pickle of a list that holds a list twice, and so on: 2^levels values in some bytes a level."""
    content: list[object] = []
    for _ in range(levels):
        content = [content, content]
    return pickle.dumps({"entries": content})


def _log_of(ranks: int) -> bytes:
    return nccl_log(0, 20).replace("nranks 4", f"nranks {ranks}").encode()


def foreign(draw: random.Random) -> tuple[str, Input]:
    """Return what is tried, and the command line with its file."""
    kind = draw.choice([OBJECTS, TEXTS, SHAPES])
    what = draw.choice([*kind])
    arguments, name, make = kind[what]
    content = make()
    if kind is OBJECTS:
        content = bad_json(draw, content)
    if kind is TEXTS:
        assert isinstance(content, bytes)
        change = draw.choice([damaged, lines_changed]) if content.count(b"\n") > 1 else damaged
        content = change(draw, content)
    assert isinstance(content, str | bytes)
    return what, Input(
        tuple(each.replace("FILE", name) for each in arguments), {name: content}, may_be_valid=True
    )


def trials(
    seed: int, number: int, _directory: Path, only: str | None = None
) -> Iterator[tuple[str, str, bool]]:
    """Yield what was tried, the defect in the response, and whether there is one; ``only`` is a kind of file."""
    draw = random.Random(seed)  # noqa: S311  no secret
    tried = 0
    while tried < number:
        what, tries = foreign(draw)
        if only in (None, what):
            tried += 1
            defect = in_child(lambda tries=tries: defect_of(tries))[0]
            yield (
                f"{what}: {' '.join(tries.arguments)}",
                defect or "ended as they should",
                bool(defect),
            )
