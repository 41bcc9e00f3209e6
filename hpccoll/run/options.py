"""The options of ``hpccoll run``; their letters are those of nccl-tests."""

import argparse
import os
import re
from pathlib import Path

from hpccoll.errors import UnusableError, abbreviate, did_you_mean

EXAMPLES = """examples:
  mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M
  mpiexec -n 2 hpccoll run -a recursive_doubling,null -b 8 -e 1K -n 1000 --in-place
  mpiexec -n 4 hpccoll run -a ring,native -e 1M --rounds 5    # algorithms in turn, five times: who is ahead each time?
  srun -N 4 -n 16 hpccoll run -a ring,native -b 1M -e 1G --param channels=8 --out ring.h5

Sizes are binary (1K is 1024 bytes), bandwidths are in GB/s of 1e9 bytes per second. Times are of the slowest rank.
Every result is checked. A library's own collective is the algorithm called native.
"""

DEFAULT, ALL = "ring,recursive_doubling,native", "all"
"""Which algorithms are run unless named; and the word for all that the collective has."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = re.match(r"unrecognized arguments: --([\w-]+)", message)
        names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        near = did_you_mean(unknown[1], names).replace("mean ", "mean --") if unknown else ""
        raise UnusableError("hpccoll run", f"{message}: {near}see 'hpccoll run --help'")


MAX_PATH_BYTES, MAX_NAME_BYTES = 4000, 200
"""Bytes, with room for what is put behind the name of a raw file: 4096 and 255 are the system's."""


def _path(text: str) -> Path:
    path = Path(text)
    if not text:
        raise argparse.ArgumentTypeError("an empty name is that of no file")
    if len(os.fsencode(text)) > MAX_PATH_BYTES or any(len(os.fsencode(p)) > MAX_NAME_BYTES for p in path.parts):
        raise argparse.ArgumentTypeError(f"{abbreviate(text)} is too long for the name of a file")
    return path


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parse = _Parser(
        "hpccoll run", description="Measure collectives on the ranks of an MPI job.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    add = parse.add_argument
    add("-c", "--collective", default="all_reduce", help="the collective [all_reduce]")
    add("-a", "--algorithms", help=f"names, by comma, or {ALL} [{DEFAULT}; {ALL} for others than all_reduce]")
    add("-t", "--transport", default="mpi", metavar="T,..", help="mpi, shm, tiered; of GPUs nccl, mpi, staged [mpi]")
    add(
        "--device",
        default="cpu",
        help="where buffers lie: cpu, cuda; with --job: on GPUs, taken before MPI starts [cpu]",
    )
    add("-b", "--begin", default="8", help="the smallest size [8]")
    add("-e", "--end", default="64M", help="no size is larger [64M]")
    add("-f", "--factor", default="2", help="from one size to the next [2]")
    add("-d", "--dtype", default="float32", help="of the elements; bfloat16 over nccl alone [float32]")
    add("-o", "--op", default="sum", help="the reduction [sum]")
    add(
        "-n",
        "--iterations",
        help="timed, over all rounds, 6 in each at least [20 to 1000, until sure to 2 %%]",
    )
    add("-w", "--warmup", default="5", help="iterations thrown away for each round of a case [5]")
    add("-r", "--root", help="the root of a rooted collective, the first of two ranks [0]")
    add("--aggregators", default="0", metavar="A", help="the last A ranks only aggregate (sharp_emulated) [0]")
    add("--mapping", help="number ranks anew, well and badly: block,cyclic [as launched]")
    add("--in-place", action="store_true", help="in place only [both placements]")
    add("--table", type=_path, metavar="T.json", help="what the algorithm auto chooses by; hpccoll tune makes it")
    add("--param", action="append", default=[], metavar="K=V", help="a parameter, such as channels=4")
    add("--variant", metavar="V", help="set the variables of a named variant, such as nccl-ring; see hpccoll list")
    add("--communicator", action="append", default=[], metavar="K=V", help="what NCCL's are made with: max_ctas=4")
    add("--seconds", default="1", help="for a case, once it has its least iterations [1]")
    add("--timeout", default="120", help="seconds without progress until a rank is stuck [120]")
    add("--rounds", default="1", metavar="R", help="times that all cases are gone through, in another order each [1]")
    add("--seed", default="1", help="of the order of the cases [1]")
    add("--job", type=_path, help="run a job that 'hpccoll plan' wrote, instead of all the above")
    add("--shape", metavar="NxK[+A]", help="fail unless K ranks work on each of N nodes [whatever there is]")
    add("--hosts", metavar="A,B", help="with --shape: fail unless the nodes are these")
    add("--exit-zero", action="store_true", help="exit with 0 although results are wrong or missing: the file says it")
    add("--check", action="store_true", help="only see that the ranks know of each other and are where they should be")
    add("--probe", type=_path, metavar="DIR", help="only run the library's own, untimed, and have it log into DIR")
    add("--evidence", type=_path, metavar="PATH", help="what such a probe left: DIR, or the file that was made of it")
    add("--network", choices=("rdma", "tcp"), help="what nodes should talk by; the report says where it is not so")
    add("--out", type=_path, metavar="F.h5", help="the raw file; one of the same job is resumed")
    return parse
