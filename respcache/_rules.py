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
    kept, changed = kept.rstrip("/") or "/", changed.rstrip("/") or "/"
    return kept == changed or _below(kept, changed) or (is_tree and _below(changed, kept))


def _below(path: str, folder: str) -> bool:
    # "/" stands for all that there is, on systems with drives too.
    return folder == "/" or path.startswith(folder if folder.endswith("/") else folder + "/")


class Removal:
    """One commit that takes entries away, or hides them while a write runs, and what it touches.

    A write is two of them: ``begun`` hides what it touches, and an end takes
    that away, or lets it be seen again (``kept``).

    Args:
        id: The random name of this commit.
        keys: The keys of single entries.
        paths: Folded paths: whatever was read there.
        scope: The prefix of the keys of more entries.
        everything: All entries.
        kind: ``"removed"``, ``"begun"`` or ``"kept"``.
        ends: The id of the begun write that this ends.
        at: When a write began, in seconds since the epoch.
        mark: Names the file in which a begun write holds a byte.
    """

    __slots__ = (
        "at",
        "ends",
        "everything",
        "id",
        "keys",
        "kind",
        "mark",
        "paths",
        "scope",
        "taken",
    )

    def __init__(
        self,
        id: str,
        *,
        keys: Iterable[str] = (),
        paths: Iterable[str] = (),
        scope: str | None = None,
        everything: bool = False,
        kind: str = "removed",
        ends: str | None = None,
        at: float = 0.0,
        mark: str = "",
    ) -> None:
        self.id = id
        self.keys = frozenset(keys)
        self.paths = tuple(paths)
        self.scope = scope
        self.everything = everything
        self.kind = kind
        self.ends = ends
        self.at = at
        self.mark = mark
        self.taken = 0  # entries, as far as it was committed here

    def touches(self, key: str, paths: Iterable[tuple[str, bool]]) -> bool:
        """Tell whether the entry of *key*, read from *paths* (path, is_tree), is meant."""
        if self.everything or key in self.keys:
            return True
        if self.scope is not None and key.startswith(self.scope):
            return True
        return any(
            meets(kept, is_tree, changed) for changed in self.paths for kept, is_tree in paths
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form that files keep."""
        form: dict[str, Any] = {"id": self.id}
        if self.everything:
            form["all"] = True
        if self.scope is not None:
            form["scope"] = self.scope
        if self.paths:
            form["paths"] = list(self.paths)
        if self.keys or len(form) == 1:
            form["keys"] = sorted(self.keys)
        if self.kind != "removed":
            form["kind"] = self.kind
        if self.ends is not None:
            form["ends"] = self.ends
        if self.kind == "begun":
            form["at"] = self.at
            form["mark"] = self.mark
        return form

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Removal:
        """Return the removal of *form*; one that this version can't read takes everything."""
        match {**_DEFAULTS, **form}:
            case {
                "id": str(id),
                "keys": [*keys],
                "paths": [*paths],
                "scope": str() | None as scope,
                "all": False,
                "kind": "removed" | "begun" | "kept" as kind,
                "ends": str() | None as ends,
                "at": int() | float() as at,
                "mark": str(mark),
            } if (
                form.keys() <= _DEFAULTS.keys()
                and form.keys() & {"keys", "paths", "scope"}
                and all(isinstance(each, str) for each in (*keys, *paths))
            ):
                return cls(
                    id,
                    keys=keys,
                    paths=paths,
                    scope=scope,
                    kind=kind,
                    ends=ends,
                    at=at,
                    mark=mark,
                )
        return cls(str(form.get("id")), everything=True)


_DEFAULTS: dict[str, Any] = {
    "id": None,
    "keys": [],
    "paths": [],
    "scope": None,
    "all": False,
    "kind": "removed",
    "ends": None,
    "at": 0.0,
    "mark": "",
}
