"""JSON Lines, one commit appended after the other: many entries, busy writers.

::

    {"respcache": 1, "log": true}
    {"removed": {"id": "41c0...", "keys": []}, "last": "000000000000", "more": "000000000000", "sum": "5e1f20aa"}
    {"q//1f//hello": {"response": "Hi", ...}, "last": "00000000001e", "more": "000000000000", "sum": "0f3c7d42"}

Bytes once written never change. Each line has a checksum and points back at the
last line before it that took something away. A commit of several lines counts only
once its last line is there, to which ``more`` points.

A reader takes whole lines only. A writer ends a torn tail with a mark, by which
all pass it. Any other bad line stops readers: what it replaced or took away is
unknown, so the next writer, under the lock, forgets it and all before it.
"""

from __future__ import annotations

import os

from .._atomic import APPEND, READ, Replacement, sync_data, write
from .._entry import Entry
from .._index import Index, Put
from .._json import encode
from .._lock import Descriptor, FileLock
from .._paths import signature
from .._rules import Removal
from ..errors import StoreError
from . import FormatSwitched
from .file import LOG, FileStore, View, is_log, version_of
from .log_lines import (
    TORN,
    TRAILER,
    body_of,
    dropped,
    header_of,
    last_of,
    more_of,
    removed,
    seal,
    takes_away,
)
from .log_view import CHUNK, MEMORY, SEAM, ColdIndex, LogView, new_index, reference_to

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from .._plan import Plan

    T = TypeVar("T")

__all__ = ["LogStore"]

_VERSION = 1
_LOOK = 1.0  # seconds for which a file is taken to be where it was
_FLOOR = 1 << 23  # bytes below which a log is not compacted: it costs a wait for the disk


class LogStore(FileStore):
    """The store of one ``.jsonl`` log; see the module for its form."""

    _syncs = False

    def __init__(self, path: str, **options: Any) -> None:
        self._out: Descriptor | None = None  # to append by
        self._has_others = False  # whether they stored, too, when this last did
        self._looked_at = -_LOOK  # when the path was last seen to lead there
        super().__init__(path, **options)

    def _blank(self) -> View:
        return View(new_index(None))

    # Reading.

    def _load(self) -> View:
        view = self._view
        status = os.stat(self.path)
        if isinstance(view, LogView) and view.take_tail(status):
            return view
        new = self._open_view(os.open(self.path, READ))
        if view.is_corrupt and isinstance(new, LogView):
            new.catch_up(new.size)
        return new

    def _open_view(self, fd: int) -> View:
        file = Descriptor(fd)
        status = os.fstat(fd)
        if (status.st_mode & 0o170000) != 0o100000:
            raise StoreError(self.path, "is not a regular file; choose another path")
        facts: dict[str, Any] = {"signature": signature(status), "file": file}
        head = os.read(fd, 1 << 16)
        version = version_of(head)
        if version == _VERSION and not is_log(head) and not is_log(_tail_of(fd, status.st_size)):
            raise FormatSwitched("document")
        if not head:
            return View(new_index(None), **facts)
        if version is not None and version > _VERSION:
            why = f"was written by a newer respcache (format {version}); upgrade to share it"
            return View(new_index(None), trouble=StoreError(self.path, why), **facts)
        start = head.find(b"\n") + 1
        header = header_of(head[:start])
        view = LogView(new_index(header), start=start, size=status.st_size, **facts)
        if header is None:
            # What the header said is lost, but each line speaks for itself.
            view.history.is_complete = False
            view.is_corrupt = True
            view.catch_up(view.size)
        return view

    def _reload(self) -> View:
        view = self._view
        if isinstance(view, LogView):
            try:
                if view.take_tail(os.stat(self.path)) and view is self._view:
                    return view  # most changes are lines of others, which ask for no more
            except OSError:
                pass  # it will be told
        return super()._reload()

    def _adopt(self, view: View, *, is_ours: bool = False) -> None:
        super()._adopt(view, is_ours=is_ours)
        out = self._out
        if out is not None and (view.file is None or view.file.identity != out.identity):
            self._out = None  # else the disk would keep what was deleted

    def _load_for_writing(self) -> View:
        view = super()._load_for_writing()
        if isinstance(view, LogView) and not view.is_filled and not view.ends_well():
            view.catch_up(view.size)
        return view

    def _entries(self) -> Iterator[Entry]:
        view = self._fresh()
        if self._has_pending or not isinstance(view, LogView):
            return super()._entries()
        # The index changes in place: a batch must be in the list whole or not at all.
        with view.mutex:
            items = list(view.index.items.items())
        found = (view.reader.entry(key, reference) for key, reference in items)
        return (entry for entry in found if entry is not None)

    # Writing.

    def _is_known(self, put: Put) -> bool:
        view = self._view
        if isinstance(view, LogView) and view.is_filled:
            key = put.entry.key
            if key not in view.history.items or view.says_another(key, put.entry.line or b""):
                return False
        return super()._is_known(put)

    def _put_alone(self, entry: Entry) -> bool:
        lock, view, out = self._lock, self._view, self._out
        if (
            lock is None
            or out is None
            or self._is_link
            or self._has_pending
            or not isinstance(view, LogView)
            or not view.is_filled
        ):
            return False
        if self._has_others:
            self._reload()  # indexed before the lock, where nobody waits for it
        is_done = lock.run(self._append_alone, lock, view, out, entry)
        if is_done and view.size > _FLOOR:
            self._tidy()
        return is_done

    def _append_alone(self, lock: FileLock, view: LogView, out: Descriptor, entry: Entry) -> bool:
        """Append *entry*, under *lock*, if a plan would be nothing else; tell whether it holds.

        Most stores are one such line, and what Python does for it costs more than
        what the system does: so it is done here in a row, with as few looks at
        files as tell the same. One at the descriptor tells that the file is as it
        was when its path led there: one that was replaced or removed has a name
        less. Not so if it, or a folder above, was moved within one tick of the
        clock, so the path is looked at once a second.
        """
        try:
            status = os.fstat(out.fd)
        except OSError:
            return False
        now = self._now()
        unread = 0
        if (
            view.signature
            != (
                status.st_dev,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )
            or status.st_nlink != out.links
            or not 0 <= now - self._looked_at < _LOOK
        ):
            found = self._look_around(view, out, entry, now)
            if found is None:
                return False
            unread = found
        body, index = entry.line or b"", view.history
        if (
            lock is not self._lock
            or view is not self._view
            or (view.end != view.size and not unread)
            or not index.has_room(len(body) + unread, self._limits, now)
            or (entry.key in index.items and not view.says_another(entry.key, body))
        ):
            return False
        offset, line = view.end + unread, seal(body, view.last, 0)
        write(out.fd, line)
        if self._fsync:
            sync_data(out.fd)
        if not unread:
            view.take_own(entry, offset, line, os.fstat(out.fd))
        if self._warned:
            self._warned.clear()
        return lock.is_linked()

    def _look_around(self, view: LogView, out: Descriptor, entry: Entry, now: float) -> int | None:
        """Return how many bytes of others' entries need not be read; None: more has happened."""
        try:
            status = os.lstat(self.path)
        except OSError:
            return None
        is_there = (status.st_dev, status.st_ino) == out.identity and out.is_ours()
        if not is_there or not status.st_mode & 0o222:
            return None
        unread = 0
        self._has_others = view.signature != signature(status)
        if self._has_others:
            if "max_entries" not in view.history.limits and self._limits["max_entries"] is None:
                unread = view.passes(status, entry.key)
            if not unread and not view.take_tail(status):
                return None
        index = view.history
        if view.is_corrupt or not self._is_swept or not index.removals or not index.is_complete:
            return None
        self._looked_at, out.links = now, status.st_nlink
        return unread

    def _plan(self, view: View, only: str | None = None) -> Plan:
        if only is None or not isinstance(view, LogView) or not self._may_stay_cold(view, only):
            return super()._plan(view)
        return self._plan_for(ColdIndex(view), view)

    def _may_stay_cold(self, view: LogView, key: str) -> bool:
        """Tell whether no limit can be reached, so that *key* can be put beside unread entries."""
        own, kept = self._limits["max_bytes"], view.history.limits.get("max_bytes")
        return (
            view.is_cold_for(key)
            and self._limits["max_entries"] is None
            and "max_entries" not in view.history.limits
            and (own is None or (kept is not None and kept <= own))
            and (kept is None or view.size + CHUNK < kept)
        )

    def _publish(self, view: View, plan: Plan, is_current: Callable[[], bool]) -> View | None:
        if not isinstance(view, LogView) or view.is_corrupt or plan.limits is not None:
            return self._rewrite(view, plan, is_current)
        # Not asked whether all is current: that was seen a moment ago, and a line
        # that is appended beside another writer's costs neither.
        self._append(view, plan)
        return view

    def _append(self, view: LogView, plan: Plan) -> None:
        # Under the lock nobody is writing: what is not whole will never be.
        mark = TORN if view.is_filled and view.end != view.size else b""
        open = len(view.history.open_after(plan.removals))
        bodies = [removed(removal, open) for removal in plan.removals]
        if plan.evictions:
            bodies.append(dropped(list(plan.evictions), open))
        first_add = len(bodies)
        bodies += [entry.line or b"" for entry in plan.adds.values()]
        offset = start = view.size + len(mark)
        final = start + sum(map(len, bodies[:-1])) + (1 + TRAILER) * (len(bodies) - 1)
        last = view.last
        lines = [mark]
        places = []
        for number, body in enumerate(bodies):
            line = seal(body, last, final - offset or start - final)
            lines.append(line)
            places.append(reference_to(offset, len(line)))
            if number < first_add:
                last = offset
            offset += len(line)
        out = self._open_out(view)
        data = b"".join(lines)
        write(out.fd, data)
        if self._fsync:
            sync_data(out.fd)
        with self._loading, view.mutex:
            view.last = last
            view.size = offset
            if not view.is_filled:
                view.decoded = {}
            else:
                for key in (*plan.drops, *plan.adds):
                    view.decoded.pop(key, None)
                references = dict(zip(plan.adds, places[first_add:], strict=True))
                plan.carry_out(view.history, lambda entry: references[entry.key])
                for line in lines[1 : len(plan.removals) + 1]:
                    view.carry(len(line))
                view.end = offset
                view.seam = (view.seam + data)[-SEAM:]
            view.signature = view.seen = signature(os.fstat(out.fd))

    def _open_out(self, view: LogView) -> Descriptor:
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
        if isinstance(view, LogView):
            view.signature = view.seen  # also if it was found damaged only just now
        if view.is_corrupt:
            self._set_aside(view, len(index.items))
        limits = index.limits if plan.limits is None else plan.limits
        with Replacement(self._target, self._mode) as made:
            writer = _Writer(made, limits, index, plan.removals)
            if isinstance(view, LogView):
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
        self._tidy()
        return result

    def _tidy(self) -> None:
        """Compact the log if that is worth it."""
        view = self._view
        if isinstance(view, LogView) and view.size > _FLOOR and view.is_wasteful():
            try:
                self._compact(view)
            except OSError as error:
                self._warn(self._explain(error))

    def _compact(self, view: LogView) -> None:
        """Copy what is alive without the lock, then the rest and the rename under it."""
        with view.mutex:
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

    def _finish(self, view: LogView, index: Index, end: int, last: int, writer: _Writer) -> None:
        """Copy the lines that came since, and put the new file in the old one's place."""
        if self._load_for_writing() is not view or view.is_corrupt:
            return  # somebody else was faster
        places = {last: writer.last}
        start = writer.offset
        for offset, line in view.lines(end, view.end):
            place = writer.add_line(
                body_of(line), places.get(last_of(line), writer.last), more_of(line, len(line))
            )
            if takes_away(line):
                places[offset] = writer.last = place
        writer.flush()
        lock = self._lock
        assert lock is not None
        new = self._publish_new(writer.made, lambda: lock.is_held() and self._is_at(view))
        if isinstance(new, LogView):
            new.history.take_entries(index)
            new.history.removals = index.removals
            new.carried = view.carried.copy()
            new.end = start
            new.last = places[last]
            new.seam = new.pread(SEAM, start - SEAM)
            new.catch_up(new.size)
            self._adopt(new, is_ours=True)

    def _forked(self) -> None:
        super()._forked()
        self._out = None

    def close(self) -> None:
        super().close()
        self._out = None


def _tail_of(fd: int, size: int) -> bytes:
    """Return the last bytes of a file, and leave it at where it is read."""
    at = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, max(size - 128, 0), os.SEEK_SET)
    tail = os.read(fd, 128)
    os.lseek(fd, at, os.SEEK_SET)
    return tail


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
        is_complete = index.is_complete and len(kept) <= MEMORY
        open = index.open_after(removals)
        facts = (LOG, encode(limits), encode(is_complete))
        head = b'%s, "limits": %s, "complete": %s' % facts
        if open:
            head += b', "open": ' + encode([removal.to_json() for removal in open.values()])
        head += b"}\n"
        self.offset = len(head)
        self._lines.append(head)
        for removal in kept[-MEMORY:]:
            self.last = self.add_line(removed(removal, len(open)), self.last, 0)

    def add(self, body: bytes) -> int:
        """Add a line of its own, and return its reference."""
        offset = self.add_line(body, self.last, 0)
        return reference_to(offset, self.offset - offset)

    def add_line(self, body: bytes, last: int, more: int) -> int:
        """Add a line, and return where it begins."""
        line = seal(body, last, more)
        offset = self.offset
        self._lines.append(line)
        self.offset += len(line)
        self._waiting += len(line)
        if self._waiting > CHUNK:
            self.flush()
        return offset

    def flush(self) -> None:
        """Write what waits."""
        self.made.write(self._lines)
        self._lines = []
        self._waiting = 0
