"""The table of contents names every page, and every page is one that can be read."""

import ast
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from schedule_examples import ALGORITHMS

import hpccoll.algorithms
from hpccoll.cases import algorithm_registry
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.errors import UnusableError

PAGES = {
    path.stem: path
    for path in Path(hpccoll.algorithms.__file__).parent.glob("*.py")
    if path.stem != "__init__"
}
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def test_the_table_of_contents_names_every_page_and_every_page_registers_an_algorithm():
    listed = {page for pages in hpccoll.algorithms.PAGES.values() for page in pages.values()}
    assert listed == PAGES.keys()
    registered = {
        (family, name): algorithm.program.__module__.rpartition(".")[2]
        for family, row in COLLECTIVES.items()
        for name, algorithm in row.algorithms.items()
    }
    assert registered == {
        (family, name): page
        for family, pages in hpccoll.algorithms.PAGES.items()
        for name, page in pages.items()
    }
    assert {algorithm.program.__module__ for _, algorithm in ALGORITHMS.values()} == {
        f"hpccoll.algorithms.{page}" for page in PAGES
    }


IMPORTED_PAGES = """
import sys
from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
names = sorted(COLLECTIVES["all_reduce"].algorithms), "training_step" in WORKLOADS
COLLECTIVES["all_reduce"].algorithm({!r})
pages = sorted(name.removeprefix("hpccoll.algorithms.") for name in sys.modules if "hpccoll.algorithms." in name)
print(*pages, "hpccoll.extensions.steps.training.training_step" in sys.modules)
"""


@pytest.mark.parametrize(
    ("algorithm", "pages"),
    [("null", "null"), ("star", "direct_rooted star"), ("hierarchical", "hierarchical")],
)
def test_only_the_page_of_a_named_algorithm_and_the_pages_it_builds_on_are_imported(
    algorithm, pages
):
    program = [sys.executable, "-c", IMPORTED_PAGES.format(algorithm)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [*pages.split(), "False"]


def test_a_page_that_does_not_register_what_the_table_names_is_an_error():
    row = COLLECTIVES["all_reduce"]
    row.announce("absent", partial(algorithm_registry._register, "all_reduce", "absent", "ring"))
    try:
        with pytest.raises(
            UnusableError, match=r"ring\.py registers no algorithm absent of all_reduce"
        ):
            row.algorithm("absent")
    finally:
        del row.algorithms["absent"]


@each_page
def test_a_page_begins_with_a_sentence_and_says_its_cost_and_its_source(page):
    text = ast.get_docstring(ast.parse(page.read_text()))
    assert len(page.read_text().splitlines()) <= 130
    title, _, body = text.partition("\n\n")
    assert re.fullmatch(r"[A-Z][^:.]*: [^:]+\.", " ".join(title.split())), title
    assert len(title.splitlines()) == 1
    assert re.search(r"^Cost(:| of )", body, re.MULTILINE), "no line says what it costs"
    assert re.search(r"\((19|20)\d\d\)|https://", body.rpartition("Cost")[2]), (
        "no source, with its year or address"
    )
    assert re.search(r"^ {4}rank +0 ", body, re.MULTILINE), "no picture of its steps"


BROKEN_PAGE = """
import sys
from importlib.abc import MetaPathFinder

class BrokenPage(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "hpccoll.algorithms.ring":
            raise ImportError("cannot import name 'even'")

sys.meta_path.insert(0, BrokenPage())
from hpccoll.__main__ import main
sys.argv[1:] = {!r}
main()
"""


@pytest.mark.parametrize(
    "command", [["list"], ["run", "-a", "ring", "-b", "8", "-e", "8"]], ids=["list", "run"]
)
def test_a_page_that_cannot_be_imported_is_one_line_of_every_command(command):
    program = [sys.executable, "-c", BROKEN_PAGE.format(command)]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 2
    assert re.match(
        r"hpccoll: hpccoll/algorithms: ImportError: cannot import name 'even' \(.*line \d", line
    )


ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|.*\| ((?:`\w+`(?:, )?)+) \|$", re.MULTILINE)


def test_the_table_of_the_readme_has_the_algorithms_of_the_registry():
    table = (
        (ROOT / "hpccoll" / "README.md")
        .read_text()
        .partition("## Collectives and algorithms")[2]
        .partition("\n\nnccl-tests")[0]
    )
    listed = {
        collective: set(re.findall(r"\w+", algorithms))
        for collectives, algorithms in ROW.findall(table)
        for collective in re.findall(r"\w+", collectives)
    }
    assert listed == {name: set(row.components) for name, row in COLLECTIVES.items()}
    assert all(row.algorithms["null"].floor for row in COLLECTIVES.values())
