"""The lock of a cache file, bytes that mark work in flight, and patient waiting.

Writers of a file exclude each other by ``flock`` on a sibling file that is
never deleted, never truncated and holds nothing. ``filelock``, ``portalocker``,
``flock(1)`` and Go's ``syscall.Flock`` take the same lock, so all of them
exclude us and we them. Readers take no lock.
"""

from __future__ import annotations

import errno
import os
from _thread import TIMEOUT_MAX, RLock, allocate_lock
from _weakref import ref
from time import monotonic, sleep

from .errors import LockTimeoutError, StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

__all__ = ["Descriptor", "FileLock", "RangeLock", "make_lock", "on_fork", "pauses"]

_FLAGS = (
    os.O_RDWR  # NFS locks only what is open for writing
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO in its place must not hang us
)
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
_MISSING = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)

_objects: dict[int, Any] = {}


def on_fork(thing: Any) -> None:
    """Have ``thing._forked()`` called in each forked child, as long as *thing* lives.

    Descriptors carry their locks into the child: it would enter a lock that
    its parent holds, and keep a dead leader's flight alive.
    """
    name = id(thing)
    _objects[name] = ref(thing, lambda _: _objects.pop(name, None))


def _forked() -> None:
    for each in list(_objects.values()):
        thing = each()
        if thing is not None:
            thing._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def pauses(seconds: float, cap: float = 0.001) -> Iterator[float]:
    """Yield jittered sleeps of 50 us doubling to *cap*, until *seconds* have passed.

    Measured against the kernel's own queue: the same 17,000 locks a second,
    and a hand-over of 0.5 ms; longer caps starve, shorter ones burn.
    """
    deadline = monotonic() + seconds
    pause = 0.00005
    while (left := deadline - monotonic()) > 0:
        yield min(pause * (0.5 + os.urandom(1)[0] / 255), left)
        pause = min(pause * 2, cap)


class Descriptor:
    """A kept file descriptor that knows its process and its file.

    A daemonizing library may close all descriptors, and the number may come
    back as a file of the user's: each use and the close check that the number
    still means the file that was opened.
    """

    __slots__ = ("fd", "identity", "links", "pid")

    def __init__(self, fd: int) -> None:
        self.fd = -1
        try:
            status = os.fstat(fd)
        except BaseException:
            os.close(fd)  # it was given to us
            raise
        self.fd = fd
        self.identity = (status.st_dev, status.st_ino)
        self.links = status.st_nlink
        self.pid = os.getpid()

    def is_ours(self) -> bool:
        """Tell whether the number still means our file, in this very process."""
        if self.pid != os.getpid():
            return False
        try:
            status = os.fstat(self.fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def is_linked(self) -> bool:
        """Tell whether it is still our file, with as many names as when it was opened.

        Half of what a look at its path costs, and as good against who removes
        or replaces it; a file that was moved away keeps its names.
        """
        try:
            status = os.fstat(self.fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity and status.st_nlink == self.links

    def is_at(self, path: str) -> bool:
        """Tell whether *path* still leads to our file."""
        try:
            status = os.lstat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def close(self) -> None:
        """Close the number, unless it means another file by now."""
        fd, self.fd = self.fd, -1
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) == self.identity:
                os.close(fd)
        except OSError:
            pass

    def __del__(self) -> None:
        if os is not None and self.fd >= 0:  # os is gone late at the interpreter's end
            self.close()


def open_sibling(path: str, mode: int) -> Descriptor:
    """Open the lock or flight file at *path*, made with exactly *mode* if it is missing.

    Raises:
        StoreError: It is a symlink or not a regular file, or may not be opened.
    """
    try:
        while True:
            try:
                fd = os.open(path, _FLAGS)
                break
            except FileNotFoundError:
                try:
                    fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
                except FileExistsError:
                    continue
                if hasattr(os, "fchmod"):
                    try:
                        os.fchmod(fd, mode)  # whatever the umask took away
                    except BaseException:
                        os.close(fd)
                        raise
                break
    except OSError as error:
        if error.errno == errno.ELOOP:
            why = "is a symlink, and a lock through one could harm its target; remove it"
            raise StoreError(path, why, error.errno) from error
        raise StoreError(
            path,
            f"can't be opened for locking ({error.strerror}); its folder must be one to write in",
            error.errno,
        ) from error
    file = Descriptor(fd)
    if (os.fstat(fd).st_mode & 0o170000) != 0o100000:
        raise StoreError(path, "is not a regular file; remove it")
    return file


class FileLock:
    """Exclude other writers, in this process and in others, while a function runs.

    An in-process lock comes first, so that one thread of a process polls. A
    holder that dies frees the lock at once: the system drops it with the
    descriptor.

    Args:
        path: The lock file; made if missing, never deleted.
        mode: Its permissions when it is made.
        timeout: Seconds to wait. After one wait that ran out, the next tries
            do not wait until one succeeds: a stopped holder must not cost
            every store its full timeout.
    """

    __slots__ = ("__weakref__", "_file", "_impatient", "_mutex", "mode", "path", "timeout")

    def __init__(self, path: str, mode: int, timeout: float) -> None:
        self.path = path
        self.mode = mode
        self.timeout = timeout
        self._file: Descriptor | None = None
        self._impatient = False
        self._mutex = RLock()
        on_fork(self)

    def run(self, work: Callable[..., T], *given: Any) -> T:
        """Return ``work(*given)``, run while the lock is held.

        Raises:
            LockTimeoutError: It was not had in time, or this thread holds it
                already (a signal handler came back in).
            StoreError: The lock file can't be used, or this file system has
                no such locks.
        """
        mutex: Any = self._mutex
        if mutex._is_owned():
            raise LockTimeoutError(self.path, 0.0)
        # A signal handler may raise between any two lines here, also in what
        # frees the locks. So all is asked of the locks themselves, not of
        # variables, and freed twice over.
        try:
            try:
                self._enter(mutex)
                return work(*given)
            finally:
                if mutex._is_owned():
                    self._free()
                    mutex.release()
        finally:
            if mutex._is_owned():
                self._free()
                mutex.release()

    def _enter(self, mutex: Any) -> None:
        is_free = mutex.acquire(False)
        if is_free and self._take_at_once():
            self._impatient = False
            return
        timeout = 0.0 if self._impatient else min(self.timeout, TIMEOUT_MAX)
        if not is_free:
            began = monotonic()
            if not mutex.acquire(timeout=timeout):
                self._impatient = True
                raise LockTimeoutError(self.path, monotonic() - began)
            timeout = max(0.0, timeout - (monotonic() - began))
        self._take(timeout)
        self._impatient = False

    def is_held(self) -> bool:
        """Tell whether the file that we locked is still the one at the path.

        A temp cleaner or ``git clean`` may unlink it; the next to come would
        lock a new file and be inside together with us.
        """
        return self._file is not None and self._file.is_at(self.path)

    def is_linked(self) -> bool:
        """Tell by a cheaper look whether the file that we locked still has its names."""
        return self._file is not None and self._file.is_linked()

    def _take_at_once(self) -> bool:
        """Take it if it is free and its kept descriptor is good."""
        file = self._file
        return (
            file is not None and file.pid == os.getpid() and file.is_linked() and self._try(file.fd)
        )

    def _take(self, timeout: float) -> None:
        wait = None
        while True:
            file = self._file
            if file is None or not file.is_ours():
                # Not closed: in another process the number is not ours to close.
                file = self._file = open_sibling(self.path, self.mode)
            while not self._try(file.fd):
                if wait is None:
                    wait = pauses(timeout)
                pause = next(wait, None)
                if pause is None:
                    self._impatient = True
                    raise LockTimeoutError(self.path, timeout)
                sleep(pause)
            if file.is_at(self.path):
                file.links = os.fstat(file.fd).st_nlink
                return
            self._file = None
            file.close()

    def _try(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            if error.errno in _MISSING:
                why = "this file system has no flock; entries are kept in memory only"
            else:
                why = f"can't be locked: {error.strerror}"
            raise StoreError(self.path, why, error.errno) from error
        return True

    def _free(self) -> None:
        file = self._file
        # By LOCK_UN, not by closing: a child that was forked in C still has
        # the descriptor. And never from such a child: it would free ours.
        if file is not None and file.pid == os.getpid():
            try:
                fcntl.flock(file.fd, fcntl.LOCK_UN)
            except OSError:
                self._file = None

    def _forked(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._mutex = RLock()

    def close(self) -> None:
        """Close the kept descriptor, unless somebody here holds the lock by it."""
        mutex: Any = self._mutex
        if mutex._is_owned() or not mutex.acquire(blocking=False):
            return  # closing it would let others in
        try:
            file, self._file = self._file, None
            if file is not None and file.pid == os.getpid():
                file.close()
        finally:
            mutex.release()


class PortableLock(FileLock):
    """The same by the ``filelock`` library, where there is no flock (Windows)."""

    __slots__ = ("_lock",)

    def __init__(self, path: str, mode: int, timeout: float) -> None:
        super().__init__(path, mode, timeout)
        import filelock

        # Its existence lock would time out on our never-deleted file, and a
        # file that is removed on release lets two holders in.
        self._lock = filelock.FileLock(
            path, mode=mode, fallback_to_soft=False, preserve_lock_file=True
        )

    def is_held(self) -> bool:
        """Tell whether we hold it; an open file can't be unlinked there."""
        return self._lock.is_locked

    is_linked = is_held

    def _take_at_once(self) -> bool:
        return False

    def _take(self, timeout: float) -> None:
        import filelock

        try:
            self._lock.acquire(timeout=timeout, poll_interval=0.001)
        except filelock.Timeout:
            self._impatient = True
            raise LockTimeoutError(self.path, timeout) from None
        except OSError as error:
            raise StoreError(self.path, f"can't be locked: {error}", error.errno) from error

    def _free(self) -> None:
        self._lock.release()


def make_lock(path: str, mode: int, timeout: float) -> FileLock:
    """Return the lock of this platform for *path*."""
    return (FileLock if fcntl is not None else PortableLock)(path, mode, timeout)


class RangeLock:
    """Hold single bytes of one file, each named by a number; the dead hold none.

    Open-file-description locks: a byte belongs to our descriptor, so two caches
    of one process exclude each other as two processes do, and the system frees
    all with the process. They lie in a file of their own, since on NFS, BSD and
    macOS such ranges and flock conflict, and a leader would block its own store.
    Where there are none (or no file can be made), nothing is held and nothing
    is ever found held: one process only.

    Args:
        path: The file; made if missing, never deleted.
        mode: Its permissions when it is made.
    """

    __slots__ = ("__weakref__", "_file", "_opening", "mode", "path")

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self.mode = mode
        self._file: Descriptor | None = None
        self._opening = allocate_lock()
        on_fork(self)

    def take(self, byte: int) -> bool:
        """Hold *byte*; False if another holds it."""
        answer = self._control("F_OFD_SETLK", "F_WRLCK", byte)
        return answer is not False

    def is_taken(self, byte: int) -> bool | None:
        """Tell whether another holds *byte*; None: nobody can tell."""
        answer = self._control("F_OFD_GETLK", "F_WRLCK", byte)
        return None if answer is None else answer != fcntl.F_UNLCK

    def identity(self) -> str:
        """Return what tells the file from another that was put in its place; "": there is none."""
        return "" if self._file is None else "{}:{}".format(*self._file.identity)

    def free(self, byte: int) -> None:
        """Let *byte* go."""
        self._control("F_OFD_SETLK", "F_UNLCK", byte)

    def _control(self, command: str, kind: str, byte: int) -> int | bool | None:
        """Return the lock's kind, False if it is busy, or None without such locks."""
        import struct

        number = getattr(fcntl, command, None)
        if number is None:
            return None
        layout = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid
        try:
            file = self._file
            if file is None or not file.is_ours():
                file = self._open()
            form = struct.pack(layout, getattr(fcntl, kind), 0, byte, 1, 0)
            answer = fcntl.fcntl(file.fd, number, form)
        except OSError as error:
            return False if error.errno in _BUSY and not isinstance(error, StoreError) else None
        return int(struct.unpack(layout, answer)[0])

    def _open(self) -> Descriptor:
        # One thread alone: a second descriptor in its place would let all bytes go.
        with self._opening:
            file = self._file
            if file is None or not file.is_ours():
                file = self._file = open_sibling(self.path, self.mode)
            return file

    def _forked(self) -> None:
        self._opening = allocate_lock()  # a thread of the parent may hold the other
        self.close()

    def close(self) -> None:
        """Close the file, which lets all bytes go."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
