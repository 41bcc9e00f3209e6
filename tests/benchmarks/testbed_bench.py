"""What benches on the testbed have in common: their command line, their sweeps, and verdicts."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import tables
import yaml

from hpccoll.store.result_files import read_all

ROOT = Path(__file__).parents[2]
TESTBED = ROOT / "slurm" / "testbed" / "testbed"


def run_testbed(
    *words: str, check: bool = True, environment: Mapping[str, str] | None = None
) -> int:
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        [str(TESTBED), *words], stdout=sys.stderr, check=check, env=variables
    ).returncode


def run_sweep(name: str, sweep: Mapping[str, object], keep: Path) -> None:
    """Run a sweep into ``keep`` on the testbed that is up, again and again until it is complete."""
    config, out = keep / f"{name}.yaml", keep / name
    config.write_text(yaml.safe_dump(dict(sweep)))
    command = "hpccoll", "sweep", str(config), "--profile", "testbed", "--out", str(out)
    while run_testbed("run", *command, check=False) == 3 and not all(
        r.complete for r in read_all([out]).raw_results
    ):
        print(f"{name}: goes on after its time limit", file=sys.stderr)


def verdict(what: str, got: float, most: float) -> bool:
    """Print whether a share is no larger than asked, and return it."""
    return tables.verdict(what, f"{got:.1%}, asked {most:.1%}", got <= most)


def setting_parser(
    description: str, names: Iterable[str], metavar: str = "SETTING"
) -> argparse.ArgumentParser:
    """Return a parser of names of settings, all by default."""
    known = [*names]

    def setting(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text}: choose from {', '.join(known)}")
        return text

    parse = argparse.ArgumentParser(description=description)
    parse.add_argument(
        "settings", nargs="*", type=setting, default=known, metavar=metavar, help=", ".join(known)
    )
    return parse


def run_settings(
    description: str,
    names: Iterable[str],
    measure: Callable[[str, Path], None],
    show: Callable[[str, Path], Iterable[bool]],
    metavar: str = "SETTING",
) -> int:
    """Measure and show the settings of the command line; return 1 if one does not show what is asked."""
    parse = setting_parser(description, names, metavar)
    parse.add_argument("--keep", type=Path, help="directory of the raw files [a temporary one]")
    parse.add_argument(
        "--read", type=Path, help="directory of raw files that were kept: nothing is measured"
    )
    given = parse.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        keep = given.read or given.keep or Path(temporary)
        keep.mkdir(parents=True, exist_ok=True)
        reached: list[bool] = []
        for name in given.settings:
            if not given.read:
                measure(name, keep.resolve())
            reached += show(name, keep)
        return 0 if all(reached) else 1
