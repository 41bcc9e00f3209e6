"""The guides: their commands run as written, their files are valid, their links lead somewhere, the README is short."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from cli_runner import ENVIRONMENT
from guide_blocks import (
    GUIDES,
    NOT_RUN,
    ON_SLURM,
    ROOT,
    blocks,
    copy_working_directory,
    run_here,
    write_files,
)
from pico_archives import write_simulated_machine

from hpccoll.cli.commands import find_command
from hpccoll.cli.diagnose import build_diagnose_parser
from hpccoll.cli.order import build_order_parser
from hpccoll.cli.run_options import build_parser
from hpccoll.common.yaml_model import load_plain_yaml, load_yaml
from hpccoll.extensions.steps.model.step_scenarios import ScenarioFile
from hpccoll.extensions.steps.training.model_file import model_from_json
from hpccoll.model.machine_file import read_machine
from hpccoll.model.machine_sections import SCHEMA
from hpccoll.sweep.site_file import Site, load_site
from hpccoll.sweep.sweep_file import load_sweep

MAX_README_LINES = 150

LONG_GUIDES = "workflows/README.md", "slurm/GPU.md", "results/CHOOSE.md", "results/PREDICT.md"
"""Guides whose commands sweep for longer than those of the README."""

NEED_RESULTS = "README.md", "results/REPORT.md", "results/PREDICT.md", "results/FILES.md"
"""Guides whose commands read what ``hpccoll sweep`` wrote."""


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_every_exception_is_a_block_of_a_guide():
    for exception in (*ON_SLURM, *NOT_RUN):
        assert len([block for block in blocks("sh") if block.is_in([exception])]) == 1, exception


def anchors(path):
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("guide", [*GUIDES, ".github/CONTRIBUTING.md"])
def test_links_lead_to_files_and_headings(guide):
    path = ROOT / guide
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" not in link:
            file, _, anchor = link.partition("#")
            target = path.parent / file if file else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_every_yaml_block_is_a_valid_file_of_what_it_describes(tmp_path):
    for block in blocks("yaml"):
        path = tmp_path / "a.yaml"
        path.write_text(block.text)
        content = yaml.safe_load(block.text)
        if content.get("schema") == SCHEMA:
            read_machine(path, "--cluster")
        elif content.get("modules") and isinstance(content["modules"][0], dict):
            model_from_json("mine", load_plain_yaml(path, "--model"))
        elif "scenarios" in content:
            load_yaml(path, ScenarioFile, "--scenarios")
        elif content.keys() & Site.model_fields.keys():
            load_site(str(path), "slurm")
        else:
            load_sweep(path)


def commands(text):
    """Yield the words of each hpccoll command in a block, after ``hpccoll``."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if "hpccoll" in words:
            yield words[words.index("hpccoll") + 1 :]


NEXT_TO_GPUS = {
    "srun": [
        "--distribution=block:block",
        "--gpu-bind=none",
        "--gpus-per-node=",
        "--cpus-per-task=",
    ],
    "mpiexec": ["--map-by slot:PE="],
}
"""What puts ranks next to their GPUs, by the launcher: nccl.sbatch has the reasons."""


@pytest.mark.parametrize("guide", ["slurm/GPU.md"])
def test_every_run_on_gpus_in_a_guide_binds_ranks_next_to_them_also_by_srun(guide):
    lines = [
        line
        for block in blocks("sh", guide)
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    runs = [line for line in lines if " --device cuda" in line and "hpccoll run" in line]
    launchers = [line.split()[0] for line in runs]
    assert "srun" in launchers
    for launcher, line in zip(launchers, runs, strict=True):
        assert not [option for option in NEXT_TO_GPUS[launcher] if option not in line], line


OF_RANKS = {"run": build_parser, "diagnose": build_diagnose_parser, "order": build_order_parser}
"""The parsers of commands that ranks run."""


@pytest.mark.parametrize("exception", NOT_RUN, ids=lambda exception: " ".join(exception)[:60])
def test_what_does_not_run_is_valid_shell_with_valid_options(exception, monkeypatch, tmp_path):
    (text,) = (block.text for block in blocks("sh") if block.is_in([exception]))
    assert subprocess.run(["bash", "-n", "-c", text], env=ENVIRONMENT, check=False).returncode == 0
    monkeypatch.chdir(tmp_path)
    for command, *arguments in commands(text):
        if command in OF_RANKS:
            OF_RANKS[command]().parse_args(arguments)
        else:
            find_command(command).parser().parse_intermixed_args(arguments)


@pytest.fixture(scope="module")
def home(tmp_path_factory, require):
    require(shutil.which("mpiexec", path=ENVIRONMENT["PATH"]), "there is no mpiexec")
    return copy_working_directory(tmp_path_factory.mktemp("guides") / "copy")


@pytest.mark.mpi
@pytest.mark.sweep
@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG_GUIDES else [])
        for name in GUIDES
    ],
)
def test_the_commands_of_a_guide_run(guide, home):
    write_files(home, guide)
    prepare(guide, home)
    for block in blocks("sh", guide):
        if not block.is_in((*ON_SLURM, *NOT_RUN)):
            ran = run_here(block.text, home)
            assert ran.code == 0, f"{block.text}\n{ran.out[-3000:]}\n{ran.err[-3000:]}"


def prepare(guide, home):
    """Make what the reader of a guide has already."""
    if guide == "slurm/GPU.md":
        (home / "logs").mkdir()
        shutil.copy(Path(__file__).parent / "evidence" / "logs" / "rdma-2.27.log", home / "logs")
    if guide == "results/PREDICT.md":
        write_simulated_machine(home / "pico" / "results", "lumi")
    if guide in NEED_RESULTS and not (home / "results" / "default").exists():
        assert run_here("hpccoll sweep", home).code == 0


def test_each_test_that_shows_what_all_is_well_rests_on_exists():
    page = (ROOT / "results" / "ALL_IS_WELL.md").read_text()
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", page)
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and not line.startswith(("| rests", "| ---"))
    ]
    assert len(named) == len(rows)
    missing = [test for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert missing == []
    assert re.findall("## `hpccoll (\\w+)`", page) == [
        "trace",
        "evidence",
        "accept",
        "compare",
        "diagnose",
        "doctor",
        "status",
    ]
