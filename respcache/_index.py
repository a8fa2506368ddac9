"""Entries by key and by path, commits and limits, over opaque references.

No I/O: a store gives each entry a reference (a line, an offset, the entry
itself) and a way to read it. All stores decide by :meth:`Index.apply` what a
commit does, so one set of rules holds in memory and in every file format.
"""

from __future__ import annotations

from ._rules import Removal, stricter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._entry import Entry

__all__ = ["Index", "Put", "Ticket"]

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
    """

    __slots__ = ("entry", "hidden", "lives", "removal")

    def __init__(
        self,
        removal: str | None,
        entry: str | None,
        lives: int = 0,
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        self.removal = removal
        self.entry = entry
        self.lives = lives
        self.hidden = hidden


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
        refer: Gives the reference of an entry and the bytes it counts for.
        memory: How many removals are remembered.
    """

    __slots__ = (
        "_deadlines",
        "_memory",
        "_paths",
        "_read",
        "_refer",
        "_soonest",
        "bytes",
        "is_complete",
        "items",
        "limits",
        "lives",
        "removals",
        "sizes",
    )

    def __init__(
        self,
        read: Callable[[str, Any], Entry | None],
        refer: Callable[[Entry], tuple[Any, int]],
        memory: int,
    ) -> None:
        self._read = read
        self._refer = refer
        self._memory = memory
        self.items: dict[str, Any] = {}
        self.sizes: Callable[[Any], int] = len
        self.bytes = 0
        self._deadlines: dict[str, float] = {}
        self._soonest = _NEVER  # no deadline is earlier
        self._paths: dict[str, tuple[tuple[str, bool], ...]] = {}
        self.removals: list[Removal] = []
        self.is_complete = True
        self.limits: dict[str, int] = {}
        self.lives = 0

    def take_entries(self, other: Index) -> None:
        """Hold what *other* holds."""
        self.items = other.items.copy()
        self.sizes = other.sizes
        self.bytes = other.bytes
        self._deadlines = other._deadlines.copy()
        self._soonest = other._soonest
        self._paths = other._paths.copy()

    def copy(self) -> Index:
        """Return an index that can change while readers go on with this one."""
        other = type(self)(self._read, self._refer, self._memory)
        other.take_entries(self)
        other.removals = self.removals.copy()
        other.is_complete = self.is_complete
        other.limits = self.limits.copy()
        other.lives = self.lives
        return other

    def get(self, key: str) -> Entry | None:
        """Return the entry of *key*, or None."""
        reference = self.items.get(key)
        return None if reference is None else self._read(key, reference)

    def add(
        self,
        key: str,
        reference: Any,
        size: int,
        deadline: float | None = None,
        paths: tuple[tuple[str, bool], ...] = (),
    ) -> None:
        """Put *reference* last; it expires at *deadline* and was read from *paths*."""
        self.drop(key)
        self.items[key] = reference
        self.bytes += size
        if deadline is not None:
            self._deadlines[key] = deadline
            self._soonest = min(self._soonest, deadline)
        if paths:
            self._paths[key] = paths

    def drop(self, key: str) -> None:
        """Take *key* out."""
        reference = self.items.pop(key, None)
        if reference is not None:
            self.bytes -= self.sizes(reference)
            self._deadlines.pop(key, None)
            self._paths.pop(key, None)

    def touched_by(self, removal: Removal) -> list[str]:
        """Return the keys of the entries that *removal* takes away."""
        if removal.keys:
            return [key for key in removal.keys if key in self.items]
        if removal.paths:
            return [key for key, paths in self._paths.items() if removal.touches(key, paths)]
        return [key for key in self.items if removal.touches(key, ())]

    def expired(self, now: float) -> list[str]:
        """Return the keys of the entries whose own ttl has run out."""
        if now < self._soonest:
            return []
        self._soonest = min(
            (deadline for deadline in self._deadlines.values() if deadline > now), default=_NEVER
        )
        late = [key for key, deadline in self._deadlines.items() if deadline <= now]
        if late:
            self._soonest = min(self._soonest, now)  # until they are dropped
        return late

    def measure(self, scope: str, now: float) -> tuple[int, int]:
        """Return how many entries under *scope* have not expired, and their bytes."""
        late = set(self.expired(now))
        sizes = [
            self.sizes(reference)
            for key, reference in self.items.items()
            if key.startswith(scope) and key not in late
        ]
        return len(sizes), sum(sizes)

    def admits(self, put: Put) -> bool:
        """Tell whether nothing came between the ticket of *put* and now."""
        ticket, entry = put.ticket, put.entry
        if ticket is None:
            return True
        later = self._since(ticket)
        if later is None:
            return False
        paths = entry.touched()
        if any(
            removal.id not in ticket.hidden and removal.touches(entry.key, paths)
            for removal in later
        ):
            return False
        current = self.get(entry.key)
        return current is None or current.id in (ticket.entry, entry.id)

    def _since(self, ticket: Ticket) -> list[Removal] | None:
        if ticket.removal is None:
            known = self.is_complete and ticket.lives == self.lives
            return self.removals if known else None
        for number in range(len(self.removals) - 1, -1, -1):
            if self.removals[number].id == ticket.removal:
                return self.removals[number + 1 :]
        return None

    def last_removal(self) -> str | None:
        """Return the id of the newest removal; None if nothing was ever committed."""
        return self.removals[-1].id if self.removals else None

    def apply(
        self,
        puts: Iterable[Put],
        removals: Iterable[Removal],
        *,
        now: float,
        limits: dict[str, int | None],
        renew: bool,
        birth: str,
    ) -> tuple[bool, list[str], int]:
        """Do *removals*, then *puts*, then what the limits ask for.

        Args:
            puts: Entries in the order of their commit.
            removals: What goes first. One that is remembered is done already.
            now: Seconds since the epoch.
            limits: ``max_entries`` and ``max_bytes`` of who stores; the
                smallest ever asked for holds.
            renew: Put the same again, instead of leaving it as it is.
            birth: The id under which a new file's memory starts.

        Returns:
            Whether anything changed, what became of each put, and how many
            entries the removals took.
        """
        gone = 0
        changed = False
        known = {removal.id for removal in self.removals}
        for removal in removals:
            if removal.id in known:
                continue
            for key in self.touched_by(removal):
                self.drop(key)
                gone += 1
                changed = True
            changed |= self._remember(removal, birth)
        tightest = self._tightest(limits)
        fates = []
        for put in puts:
            before = self.items.get(put.entry.key)
            fate = self._put(put, now, tightest.get("max_bytes"), renew)
            fates.append(fate)
            changed |= self.items.get(put.entry.key) is not before
        if STORED in fates:
            self._begin(birth)
            self._enforce(tightest, now)
        return changed, fates, gone

    def _put(self, put: Put, now: float, most: int | None, renew: bool) -> str:
        entry = put.entry
        reference, size = self._refer(entry)
        if (most is not None and size > most) or not self.admits(put):
            return REFUSED
        current = self.get(entry.key)
        if current is not None:
            if current.id == entry.id:
                return STORED  # by an earlier try of this same put
            if put.yields or (not renew and current.still_says(entry, now)):
                return SAME
        deadline = None if entry.ttl is None else entry.stored_at + entry.ttl
        self.add(entry.key, reference, size, deadline, entry.touched())
        return STORED

    def _begin(self, birth: str) -> None:
        if not self.removals:
            self.removals.append(Removal(birth))

    def _remember(self, removal: Removal, birth: str) -> bool:
        self._begin(birth)
        self.removals.append(removal)
        if len(self.removals) > self._memory:
            del self.removals[: -self._memory]
            self.is_complete = False
        return True

    def _tightest(self, limits: dict[str, int | None]) -> dict[str, int]:
        both = {name: stricter(limit, self.limits.get(name)) for name, limit in limits.items()}
        return self.limits | {name: int(limit) for name, limit in both.items() if limit is not None}

    def _enforce(self, limits: dict[str, int], now: float) -> None:
        self.limits = limits
        for key in self.expired(now):
            self.drop(key)
        excess = len(self.items) - limits.get("max_entries", len(self.items))
        surplus = self.bytes - limits.get("max_bytes", self.bytes)
        oldest = []
        for key, reference in self.items.items():
            if excess <= 0 and surplus <= 0:
                break
            oldest.append(key)
            excess -= 1
            surplus -= self.sizes(reference)
        for key in oldest:
            self.drop(key)
