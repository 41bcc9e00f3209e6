from hpccoll.report.findings import findings, ratio_table
from hpccoll.report.groups import groups


def said(results):
    (group,) = groups(results)
    return {finding.about: finding.says for finding in findings(group)}


def test_the_fastest_is_named_with_its_sizes_and_its_lead(make_row, of_rows):
    ring = {8: 1.0, 64: 1.25, 512: 2.0, 4096: 1.5}
    rows = [make_row(nbytes=n, seconds=1e-5 * t) for n, t in ring.items()]
    rows += [make_row("native", nbytes=n, seconds=1.5e-5) for n in ring]
    assert said(of_rows(*rows))["2 ranks"] == (
        "ring is fastest from 8 B to 64 B (1.20x to 1.50x ahead); native is fastest at 512 B (1.33x ahead); "
        "no clear winner at 4 KiB."
    )


def test_without_a_rival_nothing_is_said_of_the_fastest(make_row, of_rows):
    assert set(said(of_rows(make_row()))) == {"Highest busbw", "Between launches"}


def test_the_highest_bandwidth_is_never_the_floor(make_row, of_rows):
    rows = make_row(busbw_Bps=3.2e9, in_place=True), make_row("null", busbw_Bps=9e9)
    assert said(of_rows(*rows))["Highest busbw"] == "3.2 GB/s by ring with 2 ranks at 1 KiB, in place."


def test_what_weakens_a_result_is_said(make_row, make_run, of_rows):
    rows = make_row(ranks=4, converged=False), make_row(run_id="run-2"), make_row("tree", status="wrong", wrong=2)
    words = said(of_rows(*rows, runs=(make_run(), make_run(run_id="run-2", machine="another"))))
    assert words["Wrong"] == "1 row with a wrong result, not drawn: tree."
    assert words["Not converged"].startswith("the interval of 1 of 2 rows")
    assert words["Oversubscribed"].startswith("with 4 ranks there are more ranks than cores")
    assert "another" in words["Several machines"]


def test_a_sweep_speaks_of_every_rank_count(results):
    assert {"2 ranks", "3 ranks", "4 ranks", "Highest busbw", "Oversubscribed"} <= set(said(results))


def test_the_table_of_ratios_says_lowest_and_highest_and_what_was_not_measured(results, make_row, of_rows):
    (group,) = groups(results)
    head, body = ratio_table(group)
    assert head == ["time over native's", "2 ranks", "3 ranks", "4 ranks"]
    assert [row[0] for row in body] == ["recursive_doubling", "ring"]
    assert body[0][2] == "not measured"
    rows = [make_row(nbytes=n, seconds=s) for n, s in ((8, 2e-5), (64, 1e-5))]
    (small,) = groups(of_rows(*rows, *(make_row("native", nbytes=n) for n in (8, 64))))
    assert ratio_table(small)[1] == [["ring", "1.00x (64 B) to 2.00x (8 B)"]]
