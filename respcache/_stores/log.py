"""JSON Lines, one commit appended after the other: many entries, busy writers.

::

    {"respcache": 1, "log": true}
    {"removed": {"id": "41c0...", "keys": []}, "last": "000000000000", "sum": "5e1f20aa"}
    {"q//1f//hello": {"response": "Hi", ...}, "last": "00000000001e", "sum": "0f3c7d42"}

Bytes once written never change. Each line has a checksum and points back at the
last line before it that took something away; ``more`` instead of ``last`` says that
the commit goes on in the next line, and counts only once its last line is there.

A reader takes whole lines only. A writer ends a torn tail with a mark, by which
all pass it. Any other bad line stops readers: what it replaced or took away is
unknown, so the next writer, under the lock, forgets it and all before it.
"""

from __future__ import annotations

import os
from _thread import RLock
from binascii import crc32

from .._atomic import APPEND, READ, Replacement, sync_data, write
from .._entry import Entry, from_line, key_of, line_start
from .._index import Index, Ticket
from .._json import encode, scan
from .._lock import Descriptor
from .._paths import signature
from .._plan import Plan
from .._rules import Removal
from ..errors import StoreError
from . import FormatSwitched
from .document import LOG, is_log, version_of
from .file import FileStore, View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

__all__ = ["LogStore"]

_VERSION = 1
_MEMORY = 1024  # removals that are remembered
_TORN = b"#torn\n"
_TRAILER = len(b', "last": "000000000000", "more": "00000000", "sum": "00000000"}\n')
_SUM = len(b', "sum": "00000000"}\n')
_CHUNK = 1 << 23  # bytes that are indexed at a time
_FLOOR = 1 << 20  # bytes below which a log is not compacted
_STEP = 1 << 18  # bytes that a cold look reads at a time, from the end
_SEAM = 64  # bytes that must still be there before what comes after them is read
_NONE = (0, 0, 0, 0, 0)  # the signature of no file
_SHIFT = 32  # a reference is an offset and a length in one int


def _seal(body: bytes, last: int, more: int) -> bytes:
    """Return *body*, the inside of a line, as a line.

    Args:
        body: What it says.
        last: Where the last line before it is that took something away; 0: none is.
        more: How many bytes further the last line of its commit begins.
    """
    line = b'{%s, "last": "%012x", "more": "%08x"' % (body, last, more)
    return b'%s, "sum": "%08x"}\n' % (line, crc32(line))


def _is_whole(line: bytes) -> bool:
    """Tell whether the checksum of *line* is right."""
    mark = len(line) - _SUM
    return mark > 0 and line[mark:] == b', "sum": "%08x"}\n' % crc32(line[:mark])


def _more(line: bytes) -> int:
    return int(line[-_SUM - 9 : -_SUM - 1], 16)


def _last(line: bytes) -> int:
    return int(line[-_TRAILER + 11 : -_TRAILER + 23], 16)


def _body(line: bytes) -> bytes:
    return line[1:-_TRAILER]


def _takes_away(line: bytes) -> bool:
    return line.startswith((b'{"removed": ', b'{"dropped": '))


class _Unclear(Exception):  # noqa: N818 - says that a quick look can't tell
    """The end of a log is not as a writer leaves it; it must be read from its start."""


class _Reader:
    """Read lines of one file at their places.

    Apart from the view, whose index holds it: with the view itself in there, a
    descriptor would stay open until the garbage is collected.
    """

    __slots__ = ("_mutex", "file")

    def __init__(self, file: Descriptor) -> None:
        self.file = file
        self._mutex = RLock()

    def pread(self, length: int, offset: int) -> bytes:
        """Return *length* bytes at *offset*, or fewer at the end."""
        if not hasattr(os, "pread"):  # Windows
            with self._mutex:
                os.lseek(self.file.fd, offset, os.SEEK_SET)
                return os.read(self.file.fd, max(length, 0))
        parts = []
        while length > 0 and (part := os.pread(self.file.fd, length, offset)):
            parts.append(part)
            length -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def line(self, reference: int) -> bytes:
        """Return the line at *reference*."""
        return self.pread(reference & (1 << _SHIFT) - 1, reference >> _SHIFT)

    def entry(self, key: str, reference: int) -> Entry | None:
        """Return the entry at *reference*, or None if it is damaged by now."""
        line = self.line(reference)
        return _entry_of(key, line) if _is_whole(line) else None


class _LogView(View):
    """What has been read of one log; it grows in place as the file does.

    A process with one question finds its line from the end, without reading
    the others; from the second on, all lines are indexed by place and length.

    Args:
        index: Its entries, none yet, with what the header says.
        start: Where its first commit begins.
        size: How long it was when it was looked at.
        facts: As for every view.
    """

    __slots__ = (
        "_answered",
        "end",
        "is_filled",
        "last",
        "reader",
        "seam",
        "seen",
        "size",
        "start",
    )

    def __init__(
        self, index: Index, *, file: Descriptor, start: int, size: int, **facts: Any
    ) -> None:
        super().__init__(index, file=file, **facts)
        self.reader = _Reader(file)
        index.read = self.reader.entry
        self.start = self.end = start
        self.size = size
        self.last = 0
        self.seam = b""
        self.is_filled = False
        self.seen = self.signature
        self._answered: str | None = None

    # Reading at a place.

    def pread(self, length: int, offset: int) -> bytes:
        """Return *length* bytes at *offset*, or fewer at the end."""
        return self.reader.pread(length, offset)

    def line_at(self, offset: int) -> bytes:
        """Return the whole line that begins at *offset*.

        Raises:
            _Unclear: There is none.
        """
        line = b""
        while b"\n" not in line:
            part = self.pread(4096 if not line else len(line), offset + len(line))
            if not part:
                raise _Unclear
            line += part
        line = line[: line.index(b"\n") + 1]
        if not _is_whole(line):
            raise _Unclear
        return line

    # One answer, from the end.

    def get(self, key: str) -> Entry | None:
        if self.is_cold_for(key):
            self._answered = key
            try:
                return self._seek(key)
            except _Unclear:
                pass
        entry = self.decoded.get(key)
        if entry is not None:
            return entry
        items = self.index.items
        reference = items.get(key)
        entry = None if reference is None else self.reader.entry(key, reference)
        if entry is not None:
            self.keep(key, entry)
            # A line that came meanwhile dropped what was decoded before it.
            if items.get(key) != reference:
                self.decoded.pop(key, None)
        return entry

    def is_cold_for(self, key: str) -> bool:
        """Tell whether *key* is the only thing that was ever asked."""
        return not self.is_filled and (self._answered is None or self._answered == key)

    def lines(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of whole commits between *start* and *stop*, with their places."""
        group: list[tuple[int, bytes]] = []
        for line in self.pread(stop - start, start).splitlines(keepends=True):
            if line.endswith(_TORN):
                group = []
            else:
                group.append((start, line))
                if not _more(line):
                    yield from group
                    group = []
            start += len(line)

    def ends_well(self) -> bool:
        """Tell whether the last line is whole and ends its commit."""
        if self.pread(1, self.size - 1) != b"\n":
            return False
        newest = self._line_before(self.size)
        if newest < self.start:
            return True  # nothing but the header
        try:
            line = self.line_at(newest)
        except _Unclear:
            return False
        self.last = newest if _takes_away(line) else _last(line)
        return not _more(line)

    def is_wasteful(self) -> bool:
        """Tell whether more than half of the file is dead."""
        if not self.is_filled or self.size < _FLOOR:
            return False
        live = self.history.bytes + (1 + _TRAILER) * len(self.history.items)
        return live * 2 < self.size

    def body_at(self, reference: int) -> bytes:
        """Return what the line at *reference* says."""
        return _body(self.reader.line(reference))

    def _seek(self, key: str) -> Entry | None:
        whole = self._backwards(b"\n", self.size)
        if whole < self.start:
            return None
        whole += 1
        newest = self._line_before(whole)
        needle = b"\n{" + line_start(key)
        at = self._backwards(needle, whole)
        while at >= 0:
            offset = at + 1
            line = self.line_at(offset)
            more = _more(line)
            if offset + more < whole:
                if more and _more(self.line_at(offset + more)):
                    raise _Unclear
                entry = _entry_of(key, line)
                return entry if entry and self._outlives(entry, offset, newest, whole) else None
            at = self._backwards(needle, offset)
        return None

    def _line_before(self, whole: int) -> int:
        """Return where the line begins that ends at *whole*."""
        return self._backwards(b"\n", whole - 1) + 1

    def _outlives(self, entry: Entry, offset: int, newest: int, whole: int) -> bool:
        """Tell whether no line after *offset* takes *entry* away."""
        line = self.line_at(newest)
        if _more(line):
            raise _Unclear
        at = newest if _takes_away(line) else _last(line)
        paths = entry.touched()
        while at > offset:
            line = self.line_at(at)
            for kind, what in _says(line):
                if kind == "removed" and Removal.from_json(what).touches(entry.key, paths):
                    return False
                if kind == "dropped" and entry.key in what:
                    return False
            at = _last(line)
        return True

    def _backwards(self, what: bytes, end: int) -> int:
        """Return the last place before *end* where *what* begins and ends, or -1."""
        while end > 0:
            start = max(end - _STEP, 0)
            found = self.pread(end - start, start).rfind(what)
            if found >= 0:
                return start + found
            if not start:
                break
            end = start + len(what) - 1
        return -1

    # All lines, as they come.

    @property
    def index(self) -> Index:
        if not self.is_filled:
            self.catch_up(self.size)
        return self.history

    def catch_up(self, size: int) -> None:
        """Index the whole lines up to *size*. Called by one thread at a time."""
        step = _CHUNK
        while self.end < size:
            data = self.pread(min(step, size - self.end), self.end)
            done = self._take_lines(data)
            if not done and self.end + len(data) >= size:
                break  # the last line is still being written
            step = _CHUNK if done else step * 2  # one commit may be larger than a chunk
        self.size = size
        self.is_filled = True
        if self.is_corrupt:
            self.signature = _NONE

    def _take_lines(self, data: bytes) -> int:
        """Index the whole commits at the start of *data*; return how long they are."""
        stop = data.rfind(b"\n") + 1
        done = at = 0
        group: list[tuple[int, bytes]] = []
        while at < stop:
            after = data.index(b"\n", at) + 1
            line = data[at:after]
            if line.endswith(_TORN):
                group.clear()
            elif not _is_whole(line):
                # What it replaced or took away is unknown: it is forgotten, and
                # all before it. Until a writer has repaired the file, each
                # look reads it anew: the bytes may only be on their way.
                group.clear()
                self._take_unknown()
                self.is_corrupt = True
            else:
                group.append((self.end + at, line))
                if not _more(line):
                    for offset, each in group:
                        self._take(offset, each)
                    group.clear()
            at = after
            if not group:
                done = at
        self.seam = (self.seam + data[max(done - _SEAM, 0) : done])[-_SEAM:]
        self.end += done
        return done

    def _take(self, offset: int, line: bytes) -> None:
        """Do what *line*, at *offset*, says."""
        index = self.history
        if _takes_away(line):
            self.last = offset
        elif not line.startswith(b'{"limits": '):
            try:
                self._take_entry(offset, line)
            except ValueError:
                self._take_unknown()
            return
        for kind, what in _says(line):
            if kind == "limits":
                index.limits = what
                continue
            gone = what
            if kind == "removed":
                removal = Removal.from_json(what)
                gone = index.touched_by(removal)
                index.remember(removal)
            for key in gone:
                index.drop(key)
                self.decoded.pop(key, None)

    def _take_entry(self, offset: int, line: bytes) -> None:
        key = key_of(_body(line))
        deadline, paths = None, ()
        if line[-_TRAILER - 2] == 125 or b'"ttl"' in line[-_TRAILER - 40 : -_TRAILER]:
            entry = from_line(key, _body(line))
            paths = entry.touched()  # type: ignore[assignment]
            deadline = None if entry.ttl is None else entry.stored_at + entry.ttl
        reference = offset << _SHIFT | len(line)
        self.history.add(key, reference, _size_of(reference), deadline, paths)
        self.decoded.pop(key, None)

    def _take_unknown(self) -> None:
        """Take away all: what a newer version said may have been that."""
        for key in list(self.history.items):
            self.history.drop(key)
        self.decoded = {}
        self.history.is_complete = False
        self.history.removals = []


def _size_of(reference: int) -> int:
    """Return what the entry at *reference* counts for: its line as every file has it."""
    return (reference & (1 << _SHIFT) - 1) - _TRAILER - 1


def _entry_of(key: str, line: bytes) -> Entry | None:
    try:
        return from_line(key, _body(line))
    except ValueError:
        return None


def _says(line: bytes) -> list[tuple[str, Any]]:
    """Return the steps of *line*, each of the shape that its kind has."""
    try:
        steps = scan("{" + _body(line).decode() + "}")[0]
    except ValueError:
        steps = {}
    match steps:
        case {"removed": dict(what)}:
            return [("removed", what)]
        case {"dropped": [*keys]} if all(type(key) is str for key in keys):
            return [("dropped", keys)]
        case {"limits": dict(what)} if all(type(limit) is int for limit in what.values()):
            return [("limits", what)]
    return [("removed", {})]  # what can't be read touches everything


class _ColdIndex(Index):
    """An index that finds one entry from the end of a log, and knows no others.

    For a process that puts one entry: enough to see whether it is there already.
    """

    __slots__ = ("_view",)

    def __init__(self, view: _LogView) -> None:
        history = view.history
        super().__init__(history.read, _size_of, _MEMORY)
        self._view = view
        self.limits = history.limits
        self.removals = [Removal("")]  # the memory has begun, somewhere above

    def get(self, key: str) -> Entry | None:
        return self._view.get(key)


def _unread(_: str, __: int) -> Entry | None:
    """Stand in until a view says how its entries are read."""
    return None


def _new_index(header: dict[str, Any] | None) -> Index:
    index = Index(_unread, _size_of, _MEMORY)
    if header is not None:
        index.limits = header["limits"]
        index.is_complete = header["complete"]
    return index


def _header_of(line: bytes) -> dict[str, Any] | None:
    try:
        header: Any = scan(line.decode())[0]
    except ValueError:
        return None
    match header:
        case {"log": True, "limits": dict(limits), "complete": bool()} if all(
            type(limit) is int and limit > 0 for limit in limits.values()
        ):
            found: dict[str, Any] = header
            return found
    return None


def _removed(removal: Removal) -> bytes:
    return b'"removed": ' + encode(removal.to_json())


class LogStore(FileStore):
    """The store of one ``.jsonl`` log; see the module for its form."""

    _syncs = False

    def __init__(self, path: str, **options: Any) -> None:
        self._out: Descriptor | None = None
        super().__init__(path, **options)

    def _blank(self) -> View:
        return View(_new_index(None))

    # Reading.

    def _load(self) -> View:
        view = self._view
        status = os.stat(self.path)
        if isinstance(view, _LogView) and self._has_grown(view, status):
            if view.is_filled:
                view.catch_up(status.st_size)
            else:
                view.size = status.st_size
            # Last, so that a lookup in another thread that finds it finds all the rest.
            view.seen = signature(status)
            view.signature = _NONE if view.is_corrupt else view.seen
            return view
        new = self._open_view(os.open(self.path, READ))
        if view.is_corrupt and isinstance(new, _LogView):
            new.catch_up(new.size)
        return new

    def _has_grown(self, view: _LogView, status: os.stat_result) -> bool:
        """Tell whether the file is what was read of it, with something added."""
        old = view.signature
        if old is None or (status.st_dev, status.st_ino) != old[:2] or status.st_size <= old[2]:
            return False
        # Another program may have written over it in place (cp of a backup).
        return view.pread(len(view.seam), view.end - len(view.seam)) == view.seam

    def _open_view(self, fd: int) -> View:
        file = Descriptor(fd)
        status = os.fstat(fd)
        if (status.st_mode & 0o170000) != 0o100000:
            raise StoreError(self.path, "is not a regular file; choose another path")
        facts: dict[str, Any] = {"signature": signature(status), "file": file}
        head = os.read(fd, 1 << 16)
        version = version_of(head)
        if version == _VERSION and not is_log(head):
            raise FormatSwitched("document")
        if not head:
            return View(_new_index(None), **facts)
        if version is not None and version > _VERSION:
            why = f"was written by a newer respcache (format {version}); upgrade to share it"
            return View(_new_index(None), trouble=StoreError(self.path, why), **facts)
        start = head.find(b"\n") + 1
        header = _header_of(head[:start])
        view = _LogView(_new_index(header), start=start, size=status.st_size, **facts)
        if header is None:
            # What the header said is lost, but each line speaks for itself.
            view.history.is_complete = False
            view.is_corrupt = True
            view.catch_up(view.size)
        return view

    def ticket(self, key: str) -> Ticket:
        self._fresh().index  # noqa: B018 - its removals are known once it is read
        return super().ticket(key)

    def _load_for_writing(self) -> View:
        view = super()._load_for_writing()
        if isinstance(view, _LogView) and not view.is_filled and not view.ends_well():
            view.catch_up(view.size)
        return view

    def entries(self) -> Iterator[Entry]:
        view = self._fresh()
        if self._has_pending or not isinstance(view, _LogView):
            return super().entries()
        # The index changes in place: a batch must be in the list whole or not at all.
        with self._loading:
            items = list(view.index.items.items())
        found = (view.reader.entry(key, reference) for key, reference in items)
        return (entry for entry in found if entry is not None)

    # Writing.

    def _plan(self, view: View, only: str | None = None) -> Plan:
        if only is None or not isinstance(view, _LogView) or not self._may_stay_cold(view, only):
            return super()._plan(view)
        return self._plan_for(_ColdIndex(view))

    def _may_stay_cold(self, view: _LogView, key: str) -> bool:
        """Tell whether no limit can be reached, so that *key* can be put beside unread entries."""
        own, kept = self._limits["max_bytes"], view.history.limits.get("max_bytes")
        return (
            view.is_cold_for(key)
            and self._limits["max_entries"] is None
            and "max_entries" not in view.history.limits
            and (own is None or (kept is not None and kept <= own))
            and (kept is None or view.size + _CHUNK < kept)
        )

    def _publish(self, view: View, plan: Plan, is_current: Callable[[], bool]) -> View | None:
        if not isinstance(view, _LogView) or view.is_corrupt or plan.limits is not None:
            return self._rewrite(view, plan, is_current)
        # Not asked whether all is current: that was seen a moment ago, and a line
        # that is appended beside another writer's costs neither.
        self._append(view, plan)
        return view

    def _append(self, view: _LogView, plan: Plan) -> None:
        # Under the lock nobody is writing: what is not whole will never be.
        mark = _TORN if view.is_filled and view.end != view.size else b""
        bodies = [_removed(removal) for removal in plan.removals]
        if plan.evictions:
            bodies.append(b'"dropped": ' + encode(list(plan.evictions)))
        first_add = len(bodies)
        bodies += [entry.line or b"" for entry in plan.adds.values()]
        offset = start = view.size + len(mark)
        final = start + sum(map(len, bodies[:-1])) + (1 + _TRAILER) * (len(bodies) - 1)
        last = view.last
        lines = [mark]
        places = []
        for number, body in enumerate(bodies):
            line = _seal(body, last, final - offset)
            lines.append(line)
            places.append(offset << _SHIFT | len(line))
            if number < first_add:
                last = offset
            offset += len(line)
        out = self._open_out(view)
        data = b"".join(lines)
        write(out.fd, data)
        if self._fsync:
            sync_data(out.fd)
        with self._loading:
            view.last = last
            view.size = offset
            if view.is_filled:
                for key in (*plan.drops, *plan.adds):
                    view.decoded.pop(key, None)
                references = dict(zip(plan.adds, places[first_add:], strict=True))
                plan.carry_out(view.history, lambda entry: references[entry.key])
                view.end = offset
                view.seam = (view.seam + data)[-_SEAM:]
            view.signature = view.seen = signature(os.fstat(out.fd))

    def _open_out(self, view: _LogView) -> Descriptor:
        """Return a descriptor to append to the file of *view*."""
        assert view.file is not None
        out = self._out
        if out is None or out.identity != view.file.identity or not out.is_ours():
            out = self._out = Descriptor(os.open(self._target, APPEND))
            if out.identity != view.file.identity:
                self._out = None
                raise StoreError(self._target, "was replaced by a program that takes no lock")
        return out

    def _rewrite(self, view: View, plan: Plan, is_current: Callable[[], bool]) -> View | None:
        """Write all that is left into a new file, under the lock."""
        index = view.index
        if isinstance(view, _LogView):
            view.signature = view.seen  # also if it was found damaged only just now
        if view.is_corrupt:
            self._set_aside(view, len(index.items))
        limits = index.limits if plan.limits is None else plan.limits
        with Replacement(self._target, self._mode) as made:
            writer = _Writer(made, limits, index, plan.removals)
            if isinstance(view, _LogView):
                for key, reference in index.items.items():
                    if key not in plan.drops:
                        writer.add(view.body_at(reference))
            for entry in plan.adds.values():
                writer.add(entry.line or b"")
            writer.flush()
            return self._publish_new(made, is_current)

    def _publish_new(self, made: Replacement, is_current: Callable[[], bool]) -> View | None:
        # Always to the disk first: a rename that is there before the bytes
        # are leaves nothing after a power cut.
        if not made.publish(fsync=True, is_current=is_current):
            return None
        return self._open_view(os.open(self._target, READ))

    def _transact(
        self, work: Callable[[Plan], T], plain: Sequence[str] = (), only: str | None = None
    ) -> T:
        result = super()._transact(work, plain, only)
        view = self._view
        if isinstance(view, _LogView) and view.is_wasteful():
            try:
                self._compact(view)
            except OSError as error:
                self._warn(self._explain(error))
        return result

    def _compact(self, view: _LogView) -> None:
        """Copy what is alive without the lock, then the rest and the rename under it."""
        with self._loading:
            if view is not self._view:
                return
            index = view.history.copy()
            end, last = view.end, view.last
        with Replacement(self._target, self._mode) as made:
            writer = _Writer(made, index.limits, index, ())
            for key, reference in index.items.items():
                index.items[key] = writer.add(view.body_at(reference))
            writer.flush()
            lock = self._ready()
            lock.run(lambda: self._finish(view, index, end, last, writer))

    def _finish(self, view: _LogView, index: Index, end: int, last: int, writer: _Writer) -> None:
        """Copy the lines that came since, and put the new file in the old one's place."""
        if self._load_for_writing() is not view or view.is_corrupt:
            return  # somebody else was faster
        places = {last: writer.last}
        start = writer.offset
        for offset, line in view.lines(end, view.end):
            place = writer.add_line(_body(line), places.get(_last(line), writer.last), _more(line))
            if _takes_away(line):
                places[offset] = writer.last = place
        writer.flush()
        lock = self._lock
        assert lock is not None
        new = self._publish_new(writer.made, lambda: lock.is_held() and self._is_at(view))
        if isinstance(new, _LogView):
            new.history.take_entries(index)
            new.history.removals = index.removals
            new.end = start
            new.last = places[last]
            new.seam = new.pread(_SEAM, start - _SEAM)
            new.catch_up(new.size)
            self._adopt(new)

    def _forked(self) -> None:
        super()._forked()
        self._out = None

    def close(self) -> None:
        super().close()
        self._out = None


class _Writer:
    """Write a log anew: header and removals, then lines that are commits of their own.

    Args:
        made: Where to.
        limits: For the header.
        index: Its removals are carried on.
        removals: More of them.
    """

    def __init__(
        self,
        made: Replacement,
        limits: dict[str, int],
        index: Index,
        removals: Sequence[Removal],
    ) -> None:
        self.made = made
        self.last = 0
        self._lines: list[bytes] = []
        self._waiting = 0
        kept = [*index.removals, *removals]
        is_complete = index.is_complete and len(kept) <= _MEMORY
        facts = (LOG, encode(limits), encode(is_complete))
        head = b'%s, "limits": %s, "complete": %s}\n' % facts
        self.offset = len(head)
        self._lines.append(head)
        for removal in kept[-_MEMORY:]:
            self.last = self.add_line(_removed(removal), self.last, 0)

    def add(self, body: bytes) -> int:
        """Add a line of its own, and return its reference."""
        offset = self.add_line(body, self.last, 0)
        return offset << _SHIFT | (self.offset - offset)

    def add_line(self, body: bytes, last: int, more: int) -> int:
        """Add a line, and return where it begins."""
        line = _seal(body, last, more)
        offset = self.offset
        self._lines.append(line)
        self.offset += len(line)
        self._waiting += len(line)
        if self._waiting > _CHUNK:
            self.flush()
        return offset

    def flush(self) -> None:
        """Write what waits."""
        self.made.write(self._lines)
        self._lines = []
        self._waiting = 0
