"""Keep entries in this process only: the reference of the store contract."""

from __future__ import annotations

from _thread import RLock

from .._index import Index, Put, Ticket
from .._lock import on_fork
from .._plan import Plan
from . import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from .._entry import Entry
    from .._rules import Removal

    T = TypeVar("T")

__all__ = ["MemoryStore"]

_MEMORY = 1024


def _size(reference: tuple[Entry, int]) -> int:
    return reference[1]


def _entry_size(entry: Entry) -> int:
    return len(entry.line or b"")


def _refer(entry: Entry) -> tuple[Entry, int]:
    size = _entry_size(entry)
    entry.line = None
    return entry, size


class MemoryStore:
    """The store of a cache without a path. Nothing outlives the process.

    Args:
        limits: ``max_entries`` and ``max_bytes``.
        now: Gives seconds since the epoch.
    """

    is_flat = False
    pending = 0

    def __init__(self, *, limits: dict[str, int | None], now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._mutex = RLock()
        self._index = Index(lambda _, reference: reference[0], _size, _MEMORY)
        self._coming: dict[str, Entry | None] = {}  # what a change under way makes of keys
        on_fork(self)

    def get(self, key: str) -> Entry | None:
        entry = self._find(key)
        index = self._index
        return entry if not index.open or entry is None or not index.hides_entry(entry) else None

    def _find(self, key: str) -> Entry | None:
        # A change is told whole before it is made bit by bit; who began to look
        # before it was told, and finds that it was, looks again.
        while True:
            coming = self._coming
            if key in coming:
                return coming[key]
            reference: Any = self._index.items.get(key)
            if self._coming is coming:
                return None if reference is None else reference[0]

    def put(self, puts: Sequence[Put], *, renew: bool = False) -> list[str]:
        return self._change(lambda plan: [plan.put(put, renew=renew) for put in puts])

    def remove(self, removal: Removal, *, commit: bool = True) -> int:
        return self._change(lambda plan: plan.remove(removal))

    def discard(self, entries: Sequence[Entry]) -> int:
        return self._change(lambda plan: plan.discard(entries))

    def _change(self, work: Callable[[Plan], T]) -> T:
        with self._mutex:
            index = self._index
            plan = Plan(index, size=_entry_size, now=self._now(), limits=self._limits, birth=new_id)
            result = work(plan)
            plan.enforce()
            self._coming = {**dict.fromkeys(plan.drops), **plan.adds}
            plan.carry_out(index, _refer)
            self._coming = {}
            return result

    def ticket(self, key: str) -> Ticket:
        index = self._index
        removal = index.last_removal()
        entry = self._find(key)
        return Ticket(removal, None if entry is None else entry.id)

    def entries(self) -> Iterator[Entry]:
        with self._mutex:  # such that a change is in there whole or not at all
            coming = self._coming  # not empty if a signal handler came in between
            items = self._index.items.items()
            kept = [entry for key, (entry, _) in items if key not in coming]
            found = kept + [entry for entry in coming.values() if entry is not None]
            hides = self._index.hides_entry
            return iter([entry for entry in found if not hides(entry)])

    def open_writes(self) -> list[Removal]:
        return list(self._index.open.values())

    def measure(self, scope: str) -> tuple[int, int]:
        with self._mutex:
            return self._index.measure(scope, self._now())

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def _forked(self) -> None:
        self._mutex = RLock()
        self._coming = {}
