"""How do a store, a hit and the memory of a process grow with the entries?

A cache of each size, all there at once, so that they take turns. A store replaces
one of its answers; a hit is any of them. A fresh process looks up two questions, of
which the second makes respcache read all, and then counts the entries. The memory
is what it has then of its own, beyond what the same in a tiny cache takes.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import pairs, question, version
from ._figures import LOG, Group, Reach, Table, is_installed, samples_of
from ._harness import Child, Effort, by_turns
from ._progress import show

_CONTENDERS = (LOG, "diskcache", "sqlite3", "lmdb", "files")
_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_MOST_FILES = 100_000  # more fill the disk's inodes, and tell no more
_BATCH = 10_000  # entries in a commit
_STORES = 10  # in a round
_HITS = 200  # in a round
_LOOKS = 20  # a sample of hits is the mean of so many
_ROUNDS_PER_MEMORY = 16
_SLOWER = 1.3  # times a store into the smallest
_KB = 0.25  # of memory for an entry

Key = tuple[str, int]


class Worker:
    def __init__(self, contender: str) -> None:
        self._contender = contenders.load(contender)
        self._held: list[object] = []

    def fill(self, path: str, entries: int) -> None:
        self._handle = self._contender.open(path, fsync=False)
        self._entries = entries
        self._serials = itertools.count(entries)
        for start in range(0, entries, _BATCH):
            stop = min(start + _BATCH, entries)
            self._contender.fill(self._handle, pairs(start, stop))

    def stores(self) -> list[float]:
        store, handle = self._contender.store, self._handle
        seconds = []
        for _ in range(_STORES):
            asked, response = self._any(), version(next(self._serials))
            began = perf_counter()
            store(handle, asked, response)
            seconds.append(perf_counter() - began)
        return seconds

    def hits(self) -> list[float]:
        lookup, handle = self._contender.lookup, self._handle
        seconds = []
        for _ in range(_HITS // _LOOKS):
            batch = [self._any() for _ in range(_LOOKS)]
            began = perf_counter()
            found = [lookup(handle, asked) is not None for asked in batch]
            seconds.append((perf_counter() - began) / _LOOKS)
            if not all(found):
                raise RuntimeError("an entry is lost")
        return seconds

    def begin(self, path: str, entries: int) -> tuple[float, int]:
        """Return how long the first two lookups in *path* take, and the memory that is held."""
        handle = self._contender.open(path, fsync=False)
        began = perf_counter()
        found = [self._contender.lookup(handle, question(number)) for number in range(2)]
        seconds = perf_counter() - began
        if None in found or self._contender.count(handle) != entries:
            raise RuntimeError("an entry is lost")
        self._held.append(handle)
        return seconds, _own_memory()

    def _any(self) -> str:
        return question(random.randrange(self._entries))


def _own_memory() -> int:
    """Return the bytes of this process that it shares with no file."""
    try:
        statm = Path("/proc/self/statm").read_text()
    except FileNotFoundError:  # not Linux: the most that there ever was
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, resident, shared, *_ = map(int, statm.split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def run(effort: Effort, folder: Path) -> list[Table]:
    sizes = effort.counts(_SIZES, effort.most)
    names = [name for name in _CONTENDERS if is_installed(name)]
    keys = [
        (name, size) for size in sizes for name in names if name != "files" or size <= _MOST_FILES
    ]
    with ExitStack() as stack:
        children = {key: stack.enter_context(Child(__name__, key[0])) for key in keys}
        _fill(children, folder)

        def race(task: str) -> dict[Key, list[float]]:
            runs = {key: partial(child.ask, task) for key, child in children.items()}
            return by_turns(f"growth, {task}", effort.rounds, runs)

        stores, hits = race("stores"), race("hits")
    begins = _begins(keys, folder, max(1, effort.rounds // _ROUNDS_PER_MEMORY))
    seconds = {key: [second for second, _ in own] for key, own in begins.items()}
    memory = {key: [held / key[1] for _, held in own] for key, own in begins.items()}
    last = f"{sizes[-1]:,} entries"
    slower = [Reach(_SLOWER, f"{sizes[0]:,} entries", last)] if len(sizes) > 1 else []
    return [
        _table("store", "A store", stores, "us", slower),
        _table("hit", "A hit", hits, "us"),
        _table("begin", "The first two lookups of a fresh process", seconds, "ms"),
        _table(
            "memory",
            "Memory for an entry, in a process that has read all",
            memory,
            "KB",
            [Reach(_KB, subject=last)],
            is_compared=False,
        ),
    ]


def _fill(children: Mapping[Key, Child], folder: Path) -> None:
    """Fill all caches, those of a size at once."""
    sizes = list(dict.fromkeys(size for _, size in children))
    for number, size in enumerate(sizes):
        show("growth, filling", number, len(sizes))
        team = [child for (_, own), child in children.items() if own == size]
        for child in team:
            child.tell("fill", path=f"{folder}/{size}", entries=size)
        for child in team:
            child.answer()
    os.sync()  # else the kernel writes it out beside what is timed


def _begins(keys: Sequence[Key], folder: Path, rounds: int) -> dict[Key, list[tuple[float, int]]]:
    """Return how long a fresh process takes to begin, and the memory that it then has more."""
    with ExitStack() as stack:
        for name in {name for name, _ in keys}:
            stack.enter_context(Child(__name__, name)).ask("fill", path=f"{folder}/tiny", entries=2)

    def begin(name: str, size: int) -> list[tuple[float, int]]:
        with Child(__name__, name) as child:
            _, before = child.ask("begin", path=f"{folder}/tiny", entries=2)
            seconds, after = child.ask("begin", path=f"{folder}/{size}", entries=size)
        return [(seconds, after - before)]

    runs = {key: partial(begin, *key) for key in keys}
    return by_turns("growth, memory", rounds, runs, warm_up=0)


def _table(
    name: str,
    title: str,
    values: Mapping[Key, Sequence[float]],
    unit: str,
    reaches: Sequence[Reach] = (),
    *,
    is_compared: bool = True,
) -> Table:
    """Return the table of *title*, with *reaches* of the log.

    *is_compared*: whether the figures mean something beside those of the smallest.
    """
    groups = []
    for contender in dict.fromkeys(contender for contender, _ in values):
        own = {
            f"{size:,} entries": each for (who, size), each in values.items() if who == contender
        }
        groups.append(Group(contender, samples_of(own, unit), reaches if contender == LOG else ()))
    smallest = groups[0].samples[0].name
    return Table(
        f"{title}, by the number of entries",
        groups,
        (smallest,) if is_compared else (),
        f"growth-{name}",
        heads=("contender", "with"),
    )
