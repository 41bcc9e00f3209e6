"""tests/benchmarks/gpu.py, with the NCCL test library in place of GPUs: what runs, what is listed, and how it ends."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from nvrtc_kernels import LIBRARIES, Nvrtc, Variant, defect

HERE = Path(__file__).parent
BENCHMARKS = HERE / "benchmarks"
for place in (BENCHMARKS, HERE / "gpu"):
    sys.path.append(str(place))

import costs  # noqa: E402
import folds  # noqa: E402
import gpu as benchmark  # noqa: E402
import mps  # noqa: E402
import order  # noqa: E402
import rank_gpu  # noqa: E402
import rates  # noqa: E402
import sanitizer  # noqa: E402
from here import Here  # noqa: E402
from verdicts import MISSED, NOT_RUN, WRONG  # noqa: E402

from hpccoll.transports.nccl.pause import pause  # noqa: E402

PROGRAM = BENCHMARKS / "gpu.py"
WITHOUT_MPI = "fold", "check", "bandwidth", "costs", "order", "failure", "nccl", "facts", "sanitizer"
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
        [sys.executable, PROGRAM, *map(str, words)], capture_output=True, text=True, check=False,
        env={**os.environ, **NO_GPU, **more},
    )  # fmt: skip


def on_host(directory, out, only, *words, minutes=60, **more):
    return call("--on-host", directory, "--out", out, "--minutes", minutes, "--only", only, *words, **more)


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
    assert [line.split(",")[0] for line in lines] == [name for name in benchmark.PARTS if name != "tests"]
    assert not (tmp_path / "out").exists()


def test_parts_that_are_not_named_are_refused_with_the_valid_ones():
    ran = call("--only", "fold,flod")
    assert ran.returncode == 2
    assert f"'flod'; valid: {', '.join(benchmark.PARTS)}" in ran.stderr


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "a/b", "1/0"])
def test_a_shard_is_one_of_so_many(text):
    with pytest.raises(argparse.ArgumentTypeError, match="valid: K/N"):
        benchmark.shard_of(text)


def test_parts_over_nccl_without_ranks_run_on_the_test_library(nccl_library, tmp_path):
    ran = on_host(nccl_library, tmp_path, "check,order,nccl,costs")
    assert ran.returncode == 1, ran.stdout + ran.stderr  # some things need a GPU
    statuses = by_status(tmp_path)
    assert WRONG not in statuses
    assert not [line for line in statuses.get(MISSED, []) if not line.startswith("pause of")], (
        statuses
    )  # on a busy host
    assert [line.split(":")[0].split()[0] for line in statuses[NOT_RUN]] == ["costs", "hpccoll"]  # and NCCL's log
    assert len(statuses["beyond"]) == 1
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("# NCCL test library, in host memory: no figure here is of a GPU\n")
    assert page.count("\n| ") - 2 == len(records(tmp_path))
    assert ran.stdout == page


@pytest.mark.mpi
@pytest.mark.long
def test_parts_with_ranks_run_on_the_test_library(mpiexec, nccl_library, tmp_path):  # noqa: ARG001  there is an MPI
    ran = on_host(nccl_library, tmp_path, "train,ranks,run")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    statuses = by_status(tmp_path)
    assert WRONG not in statuses, statuses
    assert all("of pauses, by the device" in line for line in statuses.get(MISSED, [])), statuses
    assert sum("ranks on 1 GPU" in line for line in statuses["reached"]) == 6
    assert len(statuses[NOT_RUN]) == 2  # the rate of products, and what only NCCL's log shows


def test_parts_without_ranks_need_numpy_cupy_and_msgspec_alone(nccl_library, tmp_path):
    ours = {path.stem for place in (HERE, BENCHMARKS, HERE / "gpu") for path in place.glob("*.py")}
    (tmp_path / "sitecustomize.py").write_text(BLOCKER % ", ".join(map(repr, sorted(ours))))
    ran = on_host(nccl_library, tmp_path, "check,order,nccl,train", PYTHONPATH=str(tmp_path))
    statuses = by_status(tmp_path)
    assert not [line for line in statuses.get(MISSED, []) if "comes to its end" in line], ran.stdout + ran.stderr
    assert any("nccl4py is not installed" in line for line in statuses[NOT_RUN])
    assert any(line.startswith("train: ") and "mpi4py" in line for line in statuses[NOT_RUN])
    modules = sorted({part.module for name, part in benchmark.PARTS.items() if name in WITHOUT_MPI})
    program = f"import sys; sys.path[:0] = {[str(BENCHMARKS), str(HERE)]}; import {', '.join(modules)}"
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
        subprocess.run(["g++", *flags, "-o", directory / "fold.so", directory / "fold.cpp"], check=True)
        return directory

    return changed


def test_a_wrong_result_ends_the_call_at_once(changed_library, tmp_path):
    loop = "for (int input = 1; input < count; ++input) value = folded("
    liar = changed_library(
        loop, loop.replace("count", "count - (at == 32)")
    )  # of one element the last input is left out
    ran = on_host(liar, tmp_path, "fold,check,order")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    (record,) = records(tmp_path)
    assert (record["part"], record["status"]) == ("fold", WRONG)
    assert "uint8" in record["what"]
    assert ": element " in record["what"]
    assert "exit code 3" in (tmp_path / "README.md").read_text()


def arguments(directory, *, shard=(1, 1)):
    return argparse.Namespace(shard=shard, keyword=None, on_host=directory, minutes=9)


def test_a_part_that_hangs_is_ended_and_what_it_had_is_kept(changed_library, tmp_path):
    kernel = "const long long elements = row[3],"
    hung = changed_library(kernel, f"while (sizeof(STORED) == 4) {{}} {kernel}")  # uint8 comes before int32
    found = [*benchmark.in_own_process("fold", 15, 15, tmp_path, arguments(hung), {})]
    assert [verdict.status for verdict in found] == ["reached", MISSED]
    assert found[-1].got.startswith("ended after 15 s")


def test_a_part_that_dies_says_why_and_the_next_one_runs(tmp_path):
    (tmp_path / "library").mkdir()
    ran = on_host(tmp_path / "library", tmp_path, "check,order")
    assert ran.returncode == 1
    first, second, _ = records(tmp_path)
    assert (first["what"], second["what"]) == ("check comes to its end", "order comes to its end")
    assert "libnccl.so.2" in first["got"]
    assert "Traceback" in (tmp_path / "check.log").read_text()


def test_a_part_for_which_no_time_is_left_is_listed(nccl_library, tmp_path):
    ran = on_host(nccl_library, tmp_path, "fold,order", minutes=0.1)
    assert ran.returncode == 1
    statuses = by_status(tmp_path)
    assert [line.split(":")[0] for line in statuses[NOT_RUN]] == ["fold", "order"]
    assert all("no time: it takes about" in line for line in statuses[NOT_RUN])


def test_a_killed_call_leaves_what_it_had(nccl_library, tmp_path):
    words = ["--on-host", nccl_library, "--out", tmp_path, "--only", "fold"]
    with subprocess.Popen([sys.executable, PROGRAM, *map(str, words)], stdout=subprocess.PIPE, text=True) as started:
        for line in started.stdout:
            if line.startswith("| fold"):
                break
        started.send_signal(signal.SIGKILL)
    found = records(tmp_path)
    assert [record["part"] for record in found] == ["fold"] * len(found)
    assert found[-1]["what"] in (tmp_path / "README.md").read_text()


def test_a_later_call_adds_a_section_and_records(nccl_library, tmp_path):
    for _ in range(2):
        on_host(nccl_library, tmp_path, "failure")
    assert (tmp_path / "README.md").read_text().count("\n## ") == 2
    assert [record["part"] for record in records(tmp_path)] == ["failure", "beyond"] * 2


def test_shards_have_every_test_once():
    import suite

    tests = [argparse.Namespace(name=name, get_closest_marker=lambda _: True) for name in range(11)]
    config = argparse.Namespace(hook=argparse.Namespace(pytest_deselected=lambda items: left.append(len(items))))
    for count in (1, 2, 4, 20):
        chosen, left = [], []
        for number in range(1, count + 1):
            items = [*tests]
            suite.Shard(f"{number}/{count}").pytest_collection_modifyitems(config, items)
            assert len(items) in (len(tests) // count, -(-len(tests) // count))
            chosen += items
        assert sorted(each.name for each in chosen) == [each.name for each in tests]
        assert sum(left) == (count - 1) * len(tests)


def test_the_tests_of_a_shard_are_listed_with_their_outcomes(nccl_library, tmp_path):
    ran = on_host(nccl_library, tmp_path, "tests", "--shard", "2/8", "-k", "fault_of_the_matrix")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    tests = [record for record in records(tmp_path) if record["part"] == "tests"]
    assert len(tests) == 3  # of 4 x 6
    assert {(record["status"], record["got"].partition(";")[0]) for record in tests} == {(NOT_RUN, "no CUDA device")}


def test_the_outcome_of_a_test_is_written_when_it_is_known(tmp_path, pytestconfig):
    import suite

    (tmp_path / "test_it.py").write_text(f"import pytest\npytestmark = pytest.mark.gpu\n{OUTCOMES}")
    read, write = os.pipe()
    options = ["-p", "suite", "--gpu-results", str(write), "-p", "no:cacheprovider", "-c", str(pytestconfig.inipath)]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)], pass_fds=[write], check=False, cwd=tmp_path,
        stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read) as lines:
        found = [json.loads(line) for line in lines]
    assert [(each["test"].rpartition("::")[2], suite.STATUSES[each["status"]], each["reason"]) for each in found] == [
        ("test_a", "reached", ""), ("test_b", MISSED, "assert 1 == 2"), ("test_c", NOT_RUN, "because"),
        ("test_d", MISSED, "ValueError: failed on setup"),
    ]  # fmt: skip


OUTCOMES = """
@pytest.fixture
def broken():
    raise ValueError("failed on setup")

def test_a(): pass
def test_b(): assert 1 == 2
def test_c(): pytest.skip("because")
def test_d(broken): pass
"""


# ---- the rooms ------------------------------------------------------------------------------------------------------


def test_the_reference_of_bfloat16_is_that_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = folds.values("float32", 100_000, 1)
    with np.errstate(all="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert not len(folds.differing(folds.rounded_to_bfloat16(values), wanted, "bfloat16"))


@pytest.mark.parametrize("element", [*folds.KERNEL_TYPES])
def test_the_ranges_of_a_launch_have_every_alignment_tail_and_number_of_inputs(element):
    wave, count = folds.wave(element, "avg")
    assert {len(each.inputs) for each in wave} == {*range(1, folds.INPUTS + 1)}
    assert {len(each.out) for each in wave} >= {*range(1, folds.TAILS)}
    assert {each.divisor for each in wave} == {*folds.DIVISORS}
    assert any(each.out == each.inputs[0] for each in wave)
    vector = 16 // (2 if element == "bfloat16" else np.dtype(element).itemsize)
    off = {tuple(span.start % vector for span in (each.out, *each.inputs)) for each in wave}
    assert any({*each} == {0} for each in off)
    assert any(len({*each}) == 1 and each[0] for each in off)
    assert any(len({*each}) > 1 for each in off)
    assert max(each.out.stop for each in wave) <= count
    stops = 0
    for each in wave:  # with a gap before each, which has to stay as it is
        assert each.out.start > stops or stops == 0
        stops = each.out.stop


@pytest.mark.parametrize("element", ["uint8", "float16", "bfloat16", "float64"])
def test_values_have_every_kind_and_any_difference_is_found(element):
    values = folds.values(element, 5000, 1)
    if element == "uint8":
        assert len({*values.tolist()}) == 256
    else:
        wide = folds.widened(values, element)
        assert np.isnan(wide).any()
        assert np.isposinf(wide).any()
        assert ((wide == 0) & np.signbit(wide)).any()
    for place in np.flatnonzero(folds.widened(values, element) == folds.widened(values, element))[:20]:
        other = values.copy()
        other.view(f"u{values.itemsize}")[place] ^= 1
        assert folds.differing(other, values, element).tolist() == [place]


def test_rank_k_has_gpu_k_and_ranks_share_only_where_gpus_are_too_few(monkeypatch):
    shared = []
    monkeypatch.setattr(rank_gpu, "Gpu", lambda number: number)
    monkeypatch.setattr(rank_gpu, "share_a_gpu", shared.append)
    for gpus, ranks in product((1, 2, 3, 8), (1, 2, 3, 4)):
        monkeypatch.setattr(rank_gpu.gpu, "device_count", lambda gpus=gpus: gpus)
        ranked = [rank_gpu.gpu_of_rank(argparse.Namespace(rank=rank, size=ranks)) for rank in range(ranks)]
        assert ranked == [rank % gpus for rank in range(ranks)]
        assert shared == ([*range(ranks)] if ranks > gpus else [])
        shared.clear()


def test_what_one_gpu_cannot_show_is_run_on_several_and_listed_on_one():
    assert [name for name, part in benchmark.PARTS.items() if part.several] == ["busbw"]
    (verdict,) = benchmark.verdicts("busbw", 1, Path(), time.monotonic() + 999, arguments(None))
    assert (verdict.status, verdict.got) == ("beyond", "one GPU")


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
def test_a_server_of_mps_has_directories_of_its_own_and_is_ended_by_quit(command, tmp_path, monkeypatch, serves, said):
    log = tmp_path / "control.log"
    says = 'echo "$* $CUDA_MPS_PIPE_DIRECTORY $(test -d "$CUDA_MPS_LOG_DIRECTORY" && echo there)"'
    command(mps.CONTROL, f'{says} >> {log}\ntest "$1" = -d || cat >> {log}')
    monkeypatch.setattr(mps, "CLIENT", "" if serves else "raise SystemExit('no client')")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with mps.mps_server() as (more, how):
        started = log.read_text()
    place = started.split()[1]
    assert started == f"-d {place} there\n"
    assert log.read_text() == f"{started} {place} there\nquit\n"
    assert how.startswith(said)
    assert serves or "no client" in how
    assert more.get("CUDA_MPS_PIPE_DIRECTORY") == (place if serves else None)
    assert not Path(place).exists()


def test_without_mps_ranks_take_turns(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with mps.mps_server() as (more, how):
        assert (more, how) == ({}, f"in turns: there is no {mps.CONTROL}")


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("exit 0", ["reached", "reached"]),
        ("echo '========= Invalid __global__ write error'; exit 9", [WRONG, WRONG]),
        ("exit 1", [NOT_RUN, NOT_RUN]),
        (None, [NOT_RUN, NOT_RUN]),
    ],
)
def test_what_compute_sanitizer_finds_is_a_wrong_result(command, tmp_path, monkeypatch, text, statuses):
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
    assert len({verdict.what for verdict in found}) == len(found) == 13
    assert all(isinstance(verdict.got, int | float) and verdict.got > 0 for verdict in found)
    assert found[-1].asked == "below 1"


def test_bandwidths_are_shares_of_that_of_a_copy(host, monkeypatch):
    monkeypatch.setattr(rates, "SIZES", (64 << 10, 1 << 40))
    monkeypatch.setattr(rates, "LARGE", 64 << 10)
    monkeypatch.setattr(rates, "copy_call", lambda gpu, nbytes: rates.fold_call(gpu, "float32", nbytes, 1))
    monkeypatch.setattr(rates, "pinned_copies", lambda _gpu: [])
    ran = []
    monkeypatch.setattr(rates, "in_turn", lambda one, other, **_: ran.append((one(), other())) or 1.0)
    copy, *shares, left_out = rates.bandwidth(host)
    assert copy.got > 0
    assert left_out.got.startswith("left out: more than a tenth")
    assert [verdict.asked for verdict in shares] == ["", "at least 0.90", "", "at least 0.90"] + ["at least 0.80"] * 2
    assert len(ran) == len(shares)
    assert all(seconds > 0 for pair in ran for seconds in pair)
    # Where all take as long as a copy, the share is of the bytes moved alone: n inputs and a result, of two.
    assert [verdict.got for verdict in shares] == [1.0, 1.5, 2.5, 1.5, 0.5, 0.5]


@pytest.mark.parametrize("major", LIBRARIES)
def test_the_kernels_of_the_benchmark_compile(require, tmp_path, major):
    nvrtc = Nvrtc(major)
    require(nvrtc.library, f"NVRTC {major} is not installed: pip install 'hpccoll[test]' does so on Linux")
    for number, text in enumerate((costs.EMPTY, order.TICKS, order.STORE)):
        source = tmp_path / f"{number}.cu"
        source.write_text(text)
        assert defect(nvrtc, Variant(source, {}), "sm_90") is None
