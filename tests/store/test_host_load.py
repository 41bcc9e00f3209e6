"""The load in the provenance of an attempt: kept by the journal, and judged."""

import pytest
import raw_examples

from hpccoll.store.host_load import busy_hosts, describe_busy, describe_load
from hpccoll.store.journal import Journal, journal_path, read_journal
from hpccoll.store.schema import HOST_LOAD as KEY


def load(other_cores=0.0, stolen=0.0, host="n0", **busiest):
    names = [{"name": name, "cores": cores} for name, cores in busiest.items()]
    return {
        "host": host,
        "seconds": 9.0,
        "stolen": stolen,
        "other_cores": other_cores,
        "busiest": names,
    }


@pytest.mark.parametrize(
    ("loads", "busy"),
    [
        ([load(other_cores=0.1, stolen=0.02)], []),
        ([load(other_cores=0.11)], ["n0"]),
        ([load(stolen=0.021)], ["n0"]),
        ([load(), load(other_cores=2, host="n1")], ["n1"]),
        ([{"host": "n0", "load_average": [9.0]}], []),
        # damaged
        ([], []),
        ([3], []),
        ("n0", []),
        ([{"other_cores": "many", "stolen": 0, "busiest": []}], []),
        ([{"other_cores": 1.0}], []),
    ],
)
def test_a_host_is_busy_above_a_tenth_of_a_core_or_two_per_cent_of_stolen_time(loads, busy):
    assert [each.host for each in busy_hosts({KEY: loads})] == busy


def test_the_words_name_the_busiest_host_and_its_processes():
    words = describe_busy(
        busy_hosts({KEY: [load(0.5), load(1.25, 0.031, "n1", cc1=0.9, make=0.35)]})
    )
    assert [
        word for word in ("1.25 cores of n1", "cc1 0.90", "make 0.35", "3.1 %") if word not in words
    ] == []
    assert "%" not in describe_busy(busy_hosts({KEY: [load(0.5)]}))


def test_the_load_of_hosts_is_their_highest_average_and_what_else_used_them():
    loads = [
        load() | {"load_average": [1.0, 2.04]},
        load(1.25, host="n1", make=1.2) | {"load_average": [9.06, 1.5]},
    ]
    words = describe_load({KEY: loads})
    assert [
        word for word in ("9.1 to 1.5", "1.25 cores of n1", "make 1.20") if word not in words
    ] == []
    assert describe_load({KEY: loads[:1]}).endswith("1.0 to 2.0")
    assert describe_load({KEY: [load()]}) == describe_load({}) == describe_load({KEY: [3]}) == ""


def test_what_is_known_at_the_end_of_an_attempt_is_kept(out):
    journal = Journal(out, raw_examples.job(raw_examples.case()))
    journal.begin(
        raw_examples.attempt(
            provenance={"hosts": ["n0"], KEY: [{"host": "n0", "load_average": [0.5]}]}
        )
    )
    journal.add_provenance({KEY: [load(other_cores=2)]})
    ((kept, _),) = read_journal(journal_path(out)).attempts
    assert (
        kept.provenance
        == journal.raw.attempts[0][0].provenance
        == {"hosts": ["n0"], KEY: [load(other_cores=2)]}
    )
    journal.close(remove=True)
