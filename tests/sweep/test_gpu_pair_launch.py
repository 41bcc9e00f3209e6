"""The launch of a pair before MPI is measured on GPUs between nodes; a stand-in for ranks writes what they would."""

import sys

import pytest
import raw_examples

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import Launcher
from hpccoll.evidence.gpu_pair import CORRECT, STARTED, GpuPair
from hpccoll.sweep.launch import JobLaunch

RANKS = """#!{python}
import os, signal, sys
with open({calls!r}, "a") as calls:
    print(*sys.argv[1:], file=calls)
if "--try-gpu-pair" in sys.argv:
    from pathlib import Path
    from hpccoll.evidence.gpu_pair import GpuPair
    file = Path(sys.argv[sys.argv.index("--try-gpu-pair") + 1])
    {does}
"""
LEFT = 'GpuPair(state="{}", hosts=("n1", "n2")).save(file)'
DIES = f"{LEFT.format(STARTED)}; os.kill(os.getpid(), signal.SIGSEGV)"
ONE, TWO = Shape(1, 2), Shape(2, 4)


@pytest.fixture
def job_launch(tmp_path):
    """Return the launch of a job on one node and on two, whose ranks do this when they are a pair."""

    def make(does, transport="mpi", device="cuda"):
        program = tmp_path / "ranks"
        about = {"python": sys.executable, "calls": str(tmp_path / "calls"), "does": does}
        program.write_text(RANKS.format(**about))
        program.chmod(0o755)
        cases = [
            raw_examples.case(
                8, transport=transport, device=device, nodes=shape.nodes, ranks=shape.ranks
            )
            for shape in (ONE, TWO)
        ]
        return JobLaunch(
            Launcher(command="env", program=str(program)),
            raw_examples.job(*cases, nodes=2, ranks=4),
            (),
        )

    return make


def calls(tmp_path):
    return [line.split() for line in (tmp_path / "calls").read_text().splitlines()]


def measured(launch, shape, tmp_path, pair):
    launch.measure(shape, tmp_path / "job.json", tmp_path / "a.h5", gpu_pair=pair)
    return calls(tmp_path)[-1]


def test_a_pair_that_signal_11_kills_leaves_the_reason_for_launches_between_nodes_only(
    job_launch, tmp_path
):
    launch = job_launch(DIES)
    file = launch.try_gpu_pair([ONE, TWO], tmp_path / "raw" / "a.h5")
    found = GpuPair.load(file)
    assert (found.state, found.hosts) == (STARTED, ("n1", "n2"))
    assert "signal 11" in found.description
    (words,) = calls(tmp_path)
    assert words[: words.index("--try-gpu-pair")] == ["run", "--shape", "2x1", "--device", "cuda"]
    assert str(file) in measured(launch, TWO, tmp_path, file)
    assert "--gpu-pair" not in measured(launch, ONE, tmp_path, file)


def test_a_pair_that_works_is_handed_on_and_one_that_did_not_begin_counts_as_not_tried(
    job_launch, tmp_path, capsys
):
    out = tmp_path / "raw" / "a.h5"
    assert GpuPair.load(job_launch(LEFT.format(CORRECT)).try_gpu_pair([TWO], out)).state == CORRECT
    assert job_launch("sys.exit('no module named cupy')").try_gpu_pair([TWO], out) is None
    assert "was not tried" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("transport", "device", "left"),
    [("mpi", "cuda", [ONE]), ("mpi", "cpu", [TWO]), ("staged", "cuda", [TWO])],
    ids=["one node", "host memory", "staged"],
)
def test_no_pair_is_launched_where_mpi_moves_no_gpu_memory_between_nodes(
    job_launch, tmp_path, transport, device, left
):
    assert (
        job_launch("pass", transport, device).try_gpu_pair(left, tmp_path / "raw" / "a.h5") is None
    )
    assert not (tmp_path / "calls").exists()
