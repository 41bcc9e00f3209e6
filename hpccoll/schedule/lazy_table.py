"""A table whose entries may be announced by name, and are made when they are first asked for."""

from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class LazyTable(MutableMapping[str, Entry], Generic[Entry]):
    """Entries by name: those that are announced in the order of their announcements, and then the others.

    Names are known without making any entry. Thousands of ranks start at once, and each needs few
    of the entries. What announces more names, because it costs more, is called only if a name is
    not known, or all names are asked for.

    Args:
        never: the names that no entry has.
    """

    def __init__(self, never: Collection[str] = ()) -> None:
        self._never = never
        self._made: dict[str, Entry] = {}
        self._make: dict[str, Callable[[], None]] = {}  # by the names that are announced
        self._announce_more: list[Callable[[], None]] = []

    def announce(self, name: str, make: Callable[[], None]) -> None:
        """Announce an entry, which ``make`` sets in this table."""
        self._make[name] = make

    def announce_later(self, announce_more: Callable[[], None]) -> None:
        """Call ``announce_more`` once, when all names are asked for, or one that nothing before has announced."""
        self._announce_more.append(announce_more)

    def has_made(self, name: str) -> bool:
        """Return whether the entry has been set, not only announced."""
        return name in self._made

    def __getitem__(self, name: str) -> Entry:
        if name not in self._made and name in self:
            self._make[name]()
        return self._made[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._made[name] = entry

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._made.pop(name, None)
        self._make.pop(name, None)

    def __contains__(self, name: object) -> bool:
        if name in self._never:
            return False
        while not self._has_name(name) and self._announce_more:
            self._announce_next()
        return self._has_name(name)

    def __iter__(self) -> Iterator[str]:
        self._know_all_names()
        return iter({**dict.fromkeys(self._make), **dict.fromkeys(self._made)})

    def __bool__(self) -> bool:
        return bool(self._make or self._made) or len(self) > 0

    def __len__(self) -> int:
        self._know_all_names()
        return len(self._make.keys() | self._made.keys())

    def _has_name(self, name: object) -> bool:
        return name in self._make or name in self._made

    def _know_all_names(self) -> None:
        while self._announce_more:
            self._announce_next()

    def _announce_next(self) -> None:
        # before the call, which may look into this table
        announce_more = self._announce_more.pop(0)
        announce_more()
