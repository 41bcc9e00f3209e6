"""A table whose entries are announced: what announces more is called only where it may be needed."""

from functools import partial

from hpccoll.schedule.lazy_table import LazyTable


def announced_table():
    """Return a table with one entry announced, and what has been called to announce two more, one after another."""
    table, called = LazyTable(never=["never"]), []

    def announce(name):
        called.append(name)
        table.announce(name, partial(table.__setitem__, name, name.upper()))

    announce("first")
    table.announce_later(partial(announce, "second"))
    table.announce_later(partial(announce, "third"))
    return table, called


def test_a_name_calls_what_announces_more_only_until_it_is_known():
    table, called = announced_table()
    assert "first" in table
    assert called == ["first"]
    assert table["second"] == "SECOND"
    assert called == ["first", "second"]
    assert "absent" not in table
    assert called == ["first", "second", "third"]


def test_a_name_that_no_entry_has_calls_nothing():
    table, called = announced_table()
    assert "never" not in table
    assert called == ["first"]


def test_all_names_are_those_of_every_announcement_each_called_once():
    table, called = announced_table()
    assert [*table] == ["first", "second", "third"]
    assert len(table) == len(called) == 3
