"""Replacing a file: whole or not at all, with nothing left behind and nothing else touched."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import sys

import pytest

from respcache import Cache, StoreError, _atomic

processes = pytest.mark.xdist_group("processes")
LONG = 60.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.json"


@pytest.fixture
def make(path, clock):
    def open_cache(at=path, **options) -> Cache:
        return Cache(at, **{"fsync": False, "clock": clock, **options})

    return open_cache


def temps(folder) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def mode_of(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def temp_name(path, digits: str = "0123456789abcdef") -> str:
    return f"{path}.{digits}.tmp"


def replace(path, data: bytes = b"new", **options):
    """Replace *path* as a store does, and close what is kept of it."""
    made = _atomic.replace(
        str(path),
        [data],
        **{"mode": 0o600, "fsync": False, "is_current": lambda: True, **options},
    )
    if made is not None:
        os.close(made[0])
    return made


class Recorder:
    """Note the calls of some functions of ``os``, in order."""

    def __init__(self, monkeypatch, *names: str) -> None:
        self.calls = []
        for name in names:
            real = getattr(os, name)

            def call(*args, name=name, real=real, **options):
                self.calls.append((name, args))
                return real(*args, **options)

            monkeypatch.setattr(os, name, call)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def failing(number: int, *, times: int | None = None):
    """Return a function that fails with the error *number*, so many times or always."""
    calls = []

    def fail(*args, **options):
        calls.append(args)
        raise OSError(number, os.strerror(number), *(args[:1] if args else ()))

    fail.calls = calls
    return fail


# Whole or not at all.


def test_replacement_has_all_of_the_new_bytes(path):
    path.write_bytes(b"old")
    _atomic.make_folder(str(path.parent), 0o600)
    fd, status = _atomic.replace(
        str(path), [b"a" * 100_000, b"", b"b"], mode=0o600, fsync=True, is_current=lambda: True
    )
    try:
        assert path.read_bytes() == b"a" * 100_000 + b"b"
        now = path.stat()
        assert (status.st_ino, status.st_ctime_ns) == (now.st_ino, now.st_ctime_ns)
        assert os.fstat(fd).st_ino == now.st_ino
        assert temps(path.parent) == []
    finally:
        os.close(fd)


def test_writes_that_are_cut_short_are_gone_on_with(path, monkeypatch):
    """The system may take fewer bytes than it was given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:7])))
    replace(path, b"0123456789" * 50)

    assert path.read_bytes() == b"0123456789" * 50


def test_file_is_on_disk_before_the_rename_and_its_folder_after(path, monkeypatch):
    calls = Recorder(monkeypatch, "write", "fsync", "replace")
    replace(path, fsync=True)

    assert calls.names == ["write", "fsync", "replace", "fsync"]


def test_nothing_is_synced_without_fsync(path, monkeypatch):
    calls = Recorder(monkeypatch, "fsync", "fdatasync")
    replace(path, fsync=False)

    assert calls.names == []


def test_document_waits_for_the_disk_unless_asked_otherwise(path, monkeypatch):
    calls = Recorder(monkeypatch, "fsync")
    Cache(path).store("one", "1")
    assert len(calls.names) == 2
    calls.calls.clear()
    Cache(path, fsync=True).store("two", "2")
    assert len(calls.names) == 2
    calls.calls.clear()
    Cache(path, fsync=False).store("three", "3")

    assert calls.names == []


def test_folder_that_can_not_be_synced_is_no_error(path, monkeypatch):
    """Some file systems refuse it; the file itself is on disk."""
    real = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)

    assert Cache(path).store("one", "1") is True


def test_temp_file_is_made_beside_the_file_under_a_name_that_cant_be_guessed(path, monkeypatch):
    calls = Recorder(monkeypatch, "replace")
    replace(path)
    replace(path)

    names = [args[0] for _, args in calls.calls]
    assert len(set(names)) == 2
    for name in names:
        start, digits, end = name.rsplit(".", 2)
        assert (start, end) == (str(path), "tmp")
        assert len(digits) == 16
        assert set(digits) <= set("0123456789abcdef")


def test_temp_file_is_private_until_it_is_complete(path, monkeypatch):
    """R25, R39: whatever the umask is, and before the wanted mode is set."""
    modes = []
    real = os.write

    def write(fd, data):
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    before = os.umask(0)
    try:
        replace(path, mode=0o666)
    finally:
        os.umask(before)

    assert modes == [0o600]
    assert mode_of(path) == 0o666


_STEPS = [
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("write", errno.EDQUOT),
    ("fchmod", errno.EPERM),
    ("fsync", errno.EIO),
    ("replace", errno.EBUSY),
    ("replace", errno.EXDEV),
    ("replace", errno.EACCES),
    ("replace", errno.EIO),
    ("replace", errno.ENOENT),
]


@pytest.mark.parametrize(
    ("step", "number"),
    [pytest.param(*each, id=f"{each[0]} {errno.errorcode[each[1]]}") for each in _STEPS],
)
def test_error_leaves_the_old_file_and_no_temp_file(path, monkeypatch, step, number):
    """R27, R29: whichever step it is that fails."""
    path.write_bytes(b"old")
    before = path.stat()
    with monkeypatch.context() as patch:
        patch.setattr(os, step, failing(number))
        with pytest.raises(OSError, check=lambda error: error.errno == number):
            replace(path, fsync=True)

    after = path.stat()
    assert path.read_bytes() == b"old"
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert os.listdir(path.parent) == ["answers.json"]


@pytest.mark.parametrize("step", ["write", "fchmod", "utime", "fsync", "stat", "replace", "flock"])
def test_interrupt_at_any_step_leaves_no_temp_file(path, monkeypatch, step):
    """E19: a signal handler may raise anywhere."""
    fcntl = pytest.importorskip("fcntl")
    path.write_bytes(b"old")
    os.utime(path, ns=(0, 2 * 10**18))  # so that the new stamp must be forced
    home = fcntl if step == "flock" else os

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(home, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            replace(path, fsync=True)

    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["answers.json"]


def test_interrupt_right_after_the_rename_leaves_the_new_file(path, monkeypatch):
    """E19."""
    path.write_bytes(b"old")
    real = os.replace

    def interrupt(*args, **options):
        real(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            replace(path)

    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["answers.json"]


_SIGNALS = """
import os, random, signal, sys, time
from respcache import Cache

class Stop(Exception):
    pass

def handler(number, frame):
    raise Stop

path, rounds = sys.argv[1], int(sys.argv[2])
cache = Cache(path, fsync=False)
began = time.perf_counter()
for number in range(100):
    cache.store("q", str(number))
took = (time.perf_counter() - began) / 100
signal.signal(signal.SIGALRM, handler)
stopped = 0

def loop():
    global rounds
    while rounds:
        rounds -= 1
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, took))
        cache.store("q", f"first {rounds}")
        cache.store("q", f"second {rounds}")
        signal.setitimer(signal.ITIMER_REAL, 0)

while rounds:
    try:
        loop()
    except Stop:
        stopped += 1
print(stopped, sum(name.endswith(".tmp") for name in os.listdir(os.path.dirname(path))))
"""


@processes
def test_signal_handler_that_raises_anywhere_leaves_no_temp_file(path):
    """E19: an agent that stops slow work by alarms would fill its folder."""
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALS, str(path), "1000"],
        capture_output=True,
        text=True,
        timeout=LONG,
    )

    assert done.returncode == 0, done.stderr
    stopped, left = map(int, done.stdout.split())
    assert left == 0
    assert stopped > 100


def test_file_that_is_no_longer_current_is_not_replaced(path):
    path.write_bytes(b"old")

    assert replace(path, is_current=lambda: False) is None
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["answers.json"]


def test_temp_file_that_a_cleaner_took_is_no_error_where_nothing_was_wanted_of_it(path):
    path.write_bytes(b"old")

    def cleaned() -> bool:
        [name] = temps(path.parent)
        path.with_name(name).unlink()
        return False

    assert replace(path, is_current=cleaned) is None
    assert path.read_bytes() == b"old"


def test_no_descriptor_is_closed_twice(path, monkeypatch):
    """E07: the number may mean a file of another thread by then."""
    path.write_bytes(b"old")
    strangers = []
    real = os.close

    def close(fd):
        real(fd)
        strangers.append(os.open(path, os.O_RDONLY))  # takes the number at once

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        replace(path, is_current=lambda: False)
    try:
        for fd in strangers:
            assert os.fstat(fd).st_ino == path.stat().st_ino
    finally:
        for fd in strangers:
            real(fd)
    assert strangers


def test_errors_leave_no_descriptor_open(path, monkeypatch):
    path.write_bytes(b"old")
    gc.collect()  # what earlier tests left open must not be closed in between
    probe = os.dup(0)
    os.close(probe)
    for step, number in _STEPS:
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing(number))
            with pytest.raises(OSError):
                replace(path, fsync=True)
    again = os.dup(0)
    os.close(again)

    assert again == probe


@processes
@pytest.mark.parametrize("step", ["open", "write", "fchmod", "fsync", "replace", "unlink"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_process_that_dies_at_any_step_leaves_a_whole_file(path, step, when):
    """R20, R27, E25: its temp file is swept by the next who stores, and its lock is free."""
    Cache(path).store("zero", "0")
    old = path.read_bytes()
    source = """
import os, sys
from respcache import Cache
path, step, when = sys.argv[1:]
cache = Cache(path)
cache.store("warm", "w")
real = getattr(os, step)
def die(*args, **options):
    if step != "open" or str(args[0]).endswith(".tmp"):
        if when == "after":
            real(*args, **options)
        os._exit(7)
    return real(*args, **options)
setattr(os, step, die)
cache.store("one", "1")
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", source, str(path), step, when], timeout=LONG)

    assert done.returncode == (0 if step == "unlink" else 7)
    cache = Cache(path, lock_timeout=0.5)
    assert cache.get("zero") == "0"
    assert cache.get("warm") == "w"
    assert cache.get("one") in ("1", None)
    assert path.read_bytes() != old
    assert len(temps(path.parent)) <= 1
    assert cache.store("two", "2") is True
    assert temps(path.parent) == []


# Nothing else touched.


def test_temp_files_of_dead_writers_are_swept(make, path):
    """R27: at the first store of each process."""
    for digits in ("0123456789abcdef", "f" * 16):
        with open(temp_name(path, digits), "wb") as file:
            file.write(b"half a docu")
    make().store("one", "1")

    assert temps(path.parent) == []


def test_temp_file_of_a_live_writer_is_not_swept(make, path):
    """R27, E25: it holds a lock on its own."""
    fcntl = pytest.importorskip("fcntl")
    name = temp_name(path)
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        make().store("one", "1")
        assert os.path.exists(name)
    finally:
        os.close(fd)
    make().store("two", "2")

    assert not os.path.exists(name)


def test_writer_locks_its_temp_file_while_it_is_there(path, monkeypatch):
    """E25: so that no sweeper takes it."""
    fcntl = pytest.importorskip("fcntl")
    seen = []
    real = os.replace

    def watch(source, target):
        fd = os.open(source, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append("free")
        except BlockingIOError:
            seen.append("locked")
        finally:
            os.close(fd)
        return real(source, target)

    monkeypatch.setattr(os, "replace", watch)
    replace(path)

    assert seen == ["locked"]


def test_temp_file_that_a_sweeper_took_before_it_was_locked_is_made_again(path, monkeypatch):
    """E25: between making and locking, it is anybody's."""
    fcntl = pytest.importorskip("fcntl")
    real = fcntl.flock
    taken = []

    def flock(fd, how):
        if not taken:
            taken.extend(temps(path.parent))
            path.with_name(taken[0]).unlink()
        return real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    replace(path)

    assert taken
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["answers.json"]


def test_file_is_not_locked_once_it_is_in_its_place(make, path):
    """Else the lock of a kept descriptor would go to whoever inherits it."""
    fcntl = pytest.importorskip("fcntl")
    cache = make()
    cache.store("one", "1")
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)
    assert cache.get("one") == "1"


_FOREIGN = [
    "answers.json.tmp",
    "answers.json.x.0123456789abcdef.tmp",
    "answers.json.0123456789abcde.tmp",
    "answers.json.0123456789abcdef0.tmp",
    "answers.json.0123456789ABCDEF.tmp",
    "answers.json.0123456789abcdeg.tmp",
    "answers.json.0123456789abcdef.tmp.bak",
    "answers.json.0123456789abcdef",
    "answers.json-0123456789abcdef.tmp",
    "xanswers.json.0123456789abcdef.tmp",
    "answers.jsonl.0123456789abcdef.tmp",
    ".answers.json.0123456789abcdef.tmp",
    "other.json.0123456789abcdef.tmp",
    ".cache-123456.json",
    "0123456789abcdef.tmp",
    "answers.json.bak",
    "answers.json.flight",
]


def test_foreign_files_are_not_swept(make, path):
    """R27, E25: exactly our own name with sixteen hex digits, and nothing that looks alike."""
    for name in _FOREIGN:
        path.with_name(name).write_bytes(b"mine")
    make().store("one", "1")

    assert [name for name in _FOREIGN if not path.with_name(name).exists()] == []


def test_names_with_special_characters_are_swept_as_they_are(tmp_path, make):
    """E25: no pattern language is at work."""
    path = tmp_path / "a[bc]*?.json"
    keep = tmp_path / "ab.json.0123456789abcdef.tmp"
    keep.write_bytes(b"mine")
    gone = temp_name(path)
    with open(gone, "wb"):
        pass
    make(path).store("one", "1")

    assert keep.exists()
    assert not os.path.exists(gone)


def test_temp_name_that_is_a_link_is_not_followed(make, path, tmp_path):
    """R39."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    os.symlink(victim, temp_name(path))
    make().store("one", "1")

    assert victim.read_bytes() == b"precious"


def test_folder_that_can_not_be_listed_is_only_not_swept(make, path, monkeypatch):
    """R27: sweeping is a courtesy, no condition of storing."""
    monkeypatch.setattr(os, "listdir", failing(errno.EACCES))

    assert make().store("one", "1") is True
    assert make().get("one") == "1"


# What is kept of the old file.


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_files_and_folders_have_the_asked_mode_under_any_umask(tmp_path, make, umask):
    """R25: the first process's umask must not shut out the others for good."""
    path = tmp_path / "made" / "by us" / "answers.json"
    before = os.umask(umask)
    try:
        cache = make(path, mode=0o660)
        cache.store("one", "1")
        cache.get_or_call("two", lambda: "2")
        for number in range(5):
            cache.store(f"q{number}", "a")
    finally:
        os.umask(before)

    found = {name: mode_of(path.parent / name) for name in os.listdir(path.parent)}
    assert {"answers.json", "answers.json.lock"} <= set(found)
    assert set(found) <= {"answers.json", "answers.json.lock", "answers.json.flight"}
    assert set(found.values()) == {0o660}
    assert mode_of(path.parent) == mode_of(path.parent.parent) == 0o770


@pytest.mark.skipif(sys.platform != "linux", reason="flight marks are of Linux")
def test_flight_file_has_the_asked_mode_under_any_umask(path, make):
    """R25."""
    before = os.umask(0o077)
    try:
        make(mode=0o660).get_or_call("one", lambda: "1")
    finally:
        os.umask(before)

    assert mode_of(f"{path}.flight") == 0o660


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_files_and_folders_are_private_by_default(tmp_path, clock, umask):
    """R39."""
    path = tmp_path / "made" / "answers.json"
    before = os.umask(umask)
    try:
        Cache(path, fsync=False, clock=clock).store("one", "1")
    finally:
        os.umask(before)

    assert mode_of(path) == mode_of(f"{path}.lock") == 0o600
    assert mode_of(path.parent) == 0o700


def test_existing_folders_keep_their_modes(tmp_path, make):
    """R25."""
    folder = tmp_path / "there"
    folder.mkdir()
    folder.chmod(0o755)
    make(folder / "answers.json", mode=0o660).store("one", "1")

    assert mode_of(folder) == 0o755


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o666, 0o644])
def test_rewritten_file_keeps_its_mode(make, path, mode):
    """R25: what was asked for holds for new files only."""
    make().store("one", "1")
    path.chmod(mode)
    before = os.umask(0o077)
    try:
        make(mode=0o660).store("two", "2")
        make(mode=0o600).forget("one")
    finally:
        os.umask(before)

    assert mode_of(path) == mode


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o000, 0o555])
def test_file_without_write_bits_stays_as_it_is(make, path, warnings_of, mode):
    """R25, R30: for root too, whom the system would let."""
    make().store("one", "1")
    data = path.read_bytes()
    path.chmod(mode)
    before = path.stat()
    cache = make()

    assert cache.store("two", "2") is False
    assert cache.store("three", "3") is False
    assert cache.forget("one") in (True, False)
    assert (cache.get("two"), cache.get("three")) == ("2", "3")
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_mode,
    )
    assert path.read_bytes() == data if os.access(path, os.R_OK) else True
    assert len(warnings_of()) == 1
    path.chmod(0o600)
    assert cache.flush() is True
    assert {hit.question for hit in make().entries()} == {"two", "three"}


def test_write_protected_file_says_what_would_help(make, path):
    make().store("one", "1")
    path.chmod(0o444)

    with pytest.raises(StoreError, match=r"write-protected.*chmod"):
        make(on_error="raise").store("two", "2")


def test_rewritten_file_keeps_its_owner(make, path, monkeypatch):
    """R25: root must not take a user's file away."""
    make().store("one", "1")
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
        make().store("two", "2")

        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
        return
    given = []
    monkeypatch.setattr(os, "fchown", lambda fd, uid, gid: given.append((uid, gid)))
    real = os.stat

    def other(name, *args, **options):
        status = real(name, *args, **options)
        if os.fspath(name) != str(path):
            return status
        return os.stat_result((*status[:4], 12345, 54321, *status[6:]), {})

    monkeypatch.setattr(os, "stat", other)
    replace(path)

    assert given == [(12345, 54321)]


def test_owner_that_can_not_be_kept_is_no_error(make, path, monkeypatch):
    """R25: only root may give files away."""
    make().store("one", "1")
    monkeypatch.setattr(os, "fchown", failing(errno.EPERM))
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)

    assert make().store("two", "2") is True


def test_mode_is_set_after_the_owner(make, path, monkeypatch):
    """R25: chown takes bits away."""
    path.write_bytes(b"")
    calls = Recorder(monkeypatch, "fchown", "fchmod")
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
    replace(path)

    assert calls.names[-1] == "fchmod"


# A stamp that is always later.


def test_mtime_is_strictly_later_than_that_of_the_old_file(path):
    """E23, R22: also where that lies in the future."""
    replace(path)
    for ahead in (0, 1, 10**9, 10**13):
        stamp = path.stat().st_mtime_ns + ahead
        os.utime(path, ns=(stamp, stamp))
        replace(path)

        assert path.stat().st_mtime_ns > stamp


def test_mtime_is_not_touched_where_the_clock_has_gone_on(path, monkeypatch):
    """E23: no needless call."""
    path.write_bytes(b"old")
    os.utime(path, ns=(0, 10**9))
    calls = Recorder(monkeypatch, "utime")
    replace(path)

    assert calls.names == []
    assert path.stat().st_mtime_ns > 10**18


class CoarseClock:
    """A file system whose stamps have *step* ns between them, up to *last*."""

    def __init__(self, monkeypatch, step: int = 1, last: int = 2**63 - 1, now: int = 0) -> None:
        self.calls = 0
        self._step, self._last = step, last
        real = os.utime

        def utime(path, *args, ns, **options):
            self.calls += 1
            stamp = min(ns[1], last) // step * step
            real(path, *args, ns=(stamp, stamp), **options)

        self.set = lambda path, stamp: real(path, ns=(stamp, stamp))
        opened = os.open

        def open_(path, flags, *args, **options):
            fd = opened(path, flags, *args, **options)
            if str(path).endswith(".tmp") and flags & os.O_CREAT:
                self.set(path, now)
            return fd

        write = os.write

        def write_(fd, data):
            written = write(fd, data)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                self.set(f"/proc/self/fd/{fd}" if os.path.exists("/proc/self/fd") else fd, now)
            return written

        monkeypatch.setattr(os, "utime", utime)
        monkeypatch.setattr(os, "open", open_)
        monkeypatch.setattr(os, "write", write_)


@pytest.mark.parametrize(
    "step", [1, 100, 1000, 10**6, 10**9, 2 * 10**9], ids=["1ns", "100ns", "1us", "1ms", "1s", "2s"]
)
def test_mtime_is_later_on_coarse_stamps(path, monkeypatch, step):
    """E23: FAT has two seconds between two stamps."""
    path.write_bytes(b"old")
    stamp = 1_700_000_000 * 10**9
    os.utime(path, ns=(stamp, stamp))
    coarse = CoarseClock(monkeypatch, step, now=stamp)
    replace(path)

    assert path.stat().st_mtime_ns > stamp
    assert path.stat().st_mtime_ns % step == 0
    assert coarse.calls <= 5


@pytest.mark.parametrize("refuses", [False, True])
def test_last_representable_stamp_ends_the_search(make, path, monkeypatch, refuses):
    """E23: "until it is larger" would never end; inode and ctime still differ."""
    reader = make()
    make().store("one", "1")
    last = 4_000_000_000 * 10**9
    os.utime(path, ns=(last, last))
    assert reader.get("one") == "1"
    coarse = CoarseClock(monkeypatch, last=last, now=last)
    if refuses:
        monkeypatch.setattr(os, "utime", failing(errno.EINVAL))

    assert make().store("one", "2") is True
    assert path.stat().st_mtime_ns == last
    assert coarse.calls <= 5
    assert reader.get("one") == "2"


def test_last_stamp_of_this_very_file_system_ends_the_search(make, path):
    """E23."""
    make().store("one", "1")
    for seconds in (2**33, 15_032_385_535, 2**34):
        try:
            os.utime(path, (seconds, seconds))
        except OSError:
            continue
    reader = make()
    assert reader.get("one") == "1"

    assert make().store("one", "2") is True
    assert reader.get("one") == "2"


# Where no rename can help.


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EXDEV])
def test_rename_that_is_refused_as_busy_says_to_mount_the_folder(
    make, path, monkeypatch, warnings_of, number
):
    """R27, E17: and leaves no temp file, at each of many tries."""
    make().store("one", "1")
    data = path.read_bytes()
    cache = make()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(number))
        for name in ("two", "three", "four"):
            assert cache.store(name, name) is False
            assert cache.get(name) == name
        with pytest.raises(StoreError, match="mount its folder") as caught:
            make(on_error="raise").store("five", "5")

    assert caught.value.errno == number
    assert caught.value.path == str(path)
    assert path.read_bytes() == data
    assert temps(path.parent) == []
    [warning] = warnings_of()
    assert "mount its folder" in warning
    assert cache.flush() is True
    assert len(make()) == 4


def _table(path, target: str) -> str:
    """Write a table of mounts of which *target* is one, as Linux writes it."""
    code = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}
    quoted = "".join(code.get(letter, letter) for letter in target)
    path.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:21 / /proc rw,nosuid - proc proc rw\n"
        f"99 22 254:0 /var/lib/docker/x {quoted} rw,relatime master:7 - ext4 /dev/vda rw\n"
        "100 22 0:50 / /run/user/1000 rw - tmpfs tmpfs rw\n"
    )
    return str(path)


@pytest.mark.parametrize("name", ["answers.json", "two words.json", "a\\b\t.json", "\\040.json"])
def test_mount_point_is_found_in_the_table(tmp_path, name):
    """E17, R27: names in it are quoted."""
    target = str(tmp_path / name)
    table = _table(tmp_path / "mountinfo", target)

    assert _atomic.is_mount_point(target, table) is True
    assert _atomic.is_mount_point(str(tmp_path / "other.json"), table) is False
    assert _atomic.is_mount_point(str(tmp_path), table) is False


def test_without_such_a_table_nothing_is_taken_for_a_mount_point(tmp_path):
    odd = tmp_path / "odd"
    odd.write_bytes(b"\xff\xfe\nshort line\n\n")

    assert _atomic.is_mount_point("/x", str(tmp_path / "missing")) is False
    assert _atomic.is_mount_point("/x", str(odd)) is False
    assert _atomic.is_mount_point("/x", str(tmp_path)) is False


def test_file_that_is_mounted_singly_is_not_written(make, path, tmp_path, monkeypatch, warnings_of):
    """E17, R27: each container has a lock of its own beside it, and both would hold it."""
    make().store("one", "1")
    data, before = path.read_bytes(), sorted(os.listdir(tmp_path))
    table = _table(tmp_path.parent / f"{tmp_path.name} mounts", str(path))
    real = _atomic.is_mount_point
    cache = make()
    with monkeypatch.context() as patch:
        patch.setattr(_atomic, "is_mount_point", lambda path: real(path, table))
        assert cache.get("one") == "1"
        assert cache.store("two", "2") is False
        assert cache.store("three", "3") is False
        assert cache.forget("one") is True
        assert (cache.get("one"), cache.get("two")) == (None, "2")

    assert path.read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == before
    [warning] = warnings_of()
    assert "mount its folder" in warning


_MOUNTED = """
import logging, os, sys
from respcache import Cache
warnings = []
class Handler(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())
logging.getLogger("respcache").addHandler(Handler())
folder = sys.argv[1]
path = os.path.join(folder, "mounted.json")
before = sorted(os.listdir(folder))
cache = Cache(path)
print(cache.get("one"), cache.store("two", "2"), cache.get("two"), sep="|")
print(open(path, "rb").read() == open(os.path.join(folder, "real.json"), "rb").read())
print(sorted(os.listdir(folder)) == before)
print(*warnings, sep="|")
"""


@processes
def test_real_bind_mount_of_a_file_is_not_written(tmp_path):
    """E17, R27."""
    _need_mounts(tmp_path)
    Cache(tmp_path / "real.json", fsync=False).store("one", "1")
    (tmp_path / "mounted.json").touch()
    script = 'mount --bind "$1/real.json" "$1/mounted.json" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable, _MOUNTED],
        capture_output=True,
        text=True,
        timeout=LONG,
    )

    assert done.returncode == 0, done.stderr
    found, is_same, left_nothing, warning = done.stdout.splitlines()
    assert found == "1|False|2"
    assert (is_same, left_nothing) == ("True", "True")
    assert "mount its folder" in warning
    assert "|" not in warning


def _need_mounts(folder) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root may mount")
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        done = subprocess.run(probe, capture_output=True, timeout=LONG)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if done.returncode:
        pytest.skip("nothing may be mounted here")


# Windows refuses to replace what anybody has open.


class _Windows:
    """The os module, under another name."""

    name = "nt"

    def __getattr__(self, name):
        return getattr(os, name)


def test_refused_rename_is_tried_again_on_windows(path, monkeypatch):
    """R26: a virus scanner has it open for some milliseconds."""
    path.write_bytes(b"old")
    real = os.replace
    slept, refused = [], []

    def replace_(*args):
        if len(refused) < 2:
            refused.append(args)
            raise PermissionError(errno.EACCES, "in use")
        return real(*args)

    monkeypatch.setattr(os, "replace", replace_)
    monkeypatch.setattr(_atomic, "os", _Windows())
    monkeypatch.setattr(_atomic, "sleep", slept.append)
    replace(path)

    assert path.read_bytes() == b"new"
    assert len(refused) == len(slept) == 2


def test_rename_that_is_refused_for_ever_is_given_up_on_windows(
    make, path, monkeypatch, warnings_of
):
    """R26: after a bounded time, and the entry is served from memory."""
    make().store("one", "1")
    data = path.read_bytes()
    slept = []
    cache = make()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(errno.EACCES))
        patch.setattr(_atomic, "os", _Windows())
        patch.setattr(_atomic, "sleep", slept.append)
        assert cache.store("two", "2") is False

    assert 0 < sum(slept) < 10
    assert path.read_bytes() == data
    assert temps(path.parent) == []
    assert cache.get("two") == "2"
    assert len(warnings_of()) == 1
    assert cache.flush() is True


def test_refused_rename_is_final_elsewhere(path, monkeypatch):
    """R26: a real permission error is reported at once."""
    path.write_bytes(b"old")
    refuse = failing(errno.EACCES)

    def no_sleep(seconds):
        raise AssertionError("it waits for what will not change")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        patch.setattr(_atomic, "sleep", no_sleep)
        with pytest.raises(PermissionError):
            replace(path)

    assert len(refuse.calls) == 1


_LIKE_WINDOWS = """
import os, pathlib, sys
import filelock, json, json.decoder, logging, orjson, tempfile  # while this is what it is
os.name = "nt"
pathlib.WindowsPath = pathlib.PosixPath
sys.modules["fcntl"] = None
from respcache import Cache

def is_open(path):
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    for fd in range(3, 200):
        try:
            found = os.fstat(fd)
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino):
            return True
    return False

refused = []
def wrap(name):
    real = getattr(os, name)
    def call(*args, **options):
        for path in args:
            if isinstance(path, str) and is_open(path):
                refused.append((name, path))
                raise PermissionError(13, "it is open", path)
        return real(*args, **options)
    setattr(os, name, call)

for name in ("replace", "rename", "unlink", "remove"):
    wrap(name)

folder = sys.argv[1]
path = folder + "/answers.json"
open(path + ".0123456789abcdef.tmp", "wb").close()
a, b = Cache(path), Cache(path)
for number in range(3):
    assert a.store(f"a{number}", "1")
    assert b.get(f"a{number}") == "1"
    assert b.store(f"b{number}", "2")
    assert a.get(f"b{number}") == "2"
assert a.forget("a0") and b.get("a0") is None
open(path, "wb").write(b"damage")
assert a.store("after", "3") and b.get("after") == "3"
assert not is_open(path)
a.close()
b.close()
print(sorted(os.listdir(folder)), refused)
"""


@processes
def test_nothing_is_kept_open_where_an_open_file_can_not_be_replaced(tmp_path):
    """E30, R26: neither by who reads nor by who writes, and temp files are swept there as well."""
    pytest.importorskip("filelock")
    done = subprocess.run(
        [sys.executable, "-c", _LIKE_WINDOWS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LONG,
    )

    assert done.returncode == 0, done.stderr
    assert ".tmp" not in done.stdout
    assert done.stdout.endswith("] []\n")


# Links.


@pytest.fixture
def link(tmp_path):
    """A link to a cache file in another folder, which is not there yet."""
    for name in ("links", "files"):
        (tmp_path / name).mkdir()
    link = tmp_path / "links" / "link.json"
    link.symlink_to(tmp_path / "files" / "answers.json")
    return link


def test_link_stays_a_link_and_its_target_is_written(make, tmp_path, link, monkeypatch):
    """R28: with lock and temp file beside the target."""
    target = tmp_path / "files" / "answers.json"
    make(target).store("zero", "0")
    calls = Recorder(monkeypatch, "replace")
    cache = make(link)

    assert cache.store("one", "1") is True
    assert link.is_symlink()
    assert os.listdir(link.parent) == ["link.json"]
    assert sorted(os.listdir(target.parent)) == ["answers.json", "answers.json.lock"]
    assert all(os.path.dirname(args[0]) == str(target.parent) for _, args in calls.calls)
    assert (make(target).get("zero"), make(target).get("one")) == ("0", "1")


def test_by_link_and_by_real_path_it_is_one_lock(make, tmp_path, link):
    """R28."""
    fcntl = pytest.importorskip("fcntl")
    target = tmp_path / "files" / "answers.json"
    make(target).store("zero", "0")
    fd = os.open(f"{target}.lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert make(link, lock_timeout=0.05).store("one", "1") is False
    finally:
        os.close(fd)
    assert make(link).store("one", "1") is True


def test_dangling_link_makes_its_target(make, tmp_path, link):
    """R28."""
    target = tmp_path / "files" / "answers.json"

    assert make(link).lookup("one") is None
    assert make(link).store("one", "1") is True
    assert link.is_symlink()
    assert make(target).get("one") == "1"


def test_dangling_link_into_a_missing_folder_makes_both(make, tmp_path):
    """R28."""
    link = tmp_path / "link.json"
    link.symlink_to("deep/er/answers.json")

    assert make(link).store("one", "1") is True
    assert link.is_symlink()
    assert make(tmp_path / "deep" / "er" / "answers.json").get("one") == "1"


def test_chain_of_relative_links_is_followed(make, tmp_path, link):
    """R28."""
    (tmp_path / "links" / "second.json").symlink_to("link.json")
    (tmp_path / "folder link").symlink_to("links")
    cache = make(tmp_path / "folder link" / "second.json")

    assert cache.store("one", "1") is True
    assert make(tmp_path / "files" / "answers.json").get("one") == "1"
    assert link.is_symlink()


def test_link_that_is_pointed_elsewhere_is_another_file(make, tmp_path, link):
    """R28: its old target is not written any more, and its new one under its own lock."""
    cache = make(link)
    cache.store("one", "1")
    old, new = tmp_path / "files" / "answers.json", tmp_path / "files" / "new.json"
    make(new).store("two", "2")
    data = old.read_bytes()
    link.unlink()
    link.symlink_to(new)

    assert (cache.get("one"), cache.get("two")) == (None, "2")
    assert cache.store("three", "3") is True
    assert old.read_bytes() == data
    assert (make(new).get("two"), make(new).get("three")) == ("2", "3")
    assert (tmp_path / "files" / "new.json.lock").exists()
    link.unlink()
    link.symlink_to(old)
    assert cache.get("one") == "1"
    assert cache.store("four", "4") is True
    assert make(old).get("four") == "4"
    assert make(new).lookup("four") is None


def test_link_that_is_pointed_elsewhere_during_a_store_is_followed(
    make, tmp_path, link, monkeypatch
):
    """R28: what was read from the one is not written to the other."""
    old, new = tmp_path / "files" / "answers.json", tmp_path / "files" / "new.json"
    make(old).store("in old", "1")
    make(new).store("in new", "2")
    cache = make(link)
    cache.get("in old")
    real = os.listdir
    done = []

    def listdir(*args):
        if not done:
            done.append(1)
            link.unlink()
            link.symlink_to(new)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", listdir)
        assert cache.store("one", "1") is True

    assert done
    assert cache.get("one") == "1"
    assert {hit.question for hit in make(new).entries()} == {"in new", "one"}
    assert {hit.question for hit in make(old).entries()} == {"in old"}


def test_link_that_became_a_file_is_one(make, tmp_path, link):
    """R28."""
    cache = make(link)
    cache.store("one", "1")
    target = tmp_path / "files" / "answers.json"
    data = target.read_bytes()
    link.unlink()
    link.write_bytes(data)

    assert cache.get("one") == "1"
    assert cache.store("two", "2") is True
    assert not link.is_symlink()
    assert target.read_bytes() == data
    assert (link.parent / "link.json.lock").exists()


def test_damage_behind_a_link_is_set_aside_beside_the_target(make, tmp_path, link):
    """R28, R21."""
    target = tmp_path / "files" / "answers.json"
    target.write_bytes(b"damage")

    assert make(link).store("one", "1") is True
    assert os.listdir(link.parent) == ["link.json"]
    assert any(".corrupt-" in name for name in os.listdir(target.parent))


def test_loop_of_links_is_trouble_and_not_an_exception(make, tmp_path, warnings_of):
    """R28."""
    link = tmp_path / "link.json"
    link.symlink_to("link.json")
    cache = make(link)

    assert cache.lookup("one") is None
    assert cache.store("one", "1") is False
    assert cache.get("one") == "1"
    assert link.is_symlink()
    assert len(warnings_of()) == 1
