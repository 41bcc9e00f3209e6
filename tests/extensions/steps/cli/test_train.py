"""``hpccoll train``: training steps from a command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT, invoke, rows

from hpccoll.extensions.steps.cli.train import TRAIN
from hpccoll.store.load_results import read_results

FILE = """
modules:
  - {name: body, tensors: {weight: 9000}, forward_flops: 2.4e+3}
  - {name: head, tensors: {weight: 500, bias: 10}}
"""


def test_a_dry_run_of_several_workloads_is_a_list_of_them():
    ended = invoke("train", "--dry-run", "--json", "--bucket", "5M,25M", "--ranks", "4")
    assert ended.code == 0
    small, large = json.loads(ended.out)
    assert large["buckets"] == [30257056, 26255360, 28366848, 17348864]
    assert len(small["buckets"]) > len(large["buckets"])
    alone = json.loads(invoke("train", "--dry-run", "--json").out)
    assert alone["buckets"] == [8196000, 31502336, 26255360, 26550272, 9724160]


@pytest.mark.parametrize(
    ("options", "key"), [(["--scale", "4"], "scale"), (["--ranks", "40"], "ranks")]
)
def test_a_dry_run_refuses_what_a_run_refuses(options, key):
    ended = invoke("train", "--dry-run", "--model", "digits", *options)
    assert (ended.code, ended.err.startswith(f"hpccoll: {key}: ")) == (2, True)


@pytest.mark.parametrize("key", ["overlap", "sequence", "recompute", "feedback"])
def test_a_key_that_is_on_or_off_is_on_without_a_value(key):
    given = [["1"], ["0,1"]]
    assert [
        vars(TRAIN.build_parser().parse_args([f"--{key}", *each]))[key] for each in ([], ["0,1"])
    ] == given


def test_a_dry_run_ends_in_silence_if_nobody_reads_on():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hpccoll", "train", "--dry-run"]
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.mpi
def test_steps_of_every_combination_are_measured_and_resumed(tmp_path, mpiexec):
    model, out = tmp_path / "mine.yaml", tmp_path / "steps.h5"
    model.write_text(FILE)
    arguments = [
        "train",
        "--model",
        model,
        "--compute-us",
        "500",
        "--overlap",
        "0,1",
        "-a",
        "ring,native,null",
        "-n",
        "6",
        "--rounds",
        "1",
        "--out",
        out,
    ]
    first = mpiexec(2, "-m", "hpccoll", *arguments)
    assert first.returncode == 0, first.stderr
    assert len(rows(first.stdout)) == 6
    read = read_results([out])
    assert {row.status for row in read.rows} == {"ok"}
    assert {row.bytes for row in read.rows} == {4 * 9510}
    assert {row.params["model"] for row in read.rows} == {"mine"}
    assert all(row.median_s >= 500e-6 for row in read.rows)
    again = mpiexec(2, "-m", "hpccoll", *arguments)
    assert again.returncode == 0, again.stderr
    assert "nothing left to measure" in again.stdout
    model.write_text(FILE.replace("9000", "9001"))
    other = mpiexec(2, "-m", "hpccoll", *arguments)
    assert other.returncode == 2
    assert str(Path(out)) in other.stderr


def test_a_dry_run_lists_the_chain_of_each_compression():
    dense, halves, few = json.loads(
        invoke(
            "train", "--dry-run", "--json", "--compress", "none,fp16,topk=0.01", "--buckets", "one"
        ).out
    )
    chains = [
        [(each["label"], each["collective"], each["dtype"]) for each in run["operations"]]
        for run in (dense, halves, few)
    ]
    assert chains[0] == [("bucket 1", "all_reduce", "float32")]
    assert chains[1] == [
        ("bucket 1 encode", "codec", "float32"), ("bucket 1", "all_reduce", "float16"),
        ("bucket 1 decode", "codec", "float32"),
    ]  # fmt: skip
    assert [name for name, _, _ in chains[2]] == [
        "bucket 1 select",
        "bucket 1 kept",
        "bucket 1 add",
    ]
    text = invoke("train", "--dry-run", "--compress", "fp8_e4m3").out
    assert all(
        f" {word} " in text
        for word in ("scale", "encode", "all_to_all", "sum", "all_gather", "decode")
    )


@pytest.mark.mpi
def test_compressed_steps_are_measured_beside_the_dense_one_with_the_time_of_their_codecs(
    tmp_path, mpiexec
):
    model, out = tmp_path / "mine.yaml", tmp_path / "steps.h5"
    model.write_text(FILE)
    ended = mpiexec(
        3,
        "-m",
        "hpccoll",
        "train",
        "--model",
        model,
        "--compute",
        "none",
        "--compress",
        "none,bf16,fp8_e5m2,topk=5%",
        "--feedback",
        "0,1",
        "-a",
        "ring",
        "-n",
        "4",
        "--rounds",
        "2",
        "--out",
        out,
    )
    assert ended.returncode == 0, ended.stderr
    found = {
        (row.params.get("compress", "none"), row.params.get("feedback", 0)): row
        for row in read_results([out]).rows
    }
    assert found.keys() == {("none", 0)} | {
        (name, of) for name in ("bf16", "fp8_e5m2", "topk=5%") for of in (0, 1)
    }
    assert {(row.status, row.wrong, row.overflowed, row.not_finite) for row in found.values()} == {
        ("ok", 0, None, None)
    }
    assert {name for name, row in found.items() if row.codec_s is None} == {("none", 0)}
    assert all(0 < row.codec_s < row.median_s for name, row in found.items() if name != ("none", 0))


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["fp16", "-d", "int32"], "int32"),
        (["fp16", "--sharding", "fsdp"], "fsdp"),
        (["topk=0%"], "topk=0%"),
        (["topk=51%"], "50%"),
        (["zip"], "zip"),
        (["fp16", "-o", "max"], "max"),
    ],
)
def test_what_cannot_be_compressed_is_refused_in_one_line(mpiexec, options, named):
    ended = mpiexec(
        2, "-m", "hpccoll", "train", "--scale", "4096", "-a", "ring", "--compress", *options
    )
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if "hpccoll" in line]
    assert named in line


@pytest.mark.mpi
def test_computations_that_are_too_small_for_a_product_of_matrices_are_named(tmp_path, mpiexec):
    model = tmp_path / "mine.yaml"
    model.write_text(FILE)
    arguments = [
        "train",
        "--model",
        model,
        "--compute",
        "gemm,none",
        "-a",
        "native",
        "-n",
        "6",
        "--rounds",
        "1",
    ]
    small = mpiexec(2, "-m", "hpccoll", *arguments)
    assert small.returncode == 0, small.stderr
    (line,) = (each for each in small.stdout.splitlines() if "product of matrices" in each)
    assert "2 of 2 computations" in line
    assert ": mine on 2 ranks, compute=gemm" in line
    large = mpiexec(2, "-m", "hpccoll", *arguments, "--samples", "100000")
    assert large.returncode == 0, large.stderr
    assert "product of matrices" not in large.stdout
