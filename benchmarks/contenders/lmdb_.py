"""LMDB: a memory-mapped B+ tree; every response is JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lmdb
import orjson


def open(
    path: str, pairs: Iterable[tuple[str, Any]] = (), *, fsync: bool = True
) -> lmdb.Environment:
    environment = lmdb.open(f"{path}.lmdb", map_size=2**30, subdir=False, sync=fsync)
    with environment.begin(write=True) as transaction:
        for question, response in pairs:
            transaction.put(question.casefold().encode(), orjson.dumps(response))
    return environment


def store(handle: lmdb.Environment, question: str, response: Any) -> None:
    with handle.begin(write=True) as transaction:
        transaction.put(question.casefold().encode(), orjson.dumps(response))


def lookup(handle: lmdb.Environment, question: str) -> Any:
    with handle.begin(buffers=True) as transaction:
        answer = transaction.get(question.casefold().encode())
        return None if answer is None else orjson.loads(answer)
