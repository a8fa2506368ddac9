"""Forks and threads: a child is a process of its own, and no lookup waits for who stores."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from respcache import Cache

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows neither forks nor has flock"),
]


# Forks. The source runs in a process of its own, which is the parent.


FORK = """
def forked(work):
    '''Run *work* in a forked child; return its pid and a way to let it go on.'''
    down, up = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work(lambda: os.read(down, 1))
        except BaseException as error:
            say(["child failed", repr(error)])
        finally:
            os._exit(0)
    return pid, lambda: os.write(up, b"x")

def attempt(cache, *given):
    try:
        return cache.store(*given)
    except LockTimeoutError:
        return "refused"

def held_store(cache, *given):
    '''Begin a store in a thread, and stop it while it holds the lock.'''
    inside, leave = threading.Event(), threading.Event()

    def around(real, *given):
        undo()
        inside.set()
        leave.wait()
        return real(*given)

    undo = patch("os.fsync", around)
    thread = threading.Thread(target=cache.store, args=given)
    thread.start()
    inside.wait()

    def finish():
        leave.set()
        thread.join()

    return finish
"""

FORK_DURING_A_STORE = """
cache = Cache(args["path"], lock_timeout=0.05, on_error="raise")
cache.store("q", "old")
finish = held_store(cache, "q", "of the thread")
asked, told = os.pipe()

def work(wait):
    say(cache.get("q"))
    say(attempt(cache, "p", "of the child"))
    os.write(told, b"x")
    wait()
    say(attempt(cache, "p", "of the child"))
    say([cache.get("q"), cache.get("p")])

pid, go_on = forked(work)
os.read(asked, 1)
finish()
go_on()
os.waitpid(pid, 0)
say([cache.get("q"), cache.get("p")])
say(attempt(cache, "p", "of the parent"))
"""


def test_fork_during_another_threads_store_works_in_the_child(start, path, questions_in):
    """E18: its locks are not the thread's any more, and the parent's lock is the parent's."""
    parent = start(FORK + FORK_DURING_A_STORE, path=path)

    assert parent.hear() == "old"
    assert parent.hear() == "refused"  # not let in by the descriptor it was born with
    assert parent.hear() is True  # after the thread's store, by the same object
    assert parent.hear() == ["of the thread", "of the child"]
    assert parent.hear() == ["of the thread", "of the child"]  # the parent's lookups
    assert parent.hear() is True
    assert questions_in(path) == {"q": "of the thread", "p": "of the parent"}


FORK_AND_HOLD = """
cache = Cache(args["path"])
cache.store("q", "old")

def fork_here(real, *given):
    forked(lambda wait: (say("child lives"), hear()))
    say("parent holds")
    time.sleep(3600)

patch(args["target"], fork_here)
cache.store("q", "new")
"""


def test_child_does_not_keep_the_lock_of_a_parent_that_was_killed(start, path):
    """E18: it has a copy of every descriptor, and lives on."""
    parent = start(FORK + FORK_AND_HOLD, path=path, target="os.fsync")
    assert sorted([parent.hear(), parent.hear()]) == ["child lives", "parent holds"]
    other = Cache(path, lock_timeout=0.001, on_error="raise")
    parent.kill()

    assert other.store("q", "of another") is True
    assert Cache(path).get("q") == "of another"

    parent.tell()  # now the child ends
    parent.rest()

    assert Cache(path, on_error="raise").store("p", "swept") is True
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


LEAD_AND_FORK = """
cache = Cache(args["path"])

def compute():
    forked(lambda wait: (say("child lives"), hear()))
    say("parent computes")
    time.sleep(3600)

cache.get_or_call("q", compute)
"""

ASK = """
cache = Cache(args["path"])
announce("time.sleep", "waiting")
say(cache.get_or_call("q", lambda: "of another", wait=3600.0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="flights of processes need OFD locks")
def test_child_does_not_keep_the_flight_of_a_leader_that_was_killed(start, path):
    """E18: who waits for the dead leader takes over, while its child lives on."""
    leader = start(FORK + LEAD_AND_FORK, path=path)
    assert sorted([leader.hear(), leader.hear()]) == ["child lives", "parent computes"]
    follower = start(ASK, path=path)
    assert follower.hear() == "waiting"
    leader.kill()

    assert follower.hear() == "of another"


FORK_BESIDE_A_FLIGHT = """
parent = os.getpid()
asked, told = os.pipe()

def tell_of_the_childs(real, *given):
    if os.getpid() != parent:
        os.write(told, b"x")
    real(*given)

patch("time.sleep", tell_of_the_childs)
cache = Cache(args["path"])
inside, leave = threading.Event(), threading.Event()

def compute():
    inside.set()
    leave.wait()
    return "of the thread"

thread = threading.Thread(target=cache.get_or_call, args=("q", compute))
thread.start()
inside.wait()

def work(wait):
    say(cache.get_or_call("p", lambda: "of the child"))
    say(cache.get_or_call("q", lambda: "computed twice", wait=3600.0))

pid, _ = forked(work)
os.read(asked, 1)  # the child waits
leave.set()
thread.join()
os.waitpid(pid, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="flights of processes need OFD locks")
def test_child_waits_for_the_flight_of_its_parents_thread_and_for_no_other(start, path):
    """E18: the table of flights it was born with is the parent's; the mark in the file is true."""
    parent = start(FORK + FORK_BESIDE_A_FLIGHT, path=path)

    assert parent.hear() == "of the child"
    assert parent.hear() == "of the thread"


FORK_WITH_PENDING = """
cache = Cache(args["path"], lock_timeout=0.01)
say(cache.store("q", "pending"))
hear()

def work(wait):
    say(cache.store("p", "of the child"))
    say(cache.flush())

pid, _ = forked(work)
os.waitpid(pid, 0)
say("child has ended")
hear()
say(cache.flush())
"""


def test_child_leaves_what_is_pending_to_its_parent(start, agent, path, questions_in):
    """E03, E18: only the process that made an entry commits it."""
    holder = agent(path)
    holder("store", "h", "old")
    holder("run", 'pause("os.replace")')
    holder.order("store", "h", "of the holder")
    assert holder.hear() == "paused"
    parent = start(FORK + FORK_WITH_PENDING, path=path)
    assert parent.hear() is False
    holder.tell()
    assert holder.hear() is True
    parent.tell()

    assert [parent.hear(), parent.hear(), parent.hear()] == [True, True, "child has ended"]
    assert questions_in(path) == {"h": "of the holder", "p": "of the child"}

    parent.tell()

    assert parent.hear() is True
    assert questions_in(path) == {"h": "of the holder", "p": "of the child", "q": "pending"}


FORK_IN_C = """
import ctypes
cache = Cache(args["path"], lock_timeout=0.05, on_error="raise")
cache.store("q", "old")  # so that the lock's descriptor is open
ours, theirs = os.pipe(), os.pipe()
pid = ctypes.CDLL(None).fork()
if pid == 0:
    def around(real, *given):
        undo()
        os.write(theirs[1], b"x")
        os.read(ours[0], 1)
        return real(*given)

    undo = patch("os.fsync", around)
    say(["child", attempt(cache, "p", "of the child")])
    os._exit(0)
os.read(theirs[0], 1)
say(attempt(cache, "q", "new"))
say(attempt(Cache(args["path"], lock_timeout=0.05, on_error="raise"), "q", "new"))
os.write(ours[1], b"x")
os.waitpid(pid, 0)
say(attempt(cache, "q", "new"))
say([cache.get("q"), cache.get("p")])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="calls the C library's fork")
def test_child_that_was_forked_in_c_and_its_parent_exclude_each_other(start, path):
    """E18: no hook of Python has run in it, and its descriptor is locked together with ours."""
    parent = start(FORK + FORK_IN_C, path=path)

    assert parent.hear() == "refused"
    assert parent.hear() == "refused"
    assert parent.hear() == ["child", True]
    assert parent.hear() is True
    assert parent.hear() == ["new", "of the child"]


UNWIND_IN_C = """
import ctypes
cache = Cache(args["path"])

def around(real, *given):
    undo()
    if ctypes.CDLL(None).fork() == 0:
        raise SystemExit  # as a daemon does, through all that releases the lock
    os.wait()
    say("child has ended")
    hear()
    return real(*given)

parent = os.getpid()
undo = patch("os.listdir", around)  # of the sweep, under the lock
try:
    say(cache.store("q", "of the parent"))
finally:
    if os.getpid() != parent:
        cache.close()
        os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="calls the C library's fork")
def test_child_that_was_forked_in_c_does_not_free_its_parents_lock(start, path):
    """E18: neither on its way out of a store, nor by closing."""
    parent = start(FORK + UNWIND_IN_C, path=path)
    assert parent.hear() == "child has ended"
    other = Cache(path, lock_timeout=0.02)

    assert other.store("p", "let in") is False

    parent.tell()

    assert parent.hear() is True
    assert other.flush() is True
    assert {hit.question for hit in Cache(path).entries()} == {"q", "p"}


# Threads.


@pytest.fixture
def quick_switches():
    """Have threads switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(count, work):
    """Run ``work(number)`` in so many threads at once; return what went wrong."""
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait(60)
        work(number)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, number) for number in range(count)]
    return [error for future in futures if (error := future.exception()) is not None]


@pytest.mark.parametrize("where", ["document", "memory"])
def test_fifty_threads_on_one_object_lose_nothing_and_the_counts_add_up(
    path, where, quick_switches
):
    """R19: each sees its own store at once, and a fresh object sees all."""
    cache = Cache(path if where == "document" else None, lock_timeout=60.0, on_error="raise")

    def work(number):
        for n in range(6):
            question = f"question {number}-{n}"
            assert cache.lookup(question) is None
            assert cache.store(question, [number, n]) is True
            assert cache.lookup(question).response == [number, n]
            assert cache.store(question, [number, n]) is False  # the same again

    assert in_threads(50, work) == []

    stats = cache.stats()
    last = cache if where == "memory" else Cache(path)

    assert {
        name: stats[name]
        for name in ("hits", "misses", "bypassed", "stores", "refused", "pending", "entries")
    } == {
        "hits": 300,
        "misses": 300,
        "bypassed": 0,
        "stores": 300,
        "refused": 0,
        "pending": 0,
        "entries": 300,
    }
    assert {hit.question: hit.response for hit in last.entries()} == {
        f"question {number}-{n}": [number, n] for number in range(50) for n in range(6)
    }


def test_events_tell_of_each_lookup_and_store_of_many_threads(path, quick_switches):
    events = []
    cache = Cache(path, lock_timeout=60.0, on_event=events.append, fsync=False)

    def work(number):
        cache.lookup(f"question {number}")
        cache.store(f"question {number}", number)
        cache.get_or_call(f"question {number}", lambda: "computed")
        cache.get_or_call("of all", lambda: "computed")

    assert in_threads(20, work) == []

    kinds = [event.kind for event in events]

    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"miss": 21, "hit": 39, "store": 21}


def test_threads_and_objects_on_one_file_exclude_each_other(path):
    """R19, R23: each thread with an object of its own, as in two processes."""

    def work(number):
        cache = Cache(path, lock_timeout=60.0, on_error="raise", fsync=False)
        for n in range(15):
            assert cache.store(f"question {number}-{n}", "a")
        cache.close()

    assert in_threads(8, work) == []
    assert len(Cache(path)) == 120


# Lookups beside a thread that stores.


class Storing:
    """A thread that is stopped in a call of its store."""

    def __init__(self, monkeypatch, cache, target, question):
        module, name = target
        real = getattr(module, name)
        self.inside, self._leave = threading.Event(), threading.Event()
        self.stored = None

        def held(*given, **named):
            if threading.current_thread() is self.thread and not self._leave.is_set():
                self.inside.set()
                self._leave.wait(60)
            return real(*given, **named)

        def store():
            self.stored = cache.store(question, "new")

        monkeypatch.setattr(module, name, held)
        self.thread = threading.Thread(target=store)
        self.thread.start()

    def finish(self):
        self._leave.set()
        self.thread.join(60)
        return self.stored


def meanwhile(work):
    """Return ``work()``, run in a thread that is given up if it hangs."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(10)
    return results[0] if results else "it hangs"


def lock_waits():
    import respcache._lock

    return respcache._lock, "sleep"


HELD_IN = [
    pytest.param(lambda: (os, "write"), id="write"),
    pytest.param(lambda: (os, "fsync"), id="fsync"),
    pytest.param(lambda: (os, "replace"), id="rename"),
    pytest.param(lock_waits, id="waiting for the lock"),
]


@pytest.fixture
def stopped(monkeypatch, path, start):
    """Stop a thread in the given call of its store of "q"."""
    stopped = []

    def stop(cache, target):
        holder = None
        if target[1] == "sleep":
            holder = start(
                "with open(args['lock'], 'a') as lock:\n"
                "    fcntl.flock(lock, fcntl.LOCK_EX)\n"
                "    say('holds')\n"
                "    hear()",
                lock=path.with_name(f"{path.name}.lock"),
            )
            assert holder.hear() == "holds"
        storing = Storing(monkeypatch, cache, target, "q")
        stopped.append(storing)
        assert storing.inside.wait(60)

        def finish():
            if holder is not None:
                holder.tell()
                holder.wait()
            return storing.finish()

        return storing, finish

    yield stop
    for storing in stopped:
        storing.finish()


@pytest.mark.parametrize("target", HELD_IN)
def test_lookups_do_not_wait_for_a_thread_that_stores(path, stopped, target):
    """E27: hits and misses, of this object and of a new one, and what lists or counts."""
    cache = Cache(path, lock_timeout=60.0)
    cache.store("q", "old")
    storing, finish = stopped(cache, target())
    found = meanwhile(
        lambda: [
            cache.get("q"),
            cache.get("p"),
            Cache(path).get("q"),
            [hit.response for hit in cache.entries()],
            cache.stats()["entries"],
            cache.get_or_call("q", lambda: "computed"),
        ]
    )

    assert found == ["old", None, "old", ["old"], 1, "old"]
    assert storing.stored is None  # all that before the store went on
    assert finish() is True
    assert cache.get("q") == "new"


@pytest.mark.parametrize("target", HELD_IN)
def test_lookups_load_a_changed_file_beside_a_thread_that_stores(path, stopped, target):
    """E27: what another committed is seen at once, and the store builds on it."""
    cache = Cache(path, lock_timeout=60.0)
    cache.store("q", "old")
    another = path.with_name("another.json")
    shutil.copy(path, another)
    with Cache(another) as other:
        other.store("p", "of another")
    storing, finish = stopped(cache, target())
    shutil.copy(another, path.with_name("copy"))
    os.rename(path.with_name("copy"), path)
    found = meanwhile(lambda: [cache.get("q"), cache.get("p")])

    assert found == ["old", "of another"]
    assert storing.stored is None
    if target()[1] != "replace":  # that late, an outsider who takes no lock is overwritten
        assert finish() is True
        assert [cache.get("q"), cache.get("p")] == ["new", "of another"]


@pytest.mark.parametrize("target", HELD_IN)
def test_lookups_beside_pending_entries_do_not_wait_for_a_thread_that_stores(
    path, stopped, start, target
):
    """E27: what could not be committed is served meanwhile."""
    cache = Cache(path, lock_timeout=60.0)
    cache.store("q", "old")
    lock = path.with_name(f"{path.name}.lock")
    os.rename(lock, path.with_name("aside"))
    lock.mkdir()  # can't be locked
    assert cache.store("p", "pending") is False
    lock.rmdir()
    os.rename(path.with_name("aside"), lock)
    storing, finish = stopped(cache, target())
    found = meanwhile(lambda: [cache.get("q"), cache.get("p"), cache.stats()["pending"]])

    assert found == ["old", "pending", 1]
    assert storing.stored is None
    assert finish() is True
    assert [Cache(path).get("q"), Cache(path).get("p")] == ["new", "pending"]
