"""The log under threads, and in children that were made while another thread stored."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from respcache import Cache
from respcache._stores import log

pytestmark = pytest.mark.xdist_group("processes")

unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows neither forks nor has pread")


@pytest.fixture
def path(path):
    return path.with_suffix(".jsonl")


# Children. The source runs in a process of its own, which is the parent.


HELD = """
import respcache._stores.log

def attempt(cache, *given):
    try:
        return cache.store(*given)
    except LockTimeoutError:
        return "refused"

def held(target, match, work, *given):
    '''Begin *work* in a thread, and stop it before it calls *target*.'''
    inside, leave = threading.Event(), threading.Event()
    results = []

    def around(real, *given, **named):
        if threading.current_thread() is thread and not inside.is_set():
            inside.set()
            leave.wait(60)
        return real(*given, **named)

    patch(target, around, match)
    thread = threading.Thread(target=lambda: results.append(work(*given)))
    thread.start()
    assert inside.wait(60)

    def finish():
        leave.set()
        thread.join(60)
        return results

    return finish

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
"""

FORK_DURING_A_STORE = """
cache = Cache(args["path"], lock_timeout=0.05, on_error="raise", fsync=True)
cache.store("q", "old")
for number in range(20):
    cache.store("hot", f"{number}" * 100)  # most of the file is dead
cache.get("other")
Cache(args["path"]).store("news", "n")  # what is yet to be read
respcache._stores.log._FLOOR = args["floor"]
finish = held(*args["held"], cache.store, "q", "of the thread")

def look_and_try(_):
    say([cache.get("q"), cache.get("news"), attempt(cache, "first", "of a child")])
    cache.close()

def store_later(wait):
    wait()
    say([attempt(cache, "second", "of a child"), cache.get("q"), cache.get("second")])

first, _ = forked(look_and_try)
os.waitpid(first, 0)
say("child has ended")
hear()
second, go_on = forked(store_later)
say(finish())
go_on()
os.waitpid(second, 0)
say([cache.get("q"), cache.get("news"), cache.get("second"), attempt(cache, "p", "of the parent")])
"""

BEFORE, AFTER = ["old", "n"], ["of the thread", "n"]


@unix
@pytest.mark.parametrize(
    ("held", "found", "is_in"),
    [
        # Where the thread is stopped, what the child finds, whether the lock is taken then.
        pytest.param(["fcntl.flock", ""], BEFORE, False, id="about to lock"),
        pytest.param(["os.write", ""], BEFORE, True, id="about to write"),
        pytest.param(["os.fdatasync", ""], AFTER, True, id="written"),
        pytest.param(["os.open", ".tmp"], AFTER, False, id="about to copy what is alive"),
        pytest.param(["os.replace", ""], AFTER, True, id="about to rename the copy"),
    ],
)
def test_fork_during_another_threads_store_works_in_the_child(start, path, held, found, is_in):
    """E18: none of the thread's locks is in its way, and it does not free the parent's."""
    floor = 100 if held[0] in ("os.replace", "os.open") else 1 << 20
    parent = start(HELD + FORK_DURING_A_STORE, path=path, held=held, floor=floor)

    assert parent.hear() == [*found, "refused" if is_in else True]
    assert parent.hear() == "child has ended"

    other = Cache(path, lock_timeout=0.02)

    assert other.store("third", "of another") is not is_in

    parent.tell()

    assert parent.hear() == [True]
    assert parent.hear() == [True, "of the thread", "of a child"]
    assert parent.hear() == ["of the thread", "n", "of a child", True]
    assert other.flush() is True
    for reader in (other, Cache(path)):
        found = {hit.question: hit.response for hit in reader.entries()}

        assert found == {
            "q": "of the thread",
            "hot": "19" * 100,
            "news": "n",
            "second": "of a child",
            "third": "of another",
            "p": "of the parent",
        } | ({} if is_in else {"first": "of a child"})


FORK_DURING_A_LOOK = """
cache = Cache(args["path"], lock_timeout=0.05, on_error="raise")
cache.store("q", "old")
cache.get("other")
Cache(args["path"], max_entries=args["limit"]).store("news", "n")
finish = held(*args["held"], cache.get, "news")

def work(_):
    say([cache.get("q"), cache.get("news"), attempt(cache, "p", "of the child"), len(cache)])

pid, _ = forked(work)
os.waitpid(pid, 0)
say(finish())
say([cache.get("q"), cache.get("p"), len(cache), attempt(cache, "p", "of the parent")])
"""


@unix
@pytest.mark.parametrize(
    ("held", "limit"),
    [
        pytest.param(["os.pread", ""], None, id="what was added"),
        pytest.param(["os.open", "answers.jsonl"], 50, id="another file"),  # which has the limit
    ],
)
def test_fork_while_another_thread_reads_what_is_new_works_in_the_child(start, path, held, limit):
    """E18: in the parent nobody else could read it meanwhile."""
    parent = start(HELD + FORK_DURING_A_LOOK, path=path, held=held, limit=limit)

    assert parent.hear() == ["old", "n", True, 3]
    assert parent.hear() == ["n"]
    assert parent.hear() == ["old", "of the child", 3, True]


WORKER = """
from respcache import Cache, LockTimeoutError

def work(path, number, pipe):
    cache = Cache(path, lock_timeout=0.02, on_error="raise")
    found = cache.get("q")
    try:
        cache.store(f"of {number}", "too early")
        pipe.send("was let in")
    except LockTimeoutError:
        pipe.send(found)
    pipe.recv()
    cache = Cache(path, lock_timeout=60.0, on_error="raise")
    pipe.send([cache.store(f"of {number}", f"a{number}"), cache.get("q")])
"""

MAKE_WORKERS = """
import multiprocessing
sys.path.insert(0, args["folder"])
import worker

cache = Cache(args["path"], on_error="raise")
cache.store("q", "old")
finish = held("os.write", "", cache.store, "q", "of the thread")
context = multiprocessing.get_context(args["method"])
pipes, processes = [], []
for number in range(3):
    ours, theirs = context.Pipe()
    processes.append(context.Process(target=worker.work, args=(args["path"], number, theirs)))
    processes[-1].start()
    pipes.append(ours)
say([pipe.recv() for pipe in pipes])
say(finish())
for pipe in pipes:
    pipe.send("go on")
say([pipe.recv() for pipe in pipes])
for process in processes:
    process.join(60)
say([process.exitcode for process in processes])
say([cache.get("q"), *(cache.get(f"of {number}") for number in range(3))])
"""


@unix
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_made_during_another_threads_store_take_part(start, path, tmp_path, method):
    """E18: they wait for the parent's lock as for any other's, store and are seen."""
    (tmp_path / "worker.py").write_text(WORKER)
    parent = start(HELD + MAKE_WORKERS, path=path, folder=tmp_path, method=method)

    assert parent.hear() == ["old"] * 3
    assert parent.hear() == [True]
    assert parent.hear() == [[True, "of the thread"]] * 3
    assert parent.hear() == [0] * 3
    assert parent.hear() == ["of the thread", "a0", "a1", "a2"]
    assert len(Cache(path)) == 4


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


def in_threads(works):
    """Run all *works* at once; return what went wrong."""
    barrier = threading.Barrier(len(works))

    def run(work):
        barrier.wait(60)
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(run, work) for work in works]
    return [error for future in futures if (error := future.exception()) is not None]


def test_hundred_threads_on_one_log_lose_nothing(path, monkeypatch, quick_switches):
    """R19, E26: each finds its own steps done, while the log is compacted under all."""
    monkeypatch.setattr(log, "_FLOOR", 50_000)
    cache = Cache(path, lock_timeout=60.0, on_error="raise")

    def work(number):
        for n in range(6):
            question = f"{number}-{n}"
            assert cache.lookup(question) is None
            assert cache.store(question, [number, n]) is True
            assert cache.lookup(question).response == [number, n]
            assert cache.store(question, [number, n]) is False  # the same again
            assert cache.store("hot", f"{number}.{n}." + "h" * 2_000) is True
            assert cache.get("hot").endswith("h" * 2_000)
            assert cache.get_or_call(f"called {question}", lambda n=n: n) == n
            assert cache.get(f"called {question}") == n
            if n % 3 == 2:
                assert cache.forget(question) is True
                assert cache.lookup(question) is None
            assert len(cache) > 2 * n

    assert in_threads([lambda number=number: work(number) for number in range(100)]) == []

    kept = {f"{number}-{n}": [number, n] for number in range(100) for n in (0, 1, 3, 4)}
    kept |= {f"called {number}-{n}": n for number in range(100) for n in range(6)}
    written = 600 * 2_000  # of which one is alive

    for reader in (cache, Cache(path)):
        found = {hit.question: hit.response for hit in reader.entries()}

        assert found.pop("hot").endswith("h" * 2_000)
        assert found == kept
        assert len(reader) == len(kept) + 1
    assert path.stat().st_size < written / 2
    assert [Cache(path).get(question) for question in kept] == [*kept.values()]


@unix
def test_threads_that_read_a_log_at_once_read_each_line_once(path, monkeypatch):
    """Else the end would be thought to be further than it is, and what comes next be missed."""
    Cache(path).store_many({f"q{number}": f"a{number}" for number in range(5)})
    cache = Cache(path)
    cache.get("q0")  # by a look from the end; the next one reads all
    real = os.pread
    inside, leave = threading.Event(), threading.Event()
    answers = {}

    def held(*given):
        data = real(*given)
        if threading.current_thread() is first and not inside.is_set():
            inside.set()
            leave.wait(0.5)  # where one waits for the other, for so long
        return data

    def ask(question):
        answers[question] = cache.get(question)

    monkeypatch.setattr(os, "pread", held)
    first, second = (threading.Thread(target=ask, args=(f"q{number}",)) for number in (1, 2))
    first.start()
    assert inside.wait(60)
    second.start()
    second.join(0.5)
    leave.set()
    for thread in (first, second):
        thread.join(60)

    assert answers == {"q1": "a1", "q2": "a2"}
    assert len(cache) == 5
    assert Cache(path).store("new", "n") is True
    assert cache.get("new") == "n"
    assert cache.store("mine", "m") is True
    assert len(Cache(path)) == len(cache) == 7
    assert b"#torn" not in path.read_bytes()


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("whose", ["own", "another object's"])
def test_lookups_find_the_old_answers_or_the_new_beside_a_thread_that_replaces_them(
    path, quick_switches, whose, count
):
    """R19: an answer that is replaced is at no instant not there."""
    cache = Cache(path, lock_timeout=60.0)
    cache.store_many({f"q{number}": 0 for number in range(count)})
    cache.get("other")
    writer = cache if whose == "own" else Cache(path, lock_timeout=60.0)
    over = threading.Event()
    wrong = []

    def replace():
        try:
            for version in range(1, 1_000 // count + 10):
                writer.store_many({f"q{number}": version for number in range(count)})
        finally:
            over.set()

    def look(number):
        last = [0] * count
        while not over.is_set():
            number = (number + 7) % count
            found = cache.get(f"q{number}")
            if found is None or found < last[number]:
                wrong.append((last[number], found))
            else:
                last[number] = found

    works = [replace, *(lambda first=first: look(first) for first in range(4))]

    assert in_threads(works) == []
    assert wrong == []


def test_lists_and_counts_are_whole_beside_a_thread_that_stores(path, quick_switches):
    """E10: a batch is in them whole or not at all, whatever object committed it."""
    cache = Cache(path, lock_timeout=60.0)
    cache.store_many({f"q{number}": 0 for number in range(500)})
    over = threading.Event()
    counts = set()

    def store():
        try:
            for version in range(1, 10):
                for whose, writer in enumerate((cache, Cache(path, lock_timeout=60.0))):
                    writer.store_many({f"q{number}": version for number in range(500)})
                    writer.store_many({f"{whose}-{version}-{n}": 0 for n in range(500)})
        finally:
            over.set()

    def count():
        while not over.is_set():
            counts.add(len(cache))
            counts.add(cache.stats()["entries"])
            counts.add(len(list(cache.entries())))

    assert in_threads([store, count, count]) == []
    assert {number % 500 for number in counts} == {0}
    assert len(cache) == 19 * 500
