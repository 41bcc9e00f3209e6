"""What ``accept --contribute`` writes: rows of a run as those of the table of published figures."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.common.errors import UnusableError, to_one_line, writing
from hpccoll.common.options import Option
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count

if TYPE_CHECKING:
    from hpccoll.judge.contribution import Contribution, ContributorForm

PUBLISHED = Option(
    ("--published",),
    "directory of tables of your own (CSV), which count beside the published one",
    metavar="DIR",
    kind="path",
    must_exist=True,
)
CONTRIBUTE = Option(
    ("--contribute",),
    "rows for the published table, without hosts, users and paths, to --out [stdout]",
    kind="flag",
)
FORM = (
    Option(
        ("--machine-name",),
        "what tells the machine from others",
        "",
        metavar="NAME",
    ),
    Option(("--gpu",), "the GPU [as the results name it]", "", metavar="GPU"),
    Option(("--operator",), "whose machine it is", "", metavar="NAME"),
    Option(("--source",), "where the numbers are published", "", metavar="TEXT"),
)
"""The options on what no result says."""

WHERE_TO_SEND = (
    "send it as an issue of https://github.com/hpccoll/hpccoll, or keep it in a directory for "
    "hpccoll accept --published"
)


def write_contribution(
    contribution: "Contribution", form: "ContributorForm", out: Path | None
) -> None:
    """Write rows to a file or stdout, and on stderr which rows are left out, and what is missing.

    Raises:
        UnusableError: if there is no row, or the file cannot be written.
    """
    from hpccoll.model.published_table import SOURCE_WORDS, table_text
    from hpccoll.store.durable_files import replacing_file

    reasons = []
    for reason, rows in contribution.left_out.items():
        reasons.append(f"{format_count(rows, 'row')} left out: {reason}")
    if not contribution.figures:
        raise UnusableError("--contribute", f"the table can have no row: {'; '.join(reasons)}")
    text = table_text(contribution.figures)
    if out is None:
        print(text, end="")
    else:
        with writing(out), replacing_file(out) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        print(f"rows: {out}")
    open_options = [option for option, value in form.texts.items() if not value]
    if "--gpu" in open_options:
        open_options.remove("--gpu")  # the results name it
    notes = [*reasons, WHERE_TO_SEND]
    if open_options:
        remedy = f"fill them in, or give {join_words(open_options)}"
        notes.append(f"empty cells: {remedy} (source: {SOURCE_WORDS})")
    for note in notes:
        print(f"hpccoll: note: {to_one_line(note)}", file=sys.stderr)
