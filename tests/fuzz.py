"""Flips bits of raw files and journals, and checks how they are read.

``python tests/fuzz.py --seed 1 --flips 500`` flips one bit at a time in each of both. A flip may be harmless: the
results are unchanged. The reader may refuse the file in one line. In a journal one line may be damaged and named,
while the rest is unchanged. Anything else is a defect: a changed figure, another exception, a process that dies or
hangs.

tests/test_fuzz.py runs fewer flips.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import raw_examples

from hpccoll.errors import BadInputError
from hpccoll.spec.case import Effort
from hpccoll.store import hdf5
from hpccoll.store.journal import Journal, journal_path
from hpccoll.store.raw_results import Failure, RawResults
from hpccoll.store.result_files import read_raw

CPU_S = 5
HARMLESS, REFUSED, NAMED = "harmless", "refused", "one line lost, which is named"
ALLOWED = {"raw file": {HARMLESS, REFUSED}, "journal": {HARMLESS, REFUSED, NAMED}}


def results(path: Path) -> RawResults:
    """Return results with two attempts, rounds, a skipped case and a failure note."""
    cases = [raw_examples.case(size) for size in (8, 1024, 1 << 20, 1 << 30)]
    job = raw_examples.job(*cases, effort=Effort(rounds=2))
    evidence = {"record": {"nccl": "2.27"}, "why": None, "logs": "x.logs"}
    first = [raw_examples.round_outcome(1, case, iterations=20) for case in cases[:3]]
    second = [raw_examples.round_outcome(2, cases[0], iterations=30, events=True), raw_examples.skipped(cases[3])]
    attempts = [(raw_examples.attempt(1), first), (raw_examples.attempt(2, evidence=evidence), second)]
    failures = [Failure(case_id=cases[2].id, rank=1, message="stuck", attempt=1)]
    return RawResults(path=path, job=job, attempts=attempts, failures=failures)


def write_examples(directory: Path) -> dict[str, Path]:
    """Write the results as a raw file and as a journal, and return the paths by kind."""
    raw = results(directory / "whole.h5")
    hdf5.write_raw_file(raw, raw.path)
    Journal(directory / "begun.h5", raw.job, raw).close(remove=False)
    return {"raw file": raw.path, "journal": journal_path(directory / "begun.h5")}


def content(raw: RawResults) -> tuple[object, dict[tuple[int, str], object]]:
    """Return the job, attempts and failures of a file, and its outcomes by attempt and case."""
    outcomes = {(a.number, o.case.id): raw_examples.comparable(o) for a, done in raw.attempts for o in done}
    return raw_examples.comparable((raw.job, [attempt for attempt, _ in raw.attempts], raw.failures)), outcomes


def verdict(path: Path, before: RawResults) -> str:
    """Return how a file was read: HARMLESS, REFUSED, NAMED or a description of the defect."""
    try:
        after = read_raw(path)
    except BadInputError as error:
        return REFUSED if "\n" not in str(error) else f"more than one line: {error}"
    except Exception as error:  # noqa: BLE001  any other exception is a defect
        return f"{type(error).__name__}: {error}"
    (header, was), (header_after, now) = content(before), content(after)
    if (header, was) == (header_after, now):
        return HARMLESS
    changed = [key for key in was if now.get(key) != was[key]]
    named = any("line " in damage.description for damage in after.damage) or any(
        "were cut" in note for note in after.notes
    )
    if named and now.keys() <= was.keys() and all(now[key] == was[key] for key in now) and len(changed) <= 1:
        return NAMED
    return f"other figures: {changed or 'of the job or an attempt'}, {after.damage}, {after.notes}"


def in_a_process(judge: Callable[[], str]) -> str:
    """Return the result of ``judge`` in a process with limited CPU time, or how the process died."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        os.write(write, judge().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        result = pipe.read()
    _, status = os.waitpid(child, 0)
    return result or f"its process ended with {os.waitstatus_to_exitcode(status)}"


def flips(whole: Path, number: int, seed: int) -> Iterator[tuple[int, str]]:
    """Yield bit numbers, each with the verdict on the file with that bit flipped.

    Args:
        whole: the intact file.
        number: the number of flips.
        seed: the seed of the bit numbers.
    """
    intact = whole.read_bytes()
    before = read_raw(whole)
    for bit in random.Random(seed).sample(range(8 * len(intact)), number):  # noqa: S311  no secret
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        path = whole.with_name(f"flipped-{whole.name}")
        path.write_bytes(damaged)
        yield bit, in_a_process(lambda path=path: verdict(path, before))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, default=500)
    arguments = parser.parse_args()
    defects = 0
    with tempfile.TemporaryDirectory() as directory:
        for kind, whole in write_examples(Path(directory)).items():
            counts: Counter[str] = Counter()
            for bit, result in flips(whole, arguments.flips, arguments.seed):
                counts[result] += 1
                if result not in ALLOWED[kind]:
                    print(f"{kind}, bit {bit}: {result}", flush=True)
                    defects += 1
            summary = ", ".join(f"{n} {result}" for result, n in counts.most_common() if result in ALLOWED[kind])
            print(f"{kind} of {whole.stat().st_size} bytes, seed {arguments.seed}: {summary}")
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
