"""The ranks of ``hpccoll diagnose``: its options, what rank 0 prints and writes, and diagnoses that were recorded."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hpccoll.cases.keys import SWEEP
from hpccoll.cli.option_parser import MPIEXEC, OptionParser
from hpccoll.cli.progress_counter import ProgressDisplay
from hpccoll.cli.rank_program import run_rank
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.interruption import stop_requests
from hpccoll.common.limits import SECONDS, SEED
from hpccoll.common.options import Option
from hpccoll.common.terminal import show_status
from hpccoll.common.text import join_words
from hpccoll.common.units import parse_rate
from hpccoll.evidence.own_nccl_log import OWN_LOG
from hpccoll.measure import mpi_startup

if TYPE_CHECKING:
    from hpccoll.diagnosis.recorded import DiagnosisOptions, RecordedDiagnosis
    from hpccoll.diagnosis.slot_records import Purpose
    from hpccoll.diagnosis.verdict import MachineVerdict
    from hpccoll.measure.ranks import Ranks
    from hpccoll.measure.run.job_runner import JobRunner

Answer = TypeVar("Answer")

DIAGNOSE_SUMMARY = "Find the slow nodes, links and racks of a cluster."
DIAGNOSE_END = """\
Examples:
  srun -N 16 --ntasks-per-node=1 -K0 -W0 hpccoll diagnose --out monday.h5
  mpiexec -n 4 -ppn 1 hpccoll diagnose --rate 100gbit --json
  hpccoll diagnose --with 'sendrecv_perf -b 256M -e 256M' --out nccl.h5
  hpccoll diagnose --report monday.h5 tuesday.h5 wednesday.h5
  hpccoll diagnose --here --reference /etc/hpccoll/node.json

The nodes transfer in pairs, which are drawn anew for each slot of time. A node
that is slow with every partner is measured again beside healthy ones, and that
alone decides: at most 1 % of healthy machines are to be accused. With several
ranks on a node, the k-th of each is its rail k. The answer is first, then what
to exclude; the exit code is 3 if a part is slow, does not answer or was not
judged. If a rank hangs or dies, srun -K0 -W0 spares others, but ends with 137.
--here prints one line: healthy, bad (exit code 3) or cannot tell, and why.
"""

DIRECTIONS: Mapping[str, bool] = {"together": True, "in-turn": False}
INCOMPLETE = 3
"""The exit code if something is slow, does not answer or was not judged, or the diagnosis was interrupted."""

PAGES = ".html", ".svg", ".png"
"""The suffixes of the page of a diagnosis, and of its map alone."""

WITH_REPORT = "report", "out", "json", "junit"
"""The options that may stand beside --report, and itself."""

ONLY_WITH_PROGRAM, NOT_WITH_PROGRAM = (
    ("hosts", "launch"),
    ("rate", "device", "directions", "seconds"),
)
"""The options that need --with, and those that may not stand beside it: the program decides what is transferred."""

ONLY_HERE, WITH_HERE = (
    ("reference", "make_reference"),
    ("here", "reference", "make_reference", "seconds", "json", "junit"),
)
"""The options that need --here, and those that may stand beside it."""

OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "What to find": (
        Option(("--links",), "single links, too: a slot a node", kind="flag",
               shown_default="up to 64 nodes"),
        Option(("--no-links",), "no single links", kind="flag"),
        Option(("--racks",), "racks of the nodes: lines 'HOST RACK', or of 'scontrol show topology'", kind="path",
               metavar="FILE", shown_default="Slurm's topology"),
        Option(("--uplink",), "uplinks for certain: an error if racks are unknown, few or small", kind="flag"),
        Option(("--rate",), "usual rate of a transfer, to tell if all are slow", metavar="100gbit"),
    ),
    "How": (
        Option(("--device",), "cpu: MPI; cuda: NCCL", metavar="NAME",
               shown_default="cuda if ranks have GPUs, CuPy"),
        Option(("--directions",), "both directions of a pair: together, in-turn", metavar="NAME",
               shown_default="together over RDMA, else in-turn"),
        Option(("--seconds",), "time of a slot in seconds", shown_default="by the rate and the noise", metavar="S"),
        Option(("--seed",), "seed of the pairs", "1", key=SWEEP["seed"], metavar="N"),
        Option(("--with",), "program of nccl-tests that one process runs on pairs", metavar="PROGRAM"),
    ),
    "Transfers by another program": (
        Option(("--hosts",), "hosts, or a file of them", shown_default="the allocation's", metavar="A,B,..|FILE"),
        Option(("--launch",), "launcher of two ranks, one on each of {hosts}", metavar="COMMAND",
               shown_default="srun --overlap -N2 ..."),
    ),
    "This node alone": (
        Option(("--here",), "health check of this node, in --seconds [30] at most", kind="flag"),
        Option(("--reference",), "file of --make-reference, the measure of its rates", kind="path", metavar="FILE"),
        Option(("--make-reference",), "file for what it gives while healthy", kind="path", metavar="FILE"),
    ),
    "Output": (
        Option(("--out",), "file of all measurements, beside it a page; with --report its page or map",
               kind="path", metavar="F.h5|html|svg|png"),
        Option(("--json",), "JSON output", kind="flag"),
        Option(("--junit",), "JUnit XML for a CI system, a test a node", kind="path", metavar="F.xml"),
    ),
    "Without measuring": (
        Option(("--report",), "files of --out, or directories: the verdict of one, the nodes over time of more",
               kind="paths", metavar="PATHS"),
    ),
}  # fmt: skip


LESS_USED = ("Transfers by another program",)
"""The groups of options that only --help-all shows."""


def main(argv: Sequence[str]) -> int:
    """Run one rank of ``diagnose``, and return its exit code."""
    return run_rank(argv, DiagnosisProgram)


def build_diagnose_parser() -> OptionParser:
    """Return the parser of ``hpccoll diagnose``."""
    return OptionParser(
        "diagnose", DIAGNOSE_SUMMARY, OPTIONS, LESS_USED, DIAGNOSE_END, launcher=MPIEXEC
    )


class DiagnosisProgram:
    """A diagnosis of the nodes of all ranks, or of what was recorded.

    Args:
        argv: the options.

    Raises:
        BadInputError: if an option is invalid.
    """

    runner: "JobRunner | None" = None
    device = "cpu"  # MPI sends nothing from GPUs: transfers between them are over NCCL

    def __init__(self, argv: Sequence[str]) -> None:
        parser = build_diagnose_parser()
        self.arguments = arguments = parser.parse_args(argv)
        self._recorded: RecordedDiagnosis | None = None
        self._file: Path | None = None  # where the diagnosis was written
        self._program: str | None = getattr(arguments, "with")
        changed = [
            name for name, value in vars(arguments).items() if value != parser.get_default(name)
        ]
        refused = {
            "not with --report, which measures nothing": {*changed} - {*WITH_REPORT}
            if arguments.report
            else (),
            "not with --with, whose program transfers": NOT_WITH_PROGRAM if self._program else (),
            "only with --with": () if self._program else ONLY_WITH_PROGRAM,
        }
        if arguments.here:
            refused["not with --here, which checks one node"] = {*changed} - {*WITH_HERE}
        else:
            refused["only with --here"] = ONLY_HERE
        for why, names in refused.items():
            for name in changed:
                if name in names:
                    raise UnusableError(f"--{name.replace('_', '-')}", why)
        if arguments.make_reference and (arguments.reference or arguments.junit):
            raise UnusableError("--make-reference", "not with --reference or --junit")
        if arguments.links and arguments.no_links:
            raise UnusableError("--links", "not with --no-links")
        if arguments.directions not in (None, *DIRECTIONS):
            raise BadInputError("--directions", arguments.directions, DIRECTIONS)
        suffixes = PAGES if arguments.report else (".h5",)
        if arguments.out and arguments.out.suffix not in suffixes:
            raise BadInputError(
                "--out",
                str(arguments.out),
                f"a file name that ends with {join_words(suffixes, 'or')}",
            )
        from hpccoll.cases.transport_table import DEVICES

        # it imports NumPy, which --help does not need
        from hpccoll.diagnosis.recorded import DiagnosisOptions

        if arguments.device not in (None, *DEVICES):
            raise BadInputError("--device", arguments.device, DEVICES)
        self._options = DiagnosisOptions(
            seed=SEED.read("--seed", arguments.seed),
            links=arguments.links or (False if arguments.no_links else None),
            uplinks=arguments.uplink,
            expected_bytes_per_s=parse_rate(arguments.rate, "--rate") / 8
            if arguments.rate
            else None,
            together=DIRECTIONS.get(arguments.directions),
            device=arguments.device,
            slot_s=SECONDS.read("--seconds", arguments.seconds) if arguments.seconds else None,
        )

    def run_before_mpi(self, *, first: bool) -> int | None:
        """Print what was recorded, check this node, or diagnose by another program, which takes one process only."""
        if self.arguments.here:
            return self._check_here()
        if not (self.arguments.report or self._program):
            return None
        if not first:
            return 0
        if self.arguments.report:
            return print_recorded(
                self.arguments.report,
                self.arguments.out,
                as_json=self.arguments.json,
                junit=self.arguments.junit,
            )
        from hpccoll.sweep.pair_launches import SRUN, diagnose_with, hosts_to_diagnose

        hosts, launch = hosts_to_diagnose(self.arguments.hosts), self.arguments.launch or SRUN
        options, program = self._prepare(), str(self._program)
        with stop_requests(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1) as stop:
            code = self._conclude(
                _displayed(
                    lambda show: diagnose_with(
                        program, options, hosts, launch=launch, progress=show, stop=stop
                    )
                )
            )
        self._write_page()
        return code

    def _check_here(self) -> int:
        """Check this node, once if a launcher has started several processes on it."""
        if mpi_startup.rank_on_node():
            return 0
        from hpccoll.cli.node_check import main_here

        arguments = self.arguments
        return main_here(
            self._options.slot_s,
            arguments.reference,
            arguments.make_reference,
            arguments.junit,
            as_json=arguments.json,
        )

    def run(self, ranks: "Ranks", stop: mpi_startup.StopSignal) -> int:
        """Diagnose the nodes, write the measurements to a file, and print the verdict."""
        from hpccoll.measure.diagnose.diagnosis_runner import run_diagnosis
        from hpccoll.measure.ranks import Ranks
        from hpccoll.measure.roll_call import NamingComm

        ranks = Ranks(NamingComm(ranks.comm))  # until rank 0 leads with deadlines of its own
        # only rank 0 reads files: they may exist on one node only
        options = ranks.run_at_root(self._prepare)
        try:
            with stop.measuring():
                self._recorded = _displayed(
                    lambda show: run_diagnosis(
                        ranks, options, progress=show, stop=lambda: stop.signal, keep=self._keep
                    )
                )
        finally:
            OWN_LOG.end()
        if not self._recorded:
            return 0
        return self._conclude(self._recorded)

    def _keep(self, recorded: "RecordedDiagnosis") -> None:
        """Write what is measured so far; if that fails, the end reports it."""
        from hpccoll.diagnosis.diagnosis_file import write_diagnosis

        if self.arguments.out:
            with suppress(OSError):
                write_diagnosis(recorded, self.arguments.out)

    def end(self, code: int) -> None:
        """End MPI, or a launch in which a rank no longer answers; then others need not wait for the page."""
        from hpccoll.measure.diagnose.diagnosis_runner import UNFINISHED, end_launch

        if self._recorded and not self._recorded.provenance[UNFINISHED]:
            mpi_startup.finalize_mpi(code)
        mpi_startup.cancel_deadline()
        self._write_page()
        end_launch(self._recorded, code)

    def _prepare(self) -> "DiagnosisOptions":
        out = self.arguments.out
        racks = self.arguments.racks
        if out:
            check_new(out)
            with writing(out):
                out.parent.mkdir(parents=True, exist_ok=True)
        from hpccoll.store.racks_file import read_racks

        return replace(self._options, racks=read_racks(racks, "--racks") if racks else None)

    def _conclude(self, recorded: "RecordedDiagnosis") -> int:
        """Keep the measurements, and print the verdict; an error of files is printed, because other ranks go on."""
        from hpccoll.diagnosis.diagnosis_file import write_diagnosis
        from hpccoll.diagnosis.verdict import verdict_of

        out = self.arguments.out
        problem: BadInputError | None = None
        verdict: MachineVerdict | None = None
        with suppress(Exception):  # first the measurements are written, and then it is raised again
            verdict = verdict_of(recorded)
        try:
            if out:
                with writing(out):
                    # first: the reader of stdout may have gone
                    self._file = write_diagnosis(recorded, out, verdict)
        except BadInputError as error:
            problem = error
        verdict = verdict or verdict_of(recorded)
        code = print_verdict(verdict, as_json=self.arguments.json)
        try:
            _write_junit(recorded, verdict, self.arguments.junit)
        except BadInputError as error:
            problem = problem or error
        if problem:
            print(f"hpccoll: {problem}", file=sys.stderr, flush=True)
            return problem.exit_code
        if self._file:
            print(f"measurements: {self._file}", file=sys.stderr, flush=True)
        return code

    def _write_page(self) -> None:
        """Have another process write the page beside the file: a rank imports nothing that draws, nor dies of it."""
        if self._file:
            options = [
                "--report",
                str(self._file),
                "--out",
                str(self._file.with_suffix(".html")),
                "--json",
            ]
            command = [sys.executable, "-m", "hpccoll", "diagnose", *options]
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
            )


def _displayed(measure: "Callable[[Callable[[int, int, Purpose], None]], Answer]") -> "Answer":
    """Return what ``measure`` returns, given a function that shows its progress."""
    display = ProgressDisplay("slots")

    def show(done: int, total: int, purpose: "Purpose") -> None:
        display(done, total, purpose)
        display.draw()

    result = measure(show)
    show_status(display.stream, "")
    return result


def check_new(out: Path) -> None:
    """Check that a diagnosis may be written to a file: one that has ended is never replaced, nor the page of others.

    Raises:
        BadInputError: if the file exists, and holds anything else than an interrupted diagnosis, or
            only its page does.
    """
    from hpccoll.diagnosis.diagnosis_file import is_taken

    page = out.with_suffix(".html")
    if is_taken(out):
        raise BadInputError(
            "--out", str(out), "a new file: it exists, and each diagnosis has a file of its own"
        )
    if page.exists() and not out.exists():
        raise BadInputError(
            "--out", str(out), f"another name: {page} exists, and would be replaced by its page"
        )


def print_recorded(
    paths: Sequence[Path], out: Path | None, *, as_json: bool, junit: Path | None = None
) -> int:
    """Print the verdict of a recorded diagnosis, or the history if there are more; return the exit code."""
    from hpccoll.diagnosis.diagnosis_file import find_diagnoses
    from hpccoll.diagnosis.history import MachineHistory
    from hpccoll.diagnosis.verdict import verdict_of
    from hpccoll.render.diagnosis_text import history_lines

    diagnoses, damaged = find_diagnoses(paths)
    for error in damaged:
        print(f"hpccoll: {error}", file=sys.stderr)
    if len(diagnoses) == 1:
        verdict = verdict_of(diagnoses[0])
        code = print_verdict(verdict, as_json=as_json)
        if out:
            write_page(diagnoses[0], verdict, out)
        _write_junit(diagnoses[0], verdict, junit, is_any_unread=bool(damaged))
    else:
        if out:
            raise BadInputError(
                "--out",
                str(out),
                f"left out: a page is of one diagnosis, and there are {len(diagnoses)}",
            )
        history = MachineHistory.of(diagnoses)
        _print(
            history.to_json(),
            history_lines(history, shutil.get_terminal_size().columns),
            as_json=as_json,
        )
        if junit:
            from hpccoll.render.diagnosis_junit import write_history_junit

            newest = max(diagnoses, key=lambda recorded: str(recorded.provenance["begun"]))
            with writing(junit):
                hosts = newest.question.hosts
                write_history_junit(history, hosts, junit, is_any_unread=bool(damaged))
        code = 0 if history.is_healthy else INCOMPLETE
    return INCOMPLETE if damaged else code


def write_page(recorded: "RecordedDiagnosis", verdict: "MachineVerdict", out: Path) -> None:
    """Write the page of a diagnosis with its verdict, and print where it is.

    Raises:
        UnusableError: if it cannot be written.
    """
    from hpccoll.render.diagnosis_page import write_diagnosis_page

    with writing(out):
        write_diagnosis_page(recorded, out, verdict)
    print(f"page: {out}", file=sys.stderr, flush=True)


def _write_junit(
    recorded: "RecordedDiagnosis",
    verdict: "MachineVerdict",
    path: Path | None,
    *,
    is_any_unread: bool = False,
) -> None:
    """Write a test for each node of a diagnosis, if a file is requested.

    Raises:
        UnusableError: if it cannot be written.
    """
    if path is None:
        return
    from hpccoll.render.diagnosis_junit import write_diagnosis_junit

    with writing(path):
        hosts = recorded.question.hosts
        write_diagnosis_junit(verdict, hosts, path, is_any_unread=is_any_unread)


def print_verdict(verdict: "MachineVerdict", *, as_json: bool) -> int:
    """Print the verdict of a diagnosis, and return the exit code that says whether all is well."""
    from hpccoll.render.diagnosis_text import diagnosis_lines

    _print(verdict.to_json(), diagnosis_lines(verdict), as_json=as_json)
    return 0 if verdict.is_healthy else INCOMPLETE


def _print(record: object, lines: Iterable[str], *, as_json: bool) -> None:
    print(json.dumps(record, indent=1) if as_json else "\n".join(lines), flush=True)
