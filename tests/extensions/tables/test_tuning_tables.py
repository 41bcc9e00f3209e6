"""Tables of other libraries: traps have findings, what is written is read again, and MPICH takes it."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.extensions.tables.formats.lint_table import READERS, lint_table, recognise_format
from hpccoll.extensions.tables.formats.mpich_json import read_mpich_json, write_mpich_json
from hpccoll.extensions.tables.formats.nccl_csv import write_nccl_csv
from hpccoll.extensions.tables.formats.openmpi_json import write_openmpi_json
from hpccoll.extensions.tables.formats.openmpi_rules import write_openmpi_rules
from hpccoll.extensions.tables.formats.tuning_rule import ANY, UNLIMITED, TuningRule

FINDINGS = Path(lint_table.__code__.co_filename).with_name("findings.toml")
GUARD = "0 1 0 0 0 0"


def classic(*rules, ranks="0", collective=2, head=""):
    """Return a file of Open MPI with one collective and one communicator size."""
    return "\n".join((f"{head}1", str(collective), "1", ranks, str(len(rules)), *rules, ""))


def openmpi_json(rule="{}", ranks='"comm_size_min": 0', name="allreduce"):
    return f'{{"collectives": {{\n"{name}": [{{{ranks}, "rules": [\n{rule}]}}]}}}}'


def mpich(below, name="allreduce"):
    """Return a whole tree with other decisions, which begin in line 2, between ranks of one communicator."""
    return re.sub(
        rf'(?s)("collective={name}": {{)\s*"comm_type=intra":.*?(?="comm_type=inter")',
        lambda match: f'{match[1]}"comm_type=intra":\n{below},',
        re.sub("\n *", " ", write_mpich_json([])),
    )


def csv(*lines):
    """Return lines for NCCL, behind which nothing is left to match."""
    return "\n".join((*lines, write_nccl_csv([])))


GATHER = '{"algorithm=MPIR_Allgather_intra_ring": {}}'
RING = '{"algorithm=MPIR_Allreduce_intra_ring": {}}'
TRAPS = {
    # Open MPI, in numbers
    "no rule for few ranks": (classic("0 4 0 0", ranks="8"), "no_guard", 4, 8),
    "no rule for size 0": (classic("8 4 0 0"), "file_ignored", 6, 8),
    "sizes that fall": (classic("0 4 0 0", "64 3 0 0", "8 4 0 0"), "not_rising", 8, 8),
    "an algorithm that is not there": (classic("0 9 0 0"), "unknown_algorithm", 6, 9),
    "an algorithm of later versions": (classic("0 7 0 0"), "newer_algorithm", 6, 7),
    "an algorithm that 4.1 lacks": (classic("0 7 0 0", collective=0), "newer_algorithm", 6, 7),
    "a collective that is not there": (classic("0 1 0 0", collective=22), "file_ignored", 2, 22),
    "a collective without algorithms": (
        classic("0 1 0 0", collective=10),
        "never_matches",
        2,
        "gatherv",
    ),
    "a count that is too high": ("1\n2\n1\n0\n2\n0 4 0 0\n", "file_ignored", 6, "a message size"),
    "a count that is too low": ("1\n2\n1\n0\n1\n0 4 0 0\n64 3 0 0\n", "not_read", 7, "64"),
    "a negative number": (classic("0 4 0 -1"), "file_ignored", 6, -1),
    "an int that is too large": (classic("0 4 0 2147483648"), "file_ignored", 6, 2**31),
    "a leading zero": (classic("0 4 0 0", "010 3 0 0"), "octal", 7, "010"),
    "a leading zero before 8": (classic("0 4 0 0", "08 3 0 0"), "octal", 7, "08"),
    "a name instead of an id": ("1\nallreduce\n1\n0\n1\n0 4 0 0\n", "skipped_text", 3, "allreduce"),
    "a fifth number": (classic("0 4 0 0 8"), "fifth_field", 6, 8),
    "a fifth number behind two rules": (
        "1\n2\n1\n0\n2\n0 4 0 0 64 3 0 0 8 # of two",
        "fifth_field",
        6,
        8,
    ),
    "rules for few ranks from a size on": (
        classic("0 0 0 0", "8 3 0 0", ranks="8"),
        "no_guard",
        4,
        8,
    ),
    "a version that is no first line": (
        classic("0 4 0 0", head="# of us\nrule-file-version-2\n"),
        "file_ignored",
        2,
        -2,
    ),
    "a version that older readers lack": (
        classic("0 4 0 0 8", head="rule-file-version-2\n"),
        "version_2",
        1,
        "rule-file-version-2",
    ),
    "sizes of communicators in 6.0": (f"1\n2\n2\n{GUARD}\n8\n1\n0 4 0 0\n", "sizes_in_6", 5, 8),
    "sizes that only some ranks know": (
        classic("0 1 0 0", "64 2 0 0", collective=15),
        "one_rule",
        7,
        64,
    ),
    "a collective twice": (f"2\n2\n1\n{GUARD}\n2\n1\n{GUARD}\n", "never_matches", 5, "allreduce"),
    "a power of two": (classic("0 3 0 0", collective=0), "needs_ranks", 6, "recursive_doubling"),
    "an even number": (classic("0 5 0 0", collective=0), "needs_ranks", 6, "neighbor"),
    "two ranks": (classic("0 5 0 0", collective=3), "needs_ranks_fatal", 6, "two_proc"),
    "han": (classic("0 4 0 0"), "han_outranks", 0, None),
    # Open MPI, in JSON
    "a comment in JSON": (openmpi_json('{"alg": /* of us */ "ring"}'), "json_comment", 3, "/* */"),
    "a key that is misspelt": (
        openmpi_json('{"alg": "ring", "msg_size_mim": 8}'),
        "misspelt_key",
        3,
        "msg_size_mim",
    ),
    "an algorithm that is misspelt": (
        openmpi_json('{"alg": "rign"}'),
        "unknown_algorithm",
        3,
        "rign",
    ),
    "a collective that is misspelt": (openmpi_json(name="alreduce"), "unknown_name", 2, "alreduce"),
    "a distribution that is not there": (
        openmpi_json('{"alg": 4}', '"comm_rank_distribution": "all"'),
        "unknown_name",
        2,
        "all",
    ),
    "a collective that is an object": (
        '{"collectives": {"allreduce": [],\n"bcast": {"rules": [{"alg": 1}]}}}',
        "malformed",
        2,
        "bcast",
    ),
    "collectives in a list": ('{"collectives":\n["allreduce"]}', "malformed", 1, "collectives"),
    "rules in an object": (
        '{"collectives": {"bcast": [\n{"rules": {"alg": 1}}]}}',
        "malformed",
        2,
        "rules",
    ),
    "a rule without an algorithm": (openmpi_json('{"msg_size_min": 8}'), "malformed", 3, "alg"),
    "an algorithm in an object": (openmpi_json('{"alg": {"name": "ring"}}'), "malformed", 3, "alg"),
    "true as an algorithm": (openmpi_json('{"alg": true}'), "malformed", 3, "alg"),
    "a segment that is no number": (
        openmpi_json('{"alg": 5, "seg_size": [8]}'),
        "malformed",
        3,
        "[...]",
    ),
    "ranks that end before they begin": (
        openmpi_json('{"alg": 4}', '"comm_size_min": 64, "comm_size_max": 8'),
        "never_matches",
        3,
        "ring",
    ),
    "a size that is no number": (
        openmpi_json('{"alg": 4, "msg_size_max": "8K"}'),
        "malformed",
        3,
        "8K",
    ),
    "rules that others include": (
        openmpi_json('{"alg": 4},\n{"alg": 3, "msg_size_min": 8}'),
        "never_matches",
        4,
        "recursive_doubling",
    ),
    "ranks that others include": (
        openmpi_json(
            '{"alg": 4, "msg_size_max": 7}]}, {"comm_size_min": 4, "rules": [\n{"alg": 3}'
        ),
        "never_matches",
        3,
        "allreduce",
    ),
    "rules that overlap": (
        openmpi_json('{"alg": 4, "msg_size_max": 64},\n{"alg": 3, "msg_size_min": 8}'),
        "overlap",
        4,
        8,
    ),
    "JSON of 6.0": (openmpi_json('{"alg": "ring"}'), "json_in_5", 0, None),
    "no JSON": ('{"collectives": {', "malformed", 1, "JSON"),
    # han
    "a component as a number": ("1\nallreduce\n1\n2\n1\n1\n1\n0 3 tuned", "file_ignored", 8, "3"),
    "a first configuration of 2": ("1\nallreduce\n1\n2\n1\n2\n1\n0 tuned", "file_ignored", 6, 2),
    "a collective without han": (
        "1\nalltoall\n1\n2\n1\n1\n1\n0 tuned",
        "never_matches",
        2,
        "alltoall",
    ),
    # MPICH
    "one collective alone": (
        '{"collective=allreduce": {"comm_type=any": {"any": {}}}}',
        "missing_collectives",
        0,
        None,
    ),
    "no rule for some sizes": (
        mpich(f'{{"avg_msg_size<=8": {RING}}}'),
        "gap_aborts",
        1,
        "allreduce",
    ),
    "no rule from the last strict bound on": (
        mpich(f'{{"avg_msg_size<8": {RING}, "avg_msg_size<1024": {RING}}}'),
        "gap_aborts",
        1,
        "allreduce",
    ),
    "a size above 2^31": (
        mpich(f'{{"avg_msg_size<=2147483648": {RING}, "avg_msg_size=any": {RING}}}'),
        "too_large",
        2,
        2**31,
    ),
    "a condition after any": (
        mpich(f'{{"avg_msg_size=any": {RING},\n"avg_msg_size<=8": {RING}}}'),
        "never_matches",
        3,
        "avg_msg_size<=8",
    ),
    "a size below the one before": (
        mpich(f'{{"avg_msg_size<=8": {RING},\n"avg_msg_size<8": {RING}, "any": {RING}}}'),
        "never_matches",
        3,
        "avg_msg_size<8",
    ),
    "a condition that is misspelt": (
        mpich(f'{{"msg_size<=8": {RING}, "any": {RING}}}'),
        "unknown_name",
        2,
        "msg_size<=8",
    ),
    "an algorithm of another collective": (
        mpich('{"algorithm=MPIR_Bcast_intra_tree": {}}'),
        "unknown_algorithm",
        2,
        "MPIR_Bcast_intra_tree",
    ),
    "an algorithm between communicators": (
        mpich('{"algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {}}'),
        "unknown_algorithm",
        2,
        "MPIR_Allreduce_inter_reduce_exchange_bcast",
    ),
    "ranks that are no power of two": (
        mpich('{"algorithm=MPIR_Allgather_intra_recursive_doubling": {}}', "allgather"),
        "unguarded",
        2,
        "MPIR_Allgather_intra_recursive_doubling",
    ),
    "too few elements": (
        mpich('{"algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather": {}}'),
        "unguarded",
        2,
        "MPIR_Allreduce_intra_reduce_scatter_allgather",
    ),
    "a size that is not defined": (
        mpich(f'{{"avg_msg_size<=8": {GATHER}, "any": {GATHER}}}', "allgather"),
        "undefined_condition",
        2,
        "avg_msg_size",
    ),
    "what stands beside an algorithm": (
        mpich('{"algorithm=MPIR_Allreduce_intra_recexch": {}, "k=4": {}}'),
        "never_matches",
        2,
        "algorithm=MPIR_Allreduce_intra_recexch",
    ),
    "parameters that are left to memory": (
        mpich('{"algorithm=MPIR_Allreduce_intra_recexch": {"k=2": {}}}'),
        "unset_parameters",
        2,
        "MPIR_Allreduce_intra_recexch",
    ),
    "elements instead of bytes": (
        mpich(
            f'{{"total_msg_size<8": {GATHER.replace("Allgather_intra_ring", "Gather_intra_binomial")}, "any": {{}}}}',
            "gather",
        ),
        "elements",
        2,
        "total_msg_size",
    ),
    "a vector times the ranks": (
        mpich(f'{{"total_msg_size<8": {RING}, "any": {RING}}}'),
        "ranks_times",
        2,
        "total_msg_size",
    ),
    # NCCL and RCCL
    "a collective of NCCL that is misspelt": (
        csv("alreduce,0,8,ring,ll,4,-1,-1"),
        "taken_for",
        1,
        "alreduce",
    ),
    "rign": (csv("allreduce,0,8,rign,ll,4,-1,-1"), "taken_for", 1, "rign"),
    "LL": (csv("allreduce,0,8,ring,LL,4,-1,-1"), "taken_for", 1, "LL"),
    "channels -1": (csv("allreduce,0,8,ring,ll,-1,-1,-1"), "one_channel", 1, -1),
    "no line for other sizes": (
        "allreduce,0,4294967295,ring,ll,4,-1,-1",
        "no_catch_all",
        0,
        "allreduce",
    ),
    "a word of letters, signs and digits": (
        "1\nall-reduce x4\n1\n0\n1\n0 4 0 0\n",
        "skipped_text",
        2,
        "all - reduce x",
    ),
    "no line for other ranks": (
        "allreduce,0,18446744073709551615,ring,ll,4,2,16",
        "no_catch_all",
        0,
        "allreduce",
    ),
    "a size with a unit": (csv("allreduce,0,64K,ring,ll,4,-1,-1"), "no_suffix", 1, "64K"),
    "too few fields": (csv("allreduce,0,8,ring,ll,4,-1"), "line_skipped", 1, 7),
    "an empty field": (
        csv("allreduce,0,8,ring,ll,,4,-1,-1"),
        "line_skipped",
        1,
        "allreduce,0,8,ring,ll,,4,-1,-1",
    ),
    "a long line": (csv("# " + 254 * "x"), "long_line", 1, 256),
    "no such kernel": (csv("allgather,0,8,tree,ll,4,-1,-1"), "not_offered", 1, "tree"),
    "a line that another includes": (
        csv("allreduce,0,8,ring,ll,4,-1,-1", "allreduce,0,4,tree,ll,4,2,8"),
        "never_matches",
        2,
        "tree",
    ),
    "lines that overlap": (
        csv("allreduce,0,8,ring,ll,4,-1,-1", "allreduce,8,16,tree,ll,4,-1,-1"),
        "overlap",
        2,
        8,
    ),
    "sizes that end before they begin": (
        csv("allreduce,8,4,ring,ll,4,-1,-1"),
        "never_matches",
        1,
        "ring",
    ),
    "no ranks": (csv("allreduce,0,8,ring,ll,4,-1,0"), "never_matches", 1, 0),
    "symmetric memory": (csv(), "symmetric", 0, None),
    "lines that RCCL reads otherwise": (csv(), "as_plugin", 0, None),
    # UCC
    "cpu": ("allreduce:0-4k:cpu:@knomial", "unknown_name", 1, "cpu"),
    "an algorithm of UCC that is misspelt": (
        "allreduce:@sra_knomal",
        "unknown_algorithm",
        1,
        "sra_knomal",
    ),
    "neither a score nor an algorithm": (
        "UCC_TL_UCP_TUNE=allreduce:0-4k",
        "no_effect",
        1,
        "allreduce:0-4k",
    ),
    "an algorithm without a collective": ("0-4k:@ring", "all_collectives", 1, "0-4k:@ring"),
    "hier without its layer": (
        "UCC_CL_HIER_TUNE=allreduce:@rab",
        "needs_hier",
        1,
        "UCC_CL_HIER_TUNE",
    ),
    "sections for one call": (
        "allreduce:0-4k:@knomial#allreduce:@ring",
        "sections_overlap",
        1,
        "allreduce:@ring",
    ),
    "sections for one memory": (
        "allreduce:host,cuda:@knomial#allreduce:host:@sra_knomial",
        "sections_overlap",
        1,
        "allreduce:host:@sra_knomial",
    ),
    "a score for all beside one": (
        "UCC_TL_UCP_TUNE=inf#allreduce:0",
        "sections_overlap",
        1,
        "allreduce:0",
    ),
    "sizes of UCC that fall": ("allreduce:8k-4k:@ring", "malformed", 1, "8k-4k"),
    "an odd team among others": ("allgather:[3,8]:@neighbor", "needs_ranks", 1, "neighbor"),
    "a layer of UCC that is not known": (
        "UCC_TL_NCCL_TUNE=allreduce:cuda:inf",
        "not_checked",
        1,
        "UCC_TL_NCCL_TUNE",
    ),
    # any
    "nothing": ("", "file_ignored", 1, "the number of collectives"),
    "no rule": ("0  # collectives", "empty", 0, None),
}
"""Tables with a trap: the kind of its finding, the line and the value."""


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_found_with_its_line_and_value(trap):
    text, kind, line, value = TRAPS[trap]
    found = [
        (each.kind, each.values["line"], each.values["value"]) for each in lint_table(text).findings
    ]
    if value is None:
        found = [(*each[:2], None) for each in found]
    assert (kind, line, value) in found


def test_every_finding_has_a_trap():
    kinds = {trap[1] for trap in TRAPS.values()}
    templates = tomllib.loads(FINDINGS.read_text())
    # RCCL decides where NCCL is left with one channel
    assert kinds | {"no_rule"} == templates.keys()


def test_a_table_for_jobs_of_one_number_of_ranks_is_not_wrong_unless_an_algorithm_fails_on_fewer(
    tmp_path,
):
    file = tmp_path / "rules.conf"
    file.write_text(classic("0 3 0 0", "4096 2 0 0", collective=3, ranks="128"))
    ran = invoke("tune", "--lint", file)
    assert (ran.code, "WRONG" in ran.out, "128 ranks are the fewest of alltoall" in ran.out) == (
        0,
        False,
        True,
    )
    file.write_text(classic("0 5 0 0", collective=3, ranks="128"))  # of two ranks
    ran = invoke("tune", "--lint", file)
    assert (ran.code, "WRONG" in ran.out) == (3, True)


def test_a_finding_is_one_line_with_its_severity_line_value_and_remedy(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(csv("allreduce,0,8,rign,ll,4,-1,-1"))
    result = invoke("tune", "--lint", path)
    [wrong] = [line for line in result.out.splitlines() if "rign" in line]
    assert (result.code, result.err) == (3, "")
    assert wrong.split()[:3] == ["WRONG", "line", "1:"]
    assert "do: did you mean ring?" in wrong


def test_a_list_of_decisions_that_no_library_reads_is_no_table_of_a_tuner():
    """As aws-ofi-nccl prints them: a tuner's line begins with a collective, not with numbers."""
    printed = "nodes,ranks,size,collective,algo,proto,platform\n16,128,32,AllGather,Ring,Ll,P5en\n"
    assert recognise_format(printed) is None
    assert (
        recognise_format("collective,min,max,algo,proto\nallreduce,0,1024,ring,ll,4,-1,-1\n")
        == "nccl-csv"
    )


def test_a_schema_and_a_comma_before_an_end_are_no_errors_for_open_mpi_6():
    """Its own guide has both (docs/tuning-apps/collectives/tuned.rst), and its parser takes them."""
    text = openmpi_json('{"alg": "ring",},').replace(
        '{"collectives"', '{"$schema": "tuned_schema.json", "collectives"'
    )
    found = lint_table(text)
    assert (len(found.rules), [each.kind for each in found.findings]) == (1, ["json_in_5"])


def test_what_is_right_ends_with_0_and_json_has_its_rules(tmp_path):
    path = tmp_path / "rules"
    path.write_text(
        write_openmpi_rules([TuningRule(collective="allreduce", algorithm="ring", bytes=(8, 64))])
    )
    result = invoke("tune", "--lint", path, "--json")
    table = json.loads(result.out)
    assert (result.code, table["format"]) == (0, "openmpi")
    assert [(each["algorithm"], each["bytes"]) for each in table["rules"]] == [
        ("ignore", [0, 7]), ("ring", [8, 64]), ("ignore", [65, UNLIMITED]),
    ]  # fmt: skip


def test_json_for_the_reader_of_the_classic_form_is_wrong(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(openmpi_json('{"alg": "ring"}'))
    assert invoke("tune", "--lint", path).code == 0
    result = invoke("tune", "--lint", path, "--format", "openmpi")
    assert (result.code, "before 6.0 ignores it" in result.out) == (3, True)


COMMENTED = """1 # collectives
3 # alltoall, by its id
1 # communicator size, from 0
0
2 # sizes of messages
0 3 0 0 # from 0 bytes, bruck 3, topology 0, segments 0
8192 2 0 0 # 8k+, pairwise, no topology
"""
RIGHT = {
    "strict bounds of one kind before any": (
        "mpich", mpich(f'{{"avg_msg_size<8": {RING}, "avg_msg_size<1024": {RING}, "avg_msg_size=any": {RING}}}')
    ),
    "commas in comments": ("openmpi", COMMENTED),
    "two rules in a line": ("openmpi", "1\n2\n1\n0\n2\n0 3 0 0 8192 4 0 0\n"),
    "few ranks that are left to Open MPI": ("openmpi", "1\n2\n2\n4\n1\n0 0 0 0\n8\n2\n0 3 0 0\n8192 4 0 0\n"),
    "a composition": ("mpich", '{"collective=bcast": {"composition=MPIDI_Bcast_intra_composition_gamma": {}}}'),
    "a score for all collectives": ("ucc", "UCC_TL_UCP_TUNE=inf"),
    "a layer that is turned off": ("ucc", "UCC_TL_UCP_TUNE=0"),
    "another layer of UCC": ("ucc", "UCC_TL_NCCL_TUNE=allreduce:cuda:inf"),
    "sections for two memories": ("ucc", "UCC_TL_UCP_TUNE=allreduce:host:@knomial#allreduce:cuda:@ring"),
    "sections for two teams": ("ucc", "UCC_TL_UCP_TUNE=allreduce:[2-7]:@knomial#allreduce:[8-inf]:@ring"),
    "sections for two sizes": ("ucc", "UCC_TL_UCP_TUNE=allreduce:0-4k:@0#allreduce:4k-inf:@1"),
}  # fmt: skip
"""Tables without a fault, with their formats."""


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_recognised_and_not_called_wrong(name):
    wanted, text = RIGHT[name]
    table = lint_table(text)
    assert (
        table.format,
        [each.text for each in table.findings if each.severity == "critical"],
    ) == (wanted, [])


@pytest.mark.parametrize(
    "options", [["--format", "xml"], ["--out", "t.json"], ["--judge", "t.json"], ["."]]
)
def test_options_that_do_not_belong_to_lint_are_refused(tmp_path, options):
    (tmp_path / "a").write_text(csv())
    assert invoke("tune", "--lint", tmp_path / "a", *options).is_bad_input()
    assert invoke("tune", "--format", "ucc").is_bad_input("--lint")


def test_nccl_takes_unknown_words_for_others_and_rccl_skips_their_lines():
    text = "alreduce,0,8,rign,LL,4,-1,-1\nallreduce,0,8,tree,ll,-1,2,16"
    [taken, tree, *_] = lint_table(text).rules
    assert (taken.collective, taken.algorithm, taken.parameters["protocol"]) == (
        "allreduce",
        "ring",
        "simple",
    )
    [only] = lint_table(text, "rccl-csv").rules
    assert only == tree
    assert (only.nodes, only.ranks, only.bytes) == ((2, 2), (16, 16), (0, 8))


def test_a_line_that_never_matches_covers_no_sizes():
    text = "allreduce,2048,1024,ring,ll,4,-1,-1\nallreduce,0,8,ring,ll,4,-1,-1"
    gaps = {
        each.values["value"]: each.text
        for each in lint_table(text).findings
        if each.kind == "no_catch_all"
    }
    assert gaps["allreduce"].startswith("'allreduce' 9 bytes and more match no line")


def test_rccl_knows_channels_and_sizes_that_no_line_has():
    kinds = [
        each.kind for each in lint_table("allreduce,0,8,ring,ll,-1,-1,-1", "rccl-csv").findings
    ]
    assert kinds == 5 * ["no_rule"]


def spans(last=UNLIMITED):
    ends = st.lists(
        st.one_of(st.integers(0, 100), st.integers(0, 2**30)), min_size=2, max_size=2, unique=True
    )
    return st.one_of(
        st.just(ANY),
        ends.map(sorted).map(tuple),
        st.integers(0, 2**30).map(lambda first: (first, last)),
    )


def rules_of(library, collectives, ranks):
    algorithms = library_algorithms(library)
    simple = {
        name: [k for k, a in algorithms[name].items() if not (a.inter or a.needs)]
        for name in collectives
    }
    return st.lists(
        st.sampled_from(collectives).flatmap(
            lambda name: st.builds(
                TuningRule,
                collective=st.just(name),
                bytes=spans(),
                ranks=ranks,
                algorithm=st.sampled_from(simple[name]),
            )
        ),
        max_size=4,
    )


def decided(rules, collective, size, ranks):
    """Return the algorithm of the first rule that matches; None if the library is to choose."""
    found = (
        rule.algorithm
        for rule in rules
        if rule.collective == collective
        and {*rule.conditions} <= {"comm_type=intra", "host"}
        and rule.bytes[0] <= size <= rule.bytes[1]
        and rule.ranks[0] <= ranks <= rule.ranks[1]
    )
    return next((word for word in found if word != "ignore"), None)


def probes(rules):
    """Return the sizes and numbers of ranks at which a decision may change."""
    sizes = {0, UNLIMITED} | {end + by for rule in rules for end in rule.bytes for by in (-1, 0, 1)}
    ranks = {2, 2**30} | {end + by for rule in rules for end in rule.ranks for by in (-1, 0, 1)}
    return [(size, p) for size in sizes if 0 <= size < 2**63 for p in ranks if 2 <= p < 2**31]


@given(rules_of("openmpi", ["allreduce", "bcast", "alltoall"], spans()))
@pytest.mark.parametrize("write", [write_openmpi_rules, write_openmpi_json])
def test_what_is_written_for_open_mpi_decides_as_the_rules_do(write, rules):
    table = lint_table(write(rules, "of a run"))
    assert {each.kind for each in table.findings} <= {
        "han_outranks",
        "sizes_in_6",
        "json_in_5",
        "newer_algorithm",
        "empty",
    }
    for rule in rules:
        for size, ranks in probes(rules):
            assert decided(table.rules, rule.collective, size, ranks) == decided(
                rules, rule.collective, size, ranks
            )


@given(rules_of("mpich", ["allgather", "bcast"], spans()))
def test_what_is_written_for_mpich_decides_as_the_rules_do(rules):
    table = lint_table(write_mpich_json(rules, "of a run"))
    assert table.findings == []
    for rule in rules:
        for size, ranks in probes(rules):
            wanted = decided(rules, rule.collective, size, ranks)
            matching = [each for each in table.rules if each.collective == rule.collective]
            assert (
                not wanted
                or size > 2**31
                or wanted == decided(matching, rule.collective, size, ranks)
            )


def test_a_threshold_of_mpich_itself_is_no_slip_where_it_counts_elements_and_another_one_is():
    written = write_mpich_json([])
    assert '"total_msg_size<524288"' in written
    assert lint_table(written).findings == []
    before, name, after = written.partition('"collective=ireduce_scatter_block"')
    changed = before + name + after.replace("524288", "524287", 1)
    assert [finding.kind for finding in lint_table(changed).findings] == ["elements"]


@pytest.mark.parametrize("last", [2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize(
    ("collective", "algorithm"), [("bcast", "binomial"), ("allgather", "ring")]
)
def test_a_rule_for_mpich_that_ends_near_or_above_2_gib_counts_below(collective, algorithm, last):
    table = lint_table(
        write_mpich_json([TuningRule(collective=collective, algorithm=algorithm, bytes=(0, last))])
    )
    assert {each.severity for each in table.findings} <= {"info"}
    read = [each for each in table.rules if each.collective == collective]
    assert decided(read, collective, min(last, 2**31 - 1), 5) == algorithm


@pytest.mark.parametrize("write", [write_openmpi_rules, write_openmpi_json])
@pytest.mark.parametrize("collective", ["bcast", "reduce"])
def test_a_chain_for_open_mpi_has_the_fanout_of_the_forced_one(write, collective):
    rule = TuningRule(collective=collective, algorithm="chain", ranks=(4, 4))
    read = [
        each.parameters["faninout"]
        for each in lint_table(write([rule])).rules
        if each.algorithm == "chain"
    ]
    assert read == [4]
    own = replace(rule, parameters={"faninout": 2})
    assert {each.parameters.get("faninout") for each in lint_table(write([own])).rules} <= {0, 2}


def test_what_is_written_for_nccl_has_explicit_channels_and_a_line_for_all_other_calls():
    rule = TuningRule(
        collective="allreduce",
        algorithm="tree",
        bytes=(0, 65536),
        ranks=(16, 16),
        nodes=(2, 2),
        parameters={"protocol": "ll", "channels": 4},
    )
    table = lint_table(write_nccl_csv([rule], "of a run"))
    assert {each.severity for each in table.findings} == {"info"}
    assert replace(table.rules[0], line=0) == rule
    assert {each.collective for each in table.rules[1:]} == {
        *library_table()["nccl"]["collectives"]
    }


@pytest.mark.parametrize("name", READERS)
@given(st.text('0123456789#,:@{}[]"<=-\n allreduc_msgkhot.', max_size=80))
def test_no_text_is_too_strange_for_a_reader(name, text):
    table = lint_table(text, name)
    assert table.rules or any(each.severity == "critical" for each in table.findings)
    assert recognise_format(text) in {*READERS, None}


@pytest.mark.parametrize(
    "text",
    [
        "export I_MPI_ADJUST_ALLREDUCE='2:0-4096;1:4097-65536;5'\n",
        "btl_tcp_if_include = eth0\ncoll_tuned_priority = 90\n",
        '{"name": "a", "version": 3}',
        "time,host,load\n12:00,n1,3\n",
        "name,city,street,number,age\nx,y,z,w,v\n",
    ],
)
def test_what_no_reader_knows_is_no_tuning_table_and_not_a_wrong_one(tmp_path, text):
    path = tmp_path / "table"
    path.write_text(text)
    assert invoke("tune", "--lint", path).is_bad_input("--lint", "Open MPI", "MPICH", "UCC")
    with pytest.raises(ValueError, match="its format is unknown"):
        lint_table(text)


VALID = "allreduce:0-4k:@knomial"
WRAPPED = {
    "a shell": f"export UCC_TL_UCP_TUNE={VALID}; ./app",
    "a line that goes on": f"UCX_TLS=rc \\\nUCC_TL_UCP_TUNE={VALID} \\\nUCC_TLS=ucp",
    "a line that goes on at once": f"UCC_TL_UCP_TUNE={VALID}\\\n",
    "Open MPI": f"mpirun -np 4 -x UCC_TL_UCP_TUNE={VALID} -x UCX_TLS=rc ./app",
    "MPICH": f"mpiexec -n 4 -genv UCC_TL_UCP_TUNE {VALID} ./app",
    "Slurm": f"srun --export=ALL,UCC_TL_UCP_TUNE={VALID},UCC_CLS=basic,HOME ./app",
    "csh": f"setenv UCC_TL_UCP_TUNE {VALID}",
    "YAML": f"env:\n  UCC_TL_UCP_TUNE: '{VALID}'",
    "Python": f'os.environ["UCC_TL_UCP_TUNE"] = "{VALID}"',
    "ucc.conf": f"[skip]\nUCC_TL_UCP_TUNE = {VALID}",
    "a string alone": VALID,
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_string_of_ucc_is_found_in_the_line_that_sets_it(name):
    table = lint_table(WRAPPED[name])
    assert [(each.collective, each.bytes, each.algorithm) for each in table.rules] == [
        ("allreduce", (0, 4095), "knomial")
    ]
    assert table.findings == []


def test_a_value_that_the_shell_puts_together_is_not_checked():
    assert [each.kind for each in lint_table('UCC_TL_UCP_TUNE="$A#$B"').findings] == ["not_checked"]


@pytest.mark.parametrize(
    ("head", "name"), [("of RCCL", "rccl-csv"), ("2 nodes gfx950", "rccl-csv"), ("x", "nccl-csv")]
)
def test_a_table_whose_comment_names_rccl_or_gpus_of_amd_is_read_as_rccl_reads_it(head, name):
    text = f"# {head}\nallreduce,0,65536,tree,ll,8,2,16,-1,-1\n"
    table = lint_table(text)
    assert table.format == name
    assert any(each.severity == "critical" for each in table.findings) == (name == "nccl-csv")


@pytest.mark.parametrize("library", ["openmpi", "mpich", "ucc"])
def test_the_schedules_of_the_table_are_ours_and_its_needs_are_known(library):
    for name, algorithms in library_algorithms(library).items():
        ours = library_table()["collectives"].get(name)
        for each in algorithms.values():
            assert not each.schedule or each.schedule in COLLECTIVES[ours].algorithms, each
            assert {*each.needs} <= library_table()["needs"].keys()


MPICH_CALLS = """
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
n, one, all_of_them = world.size, np.ones(8), np.empty(8 * world.size)
assert "MPICH" in MPI.Get_library_version()
world.Allreduce(MPI.IN_PLACE, one)
assert one[0] == n
world.Bcast(one), world.Allgather(one, all_of_them), world.Gather(one, all_of_them), world.Barrier()
world.Alltoall(all_of_them, np.empty(8 * n)), world.Alltoall(MPI.IN_PLACE, all_of_them)
world.Scan(one, np.empty(8)), world.Reduce(one, np.empty(8)), world.Scatter(all_of_them, one)
world.Reduce_scatter_block(all_of_them, one), world.Iallreduce(one, np.empty(8)).Wait(), world.Ibcast(one).Wait()
own = MPI.Op.Create(lambda a, b, kind: None, commute=False)
world.Allreduce(one, np.empty(8), own), world.Reduce_scatter_block(all_of_them, one, own)
print("done")
"""


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_mpich_takes_what_is_written_for_it(mpiexec, require, tmp_path, monkeypatch, ranks):
    library = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"],
        capture_output=True,
        text=True,
        check=False,
    )
    require("MPICH Version:      5" in library.stdout, "the MPI library is not MPICH 5")
    with_parameters = {
        "allreduce": "recexch",
        "barrier": "recexch",
        "bcast": "pipelined_tree",
        "allgather": "k_brucks",
    }
    rules = [
        *(
            TuningRule(collective=name, algorithm=word, ranks=(4, 4))
            for name, word in with_parameters.items()
        ),
        TuningRule(collective="allreduce", algorithm="ring", bytes=(64, UNLIMITED), ranks=(2, 3)),
        TuningRule(collective="allgather", algorithm="recursive_doubling"),
        TuningRule(collective="alltoall", algorithm="brucks", ranks=(3, 3)),
    ]
    (tmp_path / "tree.json").write_text(write_mpich_json(rules, "of a run"))
    (tmp_path / "calls.py").write_text(MPICH_CALLS)
    monkeypatch.setenv("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE", str(tmp_path / "tree.json"))
    # memory begins with zeros: parameters that are not written are 0
    monkeypatch.setenv("MALLOC_PERTURB_", "255")
    result = mpiexec(ranks, tmp_path / "calls.py")
    assert (result.returncode, result.stdout.count("done")) == (0, ranks), result.stderr


def test_a_number_of_ranks_is_below_itself_where_mpich_compares_it_with_each_call_anew():
    sizes = {
        "comm_size<8": {"algorithm=MPIR_Alltoall_intra_scattered": {}},
        "comm_size=any": {"algorithm=MPIR_Alltoall_intra_brucks": {}},
    }
    for tree, last in (
        ({"comm_type=intra": sizes, "comm_type=any": {}}, 7),
        (
            {
                "avg_msg_size<=256": sizes,
                "avg_msg_size=any": {"algorithm=MPIR_Alltoall_intra_pairwise": {}},
            },
            8,
        ),
    ):
        rules = read_mpich_json(json.dumps({"collective=alltoall": tree})).rules
        assert [rule.ranks for rule in rules][:2] == [(0, last), (last + 1, UNLIMITED)]
