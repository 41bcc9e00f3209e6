"""Results of other programs below some paths: single outputs, directories of outputs, and runs of PICO."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpccoll.common.errors import UnusableError
from hpccoll.common.text import join_ends
from hpccoll.common.units import format_count
from hpccoll.interop.benchmark_output import BenchmarkOutput, SuppliedMetadata
from hpccoll.interop.import_results import (
    UnknownProgramError,
    imported_lines,
    launches_of_outputs,
    notes,
    raw_results,
    read_output,
    results_of_launches,
)
from hpccoll.interop.pico import METADATA_SUFFIX, is_pico_run, read_pico
from hpccoll.store.raw_results import Attempt, Outcome, RawResults


@dataclass(slots=True)
class ImportedPaths:
    """What was read below some paths."""

    results: RawResults
    outputs: dict[Path, BenchmarkOutput]  # of single outputs
    pico_launches: Sequence[tuple[Attempt, list[Outcome]]] = ()
    # the files that are not imported, by the reason
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def truncated(self) -> list[Path]:
        return [path for path, output in self.outputs.items() if output.truncated]

    def notes(self) -> Iterator[str]:
        """Yield the remarks on outputs, and how many files were left out, by reason."""
        for path, output in self.outputs.items():
            yield from notes(path, output)
        for reason, count in sorted(self.left_out.items()):
            yield f"left out: {format_count(count, 'file')}: {reason}"

    def lines(self) -> Iterator[str]:
        """Yield what was imported: a line for each output and number of ranks, and for each machine of PICO."""
        yield from imported_lines(self.outputs)
        by_machine: dict[str, list[tuple[Attempt, list[Outcome]]]] = defaultdict(list)
        for attempt, outcomes in self.pico_launches:
            by_machine[attempt.machine].append((attempt, outcomes))
        for machine, launches in by_machine.items():
            results = sum(len(outcomes) for _, outcomes in launches)
            samples = sum(map(_iterations, launches))
            nodes = join_ends(sorted({attempt.nodes for attempt, _ in launches}))
            count = format_count(results, "result")
            where = f"{format_count(len(launches), 'launch')} on {nodes} nodes"
            yield f"PICO, {machine}: {count} of {where}, {format_count(samples, 'iteration')}"


def _iterations(launch: tuple[Attempt, list[Outcome]]) -> int:
    _, outcomes = launch
    return sum(len(outcome.times.max_ns) for outcome in outcomes if outcome.times)


def read_paths(paths: Sequence[Path], supplied: SuppliedMetadata, out: Path) -> ImportedPaths:
    """Read outputs, directories of them, and archives and directories of runs of PICO, as one raw file ``out``.

    Raises:
        BadInputError: for a path that cannot be read, or has no result. In directories, files of
            other programs are left out.
    """
    outputs: dict[Path, BenchmarkOutput] = {}
    runs: list[Path] = []
    left_out: Counter[str] = Counter()
    for path in paths:
        if is_pico_run(path):
            runs.append(path)
        elif path.is_dir():
            runs_below, files_below = _contents(path)
            runs += runs_below
            for file in files_below:
                try:
                    outputs[file] = read_output(file, supplied)
                except UnknownProgramError:
                    left_out["not the output of a program that import reads"] += 1
        else:
            outputs[path] = read_output(path, supplied)
    pico = read_pico(runs)
    left_out += pico.left_out
    launches = list(pico.launches)
    if outputs and not launches and len(outputs) == len(paths):
        return ImportedPaths(raw_results(outputs, out), outputs)
    for outputs_of_library in _by_library(outputs):
        launches += launches_of_outputs(outputs_of_library)
    if not launches:
        raise UnusableError("FILE", _nothing(paths, left_out))
    return ImportedPaths(results_of_launches(launches, out), outputs, pico.launches, left_out)


def _contents(directory: Path) -> tuple[list[Path], list[Path]]:
    """Return the runs of PICO below a directory, and all other files without tables of metadata; both sorted."""
    runs: list[Path] = []
    files: list[Path] = []
    for place, names_of_directories, names in os.walk(directory):
        names_of_directories.sort()
        inner = [Path(place, name) for name in names_of_directories]
        runs_here = [path for path in inner if is_pico_run(path)]
        runs += runs_here
        names_of_directories[:] = [path.name for path in inner if path not in runs_here]
        for name in sorted(names):
            path = Path(place, name)
            if is_pico_run(path):
                runs.append(path)
            elif not name.endswith(METADATA_SUFFIX):
                files.append(path)
    return runs, files


def _by_library(
    outputs: dict[Path, BenchmarkOutput],
) -> Iterator[dict[Path, BenchmarkOutput]]:
    """Yield the outputs of each program and library: outputs of the same are rounds."""
    groups: dict[tuple[str, str | None], dict[Path, BenchmarkOutput]] = defaultdict(dict)
    for path, output in outputs.items():
        groups[output.source, output.library][path] = output
    yield from groups.values()


def _nothing(paths: Sequence[Path], left_out: Counter[str]) -> str:
    """Return why nothing was imported."""
    names = ", ".join(map(str, paths))
    reasons = [f"{format_count(count, 'file')}: {reason}" for reason, count in left_out.items()]
    return f"{names} has no result; {'; '.join(reasons) or 'it has no file'}"
