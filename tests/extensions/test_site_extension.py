"""A package of a site adds an algorithm, an importer and a command, as hpccoll/README.md shows it."""

import json
import re

import pytest
from cli_runner import CommandResult, spawn
from guide_blocks import Block, blocks

from hpccoll.cases.case import Job
from hpccoll.store.load_results import read_results

GUIDE = "hpccoll/README.md"
TABLE = "hpccoll_site:EXTENSION"
MOST_LINES = 30
SIZE = "-b 4K -e 4K"
SHORT = "-n", "6", "--rounds", "1", "--out"

WITHOUT_ENTRY_POINTS = """import sys
def refuse(event, arguments):
    assert not (event == "open" and str(arguments[0]).endswith("entry_points.txt")), arguments
sys.addaudithook(refuse)
from hpccoll.__main__ import main
main()
"""
"""Runs a command that must not look for entry points."""


def shown_files() -> dict[str, Block]:
    """Return the blocks of the guide by the file of the package that each is."""
    of_package = {}
    for block in (*blocks("toml", GUIDE), *blocks("python", GUIDE)):
        named = re.findall(r"`(hpccoll_site/\w+\.py|pyproject\.toml)`", block.before)
        if named:
            of_package[named[-1]] = block
    return of_package


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a directory in which the package of the guide is installed."""
    directory = tmp_path_factory.mktemp("site")
    for name, block in shown_files().items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(block.text)
    metadata = directory / "hpccoll_site-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hpccoll-site\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[hpccoll.extensions]\nsite = {TABLE}\n")
    return directory


@pytest.fixture
def run(site):
    """Return a function that runs a command where the package is installed."""

    def run(*arguments) -> CommandResult:
        result = spawn(*arguments, PYTHONPATH=str(site))
        assert result.code == 0, result.out + result.err
        return result

    return run


def test_the_guide_shows_a_whole_package_in_few_lines():
    files = shown_files()
    assert files.keys() == {"pyproject.toml", *(f"hpccoll_site/{name}.py" for name in MODULES)}
    assert f'site = "{TABLE}"' in files["pyproject.toml"].text
    lines = [line for block in files.values() for line in block.text.splitlines() if line]
    assert len(lines) <= MOST_LINES


MODULES = "__init__", "fan", "timings", "greet"


def test_the_lists_and_the_schedules_have_the_algorithm(run):
    listed = json.loads(run("list", "fan", "--json").out)
    assert [(row["collective"], row["name"]) for row in listed["algorithms"]] == [
        ("all_reduce", "fan")
    ]
    assert "proven: the postcondition of all_reduce" in run("show", "fan", "-p", 4).out


def test_the_command_runs_and_stands_in_the_help(run):
    assert run("greet", "our", "users").out == "our users\n"
    assert re.search(
        r"^  greet +Print the words of the command line\.$", run("--help").out, re.MULTILINE
    )


@pytest.mark.mpi
def test_results_of_another_program_are_imported_and_a_report_says_what_they_mean(
    run, site, tmp_path, mpiexec
):
    (tmp_path / "a.txt").write_text("# timings\n4096 1e-5\n8192 2e-5\n")
    run("import", tmp_path / "a.txt", "--ranks", 2, "--nodes", 1, "--out", tmp_path / "a.h5")
    rows = read_results([tmp_path / "a.h5"]).rows
    assert [(row.bytes, row.median_s, row.source) for row in rows] == [
        (4096, 1e-5, "timings"),
        (8192, 2e-5, "timings"),
    ]
    command = "run", "-a", "native", *SIZE.split(), *SHORT, tmp_path / "ours.h5"
    assert mpiexec(2, "-m", "hpccoll", *command, PYTHONPATH=str(site)).returncode == 0
    report = run("report", tmp_path / "a.h5", tmp_path / "ours.h5", "--out", tmp_path / "report")
    page = "".join(path.read_text() for path in (tmp_path / "report").rglob("*.html"))
    assert "timings: the mean at rank 0." in page, report.out


def planned_job(run, tmp_path, algorithms):
    (tmp_path / "a.yaml").write_text(
        f"algorithms: {algorithms}\nbytes: [4K]\nranks: 2\nrounds: 1\n"
    )
    run("plan", tmp_path / "a.yaml", "--out", tmp_path / "a")
    (path,) = (tmp_path / "a" / "jobs").iterdir()
    return path


@pytest.mark.mpi
def test_a_job_file_names_the_table_and_its_ranks_look_for_no_entry_points(
    run, site, tmp_path, mpiexec
):
    job = planned_job(run, tmp_path, "[fan, ring]")
    assert Job.from_json(job.read_text()).extensions == (TABLE,)
    ran = mpiexec(
        2,
        "-c",
        WITHOUT_ENTRY_POINTS,
        "run",
        "--job",
        job,
        "--out",
        tmp_path / "a.h5",
        PYTHONPATH=str(site),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = read_results([tmp_path / "a.h5"]).rows
    assert {(row.algorithm, row.status, row.wrong) for row in rows} == {
        ("fan", "ok", 0),
        ("ring", "ok", 0),
    }


def test_a_job_file_names_no_table_if_its_cases_need_none(run, tmp_path):
    job = planned_job(run, tmp_path, "[ring]")
    assert "extensions" not in json.loads(job.read_text())


@pytest.mark.mpi
def test_ranks_that_a_user_starts_know_the_algorithm(site, tmp_path, mpiexec):
    ran = mpiexec(
        2,
        "-m",
        "hpccoll",
        "run",
        "-a",
        "fan",
        *SIZE.split(),
        *SHORT,
        tmp_path / "a.h5",
        PYTHONPATH=str(site),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {(row.algorithm, row.wrong) for row in read_results([tmp_path / "a.h5"]).rows} == {
        ("fan", 0)
    }


@pytest.mark.mpi
@pytest.mark.parametrize(
    "command",
    [
        "run -a ring,native -b 4K -e 4K",
        "run -c broadcast -a binomial -b 4K -e 4K",
        "train --model resnet50 --scale 512",
    ],
)
def test_ranks_that_a_user_starts_look_for_no_entry_points_if_hpccoll_knows_all_names(
    command, tmp_path, mpiexec
):
    ran = mpiexec(2, "-c", WITHOUT_ENTRY_POINTS, *command.split(), *SHORT, tmp_path / "a.h5")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.mpi
def test_ranks_that_a_user_starts_with_a_plan_of_mscclpp_look_for_no_entry_points(
    tmp_path, mpiexec
):
    plan = tmp_path / "ring.json"
    assert (
        spawn("show", "ring", "-p", 2, "-b", "4K", "--format", "mscclpp", "--out", plan).code == 0
    )
    ran = mpiexec(
        2,
        "-c",
        WITHOUT_ENTRY_POINTS,
        "run",
        "-a",
        f"file:{plan}",
        *SIZE.split(),
        *SHORT,
        tmp_path / "a.h5",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


BROKEN = "import hpccoll_site; raise RuntimeError('broken')"


def test_a_package_that_cannot_be_imported_is_named_in_one_line(site, tmp_path):
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[hpccoll.extensions]\nsite = broken_site:EXTENSION\n"
    )
    (tmp_path / "broken_site.py").write_text(BROKEN)
    result = spawn("list", PYTHONPATH=f"{tmp_path}:{site}")
    assert result.is_bad_input("extension broken_site:EXTENSION", "RuntimeError: broken")
    page = spawn("--help", PYTHONPATH=f"{tmp_path}:{site}")
    assert (page.code, page.err) == (0, "")
    assert "sweep" in page.out
    assert "extension broken_site:EXTENSION" in page.out
