"""Move entries between files of any format, or from memory to one."""

from __future__ import annotations

import os

from ._entry import Entry, new_entry, with_line
from ._index import STORED, Put
from ._keys import flat_key, key_head, scope_of
from ._rules import is_fresh
from ._stores import FormatSwitched, format_of, new_id, open_store
from ._switches import DISABLE, READONLY, are_set, is_on
from .errors import StoreError, UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ._cache import Cache
    from ._stores import Store

    T = TypeVar("T")

__all__ = ["carry_over", "export", "merge"]


def export(
    cache: Cache,
    path: Any,
    *,
    within: tuple[str, ...] | None = None,
    format: str | None = None,
) -> int:
    """Write what *cache* keeps to *path*, as :meth:`Cache.export` says.

    Args:
        cache: Whose entries.
        path: The file to write to.
        within: The prefixes of the keys that are meant. None: the cache's own namespace.
        format: Of a file that is new. None: by its suffix.
    """
    if are_set() and (is_on(DISABLE) or is_on(READONLY)):
        return 0
    entries = [
        entry
        for entry in cache._do(lambda store: list(store.entries()))
        if _is_meant(entry, cache._is_flat, within or (cache._scope,)) and _is_fresh(entry, cache)
    ]

    def put(store: Store) -> int:
        fates = store.put(
            [Put(_fitted(cache, entry, cache._is_flat, store.is_flat)) for entry in entries],
            renew=True,
        )
        return fates.count(STORED)

    return _with_file(cache, path, put, format) if entries else 0


def merge(cache: Cache, path: Any, *, within: tuple[str, ...] | None = None) -> int:
    """Take over what *path* holds, as :meth:`Cache.merge` says; *within* as for ``export``."""
    if are_set() and (is_on(DISABLE) or is_on(READONLY)):
        return 0
    if not os.path.exists(path):
        raise StoreError(os.fspath(path), "there is no such file to merge")

    def take(store: Any) -> tuple[bool, list[Entry]]:
        store.demand()
        prefixes = within or (scope_of("q", cache.namespace),)
        return store.is_flat, [
            entry
            for entry in store.entries()
            if _is_meant(entry, store.is_flat, prefixes) and _is_fresh(entry, cache)
        ]

    is_flat, found = _with_file(cache, path, take)

    def put(store: Store) -> int:
        puts = [Put(_fitted(cache, entry, is_flat, store.is_flat), yields=True) for entry in found]
        return store.put(puts).count(STORED) if puts else 0

    return cache._do(put)


def carry_over(cache: Cache, entries: list[Entry], is_flat: bool) -> None:
    """Let *entries*, which waited for a file of another format, wait for the one there is now."""
    store: Any = cache._store
    for entry in entries:
        try:
            store.hold([_fitted(cache, entry, is_flat, store.is_flat)])
        except (UncacheableError, FormatSwitched):
            pass  # a flat file has no place for it, or it is another one again


def _is_meant(entry: Entry, is_flat: bool, prefixes: tuple[str, ...]) -> bool:
    return is_flat or entry.key.startswith(prefixes)


def _is_fresh(entry: Entry, cache: Cache) -> bool:
    return is_fresh(entry.stored_at, entry.ttl, cache._now())


def _fitted(cache: Cache, entry: Entry, from_flat: bool, to_flat: bool) -> Entry:
    """Return *entry* with the key and the age that its new place asks for."""
    if not from_flat and not to_flat:
        return with_line(entry)
    is_dated = entry.stored_at == entry.stored_at
    normalizer = cache._normalizer
    if to_flat:
        if not from_flat and not entry.key.startswith(scope_of("q", None)):
            raise UncacheableError(f"$[{entry.question!r}]", "a flat file has no namespaces")
        key = flat_key(entry.question, fold=normalizer.fold, trim=normalizer.trim)
    else:
        head = key_head(scope_of("q", cache.namespace), normalizer, None)
        key = head + normalizer(entry.question)
    return new_entry(
        key,
        key if to_flat else entry.question,
        entry.response,
        id=new_id(),
        stored_at=entry.stored_at if is_dated else cache._stamp(),
        ttl=entry.ttl,
        context=entry.context,
        paths=entry.paths,
        links=entry.links,
    )


def _with_file(cache: Cache, path: Any, work: Callable[[Any], T], asked: str | None = None) -> T:
    """Return ``work(store)`` of the file *path*, in whichever format it is."""
    full = os.path.abspath(path)
    format = format_of(full, asked)
    options = {
        "is_asked_for": asked == "flat",
        **cache._options,
        "limits": {"max_entries": None, "max_bytes": None},
        "on_error": "raise",
    }
    while True:
        store = open_store(full, format, **options)
        try:
            return work(store)
        except FormatSwitched as switched:
            format = switched.format
        finally:
            store.close()
