"""Which entries were read from where: a change finds them without a look at all others."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["PathIndex"]

_FILE, _TREE = 0, 1  # beside the names of folders, which are texts


class PathIndex:
    """Keys by the folded paths that their entries were read from: a folder in a folder in a dict.

    Finds just what :func:`~respcache._rules.meets` tells of each pair, in the
    time that a path's length and the number of finds ask for.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: dict[Any, Any] = {}

    def add(self, key: str, paths: Iterable[tuple[str, bool]]) -> None:
        """Note that the entry of *key* was read from *paths* (path, is_tree)."""
        for path, is_tree in paths:
            folder = self._root
            for name in _names(path):
                folder = folder.setdefault(name, {})
            folder.setdefault(_TREE if is_tree else _FILE, {})[key] = None

    def remove(self, key: str, paths: Iterable[tuple[str, bool]]) -> None:
        """Forget what :meth:`add` has noted."""
        # Two spellings can be one here, with and without a slash at the end.
        for names, is_tree in {(tuple(_names(path)), is_tree) for path, is_tree in paths}:
            way = [self._root]
            for name in names:
                way.append(way[-1][name])
            kind = _TREE if is_tree else _FILE
            del way[-1][kind][key]
            if not way[-1][kind]:
                del way[-1][kind]
            for name in reversed(names):
                if way.pop():
                    break
                del way[-1][name]

    def touched(self, changed: str) -> list[str]:
        """Return the keys of the entries that a change of the path *changed* touches."""
        found: dict[str, None] = {}
        folder = self._root
        for name in _names(changed):
            found.update(folder.get(_TREE, {}))
            if name not in folder:
                return list(found)
            folder = folder[name]
        below = [folder]
        while below:
            for name, inner in below.pop().items():
                if name in (_FILE, _TREE):
                    found.update(inner)
                else:
                    below.append(inner)
        return list(found)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
