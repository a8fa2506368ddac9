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
        on_fork(self)

    def get(self, key: str) -> Entry | None:
        reference: Any = self._index.items.get(key)
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
            if len(plan.adds) + len(plan.drops) > 1:
                # A lookup in another thread must see a batch whole or not at all.
                index = index.copy()
            plan.carry_out(index, _refer)
            self._index = index
            return result

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
