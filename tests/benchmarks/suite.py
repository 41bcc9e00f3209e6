"""The tests of pytest -m gpu, each result as soon as it is known; this file is also the plugin of pytest for that.

``--gpu-results FD`` names the file descriptor for the results, ``--gpu-shard K/N`` every N-th of the tests from the
K-th on.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from verdicts import MISSED, NOT_RUN, REACHED, Verdict

STATUSES = {"passed": REACHED, "failed": MISSED, "skipped": NOT_RUN}
"""A failed test ends no call: the others run."""


def tests(here: Any) -> Iterator[Verdict]:
    """Every test of this shard."""
    from here import TESTS

    read, write = os.pipe()
    options = ["-m", "gpu", "-p", "no:cacheprovider", "-p", "suite", *(["-k", here.keyword] if here.keyword else [])]
    own = ["--gpu-results", str(write), "--gpu-shard", "{}/{}".format(*here.shard)]
    paths = os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])])  # noqa: PTH120
    with os.fdopen(read) as lines, subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *own, str(TESTS / "gpu")], cwd=TESTS.parent, pass_fds=[write],
        env={**os.environ, "PYTHONPATH": paths},
    ) as child:  # fmt: skip
        os.close(write)
        any_ran = False
        for line in lines:
            outcome, any_ran = json.loads(line), True
            seconds = f"{outcome['seconds']:.1f} s"
            got = outcome["reason"] if outcome["status"] == "skipped" else f"{outcome['reason']} {seconds}".strip()
            yield Verdict(outcome["test"], STATUSES[outcome["status"]], got, "passes")
        child.wait()
    if not any_ran:
        yield Verdict("tests, pytest -m gpu", MISSED, f"none ran, exit code {child.returncode}", "passes")


# ---- the plugin -----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--gpu-results", type=int)
    parser.addoption("--gpu-shard", default="1/1")


def pytest_configure(config: Any) -> None:
    plugins = Shard(config.getoption("--gpu-shard")), Results(config.getoption("--gpu-results"))
    for plugin in plugins:
        config.pluginmanager.register(plugin)


class Shard:
    """Selects some of the tests.

    Args:
        shard: K/N: every N-th of them, from the K-th on.
    """

    def __init__(self, shard: str) -> None:
        self._number, self._count = map(int, shard.split("/"))

    @pytest.hookimpl(trylast=True)  # when -m and -k have selected
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        chosen = items[self._number - 1 :: self._count]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


class Results:
    """Writes the outcome of each test when it is known.

    Args:
        descriptor: the file descriptor for the outcomes.
    """

    def __init__(self, descriptor: int) -> None:
        self._lines = os.fdopen(descriptor, "w")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        reason = ""
        if report.skipped:
            reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        elif report.failed:
            reason = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr)).split("\n")[
                0
            ]
        reason = reason.removeprefix("Skipped: ")[:200]
        test = report.nodeid.removeprefix("tests/gpu/")
        outcome = {"test": test, "status": report.outcome, "seconds": report.duration, "reason": reason}
        print(json.dumps(outcome), file=self._lines, flush=True)
