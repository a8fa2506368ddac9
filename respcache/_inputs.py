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
from ._paths import Tree, absolute, identity, signature, spellings
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

    Attributes:
        own: The cache's file, and others that it writes. They and what stands beside
            them for their sake are no inputs of the folder that they lie in: each
            output that is kept would change what it was made of.
    """

    def __init__(self) -> None:
        self.own: list[str] = []
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
            _stamp_way(path, stamps)
            return self._of(path, stamps, ())
        except (OSError, ValueError) as error:
            raise UncacheableError("inputs", f"{path} can't be read: {error}") from None

    def _of(self, path: str, stamps: list[Any], above: tuple[tuple[int, int], ...]) -> str:
        """Return the digest of the file or folder *path*, which lies within those *above*."""
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            stamps.append(self._stamp_of_nearest(path))
            return "missing"
        which = (status.st_dev, status.st_ino)
        names = None
        if self.own and stat.S_ISDIR(status.st_mode):
            names = self._without_own(path, which)
        stamps.append(signature(status) if names is None else which)
        if stat.S_ISREG(status.st_mode):
            known = self._known.get(path)
            return known[1] if known and known[0] == stamps[-1] else self._of_file(path)
        if not stat.S_ISDIR(status.st_mode):
            raise UncacheableError("inputs", f"{path} is neither a file nor a folder")
        if which in above:
            return "above"  # a link that leads back
        within = [
            [name, self._of(os.path.join(path, name), stamps, (*above, which))]
            for name in sorted(os.listdir(path) if names is None else names)
        ]
        return "folder " + digest(encode(within, "inputs"))

    def _stamp_of_nearest(self, path: str) -> Any:
        """Return the stamp of the folder in which the missing *path* would appear, and go again.

        Not of one in which we make files ourselves.
        """
        above = os.path.dirname(path)
        while above != path:
            try:
                found = signature(os.stat(above))
            except OSError:
                above, path = os.path.dirname(above), above
            else:
                return found if self._own_names(found[:2]) == [] else found[:2]
        return None

    def _own_names(self, which: tuple[int, int]) -> list[str]:
        """Return the names of our files in the folder that is *which*."""
        return [
            os.path.basename(real)
            for real in map(os.path.realpath, self.own)
            if identity(os.path.dirname(real)) == which
        ]

    def _without_own(self, path: str, which: tuple[int, int]) -> list[str] | None:
        """Return the names in the folder *path* but our own; None: none of ours lies there."""
        bases = self._own_names(which)
        if not bases:
            return None
        names = os.listdir(path)
        return [name for name in names if not any(_is_own(name, base) for base in bases)]

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


def _stamp_way(path: str, stamps: list[Any]) -> None:
    """Stamp the links on the way to *path*: one may lead elsewhere, and back, meanwhile.

    Not the folders: others may make files there.
    """
    while True:
        try:
            status = os.lstat(path)
        except OSError:
            pass
        else:
            if stat.S_ISLNK(status.st_mode):
                stamps.append(signature(status))
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


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

    In their order, which a step may go by. Absolute now, since it may change the
    working folder. None is no path at all.

    Raises:
        UncacheableError: Something in *paths* is not a path.
    """
    return {
        os.fspath(item.path if isinstance(item, Tree) else item): path
        for path, item in absolute(() if paths is None else paths, place="inputs")
    }


def dependencies(paths: Iterable[str]) -> dict[str, Any]:
    """Return ``paths`` and ``links`` of an entry that is read from the absolute *paths*.

    By name only, like trees: what a digest vouches for must be the same content,
    not the same file, but a write that names it forgets it.
    """
    found = dict.fromkeys(paths, TREE)
    links = {path: others for path in found if (others := spellings(path)[1:])}
    return {"paths": found, "links": links or None} if found else {}
