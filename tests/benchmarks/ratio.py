"""What the benchmarks share: a command of hpccoll in several rounds, and in each the ratio to the library's own."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from hpccoll.store.results import read_results
from hpccoll.store.rows import Row

MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"


def measure(ranks: int, arguments: str) -> tuple[Row, ...]:
    """Run ``hpccoll run`` once and return its rows; in a round, cases follow one another in random order."""
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw.h5"
        command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", "hpccoll", "run", *arguments.split()]
        subprocess.run([*command, "--out", str(raw)], check=True, stdout=subprocess.DEVNULL)
        return read_results([raw]).rows


def fastest(rows: tuple[Row, ...], algorithm: str, nbytes: int) -> float:
    """Return the median seconds of the faster placement; native, too, is the faster of in place and not."""
    return min(r.median_s for r in rows if r.algorithm == algorithm and r.bytes == nbytes and r.status == "ok")


def compare(ranks: int, arguments: str, ours: str, nbytes: int, *, at_least: float, rounds: int = 5) -> int:
    """Print native over ``ours`` round by round and its median; return 1 where that is below ``at_least``."""
    print(f"mpiexec -n {ranks} hpccoll run {arguments}")
    ratios = []
    for number in range(rounds):
        rows = measure(ranks, f"{arguments} --seed {number + 1}")
        mine, native = fastest(rows, ours, nbytes), fastest(rows, "native", nbytes)
        ratios.append(native / mine)
        print(f"round {number + 1}: {ours} {mine * 1e6:.2f} us, native {native * 1e6:.2f} us, ratio {ratios[-1]:.2f}")
    verdict = median(ratios) >= at_least
    print(
        f"native / {ours}: median {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), asked {at_least:.2f}:"
        f" {'reached' if verdict else 'MISSED'}"
    )
    return 0 if verdict else 1
