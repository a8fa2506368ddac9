"""Audit a cache file: every line of it, its lock, and what lies beside it.

An audit reads what readers read and waits for nobody but, for a second, the
lock. What is wrong is repaired by the store itself: a writer that finds damage
writes the file anew and sets a copy aside, so a repair is a commit that changes
nothing else.
"""

from __future__ import annotations

import os
from stat import S_IMODE, S_ISLNK, S_ISREG

from ._atomic import READ, is_mount_point, leftovers, set_aside
from ._cache import Cache
from ._entry import from_form, from_line, key_of
from ._json import quote
from ._lock import make_lock
from ._rules import Removal
from ._stores import FormatSwitched, new_id
from ._stores.document import (
    _CLOSE,
    _END,
    _ENTRIES,
    _frame_of,
    _is_key,
    _is_utf8,
    _new_index,
    _Newer,
    _parse,
    _take_header,
    parse_object,
    text_of,
)
from ._stores.file import version_of
from ._stores.log_lines import (
    STEPS,
    TORN,
    TRAILER,
    ends_commit,
    entry_of,
    header_of,
    is_whole,
    says,
)
from ._survey import format_of_store
from .errors import LockTimeoutError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    from ._lock import FileLock

    Tell = Callable[[int, int | None], None]

__all__ = ["Finding", "Report", "audit", "repair"]

_PATIENCE = 1.0  # seconds for which the lock is waited for
_STEP = 1 << 20  # bytes between two looks at the bar
_VERSION = 1
_SUM = b', "sum": "'


class Finding:
    """Something that an audit found.

    Attributes:
        kind: ``"damaged"``: a line or a part that can't be read. ``"mark"``: the
            end mark of a document is missing or wrong. ``"torn"``: the end of a
            log was never written. ``"version"``, ``"unreadable"``: the file can't be
            judged. ``"lock"``: writers can't take it. ``"busy"``: nobody could
            take it for a second. Notes are ``"unknown"``, what this version can't read
            in a line that is whole; ``"permission"``; ``"leftover"``, temp files; and
            ``"copy"``, of what was damaged before.
        why: What is wrong, for people.
        line: The line in the file, from 1. None: no single one.
        byte: Where in the file, from 0. None: as above.
        is_bad: Whether it has to be repaired; the rest are notes.
    """

    __slots__ = ("byte", "is_bad", "kind", "line", "why")

    def __init__(
        self,
        kind: str,
        why: str,
        line: int | None = None,
        byte: int | None = None,
        *,
        is_bad: bool = True,
    ) -> None:
        self.kind = kind
        self.why = why
        self.line = line
        self.byte = byte
        self.is_bad = is_bad

    def to_json(self) -> dict[str, Any]:
        """Return its attributes."""
        return {
            "kind": self.kind,
            "bad": self.is_bad,
            "line": self.line,
            "byte": self.byte,
            "why": self.why,
        }

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}, byte {self.byte}: "
        return f"{self.kind}: {place}{self.why}"


class Report:
    """What an audit found of one file.

    Attributes:
        path: The file, absolute.
        exists: Whether there is one. If not, it is an empty cache.
        format: ``"document"``, ``"log"`` or ``"flat"``; None if it can't be told.
        size: Its bytes.
        lines: Its lines.
        entries: How many entries can be served from it, fresh or not.
        dead: Lines of entries that were replaced or taken away.
        repaired: Torn tails that a writer has ended since, by a mark.
        modes: Permissions of ``file``, ``folder`` and ``lock``, as far as they are there.
        findings: What is wrong, and notes, in the order of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.exists = False
        self.format: str | None = None
        self.size = 0
        self.lines = 0
        self.entries = 0
        self.dead = 0
        self.repaired = 0
        self.modes: dict[str, str] = {}
        self.findings: list[Finding] = []

    @property
    def is_good(self) -> bool:
        """Whether nothing has to be repaired."""
        return not any(finding.is_bad for finding in self.findings)

    @property
    def damaged(self) -> int:
        """How many lines or parts can't be read."""
        return sum(finding.kind == "damaged" for finding in self.findings)

    def find(self, kind: str, why: str, *place: int, is_bad: bool = True) -> None:
        """Add a finding; *place* is its line and byte."""
        self.findings.append(Finding(kind, why, *place, is_bad=is_bad))

    def to_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "path": self.path,
            "good": self.is_good,
            "exists": self.exists,
            "format": self.format,
            "bytes": self.size,
            "lines": self.lines,
            "entries": self.entries,
            "dead": self.dead,
            "repaired": self.repaired,
            "damaged": self.damaged,
            "modes": self.modes,
            "findings": [finding.to_json() for finding in self.findings],
        }


def audit(path: str | os.PathLike[str], tell: Tell = lambda done, total: None) -> Report:  # noqa: ARG005
    """Read the file *path* whole, look at what lies beside it, and return what was found.

    Nothing is made or changed. Readers and writers go on meanwhile; only the
    last line of a log that is not whole is read again under the lock, since a
    writer might be writing it.

    Args:
        path: The cache file.
        tell: Told how many bytes are done, and of how many.

    Raises:
        ConfigError: The suffix of *path* tells no format.
    """
    with Cache(path, max_bytes=None) as cache:
        assert cache.path is not None
        report = Report(cache.path)
        target = os.path.realpath(cache.path)
        lock = _look_beside(report, target)
        report.exists = _is_there(cache.path)
        if report.exists:
            _look_inside(report, cache, lock, tell)
    return report


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # what is wrong with it, reading it will tell
    return True


def repair(report: Report) -> list[str]:
    """Repair what *report* found, and return the copies of the damaged file that this made.

    By an empty commit, which writes a damaged file anew, ends a torn tail and
    sweeps temp files away, under the lock. A symlink in the place of a lock is
    removed, not what it leads to.

    Raises:
        StoreError, LockTimeoutError: It can't be repaired; the file is as it was.
    """
    target = os.path.realpath(report.path)
    for each in _locks_of(target):
        if os.path.islink(each):
            os.unlink(each)
    before = leftovers(target)[1]
    kinds = {finding.kind for finding in report.findings}
    if report.exists and (not report.is_good or "leftover" in kinds):
        with Cache(report.path, max_bytes=None, on_error="raise") as cache:
            cache._do(lambda store: _mend(store, has_lost_its_seal="mark" in kinds))
    return [each for each in leftovers(target)[1] if each not in before]


def _mend(store: Any, *, has_lost_its_seal: bool) -> None:
    store.demand()
    store._fresh().index  # noqa: B018 - a writer reads only the end of a log before it needs more
    if has_lost_its_seal:
        # To its writer a document that was edited is as good as any, and needs no copy.
        store._ready().run(set_aside, store._target)
    store.remove(Removal(new_id()))


# Beside the file.


def _locks_of(target: str) -> tuple[str, str]:
    return target + ".lock", target + ".flight"


def _look_beside(report: Report, target: str) -> FileLock | None:
    """Look at the folder and the lock of *target*; return the lock if it can be taken."""
    folder = os.path.dirname(target)
    lock, flight = _locks_of(target)
    for name, path in (("file", target), ("folder", folder), ("lock", lock)):
        try:
            mode = S_IMODE(os.lstat(path).st_mode)
        except OSError:
            continue
        report.modes[name] = f"{mode:04o}"
        if name != "folder" and os.name != "nt" and mode & 0o002 and not os.path.islink(path):
            why = f"anybody may change the {name} ({mode:04o}); chmod o-w {path}"
            report.find("permission", why, is_bad=False)
        if name == "file" and not mode & 0o222:
            why = f"the file is write-protected ({mode:04o}), so nothing is stored"
            report.find("permission", why, is_bad=False)
        if name == "folder" and mode & 0o002 and not mode & 0o1000:
            why = f"anybody may put files into its folder ({mode:04o}); chmod o-w {path}"
            report.find("permission", why, is_bad=False)
    if is_mount_point(target):
        why = "the file is a mount point of its own and can't be replaced; mount its folder instead"
        report.find("lock", why)
    temps, asides = leftovers(target)
    if temps:
        why = (
            f"temp files that writers left ({len(temps)}); the next store sweeps those of the dead"
        )
        report.find("leftover", why, is_bad=False)
    if asides:
        why = f"set aside when it was damaged: {', '.join(map(os.path.basename, asides))}"
        report.find("copy", why, is_bad=False)
    found = [_look_at_lock(report, each) for each in (lock, flight)]
    return _take(report, lock) if found[0] else None


def _look_at_lock(report: Report, path: str) -> bool:
    """Tell whether the lock or flight file *path* is there as it should be."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False  # made by the first who needs it
    if S_ISLNK(mode):
        why = f"{path} is a symlink to {os.readlink(path)}, and is not followed; remove it"
        report.find("lock", why)
    elif not S_ISREG(mode):
        report.find("lock", f"{path} is not a regular file; remove it")
    return S_ISREG(mode)


def _take(report: Report, path: str) -> FileLock | None:
    """Return the lock *path* if it can be taken within a second."""
    lock = make_lock(path, 0o600, _PATIENCE)
    try:
        lock.run(lambda: None)
    except LockTimeoutError:
        why = f"{path} is held by {_holder(path)} for more than {_PATIENCE:g} s; look again later"
        report.find("busy", why)
    except StoreError as error:
        report.find("lock", str(error))
    else:
        return lock
    lock.close()
    return None


def _holder(path: str) -> str:
    """Name the process that holds the lock *path*, where the system tells."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii") as table:
            for line in table:
                # 1: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF
                fields = line.split()
                if fields[1] == "FLOCK" and int(fields[5].rsplit(":", 1)[1]) == inode:
                    with open(f"/proc/{int(fields[4])}/comm", encoding="utf-8") as name:
                        return f"process {fields[4]} ({name.read().strip()})"
    except (OSError, ValueError, IndexError):
        pass  # another system, or a process that can't be seen from here
    return "another process"


# Inside.


def _look_inside(report: Report, cache: Cache, lock: FileLock | None, tell: Tell) -> None:
    try:
        report.format, view = cache._do(_load)
        if view.trouble is not None:
            raise view.trouble
        report.entries = len(view.index.items)
        if report.format == "log":
            kept = _Lines(report, tell).read(lock)
            report.entries = len(cache._do(_load)[1].index.items)  # some may have come meanwhile
            report.dead = max(0, kept - report.entries)
        else:
            _look_at_text(report)
    except LockTimeoutError as error:  # had a moment ago, and not for the end of a log
        report.find("busy", str(error))
    except OSError as error:
        why = error.why if isinstance(error, StoreError) else (error.strerror or str(error))
        report.find("version" if _is_newer(report.path) else "unreadable", why)


def _load(store: Any) -> tuple[str, Any]:
    """Return the format of the file of *store*, and its view, read whole."""
    view = store._fresh()
    view.index  # noqa: B018 - what is damaged is known once all is read
    return format_of_store(store), view


def _is_newer(path: str) -> bool:
    try:
        with open(os.open(path, READ), "rb") as file:  # a pipe must not hang us
            version = version_of(file.read(256) or b"")
    except OSError:
        return False
    return version is not None and version > _VERSION


class _Lines:
    """The audit of a log, line by line."""

    def __init__(self, report: Report, tell: Tell) -> None:
        self._report = report
        self._tell = tell
        self._place = 0  # where the first commit begins that is not judged yet
        self._number = 1  # its line
        self._kept = 0  # lines of entries
        self._told = 0

    def read(self, lock: FileLock | None) -> int:
        """Judge all lines, under *lock* those at the end that are not whole.

        Returns:
            How many are of entries.
        """
        report = self._report
        with open(report.path, "rb") as file:
            report.size = os.fstat(file.fileno()).st_size
            if report.size:
                self._head(file.readline())
                self._lines(file, is_final=False)
                if self._place != os.fstat(file.fileno()).st_size:
                    if lock is not None:
                        lock.run(lambda: self._lines(file, is_final=True))
                    elif self._is_alone():
                        self._lines(file, is_final=True)
        report.lines = self._number - 1
        if lock is not None:
            lock.close()
        return self._kept

    def _is_alone(self) -> bool:
        """Tell whether no writer can be at work, since none ever made a lock."""
        return not os.path.lexists(_locks_of(os.path.realpath(self._report.path))[0])

    def _head(self, line: bytes) -> None:
        if header_of(line) is None:
            why = "the header can't be read, so limits are lost; " + _PLAIN
            self._report.find("damaged", why, 1, 0)
        if line.endswith(b"\n"):
            self._place, self._number = len(line), 2

    def _lines(self, file: BinaryIO, *, is_final: bool) -> None:
        """Judge the lines from the place where the last commit ended.

        Args:
            file: The log.
            is_final: Whether nobody is writing: what is not whole will never be.
        """
        file.seek(self._place)
        self._report.size = os.fstat(file.fileno()).st_size
        place, number = self._place, self._number
        group: list[tuple[int, int, bytes]] = []
        for line in file:
            if not line.endswith(b"\n"):
                break
            if line.endswith(TORN):
                self._report.repaired += 1
                group = []
            elif is_whole(line):
                group.append((number, place, line))
                if ends_commit(line, len(line)):
                    self._commit(group)
                    group = []
            else:
                group = []
                self._report.find("damaged", f"{_why_bad(line)}; {_FORGOTTEN}", number, place)
            place += len(line)
            number += 1
            if not group:
                self._place, self._number = place, number
                if place - self._told > _STEP:
                    self._told = place
                    self._tell(place, self._report.size)
        left = self._report.size - self._place
        if left > 0 and is_final:
            if self._place:  # else it is the header, of which that was told
                why = f"the last {left} bytes are of a commit that was never finished"
                self._report.find("torn", why, self._number, self._place)
            self._number = number + (place < self._report.size)

    def _commit(self, group: list[tuple[int, int, bytes]]) -> None:
        """Judge what the lines of one commit say."""
        for number, place, line in group:
            if line.startswith(STEPS):
                if says(line) == [("removed", {})]:
                    self._note("what it takes away can't be told, so that is all", number, place)
                continue
            self._kept += 1
            try:
                is_good = entry_of(key_of(line, 1), line) is not None
            except ValueError:
                is_good = False
            if not is_good:
                self._note("its entry can't be read by this version", number, place)

    def _note(self, why: str, *place: int) -> None:
        self._report.find("unknown", why, *place, is_bad=False)


_PLAIN = "each line speaks for itself"
_FORGOTTEN = "it is forgotten with all before it, since what it replaced is unknown"


def _why_bad(line: bytes) -> str:
    if _SUM in line[-TRAILER:]:
        return "its checksum is wrong"
    return "no line of a log"


def _look_at_text(report: Report) -> None:
    """Judge a document or a flat file, by its bytes alone: it may be another one by now."""
    with open(report.path, "rb") as file:
        data = file.read()
    report.size = len(data)
    report.lines = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    text = text_of(data)
    if not text or parse_object(text) == {}:
        return  # an empty cache
    if report.format == "flat":
        report.findings += _flat_damage_of(text, data)
        return
    why = _why_unsealed(data)
    if why is not None:
        damage = list(_damage_of(data))
        if not damage and not _is_readable(data):
            damage.append(_broken(data))
        report.findings += damage
        report.find("mark", why, report.lines, data.rfind(b"\n", 0, -1) + 1)


def _is_readable(data: bytes) -> bool:
    try:
        return _parse(data)[1]
    except (FormatSwitched, _Newer):
        return True  # it has just become another, of which nothing was asked


def _why_unsealed(data: bytes) -> str | None:
    """Return why the end mark of a document does not vouch for it; None: it does."""
    if data.rfind(_END) < 0:
        return "there is no end mark: the file was cut off, or written by another program"
    frame = _frame_of(data)
    if frame is None:
        return "the end mark is not at its place: lines were added or taken away"
    try:
        frame.fill(_new_index(), 0)
    except ValueError:
        return "the checksum of the end mark is wrong: something was changed since"
    return None


def _damage_of(data: bytes) -> Iterator[Finding]:
    """Yield what can't be read of a document."""
    header: Any
    document = parse_object(text_of(data))
    start = data.find(_ENTRIES) + len(_ENTRIES)
    if document is not None:
        header, entries = document, document.get("entries")
        if type(entries) is dict:
            for key, form in entries.items():
                why = _why_no_form(key, form)
                if why is not None:
                    yield Finding("damaged", why, *_place_of(key, data))
    elif start >= len(_ENTRIES):
        header = parse_object(data[:start].decode(errors="replace") + "}}")
        yield from _bad_lines(data, start)
    else:
        return
    if header is None or not _take_header(_new_index(), header):
        yield Finding("damaged", "the header can't be read: limits and removals are lost", 1, 0)


def _bad_lines(data: bytes, place: int) -> Iterator[Finding]:
    """Yield the lines from *place* on, one entry each, that are none."""
    number = data.count(b"\n", 0, place) + 1
    for line in data[place:].splitlines(keepends=True):
        if line == _CLOSE or line.startswith(_END):
            return
        why = _why_no_entry(line)
        if why is not None:
            yield Finding("damaged", why, number, place)
        place += len(line)
        number += 1


def _place_of(key: str, data: bytes) -> tuple[int, int]:
    """Return the line and the byte where *key* stands in *data*; the first if it is escaped."""
    try:
        place = max(data.find(quote(key).encode(errors="surrogateescape")), 0)
    except UnicodeEncodeError:
        place = 0
    return data.count(b"\n", 0, place) + 1, place


def _why_no_form(key: str, form: Any) -> str | None:
    if not _is_key(key):
        return f"no key of ours: {key!r}"
    try:
        from_form(key, form)
    except ValueError as error:
        return f"no entry: {error}"
    return None


def _why_no_entry(line: bytes) -> str | None:
    """Return why *line* of a document is not one entry; None: it is."""
    try:
        key = key_of(line)
        if not _is_key(key):
            return f"no key of ours: {key!r}"
        from_line(key, line.removesuffix(b"\n").removesuffix(b","))
    except UnicodeDecodeError:
        return "not UTF-8"
    except ValueError as error:
        return f"no entry: {error}"
    return None


def _flat_damage_of(text: str, data: bytes) -> Iterator[Finding]:
    """Yield what can't be read of a flat file."""
    found = parse_object(text)
    if found is None:
        yield _broken(data)
    for key, value in (found or {}).items():
        if type(value) is not str:
            yield Finding("damaged", f"{key!r}: the response is no text", *_place_of(key, data))
        elif not _is_utf8(key + value):
            yield Finding("damaged", f"{key!r}: not UTF-8", *_place_of(key, data))


def _broken(data: bytes) -> Finding:
    """Return where *data* stops being a JSON object."""
    from json import JSONDecodeError, loads

    text = data.decode(errors="surrogateescape")
    try:
        loads(text.removeprefix("\ufeff"))
    except JSONDecodeError as error:
        place = len(text[: error.pos].encode(errors="surrogateescape"))
        return Finding("damaged", f"no JSON from here on: {error.msg}", error.lineno, place)
    except (RecursionError, ValueError) as error:
        return Finding("damaged", f"no JSON that can be read: {error}", 1, 0)
    return Finding("damaged", "no cache file of ours", 1, 0)
