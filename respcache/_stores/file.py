"""What all file stores share: the commit under the lock, and life without one.

A lookup compares one ``stat`` with the signature of what was loaded. A commit
takes the lock, loads what is new, applies its change to that, and publishes it.
Whatever fails leaves the entry *pending* here: served by this instance while
nothing newer is committed for its key, and tried again with each later commit.
"""

from __future__ import annotations

import errno
import os
from _thread import RLock
from abc import ABC, abstractmethod
from stat import S_ISLNK

from .._atomic import make_folder, refuse_mount_point, set_aside, sweep
from .._index import PENDING, SAME, STORED, Index, Put, Ticket
from .._lock import Descriptor, FileLock, make_lock, on_fork
from .._paths import signature
from ..errors import LockTimeoutError, StoreError
from . import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    from .._entry import Entry
    from .._paths import Signature
    from .._plan import Plan
    from .._rules import Removal

    T = TypeVar("T")

__all__ = ["BOM", "LOG", "SPACE", "FileStore", "View", "is_log", "version_of"]

LOG = b'{"respcache": 1, "log": true'
BOM = b"\xef\xbb\xbf"
SPACE = " \t\r\n"
_LOG_MORE, _LOG_SUM = b'", "more": "', b'", "sum": "'

_TRIES = 8  # of a commit whose lock file was removed under it
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DECODED = 64 * 1024 * 1024  # characters of responses kept decoded, in each store


class View:
    """What one version of a file holds; never changed once it is published.

    Args:
        index: Its entries.
        signature: Of the file; None if there is none, or none that may be relied on.
        file: Its descriptor, kept so that the inode number can't come back.
        trouble: Why the file may not be written as it is, or None.
        is_corrupt: Whether something in it could not be read.
    """

    __slots__ = (
        "decoded",
        "file",
        "history",
        "is_corrupt",
        "kept",
        "mutex",
        "seen",
        "signature",
        "trouble",
    )

    def __init__(
        self,
        index: Index,
        signature: Signature | None = None,
        file: Descriptor | None = None,
        *,
        trouble: OSError | None = None,
        is_corrupt: bool = False,
    ) -> None:
        self.mutex = RLock()  # guards an index that grows
        self.history = index  # good for what was removed, before the entries are needed
        self.signature = signature
        self.seen = signature  # what it really was, also if it may not be relied on
        self.file = file
        self.trouble = trouble
        self.is_corrupt = is_corrupt
        self.decoded: dict[str, Entry] = {}
        self.kept = 0

    @property
    def index(self) -> Index:
        """All entries."""
        return self.history

    def get(self, key: str) -> Entry | None:
        """Return the entry of *key*, decoded once."""
        entry = self.decoded.get(key)
        if entry is None:
            entry = self._find(key)
            if entry is not None:
                self.keep(key, entry)
        return entry

    def keep(self, key: str, entry: Entry) -> None:
        """Keep *entry* decoded, within a bound."""
        if self.kept > _DECODED:
            self.decoded = {}
            self.kept = 0
        self.kept += len(entry.raw or "") + (len(entry.value) if type(entry.value) is str else 0)
        self.decoded[key] = entry

    def _find(self, key: str) -> Entry | None:
        return self.index.get(key)

    def last_removal(self) -> str | None:
        """Return the id of the newest removal."""
        return self.history.last_removal()

    def is_cold_for(self, key: str) -> bool:
        """Tell whether an answer about *key* would have to be searched for."""
        return False


class FileStore(ABC):
    """The store of one file; subclasses know its format.

    Args:
        path: The absolute path of the file.
        mode: Permissions of the file and its lock when they are made.
        fsync: Whether a commit waits for the disk. None: as the format does.
        lock_timeout: Seconds to wait for the lock.
        limits: ``max_entries`` and ``max_bytes``.
        on_error: ``"raise"`` an error, or ``"warn"`` once and go on.
        now: Gives seconds since the epoch.
    """

    is_flat = False
    _syncs = True

    def __init__(
        self,
        path: str,
        *,
        mode: int,
        fsync: bool | None,
        lock_timeout: float,
        limits: dict[str, int | None],
        on_error: str,
        now: Callable[[], float],
    ) -> None:
        self.path = path
        self._mode = mode
        self._fsync = self._syncs if fsync is None else fsync
        self._timeout = lock_timeout
        self._limits = limits
        self._raises = on_error == "raise"
        self._now = now
        self._lock: FileLock | None = None
        self._target = ""
        self._is_swept = False
        self._place: tuple[int, int] | None = None  # the file that leads to this target
        self._is_link = False  # then nothing but a walk along it tells where it leads
        self._view = self._blank()
        self._puts: list[Put] = []
        self._removals: list[Removal] = []
        self._has_pending = False
        self._warned: set[str] = set()
        self._lives = 0
        self._renew_mutexes()
        on_fork(self)

    # What a format knows.

    def _size(self, entry: Entry) -> int:
        """Return the bytes that *entry* counts for."""
        return len(entry.line or b"")

    @abstractmethod
    def _blank(self) -> View:
        """Return the view of a file that is not there."""

    @abstractmethod
    def _load(self) -> View:
        """Return the view of the file at the path."""

    @abstractmethod
    def _publish(self, view: View, plan: Plan, is_current: Callable[[], bool]) -> View | None:
        """Write what *plan* makes of *view*; None if *is_current* said no."""

    # Reading: no lock, no waiting for a writer.

    def get(self, key: str) -> Entry | None:
        view = self._view
        try:
            status = os.stat(self.path)
        except OSError as error:
            view = self._absent(error)
        else:
            if view.signature != (
                status.st_dev,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            ):
                view = self._reload()
        try:
            if self._has_pending:
                return self._get_beside_pending(view, key)
            entry = view.decoded.get(key) or view.get(key)
        except OSError as error:
            self._unread(error)
            return None
        index = view.history
        return entry if not index.open or entry is None or not index.hides_entry(entry) else None

    def _unread(self, error: OSError) -> None:
        """Warn that what is in the file can't be read: for this once, it is a miss."""
        self._warn(self._explain(error))

    def _fresh(self) -> View:
        view = self._view
        try:
            status = os.stat(self.path)
        except OSError as error:
            return self._absent(error)
        return view if view.signature == signature(status) else self._reload()

    def _absent(self, error: OSError) -> View:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            # No file is an empty cache, whatever was in it before.
            if self._view.signature is not None:
                with self._loading:
                    self._adopt(self._blank())
            return self._view
        trouble = self._explain(error)
        self._warn(trouble)
        return self._unreliable(trouble)

    def _unreliable(self, trouble: OSError) -> View:
        """Return an empty view for this once: what can't be compared with the file may be stale."""
        view = self._blank()
        view.trouble = trouble
        return view

    def _reload(self) -> View:
        with self._loading:
            view = self._view
            try:
                if view.signature == signature(os.stat(self.path)):
                    return view  # another thread was faster
                view = self._load()
            except (FileNotFoundError, NotADirectoryError):
                view = self._blank()
            except OSError as error:
                trouble = self._explain(error)
                self._warn(trouble)
                return self._unreliable(trouble)
            self._adopt(view)
            if view.trouble is not None:
                self._warn(view.trouble)
            return view

    def _adopt(self, view: View, *, is_ours: bool = False) -> None:
        if view is self._view:
            return
        last = None if is_ours else self._view.history.last_removal()
        if last is not None and all(last != each.id for each in reversed(view.history.removals)):
            # Deleted, restored or cleared by an outsider: what was remembered
            # of the time before is gone.
            self._lives += 1
        view.history.lives = self._lives
        self._view = view

    def _get_beside_pending(self, view: View, key: str) -> Entry | None:
        with self._mutex:
            for put in self._puts:
                if put.entry.key == key:
                    # Of a file that can't be read, nothing newer is known.
                    if view.trouble is not None or self._plan(view).admits(put):
                        return put.entry
                    break
            entry = view.get(key)
            if entry is not None:
                paths = entry.touched()
                if view.history.hides(key, paths) or any(
                    removal.touches(key, paths)
                    for removal in self._removals
                    if removal.kind != "kept"
                ):
                    return None
            return entry

    def ticket(self, key: str) -> Ticket:
        view = self._fresh()
        if view.trouble is not None:
            view = self._view  # what was there when it could last be read
        hidden = frozenset(removal.id for removal in self._removals)
        try:
            version = view.seen  # first: what comes while this looks is later
            removal = view.last_removal()
            entry = view.get(key)
            id = None if entry is None else entry.id
            return Ticket(removal, id, self._lives, hidden, version)
        except OSError as error:
            self._unread(error)
            return Ticket("", None, self._lives, hidden)  # of no commit: it is refused

    def demand(self) -> None:
        """Raise what is wrong with a file that can't be read, or not by this version."""
        trouble = self._fresh().trouble
        if trouble is not None:
            raise trouble

    def entries(self) -> Iterator[Entry]:
        try:
            found = self._entries()
        except OSError as error:
            self._unread(error)
            found = iter(())
        return self._readable(found)

    def _readable(self, found: Iterator[Entry]) -> Iterator[Entry]:
        try:
            for entry in found:
                if not self._view.history.hides_entry(entry):
                    yield entry
        except OSError as error:
            self._unread(error)

    def _entries(self) -> Iterator[Entry]:
        view = self._fresh()
        if self._has_pending:
            keys = [*view.index.items, *(put.entry.key for put in self._puts)]
            found = (self._get_beside_pending(view, key) for key in dict.fromkeys(keys))
        else:
            found = (view.get(key) for key in list(view.index.items))
        return (entry for entry in found if entry is not None)

    def measure(self, scope: str) -> tuple[int, int]:
        try:
            view = self._fresh()
            with view.mutex:
                return view.index.measure(scope, self._now())
        except OSError as error:
            self._unread(error)
            return 0, 0

    def open_writes(self) -> list[Removal]:
        # Those of which the end waits here to be told are over.
        ended = {removal.ends for removal in self._removals}
        return [each for each in self._view.history.open.values() if each.id not in ended]

    @property
    def pending(self) -> int:
        """How many entries and removals wait for a commit."""
        return len(self._puts) + len(self._removals)

    # Writing: under the lock, on top of what is on disk.

    def put(self, puts: Sequence[Put], *, renew: bool = False) -> list[str]:
        try:
            if len(puts) == 1 and not renew:
                put = puts[0]
                if not self._has_pending and self._is_known(put):
                    return [SAME]
                if put.ticket is None and not put.yields and self._put_alone(put.entry):
                    return [STORED]
            plain = [put.entry.key for put in puts if put.ticket is None]
            return self._transact(
                lambda plan: [plan.put(put, renew=renew) for put in puts],
                plain,
                plain[0] if len(plain) == len(puts) == 1 else None,
            )
        except OSError as error:
            return self._keep(puts, error)

    def _put_alone(self, entry: Entry) -> bool:
        """Commit *entry* without a plan, where the format can and nothing else is to be done."""
        return False

    def _is_known(self, put: Put) -> bool:
        """Tell, after a look at the file but without the lock, whether nothing would change."""
        key = put.entry.key
        if self._view.is_cold_for(key) or self._view.get(key) is None:
            return False  # most stores are new, and need no look at the file yet
        current = self._fresh().get(key)
        return current is not None and current.still_says(put.entry, self._now())

    def remove(self, removal: Removal, *, commit: bool = True) -> int:
        with self._mutex:
            # From now on this instance serves nothing that it touches, whether or
            # not it can be committed.
            # A beginning that could not be told need not be told any more.
            self._removals = [each for each in self._removals if each.id != removal.ends]
            self._removals.append(removal)
            if removal.kind == "removed":
                self._puts = [
                    put
                    for put in self._puts
                    if not removal.touches(put.entry.key, put.entry.touched())
                ]
            self._has_pending = True
        touched = 0
        if removal.kind == "removed":
            try:
                view = self._fresh()
                with view.mutex:
                    touched = len(view.index.touched_by(removal))
            except OSError as error:
                self._unread(error)
        if not commit:
            return touched
        try:
            self._transact(lambda _: None)
            return removal.taken  # by this thread or by one that was faster
        except OSError as error:
            self._complain(error)
            return touched

    def discard(self, entries: Sequence[Entry]) -> int:
        if not entries:
            return 0
        try:
            return self._transact(lambda plan: plan.discard(entries))
        except OSError as error:
            self._complain(error)
            return 0

    def flush(self) -> bool:
        if self._has_pending:
            try:
                self._transact(lambda _: None)
            except OSError as error:
                self._complain(error)
        return not self._has_pending

    def close(self) -> None:
        with self._loading:
            self._adopt(self._blank())
        if self._lock is not None:
            self._lock.close()

    def _plan(self, view: View, only: str | None = None) -> Plan:
        """Return a plan for *view*, of which only the entry of the key *only* may be asked."""
        return self._plan_for(view.index, view)

    def _plan_for(self, index: Index, view: View) -> Plan:
        from .._plan import Plan  # lookups do without

        return Plan(
            index,
            size=self._size,
            now=self._now(),
            limits=self._limits,
            birth=new_id,
            version=view.seen,
        )

    def _transact(
        self, work: Callable[[Plan], T], plain: Sequence[str] = (), only: str | None = None
    ) -> T:
        """Publish what is pending, and what *work* plans on top of it.

        Args:
            work: Plans; its result is returned.
            plain: The keys that it puts whatever comes between: an older put
                of one that is pending gives way.
            only: The one key that it asks for.

        Raises:
            LockTimeoutError, StoreError, OSError: Nothing was committed, but for
                removals on a full disk: then the file is gone.
        """
        for number in range(_TRIES):
            lock = self._ready()
            # Somebody may keep touching the file's stamps: in the end it is enough
            # that it is the same file, of the same size.
            exact = 5 if number < _TRIES / 2 else 3
            outcome: tuple[T] | None = lock.run(self._attempt, lock, work, plain, only, exact)
            if outcome is not None:
                if self._warned:
                    self._warned.clear()
                return outcome[0]
        raise StoreError(
            lock.path,
            "it, or the file beside it, was changed from outside at each try; "
            "keep cleaners and programs that take no lock away",
        )

    def _ready(self) -> FileLock:
        lock = self._lock
        if lock is not None and self._is_in_place():
            return lock
        with self._placing:
            return self._find_lock()

    def _find_lock(self) -> FileLock:
        lock = self._lock
        try:
            status = os.stat(self.path)
            self._place = (status.st_dev, status.st_ino)
        except OSError:
            self._place = None
        self._is_link = os.path.islink(self.path)
        # A link stays a link, with its target's lock. Strict: else it would be taken
        # for a file, and replaced by one, when it can't be read for once.
        try:
            target = os.path.realpath(self.path, strict=True)
        except FileNotFoundError:
            target = os.path.realpath(self.path)
        if lock is None or target != self._target:
            if lock is not None:
                lock.close()
            refuse_mount_point(target)
            lock = make_lock(target + ".lock", self._mode, self._timeout)
            self._lock, self._target, self._is_swept = lock, target, False
        make_folder(os.path.dirname(target), self._mode)
        return lock

    def _is_in_place(self) -> bool:
        """Tell by one look that the path still leads where it led."""
        if self._place is None or self._is_link:
            return False
        try:
            status = os.lstat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._place and not S_ISLNK(status.st_mode)

    def _attempt(
        self,
        lock: FileLock,
        work: Callable[[Plan], T],
        plain: Sequence[str],
        only: str | None,
        exact: int,
    ) -> tuple[T] | None:
        """Do one try under *lock*; return its result, or None if it does not hold.

        *exact*: how many parts of the signature must be as they were loaded.
        """
        if lock is not self._lock:
            return None  # the link was pointed elsewhere meanwhile, and another thread saw it
        if not self._is_swept:
            sweep(self._target)
            self._is_swept = True
        view = self._load_for_writing()
        # Asked for under the lock: another thread may just have committed it.
        with self._mutex:
            removals, waiting = tuple(self._removals), tuple(self._puts)
        plan = self._plan(view, None if removals or waiting else only)
        counts = [plan.remove(removal) for removal in removals]
        for put in waiting:
            if put.entry.key not in plain:
                plan.put(put)
        result = work(plan)
        plan.enforce()
        if plan.is_change or view.is_corrupt:
            try:
                new = self._publish(view, plan, lambda: lock.is_held() and self._is_at(view, exact))
            except OSError as error:
                if error.errno in _FULL and any(each.kind != "kept" for each in removals):
                    # Entries can be had again, stale answers can't be taken back.
                    self._remove_file()
                    self._settle([each for each in removals if each.kind == "removed"], ())
                raise
            if new is None:
                return None
            self._adopt(new, is_ours=True)
            for removal, count in zip(removals, counts, strict=True):
                # Not before: a try that came to nothing took nothing. And a second
                # one finds done what the first did, and must not count it as nothing.
                removal.taken = max(removal.taken, count)
            if new.signature is not None:
                self._place = new.signature[:2]
            # Unlinked since the look before the rename, it let another writer in,
            # who may have renamed over our change: look whether it is still there.
            if not lock.is_held():
                return None
        if removals or waiting:
            self._settle(removals, waiting)
        return (result,)

    def _remove_file(self) -> None:
        try:
            os.unlink(self._target)
        except FileNotFoundError:
            pass

    def _is_at(self, view: View, exact: int = 5) -> bool:
        try:
            status = os.stat(self._target)
            return view.signature is not None and (
                view.signature[:exact] == signature(status)[:exact]
            )
        except FileNotFoundError:
            return view.signature is None

    def _load_for_writing(self) -> View:
        with self._loading:
            view = self._view
            try:
                status = os.stat(self.path)
                if view.signature != signature(status):
                    view = self._load()
            except (FileNotFoundError, NotADirectoryError):
                view = self._blank() if view.signature is not None else view
            else:
                if not status.st_mode & 0o222:
                    raise StoreError(
                        self.path, "is write-protected and stays as it is; chmod u+w lets it change"
                    )
            if view is not self._view:
                self._adopt(view)
            if view.trouble is not None:
                raise view.trouble
            return view

    # What can't be committed.

    def surrender(self) -> list[Entry]:
        """Return the entries that wait, for another store to take over."""
        with self._mutex:
            return [put.entry for put in self._puts]

    def hold(self, entries: Sequence[Entry]) -> None:
        """Let *entries* wait for a commit here."""
        self._wait([Put(entry) for entry in entries])

    def _keep(self, puts: Sequence[Put], error: OSError) -> list[str]:
        """Serve *puts* from here until they can be committed."""
        self._complain(error)
        self._wait(puts)
        return [PENDING] * len(puts)

    def _wait(self, puts: Sequence[Put]) -> None:
        for put in puts:
            if put.ticket is None:
                put.ticket = self.ticket(put.entry.key)
        keys = {put.entry.key for put in puts}
        with self._mutex:
            kept = [put for put in self._puts if put.entry.key not in keys] + list(puts)
            most = self._limits.get("max_entries")
            room = self._limits.get("max_bytes")
            total = sum(len(put.entry.line or b"") for put in kept)
            while kept and (
                (most is not None and len(kept) > most) or (room is not None and total > room)
            ):
                total -= len(kept.pop(0).entry.line or b"")
            self._puts = kept
            self._has_pending = bool(self._removals or self._puts)

    def _settle(self, removals: Sequence[Removal], puts: Sequence[Put]) -> None:
        with self._mutex:
            self._removals = [each for each in self._removals if each not in removals]
            self._puts = [each for each in self._puts if each not in puts]
            self._has_pending = bool(self._removals or self._puts)

    def _explain(self, error: OSError) -> LockTimeoutError | StoreError:
        if isinstance(error, LockTimeoutError | StoreError):
            return error
        path = error.filename
        if not isinstance(path, str) or path.startswith(self._target + "."):
            path = self.path  # not the name of a temp file that nobody knows
        why = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the disk quota is used up",
            errno.EROFS: "the file system is read-only",
            errno.EACCES: "permission denied",
            errno.EPERM: "permission denied",
        }.get(error.errno or 0, str(error.strerror or error))
        if not self._raises:
            why += "; entries stay in memory until it can be used"
        made = StoreError(path, why, error.errno)
        made.__cause__ = error
        return made

    def _set_aside(self, view: View, count: int) -> None:
        """Keep a copy of the damaged file of *view*, of which *count* entries could be read."""
        aside = set_aside(self._target)
        status = os.stat(self._target)
        if view.signature is not None and signature(status)[:4] == view.signature[:4]:
            view.signature = signature(status)  # a second link changes the ctime
        if aside is not None:
            why = f"was damaged; {count} entries could be read, and a copy is at {aside}"
            self._warn(StoreError(self._target, why))

    def _complain(self, error: OSError) -> None:
        explained = self._explain(error)
        if self._raises:
            raise explained from explained.__cause__
        self._warn(explained)

    def _warn(self, error: Exception) -> None:
        """Log *error*, once for each kind until a commit succeeds."""
        kind = error.why if isinstance(error, StoreError) else type(error).__name__
        if kind not in self._warned:
            self._warned.add(kind)
            from logging import getLogger  # 24 ms that only trouble costs

            getLogger("respcache").warning("%s", error)

    def _renew_mutexes(self) -> None:
        self._mutex = RLock()  # guards what is pending; never held over I/O
        self._loading = RLock()  # one thread loads a changed file, for all
        self._placing = RLock()  # one thread finds the lock, for all

    def _forked(self) -> None:
        # The parent flushes what it has pending; what may be stale stays hidden.
        self._renew_mutexes()
        self._puts = []
        self._has_pending = bool(self._removals)
        self._lives += 1
        self._view = self._blank()


# Which format a file is of; here, so that a process loads the store of its own alone.


def is_log(data: bytes) -> bool:
    """Tell whether *data*, the start or the end of a file, is of a log.

    By its header or, since that may be damaged, by how its lines end: no line of
    a document does, within whose texts the quotes are escaped.
    """
    if data.startswith(LOG):
        return True
    at = data.find(_LOG_SUM)
    while at >= 0:
        more, end = at - 12 - len(_LOG_MORE), at + len(_LOG_SUM) + 8
        if more >= 0 and data.startswith(_LOG_MORE, more) and data.startswith(b'"}\n', end):
            return True
        at = data.find(_LOG_SUM, at + 1)
    return False


def version_of(data: bytes) -> int | None:
    """Return the version that *data* claims, before anything else of it is judged."""
    head = data[:256].removeprefix(BOM).translate(None, SPACE.encode())
    digits = head.removeprefix(b'{"respcache":')
    if digits == head:
        return None
    number = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    return int(number) if number and digits[len(number) : len(number) + 1] in b",}" else None
