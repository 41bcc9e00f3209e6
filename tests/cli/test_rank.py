"""How a rank begins, and how it reports the exception that ends it."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hpccoll.cli import rank_program
from hpccoll.common.errors import GpuFailedError

FAILED = GpuFailedError("GPU 0000:1b:00.0 of n1 failed: cudaErrorECCUncorrectable")


def test_a_failed_gpu_is_one_line_also_in_a_probe_and_anything_else_has_its_traceback(
    monkeypatch, capsys
):
    monkeypatch.setenv("PMI_RANK", "3")
    reported = []
    program = SimpleNamespace(
        progress=SimpleNamespace(task="case ring"), report_failure=reported.append
    )
    for error, of_program in ((FAILED, program), (FAILED, None), (RuntimeError("x"), program)):
        try:
            raise error
        except RuntimeError:
            rank_program._report_failure(of_program, error)
    assert reported == [f"{FAILED} (case ring)", "RuntimeError: x (case ring)"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"r3 | {FAILED}"
    assert lines[1].startswith("Traceback")


BEGINS = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            read.append(os.environ.get("OPENBLAS_NUM_THREADS"))
read = []
sys.meta_path.insert(0, Watch())
from hpccoll.cli.job_program import main
main(sys.argv[2:], sys.argv[1])  # refused before MPI starts: --hosts belongs to a --shape
print(os.environ.get("OPENBLAS_NUM_THREADS"), *read)
"""


@pytest.mark.parametrize(
    ("words", "variable", "threads"),
    [
        (["run"], None, "1"),
        (["run"], "4", "4"),
        (["run", "--job", "steps.json"], None, "None"),
        (["train", "--model", "digits"], None, "1"),
        (["train", "--compute", "gemm"], None, "None"),
        (["train", "--compute=gemm"], None, "None"),
    ],
)
def test_only_steps_that_multiply_large_matrices_and_who_asks_for_them_have_openblas_threads(
    words, variable, threads
):
    environment = {
        name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"
    }
    environment |= {"OPENBLAS_NUM_THREADS": variable} if variable else {}
    command = [sys.executable, "-c", BEGINS, *words, "--hosts", "n1"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "--hosts" in ended.stderr
    assert {*ended.stdout.split()} == {threads}  # NumPy reads the variable when it is imported
