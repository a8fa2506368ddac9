"""docker-agent's file: one flat ``{"question": "response"}`` object.

Read and written so that both programs can share it. It has no place for ages,
contexts, namespaces, paths or commits: all but the ages are errors here, a ttl
never hits, and nothing guards work in flight. The text is as Go's encoder
writes it: two spaces, keys sorted, ``<``, ``>`` and ``&`` escaped.
"""

from __future__ import annotations

import math

from .._entry import Entry
from .._index import REFUSED, Index, Put
from .._json import quote
from ..errors import StoreError, UncacheableError
from . import FormatSwitched
from .document import DocumentStore, parse_object, salvage, text_of
from .file import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._plan import Plan

__all__ = ["FlatStore"]

_GO = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


class FlatStore(DocumentStore):
    """The store of one flat file.

    Args:
        path: The absolute path of the file.
        is_asked_for: Whether the caller named this format; then a document at
            the path is an error, not a reason to switch.
        options: As for every file store.
    """

    is_flat = True

    def __init__(self, path: str, *, is_asked_for: bool = False, **options: Any) -> None:
        self._is_asked_for = is_asked_for
        super().__init__(path, **options)

    def put(self, puts: Sequence[Put], *, renew: bool = False) -> list[str]:
        for put in puts:
            entry = put.entry
            for name, value in (("context", entry.context), ("paths", entry.paths)):
                if value is not None:
                    raise UncacheableError(
                        f"$.{name}", f"a flat file has no place for it; {_REMEDY}"
                    )
            if type(entry.value) is not str:
                raise UncacheableError("$", f"a flat file holds text only; {_REMEDY}")
        # Without its age an entry would outlive its ttl for everybody else.
        lasting = [put for put in puts if put.entry.ttl is None]
        if len(lasting) < len(puts):
            why = "is a flat file, which keeps no ages: what has a ttl is neither kept nor served"
            self._warn(StoreError(self.path, why))
        fates = iter(super().put(lasting, renew=renew) if lasting else ())
        return [REFUSED if put.entry.ttl is not None else next(fates) for put in puts]

    def _size(self, entry: Entry) -> int:
        return len(entry.key.encode()) + len(entry.value.encode())

    def _refer(self, entry: Entry) -> Any:
        return entry.value, self._size(entry)

    def _blank(self) -> View:
        return View(_new_index())

    def _view_of(self, data: bytes, **facts: Any) -> View:
        index = _new_index()
        text = text_of(data)
        if not text:
            return View(index, **facts)
        found = parse_object(text)
        if found is not None and "respcache" in found and type(found["respcache"]) is not str:
            if not self._is_asked_for:
                raise FormatSwitched("document")
            why = 'holds a respcache document; leave out format="flat"'
            return View(index, trouble=StoreError(self.path, why), **facts)
        is_whole = found is not None
        for key, value in (salvage(text, bool) if found is None else found).items():
            try:
                size = len(key.encode()) + len(value.encode())
            except (AttributeError, UnicodeEncodeError):
                is_whole = False
            else:
                index.add(key, (value, size), size)
        return View(index, is_corrupt=not is_whole, **facts)

    def _parts_of(self, index: Index, view: View, plan: Plan) -> tuple[list[bytes], int]:
        lines = [
            f"  {quote(key)}: {quote(value)}".translate(_GO)
            for key, (value, _) in sorted(index.items.items())
        ]
        return ["\n".join(("{", ",\n".join(lines), "}")).encode() if lines else b"{}"], 0


_REMEDY = "a respcache document (any other .json file) takes it"


def _new_index() -> Index:
    return Index(_read, lambda reference: reference[1], memory=0)


def _read(key: str, reference: tuple[str, int]) -> Entry:
    # The text is its own id: a put is overtaken if it changed meanwhile. An age
    # that is no number is never below a ttl.
    value = reference[0]
    return Entry(key, key, value, raw=None, id=value, stored_at=math.nan)
