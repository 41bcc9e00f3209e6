"""The commands of the guides that need Slurm run as written on a testbed."""

import re
import shlex
import shutil

import pytest
from guide_blocks import (
    ON_SLURM,
    ROOT,
    blocks,
    copy_working_directory,
    environment,
    run_here,
    write_files,
)

pytestmark = [pytest.mark.slurm, pytest.mark.sweep, pytest.mark.long]


@pytest.fixture(scope="module")
def home(tmp_path_factory, mpiexec):  # noqa: ARG001 - there is an MPI library
    """The copy, in which the site is the testbed."""
    home = copy_working_directory(tmp_path_factory.mktemp("guides") / "copy")
    write_files(home, "slurm/README.md")
    shutil.copy(ROOT / "slurm" / "sites" / "testbed.yaml", home / "my-site.yaml")
    return home


@pytest.fixture(scope="module")
def cluster(new_testbed):
    testbed = new_testbed("guides")
    testbed.up("--nodes", 4, "--rate", "1gbit", "--aggregators", 1)
    return testbed


def run_on(cluster, text, home, *inside):
    """Run commands on the head host, inside of a command such as salloc; wait for the jobs that they submit."""
    variables = {"PYTHONPATH": environment(home)["PYTHONPATH"]}
    ran = cluster.run(*inside, "bash", "-ec", text, cwd=home, timeout=1800, **variables)
    assert ran.code == 0, f"{text}\n{ran.out[-3000:]}\n{ran.err[-3000:]}"
    for number in re.findall(r"^Submitted batch job (\d+)$", ran.out, re.MULTILINE):
        log = next(home.glob(f"*-{number}.log")).read_text() if cluster.end_of(number) else ""
        assert not log, log
    return ran.out


@pytest.mark.parametrize(
    "beginning", [text for _, text in ON_SLURM if not text.startswith("slurm/testbed")]
)
def test_commands_of_the_guide_run_on_a_cluster(beginning, cluster, home):
    (block,) = (
        block for block in blocks("sh", "slurm/README.md") if block.text.startswith(beginning)
    )
    inside = re.findall(r"`(salloc [^`]*)`:\s*\Z", block.before)
    out = run_on(
        cluster, block.text, home, *(word for line in inside for word in shlex.split(line))
    )
    assert not inside or set(out.splitlines()[:3]) == {"n1", "n2", "a1"}


def test_the_testbed_of_the_guide_comes_up_measures_and_goes_down(new_testbed, home):
    """The copy's testbed has a name of its own, because another one may be up."""
    testbed = new_testbed("guide")
    program = home / "slurm" / "testbed" / "testbed"
    program.write_text(
        f'#!/bin/sh\ncommand=$1\nshift\nexec {testbed.program} "$command" --name {testbed.name} "$@"\n'
    )
    (block,) = (
        block
        for block in blocks("sh")
        if block.text.startswith("slurm/testbed/testbed up --nodes 4 ")
    )
    ran = run_here(block.text, home)
    assert ran.code == 0, f"{ran.out[-3000:]}\n{ran.err[-3000:]}"
    assert testbed.status()["state"] == "down"
