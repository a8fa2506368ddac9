"""diskcache: SQLite in WAL mode; a record of JSON instead of its pickles, and no culling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import diskcache

from . import _record

# SQLite's synchronous: FULL waits for the disk at each commit; NORMAL, which is
# diskcache's default, at checkpoints only.
_FULL, _NORMAL = 2, 1


def where(path: str) -> str:
    return f"{path}.diskcache"


def open(path: str, *, fsync: bool = True) -> diskcache.Cache:
    return diskcache.Cache(
        where(path),
        sqlite_synchronous=_FULL if fsync else _NORMAL,
        eviction_policy="none",
        cull_limit=0,  # else it drops what is above 1 GB
    )


def fill(handle: diskcache.Cache, pairs: Iterable[tuple[str, Any]]) -> None:
    with handle.transact():
        for question, response in pairs:
            store(handle, question, response)


def store(handle: diskcache.Cache, question: str, response: Any) -> None:
    handle.set(question.casefold(), _record.encode(question, response))


def lookup(handle: diskcache.Cache, question: str) -> Any:
    record = handle.get(question.casefold())
    return None if record is None else _record.decode(record)


def count(handle: diskcache.Cache) -> int:
    return len(handle)


def close(handle: diskcache.Cache) -> None:
    handle.close()
