"""How a rank reports the exception that ends it."""

from types import SimpleNamespace

from hpccoll.errors import GpuFailedError
from hpccoll.run import rank

FAILED = GpuFailedError("GPU 0000:1b:00.0 of n1 failed: cudaErrorECCUncorrectable")


def test_a_failed_gpu_is_one_line_also_in_a_probe_and_anything_else_has_its_traceback(monkeypatch, capsys):
    monkeypatch.setenv("PMI_RANK", "3")
    reported = []
    program = SimpleNamespace(progress=SimpleNamespace(case="ring"), report_failure=reported.append)
    for error, of_program in ((FAILED, program), (FAILED, None), (RuntimeError("x"), program)):
        try:
            raise error
        except RuntimeError:
            rank._report_failure(of_program, error)
    assert reported == [f"{FAILED} (case ring)", "RuntimeError: x (case ring)"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"r3 | {FAILED}"
    assert lines[1].startswith("Traceback")
