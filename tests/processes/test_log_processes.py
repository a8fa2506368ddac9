"""The log, with real processes: compaction among many writers, and writers killed at each step."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from respcache import Cache
from respcache._stores import log

pytestmark = pytest.mark.xdist_group("processes")

STRESS = int(os.environ.get("RESPCACHE_STRESS", "1"))


@pytest.fixture
def path(path):
    return path.with_suffix(".jsonl")


# Many writers.


WRITE = """
from respcache._stores import log

log._FLOOR = 50_000
me, count = args["me"], args["count"]
cache = Cache(args["path"], lock_timeout=60.0, on_error="raise")
barrier()
files, last = 0, None
for number in range(count):
    assert cache.store(f"{me}-{number}", f"{me}.{number}")
    if number % 3 == 0:
        assert cache.store(f"hot {number % 10}", f"{me}.{number}." + "h" * 2_000)
    inode = os.stat(args["path"]).st_ino
    files += inode != last
    last = inode
    if number % 200 == 0:
        say("at work")
say(files)
hear()
lost = []
for who in range(args["writers"]):
    for number in range(count):
        if cache.get(f"{who}-{number}") != f"{who}.{number}":
            lost.append(f"{who}-{number}")
    say("at work")
say([lost, len(cache), [cache.get(f"hot {n}") for n in range(10)]])
"""


def result_of(child):
    """Return what *child* says when its work is done."""
    while (said := child.hear()) == "at work":
        pass
    return said


@pytest.mark.long
@pytest.mark.timeout(120 * STRESS)
def test_eight_writers_lose_nothing_while_the_log_is_compacted_under_them(start, together, path):
    """R19, E26: each of the instances sees all that all have stored, and the same of the rest."""
    writers, count = 8, min(1_500 * STRESS, 5_000)
    children = [
        start(WRITE, path=path, me=me, count=count, writers=writers) for me in range(writers)
    ]
    together(children)
    files = [result_of(child) for child in children]
    for child in children:
        child.tell()
    found = [result_of(child) for child in children]
    reader = Cache(path)
    hot = [reader.get(f"hot {n}") for n in range(10)]

    assert found == [[[], writers * count + 10, hot]] * writers
    assert len(reader) == writers * count + 10
    assert max(files) >= 5  # it was compacted again and again
    assert not list(path.parent.glob("*.tmp"))


def test_log_that_remembers_long_removals_is_not_compacted_at_each_store(path, monkeypatch):
    """R35: what a compaction carries on is not what the next one could take out."""
    cache = Cache(path)
    for number in range(100):
        cache.forget(f"{number}" * 1_000)
    renames = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda *given: (renames.append(given), real(*given)))
    monkeypatch.setattr(log, "_FLOOR", 10_000)
    for number in range(40):
        assert cache.store(f"q{number}", number) is True

    assert len(renames) <= 2
    assert len(cache) == len(Cache(path)) == 40


# Killed at each step of a store.


STORE_AND_DIE = """
from respcache._stores import log

log._FLOOR = args["floor"]
cache = Cache(args["path"], on_error="raise", fsync=args["fsync"])
cache.get("q")
cache.get("nothing")
die(*args["step"])
if args["pairs"]:
    say(cache.store_many(args["pairs"]))
else:
    say(cache.store("q", "new"))
"""

OLD, NEW = "old", "new"


def die_in_a_store(start, path, step, *, pairs=None, floor=1 << 20, fsync=False):
    """Have a child store "new" under "q", or *pairs*, and be killed at *step*."""
    child = start(STORE_AND_DIE, path=path, step=step, pairs=pairs, floor=floor, fsync=fsync)

    assert child.wait() == -signal.SIGKILL
    assert child.rest() == []


# What is called, whether to die before, after or half way, at which call, of what name.
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the calls are counted on Linux")


def cases(steps):
    return [pytest.param(then, step, id=name) for name, (then, *step) in steps.items()]


OF_AN_APPEND = {
    "lock taken": (OLD, "fcntl.flock", "after", 1),
    "before the write": (OLD, "os.write", "before", 1),
    "half written": (OLD, "os.write", "half", 1),
    "written": (NEW, "os.write", "after", 1),
    "before the disk has it": (NEW, "os.fdatasync", "before", 1),
    "before unlocking": (NEW, "fcntl.flock", "before", 2),
    "after unlocking": (NEW, "fcntl.flock", "after", 2),
}


@on_linux
@pytest.mark.parametrize(("then", "step"), cases(OF_AN_APPEND))
def test_writer_killed_at_a_step_of_an_append_leaves_the_old_value_or_the_new(
    start, path, then, step
):
    """R20, E12: for those who had read the file and for who comes new; the next goes ahead."""
    warm = Cache(path)
    warm.store_many({"q": "old", "other": "kept", "gone": "stale"})
    warm.forget("gone")
    die_in_a_store(start, path, step, fsync=True)
    for _ in range(2):
        assert [warm.get(q) for q in ("q", "other", "gone")] == [then, "kept", None]
        assert [Cache(path).get(q) for q in ("q", "other", "gone")] == [then, "kept", None]

        successor = Cache(path, lock_timeout=0.001, on_error="raise")

        # And what was torn is nothing, now and after it.
        assert successor.store("next", os.urandom(4).hex()) is True
        assert successor.get("q") == then

    assert successor.store("q", "newer") is True
    assert warm.get("q") == Cache(path).get("q") == "newer"
    assert len(warm) == len(Cache(path)) == 3


@on_linux
@pytest.mark.parametrize(
    ("then", "step"),
    cases({name: OF_AN_APPEND[name] for name in ("before the write", "half written", "written")}),
)
def test_batch_of_a_writer_killed_at_a_step_is_there_whole_or_not_at_all(start, path, then, step):
    """E10"""
    warm = Cache(path)
    warm.store_many({f"q{n}": "old" for n in range(10)})
    die_in_a_store(start, path, step, pairs={f"q{n}": "new" for n in range(20)})
    then = [then] * 10 + [None if then == OLD else NEW] * 10

    assert [warm.get(f"q{n}") for n in range(20)] == then
    assert [Cache(path).get(f"q{n}") for n in range(20)] == then
    assert Cache(path, lock_timeout=0.001, on_error="raise").store("next", "n") is True
    assert [warm.get(f"q{n}") for n in range(20)] == then


@on_linux
@pytest.mark.parametrize(
    ("is_renamed", "step"),
    cases(
        {
            "temp about to be made": (False, "os.open", "before", 1, ".tmp"),
            "temp made": (False, "os.open", "after", 1, ".tmp"),
            "temp half written": (False, "os.write", "half", 2),
            "lock taken": (False, "fcntl.flock", "after", 4),
            "mode set": (False, "os.fchmod", "after", 1),
            "before fsync": (False, "os.fsync", "before", 1),
            "after fsync": (False, "os.fsync", "after", 1),
            "before the rename": (False, "os.replace", "before", 1),
            "after the rename": (True, "os.replace", "after", 1),
            "before the folder's fsync": (True, "os.fsync", "before", 2),
        }
    ),
)
def test_writer_killed_at_a_step_of_a_compaction_has_lost_nothing(start, path, is_renamed, step):
    """R20, E26: what it stored before is there, what was forgotten stays forgotten."""
    warm = Cache(path)
    warm.store_many({"q": "old", "other": "kept", "gone": "stale"})
    for number in range(20):
        warm.store("hot", f"{number}" * 100)
    warm.forget("gone")
    before = path.stat()
    die_in_a_store(start, path, step, floor=100)
    questions = ("q", "other", "hot", "gone")
    kept = ["new", "kept", "19" * 100, None]

    assert (path.stat().st_ino != before.st_ino) is is_renamed
    assert [warm.get(question) for question in questions] == kept
    assert [Cache(path).get(question) for question in questions] == kept
    assert len(warm) == len(Cache(path)) == 3

    successor = Cache(path, lock_timeout=0.001, on_error="raise")

    assert successor.store("q", "newer") is True
    assert [warm.get(question) for question in questions] == ["newer", *kept[1:]]
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.lock"]


@on_linux
@pytest.mark.parametrize(
    ("then", "step"),
    cases(
        {
            "temp made": (OLD, "os.open", "after", 1, ".tmp"),
            "half written": (OLD, "os.write", "half", 1),
            "before the rename": (OLD, "os.replace", "before", 1),
            "after the rename": (NEW, "os.replace", "after", 1),
        }
    ),
)
def test_writer_killed_at_a_step_of_the_first_store_leaves_no_log_or_a_whole_one(
    start, path, then, step
):
    """R20: a log is never there without its header."""
    waiting = Cache(path)
    waiting.get("q")
    die_in_a_store(start, path, step)

    assert path.exists() == (then == NEW)
    assert waiting.get("q") == Cache(path).get("q") == ("new" if then == NEW else None)
    assert Cache(path, lock_timeout=0.001, on_error="raise").store("p", "more") is True
    assert waiting.get("p") == "more"
    assert waiting.get("q") == ("new" if then == NEW else None)
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.lock"]
