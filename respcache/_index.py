"""Entries by key and by path, and the removals that are remembered.

No I/O: a store gives each entry a reference (a line, an offset, the entry
itself) and a way to read it. What a commit does to an index is decided by
:class:`~respcache._plan.Plan`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._entry import Entry
    from ._pathindex import PathIndex
    from ._rules import Removal

__all__ = ["PENDING", "REFUSED", "SAME", "STORED", "Index", "Put", "Ticket"]

# What became of a put.
STORED, SAME, REFUSED, PENDING = "stored", "same", "refused", "pending"

_NEVER = float("inf")


class Ticket:
    """What had happened to a cache when work on a result began.

    Args:
        removal: The id of the last removal that was seen; None if there was no
            file yet.
        entry: The id of the key's entry then; None if it had none.
        lives: How often this instance had seen its file lose its history. A
            ticket without a removal holds within one such life only.
        hidden: The ids of removals that were pending then.
        version: What told this version of the file from others. While it is
            the same, nothing has happened. None: no file, or nobody knows.
    """

    __slots__ = ("entry", "hidden", "lives", "removal", "version")

    def __init__(
        self,
        removal: str | None,
        entry: str | None,
        lives: int = 0,
        hidden: frozenset[str] = frozenset(),
        version: Any = None,
    ) -> None:
        self.removal = removal
        self.entry = entry
        self.lives = lives
        self.hidden = hidden
        self.version = version


class Put:
    """An entry to commit.

    Args:
        entry: The entry.
        ticket: Only if nothing has touched the entry since. None: always.
        yields: Only if the key has no entry.
    """

    __slots__ = ("entry", "ticket", "yields")

    def __init__(self, entry: Entry, ticket: Ticket | None = None, *, yields: bool = False) -> None:
        self.entry = entry
        self.ticket = ticket
        self.yields = yields


class Index:
    """What a cache holds, oldest commit first.

    Args:
        read: Gives the entry of a reference, or None if it is damaged.
        sizes: Gives the bytes that a reference counts for.
        memory: How many removals are remembered. 0: none, and nothing guards
            work in flight.
    """

    __slots__ = (
        "_deadlines",
        "_paths",
        "_places",
        "_soonest",
        "bytes",
        "is_complete",
        "items",
        "limits",
        "lives",
        "memory",
        "open",
        "read",
        "removals",
        "sizes",
    )

    def __init__(
        self,
        read: Callable[[str, Any], Entry | None],
        sizes: Callable[[Any], int],
        memory: int,
    ) -> None:
        self.read = read
        self.sizes = sizes
        self.memory = memory
        self.items: dict[str, Any] = {}
        self.bytes = 0
        self._deadlines: dict[str, float] = {}
        self._soonest = _NEVER  # no deadline is earlier
        self._paths: dict[str, tuple[tuple[str, bool], ...]] = {}
        self._places: PathIndex | None = None  # made for the first removal by path
        self.removals: list[Removal] = []
        self.open: dict[str, Removal] = {}  # writes that have begun and not ended
        self.is_complete = True
        self.limits: dict[str, int] = {}
        self.lives = 0

    def take_entries(self, other: Index) -> None:
        """Hold what *other* holds."""
        self.items = other.items.copy()
        self.bytes = other.bytes
        self._deadlines = other._deadlines.copy()
        self._soonest = other._soonest
        self._paths = other._paths.copy()
        self._places = None

    def copy(self) -> Index:
        """Return an index that can change while readers go on with this one."""
        other = Index(self.read, self.sizes, self.memory)
        other.take_entries(self)
        other.removals = self.removals.copy()
        other.open = self.open.copy()
        other.is_complete = self.is_complete
        other.limits = self.limits.copy()
        other.lives = self.lives
        return other

    def get(self, key: str) -> Entry | None:
        """Return the entry of *key*, or None."""
        reference = self.items.get(key)
        return None if reference is None else self.read(key, reference)

    def add(
        self,
        key: str,
        reference: Any,
        size: int,
        deadline: float | None = None,
        paths: tuple[tuple[str, bool], ...] = (),
    ) -> None:
        """Put *reference* last; it expires at *deadline* and was read from *paths*."""
        if key in self.items:
            self.drop(key)
        self.items[key] = reference
        self.bytes += size
        if deadline is not None:
            self._deadlines[key] = deadline
            self._soonest = min(self._soonest, deadline)
        if paths:
            self._paths[key] = paths
            if self._places is not None:
                self._places.add(key, paths)

    def add_entry(self, entry: Entry, reference: Any, size: int) -> None:
        """Put *reference*, to *entry*, last."""
        deadline = None if entry.ttl is None else entry.stored_at + entry.ttl
        self.add(entry.key, reference, size, deadline, entry.touched())

    def has_room(self, size: int, limits: dict[str, int | None], now: float) -> bool:
        """Tell whether an entry of *size* can come without any going, and no new limit."""
        most, room = self.limits.get("max_entries", _NEVER), self.limits.get("max_bytes", _NEVER)
        return (
            len(self.items) < most
            and self.bytes + size <= room
            and now < self._soonest
            and most <= (limits["max_entries"] or _NEVER)
            and room <= (limits["max_bytes"] or _NEVER)
        )

    def drop(self, key: str) -> None:
        """Take *key* out."""
        reference = self.items.pop(key, None)
        if reference is not None:
            self.bytes -= self.sizes(reference)
            self._deadlines.pop(key, None)
            paths = self._paths.pop(key, None)
            if paths is not None and self._places is not None:
                self._places.remove(key, paths)

    def touched_by(self, removal: Removal) -> list[str]:
        """Return the keys of the entries that *removal* takes away."""
        if removal.everything:
            return list(self.items)
        found = dict.fromkeys(key for key in removal.keys if key in self.items)
        if removal.paths and self._paths:
            if self._places is None:
                from ._pathindex import PathIndex  # lookups do without

                self._places = PathIndex()
                for key, paths in self._paths.items():
                    self._places.add(key, paths)
            for path in removal.paths:
                found.update(dict.fromkeys(self._places.touched(path)))
        if removal.scope is not None:
            found.update((key, None) for key in self.items if key.startswith(removal.scope))
        return list(found)

    def hides(self, key: str, paths: Iterable[tuple[str, bool]]) -> bool:
        """Tell whether a write that has begun touches the entry of *key*, read from *paths*."""
        return any(removal.touches(key, paths) for removal in self.open.values())

    def hides_entry(self, entry: Entry) -> bool:
        """Tell whether a write that has begun touches *entry*."""
        return self.hides(entry.key, entry.touched())

    def remember(self, removal: Removal) -> None:
        """Remember *removal*, and forget the oldest one if there are too many."""
        if removal.kind == "begun" or removal.ends is not None:
            self.open = self.open_after([removal])
        self.removals.append(removal)
        if len(self.removals) > self.memory:
            del self.removals[: len(self.removals) - self.memory]
            self.is_complete = False

    def open_after(self, removals: Iterable[Removal]) -> dict[str, Removal]:
        """Return the writes that are under way after *removals*, by their ids."""
        open = self.open.copy()
        for removal in removals:
            open.pop(removal.ends or "", None)
            if removal.kind == "begun":
                open[removal.id] = removal
        return open

    def since(self, ticket: Ticket) -> list[Removal] | None:
        """Return the removals since *ticket* was taken, or None if that is not known."""
        if not self.memory:
            return []
        if ticket.removal is None:
            known = self.is_complete and ticket.lives == self.lives
            return self.removals if known else None
        for number in range(len(self.removals) - 1, -1, -1):
            if self.removals[number].id == ticket.removal:
                return self.removals[number + 1 :]
        return None

    def expired(self, now: float) -> list[str]:
        """Return the keys of the entries whose own ttl has run out."""
        if now < self._soonest:
            return []
        self._soonest = min(self._deadlines.values(), default=_NEVER)
        return [key for key, deadline in self._deadlines.items() if deadline <= now]

    def measure(self, scope: str, now: float) -> tuple[int, int]:
        """Return how many entries under *scope* have not expired, and their bytes."""
        late = set(self.expired(now))
        count = size = 0
        for key, reference in self.items.items():
            if key.startswith(scope) and key not in late:
                count += 1
                size += self.sizes(reference)
        return count, size

    def last_removal(self) -> str | None:
        """Return the id of the newest removal; None if nothing was ever committed."""
        return self.removals[-1].id if self.removals else None
