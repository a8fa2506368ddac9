"""A process killed at any instant leaves a file that the next one reads in full."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from respcache import Cache

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
]


def leftovers(path):
    """Return the files beside *path* that are neither it nor its lock."""
    known = {path.name, f"{path.name}.lock"}
    return sorted(p.name for p in path.parent.iterdir() if p.name not in known)


# Killed at random.


STORE_FOR_EVER = """
import itertools
cache = Cache(args["path"], on_error="raise")
for number in itertools.count():
    question = f"{args['name']} {number % args['keys']}"
    assert cache.store(question, f"{args['life']}.{number}." + "x" * args["size"])
    say(number)
"""


class Life:
    """One writer from its start to its SIGKILL."""

    def __init__(self, start, name, life, **args):
        self.name = name
        self.life = life
        self.keys = args["keys"]
        self.process = start(STORE_FOR_EVER, name=name, life=life, **args)

    def end(self):
        """Kill it; return its last acknowledged value for each question, and the one after."""
        first = self.process.hear()
        time.sleep(random.random() * 0.02)  # a random instant of a store
        self.process.kill()
        last = [first, *self.process.rest()][-1]
        acknowledged = {
            f"{self.name} {number % self.keys}": f"{self.life}.{number}"
            for number in range(max(0, last - self.keys + 1), last + 1)
        }
        return acknowledged, (
            f"{self.name} {(last + 1) % self.keys}",
            f"{self.life}.{last + 1}",
        )


@pytest.mark.parametrize(
    ("size", "kills"), [pytest.param(1_000, 40, id="1 KB"), pytest.param(100_000, 20, id="100 KB")]
)
def test_killed_writers_lose_nothing_that_was_acknowledged(start, path, questions_in, size, kills):
    """R20: two write at a time, one is killed after the other.

    A question holds what was acknowledged last, or what was being stored then.
    """
    lives = {name: Life(start, name, 0, path=path, size=size, keys=8) for name in ("one", "other")}
    kept = {}
    for number in range(1, kills + 1):
        name = ("one", "other")[number % 2]
        acknowledged, (question, value) = lives[name].end()
        kept |= acknowledged
        found = {q: response.rsplit(".", 1)[0] for q, response in questions_in(path).items()}
        if found.get(question) == value:
            kept[question] = value

        assert {
            q: v for q, v in kept.items() if q.startswith(f"{name} ") and found.get(q) != v
        } == {}
        assert len(leftovers(path)) <= 2  # of the dead one, and of the one at work
        assert not [each for each in leftovers(path) if "corrupt" in each]

        lives[name] = Life(start, name, number, path=path, size=size, keys=8)
    for life in lives.values():
        life.end()
    survivor = Cache(path, lock_timeout=0.001, on_error="raise")

    assert survivor.store("after all", "still here")
    assert set(kept) <= {hit.question for hit in survivor.entries()}
    assert leftovers(path) == []


STORE_BATCHES_FOR_EVER = """
import itertools
cache = Cache(args["path"], on_error="raise")
for number in itertools.count(args["first"]):
    pairs = {f"q{n}": str(number) + "x" * 5000 for n in range(20)}
    assert cache.store_many(pairs) == 20
    say(number)
"""


def test_batch_of_a_killed_writer_is_there_whole_or_not_at_all(start, path, questions_in):
    """E10: one generation in all 20 entries, the last acknowledged or the one after."""
    first = 0
    for _ in range(12):
        writer = start(STORE_BATCHES_FOR_EVER, path=path, first=first)
        began = writer.hear()
        time.sleep(random.random() * 0.015)
        writer.kill()
        last = [began, *writer.rest()][-1]
        found = {response.rstrip("x") for response in questions_in(path).values()}

        assert len(found) == 1
        assert found <= {str(last), str(last + 1)}

        first = int(found.pop()) + 1

    with Cache(path) as cache:
        assert len(cache) == 20


# Killed at each step of a store.


STORE_AND_DIE = """
cache = Cache(args["path"], on_error="raise")
cache.get("q")
die(*args["step"])
say(cache.store("q", "new"))
"""

OLD, NEW = "old", "new"

# What is called, whether to die before, after or half way, at which call, of what name.
STEPS = {
    "lock taken": (OLD, "fcntl.flock", "after", 1),
    "temp about to be made": (OLD, "os.open", "before", 1, ".tmp"),
    "temp made": (OLD, "os.open", "after", 1, ".tmp"),
    "temp locked": (OLD, "fcntl.flock", "after", 2),
    "head half written": (OLD, "os.write", "half", 1),
    "head written": (OLD, "os.write", "after", 1),
    "entries half written": (OLD, "os.write", "half", 2),
    "end half written": (OLD, "os.write", "half", 3),
    "all written": (OLD, "os.write", "after", 3),
    "mode set": (OLD, "os.fchmod", "after", 1, ""),
    "before fsync": (OLD, "os.fsync", "before", 1),
    "after fsync": (OLD, "os.fsync", "after", 1),
    "before the rename": (OLD, "os.replace", "before", 1),
    "after the rename": (NEW, "os.replace", "after", 1),
    "before the temp is unlocked": (NEW, "fcntl.flock", "before", 3),
    "before the folder's fsync": (NEW, "os.fsync", "before", 2),
    "after the folder's fsync": (NEW, "os.fsync", "after", 2),
    "before unlocking": (NEW, "fcntl.flock", "before", 4),
    "after unlocking": (NEW, "fcntl.flock", "after", 4),
}
OF_A_REPLACEMENT = {
    "lock opened": (OLD, "os.open", "after", 1, ".lock"),
    "before mtime is raised": (OLD, "os.utime", "before", 1),
    "after mtime is raised": (OLD, "os.utime", "after", 1),
}
OF_THE_FIRST = {
    "lock file made, its mode not set": (OLD, "os.fchmod", "before", 1),
}
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the calls are counted on Linux")


def cases(steps):
    return [pytest.param(then, step, id=name) for name, (then, *step) in steps.items()]


@on_linux
@pytest.mark.parametrize(("then", "step"), cases({**STEPS, **OF_A_REPLACEMENT}))
def test_writer_killed_at_a_step_leaves_the_old_value_or_the_new(start, path, strict, then, step):
    """R20: for those who had read the file and for who comes new; the next writer goes ahead."""
    warm = Cache(path)
    warm.store_many({"q": "old", "other": "kept"})
    ahead = time.time_ns() + 3600 * 10**9
    if step[0] == "os.utime":
        os.utime(path, ns=(ahead, ahead))
    warm.get("q")
    child = start(STORE_AND_DIE, path=path, step=step)

    assert child.wait() == -signal.SIGKILL
    assert child.rest() == []
    assert strict(path)["respcache"] == 1
    assert warm.get("q") == Cache(path).get("q") == then
    assert warm.get("other") == Cache(path).get("other") == "kept"

    successor = Cache(path, lock_timeout=0.001, on_error="raise")

    assert successor.store("q", "newer") is True
    assert warm.get("q") == Cache(path).get("q") == "newer"
    assert warm.get("other") == "kept"
    assert leftovers(path) == []


@on_linux
@pytest.mark.parametrize(("then", "step"), cases({**STEPS, **OF_THE_FIRST}))
def test_writer_killed_at_a_step_of_the_first_store_leaves_no_file_or_a_whole_one(
    start, path, strict, then, step
):
    """R20, R24: so does an empty lock file of whatever mode hold up nobody."""
    if step[0] == "os.fchmod" and step[1] == "after":
        step = [*step[:2], 2]  # the first sets the mode of the lock file, here
    waiting = Cache(path)
    waiting.get("q")
    child = start(STORE_AND_DIE, path=path, step=[*step])

    assert child.wait() == -signal.SIGKILL
    assert path.exists() == (then == NEW)
    assert waiting.get("q") == Cache(path).get("q") == ("new" if then == NEW else None)

    successor = Cache(path, lock_timeout=0.001, on_error="raise")

    assert successor.store("p", "more") is True
    assert waiting.get("p") == "more"
    assert waiting.get("q") == ("new" if then == NEW else None)
    assert strict(path)["respcache"] == 1
    assert leftovers(path) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_writer_killed_while_it_makes_the_folders_leaves_room_for_the_next(start, path, when):
    deep = path.parent / "one" / "two" / path.name
    child = start(STORE_AND_DIE, path=deep, step=["os.chmod", when, 1])

    assert child.wait() == -signal.SIGKILL
    assert Cache(deep).get("q") is None
    assert Cache(deep, on_error="raise").store("q", "a") is True
    assert Cache(deep).get("q") == "a"


@on_linux
@pytest.mark.parametrize("when", ["before", "after"])
def test_writer_killed_while_it_sweeps_leaves_the_rest_to_the_next(start, path, when):
    Cache(path).store("q", "old")
    for digit in "0123":
        path.with_name(f"{path.name}.{digit * 16}.tmp").write_text("{half a docu")
    child = start(STORE_AND_DIE, path=path, step=["os.unlink", when, 2, ".tmp"])

    assert child.wait() == -signal.SIGKILL
    assert len(leftovers(path)) == (3 if when == "before" else 2)
    assert Cache(path).get("q") == "old"
    assert Cache(path, lock_timeout=0.001, on_error="raise").store("q", "new") is True
    assert leftovers(path) == []


def test_sweep_spares_the_temp_file_of_a_writer_at_work_and_what_is_not_ours(agent, path):
    """E25, R27: the writer is alive, so its temp file is locked; other names are other people's."""
    writer = agent(path)
    writer("store", "q", "old")
    strangers = [f"{path.name}.tmp", f"{path.name}.x.tmp", f"{path.name}x.{'0' * 16}.tmp"]
    for name in strangers:
        path.with_name(name).write_text("not ours")
    writer("run", 'pause("os.replace")')
    writer.order("store", "q", "new")
    assert writer.hear() == "paused"
    path.with_name(f"{path.name}.lock").unlink()  # else nobody could sweep meanwhile
    Cache(path).store("p", "more")
    there = leftovers(path)
    writer.tell()

    assert len(there) == len(strangers) + 1
    assert writer.hear() is True
    assert leftovers(path) == sorted(strangers)


@on_linux
def test_writers_killed_while_a_damaged_file_is_set_aside_keep_what_can_be_read(
    start, path, strict
):
    """R20, E25: the path is never absent, and the copies are no pile."""
    Cache(path).store_many({"a": "kept", "b": "kept"})
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'"end"')])
    for step in (
        ["os.link", "before", 1],
        ["os.link", "after", 1],
        ["os.fsync", "before", 1],
        ["os.replace", "before", 1],
    ):
        child = start(STORE_AND_DIE, path=path, step=step)

        assert child.wait() == -signal.SIGKILL
        assert Cache(path).get("a") == Cache(path).get("b") == "kept"

    successor = Cache(path, lock_timeout=0.001, on_error="raise")

    assert successor.store("c", "new") is True
    assert {hit.question for hit in Cache(path).entries()} == {"a", "b", "c"}
    assert strict(path)["respcache"] == 1
    assert len(leftovers(path)) == 1  # of one damage there is one copy
    assert all(name.startswith(f"{path.name}.corrupt-") for name in leftovers(path))


MEET_DAMAGE = """
import os, sys
from respcache import Cache

cache = Cache(sys.argv[1], on_error="raise")
# As in a process that never imported it: CPython's scanner looks for its error there.
for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
    del sys.modules[name]
assert cache.lookup("q") is None
assert cache.store("q", "a")
assert cache.get("q") == "a"
"""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"respcache": 1, "entries": {\n"q//1f//p": {"respo', id="cut off"),
        pytest.param(b"{", id="one brace"),
        pytest.param(b'{"respcache": 1, "entries": {"a": 1,}}', id="a comma too many"),
        pytest.param(b'{"p": "flat", "r', id="a flat file cut off"),
        pytest.param(b"no JSON", id="text"),
    ],
)
def test_process_that_never_imported_json_gets_over_a_damaged_file(path, content):
    """R20, R21: a hook process imports little, so what the standard library lacks must not show."""
    path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", MEET_DAMAGE, str(path)], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr


FORGET_AND_DIE = """
cache = Cache(args["path"], on_error="raise")
die(*args["step"])
cache.forget("q") if args["what"] == "forget" else cache.clear()
"""


@on_linux
@pytest.mark.parametrize("what", ["forget", "clear"])
@pytest.mark.parametrize(
    ("then", "step"),
    cases({name: STEPS[name] for name in ("before the rename", "after the rename")}),
)
def test_process_killed_while_it_forgets_has_done_so_or_not(start, path, what, then, step):
    warm = Cache(path)
    warm.store("q", "old")
    child = start(FORGET_AND_DIE, path=path, step=step, what=what)

    assert child.wait() == -signal.SIGKILL
    assert warm.get("q") == Cache(path).get("q") == ("old" if then == OLD else None)
    assert Cache(path, lock_timeout=0.001, on_error="raise").store("q", "new") is True
    assert warm.get("q") == "new"
    assert leftovers(path) == []


def test_copy_of_the_file_from_any_instant_can_be_opened(start, path, tmp_path, questions_in):
    """R20: what a backup program took while others wrote is a whole cache."""
    writers = [
        start(STORE_FOR_EVER, path=path, name=name, life=0, size=2_000, keys=20)
        for name in ("one", "other")
    ]
    for writer in writers:
        writer.hear()
    for number in range(25):
        copy = tmp_path / f"copy-{number}.json"
        shutil.copyfile(path, copy)

        assert len(questions_in(copy)) == len(Cache(copy)) >= 2

    assert all(writer.process.poll() is None for writer in writers)
