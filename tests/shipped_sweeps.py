"""The sweep files that come with hpccoll."""

from functools import cache
from pathlib import Path

import yaml


@cache
def sweep_files(workflows: Path) -> tuple[Path, ...]:
    """Return the sweep files of a directory of workflows; a file of scenarios is no sweep."""
    paths = sorted((workflows / "config").glob("*.yaml"))
    return tuple(path for path in paths if "scenarios" not in yaml.safe_load(path.read_text()))
