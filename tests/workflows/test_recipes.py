"""The recipe for Spack names what pyproject.toml names."""

import runpy
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def spack_dependencies(monkeypatch):
    """The least version of each package that the recipe depends on."""
    least = {}

    def depends_on(spec, *, type):  # noqa: A002, ARG001
        name, _, versions = spec.partition("@")
        least[name] = versions.partition(":")[0]

    language = ModuleType("spack.package")
    for directive in ("license", "version", "variant"):
        setattr(language, directive, lambda *_, **__: None)
    language.when = lambda _: nullcontext()
    language.depends_on = depends_on
    builtin = ModuleType("spack_repo.builtin.build_systems.python")
    builtin.PythonPackage = object
    for module in (language, builtin):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    runpy.run_path(ROOT / "slurm" / "packaging" / "package.py")
    return least


def test_the_recipe_for_spack_needs_the_versions_that_the_package_needs(spack_dependencies):
    analysis = PROJECT["optional-dependencies"]["analysis"]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *analysis]):
        (least,) = (bound for bound in requirement.specifier if bound.operator == ">=")
        spack_name = f"py-{requirement.name}".replace("py-snakemake", "snakemake")
        if "plugin" in requirement.name:
            spack_name = f"py-{requirement.name}"
        assert Version(spack_dependencies.pop(spack_name)) == Version(least.version), spack_name
    assert spack_dependencies.keys() == {
        "c",
        "python",
        "py-hatchling",
        "py-hatch-fancy-pypi-readme",
        "mpi",
    }
