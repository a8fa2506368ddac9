"""Writers of a log killed at random, hundreds of them: what was acknowledged is there."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest

from respcache import Cache

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL and no fork"),
]

STRESS = int(os.environ.get("RESPCACHE_STRESS", "1"))

# Forks its writers, so that a life costs milliseconds. It keeps the dead until
# it is told of them, so that no number is ever another process's.
BREED = """
import traceback
from respcache._stores import log

log._FLOOR = args["floor"]
with Cache(args["warm"]) as cache:  # all that a writer imports
    cache.store("q", "a")
    cache.forget("q")

def live(life, slot):
    steps, pad = args["steps"], "x" * args["size"]
    cache = Cache(args["path"], lock_timeout=60.0, on_error="raise")
    count = os.open(os.path.join(args["notes"], str(life)), os.O_WRONLY | os.O_CREAT, 0o600)
    number = 0
    while True:
        kind, *names = steps[number % len(steps)]
        questions = [f"{slot} {name}" for name in names]
        value = f"{life}.{number}." + pad
        if kind == "store":
            assert cache.store(questions[0], value) is True
        elif kind == "batch":
            assert cache.store_many(dict.fromkeys(questions, value)) == len(questions)
        else:
            assert cache.forget(questions[0]) is True
        number += 1
        os.pwrite(count, number.to_bytes(8, "little"), 0)
        if number == len(steps):
            say(life)

alive = {}
try:
    while True:
        order, life, slot = hear()
        if order == "start":
            pid = os.fork()
            if pid == 0:
                try:
                    live(life, slot)
                finally:
                    traceback.print_exc()
                    os._exit(1)
            alive[life] = pid
        else:
            pid = alive.pop(life)
            os.kill(pid, signal.SIGKILL)
            say(["dead", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])])
finally:
    for pid in alive.values():
        os.kill(pid, signal.SIGKILL)
"""

# What each writer does, over and over: each forget takes what was stored before it.
STEPS = [
    ("store", "a"),
    ("store", "b"),
    ("batch", "c", "d", "e"),
    ("store", "a"),
    ("forget", "b"),
    ("store", "f"),
    ("batch", "c", "d", "e"),
    ("forget", "a"),
]


def kept_after(life, count, before):
    """Return what each name holds, "life.step" or None, after so many steps of *life*."""
    kept = dict(before)
    for number in range(count):
        kind, *names = STEPS[number % len(STEPS)]
        kept |= dict.fromkeys(names, None if kind == "forget" else f"{life}.{number}")
    return kept


class Breeder:
    """Starts writers of one file, each with the questions of a slot, and kills them."""

    def __init__(self, start, path, notes, *, size, floor, slots):
        self._process = start(
            BREED,
            path=path,
            notes=notes,
            warm=notes / "warm.jsonl",
            size=size,
            floor=floor,
            steps=STEPS,
        )
        self._notes = notes
        self._size = size
        self._life = 0
        self._free = list(range(slots))
        self._slots = {}
        self._begun = set()

    def start(self):
        self._life += 1
        self._slots[self._life] = self._free.pop(0)
        self._process.tell(["start", self._life, self._slots[self._life]])

    def kill_one(self):
        """Kill a writer at work; return its life, its slot and how many steps it acknowledged."""
        life = random.choice([*self._slots])
        while life not in self._begun:
            self._begun.add(self._process.hear())
        time.sleep(random.random() * 0.01)  # a random instant of a step
        self._process.tell(["kill", life, None])
        while not isinstance(said := self._process.hear(), list):
            self._begun.add(said)

        assert said == ["dead", -signal.SIGKILL]

        slot = self._slots.pop(life)
        self._free.append(slot)
        return life, slot, int.from_bytes((self._notes / str(life)).read_bytes(), "little")

    def found(self, cache, slot, names="abcdef"):
        """Return which step's value *cache* finds under each name."""
        found = {}
        for name in names:
            response = cache.get(f"{slot} {name}")
            found[name] = None
            if response is not None:
                found[name], _, pad = response.rpartition(".")
                assert pad == "x" * self._size
        return found


@pytest.mark.long
@pytest.mark.timeout(120 * STRESS)
@pytest.mark.parametrize(
    ("size", "at_once", "floor"),
    [
        pytest.param(1_000, 1, 1 << 20, id="1 KB"),
        pytest.param(100_000, 1, 1 << 20, id="100 KB"),
        pytest.param(1_000, 3, 150_000, id="1 KB, three at once, compacting"),
        pytest.param(100_000, 3, 500_000, id="100 KB, three at once, compacting"),
    ],
)
def test_killed_writers_lose_nothing_that_was_acknowledged(
    start, path, tmp_path, size, at_once, floor
):
    """R20, E10, E12, E26: a store is there, a forget stays, a batch is whole or not there.

    So for one who read on all the time and for one who comes new, and what the
    killed one was at is there or not, once and for all.
    """
    path = path.with_suffix(".jsonl")
    notes = tmp_path / "notes"
    notes.mkdir()
    slots = 8
    breeder = Breeder(start, path, notes, size=size, floor=floor, slots=slots)
    watcher = Cache(path)
    kept = [dict.fromkeys("abcdef")] * slots
    for _ in range(at_once):
        breeder.start()
    for number in range(60 * STRESS):
        life, slot, count = breeder.kill_one()
        if at_once > 1:
            breeder.start()
        successor = Cache(path, lock_timeout=60.0 if at_once > 1 else 0.001, on_error="raise")

        assert successor.store("next", number) is True

        before, kept[slot] = kept[slot], breeder.found(watcher, slot)
        name = random.choice("abcdef")

        assert kept[slot] in [kept_after(life, each, before) for each in (count, count + 1)], (
            life,
            count,
            breeder.found(Cache(path), slot),
        )
        assert breeder.found(successor, slot) == kept[slot]
        assert breeder.found(Cache(path), slot, name) == {name: kept[slot][name]}
        assert Cache(path).get("next") == number

        successor.close()
        if at_once == 1:
            breeder.start()
    for _ in range(at_once):
        life, slot, count = breeder.kill_one()
        before, kept[slot] = kept[slot], breeder.found(watcher, slot)

        assert kept[slot] in [kept_after(life, each, before) for each in (count, count + 1)]

    last = Cache(path, lock_timeout=0.001, on_error="raise")

    assert last.store("after all", "still here") is True
    for reader in (watcher, Cache(path)):
        assert [breeder.found(reader, slot) for slot in range(slots)] == kept
        assert len(reader) == 2 + sum(each is not None for found in kept for each in found.values())
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.lock"]
