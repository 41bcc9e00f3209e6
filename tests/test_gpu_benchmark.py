"""tests/benchmarks/gpu.py, with the NCCL test library in place of GPUs: what runs, what is listed, and how it ends."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from catalogue_cases import case
from nvrtc_kernels import LIBRARIES, Nvrtc, Variant, defect

HERE = Path(__file__).parent
BENCHMARKS = HERE / "benchmarks"
for place in (BENCHMARKS, HERE / "gpu"):
    sys.path.append(str(place))

import costs  # noqa: E402
import gpu as benchmark  # noqa: E402
import mps  # noqa: E402
import order  # noqa: E402
import peer_kernel  # noqa: E402
import sanitizer  # noqa: E402
import steps  # noqa: E402
import suite  # noqa: E402
import timing  # noqa: E402
from here import Here  # noqa: E402
from reached import digest_of  # noqa: E402
from verdicts import MISSED, NOT_RUN, REACHED, WRONG, Verdict  # noqa: E402

from hpccoll.cases.case import Shape  # noqa: E402
from hpccoll.cases.skip_reason import MeasuredPlans  # noqa: E402
from hpccoll.schedule import Layout  # noqa: E402
from hpccoll.transports.nccl.pause import pause  # noqa: E402

PROGRAM = BENCHMARKS / "gpu.py"
WITHOUT_MPI = (
    "fold",
    "check",
    "bandwidth",
    "costs",
    "order",
    "failure",
    "nccl",
    "facts",
    "sanitizer",
)
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
BLOCKER = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
ALLOWED = {*sys.stdlib_module_names, "numpy", "msgspec", "cupy", "cupy_backends", "cupyx", "cuda", "hpccoll", %s}
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        first = name.partition(".")[0]
        return PathFinder.find_spec(name, path, target) if first in ALLOWED or first.startswith("_") else None
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Finder]
"""
"""A start of Python after which only NumPy, CuPy, msgspec and files of this project can be imported."""


def call(*words, **more):
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **NO_GPU, **more},
    )


def on_host(directory, out, only, *words, minutes=60, **more):
    return call(
        "--on-host", directory, "--out", out, "--minutes", minutes, "--only", only, *words, **more
    )


def records(out):
    return [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]


def by_status(out):
    found = {}
    for record in records(out):
        found.setdefault(record["status"], []).append(f"{record['what']}: {record['got']}")
    return found


def test_without_a_gpu_every_part_is_listed_with_the_reason_and_nothing_is_written(tmp_path):
    ran = call("--out", tmp_path / "out")
    assert ran.returncode == 2, ran.stdout + ran.stderr
    reason, *lines = ran.stdout.splitlines()
    assert reason.startswith("nothing was run: no CUDA device")
    assert [line.split(",")[0] for line in lines] == [
        name for name in benchmark.PARTS if name not in ("tests", "busbw")
    ]
    assert not (tmp_path / "out").exists()


def test_parts_over_nccl_without_ranks_run_on_the_test_library(nccl_library, tmp_path):
    ran = on_host(nccl_library, tmp_path, "check,order,nccl,costs")
    assert ran.returncode == 1, ran.stdout + ran.stderr  # some things need a GPU
    statuses = by_status(tmp_path)
    assert WRONG not in statuses
    assert not [line for line in statuses.get(MISSED, []) if not line.startswith("pause of")], (
        statuses
    )  # on a busy host
    # and NCCL's log
    assert [line.split(":")[0].split()[0] for line in statuses[NOT_RUN]] == ["costs", "hpccoll"]
    assert len(statuses["beyond"]) == 1
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("# NCCL test library, in host memory: no figure here is of a GPU\n")
    assert page.count("\n| ") - 2 == len(records(tmp_path))
    assert ran.stdout == page


@pytest.mark.mpi
@pytest.mark.long
def test_parts_with_ranks_run_on_the_test_library(mpiexec, nccl_library, tmp_path):  # noqa: ARG001  there is an MPI
    ran = on_host(nccl_library, tmp_path, "train,ranks,run,diagnosis")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    statuses = by_status(tmp_path)
    assert WRONG not in statuses, statuses
    assert all("of pauses, by the device" in line for line in statuses.get(MISSED, [])), statuses
    assert sum("ranks on 1 GPU" in line for line in statuses["reached"]) == 6
    assert sum("times between GPUs" in line for line in statuses["reached"]) == 1
    assert sum("communicators that each rank" in line for line in statuses["reached"]) == 2
    assert (
        sum(
            line.startswith(("a rank without GPU memory", "a rank that stops"))
            for line in statuses["reached"]
        )
        == 2
    )
    assert len(statuses[NOT_RUN]) == 2  # the rate of products, and what only NCCL's log shows


def test_parts_without_ranks_need_numpy_cupy_and_msgspec_alone(nccl_library, tmp_path):
    ours = {path.stem for place in (HERE, BENCHMARKS, HERE / "gpu") for path in place.glob("*.py")}
    (tmp_path / "sitecustomize.py").write_text(BLOCKER % ", ".join(map(repr, sorted(ours))))
    ran = on_host(nccl_library, tmp_path, "check,order,nccl,train", PYTHONPATH=str(tmp_path))
    statuses = by_status(tmp_path)
    assert not [line for line in statuses.get(MISSED, []) if "comes to its end" in line], (
        ran.stdout + ran.stderr
    )
    assert any("nccl4py is not installed" in line for line in statuses[NOT_RUN])
    assert any(line.startswith("train: ") and "mpi4py" in line for line in statuses[NOT_RUN])
    modules = sorted({part.module for name, part in benchmark.PARTS.items() if name in WITHOUT_MPI})
    program = (
        f"import sys; sys.path[:0] = {[str(BENCHMARKS), str(HERE)]}; import {', '.join(modules)}"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE.parent)])}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.fixture
def changed_library(nccl_library, tmp_path):
    """Return the function that returns the directory of a test library with another text in its fold kernel."""

    def changed(before, after):
        directory = tmp_path / "library"
        shutil.copytree(nccl_library, directory)
        source = (directory / "fold.cu").read_text()
        assert source.count(before) == 1
        (directory / "fold.cu").write_text(source.replace(before, after))
        flags = ["-O0", "-w", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run(
            ["g++", *flags, "-o", directory / "fold.so", directory / "fold.cpp"], check=True
        )
        return directory

    return changed


def test_a_wrong_result_ends_the_call_at_once(changed_library, tmp_path):
    loop = "for (int input = 1; input < count; ++input) value = folded("
    liar = changed_library(
        loop, loop.replace("count", "count - (at == 32)")
    )  # of one element the last input is left out
    ran = on_host(liar, tmp_path, "fold,check,order")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    *before, record = records(tmp_path)
    assert (record["part"], record["status"]) == ("fold", WRONG)
    assert "check" not in {earlier["part"] for earlier in before}  # it would follow
    assert "uint8" in record["what"]
    assert ": element " in record["what"]
    assert "exit code 3" in (tmp_path / "README.md").read_text()


def arguments(directory, *, shard=(1, 1)):
    return argparse.Namespace(
        shard=shard, keyword=None, on_host=directory, minutes=9, no_mps=False, only=None
    )


def test_a_part_that_hangs_is_ended_with_what_it_had_and_one_without_time_is_listed(
    changed_library, tmp_path
):
    kernel = "const long long elements = row[3],"
    # uint8 comes before int32
    hung = changed_library(kernel, f"while (sizeof(STORED) == 4) {{}} {kernel}")
    found = [*benchmark.in_own_process("fold", 30, tmp_path, arguments(hung), {})]
    assert [verdict.status for verdict in found] == ["reached", MISSED]
    assert found[-1].got.startswith("ended after 30 s")
    (left_out,) = benchmark.verdicts("fold", 1, tmp_path, time.monotonic() + 3, arguments(hung))
    assert (left_out.status, left_out.got[:8]) == (NOT_RUN, "no time:")


def test_shards_have_every_test_once():
    config = argparse.Namespace(hook=argparse.Namespace(pytest_deselected=lambda items: items))
    for count in (1, 4, 20):
        shards = [[*range(11)] for _ in range(count)]
        for number, items in enumerate(shards, 1):
            suite.Shard(f"{number}/{count}").pytest_collection_modifyitems(config, items)
        assert sorted(chain(*shards)) == [*range(11)]
        assert max(map(len, shards)) - min(map(len, shards)) <= 1


TESTS_THAT_FAIL = """
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu
RANK = "raise RuntimeError('all_reduce ring: too late')"


def test_of_ranks():
    ran = subprocess.run([sys.executable, "-c", RANK], stderr=subprocess.PIPE, text=True)
    print("said by the test")
    assert ran.returncode == 0, f"r0 | main\\n{ran.stderr}"


def test_of_a_warning():
    assert False, "r0 | main\\nTraceback:\\n  line\\nRuntimeWarning: overflow\\nends"


def test_of_values():
    assert 1 == 2


def test_that_hangs():
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open("started", "w") as file:
        print(started.pid, file=file)
    try:
        started.wait()
    except BaseException:
        started.kill()
        raise
"""
SUITE = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
import suite
from here import Here
suite.TESTS = Path("tests").resolve()
tell = lambda verdict: print(verdict.what, verdict.got, sep="; ", file=sys.stderr, flush=True)
[*suite.tests(Here(Path(), 60, tell=tell))]
"""


def test_a_failed_test_has_its_last_error_in_the_verdict_and_its_report_in_the_log_at_once(
    tmp_path,
):
    place = tmp_path / "tests" / "gpu" / "test_some.py"
    place.parent.mkdir(parents=True)
    place.write_text(TESTS_THAT_FAIL)
    log, started = tmp_path / "log", tmp_path / "started"
    with log.open("w") as said:
        program = [sys.executable, "-c", SUITE, BENCHMARKS]
        running = subprocess.Popen(
            program, cwd=tmp_path, stdout=said, stderr=subprocess.PIPE, text=True
        )
    try:
        lines = [running.stderr.readline() for _ in range(3)]
        known = log.read_text()
        while not (started.exists() and started.read_text().endswith("\n")):
            assert running.poll() is None
            time.sleep(0.01)
    finally:
        running.terminate()  # as gpu.py does when the time is over
        running.communicate(timeout=60)
    assert [line.rpartition(" ")[0].rpartition(" ")[0] for line in lines] == [
        "test_some.py::test_of_ranks; RuntimeError: all_reduce ring: too late",
        "test_some.py::test_of_a_warning; RuntimeWarning: overflow",
        "test_some.py::test_of_values; assert 1 == 2",
    ]
    for words in (
        "test_some.py::test_of_ranks\n",
        "Traceback (most recent call last)",
        "said by the test",
    ):
        assert words in known
    with pytest.raises(ProcessLookupError):  # the test that hung has ended what it started
        os.kill(int(started.read_text()), 0)


FIRST = (
    "peer",
    "native_stall",
    "every_case",
    "one_gpu",
    "variants",
    "figures",
    "costs",
    "nccl_tests",
    "phases",
)
"""The parts that decide something that no call has decided yet, in their order."""


def test_the_first_parts_are_tried_within_nine_minutes_each_with_a_question_that_it_decides():
    parts = [*benchmark.PARTS.items()]
    assert [name for name, _ in parts[: len(FIRST)]] == [*FIRST]
    assert sum(part.seconds for _, part in parts[: len(FIRST)]) <= 9 * 60
    assert all("?" in part.decides for _, part in parts)
    assert benchmark.PARTS["every_case"].shares == benchmark.IN_TURNS


def test_a_run_is_complete_if_it_leaves_out_cases_with_the_schedule_of_another_one(
    monkeypatch, tmp_path
):
    plans = MeasuredPlans(Layout.of(2), Shape(1, 2))
    reasons = []
    for algorithm in ("ring", "direct"):
        over_nccl = case(algorithm=algorithm, transport="nccl", device="cuda")
        reasons.append(plans.skip_reason(over_nccl))
    rows = []
    for reason in reasons:
        rows.append(SimpleNamespace(status="skipped" if reason else "ok", reason=reason))
    assert [row.status for row in rows] == ["ok", "skipped"]
    monkeypatch.setattr(peer_kernel, "measured", lambda *_, **_more: (rows, len(rows), ""))
    verdict, right = peer_kernel.right_rows(Here(tmp_path, 60), 2, "right rows")
    assert (verdict.status, right) == (REACHED, rows[:1])


@pytest.mark.parametrize(
    ("code", "output", "status"),
    [
        (0, "", REACHED),
        (None, "", MISSED),
        (1, "AssertionError: not what lockstep has: all_reduce", WRONG),
        (1, "AssertionError: on the stream: all_reduce", MISSED),
    ],
)
def test_only_other_bits_of_the_peer_kernel_are_a_wrong_result(
    monkeypatch, tmp_path, code, output, status
):
    monkeypatch.setattr(peer_kernel, "launched", lambda *_: (code, output))
    verdict = peer_kernel.contract(Here(tmp_path, 60), 2, "bits")
    assert verdict.status == status


@pytest.mark.parametrize(("microseconds", "status"), [(19, REACHED), (21, MISSED)])
def test_a_ring_of_the_peer_kernel_is_held_against_a_fifth_of_that_over_nccl(
    tmp_path, microseconds, status
):
    rows = []
    for transport, protocol, time_us in (
        ("nccl", None, 100),
        ("peer", "ll", microseconds),
        ("peer", "simple", 50),
    ):
        params = {"protocol": protocol} if protocol else {}
        seconds = time_us * 1e-6
        row = {"bytes": 64, "algorithm": "ring", "transport": transport, "median_s": seconds}
        rows.append(SimpleNamespace(params=params, **row))
    *times, verdict = peer_kernel.times_of_steps(Here(tmp_path, 60), 8, rows)
    assert [time.got for time in times] == [
        "100, 7.14 a step",
        f"{microseconds}, {microseconds / 14:.3g} a step",
        "50, 3.57 a step",
    ]
    assert verdict.status == status


def test_every_part_has_a_function_and_files_that_exist():
    for name, part in benchmark.PARTS.items():
        source = (BENCHMARKS / f"{part.module}.py").read_text()
        assert f"def {part.function or name}(here: Here)" in source
        for pattern in part.files:
            assert any(HERE.parent.glob(pattern)), (name, pattern)


@pytest.mark.parametrize(
    ("no_mps", "shares", "said"),
    [
        (False, benchmark.SERVED, "under MPS"),
        (False, benchmark.IN_TURNS, "in turns, as"),
        (True, benchmark.SERVED, "in turns: --no-mps"),
    ],
)
def test_ranks_share_a_gpu_under_mps_unless_the_call_or_the_part_has_them_take_turns(
    monkeypatch, no_mps, shares, said
):
    served = {"CUDA_MPS_PIPE_DIRECTORY": "there"}
    monkeypatch.setattr(
        benchmark, "mps_server", lambda: contextlib.nullcontext((served, "under MPS"))
    )
    part = benchmark.PARTS["ranks"]._replace(shares=shares)
    with contextlib.ExitStack() as stack:
        more, how = benchmark.sharing(part, stack, no_mps=no_mps)
    assert how.startswith(said)
    assert more == (served if said == "under MPS" else {})


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Return the function that makes a call of parts that are played, and returns which of them ran."""
    monkeypatch.setattr(benchmark, "lacking", lambda *_: None)

    def played(statuses, *, minutes=9, only=None):
        ran = []

        def in_own_process(name, limit, *_):
            ran.append((name, limit))
            page = (tmp_path / "README.md").read_text()
            # the page has what was reached before
            assert all(f"of {earlier}" in page for earlier, _ in ran[:-1])
            yield Verdict(f"of {name}", statuses.get(name, REACHED))

        monkeypatch.setattr(benchmark, "in_own_process", in_own_process)
        asked = arguments("there")
        asked.only, asked.out, asked.minutes = only, tmp_path, minutes
        code = benchmark.call(asked)
        return code, [name for name, _ in ran]

    return played


def test_parts_that_two_calls_have_reached_are_left_out_and_listed_until_one_of_their_files_changes(
    played, tmp_path, monkeypatch
):
    everything = benchmark.chosen(None, 1)
    missed = {"silent": MISSED}
    assert played(missed, minutes=60) == (1, everything)
    assert played(missed, minutes=60) == (1, everything)
    assert played(missed, minutes=60) == (1, ["silent"])
    page = (tmp_path / "README.md").read_text()
    listed = ", ".join(name for name in everything if name != "silent")
    assert f"| reached twice, and unchanged since | {listed} |  | skipped |" in page
    assert played({}, minutes=60, only=["fold"]) == (0, ["fold"])
    digest = benchmark.Part.digest.fget
    changed = property(lambda part: "other" if part.module == "folds" else digest(part))
    monkeypatch.setattr(benchmark.Part, "digest", changed)
    assert played({}, minutes=60) == (0, ["silent", "fold"])


def test_a_part_that_could_not_run_is_tried_again_and_a_wrong_result_ends_the_call(played):
    assert played({"fold": NOT_RUN}, only=["fold", "check"]) == (1, ["fold", "check"])
    assert played({"fold": WRONG}, only=["fold", "check"]) == (3, ["fold"])
    first, *_ = played({}, minutes=0)[1] or ["none"]
    assert first == "none"  # no part has time


def test_a_digest_changes_with_a_file_or_its_name_and_with_nothing_else(tmp_path):
    (tmp_path / "a.py").write_text("1")
    before = digest_of(["*.py"], tmp_path)
    (tmp_path / "a.pyc").write_text("2")
    (tmp_path / "b").mkdir()
    assert digest_of(["*"], tmp_path) == before
    (tmp_path / "a.py").write_text("2")
    assert digest_of(["*.py"], tmp_path) != before
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    assert digest_of(["*.py"], tmp_path) != before


@pytest.mark.mpi
@pytest.mark.long
def test_the_part_of_the_peer_kernel_runs_on_the_test_library(mpiexec, nccl_library, tmp_path):  # noqa: ARG001
    ran = on_host(nccl_library, tmp_path, "peer")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    statuses = by_status(tmp_path)
    assert [line.partition(":")[0] for line in statuses["reached"]] == [
        "one kernel on the memory of peers, 2 ranks",
        "rings of one kernel and of NCCL's calls, 2 ranks",
    ]
    for way in ("nccl", "peer ll", "peer simple"):
        assert any(f"over {way}: us" in line for line in statuses["recorded"])


@pytest.mark.mpi
@pytest.mark.long
def test_parts_on_ranks_that_share_a_gpu_run_on_the_test_library(mpiexec, nccl_library, tmp_path):  # noqa: ARG001
    ran = on_host(nccl_library, tmp_path, "one_gpu,variants,phases,silent,launch_order")
    # the library knows no peers, and one algorithm
    assert ran.returncode == 1, ran.stdout + ran.stderr
    statuses = by_status(tmp_path)
    assert WRONG not in statuses
    text = "\n".join(statuses["reached"])
    for words in (
        "two ranks of one GPU over NCCL 2.30.0: all right",
        "nccl-simple on 2 ranks",
        "the launch ends: exit",
    ):
        assert words in text
    assert text.count("10 steps of tp=2, pp=2 on 4 ranks") == 2
    assert sum("a step with graph=" in line for line in statuses["recorded"]) == 4
    assert not any(
        "passes of cases" in line and line.startswith("0 ") for line in statuses["recorded"]
    )
    assert {path.name for path in (tmp_path / "logs").iterdir()} > {
        "peers",
        "nccl-tree",
        "nccl-nvls",
    }


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return the function that puts a shell program of a name before all others."""

    def put(name, text):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")

    return put


@pytest.mark.parametrize(("serves", "said"), [(True, "under MPS"), (False, "in turns")])
def test_a_server_of_mps_has_directories_of_its_own_and_is_ended_by_quit(
    command, tmp_path, monkeypatch, serves, said
):
    log = tmp_path / "control.log"
    says = 'echo "$* $CUDA_MPS_PIPE_DIRECTORY $(test -d "$CUDA_MPS_LOG_DIRECTORY" && echo there)"'
    command(mps.CONTROL, f'{says} >> {log}\ntest "$1" = -d || cat >> {log}')
    monkeypatch.setattr(mps, "CLIENT", "" if serves else "raise SystemExit('no client')")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with mps.mps_server() as (more, how):
        started = log.read_text()
    place = started.split()[1]
    assert started == f"-d {place} there\n"
    assert log.read_text() == f"{started} {place} there\n{mps.QUIT}"
    assert how.startswith(said)
    assert serves or "no client" in how
    assert more.get("CUDA_MPS_PIPE_DIRECTORY") == (place if serves else None)
    assert not Path(place).exists()


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("exit 0", ["reached", "reached"]),
        ("echo '========= Invalid __global__ write error'; exit 9", [WRONG, WRONG]),
        ("exit 1", [NOT_RUN, NOT_RUN]),
        (None, [NOT_RUN, NOT_RUN]),
    ],
)
def test_what_compute_sanitizer_finds_is_a_wrong_result(
    command, tmp_path, monkeypatch, text, statuses
):
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    if text:
        command("compute-sanitizer", text)
    elif sanitizer.program():
        pytest.skip("there is one on this machine")
    found = [*sanitizer.sanitizer(Here(tmp_path, 60))]
    assert [verdict.status for verdict in found] == statuses


@pytest.fixture
def host(nccl_library, tmp_path):
    return Here(tmp_path, 60, on_host=nccl_library)


def test_costs_are_measured_in_order(host, monkeypatch):
    monkeypatch.setattr(costs, "empty_kernel", lambda gpu: partial(pause(gpu), 0))
    found = [*costs.costs(host)]
    assert len({verdict.what for verdict in found}) == len(found) == 15
    assert all(isinstance(verdict.got, int | float) and verdict.got > 0 for verdict in found)
    assert found[-1].asked == "below 1"


def test_calls_are_timed_back_to_back_when_the_host_has_queued_all_of_them(host, monkeypatch):
    gpu, queued, events = host.gpu, [], []
    make_event = gpu.event
    monkeypatch.setattr(gpu, "event", lambda: events.append(make_event()) or events[-1])
    monkeypatch.setattr(timing, "HELD_NS", 1)  # too short: the host takes longer

    def call():
        time.sleep(0.001)
        queued.append(time.perf_counter_ns())

    assert timing.device_seconds(gpu, call, 5) >= 0
    start, _end = events
    assert start.at_ns > queued[-1]
    timing.launch_seconds(gpu, call, 5)
    assert events[2].at_ns < queued[-1]


def test_a_step_of_products_is_held_against_the_same_products_alone(host, monkeypatch):
    queued = []
    monkeypatch.setattr(
        type(host.gpu),
        "products",
        lambda _gpu, most: lambda rows, number: queued.append((rows, number, most)),
    )
    step = steps.prepared(host, {**steps.MULTIPLIED, "scale": 1 << 12})
    in_step = queued.copy()
    queued.clear()
    step.run()
    of_a_run, queued[:] = queued.copy(), []
    steps.products_alone(host, step)
    step.close()
    assert of_a_run
    repeated, rest = divmod(len(queued), len(of_a_run))
    assert (rest, repeated > steps.RUNS) == (0, True)
    assert queued == of_a_run * repeated
    assert {rows for rows, _, _ in in_step} == {rows for rows, _, _ in of_a_run}  # warmed before


@pytest.mark.parametrize("major", LIBRARIES)
def test_the_kernels_of_the_benchmark_compile(require, tmp_path, major):
    nvrtc = Nvrtc(major)
    require(
        nvrtc.library,
        f"NVRTC {major} is not installed: pip install 'hpccoll[test]' does so on Linux",
    )
    for number, text in enumerate((costs.EMPTY, order.TICKS, order.STORE)):
        source = tmp_path / f"{number}.cu"
        source.write_text(text)
        assert defect(nvrtc, Variant(source, {}), "sm_90") is None
