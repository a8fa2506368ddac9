"""One JSON document, rewritten whole by each commit: small caches that people open.

::

    {"respcache": 1, "limits": {"max_bytes": 268435456}, "complete": true,
    "removals": [{"id": "41c0...", "keys": []}],
    "entries": {
    "q//1f//hello": {"response": "Hi", "question": "Hello", ...},
    "q//1f//bye": {"response": "Ciao", "question": "Bye", ...}
    },
    "end": {"entries": 2, "bytes": 283, "sum": "000000015e1f20aa"}}

The last line counts the entries and the bytes before it, and has their checksum.
If it is right, the file is as we wrote it: entries are found by their lines and
parsed when asked for. If not (edited by hand, cut off, damaged), the file is
parsed whole. One question alone does without the checksum.
"""

from __future__ import annotations

import os
from _thread import RLock
from binascii import crc32

from .._atomic import KEEPS_OPEN, read, replace
from .._entry import Entry, from_form, from_line, key_of, line_start
from .._index import Index
from .._json import encode, scan
from .._lock import Descriptor
from .._paths import signature
from .._rules import Removal
from ..errors import StoreError, UncacheableError
from . import FormatSwitched
from .file import BOM, SPACE, FileStore, View, is_log, version_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .._plan import Plan

    _Before = tuple[Index, int, dict[str, Entry], int]

__all__ = ["DocumentStore", "parse_object", "salvage", "text_of"]

_VERSION = 1
_MEMORY = 128  # removals that the header remembers
_HEAD = b'{"respcache": 1, '
_ENTRIES = b'"entries": {\n'
_CLOSE = b"},\n"
_END = b'"end": '

# Measured, 10,000 entries of 1 KB: a store takes 25 ms, a reload by others 15 ms.
_LARGE = 10_000_000  # bytes


class _Frame:
    """Where the entries of a document that looks intact lie: whole lines of *data*."""

    __slots__ = ("count", "data", "start", "stop", "sum")

    def __init__(self, data: bytes, start: int, stop: int, count: int, sum: str) -> None:
        self.data = data
        self.start = start
        self.stop = stop
        self.count = count
        self.sum = sum

    @property
    def head(self) -> bytes:
        """What stands before the entries."""
        return self.data[: self.start]

    def find(self, key: str) -> bytes | None:
        """Return the line of *key*, without looking into the others."""
        at = self.data.find(b"\n" + line_start(key), self.start - 1, self.stop)
        if at < 0:
            return None
        return _line_of(self.data[at + 1 : self.data.find(b"\n", at + 1) + 1])

    def fill(self, index: Index, sum: int) -> tuple[int, list[str]]:
        """Make *index* hold these lines; return their sum, and the keys it no longer has.

        Most changes add lines at the end and take away some: the lines that it
        has already are compared, not read again. The last one has no comma, so
        it is always read.

        Args:
            index: What was known before.
            sum: The sum of that.

        Raises:
            ValueError: It is not intact after all.
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
                sum -= crc32(line)
        for key in gone:
            index.drop(key)
        items = index.items
        lines = data[at : self.stop].splitlines(keepends=True)
        if lines:
            lines[-1] = _line_of(lines[-1])
        sum += _sum_of(lines)
        if _seal(self.head, sum) != self.sum:
            raise ValueError("not as it was written")
        for line in lines:
            key = key_of(line)
            # Paths come last and end in a bracket of their own, a ttl in a number.
            if line[-4] == 125 or b'"ttl"' in line[-40:]:
                _add(index, from_line(key, line[:-2]))
            else:
                items[key] = line
        if len(items) != self.count:
            raise ValueError("a key stands twice")
        index.bytes = _bytes_of(items.values())
        return sum, gone


class _View(View):
    """A view of a document, which knows the sum of its lines."""

    __slots__ = ("sum",)

    def __init__(self, index: Index, *, sum: int = 0, **facts: Any) -> None:
        super().__init__(index, **facts)
        self.sum = sum

    def before(self) -> _Before | None:
        """Return what a later view can start from."""
        if not self.history.items or self.is_corrupt:
            return None
        return self.history, self.sum, self.decoded, self.kept


class _FramedView(_View):
    """A view that indexes its lines when a second question comes.

    A process with one question, such as a hook, finds its own line and leaves.

    Args:
        frame: Its lines.
        history: An index that knows what was removed, and no entries yet.
        before: The entries of an earlier view with their sum, and those of them
            that are decoded.
        facts: As for every view.
    """

    __slots__ = ("_answered", "_before", "_filling", "_frame")

    def __init__(self, frame: _Frame, history: Index, before: _Before | None, **facts: Any) -> None:
        super().__init__(history, **facts)
        self._frame: _Frame | None = frame
        self._before = before
        self._answered = before is not None
        self._filling = RLock()

    @property
    def index(self) -> Index:
        if self._frame is not None:
            with self._filling:
                if self._frame is not None:
                    self._fill(self._frame)
        return self.history

    def _fill(self, frame: _Frame) -> None:
        history = self.history
        decoded: dict[str, Entry] = {}
        sum = 0
        if self._before is not None:
            entries, sum, decoded, self.kept = self._before
            history.take_entries(entries)
            decoded = decoded.copy()
        try:
            self.sum, gone = frame.fill(history, sum)
        except ValueError:
            # Edited by hand at the same length, or damaged: read as such.
            try:
                index, is_whole = _parse(frame.data)
            except (_Newer, FormatSwitched):  # it says one thing at its start and another later
                index, is_whole = _new_index(), False
            history.take_entries(index)
            history.limits, history.removals = index.limits, index.removals
            history.open = index.open
            history.is_complete = index.is_complete
            self.is_corrupt = not is_whole
            self.sum = _sum_of(history.items.values())
            decoded, gone = {}, []
        for key in gone:
            decoded.pop(key, None)
        self.decoded = decoded
        self._before = self._frame = None

    def before(self) -> _Before | None:
        return super().before() if self._frame is None else self._before

    def _find(self, key: str) -> Entry | None:
        frame = self._frame
        if frame is None or self._answered:
            return self.index.get(key)
        self._answered = True
        line = frame.find(key)
        return None if line is None else _read(key, line)


class DocumentStore(FileStore):
    """The store of one ``.json`` document; see the module for its form."""

    _is_large = False

    def _blank(self) -> View:
        return _View(_new_index())

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
            return _View(_new_index(), **facts)
        if is_log(data[:65_536]) or is_log(data[-128:]):
            raise FormatSwitched("log")
        version = version_of(data)
        if version == _VERSION and (frame := _frame_of(data)):
            history = _new_index()
            _take_header(history, _header_of(frame))
            before = self._view.before() if isinstance(self._view, _View) else None
            return _FramedView(frame, history, before, **facts)
        if version is None or version <= _VERSION:
            try:
                index, is_whole = _parse(data)
                sum = _sum_of(index.items.values())
                return _View(index, sum=sum, is_corrupt=not is_whole, **facts)
            except _Newer as newer:
                version = newer.version
        why = f"was written by a newer respcache (format {version}); upgrade to share it"
        return _View(_new_index(), trouble=StoreError(self.path, why), **facts)

    def _parts_of(self, index: Index, view: View, plan: Plan) -> tuple[list[bytes], int]:
        """Return the bytes of the file that holds *index*, in order, and the sum of its lines."""
        head = b'%s"limits": %s, "complete": %s,\n"removals": %s,\n' % (
            _HEAD,
            encode(index.limits),
            encode(index.is_complete),
            encode([removal.to_json() for removal in index.removals]),
        )
        if index.open:
            head += b'"open": %s,\n' % encode([each.to_json() for each in index.open.values()])
        head += _ENTRIES
        lines = list(index.items.values())
        if isinstance(view, _View) and not view.is_corrupt:
            old = view.history.items
            sum = view.sum - _sum_of(old[key] for key in plan.drops)
            sum += _sum_of(index.items[key] for key in plan.adds)
        else:
            sum = _sum_of(lines)
        if lines:
            lines[-1] = lines[-1].removesuffix(b",\n") + b"\n"
        body = b"".join(lines)
        size = len(head) + len(body) + len(_CLOSE)
        facts = (_END, len(lines), size, _seal(head, sum).encode())
        end = b'%s{"entries": %d, "bytes": %d, "sum": "%s"}}\n' % facts
        return [head, body, _CLOSE + end], sum

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
        parts, sum = self._parts_of(index, view, plan)
        made = replace(
            self._target, parts, mode=self._mode, fsync=self._fsync, is_current=is_current
        )
        if made is None:
            return None
        fd, status = made
        self._tell_size(len(parts[0]) + index.bytes)
        file = None if fd is None else Descriptor(fd)
        return _View(index, sum=sum, signature=signature(status), file=file)

    def _tell_size(self, size: int) -> None:
        if size > _LARGE and not self._is_large:
            from logging import getLogger

            getLogger("respcache").warning(
                "%s: has grown to %.0f MB, and each store writes all of it anew, at 2 ms a "
                "megabyte or more; a log (name it .jsonl, and merge this file) does not",
                self._target,
                size / 1e6,
            )
        self._is_large = size > _LARGE


def _sum_of(lines: Iterable[bytes]) -> int:
    """Return the sum of the lines' checksums, to which one can be added or taken from.

    A checksum of all bytes would be made anew by each replacement, at 1 ms a
    megabyte, for protecting the order of the lines as well.
    """
    return sum(map(crc32, lines))


def _seal(head: bytes, sum: int) -> str:
    """Return what the end mark says of a header and of the sum of the lines."""
    return f"{(crc32(head) + sum) % 2**64:016x}"


def _bytes_of(lines: Iterable[bytes]) -> int:
    return sum(len(line) - 2 for line in lines)


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
        case {"entries": int(count), "bytes": int(size), "sum": str(sum)} if (
            size == at and text[stop:] == "}\n"
        ):
            stop = at - len(_CLOSE)
            if data.startswith(_CLOSE, stop) and stop >= start:
                return _Frame(data, start, stop, count, sum)
    return None


def _header_of(frame: _Frame) -> Any:
    try:
        return scan(frame.head.decode() + "}}")[0]
    except ValueError:
        return None


def _take_header(index: Index, header: Any) -> bool:
    """Take over limits and removals; of a damaged header, that nothing is known."""
    match header:
        case {"limits": dict(limits), "complete": bool(is_complete), "removals": [*removals]}:
            index.limits = {
                name: limit
                for name, limit in limits.items()
                if name in ("max_entries", "max_bytes") and type(limit) is int and limit > 0
            }
            try:
                encode(removals)
            except UncacheableError:
                removals = [None]
            index.removals = [Removal.from_json(each) for each in removals if type(each) is dict]
            writes = header.get("open", [])
            forms = [each for each in writes if type(each) is dict] if type(writes) is list else []
            for begun in map(Removal.from_json, forms):
                index.open[begun.id] = begun
            is_whole = len(index.removals) == len(removals) and len(index.limits) == len(limits)
            index.is_complete = is_complete and is_whole
            return is_whole
    index.is_complete = False
    return False


def _add(index: Index, entry: Entry) -> None:
    deadline = None if entry.ttl is None else entry.stored_at + entry.ttl
    line = (entry.line or b"").removesuffix(b",\n") + b",\n"
    index.add(entry.key, line, len(line) - 2, deadline, entry.touched())


class _Newer(Exception):  # noqa: N818 - says what was found
    """The document is of a newer version."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def _parse(data: bytes) -> tuple[Index, bool]:
    """Return what can be read of a document that is not as we wrote it, and whether that is all.

    Raises:
        FormatSwitched: It is a flat file.
        _Newer: It is of a newer version.
    """
    text = text_of(data)
    index = _new_index()
    document = parse_object(text)
    entries: Any
    if document is None:
        entries, is_whole = salvage(text, _is_key), False
        if not entries and '"respcache"' not in text[:256]:
            texts = [type(value) is str for value in salvage(text, bool).values()]
            if any(texts):
                raise FormatSwitched("flat")
    else:
        version = document.get("respcache", "")
        if type(version) is str:
            texts = [type(value) is str for value in document.values()]
            if any(texts) and (all(texts) or not version):
                raise FormatSwitched("flat")
        if type(version) is int and version > _VERSION:
            raise _Newer(version)
        entries = document.get("entries") if document else {}
        is_whole = type(version) is int and version == _VERSION and type(entries) is dict
        is_whole &= _take_header(index, document) and _is_utf8(text)
        if not document:
            is_whole = True  # an empty object is an empty cache
        if type(entries) is not dict:
            entries = salvage(text, _is_key)
    for key, form in entries.items():
        try:
            if not _is_key(key):
                raise ValueError("not a key")
            _add(index, from_form(key, form))
        except ValueError:
            is_whole = False
    index.is_complete &= is_whole
    return index, is_whole


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_key(key: str) -> bool:
    return key.count("/") >= 4


def text_of(data: bytes) -> str:
    """Return *data* as text; an invalid byte becomes a lone surrogate, which no entry may hold."""
    return data.removeprefix(BOM).decode(errors="surrogateescape").strip(SPACE)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the one JSON object that *text* is, or None."""
    try:
        document, stop = scan(text)
    except ValueError:
        return None
    return document if type(document) is dict and stop == len(text) else None


def salvage(text: str, is_key: Callable[[str], bool]) -> dict[str, Any]:
    """Return each ``"key": value`` that can be read of the damaged *text*.

    Args:
        text: What is left of an object.
        is_key: Tells a key of what is looked for. The values of others are
            looked into.
    """
    found: dict[str, Any] = {}
    twice = set()
    at = 0
    while at < len(text):
        at = _skip(text, at, SPACE + ",{}")
        try:
            key, stop = scan(text, at)
            colon = _skip(text, stop, SPACE)
            if type(key) is not str or text[colon : colon + 1] != ":":
                raise ValueError("no key")
            start = _skip(text, colon + 1, SPACE)
            if not is_key(key) and text[start : start + 1] == "{":
                at = start + 1
                continue
            form, at = scan(text, start)
        except ValueError:
            # Lost the thread: entries begin on lines of their own.
            at = text.find("\n", at) + 1
            if not at:
                break
            continue
        if key in found and found[key] != form:
            twice.add(key)  # which of the two is the newer, nobody can tell
        if is_key(key):
            found[key] = form
    return {key: form for key, form in found.items() if key not in twice}


def _skip(text: str, at: int, what: str) -> int:
    while at < len(text) and text[at] in what:
        at += 1
    return at
