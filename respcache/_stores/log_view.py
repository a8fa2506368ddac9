"""What has been read of a log: one answer from its end, or all lines by their places."""

from __future__ import annotations

import os
from _thread import RLock

from .._entry import Entry, facts_of, key_of, line_start
from .._index import Index
from .._lock import Descriptor
from .._paths import signature
from .._rules import Removal
from .file import View
from .log_lines import (
    STEPS,
    TORN,
    TRAILER,
    body_of,
    ends_commit,
    entry_of,
    has_open,
    is_whole,
    last_of,
    more_of,
    says,
    takes_away,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["CHUNK", "MEMORY", "SEAM", "ColdIndex", "LogView", "new_index", "reference_to"]

MEMORY = 1024  # removals that are remembered
CHUNK = 1 << 20  # bytes that are indexed at a time; more leaves holes in the heap
_STEP = 1 << 18  # bytes that a cold look reads at most at a time, from the end
_FIRST_STEP = 1 << 13
_LARGE = 1 << 22  # bytes from which on a few questions are cheaper than the index
_PASSED = 1 << 16  # bytes that a put looks through instead of indexing them
_PATIENCE = 8  # Measured: to index a byte costs what it costs to look through 8 to 12
SEAM = 64  # bytes that must still be there before what comes after them is read
_NONE = (0, 0, 0, 0, 0)  # the signature of no file
_SHIFT = 32  # a reference is an offset and a length in one int


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
        return entry_of(key, line) if is_whole(line) else None


class LogView(View):
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
        "_commit_end",
        "_is_sure",
        "_limit",
        "_looked_through",
        "_missed",
        "carried",
        "end",
        "is_filled",
        "last",
        "reader",
        "seam",
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
        self.carried: list[int] = []  # how long the lines are of the removals it remembers
        self.is_filled = False
        self._answered: str | None = None
        self._missed: tuple[str, int] | None = None  # what was not in a file of that size
        self._commit_end = -1  # where the last line begins of the commit that is being read
        self._is_sure = False  # whether it is there and good
        self._limit = 0  # how far is read at this time
        self._looked_through = 0  # bytes, for single answers

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
        if not is_whole(line):
            raise _Unclear
        return line

    # One answer, from the end.

    def get(self, key: str) -> Entry | None:
        if self.is_cold_for(key):
            entry = self.decoded.get(key)
            if entry is not None:
                return entry
            size = self.size
            if self._missed == (key, size):
                return None
            self._answered = key
            try:
                entry = self._seek(key)
            except _Unclear:
                pass
            else:
                with self.mutex:
                    if self.size == size:  # else it has grown meanwhile
                        if entry is None:
                            self._missed = (key, size)
                        else:
                            self.keep(key, entry)
                return entry
        entry = self.decoded.get(key)
        if entry is not None:
            return entry
        items = self.index.items
        reference = items.get(key)
        if reference is None:
            with self.mutex:  # it may just be between its old place and its new one
                reference = items.get(key)
        entry = None if reference is None else self.reader.entry(key, reference)
        if entry is not None:
            self.keep(key, entry)
            # A line that came meanwhile dropped what was decoded before it.
            if items.get(key) != reference:
                self.decoded.pop(key, None)
        return entry

    def is_cold_for(self, key: str) -> bool:
        """Tell whether *key* is to be sought from the end, without an index.

        The first question is, and of a large log further ones, until they have
        cost as much as the index does.
        """
        return not self.is_filled and (
            self._answered is None
            or self._answered == key
            or (self.size > _LARGE and self._looked_through < _PATIENCE * self.size)
        )

    def lines(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of whole commits between *start* and *stop*, with their places."""
        group: list[tuple[int, bytes]] = []
        for line in self.pread(stop - start, start).splitlines(keepends=True):
            if line.endswith(TORN):
                group = []
            else:
                group.append((start, line))
                if ends_commit(line, len(line)):
                    yield from group
                    group = []
            start += len(line)

    def ends_well(self) -> bool:
        """Tell whether the last line is whole, ends its commit, and no write is under way."""
        if self.pread(1, self.size - 1) != b"\n":
            return False
        newest = self._line_before(self.size)
        if newest < self.start:
            return True  # nothing but the header
        try:
            line = self.line_at(newest)
        except _Unclear:
            return False
        self.last = newest if takes_away(line) else last_of(line)
        try:
            is_open = self.last > 0 and has_open(self.line_at(self.last))
        except _Unclear:
            return False
        return not is_open and ends_commit(line, len(line))

    def is_wasteful(self) -> bool:
        """Tell whether more than half of the file is dead."""
        live = self.history.bytes + (1 + TRAILER) * len(self.history.items)
        if not self.is_filled or live * 2 >= self.size:
            return False
        # What a compaction carries on is not what the next one could take out.
        return (live + sum(self.carried)) * 2 < self.size

    def sees(self, status: os.stat_result) -> None:
        """Note that all that a file of this *status* holds is known."""
        self.seen = signature(status)
        # A damaged file is read anew at each look, until a writer has repaired it.
        self.signature = _NONE if self.is_corrupt else self.seen

    def says_another(self, key: str, line: bytes) -> bool:
        """Tell whether *key* is known, with another question or response than in *line*."""
        reference = self.history.items.get(key)
        if reference is None:
            return False
        # All that stands before the id; a quote within a text would be escaped.
        end = line.rfind(b', "id": "')
        return self.reader.pread(end, (reference >> _SHIFT) + 1) != line[:end]

    def body_at(self, reference: int) -> bytes:
        """Return what the line at *reference* says."""
        return body_of(self.reader.line(reference))

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
            more = more_of(line, len(line))
            if offset + more < whole:
                if more > 0 and not self._ends(offset, offset + more):
                    raise _Unclear
                entry = entry_of(key, line)
                return entry if entry and self._outlives(entry, offset, newest, whole) else None
            at = self._backwards(needle, offset)
        return None

    def _ends(self, offset: int, final: int, within: int | None = None) -> bool:
        """Tell whether the line at *final* is the last of the commit of the one at *offset*."""
        line = self.line_at(final)
        more = more_of(line, len(line))
        is_within = within is None or final + len(line) <= within
        return more < 0 and final + more <= offset and is_within

    def _line_before(self, whole: int) -> int:
        """Return where the line begins that ends at *whole*."""
        return self._backwards(b"\n", whole - 1) + 1

    def _outlives(self, entry: Entry, offset: int, newest: int, whole: int) -> bool:
        """Tell whether no line after *offset* takes *entry* away."""
        line = self.line_at(newest)
        if not ends_commit(line, len(line)):
            raise _Unclear
        below, at = newest, newest if takes_away(line) else last_of(line)
        if self.history.open or (at and has_open(self.line_at(at))):
            raise _Unclear  # a write is under way: only who has read all knows which
        paths = entry.touched()
        # The place that is pointed to before the entry must be one, too: else bytes
        # have come or gone above, and no place is what it was.
        while at:
            line = self.line_at(at)
            if at > below or not takes_away(line):
                raise _Unclear
            if at <= offset:
                break
            for kind, what in says(line):
                removal = Removal.from_json(what) if kind == "removed" else None
                if removal and removal.kind == "removed" and removal.touches(entry.key, paths):
                    return False
                if kind == "dropped" and entry.key in what:
                    return False
            below, at = at - 1, last_of(line)
        return True

    def _seek_removal(self) -> str | None:
        """Return the id of the newest removal, by the lines that point back to it."""
        whole = self._backwards(b"\n", self.size) + 1
        newest = self._line_before(whole)
        if newest < self.start:
            raise _Unclear
        line = self.line_at(newest)
        if not ends_commit(line, len(line)):
            raise _Unclear
        at = newest if takes_away(line) else last_of(line)
        while at:
            line = self.line_at(at)
            if not takes_away(line):
                raise _Unclear
            for kind, what in says(line):
                if kind == "removed":
                    return Removal.from_json(what).id
            at = last_of(line)
        raise _Unclear  # each log begins with one

    def _backwards(self, what: bytes, end: int) -> int:
        """Return the last place before *end* where *what* begins and ends, or -1."""
        step = _FIRST_STEP
        while end > 0:
            start = max(end - max(step, 2 * len(what)), 0)
            self._looked_through += end - start
            found = self.pread(end - start, start).rfind(what)
            if found >= 0:
                return start + found
            if not start:
                break
            end = start + len(what) - 1
            step = min(step * 4, _STEP)
        return -1

    # All lines, as they come.

    @property
    def index(self) -> Index:
        if not self.is_filled:
            with self.mutex:
                if not self.is_filled:
                    self._catch_up(self.size)
        return self.history

    def last_removal(self) -> str | None:
        if not self.is_filled:
            try:
                return self._seek_removal()
            except _Unclear:
                pass
        return self.index.last_removal()

    def catch_up(self, size: int) -> None:
        """Index the whole lines up to *size*."""
        with self.mutex:
            self._catch_up(size)

    def _catch_up(self, size: int) -> None:
        self._limit, self._commit_end = size, -1
        step = CHUNK
        while self.end < size:
            data = self.pread(min(step, size - self.end), self.end)
            done = self._take_lines(data)
            if not done and self.end + len(data) >= size:
                break  # the last line is still being written
            step = CHUNK if done else step * 2  # one commit may be larger than a chunk
        self.size = size
        self.is_filled = True
        if self.is_corrupt:
            self.signature = _NONE

    def take_tail(self, status: os.stat_result) -> bool:
        """Take what was added to the file, now of *status*; False if it is not the same file.

        Another program may have written over it in place (cp of a backup): what
        stands before the new bytes must still be there.
        """
        with self.mutex:
            return self._take_tail(status)

    def _take_tail(self, status: os.stat_result) -> bool:
        old, size = self.signature, status.st_size
        if old is None or (status.st_dev, status.st_ino) != old[:2] or size <= old[2]:
            return False
        seam = self.seam
        if not self.is_filled:
            self.size = size
            self.decoded = {}  # the one answer may be another now
        elif size - self.end <= CHUNK:
            data = self.pread(len(seam) + size - self.end, self.end - len(seam))
            if not data.startswith(seam):
                return False
            self._limit, self._commit_end = size, -1
            self._take_lines(data[len(seam) :])
            self.size = size
        else:
            if self.pread(len(seam), self.end - len(seam)) != seam:
                return False
            self._catch_up(size)
        # Last, so that a lookup in another thread that finds it finds all the rest.
        self.sees(status)
        return True

    def passes(self, status: os.stat_result, key: str) -> int:
        """Return how many bytes are new that who puts *key* need not read; 0: it must.

        Whole entries of other keys, under the lock: they change nothing that a
        put asks for, and whoever looks next reads them.
        """
        seam, new = self.seam, status.st_size - self.end
        if not seam or not 0 < new <= _PASSED or self.signature is None:
            return 0
        if (status.st_dev, status.st_ino) != self.signature[:2]:
            return 0
        data = self.pread(len(seam) + new, self.end - len(seam))
        if (
            not data.startswith(seam)
            or not is_whole(data, data.rfind(b"\n", 0, -1) + 1)
            or not ends_commit(data, len(data))
            or TORN in data
            or any(b"\n" + step in data for step in STEPS)
            or b"\n{" + line_start(key) in data
        ):
            return 0
        return new

    def take_own(self, entry: Entry, offset: int, line: bytes, status: os.stat_result) -> None:
        """Take the *line* of *entry* that was just written at *offset*, the end.

        A lookup in another thread may have done so already.
        """
        reference = reference_to(offset, len(line))
        with self.mutex:
            self.history.add_entry(entry, reference, _size_of(reference))
            self.decoded.pop(entry.key, None)
            self.end = self.size = offset + len(line)
            self.seam = line[-SEAM:]
            self.sees(status)

    def _take_lines(self, data: bytes) -> int:
        """Index the whole commits at the start of *data*; return how long they are."""
        stop = data.rfind(b"\n") + 1
        done = at = 0
        group: list[tuple[int, int]] = []
        while at < stop:
            after = data.index(b"\n", at) + 1
            if is_whole(data, at, after):
                if ends_commit(data, after) or self._is_committed(data, at, after):
                    for each in group:
                        self._take(data, *each)
                    group.clear()
                    self._take(data, at, after)
                else:
                    group.append((at, after))
            else:
                group.clear()
                if not data.endswith(TORN, at, after):
                    # What it replaced or took away is unknown: it is forgotten, and
                    # all before it. Until a writer has repaired the file, each
                    # look reads it anew: the bytes may only be on their way.
                    self._take_unknown()
                    self.is_corrupt = True
            at = after
            if not group:
                done = at
        self.seam = (self.seam + data[max(done - SEAM, 0) : done])[-SEAM:]
        self.end += done
        return done

    def _is_committed(self, data: bytes, at: int, after: int) -> bool:
        """Tell whether the commit goes on and ends well, within what is being read.

        Then its lines need not be held until its last: a batch may be large.
        """
        offset = self.end + at
        final = offset + more_of(data, after)
        if final != self._commit_end:
            self._commit_end = final
            try:
                self._is_sure = self._ends(offset, final, within=self._limit)
            except _Unclear:
                self._is_sure = False
        return self._is_sure

    def _take(self, data: bytes, at: int, after: int) -> None:
        """Do what the line between *at* and *after* of *data* says."""
        if data.startswith(STEPS, at):
            self._take_step(self.end + at, data[at:after])
            return
        try:
            key = key_of(data, at + 1)
            length = after - at
            reference = self.end + at << _SHIFT | length
            size = length - TRAILER - 1
            self.history.add(key, reference, size, *facts_of(data, at, after - TRAILER))
        except ValueError:
            self._take_unknown()
            return
        if self.decoded:
            self.decoded.pop(key, None)

    def _take_step(self, offset: int, line: bytes) -> None:
        """Do what *line*, at *offset*, says: no entry."""
        index = self.history
        if takes_away(line):
            self.last = offset
        for kind, what in says(line):
            if kind == "limits":
                index.limits = what
                continue
            gone = what
            if kind == "removed":
                removal = Removal.from_json(what)
                gone = index.touched_by(removal) if removal.kind == "removed" else ()
                index.remember(removal)
                self.carry(len(line))
            for key in gone:
                index.drop(key)
                self.decoded.pop(key, None)

    def carry(self, length: int) -> None:
        """Note how long the line of a removal is that is remembered."""
        self.carried.append(length)
        del self.carried[:-MEMORY]

    def _take_unknown(self) -> None:
        """Take away all: what a newer version said may have been that."""
        for key in list(self.history.items):
            self.history.drop(key)
        self.decoded = {}
        self.history.is_complete = False
        self.history.removals = []


def reference_to(offset: int, length: int) -> int:
    """Return how an index refers to a line."""
    return offset << _SHIFT | length


def _size_of(reference: int) -> int:
    """Return what the entry at *reference* counts for: its line as every file has it."""
    return (reference & (1 << _SHIFT) - 1) - TRAILER - 1


class ColdIndex(Index):
    """An index that finds one entry from the end of a log, and knows no others.

    For a process that puts one entry: enough to see whether it is there already.
    """

    __slots__ = ("_view",)

    def __init__(self, view: LogView) -> None:
        history = view.history
        super().__init__(history.read, _size_of, MEMORY)
        self._view = view
        self.limits = history.limits
        self.removals = [Removal("")]  # the memory has begun, somewhere above

    def get(self, key: str) -> Entry | None:
        return self._view.get(key)


def _unread(_: str, __: int) -> Entry | None:
    """Stand in until a view says how its entries are read."""
    return None


def new_index(header: dict[str, Any] | None) -> Index:
    index = Index(_unread, _size_of, MEMORY)
    if header is not None:
        index.limits = header["limits"]
        index.is_complete = header["complete"]
        index.open = {removal.id: removal for removal in header["open"]}
    return index
