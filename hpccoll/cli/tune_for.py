"""``hpccoll tune --for``: from a counted program to the tables of its MPI library."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli.common import INCOMPLETE, show_found
from hpccoll.cli.library_tables import tables_that_write
from hpccoll.common.errors import UnusableError, writing

if TYPE_CHECKING:
    from hpccoll.analysis.counted_gain import ProgramGain
    from hpccoll.sweep.counted_sweep import CountedSweep


def tune_for(
    count: Path, out: Path | None, profile: str, site: str | None, *, as_json: bool
) -> int:
    """Measure the calls of a counted program, say what it would gain at most, and write a table if that is worth it.

    Choices that were faster than the default once are launched again, in turn with it.

    The exit code is 3 if a sweep leaves something out, or no algorithm is measured beside the default.
    """
    from hpccoll.analysis.counted_gain import (
        gain_without_measuring,
        program_gain,
        promising_variants,
    )
    from hpccoll.analysis.counted_shares import counted_shares
    from hpccoll.store.count_file import read_counted_job
    from hpccoll.store.load_results import read_results
    from hpccoll.sweep.counted_sweep import LAUNCHES, check_profile, counted_sweeps, library_of
    from hpccoll.sweep.program_library import library_variables

    shares = counted_shares(read_counted_job(count))
    bound = gain_without_measuring(shares)
    if not bound.is_worth_it:
        _show(bound, as_json=as_json)
        return 0
    library = library_of(shares.job)
    sweeps = counted_sweeps(shares)
    check_profile(sweeps, profile)
    variables = library_variables(shares.job, profile, site)
    if variables:
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        print(f"measuring with the program's library: {settings}", file=sys.stderr)
    directory = out or Path("results") / f"{count.stem}-tuned"
    measuring = Measuring(directory, profile, site, variables)
    for sweep in sweeps:
        measuring.measure(sweep)
        for number in range(2, LAUNCHES + 1):
            results = read_results(measuring.measured)
            promising = promising_variants(shares, results, sweep.collective)
            if promising:
                measuring.measure(sweep.launch(number, promising))
    if not measuring.measured:
        raise UnusableError("--for", "no sweep has left results; their messages above say why")
    results = read_results(measuring.measured)
    gain = program_gain(shares, results)
    _show(gain, as_json=as_json)
    code = 0
    if any(measuring.codes) or not gain.gains:
        code = INCOMPLETE
    if not gain.is_worth_it or not gain.is_clear:
        return code
    table = directory / f"{library}.table"
    # With --json, stdout is one document: the gain.
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        tables_that_write(library).write(results, library, table, no_default=False, as_json=False)
        print(
            f"to check it: measure with these variables set, then 'hpccoll tune RESULTS --verify {table}'"
        )
    return code


@dataclass
class Measuring:
    """Runs sweeps where a program's calls are to be measured, into a directory."""

    directory: Path
    profile: str
    site: str | None
    variables: Mapping[str, str]  # beside those of this shell
    measured: list[Path] = field(default_factory=list)  # directories with results
    codes: list[int] = field(default_factory=list)  # with which the sweeps ended

    def measure(self, sweep: "CountedSweep") -> None:
        """Measure the cases of a sweep."""
        from hpccoll.sweep.counted_sweep import write_sweep

        with writing(self.directory):
            file = write_sweep(sweep, self.directory)
        results = self.directory / sweep.name
        print(f"measuring {file}", file=sys.stderr)
        code = _sweep(file, results, self.profile, self.site, self.variables)
        self.codes.append(code)
        if results.exists():
            self.measured.append(results)


def _sweep(
    file: Path, out: Path, profile: str, site: str | None, variables: Mapping[str, str]
) -> int:
    """Measure the cases of a sweep file with variables beside those of this shell, and return the exit code.

    What the sweep says of its results goes into a file beside its own one: the answer about the
    program is that of all sweeps. Its progress and its errors are shown.
    """
    command = [sys.executable, "-m", "hpccoll", "sweep", str(file), "--out", str(out)]
    command += ["--profile", profile]
    if site:
        command += ["--site", site]
    environment = {**os.environ, **variables}
    said = file.with_suffix(".txt")
    with writing(said):
        stdout = said.open("w")
    with stdout:
        code = subprocess.run(command, env=environment, stdout=stdout, check=False).returncode
    if code:
        print(f"hpccoll: {file}: the sweep ended with {code}; its summary: {said}", file=sys.stderr)
    return code


def _show(gain: "ProgramGain", *, as_json: bool) -> None:
    from hpccoll.render.counted_gain_text import gain_lines, gain_record

    show_found(gain_record(gain), gain_lines(gain), as_json=as_json)
