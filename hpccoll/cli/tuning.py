"""Commands that learn from results: which algorithm to take, and why it takes as long as it does."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import PATHS, report_damaged
from hpccoll.errors import BadInputError, UnusableError

family = typer.Typer()


@family.command(epilog="Example: hpccoll tune results/default --out table.json")
def tune(
    paths: PATHS,
    out: Annotated[Path | None, typer.Option(help="Write the table there.", metavar="TABLE.json")] = None,
    judge: Annotated[
        Path | None, typer.Option(help="Say what this table loses in PATHS, over the best there.", metavar="TABLE.json")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="With --judge: print JSON.")] = False,
) -> int:
    """Make a table of what to choose for which size, or judge one.

    It is what the algorithm auto goes by, and judged by other results than it was made of. Ends with 3 where a file
    cannot be read.
    """
    from hpccoll.store.load import read_results
    from hpccoll.tuning.build_table import build_table, table_warnings, write_table
    from hpccoll.tuning.judge_table import judge_table
    from hpccoll.tuning.table import TuneTable, load_table

    if (out is None) == (judge is None):
        raise UnusableError("hpccoll tune", "it takes --out, which makes a table, or --judge, which judges one")
    if as_json and out:
        raise BadInputError("--json", str(out), "left out with --out: a table is JSON itself")
    results = read_results(paths)
    if judge:
        judgement = judge_table(TuneTable.from_json(load_table(judge, "--judge")), results)
        typer.echo(json.dumps(judgement.to_json(), indent=1) if as_json else "\n".join(judgement.lines()))
    elif out:
        typer.echo("\n".join((*write_table(build_table(results), out), *table_warnings(results))))
    return report_damaged(results)


@family.command(epilog="Example: hpccoll model results/model")
def model(
    paths: PATHS, *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in SI units.")] = False
) -> int:
    """Predict times from a run's ping-pongs, beside those measured.

    By alpha, beta and gamma, which are fitted, for every algorithm that declares a cost; with the sizes from which one
    overtakes another. Ends with 3 where a file cannot be read.
    """
    import hpccoll.spec.catalogue  # noqa: F401  fills the registry
    from hpccoll.model import report
    from hpccoll.store.result_files import read_all

    found = read_all(paths)
    models = report.modelled(found.raw_results)
    if as_json:
        typer.echo(json.dumps([report.as_json(each) for each in models], indent=1))
    else:
        typer.echo("\n".join(line for each in models for line in report.lines(each)))
    return report_damaged(found)
