"""Contenders in interpreters of their own, timed by turns or all at once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, TypeVar

from ._figures import is_installed
from ._progress import show

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_ROOT = Path(__file__).resolve().parents[1]
LEAD = 0.005  # seconds for an order to arrive


@dataclass(frozen=True)
class Effort:
    """How much to do: more of it gives steadier figures.

    Args:
        rounds: How often each contender has its turn, after one to warm up.
        entries: The most entries in a cache.
        most: The same, where it is asked how something grows with them.
        seconds: How long many processes work at once.
        processes: The most of them.
    """

    rounds: int
    entries: int = 10_000
    most: int = 1_000_000
    seconds: float = 1.0
    processes: int = 16

    def counts(self, wanted: Iterable[int], most: int) -> list[int]:
        """Return those *wanted* up to *most*, which stands for all above it."""
        return sorted({min(each, most) for each in wanted})


FULL = Effort(rounds=16)
QUICK = Effort(rounds=4, most=100_000, seconds=0.25)
SMOKE = Effort(rounds=1, entries=20, most=40, seconds=0.05, processes=2)


class Child:
    """A fresh interpreter that holds one contender, told what to do through its stdin."""

    def __init__(self, bench: str, contender: str) -> None:
        self.name = contender
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._child", bench, contender],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def tell(self, task: str, **arguments: Any) -> None:
        """Have *task* done, without waiting for it."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps([task, arguments]) + "\n")
        stdin.flush()

    def answer(self) -> Any:
        """Return what the task that was told gave."""
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the interpreter of {self.name} ended; it says why above")
        return json.loads(line)

    def ask(self, task: str, **arguments: Any) -> Any:
        """Return what *task* gives."""
        self.tell(task, **arguments)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()


class Crew:
    """Children for each of *contenders* that is installed; use it as a context manager.

    Args:
        bench: The module whose ``Worker`` they hold.
        contenders: Their names.
        size: How many children each has.
    """

    def __init__(self, bench: str, contenders: Iterable[str], size: int = 1) -> None:
        self._bench = bench
        self._contenders = [name for name in contenders if is_installed(name)]
        self._size = size
        self._stack = ExitStack()
        self.teams: dict[str, list[Child]] = {}

    def __enter__(self) -> Self:
        with self._stack as stack:
            for name in self._contenders:
                self.teams[name] = [
                    stack.enter_context(Child(self._bench, name)) for _ in range(self._size)
                ]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def ask(self, task: str, **arguments: Any) -> None:
        """Have each child do *task*, one after the other."""
        for team in self.teams.values():
            for child in team:
                child.ask(task, **arguments)

    def race(self, label: str, rounds: int, task: str, **arguments: Any) -> dict[str, list[float]]:
        """Return the seconds that *task* gave for the first child of each contender."""
        runs = {name: partial(team[0].ask, task, **arguments) for name, team in self.teams.items()}
        return by_turns(label, rounds, runs)


def at_once(team: Sequence[Child], task: str, **arguments: Any) -> list[Any]:
    """Return what *task* gives for each of *team*, all of which begin at the moment ``at``."""
    at = monotonic() + LEAD * len(team)
    for child in team:
        child.tell(task, at=at, **arguments)
    return [child.answer() for child in team]


def sleep_until(at: float) -> None:
    sleep(max(0.0, at - monotonic()))


def by_turns(
    label: str, rounds: int, runs: Mapping[K, Callable[[], Sequence[T]]], warm_up: int = 1
) -> dict[K, list[T]]:
    """Call each of *runs* once a round, and return the values that each gave.

    The order is new in each round, so that a drift of the machine hits all
    alike. The first *warm_up* rounds do not count.
    """
    values: dict[K, list[T]] = {name: [] for name in runs}
    for number in range(warm_up + rounds):
        show(label, number, warm_up + rounds)
        for name in random.sample(list(runs), len(runs)):
            got = runs[name]()
            if number >= warm_up:
                values[name] += got
    return values
