"""Results of anybody: raw files of ours and outputs of other programs, read into memory as one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpccoll.common.files import open_regular
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import notes, raw_results, read_output
from hpccoll.store.raw_results import Attempt
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
        counts = Counter(raw.path.name for raw in self.files.raw_results)
        file_names = {}
        for raw in self.files.raw_results:
            is_unique = counts[raw.path.name] == 1
            for attempt, _ in raw.attempts:
                file_names[attempt.run_id] = raw.path.name if is_unique else str(raw.path)
        return file_names

    @property
    def _attempts(self) -> Iterator[Attempt]:
        for raw in self.files.raw_results:
            for attempt, _ in raw.attempts:
                yield attempt

    @property
    def ranks(self) -> set[int]:
        """The numbers of ranks of all launches."""
        return {attempt.ranks for attempt in self._attempts}

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the environment that all launches record, with the same values."""
        recorded: list[set[tuple[str, str]]] = []
        for attempt in self._attempts:
            variables = attempt.provenance.get("variables")
            if not isinstance(variables, dict):
                return {}
            recorded.append(set(variables.items()))
        if not recorded:
            return {}
        return dict(set.intersection(*recorded))


def read_any(paths: Sequence[Path], supplied: SuppliedMetadata) -> AnyResults:
    """Read raw files, directories with raw files, and outputs that ``import`` reads, about which the user says more.

    Raises:
        BadInputError: for a path that does not exist, or a file that is not a raw file and has no
            result.
    """
    ours = [path for path in paths if _is_ours(path)]
    outputs = {path: read_output(path, supplied) for path in paths if path not in ours}
    files = read_all(ours) if ours else ResultFiles(raw_results=[])
    results = list(files.raw_results)
    remarks = list(files.remarks)
    for path, output in outputs.items():
        results.append(raw_results({path: output}, path))
        remarks += notes(path, output)
    files = replace(files, raw_results=results, remarks=remarks)
    return AnyResults(files, [path for path, output in outputs.items() if output.truncated])


def _is_ours(path: Path) -> bool:
    """Return whether a path is a directory, or by its name or its first bytes a raw file, or accompanies one."""
    if path.is_dir() or path.suffix == ".h5" or COMPANION_SUFFIX.search(path.name):
        return True
    with open_regular(path, "FILES") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE
