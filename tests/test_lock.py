"""The lock of writers: who excludes whom, for how long, and what outsiders can do to it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading

import pytest

from respcache import Cache, LockTimeoutError, StoreError, _lock

fcntl = pytest.importorskip("fcntl")

processes = pytest.mark.xdist_group("processes")
SHORT = 0.05  # seconds: a wait that is expected to run out
LONG = 60.0  # seconds: a wait that is expected to end before


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.json"


@pytest.fixture
def lock_path(tmp_path):
    return tmp_path / "answers.json.lock"


@pytest.fixture
def make(path, clock):
    def open_cache(at=path, **options) -> Cache:
        return Cache(at, **{"fsync": False, "clock": clock, "lock_timeout": LONG, **options})

    return open_cache


class Holder:
    """Another program that holds the lock, on a descriptor of its own."""

    def __init__(self, path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def release(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@pytest.fixture
def hold():
    """Hold the lock at a path until the end of the test, or until it is released."""
    holders = []

    def take(path) -> Holder:
        holders.append(Holder(path))
        return holders[-1]

    yield take
    for holder in holders:
        holder.release()


def is_free(path) -> bool:
    """Tell whether another program could take the lock at *path* now."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


class Worker(threading.Thread):
    """Run *work* in a thread, and keep what it gives or raises."""

    def __init__(self, work) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result = None
        self.error = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def finish(self):
        self.join(LONG)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def run_child(source: str, *arguments) -> str:
    """Run *source* in a fresh interpreter, and return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# The lock file.


def test_lock_file_is_a_sibling_that_stays_and_holds_nothing(make, path, lock_path):
    """R23: it is never deleted, so that nobody can lock another file of the same name."""
    make().store("one", "1")
    inode = lock_path.stat().st_ino
    cache = make()
    cache.store("two", "2")
    cache.forget("one")
    cache.close()

    assert lock_path.stat().st_ino == inode
    assert lock_path.stat().st_size == 0
    assert sorted(os.listdir(path.parent)) == ["answers.json", "answers.json.lock"]


@pytest.mark.parametrize("left", [b"", b"12345\n", b"\x00" * 4096, b'{"pid": 1}'])
def test_lock_file_that_a_crash_left_is_taken_at_once(make, lock_path, left, warnings_of):
    """R24, R23: and neither truncated nor written to."""
    lock_path.write_bytes(left)
    lock_path.chmod(0o640)
    inode = lock_path.stat().st_ino

    assert make(lock_timeout=SHORT).store("one", "1") is True
    assert lock_path.read_bytes() == left
    assert lock_path.stat().st_ino == inode
    assert lock_path.stat().st_mode & 0o777 == 0o640
    assert warnings_of() == []


def test_contender_that_waits_in_vain_changes_nothing_about_the_lock_file(make, hold, lock_path):
    """R23."""
    lock_path.write_bytes(b"mine")
    lock_path.chmod(0o640)
    hold(lock_path)
    before = lock_path.stat()
    assert make(lock_timeout=SHORT, mode=0o600).store("one", "1") is False

    after = lock_path.stat()
    assert lock_path.read_bytes() == b"mine"
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )


def test_lookups_make_no_lock_file(make, path):
    make().lookup("one")
    path.write_bytes(b"{}")
    make().lookup("one")
    list(make().entries())

    assert os.listdir(path.parent) == ["answers.json"]


def test_lock_file_that_is_a_symlink_is_refused(make, path, lock_path, tmp_path, warnings_of):
    """R39: whoever may write to the folder must not make us open or change another file."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    victim.chmod(0o644)
    before = victim.stat()
    lock_path.symlink_to(victim)
    cache = make()

    assert cache.store("one", "1") is False
    assert cache.store("two", "2") is False
    assert (cache.get("one"), cache.get("two")) == ("1", "2")
    assert victim.read_bytes() == b"precious"
    after = victim.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert lock_path.is_symlink()
    assert not path.exists()
    [warning] = warnings_of()
    assert "symlink" in warning
    lock_path.unlink()
    assert cache.flush() is True
    assert (make().get("one"), make().get("two")) == ("1", "2")


def test_lock_file_that_is_a_dangling_symlink_makes_no_file(make, lock_path, tmp_path):
    """R39."""
    lock_path.symlink_to(tmp_path / "victim")

    assert make().store("one", "1") is False
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("kind", ["folder", "FIFO"])
def test_lock_file_that_is_no_file_is_refused_at_once(make, path, lock_path, kind, warnings_of):
    """E30: a FIFO must not hang us."""
    lock_path.mkdir() if kind == "folder" else os.mkfifo(lock_path)
    cache = make()

    assert cache.store("one", "1") is False
    assert cache.get("one") == "1"
    assert not path.exists()
    assert len(warnings_of()) == 1


def test_lock_that_may_not_be_opened_leaves_lookups_working(make, lock_path, monkeypatch):
    """R25: a user who may only read uses what others store."""
    make().store("one", "1")
    real = os.open

    def refuse(name, *args, **options):
        if os.fspath(name) == str(lock_path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return real(name, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    cache = make()

    assert cache.get("one") == "1"
    assert cache.store("two", "2") is False
    assert (cache.get("one"), cache.get("two")) == ("1", "2")


# Exclusion.


def test_lock_excludes_other_programs_while_a_store_runs(make, lock_path, monkeypatch):
    """R23: from before the reading until after the rename."""
    seen = []
    for name in ("replace", "listdir"):
        real = getattr(os, name)

        def call(*args, real=real, **options):
            seen.append(is_free(lock_path))
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)
    make().store("one", "1")

    assert len(seen) >= 2
    assert not any(seen)
    assert is_free(lock_path)


def test_two_caches_of_one_process_exclude_each_other(make, monkeypatch):
    """R23: the lock belongs to the open file, not to the process."""
    a, b = make(), make(lock_timeout=SHORT)
    inside, go_on = threading.Event(), threading.Event()
    real = os.replace

    def slow(*args, **options):
        inside.set()
        assert go_on.wait(LONG)
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", slow)
        worker = Worker(lambda: a.store("one", "1"))
        try:
            assert inside.wait(LONG)
            stored_meanwhile = b.store("two", "2")
        finally:
            go_on.set()
            worker.finish()

    assert stored_meanwhile is False
    assert b.flush() is True
    assert (make().get("one"), make().get("two")) == ("1", "2")


def test_threads_of_one_cache_store_one_after_the_other(make):
    """R19, R20: nothing is lost and nothing is torn, without any delay."""
    cache = make()
    barrier = threading.Barrier(8)

    def work(number: int) -> int:
        barrier.wait(LONG)
        return sum(cache.store(f"q{number}-{each}", "a") for each in range(25))

    workers = [Worker(lambda number=number: work(number)) for number in range(8)]
    stored = [worker.finish() for worker in workers]

    assert stored == [25] * 8
    assert len(cache) == 200
    assert len(make()) == 200


def test_waiter_gets_the_lock_when_it_is_released(make, hold, lock_path):
    """R23."""
    holder = hold(lock_path)
    worker = Worker(lambda: make().store("one", "1"))
    worker.join(SHORT)
    assert worker.is_alive()
    holder.release()

    assert worker.finish() is True


def test_one_thread_of_a_process_polls_for_all(make, hold, lock_path, monkeypatch):
    """The others wait for its turn to end, and come in one after the other."""
    cache = make()
    cache.store("zero", "0")
    holder = hold(lock_path)
    polling = set()
    begun = threading.Event()
    real = fcntl.flock

    def flock(fd, how):
        polling.add(threading.get_ident())
        begun.set()
        return real(fd, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        workers = [
            Worker(lambda number=number: cache.store(f"q{number}", "a")) for number in range(4)
        ]
        assert begun.wait(LONG)
        for worker in workers:
            worker.join(SHORT / 2)
        polled = len(polling)
        holder.release()
        stored = [worker.finish() for worker in workers]

    assert polled == 1
    assert stored == [True] * 4


def test_threads_that_store_for_the_first_time_share_one_lock(make, monkeypatch):
    """Else each of them would poll, and ask another's lock whether its own is held."""
    cache = make()
    made = []
    second = threading.Event()
    real = _lock.FileLock.__init__

    def init(self, *args):
        made.append(self)
        if len(made) > 1:
            second.set()
        second.wait(4 * SHORT)
        real(self, *args)

    monkeypatch.setattr(_lock.FileLock, "__init__", init)
    workers = [Worker(lambda number=number: cache.store(f"q{number}", "a")) for number in range(4)]
    stored = [worker.finish() for worker in workers]

    assert stored == [True] * 4
    assert len(made) == 1


# Not for ever.


def test_lock_that_is_held_too_long_is_given_up(make, hold, path, lock_path, warnings_of):
    """R24, E27: the entry stays here, and one warning says why."""
    make().store("zero", "0")
    hold(lock_path)
    cache = make(lock_timeout=SHORT)
    before = path.read_bytes()

    assert cache.store("one", "1") is False
    assert cache.get("one") == "1"
    assert make().lookup("one") is None
    assert path.read_bytes() == before
    assert cache.stats()["pending"] == 1
    [warning] = warnings_of()
    assert str(lock_path) in warning
    assert "lock_timeout" in warning


def test_after_one_wait_in_vain_the_next_stores_do_not_wait(
    make, hold, lock_path, monkeypatch, warnings_of
):
    """E27: a stopped holder costs one timeout, not one a store; and one warning."""
    holder = hold(lock_path)
    cache = make(lock_timeout=SHORT)
    slept = []
    real = _lock.sleep
    monkeypatch.setattr(_lock, "sleep", lambda seconds: (slept.append(seconds), real(seconds)))

    assert cache.store("q0", "a") is False
    assert slept
    slept.clear()
    for number in range(1, 40):
        assert cache.store(f"q{number}", "a") is False
    assert slept == []
    assert len(warnings_of()) == 1
    assert all(cache.get(f"q{number}") == "a" for number in range(40))
    holder.release()
    assert cache.store("q40", "a") is True
    assert len(make()) == 41
    assert cache.stats()["pending"] == 0


def test_waiting_is_back_after_one_success(make, hold, lock_path, monkeypatch):
    """E27."""
    holder = hold(lock_path)
    cache = make(lock_timeout=SHORT)
    cache.store("one", "1")
    holder.release()
    cache.store("two", "2")
    holder = hold(lock_path)
    slept = []
    real = _lock.sleep
    monkeypatch.setattr(_lock, "sleep", lambda seconds: (slept.append(seconds), real(seconds)))

    assert cache.store("three", "3") is False
    assert slept


def test_waits_of_many_threads_together_cost_one_warning(make, hold, lock_path, warnings_of):
    """E27: also where they wait for each other and not for the file."""
    hold(lock_path)
    cache = make(lock_timeout=SHORT)
    workers = [Worker(lambda number=number: cache.store(f"q{number}", "a")) for number in range(6)]
    stored = [worker.finish() for worker in workers]

    assert stored == [False] * 6
    assert cache.stats()["pending"] == 6
    assert len(warnings_of()) == 1


def test_lookups_go_on_while_a_store_waits(make, hold, lock_path):
    """R24, E27: nothing that a lookup needs is held over the wait."""
    make().store("zero", "0")
    cache = make()
    assert cache.get("zero") == "0"
    holder = hold(lock_path)
    worker = Worker(lambda: cache.store("one", "1"))
    worker.join(SHORT)
    assert worker.is_alive()

    looks = Worker(lambda: (cache.get("zero"), cache.lookup("one"), len(cache), cache.stats()))
    assert looks.finish()[:3] == ("0", None, 1)
    assert worker.is_alive()
    holder.release()
    assert worker.finish() is True


def test_lock_timeout_is_an_error_if_asked(make, hold, lock_path):
    """R24: the entry is not kept then."""
    holder = hold(lock_path)
    cache = make(lock_timeout=SHORT, on_error="raise")
    with pytest.raises(LockTimeoutError) as caught:
        cache.store("one", "1")
    with pytest.raises(TimeoutError):
        cache.store_many({"one": "1"})

    assert caught.value.path == str(lock_path)
    assert 0 < caught.value.waited <= LONG
    assert cache.lookup("one") is None
    assert cache.stats()["pending"] == 0
    holder.release()
    assert cache.store("one", "1") is True


@pytest.mark.parametrize("timeout", [1e-9, 1e10, 1e300])
def test_lock_timeout_may_be_any_number_of_seconds(make, timeout):
    assert make(lock_timeout=timeout).store("one", "1") is True
    assert make().get("one") == "1"


# No such locks.


@pytest.mark.parametrize("number", ["ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP", "EINVAL"])
def test_file_system_without_flock_keeps_entries_in_memory(
    make, path, monkeypatch, warnings_of, number
):
    """R24, E21: at once, with one warning that says so, and never by another kind of lock."""
    make().store("zero", "0")
    data = path.read_bytes()
    code = getattr(errno, number)

    def refuse(fd, how):
        raise OSError(code, os.strerror(code))

    def no_sleep(seconds):
        raise AssertionError("it waits for what will never come")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        patch.setattr(_lock, "sleep", no_sleep)
        cache = make()
        for name in ("one", "two", "three"):
            assert cache.store(name, name) is False
            assert cache.get(name) == name
        assert cache.get("zero") == "0"
        assert path.read_bytes() == data

    assert cache.flush() is True
    assert len(make()) == 4
    [warning] = warnings_of()
    assert "flock" in warning
    assert "memory" in warning


def test_lock_that_fails_otherwise_is_an_error_that_says_how(make, monkeypatch):
    def refuse(fd, how):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match="can't be locked") as caught:
        make(on_error="raise").store("one", "1")

    assert caught.value.errno == errno.EIO
    assert isinstance(caught.value.__cause__, OSError)


# An outsider deletes the lock file.


def _unlink_at(monkeypatch, name: str, lock_path, then=None):
    """Delete the lock file once, at the first call of ``os.<name>``, and do *then*."""
    real = getattr(os, name)
    done = []

    def call(*args, **options):
        if not done:
            done.append(name)
            lock_path.unlink()
            if then is not None:
                then()
        return real(*args, **options)

    monkeypatch.setattr(os, name, call)
    return done


@pytest.mark.parametrize("step", ["listdir", "fsync", "fchmod", "replace"])
def test_lock_file_deleted_while_held_costs_nothing(make, lock_path, monkeypatch, step):
    """E16: at each step of a store that nobody else joins."""
    make().store("zero", "0")
    cache = make(fsync=True)
    with monkeypatch.context() as patch:
        done = _unlink_at(patch, step, lock_path)
        assert cache.store("one", "1") is True

    assert done == [step]
    assert (make().get("zero"), make().get("one")) == ("0", "1")
    assert lock_path.exists()
    assert make().store("two", "2") is True


def test_newcomer_who_is_done_before_our_rename_is_not_overwritten(make, lock_path, monkeypatch):
    """E16, R23: cleaner, newcomer's whole store, then our rename."""
    a, b = make(fsync=True), make()
    a.store("zero", "0")
    stored = []
    with monkeypatch.context() as patch:
        done = _unlink_at(patch, "fsync", lock_path, lambda: stored.append(b.store("b", "2")))
        stored.append(a.store("a", "1"))

    assert done
    assert stored == [True, True]
    for cache in (a, b, make()):
        assert (cache.get("zero"), cache.get("a"), cache.get("b")) == ("0", "1", "2")


def test_newcomer_who_renames_over_our_change_does_not_lose_it(make, lock_path, monkeypatch):
    """E16, R23: cleaner, newcomer reads, our rename, newcomer's rename."""
    a, b = make(), make()
    a.store("zero", "0")
    b_is_ready, a_is_done = threading.Event(), threading.Event()
    workers, first = [], threading.current_thread()
    real = os.replace

    def replace(*args, **options):
        if not workers and threading.current_thread() is first:
            lock_path.unlink()
            workers.append(Worker(lambda: b.store("b", "2")))
            assert b_is_ready.wait(LONG)
            real(*args, **options)
            a_is_done.set()
        elif threading.current_thread() is not first and not b_is_ready.is_set():
            b_is_ready.set()
            assert a_is_done.wait(LONG)
            real(*args, **options)
        else:
            real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        try:
            stored = a.store("a", "1")
        finally:
            a_is_done.set()
        assert workers[0].finish() is True

    assert stored is True
    for cache in (a, b, make()):
        assert (cache.get("zero"), cache.get("a"), cache.get("b")) == ("0", "1", "2")


def test_removal_that_a_newcomer_renamed_over_is_made_again(make, lock_path, monkeypatch):
    """E16: an acknowledged eviction is not lost either."""
    a, b = make(), make()
    a.store_many({"zero": "0", "old": "stale"})
    b_is_ready, a_is_done = threading.Event(), threading.Event()
    workers, first = [], threading.current_thread()
    real = os.replace

    def replace(*args, **options):
        if not workers and threading.current_thread() is first:
            lock_path.unlink()
            workers.append(Worker(lambda: b.store("b", "2")))
            assert b_is_ready.wait(LONG)
            real(*args, **options)
            a_is_done.set()
            return
        if threading.current_thread() is not first and not b_is_ready.is_set():
            b_is_ready.set()
            assert a_is_done.wait(LONG)
        real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        try:
            assert a.forget("old") is True
        finally:
            a_is_done.set()
        assert workers[0].finish() is True

    assert (make().lookup("old"), make().get("b")) == (None, "2")


def test_removal_that_is_tried_again_counts_once(make, lock_path, monkeypatch, tmp_path):
    """E16: how many entries it took is not how often it was tried."""
    cache = make(fsync=True)
    source = tmp_path / "a.py"
    source.write_text("x")
    for number in range(3):
        cache.store(f"q{number}", "a", paths=[source])
    with monkeypatch.context() as patch:
        done = _unlink_at(patch, "fsync", lock_path)
        gone = cache.invalidate(source)

    assert done
    assert gone == 3
    assert len(make()) == 0


def test_waiter_on_a_deleted_lock_file_locks_the_new_one(make, hold, lock_path, monkeypatch):
    """R23, E16: holder, waiter, cleaner, newcomer, release: the waiter is not inside beside it."""
    old = hold(lock_path)
    opened = threading.Event()
    again = threading.Event()
    real = _lock.open_sibling

    def open_sibling(*args):
        made = real(*args)
        (again if opened.is_set() else opened).set()
        return made

    monkeypatch.setattr(_lock, "open_sibling", open_sibling)
    cache = make()
    worker = Worker(lambda: cache.store("one", "1"))
    assert opened.wait(LONG)
    lock_path.unlink()
    new = hold(lock_path)
    old.release()
    assert again.wait(LONG)
    worker.join(SHORT)

    assert worker.is_alive()
    assert make().lookup("one") is None
    new.release()
    assert worker.finish() is True
    assert make().get("one") == "1"


def test_lock_file_that_is_deleted_each_time_ends_in_an_error(
    make, path, lock_path, monkeypatch, warnings_of
):
    """E16: not in a loop without end."""
    cache = make(fsync=True)
    real = os.fsync
    times = []

    def fsync(fd):
        times.append(1)
        assert len(times) < 100
        lock_path.unlink()
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert cache.store("one", "1") is False

    assert cache.get("one") == "1"
    assert os.listdir(path.parent) == ["answers.json.lock"] or not os.listdir(path.parent)
    assert len(warnings_of()) == 1
    assert cache.flush() is True


# Coming in again.


def test_store_from_within_a_store_of_the_same_thread_does_not_hang(make, monkeypatch):
    """E19: as a signal handler does; what it stores is committed with the next."""
    cache = make()
    results = []
    real = os.replace

    def replace(*args, **options):
        if not results:
            results.append(None)
            results[0] = cache.store("inner", "i")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        outer = cache.store("outer", "o")

    assert (outer, results) == (True, [False])
    assert cache.get("inner") == "i"
    assert cache.flush() is True
    assert (make().get("outer"), make().get("inner")) == ("o", "i")


def test_lookup_from_within_a_store_works(make, monkeypatch):
    """E19."""
    cache = make()
    cache.store("zero", "0")
    seen = []
    real = os.replace

    def replace(*args, **options):
        seen.append((cache.get("zero"), cache.lookup("one"), len(cache)))
        return real(*args, **options)

    monkeypatch.setattr(os, "replace", replace)
    cache.store("one", "1")

    assert seen == [("0", None, 1)]


@pytest.mark.parametrize("step", ["listdir", "fchmod", "fsync", "replace"])
def test_interrupt_at_any_step_frees_the_lock(make, path, lock_path, monkeypatch, step):
    """E19: what a handler raises passes through, and others come in at once."""
    make().store("zero", "0")
    data = path.read_bytes()
    cache = make(fsync=True)

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.store("one", "1")

    assert is_free(lock_path)
    assert path.read_bytes() == data
    assert sorted(os.listdir(path.parent)) == ["answers.json", "answers.json.lock"]
    assert cache.store("two", "2") is True


_SIGNALS = """
import fcntl, os, random, signal, sys, time
from respcache import Cache, _lock

class Stop(Exception):
    pass

def handler(number, frame):
    raise Stop

def is_free():
    fd = os.open(lock_path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)

what, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
lock_path = path + ".lock"
if what == "lock":
    lock = _lock.FileLock(lock_path, 0o600, 1.0)
    work = lambda number: lock.run(lambda: True)
else:
    cache = Cache(path, fsync=False, lock_timeout=1.0)
    work = lambda number: cache.store(f"q{number % 7}", f"a{number}")
began = time.perf_counter()
for number in range(100):
    work(number)
took = (time.perf_counter() - began) / 100
signal.signal(signal.SIGALRM, handler)
stopped = leaks = failed = 0

def loop():
    global rounds, leaks, failed
    while rounds and not leaks + failed:
        rounds -= 1
        leaks += not is_free()
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, took))
        failed += not (work(rounds * 2) and work(rounds * 2 + 1))
        signal.setitimer(signal.ITIMER_REAL, 0)

while rounds and not leaks + failed:
    try:
        loop()
    except Stop:
        stopped += 1
    except _lock.LockTimeoutError:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        failed += 1
print(stopped, leaks, failed, not failed and work(-1))
"""


@processes
@pytest.mark.parametrize(("what", "rounds"), [("lock", 20_000), ("store", 800)])
def test_signal_handler_that_raises_anywhere_leaves_no_lock_behind(path, lock_path, what, rounds):
    """E19: it is free for others at once, and this process goes on storing."""
    stopped, leaks, failed, worked = run_child(_SIGNALS, what, path, rounds).split()

    assert (leaks, failed, worked) == ("0", "0", "True")
    assert int(stopped) > rounds / 10
    assert is_free(lock_path)


# Processes that fork.

_FORK = """
import fcntl, gc, os, sys
from respcache import LockTimeoutError, _lock

path, kind = sys.argv[1:]
lock = _lock.FileLock(path, 0o600, 0.05)
watcher = os.open(path, os.O_RDWR | os.O_CREAT)

def is_free():
    try:
        fcntl.flock(watcher, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(watcher, fcntl.LOCK_UN)
    return True

def in_child(work):
    if kind == "in C":
        _lock._objects.clear()  # the hooks do not run
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        work()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(9)
    os._exit(0)

def try_to_enter():
    global lock, watcher
    os.close(watcher)
    try:
        lock.run(lambda: os._exit(8))
    except LockTimeoutError:
        pass
    lock.close()
    lock = None
    gc.collect()

def while_held():
    assert not is_free()
    assert in_child(try_to_enter) == 0
    assert not is_free(), "the child freed its parent's lock"
    return "worked"

lock.run(lambda: None)
def returned_from_twice():
    if kind == "in C":
        _lock._objects.clear()
    pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not is_free(), "the child freed its parent's lock on its way out"
    return pid

assert lock.run(while_held) == "worked"
assert is_free()
if lock.run(returned_from_twice) == 0:
    os._exit(0)
assert is_free()
assert lock.run(lambda: "again") == "again"

# A child that holds it excludes its parent, though both have the parent's descriptor.
ask, answer = os.pipe(), os.pipe()

def hold_in_child():
    def hold():
        os.write(answer[1], b"x")
        os.read(ask[0], 1)
    lock.run(hold)

pid = os.fork() if kind == "hooked" else None
if pid is None:
    _lock._objects.clear()
    pid = os.fork()
if pid == 0:
    hold_in_child()
    os._exit(0)
os.read(answer[0], 1)
try:
    lock.run(lambda: None)
except LockTimeoutError:
    print("excluded", end=" ")
os.write(ask[1], b"x")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
lock.run(lambda: print("entered"))
"""


@processes
@pytest.mark.parametrize("kind", ["hooked", "in C"])
def test_forked_child_neither_enters_nor_frees_its_parents_lock(lock_path, kind):
    """E18: with Python's fork hooks, and past them."""
    assert run_child(_FORK, lock_path, kind).split() == ["excluded", "entered"]


_FORK_CACHE = """
import os, sys
from respcache import Cache, _lock

path, kind = sys.argv[1:]
cache = Cache(path, fsync=False, lock_timeout=20.0)
cache.store("parent before", "1")
cache.get("parent before")
if kind == "in C":
    _lock._objects.clear()
pid = os.fork()
if pid == 0:
    ok = cache.get("parent before") == "1"
    ok &= all(cache.store(f"child {n}", "2") for n in range(50))
    ok &= cache.get("child 49") == "2"
    os._exit(0 if ok else 1)
stored = all(cache.store(f"parent {n}", "3") for n in range(50))
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(stored, code, len(cache), cache.get("child 49"), cache.get("parent 49"))
"""


@processes
@pytest.mark.parametrize("kind", ["hooked", "in C"])
def test_parent_and_child_go_on_with_one_cache(path, kind):
    """E18: and lose nothing of each other."""
    assert run_child(_FORK_CACHE, path, kind).split() == ["True", "0", "101", "2", "3"]


_FORK_PENDING = """
import fcntl, os, sys
from respcache import Cache

path = sys.argv[1]
Cache(path, fsync=False).store("old", "stale")
holder = os.open(path + ".lock", os.O_RDWR)
fcntl.flock(holder, fcntl.LOCK_EX)
cache = Cache(path, fsync=False, lock_timeout=0.01)
cache.store("new", "pending")
cache.forget("old")
pid = os.fork()
if pid == 0:
    seen = (cache.get("new"), cache.get("old"), cache.stats()["pending"])
    fcntl.flock(holder, fcntl.LOCK_UN)
    flushed = cache.flush()
    print(*seen, flushed, Cache(path).get("new"), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(cache.get("new"), cache.get("old"), cache.flush(), Cache(path).get("new"))
"""


@processes
def test_child_leaves_its_parents_pending_entries_to_its_parent(path):
    """E03, E18: but it serves nothing that its parent knows to be stale."""
    child, parent = run_child(_FORK_PENDING, path).splitlines()

    assert child.split() == ["None", "None", "1", "True", "None"]
    assert parent.split() == ["pending", "None", "True", "pending"]


_THREADED_FORK = """
import os, sys, threading
from respcache import Cache

path = sys.argv[1]
cache = Cache(path, fsync=False, lock_timeout=20.0)
cache.store("zero", "0")
stop = threading.Event()

def work(name):
    number = 0
    while not stop.is_set():
        number += 1
        cache.store(f"{name} {number % 5}", str(number))
        cache.get("zero")

threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
for thread in threads:
    thread.start()
codes = []
for number in range(40):
    pid = os.fork()
    if pid == 0:
        ok = cache.get("zero") == "0" and cache.store(f"child {number}", "c")
        os._exit(0 if ok else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
for thread in threads:
    thread.join()
print(set(codes), sum(Cache(path).get(f"child {n}") == "c" for n in range(40)))
"""


@processes
def test_child_forked_while_other_threads_store_is_not_stuck(path):
    """E18: the mutexes that those threads held are new in the child."""
    assert run_child(_THREADED_FORK, path).strip() == "{0} 40"


_MARKS_FORK = """
import os, sys
from respcache._lock import RangeLock

path = sys.argv[1]
leader, other = RangeLock(path, 0o600), RangeLock(path, 0o600)
assert leader.take(7)
assert other.is_taken(7)
ask, answer = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    os.write(answer[1], b"x")  # the hooks have run
    os.close(ask[1])
    os.read(ask[0], 1)
    os._exit(0)
os.read(answer[0], 1)
assert other.is_taken(7)
leader.close()
print(other.is_taken(7), other.take(7))
os.close(ask[1])
os.waitpid(pid, 0)
"""


@processes
@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="no open-file-description locks")
def test_child_does_not_keep_the_marks_of_its_parents_work(tmp_path):
    """E18: a leader that is done, or dead, frees its flight though its child lives."""
    assert run_child(_MARKS_FORK, tmp_path / "answers.json.flight").split() == ["False", "True"]


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="no open-file-description locks")
def test_marks_of_work_are_seen_though_the_folder_is_not_there_yet(make, tmp_path):
    """The very first computation of all is the one that many begin at once."""
    path = tmp_path / "missing" / "answers.json"
    waiting = []

    def compute():
        waiting.append(
            Worker(lambda: make(at=path).get_or_call("slow", lambda: "second", wait=LONG))
        )
        waiting[0].join(4 * SHORT)
        return "first"

    assert make(at=path).get_or_call("slow", compute) == "first"
    assert waiting[0].finish() == "first"


# Strangers' descriptors.

_DAEMON = """
import fcntl, gc, os, sys
from respcache import Cache

folder = sys.argv[1]
path = os.path.join(folder, "answers.json")
cache = Cache(path, fsync=False, lock_timeout=5.0)
cache.store("before", "1")
cache.get("before")
if hasattr(fcntl, "F_OFD_SETLK"):
    cache.get_or_call("flight", lambda: "f")
os.closerange(3, 256)

# Files of the user's own take the numbers.
users = {}
for number in range(60):
    name = os.path.join(folder, f"user {number}")
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"precious")
    users[fd] = os.fstat(fd)

def check(when):
    for fd, status in users.items():
        now = os.fstat(fd)  # EBADF if it was closed
        assert (now.st_ino, now.st_size, now.st_mtime_ns) == (
            status.st_ino, status.st_size, status.st_mtime_ns), when
        again = os.open(f"/dev/fd/{fd}", os.O_RDWR) if os.path.exists("/proc") else os.dup(fd)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused if it was locked
        os.close(again)

check("before")
assert cache.get("before") == "1"
assert cache.store("after", "2")
check("store")
assert cache.get_or_call("flight again", lambda: "g") == "g"
check("flight")
assert Cache(path).get("after") == "2"
Cache(path, fsync=False).store("another", "3")
assert cache.get("another") == "3"
check("reload")
cache.forget("before")
cache.close()
check("close")
assert cache.store("reopened", "4")
del cache
gc.collect()
check("collected")
assert sorted(hit.question for hit in Cache(path).entries()) == [
    "after", "another", "flight", "flight again", "reopened"]
print("fine")
"""


@processes
def test_daemon_that_closed_all_descriptors_finds_its_own_files_untouched(tmp_path):
    """E07, E18: no number is locked, written or closed that means a file of the user's by now."""
    assert run_child(_DAEMON, tmp_path).strip() == "fine"


def test_descriptor_closes_its_own_file_once(tmp_path):
    """E07."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"")
    other.write_bytes(b"")
    kept = _lock.Descriptor(os.open(one, os.O_RDONLY))
    number = kept.fd
    assert kept.is_ours()
    assert kept.is_at(str(one))
    os.close(number)
    stranger = os.open(other, os.O_RDONLY)
    try:
        os.dup2(stranger, number)

        assert not kept.is_ours()
        kept.close()
        kept.close()
        assert os.fstat(number).st_ino == other.stat().st_ino
    finally:
        os.close(stranger)
        if number != stranger:
            os.close(number)


def test_close_by_another_thread_lets_a_store_finish(make, monkeypatch):
    """What is closed is opened again at the next use, also by one who is in the middle of it."""
    cache = make()
    closed = []
    real = os.listdir

    def listdir(*args):
        if not closed:
            closer = Worker(cache.close)
            closer.join(LONG)
            closed.append(not closer.is_alive())
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", listdir)
        assert cache.store("one", "1") is True

    assert closed == [True]
    assert make().get("one") == "1"


def test_close_by_another_thread_does_not_let_others_in_meanwhile(make, lock_path, monkeypatch):
    """The lock of a store under way is not freed by closing the cache."""
    cache = make()
    seen = []
    real = os.replace

    def replace(*args, **options):
        Worker(cache.close).finish()
        seen.append(is_free(lock_path))
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        assert cache.store("one", "1") is True

    assert not any(seen)
    assert make().get("one") == "1"


# Where there is no flock at all (Windows), and filelock takes its place.


@pytest.fixture
def portable(monkeypatch):
    pytest.importorskip("filelock")
    monkeypatch.setattr(_lock, "fcntl", None)
    return lambda path, timeout: _lock.make_lock(str(path), 0o600, timeout)


@pytest.mark.parametrize("left", [None, b"", b"garbage"])
def test_portable_lock_takes_our_never_deleted_file(portable, lock_path, left):
    """E21: an existence lock would time out on it."""
    if left is not None:
        lock_path.write_bytes(left)
    lock = portable(lock_path, SHORT)

    assert lock.run(lambda: "one") == "one"
    assert lock_path.exists()
    assert lock.run(lambda: lock.is_held()) is True
    assert lock.is_held() is False
    assert lock_path.exists()


def test_portable_lock_times_out_and_then_does_not_wait(portable, lock_path):
    """E27."""
    inside, go_on = threading.Event(), threading.Event()
    holder = portable(lock_path, SHORT)
    worker = Worker(lambda: holder.run(lambda: (inside.set(), go_on.wait(LONG))))
    try:
        assert inside.wait(LONG)
        other = portable(lock_path, SHORT)
        waits = []
        for _ in range(2):
            with pytest.raises(LockTimeoutError) as caught:
                other.run(lambda: None)
            waits.append(caught.value.waited)
    finally:
        go_on.set()
        worker.finish()

    assert waits[1] == 0
    assert other.run(lambda: "in") == "in"


def test_portable_lock_is_not_entered_again_by_its_thread(portable, lock_path):
    """E19."""
    lock = portable(lock_path, SHORT)

    def again():
        with pytest.raises(LockTimeoutError):
            lock.run(lambda: None)
        return lock.is_held()

    assert lock.run(again) is True


def test_portable_lock_is_freed_after_an_error(portable, lock_path):
    lock = portable(lock_path, SHORT)
    with pytest.raises(ZeroDivisionError):
        lock.run(lambda: 1 / 0)

    assert lock.is_held() is False
    assert portable(lock_path, SHORT).run(lambda: "in") == "in"


def test_store_never_goes_on_under_the_lock_of_another_target(tmp_path, monkeypatch):
    """R28: a link that is pointed elsewhere, as another thread sees while this one takes the lock."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "a" / "answers.json")
    cache = Cache(link, fsync=False)
    cache.store("zero", "0")
    real = _lock.FileLock.run
    held = []

    def run(self, work, *given):
        if not held:
            held.append(self.path)
            link.unlink()
            link.symlink_to(tmp_path / "b" / "answers.json")
            other = Worker(lambda: cache.store("other", "o"))
            assert other.finish() is True
        held.append(self.path)
        return real(self, work, *given)

    monkeypatch.setattr(_lock.FileLock, "run", run)

    assert cache.store("one", "1") is True
    assert held[0] == str(tmp_path / "a" / "answers.json.lock")
    assert held[-1] == str(tmp_path / "b" / "answers.json.lock")
    with Cache(tmp_path / "b" / "answers.json") as reader:
        assert reader.get("one") == "1"
    cache.close()
