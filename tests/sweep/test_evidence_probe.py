"""The probe before a measurement: real launches of real ranks, whose library's logs are written by the program here."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples

from hpccoll.cases.case import TIMINGS, Effort, Shape
from hpccoll.cases.plan import Launcher, Plan
from hpccoll.cases.probe_cases import probe_cases
from hpccoll.cases.variants import named_variants
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.store.journal import journal_path, read_failure_notes
from hpccoll.store.load_results import read_results
from hpccoll.sweep import paths
from hpccoll.sweep.launch import launch

EFFORT = Effort(warmup=0, min_iterations=6, max_iterations=6, seconds=0.1, timeout=20)
NATIVE, RING = raw_examples.case(4096, algorithm="native"), raw_examples.case(4096)
UCC = (
    "[1763766000.0] [n1:77:0] ucc_coll.c:260 UCC_COLL INFO coll_init: Allreduce sum: "
    "src={0x7f01, 1024, float32, Host}, dst={0x7f02, 1024, float32, Host}; CL_BASIC {%s}, team_id 32768"
)
PROGRAM = """#!{python}
import os, sys
if "--probe" in sys.argv:
    with open({calls!r}, "a") as calls:
        print("rank", os.environ["PMI_RANK"], file=calls)
    exec(open({does!r}).read())
os.execv({python!r}, [{python!r}, "-m", "hpccoll", *sys.argv[1:]])
"""


@pytest.fixture
def here(tmp_path, mpiexec):  # noqa: ARG001 - there is one
    """``here(does)`` launches a job of a variant with UCC on one node, whose ranks do that when they are probed."""
    program = tmp_path / "program"
    python, calls, does = sys.executable, str(tmp_path / "calls"), str(tmp_path / "does.py")
    program.write_text(PROGRAM.format(python=python, calls=calls, does=does))
    program.chmod(0o755)
    environment = {**named_variants()["ucc-sharp"].environment, "A": "1"}

    def start(does, effort=EFFORT, *, complete=True, **how):
        about = {"name": "mpi.p2.mine", "variant": "mine", "environment": environment}
        of = raw_examples.job(NATIVE, RING, effort=effort, **about)
        Path(tmp_path / "does.py").write_text(does)
        launcher = Launcher(
            command=f"{shlex.join(paths.mpiexec_command())} -n {{ranks}}",
            program=str(program),
            **how,
        )
        plan = Plan(
            name="x",
            profile="local",
            jobs=(of,),
            skips=(),
            launcher=launcher,
            resources={},
            estimated_s=1,
        )
        (tmp_path / "plan.json").write_text(plan.to_json())
        (tmp_path / "jobs").mkdir(exist_ok=True)
        (tmp_path / "jobs" / f"{of.name}.json").write_text(of.to_json())
        out = tmp_path / "raw" / f"{of.name}.h5"
        assert launch(tmp_path / "plan.json", of.name, out) is complete
        if not complete:
            return out
        results = read_results([out])
        return {row.algorithm: row for row in results.rows}, results.runs[-1]

    start.place = tmp_path
    return start


def probed(here):
    calls = here.place / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def evidence(here):
    (file,) = (here.place / "raw").glob("*.evidence.json")
    return ProbeResult.load(file)


def test_what_a_probe_finds_is_in_rows_and_table_and_it_is_repeated_for_another_job_or_allocation(
    here, capfd, monkeypatch
):
    rows, run = here(f"print({UCC % 'TL_UCP'!r}, flush=True)")
    assert (rows["native"].requested, rows["native"].executed.split()[0]) == ("sharp", "ucp")
    assert "TL_UCP" in rows["native"].evidence
    assert (rows["ring"].requested, rows["ring"].executed) == (None, "ring")
    assert ProbeResult.from_json(run.evidence) == evidence(here)
    lines = {
        line.split()[0]: line.rstrip(" *~")
        for line in capfd.readouterr().out.splitlines()
        if "4 KiB" in line
    }
    assert lines["native"].endswith(" ucp (fallback: no line says why)")
    assert lines["ring"].split()[-1] == "6"

    (here.place / "raw" / "mpi.p2.mine.h5").unlink()
    rows, _ = here("raise SystemExit('not again')")
    assert (sorted(probed(here)), rows["native"].executed.split()[0]) == (
        ["rank 0", "rank 1"],
        "ucp",
    )

    (here.place / "raw" / "mpi.p2.mine.h5").unlink()
    other = Effort(warmup=1, min_iterations=6, max_iterations=6)
    here(f"print({UCC % 'TL_UCP'!r}, flush=True)", other)
    assert len(probed(here)) == 4

    (here.place / "raw" / "mpi.p2.mine.h5").unlink()
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    rows, run = here(f"print({UCC % 'TL_SHARP'!r}, flush=True)", other)
    assert len(probed(here)) == 6
    assert rows["native"].executed.split()[0] != "ucp"
    assert run.evidence["allocation"] == "4711"


@pytest.mark.parametrize(
    ("does", "patience", "why"),
    [
        ("sys.exit('no such library')", {}, "ended with exit code 1: no such library"),
        ("import time; time.sleep(600)", {"start_timeout_s": 4.0}, "did not end within"),
    ],
    ids=["fails", "hangs"],
)
def test_a_probe_that_fails_costs_the_evidence_and_never_the_measurement(here, does, patience, why):
    rows, run = here(does, replace(EFFORT, timeout=4) if patience else EFFORT, **patience)
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["native"].executed == "unknown"
    assert why in rows["native"].evidence
    assert why in run.evidence["failure"]


SIGNALS_ITS_RANK = """
import signal, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until hpccoll takes note of it
rank = os.getpid()
if not os.fork():
    def caught(status):
        return int(next(line for line in status if line.startswith("SigCgt")).split()[1], 16)
    while not caught(open(f"/proc/{rank}/status")) >> signal.SIGUSR1 - 1 & 1:
        time.sleep(0.01)
    os.kill(rank, signal.SIGUSR1)
    os._exit(0)
"""
"""Signals a rank as soon as it handles signals."""


def test_nothing_is_timed_after_a_signalled_probe_and_the_next_launch_begins_anew(here):
    out = here(SIGNALS_ITS_RANK, complete=False)
    assert not out.exists()
    assert not journal_path(out).exists()
    assert (
        read_failure_notes(out)[0].message
        == "the probe of 2 ranks on 1 node was interrupted by a signal"
    )
    rows, _ = here(f"print({UCC % 'TL_UCP'!r}, flush=True)")
    assert rows["native"].executed.split()[0] == "ucp"
    assert not read_failure_notes(out)


def test_only_the_librarys_own_is_probed_and_only_where_logs_can_say_what_it_did():
    shape = Shape(2, 2)
    assert not probe_cases(raw_examples.job(NATIVE, RING, nodes=2), shape)
    assert probe_cases(
        raw_examples.job(
            raw_examples.case(algorithm="native", transport="nccl", device="cuda"), nodes=2
        ),
        shape,
    )
    ours = [raw_examples.case(size, transport="nccl", device="cuda") for size in (1024, 4096)]
    # which network is under all of them
    assert probe_cases(raw_examples.job(*ours, nodes=2), shape) == ours[:1]
    native = raw_examples.case(algorithm="native", transport="nccl", device="cuda")
    twins = [
        replace(native, timing=timing, in_place=in_place)
        for timing in TIMINGS
        for in_place in (False, True)
    ]
    assert probe_cases(raw_examples.job(*twins, nodes=2), shape) == [native]
    assert probe_cases(raw_examples.job(NATIVE, nodes=2, variant="ucc-sharp-off"), shape)
    assert not probe_cases(raw_examples.job(NATIVE, nodes=2, variant="ucx-one-rail"), shape)
    assert not probe_cases(
        raw_examples.job(NATIVE, nodes=2, environment={"NCCL_ALGO": "Ring"}), shape
    )
