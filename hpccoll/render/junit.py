"""A check as JUnit XML, which CI systems show: a test for each row, finding or node.

The format is that of Jenkins' JUnit plugin (junit-10.xsd); junitparser writes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpccoll.common.terminal import printable
from hpccoll.common.units import format_factor
from hpccoll.judge.held import Acceptance, Held
from hpccoll.store.durable_files import replacing_file

NOT_READ = "a file is damaged or cut short: stderr names it"
"""Why a check as a whole fails although no row does."""


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """One test of a check."""

    name: str  # unique in its group
    group: str  # what tests are grouped by, such as the collective
    acceptance: Acceptance  # a failure if it fails; skipped if it cannot be told
    message: str = ""  # why it failed or cannot be told
    seconds: float | None = None  # the measured time


def held_case(held: Held, name: str, group: str, factor: float | None = None) -> CheckedCase:
    """Return the test of a measurement that was held against something.

    Args:
        held: the measurement.
        name: the name of the test, unique in its group.
        group: what tests are grouped by.
        factor: the measured over the expected quantity as other outputs print it [that of the two].
    """
    message = held.reason
    ratio = factor or held.ratio
    if not message and ratio is not None and held.acceptance is Acceptance.FAIL:
        message = f"{held.verdict}: {format_factor(ratio)} the expected {held.quantity}"
    return CheckedCase(name, group, held.acceptance, message or str(held.verdict))


def whole_case(reasons: Sequence[str]) -> CheckedCase:
    """Return the test of a check as a whole, which fails for reasons that no single row has.

    A row that cannot be told is skipped. If these are too many, or a file is damaged, the command
    ends with 3, and this test fails: a suite has a failure whenever its command does not pass.
    """
    verdict = Acceptance.FAIL if reasons else Acceptance.PASS
    return CheckedCase("as a whole", "check", verdict, "; ".join(reasons))


def write_junit(path: Path, check: str, cases: Iterable[CheckedCase]) -> None:
    """Write the tests of a check, such as ``hpccoll compare``, as one suite.

    Raises:
        OSError: if the file cannot be written.
    """
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite(check)
    for case in cases:
        test = TestCase(printable(case.name), f"{check}.{printable(case.group)}", case.seconds)
        message = printable(case.message)
        if case.acceptance is Acceptance.FAIL:
            test.result = [Failure(message)]
        elif case.acceptance is Acceptance.CANNOT_TELL:
            test.result = [Skipped(message)]
        suite.add_testcase(test)
    document = JUnitXml()
    document.add_testsuite(suite)
    with replacing_file(path) as unfinished:
        document.write(str(unfinished), pretty=True)
