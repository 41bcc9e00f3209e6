"""A table whose entries may be announced by name, and are made when they are first asked for."""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class LazyTable(MutableMapping[str, Entry], Generic[Entry]):
    """Entries by name: those that are announced in the order of their announcements, and then the others.

    Names are known without making any entry. Thousands of ranks start at once, and each needs few of the entries.
    """

    def __init__(self) -> None:
        self._made: dict[str, Entry] = {}
        self._make: dict[str, Callable[[], None]] = {}  # by the names that are announced

    def announce(self, name: str, make: Callable[[], None]) -> None:
        """Announce an entry, which ``make`` sets in this table."""
        self._make[name] = make

    def has_made(self, name: str) -> bool:
        """Return whether the entry has been set, not only announced."""
        return name in self._made

    def __getitem__(self, name: str) -> Entry:
        if name not in self._made and name in self._make:
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
        return name in self._make or name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._make), **dict.fromkeys(self._made)})

    def __len__(self) -> int:
        return len(self._make.keys() | self._made.keys())
