"""Real ranks under a real mpiexec: faults, wrong results, modules and secrets."""

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import raw_examples

from hpccoll.cases.case import Effort, Shape
from hpccoll.common.errors import UnusableError
from hpccoll.measure.ranks import check_shape, rank_namer
from hpccoll.schedule import Layout
from hpccoll.store import hdf5
from hpccoll.store.journal import journal_path, read_journal
from hpccoll.store.load_results import read_results
from hpccoll.store.raw_results import RankLocation

SECRETS = (
    "NCCL_API_KEY",
    "SLURM_JWT",
    "AWS_SECRET_ACCESS_KEY",
    "OMPI_MCA_x_password",
    "HOME_OF_HIDDEN",
)
FAULTY = Path(__file__).with_name("faulty_ranks.py")
pytestmark = pytest.mark.mpi


@pytest.fixture
def launch(mpiexec, tmp_path):
    """Run a job on two ranks with a fault; returns what the process left, and the raw file that was to be."""

    def launch(fault, *cases, timeout=120.0, executor=None):
        effort = Effort(warmup=2, min_iterations=20, max_iterations=20, timeout=timeout)
        (tmp_path / "job.json").write_text(
            raw_examples.job(*cases, effort=effort, executor=executor).to_json()
        )
        out = tmp_path / "F.h5"
        return mpiexec(2, FAULTY, fault, "--job", tmp_path / "job.json", "--out", out), out

    return launch


@pytest.mark.parametrize(("executor", "iteration"), [("compiled", 1), ("python", 13)])
def test_a_hanging_rank_ends_the_job_and_every_rank_reports_its_progress(
    launch, executor, iteration
):
    ended, out = launch("sleeps", raw_examples.case(4096), timeout=3.0, executor=executor)
    assert ended.returncode != 0
    case = f"case all_reduce.ring.mpi.cpu.float32.sum.4096B.out, iteration {iteration}, in the operation"
    assert (
        f"r0 | stuck for 3 s: {case}: sequence 0, step 1 of 2 (to rank 1, from rank 1)"
        in ended.stderr
    )
    assert f"r1 | stuck for 3 s: {case}" in ended.stderr
    assert not out.exists()
    read = read_journal(journal_path(out))
    assert {failure.rank for failure in read.failures} == {0, 1}
    assert all(failure.message.startswith("stuck for 3 s: case") for failure in read.failures)
    assert [(row.status, row.case_id) for row in read_results([out.parent]).rows] == [
        ("failed", read.failures[0].case_id)
    ]


def test_a_rank_that_hangs_while_the_rate_of_copies_is_measured_is_a_failure_of_no_case(launch):
    ended, out = launch("sleeps", raw_examples.case(1 << 20), timeout=3.0, executor="compiled")
    assert ended.returncode != 0
    stuck = "stuck for 3 s: the rate of copies, iteration 1, in the operation"
    assert f"r1 | {stuck}\n" in ended.stderr
    assert {failure.case_id for failure in read_journal(journal_path(out)).failures} == {""}
    (gap,) = read_results([out.parent]).missing
    assert gap.status == "not run"
    assert gap.reason.startswith("the job ended before it: stuck")
    assert stuck in gap.reason


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("compiled", "RuntimeError: the call fails: Invalid root"),
        ("python", "RuntimeError: the moon is in the wrong house"),
    ],
)
def test_an_error_of_mpi_or_python_on_one_rank_ends_the_job_and_names_the_case(
    launch, executor, message
):
    ended, out = launch("raises", raw_examples.case(4096), executor=executor)
    assert ended.returncode not in (0, 2, 3)
    assert f"r1 | {message}" in ended.stderr
    (failure,) = read_journal(journal_path(out)).failures
    assert failure.rank == 1
    assert failure.message.startswith(message)
    assert "(case all_reduce.ring" in failure.message


ABORTS = """
import os, threading
from hpccoll.measure.ranks import _unread, abort_job

class World:
    def Abort(self, code):
        print(code, _unread(end), flush=True)

begin, end = os.pipe()
os.write(end, b"the reason")
threading.Timer(0.2, os.read, (begin, 100)).start()
abort_job(World(), [end, os.open(os.devnull, os.O_WRONLY)])
"""


MEETS = """
import time
from mpi4py import MPI
from hpccoll.measure.ranks import Ranks
ranks, me = Ranks(MPI.COMM_WORLD), MPI.COMM_WORLD.rank
for late in range(3):
    time.sleep(0.05 * (me == late))
    came = time.perf_counter_ns()  # of one clock: the ranks are on one machine
    ranks.barrier()
    left = time.perf_counter_ns()
    assert min(MPI.COMM_WORLD.allgather(left)) > max(MPI.COMM_WORLD.allgather(came))
"""


SLEEPS = """
import time
from mpi4py import MPI
from hpccoll.measure.ranks import Ranks
ranks = Ranks(MPI.COMM_WORLD)
ranks.barrier()
began, used = time.monotonic(), time.process_time()
assert ranks.run_at_root(lambda: time.sleep(1) or MPI.COMM_WORLD.rank) == 0
assert time.process_time() - used < (time.monotonic() - began) / 2
"""


@pytest.mark.parametrize("program", [MEETS, SLEEPS], ids=["barrier", "sleep"])
def test_ranks_leave_a_barrier_after_all_have_entered_and_sleep_while_rank_0_works(
    mpiexec, program
):
    ended = mpiexec(3, "-c", program)
    assert ended.returncode == 0, ended.stderr


def test_an_abort_waits_until_the_launcher_has_read_the_reason(mpiexec):
    ended = mpiexec(1, "-c", ABORTS)
    assert (ended.returncode, ended.stdout) == (0, "1 0\n"), ended.stderr


def test_a_wrong_result_is_recorded_with_its_diagnosis(launch):
    cases = [
        raw_examples.case(4096),
        *(
            raw_examples.case(4096, algorithm="short", **how)
            for how in ({}, {"in_place": True}, {"mapping": "block"})
        ),
    ]
    ended, out = launch("none", *cases)
    assert ended.returncode == 3
    ((_, outcomes),) = hdf5.read_raw_file(out).attempts
    by_case = {outcome.case.id: outcome for outcome in outcomes}
    ring, wrong, in_place, renumbered = (by_case[case.id] for case in cases)
    assert (ring.status, ring.wrong) == ("ok", 0)
    assert (wrong.status, wrong.wrong) == ("wrong", 2 * 20 * 512)
    assert (
        "rank 0: 512 of 1024 elements, from 2 KiB on: the contribution of rank 1 is missing"
        in wrong.reason
    )
    assert (
        "; rank 1: 512 of 1024 elements, from 0 B on: the contribution of rank 0 is missing"
        in wrong.reason
    )
    assert (
        "still the rank's own contribution or the contribution of rank 1 is missing"
        in in_place.reason
    )
    assert "rank 0 (MPI rank 0): 512 of" in renumbered.reason
    assert (
        "; rank 1 (MPI rank 1): 512 of 1024 elements, from 0 B on: the contribution of rank 0 ("
        in renumbered.reason
    )
    for outcome in (wrong, in_place, renumbered):
        assert outcome.reason.startswith("not proven: after step 1, the last one, rank ")
        assert "do: hpccoll show short -c all_reduce -p 2" in outcome.reason
    again, _ = launch("none", *cases)
    assert again.returncode == 3  # they are still wrong


def test_plans_that_do_not_match_fail_as_unproven_and_the_other_cases_are_measured(launch):
    cases = [raw_examples.case(4096, algorithm=name) for name in ("unmatched", "ring")]
    ended, out = launch("none", *cases)
    assert ended.returncode == 3, ended.stderr
    ((_, outcomes),) = hdf5.read_raw_file(out).attempts
    by_algorithm = {outcome.case.algorithm: outcome for outcome in outcomes}
    assert by_algorithm["ring"].status == "ok"
    assert by_algorithm["unmatched"].status == "failed"
    assert by_algorithm["unmatched"].reason.startswith("not proven: step 2: rank 0 sends no")


@pytest.mark.parametrize(
    ("mapping", "names"),
    [
        (None, ["rank 0 (on n0)", "rank 1 (on n0)", "rank 2 (on n1)", "rank 3 (on n1)"]),
        (
            "cyclic",
            ["rank 0 (MPI rank 0 on n0)", "rank 1 (MPI rank 2 on n1)", "rank 2 (MPI rank 1 on n0)"],
        ),
    ],
)
def test_names_of_ranks_have_the_launchers_number_and_the_host_if_they_differ(mapping, names):
    places = tuple(
        RankLocation(host=f"n{me // 2}", node=me // 2, clock=0, pid=1, affinity="0")
        for me in range(4)
    )
    namer = rank_namer(raw_examples.attempt(ranks=4, places=places), mapping)
    assert [*map(namer, range(len(names)))] == names


def test_ranks_import_no_heavy_library_only_rank_0_imports_h5py_and_no_secret_gets_into_a_file(
    launch,
):
    ended, out = launch("leaks", raw_examples.case(8))
    assert ended.returncode == 0, ended.stderr
    assert "modules of rank 0: ['h5py']" in ended.stdout
    assert "modules of rank 1: []" in ended.stdout
    content = out.read_bytes()
    assert [b"OMPI_MCA_btl" in content, b"NCCL_ALGO" in content, b"s3cr3t" in content] == [
        True,
        True,
        False,
    ]
    assert not [name for name in SECRETS if name.encode() in content]


ONE_JOB = """
import os, sys
from hpccoll.cli.job_program import main
sys.exit(main(["--job", sys.argv[1] if os.environ["PMI_RANK"] == "0" else "/nowhere"]))
"""


def test_a_job_file_that_only_rank_0_sees_is_enough(mpiexec, tmp_path):
    effort = Effort(warmup=0, min_iterations=6, max_iterations=6)
    (tmp_path / "job.json").write_text(
        raw_examples.job(raw_examples.case(8), effort=effort).to_json()
    )
    ended = mpiexec(2, "-c", ONE_JOB, tmp_path / "job.json")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("names", "requested", "fits"),
    [
        ("n1.a.org", "N1", True),
        ("n1.a.org", "n1.b.org", False),
        ("n1.a.org", "c1=n2", False),
        ("n1.a.org n1.b.org", "n1.b.org n1.a.org", True),
        ("n1.a.org n1.b.org", "n1.a.org n1.a.org", False),
        ("gpu01 gpu02", "n1=gpu01 n2=gpu02.a.org", True),
        ("gpu01 gpu02", "n1=gpu01 n2=gpu01", False),
    ],
)
def test_ranks_run_on_the_requested_hosts_which_may_have_several_names(names, requested, fits):
    nodes = Counter((name, "boot") for name in names.split())
    layout = Layout(tuple(range(nodes.total())))
    ranks = SimpleNamespace(
        ranks_by_node=nodes, comm=SimpleNamespace(size=nodes.total()), layout=lambda _: layout
    )
    with nullcontext() if fits else pytest.raises(UnusableError, match="requested: "):
        check_shape(ranks, Shape(nodes.total(), nodes.total()), requested.split())
