"""respcache: a JSON document."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from respcache import Cache

# It warns of documents above 10 MB, which we ask for on purpose.
logging.getLogger("respcache").setLevel(logging.ERROR)


def open(path: str, pairs: Iterable[tuple[str, Any]] = (), *, fsync: bool = True) -> Cache:
    cache = Cache(f"{path}.json", fsync=fsync, on_error="raise")
    cache.store_many(pairs)
    return cache


def store(handle: Cache, question: str, response: Any) -> None:
    handle.store(question, response)


def lookup(handle: Cache, question: str) -> Any:
    hit = handle.lookup(question)
    return None if hit is None else hit.response
