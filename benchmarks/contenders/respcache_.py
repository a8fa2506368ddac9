"""respcache: a JSON document."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from respcache import Cache

# It warns of documents above 10 MB, which we ask for on purpose.
logging.getLogger("respcache").setLevel(logging.ERROR)

_MAX_BYTES = 2**40  # a limit as by default, above all that we store


def where(path: str) -> str:
    return f"{path}.json"


def open(path: str, *, fsync: bool = True) -> Cache:
    return make(where(path), fsync)


def make(path: str, fsync: bool) -> Cache:
    return Cache(path, fsync=fsync, on_error="raise", max_bytes=_MAX_BYTES)


def fill(handle: Cache, pairs: Iterable[tuple[str, Any]]) -> None:
    handle.store_many(pairs)


def store(handle: Cache, question: str, response: Any) -> None:
    if not handle.store(question, response):
        raise RuntimeError("nothing was committed: the same response was there already")


def lookup(handle: Cache, question: str) -> Any:
    hit = handle.lookup(question)
    return None if hit is None else hit.response


def count(handle: Cache) -> int:
    return len(handle)


def close(handle: Cache) -> None:
    handle.close()
