"""The tests of pytest -m gpu, each result as soon as it is known."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from here import TESTS, Here, errors_of
from verdicts import MISSED, NOT_RUN, REACHED, Verdict

STATUSES = {"passed": REACHED, "failed": MISSED, "skipped": NOT_RUN}
"""A failed test ends no call: the others run."""


def tests(here: Here) -> Iterator[Verdict]:
    """Run every test of this shard; each tells its verdict itself."""
    os.chdir(TESTS.parent)
    # a test that is ended takes its ranks along
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results(here.tell)
    chosen = ["-m", "gpu", *(["-k", here.keyword] if here.keyword else [])]
    plugins = [Shard("{}/{}".format(*here.shard)), results]
    code = pytest.main([*chosen, "-p", "no:cacheprovider", str(TESTS / "gpu")], plugins=plugins)
    if not results.any_ran:
        yield Verdict("tests, pytest -m gpu", MISSED, f"none ran, exit code {int(code)}", "passes")


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
    """Tells the verdict on each test when it is known; the whole report of one that failed is printed at once, too."""

    def __init__(self, tell: Callable[[Verdict], object]) -> None:
        self._tell, self.any_ran = tell, False
        self._terminal: Any = None

    def pytest_sessionstart(self, session: Any) -> None:
        # print() would be captured
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        self.any_ran = True
        got = f"{report.duration:.1f} s"
        if report.skipped:
            got = str(
                report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            )[:200]
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            # Of ranks the message has their whole output; pytest indents all lines of it but the
            # first.
            message = getattr(crash, "message", str(report.longrepr)).replace("\n  ", "\n")
            got = f"{[*message.splitlines()[:1], *errors_of(message)][-1][:200]} {got}"
            texts = [report.longreprtext, *(f"{name}\n{text}" for name, text in report.sections)]
            self._terminal.write_line("\n".join(["", report.nodeid, *texts]))
            self._terminal.flush()
        test = report.nodeid.removeprefix("tests/gpu/")
        self._tell(Verdict(test, STATUSES[report.outcome], got.removeprefix("Skipped: "), "passes"))
