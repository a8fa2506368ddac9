"""What does a warm hit cost?

Every entry has been looked up before; then questions come in random order. A
dict must be fresh for each caller: one may change what it got.
"""

from __future__ import annotations

import random
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import RESPONSES, pairs, question
from ._figures import LOG, SUBJECT, Group, Reach, Table, samples_of
from ._harness import Crew, Effort

_LOOKUPS = 2_000  # in a round
_BATCH = 20  # a sample is the mean of so many: one is too short for the clock
_CONTENDERS = ("floor", SUBJECT, LOG, "diskcache", "sqlite3", "lmdb", "files")
_REACHES = {
    "text": [
        Reach(bound, against, subject)
        for subject in (SUBJECT, LOG)
        for against, bound in (("floor", 2.0), ("diskcache", 0.6), ("lmdb", 1.5))
    ],
    "dict": [],
}


class Worker:
    def __init__(self, contender: str) -> None:
        self._contender = contenders.load(contender)
        self._entries = 0

    def prepare(self, folder: str, entries: int, kind: str) -> None:
        stored = list(pairs(0, entries, RESPONSES[kind]))
        self._handle = self._contender.open(f"{folder}/{kind}")
        self._contender.fill(self._handle, stored)
        self._entries = entries
        for asked, response in stored:
            if self._contender.lookup(self._handle, asked) != response:
                raise AssertionError(f"a wrong answer to {asked!r}")

    def hits(self) -> list[float]:
        lookup, handle = self._contender.lookup, self._handle
        seconds = []
        for _ in range(_LOOKUPS // _BATCH):
            batch = [question(random.randrange(self._entries)) for _ in range(_BATCH)]
            began = perf_counter()
            for asked in batch:
                lookup(handle, asked)
            seconds.append((perf_counter() - began) / _BATCH)
        return seconds


def run(effort: Effort, folder: Path) -> list[Table]:
    groups = []
    for kind, reaches in _REACHES.items():
        with Crew(__name__, _CONTENDERS) as crew:
            crew.ask("prepare", folder=str(folder), entries=effort.entries, kind=kind)
            values = crew.race(f"hit, {kind}", effort.rounds, "hits")
        groups.append(Group(kind, samples_of(values, "us"), reaches))
    title = f"A warm hit, {effort.entries:,} entries of 1 KB"
    return [Table(title, groups, ("floor", "diskcache", "lmdb"), "hit")]
