"""Tables made from results: the reader of the library takes from them what was measured to be best."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import raw_examples
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st
from library_results import library_results

from hpccoll.analysis.library_choices import library_choices
from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.interop.tuning_tables.lint_table import lint_table
from hpccoll.interop.tuning_tables.write_table import FORMATS, table_files
from hpccoll.store import hdf5
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import RawResults

SIZES = 8, 1024, 65536, 1 << 20, 1 << 32
WORDS = {
    "openmpi": [*library_algorithms("openmpi")["allreduce"]][:6],
    "mpich": [name for name, each in library_algorithms("mpich")["allreduce"].items() if not each.inter],
    "ucc": [*library_algorithms("ucc")["allreduce"]], "nccl": ["ring", "tree", "nvls_tree"],
}  # fmt: skip


@st.composite
def measured(draw, name):
    """Draw results for a format: a few algorithms, some faster than the default, on some ranks."""
    library = FORMATS[name].library
    times = st.fixed_dictionaries({size: st.sampled_from([1.0, 1.02, 2.0, 5.0, 9.0]) for size in SIZES})
    words = draw(st.lists(st.sampled_from(WORDS[library]), min_size=1, max_size=3, unique=True))
    curves = {f"{library}-{word}": draw(times) for word in words}
    default = "ucc-default" if library == "ucc" else "default"
    forced = {each: {"NCCL_PROTO": "Simple"} for each in curves} if library == "nccl" else {}
    ranks = draw(st.integers(2, 9))
    return library_results(library, {default: draw(times), **curves}, environments=forced, ranks=ranks, nodes=ranks)


def files_of(name, results, path=Path("table")):
    of = FORMATS[name]
    choices = library_choices(results, of.library, of.mpi, by_nodes=of.by_nodes, has_default=of.has_default)
    files, exports = table_files(name, choices.ranges, path, "of a run")
    return choices.ranges, [*files.values()], exports


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
def test_what_is_written_passes_the_linter_and_decides_as_the_choices_do(name, data):
    ranges, [text, *_], _ = files_of(name, data.draw(measured(name)))
    table = lint_table(text, name)
    chosen = [each for each in ranges if not each.choice.is_native]
    assert {each.kind for each in table.findings if each.severity == "critical"} <= ({"empty"} if not chosen else set())
    for of_range in ranges:
        for size in {each.nbytes for each in of_range.sizes} | {of_range.first, (of_range.below or 2**31) - 1}:
            rule = next(
                (
                    each for each in table.rules
                    if each.collective == "allreduce" and each.bytes[0] <= size <= each.bytes[1]
                    and each.ranks[0] <= of_range.ranks <= each.ranks[1] and each.algorithm != "ignore"
                    and {*each.conditions} <= {"comm_type=intra", "host", *map(str, library_table()["needs"])}
                ),
                None,
            )  # fmt: skip
            if of_range.choice.is_native:
                assert name in ("mpich", "nccl-csv") or rule is None
            elif name != "mpich" or not library_algorithms("mpich")["allreduce"][of_range.choice.algorithm].needs:
                assert (rule and rule.algorithm) == of_range.choice.algorithm, (size, of_range)


BEST = {"default": dict.fromkeys(SIZES, 9.0), "ring": {8: 20.0, 1024: 9.0, 65536: 4.0, 1 << 20: 4.0, 1 << 32: 4.0}}


def test_other_numbers_of_ranks_are_left_to_the_library():
    curves = {"default": BEST["default"], "openmpi-ring": BEST["ring"]}
    _, [text, _], _ = files_of("openmpi", library_results("openmpi", curves))
    spans = {each.ranks for each in lint_table(text).rules if each.algorithm == "ring"}
    assert spans == {(4, 4)}


def test_calls_that_a_layer_above_would_take_are_handed_on_at_the_sizes_of_the_rules_alone():
    curves = {"default": BEST["default"], "openmpi-ring": BEST["ring"]}
    _, [_, han], _ = files_of("openmpi", library_results("openmpi", curves, nodes=2))
    of_four = [each for each in lint_table(han, "han").rules if each.ranks == (4, 4)]
    assert [(each.bytes[0], each.algorithm) for each in of_four] == [(0, "han"), (8192, "tuned")]
    assert not [each for each in lint_table(han, "han").findings if each.severity == "critical"]

    curves = {"default": BEST["default"], "mpich-ring": BEST["ring"]}
    _, [_, ch4], _ = files_of("mpich", library_results("mpich", curves, nodes=2))
    tree = json.loads(re.sub(r"(?s)/\*.*?\*/", "", ch4))
    below = tree["collective=allreduce"]["comm_type=intra"]
    assert [*below] == ["comm_size<=3", "comm_size<=4", "comm_size=any"]
    small, large = below["comm_size<=4"]["avg_msg_size<=8191"], below["comm_size<=4"]["avg_msg_size=any"]
    assert small == below["comm_size=any"]
    assert large == {"composition=MPIDI_Allreduce_intra_composition_beta": {}}


def write_raw(place, variant, times, version="MPICH 5.0.2"):
    """Write the raw file of one variant: the nanoseconds of its calls by size, all of them alike."""
    forced = None if variant == "default" else variant.partition("-")[2]
    cases = [raw_examples.case(size, algorithm="native", in_place=True) for size in times]
    raw = RawResults(path=place / f"{variant}.h5", job=raw_examples.job(*cases, variant=variant, name=variant))
    raw.attempts.append((raw_examples.attempt(run_id=variant, provenance={"mpi": {"version": version}}), []))
    for case in cases:
        start = 10**15 + np.arange(40)[:, None] * 10**6 + np.zeros((1, 2), dtype=np.int64)
        end = start + times[case.bytes] + np.arange(40)[:, None] % 3
        taken = CaseTimes.from_samples(start, end, one_clock=True)
        raw.record(raw_examples.outcome(case, times=taken, requested=forced, executed="unknown"))
    hdf5.write_raw_file(raw, raw.path)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_raw(tmp_path, "default", {1024: 2000, 65536: 9000})
    write_raw(tmp_path, "mpich-ring", {1024: 3000, 65536: 5000})
    return tmp_path


def test_tune_writes_a_table_of_a_library_that_says_where_it_is_from_and_how_to_use_it(place):
    found = invoke("tune", ".", "--format", "mpich", "--out", "tree.json")
    assert (found.code, found.err) == (0, "")
    exports = [line for line in found.out.splitlines() if line.startswith("export ")]
    assert f"export MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={place}/tree.json" in exports
    for file in "tree.json", "tree.json.ch4":
        text = (place / file).read_text()
        assert {*exports, "default", "mpich-ring"} <= {word for line in text.splitlines() for word in (
            line.removesuffix(" */"), *line.split())}  # fmt: skip
    assert invoke("tune", "--lint", "tree.json").code == 0
    assert invoke("tune", ".", "--format", "mpich", "--out", "tree.json").code == 0  # a table may be replaced

    as_json = json.loads(invoke("tune", ".", "--format", "mpich", "--out", "tree.json", "--json").out)
    named = [(each["first"], each["below"], each["choice"]["algorithm"]) for each in as_json["ranges"]]
    assert (named, as_json["environment"]) == ([(0, 8192, "native"), (8192, None, "ring")], exports)


def test_a_table_that_changes_nothing_is_said_to_change_nothing(place):
    write_raw(place, "mpich-ring", {1024: 3000, 65536: 9000})
    found = invoke("tune", ".", "--format", "mpich", "--out", "tree.json")
    assert (found.code, "leaves all calls" in found.out) == (0, True)


def test_what_cannot_be_a_table_is_one_line(place):
    invoke("tune", ".", "--format", "openmpi", "--out", "t").is_bad_input("openmpi", "libraries.yaml")
    invoke("tune", ".", "--format", "mpicc", "--out", "t").is_bad_input("--format", "mpicc", "did you mean mpich?")
    invoke("tune", ".", "--format", "mpich", "--judge", "t").is_bad_input("--format with --out, --lint or --verify")
    invoke("tune", ".", "--verify", "none").is_bad_input("--verify", "none")
    (place / "own.csv").write_text("allreduce,0,65536,ring,simple,2,-1,-1,-1,-1\n")
    invoke("tune", ".", "--verify", "own.csv").is_bad_input("--verify", "own.csv", "Open MPI or MPICH")
    (place / "own.rules").write_text("1\n2\n1\n0\n1\n0 4 0 0\n")
    invoke("tune", ".", "--verify", "own.rules").is_bad_input(
        "OMPI_MCA_coll_tuned_dynamic_rules_filename=", "own.rules"
    )
    before = (place / "default.h5").read_bytes()
    invoke("tune", ".", "--format", "mpich", "--out", "default.h5").is_bad_input("--out", "default.h5")
    assert (place / "default.h5").read_bytes() == before


def test_a_table_that_its_library_does_not_read_is_not_verified_but_linted(place):
    (place / "cut.rules").write_text("1\n2\n1\n0\n1\n0 4 0\n")  # its last number is missing
    found = invoke("tune", ".", "--verify", "cut.rules", "--json")
    record = json.loads(found.out)
    assert (found.code, [each["kind"] for each in record["findings"]], record["calls"]) == (3, ["file_ignored"], [])


CALLS = """
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
for count in (1, 100, 2000, 300_000):
    one = np.full(count, 1.0)
    world.Allreduce(MPI.IN_PLACE, one), world.Bcast(one), world.Allgather(np.ones(1), np.empty(world.size))
    assert (one == world.size).all()
own = world.Dup()
assert own.allreduce(1) == world.size
print("done")
"""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [3, 4])
def test_the_library_of_this_machine_reads_what_is_written_for_it(mpiexec, require, tmp_path, monkeypatch, ranks):
    version = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    library = "openmpi" if "Open MPI" in version else "mpich"
    require(library == "openmpi" or "MPICH Version:      5" in version, "the MPI library has no such tables")
    curves = {"default": BEST["default"], f"{library}-ring": BEST["ring"]}
    table = tmp_path / "table"
    _, _, exports = files_of(library, library_results(library, curves), table)
    of = FORMATS[library]
    choices = library_choices(library_results(library, curves), library, of.mpi, by_nodes=False, has_default=True)
    for file, text in table_files(library, choices.ranges, table, "of a run")[0].items():
        file.write_text(text)
    for export in exports:
        monkeypatch.setenv(*export.removeprefix("export ").split("="))
    (tmp_path / "calls.py").write_text(CALLS)
    result = mpiexec(ranks, tmp_path / "calls.py")
    assert (result.returncode, result.stdout.count("done")) == (0, ranks), result.stderr
