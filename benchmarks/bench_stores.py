"""How many stores a second do several processes get into one cache?

All begin at one moment and go on for a while, each store a commit of its own. Keys
are new each time, or of a hot set that all of them replace again and again; or
nine of ten operations are lookups. Then a witness, which has never seen this cache,
looks up all that was acknowledged, while the others still have it open.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from . import contenders
from ._data import pairs, question, version
from ._figures import LOG, Group, Reach, Sample, Table, samples_of
from ._harness import Child, Crew, Effort, at_once, by_turns, sleep_until

_CONTENDERS = (LOG, "diskcache", "sqlite3", "lmdb", "files")
_BASES = ("diskcache", "sqlite3", "lmdb")
_PROCESSES = (1, 4, 8)
_TURN = 0.5  # of the seconds of an effort
_ROUNDS_PER_TURN = 8
_HOT = 64  # keys
_SPAN = 10**8  # serials for each process
_WARM_UP = 100  # lookups, where there are any
_DISKCACHE = 5.0  # times its rate
_LMDB = {1: 0.6, 4: 0.5, 8: 0.5}
_DURABLE_LMDB = 1.2
_WAIT = (8, 500.0)  # processes, and the longest store in ms


@dataclass(frozen=True)
class Workload:
    """What the processes do.

    Args:
        name: What the plots know it by.
        words: What people call it.
        size: Characters in a response.
        keys: How many questions there are; 0: a new one for each store.
        lookups: The share of lookups; then all *keys* are stored before.
        fsync: Whether a store waits for the disk.
        share: Of the turns that the first workload has.
    """

    name: str
    words: str
    size: int = 1024
    keys: int = 0
    lookups: float = 0.0
    fsync: bool = False
    share: float = 0.75


def _workloads(effort: Effort) -> list[Workload]:
    hot, most = min(_HOT, effort.entries), effort.entries
    return [
        Workload("distinct-1", "Stores of 1 KB under new keys", share=1.0),
        Workload("hot-1", f"Stores of 1 KB under {hot} hot keys", keys=hot),
        Workload("distinct-10", "Stores of 10 KB under new keys", size=10_240),
        Workload("hot-10", f"Stores of 10 KB under {hot} hot keys", size=10_240, keys=hot),
        Workload("durable", "Durable stores of 1 KB under new keys", fsync=True),
        Workload(
            "mixed",
            f"Operations on {most:,} entries of 1 KB, 9 lookups for a store",
            keys=most,
            lookups=0.9,
        ),
    ]


class Worker:
    def __init__(self, contender: str) -> None:
        self._contender = contenders.load(contender)

    def fill(self, path: str, entries: int, size: int) -> None:
        handle = self._contender.open(path, fsync=False)
        self._contender.fill(handle, pairs(0, entries, partial(version, size=size)))
        self._contender.close(handle)

    def prepare(
        self, path: str, serial: int, size: int, keys: int, lookups: float, fsync: bool
    ) -> None:
        """Open *path* and use it once; serials from *serial* on are for this process."""
        self._handle = self._contender.open(path, fsync=fsync)
        self._size, self._keys, self._lookups = size, keys, lookups
        self._serials = itertools.count(serial)
        self._stored: dict[int, int] = {}
        self._seconds: list[float] = []
        self._missed = 0
        self._store()
        if lookups:
            for _ in range(_WARM_UP):
                self._look()

    def work(self, at: float, seconds: float) -> dict[str, Any]:
        """Go on until *seconds* after *at*, and return what was done and how long it took."""
        self._seconds = []
        looks = 0
        sleep_until(at)
        now = at
        while now < at + seconds:
            if self._seconds and random.random() < self._lookups:
                self._look()
                looks += 1
            else:
                self._store()
            now = monotonic()
        return {
            "lasted": now - at,
            "operations": looks + len(self._seconds),
            "seconds": self._seconds,
            "missed": self._missed,
            "stored": list(self._stored.items()),
        }

    def finish(self) -> None:
        self._contender.close(self._handle)

    def count_lost(
        self, path: str, size: int, filled: int, stored: Sequence[Iterable[Sequence[int]]]
    ) -> int:
        """Return how many questions don't have an answer that was the last of some process.

        Args:
            path: The cache.
            size: As for the workload.
            filled: How many entries were there at first.
            stored: For each process the numbers of the questions that it has
                stored, each with the serial of the last answer.
        """
        last = defaultdict(set)
        for each in stored:
            for number, serial in each:
                last[number].add(serial)
        for number in range(filled):
            last[number] = last[number] or {number}
        handle = self._contender.open(path, fsync=False)
        lost = sum(
            self._contender.lookup(handle, question(number))
            not in [version(serial, size) for serial in serials]
            for number, serials in last.items()
        )
        self._contender.close(handle)
        return lost

    def _store(self) -> None:
        serial = next(self._serials)
        number = random.randrange(self._keys) if self._keys else serial
        asked, response = question(number), version(serial, self._size)
        began = monotonic()
        self._contender.store(self._handle, asked, response)
        self._seconds.append(monotonic() - began)
        self._stored[number] = serial

    def _look(self) -> None:
        asked = question(random.randrange(self._keys))
        self._missed += self._contender.lookup(self._handle, asked) is None


@dataclass(frozen=True)
class Turn:
    """What the processes of one contender did in one turn.

    Attributes:
        rate: Operations a second, in all.
        seconds: How long each store took.
        lost: How many entries were missed, then or afterwards.
    """

    rate: float
    seconds: Sequence[float]
    lost: int


def run(effort: Effort, folder: Path) -> list[Table]:
    sizes = effort.counts(_PROCESSES, effort.processes)
    numbers = itertools.count()
    with Crew(__name__, _CONTENDERS, sizes[-1] + 1) as crew:
        return [
            table
            for workload in _workloads(effort)
            for table in _tables(
                crew.teams, sizes, workload, effort, lambda: folder / str(next(numbers))
            )
        ]


def _tables(
    teams: Mapping[str, Sequence[Child]],
    sizes: Sequence[int],
    workload: Workload,
    effort: Effort,
    next_place: Callable[[], Path],
) -> list[Table]:
    rates, stores = [], []
    rounds = max(1, round(workload.share * effort.rounds / _ROUNDS_PER_TURN))
    for size in sizes:
        runs = {
            name: partial(_turn, team[:size], witness, workload, effort.seconds * _TURN, next_place)
            for name, (witness, *team) in teams.items()
        }
        label = f"{size} process{'es' if size > 1 else ''}"
        turns = by_turns(f"stores, {workload.name}, {label}", rounds, runs, warm_up=0)
        rates.append(
            Group(
                label,
                [
                    Sample.of(name, [turn.rate for turn in own], "/s", sum(t.lost for t in own))
                    for name, own in turns.items()
                ],
                _rates_to_reach(workload, size),
            )
        )
        seconds = {
            name: [each for turn in own for each in turn.seconds] for name, own in turns.items()
        }
        stores.append(Group(label, samples_of(seconds, "ms"), _waits_to_reach(workload, size)))
    return [
        Table(f"{workload.words}: a second, in all", rates, _BASES, f"rate-{workload.name}"),
        Table(
            f"{workload.words}: the time of one store",
            stores,
            _BASES,
            f"time-{workload.name}",
            figures=("median", "p95", "p99", "worst"),
        ),
    ]


def _rates_to_reach(workload: Workload, size: int) -> list[Reach]:
    if workload.lookups:
        return []
    if workload.fsync:
        return [Reach(_DURABLE_LMDB, "lmdb", LOG)]
    reaches = [Reach(_DISKCACHE, "diskcache", LOG)]
    if size in _LMDB:
        reaches.append(Reach(_LMDB[size], "lmdb", LOG))
    return reaches


def _waits_to_reach(workload: Workload, size: int) -> list[Reach]:
    processes, longest = _WAIT
    if workload.lookups or size != processes:
        return []
    return [Reach(longest, subject=LOG, figure="worst")]


def _turn(
    team: Sequence[Child],
    witness: Child,
    workload: Workload,
    seconds: float,
    next_place: Callable[[], Path],
) -> list[Turn]:
    place = next_place()
    place.mkdir()
    path = f"{place}/cache"
    size, keys = workload.size, workload.keys
    filled = keys if workload.lookups else 0
    if filled:
        team[0].ask("fill", path=path, entries=filled, size=size)
    for number, child in enumerate(team, 1):
        child.ask(
            "prepare",
            path=path,
            serial=number * _SPAN,
            size=size,
            keys=keys,
            lookups=workload.lookups,
            fsync=workload.fsync,
        )
    done = at_once(team, "work", seconds=seconds)
    stored = [each["stored"] for each in done]
    lost = witness.ask("count_lost", path=path, size=size, filled=filled, stored=stored)
    for child in team:
        child.ask("finish")
    shutil.rmtree(place)
    return [
        Turn(
            sum(each["operations"] for each in done) / max(each["lasted"] for each in done),
            [taken for each in done for taken in each["seconds"]],
            lost + sum(each["missed"] for each in done),
        )
    ]
