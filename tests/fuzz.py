"""Damaged files and outputs, bad inputs and extreme options: each is harmless, or refused in one line.

    python tests/fuzz.py files --seed 1 --number 600
    python tests/fuzz.py commands --only planned
    python tests/fuzz.py outputs --only osu
    python tests/fuzz.py foreign --only Kineto

prints every defect, and how often each result came; tests/test_fuzz.py tries fewer.
"""

import argparse
import importlib
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

CPU_S, GROWTH_MIB, DATA_BYTES = 60, 500, 6 << 30
"""The limits of a child: CPU time, peak resident memory above that of this process, and data.

They end a runaway: a page takes up to 9 s of a slow core."""
NUMBERS = {"files": 1200, "commands": 5000, "outputs": 5000, "foreign": 2000}
"""For each fuzzer, in its file ``fuzz_*.py``, how many are tried."""


def in_child(judge: Callable[[], str]) -> tuple[str, float]:
    """Return the result of ``judge`` in a process with limits, or how it died or exceeded them; and its CPU seconds."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
        before = _peak_mib()
        result = judge()
        growth = _peak_mib() - before
        os.write(
            write, (f"it took {growth} MiB" if growth > GROWTH_MIB else result).encode()[:4000]
        )
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        result = pipe.read()
    _, status, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if code := os.waitstatus_to_exitcode(status):
        result = f"its process ended with {code} after {cpu_s:.0f} CPU seconds and {used.ru_maxrss >> 10} MiB"
    return result, cpu_s


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("fuzzer", choices=NUMBERS)
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--number", type=int, help=f"how many are tried {NUMBERS}")
    parse.add_argument("--only", help="inputs of this family of commands, or outputs of this suite")
    chosen = parse.parse_args()
    number, only = (
        chosen.number or NUMBERS[chosen.fuzzer],
        {"only": chosen.only} if chosen.only else {},
    )
    counts: Counter[str] = Counter()
    defects = 0
    with tempfile.TemporaryDirectory() as directory:
        trials = importlib.import_module(f"fuzz_{chosen.fuzzer}").trials
        for what, result, defect in trials(chosen.seed, number, Path(directory), **only):
            counts["defects" if defect else result] += 1
            if defect:
                defects += 1
                print(f"{what}\n  {result}", flush=True)
    results = ", ".join(f"{n} {result}" for result, n in counts.most_common())
    print(f"seed {chosen.seed}, {counts.total()} tried: {results}")
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
