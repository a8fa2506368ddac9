"""What one file holds, over all fronts and namespaces: for people, not for programs that ask."""

from __future__ import annotations

import os

from ._front import why_over
from ._keys import front_and_namespace, scope_of
from ._rules import Removal
from ._stores import new_id
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ._cache import Cache
    from ._entry import Entry

__all__ = [
    "FRONTS",
    "Row",
    "Selection",
    "demand",
    "find",
    "format_of_store",
    "namespaces",
    "rows",
    "summary",
]

FRONTS = {"q": "cache", "t": "tools", "s": "steps"}  # by their letters in keys


class Selection:
    """Which entries of a file are meant.

    Args:
        front: ``"cache"``, ``"tools"`` or ``"steps"``. None: all.
        namespace: One namespace; ``""`` is the shared one. None: all.

    Raises:
        ConfigError: There is no such front.
    """

    def __init__(self, front: str | None = None, namespace: str | None = None) -> None:
        if front is not None and front not in FRONTS.values():
            raise ConfigError(f"front={front!r}: choose one of {', '.join(FRONTS.values())}")
        self.front = front
        self.namespace = namespace

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.front is None and self.namespace is None

    def prefixes(self) -> tuple[str, ...]:
        """Return what the keys that are meant start with."""
        if self.is_all:
            return ("",)
        letters = [letter for letter, name in FRONTS.items() if self.front in (None, name)]
        if self.namespace is None:
            return tuple(f"{letter}/" for letter in letters)
        return tuple(scope_of(letter, self.namespace or None) for letter in letters)

    def has(self, row: Row) -> bool:
        """Tell whether the entry of *row* is meant."""
        return self.front in (None, row.front) and self.namespace in (None, row.namespace or "")

    def clear(self, cache: Cache) -> int:
        """Forget what is meant, and results under way; return how many entries that were.

        One commit for everything, else one for each front: who looks in between
        sees the entries of some fronts gone and of others not yet.
        """
        if cache._is_flat and not self.has(Row.of_flat()):
            return 0
        if self.is_all or cache._is_flat:
            return cache._remove("clear", None, lambda: Removal(new_id(), everything=True))
        return sum(_clear(cache, prefix) for prefix in self.prefixes())


def _clear(cache: Cache, prefix: str) -> int:
    return cache._remove("clear", None, lambda: Removal(new_id(), scope=prefix))


class Row:
    """One entry, as people look at it.

    Attributes:
        entry: The entry.
        front: Whose it is: ``"cache"``, ``"tools"``, ``"steps"``.
        namespace: Its namespace; None is the shared one.
        state: ``"fresh"``, or why it can't be served any more: ``"expired"``, ``"changed"``.
        age: Seconds since it was stored. None in a flat file, which keeps no ages.
        left: Seconds until it expires. None: never.
        size: The bytes that it counts for.
    """

    __slots__ = ("age", "entry", "front", "left", "namespace", "size", "state")

    def __init__(self, entry: Any, front: str, namespace: str | None) -> None:
        self.entry: Entry = entry
        self.front = front
        self.namespace = namespace
        self.state = "fresh"
        self.age: float | None = None
        self.left: float | None = None
        self.size = 0

    @classmethod
    def of_flat(cls, entry: Entry | None = None) -> Row:
        """Return the row of an entry of a flat file, which has one front and no namespaces."""
        return cls(entry, FRONTS["q"], None)

    @classmethod
    def of(cls, entry: Entry, cache: Cache, now: float) -> Row:
        """Return the row of *entry* of *cache*, as it is at *now*."""
        if cache._is_flat:
            row = cls.of_flat(entry)
        else:
            letter, namespace = front_and_namespace(entry.key)
            row = cls(entry, FRONTS.get(letter, letter), namespace)
            row.age = max(0.0, now - entry.stored_at)
        if entry.ttl is not None:
            row.left = max(0.0, entry.stored_at + entry.ttl - now)
        row.state = why_over(entry, now) or "fresh"
        store: Any = cache._store
        row.size = store._size(entry)
        return row

    def to_json(self) -> dict[str, Any]:
        """Return what lists tell of it, without the response."""
        entry = self.entry
        return {
            "front": self.front,
            "namespace": self.namespace,
            "question": entry.question,
            "state": self.state,
            "age": self.age,
            "stored_at": None if self.age is None else entry.stored_at,
            "ttl": entry.ttl,
            "bytes": self.size,
            "key": entry.key,
        }

    def to_full_json(self) -> dict[str, Any]:
        """Return all that is kept of it."""
        entry = self.entry
        return {
            **self.to_json(),
            "id": entry.id,
            "context": entry.context,
            "meta": entry.meta,
            "paths": entry.paths,
            "response": entry.response,
        }


def demand(cache: Cache) -> None:
    """Raise what is wrong with a file that can't be read: else it is an empty cache.

    Raises:
        StoreError: It can't be read, or not by this version.
    """

    def work(store: Any) -> None:
        store.demand()

    cache._do(work)


def rows(cache: Cache, selection: Selection) -> Iterator[Row]:
    """Return the entries of the file of *cache* that are meant, oldest commit first.

    Those that a tool's write hides, which has begun and not ended, are left out.
    A file that can't be read has none; see :func:`demand`.
    """
    entries = cache._do(lambda store: list(store.entries()))
    now = cache._now()
    for entry in entries:
        row = Row.of(entry, cache, now)
        if selection.has(row):
            yield row


def find(cache: Cache, text: str, selection: Selection) -> list[Row]:
    """Return the entry whose key is *text*; else all whose question is, upper or lower case."""
    folded = text.casefold()
    found = []
    for row in rows(cache, selection):
        if row.entry.key == text:
            return [row]
        if row.entry.question.casefold() == folded:
            found.append(row)
    return found


def namespaces(cache: Cache) -> list[str]:
    """Return the names of the namespaces that hold something."""
    if cache._is_flat:
        return []
    entries = cache._do(lambda store: list(store.entries()))
    return sorted({front_and_namespace(entry.key)[1] or "" for entry in entries} - {""})


def format_of_store(store: Any) -> str:
    """Return the format of the file of *store*: ``"document"``, ``"log"`` or ``"flat"``."""
    from ._stores.log import LogStore

    if store.is_flat:
        return "flat"
    return "log" if isinstance(store, LogStore) else "document"


def summary(cache: Cache, found: Iterable[Row]) -> dict[str, Any]:
    """Return what the file of *cache* holds, of which *found* are the entries.

    ``damaged``: something in it can't be read, and the next store repairs it.
    ``writes``: of tools, that have begun and not ended.
    """
    assert cache.path is not None
    groups: dict[tuple[str, str | None], dict[str, Any]] = {}
    for row in found:
        group = groups.setdefault(
            (row.front, row.namespace),
            {
                "front": row.front,
                "namespace": row.namespace,
                "entries": 0,
                "over": 0,
                "bytes": 0,
                "newest": None,
                "oldest": None,
            },
        )
        group["entries"] += 1
        group["over"] += row.state != "fresh"
        group["bytes"] += row.size
        if row.age is not None:
            group["newest"] = min(row.age, row.age if group["newest"] is None else group["newest"])
            group["oldest"] = max(row.age, group["oldest"] or 0.0)
    store: Any = cache._store
    view = store._fresh()
    limits = view.index.limits  # first: damage is found where all is read
    try:
        size = os.stat(cache.path).st_size
    except OSError:
        size = 0
    return {
        "path": cache.path,
        "format": format_of_store(store),
        "file_bytes": size,
        **{name: sum(group[name] for group in groups.values()) for name in _TOTALS},
        "damaged": view.is_corrupt,
        "writes": len(store.open_writes()),
        "limits": limits,
        "groups": [groups[key] for key in sorted(groups, key=lambda key: (key[0], key[1] or ""))],
    }


_TOTALS = ("entries", "over", "bytes")
