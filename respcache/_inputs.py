"""The files that a step reads, by their content.

A digest is of content, so that a file which was touched, restored or checked out
anew is the same input. To read all of it each time would cost what the step saves,
so the digest of a file whose status has not changed is remembered, by git's rule
for racy entries: a status proves nothing about a file that was changed around the
time when it was read, since the next change may fall into the same clock tick.
"""

from __future__ import annotations

import os
import stat
import time

from ._json import encode
from ._keys import digest
from ._paths import Tree, absolute, signature, spellings
from ._rules import TREE
from .errors import UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ._paths import Signature

__all__ = ["Inputs", "Snapshot", "dependencies", "named"]

_SETTLED = 2_000_000_000  # ns: the coarsest stamps in use, FAT's, are of two seconds
_REMEMBERED = 20_000  # files
_TRIES = 3
_CHUNK = 1 << 20


class Snapshot:
    """What inputs were at one moment.

    Attributes:
        content: For each path, as it was given, a digest of what is there.
        stamps: The status of all that was looked at. Content that was changed
            and changed back while a step ran differs in these only.
    """

    __slots__ = ("content", "stamps")

    def __init__(self, content: list[list[str]], stamps: list[Any]) -> None:
        self.content = content
        self.stamps = stamps

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Snapshot)
            and other.content == self.content
            and other.stamps == self.stamps
        )

    __hash__ = None  # type: ignore[assignment]


class Inputs:
    """Take snapshots of files and folders, and remember digests between them.

    Args:
        own: The cache's file. It and what stands beside it for its sake are no
            inputs of the folder that they lie in: each output that is kept would
            change what it was made of.
    """

    def __init__(self, own: str | None = None) -> None:
        self._own = own
        self._known: dict[str, tuple[Signature, str]] = {}

    def take(self, paths: dict[str, str]) -> Snapshot:
        """Return what *paths* are now: of a folder all that lies below, links followed.

        A missing path has a digest, too, so that its appearance is a change.

        Args:
            paths: Each as :func:`named` gives it.

        Raises:
            UncacheableError: One can't be read, is neither a file nor a folder, or did
                not hold still while it was read.
        """
        stamps: list[Any] = []
        content = [[name, self._content(path, stamps)] for name, path in paths.items()]
        return Snapshot(content, stamps)

    def _content(self, path: str, stamps: list[Any]) -> str:
        try:
            return self._of(path, stamps, ())
        except (OSError, ValueError) as error:
            raise UncacheableError("inputs", f"{path} can't be read: {error}") from None

    def _of(self, path: str, stamps: list[Any], above: tuple[tuple[int, int], ...]) -> str:
        """Return the digest of the file or folder *path*, which lies within those *above*."""
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            stamps.append(None)
            return "missing"
        identity = (status.st_dev, status.st_ino)
        names = None
        if self._own is not None and stat.S_ISDIR(status.st_mode):
            names = self._without_own(path, identity)
        stamps.append(signature(status) if names is None else identity)
        if stat.S_ISREG(status.st_mode):
            known = self._known.get(path)
            return known[1] if known and known[0] == stamps[-1] else self._of_file(path)
        if not stat.S_ISDIR(status.st_mode):
            raise UncacheableError("inputs", f"{path} is neither a file nor a folder")
        if identity in above:
            return "above"  # a link that leads back
        within = [
            [name, self._of(os.path.join(path, name), stamps, (*above, identity))]
            for name in sorted(os.listdir(path) if names is None else names)
        ]
        return "folder " + digest(encode(within, "inputs"))

    def _without_own(self, path: str, identity: tuple[int, int]) -> list[str] | None:
        """Return the names in the folder *path* but the cache's; None: it is another folder."""
        real = os.path.realpath(self._own or "")
        try:
            status = os.stat(os.path.dirname(real))
        except OSError:
            return None
        if (status.st_dev, status.st_ino) != identity:
            return None
        base = os.path.basename(real)
        return [name for name in os.listdir(path) if not _is_own(name, base)]

    def _of_file(self, path: str) -> str:
        for _ in range(_TRIES):
            began = time.time_ns()
            # Not blocking: it may have become a pipe, on which nobody writes.
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise UncacheableError("inputs", f"{path} is no longer a file")
                before = signature(status)
                found = _read(fd)
                if signature(os.fstat(fd)) == before:
                    if max(status.st_mtime_ns, status.st_ctime_ns) + _SETTLED <= began:
                        if len(self._known) >= _REMEMBERED:
                            self._known.clear()
                        self._known[path] = before, found
                    return found
            finally:
                os.close(fd)
        raise UncacheableError("inputs", f"{path} is changing while it is read")


def _is_own(name: str, base: str) -> bool:
    rest = name.removeprefix(base)
    return name.startswith(base) and (
        rest in ("", ".lock", ".flight") or rest.startswith(".corrupt-") or rest.endswith(".tmp")
    )


def _read(fd: int) -> str:
    from hashlib import blake2b

    found = blake2b(digest_size=20)
    while chunk := os.read(fd, _CHUNK):
        found.update(chunk)
    return "file " + found.hexdigest()


def named(paths: Any) -> dict[str, str]:
    """Return the absolute path of each of *paths*, one or several, by its name as it was given.

    Sorted: inputs are a set. Absolute now, since a step may change the working folder.

    Raises:
        UncacheableError: Something in *paths* is not a path.
    """
    return dict(
        sorted(
            (os.fspath(item.path if isinstance(item, Tree) else item), path)
            for path, item in absolute(paths, place="inputs")
        )
    )


def dependencies(paths: Iterable[str]) -> dict[str, Any]:
    """Return ``paths`` and ``links`` of an entry that is read from the absolute *paths*.

    By name only, like trees: what a digest vouches for must be the same content,
    not the same file, but a write that names it forgets it.
    """
    found = dict.fromkeys(paths, TREE)
    links = {path: others for path in found if (others := spellings(path)[1:])}
    return {"paths": found, "links": links or None} if found else {}
