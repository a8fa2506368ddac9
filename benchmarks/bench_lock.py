"""What does waiting for the lock of a file cost?

``respcache._lock.FileLock`` against ``filelock.FileLock`` and ``portalocker.Lock``
at their defaults, and against plain blocking ``flock``, whose queue is the
kernel's and which knows no timeout. All of them are the same lock.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter, sleep

from ._figures import Group, Table, samples_of
from ._harness import LEAD, Child, Crew, Effort, at_once, by_turns, sleep_until

_BASES = ("flock", "filelock", "portalocker")
_PROCESSES = (2, 8, 16)
_HOLD = 0.000_05  # seconds, in a fight
_LONG_HOLD = 0.02  # before a hand-over
_LOCKS = 2_000  # uncontended, in a round
_BATCH = 20
_HANDOVERS = 2  # in a round
_ROUNDS_PER_FIGHT = 8

Run = Callable[[Callable[[], None]], None]


class Worker:
    def __init__(self, name: str) -> None:
        self._make = _MAKERS[name]

    def prepare(self, path: str) -> None:
        self._run = self._make(path)

    def uncontended(self) -> list[float]:
        run = self._run
        seconds = []
        for _ in range(_LOCKS // _BATCH):
            began = perf_counter()
            for _ in range(_BATCH):
                run(_nothing)
            seconds.append((perf_counter() - began) / _BATCH)
        return seconds

    def fight(self, at: float, seconds: float) -> tuple[int, float]:
        """Hold the lock again and again; return how often, and the longest wait."""
        end = at + seconds
        asked = 0.0
        locks = 0
        longest = 0.0

        def hold() -> None:
            nonlocal locks, longest
            entered = monotonic()
            longest = max(longest, entered - asked)
            locks += entered < end
            while monotonic() < entered + _HOLD:
                pass

        sleep_until(at)
        while (asked := monotonic()) < end:
            self._run(hold)
        return locks, longest

    def hold(self, at: float) -> float:
        """Hold the lock for long, and return when it was let go."""
        left = 0.0

        def stay() -> None:
            nonlocal left
            sleep(_LONG_HOLD)
            left = monotonic()

        sleep_until(at)
        self._run(stay)
        return left

    def enter(self, at: float) -> float:
        """Wait for the lock, and return when it was had."""
        sleep_until(at)
        entered = 0.0

        def note() -> None:
            nonlocal entered
            entered = monotonic()

        self._run(note)
        return entered


def _nothing() -> None:
    pass


def _flock(path: str) -> Run:
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def run(work: Callable[[], None]) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            work()
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    return run


def _respcache(path: str) -> Run:
    from respcache._lock import FileLock

    return FileLock(path, 0o600, 10.0).run  # a Cache's defaults


def _filelock(path: str) -> Run:
    from filelock import FileLock

    return _inside(FileLock(path))


def _portalocker(path: str) -> Run:
    from portalocker import Lock

    return _inside(Lock(path))


def _inside(lock: AbstractContextManager[object]) -> Run:
    def run(work: Callable[[], None]) -> None:
        with lock:
            work()

    return run


_MAKERS = {
    "flock": _flock,
    "respcache": _respcache,
    "filelock": _filelock,
    "portalocker": _portalocker,
}

Teams = dict[str, list[Child]]


def run(effort: Effort, folder: Path) -> list[Table]:
    sizes = effort.counts(_PROCESSES, effort.processes)
    with Crew(__name__, _MAKERS, sizes[-1]) as crew:
        for name, team in crew.teams.items():
            for child in team:
                child.ask("prepare", path=f"{folder}/{name}.lock")
        return [
            _uncontended(crew, effort.rounds),
            _handover(crew.teams, effort.rounds),
            *_fights(crew.teams, sizes, effort),
        ]


def _uncontended(crew: Crew, rounds: int) -> Table:
    values = crew.race("lock, uncontended", rounds, "uncontended")
    group = Group("acquire and release", samples_of(values, "us"))
    return Table("A lock that nobody else wants", [group], _BASES)


def _handover(teams: Teams, rounds: int) -> Table:
    def timed(team: list[Child]) -> list[float]:
        holder, waiter = team[:2]
        seconds: list[float] = []
        while len(seconds) < _HANDOVERS:
            at = monotonic() + LEAD
            holder.tell("hold", at=at)
            # Anywhere in the hold, so that no one's pauses fit its length by chance.
            waiter.tell("enter", at=at + random.uniform(0.1, 0.9) * _LONG_HOLD)
            left, entered = holder.answer(), waiter.answer()
            if entered > left:  # else the holder came too late
                seconds.append(entered - left)
        return seconds

    runs = {name: partial(timed, team) for name, team in teams.items()}
    values = by_turns("lock, hand-over", rounds, runs)
    group = Group("after a hold of 20 ms", samples_of(values, "ms"))
    return Table("Hand-over: from the end of a hold to the waiter's entry", [group], _BASES)


def _fights(teams: Teams, sizes: list[int], effort: Effort) -> list[Table]:
    def fight(team: list[Child]) -> list[tuple[float, float]]:
        answers = at_once(team, "fight", seconds=effort.seconds)
        locks = sum(locks for locks, _ in answers)
        return [(locks / effort.seconds, max(longest for _, longest in answers))]

    rates: list[Group] = []
    waits: list[Group] = []
    for size in sizes:
        runs = {name: partial(fight, team[:size]) for name, team in teams.items()}
        rounds = max(1, effort.rounds // _ROUNDS_PER_FIGHT)
        values = by_turns(f"lock, {size} processes", rounds, runs)
        for groups, part, unit in ((rates, 0, "/s"), (waits, 1, "ms")):
            own = {name: [each[part] for each in got] for name, got in values.items()}
            groups.append(Group(f"{size} processes", samples_of(own, unit)))
    how = f"holds of 50 us, back to back, for {effort.seconds:g} s"
    return [
        Table(f"Locks a second in all, {how}", rates, _BASES),
        Table(f"The longest wait of any process, {how}", waits, _BASES),
    ]
