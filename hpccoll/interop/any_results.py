"""Results of anybody: raw files of ours and outputs of other programs, read into memory as one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpccoll.common.files import open_regular
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import notes, raw_results, read_output
from hpccoll.store.result_files import COMPANION_SUFFIX, ResultFiles, read_all
from hpccoll.store.sealed_file import SIGNATURE


@dataclass(frozen=True, slots=True)
class AnyResults:
    """What was read from files."""

    files: ResultFiles  # each output of another program is a launch, whose path is the output
    truncated: Sequence[Path]  # the outputs that end before their last line

    @property
    def file_names(self) -> dict[str, str]:
        """The name of the file of each launch, by run_id; its path if several files have the name."""
        names = Counter(raw.path.name for raw in self.files.raw_results)
        return {
            attempt.run_id: raw.path.name if names[raw.path.name] == 1 else str(raw.path)
            for raw in self.files.raw_results
            for attempt, _ in raw.attempts
        }

    @property
    def ranks(self) -> set[int]:
        """The numbers of ranks of all launches."""
        return {attempt.ranks for raw in self.files.raw_results for attempt, _ in raw.attempts}

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the environment that all launches record, with the same values."""
        every = [attempt.provenance.get("variables") for raw in self.files.raw_results for attempt, _ in raw.attempts]
        known = [{*variables.items()} if isinstance(variables, dict) else set() for variables in every]
        return dict(set.intersection(*known)) if known else {}


def read_any(paths: Sequence[Path], given: SuppliedMetadata) -> AnyResults:
    """Read raw files, directories with raw files, and outputs that ``import`` reads, about which the user says more.

    Raises:
        BadInputError: for a path that does not exist, or a file that is no raw file and has no result.
    """
    ours = [path for path in paths if _is_ours(path)]
    outputs = {path: read_output(path, given) for path in paths if path not in ours}
    files = read_all(ours) if ours else ResultFiles(raw_results=[])
    remarks = [*files.remarks, *(note for path, output in outputs.items() for note in notes(path, output))]
    imported = [raw_results({path: output}, path) for path, output in outputs.items()]
    files = replace(files, raw_results=[*files.raw_results, *imported], remarks=remarks)
    return AnyResults(files, [path for path, output in outputs.items() if output.truncated])


def _is_ours(path: Path) -> bool:
    """Return whether a path is a directory, or by its name or its first bytes a raw file, or accompanies one."""
    if path.is_dir() or path.suffix == ".h5" or COMPANION_SUFFIX.search(path.name):
        return True
    with open_regular(path, "FILES") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE
