"""An installed wheel has all that a sweep needs, wherever it is started."""

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli_runner import spawn

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def installed(tmp_path_factory, require):
    """The directory that a wheel of this checkout is unpacked to."""
    require(find_spec("hatchling"), "hatchling is not installed")
    built, site = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=3000)
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


def test_the_wheel_carries_the_whole_workflow(installed):
    source = ROOT / "workflows"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    shipped = installed / "hpccoll" / "_workflows"
    assert {str(path.relative_to(shipped)) for path in shipped.rglob("*") if path.is_file()} == files
    assert {"Snakefile", "config/default.yaml", "profiles/local/config.yaml"} <= files


def test_an_installed_package_finds_its_own_workflow(installed, tmp_path):
    code = "from hpccoll.sweep.paths import workflow_directory; print(workflow_directory())"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True,
        check=True, timeout=300,
    )  # fmt: skip
    assert ended.stdout.strip() == str(installed / "hpccoll" / "_workflows")


def test_an_installed_package_plans_its_default_sweep_from_an_empty_directory(installed, tmp_path):
    sweep = installed / "hpccoll" / "_workflows" / "config" / "default.yaml"
    result = spawn("plan", sweep, cwd=tmp_path, PYTHONPATH=str(installed))
    assert result.code == 0, result.err
    assert result.out.startswith("default: ")


def test_an_installed_package_has_its_tables_of_variants_and_of_reasons(installed):
    tables = {path.name for path in (installed / "hpccoll").glob("*/*.toml")}
    assert tables == {"variants.toml", "fallback_reasons.toml"}


def test_an_installed_package_has_its_described_clusters(installed):
    source = ROOT / "hpccoll" / "model" / "clusters"
    shipped = installed / "hpccoll" / "model" / "clusters"
    assert {path.name for path in shipped.iterdir()} == {path.name for path in source.glob("*.yaml")}


def test_an_installed_package_has_the_templates_of_its_pages(installed):
    source, shipped = (place / "hpccoll" / "render" / "templates" for place in (ROOT, installed))
    assert {path.name for path in shipped.iterdir()} == {path.name for path in source.iterdir()}
