"""Replace a file so that every reader sees the old bytes or the new ones.

Temp file in the same folder, fsync, rename, fsync of the folder. A process
killed at any step leaves the old file whole and at most a temp file, which the
next writer sweeps: a live maker holds a lock on its own.
"""

from __future__ import annotations

import errno
import os
from time import gmtime, sleep, strftime, time_ns

from .errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

__all__ = [
    "APPEND",
    "KEEPS_OPEN",
    "READ",
    "Replacement",
    "is_mount_point",
    "leftovers",
    "make_folder",
    "read",
    "replace",
    "set_aside",
    "sweep",
    "sync_data",
    "write",
]

READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO at the path must not hang us
)
APPEND = (
    os.O_WRONLY
    | os.O_APPEND
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
_MAKE = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
_MOUNT = "is a mount point of its own and can't be replaced; mount its folder instead"
_STEPS = (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)
_ASIDE = 3

# Windows does not replace a file that anybody has open, so no reader there may
# keep what it has loaded; the forced mtime alone tells versions apart.
KEEPS_OPEN = os.name != "nt"


def read(path: str) -> tuple[int, os.stat_result, bytes]:
    """Return an open descriptor of *path*, its status before reading, and its bytes.

    The status is taken first: a change during the reading then shows as another
    signature at the next look. Who keeps the descriptor keeps the inode number
    from coming back.

    Raises:
        OSError: It can't be read. "Can't read" is not "empty".
        StoreError: It is not a regular file.
    """
    fd = os.open(path, READ)
    try:
        status = os.fstat(fd)
        if (status.st_mode & 0o170000) != 0o100000:
            raise StoreError(path, "is not a regular file; choose another path")
        parts = []
        # One read is short past 2 GiB, and a foreign writer may append meanwhile.
        while part := os.read(fd, max(status.st_size + 1, 65_536)):
            parts.append(part)
        return fd, status, parts[0] if len(parts) == 1 else b"".join(parts)
    except BaseException:
        os.close(fd)
        raise


def make_folder(path: str, mode: int) -> None:
    """Make the folder *path* and those above it, open to whom files of *mode* are open to."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_folder(above, mode)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, mode | (mode & 0o444) >> 2 | 0o700)


class Replacement:
    """A new file on its way to the place of an old one.

    Used with ``with``: whatever happens, no temp file is left. The new file
    keeps the permissions and owner of the old one, and its mtime is strictly
    later, so that no reader can take it for the old.

    Args:
        path: The real path; a symlink there would be replaced.
        mode: The permissions of a file that is new.
    """

    def __init__(self, path: str, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._temp = ""
        self.fd = -1

    def __enter__(self) -> Self:
        try:
            while not self._make():
                self._discard()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> bool:
        """Make the temp file, and tell whether it is ours: locked before a sweeper came."""
        # Named before it is made: a signal handler may raise in between.
        self._temp = f"{self._path}.{os.urandom(8).hex()}.tmp"
        self.fd = os.open(self._temp, _MAKE, 0o600)
        if fcntl is None:
            return True
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return os.fstat(self.fd).st_nlink > 0

    def write(self, parts: Iterable[bytes]) -> None:
        """Write *parts* after what is there."""
        for part in parts:
            write(self.fd, part)

    def publish(self, *, fsync: bool, is_current: Callable[[], bool]) -> bool:
        """Put the file in its place, under the cache's lock.

        Args:
            fsync: Wait until the disk has it, before and after the rename.
            is_current: Asked right before the rename.

        Returns:
            Whether it was done; not if *is_current* said no.

        Raises:
            OSError: The old file is as it was.
        """
        old = _status(self._path)
        _dress(self.fd, self._temp, self._mode, old)
        if old is not None:
            _outdate(self._temp, old.st_mtime_ns)
        if fsync:
            _sync(self.fd)
        if not is_current():
            return False
        if not KEEPS_OPEN:
            self._close()
        _rename(self._temp, self._path)
        self._temp = ""
        if fsync:
            _sync_folder(os.path.dirname(self._path))
        return True

    def take(self) -> int:
        """Return the descriptor, which is the caller's from now on; -1 if it is closed."""
        if self.fd >= 0 and fcntl is not None:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        fd, self.fd = self.fd, -1
        return fd

    def __exit__(self, *_: object) -> None:
        try:
            self._discard()
        finally:
            self._discard()  # again, if a signal handler raised within

    def _discard(self) -> None:
        self._close()
        if self._temp:
            try:
                os.unlink(self._temp)
            except OSError:
                pass  # never made, or renamed already
            self._temp = ""

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def replace(
    path: str,
    parts: Iterable[bytes],
    *,
    mode: int,
    fsync: bool,
    is_current: Callable[[], bool],
) -> tuple[int | None, os.stat_result] | None:
    """Put *parts* in the place of the file *path*, as :class:`Replacement` does it.

    Returns:
        A descriptor of the new file (None where an open one would stand in the
        way of the next replacement) and its status, or None if *is_current* said
        no: then nothing was changed.
    """
    with Replacement(path, mode) as made:
        made.write(parts)
        if not made.publish(fsync=fsync, is_current=is_current):
            return None
        fd = made.take()
    if fd < 0:
        return None, os.stat(path)
    return fd, os.fstat(fd)  # after the rename, which changes ctime


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def write(fd: int, data: bytes) -> None:
    """Write all of *data*."""
    done = os.write(fd, data)
    if done < len(data):
        view = memoryview(data)
        while done < len(view):
            done += os.write(fd, view[done:])


def _dress(fd: int, temp: str, mode: int, old: os.stat_result | None) -> None:
    wanted = mode if old is None else old.st_mode & 0o7777
    if hasattr(os, "fchown") and old is not None:
        made = os.fstat(fd)
        if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
            try:
                os.fchown(fd, old.st_uid, old.st_gid)
            except OSError:
                pass  # only root may give files away; ours is readable as before
    if hasattr(os, "fchmod"):
        os.fchmod(fd, wanted)
    else:
        os.chmod(temp, wanted)


def _outdate(temp: str, old: int) -> None:
    """Make the mtime of *temp* later than *old*, in ns, if the file system can tell them apart."""
    now = os.stat(temp).st_mtime_ns
    for step in _STEPS:
        if now > old:
            return
        # Not "until it is larger": at the last stamp that a file system can
        # hold that would never end. ctime and the inode still differ.
        try:
            os.utime(temp, ns=(old + step, old + step))
        except (OSError, OverflowError):
            return
        now = os.stat(temp).st_mtime_ns


def _sync(fd: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # macOS: fsync stops at the drive's own cache
    else:
        os.fsync(fd)


def sync_data(fd: int) -> None:
    """Wait until the disk has the bytes of *fd*."""
    if hasattr(fcntl, "F_FULLFSYNC") or not hasattr(os, "fdatasync"):
        _sync(fd)
    else:
        os.fdatasync(fd)


def _sync_folder(path: str) -> None:
    try:
        fd = os.open(path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return  # Windows opens no folders; the rename itself has happened
    try:
        os.fsync(fd)
    except OSError:
        pass  # some file systems do not sync folders
    finally:
        os.close(fd)


def _rename(temp: str, path: str) -> None:
    pause = 0.001
    while True:
        try:
            return os.replace(temp, path)
        except PermissionError:
            # Windows refuses while a reader, a virus scanner or an indexer has
            # the file open; elsewhere a refusal is final.
            if os.name != "nt" or pause > 1:
                raise
            sleep(pause)
            pause *= 2
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.EXDEV):
                raise StoreError(path, _MOUNT, error.errno) from error
            raise


def is_mount_point(path: str, table: str = "/proc/self/mountinfo") -> bool:
    """Tell whether the file *path* is mounted singly, as containers do.

    Each container would lock a ``.lock`` of its own, and all would be inside.
    """
    try:
        with open(table, "rb") as lines:
            for line in lines:
                point = line.split(b" ")[4]
                for code in (b"\\040", b"\\011", b"\\012", b"\\134"):
                    point = point.replace(code, bytes([int(code[1:], 8)]))
                if os.fsdecode(point) == path:
                    return True
    except (OSError, IndexError):
        pass  # no such table here: a rename that is refused as busy tells
    return False


def refuse_mount_point(path: str) -> None:
    """Raise a StoreError if *path* is a mount point of its own."""
    if is_mount_point(path):
        raise StoreError(path, _MOUNT, errno.EBUSY)


def leftovers(path: str) -> tuple[list[str], list[str]]:
    """Return the temp files of writers of *path*, dead or alive, and the copies set aside.

    Both sorted by name, copies so by age. None of a folder that can't be listed.
    """
    folder, name = os.path.split(path)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return [], []  # a folder to write in, but not to list
    mark = f"{name}.corrupt-"
    return (
        [os.path.join(folder, each) for each in names if _is_temp(each, name)],
        [os.path.join(folder, each) for each in names if _is_aside(each, mark)],
    )


def _is_temp(temp: str, name: str) -> bool:
    middle = temp[len(name) + 1 : -4]
    is_named_so = temp == f"{name}.{middle}.tmp" and len(middle) == 16
    return is_named_so and not middle.strip("0123456789abcdef")


def sweep(path: str) -> None:
    """Remove the temp files of dead writers of *path*; the caller holds its lock.

    Those of live writers are locked, and other names are none of ours.
    """
    for full in leftovers(path)[0]:
        if fcntl is None:
            try:
                os.unlink(full)  # refused while its maker has it open
            except OSError:
                pass
            continue
        try:
            fd = os.open(full, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(full)
        except OSError:
            pass
        finally:
            os.close(fd)


def set_aside(path: str) -> str | None:
    """Keep a copy of the corrupt file *path* as ``<name>.corrupt-<time>``, three at most.

    By a second link, so that the path is never absent; the next commit renames
    over it. The caller holds the lock.

    Returns:
        The copy; None if there is one of this very file already.
    """
    kept = leftovers(path)[1]
    status = os.stat(path)
    for each in kept:
        other = _status(each)
        if other is not None and _stamp(other) == _stamp(status):
            return None
    now = time_ns()
    stamp = f"{strftime('%Y%m%d-%H%M%S', gmtime(now // 10**9))}-{now % 10**9:09d}"
    aside = f"{path}.corrupt-{stamp}"
    try:
        os.link(path, aside)
    except OSError:
        from shutil import copy2  # no hard links here

        try:
            copy2(path, aside)
        except BaseException:
            if os.path.exists(aside):
                os.unlink(aside)  # half a copy is none
            raise
    for each in [*kept, aside][:-_ASIDE]:
        try:
            os.unlink(each)
        except OSError:
            pass  # gone already, or not ours to remove
    return aside


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _is_aside(name: str, mark: str) -> bool:
    """Tell whether we made *name*: others that look alike are not ours to remove."""
    parts = name.removeprefix(mark).split("-")
    return (
        name.startswith(mark)
        and [len(part) for part in parts] == [8, 6, 9]
        and all(part.isdecimal() for part in parts)
    )
