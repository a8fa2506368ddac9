"""respcache: a log."""

from __future__ import annotations

from respcache import Cache

from .respcache_ import close, count, fill, lookup, make, store

__all__ = ["close", "count", "fill", "lookup", "open", "store", "where"]


def where(path: str) -> str:
    return f"{path}.jsonl"


def open(path: str, *, fsync: bool = True) -> Cache:
    return make(where(path), fsync)
