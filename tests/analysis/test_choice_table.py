"""From an auto case to a concrete one, by a table."""

import json
from dataclasses import replace

import pytest
from catalogue_cases import case
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic_timings import KIB, MIB, linear_curve, measured_table

from hpccoll.analysis.choice_table import check_table_given, load_table, resolve_auto
from hpccoll.analysis.setting import Setting
from hpccoll.cases.catalogue import check_case
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Layout

SIZES = [KIB << 2 * i for i in range(8)]
TWO_NODES = Layout.of(2, 1)
MADE = measured_table(
    {
        "recursive_doubling": linear_curve(1e-5, 1e-9, SIZES),
        "ring channels=4": linear_curve(1e-4, 2e-10, SIZES),
    }
)
CUT = MADE.entries[0].ranges[1].first


def auto(nbytes=4096, **more):
    return case(algorithm="auto", bytes=nbytes, in_place=False, **more)


def test_more_nodes_have_the_choices_of_fewer_of_one_placement_or_of_both():
    (entry,) = MADE.entries
    setting = entry.setting
    more = replace(setting, ranks=2 * setting.ranks, nodes=2 * setting.nodes, in_place=False)
    for in_place in (False, None):
        of_placement = replace(entry, setting=replace(setting, in_place=in_place))
        table = replace(MADE, entries=(of_placement,))
        assert table.of_fewer_nodes(more) == of_placement
        assert table.of_fewer_nodes(setting) is None
    in_place_only = replace(entry, setting=replace(setting, in_place=True))
    assert replace(MADE, entries=(in_place_only,)).of_fewer_nodes(more) is None


def test_other_cases_than_auto_are_unchanged():
    requested = case()
    assert resolve_auto(requested, TWO_NODES, None) == (requested, None)


@given(st.integers(4, 64 * MIB))
@example(CUT - 1)
@example(CUT)
def test_the_size_decides_and_everything_else_stays(nbytes):
    resolved, _ = resolve_auto(auto(nbytes), TWO_NODES, MADE)
    ours = {} if nbytes < CUT else {"channels": 4}
    algorithm = "recursive_doubling" if nbytes < CUT else "ring"
    assert resolved == case(algorithm=algorithm, bytes=nbytes, in_place=False, params=ours)
    check_case(resolved)
    assert unmet_needs(resolved, TWO_NODES) is None


def test_the_reason_names_the_table_the_range_and_the_measured_limits():
    _, text = resolve_auto(auto(MIB), TWO_NODES, MADE)
    assert text == f"ring channels=4 by the table of {MADE.created}, from {CUT} B to 16 MiB"
    _, text = resolve_auto(auto(8), TWO_NODES, MADE)
    assert text.endswith(f", from 1 KiB to {CUT} B, extrapolated: measured from 1 KiB to 16 MiB")


def test_below_the_measured_sizes_auto_is_native_and_the_reason_says_what_was_measured():
    slow, quick = {MIB: 9.0}, {MIB: 1.0}
    table = measured_table({"ring": quick, "native": slow})
    chosen, text = resolve_auto(auto(KIB), TWO_NODES, table)
    assert chosen.algorithm == "native"
    assert text.endswith(", from 0 B to 1 MiB, extrapolated: measured from 1 MiB to 1 MiB")
    chosen, _ = resolve_auto(auto(MIB), TWO_NODES, table)
    assert chosen.algorithm == "ring"


def test_the_reason_names_other_conditions_of_the_table():
    here = "3 nodes with MPICH 5 and the python executor"
    _, text = resolve_auto(auto(MIB), TWO_NODES, MADE, conditions=here)
    there = "2 nodes with MPICH 5 and the python executor"
    assert text.endswith(f", made on {there}, not on {here}")
    assert resolve_auto(auto(MIB), TWO_NODES, MADE, conditions=there) == resolve_auto(
        auto(MIB), TWO_NODES, MADE
    )


@pytest.mark.parametrize(
    ("requested", "layout", "variant", "text"),
    [
        (auto(), Layout.of(4, 2), None, "all_reduce out of place, 4 ranks on 2 nodes"),
        (auto(dtype="float16", mapping="cyclic"), TWO_NODES, None, "mapping cyclic, float16"),
        (auto(), TWO_NODES, "funneled", "variant funneled"),
        (case("broadcast", "auto"), TWO_NODES, None, "broadcast out of place"),
    ],
)
def test_a_missing_setting_is_refused_with_those_of_the_table(requested, layout, variant, text):
    with pytest.raises(
        BadInputError, match=r"the table has all_reduce out of place, 2 ranks on 2 nodes$"
    ) as refused:
        resolve_auto(requested, layout, MADE, variant)
    assert text in str(refused.value).partition(": the table has")[0]
    assert str(refused.value).startswith("auto: no choice for ")


def test_types_with_the_same_arithmetic_share_a_setting():
    def setting(*of, **more):
        return Setting.of_case(case(*of, **more), TWO_NODES)

    assert (
        setting(dtype="int64", op="max")
        == setting(dtype="float32", op="avg")
        != setting(dtype="float16")
    )
    assert setting("all_gather", dtype="float16") == setting("all_gather", dtype="int64")
    assert setting("broadcast", "binomial", root=1) == setting("broadcast", "binomial")
    assert setting("send_recv", "ping_pong", root=0, params={"peer": -1}) == setting(
        "send_recv", "ping_pong"
    )
    assert setting("send_recv", "ping_pong", root=1, params={"peer": 0}) != setting(
        "send_recv", "ping_pong"
    )
    assert setting("multi_pair", "exchange", params={"concurrent": 1}) == setting(
        "multi_pair", "exchange"
    )  # of 2 ranks


def test_without_a_table_auto_is_refused_with_the_command_that_makes_one():
    with pytest.raises(
        BadInputError, match="--table is missing: a table that 'hpccoll tune PATHS --out"
    ):
        check_table_given("--table", None, ["ring", "auto"])
    with pytest.raises(
        BadInputError,
        match=r"--table: 'a.json' is not valid: left out: it is for the algorithm auto",
    ):
        check_table_given("--table", "a.json", ["ring"])
    with pytest.raises(BadInputError, match=r"table is missing: .*hpccoll tune"):
        resolve_auto(auto(), TWO_NODES, None)


def edited(**change):
    """Return a change of the table by hand: of its first entry, or of all ranges in it."""
    entry = MADE.to_json()["entries"][0]
    of_entry = "ranges" in change
    ranges = change["ranges"] if of_entry else [one | change for one in entry["ranges"]]
    return {"entries": [entry | {"ranges": ranges}]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": "other"}, "its schema is 'other'"),
        ({"schema": "hpccoll-tune", "schema_version": "1.5"}, "is of schema 1"),
        (edited(ranges=[]), r"entries\.0\.ranges: \[0\] is not valid: ranges of all sizes"),
        (edited(below=1 << 40), r"entries\.0\.ranges: .* each up to the next"),
        (
            edited(below="64K"),
            r"entries\.0\.ranges\.0\.below: '64K' is not valid: a whole number from 0 to",
        ),
        (edited(sizes=[]), r"entries\.0\.ranges: \[\] is not valid: ranges with sizes"),
        (('"collective": "all_reduce"', '"collective": "all_reducd"'), "did you mean all_reduce"),
        (('"ring"', '"rinf"'), "did you mean ring"),
        (('"unpaired": ', '"unpairex": '), "did you mean unpaired"),
    ],
)
def test_another_document_is_no_table(tmp_path, change, text):
    path, made = tmp_path / "t.json", MADE.to_json()
    is_edited = isinstance(change, dict)
    path.write_text(json.dumps(made | change) if is_edited else json.dumps(made).replace(*change))
    with pytest.raises(BadInputError, match=text):
        load_table(path, "--table")
