"""A file per entry, written beside its place and renamed, with no lock."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from . import _record


@dataclass(frozen=True)
class Folder:
    path: str
    fsync: bool


def where(path: str) -> str:
    return f"{path}.files"


def open(path: str, *, fsync: bool = True) -> Folder:
    os.makedirs(where(path), exist_ok=True)
    return Folder(where(path), fsync)


def fill(handle: Folder, pairs: Iterable[tuple[str, Any]]) -> None:
    unsynced = Folder(handle.path, fsync=False)
    for question, response in pairs:
        store(unsynced, question, response)


def store(handle: Folder, question: str, response: Any) -> None:
    folder, name = _place(handle, question)
    temp = f"{folder}/{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        fd = os.open(temp, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        fd = os.open(temp, flags, 0o600)
    try:
        os.write(fd, _record.encode(question, response))
        if handle.fsync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temp, f"{folder}/{name}")
    if handle.fsync:
        sync_folder(folder)


def lookup(handle: Folder, question: str) -> Any:
    try:
        fd = os.open("/".join(_place(handle, question)), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return _record.decode(os.read(fd, os.fstat(fd).st_size))
    finally:
        os.close(fd)


def count(handle: Folder) -> int:
    return sum(len(os.listdir(folder)) for folder in os.scandir(handle.path))


def close(handle: Folder) -> None:
    pass


def sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _place(handle: Folder, question: str) -> tuple[str, str]:
    """Return a folder and a name: no folder holds more than a 256th."""
    name = sha256(question.casefold().encode()).hexdigest()
    return f"{handle.path}/{name[:2]}", f"{name[2:]}.json"
