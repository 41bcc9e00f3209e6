"""An installed wheel has all that a sweep needs, wherever it is started."""

import email
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


def files(place, *kinds):
    found = (
        path for path in place.rglob("*") if path.is_file() and (not kinds or path.suffix in kinds)
    )
    return {str(path.relative_to(place)) for path in found}


DATA = ".css", ".cu", ".html", ".js", ".toml", ".txt", ".yaml"


def test_the_wheel_carries_the_whole_workflow_and_all_data_of_the_package(installed):
    shipped = files(installed / "hpccoll" / "_workflows")
    assert (
        shipped
        == files(ROOT / "workflows")
        >= {"Snakefile", "config/default.yaml", "profiles/local/config.yaml"}
    )
    own = {name for name in files(installed / "hpccoll", *DATA) if not name.startswith("_")}
    assert own == files(ROOT / "hpccoll", *DATA)
    assert {Path(name).suffix for name in own} == {*DATA}


def test_the_metadata_is_of_a_version_that_twine_takes(installed):
    """The backend would write a newer one by default, which twine refuses."""
    (metadata,) = installed.glob("hpccoll-*.dist-info/METADATA")
    version = email.message_from_string(metadata.read_text())["Metadata-Version"]
    assert tuple(map(int, version.split("."))) <= (2, 4)


def test_an_installed_package_finds_and_plans_its_default_sweep_from_an_empty_directory(
    installed, tmp_path
):
    code, variables = (
        "from hpccoll.sweep.paths import *; print(default_sweep(), end='')",
        {"PYTHONPATH": str(installed)},
    )
    sweep = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert sweep == str(installed / "hpccoll" / "_workflows" / "config" / "default.yaml")
    result = spawn("plan", sweep, cwd=tmp_path, **variables)
    assert result.code == 0, result.err
    assert result.out.startswith("default: ")
