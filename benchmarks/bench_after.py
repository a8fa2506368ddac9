"""What does a lookup cost right after another process has stored?

One process stores a new answer and says so over a pipe; the other looks it up at
once, and must see it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import pairs, question, version
from ._figures import LOG, Group, Sample, Table
from ._harness import Child, Crew, Effort, by_turns

_CONTENDERS = (LOG, "diskcache", "sqlite3", "lmdb", "files")
_BASES = ("diskcache", "sqlite3", "lmdb")
_SIZES = (1_000, 10_000)
_STORES = 20  # in a round


class Worker:
    def __init__(self, contender: str) -> None:
        self._contender = contenders.load(contender)

    def prepare(self, folder: str, entries: int) -> None:
        path = f"{folder}/{entries}"
        is_new = not Path(self._contender.where(path)).exists()
        self._handle = self._contender.open(path, fsync=False)
        if is_new:
            self._contender.fill(self._handle, pairs(0, entries))
        for number in range(entries):
            self._contender.lookup(self._handle, question(number))

    def store(self, number: int, serial: int) -> None:
        self._contender.store(self._handle, question(number), version(serial))

    def look(self, number: int, serial: int) -> tuple[float, bool]:
        """Return how long it takes, and whether the newest answer is missed."""
        asked = question(number)
        began = perf_counter()
        response = self._contender.lookup(self._handle, asked)
        seconds = perf_counter() - began
        return seconds, response != version(serial)


def run(effort: Effort, folder: Path) -> list[Table]:
    groups = []
    for entries in effort.counts(_SIZES, effort.entries):
        serials = itertools.count(entries)

        def timed(
            team: Sequence[Child], entries: int = entries, serials: itertools.count[int] = serials
        ) -> list[tuple[float, bool]]:
            writer, reader = team
            looks = []
            for _ in range(_STORES):
                what = {"number": random.randrange(entries), "serial": next(serials)}
                writer.ask("store", **what)
                looks.append(tuple(reader.ask("look", **what)))
            return looks

        label = f"{entries:,} entries"
        with Crew(__name__, _CONTENDERS, 2) as crew:
            crew.ask("prepare", folder=str(folder), entries=entries)
            runs = {name: partial(timed, team) for name, team in crew.teams.items()}
            looks = by_turns(f"after, {label}", effort.rounds, runs)
        samples = [
            Sample.of(name, [seconds for seconds, _ in own], "us", sum(missed for _, missed in own))
            for name, own in looks.items()
        ]
        groups.append(Group(label, samples))
    return [Table("A lookup right after another process's store", groups, _BASES, "after")]
