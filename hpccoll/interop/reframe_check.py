"""A regression test for ReFrame: it runs hpccoll, and every case is a performance variable.

A site's check is a class of its own, which says what to run:

    import reframe as rfm
    from hpccoll.interop.reframe_check import HpccollCheck

    @rfm.simple_test
    class AllReduce(HpccollCheck):
        valid_systems = ["cluster:compute"]
        valid_prog_environs = ["*"]
        num_tasks = 16
        run_options = ["-a", "ring,native", "-b", "1K", "-e", "16M", "-f", "4"]
        reference_file = "/shared/hpccoll/reference.json"

The reference is made by ``hpccoll compare --make-reference``: its bounds, which are the spread of
several runs, become the thresholds. Without a reference times are recorded and not judged. All
sizes are measured by one job.

ReFrame: V. Karakasis et al.: Enabling continuous testing of HPC systems using ReFrame, HPC System
Testing (2020).
"""

from functools import cached_property
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_after, run_before, sanity_function, variable

from hpccoll.judge.reference import ReferenceCase, read_reference
from hpccoll.judge.run_comparison import ComparedCase, cases_of_rows
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Results

RESULT = "result.h5"


class HpccollCheck(rfm.RunOnlyRegressionTest):
    """A run of hpccoll whose cases are correct, and within the bounds of a reference."""

    run_options = variable(typ.List[str], value=[])
    """The options of ``hpccoll run``."""

    reference_file = variable(str, value="")
    """The reference; empty: times are not judged."""

    tolerance = variable(float, value=0.05)
    """The smallest change that matters: bounds of the reference that are closer are moved out to it."""

    @run_after("init")
    def set_command(self) -> None:
        """Set the command line of the job."""
        self.executable = "hpccoll"
        self.executable_opts = ["run", *self.run_options, "--out", RESULT]
        self.keep_files = [RESULT]

    @cached_property
    def results(self) -> Results:
        """The results of the run."""
        return read_results([Path(self.stagedir, RESULT)])

    @cached_property
    def cases(self) -> dict[str, ComparedCase]:
        """The cases of the run by what was asked."""
        return cases_of_rows(self.results.rows)

    @cached_property
    def bounds(self) -> dict[str, ReferenceCase]:
        """The cases of the reference by what was asked; empty without a reference."""
        if not self.reference_file:
            return {}
        reference = read_reference(Path(self.reference_file))
        return {case.identity: case for case in reference.cases}

    @sanity_function
    def every_case_has_a_correct_result(self) -> bool:
        """Check that no case is wrong, failed or missing."""
        gaps = [f"{gap.case}: {gap.status}: {gap.reason}" for gap in self.results.missing]
        if not self.cases:
            gaps.append("the run has no case")
        for identity, bounds in self.bounds.items():
            if identity not in self.cases:
                gaps.append(f"{bounds.case}: in the reference, not in the run")
        return bool(sn.assert_false(gaps, msg="; ".join(gaps)))

    @run_before("performance")
    def set_performance(self) -> None:
        """Set a performance variable for each case, and its thresholds."""
        timed = {key: case for key, case in self.cases.items() if case.timed}
        self.perf_variables = {
            case.case_id: sn.make_performance_function(sn.defer(case.seconds), "s")
            for case in timed.values()
        }
        if not self.bounds:
            return
        references = {}
        for key, case in timed.items():
            bounds = self.bounds.get(key)
            if bounds and bounds.seconds:
                upper = max(bounds.high_s / bounds.seconds - 1, self.tolerance)
                references[case.case_id] = bounds.seconds, None, upper, "s"
        self.reference = {"*": references}
