"""``hpccoll order``: its options, and what ranks print and write."""

import json

import pytest
from cli_runner import invoke

from hpccoll.order.order_file import RevealedOrder

BAD = {
    "native -c broadcast": "-c|broadcast|reduce_scatter",
    "native -d int32": "-d|int32|float32",
    "native -b 64,8": "-b|ascend",
    "native -b 8,64 -e 1K": "-e|list",
    "native -t mpi --device gpu": "--device|gpu|cuda",
    "native --out a.h5": "--out|a.h5|.json",
    "native --variant mpich-rign": "--variant|mpich-rign|mpich-ring",
    "native -r -1": "-r|-1",
    "native -b 8q": "-b|8q",
}
"""Command lines, and what their errors say."""


@pytest.mark.parametrize("line", BAD)
def test_bad_input_takes_one_line(line):
    assert invoke("order", *line.split()).is_bad_input(*BAD[line].split("|"))


@pytest.mark.mpi
def test_ranks_write_what_they_print(tmp_path, mpiexec):
    out = tmp_path / "new" / "ring.json"
    words = "-m hpccoll order ring -c all_reduce,reduce_scatter -b 12,4K --json --out"
    result = mpiexec(3, *words.split(), out)
    assert result.returncode == 0, result.stderr
    revealed = RevealedOrder.load(out, "--out")
    assert json.loads(result.stdout) == json.loads(out.read_text())
    assert (revealed.ranks, revealed.nodes, revealed.thread_level) == (3, 1, "multiple")
    for collective in revealed.collectives:
        for order in collective.ranges:
            assert "ring" in order.same_bits_as
            assert len(order.trees) == 3


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "words", "complaint"),
    [
        (1, "native", "2 ranks"),
        (2, "ring -c reduce", "ring"),
        (2, "native -d bfloat16", "bfloat16"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(mpiexec, ranks, words, complaint):
    result = mpiexec(ranks, "-m", "hpccoll", "order", *words.split())
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert complaint in line
