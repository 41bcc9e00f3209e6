"""Tables made from results: the reader of the library takes from them what was measured to be best."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import raw_examples
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st
from library_results import library_results

from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.extensions.tables.formats.lint_table import lint_table
from hpccoll.extensions.tables.formats.mpich_json import write_mpich_json
from hpccoll.extensions.tables.formats.tuning_rule import ANY, UNLIMITED, TuningRule
from hpccoll.extensions.tables.formats.write_table import (
    FORMATS,
    expressible_choices,
    knows_nodes,
    table_files,
)
from hpccoll.extensions.tables.library_choices import library_choices
from hpccoll.extensions.tables.table_conclusion import TableConclusion, conclusion_findings
from hpccoll.extensions.tables.tuning_formats import _table_findings
from hpccoll.extensions.tables.verified_table_text import CHANGES_NOTHING
from hpccoll.store import hdf5
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import RawResults

SIZES = 8, 1024, 65536, 1 << 20, 1 << 32
WORDS = {
    "openmpi": [*library_algorithms("openmpi")["allreduce"]][:6],
    "mpich": [
        name for name, each in library_algorithms("mpich")["allreduce"].items() if not each.inter
    ],
    "nccl": ["ring", "tree", "nvls_tree"],
}


@st.composite
def measured(draw, name):
    """Draw results for a format: a few algorithms, some faster than the default, on some ranks."""
    library = FORMATS[name].library
    times = st.fixed_dictionaries(
        {size: st.sampled_from([1.0, 1.02, 2.0, 5.0, 9.0]) for size in SIZES}
    )
    words = draw(st.lists(st.sampled_from(WORDS[library]), min_size=1, max_size=3, unique=True))
    curves = {f"{library}-{word}": draw(times) for word in words}
    forced = {each: {"NCCL_PROTO": "Simple"} for each in curves} if library == "nccl" else {}
    ranks = draw(st.integers(2, 9))
    return library_results(
        library, {"default": draw(times), **curves}, environments=forced, ranks=ranks, nodes=ranks
    )


def files_of(name, results, path=Path("table")):
    choices, by_nodes = choices_of(name, results)
    files, exports = table_files(name, choices.ranges, path, "of a run", by_nodes=by_nodes)
    return choices.ranges, [*files.values()], exports


def choices_of(name, results, **provenance):
    """Return what a format can express of results of its library, and whether it knows the number of nodes."""
    of = FORMATS[name]
    about = {"mpi": {"version": "Open MPI v6.0.0"}} if name == "openmpi-json" else {}
    runs = tuple(
        replace(run, provenance={**run.provenance, **about, **provenance}) for run in results.runs
    )
    results, by_nodes = replace(results, runs=runs), knows_nodes(name, runs)
    found = library_choices(
        results, of.library, of.mpi, by_nodes=by_nodes, has_default=of.has_default
    )
    return expressible_choices(name, found), by_nodes


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
def test_what_is_written_passes_the_linter_and_decides_as_the_choices_do(name, data):
    ranges, [text, *_], _ = files_of(name, data.draw(measured(name)))
    table = lint_table(text, name)
    chosen = [each for each in ranges if not each.choice.is_native]
    assert {each.kind for each in table.findings if each.severity == "critical"} <= (
        {"empty"} if not chosen else set()
    )
    for of_range in ranges:
        for size in {each.nbytes for each in of_range.sizes} | {
            of_range.first,
            (of_range.below or 2**31) - 1,
        }:
            rule = next(
                (
                    each
                    for each in table.rules
                    if each.collective == "allreduce"
                    and each.bytes[0] <= size <= each.bytes[1]
                    and each.ranks[0] <= of_range.ranks <= each.ranks[1]
                    and each.algorithm != "ignore"
                    and {*each.conditions}
                    <= {"comm_type=intra", "host", *map(str, library_table()["needs"])}
                ),
                None,
            )
            if of_range.choice.is_native:
                assert name in ("mpich", "nccl-csv") or rule is None
            elif (
                name != "mpich"
                or not library_algorithms("mpich")["allreduce"][of_range.choice.algorithm].needs
            ):
                assert (rule and rule.algorithm) == of_range.choice.algorithm, (size, of_range)


BEST = {
    "default": dict.fromkeys(SIZES, 9.0),
    "ring": {8: 20.0, 1024: 9.0, 65536: 4.0, 1 << 20: 4.0, 1 << 32: 4.0},
}


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
    small, large = (
        below["comm_size<=4"]["avg_msg_size<=8191"],
        below["comm_size<=4"]["avg_msg_size=any"],
    )
    assert small == below["comm_size=any"]
    assert large == {"composition=MPIDI_Allreduce_intra_composition_beta": {}}


UPPER = {"default": {8: 9.0, 1024: 9.0, 65536: 9.0}, "all": {8: 5.0, 1024: 5.0, 65536: 5.0}}
"""A default, and another algorithm that is faster at all sizes."""


@pytest.mark.parametrize(
    ("collective", "word"),
    [("all_to_all_v", "pairwise"), ("scatter", "binomial"), ("gather", "binomial")],
)
@pytest.mark.parametrize("name", ["openmpi", "openmpi-json"])
def test_open_mpi_gets_one_algorithm_for_all_sizes_where_ranks_may_not_know_the_size(
    name, collective, word
):
    def rules_with(times):
        curves = {"default": UPPER["default"], f"openmpi-{word}": UPPER["all"] | times}
        results = library_results("openmpi", curves, collective=collective)
        [text, _] = files_of(name, results)[1]
        return [
            each for each in lint_table(text, name).rules if each.algorithm == word
        ], choices_of(name, results)[0]

    [rule], _ = rules_with({})
    assert (rule.bytes, rule.ranks) == (ANY, (4, 4))
    for times in {8: 20.0}, {65536: 20.0}:
        rules, choices = rules_with(times)
        assert (rules, choices.ranges) == ([], ())
        assert any(
            each.startswith(f"{collective} on 4 ranks") and word in each
            for each in choices.left_out
        )


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].has_default])
def test_no_rule_takes_calls_far_below_the_smallest_measured_size(name):
    library = FORMATS[name].library
    large = {1 << 18: 224.0, 1 << 20: 896.0}
    ring = {size: time / 2.24 for size, time in large.items()}
    results = library_results(library, {"default": large, f"{library}-ring": ring})
    _, [text, *_], _ = files_of(name, results)
    rings = []
    for rule in lint_table(text, name).rules:
        is_of_call = rule.collective == "allreduce" and rule.ranks[0] <= 4 <= rule.ranks[1]
        if is_of_call and rule.algorithm == "ring":
            rings.append(rule.bytes)
    assert rings == [(1 << 17, UNLIMITED)]


@pytest.mark.parametrize("name", ["openmpi", "openmpi-json"])
def test_where_one_rule_must_serve_all_sizes_it_needs_a_small_one_to_be_measured(name):
    times = {1024: 9.0, 65536: 9.0}
    faster = dict.fromkeys(times, 5.0)
    curves = {"default": times, "openmpi-binomial": faster}
    choices, _ = choices_of(name, library_results("openmpi", curves, collective="gather"))
    assert choices.ranges == ()
    assert any("binomial from 512 B" in line for line in choices.left_out)


def test_a_table_whose_format_can_name_no_faster_algorithm_changes_nothing_and_says_why():
    times = {1024: 9.0, 65536: 9.0}
    curves = {"default": times, "openmpi-binomial": dict.fromkeys(times, 5.0)}
    gathers = library_results("openmpi", curves, collective="gather")
    choices, _ = choices_of("openmpi", gathers)
    assert TableConclusion.of(choices).changes_nothing
    (finding,) = conclusion_findings(choices)
    assert "left out" in finding.text
    assert "no algorithm is clearly faster" not in finding.text


def test_calls_in_place_that_pass_no_count_are_named_if_sizes_decide():
    curves = {"default": UPPER["default"], "openmpi-ring": UPPER["all"] | {8: 20.0}}
    named = [
        [
            each
            for each in choices_of("openmpi", library_results("openmpi", curves, collective=name))[
                0
            ].left_out
            if "MPI_IN_PLACE" in each
        ]
        for name in ("all_gather", "all_reduce")
    ]
    assert (len(named[0]), named[1]) == (1, [])


def nccl_results(**others):
    curves = {"default": UPPER["default"], "nccl-ring": UPPER["all"], **others}
    return library_results(
        "nccl",
        curves,
        environments={each: {"NCCL_PROTO": "Simple"} for each in ("nccl-ring", *others)},
    )


def test_a_table_without_a_default_says_what_other_calls_get_and_names_no_default():
    partly = {"nccl-ring": {8: 5.0, 65536: 5.0}, "nccl-tree": UPPER["default"]}
    choices, _ = choices_of("nccl-csv", nccl_results(**partly))
    assert "ring" in {each.choice.algorithm for each in choices.ranges}
    assert not any(each.choice.is_native for each in choices.ranges)
    assert any("ring with simple" in each for each in choices.left_out)


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        ([{"name": "H100", "nvlink_domain": None}], (4, 4)),
        ([{"name": "GB200", "nvlink_domain": "a.1"}], ANY),
        ([{"name": None, "nvlink_domain": None}], ANY),
        (None, ANY),
    ],
)
def test_a_line_for_nccl_has_a_number_of_nodes_only_if_every_host_is_one(gpus, nodes):
    choices, by_nodes = choices_of(
        "nccl-csv", nccl_results(), gpus=gpus and [{"hosts": ["n1"], "gpus": gpus}]
    )
    [text] = table_files("nccl-csv", choices.ranges, Path("t"), "of a run", by_nodes=by_nodes)[
        0
    ].values()
    assert lint_table(text).rules[0].nodes == nodes


def write_raw(place, variant, times, version="MPICH 5.0.2", half=0.0, environment=None):
    """Write the raw file of one variant: the nanoseconds of its calls by size, which vary by a share of them."""
    forced = None if variant == "default" else variant.partition("-")[2]
    cases = [raw_examples.case(size, algorithm="native", in_place=True) for size in times]
    raw = RawResults(
        path=place / f"{variant}.h5",
        job=raw_examples.job(*cases, variant=variant, name=variant, environment=environment or {}),
    )
    raw.attempts.append(
        (raw_examples.attempt(run_id=variant, provenance={"mpi": {"version": version}}), [])
    )
    for case in cases:
        start = 10**15 + np.arange(40)[:, None] * 10**6 + np.zeros((1, 2), dtype=np.int64)
        spread = int(half * times[case.bytes])
        end = start + times[case.bytes] + np.arange(40)[:, None] % 3
        end += np.where(np.arange(40)[:, None] % 2, spread, -spread)
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
        assert {*exports, "default", "mpich-ring"} <= {
            word for line in text.splitlines() for word in (line.removesuffix(" */"), *line.split())
        }
    assert invoke("tune", "--lint", "tree.json").code == 0
    # a table may be replaced
    assert invoke("tune", ".", "--format", "mpich", "--out", "tree.json").code == 0

    as_json = json.loads(
        invoke("tune", ".", "--format", "mpich", "--out", "tree.json", "--json").out
    )
    named = [
        (each["first"], each["below"], each["choice"]["algorithm"]) for each in as_json["ranges"]
    ]
    assert (named, as_json["environment"]) == ([(0, 8192, "native"), (8192, None, "ring")], exports)


def test_a_table_that_changes_nothing_is_said_to_change_nothing(place):
    write_raw(place, "mpich-ring", {1024: 3000, 65536: 9000})
    found = invoke("tune", ".", "--format", "mpich", "--out", "tree.json")
    assert (found.code, "leaves all calls" in found.out) == (0, True)
    assert "no algorithm is clearly faster" in found.out


def json_of_table(place, half, *options):
    """Return the JSON of a table of two sizes, whose times vary by this share."""
    write_raw(place, "default", {1024: 2000, 65536: 9000}, half=half)
    write_raw(place, "mpich-ring", {1024: 3000, 65536: 5000}, half=half)
    found = invoke("tune", ".", "--format", "mpich", "--out", "tree.json", "--json", *options)
    return json.loads(found.out)


def test_a_table_without_the_default_names_an_algorithm_for_calls_that_are_not_clearly_faster(
    place,
):
    named = json_of_table(place, 0.8, "--no-default")["ranges"]
    assert {size_range["choice"]["algorithm"] for size_range in named} == {"ring"}
    assert json_of_table(place, 0.8)["changes_nothing"]
    assert invoke("tune", "--lint", "tree.json").code == 0


@pytest.mark.parametrize(
    "options", [("--out", "t.json"), ("--format", "mpich", "--verify", "tree.json"), ()]
)
def test_only_a_librarys_table_can_be_without_its_default(place, options):
    write_raw(place, "default", {1024: 2000})
    (place / "tree.json").write_text(write_mpich_json([]))
    assert invoke("tune", ".", "--no-default", *options).is_bad_input("--no-default")


def test_json_says_as_the_text_does_what_is_within_the_noise_and_whether_the_table_changes_anything(
    place,
):
    clear = json_of_table(place, half=0.0)
    assert (clear["changes_nothing"], clear["findings"], clear["unused"]) == (False, [], [])
    noisy = json_of_table(place, half=0.8)
    assert noisy["changes_nothing"]
    (finding,) = noisy["findings"]
    assert (finding["kind"], finding["values"]) == (
        "changes_nothing",
        {"sizes": 2, "noisy_sizes": 1},
    )
    (unused,) = noisy["unused"]
    assert (unused["algorithm"], unused["reason"]) == ("ring", "noise")
    assert [gain["nbytes"] for gain in unused["gains"]] == [65536]
    (kept,) = noisy["ranges"]
    assert [size["within_noise"] for size in kept["sizes"]] == [False, True]
    assert noisy["noise"]
    text = invoke("tune", ".", "--format", "mpich", "--out", "tree.json").out
    assert finding["text"] in text.splitlines()
    assert noisy["noise"][0] in text.splitlines()


def test_json_has_a_finding_on_the_sizes_that_a_table_leaves_to_the_library_unmeasured(place):
    write_raw(place, "default", {65536: 9000})
    write_raw(place, "mpich-ring", {65536: 5000})
    found = json.loads(invoke("tune", ".", "--format", "mpich", "--out", "t.json", "--json").out)
    assert [size_range["first"] for size_range in found["ranges"]] == [32768]
    (finding,) = found["findings"]
    assert (finding["kind"], finding["severity"]) == ("not_measured", "info")
    assert (finding["values"]["smallest"], finding["values"]["largest"]) == (65536, 65536)


def test_json_has_a_warning_on_sizes_that_a_table_without_a_default_serves_unmeasured():
    curves = {"default": {65536: 9}, "nccl-tree": {65536: 5}}
    environments = {"nccl-tree": {"NCCL_PROTO": "LL"}}
    choices, _ = choices_of("nccl-csv", library_results("nccl", curves, environments=environments))
    (finding,) = _table_findings(choices)
    assert (finding.kind, finding.severity) == ("not_measured", "warning")


TREE_VARIABLE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"


def test_verifying_a_table_that_changes_nothing_ends_with_0_and_says_so(place):
    table = place / "nothing.json"
    table.write_text(write_mpich_json(()))
    write_raw(place, "table", {1024: 2000}, environment={TREE_VARIABLE: str(table)})
    found = invoke("tune", ".", "--verify", table)
    assert found.code == 0, found.out + found.err
    assert CHANGES_NOTHING in found.out
    record = json.loads(invoke("tune", ".", "--verify", table, "--json").out)
    assert (record["changes_nothing"], len(record["calls"])) == (True, 1)


def test_a_table_that_the_library_refuses_is_not_said_to_change_nothing(place):
    table = place / "cut.rules"
    table.touch()
    write_raw(place, "table", {1024: 2000}, environment={TREE_VARIABLE: str(table)})
    found = invoke("tune", ".", "--verify", table, "--format", "openmpi", "--json")
    record = json.loads(found.out)
    assert (found.code, record["calls"], record["changes_nothing"]) == (3, [], False)
    assert record["findings"]


def test_verifying_a_table_that_names_an_algorithm_ends_with_3_if_nothing_shows_what_ran(place):
    table = place / "ring.json"
    table.write_text(write_mpich_json([TuningRule(collective="allreduce", algorithm="ring")]))
    write_raw(place, "table", {1024: 2000}, environment={TREE_VARIABLE: str(table)})
    found = invoke("tune", ".", "--verify", table, "--json")
    record = json.loads(found.out)
    verdicts = [(call["rule"], call["verdict"]) for call in record["calls"]]
    assert (found.code, record["changes_nothing"]) == (3, False)
    assert verdicts == [("ring", "not shown")]


def test_a_table_is_for_the_version_of_the_library_that_was_measured(place):
    write_raw(place, "default", {1024: 2000, 65536: 9000}, "Open MPI v5.0.11, package: Open MPI")
    write_raw(
        place, "openmpi-ring", {1024: 3000, 65536: 5000}, "Open MPI v5.0.11, package: Open MPI"
    )
    (place / "mpich-ring.h5").unlink()
    refused = invoke("tune", ".", "--format", "openmpi-json", "--out", "t")
    refused.is_bad_input("--format", "openmpi-json", "Open MPI v5.0.11", "for these: openmpi")
    assert invoke("tune", ".", "--format", "openmpi", "--out", "t").code == 0
    (place / "openmpi-ring.h5").unlink()
    write_raw(place, "default", {1024: 2000, 65536: 9000}, "MPICH Version:      4.3.2")
    write_raw(place, "mpich-ring", {1024: 3000, 65536: 5000}, "MPICH Version:      4.3.2")
    invoke("tune", ".", "--format", "mpich", "--out", "u").is_bad_input(
        "--format", "mpich", "4.3.2", "none"
    )


def test_a_shell_takes_the_lines_for_a_table_in_a_folder_with_a_space(place):
    (place / "my tables").mkdir()
    found = invoke("tune", ".", "--format", "mpich", "--out", "my tables/tree.json")
    exports = [shlex.split(line) for line in found.out.splitlines() if line.startswith("export ")]
    [file] = [value for _, value in exports if value.startswith("MPIR_CVAR_COLL_")]
    assert file.partition("=")[2] == f"{place}/my tables/tree.json"


def test_a_table_of_two_files_is_written_whole_or_not_at_all(place):
    (place / "tree.json.ch4").write_text("another file")
    invoke("tune", ".", "--format", "mpich", "--out", "tree.json").is_bad_input(
        "--out", "tree.json.ch4"
    )
    assert not (place / "tree.json").exists()


def test_what_cannot_be_a_table_is_one_line(place):
    for name in ("rccl-csv", "ucc"):  # no variant measures their algorithms
        invoke("tune", ".", "--format", name, "--out", "t").is_bad_input("--format", name)
    invoke("tune", ".", "--format", "openmpi", "--out", "t").is_bad_input(
        "openmpi", "libraries.yaml"
    )
    invoke("tune", ".", "--format", "mpicc", "--out", "t").is_bad_input(
        "--format", "mpicc", "did you mean mpich?"
    )
    (place / "t").touch()
    invoke("tune", ".", "--format", "mpich", "--judge", "t").is_bad_input(
        "--format with --out, --lint or --verify"
    )
    invoke("tune", ".", "--verify", "none").is_bad_input("--verify", "none")
    (place / "own.csv").write_text("allreduce,0,65536,ring,simple,2,-1,-1,-1,-1\n")
    invoke("tune", ".", "--verify", "own.csv").is_bad_input(
        "--verify", "own.csv", "Open MPI or MPICH"
    )
    (place / "own.rules").write_text("1\n2\n1\n0\n1\n0 4 0 0\n")
    invoke("tune", ".", "--verify", "own.rules").is_bad_input(
        "OMPI_MCA_coll_tuned_dynamic_rules_filename=", "own.rules"
    )
    before = (place / "default.h5").read_bytes()
    invoke("tune", ".", "--format", "mpich", "--out", "default.h5").is_bad_input(
        "--out", "default.h5"
    )
    assert (place / "default.h5").read_bytes() == before


def test_a_table_that_its_library_does_not_read_is_not_verified_but_linted(place):
    (place / "cut.rules").write_text("1\n2\n1\n0\n1\n0 4 0\n")  # its last number is missing
    found = invoke("tune", ".", "--verify", "cut.rules", "--json")
    record = json.loads(found.out)
    assert (found.code, [each["kind"] for each in record["findings"]], record["calls"]) == (
        3,
        ["file_ignored"],
        [],
    )


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
def test_the_library_of_this_machine_reads_what_is_written_for_it(
    mpiexec, require, tmp_path, monkeypatch, ranks
):
    version = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    library = "openmpi" if "Open MPI" in version else "mpich"
    require(
        library == "openmpi" or "MPICH Version:      5" in version,
        "the MPI library has no such tables",
    )
    curves = {"default": BEST["default"], f"{library}-ring": BEST["ring"]}
    table = tmp_path / "table"
    _, [text, above], exports = files_of(library, library_results(library, curves), table)
    table.write_text(text)
    table.with_name(f"table.{'han' if library == 'openmpi' else 'ch4'}").write_text(above)
    for export in exports:
        monkeypatch.setenv(*export.removeprefix("export ").split("="))
    (tmp_path / "calls.py").write_text(CALLS)
    result = mpiexec(ranks, tmp_path / "calls.py")
    assert (result.returncode, result.stdout.count("done")) == (0, ranks), result.stderr
