"""Pure rules of forgetting: what is still fresh, what a removal touches.

No I/O, no clock, no lock: every store decides by these, and a test needs
nothing but values.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["LONGEST", "TREE", "Removal", "fold", "is_fresh", "is_past", "meets", "stricter"]

LONGEST = 1e15  # seconds; beyond, a float no longer tells one from the next
TREE = "tree"  # stands in an entry where a plain path has its signature


def stricter(one: float | None, other: float | None) -> float | None:
    """Return the smaller limit; None is no limit."""
    if one is None:
        return other
    return one if other is None or one < other else other


def is_fresh(stored_at: float, ttl: float | None, now: float) -> bool:
    """Tell whether an entry may be served at *now*; all in seconds.

    Expired when age >= ttl. An age below zero (a clock that was set back, or a
    stamp from the future) proves nothing, so with a ttl it is not fresh.
    """
    return ttl is None or 0 <= now - stored_at < ttl


def is_past(stored_at: float, ttl: float | None, now: float) -> bool:
    """Tell whether an entry has reached the end of its life, and may be taken out."""
    return ttl is not None and stored_at + ttl <= now


def fold(path: str) -> str:
    """Return *path* as it is compared: over-erasing is safe, missing a spelling never is."""
    return path.casefold()


def meets(kept: str, is_tree: bool, changed: str) -> bool:
    """Tell whether a change at *changed* touches what was read at *kept*.

    It does if they are equal, if *kept* lies below *changed*, and, where
    *kept* stands for everything below it, if *changed* lies below *kept*.
    Both are folded absolute paths with ``/``.
    """
    return kept == changed or _below(kept, changed) or (is_tree and _below(changed, kept))


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")


class Removal:
    """One commit that took entries away, and what it touches.

    Exactly one of *keys*, *paths*, *scope* and *everything* is set.

    Args:
        id: The random name of this commit.
        keys: The keys of single entries.
        paths: Folded paths: whatever was read there is gone.
        scope: The prefix of keys that is gone.
        everything: All entries are gone.
    """

    __slots__ = ("everything", "id", "keys", "paths", "scope", "taken")

    def __init__(
        self,
        id: str,
        *,
        keys: Iterable[str] = (),
        paths: Iterable[str] = (),
        scope: str | None = None,
        everything: bool = False,
    ) -> None:
        self.id = id
        self.keys = frozenset(keys)
        self.paths = tuple(paths)
        self.scope = scope
        self.everything = everything
        self.taken = 0  # entries, as far as it was committed here

    def touches(self, key: str, paths: Iterable[tuple[str, bool]]) -> bool:
        """Tell whether the entry of *key*, read from *paths* (path, is_tree), is gone."""
        if self.everything or key in self.keys:
            return True
        if self.scope is not None:
            return key.startswith(self.scope)
        return any(
            meets(kept, is_tree, changed) for changed in self.paths for kept, is_tree in paths
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form that files keep."""
        if self.everything:
            return {"id": self.id, "all": True}
        if self.scope is not None:
            return {"id": self.id, "scope": self.scope}
        if self.paths:
            return {"id": self.id, "paths": list(self.paths)}
        return {"id": self.id, "keys": sorted(self.keys)}

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Removal:
        """Return the removal of *form*; one that this version can't read touches everything."""
        match form:
            case {"id": str(id), "scope": str(scope)}:
                return cls(id, scope=scope)
            case {"id": str(id), "paths": [*paths]} if all(isinstance(p, str) for p in paths):
                return cls(id, paths=paths)
            case {"id": str(id), "keys": [*keys]} if all(isinstance(k, str) for k in keys):
                return cls(id, keys=keys)
        return cls(str(form.get("id")), everything=True)
