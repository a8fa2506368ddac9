"""What does a store into a document cost, by how much the document holds?

Each store replaces one response by another. "After another's" means that
another instance has stored since, so that the file must be read again first.
The floor reads, decodes, changes, encodes and publishes the same bytes.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import pairs, question, version
from ._figures import Group, Reach, Table, samples_of
from ._harness import Crew, Effort

_SIZES = (100, 1_000, 10_000)
_STORES = 3  # in a round
_TASKS = {"alone": "alone", "after_another": "after another's"}
_REACHES = {"alone": 0.7, "after_another": 1.0}


class Worker:
    def __init__(self, contender: str) -> None:
        self._contender = contenders.load(contender)
        self._entries = 0

    def prepare(self, folder: str, entries: int, fsync: bool) -> None:
        path = f"{folder}/{entries}-{fsync}"
        self._one, self._other = (self._contender.open(path, fsync=fsync) for _ in range(2))
        self._contender.fill(self._one, pairs(0, entries))
        self._entries = entries
        self._serials = itertools.count(entries)

    def alone(self) -> list[float]:
        self._store(self._one)  # so that the last store is its own
        return [self._store(self._one) for _ in range(_STORES)]

    def after_another(self) -> list[float]:
        seconds = []
        for _ in range(_STORES):
            self._store(self._other)
            seconds.append(self._store(self._one))
        return seconds

    def _store(self, handle: object) -> float:
        asked = question(random.randrange(self._entries))
        response = version(next(self._serials))
        began = perf_counter()
        self._contender.store(handle, asked, response)
        return perf_counter() - began


def run(effort: Effort, folder: Path) -> list[Table]:
    tables = []
    for fsync in (True, False):
        groups: dict[str, list[Group]] = {task: [] for task in _TASKS}
        for entries in effort.counts(_SIZES, effort.entries):
            with Crew(__name__, ("floor", "respcache", "diskcache")) as crew:
                crew.ask("prepare", folder=str(folder), entries=entries, fsync=fsync)
                for task, words in _TASKS.items():
                    label = f"{entries:,} entries"
                    values = crew.race(f"document, {words}, {label}", effort.rounds, task)
                    reaches = [Reach(_REACHES[task], "floor")]
                    groups[task].append(Group(label, samples_of(values, "ms"), reaches))
        how = "fsync" if fsync else "no fsync"
        tables += [
            Table(f"A store into a document, {words}, {how}", groups[task], ("floor", "diskcache"))
            for task, words in _TASKS.items()
        ]
    return tables
