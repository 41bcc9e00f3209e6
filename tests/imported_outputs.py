"""Example outputs of other benchmarks, written after their sources, and what a user says about each."""

from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import read_output
from hpccoll.store.load_results import read_results

OUTPUTS = Path(__file__).parent / "interop" / "outputs"
ALL = sorted(path.name for path in OUTPUTS.iterdir())


def given_for(name):
    """Return what the user says about an example: its ranks and nodes, if the output does not say them."""
    if name.startswith("osu"):
        return SuppliedMetadata(ranks=8, nodes=2)
    return (
        SuppliedMetadata(nodes=2)
        if name.startswith(("imb", "rccl_all_gather"))
        else SuppliedMetadata()
    )


def read_example(name):
    return read_output(OUTPUTS / name, given_for(name))


def read(directory, text, **given):
    """Read a text as an output, about which the user says what is given."""
    path = directory / "out.txt"
    path.write_text(text)
    return read_output(path, SuppliedMetadata(**given))


def refused(directory, text, **given):
    """Return the message with which a text is refused."""
    with pytest.raises(BadInputError) as error:
        read(directory, text, **given)
    return str(error.value)


def import_files(out, *files, ranks=8, nodes=2, **options):
    """Run the command on files; ``ranks`` and ``nodes`` are left out where they are None."""
    options = {"ranks": ranks, "nodes": nodes} | options
    words = [
        word for key, value in options.items() if value is not None for word in (f"--{key}", value)
    ]
    return invoke("import", *files, *words, "--out", out)


def import_example(name, out):
    """Import an example, and return its rows."""
    given = given_for(name)
    ended = import_files(out, OUTPUTS / name, ranks=given.ranks, nodes=given.nodes)
    assert ended.code == 0, ended.err
    return read_results([out]).rows
