"""Keep entries in this process only: the reference of the store contract."""

from __future__ import annotations

from _thread import RLock

from .._index import Index, Put, Ticket
from .._lock import on_fork
from . import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .._entry import Entry
    from .._rules import Removal

__all__ = ["MemoryStore"]

_MEMORY = 1024


def _size(reference: tuple[Entry, int]) -> int:
    return reference[1]


def _refer(entry: Entry) -> tuple[tuple[Entry, int], int]:
    size = len(entry.line or b"")
    entry.line = None
    return (entry, size), size


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
        self._index = Index(lambda _, reference: reference[0], _refer, _MEMORY)
        self._index.sizes = _size
        on_fork(self)

    def get(self, key: str) -> Entry | None:
        reference: Any = self._index.items.get(key)
        return None if reference is None else reference[0]

    def put(self, puts: Sequence[Put], *, renew: bool = False) -> list[str]:
        return self._change(puts, (), renew)[0]

    def remove(self, removal: Removal, *, commit: bool = True) -> int:
        return self._change((), (removal,), False)[1]

    def discard(self, entries: Sequence[Entry]) -> int:
        with self._mutex:
            index = self._index.copy()
            gone = [entry for entry in entries if index.get(entry.key) is entry]
            for entry in gone:
                index.drop(entry.key)
            self._index = index
            return len(gone)

    def _change(
        self, puts: Sequence[Put], removals: Sequence[Removal], renew: bool
    ) -> tuple[list[str], int]:
        with self._mutex:
            # A lookup in another thread must see a batch whole or not at all.
            index = self._index if len(puts) + len(removals) == 1 else self._index.copy()
            _, fates, gone = index.apply(
                puts,
                removals,
                now=self._now(),
                limits=self._limits,
                renew=renew,
                birth=new_id(),
            )
            self._index = index
            return fates, gone

    def ticket(self, key: str) -> Ticket:
        index = self._index
        removal = index.last_removal()
        entry = self.get(key)
        return Ticket(removal, None if entry is None else entry.id)

    def entries(self) -> Iterator[Entry]:
        return iter([entry for entry, _ in list(self._index.items.values())])

    def measure(self, scope: str) -> tuple[int, int]:
        with self._mutex:
            return self._index.measure(scope, self._now())

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def _forked(self) -> None:
        self._mutex = RLock()
