"""The notebook in results/ runs whole on two runs, and is committed without outputs."""

import json
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from written_runs import write_run

REPOSITORY = Path(__file__).parents[2]
NOTEBOOK = REPOSITORY / "results" / "notebook.ipynb"
PATHS = 'OLD, NEW = "last-week", "today"'


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def table_cells(cells, words):
    """Return the cells of the table that the code cell with ``words`` shows."""
    (cell,) = [cell for cell in cells if words in cell.source]
    return re.findall("<t[dh]>(.*?)</t[dh]>", cell.outputs[-1].data["text/html"])


@pytest.fixture
def execute(require):
    """Return a function that runs the notebook on two runs and returns it with its outputs."""
    for library in ("nbclient", "ipykernel", "pandas", "xarray"):
        require(find_spec(library), f"{library} is not installed")
    import nbformat
    from nbclient import NotebookClient

    def execute(old, new):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        first = code_cells(notebook)[0]
        assert PATHS in first.source
        first.source = first.source.replace(PATHS, f"OLD, NEW = {str(old)!r}, {str(new)!r}")
        client = NotebookClient(
            notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": old}}
        )
        return client.execute(env={**os.environ, "PYTHONWARNINGS": "error::UserWarning"})

    return execute


def test_the_notebook_runs_and_names_the_case_that_became_slower(execute, tmp_path):
    write_run(tmp_path / "old" / "raw" / "mpi.p2.h5", provenance={"kernel": "6.1"})
    slower = {("ring", 4096): 1.3, ("ring", 16384): 0.9}
    write_run(tmp_path / "new" / "raw" / "mpi.p2.h5", slower, seed=2, provenance={"kernel": "6.2"})
    notebook = execute(tmp_path / "old", tmp_path / "new")
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert not [
        output for cell in cells for output in cell.outputs if output.output_type == "error"
    ]
    compared = table_cells(cells, 'changed[["verdict"')
    first = compared.index("0")  # the number of the first row
    assert compared[first + 1] == "regression"
    assert compared[first + 2].startswith("all_reduce 4 KiB ring")
    assert "1.30" in compared[first + 5]
    assert table_cells(cells, "from_dict") == ["", "old", "new", "kernel", "6.1", "6.2"]
    pictures = [
        output
        for cell in cells
        for output in cell.outputs
        if "image/svg+xml" in output.get("data", {})
    ]
    assert len(pictures) == 3


def test_notebooks_are_committed_without_outputs(require):
    require((REPOSITORY / ".git").exists(), "this is no checkout of git")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.ipynb"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [REPOSITORY / name for name in listed.stdout.splitlines()]
    assert NOTEBOOK in paths
    for path in paths:
        cells = code_cells(json.loads(path.read_text()))
        assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in cells), path
