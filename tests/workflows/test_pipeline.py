"""The whole pipeline, with Snakemake and real ranks: what it prints, what it keeps, what it does not do twice."""

import base64
import json
import re
import shutil
import subprocess
import sys

import pytest
from cli_runner import ENVIRONMENT, invoke, spawn

from hpccoll.store import hdf5
from hpccoll.store.journal import Journal
from hpccoll.sweep.paths import workflow_directory

pytestmark = pytest.mark.sweep


def snakemake(*arguments, cwd, profile=True):
    where = ["--workflow-profile", workflow_directory() / "profiles" / "local"] if profile else []
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        workflow_directory() / "Snakefile",
        *where,
        *arguments,
    ]
    return subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def raw_files(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "raw").iterdir()}


def case_ids(path):
    return {
        (row["job"], row["case_id"], row["status"])
        for row in json.loads(invoke("export", path).out)
    }


def test_a_sweep_prints_the_command_and_last_the_report(swept):
    assert swept.result.code == 0, swept.result.err
    first, command, *_, last = swept.result.out.splitlines()
    assert first.startswith("tiny: 12 cases in 2 jobs, 3 rounds of each; about 9 s, longer if")
    assert command.startswith(
        f"$ {sys.executable} -m snakemake -s {workflow_directory()}/Snakefile "
    )
    assert last == "report: results/tiny/report/index.html"
    assert "<html" in (swept.out / "report" / "index.html").read_text()


def test_every_planned_case_has_a_row_and_status_says_so(swept):
    assert "36 of 36 measurements" in swept.result.err
    assert "\x1b" not in swept.result.err
    plan = json.loads((swept.out / "plan.json").read_text())
    rows = json.loads(invoke("export", swept.out).out)
    assert {(row["job"], row["algorithm"], row["bytes"], row["status"]) for row in rows} == {
        (job["name"], case["algorithm"], case["bytes"], "ok")
        for job in plan["jobs"]
        for case in job["cases"]
    }
    status = invoke("status", swept.out)
    assert status.code == 0
    assert [
        f"mpi.p{ranks}: complete, 6 of 6 cases, 1 attempt\n" in status.out for ranks in (1, 2)
    ] == [True, True]


def test_a_second_sweep_measures_nothing(copy):
    before = raw_files(copy.out)
    ended = snakemake("--configfile", "tiny.yaml", "--dry-run", "raw", cwd=copy.home)
    assert ended.returncode == 0, ended.stderr
    assert "Nothing to be done" in ended.stdout
    result = spawn("sweep", "tiny.yaml", cwd=copy.home)
    assert result.code == 0, result.err
    assert raw_files(copy.out) == before
    assert (
        "Nothing to be done"
        in (copy.out / "logs" / "snakemake.log").read_text().rpartition("\n$ ")[2]
    )
    assert result.out.splitlines()[-1] == "report: results/tiny/report/index.html"


def test_a_job_whose_raw_file_is_gone_is_run_again_and_one_that_has_a_journal_is_only_written(copy):
    gone, killed = (copy.out / "raw" / f"mpi.p{ranks}.h5" for ranks in (1, 2))
    first, before = hdf5.read_raw_file(gone), hdf5.read_raw_file(killed)
    Journal(killed, before.job, before).close(remove=False)
    gone.unlink()
    killed.unlink()
    result = spawn("sweep", "tiny.yaml", cwd=copy.home)
    assert result.code == 0, result.err
    again, written = hdf5.read_raw_file(gone), hdf5.read_raw_file(killed)
    assert again.complete
    assert {attempt.run_id for attempt, _ in again.attempts}.isdisjoint(
        attempt.run_id for attempt, _ in first.attempts
    )
    assert written.complete
    assert [attempt for attempt, _ in written.attempts] == [
        attempt for attempt, _ in before.attempts
    ]
    assert not list(killed.parent.glob("*.journal"))


def test_an_error_of_snakemake_is_printed_and_the_report_is_written(copy):
    result = spawn("sweep", "tiny.yaml", "--", "--frobnicate", cwd=copy.home)
    assert result.code == 3
    assert "snakemake ended with 2 " in result.err
    assert "--frobnicate): see results/tiny/logs" in result.err
    assert result.out.splitlines()[-1] == "report: results/tiny/report/index.html"


def test_plain_snakemake_gives_the_same_cases_and_a_report(swept, tmp_path):
    (tmp_path / "tiny.yaml").write_text(
        (swept.home / "tiny.yaml").read_text().replace("ranks: [1, 2]", "ranks: 2")
    )
    ended = snakemake("--configfile", "tiny.yaml", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert case_ids(tmp_path / "results" / "tiny") == {
        each for each in case_ids(swept.out) if each[0] == "mpi.p2"
    }
    assert (tmp_path / "results" / "tiny" / "report" / "index.html").exists()


def test_a_sweep_runs_a_plan_of_mscclpp_which_the_report_names_and_refuses_it_once_it_has_changed(
    tmp_path, require
):
    require(shutil.which("mpiexec", path=ENVIRONMENT["PATH"]), "there is no mpiexec")
    plan, sweep = tmp_path / "plan.json", tmp_path / "sweep.yaml"
    export = "-p", 2, "-b", "1M", "--format", "mscclpp", "--out", plan
    assert invoke("show", "ring", *export).code == 0
    sweep.write_text(
        "algorithms: [ring, file:plan.json]\nbytes: 64K\nranks: 2\nin_place: true\n"
        "effort: {min_iterations: 6, max_iterations: 6}\n"
    )
    result = spawn("sweep", sweep, "--out", tmp_path / "out", cwd=tmp_path.parent)
    assert result.code == 0, result.err
    rows = json.loads(invoke("export", tmp_path / "out").out)
    assert [(row["algorithm"].partition("#")[0], row["status"], row["wrong"]) for row in rows] == [
        (name, "ok", 0) for name in ("file:plan.json", "ring")
    ]
    assert rows[0]["algorithm"] in (tmp_path / "out" / "report" / "index.html").read_text()
    other = tmp_path / "other"
    other.mkdir()
    for each in (plan, sweep):
        shutil.copy(each, other)
    result = spawn("sweep", other / sweep.name, "--out", other / "out", cwd=tmp_path)
    assert result.code == 0, result.err
    compared = json.loads(invoke("compare", tmp_path / "out", other / "out", "--json").out)
    assert (compared["missing"], compared["new"]) == ([], []), (
        "the same plan is the same case in every directory"
    )
    assert invoke("show", "swing", *export).code == 0
    changed = invoke("sweep", sweep, "--out", tmp_path / "out")
    assert changed.is_bad_input("mpi.p2 was measured there before", rows[0]["algorithm"])
    job = tmp_path / "out" / "jobs" / "mpi.p2.json"
    again = spawn("run", "--job", job, "--out", tmp_path / "a.h5", launcher=["mpiexec", "-n", "2"])
    assert again.is_bad_input("algorithm", "it has changed since")


@pytest.mark.parametrize("name", ["testbed.yaml", "libraries.yaml"])
def test_a_dry_run_is_shown_and_leaves_nothing(tmp_path, name):
    text = (workflow_directory() / "config" / name).read_text()
    (tmp_path / name).write_text(re.sub(r"nodes: .*", "ranks: [2]", text))
    result = spawn("sweep", name, "--", "--dry-run", cwd=tmp_path)
    assert result.code == 0, result.err
    assert "This was a dry-run" in result.out
    assert not (tmp_path / "results").exists()


def test_the_workflow_lints_but_for_the_environment(swept):
    """What the rules run is the environment that Snakemake is in: there is none to name for each rule."""
    ended = snakemake("--configfile", "tiny.yaml", "--lint", cwd=swept.home, profile=False)
    lints = {line.strip() for line in ended.stderr.splitlines() if line.startswith("    * ")}
    assert lints == {"* Specify a conda environment or container for each rule.:"}


def test_the_report_of_snakemake_contains_the_page(copy):
    """Also where hpccoll sweep has written the page, of which Snakemake has no record."""
    arguments = ("--configfile", "tiny.yaml", "--report", "theirs.html")
    ended = snakemake(*arguments, cwd=copy.home, profile=False)
    assert ended.returncode == 0, ended.stderr
    theirs = (copy.home / "theirs.html").read_text()
    page = (copy.out / "report" / "index.html").read_bytes()
    assert base64.b64encode(page).decode() in theirs
    assert "Collectives" in theirs


def test_another_workflow_imports_this_one_as_a_module(swept, tmp_path):
    (tmp_path / "tiny.yaml").write_text(
        (swept.home / "tiny.yaml").read_text().replace("ranks: [1, 2]", "ranks: 1")
    )
    (tmp_path / "Snakefile").write_text(
        f'configfile: "theirs.yaml"\n'
        f'module hpccoll:\n    snakefile: "{workflow_directory()}/Snakefile"\n    config: config["hpccoll"]\n'
        f"use rule * from hpccoll as hpccoll_*\n"
    )
    (tmp_path / "theirs.yaml").write_text("hpccoll: {sweep: tiny.yaml, out: theirs}\nmore: 1\n")
    theirs = ("-s", "Snakefile", "--cores", "1", "--nolock")
    ended = snakemake(*theirs, cwd=tmp_path, profile=False)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "theirs" / "report" / "index.html").exists()
    reported = snakemake(*theirs, "--report", "report.html", cwd=tmp_path, profile=False)
    assert reported.returncode == 0, reported.stderr
    assert "Collectives" in (tmp_path / "report.html").read_text()


def test_a_broken_raw_file_takes_one_line_and_stays_as_it_is(copy):
    path = copy.out / "raw" / "mpi.p2.h5"
    before = path.read_bytes()[:9000]
    path.write_bytes(before)
    for command in ("report", "export"):
        assert invoke(command, path).is_bad_input("mpi.p2.h5")
    status = invoke("status", path)
    assert (status.code, "damaged" in status.out) == (3, True)
    job = copy.out / "jobs" / "mpi.p2.json"
    assert spawn("run", "--job", job, "--out", path, launcher=["mpiexec", "-n", "2"]).is_bad_input(
        "mpi.p2.h5"
    )
    assert path.read_bytes() == before
    assert not list(copy.out.glob("raw/*.journal"))
