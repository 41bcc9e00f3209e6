"""Every example output, of outputs/ (after the sources) and inputs/ (as people have them): its results, or refusal."""

from pathlib import Path

from golden_page import assert_golden
from imported_outputs import OUTPUTS, given_for

from hpccoll.common.errors import BadInputError
from hpccoll.interop.import_results import read_output

INPUTS = Path(__file__).parents[1] / "inputs"
FILES = [*sorted(OUTPUTS.iterdir()), *sorted(path for path in INPUTS.iterdir() if path.suffix in (".txt", ".json"))]


def lines_of(path):
    """Yield what is read of an output; times are in microseconds, as the programs print them."""
    try:
        output = read_output(path, given_for(path.name))
    except BadInputError as refused:
        yield f"{path.name}: refused: {refused.key.removeprefix(f'{path.parent}/')}"
        return
    cut = ", cut" if output.truncated else ""
    yield f"{path.name}: {output.source}, {output.program}, {output.library}, {len(output.remarks)} remarks{cut}"
    for result in output.results:
        case, checked = result.case, "failed" if result.failure else result.wrong
        yield " ".join(
            map(str, (
                " ", case.collective, case.algorithm, dict(case.params), case.transport, case.device, case.dtype,
                case.op, "in place" if case.in_place else "out of place", "root", case.root, case.bytes, "B,",
                case.ranks, "ranks on", case.nodes, case.timing, round(result.seconds * 1e6, 6), "wrong:", checked,
            ))
        )  # fmt: skip


def test_every_example_has_the_results_that_it_prints_or_is_refused():
    assert_golden("outputs", [line for path in FILES for line in lines_of(path)], Path(__file__).parent / "golden")
