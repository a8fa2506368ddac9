"""Move entries between files of any format, or from memory to one."""

from __future__ import annotations

import os

from ._entry import Entry, new_entry, with_line
from ._index import Put
from ._keys import flat_key, key_head, scope_of
from ._plan import STORED
from ._rules import is_fresh
from ._stores import FormatSwitched, format_of, new_id, open_store
from ._switches import DISABLE, READONLY, are_set, is_on
from .errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ._cache import Cache
    from ._stores import Store

    T = TypeVar("T")

__all__ = ["export", "merge"]


def export(cache: Cache, path: Any) -> int:
    """Write what *cache* keeps to *path*, as :meth:`Cache.export` says."""
    if are_set() and (is_on(DISABLE) or is_on(READONLY)):
        return 0
    entries = [entry for entry in cache._kept() if _is_fresh(entry, cache)]

    def put(store: Store) -> int:
        fates = store.put(
            [Put(_fitted(cache, entry, store.is_flat)) for entry in entries], renew=True
        )
        return fates.count(STORED)

    return _with_file(cache, path, put) if entries else 0


def merge(cache: Cache, path: Any) -> int:
    """Take over what *path* holds, as :meth:`Cache.merge` says."""
    if are_set() and (is_on(DISABLE) or is_on(READONLY)):
        return 0
    if not os.path.exists(path):
        raise StoreError(os.fspath(path), "there is no such file to merge")

    def take(store: Any) -> list[Entry]:
        store.demand()
        return [e for e in store.entries() if store.is_flat or e.key.startswith(cache._scope)]

    found = [entry for entry in _with_file(cache, path, take) if _is_fresh(entry, cache)]

    def put(store: Store) -> int:
        puts = [Put(_fitted(cache, entry, store.is_flat), yields=True) for entry in found]
        return store.put(puts).count(STORED) if puts else 0

    return cache._do(put)


def _is_fresh(entry: Entry, cache: Cache) -> bool:
    return is_fresh(entry.stored_at, entry.ttl, cache._now())


def _fitted(cache: Cache, entry: Entry, to_flat: bool) -> Entry:
    """Return *entry* with the key and the age that its new place asks for."""
    is_dated = entry.stored_at == entry.stored_at
    if is_dated and not to_flat:
        return with_line(entry)
    normalizer = cache._normalizer
    if to_flat:
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


def _with_file(cache: Cache, path: Any, work: Callable[[Any], T]) -> T:
    """Return ``work(store)`` of the file *path*, in whichever format it is."""
    full = os.path.abspath(path)
    format = format_of(full, None)
    options = {
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
