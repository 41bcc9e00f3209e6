"""The table of contents names every page, and every page is one that can be read."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from schedule_examples import ALGORITHMS

import hpccoll.algorithms
from hpccoll.cases.algorithm_registry import COLLECTIVES

PAGES = {path.stem: path for path in Path(hpccoll.algorithms.__file__).parent.glob("*.py") if path.stem != "__init__"}
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def test_the_table_of_contents_names_every_page_and_every_page_registers_an_algorithm():
    assert list(hpccoll.algorithms.PAGES) == sorted(PAGES)
    written = {algorithm.program.__module__ for _, algorithm in ALGORITHMS.values()}
    assert written == {f"hpccoll.algorithms.{page}" for page in PAGES}


@each_page
def test_a_page_begins_with_a_sentence_and_says_its_cost_and_its_source(page):
    text = ast.get_docstring(ast.parse(page.read_text()))
    assert len(page.read_text().splitlines()) <= 100
    title, _, body = text.partition("\n\n")
    assert re.fullmatch(r"[A-Z][^:.]*: [^:]+\.", " ".join(title.split())), title
    assert len(title.splitlines()) == 1
    assert re.search(r"^Cost(:| of )", body, re.MULTILINE), "no line says what it costs"
    assert re.search(r"\((19|20)\d\d\)|https://", body.rpartition("Cost")[2]), "no source, with its year or address"
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


@pytest.mark.parametrize("command", [["list"], ["run", "-a", "star", "-b", "8", "-e", "8"]], ids=["list", "run"])
def test_a_page_that_cannot_be_imported_is_one_line_of_every_command(command):
    program = [sys.executable, "-c", BROKEN_PAGE.format(command)]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 2
    assert re.match(r"hpccoll: hpccoll/algorithms: ImportError: cannot import name 'even' \(.*line \d", line)


ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|.*\| ((?:`\w+`(?:, )?)+) \|$", re.MULTILINE)


def test_the_table_of_the_readme_has_the_algorithms_of_the_registry():
    table = (
        (ROOT / "README.md").read_text().partition("## Collectives and algorithms")[2].partition("\n\nnccl-tests")[0]
    )
    listed = {
        collective: set(re.findall(r"\w+", algorithms))
        for collectives, algorithms in ROW.findall(table)
        for collective in re.findall(r"\w+", collectives)
    }
    assert listed == {name: set(row.components) for name, row in COLLECTIVES.items()}
    assert all(row.algorithms["null"].floor for row in COLLECTIVES.values())
