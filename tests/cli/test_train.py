"""``hpccoll train``: training steps from a command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT, invoke, rows

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


def test_a_dry_run_ends_in_silence_if_nobody_reads_on():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hpccoll", "train", "--dry-run"]
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.mpi
def test_steps_of_every_combination_are_measured_and_resumed(tmp_path, mpiexec):
    model, out = tmp_path / "mine.yaml", tmp_path / "steps.h5"
    model.write_text(FILE)
    arguments = [
        "train", "--model", model, "--compute-us", "500", "--overlap", "0,1", "-a", "ring,native,null",
        "-n", "6", "--rounds", "1", "--out", out,
    ]  # fmt: skip
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


@pytest.mark.mpi
def test_computations_that_are_too_small_for_a_product_of_matrices_are_named(tmp_path, mpiexec):
    model = tmp_path / "mine.yaml"
    model.write_text(FILE)
    arguments = ["train", "--model", model, "--compute", "gemm,none", "-a", "native", "-n", "6", "--rounds", "1"]
    small = mpiexec(2, "-m", "hpccoll", *arguments)
    assert small.returncode == 0, small.stderr
    (line,) = (each for each in small.stdout.splitlines() if "product of matrices" in each)
    assert "2 of 2 computations" in line
    assert ": mine on 2 ranks, compute=gemm" in line
    large = mpiexec(2, "-m", "hpccoll", *arguments, "--samples", "100000")
    assert large.returncode == 0, large.stderr
    assert "product of matrices" not in large.stdout
