"""A small source tree whose C library can be built, broken and removed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class SourceTree:
    """A copy of what builds and loads the C library; programs run in it import hpccoll from it."""

    def __init__(self, root):
        self.root = root
        self.native = root / "hpccoll" / "executor"
        self.library = self.native / "libhpccoll.so"
        self.source = self.native / "library.c"

    def python(self, *arguments, **variables):
        """Run Python in the tree; what it compiles is not optimised, which takes longer than the test."""
        settings = {
            "PYTHONPATH": str(self.root),
            "CC": "",
            "CFLAGS": "-O0",
            "LDFLAGS": "",
            **variables,
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def build(self, *options, **variables):
        return self.python("-m", "hpccoll.executor.build", *options, **variables)


@pytest.fixture
def tree(tmp_path):
    """The tree of this checkout, without a library."""
    root = tmp_path / "tree"
    for directory in ("hpccoll", "workflows", "slurm/sites"):
        (root / directory).mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, root)
    (root / "hpccoll" / "common").mkdir()
    for name in (
        "__init__.py",
        "common/__init__.py",
        "common/errors.py",
        "common/terminal.py",
        "common/version.py",
    ):
        shutil.copy(ROOT / "hpccoll" / name, root / "hpccoll" / name)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "hpccoll" / "executor", root / "hpccoll" / "executor", ignore=ignored)
    return SourceTree(root)


@pytest.fixture
def built(tree, require):
    """The tree with its library."""
    require(shutil.which("cc") or shutil.which("gcc"), "there is no C compiler")
    ended = tree.build()
    assert ended.returncode == 0, ended.stderr
    return tree
