"""Real ranks under a real mpiexec: faults, missing memory, modules and secrets."""

import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import raw_examples
from cli_runner import rows
from namespaces import PROGRAM, unshared

from hpccoll.cases.case import Effort, Shape
from hpccoll.common.errors import UnusableError
from hpccoll.measure.ranks import check_shape, rank_namer
from hpccoll.schedule import Layout
from hpccoll.store import hdf5
from hpccoll.store.journal import journal_path, read_journal
from hpccoll.store.load_results import read_results
from hpccoll.store.raw_results import RankLocation

SECRETS = ("NCCL_API_KEY", "SLURM_JWT", "AWS_SECRET_ACCESS_KEY", "OMPI_MCA_x_password", "HOME_OF_HIDDEN")
FAULTY = Path(__file__).with_name("faulty_ranks.py")
pytestmark = pytest.mark.mpi


EXECUTORS = pytest.mark.parametrize("executor", ["compiled", "python"])


@pytest.fixture
def launch(mpiexec, tmp_path):
    """Run a job on two ranks with a fault; returns what the process left, and the raw file that was to be."""

    def launch(fault, *cases, ranks=2, timeout=120.0, executor=None):
        effort = Effort(warmup=2, min_iterations=20, max_iterations=20, timeout=timeout)
        job = raw_examples.job(*cases, ranks=ranks, effort=effort, executor=executor)
        (tmp_path / "job.json").write_text(job.to_json())
        out = tmp_path / "F.h5"
        return mpiexec(ranks, FAULTY, fault, "--job", tmp_path / "job.json", "--out", out), out

    return launch


@pytest.mark.parametrize(("executor", "iteration"), [("compiled", 1), ("python", 13)])
def test_a_hanging_rank_ends_the_job_and_every_rank_reports_its_progress(launch, executor, iteration):
    ended, out = launch("sleeps", raw_examples.case(4096), timeout=3.0, executor=executor)
    assert ended.returncode != 0
    case = f"case all_reduce.ring.mpi.cpu.float32.sum.4096B.out, iteration {iteration}, in the operation"
    assert f"r0 | stuck for 3 s: {case}: sequence 0, step 1 of 2 (to rank 1, from rank 1)" in ended.stderr
    assert f"r1 | stuck for 3 s: {case}" in ended.stderr
    assert not out.exists()
    read = read_journal(journal_path(out))
    assert {failure.rank for failure in read.failures} == {0, 1}
    assert all(failure.message.startswith("stuck for 3 s: case") for failure in read.failures)
    results = read_results([out.parent])
    assert [(row.status, row.case_id) for row in results.rows] == [("failed", raw_examples.case(4096).id)]
    assert [gap.status for gap in results.missing] == ["failed"]


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("compiled", "RuntimeError: the call fails: Invalid root"),
        ("python", "RuntimeError: the moon is in the wrong house"),
    ],
)
def test_an_error_of_mpi_or_python_on_one_rank_ends_the_job_and_names_the_case(launch, executor, message):
    ended, out = launch("raises", raw_examples.case(4096), executor=executor)
    assert ended.returncode not in (0, 2, 3)
    assert f"r1 | {message}" in ended.stderr
    (failure,) = read_journal(journal_path(out)).failures
    assert failure.rank == 1
    assert failure.message.startswith(message)
    assert "(case all_reduce.ring" in failure.message


ABORTS = """
import os, threading, time
from hpccoll.measure.ranks import _unread, abort_job

class World:
    def Abort(self, code):
        print(code, _unread(end), flush=True)

def read():
    time.sleep(0.2)
    os.read(begin, 100)

begin, end = os.pipe()
os.write(end, b"the reason")
threading.Thread(target=read).start()
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


def test_no_rank_leaves_the_barrier_before_all_have_entered(mpiexec):
    ended = mpiexec(3, "-c", MEETS)
    assert ended.returncode == 0, ended.stderr


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


def test_other_ranks_sleep_while_rank_0_works(mpiexec):
    ended = mpiexec(2, "-c", SLEEPS)
    assert ended.returncode == 0, ended.stderr


def test_an_abort_waits_until_the_launcher_has_read_the_reason(mpiexec):
    ended = mpiexec(1, "-c", ABORTS)
    assert (ended.returncode, ended.stdout) == (0, "1 0\n"), ended.stderr


def test_ranks_with_different_schedules_end_the_job_before_it_hangs(launch):
    ended, out = launch("none", raw_examples.case(4096, algorithm="unpaired"))
    assert ended.returncode not in (0, 2, 3)
    assert "rank 0 would send messages that rank 1 does not expect" in ended.stderr
    assert "that rank 1 does not expect" in read_journal(journal_path(out)).failures[0].message


@EXECUTORS
def test_a_wrong_result_is_recorded_with_its_diagnosis(launch, executor):
    cases = [
        raw_examples.case(4096),
        *(raw_examples.case(4096, algorithm="short", **how) for how in ({}, {"in_place": True}, {"mapping": "block"})),
    ]
    ended, out = launch("none", *cases, executor=executor)
    assert ended.returncode == 3
    read = hdf5.read_raw_file(out)
    assert read.complete
    assert not journal_path(out).exists()
    ((_, outcomes),) = read.attempts
    by_case = {outcome.case.id: outcome for outcome in outcomes}
    ring, wrong, in_place, renumbered = (by_case[case.id] for case in cases)
    assert (ring.status, ring.wrong) == ("ok", 0)
    assert (wrong.status, wrong.wrong) == ("wrong", 2 * 20 * 512)
    assert "rank 0: 512 of 1024 elements, from 2 KiB on: the contribution of rank 1 is missing" in wrong.reason
    assert "; rank 1: 512 of 1024 elements, from 0 B on: the contribution of rank 0 is missing" in wrong.reason
    assert "still the rank's own contribution or the contribution of rank 1 is missing" in in_place.reason
    assert "rank 0 (MPI rank 0): 512 of" in renumbered.reason
    assert "; rank 1 (MPI rank 1): 512 of 1024 elements, from 0 B on: the contribution of rank 0 (" in renumbered.reason
    results = read_results([out])
    assert [row.algorithm for row in results.rows if row.status == "ok"] == ["ring"]
    assert {gap.case: (gap.status, gap.reason) for gap in results.missing} == {
        each.case.id: ("wrong", each.reason) for each in (wrong, in_place, renumbered)
    }
    if executor == "compiled":
        again, _ = launch("none", *cases, executor=executor)
        assert again.returncode == 3  # they are still wrong


SPOILT = {
    1024: (1024, "the plan says that its result has 0 elements; expected: 1024"),
    1032: (1032, "the plan says that its result has 1031 elements; expected: 1032"),
    1040: (1040, "1040 of 1040 elements, from 0 B on: no single cause explains it"),
    1048: (2, "2 of 128 elements after dst were overwritten"),
    1056: (2, "2 of 128 elements before dst were overwritten"),
    1064: (2, "2 of 128 elements after src were overwritten"),
    1072: (2, "src was overwritten: 2 of 1072 elements, from 0 B on"),
}
"""By the elements of an operation, of which each number has a fault of its own (faulty_ranks.py), how many elements are
wrong in each iteration, and what the row says."""


@EXECUTORS
def test_a_plan_with_a_wrong_result_span_or_writes_outside_is_wrong_with_a_diagnosis(launch, executor):
    kinds = {"transport": "mpi"}, {"transport": "shm"}, {"algorithm": "native"}
    cases = [raw_examples.case(4 * count, **kind) for count in SPOILT for kind in kinds]
    ended, out = launch("by-count", *cases, executor=executor)
    assert ended.returncode == 3
    ((_, outcomes),) = hdf5.read_raw_file(out).attempts
    assert {outcome.case.id: (outcome.status, outcome.wrong, outcome.reason) for outcome in outcomes} == {
        case.id: ("wrong", 20 * wrong, f"rank 1: {words}")
        for case, (wrong, words) in zip(cases, [said for said in SPOILT.values() for _ in kinds], strict=True)
    }


def test_the_librarys_call_out_of_place_must_not_write_outside_its_result(launch):
    ended, out = launch("in-place-of-rank-0", raw_examples.case(4096, collective="reduce_scatter", algorithm="native"))
    assert ended.returncode == 3
    ((_, (outcome,)),) = hdf5.read_raw_file(out).attempts
    said = ("wrong", 40, "rank 1: 2 of 128 elements before dst were overwritten")
    assert (outcome.status, outcome.wrong, outcome.reason) == said


@pytest.mark.parametrize(
    ("mapping", "nodes", "names"),
    [
        (None, 2, ["rank 0 (on n0)", "rank 1 (on n0)", "rank 2 (on n1)", "rank 3 (on n1)"]),
        ("cyclic", 2, ["rank 0 (MPI rank 0 on n0)", "rank 1 (MPI rank 2 on n1)", "rank 2 (MPI rank 1 on n0)"]),
        (None, 1, ["rank 0", "rank 1"]), ("block", 1, ["rank 0 (MPI rank 0)", "rank 1 (MPI rank 1)"]),
    ],
)  # fmt: skip
def test_names_of_ranks_have_the_launchers_number_and_the_host_if_they_differ(mapping, nodes, names):
    places = tuple(
        RankLocation(host=f"n{me // 2}", node=me // 2, clock=0, pid=1, affinity="0") for me in range(2 * nodes)
    )
    namer = rank_namer(raw_examples.attempt(ranks=2 * nodes, places=places), mapping)
    assert [*map(namer, range(len(names)))] == names


def test_a_case_that_does_not_fit_into_memory_is_skipped_with_the_reason(launch):
    ended, out = launch("no-memory", raw_examples.case(8), raw_examples.case(1 << 20))
    assert ended.returncode == 0
    outcomes = {outcome.case.bytes: outcome for _, done in hdf5.read_raw_file(out).attempts for outcome in done}
    assert outcomes[8].status == "ok"
    assert outcomes[1 << 20].status == "skipped"
    assert "2 ranks need" in outcomes[1 << 20].reason
    results = read_results([out])
    assert [gap.case for gap in results.skipped] == [raw_examples.case(1 << 20).id]
    assert not results.missing


def test_a_duplicate_case_is_bad_input(launch):
    ended, out = launch("none", raw_examples.case(8), raw_examples.case(8))
    assert ended.returncode == 2
    assert raw_examples.case(8).id in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not journal_path(out).exists()


def test_ranks_import_no_heavy_library_and_only_rank_0_imports_h5py(launch):
    ended, _ = launch("modules", raw_examples.case(8))
    assert ended.returncode == 0, ended.stderr
    assert "modules of rank 0: ['h5py']" in ended.stdout
    assert "modules of rank 1: []" in ended.stdout


def test_no_secret_gets_into_a_file(launch):
    ended, out = launch("secrets", raw_examples.case(8))
    assert ended.returncode == 0
    content = out.read_bytes()
    assert b"OMPI_MCA_btl" in content
    assert b"NCCL_ALGO" in content
    assert b"s3cr3t" not in content
    for name in SECRETS:
        assert name.encode() not in content
    ((attempt, _),) = hdf5.read_raw_file(out).attempts
    assert not set(attempt.provenance["variables"]) & set(SECRETS)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ("-a ring,native -b 1K -e 1K --param channels=2000", 0, "channels: 2000 is not valid: at most"),
        ("-a ring -b 8M -e 8M --param segment=1K", 3, "segment: '1 KiB' is not valid: a larger one: 4096 channels"),
    ],
)
def test_a_case_that_cannot_be_lowered_is_skipped_with_the_reason_and_the_others_are_measured(
    mpiexec, arguments, code, reason
):
    ended = mpiexec(2, "-m", "hpccoll", "run", "-n", "6", "--in-place", *arguments.split())
    assert ended.returncode == code, ended.stderr
    assert f"skipped: parameter {reason}" in next(line for line in rows(ended.stdout) if "ring" in line)
    assert any("native" in line and " in " in line for line in rows(ended.stdout)) == (code == 0)


def test_a_job_file_that_only_rank_0_sees_is_enough(mpiexec, tmp_path):
    job = raw_examples.job(
        raw_examples.case(8, in_place=True), effort=Effort(warmup=0, min_iterations=6, max_iterations=6)
    )
    (tmp_path / "job.json").write_text(job.to_json())
    (tmp_path / "one.py").write_text(
        "import os, sys; from hpccoll.cli.rank_program import main\n"
        "job = sys.argv[1] if os.environ['PMI_RANK'] == '0' else '/nowhere'\n"
        "sys.exit(main(['--job', job]))\n"
    )
    ended = mpiexec(2, tmp_path / "one.py", tmp_path / "job.json")
    assert ended.returncode == 0, ended.stderr


def test_what_else_uses_the_machine_is_recorded_and_printed(mpiexec, tmp_path):
    burner = tmp_path / "burner"
    burner.symlink_to(sys.executable)  # the name of a process is that of the file that it executes
    with subprocess.Popen([burner, "-c", "while True: pass"]) as other:
        ended = mpiexec(2, "-m", "hpccoll", "run", "-a", "ring", "-b", "8", "-e", "64", "--out", tmp_path / "a.h5")
        other.kill()
    assert ended.returncode == 0, ended.stderr
    ((attempt, _),) = hdf5.read_raw_file(tmp_path / "a.h5").attempts
    (load,) = attempt.provenance["host_load"]
    used = {each["name"]: each["cores"] for each in load["busiest"]}
    assert 0 < used["burner"] < 1.2  # the machine may be busy
    assert load["other_cores"] >= used["burner"]
    assert len(load["load_average"]) == 2
    (printed,) = [line for line in ended.stdout.splitlines() if line.startswith("# busy machine: ")]
    assert load["busiest"][0]["name"] in printed


@pytest.mark.parametrize("requested", ["node01", "node01,node02"])
def test_ranks_on_other_hosts_than_requested_are_refused(require, mpiexec, requested):  # noqa: ARG001
    host = "node01.cluster.example"
    check = f"mpiexec -n 2 {PROGRAM} run --check --shape 1x2 --hosts {requested}"
    ended = unshared(require, ["-u"], f"hostname {host} && {check}")
    if requested == "node01":
        assert f"2 ranks are connected: 2 on {host}" in ended.out, ended.err
    else:
        assert (
            f"hpccoll: launch: 2 ranks: 2 on {host}; requested: 2 ranks on 1 node, 2 on each of node01, node02"
            in ended.err
        )
        assert ended.code == 2


@pytest.mark.parametrize(
    ("names", "requested", "fits"),
    [
        ("n1.a.org", "n1", True), ("n1", "n1.a.org", True), ("n1.a.org", "N1", True), ("n1.a.org", "c1=n1", True),
        ("n1.a.org", "n1.b.org", False), ("n1.a.org", "n", False), ("n1.a.org", "c1=n2", False),
        ("n2.a.org n1.a.org", "n1 n2", True), ("n1.a.org n1.b.org", "n1.b.org n1.a.org", True),
        ("n1.a.org n1.b.org", "n1 n1", False), ("n1.a.org n1.b.org", "n1.a.org n1.a.org", False),
        ("n1.a.org n1.b.org", "n1.a.org n1.c.org", False),
        ("gpu01 gpu02", "n1=gpu01 n2=gpu02.a.org", True), ("gpu01 gpu02", "n1=gpu01 n2=gpu01", False),
    ],
)  # fmt: skip
def test_hosts_of_several_domains_are_distinguished(names, requested, fits):
    nodes = Counter((name, "boot") for name in names.split())
    layout = Layout(tuple(range(nodes.total())))
    ranks = SimpleNamespace(ranks_by_node=nodes, comm=SimpleNamespace(size=nodes.total()), layout=lambda _: layout)
    with nullcontext() if fits else pytest.raises(UnusableError):
        check_shape(ranks, Shape(nodes.total(), nodes.total()), requested.split())


QUOTA = f"""
mount -t tmpfs none "$DIRECTORY"
echo 50000 > "$DIRECTORY/cpu.cfs_quota_us"; echo 100000 > "$DIRECTORY/cpu.cfs_period_us"
echo "50000 100000" > "$DIRECTORY/cpu.max"
for mount in $(awk '$0 ~ / - cgroup2 / || $0 ~ / - cgroup .*[ ,]cpu(,|$)/ {{ print $5 }}' /proc/self/mountinfo)
do mount --bind "$DIRECTORY" "$mount"; done
{PROGRAM} doctor
mpiexec -n 2 {PROGRAM} run -a ring -b 1K -e 1K --rounds 1 -n 20 --out "$OUT"
"""
"""Half a CPU for all ranks, as control groups of either version say it; the mounts belong to a namespace."""


def test_a_quota_below_the_ranks_is_said_by_doctor_and_run_and_stays_with_the_results(require, mpiexec, tmp_path):  # noqa: ARG001
    (tmp_path / "group").mkdir()
    ended = unshared(require, ["-m"], QUOTA, DIRECTORY=str(tmp_path / "group"), OUT=str(tmp_path / "F.h5"))
    assert "of which a quota grants 0.5" in ended.out, ended.err
    assert "OVERSUBSCRIBED" in ended.out
    assert "use up the quota of 0.5 CPUs" in ended.out
    results = read_results([tmp_path / "F.h5"])
    assert all(row.oversubscribed for row in results.rows)
    (run,) = results.runs
    assert run.provenance["cpu_quota"] == 0.5
    assert "with a quota of 0.5 CPUs" in run.machine
