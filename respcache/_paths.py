"""File identity: signatures, real paths, and the files an answer was read from."""

from __future__ import annotations

import os

from ._rules import TREE, fold
from .errors import UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._entry import Dependency

    Signature = tuple[int, int, int, int, int]
    PathLike = str | os.PathLike[str]

__all__ = [
    "EVERYTHING",
    "Tree",
    "absolute",
    "default_path",
    "follow",
    "identity",
    "is_unchanged",
    "repeatable",
    "sign",
    "signature",
    "spellings",
]

EVERYTHING: dict[str, Any] = {"paths": {"/": TREE}, "links": None}  # as sign() gives it


class Tree:
    """Stand for everything below a folder, as an answer's dependency.

    A listing or a search is read from a whole folder. A tree is not walked at
    the hit: what was read from it is forgotten by ``invalidate`` (and, in tool
    caches, by writes) of anything at or below the folder.

    Args:
        path: The folder.
    """

    __slots__ = ("path",)

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"Tree({self.path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and other.path == self.path

    def __hash__(self) -> int:
        return hash((Tree, self.path))


def signature(status: os.stat_result) -> Signature:
    """Return what tells one version of a file from another.

    Compared with ``!=``, never with ``>``: a file that was put back from a
    backup has older stamps. mtime alone misses half of all versions on ext4;
    ctime catches edits in place that put mtime back.
    """
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def identity(path: str) -> tuple[int, int] | None:
    """Return what tells the file or folder at *path* from all others; None: there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def sign(paths: Any) -> dict[str, Any]:
    """Return ``paths`` and ``links`` of an entry that is read from *paths* now.

    Each absolute path with its signature as it is now, or as it was when the
    caller took its status, in a mapping. A missing file has None, so that its
    appearance is a change; a tree has ``"tree"``.

    Raises:
        UncacheableError: Something in *paths* is not a path.
    """
    known = paths if hasattr(paths, "keys") else {}
    found: dict[str, Dependency] = {}
    for path, item in absolute(paths):
        found[path] = TREE if isinstance(item, Tree) else _sign(path, known.get(item))
    return {"paths": found, "links": _links(found)} if found else {}


def follow(signed: dict[str, Any]) -> dict[str, Any]:
    """Return *signed* with the names that its files have by now as well.

    A link may have been pointed elsewhere while the work ran.
    """
    if not signed:
        return signed
    links = {path: list(names) for path, names in (signed["links"] or {}).items()}
    for path, names in (_links(signed["paths"]) or {}).items():
        links[path] = sorted({*names, *links.get(path, ())})
    return {"paths": signed["paths"], "links": links or None}


def _links(paths: dict[str, Dependency]) -> dict[str, list[str]] | None:
    found = {}
    for path in paths:
        _, *others = spellings(path)
        if others:
            found[path] = others
    return found or None


def _sign(path: str, status: os.stat_result | None) -> Dependency:
    if status is None:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
    return list(signature(status))


def absolute(
    paths: Any, base: str | None = None, place: str = "paths"
) -> Iterator[tuple[str, Any]]:
    """Yield each of *paths* made absolute, beside what it was.

    One path alone stands for itself: as an iterable it would be its letters.
    Relative ones start at *base*; None: the working folder. Links and ``..`` stay,
    since the path is what is looked at on each hit. *place* names *paths* in errors.
    """
    if isinstance(paths, (str, Tree)) or hasattr(paths, "__fspath__"):
        paths = [paths]
    elif not hasattr(paths, "__iter__"):
        raise UncacheableError(place, f"{paths!r} is no path; pass a str, a pathlib path or a Tree")
    for number, item in enumerate(paths):
        try:
            text = os.fspath(item.path if isinstance(item, Tree) else item)
            if type(text) is not str or not text or "\0" in text:
                raise TypeError
            text.encode()
        except (TypeError, UnicodeEncodeError):
            raise UncacheableError(
                f"{place}[{number}]", f"{item!r} is no path; pass a str, a pathlib path or a Tree"
            ) from None
        path = os.path.expanduser(text)
        # The working folder may be gone, which matters to relative paths only.
        if not os.path.isabs(path):
            path = os.path.join(os.getcwd() if base is None else base, path)
        yield path, item


def default_path() -> str:
    """Return where the cache lives that commands use: RESPCACHE_PATH, or the user's cache folder."""
    asked = os.environ.get("RESPCACHE_PATH")
    if asked:
        return os.path.abspath(os.path.expanduser(asked))
    from platformdirs import user_cache_path

    return str(user_cache_path("respcache") / "answers.json")


def is_unchanged(paths: dict[str, Dependency]) -> bool:
    """Tell whether each plain path still has the signature that was kept; about 2 us a path."""
    for path, kept in paths.items():
        if kept == TREE:
            continue
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            if kept is not None:
                return False
        else:
            if kept != list(signature(status)):
                return False
    return True


def spellings(path: str) -> list[str]:
    """Return the names of the absolute *path* that removals are held against, folded.

    As given, without dots, and with links resolved: any may be what is named
    later, and another may be where a link leads by then.
    """
    names = (path, os.path.normpath(path), os.path.realpath(path))
    return list(dict.fromkeys(fold(name.replace(os.sep, "/")) for name in names))


def repeatable(paths: Any) -> Any:
    """Return *paths* such that they can be gone through more than once."""
    is_one = isinstance(paths, (str, Tree)) or hasattr(paths, "__fspath__")
    return paths if is_one or hasattr(paths, "keys") else list(paths)
