"""One JSON document, rewritten whole by each commit: small caches that people open.

::

    {"respcache": 1, "limits": {"max_bytes": 268435456}, "complete": true,
    "removals": [{"id": "41c0...", "keys": []}],
    "entries": {
    "q//1f//hello": {"response": "Hi", "question": "Hello", ...},
    "q//1f//bye": {"response": "Ciao", "question": "Bye", ...}
    },
    "end": {"entries": 2, "bytes": 283}}

The last line counts the entries and the bytes before it. If it is right, the
file is as we wrote it: entries are found by their lines and parsed when asked
for. If not (edited by hand, cut off, damaged), the file is parsed whole.
"""

from __future__ import annotations

import os
from _thread import RLock

from .._atomic import KEEPS_OPEN, read, replace
from .._entry import Entry, from_form, from_line, key_of, line_start
from .._index import Index
from .._json import encode, scan
from .._lock import Descriptor
from .._paths import signature
from .._plan import Plan
from .._rules import Removal
from ..errors import StoreError
from . import FormatSwitched
from .file import FileStore, View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["DocumentStore", "parse_object", "salvage", "text_of", "version_of"]

_VERSION = 1
_MEMORY = 128  # removals that the header remembers
_HEAD = b'{"respcache": 1, '
LOG = b'{"respcache": 1, "log": true'
_ENTRIES = b'"entries": {\n'
_CLOSE = b"},\n"
_END = b'"end": '
_BOM = b"\xef\xbb\xbf"
_SPACE = " \t\r\n"

# Measured, 10,000 entries of 1 KB: a store takes 20 ms, a reload by others 10 ms.
_LARGE = 10_000_000  # bytes


class _Frame:
    """Where the entries of an intact document lie: whole lines of *data*."""

    __slots__ = ("count", "data", "start", "stop")

    def __init__(self, data: bytes, start: int, stop: int, count: int) -> None:
        self.data = data
        self.start = start
        self.stop = stop
        self.count = count

    def find(self, key: str) -> bytes | None:
        """Return the line of *key*, without looking into the others."""
        at = self.data.find(b"\n" + line_start(key), self.start - 1, self.stop)
        if at < 0:
            return None
        return _line_of(self.data[at + 1 : self.data.find(b"\n", at + 1) + 1])

    def fill(self, index: Index) -> tuple[bool, list[str]]:
        """Make *index* hold these lines; return whether all are whole, and what it no longer has.

        Most changes add lines at the end and take away some: the lines that it
        has already are compared, not read again. The last one has no comma, so
        it is always read.
        """
        data = self.data
        at = self.start
        last = data.rfind(b"\n", self.start - 1, self.stop - 1) + 1
        gone = []
        for key, line in index.items.items():
            if data.startswith(line, at, last):
                at += len(line)
            else:
                gone.append(key)
        for key in gone:
            index.drop(key)
        is_whole = True
        items = index.items
        for line in data[at : self.stop].splitlines(keepends=True):
            if not line.endswith(b",\n"):
                line = _line_of(line)
            try:
                key = key_of(line)
                # Paths come last and end in a bracket of their own, a ttl in a number.
                if line[-4] == 125 or b'"ttl"' in line[-40:]:
                    _add(index, from_line(key, line[:-2]))
                else:
                    items[key] = line
            except ValueError:
                is_whole = False
        index.bytes = sum(map(len, items.values())) - 2 * len(items)
        return is_whole and len(items) == self.count, gone


class _DocumentView(View):
    """A view that indexes its lines when a second question comes.

    A process with one question, such as a hook, finds its own line and leaves.

    Args:
        frame: Its lines.
        history: An index that knows what was removed, and no entries yet.
        before: The entries of an earlier view, and those of them that are decoded.
        facts: As for every view.
    """

    __slots__ = ("_before", "_filling", "_frame", "_has_answered")

    def __init__(
        self,
        frame: _Frame,
        history: Index,
        before: tuple[Index, dict[str, Entry], int] | None,
        **facts: Any,
    ) -> None:
        super().__init__(history, **facts)
        self._frame: _Frame | None = frame
        self._before = before
        self._has_answered = before is not None
        self._filling = RLock()

    @property
    def index(self) -> Index:
        if self._frame is not None:
            with self._filling:
                if self._frame is not None:
                    self._fill(self._frame)
        return self.history

    def _fill(self, frame: _Frame) -> None:
        decoded: dict[str, Entry] = {}
        if self._before is not None:
            entries, decoded, self.kept = self._before
            self.history.take_entries(entries)
            decoded = decoded.copy()
        is_whole, gone = frame.fill(self.history)
        for key in gone:
            decoded.pop(key, None)
        self.decoded = decoded
        self.is_corrupt |= not is_whole
        self._before = self._frame = None

    def before(self) -> tuple[Index, dict[str, Entry], int] | None:
        if self._frame is not None:
            return self._before
        return super().before()

    def _find(self, key: str) -> Entry | None:
        frame = self._frame
        if frame is None or self._has_answered:
            return self.index.get(key)
        self._has_answered = True
        line = frame.find(key)
        return None if line is None else _read(key, line)


class DocumentStore(FileStore):
    """The store of one ``.json`` document; see the module for its form."""

    _is_large = False

    def _blank(self) -> View:
        return View(_new_index())

    def _load(self) -> View:
        fd, status, data = read(self.path)
        file = _kept(fd)
        try:
            return self._view_of(data, signature=signature(status), file=file)
        except BaseException:
            if file is not None:
                file.close()
            raise

    def _view_of(self, data: bytes, **facts: Any) -> View:
        if not data or data.isspace():
            return View(_new_index(), **facts)
        if data.startswith(LOG):
            raise FormatSwitched("log")
        version = version_of(data)
        if version is not None and version > _VERSION:
            why = f"was written by a newer respcache (format {version}); upgrade to share it"
            return View(_new_index(), trouble=StoreError(self.path, why), **facts)
        if frame := _frame_of(data):
            history = _new_index()
            _take_header(history, _header_of(frame))
            return _DocumentView(frame, history, self._view.before(), **facts)
        index, is_whole = _parse(data)
        return View(index, is_corrupt=not is_whole, **facts)

    def _parts_of(self, index: Index) -> list[bytes]:
        """Return the bytes of the file that holds *index*, in order."""
        head = b'%s"limits": %s, "complete": %s,\n"removals": %s,\n%s' % (
            _HEAD,
            encode(index.limits),
            encode(index.is_complete),
            encode([removal.to_json() for removal in index.removals]),
            _ENTRIES,
        )
        lines = list(index.items.values())
        if lines:
            lines[-1] = lines[-1].removesuffix(b",\n") + b"\n"
        body = b"".join(lines)
        size = len(head) + len(body) + len(_CLOSE)
        end = b'%s{"entries": %d, "bytes": %d}}\n' % (_END, len(lines), size)
        return [head, body, _CLOSE + end]

    def _refer(self, entry: Entry) -> Any:
        """Return what the index holds of *entry*."""
        return (entry.line or b"") + b",\n"

    def _publish(self, view: View, plan: Plan, is_current: Callable[[], bool]) -> View | None:
        index = view.index.copy()
        if view.is_corrupt:
            for key in [key for key in index.items if index.get(key) is None]:
                index.drop(key)
            self._set_aside(view, len(index.items))
        plan.carry_out(index, self._refer)
        parts = self._parts_of(index)
        made = replace(
            self._target, parts, mode=self._mode, fsync=self._fsync, is_current=is_current
        )
        if made is None:
            return None
        fd, status = made
        self._tell_size(sum(map(len, parts)))
        return View(index, signature(status), None if fd is None else Descriptor(fd))

    def _tell_size(self, size: int) -> None:
        if size > _LARGE and not self._is_large:
            from logging import getLogger

            getLogger("respcache").warning(
                "%s: has grown to %.0f MB, and each store writes all of it anew, at 2 ms a "
                "megabyte or more; give topics files of their own, or set max_bytes",
                self._target,
                size / 1e6,
            )
        self._is_large = size > _LARGE


def _kept(fd: int) -> Descriptor | None:
    """Keep *fd* open, so that its inode number can't come back, where that is harmless."""
    if KEEPS_OPEN:
        return Descriptor(fd)
    os.close(fd)
    return None


def _line_of(line: bytes) -> bytes:
    """Return *line* as the index holds it, with the comma that the last one lacks."""
    return line if line.endswith(b",\n") else line.removesuffix(b"\n") + b",\n"


def _read(key: str, line: bytes) -> Entry | None:
    try:
        return from_line(key, line[:-2])
    except ValueError:
        return None


def _new_index() -> Index:
    return Index(_read, lambda line: len(line) - 2, _MEMORY)


def version_of(data: bytes) -> int | None:
    """Return the version that *data* claims, before anything else of it is judged."""
    head = data[:256].removeprefix(_BOM).translate(None, _SPACE.encode())
    digits = head.removeprefix(b'{"respcache":')
    if digits == head:
        return None
    number = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    return int(number) if number and digits[len(number) : len(number) + 1] in b",}" else None


def _frame_of(data: bytes) -> _Frame | None:
    """Return the frame of *data* if it is just as a writer left it."""
    at = data.rfind(_END)
    start = data.find(_ENTRIES) + len(_ENTRIES)
    if at < 0 or start < len(_ENTRIES) or not data.startswith(_HEAD):
        return None
    try:
        text = data[at + len(_END) :].decode()
        end, stop = scan(text)
    except ValueError:
        return None
    match end:
        case {"entries": int(count), "bytes": int(size)} if size == at and text[stop:] == "}\n":
            stop = at - len(_CLOSE)
            if data.startswith(_CLOSE, stop) and stop >= start:
                return _Frame(data, start, stop, count)
    return None


def _header_of(frame: _Frame) -> Any:
    try:
        return scan(frame.data[: frame.start].decode() + "}}")[0]
    except ValueError:
        return None


def _take_header(index: Index, header: Any) -> None:
    """Take over limits and removals; of a damaged header, that nothing is known."""
    match header:
        case {"limits": dict(limits), "complete": bool(is_complete), "removals": [*removals]}:
            index.limits = {
                name: limit for name, limit in limits.items() if type(limit) is int and limit > 0
            }
            index.removals = [Removal.from_json(each) for each in removals if type(each) is dict]
            index.is_complete = is_complete and len(index.removals) == len(removals)
        case _:
            index.is_complete = False


def _add(index: Index, entry: Entry) -> None:
    deadline = None if entry.ttl is None else entry.stored_at + entry.ttl
    line = (entry.line or b"").removesuffix(b",\n") + b",\n"
    index.add(entry.key, line, len(line) - 2, deadline, entry.touched())


def _parse(data: bytes) -> tuple[Index, bool]:
    """Return what can be read of a document that is not as we wrote it, and whether that is all.

    Raises:
        FormatSwitched: It is a flat file.
    """
    text = text_of(data)
    index = _new_index()
    document = parse_object(text)
    entries = document.get("entries") if document is not None else None
    is_whole = type(entries) is dict and version_of(data) == _VERSION
    if document is not None and type(document.get("respcache", "")) is str:
        texts = [type(value) is str for value in document.values()]
        if any(texts) and (all(texts) or "respcache" not in document):
            raise FormatSwitched("flat")
        is_whole = not document
    if type(entries) is dict:
        _take_header(index, document)
    else:
        entries = {} if is_whole else salvage(text)
    for key, form in entries.items():
        try:
            if key.count("/") < 4:
                raise ValueError("not a key")
            _add(index, from_form(key, form))
        except ValueError:
            is_whole = False
    index.is_complete &= is_whole
    return index, is_whole


def text_of(data: bytes) -> str:
    """Return *data* as text; an invalid byte becomes a lone surrogate, which no entry may hold."""
    return data.removeprefix(_BOM).decode(errors="surrogateescape").strip(_SPACE)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the one JSON object that *text* is, or None."""
    try:
        document, stop = scan(text)
    except ValueError:
        return None
    return document if type(document) is dict and stop == len(text) else None


def salvage(text: str) -> dict[str, Any]:
    """Return each ``"key": value`` that can be read of the damaged *text*."""
    found: dict[str, Any] = {}
    twice = set()
    at = text.find("{", max(text.find('"entries"'), 0)) + 1
    while at < len(text):
        at = _skip(text, at, _SPACE + ",")
        try:
            key, stop = scan(text, at)
            colon = _skip(text, stop, _SPACE)
            if type(key) is not str or text[colon : colon + 1] != ":":
                raise ValueError("no key")
            form, stop = scan(text, _skip(text, colon + 1, _SPACE))
        except ValueError:
            # Lost the thread: entries begin on lines of their own.
            at = text.find("\n", at) + 1
            if not at:
                break
            continue
        if key in found:
            twice.add(key)  # which of the two is the newer, nobody can tell
        found[key] = form
        at = stop
    return {key: form for key, form in found.items() if key not in twice}


def _skip(text: str, at: int, what: str) -> int:
    while at < len(text) and text[at] in what:
        at += 1
    return at
