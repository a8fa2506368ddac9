"""diskcache: SQLite in WAL mode; a text as SQLite keeps it, else JSON instead of its pickles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import diskcache
import orjson

# SQLite's synchronous: FULL waits for the disk at each commit; NORMAL, which is
# diskcache's default, at checkpoints only.
_FULL, _NORMAL = 2, 1


def open(
    path: str, pairs: Iterable[tuple[str, Any]] = (), *, fsync: bool = True
) -> diskcache.Cache:
    cache = diskcache.Cache(f"{path}.diskcache", sqlite_synchronous=_FULL if fsync else _NORMAL)
    with cache.transact():
        for question, response in pairs:
            store(cache, question, response)
    return cache


def store(handle: diskcache.Cache, question: str, response: Any) -> None:
    handle.set(question.casefold(), response if type(response) is str else orjson.dumps(response))


def lookup(handle: diskcache.Cache, question: str) -> Any:
    answer = handle.get(question.casefold())
    return orjson.loads(answer) if type(answer) is bytes else answer
