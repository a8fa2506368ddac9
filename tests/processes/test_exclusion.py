"""Writers exclude each other, and everybody else who takes the same lock; readers wait for none."""

from __future__ import annotations

import os
import shutil
import signal
import sys

import pytest

from respcache import Cache, LockTimeoutError

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="flock is not on Windows"),
]

has_flock = pytest.mark.skipif(
    shutil.which("flock") is None, reason="flock(1), of util-linux, is not installed"
)
STRANGERS = ["filelock", "portalocker", pytest.param("flock", marks=has_flock)]

HOLD = {
    "filelock": """
import filelock
with filelock.FileLock(args["lock"]):
    say("inside")
    hear()
""",
    "portalocker": """
import portalocker
with portalocker.Lock(args["lock"]):
    say("inside")
    hear()
""",
    "flock": """
os.execvp("flock", ["flock", args["lock"], "sh", "-c", "echo '\\"inside\\"'; read line"])
""",
    "respcache": """
cache = Cache(args["lock"].removesuffix(".lock"), on_error="raise")

def hold(real, *given):
    undo()
    say("inside")
    hear()
    return real(*given)

undo = patch("os.fsync", hold)
cache.store("of the holder", "a")
""",
}

TRY = {
    "filelock": """
import filelock
try:
    with filelock.FileLock(args["lock"], timeout=0):
        say("inside")
except filelock.Timeout:
    say("refused")
""",
    "portalocker": """
import portalocker
try:
    with portalocker.Lock(args["lock"], timeout=0.01, fail_when_locked=True):
        say("inside")
except portalocker.LockException:
    say("refused")
""",
    "flock": """
import subprocess
done = subprocess.run(["flock", "--nonblock", args["lock"], "true"])
say({0: "inside", 1: "refused"}[done.returncode])
""",
    "respcache": """
cache = Cache(args["lock"].removesuffix(".lock"), lock_timeout=0.001, on_error="raise")
try:
    cache.store("of the contender", "a")
    say("inside")
except LockTimeoutError:
    say("refused")
""",
}


@pytest.fixture
def lock(path):
    return path.with_name(f"{path.name}.lock")


# Others hold it.


@pytest.mark.parametrize("holder", [*STRANGERS, "respcache"])
def test_store_is_refused_while_another_holds_the_lock_and_lookups_are_not(
    start, path, lock, holder
):
    """R23, R24: for objects that know the file and for new ones; after the release it goes in."""
    cache = Cache(path, lock_timeout=0.02, on_error="raise")
    cache.store("q", "old")
    inode = lock.stat().st_ino
    other = start(HOLD[holder], lock=lock)
    assert other.hear() == "inside"

    with pytest.raises(LockTimeoutError):
        cache.store("q", "new")
    with pytest.raises(LockTimeoutError):
        cache.forget("q")

    assert cache.get("p") is None
    assert Cache(path).get("q") == "old"
    assert other.process.poll() is None  # all that while it was held

    other.tell()

    assert other.wait() == 0
    assert cache.store("q", "new") is True
    assert Cache(path).get("q") == "new"
    assert lock.stat().st_ino == inode


@pytest.mark.parametrize("holder", [*STRANGERS, "respcache"])
def test_store_that_waits_goes_in_after_the_release(start, agent, path, lock, holder):
    """R23, R24: by itself, within its time."""
    other = start(HOLD[holder], lock=lock)
    assert other.hear() == "inside"
    waiting = agent(path, lock_timeout=50.0, on_error="raise")
    waiting("run", 'announce("respcache._lock.sleep", "waiting")')
    waiting.order("store", "q", "a")
    assert waiting.hear() == "waiting"
    assert not path.exists()
    other.tell()

    assert waiting.hear() is True
    assert Cache(path).get("q") == "a"


def test_pending_entry_of_a_held_lock_is_served_here_and_committed_later(start, agent, path, lock):
    """R24, E27: after one wait that ran out the next store does not wait at all."""
    other = start(HOLD["flock" if shutil.which("flock") else "filelock"], lock=lock)
    assert other.hear() == "inside"
    cache = agent(path, lock_timeout=0.02)

    assert cache("store", "q", "a") is False

    cache("run", 'announce("respcache._lock.sleep", "it waits")')

    assert cache("store", "p", "b") is False
    assert cache("entries") == {"q": "a", "p": "b"}
    assert Cache(path).get("q") is None

    other.tell()
    other.wait()

    assert cache("flush") is True
    assert {hit.question: hit.response for hit in Cache(path).entries()} == {"q": "a", "p": "b"}


def test_stopped_writer_keeps_nobody_from_looking_up(agent, path):
    """E27: SIGSTOP inside a store; the others go on in memory until it goes on."""
    stopped, other, third = agent(path), agent(path, lock_timeout=0.02), agent(path)
    stopped("store", "q", "old")
    stopped("run", 'pause("os.replace")')
    stopped.order("store", "q", "new")
    assert stopped.hear() == "paused"
    stopped.process.send_signal(signal.SIGSTOP)
    stopped.tell()

    assert other("get", "q") == third("get", "q") == "old"
    assert other("store", "p", "pending") is False
    assert other("get", "p") == "pending"
    assert third("get", "p") is None

    stopped.process.send_signal(signal.SIGCONT)

    assert stopped.hear() is True
    assert other("flush") is True
    assert third("entries") == {"q": "new", "p": "pending"}


# We hold it.


@pytest.mark.parametrize("contender", [*STRANGERS, "respcache"])
def test_another_is_refused_while_we_store(start, agent, path, lock, contender):
    """R23: after the store it goes in."""
    writer = agent(path)
    writer("store", "q", "old")
    writer("run", 'pause("os.replace")')
    writer.order("store", "q", "new")
    assert writer.hear() == "paused"

    assert start(TRY[contender], lock=lock).hear() == "refused"

    writer.tell()

    assert writer.hear() is True
    assert start(TRY[contender], lock=lock).hear() == "inside"
    assert writer("store", "q", "newer") is True


@pytest.mark.parametrize("method", ["store_many", "forget", "clear", "flush"])
def test_every_commit_is_made_under_the_lock(start, agent, path, lock, method):
    """R19, R23: not the plain store alone."""
    writer = agent(path, lock_timeout=0.02)
    writer("store", "q", "old")
    given = {"store_many": [{"p": "a"}], "forget": ["q"]}.get(method, [])
    if method == "flush":
        other = start(HOLD["respcache"], lock=lock)
        assert other.hear() == "inside"
        writer("store", "p", "pending")
        other.tell()
        other.wait()
    writer("run", 'pause("os.replace")')
    writer.order(method, *given)
    assert writer.hear() == "paused"

    assert start(TRY["respcache"], lock=lock).hear() == "refused"

    writer.tell()
    writer.hear()

    assert start(TRY["respcache"], lock=lock).hear() == "inside"


def test_lock_file_keeps_its_bytes_its_mode_and_its_inode(start, path, lock):
    """R23, R24: neither who gets it nor who is refused may change a file that others rely on."""
    lock.write_bytes(b"left by a crash\n")
    lock.chmod(0o640)
    before = lock.stat()
    cache = Cache(path, lock_timeout=0.02, on_error="raise")

    assert cache.store("q", "a") is True

    other = start(HOLD["respcache"], lock=lock)
    assert other.hear() == "inside"
    with pytest.raises(LockTimeoutError):
        cache.store("p", "b")
    other.tell()
    other.wait()
    cache.close()
    after = lock.stat()

    assert lock.read_bytes() == b"left by a crash\n"
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


# All at once: a folder shows who is inside, and a number loses no increment.


WITNESS = """
def visit():
    os.mkdir(args["inside"])  # refused if somebody is in there
    with open(args["number"]) as file:
        number = int(file.read())
    with open(args["number"], "w") as file:
        file.write(str(number + 1))
    os.rmdir(args["inside"])
"""

VISIT = {
    "respcache": """
cache = Cache(args["path"], lock_timeout=50.0, fsync=False, on_error="raise")

def around(real, *given):
    visit()
    return real(*given)

patch("os.replace", around)
barrier()
for n in range(args["rounds"]):
    assert cache.store(f"{args['name']} {n}", "a")
say("done")
""",
    "filelock": """
import filelock
barrier()
for n in range(args["rounds"]):
    with filelock.FileLock(args["path"] + ".lock", poll_interval=0.002):
        visit()
say("done")
""",
    "portalocker": """
import portalocker
barrier()
for n in range(args["rounds"]):
    with portalocker.Lock(args["path"] + ".lock", timeout=50.0, check_interval=0.002):
        visit()
say("done")
""",
    "flock": """
import subprocess
number, inside = args["number"], args["inside"]
step = f'mkdir "{inside}" && n=$(cat "{number}") && echo $((n + 1)) > "{number}" && rmdir "{inside}"'
barrier()
for n in range(args["rounds"]):
    subprocess.run(["flock", args["path"] + ".lock", "sh", "-c", step], check=True)
say("done")
""",
}


def test_no_two_holders_are_ever_inside_together(start, together, path, tmp_path):
    """R23: three of ours and one of each other kind, by two independent witnesses."""
    number = tmp_path / "number"
    number.write_text("0")
    kinds = ["respcache"] * 3 + ["filelock", "portalocker"]
    if shutil.which("flock"):
        kinds.append("flock")
    children = [
        start(
            WITNESS + VISIT[kind],
            path=path,
            name=name,
            rounds=30,
            inside=tmp_path / "inside",
            number=number,
        )
        for name, kind in enumerate(kinds)
    ]
    together(children)

    assert [child.hear() for child in children] == ["done"] * len(kinds)
    assert int(number.read_text()) == 30 * len(kinds)
    assert len(Cache(path)) == 90


# An outsider removes the lock file while it is held.


def test_lock_removed_before_the_commit_costs_no_acknowledged_store(agent, path, lock):
    """E16, R23: who held the removed one notices and begins again."""
    one, other = agent(path), agent(path)
    one("store", "q", "old")
    one("run", 'pause("os.fsync")')
    one.order("store", "of one", "a")
    assert one.hear() == "paused"
    lock.unlink()

    assert other("store", "of the other", "b") is True

    one.tell()

    assert one.hear() is True
    assert {hit.question for hit in Cache(path).entries()} == {"q", "of one", "of the other"}
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, lock.name]


@pytest.mark.parametrize("newcomer", ["os.fsync", "os.replace"])
def test_lock_removed_between_the_last_look_and_the_rename_costs_no_acknowledged_store(
    agent, path, lock, newcomer
):
    """E16, R23: one renames without the lock; the newcomer notices, or one's change is made again."""
    one, other = agent(path), agent(path)
    one("store", "q", "old")
    one("run", 'pause("os.replace", after=True); pause("os.replace")')
    one.order("store", "of one", "a")
    assert one.hear() == "paused"
    lock.unlink()
    other("run", f'pause("{newcomer}")')
    other.order("store", "of the other", "b")
    assert other.hear() == "paused"
    one.tell()
    assert one.hear() == "paused"  # it has renamed, without the lock by now
    one.tell()
    other.tell()

    assert one.hear() is True
    assert other.hear() is True
    assert {hit.question for hit in Cache(path).entries()} == {"q", "of one", "of the other"}


def test_waiter_for_a_removed_lock_goes_over_to_the_new_one(agent, path, lock):
    """E16, R23: one holds the removed file, another waits for it, a third makes a new one."""
    holder, waiter, newcomer = agent(path), agent(path, lock_timeout=50.0), agent(path)
    waiter("store", "q", "old")
    holder("run", 'pause("os.fsync")')
    holder.order("store", "of the holder", "a")
    assert holder.hear() == "paused"
    waiter("run", 'announce("respcache._lock.sleep", "waiting"); pause("os.replace")')
    waiter.order("store", "of the waiter", "b")
    assert waiter.hear() == "waiting"
    lock.unlink()
    newcomer("run", 'pause("os.fsync")')
    newcomer.order("store", "of the newcomer", "c")
    assert newcomer.hear() == "paused"
    holder.tell()  # frees the removed file, and begins again behind the newcomer
    newcomer.tell()

    assert newcomer.hear() is True
    assert waiter.hear() == "paused"

    waiter.tell()

    assert waiter.hear() is True
    assert holder.hear() is True
    assert {hit.question for hit in Cache(path).entries()} == {
        "q",
        "of the holder",
        "of the waiter",
        "of the newcomer",
    }


def test_forget_that_had_to_begin_again_does_not_count_what_another_took_meanwhile(agent, path):
    """E16: its first try came to nothing, so only the second tells what it forgot."""
    one, other = agent(path), agent(path)
    one("store", "q", "a")
    one(
        "run",
        "def at_fsync(real, *given):\n"
        "    undo()\n"
        '    undo_lock.append(patch("fcntl.flock", at_flock))\n'
        '    say("paused")\n'
        "    hear()\n"
        "    return real(*given)\n"
        "def at_flock(real, fd, operation):\n"
        "    if operation & fcntl.LOCK_EX:\n"
        "        undo_lock.pop()()\n"
        '        say("begins again")\n'
        "        hear()\n"
        "    return real(fd, operation)\n"
        "undo_lock = []\n"
        'undo = patch("os.fsync", at_fsync)',
    )
    one.order("forget", "q")
    assert one.hear() == "paused"
    os.utime(path)  # an outsider changed the file, so it is not what was loaded
    one.tell()
    assert one.hear() == "begins again"

    assert other("forget", "q") is True

    one.tell()

    assert one.hear() is False
