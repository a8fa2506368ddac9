"""Contenders in interpreters of their own, timed by turns; tables and JSON of what came out."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata, util
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

SUBJECT = "respcache"
_ROOT = Path(__file__).resolve().parents[1]
_LIBRARIES = ("respcache", "diskcache", "lmdb", "filelock", "portalocker", "orjson")
_PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}


@dataclass(frozen=True)
class Effort:
    """How much to do: more of it gives steadier figures.

    Args:
        rounds: How often each contender has its turn, after one to warm up.
        entries: The most entries in a cache.
        seconds: How long each fight for a lock lasts.
        processes: The most processes in it.
    """

    rounds: int
    entries: int = 10_000
    seconds: float = 1.0
    processes: int = 16


FULL = Effort(rounds=40)
QUICK = Effort(rounds=5, seconds=0.25)
SMOKE = Effort(rounds=1, entries=20, seconds=0.1, processes=2)


@dataclass(frozen=True)
class Sample:
    """What one contender took: the median, and what 95 of 100 values stay within."""

    name: str
    median: float
    p95: float
    unit: str
    n: int

    @classmethod
    def of(cls, name: str, values: Iterable[float], unit: str) -> Sample:
        """Sum up *values*, which are seconds unless *unit* is a rate (``/s``)."""
        is_rate = unit.endswith("/s")
        scale = 1.0 if is_rate else _PER_SECOND[unit]
        ordered = sorted((value * scale for value in values), reverse=is_rate)
        last = -(-len(ordered) * 95 // 100) - 1
        return cls(name, statistics.median(ordered), ordered[last], unit, len(ordered))


@dataclass(frozen=True)
class Group:
    """Samples of one job, and the ratios that respcache is to reach against the others."""

    label: str
    samples: Sequence[Sample]
    reaches: Mapping[str, float] = field(default_factory=dict)

    def ratio(self, sample: Sample, base: str) -> float | None:
        """Return how often *sample* holds the median of *base*; None if that is missing."""
        medians = {each.name: each.median for each in self.samples}
        return sample.median / medians[base] if medians.get(base) else None

    def verdicts(self) -> list[dict[str, Any]]:
        """Return what became of each reach that was measured."""
        own = next((each for each in self.samples if each.name == SUBJECT), None)
        return [
            {"against": base, "reach": reach, "ratio": ratio, "is_reached": ratio <= reach}
            for base, reach in self.reaches.items()
            if own is not None and (ratio := self.ratio(own, base)) is not None
        ]


@dataclass(frozen=True)
class Table:
    """The groups of one question, with a column of ratios to each of *against*."""

    title: str
    groups: Sequence[Group]
    against: Sequence[str]

    def __str__(self) -> str:
        bases = [base for base in self.against if self._has(base)]
        rows = [["", "contender", "median", "p95", "unit", "n", *(f"x {base}" for base in bases)]]
        for group in self.groups:
            for place, sample in enumerate(group.samples):
                ratios = (group.ratio(sample, base) for base in bases)
                rows.append(
                    [
                        "" if place else group.label,
                        sample.name,
                        _number(sample.median),
                        _number(sample.p95),
                        sample.unit,
                        str(sample.n),
                        *(_ratio(ratio) for ratio in ratios),
                    ]
                )
        return "\n".join([f"### {self.title}", "", *_markdown(rows), *self._verdicts(), ""])

    def _has(self, base: str) -> bool:
        return any(sample.name == base for group in self.groups for sample in group.samples)

    def _verdicts(self) -> list[str]:
        lines = [
            f"- {group.label}: {verdict['ratio']:.2f} x {verdict['against']}, "
            f"to reach {verdict['reach']}: "
            + ("reached" if verdict["is_reached"] else "**not reached**")
            for group in self.groups
            for verdict in group.verdicts()
        ]
        return ["", *lines] if lines else []

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "groups": [
                {
                    "label": group.label,
                    "samples": [
                        {
                            **vars(sample),
                            "ratios": {base: group.ratio(sample, base) for base in self.against},
                        }
                        for sample in group.samples
                    ],
                    "reaches": group.verdicts(),
                }
                for group in self.groups
            ],
        }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if 0.1 <= value < 100 else _number(value)


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = (
        "| "
        + " | ".join(
            cell.ljust(width) if column in (0, 1, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    )
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [head, rule, *body]


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
    """A child for each of *contenders* that is installed; use it as a context manager."""

    def __init__(self, bench: str, contenders: Iterable[str]) -> None:
        self._bench = bench
        self._contenders = [name for name in contenders if is_installed(name)]
        self._stack = ExitStack()
        self.children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        with self._stack as stack:
            for name in self._contenders:
                self.children[name] = stack.enter_context(Child(self._bench, name))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def ask(self, task: str, **arguments: Any) -> None:
        """Have each child do *task*, one after the other."""
        for child in self.children.values():
            child.ask(task, **arguments)

    def race(self, label: str, rounds: int, task: str, **arguments: Any) -> dict[str, list[float]]:
        """Return the seconds that *task* gave for each contender."""
        runs = {
            name: partial(child.ask, task, **arguments) for name, child in self.children.items()
        }
        return by_turns(label, rounds, runs)


def by_turns(
    label: str, rounds: int, runs: Mapping[K, Callable[[], Sequence[T]]]
) -> dict[K, list[T]]:
    """Call each of *runs* once a round, and return the values that each gave.

    The order is new in each round, so that a drift of the machine hits all
    alike. A first round warms up and does not count.
    """
    values: dict[K, list[T]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        _progress(label, number, rounds)
        for name in random.sample(list(runs), len(runs)):
            got = runs[name]()
            if number:
                values[name] += got
    return values


def samples_of(values: Mapping[str, Iterable[float]], unit: str) -> list[Sample]:
    return [Sample.of(name, each, unit) for name, each in values.items()]


def is_installed(name: str) -> bool:
    """Tell whether the library of that name is there; what is none is always there."""
    return name not in _LIBRARIES or util.find_spec(name) is not None


def _progress(label: str, number: int, rounds: int) -> None:
    if sys.stderr.isatty():
        end = "\r\x1b[K" if number == rounds else ""
        print(f"\r\x1b[K{label}: round {number} of {rounds}", end=end, file=sys.stderr, flush=True)
    elif not number:
        print(label, file=sys.stderr, flush=True)


def environment() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    return {
        "cpus": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: metadata.version(name) for name in _LIBRARIES if is_installed(name)},
    }


def environment_line() -> str:
    facts = environment()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['cpus']} CPUs, {facts['kernel']} {facts['machine']}, {facts['python']}; {versions}"
    )


def write_json(path: Path, tables: Mapping[str, Sequence[Table]]) -> None:
    document = {
        "environment": environment(),
        "benchmarks": {name: [each.to_json() for each in group] for name, group in tables.items()},
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
