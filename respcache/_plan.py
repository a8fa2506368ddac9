"""What a commit would do to an index, decided before anything is written.

All stores decide by the same plan, so one set of rules holds in memory and in
every file format; each then writes it in its own way and carries it out. A plan
sees its own steps: what it removed is gone for its later puts.
"""

from __future__ import annotations

from ._index import PENDING, REFUSED, SAME, STORED
from ._rules import Removal, stricter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._entry import Entry
    from ._index import Index, Put

__all__ = ["PENDING", "REFUSED", "SAME", "STORED", "Plan"]

_NO_LIMIT = float("inf")


class Plan:
    """The steps of one commit.

    Args:
        index: What there is.
        size: Gives the bytes that an entry will count for.
        now: Seconds since the epoch.
        limits: ``max_entries`` and ``max_bytes`` of who stores; the smallest
            ever asked for holds.
        birth: Gives the id under which a new file's memory starts.
        version: What tells this version of the file from others.
    """

    def __init__(
        self,
        index: Index,
        *,
        size: Callable[[Entry], int],
        now: float,
        limits: dict[str, int | None],
        birth: Callable[[], str],
        version: Any = None,
    ) -> None:
        self._index = index
        self._size = size
        self._now = now
        self._limits = limits
        self._birth = birth
        self._version = version
        self.drops: dict[str, None] = {}  # keys that the index has
        self.evictions: dict[str, None] = {}  # those of them that no removal and no add tells
        self.adds: dict[str, Entry] = {}  # in the order of their commit
        self.removals: list[Removal] = []
        self.limits: dict[str, int] | None = None

    @property
    def is_change(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.drops or self.adds or self.removals)

    def get(self, key: str) -> Entry | None:
        """Return the entry of *key* as it is after the steps so far."""
        if key in self.adds:
            return self.adds[key]
        return None if key in self.drops else self._index.get(key)

    def remove(self, removal: Removal) -> int:
        """Take away what *removal* touches; return how many entries that were.

        One that is remembered is done already.
        """
        known = (*self._index.removals, *self.removals)
        if any(removal.id == each.id for each in known):
            return 0
        gone: list[str] = []
        fresh: list[str] = []
        if removal.kind == "removed":
            gone = [key for key in self._index.touched_by(removal) if key not in self.drops]
            self.drops.update(dict.fromkeys(gone))
            fresh = [
                key for key, entry in self.adds.items() if removal.touches(key, entry.touched())
            ]
            for key in fresh:
                self._take_back(key)
        if self._index.memory:
            self._begin()
            self.removals.append(removal)
        return len(gone) + len(fresh)

    def put(self, put: Put, *, renew: bool = False) -> str:
        """Put an entry, and return what became of it.

        Args:
            put: The entry, and what it depends on.
            renew: Put the same again, instead of leaving it as it is.
        """
        entry = put.entry
        if not self._index.is_complete:
            # What was remembered is lost with damage: begin anew, also if this put
            # is refused for it, or all that come after it would be.
            self._begin()
        most = stricter(self._limits.get("max_bytes"), self._index.limits.get("max_bytes"))
        if (most is not None and self._size(entry) > most) or not self.admits(put):
            return REFUSED
        current = self.get(entry.key)
        if current is not None:
            if put.yields:
                return SAME
            if current.id == entry.id:
                return STORED  # by an earlier try of this same put
            if not renew and current.still_says(entry, self._now):
                return SAME
        self._begin()
        if entry.key in self._index.items:
            self.drops[entry.key] = None
        self.adds.pop(entry.key, None)
        self.adds[entry.key] = entry
        return STORED

    def admits(self, put: Put) -> bool:
        """Tell whether nothing came between the ticket of *put* and now."""
        ticket, entry = put.ticket, put.entry
        if ticket is None:
            return True
        later: list[Removal] | None = []
        if ticket.version is None or ticket.version != self._version:
            later = self._index.since(ticket)
        if later is None:
            return False
        paths = entry.touched()
        # What was hidden then was waiting to be told, and is told before the put.
        # But a write that has begun goes on, whoever knew of it.
        under_way = self._index.open_after(self.removals).values()
        if any(
            removal.touches(entry.key, paths)
            for removal in (
                *under_way,
                *(each for each in (*later, *self.removals) if each.id not in ticket.hidden),
            )
        ):
            return False
        current = self.get(entry.key)
        return current is None or current.id in (ticket.entry, entry.id)

    def discard(self, entries: Iterable[Entry]) -> int:
        """Take away just *entries*, where they are still the ones; return how many."""
        gone = [
            entry.key
            for entry in entries
            if (kept := self.get(entry.key)) is not None and kept.id == entry.id
        ]
        self._evict(gone)
        return len(gone)

    def _take_back(self, key: str) -> None:
        """Take back an add; what it replaced must not come back for it."""
        del self.adds[key]
        if key in self.drops:
            self.evictions[key] = None

    def _evict(self, keys: Iterable[str]) -> None:
        keys = dict.fromkeys(keys)
        self.drops.update(keys)
        self.evictions.update(keys)

    def enforce(self) -> None:
        """Let the oldest go until all limits hold, and whatever has expired."""
        if not self.adds:
            return
        index = self._index
        limits = dict(index.limits)
        for name, limit in self._limits.items():
            if limit is not None:
                limits[name] = min(limit, limits.get(name, limit))
        if limits != index.limits:
            self.limits = limits
        self._evict(key for key in index.expired(self._now) if key not in self.drops)
        added = sum(map(self._size, self.adds.values()))
        if len(index.items) + len(self.adds) <= limits.get(
            "max_entries", _NO_LIMIT
        ) and index.bytes + added <= limits.get("max_bytes", _NO_LIMIT):
            return
        entries = len(index.items) - len(self.drops) + len(self.adds)
        size = index.bytes + added
        size -= sum(index.sizes(index.items[key]) for key in self.drops)
        excess = entries - limits.get("max_entries", entries)
        surplus = size - limits.get("max_bytes", size)
        oldest = []
        for key, reference in index.items.items():
            if excess <= 0 and surplus <= 0:
                break
            if key not in self.drops:
                oldest.append(key)
                excess -= 1
                surplus -= index.sizes(reference)
        self._evict(oldest)
        for key in list(self.adds):
            if excess <= 0 and surplus <= 0:
                return
            excess -= 1
            surplus -= self._size(self.adds[key])
            self._take_back(key)

    def _begin(self) -> None:
        if self._index.memory and not self._index.removals and not self.removals:
            self.removals.append(Removal(self._birth()))

    def carry_out(self, index: Index, refer: Callable[[Entry], Any]) -> None:
        """Do the steps to *index*, the planned one or a copy; *refer* refers to a new entry."""
        for key in self.drops:
            index.drop(key)
        for removal in self.removals:
            index.remember(removal)
        if self.limits is not None:
            index.limits = self.limits
        for entry in self.adds.values():
            size = self._size(entry)  # first: a reference may do without the line
            index.add_entry(entry, refer(entry), size)
