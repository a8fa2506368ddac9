"""LMDB: a memory-mapped B+ tree, one transaction a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lmdb

from . import _record

_MAP = 2**36  # bytes of address space; the file is as large as what it holds


def where(path: str) -> str:
    return f"{path}.lmdb"


def open(path: str, *, fsync: bool = True) -> lmdb.Environment:
    return lmdb.open(where(path), map_size=_MAP, subdir=False, sync=fsync, metasync=fsync)


def fill(handle: lmdb.Environment, pairs: Iterable[tuple[str, Any]]) -> None:
    with handle.begin(write=True) as transaction:
        for question, response in pairs:
            transaction.put(question.casefold().encode(), _record.encode(question, response))


def store(handle: lmdb.Environment, question: str, response: Any) -> None:
    record = _record.encode(question, response)
    with handle.begin(write=True) as transaction:
        transaction.put(question.casefold().encode(), record)


def lookup(handle: lmdb.Environment, question: str) -> Any:
    with handle.begin(buffers=True) as transaction:
        record = transaction.get(question.casefold().encode())
        return None if record is None else _record.decode(record)


def count(handle: lmdb.Environment) -> int:
    return int(handle.stat()["entries"])


def close(handle: lmdb.Environment) -> None:
    handle.close()
