"""Where entries are kept: one contract, :class:`Store`, for memory and every file format."""

from __future__ import annotations

import os

from ..errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Protocol

    from .._entry import Entry
    from .._index import Put, Ticket
    from .._rules import Removal

    class Store(Protocol):
        """What a front asks of the place where entries are kept.

        ``get`` never waits for a writer and never writes. ``put`` and
        ``remove`` are commits: whole or not at all, seen by every lookup that
        begins afterwards, in any process.
        """

        def get(self, key: str) -> Entry | None:
            """Return the entry of *key* as it is now, or None."""

        def open_writes(self) -> list[Removal]:
            """Return the writes that have begun and not ended, as far as they are known here."""

        def put(self, puts: Sequence[Put], *, renew: bool = False) -> list[str]:
            """Commit *puts* at once, and return what became of each."""

        def remove(self, removal: Removal, *, commit: bool = True) -> int:
            """Take away what *removal* touches, and return how many entries that were."""

        def discard(self, entries: Sequence[Entry]) -> int:
            """Take away just these entries, for age: no removal that guards anything."""

        def ticket(self, key: str) -> Ticket:
            """Return what has happened so far, for a later put of *key*."""

        def entries(self) -> Iterator[Entry]:
            """Return all entries as they are now, oldest commit first."""

        def measure(self, scope: str) -> tuple[int, int]:
            """Return how many fresh entries have keys that start with *scope*, and their bytes."""

        def flush(self) -> bool:
            """Commit what is pending; tell whether nothing is left."""

        def close(self) -> None:
            """Let go of descriptors; the next use opens them again."""

        @property
        def pending(self) -> int:
            """How many entries and removals wait for a commit."""

        @property
        def is_flat(self) -> bool:
            """Whether the file is of docker-agent's format."""


__all__ = ["FormatSwitched", "Store", "format_of", "new_id", "open_store"]

_SUFFIXES = {".json": "document", ".jsonl": "log"}
_FORMATS = ("document", "log", "flat")


class FormatSwitched(Exception):  # noqa: N818 - a signal to the front, never seen outside
    """The file turned out to be of another format, which another store reads."""

    def __init__(self, format: str) -> None:
        super().__init__(format)
        self.format = format


_ids: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)  # or the child would use its parent's


def new_id() -> str:
    """Return a random name for a commit: 64 bits can't meet by chance within a file."""
    while True:
        try:
            return _ids.pop()
        except IndexError:
            drawn = os.urandom(512).hex()
            _ids.extend(drawn[at : at + 16] for at in range(0, 1024, 16))


def format_of(path: str, format: str | None) -> str:
    """Return the format of the file *path*: as asked for, else by its suffix.

    Raises:
        ConfigError: Neither says.
    """
    if format is not None:
        if format not in _FORMATS:
            raise ConfigError(f"format={format!r}: choose one of {', '.join(map(repr, _FORMATS))}")
        return format
    suffix = os.path.splitext(path)[1].lower()
    try:
        return _SUFFIXES[suffix]
    except KeyError:
        raise ConfigError(
            f"path={path!r}: the suffix {suffix!r} tells no format; "
            f"name the file .json or .jsonl, or pass format= as one of {', '.join(map(repr, _FORMATS))}"
        ) from None


def open_store(
    path: str | None, format: str | None, *, is_asked_for: bool = False, **options: Any
) -> Store:
    """Return the store of *path*; no file is touched before its first use."""
    if path is None:
        from .memory import MemoryStore

        return MemoryStore(limits=options["limits"], now=options["now"])
    if format == "flat":
        from .flat import FlatStore

        return FlatStore(path, is_asked_for=is_asked_for, **options)
    if format == "log":
        from .log import LogStore

        return LogStore(path, **options)
    from .document import DocumentStore

    return DocumentStore(path, **options)
