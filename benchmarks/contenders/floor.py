"""The floor: the least that any document of the same bytes can do, with no lock and no checks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import orjson

from .files import sync_folder

Signature = tuple[int, int, int, int, int]


class Floor:
    """One JSON document, and the answers that it holds in memory."""

    def __init__(self, path: str, fsync: bool) -> None:
        self.path = path
        self.folder = os.path.dirname(path)
        self.fsync = fsync
        self.data = b"{}"
        self.signature: Signature | None = None
        self.answers: dict[str, Any] = {}


def where(path: str) -> str:
    return f"{path}.floor.json"


def open(path: str, *, fsync: bool = True) -> Floor:
    return Floor(where(path), fsync)


def fill(handle: Floor, pairs: Iterable[tuple[str, Any]]) -> None:
    """Make *pairs* all that there is."""
    document = {}
    for question, response in pairs:
        document[question.casefold()] = _entry(question, response)
        handle.answers[question.casefold()] = (
            response if type(response) is str else orjson.dumps(response)
        )
    _publish(handle, orjson.dumps(document))


def store(handle: Floor, question: str, response: Any) -> None:
    if handle.signature != _signature(os.stat(handle.path)):
        with os.fdopen(os.open(handle.path, os.O_RDONLY), "rb", buffering=0) as file:
            handle.data = file.read()
    document = orjson.loads(handle.data)
    document[question.casefold()] = _entry(question, response)
    _publish(handle, orjson.dumps(document))


def lookup(handle: Floor, question: str) -> Any:
    os.stat(handle.path)
    answer = handle.answers.get(question.casefold())
    return orjson.loads(answer) if type(answer) is bytes else answer


def count(handle: Floor) -> int:
    return len(handle.answers)


def close(handle: Floor) -> None:
    pass


def _entry(question: str, response: Any) -> dict[str, Any]:
    """Return as many bytes as respcache keeps of an entry."""
    return {
        "response": response,
        "question": question,
        "id": os.urandom(8).hex(),
        "stored_at": time.time(),
    }


def _publish(floor: Floor, data: bytes) -> None:
    temp = f"{floor.path}.tmp"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, data)
        if floor.fsync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temp, floor.path)
    if floor.fsync:
        sync_folder(floor.folder)
    floor.data = data
    floor.signature = _signature(os.stat(floor.path))


def _signature(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
