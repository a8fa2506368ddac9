"""SQLite as one writes it by hand: WAL mode, statements prepared once, a patient lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from . import _record

_PATIENCE = 60.0  # seconds that a writer waits for the others
# The module keeps a statement prepared by its text.
_STORE = "INSERT OR REPLACE INTO answers VALUES (?, ?)"
_LOOKUP = "SELECT record FROM answers WHERE question = ?"


def where(path: str) -> str:
    return f"{path}.sqlite3"


def open(path: str, *, fsync: bool = True) -> sqlite3.Connection:
    # Without isolation_level the module begins no transactions of its own.
    database = sqlite3.connect(where(path), timeout=_PATIENCE, isolation_level=None)
    for pragma in (
        "journal_mode = WAL",
        f"synchronous = {'FULL' if fsync else 'NORMAL'}",
        "cache_size = -65536",  # KB
        "mmap_size = 1073741824",
    ):
        database.execute(f"PRAGMA {pragma}")
    # Not WITHOUT ROWID: that is for rows of a twentieth of a page, and slower here.
    database.execute(
        "CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, record BLOB NOT NULL)"
    )
    return database


def fill(handle: sqlite3.Connection, pairs: Iterable[tuple[str, Any]]) -> None:
    handle.execute("BEGIN IMMEDIATE")
    for question, response in pairs:
        store(handle, question, response)
    handle.execute("COMMIT")


def store(handle: sqlite3.Connection, question: str, response: Any) -> None:
    handle.execute(_STORE, (question.casefold(), _record.encode(question, response)))


def lookup(handle: sqlite3.Connection, question: str) -> Any:
    row = handle.execute(_LOOKUP, (question.casefold(),)).fetchone()
    return None if row is None else _record.decode(row[0])


def count(handle: sqlite3.Connection) -> int:
    (entries,) = handle.execute("SELECT COUNT(*) FROM answers").fetchone()
    return int(entries)


def close(handle: sqlite3.Connection) -> None:
    handle.close()
