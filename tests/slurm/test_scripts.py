"""The scripts for sbatch: two of them on a real cluster, those for containers with a stand-in for the container."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nccl_tests_stand_in import installed
from patience import wait
from slurm_testbed import on_host

from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import UnusableError
from hpccoll.diagnosis.diagnosis_file import read_diagnosis
from hpccoll.executor.counting_library import counting_library
from hpccoll.store.count_file import read_counted_job
from hpccoll.store.journal import interrupted_marker_path
from hpccoll.store.load_results import read_results

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "slurm").glob("*.sbatch"))
SMALL = ("-a", "ring,native", "-b", "1K", "-e", "2K", "-n", 5, "-w", 1)  # 8 cases
REPORTED = "hpccoll diagnose --report d.h5\n"
WITH_PAGE = "hpccoll diagnose --report d.h5 --out d.html\n"
COUNT = ROOT / "slurm" / "count.sbatch"
MEASURING = [path for path in SCRIPTS if path != COUNT]
"""Scripts that run hpccoll on the ranks; the other one runs a program of the user."""
UNTESTED = ("apptainer", "gpu-mpi", "nccl", "pyxis", "sharp")
"""Scripts that did not run on a cluster of the kind that they are for."""


@pytest.fixture
def submit(testbed, tmp_path, mpiexec):  # noqa: ARG001 - there is an MPI library
    """Submit a script from an empty directory, and return the number of its job."""

    def submit(name, *arguments, options=(), **variables):
        command = [
            "sbatch",
            "--parsable",
            "--output=%j.log",
            *options,
            ROOT / "slurm" / f"{name}.sbatch",
        ]
        result = testbed.run(*command, *arguments, cwd=tmp_path, **variables)
        assert result.code == 0, result.err
        return result.out.strip()

    return submit


@pytest.fixture
def end(testbed, tmp_path):
    """Wait for the end of a job, and return its exit code and its log."""
    return lambda number: (testbed.end_of(number), (tmp_path / f"{number}.log").read_text())


def complete(path):
    """Return the rows of a complete raw file without a wrong element."""
    results = read_results([path])
    assert not results.missing
    assert {row.status for row in results.rows} == {"ok"}
    return results.rows


def test_shellcheck_finds_nothing(require):
    require(shutil.which("shellcheck"), "there is no shellcheck")
    assert {path.stem for path in SCRIPTS} == {
        "allreduce",
        "count",
        "diagnose",
        "in-network",
        "scaling",
        *UNTESTED,
    }
    scripts = [*SCRIPTS, ROOT / ".github" / "release.sh"]
    result = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("path", MEASURING, ids=lambda path: path.stem)
def test_every_script_stops_at_its_first_error_and_is_signalled_before_its_end(path):
    text = path.read_text()
    assert "\nset -euo pipefail\n" in text
    shell_only = "B:" * (path.stem == "diagnose")  # which signals its launch
    assert f"\n#SBATCH --signal={shell_only}USR1@60\n#SBATCH --no-requeue\n" in text
    assert ' hpccoll run --shape "${' in text or path.stem == "diagnose", "a wrong geometry fails"
    assert ("UNTESTED" in text) == (path.stem in UNTESTED)


@pytest.mark.parametrize("path", MEASURING, ids=lambda path: path.stem)
def test_every_script_says_which_option_of_salloc_is_missing(path):
    inside = {"SLURM_JOB_ID": "5", "SLURM_JOB_NUM_NODES": "2", "HPCCOLL_IMAGE": "a.sif"}
    environment = {"PATH": os.environ["PATH"], **inside}
    ended = subprocess.run(
        ["bash", path], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "--ntasks-per-node" in ended.stderr


COUNTED = """
import sys
import numpy as np
from mpi4py import MPI
vector = np.ones(8)
for _ in range(10):
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, vector)
sys.exit(7)
"""


def test_a_program_is_counted_on_all_nodes_and_the_job_ends_as_it_does(
    submit, end, tmp_path, require
):
    try:
        counting_library()
    except UnusableError as error:
        require(False, str(error))
    program = tmp_path / "program.py"
    program.write_text(COUNTED)
    options = ["-N", 2, "--ntasks-per-node=2"]
    job = submit("count", sys.executable, program, options=options, HPCCOLL_MPI="pmi2")
    code, log = end(job)
    assert code == 7, log
    counted = read_counted_job(tmp_path / f"count-{job}.h5")
    world = counted.groups[counted.kinds[0].group]
    assert (world.size, world.nodes, counted.missing) == (4, 2, [])
    assert counted.calls["calls"].tolist() == [10] * 4
    assert (tmp_path / f"count-{job}.html").exists()
    assert not list(tmp_path.glob("*.ranks"))


ENDLESS = """
import numpy as np
from mpi4py import MPI
vector = np.ones(8)
while True:
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, vector)
"""


def test_what_a_program_called_before_its_time_limit_is_in_the_file(
    submit, end, testbed, tmp_path, require
):
    try:
        counting_library()
    except UnusableError as error:
        require(False, str(error))
    program = tmp_path / "program.py"
    program.write_text(ENDLESS)
    job = submit(
        "count", sys.executable, program, options=["-N", 2, "--time=5"], HPCCOLL_MPI="pmi2"
    )
    ranks = tmp_path / f"count-{job}.ranks"

    def have_written():
        texts = [path.read_text() for path in ranks.glob("*.count")]
        return sum("\ncalls\t" in text for text in texts) == 2

    wait(have_written, "the ranks count")
    testbed.slurm("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    _, log = end(job)
    assert "DUE TO TIME LIMIT" in log
    counted = read_counted_job(tmp_path / f"count-{job}.h5")
    assert [rank.end for rank in counted.ranks] == ["running", "running"]
    assert counted.calls["calls"].min() > 0
    assert (tmp_path / f"count-{job}.html").exists()


def test_all_reduce_is_measured_on_what_sbatch_asked_for(submit, end, tmp_path):
    code, log = end(submit("allreduce", *SMALL, options=["-N", 2, "--ntasks-per-node=2"]))
    assert code == 0, log
    rows = complete(tmp_path / "results" / "allreduce" / "2x2.h5")
    assert len(rows) == 8
    assert {(row.nodes, row.ranks, row.ranks_per_node, row.iterations) for row in rows} == {
        (2, 4, 2, 15)
    }
    assert log.endswith("hpccoll report results/allreduce/2x2.h5\n")


def test_a_signalled_job_is_resumed_by_the_same_sbatch(testbed, submit, end, tmp_path):
    raw, journal = tmp_path / "mine.h5", tmp_path / "mine.h5.journal"
    # 3 cases of a second or more, in one round, so that each belongs to one attempt
    slow = ("-a", "ring", "-b", "1M", "-e", "4M", "-n", 40, "--rounds", 1, "--in-place")
    number = submit("allreduce", *slow, HPCCOLL_OUT=str(raw))
    begun = 'until grep -q "\\", \\"start\\"" "$0"; do sleep 0.02; done 2> /dev/null; exec scancel --signal=USR1 "$1"'
    testbed.slurm("bash", "-c", begun, journal, number)
    code, log = end(number)
    assert code == 3, log
    assert "interrupted by SIGUSR1: " in log
    assert f" of 3 measurements are in {journal}; the same command measures the rest" in log
    assert interrupted_marker_path(raw).exists()
    code, log = end(submit("allreduce", *slow, HPCCOLL_OUT=str(raw)))
    assert code == 0, log
    rows = complete(raw)
    assert (len(rows), {row.attempt for row in rows}) == (3, {1, 2})
    code, log = end(submit("allreduce", *SMALL, HPCCOLL_OUT=str(raw)))
    assert "this one holds another job" in log
    assert code not in (0, 3), log  # 2, unless srun had to end a rank that took its time
    assert complete(raw) == rows


def test_scaling_measures_the_first_nodes_of_one_allocation(submit, end, tmp_path):
    code, log = end(submit("scaling", *SMALL, options=["-N", 3]))
    assert code == 0, log
    place = tmp_path / "results" / "scaling"
    assert sorted(path.name for path in place.iterdir()) == ["2x1.h5", "3x1.h5"]
    assert {(row.nodes, row.ranks) for row in complete(place)} == {(2, 2), (3, 3)}
    two, three = (run.provenance["hosts"] for run in read_results([place]).runs)
    assert (len(two), three[:2]) == (2, two)
    assert log.endswith("hpccoll report results/scaling\n")


def test_scaling_begins_with_one_node_of_several_ranks_and_if_it_fails_the_others_are_measured(
    submit, end, tmp_path
):
    place = tmp_path / "mine"
    place.mkdir()
    (place / "1x2.h5").write_text("something else")
    options = ["-N", 2, "--ntasks-per-node=2"]
    code, log = end(
        submit("scaling", *SMALL, options=options, HPCCOLL_OUT="mine", HPCCOLL_MPI="pmi2")
    )
    assert code not in (0, 3), log  # 2, unless srun had to end a rank that took its time
    assert "mine/1x2.h5' is not a whole raw file of hpccoll" in log
    assert {(row.nodes, row.ranks) for row in complete(place / "2x2.h5")} == {(2, 4)}


def test_an_mpi_that_speaks_another_pmi_fails(submit, end, tmp_path):
    code, log = end(submit("allreduce", *SMALL, HPCCOLL_MPI="none"))
    assert code != 0, log
    assert not list(tmp_path.rglob("*.h5"))


@pytest.fixture
def fault(testbed):
    """Have the testbed do worse until the end of the test."""

    def fault(*words):
        result = testbed.command("fault", *words)
        assert result.code == 0, result.err

    yield fault
    testbed.command("clear")


def test_a_node_that_sends_slowly_is_named_and_the_job_ends_with_3(submit, end, fault, tmp_path):
    fault("n3", "--send", "--rate", "100mbit")
    number = submit("diagnose", "--seconds", "0.05", "--seed", 7, options=["-N", 4])
    code, log = end(number)
    assert code == 3, log
    assert "\nn3 sends slowly: " in log, log
    assert "\n--exclude=n3\n" in log, log
    assert log.endswith(f"\nhpccoll diagnose --report results/diagnoses/{number}.h5\n")
    recorded = read_diagnosis(tmp_path / "results" / "diagnoses" / f"{number}.h5")
    assert (recorded.question.hosts, recorded.question.seed) == (("n1", "n2", "n3", "n4"), 7)


def test_a_rank_that_hangs_costs_no_verdict(submit, end, fault, tmp_path):
    number = submit("diagnose", "--seconds", "0.1", options=["-N", 4], HPCCOLL_OUT="mine.h5")
    log = tmp_path / f"{number}.log"
    wait(lambda: log.exists() and "; screen" in log.read_text(), "no slot is measured")
    fault("n2", "--stop")
    code, text = end(number)
    assert code == 3, text
    verdict = text.rpartition("srun: error")[2]
    assert "\nn2 does not answer\n" in verdict
    assert text.count("\nn2 does not answer\n") == 1
    assert "\n--exclude=n2\n" in verdict
    assert verdict.endswith("\nhpccoll diagnose --report mine.h5\n")


@pytest.mark.parametrize("program", ["", "sendrecv_perf"])
def test_a_signal_before_the_time_limit_keeps_what_was_measured(
    testbed, submit, end, tmp_path, program
):
    words = ("--with", f"{installed(tmp_path)} -b 2M") if program else ("--seconds", "1")
    number = submit("diagnose", *words, options=["-N", 4], HPCCOLL_OUT="mine.h5", LASTS="1")
    log = tmp_path / f"{number}.log"
    wait(lambda: log.exists() and "; screen" in log.read_text(), "no slot is measured")
    testbed.slurm("scancel", "--batch", "--signal=USR1", number)  # as --signal=B:USR1@60 does
    code, text = end(number)
    assert code == 3, text
    assert "\nthe diagnosis was interrupted" in text
    assert text.endswith("\nhpccoll diagnose --report mine.h5\n")
    recorded = read_diagnosis(tmp_path / "mine.h5")
    assert (recorded.diagnosis, bool(recorded.measured)) == (None, True)


@pytest.fixture
def stand_in(tmp_path):
    """Put a program of this name first on PATH, and return that PATH."""

    def stand_in(name, script):
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        (place / name).write_text(f"#!/bin/bash\n{script}\n")
        (place / name).chmod(0o755)
        return place

    return stand_in


@pytest.mark.parametrize(
    ("ended", "code", "asked"), [(0, 0, ""), (3, 3, ""), (2, 2, ""), (137, 3, WITH_PAGE)]
)
def test_the_exit_code_is_that_of_the_verdict_also_if_srun_has_ended_a_rank(
    stand_in, tmp_path, ended, code, asked
):
    measures = "" if ended == 2 else "touch d.h5\n"
    stand_in("srun", f"printf '%s ' \"$@\" > asked\necho verdict\n{measures}exit {ended}")
    place = stand_in("hpccoll", 'echo verdict; echo "hpccoll $*" > called; exit 3')
    variables = {
        "PATH": f"{place}:/usr/bin:/bin",
        "HPCCOLL_OUT": "d.h5",
        "HPCCOLL_MPI": "pmix",
        "SLURM_JOB_ID": "5",
    }
    job = {"SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS_PER_NODE": "2"}
    command = ["bash", ROOT / "slurm" / "diagnose.sbatch", "--links"]
    result = subprocess.run(
        command, env=variables | job, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (code, "verdict\n" + REPORTED * (ended != 2))
    assert ((tmp_path / "called").read_text() if asked else "") == asked
    assert (tmp_path / "asked").read_text() == (
        "-N 4 -n 8 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=0 --wait=0 --mpi=pmix "
        "hpccoll diagnose --out d.h5 --links "
    )


def test_the_verdict_is_in_the_log_of_a_job_that_is_cancelled_while_srun_waits_for_a_rank(
    stand_in, tmp_path
):
    stand_in("srun", "echo verdict\ntouch d.h5 printed\nexec sleep 60 > /dev/null")
    place = stand_in("hpccoll", "exit 3")
    job = {
        "SLURM_JOB_NUM_NODES": "4",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_JOB_ID": "5",
        "HPCCOLL_OUT": "d.h5",
    }
    command, variables = (
        ["bash", ROOT / "slurm" / "diagnose.sbatch"],
        {"PATH": f"{place}:/usr/bin:/bin", **job},
    )
    with subprocess.Popen(
        command,
        env=variables,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as script:
        wait((tmp_path / "printed").exists, "srun has printed nothing")
        script.terminate()
        assert script.stdout
        assert script.stdout.read() == "verdict\n"
    os.killpg(script.pid, signal.SIGKILL)  # the stand-in of srun


@pytest.mark.parametrize("ended", [2, 137])
def test_the_file_of_an_earlier_job_is_no_verdict_of_this_one(stand_in, tmp_path, ended):
    (tmp_path / "d.h5").touch()
    os.utime(tmp_path / "d.h5", (2**32, 2**32))  # by a clock that is ahead of this one
    stand_in("srun", f"exit {ended}")
    place = stand_in("hpccoll", 'echo "hpccoll $*"')
    job = {
        "SLURM_JOB_NUM_NODES": "4",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_JOB_ID": "5",
        "HPCCOLL_OUT": "d.h5",
    }
    command = ["bash", ROOT / "slurm" / "diagnose.sbatch"]
    variables = {"PATH": f"{place}:/usr/bin:/bin", **job}
    result = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (ended, "")


@pytest.mark.parametrize("words", [["--with", "sendrecv_perf -b 1M"], ["--with=all_reduce_perf"]])
def test_a_program_of_nccl_tests_is_started_by_one_process(stand_in, tmp_path, words):
    stand_in("srun", "echo srun")
    place = stand_in("hpccoll", 'printf "%s|" "$@"; touch d.h5')
    job = {
        "SLURM_JOB_NUM_NODES": "4",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_JOB_ID": "5",
        "HPCCOLL_OUT": "d.h5",
    }
    command = ["bash", ROOT / "slurm" / "diagnose.sbatch", *words]
    variables = {"PATH": f"{place}:/usr/bin:/bin", **job}
    result = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"diagnose|--out|d.h5|{'|'.join(words)}|")


def test_ranks_run_inside_of_apptainer(submit, end, stand_in, tmp_path):
    place = stand_in(
        "apptainer",
        'echo "$*" > asked.$SLURM_PROCID\nwhile [ "$1" != my.sif ]; do shift; done\nexec "${@:2}"',
    )
    own = subprocess.run(
        ["bash", "-c", "type -P hpccoll"], capture_output=True, text=True, check=True
    ).stdout
    path = f"{place}:{Path(own).parent}:/usr/bin:/bin"
    code, log = end(
        submit("apptainer", *SMALL, HPCCOLL_IMAGE="my.sif", HPCCOLL_MPI="pmi2", PATH=path)
    )
    assert code == 0, log
    assert {(row.nodes, row.ranks) for row in complete(tmp_path / "results" / "apptainer")} == {
        (2, 2)
    }
    # an exclusive job has the GPUs of its nodes
    requested = (tmp_path / "asked.1").read_text().replace(" --nv ", " ")
    assert requested.startswith(
        f"exec --no-home --bind {tmp_path} --pwd {tmp_path} my.sif hpccoll run --shape 2x1 "
    )


def test_pyxis_is_asked_of_srun(stand_in, tmp_path):
    place = stand_in("srun", "printf '%s\\n' \"$@\"")
    job = {"SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "3"}
    variables = {"PATH": f"{place}:/usr/bin:/bin", "HPCCOLL_IMAGE": "my image.sqsh", **job}
    command = ["bash", ROOT / "slurm" / "pyxis.sbatch", "-b", "1M"]
    result = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    words = result.stdout.splitlines()
    assert words[: words.index("hpccoll")] == [
        "-N",
        "4",
        "-n",
        "8",
        "--ntasks-per-node=2",
        "--distribution=block",
        "--kill-on-bad-exit=1",
        "--mpi=pmix",
        "--cpus-per-task=3",
        "--container-image=my image.sqsh",
        f"--container-mounts={tmp_path}:{tmp_path}",
        f"--container-workdir={tmp_path}",
        "--no-container-mount-home",
        "--no-container-remap-root",
    ]
    assert words[words.index("hpccoll") :][:8] == [
        "hpccoll",
        "run",
        "--shape",
        "4x2",
        "--out",
        "results/pyxis/4x2.h5",
        "-b",
        "1M",
    ]
    del variables["HPCCOLL_IMAGE"]
    result = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert "HPCCOLL_IMAGE: is the image to run in" in result.stderr


HIDDEN = {"apptainer": "--nv", "pyxis": "--container-env=NVIDIA_VISIBLE_DEVICES,"}
"""What a container needs to see the driver of its host."""


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("gpus", ["8", ""])
def test_ranks_in_containers_reach_the_gpus_that_the_job_has_and_are_next_to_them(
    name, gpus, stand_in, tmp_path
):
    place = stand_in("srun", "printf '%s\\n' \"$@\"")
    job = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "8", "SLURM_CPUS_ON_NODE": "96"}
    job |= {"SLURM_GPUS_ON_NODE": gpus} if gpus else {}
    variables = {"PATH": f"{place}:/usr/bin:/bin", "HPCCOLL_IMAGE": "image", **job}
    command = ["bash", ROOT / "slurm" / f"{name}.sbatch", "--device", "cuda"]
    result = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    words = result.stdout.splitlines()
    bound = {"--distribution=block:block", "--gpu-bind=none", "--cpus-per-task=12"} & {*words}
    assert len(bound) == (3 if gpus else 0)
    assert any(word.startswith(HIDDEN[name]) for word in words) == bool(gpus)


NCCL = [
    "-t",
    "nccl",
    "--param",
    "graph=0,1",
    "--timing",
    "single,aggregated",
    "-b",
    "64",
    "-e",
    "1G",
]
GPUS = {
    "nccl": (
        ["default", "nccl-ring", "nccl-tree", "nccl-nvls-tree"],
        [*NCCL, "-a", "native,ring,double_binary_tree,hierarchical"],
    ),
    "sharp": (["default", "nccl-sharp", "nccl-sharp-nvls", "nccl-sharp-off"], [*NCCL, "-a", "native,ring"]),
    "gpu-mpi": (
        ["default"], ["-t", "mpi,staged", "-a", "native,ring,rabenseifner", "-b", "8", "-e", "512M"],
    ),
}  # fmt: skip
"""Scripts for GPUs: their variants, and what they measure on two nodes."""


@pytest.fixture
def lines(stand_in, tmp_path):
    """Run a script with an srun that says its words, and return its lines of srun, each in words."""
    place = stand_in("srun", "printf '%s ' \"$@\"; echo")

    def lines(name, *arguments, nodes=2, code=0, pairs=False, **variables):
        job = {
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_NTASKS_PER_NODE": "8",
            "SLURM_CPUS_ON_NODE": "100",
        }
        job["PATH"] = f"{place}:/usr/bin:/bin"
        command = ["bash", ROOT / "slurm" / f"{name}.sbatch", *arguments]
        result = subprocess.run(
            command, env=job | variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == code, result.stderr
        launches = [line.split() for line in result.stdout.splitlines() if " hpccoll run " in line]
        return [words for words in launches if ("--try-gpu-pair" in words) == pairs]

    return lines


@pytest.mark.parametrize("name", GPUS)
def test_ranks_of_gpus_see_all_of_their_node_and_each_variant_is_launched_with_and_without_its_logs(
    name, lines
):
    variants, cases = GPUS[name]
    launches = lines(name, "-b", "1M", HPCCOLL_MPI="pmix")
    launch = [
        "-N",
        "2",
        "-n",
        "16",
        "--ntasks-per-node=8",
        "--distribution=block:block",
        "--gpu-bind=none",
        "--kill-on-bad-exit=1",
        "--cpus-per-task=12",
        "--mpi=pmix",
    ]
    wanted = []
    for variant in variants:
        raw = f"results/{name}/2x8.{variant}.h5"
        words = [
            *launch,
            "hpccoll",
            "run",
            "--shape",
            "2x8",
            *(["--variant", variant] if variant != "default" else []),
        ]
        words += ["--device", "cuda", *cases, "-f", "4", "-b", "1M"]
        probed = name != "gpu-mpi"  # an MPI has no logs that say what ran
        wanted += [[*words, "--probe", f"{raw}.logs"]] if probed else []
        wanted += [[*words, *(["--evidence", f"{raw}.logs"] if probed else []), "--out", raw]]
    assert [sorted(words) for words in launches] == [sorted(words) for words in wanted]


@pytest.mark.parametrize(
    ("nodes", "device", "tried"), [(2, "cuda", True), (1, "cuda", False), (2, "cpu", False)]
)
def test_two_ranks_try_gpu_memory_between_nodes_before_mpi_is_measured_there(
    nodes, device, tried, lines, stand_in
):
    launches = lines("gpu-mpi", nodes=nodes, pairs=True, HPCCOLL_MPI="pmix", HPCCOLL_DEVICE=device)
    file = "results/gpu-mpi/2x8.default.h5.gpu-pair.json"
    wanted = [
        "-N",
        "2",
        "-n",
        "2",
        "--ntasks-per-node=1",
        "--gpu-bind=none",
        "--kill-on-bad-exit=1",
        "--mpi=pmix",
    ]
    wanted += ["hpccoll", "run", "--shape", "2x1", "--device", "cuda", "--try-gpu-pair", file]
    assert launches == ([wanted] if tried else [])
    (measured,) = lines("gpu-mpi", nodes=nodes, HPCCOLL_DEVICE=device)
    assert "--gpu-pair" not in measured, "nothing was written"
    dies = 'echo "$@"; [[ "$*" != *--try-gpu-pair* ]] || { touch "${@: -1}"; kill -SEGV $$; }'
    stand_in("srun", dies)
    (measured,) = lines("gpu-mpi", nodes=nodes, HPCCOLL_DEVICE=device)
    assert (file in measured) == tried


@pytest.mark.parametrize("name", ["nccl", "sharp"])
def test_logs_of_an_earlier_launch_are_no_evidence_for_the_next(name, lines, tmp_path):
    old = tmp_path / "results" / name / "2x8.nccl-sharp.h5.logs" / "nccl.n9.1.log"
    old.parent.mkdir(parents=True)
    old.write_text("n9:1:1 [0] NCCL INFO Using network IB")
    lines(name, HPCCOLL_VARIANTS="nccl-sharp")
    assert not old.exists()


@pytest.mark.parametrize("name", ["nccl", "sharp"])
def test_a_probe_that_fails_costs_no_measurement(name, stand_in, lines):
    launches = lines(name)
    stand_in("srun", 'printf \'%s \' "$@"; echo; [[ "$*" != *--probe* ]]')
    assert lines(name) == launches


@pytest.mark.parametrize("name", ["nccl", "sharp"])
def test_nothing_is_launched_after_a_signalled_probe(name, stand_in, lines):
    stand_in("srun", 'echo "$@"; touch "$(echo results/*/*.logs)/interrupted"; exit 137')
    (launch,) = lines(name, code=3)
    assert "--probe" in launch


def test_on_one_node_nvls_has_its_single_node_form_and_hierarchical_whose_plan_is_that_of_the_ring_is_left_out(
    lines,
):
    launches = lines("nccl", nodes=1)
    assert {words[words.index("-a") + 1] for words in launches} == {
        "native,ring,double_binary_tree,direct"
    }
    assert {words[words.index("--variant") + 1] for words in launches if "--variant" in words} == {
        "nccl-ring",
        "nccl-tree",
        "nccl-nvls",
        "nccl-nvls-off",
    }


@pytest.mark.parametrize("name", GPUS)
def test_variants_can_be_named_and_are_known_and_the_cpus_of_a_rank_are_those_that_are_asked_for(
    name, lines
):
    asked = {
        "HPCCOLL_VARIANTS": "ucx-one-rail nccl-gdr-off",
        "HPCCOLL_OUT": "mine",
        "SLURM_CPUS_PER_TASK": "7",
    }
    launches = lines(name, **asked)
    assert all("--cpus-per-task=7" in words for words in launches)
    named = dict.fromkeys(
        words[words.index("--variant") + 1] for words in launches if "--variant" in words
    )
    assert list(named) == ["ucx-one-rail", "nccl-gdr-off"]
    assert all("mine/2x8." in words[-1] for words in launches)
    assert set(GPUS[name][0]) <= {"default", *named_variants()}


@pytest.mark.parametrize("name", ["nccl", pytest.param("sharp", marks=pytest.mark.long)])
def test_scripts_for_nccl_run_with_its_test_library(name, submit, end, tmp_path, nccl_library):
    options = ["-N", 2, "--ntasks-per-node=2", "--gpus-per-node=2"]
    variables = on_host(nccl_library, tmp_path) | {"HPCCOLL_VARIANTS": "nccl-gdr-off"}
    code, log = end(
        submit(
            name,
            "-b",
            "64",
            "-e",
            "64",
            "-n",
            2,
            "-w",
            1,
            "--in-place",
            options=options,
            **variables,
        )
    )
    assert code == 0, log
    rows = complete(tmp_path / "results" / name)
    assert {(row.ranks, row.nodes, row.ranks_per_node, row.transport) for row in rows} == {
        (4, 2, 2, "nccl")
    }
    native = [row for row in rows if row.algorithm == "native"]
    assert {(row.variant, row.executed) for row in native} == {
        (None, "ring"),
        ("nccl-gdr-off", "ring"),
    }
    assert {(row.timing, row.params["graph"]) for row in native} == {
        ("single", 0), ("single", 1), ("aggregated", 0), ("aggregated", 1),
    }  # fmt: skip
    assert log.endswith(f"hpccoll report results/{name}\n")


@pytest.mark.long
def test_the_script_for_mpi_on_gpus_runs_with_ranks_on_the_host_in_their_place(
    submit, end, tmp_path
):
    here = {"HPCCOLL_DEVICE": "cpu", "HPCCOLL_TRANSPORT": "mpi", "HPCCOLL_VARIANTS": "ucx-one-rail"}
    options = ["-N", 2, "--ntasks-per-node=2", "--gpus-per-node=2"]
    code, log = end(submit("gpu-mpi", *SMALL, "-f", 2, options=options, **here))
    assert code == 0, log
    rows = complete(tmp_path / "results" / "gpu-mpi")
    assert {(row.ranks, row.nodes, row.ranks_per_node) for row in rows} == {(4, 2, 2)}
    assert {row.variant for row in rows} == {None, "ucx-one-rail"}
    assert log.endswith("hpccoll report results/gpu-mpi\n")


@pytest.mark.parametrize("name", GPUS)
def test_a_variant_with_failed_cases_does_not_stop_the_others_but_a_signalled_one_does(
    name, stand_in, lines
):
    variants = {"HPCCOLL_VARIANTS": "nccl-ring nccl-tree"}
    launches = lines(name, **variants)
    left = """printf '%s ' "$@"; echo; raw=$(printf '%s\\n' "$@" | grep 'h5$')
[[ "$*" == *--probe* ]] || { mkdir -p "${raw%/*}"; touch "$raw.journal"; exit 3; }"""
    stand_in("srun", left)
    assert lines(name, code=3, **variants) == launches
    stand_in("srun", left.replace("exit 3", 'touch "$raw.interrupted"; exit 3'))
    assert len(lines(name, code=3, **variants)) == (1 if name == "gpu-mpi" else 2)
    stand_in("srun", 'printf \'%s \' "$@"; echo; [[ "$*" != *nccl-ring* ]]')
    assert lines(name, code=1, **variants) == launches
    # before the signal of an earlier job could be withdrawn
    stand_in("srun", "printf '%s ' \"$@\"; echo; exit 1")
    assert lines(name, code=1, **variants) == launches


MANY = 50_000
"""Lines of sinfo that no pipe holds: a reader that leaves after the first would end it by a signal."""


def test_the_hosts_of_aggregators_are_found_however_much_sinfo_says_and_there_have_to_be_some(
    stand_in, tmp_path
):
    stand_in("scontrol", "printf '%s\\n' a1 n1 n2")
    stand_in("srun", "printf '%s\\n' \"$@\"")
    job = {"SLURM_JOB_NODELIST": "a1,n[1-2]", "SLURM_NTASKS_PER_NODE": "1"}
    place = stand_in(
        "sinfo",
        f"""
[[ $1 == -a ]] || exit 1
[[ "$*" == *"-n a1 "* ]] && printf ',x,switch,\\n%.0s' {{1..{MANY}}} || echo ',worker,'
""",
    )
    command = ["bash", ROOT / "slurm" / "in-network.sbatch"]

    def run(feature):
        variables = {"PATH": f"{place}:/usr/bin:/bin", "HPCCOLL_AGGREGATOR": feature, **job}
        return subprocess.run(
            command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    result = run("switch")
    assert result.returncode == 0, result.stderr
    assert "--nodelist=n1,n2,a1" in result.stdout.splitlines()
    result = run("gpu")
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        result.stderr == "none of the hosts a1 n1 n2 has the feature gpu: see HPCCOLL_AGGREGATOR\n"
    )


def test_doctor_knows_the_testbed(testbed, mpiexec):  # noqa: ARG001 - there is an MPI library
    result = testbed.run("hpccoll", "doctor")
    assert result.code == 0, f"{result.out}\n{result.err}"
    for words in ("jobs for 300 s", "work* 4 of 4 nodes usable", "profile: testbed"):
        assert words in result.out
