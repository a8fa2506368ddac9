"""Bad days: what can't be committed stays here, is served, and is tried again, and nothing raises."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from respcache import Cache, LockTimeoutError, StoreError, _lock

processes = pytest.mark.xdist_group("processes")
SHORT = 0.05
LONG = 60.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.json"


@pytest.fixture
def make(path, clock):
    def open_cache(at=path, **options) -> Cache:
        return Cache(at, **{"fsync": False, "clock": clock, **options})

    return open_cache


class Disk:
    """A disk that can be full, read-only or broken, for whatever lies below *folder*."""

    def __init__(self, monkeypatch, folder) -> None:
        self._folder = str(folder)
        self.room: int | None = None  # bytes that still fit
        self.read_only = 0  # the error number of changes
        self.unreadable: dict[str, int] = {}  # error numbers of functions of os
        for name in ("open", "mkdir", "replace", "rename", "link", "unlink", "utime"):
            self._wrap(monkeypatch, name)
        for name in ("stat", "lstat", "read"):
            self._wrap(monkeypatch, name)
        self._real_write = os.write
        monkeypatch.setattr(os, "write", self._write)

    def _wrap(self, monkeypatch, name: str) -> None:
        real = getattr(os, name)

        def call(*args, **options):
            self._check(name, args)
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)

    def _check(self, name: str, args) -> None:
        mine = isinstance(args[0], str) and args[0].startswith(self._folder)
        if name == "read":
            mine = stat.S_ISREG(os.fstat(args[0]).st_mode)
        if not mine:
            return
        if name in self.unreadable and (name == "read" or args[0].endswith(".json")):
            self._fail(self.unreadable[name], args[0])
        if name in ("stat", "lstat", "read"):
            return
        if self.read_only and (name != "open" or args[1] & os.O_CREAT):
            self._fail(self.read_only, args[0])

    def _write(self, fd, data):
        if self.room is None or not stat.S_ISREG(os.fstat(fd).st_mode):
            return self._real_write(fd, data)
        if not self.room:
            self._fail(errno.ENOSPC)
        done = self._real_write(fd, bytes(data[: self.room]))
        self.room -= done
        return done

    @staticmethod
    def _fail(number: int, *names) -> None:
        raise OSError(number, os.strerror(number), *(name for name in names if type(name) is str))


@pytest.fixture
def disk(monkeypatch, tmp_path):
    return Disk(monkeypatch, tmp_path)


@pytest.fixture
def hold(path):
    """Hold the lock as another program, until it is released."""
    fcntl = pytest.importorskip("fcntl")
    held = []

    def take() -> None:
        held.append(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(held[-1], fcntl.LOCK_EX)

    def release() -> None:
        while held:
            os.close(held.pop())

    take.release = release
    yield take
    release()


def names_in(folder) -> list[str]:
    return sorted(os.listdir(folder))


# A full disk.


@pytest.mark.parametrize("room", [0, 1, 100, 300])
def test_full_disk_costs_nothing_that_was_there(make, path, disk, warnings_of, room):
    """R29: the old file is the same to the byte, and the entry is served from memory."""
    make().store("zero", "0")
    data, before = path.read_bytes(), path.stat()
    cache = make()
    disk.room = room

    assert cache.store("one", "x" * 1000) is False
    assert cache.store("two", {"a": [2]}) is False
    assert path.read_bytes() == data
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert names_in(path.parent) == ["answers.json", "answers.json.lock"]
    assert (cache.get("zero"), cache.get("one"), cache.get("two")) == ("0", "x" * 1000, {"a": [2]})
    assert make().lookup("one") is None
    assert cache.stats()["pending"] == 2
    assert cache.stats()["stores"] == 0
    [warning] = warnings_of()
    assert "disk is full" in warning


def test_next_store_with_room_writes_all_that_was_pending(make, disk):
    """R29."""
    make().store("zero", "0")
    cache = make()
    disk.room = 100
    cache.store("one", "1")
    cache.store("two", "2")
    disk.room = None

    assert cache.store("three", "3") is True
    assert cache.stats()["pending"] == 0
    assert [hit.question for hit in make().entries()] == ["zero", "one", "two", "three"]


def test_first_store_of_all_on_a_full_disk_is_pending(make, path, disk):
    """R29: there is no file then, and later there is."""
    disk.room = 0
    cache = make()
    assert cache.store("one", "1") is False
    assert not path.exists()
    assert cache.get("one") == "1"
    disk.room = None

    assert cache.flush() is True
    assert make().get("one") == "1"


def test_same_store_again_is_tried_again(make, disk):
    """R29: what is only in memory is not yet stored."""
    make().store("zero", "0")
    cache = make()
    disk.room = 0
    assert cache.store("one", "1") is False
    assert cache.store("one", "1") is False
    disk.room = None

    assert cache.store("one", "1") is True
    assert make().get("one") == "1"
    assert cache.stats()["pending"] == 0


def test_batch_on_a_full_disk_is_pending_as_a_whole(make, disk):
    """R29."""
    make().store("zero", "0")
    cache = make()
    disk.room = 200
    assert cache.store_many({f"q{number}": "a" * 50 for number in range(10)}) == 0
    assert len(make()) == 1
    assert all(cache.get(f"q{number}") == "a" * 50 for number in range(10))
    disk.room = None

    assert cache.flush() is True
    assert len(make()) == 11


def test_result_that_can_not_be_kept_is_returned_and_served(make, disk):
    """R29."""
    make().store("zero", "0")
    cache = make()
    disk.room = 0
    calls = []

    for _ in range(3):
        assert cache.get_or_call("slow", lambda: calls.append(1) or "computed") == "computed"
    assert calls == [1]
    disk.room = None
    assert cache.flush() is True
    assert make().get("slow") == "computed"


def test_each_bad_time_has_its_own_warning(make, disk, warnings_of):
    """R29: one when it begins, and one when it begins again."""
    cache = make()
    for _ in range(3):
        disk.room = 0
        for number in range(3):
            cache.store(f"q{number}", os.urandom(4).hex())
        disk.room = None
        assert cache.flush() is True

    assert len(warnings_of()) == 3


_FULL = """
import json, logging, os, sys
from respcache import Cache
warnings = []
class Handler(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())
logging.getLogger("respcache").addHandler(Handler())
folder = sys.argv[1]
path = folder + "/answers.json"
cache = Cache(path, fsync=sys.argv[2] == "fsync")
assert cache.store("zero", "0")
assert Cache(path).store("stale", "s")
before = open(path, "rb").read()
ballast = os.open(folder + "/ballast", os.O_WRONLY | os.O_CREAT)
for size in (65536, 4096, 1):
    try:
        while os.write(ballast, b"x" * size) == size:
            pass
    except OSError:
        pass
assert not cache.store("one", "1" * 20000)
assert not cache.store("two", "2" * 20000)
assert open(path, "rb").read() == before
assert sorted(os.listdir(folder)) == ["answers.json", "answers.json.lock", "ballast"]
assert cache.get("one") == "1" * 20000 and cache.get("two") == "2" * 20000
assert cache.get("zero") == "0"
os.ftruncate(ballast, 0)
assert cache.store("three", "3")
assert len(Cache(path)) == 5
try:
    while os.write(ballast, b"x" * 4096):
        pass
except OSError:
    pass
cache.forget("stale")
assert cache.get("stale") is None and Cache(path).get("stale") is None
print(len(warnings), all("full" in warning for warning in warnings))
"""


@processes
@pytest.mark.parametrize("durable", ["fsync", "no fsync"])
def test_really_full_disk(tmp_path, durable):
    """R29, E04: a file system of 256 KB, filled to the last byte and emptied again."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root may mount")
    script = 'mount -t tmpfs -o size=256k tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable, _FULL, durable]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("nothing may be mounted here")

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "True"]


# A folder or a file that may not be used.


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("has_lock", [True, False], ids=["lock", "no lock"])
def test_read_only_folder_is_read_and_stores_stay_here(
    make, path, disk, warnings_of, number, has_lock
):
    """R30: one warning, whichever step is the first to be refused, and names of no temp file."""
    make().store("zero", "0")
    data = path.read_bytes()
    if not has_lock:
        os.unlink(f"{path}.lock")
    before = names_in(path.parent)
    disk.read_only = number
    cache = make()

    assert cache.get("zero") == "0"
    for name in ("one", "two", "three", "four"):
        assert cache.store(name, name) is False
        assert cache.get(name) == name
    assert path.read_bytes() == data
    assert names_in(path.parent) == before
    [warning] = warnings_of()
    assert str(path) in warning
    assert ".tmp" not in warning
    disk.read_only = 0
    assert cache.flush() is True
    assert len(make()) == 5


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_folder_that_can_not_be_made_keeps_stores_here(make, tmp_path, disk, warnings_of, number):
    """R30."""
    path = tmp_path / "missing" / "too" / "answers.json"
    disk.read_only = number
    cache = make(path)

    assert cache.lookup("one") is None
    assert cache.store("one", "1") is False
    assert cache.store("two", "2") is False
    assert (cache.get("one"), cache.get("two")) == ("1", "2")
    assert names_in(tmp_path) == []
    assert len(warnings_of()) == 1
    disk.read_only = 0
    assert cache.flush() is True
    assert (make(path).get("one"), make(path).get("two")) == ("1", "2")


def test_missing_folder_is_made_by_the_first_store_and_not_before(make, tmp_path):
    path = tmp_path / "missing" / "too" / "answers.json"
    cache = make(path)
    assert cache.lookup("one") is None
    assert list(cache.entries()) == []
    assert cache.stats()["entries"] == 0
    assert names_in(tmp_path) == []

    assert cache.store("one", "1") is True
    assert make(path).get("one") == "1"


def test_folder_that_vanished_is_made_again(make, tmp_path):
    path = tmp_path / "folder" / "answers.json"
    cache = make(path)
    cache.store("one", "1")
    for name in names_in(path.parent):
        (path.parent / name).unlink()
    path.parent.rmdir()

    assert cache.lookup("one") is None
    assert cache.store("two", "2") is True
    assert [hit.question for hit in make(path).entries()] == ["two"]


def test_parent_that_is_a_file_is_trouble_and_not_an_exception(make, tmp_path, warnings_of):
    parent = tmp_path / "file"
    parent.write_bytes(b"precious")
    for path in (parent / "answers.json", parent / "deep" / "answers.json"):
        cache = make(path)
        assert cache.lookup("one") is None
        assert cache.store("one", "1") is False
        assert cache.store("two", "2") is False
        assert (cache.get("one"), cache.get("two")) == ("1", "2")

    assert parent.read_bytes() == b"precious"
    assert len(warnings_of()) == 2


@pytest.mark.parametrize("kind", ["folder", "FIFO", "device"])
def test_path_that_is_no_file_is_trouble_and_does_not_hang(make, path, warnings_of, kind):
    """E30, R39."""
    if kind == "folder":
        path.mkdir()
        (path / "mine").write_bytes(b"precious")
    elif kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    before = path.stat()
    cache = make()

    assert cache.lookup("one") is None
    assert list(cache.entries()) == []
    assert cache.store("one", "1") is False
    assert cache.store("two", "2") is False
    assert cache.forget("three") is False
    assert (cache.get("one"), cache.get("two")) == ("1", "2")
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    [warning] = warnings_of()
    assert "not a regular file" in warning


_UNREADABLE = [
    ("stat", errno.EACCES),
    ("stat", errno.EIO),
    ("stat", errno.ESTALE),
    ("open", errno.EACCES),
    ("open", errno.EIO),
    ("open", errno.EMFILE),
    ("read", errno.EIO),
]


@pytest.mark.parametrize(
    ("step", "number"),
    [pytest.param(*each, id=f"{each[0]} {errno.errorcode[each[1]]}") for each in _UNREADABLE],
)
def test_file_that_can_not_be_read_is_not_an_empty_one(make, path, disk, warnings_of, step, number):
    """R30, R21: nothing is put in its place, and when it can be read again, all is there."""
    make().store_many({"zero": "0", "other": "o"})
    data, before = path.read_bytes(), names_in(path.parent)
    cache = make()
    disk.unreadable = {step: number}

    for _ in range(3):
        assert cache.lookup("zero") is None
        assert cache.store("one", "1") is False
        assert cache.get("one") == "1"
    assert list(cache.entries()) == [] or [hit.question for hit in cache.entries()] == ["one"]
    assert cache.flush() is False
    disk.unreadable = {}
    assert path.read_bytes() == data
    assert names_in(path.parent) == before
    assert len(warnings_of()) == 1
    assert (cache.get("zero"), cache.get("other"), cache.get("one")) == ("0", "o", "1")
    assert cache.flush() is True
    assert {hit.question for hit in make().entries()} == {"zero", "other", "one"}


def test_answer_that_was_loaded_is_not_served_while_the_file_can_not_be_looked_at(make, disk, path):
    """It may have been forgotten meanwhile; once it can be, the answer is back."""
    cache = make()
    cache.store("zero", "0")
    assert cache.get("zero") == "0"
    disk.unreadable = {"stat": errno.EACCES}
    assert cache.lookup("zero") is None
    disk.unreadable = {}

    assert cache.get("zero") == "0"


def test_change_of_an_answer_that_can_not_be_read_is_not_lost(make, disk):
    """What was changed while the file could not be read is committed when it can."""
    cache = make()
    cache.store("zero", "old")
    disk.unreadable = {"open": errno.EIO, "stat": errno.EIO}
    assert cache.store("zero", "new") is False
    assert cache.get("zero") == "new"
    disk.unreadable = {}

    assert cache.flush() is True
    assert (cache.get("zero"), make().get("zero")) == ("new", "new")


# Pending entries.


def test_pending_entry_is_seen_here_and_nowhere_else(make, hold):
    cache = make(lock_timeout=SHORT)
    cache.store("zero", "0")
    hold()
    cache.store("one", {"a": 1}, context={"model": "m"})

    assert cache.get("one", context={"model": "m"}) == {"a": 1}
    assert cache.lookup("one") is None
    assert cache.lookup("ONE", context={"model": "m"}).question == "one"
    assert [hit.question for hit in cache.entries()] == ["zero", "one"]
    assert cache.stats()["pending"] == 1
    assert len(make()) == 1


def test_pending_response_is_the_callers_own(make, hold):
    """Changing what was stored, or what was had, does not change what will be stored."""
    cache = make(lock_timeout=SHORT)
    hold()
    answer = {"a": [1]}
    cache.store("one", answer)
    answer["a"].append(2)
    cache.get("one")["a"].append(3)
    assert cache.get("one") == {"a": [1]}
    hold.release()
    cache.flush()

    assert make().get("one") == {"a": [1]}


def test_pending_entry_expires_as_others_do(make, hold, clock):
    cache = make(lock_timeout=SHORT)
    hold()
    cache.store("one", "1", ttl=60)
    clock.advance(60)
    assert cache.lookup("one") is None
    hold.release()
    cache.flush()

    assert make().lookup("one") is None


def test_latest_of_two_pending_entries_counts(make, hold):
    cache = make(lock_timeout=SHORT)
    hold()
    cache.store("one", "old")
    cache.store("one", "new")
    assert cache.get("one") == "new"
    assert cache.stats()["pending"] == 1
    hold.release()

    assert cache.flush() is True
    assert make().get("one") == "new"


def test_flush_tells_whether_nothing_is_left(make, hold):
    cache = make(lock_timeout=SHORT)
    assert cache.flush() is True
    hold()
    cache.store("one", "1")
    assert cache.flush() is False
    hold.release()

    assert cache.flush() is True
    assert cache.flush() is True


@pytest.mark.parametrize("how", ["close", "with"])
def test_closing_commits_what_is_pending(make, hold, how):
    cache = make(lock_timeout=SHORT)
    hold()
    if how == "with":
        with cache:
            cache.store("one", "1")
            hold.release()
    else:
        cache.store("one", "1")
        hold.release()
        cache.close()

    assert make().get("one") == "1"
    assert cache.store("two", "2") is True


def test_pending_entries_outlive_a_close_in_vain(make, hold):
    cache = make(lock_timeout=SHORT)
    hold()
    cache.store("one", "1")
    cache.close()
    hold.release()

    assert cache.get("one") == "1"
    assert cache.flush() is True
    assert make().get("one") == "1"


def test_pending_entry_does_not_overwrite_what_another_stored_meanwhile(make, disk):
    """E03: full disk here, an acknowledged store there, then the retry."""
    a, b = make(), make()
    a.store("zero", "0")
    disk.room = 0
    assert a.store("one", "older") is False
    disk.room = None
    assert b.store("one", "newer") is True

    assert a.get("one") == "newer"
    assert a.store("two", "2") is True
    assert (a.get("one"), b.get("one"), make().get("one")) == ("newer", "newer", "newer")
    assert a.stats()["pending"] == 0


def test_pending_change_does_not_overwrite_what_another_changed_meanwhile(make, disk):
    """E03: also where there was an entry before."""
    a, b = make(), make()
    a.store("one", "first")
    disk.room = 0
    a.store("one", "older")
    disk.room = None
    assert a.get("one") == "older"
    b.store("one", "newer")

    assert a.get("one") == "newer"
    a.flush()
    assert make().get("one") == "newer"


def test_pending_change_is_committed_where_nobody_else_changed_it(make, disk):
    """E03."""
    a, b = make(), make()
    a.store("one", "first")
    disk.room = 0
    a.store("one", "second")
    disk.room = None
    b.store("two", "2")
    b.forget("three")

    assert a.flush() is True
    assert make().get("one") == "second"


@pytest.mark.parametrize(
    "remove",
    [
        pytest.param(lambda cache, source: cache.forget("one"), id="forget"),
        pytest.param(lambda cache, source: cache.invalidate(source), id="invalidate"),
        pytest.param(lambda cache, source: cache.invalidate(source.parent), id="folder"),
        pytest.param(lambda cache, source: cache.clear(), id="clear"),
    ],
)
def test_pending_entry_does_not_come_back_after_anothers_removal(make, tmp_path, disk, remove):
    """E03: what was evicted stays evicted."""
    source = tmp_path / "a.py"
    source.write_text("x")
    a, b = make(), make()
    a.store("zero", "0")
    disk.room = 0
    a.store("one", "stale", paths=[source])
    assert a.get("one") == "stale"
    disk.room = None
    remove(b, source)

    assert a.lookup("one") is None
    assert a.store("two", "2") is True
    assert a.lookup("one") is None
    assert make().lookup("one") is None
    assert a.stats()["pending"] == 0


def test_own_removal_takes_pending_entries_as_well(make, hold, tmp_path):
    """E03, E04."""
    cache = make(lock_timeout=SHORT)
    cache.store("zero", "0")
    hold()
    source = tmp_path / "a.py"
    source.write_text("x")
    cache.store("one", "1", paths=[source])
    cache.store("two", "2")
    cache.invalidate(source)
    assert (cache.lookup("one"), cache.get("two")) == (None, "2")
    cache.forget("two")
    assert cache.lookup("two") is None
    hold.release()

    assert cache.flush() is True
    assert [hit.question for hit in make().entries()] == ["zero"]


def test_pending_entry_after_an_own_pending_removal_is_kept(make, hold):
    """E04: removals first, then entries, as they came."""
    cache = make(lock_timeout=SHORT)
    cache.store("one", "old")
    hold()
    cache.forget("one")
    cache.store("one", "new")
    assert cache.get("one") == "new"
    hold.release()

    assert cache.flush() is True
    assert (cache.get("one"), make().get("one")) == ("new", "new")


@pytest.mark.parametrize("limit", [{"max_entries": 3}, {"max_bytes": 700}])
def test_pending_entries_are_bounded(make, hold, limit):
    """R30: a cache that can never write does not fill the memory."""
    cache = make(lock_timeout=SHORT, **limit)
    hold()
    for number in range(20):
        cache.store(f"q{number}", "x" * 50)

    assert cache.stats()["pending"] <= 5
    assert cache.get("q19") == "x" * 50
    assert cache.lookup("q0") is None
    hold.release()
    assert cache.flush() is True
    assert make().get("q19") == "x" * 50


def test_pending_events_say_so(make, hold, clock):
    events = []
    cache = make(lock_timeout=SHORT, on_event=events.append)
    hold()
    cache.store("one", "1")

    assert [(event.kind, event.subject) for event in events] == [("pending", "one")]


def test_errors_are_raised_if_asked_and_nothing_is_kept(make, disk, path):
    """R29, R30: a StoreError with its cause, as the command wants it."""
    make().store("zero", "0")
    cache = make(on_error="raise")
    disk.room = 0
    with pytest.raises(StoreError) as full:
        cache.store("one", "1")
    disk.room = None
    disk.read_only = errno.EROFS
    with pytest.raises(StoreError) as read_only:
        cache.store_many({"one": "1"})
    disk.read_only = 0

    assert full.value.errno == errno.ENOSPC
    assert isinstance(full.value.__cause__, OSError)
    assert "disk is full" in str(full.value)
    assert read_only.value.errno == errno.EROFS
    assert isinstance(full.value, OSError)
    assert cache.lookup("one") is None
    assert cache.stats()["pending"] == 0
    assert cache.flush() is True
    assert make().lookup("one") is None
    assert cache.store("one", "1") is True


def test_removal_that_can_not_be_committed_is_raised_and_still_hides(make, hold):
    """E04."""
    cache = make(lock_timeout=SHORT, on_error="raise")
    cache.store("one", "1")
    hold()
    with pytest.raises(LockTimeoutError):
        cache.forget("one")

    assert cache.lookup("one") is None
    hold.release()
    assert cache.store("two", "2") is True
    assert make().lookup("one") is None


# Pending evictions.


@pytest.mark.parametrize(
    "remove",
    [
        pytest.param(lambda cache, source: cache.invalidate(source), id="invalidate"),
        pytest.param(lambda cache, source: cache.forget("one"), id="forget"),
        pytest.param(lambda cache, source: cache.clear(), id="clear"),
    ],
)
def test_eviction_that_can_not_be_committed_hides_here_and_is_committed_first(
    make, hold, tmp_path, remove
):
    """E04: no put of this instance is committed before it."""
    source = tmp_path / "a.py"
    source.write_text("x")
    a, b = make(lock_timeout=SHORT), make()
    a.store("one", "stale", paths=[source])
    assert b.get("one") == "stale"
    hold()
    assert remove(a, source) == 1

    assert a.lookup("one") is None
    assert "one" not in [hit.question for hit in a.entries()]
    assert a.stats()["pending"] == 1
    hold.release()
    assert a.store("two", "2") is True
    assert b.lookup("one") is None
    assert [hit.question for hit in make().entries()] == ["two"]
    assert a.stats()["pending"] == 0


def test_hidden_answer_is_computed_anew(make, hold):
    """E04."""
    cache = make(lock_timeout=SHORT)
    cache.store("one", "stale")
    hold()
    cache.forget("one")
    assert cache.get_or_call("one", lambda: "fresh") == "fresh"
    assert cache.get("one") == "fresh"
    hold.release()
    cache.flush()

    assert make().get("one") == "fresh"


def test_result_under_way_is_not_kept_after_an_own_pending_eviction(make, hold):
    """E04, E06: the eviction counts from when it was asked for."""
    cache = make(lock_timeout=SHORT)
    cache.store("zero", "0")

    def compute():
        hold()
        cache.forget("slow")
        hold.release()
        return "stale"

    assert cache.get_or_call("slow", compute) == "stale"
    assert (cache.lookup("slow"), make().lookup("slow")) == (None, None)


def test_eviction_is_committed_by_flush_alone(make, hold):
    """E04."""
    cache = make(lock_timeout=SHORT)
    cache.store("one", "stale")
    hold()
    cache.forget("one")
    assert cache.flush() is False
    hold.release()

    assert cache.flush() is True
    assert make().lookup("one") is None


def test_eviction_that_another_thread_commits_counts_as_ones_own(make, monkeypatch):
    """E04: whoever comes first to the lock commits for all, and each is told of its own."""
    cache = make()
    cache.store("one", "1")
    reached, go_on = threading.Event(), threading.Event()
    real = _lock.FileLock.run
    told = []
    slow = threading.Thread(target=lambda: told.append(cache.forget("one")))

    def run(self, work, *given):
        if threading.current_thread() is slow and not reached.is_set():
            reached.set()
            assert go_on.wait(LONG)
        return real(self, work, *given)

    monkeypatch.setattr(_lock.FileLock, "run", run)
    slow.start()
    try:
        assert reached.wait(LONG)
        assert cache.store("two", "2") is True
        assert make().lookup("one") is None
    finally:
        go_on.set()
        slow.join(LONG)

    assert told == [True]
    assert cache.stats()["pending"] == 0


def test_eviction_on_a_full_disk_forgets_the_file(make, path, disk, tmp_path, warnings_of):
    """E04: entries can be had again, stale answers can't be taken back."""
    source = tmp_path / "a.py"
    source.write_text("x")
    a, b = make(), make()
    a.store("one", "stale", paths=[source])
    a.store("two", "2")
    assert b.get("one") == "stale"
    disk.room = 10
    a.invalidate(source)

    assert not path.exists()
    assert (a.lookup("one"), b.lookup("one")) == (None, None)
    assert a.stats()["pending"] == 0
    assert names_in(tmp_path) == ["a.py", "answers.json.lock"]
    disk.room = None
    assert a.store("three", "3") is True
    assert [hit.question for hit in make().entries()] == ["three"]
    assert len(warnings_of()) == 1
    assert "disk is full" in warnings_of()[0]


def test_file_is_removed_on_a_full_disk_under_the_lock_only(make, path, disk, hold):
    """E04: another's store may be under way."""
    cache = make(lock_timeout=SHORT)
    cache.store("one", "stale")
    hold()
    disk.room = 0
    cache.forget("one")

    assert path.exists()
    assert cache.lookup("one") is None
    assert cache.stats()["pending"] == 1


def test_plain_store_on_a_full_disk_removes_nothing(make, path, disk):
    """E04, R29: only an eviction does."""
    cache = make()
    cache.store("one", "1")
    disk.room = 0
    cache.store("two", "2")

    assert path.exists()
    assert make().get("one") == "1"


def test_eviction_with_no_file_on_a_full_disk_says_that_it_is_full(make, disk, warnings_of):
    """E04: there is nothing to remove then."""
    cache = make()
    disk.room = 0
    assert cache.forget("one") is False

    [warning] = warnings_of()
    assert "disk is full" in warning
    disk.room = None
    assert cache.flush() is True


def test_eviction_while_read_only_by_the_switch_is_committed_later(make, monkeypatch):
    """E04."""
    cache = make()
    cache.store("one", "stale")
    monkeypatch.setenv("RESPCACHE_READONLY", "1")
    cache.forget("one")
    assert cache.lookup("one") is None
    assert make().get("one") == "stale"
    monkeypatch.delenv("RESPCACHE_READONLY")

    assert cache.store("two", "2") is True
    assert make().lookup("one") is None


def test_pending_entry_of_a_lost_file_does_not_overwrite_the_next_one(make, path, hold):
    """E02, E03."""
    cache = make(lock_timeout=SHORT)
    cache.store("zero", "0")
    hold()
    cache.store("one", "1")
    path.unlink()
    hold.release()
    other = make()
    other.store("one", "newer")

    assert cache.get("one") == "newer"
    assert cache.flush() is True
    assert make().get("one") == "newer"
